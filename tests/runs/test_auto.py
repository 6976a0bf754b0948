"""A run that chooses for itself: features, ridge teachers and a student by held-out answers, by settings alone."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from terrine.datasets import PrivateData
from terrine.errors import InputError
from terrine.runs.config import read_config, write_config
from terrine.runs.facts import write_run_report
from terrine.runs.local import Run
from terrine.students import load_student

SETTINGS = """
features = "auto"
student = "auto"

[data]
name = "blobs"

[teachers]
number = 40
kind = "ridge"
executor = "serial"

[privacy]
mechanism = "gnmax"
sigma = 8.0
queries = 60
delta = 1e-5
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("auto")
    (folder / "run.toml").write_text(SETTINGS)
    made = Run.create(folder / "run.toml", folder / "run")
    made.teach()
    made.vote()
    made.label()
    made.learn()
    return made


@pytest.mark.usefixtures("by_renyi")
def test_it_goes_all_the_way_and_the_comparison_is_in_the_report(run):
    result = run.student_result()
    assert result.kind == "auto"
    assert result.accuracy > 0.9
    compared = result.settings["compared"]
    assert compared[result.settings["chosen"]]["right"] >= compared["linear"]["right"]
    page = write_run_report(run).read_text()
    assert "How it was chosen" in page
    assert all(name in page for name in compared)
    assert "(kept)" in page
    student = load_student(run.folder / "student")
    assert (student.predict(run.task.test_X) == run.task.test_y).mean() == pytest.approx(result.accuracy)


def test_features_are_made_once_from_public_rows_and_kept(run):
    path = run.folder / "features.safetensors"
    before = path.read_bytes()
    again = Run(run.folder)
    assert (again._features().transform(run.task.public) == run._features().transform(run.task.public)).all()
    assert path.read_bytes() == before


def test_words_are_short_for_tables(tmp_path, run):
    config = run.given
    assert (config.features.kind, config.student.kind, config.teachers.kind) == ("auto", "auto", "ridge")
    (tmp_path / "long.toml").write_text(write_config(config))
    assert read_config(tmp_path / "long.toml") == config


@pytest.mark.parametrize(
    ("found", "other", "words"),
    [
        ('features = "auto"', 'features = "clever"', "features.kind"),
        ('student = "auto"', 'student = {kind = "auto", options = {folds = 1}}', "folds"),
        ('student = "auto"', 'student = {kind = "auto", options = {fold = 3}}', "student.options"),
        ('kind = "ridge"', 'kind = "ridge"\noptions = {ridges = [0.0]}', "ridges"),
    ],
)
def test_wrong_settings_are_refused_before_anything_is_written(tmp_path, found, other, words):
    (tmp_path / "run.toml").write_text(SETTINGS.replace(found, other))
    with pytest.raises(InputError, match=words):
        Run.create(tmp_path / "run.toml", tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_features_never_see_private_rows(tmp_path, run):
    """Other private rows leave the features as they are, bit for bit."""
    (tmp_path / "run.toml").write_text(SETTINGS)
    other = Run.create(tmp_path / "run.toml", tmp_path / "run")
    changed = np.random.default_rng(1).standard_normal(other.task.private.X.shape).astype(np.float32) * 100
    other.task = replace(other.task, private=PrivateData(changed, other.task.private.y))
    ours, theirs = run._features()._arrays, other._features()._arrays
    assert ours.keys() == theirs.keys()
    assert all((ours[name] == theirs[name]).all() for name in ours)


def test_a_net_that_unlearns_is_reported(tmp_path):
    """One step of learning is none: the report says that a linear student would be better."""
    text = SETTINGS.replace('student = "auto"', 'student = {kind = "vat", options = {steps = 2, learning_rate = 1e-9}}')
    (tmp_path / "run.toml").write_text(text)
    run = Run.create(tmp_path / "run.toml", tmp_path / "run")
    run.teach()
    run.vote()
    run.label()
    result = run.learn()
    assert "linear student" in result.settings["below_linear"]
    assert "Below a plain linear student" in write_run_report(run).read_text()
    assert json.loads((run.folder / "student.json").read_text())["settings"]["below_linear"]
