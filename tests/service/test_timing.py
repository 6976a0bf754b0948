"""How long an answer takes says nothing about how the teachers agree, and not on whom they fail."""

from __future__ import annotations

import importlib.util
import time
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import spearmanr
from tests.service.tasks import Service, bearer
from tests.soak import amount

from terrine import ConfidentGNMax, CountBudget, Ledger, PrivateData
from terrine.datasets import load
from terrine.partitioning import partition
from terrine.service.app import Limits, make_app
from terrine.service.keys import Keys
from terrine.service.parsing import RowFormat
from terrine.teachers import SklearnTeacher, asking, fit_teachers

CALLS = amount(100, soak=10_000)
TREES = 40


class Trees(Service):
    """Real trees, whose depth depends on the data: votes take longer where they are deep."""

    def __init__(self, where, *, pace):
        from sklearn.tree import DecisionTreeClassifier

        found = load("blobs", n_private=8000, n_public=CALLS, n_classes=4, spread=1.5)
        self.X = found.public.X.astype(np.float32)
        data = PrivateData(found.private.X.astype(np.float32), found.private.y)
        shares = partition(data, n_teachers=TREES, key=bytes(32))
        teacher = SklearnTeacher(estimator=DecisionTreeClassifier())
        self.voters = fit_teachers(data, shares, teacher, classes=found.classes, seed=1)
        self.mechanism = ConfidentGNMax(threshold=28, sigma_check=4, sigma_vote=4)
        budget = CountBudget(self.mechanism, n_queries=10 * CALLS, delta=1e-5)
        self.where, self.limits = where, Limits(pace=pace, rate=1e6)
        Ledger(where, budget=budget).close()
        self.key = Keys(where).create("clock")

    def make(self):
        rows = RowFormat(shape=self.X.shape[1:], dtype="float32")
        return make_app(
            self.voters, self.mechanism, Ledger(self.where), Keys(self.where), rows=rows, limits=self.limits
        )


class Telling:
    """Voters that take longer the more of them agree, as no voters should."""

    def __init__(self, voters, seconds):
        self._voters, self._seconds = voters, seconds

    def __getattr__(self, name):
        return getattr(self._voters, name)

    def vote(self, X):
        found = self._voters.vote(X)
        time.sleep(self._seconds * float(found.counts.max(axis=1).sum()))
        return found


def latencies(service, rows):
    """Seconds of each call, one query each, one after another."""
    found, outcomes = [], []
    with service.client() as http:
        http.headers.update(bearer(service.key))
        for k, row in enumerate(rows.tolist()):
            started = time.perf_counter()
            response = http.post("/v1/labels", json={"request_id": f"{k}", "rows": [row]})
            found.append(time.perf_counter() - started)
            outcomes.append(response.json()["outcomes"][0] == "answered")
    return np.array(found), np.array(outcomes)


def test_latency_and_consensus_are_uncorrelated(tmp_path, record_property):
    service = Trees(tmp_path / "l.sqlite", pace=0.02)
    top = service.voters.vote(service.X).counts.max(axis=1)
    took, answered = latencies(service, service.X)
    assert 0.1 < answered.mean() < 0.95  # both outcomes are there
    assert np.unique(top).size > 10
    by_consensus = spearmanr(took, top).statistic
    by_outcome = spearmanr(took, answered).statistic
    limit = 3.3 / np.sqrt(CALLS)  # two-sided, one in a thousand
    record_property("calls", CALLS)
    record_property("rank correlation of latency and top vote", round(float(by_consensus), 4))
    record_property("rank correlation of latency and outcome", round(float(by_outcome), 4))
    record_property("limit of detection", round(float(limit), 4))
    assert abs(by_consensus) < limit
    assert abs(by_outcome) < limit


def test_a_service_that_tells_is_found_out(tmp_path):
    """The control: the same ranks, of voters that tell and a service that does not pace them."""
    for seconds in (0.001, 0.004, 0.016):  # for each vote: more where the machine is too busy to hear it
        service = Trees(tmp_path / f"{seconds}.sqlite", pace=0)
        rows = service.X[:60]
        top = service.voters.vote(rows).counts.max(axis=1)
        service.voters = Telling(service.voters, seconds)
        took, _ = latencies(service, rows)
        if (found := spearmanr(took, top).statistic) > 3.3 / np.sqrt(len(rows)):
            break
    assert found > 3.3 / np.sqrt(len(rows))


def experiment():
    """experiments/timing.py, which does the same with full counts, on any checkout."""
    path = Path(__file__).parents[2] / "experiments" / "timing.py"
    spec = importlib.util.spec_from_file_location("timing", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def in_halves(monkeypatch):
    """The service as it was: models that raise are asked again, in halves, and votes leave when they are done."""
    from terrine.service import app

    monkeypatch.setattr(asking, "is_listed", lambda estimator: False)
    monkeypatch.setattr(asking, "ask_each", asking.ask_in_halves)
    monkeypatch.setattr(app, "PacedVoters", lambda voters, **_: voters)


@pytest.mark.parametrize(
    "before", [pytest.param(True, marks=pytest.mark.soak), False], ids=["control", "now"]
)  # that of half a share, and of a service that tells, are always there
def test_time_does_not_tell_how_many_teachers_fail(before, monkeypatch, record_property):
    """Teachers that raise where a row has no neighbor in their share; requests that few or many of them fail on."""
    if before:
        in_halves(monkeypatch)
    n = 16 if before else amount(40, soak=1600)
    found = experiment().neighbors(n, seed=1)
    for again in range(2, 5) if before else ():  # on a busy machine the time may tell nothing for once
        found = found if found["spearman"] > 0.7 else experiment().neighbors(n, seed=again)
    assert found["failing"][0] < 10
    assert found["failing"][1] == 50
    record_property("rank correlation of latency and failing teachers", found["spearman"])
    if before:
        assert found["spearman"] > 0.7
    else:
        assert abs(found["spearman"]) < max(0.1, found["by_chance"])


@pytest.mark.parametrize("before", [True, False], ids=["control", "now"])
def test_time_does_not_tell_half_a_share(before, monkeypatch, record_property):
    """Rows near the largest float32 overflow in one teacher, or not, by a coin: the time of a request is no guess."""
    if before:
        in_halves(monkeypatch)
    n = 24 if before else amount(60, soak=2000)
    found = experiment().scaled(n, seed=1)
    for again in range(2, 5) if before else ():
        found = found if found["right_in_hindsight"] > 0.85 else experiment().scaled(n, seed=again)
    record_property("guesses right from the time of one request", found["right"])
    if before:
        assert found["right_in_hindsight"] > 0.85
    else:
        assert found["right"] <= 0.5 + max(0.05, 1.65 / np.sqrt(found["guesses"]))  # 3.3 standard deviations
