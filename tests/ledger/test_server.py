"""What only a server can do: go away, come back, refuse a login, let someone wait, be asked by several at once."""

from __future__ import annotations

import sys
import threading
import time

import numpy as np
import pytest
import sqlalchemy as sa
from tests import postgres
from tests.ledger.test_ledger import CONFIDENT, COUNT
from tests.postgres import PASSWORD, ROLE, rows, server

from terrine.budgets import CountBudget
from terrine.errors import LedgerError, MissingDependencyError
from terrine.labeller import KeptVotes, Labeller
from terrine.ledger import Kept, Ledger, backends
from terrine.ledger.tables import METADATA
from terrine.mechanisms import GNMax, Outcome
from terrine.votes import Votes

YES = Kept(3, Outcome.TEACHERS, True)
X = np.arange(400.0).reshape(200, 2)


def labeller(where, n_queries=100, voters=KeptVotes):
    budget = CountBudget(GNMax(sigma=40), n_queries=n_queries, delta=1e-5)
    return Labeller(voters(X, Votes([[20, 5]] * 200, n_teachers=25)), GNMax(sigma=40), Ledger(where, budget=budget))


@pytest.fixture
def where():
    return server().database()


def one_line(error):
    text = str(error)
    assert "\n" not in text
    assert PASSWORD not in text
    assert ROLE not in text
    assert str(server().port) not in text
    return text


def test_a_server_that_dies_between_reserve_and_keep_leaves_a_charge_and_no_answer(where):
    class Cut(KeptVotes):
        def vote(self, X):
            server().kill()
            return super().vote(X)

    asked = labeller(where, voters=Cut)
    try:
        with pytest.raises(LedgerError) as caught:
            asked.label(X[:3], request_id="a")
        assert "The ledger postgresql://127.0.0.1/test" in one_line(caught.value)
        with pytest.raises(LedgerError, match="Connection refused") as caught:
            asked.ledger.head()
        one_line(caught.value)
    finally:
        server().start()
    assert asked.ledger.summary().unsettled == 3  # the same object: its connections recover
    assert rows(where, "SELECT * FROM terrine_answers") == []
    assert asked.ledger.verify() == []
    again = labeller(where)
    got = again.label(X[:3], request_id="a")
    assert len(got) == 3
    assert again.ledger.request("a").queries == 6
    assert again.ledger.verify(head=asked.ledger.head()) == []


def test_what_was_committed_survives_the_servers_death(where):
    with Ledger(where, budget=COUNT) as ledger:
        for k in range(5):
            ledger.keep(ledger.reserve(CONFIDENT, n_queries=1, request_id=f"{k}"), {f"{k}": YES})
        head = ledger.head()
        try:
            server().kill()
        finally:
            server().start()
        assert ledger.head() == head
        assert ledger.verify(head=head) == []
        assert len(ledger.recall([f"{k}" for k in range(5)], request_id="new", digest="0")) == 5


def test_a_connection_that_is_cut_is_one_line_and_the_next_verb_works(where):
    with Ledger(where, budget=COUNT) as ledger:
        cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'terrine'"

        def interrupted():
            with ledger._store.transaction(write=True) as now:
                with server().superuser() as connection:
                    connection.execute(cut)
                now.last()

        with pytest.raises(LedgerError) as caught:
            interrupted()
        assert "terminating connection" in one_line(caught.value)
        ledger.reserve(CONFIDENT, n_queries=1, request_id="a")
        assert ledger.verify() == []


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_waiting_for_the_lock_has_a_limit(kind, where, tmp_path, monkeypatch):
    monkeypatch.setattr(backends, "_WAIT", 1)  # of the connections that are made now
    place = where if kind == "postgresql" else tmp_path / "ledger.sqlite"
    with Ledger(place, budget=COUNT) as one, Ledger(place) as other:
        monkeypatch.setattr(backends, "_WAIT", 60)  # the first may hang, the second does not wait for it
        with one._store.transaction(write=True):
            start = time.monotonic()
            with pytest.raises(LedgerError, match=r"lock timeout|database is locked") as caught:
                other.reserve(CONFIDENT, n_queries=1, request_id="a")
            assert 0.5 < time.monotonic() - start < 10
            one_line(caught.value)
            assert other.entries() == []  # readers do not wait
        other.reserve(CONFIDENT, n_queries=1, request_id="a")


