"""A run by URL in rounds: the service's mechanisms under its one filter; the student's opinion is kept here first."""

from __future__ import annotations

import json
import re

import httpx
import numpy as np
import pytest
from tests.service.tasks import FORMAT, MECHANISM, Service, TinyTeachers, free_port, rows_of

from terrine import Ledger
from terrine.errors import InputError, ServiceError
from terrine.mechanisms import InteractiveGNMax
from terrine.runs.config import RemoteConfig
from terrine.runs.interactive import plan_filter
from terrine.runs.remote import RemoteRun
from terrine.service.app import make_app
from terrine.service.client import RemoteLabeller
from terrine.service.keys import Keys

SECOND = InteractiveGNMax(threshold=40, sigma_check=3, sigma_vote=3, student_confidence=0.6)
BUDGET = plan_filter([(MECHANISM, 100, 100), (SECOND, 100, 100)], delta=1e-5)


class Rounds(Service):
    """A service with two rounds under one filter."""

    def __init__(self, where, **more):
        super().__init__(where.with_name(f"unused-{where.name}"), **more)
        self.where = where
        self.ledger = Ledger(where, budget=BUDGET)
        self.keys = Keys(where)
        self.key = self.keys.create("someone")

    def make(self):
        return make_app(
            TinyTeachers(),
            [MECHANISM, SECOND],
            Ledger(self.where),
            Keys(self.where),
            rows=FORMAT,
            limits=self.limits,
            rng=self.rng,
        )


class RemoteTask:
    def __init__(self, folder):
        self.folder, self.port = folder, free_port()
        np.save(folder / "public.npy", rows_of(60))

    def run(self, *rounds, name="run", batch=1000):
        given = {
            "data": {"public": self.folder / "public.npy"},
            "labels": {"url": f"http://127.0.0.1:{self.port}", "batch": batch},
            "rounds": list(rounds) or [{"queries": 20, "answers": 15}, {"queries": 30, "mechanism": "interactive"}],
            "student": {"estimator": "sklearn.tree.DecisionTreeClassifier"},
        }
        return RemoteRun.create(RemoteConfig.model_validate(given), self.folder / name)


@pytest.fixture
def task(tmp_path, monkeypatch):
    task = RemoteTask(tmp_path)
    task.service = Rounds(tmp_path / "rounds.sqlite")
    monkeypatch.setenv("TERRINE_API_KEY", task.service.key)
    return task


def test_the_whole_way(task):
    with task.service.serving(task.port):
        run = task.run()
        run.label()
        run.learn()
    shown = run.guarantee()
    assert (shown.epsilon, shown.order) == (BUDGET.epsilon, BUDGET.order)
    first, second = shown.rounds
    assert first.answered == 15  # and then the round ends
    assert first.unasked == 5
    assert second.answered + second.reinforced + second.withheld == 30
    assert second.reinforced > 10
    spent = Ledger(task.service.where).summary()
    assert spent.answered == first.answered + second.answered
    assert spent.reinforced == second.reinforced
    assert (shown.service, shown.ledger.id) == (run.config.labels.url, task.service.ledger.id)
    assert json.loads((run.folder / "guarantee.json").read_text())["rounds"][1]["mechanism"]["kind"] == "interactive"


def test_probabilities_are_on_disk_before_they_are_sent_and_stay(task, monkeypatch):
    ask, seen = RemoteLabeller._ask, []

    def stops(self, rows, request_id, proba, **params):
        if proba is not None:
            assert (task.folder / "run" / "round-2.proba.npz").is_file()
            seen.append(proba)
            if len(seen) == 2:
                raise ServiceError("The line is down.")
        return ask(self, rows, request_id, proba, **params)

    monkeypatch.setattr(RemoteLabeller, "_ask", stops)
    with task.service.serving(task.port):
        with pytest.raises(ServiceError):
            task.run(batch=10).label()
        half = Ledger(task.service.where).summary()
        again = task.run(batch=10)
        monkeypatch.setattr(type(again), "student", lambda self: pytest.fail("a second student was asked"))
        monkeypatch.setattr(type(again), "try_student", lambda self, **_: None)
        again.label()
    np.testing.assert_array_equal(seen[2], seen[0])  # the first part again, which costs nothing
    np.testing.assert_array_equal(seen[3], seen[1])
    whole = Ledger(task.service.where).summary()
    assert whole.queries == half.queries + 20
    assert whole.queries == sum(one.answered + one.withheld + one.reinforced for one in again.guarantee().rounds)


