"""What may go in, what is refused, what decides the result."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression
from tests.students.tasks import BRIEF, NETS, QUARTERS, few, quarters

from terrine.datasets import PublicData
from terrine.errors import AdviceWarning, DataError, InputError, TerrineWarning
from terrine.mechanisms import ConfidentGNMax, answer
from terrine.noise import SeededNoise
from terrine.students import (
    FittedNet,
    GANStudent,
    MatchStudent,
    MissingClassWarning,
    SupervisedStudent,
    VATStudent,
    fit_student,
    load_student,
)
from terrine.votes import Votes

pytestmark = pytest.mark.usefixtures("alone")

X, Y = quarters()
ANSWERS = few(Y, 5)
LINEAR = SupervisedStudent(estimator=LogisticRegression(max_iter=500))
ALL = {**NETS, "supervised": LINEAR}


@pytest.mark.parametrize("name", ALL)
def test_images_and_answers_give_a_student(name):
    shares: list[float] = []
    student = fit_student(ALL[name], PublicData(X), ANSWERS, classes=QUARTERS, seed=3, progress=shares.append)
    proba = student.predict_proba(X)
    assert proba.shape == (len(X), 4)
    np.testing.assert_allclose(proba.sum(axis=1), 1)
    labels = student.predict(X)
    assert labels.dtype == np.int64
    assert (labels == proba.argmax(axis=1)).all()
    assert student.classes == QUARTERS
    assert (student.about.n_public, student.about.n_answered, student.about.seed) == (80, 20, 3)
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


@pytest.mark.parametrize("name", NETS)
def test_the_same_seed_gives_the_same_student_bit_by_bit(name):
    same, again, other = (fit_student(NETS[name], X, ANSWERS, classes=QUARTERS, seed=seed) for seed in (3, 3, 4))
    assert isinstance(same, FittedNet)
    assert all((same.weights[key] == again.weights[key]).all() for key in same.weights)
    assert any((same.weights[key] != other.weights[key]).any() for key in same.weights)


def test_training_leaves_torch_s_own_randomness_alone():
    import torch

    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    fit_student(NETS["vat"], X, ANSWERS, classes=QUARTERS, seed=1)
    assert (torch.rand(3) == expected).all()


@pytest.mark.parametrize("shape", [(8, 8, 3), (9, 13), (16, 12, 1)])
@pytest.mark.parametrize("name", NETS)
def test_images_of_other_shapes(name, shape):
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, size=(40, *shape)).astype(np.uint8)
    student = fit_student(NETS[name], images, np.arange(40) % 3, classes=("a", "b", "c"), seed=0)
    assert student.predict(images[:7]).shape == (7,)


def test_answers_of_a_mechanism_and_of_the_first_rows_only():
    votes = Votes(np.eye(4, dtype=int)[Y] * 30, n_teachers=30)
    mechanism = ConfidentGNMax(threshold=20, sigma_check=2, sigma_vote=2)
    student = fit_student(LINEAR, X, answer(mechanism, votes[:40], rng=SeededNoise(0)), classes=QUARTERS, seed=0)
    assert student.about.n_answered == 40
    assert student.about.noise == "seeded: the guarantee does not hold"
    plain = fit_student(LINEAR, X, Y[:40], classes=QUARTERS, seed=0)
    assert (plain.predict(X) == student.predict(X)).all()
    assert plain.about.noise == "not stated"


def test_a_class_without_an_answer_is_a_warning_by_name():
    answers = np.where(ANSWERS == 2, -1, ANSWERS)
    assert issubclass(MissingClassWarning, TerrineWarning)
    with pytest.warns(MissingClassWarning, match="No answer names 1 of the 4 classes: 'south west'"):
        student = fit_student(LINEAR, X, answers, classes=QUARTERS, seed=0)
    assert (student.predict_proba(X)[:, 2] == 0).all()
    with pytest.warns(MissingClassWarning):
        fit_student(NETS["match"], X, answers, classes=QUARTERS, seed=0)
    with pytest.raises(InputError, match="min_per_class is 1, and 1 classes have fewer answers: 'south west'"):
        fit_student(replace(LINEAR, min_per_class=1), X, answers, classes=QUARTERS, seed=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit_student(replace(LINEAR, min_per_class=5), X, ANSWERS, classes=QUARTERS, seed=0)


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        (np.full(80, -1), "has an answer, so that there is nothing to learn"),
        (np.full(81, 1), "a list of at most 80, one for each public row"),
        (np.full((80, 1), 1), "a list of at most 80, one for each public row"),
        (np.full(80, 4), "from -1 to 3, got 4 in row 0"),
        (np.full(80, -2), "from -1 to 3, got -2 in row 0"),
        (np.full(80, np.nan), "got dtype float64"),
        (["a"] * 80, "class indices"),
    ],
)
def test_answers_that_nothing_can_be_learned_from(answers, message):
    with pytest.raises(InputError, match=message):
        fit_student(LINEAR, X, answers, classes=QUARTERS, seed=0)


@pytest.mark.parametrize("student", [LINEAR, NETS["match"]])
def test_answers_of_one_class_make_a_constant_student_for_they_are_paid_for(student, tmp_path):
    with (
        pytest.warns(AdviceWarning, match="All 80 answers name 'north east'"),
        pytest.warns(MissingClassWarning, match="No answer names 3 of the 4 classes"),
    ):
        made = fit_student(student, X, np.full(80, 1), classes=QUARTERS, seed=0)
    made.save(tmp_path / "s", card={})
    again = load_student(tmp_path / "s")
    np.testing.assert_array_equal(again.predict(X), np.full(80, 1))
    np.testing.assert_array_equal(again.predict_proba(X)[0], [0, 1, 0, 0])


@pytest.mark.parametrize(
    ("student", "rows", "message"),
    [
        (LINEAR, np.where(np.arange(64) == 7, np.nan, X.reshape(80, 64)), "finite"),
        (NETS["gan"], X.reshape(80, 64), "A GANStudent needs uint8 images"),
        (NETS["gan"], X / 255.0, "A GANStudent needs uint8 images"),
        (NETS["vat"], X / 255.0, "uint8 images .* or rows of features"),
        (NETS["vat"], X[:, :3], "at least 4 x 4 pixels"),
    ],
)
def test_rows_that_a_student_cannot_take(student, rows, message):
    with pytest.raises(DataError, match=message):
        fit_student(student, rows, ANSWERS, classes=QUARTERS, seed=0)


@pytest.mark.parametrize("name", ALL)
def test_rows_of_another_shape_are_refused_at_prediction(name):
    student = fit_student(ALL[name], X, ANSWERS, classes=QUARTERS, seed=0)
    with pytest.raises(DataError, match=r"X must have rows of shape \(8, 8\), got \(8, 9\)"):
        student.predict(np.zeros((2, 8, 9), dtype=np.uint8))
    with pytest.raises(DataError, match="dtype uint8"):
        student.predict(np.zeros((2, 8, 8)))


def test_features_are_scaled_by_the_public_rows():
    """A student of rescaled rows predicts the same on rows that are rescaled alike; a constant column is no trouble."""
    rows = np.column_stack([X.reshape(80, 64).astype(float), np.full(80, 7.0)])
    plain = fit_student(NETS["vat"], rows, ANSWERS, classes=QUARTERS, seed=0)
    moved = fit_student(NETS["vat"], rows * 64 - 128, ANSWERS, classes=QUARTERS, seed=0)
    np.testing.assert_allclose(plain.predict_proba(rows), moved.predict_proba(rows * 64 - 128), atol=1e-3)
    with pytest.raises(DataError, match="finite"):
        plain.predict(np.where(rows == 7, np.nan, rows))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: VATStudent(radius=0), "radius must be above 0"),
        (lambda: VATStudent(steps=0), "steps must be a whole number"),
        (lambda: VATStudent(batch=1), "batch"),
        (lambda: VATStudent(channels=()), "channels"),
        (lambda: VATStudent(averaging=1.0), "averaging must be below 1"),
        (lambda: VATStudent(wrong=0.5), "wrong must be below 0.5"),
        (lambda: VATStudent(fade=-1), "fade must be at least 0"),
        (lambda: VATStudent(device="tpu"), "device must be one of"),
        (lambda: VATStudent(norm="layer"), "norm must be one of"),
        (lambda: VATStudent(view={"rotates": 3}), "view must be a Distortion"),
        (lambda: VATStudent(view={"zoom": 1.0}), "zoom must be below 1"),
        (lambda: MatchStudent(folds=1), "folds must be 0, or at least 2"),
        (lambda: MatchStudent(folds=2, wrong=0), "with wrong above 0"),
        (lambda: MatchStudent(consistency=-1.0), "consistency"),
        (lambda: GANStudent(generator_channels=1), "generator_channels"),
        (lambda: GANStudent(consistency=-1.0), "consistency must be at least 0"),
        (lambda: SupervisedStudent(estimator="forest"), "scikit-learn classifier, got str"),
        (lambda: fit_student(object(), X, ANSWERS, classes=QUARTERS, seed=0), "student's settings"),
        (lambda: fit_student(LINEAR, X, ANSWERS, classes=("a", "a"), seed=0), "at least 2 names, all different"),
        (lambda: fit_student(LINEAR, X, ANSWERS, classes=QUARTERS, seed=-1), "seed"),
    ],
)
def test_bad_settings_are_refused_in_one_line(make, message):
    with pytest.raises(InputError, match=message) as refused:
        make()
    assert "\n" not in str(refused.value)


def test_settings_as_a_configuration_file_has_them():
    student = VATStudent(**{**BRIEF, "channels": [4, 8], "view": {"rotate": 3.0}})
    assert student.channels == (4, 8)
    assert student.view.rotate == 3.0


def test_training_that_diverges_is_an_error_and_not_a_student():
    with pytest.raises(InputError, match="Training did not converge"):
        fit_student(replace(NETS["vat"], learning_rate=1e30, norm="group"), X, ANSWERS, classes=QUARTERS, seed=0)


def test_a_class_that_was_answered_once_draws_no_warning_of_scikit_learns():
    rows, labels = np.random.default_rng(0).normal(size=(17, 3)), np.arange(17) // 16
    learner = LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit_student(SupervisedStudent(estimator=learner), rows, labels, classes=("no", "yes"), seed=0)
