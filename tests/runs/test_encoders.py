"""A run whose teachers see rows by an encoder of the user's own: made once, kept, and needed by the student."""

from __future__ import annotations

import csv
import json
import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA
from torch import nn

from terrine._models import dump_estimators
from terrine.errors import DataError, InputError, StoreError
from terrine.runs.config import read_config, write_config
from terrine.runs.facts import write_run_report
from terrine.runs.local import Run
from terrine.students import load_student

BERT = Path(__file__).parents[1] / "features" / "tiny_bert"
REST = """
student = "auto"

[teachers]
number = 20
kind = "ridge"
executor = "serial"

[privacy]
mechanism = "gnmax"
sigma = 4.0
queries = 40
delta = 1e-5
"""
ARRAYS = """
[data]
private = "private.npz"
public = "public.npy"
test = "test.npz"
classes = ["flat", "steep"]
"""
TEXTS = """
[data]
private = "private.csv"
public = "public.csv"
test = "test.csv"
label = "mood"
classes = ["bad", "good"]
"""


def images(n, seed):
    rng = np.random.default_rng(seed)
    y = rng.integers(2, size=n)
    slope = np.where(y == 1, 20, 2)[:, None, None] * np.arange(8)[None, :, None]
    return np.clip(slope + rng.integers(0, 60, size=(n, 8, 8)), 0, 255).astype(np.uint8), y


