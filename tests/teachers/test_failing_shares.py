"""A share on which a teacher fails: it votes for class 0, nothing outside tells, and its owner can ask how many did."""

from __future__ import annotations

import logging
import os
import stat
import subprocess
import sys
import textwrap
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from tests.soak import amount
from tests.teachers.broken import Broken
from tests.teachers.tasks import CLASSES, KEY, TEACHERS, images, prints, shares_of, task

from terrine.datasets import PrivateData
from terrine.errors import InputError, StoreError
from terrine.executors import Processes, Serial
from terrine.partitioning import partition, write_shares
from terrine.sensitive import Sensitive
from terrine.teachers import ModuleRecipe, ModuleTeacher, SklearnTeacher, TeacherEnsemble, fit_teachers, poll_teachers

X, Y = images(50, seed=1)
ROWS = np.random.default_rng(0).normal(size=(120, 4))
LABELS = np.arange(120) % 3
ASKED = np.random.default_rng(1).normal(size=(30, 4))
NAMES = ("a", "b", "c")


def two_tasks(change) -> list[tuple[PrivateData, object]]:
    """Neighbours: one row of the first teacher's share is changed."""
    whole = PrivateData(ROWS, LABELS)
    shares = partition(whole, n_teachers=5, key=KEY, method="balanced")
    rows, labels = ROWS.copy(), LABELS.copy()
    change(rows, labels, shares.rows(2))
    return [(whole, shares), (PrivateData(rows, labels), shares)]


def huge(rows, labels, share):
    rows[share[0], 0] = 1e39  # past float32


