"""Features from public rows: functions of one row, a map that follows chains of neighbours, rows to ask about."""

from __future__ import annotations

import json
import sys
from dataclasses import replace

import numpy as np
import pytest
import safetensors.numpy
import scipy.sparse
import torch
from sklearn.datasets import make_moons

from terrine.datasets import PrivateData, PublicData
from terrine.errors import DataError, InputError, MissingDependencyError
from terrine.features import FeatureRecipe, Features, encoder, fit_features, representative_rows, spectral
from terrine.features import features as learn
from terrine.teachers import CentroidTeacher

PLAIN = FeatureRecipe(encoder=False, dimensions=4, neighbours=15)
TINY = FeatureRecipe(
    width=6, steps=60, batch=48, shift=2.5, zoom=0.05, rotate=5, shear=0.0, views=3, dimensions=8, neighbours=12
)


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def signs(n, *, seed=0):
    """(n, 12, 12) uint8: four signs of six pixels, anywhere in the image, on noise."""
    rng = np.random.default_rng(seed)
    y = rng.integers(4, size=n)
    X = rng.integers(0, 60, size=(n, 12, 12))
    pixel = np.arange(6)
    for image, sign in zip(X, y, strict=True):
        down, right = rng.integers(0, 7, size=2)
        for step in (0, 5) if sign == 3 else (2,):
            if sign != 1:
                image[down + step, right + pixel] = 250
            if sign != 0:
                image[down + pixel, right + step] = 250
    return X.astype(np.uint8), y


def purity(features, y, *, k=5):
    near = spectral.nearest(features, features, k=k, device="cpu", own=np.arange(len(y)))
    return (y[near] == y[:, None]).mean()


@pytest.fixture(scope="module")
def moons():
    X, y = make_moons(1400, noise=0.06, random_state=0)
    return X[:700], y[:700], X[700:], y[700:]


@pytest.fixture(scope="module")
def moon_features(moons):
    return fit_features(moons[0], recipe=PLAIN, seed=0)


@pytest.fixture(scope="module")
def sign_features():
    return fit_features(PublicData(signs(300)[0]), recipe=TINY, seed=0, device="cpu")


# The encoder


def test_an_encoder_learns_to_tell_images_apart_whatever_the_view():
    """Of 100 new images under one view, which is it that is seen under another?"""
    images = ((np.random.default_rng(0).random((300, 12, 12)) > 0.75) * 250).astype(np.uint8)
    recipe = replace(TINY, steps=80, learning_rate=0.01, shift=1.5)
    x = encoder._seen(torch.from_numpy(encoder.as_images(images[200:])))
    numbers = torch.Generator().manual_seed(0)
    views = [encoder._distorted(x, *encoder._drawn(100, numbers), recipe) for _ in range(2)]
    views = [(view * 255).byte().squeeze(1).numpy() for view in views]

    def found(steps):
        learned = replace(recipe, steps=steps, views=1)
        weights = encoder.fit_encoder(images[:200], recipe=learned, seed=0, device="cpu")
        one, two = (encoder.encode(weights, view, recipe=learned, device="cpu") for view in views)
        one, two = (spectral.unit_rows(z - z.mean(axis=0)) for z in (one, two))
        return ((one @ two.T).argmax(axis=1) == np.arange(100)).mean()

    assert found(1) < 0.12
    assert found(80) > 0.17


def test_features_of_images_keep_classes_together(sign_features):
    images, y = signs(300)
    assert purity(images.reshape(300, -1).astype(np.float32), y) < 0.6
    assert purity(sign_features.public, y) > 0.8


def test_the_same_seed_is_the_same_encoder_bit_for_bit(sign_features):
    torch.manual_seed(99)  # the global state is neither used nor touched
    state = torch.get_rng_state()
    again = fit_features(signs(300)[0], recipe=TINY, seed=0, device="cpu")
    assert torch.equal(torch.get_rng_state(), state)
    assert (again.public == sign_features.public).all()
    assert all((again._arrays[name] == array).all() for name, array in sign_features._arrays.items())
    other = fit_features(signs(300)[0], recipe=replace(TINY, steps=2), seed=1, device="cpu")
    assert (other._arrays["encoder.0.weight"] != again._arrays["encoder.0.weight"]).any()


