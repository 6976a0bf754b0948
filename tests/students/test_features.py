"""A student on features: few answers are enough, and it is kept with its features."""

from __future__ import annotations

import json

import numpy as np
import pytest
from sklearn.datasets import make_moons
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression, RidgeClassifier

from terrine.accounting.planning import least_noise
from terrine.errors import InputError, StoreError
from terrine.features import FeatureRecipe, fit_features, representative_rows
from terrine.features.edges import Edges
from terrine.runs.local import Run
from terrine.students import FeatureStudent, SupervisedStudent, fit_student, load_student

RECIPE = FeatureRecipe(encoder=False, dimensions=4, neighbours=15)
CLASSES = ("upper", "lower")


@pytest.fixture(scope="module")
def moons():
    X, y = make_moons(1400, noise=0.06, random_state=0)
    return X[:700], y[:700], X[700:], y[700:]


@pytest.fixture(scope="module")
def features(moons):
    return fit_features(moons[0], recipe=RECIPE, seed=0)


def answers_on(rows, y):
    labels = np.full(len(y), -1)
    labels[rows] = y[rows]
    return labels


def test_six_answers_are_enough_on_features_and_not_on_rows(moons, features):
    X, y, test_X, test_y = moons
    answers = answers_on(representative_rows(features, 6, seed=0), y)
    student = fit_student(FeatureStudent(features=features), X, answers, classes=CLASSES, seed=0)
    plain = fit_student(SupervisedStudent(estimator=LogisticRegression()), X, answers, classes=CLASSES, seed=0)
    assert (student.predict(test_X) == test_y).mean() > 0.99
    assert (plain.predict(test_X) == test_y).mean() < 0.95
    assert student.classes == CLASSES
    assert student.about.row_shape == (2,)
    assert (student.about.n_public, student.about.n_answered) == (700, 6)
    proba = student.predict_proba(test_X)
    np.testing.assert_array_equal(proba.argmax(axis=1), student.predict(test_X))


def test_it_is_kept_with_its_features(moons, features, tmp_path):
    X, y, test_X, _ = moons
    answers = answers_on(np.arange(20), y)
    student = fit_student(FeatureStudent(features=features), X, answers, classes=CLASSES, seed=0)
    student.save(tmp_path / "s", card={"epsilon": 0.2})
    again = load_student(tmp_path / "s")
    np.testing.assert_array_equal(again.predict_proba(test_X), student.predict_proba(test_X))
    card = json.loads((tmp_path / "s" / "model_card.json").read_text())
    assert card["training"]["settings"]["student"] == "FeatureStudent"
    assert card["guarantee"] == {"epsilon": 0.2}
    with pytest.raises(InputError, match=r"shape \(2,\), got \(3,\)"):
        again.predict(np.zeros((2, 3)))
    path = tmp_path / "s" / "features.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(StoreError, match=r"features.safetensors is damaged, or was changed"):
        load_student(tmp_path / "s")


@pytest.fixture(scope="module")
def drawn():
    """Images of slanted and upright bars, moved about."""
    rng = np.random.default_rng(0)
    y = np.arange(600) % 2
    images = np.zeros((600, 16, 16), dtype=np.uint8)
    for image, label in zip(images, y, strict=True):
        top, left = rng.integers(1, 5, size=2)
        for step in range(9):
            image[top + step, left + (step if label else 4)] = rng.integers(120, 256)
    return images, y


def test_edges_are_features_too_and_are_not_kept(drawn, tmp_path):
    X, y = drawn
    student = fit_student(FeatureStudent(features=Edges(row_shape=(16, 16))), X, y[:60], classes=CLASSES, seed=0)
    assert (student.predict(X[60:]) == y[60:]).mean() > 0.99
    student.save(tmp_path / "s", card={"epsilon": 0.2})
    assert not (tmp_path / "s" / "features.safetensors").exists()
    again = load_student(tmp_path / "s")
    np.testing.assert_array_equal(again.predict_proba(X), student.predict_proba(X))


def test_self_training_learns_from_rows_without_an_answer():
    """Many features and few answers: what the classifier is sure of teaches it the rest."""
    rng = np.random.default_rng(1)
    y = np.arange(3000) % 2
    X = rng.normal(size=(3000, 60)) + 0.3 * (2 * y[:, None] - 1)
    answers = np.where(np.arange(3000) < 24, y, -1)
    settings = {"estimator": LinearDiscriminantAnalysis(solver="lsqr", shrinkage=0.5)}
    found = {}
    for how in (False, True):
        student = SupervisedStudent(**settings, self_training=how)
        fitted = fit_student(student, X[:1500], answers[:1500], classes=CLASSES, seed=0)
        assert fitted.about.settings["self_training"] is how
        found[how] = (fitted.predict(X[1500:]) == y[1500:]).mean()
    assert found[True] > found[False] + 0.03


def test_self_training_wants_probabilities(features):
    with pytest.raises(InputError, match="RidgeClassifier gives none"):
        SupervisedStudent(estimator=RidgeClassifier(), self_training=True)
    with pytest.raises(InputError, match="True or False"):
        FeatureStudent(features=features, self_training=0.9)


def test_refusals(moons, features):
    with pytest.raises(InputError, match="features must be what fit_features"):
        FeatureStudent(features=moons[0])
    with pytest.raises(InputError, match="scikit-learn classifier"):
        FeatureStudent(features=features, estimator=3)
    with pytest.raises(InputError, match=r"shape \(2,\), as those of the features, got \(3,\)"):
        fit_student(FeatureStudent(features=features), np.zeros((9, 3)), np.arange(9) % 2, classes=CLASSES, seed=0)
    one_each = np.r_[0, 1, np.full(len(moons[0]) - 2, -1)]
    with pytest.raises(InputError, match="LinearDiscriminantAnalysis cannot learn from these answers: The number"):
        fit_student(FeatureStudent(features=features), moons[0], one_each, classes=CLASSES, seed=0)


SETTINGS = """
[data]
name = "blobs"
options = {n_private = 3000, n_public = 500, n_test = 300}
[features]
options = {encoder = false, dimensions = 4, neighbours = 15}
[teachers]
number = 100
kind = "centroid"
executor = "serial"
[privacy]
mechanism = "gnmax"
epsilon = 3.0
queries = 12
ask = "representative"
delta = 1e-5
[student]
kind = "features"
"""


def test_a_run_with_a_student_on_features(tmp_path):
    path = tmp_path / "s.toml"
    path.write_text(SETTINGS)
    run = Run.create(path, tmp_path / "run")
    assert (
        json.loads(run.config.privacy.model_dump_json())["sigma"]
        == least_noise(n_queries=12, epsilon=3.0, delta=1e-5).sigma
    )
    run.teach()
    run.vote()
    run.label()
    facts = run.learn()
    assert facts.kind == "features"
    assert facts.accuracy > 0.95
    assert load_student(tmp_path / "run" / "student").about.n_answered == 12
    assert 2.98 < json.loads((tmp_path / "run" / "guarantee.json").read_text())["epsilon"] <= 3.0
    again = Run(tmp_path / "run").learn()
    assert again == facts
    path.write_text(SETTINGS.replace("[features]\noptions = {encoder = false, dimensions = 4, neighbours = 15}", ""))
    with pytest.raises(InputError, match="features"):
        Run.create(path, tmp_path / "other")
    path.write_text(SETTINGS + "options = {solver = 'svd'}\n")
    with pytest.raises(InputError, match="those of `estimator`, which is missing"):
        Run.create(path, tmp_path / "other")
