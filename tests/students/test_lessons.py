"""A student's folder: it comes back as it was, and whatever else is in it is refused."""

from __future__ import annotations

import hashlib
import json
import sys
from dataclasses import dataclass

import numpy as np
import pytest
import safetensors.numpy
import skops.io
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from tests.students.tasks import NETS, QUARTERS, few, quarters

from terrine.errors import InputError, MissingDependencyError, SecretError, StoreError
from terrine.sensitive import Sensitive
from terrine.students import SupervisedStudent, fit_student, load_student

X, Y = quarters()
ANSWERS = few(Y, 5)
CARD = {"epsilon": 1.5, "delta": 1e-5, "basis": "worst case", "notes": ["one", "two"]}
LINEAR = SupervisedStudent(estimator=make_pipeline(StandardScaler(), LogisticRegression()))
FOREST = SupervisedStudent(estimator=RandomForestClassifier(n_estimators=5))
BOOSTING = SupervisedStudent(estimator=HistGradientBoostingClassifier(max_iter=3, min_samples_leaf=3))
ALL = {**NETS, "linear": LINEAR, "forest": FOREST, "boosting": BOOSTING}
FILES = {"model_card.json", "card.json", "model_card.md", "SHA256SUMS"}


@pytest.fixture(scope="module")
def students():
    return {name: fit_student(student, X, ANSWERS, classes=QUARTERS, seed=0) for name, student in ALL.items()}


def seal(folder) -> None:
    """Make the sums right again, as someone would who changes a file on purpose."""
    names = [line.split("  ")[1] for line in (folder / "SHA256SUMS").read_text().splitlines()]
    sums = [f"{hashlib.sha256((folder / name).read_bytes()).hexdigest()}  {name}\n" for name in names]
    (folder / "SHA256SUMS").write_text("".join(sums))


@pytest.mark.parametrize("name", ALL)
def test_it_comes_back_with_the_same_predictions(students, name, tmp_path):
    student = students[name]
    student.save(tmp_path / "student", card=CARD)
    again = load_student(tmp_path / "student")
    assert (again.predict_proba(X) == student.predict_proba(X)).all()
    assert (again.predict(X) == student.predict(X)).all()
    assert again.classes == QUARTERS
    assert again.about.row_shape == (8, 8)
    assert again.about.seed == 0
    model = "student.safetensors" if name in NETS else "student.skops"
    assert {path.name for path in (tmp_path / "student").iterdir()} == {model, *FILES}
    again.save(tmp_path / "again", card=CARD)
    for file in FILES - {"SHA256SUMS"} if model == "student.skops" else {model, *FILES}:
        assert (tmp_path / "again" / file).read_bytes() == (tmp_path / "student" / file).read_bytes()


def test_features_come_back_with_their_scale(tmp_path):
    rows = X.reshape(80, 64) * 3.5
    student = fit_student(NETS["vat"], rows, ANSWERS, classes=QUARTERS, seed=0)
    student.save(tmp_path, card={})
    assert (load_student(tmp_path).predict_proba(rows) == student.predict_proba(rows)).all()


def test_the_card_says_what_a_reader_needs(students, tmp_path):
    students["vat"].save(tmp_path, card=CARD)
    card = json.loads((tmp_path / "model_card.json").read_text())
    assert card["guarantee"] == CARD
    assert card["classes"] == list(QUARTERS)
    assert card["rows"] == {"shape": [8, 8], "images": True}
    assert card["training"]["settings"]["student"] == "VATStudent"
    assert card["training"]["settings"]["steps"] == 12
    assert (card["training"]["seed"], card["training"]["n_answered"]) == (0, 20)
    page = (tmp_path / "model_card.md").read_text()
    assert "| ε (epsilon), rounded up | 1.500 |" in page
    assert "NOT PRIVATE" not in page


def test_a_card_of_seeded_noise_says_that_it_is_not_private(tmp_path):
    from terrine.mechanisms import GNMax, answer
    from terrine.noise import SeededNoise
    from terrine.votes import Votes

    answers = answer(GNMax(sigma=1), Votes(np.eye(4, dtype=int)[Y] * 30, n_teachers=30), rng=SeededNoise(0))
    fit_student(LINEAR, X, answers, classes=QUARTERS, seed=0).save(tmp_path, card=CARD)
    assert "NOT PRIVATE" in (tmp_path / "model_card.md").read_text()


@dataclass
class Thing:
    epsilon: float


@pytest.mark.parametrize(
    ("card", "error", "message"),
    [
        ({"epsilon": Sensitive(1.0)}, SecretError, r"card\['epsilon'\] must be public"),
        ({"a": {"b": [1, Sensitive(1.0)]}}, SecretError, r"card\['a'\]\['b'\]\[1\] must be public"),
        (Sensitive({"epsilon": 1.0}), SecretError, "card must be public"),
        ({"epsilon": Thing(1.0)}, InputError, "got Thing"),
        ({"epsilon": float("nan")}, InputError, "finite"),
        ("epsilon", InputError, "card must be a dict, got str"),
    ],
)
def test_a_card_holds_public_plain_values_only(students, tmp_path, card, error, message):
    with pytest.raises(error, match=message):
        students["linear"].save(tmp_path / "student", card=card)
    assert not (tmp_path / "student").exists()