def test_features_of_a_row_depend_on_that_row_alone(sign_features, moon_features, moons):
    for features, rows in ((sign_features, signs(150, seed=5)[0]), (moon_features, moons[2])):
        whole = features.transform(rows)
        some = np.random.default_rng(0).permutation(len(rows))[:41]
        assert (features.transform(rows[some]) == whole[some]).all()
        changed = rows.copy()
        changed[::2] = changed[0]
        assert (features.transform(changed)[1::2] == whole[1::2]).all()


def test_blocks_do_not_show(sign_features, monkeypatch):
    rows = signs(150, seed=5)[0]
    whole = sign_features.transform(rows)
    monkeypatch.setattr(learn, "_BLOCK", 64)
    told = []
    assert (sign_features.transform(rows, progress=told.append) == whole).all()
    assert told == sorted(told)
    assert told[-1] == 1.0


def test_contrast_is_the_formula_and_twins_drawn_twice_do_not_count():
    z = torch.nn.functional.normalize(torch.randn(8, 5, generator=torch.Generator().manual_seed(0)), dim=1)
    which = torch.tensor([3, 7, 3, 5])
    image, total = [3, 7, 3, 5] * 2, 0.0
    scores = (z @ z.T / 0.3).tolist()
    for i in range(8):
        twin = (i + 4) % 8
        others = [j for j in range(8) if image[j] != image[i] or j == twin]
        total += -scores[i][twin] + np.log(np.sum(np.exp([scores[i][j] for j in others])))
    assert abs(float(encoder._contrast(z, which, 0.3)) - total / 8) < 1e-5


def test_views_move_bend_and_thicken_but_do_not_mirror():
    image = np.zeros((1, 16, 16), np.uint8)
    image[0, 3:13, 4:6] = image[0, 11:13, 4:12] = 255  # an L
    x = encoder._seen(torch.from_numpy(encoder.as_images(image))).expand(400, -1, -1, -1)
    numbers = encoder._drawn(400, torch.Generator().manual_seed(0))
    recipe = replace(TINY, rotate=20, zoom=0.2, shear=0.3, shift=1)
    seen = encoder._distorted(x, *numbers, recipe)
    still = replace(TINY, rotate=0, zoom=0, shear=0, shift=0, elastic=0, stroke=0)
    assert torch.allclose(encoder._distorted(x, *numbers, still), x, atol=1e-5)
    mass = seen.sum((1, 2, 3)) / x[0].sum()
    assert mass.std() > 0.1
    assert seen.std(0).max() > 0.3
    alike = (seen * x).sum((1, 2, 3))
    assert (alike > (seen * x.flip(3)).sum((1, 2, 3))).float().mean() > 0.99
    thick, thin = (encoder._distorted(x, numbers[0], numbers[1], torch.full((400,), u), recipe) for u in (0.99, 0.01))
    assert (thick.sum((1, 2, 3)) > 1.2 * thin.sum((1, 2, 3))).all()


# The map


def test_nearest_is_nearest():
    rng = np.random.default_rng(0)
    rows, among = rng.standard_normal((301, 5)).astype(np.float32), rng.standard_normal((90, 5)).astype(np.float32)
    far = ((rows[:, None] - among[None]) ** 2).sum(axis=2)
    assert (spectral.nearest(rows, among, k=7, device="cpu") == np.argsort(far, axis=1)[:, :7]).all()
    assert (spectral.nearest(rows, among, k=90, device="cpu") == np.argsort(far, axis=1)).all()
    own = np.arange(90)
    near = spectral.nearest(among, among, k=89, device="cpu", own=own)
    assert (near != own[:, None]).all()
    assert (spectral.nearest(among, among, k=1, device="cpu")[:, 0] == own).all()