def texts(n, seed):
    rng = np.random.default_rng(seed)
    y = rng.integers(2, size=n)
    things = ["cat", "dog", "film", "walk", "hill"]
    said = [
        f"the {rng.choice(things)} was {rng.choice(['very ', 'not bad it was ', ''])}{'good' if k else 'bad'}"
        f" and {rng.choice(things)} {rng.integers(1, 5)}"
        for k in y
    ]
    return said, y


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Files of images and of texts, and encoders of each kind beside them."""
    folder = tmp_path_factory.mktemp("encoders")
    (X, y), (T, t), (P, _) = images(600, 1), images(80, 2), images(200, 3)
    np.savez(folder / "private.npz", X=X, y=y)
    np.savez(folder / "test.npz", X=T, y=t)
    np.save(folder / "public.npy", P)
    for name, (said, moods) in {"private": texts(600, 1), "test": texts(80, 2), "public": texts(150, 3)}.items():
        with (folder / f"{name}.csv").open("w", newline="") as file:
            lines = csv.writer(file)
            lines.writerow(["words", "mood"])
            lines.writerows(zip(said, np.array(["bad", "good"])[moods], strict=True))
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten()).eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            net, (torch.zeros(2, 1, 8, 8),), folder / "net.onnx", dynamo=False, input_names=["x"],
            dynamic_axes={"x": {0: "n"}},
        )  # fmt: skip
        torch.jit.trace(net, torch.zeros(2, 1, 8, 8)).save(str(folder / "net.pt"))
    (folder / "pca.skops").write_bytes(dump_estimators(PCA(5).fit(P.reshape(len(P), -1))))
    shutil.copytree(BERT, folder / "tiny_bert")
    (folder / "own_encoders.py").write_text("def rows(X):\n    return X.mean(axis=2).astype('float32')\n")
    return folder


def begun(folder, name, features, data=ARRAYS, more=""):
    (folder / f"{name}.toml").write_text(f"{REST}\n[features]\n{features}\n{data}{more}")
    return Run.create(folder / f"{name}.toml", folder / name)


def finished(run):
    run.teach()
    run.vote()
    run.label()
    return run.learn()


IMAGES = {
    "onnx": ('kind = "onnx"\npath = "net.onnx"', True),
    "torch": ('kind = "torch"\npath = "net.pt"\ncomponents = 20', False),
    "skops": ('kind = "sklearn"\npath = "pca.skops"\ncomponents = 0', True),
    "sklearn": ('kind = "sklearn"\nname = "sklearn.decomposition.PCA"\noptions = {n_components = 4}', True),
    "callable": ('kind = "callable"\nname = "own_encoders:rows"', False),
    "choice": ('kind = "auto"\nencoders = ["net.onnx", "pca.skops", "auto"]', True),
}


@pytest.mark.parametrize("name", IMAGES)
@pytest.mark.usefixtures("by_renyi")
def test_a_run_goes_all_the_way_with_each_kind(folder, name, monkeypatch, terrine):
    monkeypatch.syspath_prepend(folder)
    features, carried = IMAGES[name]
    run = begun(folder, name, features)
    result = finished(run)
    assert result.accuracy > 0.8
    assert write_run_report(run).is_file()
    again = Run(run.folder)
    X = run.task.test_X
    assert (again._features().transform(X) == run._features().transform(X)).all()
    assert again.learn().accuracy == result.accuracy
    new, out = folder / "test.npz", folder / f"{name}.csv"
    given = {"torch": folder / "net.pt", "callable": "own_encoders:rows"}.get(name)
    card = (run.folder / "student" / "model_card.md").read_text()
    if carried:
        assert "not in this folder" not in card
        assert "encoder_sha256" in card or name == "choice"
        terrine("predict", run.folder / "student", new, "--out", out)
    else:
        assert "which is not in this folder" in card
        with pytest.raises(StoreError, match="does not carry its encoder"):
            load_student(run.folder / "student")
        terrine("predict", run.folder / "student", new, "--out", out, "--encoder", given)
    assert len(out.read_text().splitlines()) == 81


def test_texts_go_through_a_sentence_transformers_folder(folder, terrine):
    run = begun(folder, "texts", 'kind = "sentence-transformers"\npath = "tiny_bert"', TEXTS)
    result = finished(run)
    assert result.n_test == 80  # random weights: how right it is says nothing
    student = run.folder / "student"
    with pytest.raises(StoreError, match=r"needs the folder of the sentence-transformers model tiny_bert"):
        load_student(student)
    found = load_student(student, encoder=BERT)
    said, _ = texts(80, 2)
    assert (found.predict(said) == found.predict({"words": said})).all()
    terrine("predict", student, folder / "test.csv", "--out", folder / "moods.csv", "--encoder", BERT)
    assert "columns words" in (student / "model_card.md").read_text()
    with pytest.raises(InputError, match="a service takes rows of numbers"):
        run.voters()


def test_words_may_go_through_scikit_learn(folder):
    kind = 'kind = "sklearn"\nname = "sklearn.feature_extraction.text.TfidfVectorizer"\ntexts = true\ncomponents = 20'
    run = begun(folder, "tfidf", kind, TEXTS)
    assert finished(run).accuracy > 0.9
    load_student(run.folder / "student")


def test_an_encoder_that_changed_is_refused(folder, tmp_path):
    shutil.copytree(BERT, folder / "other_bert")
    run = begun(folder, "changed", 'kind = "sentence-transformers"\npath = "other_bert"', TEXTS)
    run.teach()
    config = json.loads((folder / "other_bert" / "config.json").read_text())
    (folder / "other_bert" / "config.json").write_text(json.dumps({**config, "layer_norm_eps": 0.5}))
    with pytest.raises(DataError, match="not the one that"):
        Run(run.folder).vote()


@pytest.mark.parametrize(
    ("features", "words"),
    [
        ('kind = "onnx"', r"needs `path`, that of the encoder's \.onnx file"),
        ('kind = "onnx"\npath = "none.onnx"', "there is no .*none.onnx. Nothing was taught or spent"),
        ('kind = "onnx"\npath = "net.pt"', r"reads files that end in \.onnx, and this is net\.pt"),
        ('kind = "torch"\npath = "pickled.pt"', "is a pickle, which runs code"),
        ('kind = "sentence-transformers"\npath = "net.pt"', "is a file, and a folder is needed"),
        ('kind = "callable"', 'needs `name`, e.g. "my_package'),
        ('kind = "callable"\nname = "json.dumps"', '"package.module:function"'),
        ('kind = "callable"\nname = "not_there:f"', "cannot be imported"),
        ('kind = "sklearn"', "needs `name`, .* or `path`"),
        ('kind = "edges"\npath = "net.onnx"', 'kind = "edges" takes no `path`'),
        ('kind = "auto"\nblock = 3', 'kind = "auto" takes no `block`'),
        ('kind = "onnx"\npath = "net.onnx"\noptions = {a = 1}', "takes no `options`"),
        ('kind = "onnx"\npath = "net.onnx"\ntexts = true', "takes texts, and the data are neither"),
        ('kind = "auto"\nencoders = ["none.onnx"]', "there is no .*none.onnx"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_taught(folder, tmp_path, features, words):
    torch.save(nn.Linear(2, 2), folder / "pickled.pt")

    def go():
        begun(folder, f"wrong{abs(hash(features))}", features).teach()

    with pytest.raises(InputError, match=words):
        go()


def test_a_table_with_other_columns_is_no_table_of_texts(folder):
    for name in ("private", "public"):
        lines = (folder / f"{name}.csv").read_text().splitlines()
        wide = [f"{line},{'size' if k == 0 else k % 90}" for k, line in enumerate(lines)]
        (folder / f"wide_{name}.csv").write_text("\n".join(wide) + "\n")
    data = TEXTS.replace("private.csv", "wide_private.csv").replace("public.csv", "wide_public.csv")
    data = data.replace('test = "test.csv"\n', "")
    run = begun(folder, "wide", 'kind = "sentence-transformers"\npath = "tiny_bert"', data)
    with pytest.raises(InputError, match=r'one column of text, and the schema has "words" .text., "size" .number.'):
        run.teach()


def test_paths_are_those_of_the_settings_file_and_come_back(folder, tmp_path):
    config = (
        read_config(folder / "onnx.toml")
        if (folder / "onnx.toml").is_file()
        else begun(folder, "onnx", IMAGES["onnx"][0]).given
    )
    assert config.features.path == folder / "net.onnx"
    (tmp_path / "again.toml").write_text(write_config(config))
    assert read_config(tmp_path / "again.toml") == config


def test_features_that_were_changed_after_the_teachers_learned_are_refused(folder):
    run = begun(folder, "swapped", 'kind = "sklearn"\nname = "sklearn.decomposition.PCA"\noptions = {n_components = 4}')
    run.teach()
    other = begun(folder, "other", 'kind = "sklearn"\nname = "sklearn.decomposition.PCA"\noptions = {n_components = 3}')
    other.teach()
    shutil.copy(other.folder / "features.safetensors", run.folder / "features.safetensors")
    with pytest.raises(StoreError, match="is not the file that this run learned on"):
        Run(run.folder).vote()
