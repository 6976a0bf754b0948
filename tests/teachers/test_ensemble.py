"""Teaching and voting: the full class space, constant votes, streams, shares on disk, and what is refused."""

from __future__ import annotations

import copy
import json
import pickle
import re
import traceback
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from tests.teachers.tasks import (
    CENTROIDS,
    CLASSES,
    KEY,
    LINEAR,
    NETS,
    TEACHERS,
    images,
    prints,
    shares_of,
    task,
)

from terrine.datasets import PrivateData, PublicData
from terrine.errors import InputError, SecretError, TeachersError, TerrineError
from terrine.executors import Processes, Serial
from terrine.partitioning import Partition, partition, write_shares
from terrine.teachers import (
    ModuleTeacher,
    SklearnTeacher,
    TeacherEnsemble,
    ensemble,
    fit_teachers,
    poll_teachers,
    workers,
)
from terrine.votes import tally

DATA = task()
X, Y = images(50, seed=1)


def by_hand(*labels: list[int], seed: int = 0) -> tuple[PrivateData, Partition]:
    """Teacher k has rows with the labels that are listed."""
    y = np.concatenate([np.array(some, dtype=np.int64) for some in labels])
    rows = np.random.default_rng(seed).integers(0, 255, size=(len(y), 8, 8), dtype=np.uint8)
    assignment = np.repeat(np.arange(len(labels)), [len(some) for some in labels])
    relation = "one unit is added, removed or changed"
    return PrivateData(rows, y), Partition(assignment, n_teachers=len(labels), method="hashed", relation=relation)


@pytest.mark.parametrize("name", TEACHERS)
def test_every_teacher_votes_on_every_row_in_the_full_class_space(name):
    data, shares = by_hand([], [2, 2, 2], [3, 1] * 20, [3], [])
    votes = fit_teachers(data, shares, TEACHERS[name], classes=CLASSES, seed=0).vote(X)
    assert votes.counts.shape == (50, 4)
    assert votes.n_teachers == 5
    rest = votes.counts - [2, 0, 1, 1]  # two empty shares for class 0, a share of 2s, a share of one 3
    assert (rest >= 0).all()
    assert set(rest.argmax(1)) <= {1, 3}


@pytest.mark.parametrize("name", TEACHERS)
def test_a_chunk_of_empty_shares_votes_for_class_0(name):
    data, shares = by_hand([0, 1, 2, 3] * 3, [], [], [], [], [])
    votes = poll_teachers(data, shares, TEACHERS[name], X, classes=CLASSES, seed=0)
    assert (votes.counts[:, 0] >= 5).all()


@pytest.mark.parametrize("name", TEACHERS)
def test_they_learn_and_poll_gives_the_same_votes(name):
    ensemble = fit_teachers(DATA, shares_of(DATA), TEACHERS[name], classes=CLASSES, seed=0)
    votes = ensemble.vote(PublicData(X))
    assert (votes.counts.argmax(1) == Y).mean() > 0.8
    polled = poll_teachers(DATA, shares_of(DATA), TEACHERS[name], X, classes=CLASSES, seed=0)
    assert (polled.counts == votes.counts).all()


@pytest.mark.parametrize("name", TEACHERS)
def test_a_stream_gives_the_votes_of_all_at_once(name, monkeypatch):
    taught = fit_teachers(DATA, shares_of(DATA), TEACHERS[name], classes=CLASSES, seed=0)
    rows = images(300, seed=2)[0]
    whole = taught.vote(rows).counts
    assert (np.concatenate([taught.vote(rows[i : i + 77]).counts for i in range(0, 300, 77)]) == whole).all()
    monkeypatch.setattr(workers, "_BLOCK", 13)
    assert (taught.vote(rows).counts == whole).all()


def test_votes_in_processes_and_progress():
    seen: list[float] = []
    two = Processes(n_workers=2)
    taught = fit_teachers(DATA, shares_of(DATA), CENTROIDS, classes=CLASSES, seed=0, executor=two, progress=seen.append)
    assert seen == [1 / 3, 2 / 3, 1.0]
    del seen[:]
    votes = taught.vote(X, executor=two, progress=seen.append)
    assert seen == [1 / 3, 2 / 3, 1.0]
    assert (votes.counts == taught.vote(X, executor=Serial()).counts).all()
    one = Processes(n_workers=1)
    polled = poll_teachers(DATA, shares_of(DATA), CENTROIDS, X, classes=CLASSES, seed=0, executor=one)
    assert (polled.counts == votes.counts).all()


