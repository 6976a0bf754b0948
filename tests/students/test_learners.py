"""What each learner is for: more from the same answers, and less harm from wrong ones."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn.svm import SVC
from tests.students.tasks import DENSE, DIGITS, NET, STRONG, accuracy, digits, few

from terrine.students import Distortion, GANStudent, MatchStudent, SupervisedStudent, VATStudent, fit_student

SVM = SupervisedStudent(estimator=SVC())
MATCH = MatchStudent(**NET, steps=250, strong=STRONG, folds=0, radius=0.0)
ON_IMAGES = {"vat": VATStudent(**NET, steps=250), "match": MATCH, "gan": GANStudent(**NET, steps=150)}
ON_FEATURES = {
    "vat": VATStudent(**DENSE, steps=250, radius=0.25),
    "match": MatchStudent(**DENSE, steps=250, strong=Distortion(jitter=0.5), folds=0, radius=0.25),
}
pytestmark = pytest.mark.usefixtures("alone")


@pytest.mark.parametrize("name", ON_IMAGES)
def test_rows_without_an_answer_teach_more_than_answers_alone(name):
    """5 answers of each digit: a support vector machine has 85% with these, and a net of the same shape no more."""
    X, y, test_X, test_y = digits()
    answers = few(y, 5)
    alone = accuracy(fit_student(SVM, X, answers, classes=DIGITS, seed=0), test_X, test_y)
    student = fit_student(ON_IMAGES[name], X, answers, classes=DIGITS, seed=0)
    assert accuracy(student, test_X, test_y) > max(alone + 0.03, 0.88)


@pytest.mark.parametrize("name", ON_FEATURES)
def test_so_they_do_on_rows_of_features(name):
    X, y, test_X, test_y = digits()
    rows, test = (images.reshape(len(images), -1) / 16.0 for images in (X, test_X))
    answers = few(y, 5)
    alone = accuracy(fit_student(SVM, rows, answers, classes=DIGITS, seed=0), test, test_y)
    student = fit_student(ON_FEATURES[name], rows, answers, classes=DIGITS, seed=0)
    assert accuracy(student, test, test_y) > alone + 0.02


@pytest.mark.soak
def test_the_same_net_learns_less_without_the_public_rows():
    """All weights on public rows at 0: what is left is the net, its distortions and its averaging."""
    X, y, test_X, test_y = digits()
    answers = few(y, 5)
    bare = replace(MATCH, consistency=0.0, entropy=0.0, balance=0.0, fade=0.0)
    with_public, without = (
        accuracy(fit_student(student, X, answers, classes=DIGITS, seed=0), test_X, test_y) for student in (MATCH, bare)
    )
    assert with_public > without + 0.02


def test_wrong_answers_are_found_and_do_little_harm():
    """A quarter of 200 answers is wrong. The folds leave out most of those and few others."""
    X, y, test_X, test_y = digits()
    answers = few(y, 20, wrong=0.25)
    n_wrong = int((answers[answers >= 0] != y[answers >= 0]).sum())
    assert n_wrong == 50
    checked = fit_student(replace(MATCH, folds=2), X, answers, classes=DIGITS, seed=0)
    trusting = fit_student(replace(MATCH, fade=0.0, wrong=0.0), X, answers, classes=DIGITS, seed=0)
    assert 35 <= 200 - checked.about.n_learned <= 65
    assert accuracy(checked, test_X, test_y) > max(0.94, accuracy(trusting, test_X, test_y))


@pytest.mark.soak
def test_answers_fade():
    """A net that trusts to the end repeats more of the wrong answers than one whose answers fade."""
    X, y, _, _ = digits()
    answers = few(y, 20, wrong=0.25)
    lies = np.flatnonzero((answers >= 0) & (answers != y))
    repeated = [
        float((fit_student(student, X, answers, classes=DIGITS, seed=0).predict(X[lies]) == answers[lies]).mean())
        for student in (replace(MATCH, wrong=0.0), replace(MATCH, wrong=0.0, fade=0.0))
    ]
    assert repeated[0] < repeated[1]


@pytest.mark.soak
def test_looks_at_one_image_agree_more_where_a_gan_is_told_to():
    X, y, _, _ = digits()
    brief, shifted = replace(ON_IMAGES["gan"], steps=100), np.roll(X, 1, axis=2)

    def apart(weight):
        """How far predictions of images and of shifted ones are from one another, over two seeds."""
        students = [
            fit_student(replace(brief, consistency=weight), X, few(y, 5), classes=DIGITS, seed=s) for s in (1, 2)
        ]
        return np.mean([np.abs(s.predict_proba(X) - s.predict_proba(shifted)).sum(axis=1) for s in students])

    assert apart(2.0) < 0.93 * apart(0.0)
