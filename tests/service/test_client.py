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
    assert Ledger(service.where).summary().queries == 50
    assert not given.secure


def test_answers_that_were_given_locally_are_given_remotely(service):
    X = rows_of(50, agree=0.7).astype(np.float64)
    X = X.astype(np.float32)
    local = Labeller(TinyTeachers(), MECHANISM, Ledger(service.where)).label(X, request_id="local")
    with service.serving() as url:
        given = remote(url, service).label(X, request_id="a")
    np.testing.assert_array_equal(given.labels, local.labels)
    assert Ledger(service.where).summary().queries == 50


def test_errors_have_their_types(tmp_path):
    service = Service(tmp_path / "l.sqlite", queries=10, quota=8)
    with service.serving() as url:
        labeller = remote(url, service)
        labeller.label(rows_of(6), request_id="a")
        with pytest.raises(RequestError, match="was used before, for other rows"):
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
        with pytest.raises(BudgetError, match="left: 0 queries"):
            other.label(rows_of(2, seed=5), request_id="f")
        with pytest.raises(ServiceError, match=r"not know this key \(from key=\), or it was revoked\. Ask .* new one"):
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
    assert Ledger(service.where).summary().queries == 10


def test_nobody_there():
    with pytest.raises(ServiceError, match=r"ConnectError\), 2 times"):
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
    with service.serving() as url, pytest.raises(ServiceError, match=rf"/v1/about .* \({name}.*: [^\n]*\.$"):
        remote(url, service)


@pytest.mark.parametrize("url", ["", "labels.example.org", "ftp://a", 3])
def test_bad_urls(url):
    with pytest.raises(InputError, match="url must start with"):
        RemoteLabeller(url, key="k")


def test_no_key(monkeypatch):
    monkeypatch.delenv("TERRINE_API_KEY", raising=False)
    with pytest.raises(InputError, match="TERRINE_API_KEY"):
        RemoteLabeller("http://127.0.0.1:1")


def copied(folder, to):
    """A ledger's files, as a back-up has them."""
    to.mkdir(exist_ok=True)
    for path in folder.glob("ledger.sqlite*"):
        shutil.copy(path, to)


def restored(copy, folder):
    for path in folder.glob("ledger.sqlite*"):
        path.unlink()
    for path in copy.iterdir():
        shutil.copy(path, folder)


def refused_for_good(url, service, head, message):
    """At this call and at the next ones, by this client and by a new one; what is kept stays what it was."""
    kept = head.read_text()
    labeller = remote(url, service, head=head)
    for k in range(2):
        with pytest.raises(LedgerError, match=message):
            labeller.label(rows_of(2, seed=40 + k), request_id=f"refused {k}")
        with pytest.raises(LedgerError, match=message):
            remote(url, service, head=head).budget()
    assert head.read_text() == kept


def test_an_older_ledger_that_was_restored_is_refused(service, tmp_path):
    head, copy = tmp_path / "head.json", tmp_path / "copy"
    with service.serving() as url:
        remote(url, service, head=head).label(rows_of(5), request_id="a")
    kept = json.loads(head.read_text())
    assert kept["head"] == str(Ledger(service.where).head())
    assert kept["root"] == Ledger(service.where).tree_head().root
    service.close()
    copied(tmp_path, copy)
    with service.serving() as url:
        remote(url, service, head=head).label(rows_of(5, seed=1), request_id="b")
    restored(copy, tmp_path)
    with service.serving() as url:
        refused_for_good(url, service, head, "it is shorter. An older one was restored")


@pytest.mark.parametrize("old_file", [False, True], ids=["with a root", "of an older client"])
def test_a_rollback_that_was_outgrown_is_refused(service, tmp_path, old_file):
    """Restored to a few entries, and more spent since by another key than were there before."""
    head, copy = tmp_path / "head.json", tmp_path / "copy"
    with service.serving() as url:
        remote(url, service, head=head).label(rows_of(4), request_id="a")
    service.close()
    copied(tmp_path, copy)
    with service.serving() as url:
        mine = remote(url, service, head=head, batch=1)
        mine.label(rows_of(20, seed=1), request_id="b")
    if old_file:
        head.write_text(json.dumps({name: json.loads(head.read_text())[name] for name in ("ledger_id", "head")}))
    restored(copy, tmp_path)
    with service.serving() as url:
        other = RemoteLabeller(url, key=service.admin, batch=1)
        other.label(rows_of(40, seed=2), request_id="c")
        kept = int(json.loads(head.read_text())["head"].partition(":")[0])
        assert int(other.budget().head.partition(":")[0]) > kept
        refused_for_good(url, service, head, "the entry that was kept is not in it. An older one was restored")
        mine.url, mine._http = url, other._http  # as one that was there all the time
        with pytest.raises(LedgerError, match="An older one was restored"):
            mine.budget()


def test_a_head_of_an_older_client_is_taken_up(service, tmp_path):
    head = tmp_path / "head.json"
    with service.serving() as url:
        remote(url, service, head=head).label(rows_of(4), request_id="a")
        old = {name: json.loads(head.read_text())[name] for name in ("ledger_id", "head")}
        head.write_text(json.dumps(old))
        remote(url, service, head=head).label(rows_of(4, seed=1), request_id="b")
    assert json.loads(head.read_text())["root"] == Ledger(service.where).tree_head().root


@pytest.mark.parametrize("change", ["root", "head", "path", "first_path", "second_path", "none"])
def test_what_a_service_cannot_prove_is_not_kept(service, tmp_path, monkeypatch, change):
    head, call = tmp_path / "head.json", RemoteLabeller._call
    other = "0" * 64

    def forged(self, method, path, **sent):
        found = call(self, method, path, **sent)
        if path == "/v1/budget" and change in ("root", "head"):
            number = found["head"].partition(":")[0]
            found[change] = other if change == "root" else f"{number}:{other}"
        if path == "/v1/ledger/consistency" and change in found:
            found[change] = [other, *found[change][1:]]
        if path == "/v1/ledger/consistency" and change == "none":
            del found["path"]
        return found

    with service.serving() as url:
        remote(url, service, head=head).label(rows_of(7), request_id="a")
        remote(url, service).label(rows_of(3, seed=1), request_id="b")
        monkeypatch.setattr(RemoteLabeller, "_call", forged)
        refused_for_good(url, service, head, "An older one was restored, or entries were changed")


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"ledger_id": 3, "head": "1"}', '{"head": 7}'])
def test_a_file_that_holds_no_head_is_refused_and_left_alone(service, tmp_path, text):
    (tmp_path / "head.json").write_text(text)
    with service.serving() as url:
        refused_for_good(url, service, tmp_path / "head.json", "does not hold a ledger's head")


def test_a_service_without_a_root_is_refused(service, monkeypatch):
    call = RemoteLabeller._call
    less = lambda self, *sent, **more: {k: v for k, v in call(self, *sent, **more).items() if k != "root"}  # noqa: E731
    monkeypatch.setattr(RemoteLabeller, "_call", less)
    with service.serving() as url, pytest.raises(LedgerError, match="does not publish its ledger's head and root"):
        remote(url, service).budget()