def test_the_search_on_a_gpu_is_the_same_search():
    """The code of a GPU, run on a CPU."""
    rng = np.random.default_rng(0)
    among = rng.standard_normal((90, 5)).astype(np.float32)
    own = np.arange(90)
    here = spectral._pick_numpy(among)(among, 90, 6, own)
    there = spectral._pick_torch(among, "cpu")(among, 90, 6, own)
    assert (here == there).all()


def test_edges_are_shares_of_common_neighbours(monkeypatch):
    monkeypatch.setattr(spectral, "_SHARED_BLOCK", 17)
    rows = np.random.default_rng(0).standard_normal((60, 3)).astype(np.float32)
    near = spectral.nearest(rows, rows, k=6, device="cpu", own=np.arange(60))
    graph = spectral.shared_neighbours(near).toarray()
    sets = [{i, *near[i]} for i in range(60)]
    for i in range(60):
        for j in range(60):
            wanted = len(sets[i] & sets[j]) / len(sets[i] | sets[j]) if i != j else 0
            assert abs(graph[i, j] - wanted) < 1e-6


def test_eigenvectors_by_either_solver_are_those_of_the_normalised_graph(monkeypatch):
    rows = np.random.default_rng(0).standard_normal((300, 3)).astype(np.float32)
    near = spectral.nearest(rows, rows, k=8, device="cpu", own=np.arange(300))
    graph = spectral.shared_neighbours(near)
    dense = spectral.spectral_map(graph, dimensions=6, damping=0.99, seed=0)
    degree = graph.toarray().sum(axis=1)
    values, vectors = np.linalg.eigh(graph.toarray() / np.sqrt(np.outer(degree, degree)))
    by_hand = vectors[:, :-7:-1] / np.sqrt(1 - 0.99 * values[:-7:-1])
    by_hand /= np.linalg.norm(by_hand, axis=1, keepdims=True)
    assert np.allclose(dense @ dense.T, by_hand @ by_hand.T, atol=1e-4)  # whatever the signs
    assert (dense[:, 0] > 0).all()  # the largest eigenvalue's comes first
    monkeypatch.setattr(spectral, "_DENSE", 10)
    sparse = spectral.spectral_map(graph, dimensions=6, damping=0.99, seed=0)
    assert np.allclose(dense, sparse, atol=1e-4)  # signs too
    assert (sparse == spectral.spectral_map(graph, dimensions=6, damping=0.99, seed=0)).all()
    assert np.allclose(sparse, spectral.spectral_map(graph, dimensions=6, damping=0.99, seed=1), atol=1e-4)


def test_parts_that_no_edge_joins_are_orthogonal():
    """Eigenvalue 1 once for each part: the solver finds all of them."""
    sizes = (400, 300, 250, 200, 150)
    rng = np.random.default_rng(0)
    parts = []
    for n in sizes:
        rows = rng.standard_normal((n, 2)).astype(np.float32)
        parts.append(spectral.shared_neighbours(spectral.nearest(rows, rows, k=10, device="cpu", own=np.arange(n))))
    places = spectral.spectral_map(scipy.sparse.block_diag(parts, format="csr"), dimensions=5, damping=0.99, seed=0)
    part = np.repeat(np.arange(5), sizes)
    cosines = places @ places.T
    assert np.allclose(cosines, part[:, None] == part, atol=1e-3)


def test_the_map_separates_moons_where_raw_means_fail(moon_features, moons):
    public, truth, private, y = moons
    nearest_mean = CentroidTeacher(similarity=-1)

    def accuracy(rows, queries):
        shares = [(rows[s : s + 10], y[s : s + 10]) for s in range(0, 400, 10)]
        models = nearest_mean.fit(shares, ids=range(40), n_classes=2, seed=0)
        return (nearest_mean.predict(models, queries) == truth).mean()

    middle = public.mean(axis=0)
    assert accuracy(private - middle, public - middle) < 0.88
    assert accuracy(moon_features.transform(private), moon_features.transform(public)) > 0.97


