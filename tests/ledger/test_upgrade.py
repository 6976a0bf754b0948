"""Ledgers that an older version made, or wrote to since, keep their entries and get what this version keeps beside."""

from __future__ import annotations

import os

import pytest
import sqlalchemy as sa
from tests import postgres
from tests.ledger.test_ledger import CONFIDENT, filled
from tests.postgres import PASSWORD, ROLE, meddle, on_server, rows, server

from terrine.errors import LedgerError
from terrine.ledger import Kept, Ledger, derived
from terrine.ledger.entries import sha256
from terrine.mechanisms import Outcome
from terrine.service.keys import Keys

where = postgres.where
KEYS = {
    "terrine_keys": "id VARCHAR(12) NOT NULL PRIMARY KEY, name VARCHAR(100) NOT NULL, role VARCHAR(10) NOT NULL, "
    "quota BIGINT, sha256 VARCHAR(64) NOT NULL, created VARCHAR(40) NOT NULL",
    "terrine_keys_revoked": "id VARCHAR(12) NOT NULL PRIMARY KEY, time VARCHAR(40) NOT NULL",
}
SECRET = "s" * 43


def made_old(where, *, keys=True):
    """As a ledger was left by the version before: four tables with triggers, and keys without."""
    filled(where).close()
    drop = [f"DROP TABLE {name}" for name in ("terrine_tree", "terrine_counts", *KEYS)]
    meddle_schema(where, *drop, "DROP INDEX terrine_answers_by_entry")
    if keys:
        hashed = sha256(SECRET)
        meddle_schema(
            where,
            *(f"CREATE TABLE {name} ({columns})" for name, columns in KEYS.items()),
            *([f"ALTER TABLE {name} OWNER TO {ROLE}" for name in KEYS] if on_server(where) else []),
            f"INSERT INTO terrine_keys VALUES ('00000000000a', 'ann', 'client', 5, '{hashed}', '2026-01-01')",
            f"INSERT INTO terrine_keys VALUES ('00000000000b', 'bob', 'admin', NULL, '{hashed}', '2026-01-02')",
            "INSERT INTO terrine_keys_revoked VALUES ('00000000000b', '2026-01-03')",
        )