def test_predictions_of_several_owners_are_tallied_together():
    """Two owners teach on their own; their predictions, one below the other, are one vote set."""
    predictions, counts = [], 0
    for seed in (0, 1):
        data = task(seed=seed)
        shares = shares_of(data)
        chosen = [(data.X[shares.rows(k)], data.y[shares.rows(k)]) for k in range(7)]
        predictions.append(LINEAR.predict(LINEAR.fit(chosen, ids=range(7), n_classes=4, seed=seed), X))
        counts = counts + fit_teachers(data, shares, LINEAR, classes=CLASSES, seed=seed).vote(X).counts
    merged = tally(np.concatenate(predictions), n_classes=4)
    assert merged.n_teachers == 14
    assert (merged.counts == counts).all()


@pytest.mark.parametrize("name", TEACHERS)
def test_shares_on_disk_teach_the_same(tmp_path, name):
    shares = shares_of(DATA)
    on_disk = write_shares(DATA, shares, tmp_path / "shares")
    here = fit_teachers(DATA, shares, TEACHERS[name], classes=CLASSES, seed=0)
    there = fit_teachers(on_disk, shares, TEACHERS[name], classes=CLASSES, seed=0)
    assert prints(here) == prints(there)


def test_shares_on_disk_in_processes_with_a_store(tmp_path):
    shares = shares_of(DATA)
    on_disk = write_shares(DATA, shares, tmp_path / "shares")
    arguments = {"classes": CLASSES, "seed": 0, "executor": Processes(n_workers=1), "store": tmp_path / "store"}
    votes = fit_teachers(on_disk, shares, CENTROIDS, **arguments).vote(X)
    assert (votes.counts == fit_teachers(DATA, shares, CENTROIDS, classes=CLASSES, seed=0).vote(X).counts).all()


def test_shares_on_disk_that_do_not_fit_are_refused(tmp_path):
    on_disk = write_shares(DATA, shares_of(DATA), tmp_path / "shares")
    with pytest.raises(InputError, match="partition has 5 teachers, and the shares 7"):
        fit_teachers(on_disk, shares_of(DATA, 5), LINEAR, classes=CLASSES, seed=0)
    with pytest.raises(InputError, match="data must be the shares of this partition"):
        fit_teachers(
            on_disk,
            partition(DATA, n_teachers=7, key=bytes(32), min_units=0),
            LINEAR,
            classes=CLASSES,
            seed=0,
        )
    with pytest.raises(InputError, match="class indices from 0 to 1"):
        fit_teachers(on_disk, shares_of(DATA), LINEAR, classes=["a", "b"], seed=0)


def test_what_does_not_fit_is_refused_in_one_line():
    shares = shares_of(DATA)
    taught = fit_teachers(DATA, shares, LINEAR, classes=CLASSES, seed=0)
    refused = [
        (lambda: fit_teachers(DATA, shares, LINEAR, classes=["a", "b"], seed=0), "Every label must be below 2"),
        (lambda: fit_teachers(DATA, shares, LINEAR, classes="abcd", seed=0), "list of names"),
        (lambda: fit_teachers(DATA, shares, LINEAR, classes=CLASSES, seed=-1), "seed"),
        (lambda: fit_teachers(DATA.X, shares, LINEAR, classes=CLASSES, seed=0), "PrivateData or Shares, got ndarray"),
        (
            lambda: fit_teachers(DATA.take(range(9)), shares, LINEAR, classes=CLASSES, seed=0),
            "a different number of rows than the data",
        ),
        (lambda: fit_teachers(DATA, shares, LINEAR, classes=range(40_000), seed=0), "at most 32767 classes"),
        (
            lambda: taught.vote(X.reshape(50, 64)),
            r"rows of shape \(8, 8\), as the teachers' rows, got \(64,\)",
        ),
        (lambda: taught.vote(X[:0]), "at least one row"),
        (lambda: taught.vote(X[0, 0]), "the first for rows"),
        (lambda: taught.vote(np.full((3, 8, 8), np.nan)), "finite"),
        (lambda: poll_teachers(DATA, shares, LINEAR, X[:, :4], classes=CLASSES, seed=0), r"got \(4, 8\)"),
        (lambda: fit_teachers(DATA, shares, NETS, classes=CLASSES, seed=0).vote(X / 255), "dtype uint8"),
    ]
    for call, message in refused:
        with pytest.raises(TerrineError, match=message) as caught:
            call()
        assert "\n" not in str(caught.value)


def test_an_ensemble_votes_and_does_not_predict_print_or_travel():
    taught = fit_teachers(DATA, shares_of(DATA), LINEAR, classes=CLASSES, seed=0)
    assert not [name for name in dir(TeacherEnsemble) if re.search("predict|proba|score|decision", name)]
    assert repr(taught) == str(taught) == "<TeacherEnsemble: 7 teachers, 4 classes; they vote, not predict>"
    for out in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(SecretError, match="Use a store"):
            out(taught)
    with pytest.raises(TypeError):
        json.dumps(taught)


