"""Students as ONNX files: onnxruntime gives the probabilities that they give."""

from __future__ import annotations

import json
import sys

import numpy as np
import onnxruntime
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from tests.students.tasks import BRIEF, NETS, QUARTERS, few, quarters

from terrine.cli import main
from terrine.errors import InputError, MissingDependencyError, StoreError
from terrine.features.edges import Edges
from terrine.students import FeatureStudent, SupervisedStudent, VATStudent, fit_student, load_student

pytestmark = pytest.mark.usefixtures("alone")

X, Y = quarters()
FEW = few(Y, 5)
FLAT = X.reshape(len(X), -1) * np.linspace(0.1, 3.0, 64)
ESTIMATORS = {
    "linear": LogisticRegression(max_iter=1000),
    "pipeline": make_pipeline(StandardScaler(), LogisticRegression()),
    "forest": RandomForestClassifier(n_estimators=5),
    "boosting": GradientBoostingClassifier(n_estimators=5),
    "perceptron": MLPClassifier(hidden_layer_sizes=(8,), max_iter=2000),
}


def run(path, rows):
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    label, probabilities = session.run(["label", "probabilities"], {"rows": rows.astype(np.float32)})
    return session, label, probabilities


def same(student, path, rows) -> None:
    student.export_onnx(path)
    session, label, probabilities = run(path, rows)
    expected = student.predict_proba(rows)
    assert probabilities.shape == expected.shape
    np.testing.assert_allclose(probabilities, expected, rtol=0, atol=2e-5)
    assert (label == student.predict(rows)).all()
    assert json.loads(session.get_modelmeta().custom_metadata_map["classes"]) == list(student.classes)
    for n in (1, 7):  # any number of rows
        assert run(path, rows[:n])[2].shape == (n, len(student.classes))


@pytest.mark.parametrize("rows", [X, FLAT.astype(np.float32)], ids=["images", "features"])
@pytest.mark.parametrize("name", ESTIMATORS)
def test_an_estimator_gives_the_same_probabilities(name, rows, tmp_path):
    learner = SupervisedStudent(estimator=ESTIMATORS[name])
    same(fit_student(learner, rows, FEW, classes=QUARTERS, seed=0), tmp_path / "model.onnx", rows)


@pytest.mark.parametrize("name", NETS)
def test_a_net_gives_the_same_probabilities(name, tmp_path):
    same(fit_student(NETS[name], X, FEW, classes=QUARTERS, seed=0), tmp_path / "model.onnx", X)


def test_a_net_on_colored_images_and_one_on_features_do_too(tmp_path):
    colored = np.stack([X, 255 - X, X // 2], axis=-1)
    same(fit_student(NETS["vat"], colored, FEW, classes=QUARTERS, seed=0), tmp_path / "c.onnx", colored)
    dense = VATStudent(**{**BRIEF, "norm": "group"})
    same(fit_student(dense, FLAT, FEW, classes=QUARTERS, seed=0), tmp_path / "f.onnx", FLAT)


@pytest.mark.filterwarnings("ignore::terrine.students.MissingClassWarning")
def test_a_class_that_was_never_answered_has_probability_0(tmp_path):
    learner = SupervisedStudent(estimator=ESTIMATORS["linear"])
    student = fit_student(learner, X, np.where(FEW == 1, -1, FEW), classes=QUARTERS, seed=0)
    same(student, tmp_path / "model.onnx", X)
    assert (run(tmp_path / "model.onnx", X)[2][:, 1] == 0).all()


class Constant(ClassifierMixin, BaseEstimator):
    """What no converter knows."""

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        return self

    def predict(self, X):
        return self.classes_[np.zeros(len(X), dtype=int)]

    def predict_proba(self, X):
        return np.eye(len(self.classes_))[np.zeros(len(X), dtype=int)]


@pytest.mark.parametrize(
    ("learner", "message"),
    [
        (SupervisedStudent(estimator=Constant()), "skl2onnx cannot convert Constant"),
        (SupervisedStudent(estimator=LinearSVC()), "LinearSVC gives no probabilities"),
        (FeatureStudent(features=Edges(row_shape=(8, 8))), "This student's features are not part of the ONNX format"),
    ],
)
def test_what_has_no_such_form_is_refused_with_what_has_one(learner, message, tmp_path):
    student = fit_student(learner, X, FEW, classes=QUARTERS, seed=0)
    with pytest.raises(InputError, match=f"{message}.* An estimator that .* and so can every net"):
        student.export_onnx(tmp_path / "model.onnx")
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_cannot_be_written_is_named(tmp_path):
    student = fit_student(SupervisedStudent(estimator=ESTIMATORS["linear"]), X, FEW, classes=QUARTERS, seed=0)
    with pytest.raises(StoreError, match=r"no/model\.onnx cannot be written"):
        student.export_onnx(tmp_path / "no" / "model.onnx")


def test_without_the_packages_the_error_says_how_to_install_them(monkeypatch, tmp_path):
    student = fit_student(SupervisedStudent(estimator=ESTIMATORS["linear"]), X, FEW, classes=QUARTERS, seed=0)
    monkeypatch.setitem(sys.modules, "skl2onnx", None)
    with pytest.raises(MissingDependencyError, match=r"skl2onnx.*pip install 'terrine\[onnx\]'"):
        student.export_onnx(tmp_path / "model.onnx")


@pytest.mark.parametrize("where", ["run/student", "run"])
def test_the_command_takes_a_student_or_its_run(where, tmp_path, monkeypatch, capsys):
    student = fit_student(SupervisedStudent(estimator=ESTIMATORS["linear"]), X, FEW, classes=QUARTERS, seed=0)
    student.save(tmp_path / "run" / "student", card={"epsilon": 1.0, "delta": 1e-5})
    monkeypatch.setattr(sys, "argv", ["terrine", "export", str(tmp_path / where), str(tmp_path / "model.onnx")])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 0
    assert "rows (n, 8, 8) of float32 in" in capsys.readouterr().out
    session, _, probabilities = run(tmp_path / "model.onnx", X)
    loaded = load_student(tmp_path / "run" / "student")
    np.testing.assert_allclose(probabilities, loaded.predict_proba(X), atol=2e-5)
    assert json.loads(session.get_modelmeta().custom_metadata_map["card"])["epsilon"] == 1.0