def test_a_client_that_knows_no_rounds_asks_the_first(task):
    with task.service.serving(task.port) as url:
        labeller = RemoteLabeller(url, key=task.service.key)
        assert labeller.mechanism == MECHANISM
        assert labeller.rounds == (MECHANISM, SECOND)
        assert labeller.label(rows_of(5), request_id="a").mechanism == MECHANISM
        proba = np.full((5, 4), 0.25)
        assert labeller.label(rows_of(5), request_id="b", student_proba=proba, round=2).mechanism == SECOND
        for round, given in ((1, proba), (2, None)):
            with pytest.raises(InputError, match="InteractiveGNMax needs student_proba"):
                labeller.label(rows_of(5), request_id="c", student_proba=given, round=round)
        with pytest.raises(InputError, match="round must be at most 2"):
            labeller.label(rows_of(5), request_id="c", round=3)
        sent = {"request_id": "d", "rows": rows_of(2).tolist()}
        headers = {"Authorization": f"Bearer {task.service.key}"}
        for told in ("0", "3", "x", "-1", "99999", "²"):
            answer = httpx.post(f"{url}/v1/labels", params={"round": told}, json=sent, headers=headers)
            assert answer.status_code == 422
            assert answer.json()["error"]["message"].startswith("round must be a whole number from 1 to 2")
        answer = httpx.post(f"{url}/v1/labels", params={"round": 2}, json=sent, headers=headers)
        assert (answer.status_code, answer.json()["error"]["code"]) == (422, "bad_rows")
        answer = httpx.post(f"{url}/v1/labels", params={"round": 1}, json=sent, headers=headers)
        assert answer.status_code == 200


def test_a_service_without_rounds_has_one(tmp_path, monkeypatch):
    task, service = RemoteTask(tmp_path), Service(tmp_path / "one.sqlite")
    monkeypatch.setenv("TERRINE_API_KEY", service.key)
    with service.serving(task.port) as url:
        with pytest.raises(InputError, match=r"2 rounds are asked for, and http://.* has 1\."):
            task.run().label()
        assert httpx.get(f"{url}/v1/about", headers={"Authorization": f"Bearer {service.key}"}).json()["rounds"] == []
        run = task.run({"queries": 20}, name="single")
        run.label()
    assert len(run.guarantee().rounds) == 1


@pytest.mark.parametrize(
    ("rounds", "words"),
    [
        ([{"queries": 61}], "queries of round 1 must be at most 60, the public rows, got 61."),
        ([{"queries": 5, "mechanism": "gnmax"}], 'Round 1 asks for mechanism = "gnmax", and the service\'s is "confid'),
    ],
)
def test_bad_rounds_are_refused_before_anything_is_asked(task, rounds, words):
    with task.service.serving(task.port), pytest.raises(InputError, match=re.escape(words)):
        task.run(*rounds).label()
    assert Ledger(task.service.where).summary().queries == 0


def test_settings_say_how_many_questions_once(tmp_path, terrine):
    path = tmp_path / "remote.toml"
    for text in ("", "queries = 5\n[[rounds]]\nqueries = 3\n"):
        path.write_text(f'[data]\npublic = "public.npy"\n[labels]\nurl = "http://127.0.0.1:1"\n{text}')
        code, _, err = terrine("run", path)
        assert code == 2
        assert "give `queries` in [labels], or [[rounds]] with `queries` each, and not both" in err


def test_a_run_in_rounds_is_served_with_its_rounds(tmp_path, monkeypatch):
    """`terrine serve`: the run's plan, without a look at its data."""
    from tests.runs.test_rounds import SETTINGS

    from terrine.cli import serving
    from terrine.runs.local import Run

    (tmp_path / "run.toml").write_text(SETTINGS)
    run = Run.create(tmp_path / "run.toml", tmp_path / "r")
    run.teach()
    monkeypatch.setattr(Run, "task", property(lambda self: pytest.fail("the data were read")))
    served = {"folder": str(tmp_path / "r"), "ledger": None, "limits": {"pace": 0.0}}
    monkeypatch.setenv("TERRINE_SERVED", json.dumps(served))
    app = serving.app_of_run()
    mechanisms = app.state.service.offer.mechanisms
    assert [type(one).__name__ for one in mechanisms] == ["ConfidentGNMax", "InteractiveGNMax"]
    assert app.state.service.ledger.budget.epsilon == pytest.approx(11.2173, abs=1e-3)
