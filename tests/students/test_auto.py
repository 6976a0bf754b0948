"""A student chosen by answers that it has not seen: the comparison is kept, and never ends below the linear one."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from terrine.errors import InputError
from terrine.features import AutoRecipe, fit_auto
from terrine.students import AutoStudent, FeatureStudent, FittedEstimator, fit_student, load_student
from terrine.students.auto import LINEAR, candidates
from terrine.students.lessons import lessons

CLASSES = ("no", "yes")


def corners(n, *, seed=0):
    """One sign of a number turns what another means: a linear model cannot say that, and trees can."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 4)).astype(np.float32)
    return X, ((X[:, 0] > 0.3) ^ (X[:, 1] > 0)).astype(np.int64)


def lines(n, *, seed=0, wrong=0.2):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 14)).astype(np.float32)
    y = (X[:, :5].sum(axis=1) > 0).astype(np.int64)
    return X, np.where(rng.random(n) < wrong, 1 - y, y), y


def test_the_best_on_answers_left_out_is_kept():
    X, y = corners(700)
    student = fit_student(AutoStudent(), X, y[:400], classes=CLASSES, seed=0)
    about = student.about.settings
    assert about["chosen"] == "boosted trees"
    assert isinstance(student, FittedEstimator)
    right = {name: one["right"] for name, one in about["compared"].items()}
    assert right["boosted trees"] == max(right.values())
    assert right[LINEAR] + 0.15 < right["boosted trees"]
    assert (student.predict(X[400:]) == y[400:]).mean() > 0.85


def test_where_trees_have_nothing_to_find_it_stays_linear():
    X, answers, truth = lines(600)
    student = fit_student(AutoStudent(), X, answers[:200], classes=CLASSES, seed=0)
    compared = student.about.settings["compared"]
    assert "trees" not in student.about.settings["chosen"]
    assert compared[student.about.settings["chosen"]]["right"] >= compared[LINEAR]["right"]
    assert compared[LINEAR] == {"right": pytest.approx(compared[LINEAR]["right"]), "lead": 0.0, "error": 0.0}
    assert (student.predict(X[200:]) == truth[200:]).mean() > 0.75


def test_the_comparison_is_on_answers_that_were_left_out():
    """Labels by the toss of a coin: whoever looked at what it predicts would be right more often than half."""
    X, _ = corners(500)
    coin = np.random.default_rng(1).integers(2, size=500)
    student = fit_student(AutoStudent(), X, coin, classes=CLASSES, seed=0)
    assert all(one["right"] < 0.6 for one in student.about.settings["compared"].values())


def test_a_student_is_the_same_again_and_comes_back_from_its_folder(tmp_path):
    X, y = corners(300)
    features = fit_auto(X, seed=0)
    made = [fit_student(AutoStudent(features=features), X, y, classes=CLASSES, seed=0) for _ in range(2)]
    assert (made[0].predict_proba(X) == made[1].predict_proba(X)).all()
    made[0].save(tmp_path, card={})
    again = load_student(tmp_path)
    assert (again.predict_proba(X) == made[0].predict_proba(X)).all()
    assert again.about.settings["compared"] == made[0].about.settings["compared"]


def test_a_student_on_auto_features_comes_back_too(tmp_path):
    X, answers, _ = lines(200)
    student = fit_student(FeatureStudent(features=fit_auto(X, seed=0)), X, answers, classes=CLASSES, seed=0)
    student.save(tmp_path, card={})
    assert (load_student(tmp_path).predict(X) == student.predict(X)).all()


def test_candidates_by_the_kind_of_rows():
    images = np.random.default_rng(0).integers(0, 256, size=(40, 8, 8)).astype(np.uint8)
    answers = np.arange(40) % 2

    def names(X, **settings):
        given = lessons(X, answers, classes=CLASSES, min_per_class=0)
        return list(candidates(AutoStudent(**settings), given, seed=0))

    assert names(images)[0] == names(images.reshape(40, -1))[0] == LINEAR
    assert "boosted trees" in names(images.reshape(40, -1).astype(np.float32))
    assert "boosted trees" not in names(images)
    assert "net" in names(images, nets="yes")
    assert "net" not in names(images, nets="no")
    assert names(sparse.csr_matrix(images.reshape(40, -1))) == [LINEAR]


def test_few_answers_are_enough():
    X, answers, _ = lines(60)
    answers[:4] = [0, 1, 0, 1]
    student = fit_student(AutoStudent(), X, answers[:4], classes=CLASSES, seed=0)
    assert student.predict(X).shape == (60,)


def test_features_of_images_serve_the_student():
    images = np.random.default_rng(0).integers(0, 120, size=(80, 8, 8)).astype(np.uint8)
    y = np.arange(80) % 2
    images[y == 1, :4] += 90
    features = fit_auto(images, recipe=AutoRecipe(components=20, encoder="no"), seed=0)
    student = fit_student(AutoStudent(features=features, nets="no"), images, y[:60], classes=CLASSES, seed=0)
    assert (student.predict(images) == y).mean() > 0.95


@pytest.mark.parametrize(
    "settings", [{"folds": 1}, {"nets": "perhaps"}, {"features": 3}, {"balanced": 1}, {"min_per_class": -1}]
)
def test_wrong_settings_are_refused(settings):
    with pytest.raises(InputError, match=next(iter(settings))):
        AutoStudent(**settings)


@pytest.mark.parametrize("width", [14, 60])
def test_a_student_on_features_of_plain_rows_has_an_onnx_form(tmp_path, width):
    """Bent at quantiles, or as components of an embedding: the file computes the features itself."""
    onnxruntime = pytest.importorskip("onnxruntime")
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, width)).astype(np.float32)
    y = (X[:, :3].sum(axis=1) > 0).astype(np.int64)
    student = fit_student(FeatureStudent(features=fit_auto(X, seed=0)), X, y, classes=CLASSES, seed=0)
    student.export_onnx(tmp_path / "s.onnx")
    far = np.concatenate([X, 100 * X[:5]])
    label, p = onnxruntime.InferenceSession(tmp_path / "s.onnx").run(["label", "probabilities"], {"rows": far})
    assert np.abs(p - student.predict_proba(far)).max() < 1e-3
    assert (label == student.predict(far)).mean() > 0.99


def test_boosted_trees_have_one_too(tmp_path):
    pytest.importorskip("skl2onnx")
    X, y = corners(400)
    student = fit_student(AutoStudent(), X, y, classes=CLASSES, seed=0)
    assert student.about.settings["chosen"] == "boosted trees"
    student.export_onnx(tmp_path / "s.onnx")
