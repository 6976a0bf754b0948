"""Rare classes: a balanced student names them, and what it never names is said."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from terrine.errors import AdviceWarning, InputError
from terrine.students import (
    AutoStudent,
    MissingClassWarning,
    SupervisedStudent,
    VATStudent,
    fit_student,
    trial,
    try_student,
    warn_of,
)
from terrine.students.lessons import evened

pytestmark = pytest.mark.usefixtures("alone")

CLASSES = ("common", "rare")
ESTIMATORS = {
    "class_weight": LogisticRegression(),
    "in a pipeline": make_pipeline(StandardScaler(), LogisticRegression()),
    "repeated": LinearDiscriminantAnalysis(),
}


def rows(n: int, *, share: float = 0.02, seed: int = 0):
    """Two overlapping classes, one of them rare."""
    rng = np.random.default_rng(seed)
    y = (rng.random(n) < share).astype(np.int64)
    return rng.normal(size=(n, 2)) + 1.6 * y[:, None], y


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize("self_training", [False, True])
def test_a_balanced_estimator_finds_the_rare_class(name, self_training):
    X, y = rows(1500)
    answers = np.where(np.arange(1500) < 1000, y, -1)
    recall = {}
    for balanced in (False, True):
        student = SupervisedStudent(estimator=ESTIMATORS[name], self_training=self_training, balanced=balanced)
        fitted = fit_student(student, X, answers, classes=CLASSES, seed=0)
        test, truth = rows(5000, seed=1)
        recall[balanced] = (fitted.predict(test)[truth == 1] == 1).mean()
        assert ("balanced" in fitted.about.settings) == balanced
    assert recall[False] < 0.4
    assert recall[True] > 0.75


def test_a_balanced_net_finds_the_rare_class():
    pytest.importorskip("torch")
    X, y = rows(600, share=0.04)
    found = {}
    for balanced in (False, True):
        student = VATStudent(hidden=(16,), steps=200, device="cpu", smoothness=0, entropy=0, balance=0,
                             fade=0, balanced=balanced)  # fmt: skip
        fitted = fit_student(student, X.astype(np.float32), y, classes=CLASSES, seed=0)
        test, truth = rows(3000, seed=1)
        found[balanced] = (fitted.predict(test.astype(np.float32))[truth == 1] == 1).mean()
        assert fitted.about.n_learned == 600  # repeats are no answers
    assert found[True] > found[False] + 0.2


def test_repeats_even_out_the_classes():
    labels = np.array([0, 0, 0, 2, 2, 5])
    assert np.bincount(labels[evened(labels)]).tolist() == [3, 0, 3, 0, 0, 3]


def test_a_class_weight_that_is_set_is_left_alone():
    X, y = rows(500, share=0.1)
    student = SupervisedStudent(estimator=LogisticRegression(class_weight={0: 1, 1: 3}), balanced=True)
    assert fit_student(student, X, y, classes=CLASSES, seed=0).model.class_weight == {0: 1, 1: 3}


def test_a_class_that_is_never_predicted_is_named():
    X, y = rows(400)
    fitted = fit_student(SupervisedStudent(estimator=LogisticRegression(C=1e-6)), X, y, classes=CLASSES, seed=0)
    with pytest.warns(
        AdviceWarning, match="never predicts 'rare' on the public rows. First ask whether the private rows spell"
    ):
        warn_of(fitted, X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        far = SupervisedStudent(estimator=LogisticRegression(), balanced=True)
        warn_of(fit_student(far, X, y, classes=CLASSES, seed=0), X, y)


def test_a_class_without_an_answer_is_named():
    X, y = rows(400)
    with pytest.warns(MissingClassWarning, match="No answer names 1 of the 3 classes: 'never'"):
        fit_student(SupervisedStudent(estimator=LogisticRegression()), X, y, classes=(*CLASSES, "never"), seed=0)


@pytest.mark.parametrize(
    ("student", "words"),
    [
        (SupervisedStudent(estimator=LogisticRegression(C=-1.0)), "'C' parameter of LogisticRegression"),
        (SupervisedStudent(estimator=LogisticRegression(), min_per_class=30), "min_per_class = 30 .* at most 50"),
        (SupervisedStudent(estimator=RandomForestClassifier(n_estimators=0)), "n_estimators"),
    ],
)
def test_a_student_that_cannot_learn_is_refused_on_public_rows(student, words):
    with pytest.raises(InputError, match=words) as caught:
        try_student(student, rows(100)[0], classes=CLASSES, n_answers=50, keep=True)
    assert "Nothing was taught or spent" in str(caught.value)


def test_a_student_that_needs_many_rows_is_not_refused():
    from sklearn.neighbors import KNeighborsClassifier

    student = SupervisedStudent(estimator=KNeighborsClassifier(n_neighbors=60))
    try_student(student, rows(100)[0], classes=CLASSES, n_answers=90, keep=True)


def test_auto_is_tried_in_two_folds(monkeypatch):
    """Labels are made up: which of its students is best does not matter."""
    tried = []
    monkeypatch.setattr(
        trial, "fit_student", lambda student, *a, **k: tried.append(student) or fit_student(student, *a, **k)
    )
    try_student(AutoStudent(folds=7, nets="no"), rows(100)[0], classes=CLASSES, n_answers=50, keep=True)
    assert [one.folds for one in tried] == [2]


def test_nets_are_tried_for_one_step():
    pytest.importorskip("torch")
    try_student(VATStudent(steps=10**9, device="cpu"), rows(100)[0], classes=CLASSES, n_answers=50, keep=True)