def rare(rows, labels, share):
    """One member of a class, where a cross-validation wants two."""
    labels[share] = 0
    labels[share[: len(share) // 2]] = 1
    labels[share[0]] = 2


FAILING = {
    "a cell past float32": (RandomForestClassifier(n_estimators=3), huge),
    "one member of a class": (CalibratedClassifierCV(GaussianNB(), cv=2), rare),
}


@pytest.mark.parametrize(
    ("name", "executor"),
    [
        *((name, Serial()) for name in FAILING),
        ("a cell past float32", Processes(n_workers=1)),
        pytest.param("one member of a class", Processes(n_workers=2), marks=pytest.mark.soak),
    ],
)
def test_one_row_does_not_stop_the_others(name, executor, tmp_path, capfd, caplog, recwarn):
    """The two reproductions: with the row and without it the same things happen, but for one teacher's votes."""
    estimator, change = FAILING[name]
    teacher = SklearnTeacher(estimator=estimator, chunk=2)
    found = []
    with caplog.at_level(logging.DEBUG):
        for place, (data, shares) in enumerate(two_tasks(change)):
            folder = tmp_path / str(place)
            told: list[Sensitive[int]] = []
            arguments = {"classes": NAMES, "seed": 0, "executor": executor}
            polled = poll_teachers(data, shares, teacher, ASKED, tell_failed=told.append, **arguments)
            arguments["executor"] = amount(Serial(), soak=executor)  # a process takes seconds to start
            kept = fit_teachers(data, shares, teacher, store=folder, **arguments)
            assert (kept.vote(ASKED).counts == polled.counts).all()
            loaded = TeacherEnsemble.load(folder, teacher)
            counts = [told[0], kept.n_failed, loaded.n_failed, loaded.in_memory().n_failed]
            assert [n.reveal() for n in counts] == [place] * 4
            assert str(kept.n_failed).startswith("<Sensitive")
            found.append((loaded, sorted(path.name for path in folder.iterdir())))
    (one, names), (two, other_names) = found
    assert names == other_names
    assert {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "1").iterdir()} == {0o600}
    assert capfd.readouterr() == ("", "")
    assert not caplog.records
    assert not recwarn.list
    before, after = (ensemble.ballots(ASKED).choices for ensemble in (one, two))
    assert (after[2] == 0).all()
    assert (np.delete(before, 2, axis=0) == np.delete(after, 2, axis=0)).all()


class Superstitious(torch.nn.Module):
    """Will not learn from a row that is brighter than any of the others'."""

    def __init__(self, n_classes, row_shape):
        super().__init__()
        self.linear = torch.nn.Linear(int(np.prod(row_shape)), n_classes)

    def forward(self, x):
        if self.training and not torch._C._functorch.is_batchedtensor(x) and bool((x > 0.99).any()):
            raise RuntimeError("Ann is bright")
        return self.linear(x.flatten(1))


def test_a_module_that_fails_on_one_share_leaves_the_others_as_they_are():
    data = task()
    shares = shares_of(data)
    teacher = ModuleTeacher(module=Superstitious, recipe=ModuleRecipe(steps=60), device="cpu", chunk=3)
    bright = data.X.copy()
    bright[shares.rows(1)] = 255
    one, two = (
        fit_teachers(PrivateData(rows, data.y, unit=data.unit), shares, teacher, classes=CLASSES, seed=0)
        for rows in (data.X, bright)
    )
    assert (one.n_failed.reveal(), two.n_failed.reveal()) == (0, 1)
    assert (two.ballots(X).choices[1] == 0).all()
    assert [a == b for a, b in zip(prints(one), prints(two), strict=True)] == [True, False] + [True] * 5


class Cholesky(torch.nn.Module):
    """Raises to predict with weights that are not positive."""

    def __init__(self, n_classes, row_shape):
        super().__init__()
        self.linear = torch.nn.Linear(int(np.prod(row_shape)), n_classes)
        self.scale = torch.nn.Parameter(torch.ones(1, 1))

    def forward(self, x):
        return self.linear(x.flatten(1)) * torch.linalg.cholesky(self.scale).squeeze()


@pytest.mark.parametrize("stacked", [True, False])
def test_a_module_that_raises_to_vote_votes_for_class_0_and_its_neighbors_do_not(stacked):
    data = task()
    shares = shares_of(data)
    teacher = ModuleTeacher(module=Cholesky, recipe=ModuleRecipe(steps=20), device="cpu", chunk=7, stacked=stacked)
    taught = fit_teachers(data, shares, teacher, classes=CLASSES, seed=0)
    before = taught.ballots(X).choices
    (models,) = taught._models.values()
    models["state.scale"][3] = -1.0  # as no preflight could foresee
    after = taught.ballots(X).choices
    assert (after[3] == 0).all()
    assert (np.delete(after, 3, axis=0) == np.delete(before, 3, axis=0)).all()


@pytest.mark.parametrize("name", ["forest", "linear", "centroids"])
def test_rows_on_disk_that_are_not_finite_fail_their_share_alone(name, tmp_path):
    """`Shares` are mapped, not looked at."""
    data = task()
    shares = shares_of(data)
    rows = data.X.astype(np.float64)
    taught = []
    for place in ("whole", "broken"):
        if place == "broken":
            rows[shares.rows(4)[0]] = np.nan
        on_disk = write_shares(SimpleNamespace(X=rows, y=data.y, unit=data.unit), shares, tmp_path / place)
        taught.append(fit_teachers(on_disk, shares, TEACHERS[name], classes=CLASSES, seed=0))
    assert [ensemble.n_failed.reveal() for ensemble in taught] == [0, 1]
    before, after = (ensemble.ballots(X.astype(np.float64)).choices for ensemble in taught)
    assert (after[4] == 0).all()
    assert (np.delete(after, 4, axis=0) == np.delete(before, 4, axis=0)).all()


class Moody(ClassifierMixin, BaseEstimator):
    """A type of one's own that no store takes back, learned from some shares only."""

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        self.kept_ = Moody() if X.max() > 1e6 else 1
        return self

    def predict(self, X):
        return np.ones(len(X), dtype=np.int64)


def test_a_teacher_that_cannot_be_kept_fails_alone(tmp_path, monkeypatch):
    data, shares = two_tasks(lambda rows, labels, share: rows.__setitem__(share[0], 1e7))[1]
    teacher = SklearnTeacher(estimator=GaussianNB(), chunk=5)
    fit = SklearnTeacher.fit

    def moody(self, some, **more):
        models = fit(self, some, **more)
        for place, (X, _) in enumerate(some):
            if len(X) and X.max() > 1e6:
                models[place] = Moody()
        return models

    monkeypatch.setattr(SklearnTeacher, "fit", moody)
    kept = fit_teachers(data, shares, teacher, classes=NAMES, seed=0, store=tmp_path / "store")
    assert kept.n_failed.reveal() == 1
    assert (kept.ballots(ASKED).choices[2] == 0).all()


def test_what_can_never_be_kept_is_refused_before_anything_is_written(tmp_path):
    data, shares = two_tasks(huge)[0]
    with pytest.raises(StoreError, match="not trusted"):
        fit_teachers(data, shares, SklearnTeacher(estimator=Moody()), classes=NAMES, seed=0, store=tmp_path / "store")
    assert not (tmp_path / "store").exists()
    assert fit_teachers(data, shares, SklearnTeacher(estimator=Moody()), classes=NAMES, seed=0).n_teachers == 5


def test_a_preflight_on_public_rows_knows_what_made_up_ones_do_not():
    """Categories that are listed: rows that are made up have others."""
    rng = np.random.default_rng(0)
    whole = rng.choice([10.0, 20.0, 30.0], size=(120, 4))
    listed = make_pipeline(OneHotEncoder(categories=[[10.0, 20.0, 30.0]] * 4), LogisticRegression())
    data = PrivateData(whole, LABELS)
    shares = partition(data, n_teachers=5, key=KEY, method="balanced")
    teacher = SklearnTeacher(estimator=listed)
    with pytest.raises(InputError, match=r"on \d+ made-up rows it failed with ValueError: Found unknown categories"):
        fit_teachers(data, shares, teacher, classes=NAMES, seed=0)
    taught = fit_teachers(data, shares, teacher, classes=NAMES, seed=0, public=whole[:9])
    assert taught.n_failed.reveal() == 0
    with pytest.raises(InputError, match=r"on \d+ public rows it failed with ValueError: Found unknown categories"):
        poll_teachers(data, shares, teacher, ASKED, classes=NAMES, seed=0)


def test_every_share_may_fail_and_only_the_owner_learns_of_it():
    few = PrivateData(ROWS[:20], LABELS[:20])
    shares = partition(few, n_teachers=5, key=KEY, method="balanced")
    five = SklearnTeacher(estimator=KNeighborsClassifier(5))  # of four rows a share
    taught = fit_teachers(few, shares, five, classes=NAMES, seed=0)
    assert taught.n_failed.reveal() == 5
    assert (taught.vote(ASKED).counts[:, 0] == 5).all()


def test_what_fails_on_public_rows_too_is_said(monkeypatch):
    """Not a share's doing: the machine's."""
    monkeypatch.setenv("FIRST", str(os.getpid()))
    data, shares = two_tasks(huge)[0]
    with pytest.raises(InputError, match="it failed with MemoryError"):
        poll_teachers(
            data, shares, SklearnTeacher(estimator=Broken()), ASKED, classes=NAMES, seed=0, executor=Processes(1)
        )


PROGRAM = """
    import warnings, sys, numpy as np
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from terrine.datasets import PrivateData
    from terrine.executors import Processes, Serial
    from terrine.partitioning import partition, write_shares
    from terrine.teachers import CentroidTeacher, SklearnTeacher, fit_teachers, poll_teachers

    if __name__ == "__main__":
        np.seterr(all="raise")
        rows = np.random.default_rng(0).normal(size=(120, 4)).astype(np.float32)
        if sys.argv[1] == "odd":
            rows[:10] *= 1e37  # overflows in a sum of squares
        data = PrivateData(rows, np.arange(120) % 3)
        shares = partition(data, n_teachers=3, key=bytes(32), method="balanced")
        linear = make_pipeline(StandardScaler(), LogisticRegression(max_iter=3))
        teachers = {"linear": SklearnTeacher(estimator=linear), "centroids": CentroidTeacher()}
        for teacher in map(teachers.get, sys.argv[2:]):
            given = {"classes": "a b c".split(), "seed": 0}
            taught = fit_teachers(data, shares, teacher, executor=Serial(), **given)
            votes = taught.vote(rows, executor=Serial())
            assert taught.n_failed.reveal() == 0
            polled = poll_teachers(data, shares, teacher, rows, executor=Processes(1), **given)
            assert (polled.counts == votes.counts).all()  # so none failed there: it would vote for class 0
"""


@pytest.mark.parametrize(("filters", "teacher"), [("default", "centroids"), ("error", "linear")])
def test_nothing_is_heard_of_an_overflow_and_it_fails_no_teacher(filters, teacher, tmp_path):
    """Whatever filters a program was started with, in workers too; and whatever numpy was told to raise."""
    (tmp_path / "program.py").write_text(textwrap.dedent(PROGRAM))
    teachers = amount((teacher,), soak=("linear", "centroids"))
    for kind in amount(("odd",), soak=("plain", "odd")):
        done = subprocess.run(
            [sys.executable, "-W", filters, str(tmp_path / "program.py"), kind, *teachers],
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, "", ""), done.stderr


class Loud(GaussianNB):
    """Sets filters of its own and warns."""

    def fit(self, X, y):
        warnings.simplefilter("always")
        warnings.warn("Ann is an outlier", stacklevel=1)
        return super().fit(X, y)


def test_an_estimator_that_sets_filters_is_not_heard_either(capfd, recwarn):
    data, shares = two_tasks(huge)[0]
    fit_teachers(data, shares, SklearnTeacher(estimator=Loud()), classes=NAMES, seed=0)
    assert not recwarn.list
    assert capfd.readouterr() == ("", "")
