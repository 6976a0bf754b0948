"""A user's own encoder: every kind, checked on public rows; and what would let private rows meet is refused."""

from __future__ import annotations

import os
import pickle
import re
import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.feature_selection import SelectKBest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from torch import nn

from terrine._models import dump_estimators
from terrine.datasets import PrivateData, PublicData
from terrine.errors import DataError, InputError
from terrine.features import (
    AutoFeatures,
    EncoderFeatures,
    as_features,
    asked,
    choose_features,
    fit_auto,
    load_features,
    loaders,
)
from terrine.features.edges import Edges

PUBLIC = np.random.default_rng(0).standard_normal((300, 10))
IMAGES = np.random.default_rng(1).integers(0, 256, size=(90, 8, 8)).astype(np.uint8)
WORDS = [f"{a} {b} word{k}" for k, (a, b) in enumerate(zip("abcdefghij" * 4, "klmnopqrst" * 4, strict=True))]


def twice(rows):
    return rows[:, :3] * 2


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 6))


@pytest.fixture
def onnx_file(tmp_path):
    return exported(tmp_path / "net.onnx", {"rows": {0: "n"}})


def exported(path, axes=None):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            net().eval(), (torch.zeros(5, 1, 8, 8),), path, dynamo=False, input_names=["rows"], dynamic_axes=axes
        )
    return path


