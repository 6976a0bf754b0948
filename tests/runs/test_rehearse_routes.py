"""Both routes on labeled public rows."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from terrine.errors import InputError
from terrine.relations import Relation
from terrine.runs import rehearse_routes as module
from terrine.runs.rehearse_routes import rehearse_routes
from terrine.students import SupervisedStudent
from terrine.teachers import RidgeTeacher

pytestmark = pytest.mark.usefixtures("by_renyi")
rng = np.random.default_rng(0)
Y = rng.integers(3, size=400)
X = rng.normal(size=(400, 6)) + 3 * np.eye(6)[Y]
SETTINGS = {
    "seen": X,
    "classes": ["a", "b", "c"],
    "teacher": RidgeTeacher(),
    "student": SupervisedStudent(estimator=LinearDiscriminantAnalysis()),
    "n_teachers": 20,
    "epsilon": 1.0,
    "delta": 1e-5,
    "relation": Relation.UNIT_ADDED,
    "planned_units": 20_000,
    "seed": 0,
}


def test_each_labeled_row_tests_once_and_never_what_learned_from_it(monkeypatch):
    splits, taught = [], []
    real = module.rehearse
    monkeypatch.setattr(module, "rehearse", lambda *a, **k: (splits.append(k["split"]), real(*a, **k))[1])
    probed = module.rehearse_probe
    monkeypatch.setattr(module, "rehearse_probe", lambda *a, **k: (taught.append(k["n_units"]), probed(*a, **k))[1])
    labels = np.where(np.arange(400) % 10 == 0, -1, Y)
    found = rehearse_routes(X, labels, **SETTINGS)
    assert found.n_labelled == 360
    assert sorted(np.concatenate([held for *_, held in splits])) == list(range(360))
    for split in splits:
        assert sorted(np.concatenate(split)) == list(range(360))
    assert taught == [len(split[0]) for split in splits] == [180] * 4


def test_the_probe_has_the_noise_of_the_planned_number_and_relation():
    """With few units, or a changed one in place of an added one, the same rows teach it less."""
    many = rehearse_routes(X, Y, **SETTINGS)
    few = rehearse_routes(X, Y, **SETTINGS | {"planned_units": 30})
    assert np.mean(many.probe) > 0.85
    assert np.mean(few.probe) < np.mean(many.probe) - 0.15
    added, changed = (
        np.mean(
            [
                np.mean(rehearse_routes(X, Y, **SETTINGS | {"planned_units": 120, "relation": r, "seed": seed}).probe)
                for seed in range(3)
            ]
        )
        for r in (Relation.UNIT_ADDED, Relation.UNIT_ANY)
    )
    assert added > changed


def test_where_no_teacher_can_answer_the_commonest_class_stands_in():
    found = rehearse_routes(X, Y, **SETTINGS | {"epsilon": 0.05, "n_teachers": 5})
    assert all(0.2 < one < 0.5 for one in found.teachers)


def test_the_same_seed_gives_the_same():
    assert rehearse_routes(X, Y, **SETTINGS) == rehearse_routes(X, Y, **SETTINGS)


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (np.where(np.arange(400) < 39, Y, -1), "at least 40 labeled public rows, got 39"),
        (Y[:10], "one class index for each row"),
        (Y + 0.5, "one class index for each row"),
    ],
)
def test_labels_that_do_not_do_are_refused(labels, words):
    with pytest.raises(InputError, match=words):
        rehearse_routes(X, labels, **SETTINGS)
