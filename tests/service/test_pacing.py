"""Votes come at their unit, doubled where they take longer: a public function of how many rows there are."""

from __future__ import annotations

import time

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from tests.service.tasks import FORMAT, MECHANISM, Service, TinyTeachers, budget_for, rows_of

from terrine import Ledger, PrivateData
from terrine.labeller import KeptVotes, Labeller
from terrine.partitioning import partition
from terrine.service import pacing
from terrine.service.app import Limits
from terrine.service.pacing import PacedVoters
from terrine.teachers import SklearnTeacher, fit_teachers


class Slow(TinyTeachers):
    """Takes so long for each row; `extra` is a share's doing."""

    extra = 0.0

    def __init__(self, seconds):
        self.seconds, self.asked = seconds, []

    def vote(self, X):
        self.asked.append(len(X))
        time.sleep(self.seconds * len(X) + self.extra)
        return super().vote(X)


def paced(voters):
    return PacedVoters(voters, row_shape=FORMAT.shape, dtype=FORMAT.dtype)


def test_the_unit_grows_with_the_rows_and_is_a_power_of_two():
    voters = paced(Slow(0.004))
    units = [voters.unit(n) for n in (1, 2, 7, 30, 1000)]
    assert units == sorted(units)
    assert all(np.log2(unit) == round(np.log2(unit)) for unit in units)
    for n in (1, 10, 30, 500):
        assert voters.unit(n) >= 2 * 0.004 * n


def test_votes_take_the_same_time_whatever_a_share_adds_within_the_margin():
    voters = paced(slow := Slow(0.01))
    X = rows_of(2)
    taken = []
    for extra in (0.0, 0.015):
        slow.extra = extra
        started = time.monotonic()
        assert (voters.vote(X).counts == TinyTeachers().vote(X).counts).all()
        taken.append(time.monotonic() - started)
    unit = voters.unit(2)
    assert min(taken) >= unit
    slow.extra = 2 * unit
    started = time.monotonic()
    voters.vote(X)
    assert time.monotonic() - started >= 4 * unit  # doubled, and doubled again


def test_a_failure_is_paced_too():
    voters = paced(slow := Slow(0.02))

    def fail(X):
        raise ValueError("no")

    slow.vote = fail
    started = time.monotonic()
    with pytest.raises(ValueError, match="no"):
        voters.vote(rows_of(1))
    assert time.monotonic() - started >= voters.unit(1) >= 0.04


def test_trivial_teachers_are_not_slowed():
    measured = [paced(TinyTeachers()) for _ in range(5)]  # on a busy machine some are slow
    assert min(voters.unit(1) for voters in measured) < 0.01
    assert min(voters.unit(4096) for voters in measured) < 0.5


def test_all_that_a_labeller_reads_is_handed_on(tmp_path):
    tiny = TinyTeachers()
    tiny.relation, tiny.anything = "one unit is added, removed or changed", 7
    voters = paced(tiny)
    for name in ("n_teachers", "classes", "row_shape", "relation", "anything"):
        assert getattr(voters, name) == getattr(tiny, name)
    assert not hasattr(paced(TinyTeachers()), "relation")
    with Ledger(tmp_path / "l.sqlite", budget=budget_for(10)) as ledger:
        given = Labeller(voters, MECHANISM, ledger).label(rows_of(3), request_id="r")
    assert len(given.labels) == 3


def test_a_service_paces_its_teachers_but_not_votes_that_are_kept(tmp_path):
    def voters_of(name, **more):
        return Service(tmp_path / name, **more).make().state.service.offer.answering._labellers[0]._ensemble

    kept = KeptVotes(rows_of(5), TinyTeachers().vote(rows_of(5)), classes=TinyTeachers.classes)
    assert isinstance(voters_of("a", limits=Limits()), PacedVoters)
    assert isinstance(voters_of("b", limits=Limits(), voters=kept), KeptVotes)
    assert isinstance(voters_of("c", limits=Limits(pace=0)), TinyTeachers)


def test_teachers_of_the_same_settings_have_one_unit(monkeypatch):
    """Measured once: the clock's own noise must not tell two data sets apart."""
    monkeypatch.setattr(pacing, "_measured", {})
    rng = np.random.default_rng(0)
    found = []
    for k in range(2):
        data = PrivateData(rng.normal(size=(40 * (k + 1), 2)), rng.integers(4, size=40 * (k + 1)))
        shares = partition(data, n_teachers=4, key=bytes(32), method="balanced")
        teacher = SklearnTeacher(estimator=LogisticRegression())
        taught = fit_teachers(data, shares, teacher, classes=TinyTeachers.classes, seed=0)
        found.append([paced(taught).unit(n) for n in (1, 100, 5000)])
    assert found[0] == found[1]
    assert len(pacing._measured) == 1