@pytest.mark.parametrize("name", ["vat", "forest"])
def test_a_damaged_or_missing_file_is_refused_by_name(students, name, tmp_path):
    students[name].save(tmp_path, card=CARD)
    for path in sorted(tmp_path.iterdir()):
        data = path.read_bytes()
        if path.name != "SHA256SUMS":
            path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
            with pytest.raises(StoreError, match=f"{path.name} is damaged, or was changed"):
                load_student(tmp_path)
        path.unlink()
        with pytest.raises(StoreError, match=path.name):
            load_student(tmp_path)
        path.write_bytes(data)
    load_student(tmp_path)
    with pytest.raises(StoreError, match="SHA256SUMS"):
        load_student(tmp_path / "nowhere")


@pytest.mark.parametrize("name", ["vat", "forest"])
def test_files_with_right_sums_and_wrong_contents_are_refused(students, name, tmp_path):
    students[name].save(tmp_path, card=CARD)
    model = next(path for path in tmp_path.iterdir() if path.name.startswith("student."))
    data, card = model.read_bytes(), (tmp_path / "model_card.json").read_text()
    for bad in (b"", data[: len(data) // 2], safetensors.numpy.save({"a": np.zeros(2)})):
        model.write_bytes(bad)
        seal(tmp_path)
        with pytest.raises(StoreError):
            load_student(tmp_path)
    model.write_bytes(data)
    for changed in ("{}", "[1]", "no json", card.replace("terrine.student/1", "terrine.student/9")):
        (tmp_path / "model_card.json").write_text(changed)
        seal(tmp_path)
        with pytest.raises(StoreError, match="schema"):
            load_student(tmp_path)
    (tmp_path / "model_card.json").write_text(card.replace('"kind": "', '"kind": "other '))
    seal(tmp_path)
    with pytest.raises(StoreError, match="holds a student of an unknown kind"):
        load_student(tmp_path)


def test_a_card_that_describes_another_net_is_refused(students, tmp_path):
    students["vat"].save(tmp_path, card=CARD)
    path = tmp_path / "model_card.json"
    card = json.loads(path.read_text())
    card["training"]["settings"]["channels"] = [4, 9]
    path.write_text(json.dumps(card))
    seal(tmp_path)
    with pytest.raises(StoreError, match="do not fit the net"):
        load_student(tmp_path)


def test_sums_that_lead_out_of_the_folder_are_refused(students, tmp_path):
    students["linear"].save(tmp_path / "student", card=CARD)
    (tmp_path / "secret").write_text("x")
    sums = tmp_path / "student" / "SHA256SUMS"
    sums.write_text(sums.read_text() + f"{hashlib.sha256(b'x').hexdigest()}  ../secret\n")
    with pytest.raises(StoreError, match="a file beside it"):
        load_student(tmp_path / "student")


class Foreign(ClassifierMixin, BaseEstimator):
    """A classifier of a type that nobody trusts."""

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        return self

    def predict(self, X):
        return np.zeros(len(X), dtype=int)


def test_types_that_nobody_trusts_are_neither_written_nor_read(students, tmp_path):
    foreign = fit_student(SupervisedStudent(estimator=Foreign()), X, ANSWERS, classes=QUARTERS, seed=0)
    with pytest.raises(StoreError, match="not trusted"):
        foreign.save(tmp_path / "foreign", card=CARD)
    assert not (tmp_path / "foreign").exists()
    students["linear"].save(tmp_path, card=CARD)
    (tmp_path / "student.skops").write_bytes(skops.io.dumps(foreign.model))
    seal(tmp_path)
    with pytest.raises(StoreError, match="not trusted"):
        load_student(tmp_path)


def test_an_estimator_without_probabilities_still_predicts():
    student = fit_student(SupervisedStudent(estimator=LinearSVC()), X, ANSWERS, classes=QUARTERS, seed=0)
    assert student.predict(X).shape == (80,)
    with pytest.raises(InputError, match="CalibratedClassifierCV"):
        student.predict_proba(X)


def test_a_forest_is_seeded():
    same, again, other = (fit_student(FOREST, X, ANSWERS, classes=QUARTERS, seed=seed) for seed in (0, 0, 1))
    assert (same.predict_proba(X) == again.predict_proba(X)).all()
    assert (same.predict_proba(X) != other.predict_proba(X)).any()


def test_a_folder_that_cannot_be_written_is_named(students, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="The student cannot be written to"):
        students["linear"].save(tmp_path / "file" / "student", card=CARD)


def test_without_packages_the_error_says_how_to_install_them(students, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "skops.io", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'terrine\[keep\]'"):
        students["linear"].save(tmp_path, card=CARD)
    monkeypatch.setitem(sys.modules, "safetensors.numpy", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'terrine\[keep\]'"):
        students["vat"].save(tmp_path, card=CARD)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'terrine\[torch\]'"):
        fit_student(NETS["vat"], X, ANSWERS, classes=QUARTERS, seed=0)