def meddle_schema(where, *statements):
    """Triggers go with their tables."""
    if on_server(where):
        meddle(where, *statements)
        return
    import sqlite3
    from contextlib import closing

    with closing(sqlite3.connect(where, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


def test_a_ledger_of_the_version_before_is_read_as_it_is(where):
    made_old(where)
    with Ledger(where) as ledger:
        assert ledger.verify() == ledger.verify_recent() == []
        shown = ledger.summary()
        assert (shown.unsettled, shown.secure, shown.entries) == (3, False, 5)
        assert ledger.outcomes() == {"answered": 1, "withheld": 1, "reinforced": 0}
        assert ledger.spent().epsilons.max() > 0
        assert len(ledger.tree_head().root) == 64
    there = "SELECT tablename FROM pg_tables" if on_server(where) else "SELECT name FROM sqlite_master"
    assert ("terrine_tree",) not in rows(where, there)  # reading makes nothing


def test_it_is_upgraded_when_it_is_first_written_to(where):
    made_old(where)
    with Ledger(where) as ledger:
        before, head, root = ledger.entries(), ledger.head(), ledger.tree_head().root
        ledger.reserve(CONFIDENT, n_queries=1, request_id="new")
        after = ledger.entries()
        assert after[:5] == before
        assert [entry.kind for entry in after[5:]] == ["key", "key", "revoke", "reserve"]
        assert ledger.verify(head=head) == ledger.verify_recent() == []
        assert (ledger.summary().unsettled, ledger.summary().secure) == (4, False)
        assert ledger.proof(5, 9).root == ledger.tree_head().root
        assert ledger.proof(5, 5).root == root
    keys = Keys(where)
    assert [(key.name, key.quota, key.revoked) for key in keys.list()] == [
        ("ann", 5, None),
        ("bob", None, "2026-01-03"),
    ]
    assert keys.find(f"terrine_00000000000a_{SECRET}").name == "ann"
    assert keys.find(f"terrine_00000000000b_{SECRET}") is None
    keys.close()


def test_opening_its_keys_upgrades_it(where):
    made_old(where)
    keys = Keys(where)
    assert keys.find(f"terrine_00000000000a_{SECRET}").quota == 5
    keys.close()
    with Ledger(where) as ledger:
        assert ledger.verify() == []
        assert ledger.head().seq == 8


def test_many_entries_are_taken_up_with_counts_in_between(where, monkeypatch):
    monkeypatch.setattr(derived, "_EVERY", 2)
    made_old(where, keys=False)
    with Ledger(where) as ledger:
        ledger.reserve(CONFIDENT, n_queries=1, request_id="new")
        assert ledger.verify() == []
    assert rows(where, "SELECT seq FROM terrine_counts ORDER BY seq") == [(2,), (4,), (5,), (6,)]


def test_entries_that_an_older_version_writes_meanwhile_are_taken_up(where):
    with filled(where) as ledger:
        copies = [f"DELETE FROM {name}" for name in ("terrine_counts", "terrine_tree")]
        meddle(where, copies[0] + " WHERE seq > 2", copies[1] + " WHERE node > 1")  # it wrote neither
        assert ledger.verify() == []
    with Ledger(where) as ledger:
        assert ledger.summary().unsettled == 3
        assert ledger.proof(2, 5).root == ledger.tree_head().root  # which takes them up
        ledger.reserve(CONFIDENT, n_queries=1, request_id="new")
        assert ledger.verify() == []
        assert len(rows(where, "SELECT * FROM terrine_tree")) == 4


def test_an_upgrade_that_fails_changes_nothing(where, monkeypatch):
    made_old(where)
    with Ledger(where) as ledger:
        monkeypatch.setattr(
            "terrine.ledger.chain.Page.add_revocation", lambda *_: (_ for _ in ()).throw(OSError("full"))
        )
        with pytest.raises(LedgerError, match="cannot be used: full"):
            ledger.reserve(CONFIDENT, n_queries=1, request_id="new")
        monkeypatch.undo()
        assert len(ledger.entries()) == 5
        ledger.reserve(CONFIDENT, n_queries=1, request_id="new")
        assert ledger.verify() == []


def test_an_upgrade_does_not_put_back_a_trigger_that_someone_dropped(where):
    made_old(where)
    name = "terrine_entries_no_change ON terrine_entries" if on_server(where) else "terrine_entries_no_delete"
    meddle_schema(where, f"DROP TRIGGER {name}")
    with Ledger(where) as ledger:
        ledger.reserve(CONFIDENT, n_queries=1, request_id="new")
        (said,) = ledger.verify()
        assert said == f"the trigger {name.split()[0]} is gone: rows may have been changed"


def test_a_ledger_of_the_version_before_is_read_where_nothing_can_be_written(tmp_path, monkeypatch):
    path = tmp_path / "ledger.sqlite"
    made_old(str(path))
    monkeypatch.setattr(os, "access", lambda where, mode: False)
    with Ledger(path) as ledger:
        assert ledger.verify() == []
        assert ledger.summary().unsettled == 3
        with pytest.raises(LedgerError, match="readonly"):
            ledger.reserve(CONFIDENT, n_queries=1, request_id="new")


def test_a_role_that_owns_nothing_says_who_must_upgrade():
    where = server().database()
    made_old(where)
    with server().superuser(where) as connection:
        connection.execute(f"CREATE ROLE spender2 LOGIN PASSWORD '{PASSWORD}'")
        for table in ("terrine_ledger", "terrine_entries", "terrine_requests", "terrine_answers", *KEYS):
            connection.execute(f"GRANT SELECT, INSERT ON {table} TO spender2")
        connection.execute("GRANT UPDATE ON terrine_ledger TO spender2")
    try:
        with Ledger(where.replace(ROLE, "spender2")) as ledger:
            with pytest.raises(LedgerError, match="terrine ledger upgrade` as the owner of its tables"):
                ledger.reserve(CONFIDENT, n_queries=1, request_id="new")
            assert ledger.verify() == []
    finally:
        with server().superuser(where) as connection:
            connection.execute("DROP OWNED BY spender2; DROP ROLE spender2")


def test_answers_of_an_old_ledger_are_found_and_free(where):
    made_old(where)
    with Ledger(where) as ledger:
        ledger.claim("free", "0")
        known, _ = ledger.recall_each(["1" * 64], [])
        assert known == {"1" * 64: Kept(3, Outcome.TEACHERS, True)}
        assert sa.inspect(ledger._store._engine).get_indexes("terrine_answers")[0]["name"] == "terrine_answers_by_entry"