def test_private_rows_are_not_printed_with_the_work():
    _, rows = ensemble._rows_of(DATA, shares_of(DATA), LINEAR, 4)
    work = workers.Work(LINEAR, rows, 4, 0, None, X)
    assert "array" not in repr(rows) + repr(work)


@dataclass(frozen=True, kw_only=True)
class Majority:
    """A teacher of one's own: votes for the commonest class of its share."""

    chunk: int = 3
    suffix = ".bin"

    def settings(self):
        return {"teacher": "Majority"}

    def fit(self, shares, *, ids, n_classes, seed, progress=None):
        return [int(np.bincount(y, minlength=n_classes).argmax()) for _, y in shares]

    def predict(self, models, X, *, watched=True):
        return np.repeat(np.array(models, dtype=np.int16)[:, None], len(X), axis=1)

    def dumps(self, models):
        return bytes(models)

    def loads(self, data):
        return list(data)


def test_a_teacher_of_ones_own_needs_the_protocol_alone(tmp_path):
    data, shares = by_hand([1, 1, 2], [3], [], [2, 2, 0], [1])
    expected = [1, 2, 1, 1]
    assert (poll_teachers(data, shares, Majority(), X, classes=CLASSES, seed=0).counts == expected).all()
    kept = fit_teachers(data, shares, Majority(), classes=CLASSES, seed=0, store=tmp_path)
    assert (kept.vote(X).counts == expected).all()
    assert (TeacherEnsemble.load(tmp_path, Majority()).vote(X).counts == expected).all()


def test_what_is_no_teacher_is_refused_with_the_way_to_make_one():
    for teach in (fit_teachers, lambda *some, **more: poll_teachers(*some, X, **more)):
        with pytest.raises(InputError, match=r"GaussianNB is not a teacher. .*SklearnTeacher\(estimator=...\)"):
            teach(DATA, shares_of(DATA), GaussianNB(), classes=CLASSES, seed=0)


def test_balanced_shares_of_rows_without_units():
    data = PrivateData(DATA.X, DATA.y)
    shares = partition(data, n_teachers=5, method="balanced", key=KEY)
    taught = fit_teachers(data, shares, LINEAR, classes=CLASSES, seed=0)
    assert taught.relation == shares.relation
    assert taught.vote(X).n_teachers == 5


def test_a_failure_of_another_kind_of_teacher_to_vote_tells_nothing(monkeypatch):
    taught = fit_teachers(DATA, shares_of(DATA), NETS, classes=CLASSES, seed=0)

    def fail(*_, **__):
        raise KeyError("Ann")

    monkeypatch.setattr(type(NETS), "predict", fail)
    with pytest.raises(TeachersError, match=r"teachers failed to vote \(KeyError\)") as caught:
        taught.vote(X)
    assert "Ann" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize(
    ("estimator", "words"),
    [
        (LogisticRegression(C=-1), "The 'C' parameter of LogisticRegression must be a float"),
        (RandomForestClassifier(n_estimators="many"), "'n_estimators' parameter .* Got 'many' instead"),
        (make_pipeline(OneHotEncoder(), HistGradientBoostingClassifier()), "dense data is required"),
    ],
)
def test_wrong_settings_are_said_before_anyone_is_taught(estimator, words, tmp_path):
    teacher = SklearnTeacher(estimator=estimator)
    for teach, more in ((fit_teachers, {"store": tmp_path / "store"}), (poll_teachers, {"public": X})):
        with pytest.raises(InputError, match=words) as caught:
            teach(DATA, shares_of(DATA), teacher, classes=CLASSES, seed=0, **more)
        assert "\n" not in str(caught.value)
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize(
    "estimator", [KNeighborsClassifier(60), CalibratedClassifierCV(GaussianNB(), cv=12)], ids=lambda e: type(e).__name__
)
def test_what_needs_more_rows_than_are_first_made_up_is_taught(estimator):
    data = task(600)
    votes = poll_teachers(data, shares_of(data, 2), SklearnTeacher(estimator=estimator), X, classes=CLASSES, seed=0)
    assert votes.n_teachers == 2


def narrow(n_classes: int, row_shape: tuple[int, ...]) -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(9, n_classes))


def test_a_failure_on_made_up_rows_is_told_in_full():
    with pytest.raises(InputError, match=r"on \d+ made-up rows it failed with RuntimeError: mat1 and mat2 shapes"):
        fit_teachers(DATA, shares_of(DATA), ModuleTeacher(module=narrow, device="cpu"), classes=CLASSES, seed=0)