def test_a_public_row_lies_where_any_row_would_and_close_to_its_own_place(moon_features, moons):
    own = moon_features._arrays["places"]
    again = moon_features.transform(moons[0])
    assert np.allclose(again, moon_features.public, atol=1e-5)
    assert again.dtype == np.float32
    assert np.allclose(np.linalg.norm(again, axis=1), 1, atol=1e-5)
    assert np.quantile((again * own).sum(axis=1), 0.02) > 0.95


def test_whitening_makes_neighbours_differ_alike():
    """Two classes apart in one direction, drowned by four loud ones in which neighbours differ."""
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=800)
    rows = rng.standard_normal((800, 8)) * [20, 20, 20, 20, 1, 1, 1, 1] + np.outer(y * 12 - 6, np.eye(8)[4])
    rows = rows.astype(np.float32)
    before = purity(spectral.unit_rows(rows), y)
    after = [
        purity(spectral.whitened(rows, *spectral.whitening(rows, rounds=rounds, device="cpu")), y)
        for rounds in (0, 1, 3)
    ]
    assert before < 0.9
    assert abs(after[0] - before) < 0.02
    assert after[1] > before + 0.05
    assert after[2] > 0.98
    alike = np.ones((20, 3), np.float32)
    assert np.isfinite(spectral.whitening(alike, rounds=2, device="cpu")[1]).all()


def test_without_a_map_features_are_what_the_map_would_be_made_of(moons, sign_features):
    images = signs(300)[0]
    encoded = fit_features(images, recipe=replace(TINY, dimensions=None), seed=0, device="cpu")
    assert (encoded.public == sign_features._arrays["known"]).all()
    assert encoded.transform(images[:7]).shape == (7, 24)
    features = fit_features(moons[0], recipe=replace(PLAIN, dimensions=None), seed=0)
    assert np.allclose(features.public.mean(axis=0), 0, atol=1e-5)
    assert np.allclose(features.public.std(axis=0), 1, atol=1e-5)
    as_is = fit_features(moons[0], recipe=replace(PLAIN, dimensions=None, standardise=False), seed=0)
    assert np.allclose(as_is.public, moons[0] - moons[0].mean(axis=0), atol=1e-5)
    assert np.allclose(features.transform(moons[0]), features.public)
    assert "known" not in features._arrays


def test_equal_rows_and_constant_columns_are_fine():
    rows = np.zeros((60, 3))
    rows[30:, 0] = 1
    features = fit_features(rows, recipe=replace(PLAIN, dimensions=2, neighbours=5), seed=0)
    assert np.isfinite(features.public).all()
    assert np.isfinite(features.transform(rows + 5)).all()


# Rows to ask about


def blobs(sizes=(120, 80, 40)):
    rng = np.random.default_rng(0)
    centres = np.array([[0, 0], [10, 0], [0, 10]])
    part = np.repeat(np.arange(3), sizes)
    return centres[part] + rng.standard_normal((len(part), 2)), part


def test_representative_rows_cover_every_part_the_largest_first():
    rows, part = blobs()
    features = fit_features(rows, recipe=replace(PLAIN, dimensions=3), seed=0)
    chosen = representative_rows(features, 20, seed=0)
    assert part[chosen[:3]].tolist() == [0, 1, 2]
    assert len(set(chosen.tolist())) == 20
    assert (representative_rows(features, 5, seed=0) == chosen[:5]).all()
    assert sorted(representative_rows(features, 240, seed=0)) == list(range(240))
    assert (representative_rows(features.public, 20, seed=0) == chosen).all()
    for wrong, words in (
        (PrivateData(features.public, part), "got PrivateData"),
        (features.public[0], "n_rows, n_features"),
        (np.where(features.public > 0, np.nan, 0), "finite numbers"),
    ):
        with pytest.raises(InputError, match=words):
            representative_rows(wrong, 5, seed=0)


