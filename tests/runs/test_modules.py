"""PyTorch modules as a run's teachers: named in its settings, checked first, kept, resumed and served like others."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from terrine import PATEClassifier
from terrine.datasets import PrivateData
from terrine.errors import InputError, StoreError
from terrine.mechanisms import GNMax
from terrine.partitioning import new_key, partition
from terrine.runs.config import TeachersConfig, read_config, write_config
from terrine.runs.dry_run import dry_run
from terrine.runs.factories import teacher_of
from terrine.runs.facts import public_facts
from terrine.runs.local import Run
from terrine.teachers import ModuleRecipe, ModuleTeacher, fit_teachers
from terrine.teachers.architectures import mlp, resnet32

SETTINGS = """
[data]
name = "blobs"
[teachers]
number = 20
kind = "module"
module = "terrine:mlp"
executor = "serial"
device = "cpu"
[teachers.module_options]
hidden = [8]
[teachers.options]
steps = 30
batch = 16
optimiser = "adam"
learning_rate = 0.02
[privacy]
mechanism = "gnmax"
sigma = 4
queries = 60
delta = 1e-5
[student]
kind = "supervised"
estimator = "sklearn.linear_model.LogisticRegression"
"""
OWN = '''
"""A net of one's own."""
from torch import nn

def small(n_classes, row_shape, hidden=8):
    return nn.Sequential(nn.Linear(row_shape[0], hidden), nn.ReLU(), nn.Linear(hidden, n_classes))

def wrong(n_classes, row_shape):
    return nn.Linear(99, n_classes)

number = 3
'''


@pytest.fixture
def settings(tmp_path: Path, monkeypatch) -> Path:
    (tmp_path / "nets_of_mine.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(tmp_path))
    path = tmp_path / "run.toml"
    path.write_text(SETTINGS)
    return path


def whole(run: Run) -> None:
    run.teach()
    run.vote()
    run.label()
    run.learn()


@pytest.mark.parametrize(
    ("module", "options"), [("terrine:mlp", "hidden = [8]"), ("nets_of_mine:small", "hidden = 8")], ids=["ours", "own"]
)
def test_a_run_teaches_keeps_and_asks_modules(settings, tmp_path, module, options):
    settings.write_text(SETTINGS.replace("terrine:mlp", module).replace("hidden = [8]", options))
    assert dry_run(settings).teacher == module
    run = Run.create(settings, tmp_path / "r")
    whole(run)
    assert run.student_result().accuracy > 0.9
    shown = public_facts(run)["teachers"]
    assert (shown["kind"], shown["settings"]["module"], shown["settings"]["steps"]) == ("module", module, 30)
    assert "recipe.steps" in (run.folder / "teachers" / "manifest.json").read_text()
    again = Run(run.folder)  # as a service opens it: the kept teachers vote as they did
    votes = again.voters().vote(again.task.public.X[:50])
    assert (
        np.argmax(votes.counts, axis=1) == np.argmax(run.voters().vote(run.task.public.X[:50]).counts, axis=1)
    ).all()


def test_settings_are_written_out_and_read_back(settings, tmp_path):
    found = read_config(settings)
    (tmp_path / "again.toml").write_text(write_config(found))
    assert read_config(tmp_path / "again.toml") == found
    assert found.teachers.module_options == {"hidden": [8]}


def test_a_module_of_another_name_does_not_take_the_kept_weights(settings, tmp_path):
    run = Run.create(settings, tmp_path / "r")
    run.teach()
    config = run.folder / "config.toml"
    config.write_text(config.read_text().replace("hidden = [8]", "hidden = [9]"))
    with pytest.raises((InputError, StoreError), match=r"teachers\.module_options\.hidden|module\.hidden"):
        Run(run.folder).teach()


def test_the_papers_resnet_by_name():
    made = teacher_of(
        TeachersConfig(
            number=3,
            kind="module",
            module="terrine:resnet32",
            module_options={"width": 2},
            options={"steps": 2, "batch": 4, "schedule": "steps", "decay_at": [0.25, 0.5], "shift": 1},
            device="cpu",
            chunk=2,
        )
    )
    assert isinstance(made, ModuleTeacher)
    assert (made.module.func, made.module.keywords, made.chunk) == (resnet32, {"width": 2}, 2)
    assert made.recipe == ModuleRecipe(steps=2, batch=4, schedule="steps", decay_at=(0.25, 0.5), shift=1)
    rng = np.random.default_rng(0)
    data = PrivateData(rng.integers(0, 256, (12, 8, 8), dtype=np.uint8), rng.integers(0, 2, 12))
    shares = partition(data, n_teachers=3, method="balanced", key=new_key())
    votes = fit_teachers(data, shares, made, classes=("a", "b"), seed=0).vote(data.X[:4])
    assert votes.counts.sum(axis=1).tolist() == [3] * 4


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('module = "terrine:mlp"', "", r'kind = "module" needs `module`, e\.g\. "terrine:resnet32"'),
        ('kind = "module"', 'kind = "conv"', r'`module` and `module_options` need kind = "module"'),
        ("terrine:mlp", "terrine.mlp", r'must be "package\.module:function"'),
        ("terrine:mlp", "os:system('x')", r'must be "package\.module:function"'),
        ("terrine:mlp", "terrine:vgg", r"terrine has no module vgg. It has terrine:mlp, terrine:resnet32"),
        ("terrine:mlp", "terrine:require_torch", r"terrine has no module require_torch"),
        ("terrine:mlp", "no_such_nets:small", r"no_such_nets cannot be imported .*PYTHONPATH=\. terrine run"),
        ("terrine:mlp", "nets_of_mine:large", r"nets_of_mine has no function large"),
        ("terrine:mlp", "nets_of_mine:number", r"nets_of_mine has no function number"),
        ("hidden = [8]", "depth = 3", r"teachers\.module_options do not fit terrine:mlp: .*'depth'"),
        ("steps = 30", "steps = 0", r"steps must be a whole number of at least 1"),
        ("steps = 30", "epochs = 3", r"teachers\.options: .*'epochs'"),
    ],
)
def test_a_mistake_is_found_before_anything_is_written(settings, tmp_path, old, new, words):
    settings.write_text(SETTINGS.replace(old, new))
    for attempt in (dry_run, lambda path: Run.create(path, tmp_path / "r")):
        with pytest.raises(InputError, match=words):
            attempt(settings)
    assert not (tmp_path / "r").exists()


def test_a_module_that_does_not_fit_the_rows_is_refused_before_a_private_row_is_dealt(settings, tmp_path):
    settings.write_text(SETTINGS.replace("terrine:mlp", "nets_of_mine:wrong").replace("hidden = [8]", ""))
    run = Run.create(settings, tmp_path / "r")
    with pytest.raises(InputError, match="public rows"):
        run.teach()
    assert not (run.folder / "partition.npz").exists()


def test_the_estimator_takes_modules(settings):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(400, 2)).astype(np.float32)
    public = rng.normal(size=(80, 2)).astype(np.float32)
    module = ModuleTeacher(
        module=mlp, recipe=ModuleRecipe(steps=30, optimiser="adam", learning_rate=0.02), device="cpu"
    )
    model = PATEClassifier(
        module,
        LogisticRegression(),
        classes=["below", "above"],
        n_teachers=20,
        mechanism=GNMax(sigma=3.0),
        n_queries=12,
        delta=1e-5,
        random_state=0,
    )
    labels = np.where(X[:, 0] > 0, "above", "below")
    model.fit(X, labels, X_public=public)
    assert (model.predict(X) == labels).mean() > 0.75
    assert model.guarantee_.epsilon > 0
