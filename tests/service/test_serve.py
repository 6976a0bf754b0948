"""`terrine serve`, `terrine keys` and a run by URL, as a user types them."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import threading

import httpx
import numpy as np
import pytest
from tests import postgres
from tests.service.tasks import bearer, client_of, free_port, wait_until, wait_until_ready

from terrine import Labeller, Ledger, Run
from terrine.cli.serving import serve
from terrine.errors import ServiceError
from terrine.runs.base import load_answers
from terrine.service.middleware import hold_metrics_folder, metrics_folder

SETTINGS = """
seed = 1
[data]
name = "small-glyph"
options = {n_private = 2400, n_public = 300, n_test = 200}
[features]
kind = "edges"
[teachers]
number = 60
kind = "ridge"
executor = "serial"
[privacy]
mechanism = "confident"
threshold = 33
sigma_check = 8
sigma_vote = 5
queries = 200
answers = 150
delta = 1e-5
[student]
kind = "supervised"
estimator = "sklearn.linear_model.LogisticRegression"
"""

REMOTE = """
seed = 1
[data]
name = "small-glyph"
options = {n_private = 2400, n_public = 300, n_test = 200}
[labels]
url = "URL"
queries = 150
batch = 64
[student]
kind = "supervised"
estimator = "sklearn.linear_model.LogisticRegression"
"""


@pytest.fixture(scope="module")
def taught(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    (folder / "s.toml").write_text(SETTINGS)
    run = Run.create(folder / "s.toml", folder / "run")
    run.teach()
    return folder / "run"


@pytest.fixture
def run_folder(taught, tmp_path):
    return shutil.copytree(taught, tmp_path / "run")


class Serving:
    """`terrine serve` in a process."""

    def __init__(self, folder, *words, **environment):
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        run = [sys.executable, "-m", "terrine", "serve", str(folder), "--port", str(self.port), *words]
        self.process = subprocess.Popen(
            run, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**os.environ, **environment}
        )

    def __enter__(self):
        wait_until_ready(self.process, self.url, told=self.process.stdout.read)
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.stop()

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.said = self.process.communicate(timeout=60)[0]
        return self.process.returncode


@pytest.fixture
def refused(terrine):
    """The one line of a command that is refused."""

    def call(*words, **environment):
        code, out, err = terrine(*words, **environment)
        assert (code, out) == (2, ""), err
        assert err.startswith("terrine: ")
        assert len(err.splitlines()) == 1
        return err

    return call


def test_a_student_through_the_service_has_the_same_answers_as_locally(run_folder, tmp_path, terrine):
    made = terrine("keys", "create", run_folder, "--name", "students")
    assert made.code == 0, made.err
    key = made.out.strip()
    none = terrine("keys", "create", run_folder, "--name", "none", "--quota", "0", "--json")
    assert json.loads(none.out)["left"] == {"queries": 200, "answers": 150}
    settings = tmp_path / "remote.toml"
    with Serving(run_folder) as server:
        settings.write_text(REMOTE.replace("URL", server.url))
        refused = terrine("run", settings, "--out", tmp_path / "r", TERRINE_API_KEY=json.loads(none.out)["key"])
        done = terrine("run", settings, "--out", tmp_path / "remote", "--json", TERRINE_API_KEY=key)
        assert done.code == 0, done.err
        again = terrine("label", tmp_path / "remote", "--json", TERRINE_API_KEY=key)
        assert again.code == 0, again.err
        assert server.stop() in (0, -signal.SIGTERM)
    assert refused.code == 3  # a key without a quota left is one line
    assert [line for line in refused.err.splitlines() if line.startswith("terrine: Not enough quota")]
    assert "Traceback" not in refused.err
    told = json.loads(done.out)
    assert json.loads(again.out) == told["guarantee"]
    assert told["student"]["accuracy"] > 0.2  # of 24 classes, from pixels and 100 labels
    assert (tmp_path / "remote" / "report.html").is_file()
    assert (tmp_path / "remote" / "student" / "SHA256SUMS").is_file()
    rows, answers = load_answers(tmp_path / "remote" / "answers.npz")
    run = Run(run_folder)
    ledger = run.ledger()
    assert ledger.summary().queries == 150
    local = Labeller(run.voters(), run.mechanism, ledger).label(run.task.public.X[rows], request_id="local")
    np.testing.assert_array_equal(local.labels, answers.labels)
    np.testing.assert_array_equal(local.outcomes, answers.outcomes)
    assert ledger.summary().queries == 150
    assert told["guarantee"]["epsilon"] == ledger.budget.guarantee().epsilon
    assert 10 < answers.n_answered < 150
    said = server.said.splitlines()
    assert "dashboard" in said[0]
    assert said[1] == "Left of the budget: 150 answers to at most 200 questions."
    assert said[2] == "To stop: Ctrl-C. Whoever waits then is answered first."
    lines = [json.loads(line) for line in said[3:]]
    asked = [line for line in lines if line.get("route") == "/v1/labels" and line["status"] == 200]
    assert [line["rows"] for line in asked[:3]] == [64, 64, 22]
    assert set(asked[0]) == {"time", "level", "event", "method", "route", "status", "ms", "key", "rows"}


def test_a_budget_that_is_spent_is_said_before_anyone_asks(run_folder, tmp_path, terrine):
    run = Run(run_folder)
    asked = run.task.public.X[:200]
    with run.ledger() as ledger:
        first = Labeller(run.voters(), run.mechanism, ledger).label(asked, request_id="all")
    made = terrine("keys", "create", run_folder, "--name", "late")
    assert "Warning: nothing is left of this budget" in made.err
    with Serving(run_folder) as server:
        with client_of(server.url, made.out.strip()) as http:  # what was asked before is free
            found = http.post("/v1/labels", json={"request_id": "again", "rows": asked[:5].tolist()})
        named = [None if k < 0 else run.task.classes[k] for k in first.labels[:5].tolist()]
        assert found.json()["labels"] == named
        settings = tmp_path / "remote.toml"
        settings.write_text(REMOTE.replace("URL", server.url).replace("queries = 150", 'queries = 20\nask = "first"'))
        whole = terrine("run", settings, "--out", tmp_path / "whole", TERRINE_API_KEY=made.out.strip())
        settings.write_text(settings.read_text().replace("queries = 20", "queries = 230"))
        short = terrine("run", settings, "--out", tmp_path / "short", "--json", TERRINE_API_KEY=made.out.strip())
    assert "Warning: nothing is left of this budget. New questions get no answer" in server.said.splitlines()[1]
    assert whole.code == 0, whole.err
    assert short.code == 3
    assert "The service's budget was used up: 30 of the questions were never asked" in short.err
    assert json.loads(short.out)["guarantee"]["unasked"] == 30
    assert (tmp_path / "short" / "report.html").is_file()  # what it had is kept


def test_two_workers_on_postgresql(run_folder, tmp_path, terrine, refused):
    where = {"TERRINE_LEDGER": postgres.server().database(), "TMPDIR": str(tmp_path)}
    key = terrine("keys", "create", run_folder, "--name", "a", **where).out.strip()
    X = Run(run_folder).task.public.X
    (tmp_path / "terrine-metrics-killed").mkdir()  # as a server that was killed leaves it: nobody holds its lock
    (tmp_path / "terrine-metrics-killed" / "in-use").touch()
    with Serving(run_folder, "--workers", "2", **where) as server:
        assert len(list(tmp_path.glob("terrine-metrics-*/in-use"))) == 1
        for k in range(8):
            sent = {"request_id": f"{k}", "rows": X[k * 5 : k * 5 + 5].tolist()}
            with client_of(server.url, key) as http:  # a connection of its own: whichever worker takes it
                found = http.post("/v1/labels", json=sent)
            assert found.status_code == 200, found.text
        with client_of(server.url, key) as http:
            page, budget = http.get("/metrics").text, http.get("/v1/budget").json()
    assert list(tmp_path.glob("terrine-metrics-*")) == []
    assert budget["queries"] == 40
    assert 'terrine_requests_total{route="/v1/labels",status="200"} 8.0' in page  # of both workers
    verified = terrine("ledger", "verify", "--head", budget["head"], **where)
    assert verified.code == 0, verified.err
    assert "ledger.sqlite, the ledger that pays for" in refused("label", run_folder)  # nor from a ledger of its own


def test_sigterm_answers_those_who_wait(run_folder, terrine):
    key = terrine("keys", "create", run_folder, "--name", "a").out.strip()
    X = Run(run_folder).task.public.X
    found = []

    def ask(url, k):
        sent = {"request_id": f"{k}", "rows": X[k * 20 : k * 20 + 20].tolist()}
        with contextlib.suppress(httpx.TransportError):  # too late: not charged, as is checked below
            found.append(httpx.post(f"{url}/v1/labels", json=sent, headers=bearer(key), timeout=60))

    with Serving(run_folder, "--pace", "1") as server:  # every answer takes a second
        asking = [threading.Thread(target=ask, args=(server.url, k)) for k in range(4)]
        for thread in asking:
            thread.start()
        wait_until(lambda: Ledger(run_folder / "ledger.sqlite").summary().queries >= 20)
        assert server.stop() in (0, -signal.SIGTERM)  # ended by it, after all was answered
        for thread in asking:
            thread.join()
    answered = [one for one in found if one.status_code == 200]
    assert answered
    assert all(one.status_code in (200, 503) for one in found)
    summary = Ledger(run_folder / "ledger.sqlite").summary()
    assert (summary.queries, summary.unsettled) == (20 * len(answered), 0)


def test_start_up_refuses_what_is_damaged(run_folder, tmp_path, terrine, refused):
    model = sorted((run_folder / "teachers").glob("*.safetensors"))[-1]
    whole = model.read_bytes()
    model.write_bytes(whole[:-5] + b"hello")
    assert model.name in refused("serve", run_folder)
    model.write_bytes(whole)
    terrine("keys", "create", run_folder, "--name", "a")
    with sqlite3.connect(run_folder / "ledger.sqlite") as database:
        database.execute("DROP TRIGGER terrine_ledger_no_update")
        database.execute("UPDATE terrine_ledger SET budget = replace(budget, '200', '201')")
    assert "ledger" in refused("serve", run_folder)


def test_an_address_that_cannot_be_had_is_refused_in_one_line(run_folder, refused):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        said = refused("serve", run_folder, "--port", port)
        assert f"Cannot listen at 127.0.0.1, port {port}: Address already in use." in said
    assert "Cannot listen at nope.invalid" in refused("serve", run_folder, "--host", "nope.invalid")
    assert ": encoding of hostname failed" in refused("serve", run_folder, "--host", "ä" * 80)


def test_a_service_that_cannot_start_is_no_exhausted_budget(run_folder, monkeypatch):
    class Fails:
        def __init__(self, *_, **__):
            sys.exit(3)  # as uvicorn says it

    monkeypatch.setattr("uvicorn.Config", Fails)
    monkeypatch.setenv("TERRINE_SERVED", "")  # put back afterwards
    with pytest.raises(ServiceError, match="The service did not start"):
        serve(run_folder, port=free_port())


def test_a_run_is_bound_to_one_ledger(run_folder, tmp_path, refused):
    Run(run_folder).ledger().close()
    other = tmp_path / "other.sqlite"
    assert "There is no ledger at other.sqlite" in refused("serve", run_folder, "--ledger", other)
    assert "There is no ledger at other.sqlite" in refused("keys", "list", run_folder, TERRINE_LEDGER=str(other))
    assert not other.exists()
    (run_folder / "ledger.sqlite").unlink()
    assert "ledger.sqlite, the ledger that pays for" in refused("serve", run_folder)


def test_other_refusals(run_folder, tmp_path, refused):
    (tmp_path / "s.toml").write_text(SETTINGS.replace('kind = "ridge"', 'kind = "ridge"\nkeep = false'))
    Run.create(tmp_path / "s.toml", tmp_path / "not kept")
    assert "teachers.keep = false" in refused("serve", tmp_path / "not kept")
    assert "PostgreSQL" in refused("serve", run_folder, "--workers", "2")
    assert "run directory" in refused("serve", tmp_path)
    assert "key in use" in refused("keys", "revoke", run_folder, "nobody")
    settings = tmp_path / "remote.toml"
    settings.write_text(REMOTE.replace("URL", f"http://127.0.0.1:{free_port()}"))
    assert "TERRINE_API_KEY" in refused("run", settings, "--out", tmp_path / "r", TERRINE_API_KEY="")
    assert "it has no stage of this name" in refused("teach", settings, "--out", tmp_path / "r")
    for source in (settings, tmp_path / "r"):
        assert "--dry-run is for runs of your own teachers" in refused("run", source, "--dry-run")
    settings.write_text(REMOTE.replace("URL", "http://a").replace("queries", "querries"))
    assert "did you mean labels.queries?" in refused("run", settings, "--out", tmp_path / "r")


def test_keys_on_the_command_line(run_folder, terrine):
    key = json.loads(terrine("keys", "create", run_folder, "--name", "a", "--quota", "5", "--json").out)
    assert key["key"].startswith("terrine_")
    assert terrine("keys", "revoke", run_folder, "a").code == 0
    found = json.loads(terrine("keys", "list", run_folder, "--json").out)["keys"]
    assert [(one["name"], one["quota"], one["revoked"] is None) for one in found] == [("a", 5, False)]
    narrow = terrine("keys", "list", run_folder, COLUMNS="60").out
    assert "…" not in narrow
    assert found[0]["created"][:10] in narrow
    assert found[0]["created"][11:19] in narrow
    assert key["key"].split("_", 2)[2] not in terrine("keys", "list", run_folder, "--json").out


def test_counters_that_a_running_server_uses_are_left_alone(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    used = tmp_path / "terrine-metrics-used" / "in-use"
    used.parent.mkdir()
    with used.open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        with metrics_folder(), hold_metrics_folder():
            assert len(list(tmp_path.glob("terrine-metrics-*/in-use"))) == 2
        assert list(tmp_path.iterdir()) == [used.parent]
    with metrics_folder():  # nobody holds it any more
        assert not used.exists()
    assert list(tmp_path.iterdir()) == []
    assert "PROMETHEUS_MULTIPROC_DIR" not in os.environ


def test_in_flight_must_hold_a_body(run_folder, terrine):
    done = terrine("serve", run_folder, "--in-flight", "40000000")
    assert "--in-flight must be at least twice --body, 67108864" in done.err