def test_one_that_holds_the_lock_and_hangs_loses_it(where, monkeypatch):
    monkeypatch.setattr(backends, "_WAIT", 1)
    with Ledger(where, budget=COUNT) as one, Ledger(where) as other:

        def hang():
            with one._store.transaction(write=True) as now:
                time.sleep(1.3)
                other.reserve(CONFIDENT, n_queries=1, request_id="a")
                now.last()

        with pytest.raises(LedgerError, match="idle-in-transaction timeout"):
            hang()
        assert len(one.entries()) == 1


def test_a_refused_login_and_a_missing_database_are_one_line(where):
    wrong = (
        (where.replace(PASSWORD, "wrong"), "password authentication failed for user"),
        (where + "0", "database does not exist"),
        (where.replace(ROLE, "nobody"), "password authentication failed for user"),
        (where.replace(str(server().port), "1"), r"^The ledger \S+ cannot be used: Connection refused\.$"),
    )
    for url, message in wrong:
        with pytest.raises(LedgerError, match=message) as caught:
            Ledger(url, budget=COUNT)
        assert "nobody" not in one_line(caught.value)
    with Ledger(where, budget=COUNT) as ledger:
        assert not any(word in repr(ledger) + str(vars(ledger)) for word in (PASSWORD, ROLE))


def test_a_role_that_owns_nothing_can_spend_and_not_undo(where):
    """With the rights that docs/ledger.md names; the owner made the tables."""
    Ledger(where, budget=COUNT).close()
    with server().superuser(where) as connection:
        connection.execute(f"CREATE ROLE spender LOGIN PASSWORD '{PASSWORD}'")
        for table in METADATA.tables:
            connection.execute(f"GRANT SELECT, INSERT ON {table} TO spender")
        connection.execute("GRANT UPDATE ON terrine_ledger TO spender")
    with Ledger(where.replace(ROLE, "spender"), budget=COUNT) as ledger:
        ledger.keep(ledger.reserve(CONFIDENT, n_queries=1, request_id="a"), {"1": YES})
        assert ledger.verify() == []
        for statement in (
            "DROP TRIGGER terrine_ledger_no_change ON terrine_ledger",
            "UPDATE terrine_ledger SET id = 1",
        ):
            with pytest.raises(LedgerError), ledger._store.transaction(write=True) as now:
                now.connection.exec_driver_sql(statement)
    with server().superuser(where) as connection:
        connection.execute("DROP OWNED BY spender; DROP ROLE spender")


def test_without_the_driver_the_error_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(MissingDependencyError, match=r"Install it with: pip install 'terrine\[service\]'"):
        Ledger("postgresql://someone:secret@localhost/db", budget=COUNT)


def test_a_server_that_does_not_write_to_its_disk_is_told(where):
    with Ledger(where, budget=COUNT) as ledger, server().superuser() as connection:
        connection.execute("ALTER SYSTEM SET fsync = off")
        connection.execute("SELECT pg_reload_conf()")
        try:
            deadline = time.monotonic() + 10
            while not (found := ledger.verify()) and time.monotonic() < deadline:
                time.sleep(0.02)
            assert found == ["the server runs with fsync off: a power cut may lose what was charged"]
        finally:
            connection.execute("ALTER SYSTEM RESET fsync")
            connection.execute("SELECT pg_reload_conf()")
        while ledger.verify() and time.monotonic() < deadline + 10:
            time.sleep(0.02)


def test_a_reader_sees_one_moment_and_writes_nothing(where):
    with Ledger(where, budget=COUNT) as ledger, ledger._store.transaction(write=False) as now:
        assert now.last() is None
        with Ledger(where) as other:
            other.reserve(CONFIDENT, n_queries=1, request_id="a")
        assert now.last() is None
        with pytest.raises(sa.exc.InternalError, match="read-only transaction"):
            now.claim({"a": "0"})


def test_threads_make_one_ledger(where):
    found = []
    threads = [threading.Thread(target=lambda: found.append(Ledger(where, budget=COUNT).id)) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 6
    assert len(set(found)) == 1
    assert postgres.rows(where, "SELECT count(*) FROM terrine_ledger") == [(1,)]