def test_the_choice_is_greedy_by_the_book_until_a_row_stands_for_itself_alone():
    """Parts of 120, 80 and 40 rows and three oddities far away, each alone."""
    rng = np.random.default_rng(0)
    part = np.repeat(np.arange(6), (120, 80, 40, 1, 1, 1))
    public = np.eye(8, dtype=np.float32)[part] + 0.15 * rng.standard_normal((243, 8)).astype(np.float32)
    features = Features(recipe=PLAIN, row_shape=(8,), public=public, _arrays={})
    unit = spectral.unit_rows(public)
    close, covered = np.maximum(unit @ unit.T, 0) ** 2, np.zeros(243, np.float32)
    chosen = representative_rows(features, 200, seed=0)
    k = 0
    while (gains := np.maximum(close - covered, 0).sum(axis=1)).max() >= 2:
        assert gains[chosen[k]] >= gains.max() - 1e-3
        covered = np.maximum(covered, close[chosen[k]])
        k += 1
    assert 3 <= k < 40
    other = representative_rows(features, 200, seed=1)
    assert (other[:k] == chosen[:k]).all()
    drawn = [j for j in np.random.default_rng(0).permutation(243) if j not in chosen[:k]]
    assert chosen[k:].tolist() == drawn[: 200 - k]
    alike = Features(recipe=PLAIN, row_shape=(8,), public=public[:20] + 3, _arrays={})
    one, *others = representative_rows(alike, 20, seed=0)
    assert others == [j for j in np.random.default_rng(0).permutation(20) if j != one]


def test_of_many_rows_some_are_looked_at(moon_features, monkeypatch):
    monkeypatch.setattr(learn, "_CHOSEN_FROM", 100)
    first, second = (representative_rows(moon_features, 10, seed=seed) for seed in (0, 1))
    assert set(first) != set(second)
    assert max(first) > 100
    assert len(set(representative_rows(moon_features, 300, seed=0).tolist())) == 300


# Kept on disk


@pytest.fixture
def kept(tmp_path, sign_features):
    sign_features.save(tmp_path / "features.safetensors")
    return tmp_path / "features.safetensors"


def test_what_is_saved_comes_back(kept, tmp_path, sign_features, moon_features, moons):
    rows = signs(50, seed=3)[0]
    back = Features.load(kept)
    assert repr(back) == "<Features: rows of (12, 12) -> 8, learned from 300 public rows>"
    assert back.recipe == TINY
    assert (back.public == sign_features.public).all()
    assert (back.transform(rows) == sign_features.transform(rows)).all()
    for features in (moon_features, fit_features(moons[0], recipe=replace(PLAIN, dimensions=None), seed=0)):
        features.save(tmp_path / "plain.safetensors")
        back = Features.load(tmp_path / "plain.safetensors")
        assert (back.transform(moons[2]) == features.transform(moons[2])).all()
    assert not list(tmp_path.glob(".*"))


def rewritten(path, change):
    """The same file with other arrays or metadata, hash included."""
    with safetensors.safe_open(path, "np") as file:
        metadata = file.metadata()
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    change(arrays, metadata)
    metadata["sha256"] = learn._digest(arrays)
    path.write_bytes(safetensors.numpy.save(arrays, metadata))


def test_damaged_and_foreign_files_are_refused(kept):
    whole = kept.read_bytes()
    for damage, said in (
        (whole[:-10], "is damaged, or not"),
        (b"", "is damaged, or not"),
        (whole[:-5] + bytes([whole[-5] ^ 1]) + whole[-4:], "sha256 differs"),
        (safetensors.numpy.save({"a": np.zeros(3)}), "schema"),
    ):
        kept.write_bytes(damage)
        with pytest.raises(DataError, match=said):
            Features.load(kept)
    with pytest.raises(DataError, match="no such file"):
        Features.load(kept.with_name("other"))