@pytest.fixture
def script_file(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.trace(net().eval(), torch.zeros(2, 1, 8, 8)).save(str(tmp_path / "net.pt"))
    return tmp_path / "net.pt"


@pytest.fixture
def skops_file(tmp_path):
    (tmp_path / "pca.skops").write_bytes(dump_estimators(PCA(4).fit(PUBLIC)))
    return tmp_path / "pca.skops"


def wanted():
    with torch.no_grad():
        return net().eval()(torch.from_numpy(IMAGES[:, None] / 255).float()).numpy()


# --- every kind


def test_a_function_is_features():
    features = as_features(twice, PUBLIC)
    assert (features.transform(PUBLIC) == twice(PUBLIC).astype(np.float32)).all()
    assert (features.kind, features.n_features, features.row_shape) == ("callable", 3, (10,))


def test_a_transformer_that_is_not_fitted_is_fitted_on_the_public_rows():
    features = as_features(make_pipeline(StandardScaler(), PCA(3)), PUBLIC, seed=4)
    own = make_pipeline(StandardScaler(), PCA(3)).fit_transform(PUBLIC)
    assert np.allclose(np.abs(features.transform(PUBLIC)), np.abs(own), atol=1e-5)


def test_a_transformer_that_was_fitted_is_taken_at_the_users_word_and_copied():
    fitted = StandardScaler().fit(PUBLIC + 1)
    features = as_features(fitted, PUBLIC)
    before = features.transform(PUBLIC)
    assert np.allclose(before, fitted.transform(PUBLIC), atol=1e-5)
    fitted.fit(PUBLIC * 100)  # later, on whatever rows
    assert (features.transform(PUBLIC) == before).all()


def test_texts_may_be_encoded_by_scikit_learn():
    features = as_features(TfidfVectorizer(), WORDS)
    assert features.transform(WORDS).shape == (40, features.n_features)
    assert not features.transform(["quite unlike"]).any()


def test_a_module_is_copied_put_in_eval_mode_and_sees_images_channels_first():
    module = net().train()
    module[1].running_mean.zero_()
    features = as_features(module, IMAGES)
    assert module.training
    assert np.allclose(features.transform(IMAGES), wanted(), atol=1e-5)
    with torch.no_grad():
        module[4].weight.zero_()
    assert np.allclose(features.transform(IMAGES), wanted(), atol=1e-5)


def test_files_of_nets_are_features(onnx_file, script_file):
    for path in (onnx_file, script_file):
        assert np.allclose(as_features(path, IMAGES).transform(IMAGES), wanted(), atol=1e-5)
    assert as_features(str(onnx_file), IMAGES).kind == "onnx"


def test_an_onnx_file_with_a_fixed_number_of_rows_is_given_that_number(tmp_path):
    exported(tmp_path / "fixed.onnx")
    for block, kept in ((None, 1), (1, 1), (5, 5)):  # one row five times, or five rows
        features = as_features(tmp_path / "fixed.onnx", IMAGES, block=block)
        assert features.block == kept
        assert np.allclose(features.transform(IMAGES), wanted(), atol=1e-5)
        features.save(tmp_path / "kept.safetensors")
        again = load_features(tmp_path / "kept.safetensors")
        assert again.block == kept
        assert (again.transform(IMAGES) == features.transform(IMAGES)).all()
    with pytest.raises(InputError, match="takes 5 rows at once"):
        as_features(tmp_path / "fixed.onnx", IMAGES, block=3)


def test_a_skops_file_is_features(skops_file):
    assert as_features(skops_file, PUBLIC).n_features == 4


def test_features_are_features(tmp_path):
    for features in (fit_auto(PUBLIC, seed=0), Edges(row_shape=(8, 8)), as_features(twice, PUBLIC)):
        rows = IMAGES if isinstance(features, Edges) else PUBLIC
        assert as_features(features, rows) is features
    with pytest.raises(InputError, match="These features are of rows of shape"):
        as_features(fit_auto(PUBLIC, seed=0), IMAGES)
    fit_auto(PUBLIC, seed=0).save(tmp_path / "auto.safetensors")
    assert as_features(tmp_path / "auto.safetensors", PUBLIC).row_shape == (10,)
    assert as_features("auto", PUBLIC).row_shape == (10,)


def test_a_function_by_name(tmp_path, monkeypatch):
    (tmp_path / "my_encoder.py").write_text("def half(rows):\n    return rows / 2\n")
    monkeypatch.syspath_prepend(tmp_path)
    features = as_features("my_encoder:half", PUBLIC)
    assert features.name == "my_encoder:half"
    for name, said in (("my_encoder:third", "has no function"), ("no_such_package:f", "cannot be imported")):
        with pytest.raises(InputError, match=said):
            as_features(name, PUBLIC)


def test_components_of_the_public_embeddings_follow():
    features = as_features(net(), np.concatenate([IMAGES, IMAGES[::-1] // 2]), components=3)
    assert features.transform(IMAGES).shape == (90, features.n_features)


def test_embeddings_in_hand_stand_in_the_place_of_rows():
    with pytest.raises(InputError, match="stand in the place of the rows"):
        as_features(PUBLIC, PUBLIC)


# --- a row's own numbers


def kinds(onnx_file, script_file, skops_file):
    return [
        (twice, PUBLIC),
        (skops_file, PUBLIC),
        (onnx_file, IMAGES),
        (script_file, IMAGES),
        (net(), IMAGES),
        (TfidfVectorizer(), WORDS),
    ]


def test_a_row_has_the_same_numbers_in_any_company_and_twice(onnx_file, script_file, skops_file):
    for given, public in kinds(onnx_file, script_file, skops_file):
        features = as_features(given, public)
        whole = features.transform(public)
        again = features.transform([public[3]] * 2 if isinstance(public, list) else public[[3, 3]])
        assert (again[0] == again[1]).all()
        assert (again[0] == whole[3]).all()
        assert (features.transform(public[:7]) == whole[:7]).all()
        turned = features.transform(public[::-1] if isinstance(public, list) else public[::-1].copy())
        assert (turned[::-1] == whole).all()


@pytest.mark.parametrize(
    "meeting",
    [
        lambda rows: rows - rows.mean(axis=0),
        lambda rows: rows / np.abs(rows).max(),
        FunctionTransformer(lambda rows: rows - rows.min(axis=0)),
        nn.BatchNorm1d(10, track_running_stats=False),
        lambda rows: np.cumsum(rows, axis=0),
        lambda rows: np.sort(rows, axis=0),
    ],
)
def test_an_encoder_whose_rows_meet_is_refused(meeting):
    with pytest.raises(InputError, match="other rows stand beside it"):
        as_features(meeting, PUBLIC, block=64)


def to_unit(rows):
    """What many write for images: 0 to 255, or 0 to 1 already."""
    return rows / 255 if rows.max() > 1 else rows


def shares(texts):
    """Of some letters; padded to the longest text beyond a usual length."""
    n = max(64, *map(len, texts))
    return np.array([[text.ljust(n).count(letter) / n for letter in "abcklm "] for text in texts])


def averaged(path, rows=None):
    """A net that adds a little of the mean over its rows, as an ONNX file."""
    onnx = pytest.importorskip("onnx")
    from onnx import helper

    kind, shape = onnx.TensorProto.FLOAT, [rows or "n", 10]
    share = onnx.numpy_helper.from_array(np.float32(1e-3), "share")
    nodes = [
        helper.make_node("ReduceMean", ["x"], ["mean"], axes=[0], keepdims=1),
        helper.make_node("Mul", ["mean", "share"], ["little"]),
        helper.make_node("Add", ["x", "little"], ["y"]),
    ]
    ends = [[helper.make_tensor_value_info(name, kind, shape)] for name in "xy"]
    model = helper.make_model(
        helper.make_graph(nodes, "net", *ends, [share]), opset_imports=[helper.make_opsetid("", 13)], ir_version=8
    )
    path.write_bytes(model.SerializeToString())
    return path


def test_no_row_changes_another_whatever_it_is(tmp_path):
    """Each is as it should be on public rows, in any company: only odd rows show that rows meet."""
    ranged = np.abs(PUBLIC) / 10
    cases = [
        (to_unit, ranged, 200.0),
        (shares, WORDS, "x" * 5000),
        (averaged(tmp_path / "free.onnx"), PUBLIC, 1e6),
        (averaged(tmp_path / "fixed.onnx", rows=64), PUBLIC, 1e6),
    ]
    for given, public, odd in cases:
        features = as_features(given, public)
        assert features.block == 1
        other = public.copy()
        other[0] = odd
        assert (features.transform(other)[1:] == features.transform(public)[1:]).all(), given
        with pytest.raises(InputError, match="one private row would reach every teacher"):
            as_features(given, public, block=64)


def test_rows_that_do_not_meet_may_be_given_together():
    def counted(texts):
        return [[len(text), text.count("a")] for text in texts]

    for given, public in ((twice, PUBLIC), (counted, WORDS), (net(), IMAGES)):
        made = as_features(given, public, block=16)
        assert made.block == 16
        assert np.allclose(made.transform(public), as_features(given, public).transform(public), atol=1e-5)


def test_an_encoder_whose_rows_meet_may_see_them_one_by_one():
    features = as_features(lambda rows: np.round(rows / np.abs(rows).max() * 127), PUBLIC)
    assert features.block == 1
    assert (features.transform(PUBLIC)[5] == features.transform(PUBLIC[5:6])[0]).all()


def test_rounding_that_depends_on_the_place_makes_rows_go_one_by_one():
    def rounds(rows):
        return rows * (1 + 1e-6 * np.arange(len(rows))[:, None])

    assert as_features(rounds, PUBLIC).block == 1
    with pytest.raises(InputError, match="differ in the last digits at another place among 16 rows"):
        as_features(rounds, PUBLIC, block=16)
    together = loaders.Loaded(kind="callable", name="its own", digest="", apply=rounds, block=16)
    assert asked.tried(together, PUBLIC, block=None) == (1, 10)


@pytest.mark.parametrize("seed", range(3))
def test_an_encoder_that_draws_or_remembers_is_refused(seed):
    rng, seen = np.random.default_rng(seed), []

    def remembers(rows):
        seen.append(rows.sum())
        return rows + np.sum(seen)

    for given in (lambda rows: rows + rng.standard_normal(rows.shape), remembers):
        with pytest.raises(InputError, match="when it is asked again"):
            as_features(given, PUBLIC)


# --- attacks and accidents


def test_private_rows_fit_nothing():
    private = PrivateData(PUBLIC, np.zeros(300, dtype=int))
    for given in (StandardScaler(), twice, "auto"):
        with pytest.raises(InputError, match="private rows would reach every teacher"):
            as_features(given, private)


def test_encoding_private_rows_fits_nothing():
    features = as_features(StandardScaler(), PUBLIC)
    before = features.digest, features.transform(PUBLIC)
    features.transform(PUBLIC * 1000 + 7)
    assert features.digest == before[0]
    assert (features.transform(PUBLIC) == before[1]).all()


class Bomb:
    def __reduce__(self):
        return (os.mkdir, ("ran",))


def test_a_pickle_is_refused_unread(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("net.pkl", "net.joblib", "pytorch_model.bin", "net.pt", "net.pth", "net.onnx", "net.skops"):
        (tmp_path / name).write_bytes(pickle.dumps(Bomb()))
        with pytest.raises(InputError, match=r"pickle|damaged"):
            as_features(tmp_path / name, IMAGES)
    for given in (net(), net().state_dict()):
        torch.save(given, tmp_path / "saved.pt")
        with pytest.raises(DataError, match="is a pickle, which runs code"):
            as_features(tmp_path / "saved.pt", IMAGES)
    assert not (tmp_path / "ran").exists()


def test_onnx_weights_in_other_files_are_refused(onnx_file, tmp_path):
    import onnx

    model = onnx.load(onnx_file)
    onnx.save(model, tmp_path / "apart.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    with pytest.raises(DataError, match="Save it as one file"):
        as_features(tmp_path / "apart.onnx", IMAGES)


@pytest.mark.parametrize("where", ["a branch without nodes", "a sparse tensor", "a function"])
def test_weights_elsewhere_are_found_wherever_they_are_named(tmp_path, monkeypatch, where):
    onnx = pytest.importorskip("onnx")
    from onnx import helper

    monkeypatch.chdir(tmp_path)  # onnxruntime would look for the file there
    np.full(4, 7, dtype=np.float32).tofile("weights.bin")
    apart = onnx.TensorProto(name="w", data_type=onnx.TensorProto.FLOAT, dims=[4], data_location=1)
    for key, value in (("location", "weights.bin"), ("offset", "0"), ("length", "16")):
        apart.external_data.add(key=key, value=value)
    here = helper.make_tensor("w", onnx.TensorProto.FLOAT, [4], [0.0] * 4)
    X, Y = (helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["n", 4]) for name in "xy")
    add, more = helper.make_node("Add", ["x", "w"], ["y"]), {}
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    if where == "a sparse tensor":
        places = helper.make_tensor("places", onnx.TensorProto.INT64, [4], [0, 1, 2, 3])
        graph = helper.make_graph(
            [add], "g", [X], [Y], sparse_initializer=[onnx.SparseTensorProto(values=apart, indices=places, dims=[4])]
        )
    elif where == "a function":
        inside = [helper.make_node("Constant", [], ["w"], value=apart), add]
        more["functions"] = [helper.make_function("own", "F", ["x"], ["y"], inside, opsets[:1])]
        graph = helper.make_graph([helper.make_node("F", ["x"], ["y"], domain="own")], "g", [X], [Y])
    else:
        out = [helper.make_tensor_value_info("w", onnx.TensorProto.FLOAT, [4])]
        one, other = (helper.make_graph([], "branch", [], out, initializer=[some]) for some in (apart, here))
        yes = helper.make_tensor("yes", onnx.TensorProto.BOOL, [], [True])
        choice = helper.make_node("If", ["yes"], ["w"], then_branch=one, else_branch=other)
        graph = helper.make_graph([choice, add], "g", [X], [Y], initializer=[yes])
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8, **more)
    with pytest.raises(DataError, match="Save it as one file"):
        loaders.of_onnx(model.SerializeToString(), name="apart.onnx")


def test_a_panic_of_a_library_in_rust_is_not_heard():
    class PanicException(BaseException):
        """As PyO3 raises it: no Exception."""

    def panics(rows):
        if (rows > 50).any():
            raise PanicException("a secret")
        return rows[:, :2] + 1

    features = as_features(panics, PUBLIC)
    odd = PUBLIC[:3].copy()
    odd[1] = 99
    assert features.transform(odd).any(axis=1).tolist() == [True, False, True]


def test_a_row_that_an_encoder_fails_on_counts_as_zeros_without_a_word(capfd, recwarn):
    def touchy(rows):
        if (rows > 50).any():
            print("a secret", rows)
            warnings.warn("a secret", stacklevel=1)
            raise ValueError("a secret")
        found = rows[:, :2] + 1
        found[rows[:, 0] < -50] = np.nan
        return found

    features = as_features(touchy, PUBLIC)
    odd = PUBLIC[:5].copy()
    odd[1], odd[3] = 99, -99
    found = features.transform(odd)
    assert not found[[1, 3]].any()
    assert (found[[0, 2, 4]] == features.transform(PUBLIC[[0, 2, 4]])).all()
    assert capfd.readouterr() == ("", "")
    assert not recwarn.list


def test_what_is_wrong_on_public_rows_is_said():
    for given, said in (
        (lambda rows: rows[0], r"must give an array \(rows, numbers\), a row for each of 1 given, got shape \(10,\)"),
        (lambda rows: rows * np.nan, "gives nan or inf for a public row"),
        (lambda rows: rows.nothing, "fails on the public rows"),
        (lambda rows: rows[:, :1] * 0, "the same numbers for all public rows"),
        (lambda rows: np.ones((len(rows), 20_001)) * rows[:, :1], "Follow it by one that reduces"),
        (SelectKBest(k=2), "One that needs labels must be fitted before"),
        (StandardScaler, "Give an encoder, not its class"),
        (7, "got int"),
    ):
        with pytest.raises(InputError, match=said):
            as_features(given, PUBLIC)
    with pytest.raises(InputError, match="at least 2 public rows"):
        as_features(twice, PUBLIC[:1])
    with pytest.raises(DataError, match="there is no such file or folder"):
        as_features("nowhere.onnx", PUBLIC)
    with pytest.raises(InputError, match="must be of dtype uint8"):
        as_features(net(), IMAGES).transform(IMAGES / 255)


# --- kept


def test_what_is_carried_comes_back(onnx_file, tmp_path):
    for given, public in (
        (onnx_file, IMAGES),
        (make_pipeline(StandardScaler(), PCA(3)), PUBLIC),
        (TfidfVectorizer(), WORDS),
    ):
        for components in (None, 3):
            features = as_features(given, PublicData(public), components=components)
            assert features.carried
            features.save(tmp_path / "kept.safetensors")
            again = load_features(tmp_path / "kept.safetensors")
            assert (again.digest, again.kind, again.name) == (features.digest, features.kind, features.name)
            assert (again.transform(public) == features.transform(public)).all()


def test_what_is_not_carried_is_named_and_has_to_be_the_same(script_file, tmp_path):
    kept = tmp_path / "kept.safetensors"
    for given, other, public, needs in (
        (script_file, None, IMAGES, "it needs the TorchScript file net.pt"),
        (net(), nn.Sequential(nn.Flatten(), nn.Linear(64, 6)), IMAGES, "it needs the PyTorch module"),
        (twice, lambda rows: rows[:, :3] * 3, PUBLIC, "it needs the function .*twice"),
    ):
        features = as_features(given, public)
        assert not features.carried
        features.save(kept)
        with pytest.raises(DataError, match=needs):
            EncoderFeatures.load(kept)
        assert (load_features(kept, encoder=given).transform(public) == features.transform(public)).all()
        if other is not None:
            with pytest.raises(DataError, match=r"not the one|different numbers"):
                load_features(kept, encoder=other)


def test_damaged_files_are_refused(tmp_path):
    data = as_features(StandardScaler(), PUBLIC).dumps()
    for broken in (data[:-5], b"nothing", data[:-3] + b"abc"):
        (tmp_path / "kept.safetensors").write_bytes(broken)
        with pytest.raises(DataError, match=r"damaged|not as they were saved|not a file of features"):
            load_features(tmp_path / "kept.safetensors")
        with pytest.raises(DataError):
            EncoderFeatures.load(tmp_path / "kept.safetensors")


# --- the choice among several, and the page


def test_the_best_is_chosen_by_public_rows_alone():
    def blind(rows):
        return rows[:, :1, 0] * 1.0

    found = choose_features([blind, "auto"], IMAGES)
    assert isinstance(found, AutoFeatures)
    assert set(found.scores) == {"1: blind", "2: auto"}
    labels = (IMAGES[:, 0, 0] > 128).astype(np.int64)
    assert choose_features([net(), blind], IMAGES, labels=labels).name.endswith("blind")
    assert choose_features([TfidfVectorizer(), len_of], WORDS * 2).scores.keys() == {"1: TfidfVectorizer", "2: len_of"}
    with pytest.raises(InputError, match="cannot be compared without labels"):
        choose_features([twice, StandardScaler()], PUBLIC)
    with pytest.raises(InputError, match="compared on public rows only"):
        choose_features([twice], PrivateData(PUBLIC, np.zeros(300, dtype=int)))


def len_of(texts):
    return np.array([[len(one), one.count("a")] for one in texts])


def test_the_page_s_example_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(Path(__file__).parent / "tiny_bert", tmp_path / "all-MiniLM-L6-v2")
    page = (Path(__file__).parents[2] / "docs" / "features.md").read_text()
    block = re.search(r"```python\n(import numpy as np\nimport torch.*?)```", page, flags=re.DOTALL)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(compile(block[1], "features.md", "exec"), found := {})
    assert found["rows"].shape[0] == 100
    assert load_features("features.safetensors", encoder=found["bands"]).row_shape == (8, 8)
