"""A run by URL publishes the guarantee of the service that answered it, or nothing."""

from __future__ import annotations

import json

import numpy as np
import pytest
from tests.service.tasks import Service, free_port, rows_of

from terrine import Ledger
from terrine.errors import LedgerError, ServiceError
from terrine.runs.config import RemoteConfig
from terrine.runs.remote import RemoteRun
from terrine.service.client import RemoteLabeller
from terrine.students import load_student


class RemoteTask:
    """A run over public rows, and services that take turns at its address."""

    def __init__(self, folder):
        self.folder, self.port = folder, free_port()
        np.save(folder / "public.npy", rows_of(20))

    def run(self, *, batch=1000):
        labels = {"url": f"http://127.0.0.1:{self.port}", "queries": 20, "batch": batch}
        given = {"data": {"public": self.folder / "public.npy"}, "labels": labels}
        return RemoteRun.create(RemoteConfig.model_validate(given), self.folder / "run")

    def service(self, name, **more):
        return Service(self.folder / f"{name}.sqlite", **more)


@pytest.fixture
def task(tmp_path):
    return RemoteTask(tmp_path)


def test_another_budget_at_the_same_address_is_refused_before_anything_is_asked(task, monkeypatch):
    small, large = task.service("small", queries=20), task.service("large", queries=1000)
    monkeypatch.setenv("TERRINE_API_KEY", small.key)
    with small.serving(task.port):
        assert task.run().about.guarantee.epsilon == small.ledger.budget.guarantee().epsilon
    monkeypatch.setenv("TERRINE_API_KEY", large.key)
    with large.serving(task.port), pytest.raises(LedgerError, match=r"its guarantee changed\. Ask .* begin a new run"):
        task.run().label()
    assert not (task.folder / "run" / "guarantee.json").exists()
    assert Ledger(large.where).summary().queries == 0


def test_another_budget_that_comes_while_rows_are_asked_is_refused(task, monkeypatch):
    small, large = task.service("small", queries=20), task.service("large", queries=1000)
    monkeypatch.setenv("TERRINE_API_KEY", small.key)
    with small.serving(task.port):
        first = task.run().about
    monkeypatch.setenv("TERRINE_API_KEY", large.key)
    with large.serving(task.port):
        monkeypatch.setattr(RemoteLabeller, "about", lambda self: first)  # the last that the first one says
        with pytest.raises(LedgerError, match="its guarantee changed"):
            task.run().label()
    assert not (task.folder / "run" / "guarantee.json").exists()


def test_batches_of_two_ledgers_are_not_mixed(task, monkeypatch):
    one, two = task.service("one"), task.service("two")
    ask = RemoteLabeller._ask
    names = []

    def stops(self, rows, request_id, proba):
        names.append(request_id)
        if len(names) == 3:
            raise ServiceError("Expected an answer, got none.")
        return ask(self, rows, request_id, proba)

    monkeypatch.setattr(RemoteLabeller, "_ask", stops)
    monkeypatch.setenv("TERRINE_API_KEY", one.key)
    with one.serving(task.port), pytest.raises(ServiceError):
        task.run(batch=5).label()
    assert Ledger(one.where).summary().queries == 10
    monkeypatch.setenv("TERRINE_API_KEY", two.key)
    with two.serving(task.port), pytest.raises(LedgerError, match="now uses a different ledger"):
        task.run(batch=5).label()
    assert Ledger(two.where).summary().queries == 0
    monkeypatch.setenv("TERRINE_API_KEY", one.key)
    with one.serving(task.port):
        assert task.run(batch=5).label().n_answered == 20


def test_one_labeller_has_one_ledger(task):
    one, two = task.service("one"), task.service("two")
    with one.serving(task.port) as url:
        labeller = RemoteLabeller(url, key=one.key)
        labeller.label(rows_of(5), request_id="a")
    labeller._http.headers["Authorization"] = f"Bearer {two.key}"
    with two.serving(task.port), pytest.raises(LedgerError, match="now uses a different ledger"):
        labeller.label(rows_of(5, seed=1), request_id="b")
    assert Ledger(two.where).summary().queries == 0


@pytest.mark.parametrize("seeded", [True, False])
def test_only_answers_of_secure_noise_are_publishable(task, seeded, monkeypatch):
    service = task.service("one", seeded=seeded)
    monkeypatch.setenv("TERRINE_API_KEY", service.key)
    with service.serving(task.port):
        task.run().label()
    shown = json.loads((task.folder / "run" / "guarantee.json").read_text())
    assert (shown["publishable"], shown["secure_noise"]) == (not seeded, not seeded)
    head = Ledger(service.where).head()
    assert shown["ledger"] == {"id": service.ledger.id, "head": str(head)}
    task.run().learn()
    card = load_student(task.folder / "run" / "student").card
    assert (card.ledger.id, card.ledger.seq, card.ledger.hash) == (service.ledger.id, *head)
    budget = service.ledger.budget  # the guarantee is of all that the service answers, not of this run's rows
    assert (card.n_queries, card.n_answers) == (budget.n_queries, budget.n_answers)
    assert card.n_queries > shown["queries_at_most"]
    assert card.private is (not seeded)