@pytest.mark.parametrize(
    "change",
    [
        lambda arrays, metadata: arrays.pop("places"),
        lambda arrays, metadata: arrays.update(places=arrays["places"][:, :4].copy()),
        lambda arrays, metadata: arrays.update(places=arrays["places"].astype(np.float64)),
        lambda arrays, metadata: arrays.update(more=np.zeros(3)),
        lambda arrays, metadata: arrays["matrix"].fill(np.nan),
        lambda arrays, metadata: metadata.update(row_shape="[12, 12, 3]"),
        lambda arrays, metadata: metadata.update(row_shape="no"),
        lambda arrays, metadata: metadata.update(recipe=json.dumps({"width": 7})),
        lambda arrays, metadata: metadata.update(recipe=json.dumps({"width": -1})),
        lambda arrays, metadata: metadata.update(recipe=json.dumps({"depth": 1})),
        lambda arrays, metadata: metadata.pop("recipe"),
    ],
)
def test_arrays_that_are_not_the_recipes_are_refused(kept, change):
    rewritten(kept, lambda arrays, metadata: None)
    Features.load(kept)
    rewritten(kept, change)
    with pytest.raises(DataError, match="the arrays do not fit the recipe") as caught:
        Features.load(kept)
    assert "\n" not in str(caught.value)


# What is missing or wrong


def test_plain_rows_need_no_torch_and_only_files_need_safetensors(moons, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setitem(sys.modules, "safetensors", None)
    features = fit_features(moons[0], recipe=PLAIN, seed=0)
    assert features.transform(moons[2]).shape == (700, 4)
    for act in (lambda: features.save(tmp_path / "f"), lambda: Features.load(__file__)):
        with pytest.raises(MissingDependencyError, match=r"pip install 'terrine\[keep\]'"):
            act()
    with pytest.raises(MissingDependencyError, match="PyTorch"):
        fit_features(signs(50)[0], recipe=TINY, seed=0)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"encoder": 1}, "encoder must be True or False"),
        ({"standardise": None}, "standardise must be True or False"),
        ({"width": 0}, "width must be a whole number"),
        ({"batch": 1}, "at least 2"),
        ({"whiten": -1}, "whiten"),
        ({"dimensions": 0}, "dimensions"),
        ({"temperature": 0}, "temperature must be above 0"),
        ({"elastic": -0.1}, "elastic must be at least 0"),
        ({"zoom": 1.0}, "zoom must be below 1"),
        ({"stroke": 0.5}, "stroke must be below 0.5"),
        ({"damping": 1.0}, "damping must be above 0 and below 1"),
    ],
)
def test_recipes_that_make_no_sense_are_refused(wrong, said):
    with pytest.raises(InputError, match=said):
        FeatureRecipe(**wrong)


def test_bad_rows_are_refused(moons, moon_features):
    private = PrivateData(moons[0], moons[1])
    images = signs(50)[0]
    for public, recipe, said in (
        (private, PLAIN, "learned from public rows, and this is PrivateData"),
        (moons[0], TINY, "encoder needs images"),
        (images.astype(np.float32), TINY, "encoder needs images"),
        (images[:, :3], TINY, "at least 4 x 4"),
        (moons[0][:4], PLAIN, "at least 5 public rows"),
        (np.full((9, 2), np.nan), PLAIN, "finite"),
    ):
        with pytest.raises(InputError, match=said):
            fit_features(public, recipe=recipe, seed=0)
    with pytest.raises(InputError, match="seed"):
        fit_features(moons[0], recipe=PLAIN, seed=-1)
    with pytest.raises(InputError, match="device"):
        fit_features(moons[0], recipe=PLAIN, seed=0, device="tpu")
    with pytest.raises(InputError, match=r"Rows must have shape \(2,\), .* got \(3,\)"):
        moon_features.transform(np.zeros((4, 3)))
    with pytest.raises(InputError, match="n must be at most 700"):
        representative_rows(moon_features, 701, seed=0)
    with pytest.raises(InputError, match="n must be"):
        representative_rows(moon_features, 0, seed=0)


def test_progress_rises_to_one(moons):
    told: list[float] = []
    fit_features(signs(60)[0], recipe=replace(TINY, steps=30), seed=0, device="cpu", progress=told.append)
    assert told == sorted(told)
    assert told[-1] == 1.0
