"""The client asks as the local labeller does, gets the same answers, and goes on after trouble."""

from __future__ import annotations

import json
import shutil
import threading
import time

import numpy as np
import pytest
from tests.service.tasks import CLASSES, MECHANISM, Service, TinyTeachers, free_port, rows_of

from terrine import Labeller, Ledger
from terrine.errors import BudgetError, InputError, LedgerError, QuotaError, RequestError, ServiceError
from terrine.service.client import RemoteLabeller


@pytest.fixture
def service(tmp_path):
    return Service(tmp_path / "ledger.sqlite")


def remote(url, service, **more):
    return RemoteLabeller(url, key=service.key, **{"retries": 2, **more})


def test_remote_and_local_answers_are_the_same(service):
    X = rows_of(50, agree=0.7)
    with service.serving() as url:
        labeller = remote(url, service, batch=7)
        assert labeller.classes == CLASSES
        assert labeller.mechanism == MECHANISM
        shares = []
        given = labeller.label(X, request_id="a", progress=shares.append)
        again = labeller.label(X, request_id="a")
    assert shares[-1] == 1.0
    local = Labeller(TinyTeachers(), MECHANISM, Ledger(service.where)).label(X, request_id="local")
    for other in (again, local):
        np.testing.assert_array_equal(given.labels, other.labels)
        np.testing.assert_array_equal(given.outcomes, other.outcomes)
    assert Ledger(service.where).summary()["queries"] == 50
    assert not given.secure


def test_answers_that_were_given_locally_are_given_remotely(service):
    X = rows_of(50, agree=0.7).astype(np.float64)
    X = X.astype(np.float32)
    local = Labeller(TinyTeachers(), MECHANISM, Ledger(service.where)).label(X, request_id="local")
    with service.serving() as url:
        given = remote(url, service).label(X, request_id="a")
    np.testing.assert_array_equal(given.labels, local.labels)
    assert Ledger(service.where).summary()["queries"] == 50


def test_errors_have_their_types(tmp_path):
    service = Service(tmp_path / "l.sqlite", queries=10, quota=8)
    with service.serving() as url:
        labeller = remote(url, service)
        labeller.label(rows_of(6), request_id="a")
        with pytest.raises(RequestError, match="rows that request"):
            labeller.label(rows_of(6, seed=1), request_id="a")
        with pytest.raises(InputError, match=r"shape \(2,\), got \(3,\)"):
            labeller.label(np.zeros((2, 3)), request_id="b")
        with pytest.raises(InputError, match="student_proba"):
            labeller.label(rows_of(2), request_id="b", student_proba=np.full((2, 4), 0.25))
        part = labeller.label(rows_of(6, seed=2), request_id="c")
        assert part.n_answered == 2
        with pytest.raises(QuotaError, match="quota"):
            labeller.label(rows_of(6, seed=3), request_id="d")
        other = RemoteLabeller(url, key=service.admin, retries=0)
        other.label(rows_of(2, seed=4), request_id="e")
        with pytest.raises(BudgetError, match="what is left: 0 queries"):
            other.label(rows_of(2, seed=5), request_id="f")
        with pytest.raises(ServiceError, match="unknown_key"):
            RemoteLabeller(url, key="terrine_nobody", retries=0)


def test_batches_after_an_exhausted_one_still_get_what_was_answered_before(tmp_path):
    service = Service(tmp_path / "l.sqlite", queries=10)
    X = rows_of(15)
    with service.serving() as url:
        labeller = remote(url, service, batch=5)
        labeller.label(X[10:], request_id="last five")
        given = labeller.label(X, request_id="all")
    assert (given.labels >= 0).tolist() == [True] * 5 + [False] * 5 + [True] * 5


def test_it_goes_on_when_the_server_comes_back(service):
    port = free_port()
    answers = []
    with service.serving(port) as url:
        labeller = remote(url, service, retries=8)
        first = labeller.label(rows_of(5), request_id="a")

    def ask():
        answers.append(labeller.label(rows_of(5), request_id="a"))
        answers.append(labeller.label(rows_of(5, seed=1), request_id="b"))

    asking = threading.Thread(target=ask)
    asking.start()
    time.sleep(0.5)  # nobody is there
    with service.serving(port):
        asking.join(30)
    np.testing.assert_array_equal(answers[0].labels, first.labels)
    assert answers[1].n_answered == 5
    assert Ledger(service.where).summary()["queries"] == 10


def test_nobody_there():
    with pytest.raises(ServiceError, match=r"ConnectError, 2 times"):
        RemoteLabeller(f"http://127.0.0.1:{free_port()}", key="k", retries=1)


def test_something_else_is_there(tmp_path):
    import http.server

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
    server.RequestHandlerClass.log_message = lambda *_: None
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        with pytest.raises(ServiceError, match="no JSON"):
            RemoteLabeller(f"http://127.0.0.1:{server.server_port}", key="k", retries=0)
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("guarantee", None),
        ("guarantee", {"epsilon": 1.0}),
        ("guarantee", {"epsilon": float("nan"), "delta": 1e-5, "order": 2.0, "basis": "b", "relation": "r"}),
        ("rows_at_most", "x"),
        ("rows_at_most", 0),
        ("n_teachers", "x"),
        ("n_teachers", True),
        ("classes", []),
        ("classes", 3),
        ("row_shape", ["2"]),
        ("mechanism", {"kind": "gnmax", "sigma": -1.0}),
        ("mechanism", {"kind": "another"}),
    ],
)
def test_a_service_that_says_something_else_of_itself_is_refused(name, value, service, monkeypatch):
    call = RemoteLabeller._call

    def other(self, method, path, **sent):
        found = call(self, method, path, **sent)
        return {**found, name: value} if value is not None else {k: v for k, v in found.items() if k != name}

    monkeypatch.setattr(RemoteLabeller, "_call", other)
    with service.serving() as url, pytest.raises(ServiceError, match=rf"/v1/about .*, got another {name}.*: [^\n]*\.$"):
        remote(url, service)


@pytest.mark.parametrize("url", ["", "labels.example.org", "ftp://a", 3])
def test_bad_urls(url):
    with pytest.raises(InputError, match="URL"):
        RemoteLabeller(url, key="k")


def test_no_key(monkeypatch):
    monkeypatch.delenv("TERRINE_API_KEY", raising=False)
    with pytest.raises(InputError, match="TERRINE_API_KEY"):
        RemoteLabeller("http://127.0.0.1:1")


def test_an_older_ledger_that_was_restored_is_refused(service, tmp_path):
    head = tmp_path / "head.json"
    with service.serving() as url:
        remote(url, service, head=head).label(rows_of(5), request_id="a")
    kept = json.loads(head.read_text())
    assert kept["head"] == str(Ledger(service.where).head())
    copy = tmp_path / "copy"
    copy.mkdir()
    for path in tmp_path.glob("ledger.sqlite*"):
        shutil.copy(path, copy)
    with service.serving() as url:
        remote(url, service, head=head).label(rows_of(5, seed=1), request_id="b")
    for path in copy.iterdir():
        shutil.copy(path, tmp_path)
    with service.serving() as url, pytest.raises(LedgerError, match="an older one was restored"):
        remote(url, service, head=head).label(rows_of(5, seed=2), request_id="c")
    assert json.loads(head.read_text())["head"] > kept["head"]  # the newer one is still kept
