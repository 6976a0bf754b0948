"""The chain: a changed entry, answer or request shows, and who kept a head sees that an older ledger was restored."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from itertools import count

import pytest
from tests import postgres
from tests.ledger.test_ledger import CONFIDENT, COUNT, FILTER, filled
from tests.postgres import MEMORY, PASSWORD, ROLE, meddle, on_server, rows

from terrine.errors import InputError, LedgerError
from terrine.ledger import Head, Ledger
from terrine.ledger.entries import sha256
from terrine.ledger.tables import ENTRIES

where = postgres.where
ENTRY = "terrine_entries"
TAMPERINGS = [
    (f"DELETE FROM {ENTRY} WHERE seq = 3", "entry 4: comes after 2: an entry is missing"),
    (f"DELETE FROM {ENTRY} WHERE seq = 1", "entry 2: settles a reservation that does not exist"),
    (f"DELETE FROM {ENTRY} WHERE seq = 2", "answer 11111111: was settled by entry 2, which does not exist"),
    (f"UPDATE {ENTRY} SET n_answers = 1 WHERE seq = 5", "entry 5: has totals that do not add up"),
    (f"UPDATE {ENTRY} SET n_answers = 5 WHERE seq = 5", "entry 5: has impossible numbers of queries and answers"),
    (f"UPDATE {ENTRY} SET n_answers = 1 WHERE seq = 4", "entry 4: does not reserve an answer for every query"),
    (
        f"UPDATE {ENTRY} SET n_queries = 3, n_answers = 3 WHERE seq = 4",
        "entry 5: settles with other values than were reserved",
    ),
    (f"UPDATE {ENTRY} SET total_answers = 0 WHERE seq = 5", "entry 5: has totals that do not add up"),
    (f"UPDATE {ENTRY} SET account_queries = 0 WHERE seq = 5", "entry 5: has totals that do not add up"),
    (f"UPDATE {ENTRY} SET total_queries = 101 WHERE seq = 5", "entry 5: exceeds the budget"),
    (f"UPDATE {ENTRY} SET total_answers = -1 WHERE seq = 5", "entry 5: exceeds the budget"),
    (f"UPDATE {ENTRY} SET mechanism = '{{}}' WHERE seq = 4", "entry 4: has a mechanism that the budget does not allow"),
    (
        f"UPDATE {ENTRY} SET mechanism = mechanism || ' ' WHERE seq = 4",
        "entry 4: has its mechanism written in a different form",
    ),
    (
        f"UPDATE {ENTRY} SET mechanism = replace(mechanism, '150', '151') WHERE seq = 4",
        "entry 4: has a mechanism that the budget does not allow",
    ),
    (f"UPDATE {ENTRY} SET kind = 'refund' WHERE seq = 5", "entry 5: is not a reservation, a settlement or"),
    (
        f"UPDATE {ENTRY} SET part = 3 WHERE seq = 3",
        "entry 3: is a later part of a request, and the part before it is missing",
    ),
    (f"UPDATE {ENTRY} SET schema = 'terrine.entry/1' WHERE seq = 3", "entry 3: is not of schema terrine.entry/2"),
    (f"UPDATE {ENTRY} SET secure = TRUE WHERE seq = 5", "entry 5: settles with other values than were reserved"),
    (f"UPDATE {ENTRY} SET account = 'eve' WHERE seq = 5", "entry 5: settles with other values than were reserved"),
    (f"UPDATE {ENTRY} SET asked = '1' WHERE seq = 3", "entry 3: asks for other rows than the request's earlier parts"),
    ("UPDATE terrine_requests SET digest = '1'", "request 'a': asks for other rows than were reserved"),
    ("DELETE FROM terrine_requests", "request 'a': has a reservation, and its own row is missing"),
    ("UPDATE terrine_answers SET label = 4 WHERE label = 3", "entry 2: its answers are not the ones that it settled"),
    ("DELETE FROM terrine_answers WHERE label = 3", "entry 2: its answers are not the ones that it settled"),
    ("DELETE FROM terrine_answers", "entry 2: its answers are not the ones that it settled"),
    ("UPDATE terrine_answers SET outcome = 1, label = 2", "entry 2: has more answers than it paid for"),
    ("UPDATE terrine_answers SET outcome = 3 WHERE label = 3", "answer 11111111: has an unknown outcome"),
    (
        "UPDATE terrine_answers SET label = 7 WHERE outcome = 0",
        "answer 22222222: has a label that its outcome does not",
    ),
    ("UPDATE terrine_answers SET secure = FALSE", "and its entry disagree on whether the noise was secure"),
    (
        "INSERT INTO terrine_answers (query, label, outcome, secure, entry) "
        f"VALUES ('{'3' * 64}', 1, 0, TRUE, 2), ('{'4' * 64}', -1, 0, TRUE, 2)",
        "entry 2: has more answers than it paid for",
    ),
    (
        f"INSERT INTO terrine_answers (query, label, outcome, secure, entry) VALUES ('{'3' * 64}', 1, 1, TRUE, 3)",
        "answer 33333333: was settled by entry 3, which does not exist",
    ),
    (
        f"INSERT INTO terrine_answers (query, label, outcome, secure, entry) VALUES ('{'3' * 64}', 1, 1, TRUE, 9)",
        "answer 33333333: was settled by entry 9, which does not exist",
    ),
    ("UPDATE terrine_counts SET open = 0 WHERE seq = 5", "entry 5: the counts up to here are not what follows"),
    ("UPDATE terrine_counts SET answered = 5 WHERE seq = 3", "entry 3: the counts up to here are not what follows"),
    ("UPDATE terrine_counts SET sums = 'x' WHERE seq = 3", "entry 3: the counts up to here are not what follows"),
    ("UPDATE terrine_counts SET secure = TRUE WHERE seq = 5", "entry 5: the counts up to here are not what follows"),
    ("UPDATE terrine_counts SET root = '0' WHERE seq = 2", "entry 2: the counts up to here are not what follows"),
    ("UPDATE terrine_counts SET seq = 9 WHERE seq = 5", "the counts or the tree go on after the last entry"),
    ("UPDATE terrine_tree SET hash = '0' WHERE node = 2", "entry 4: the tree is not what follows from the entries"),
    ("DELETE FROM terrine_tree WHERE node = 1", "entry 2: the tree is not what follows from the entries"),
    ("INSERT INTO terrine_tree VALUES (4, '0')", "the counts or the tree go on after the last entry"),
    (
        f"UPDATE {ENTRY} SET time = '2001-01-01T00:00:00.000+00:00' WHERE seq = 3",
        "entry 3: is more than 5 s earlier than the entry before it",
    ),
    (f"UPDATE {ENTRY} SET time = '' WHERE seq = 3", "entry 3: is more than 5 s earlier than the entry before it"),
    (
        f"UPDATE {ENTRY} SET kind = 'key', part = 0 WHERE seq = 3",
        "entry 3: is about a key, and must not charge anything",
    ),
]


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def made(request):
    """Makes copies of one ledger."""
    if request.param == "postgresql":
        server = postgres.server()
        whole = server.database()
        filled(whole).close()
        yield lambda: server.database(like=whole)
        return
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        filled(f"{folder}/whole").close()
        numbers = count()
        yield lambda: shutil.copyfile(f"{folder}/whole", f"{folder}/{next(numbers)}")


@pytest.mark.parametrize(("statement", "problem"), TAMPERINGS)
def test_the_audit_finds_what_was_changed(made, statement, problem):
    place = made()
    meddle(place, statement)
    with Ledger(place) as ledger:
        found = ledger.verify()
        assert any(problem in line for line in found), found


def test_a_change_of_any_field_of_an_entry_breaks_the_chain(made):
    """Of the newest entry too; each is changed alone, and put back."""
    place = made()
    with Ledger(place) as ledger:
        head = ledger.head()
        assert ledger.verify(head=head) == []
        for column in ENTRIES.columns:
            if column.name == "seq":
                change, back = "seq + 1", "seq - 1"
            elif column.name == "secure":
                change = back = "NOT secure"
            elif str(column.type) == "BIGINT":
                change, back = f"{column.name} + 1", f"{column.name} - 1"
            else:
                change, back = f"{column.name} || 'x'", f"substr({column.name}, 1, length({column.name}) - 1)"
                if column.name in ("digest", "answers_digest"):
                    change, back = f"'x' || substr({column.name}, 2)", f"'{getattr(ledger.entries()[-1], column.name)}'"
            last = f"(SELECT max(seq) FROM {ENTRY})"
            meddle(place, f"UPDATE {ENTRY} SET {column.name} = {change} WHERE seq = {last}")
            found = ledger.verify(head=head)
            assert any("does not match its digest" in line for line in found), column.name
            assert column.name == "seq" or any(f"entry {head.seq}" in line for line in found), column.name
            meddle(place, f"UPDATE {ENTRY} SET {column.name} = {back} WHERE seq = {last}")
            assert ledger.verify(head=head) == [], column.name


def test_a_number_that_is_none_is_said_and_not_tripped_over(tmp_path):
    filled(tmp_path / "ledger.sqlite").close()
    meddle(str(tmp_path / "ledger.sqlite"), f"UPDATE {ENTRY} SET n_queries = 'many' WHERE seq = 3")
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        assert "entry 3: has a field that should be a number and is not" in ledger.verify()


def test_an_undercharged_entry_is_found(where):
    with Ledger(where, budget=FILTER) as ledger:
        ledger.reserve(CONFIDENT, n_queries=2, request_id="a")
        assert ledger.verify() == []
    names = ("charge", "total_charge", "account_charge")
    meddle(where, f"UPDATE {ENTRY} SET " + ", ".join(f"{name} = {name} - 100000000" for name in names))
    with Ledger(where) as ledger:
        rechained = ledger.entries()[0].chained(header_digest(where))
        meddle(where, f"UPDATE {ENTRY} SET digest = '{rechained}'")  # by someone who knows how
        assert ledger.verify() == [
            "entry 1: is charged less than it costs",
            "entry 1: the counts up to here are not what follows from the entries",  # nor is the root beside them
        ]


def header_digest(place):
    return rows(place, "SELECT digest FROM terrine_ledger")[0][0]


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("UPDATE terrine_ledger SET budget = replace(budget, '100', '900')", "budget in .* was changed"),
        ("UPDATE terrine_ledger SET ledger_id = '0'", "budget in .* was changed"),
        ("UPDATE terrine_ledger SET digest = '0'", "budget in .* was changed"),
        ("UPDATE terrine_ledger SET budget = 'x'", "The budget in .* is damaged"),
        (
            "UPDATE terrine_ledger SET schema = 'terrine.ledger/9'",
            "is not a ledger of schema terrine.ledger/2",
        ),
        ("DELETE FROM terrine_ledger", "There is no ledger at"),
    ],
)
def test_a_changed_header_is_refused(made, statement, message):
    place = made()
    before = Ledger(place)
    meddle(place, statement)
    assert len(before.verify()) == 1
    before.close()
    with pytest.raises(LedgerError, match=message):
        Ledger(place)


def test_the_chain_is_what_the_documentation_says(where):
    """Recomputed from an export with nothing but json and sha256."""
    with filled(where) as ledger:
        lines = [json.loads(line) for line in ledger.export()]
        head = ledger.head()
    header, entries, answers = lines[0], [x for x in lines if x["record"] == "entry"], lines[6:]
    dump = lambda value: json.dumps(value, sort_keys=True, separators=(",", ":"))  # noqa: E731
    digest = sha256(dump({name: header[name] for name in ("schema", "ledger_id", "budget")}))
    assert header["digest"] == digest
    for entry in entries:
        fields = {name: value for name, value in entry.items() if name not in ("record", "digest")}
        digest = sha256(digest + dump(fields))
        assert entry["digest"] == digest
    assert header["head"] == f"5:{digest}" == str(head)
    kept = sorted([answer["query"], answer["label"], answer["outcome"], answer["secure"]] for answer in answers)
    assert entries[1]["answers_digest"] == sha256(dump(kept))
    assert [answer["entry"] for answer in answers] == [2, 2]
    assert [entry["asked"] for entry in entries] == ["0", "", "0", "", ""]


def test_a_head_is_printed_and_read_back(where):
    with Ledger(where, budget=COUNT) as ledger:
        empty = ledger.head()
        assert empty == (0, header_digest(where))
        assert ledger.verify(head=empty) == []
        ledger.reserve(CONFIDENT, n_queries=1, request_id="a")
        head = ledger.head()
        assert ledger.verify(head=empty) == ledger.verify(head=head) == []
        assert Head.parse(str(head)) == Head.parse(f" {head}\n") == head
        assert str(head) == f"1:{ledger.entries()[0].digest}"
    for bad in ("", "17", "17:ab", f"x:{'a' * 64}", f"1:{'A' * 64}", f"-1:{'a' * 64}", f"²:{'a' * 64}"):
        with pytest.raises(InputError, match="A ledger's head is"):
            Head.parse(bad)


def test_who_kept_a_head_sees_that_an_older_ledger_was_restored(made):
    place, other = made(), made()
    with Ledger(place) as ledger:
        before = ledger.head()
        ledger.reserve(CONFIDENT, n_queries=1, request_id="new")
        head = ledger.head()
        assert ledger.verify(head=before) == ledger.verify(head=head) == []
    with Ledger(other) as restored:
        assert restored.verify() == restored.verify(head=before) == []
        assert restored.verify(head=head) == ["an older ledger was restored: it ends at entry 5, and entry 6 was seen"]
        restored.reserve(CONFIDENT, n_queries=1, request_id="another")
        assert restored.verify() == []
        assert restored.verify(head=head) == [
            "entry 6 is not the one that was seen: it was changed, or an older ledger was restored"
        ]


def test_a_ledger_that_was_put_in_anothers_place_is_not_written_to(made):
    place = made()
    with Ledger(place) as ledger:
        other = "0" * 64
        meddle(place, f"UPDATE terrine_ledger SET digest = '{other}'")
        with pytest.raises(LedgerError, match=r"The ledger at .* is gone, or is not the one that was opened"):
            ledger.reserve(CONFIDENT, n_queries=1, request_id="new")
        meddle(place, "DELETE FROM terrine_ledger")
        with pytest.raises(LedgerError, match="is gone, or is not the one that was opened"):
            ledger.reserve(CONFIDENT, n_queries=1, request_id="new")
        assert len(rows(place, f"SELECT * FROM {ENTRY}")) == 5


def test_another_ledger_of_the_same_budget_is_told_apart(tmp_path):
    with Ledger(tmp_path / "a", budget=COUNT) as one, Ledger(tmp_path / "b", budget=COUNT) as other:
        assert one.id != other.id
        assert one.verify(head=other.head()) == [
            "this is a different ledger: its header is not the one that was seen before"
        ]


def test_the_command_line_shows_verifies_and_exports(made, tmp_path, monkeypatch, capsys):
    """In this process, but for the one that looks at exit codes."""
    from terrine.cli import app

    place = made()
    monkeypatch.setenv("TERRINE_LEDGER", place)  # where a password belongs

    def call(*arguments):
        app(["ledger", *arguments], standalone_mode=False)
        return capsys.readouterr().out

    with Ledger(place) as ledger:
        head = str(ledger.head())
        lines = list(ledger.export())
    shown = call("show")
    assert f"Head: {head}\n" in shown
    assert json.loads(call("show", "--json"))["accounts"] == {"": {"queries": 9, "answers": 6, "charge": 0}}
    assert call("verify", "--head", head) == f"5 entries, no problem found. Head: {head}\n"
    assert call("export").splitlines() == lines
    call("export", "--to", str(tmp_path / "out.jsonl"))
    assert (tmp_path / "out.jsonl").read_text().splitlines() == lines
    assert [file.name for file in tmp_path.iterdir()] == ["out.jsonl"]
    newer = f"9{head[1:]}"
    with pytest.raises(LedgerError, match="an older ledger was restored: it ends at entry 5, and entry 9 was seen"):
        call("verify", "--head", newer)
    if on_server(place):
        run = [sys.executable, "-m", "terrine", "ledger", "verify", place.replace("test", "missing")]
        done = subprocess.run(run, capture_output=True, text=True)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
        assert PASSWORD not in done.stderr
        assert ROLE not in done.stderr


@pytest.fixture
def keyed(made):
    """A ledger with a key in use and one that was revoked."""
    from terrine.service.keys import Keys

    place = made()
    keys = Keys(place)
    keys.create("ann", quota=5)
    keys.create("bob", role="admin")
    keys.revoke("bob")
    keys.close()
    return place


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        ("UPDATE terrine_keys SET quota = 500 WHERE name = 'ann'", "it is not in the chain, or was changed"),
        ("UPDATE terrine_keys SET quota = 500 WHERE name = 'ann'", "entry 6: the row of key"),
        ("UPDATE terrine_keys SET role = 'admin' WHERE name = 'ann'", "it is not in the chain, or was changed"),
        (f"UPDATE terrine_keys SET sha256 = '{'0' * 64}'", "it is not in the chain, or was changed"),
        ("DELETE FROM terrine_keys WHERE name = 'ann'", "that it records is gone or was changed"),
        ("INSERT INTO terrine_keys VALUES ('0', 'eve', 'admin', NULL, '0', '0')", "key 0: it is not in the chain"),
        ("INSERT INTO terrine_keys_revoked VALUES ('0', '0')", "key 0: its revocation is not in the chain"),
        ("DELETE FROM terrine_keys_revoked", "entry 8: the row of key"),
        (
            f"UPDATE {ENTRY} SET n_queries = 1 WHERE kind = 'key'",
            "entry 6: is about a key, and must not charge anything",
        ),
        (f"UPDATE {ENTRY} SET asked = '0' WHERE kind = 'revoke'", "its revocation is not in the chain, or was changed"),
    ],
)
def test_keys_quotas_and_revocations_are_in_the_chain(keyed, statement, problem):
    with Ledger(keyed) as ledger:
        assert ledger.verify() == []
    meddle(keyed, statement)
    with Ledger(keyed) as ledger:
        found = ledger.verify()
        assert any(problem in line for line in found), found


def test_a_key_that_was_changed_or_put_in_by_hand_is_refused(keyed):
    from terrine.service.keys import Keys

    keys = Keys(keyed)
    shown = keys.create("carl", quota=1)
    assert keys.find(shown).quota == 1
    mine = rows(keyed, "SELECT sha256 FROM terrine_keys WHERE name = 'carl'")[0][0]
    meddle(keyed, f"INSERT INTO terrine_keys VALUES ('00000000000e', 'eve', 'admin', NULL, '{mine}', '0')")
    keys._read = -1e9
    assert keys.find(shown.replace(shown.split("_")[1], "00000000000e")) is None
    meddle(keyed, "UPDATE terrine_keys SET quota = NULL WHERE name = 'carl'")
    keys._read = -1e9
    assert keys.find(shown) is None
    meddle(keyed, "UPDATE terrine_keys SET quota = 1 WHERE name = 'carl'", "DELETE FROM terrine_keys_revoked")
    keys._read = -1e9
    assert keys.find(shown).quota == 1
    assert {key.name: key.revoked is None for key in keys.list()} == {"ann": True, "bob": False, "carl": True}
    keys.close()


def test_one_head_covers_the_keys(made):
    from terrine.service.keys import Keys

    place, other = made(), made()
    heads = []
    for where in (place, other):
        keys = Keys(where)
        keys.create("ann", quota=5)
        keys.close()
        with Ledger(where) as ledger:
            heads.append(ledger.head())
            assert ledger.head().seq == 6
    with Ledger(place) as ledger:
        assert ledger.verify(head=heads[0]) == []
        assert "entry 6 is not the one that was seen" in ledger.verify(head=heads[1])[0]


def test_time_does_not_run_backwards(where, monkeypatch):
    from datetime import UTC, datetime, timedelta

    from terrine.ledger import chain as page

    class Clock(datetime):
        ahead = timedelta()

        @classmethod
        def now(cls, zone=None):
            return datetime.now(UTC) + cls.ahead

    monkeypatch.setattr(page, "datetime", Clock)
    with Ledger(where, budget=COUNT) as ledger:
        for k, seconds in enumerate((3600, 0, -3600, 7200, 0)):
            Clock.ahead = timedelta(seconds=seconds)
            ledger.reserve(CONFIDENT, n_queries=1, request_id=f"{k}")
        times = [entry.time for entry in ledger.entries()]
        assert times == sorted(times)
        assert times[0] == times[1] == times[2] < times[3] == times[4]
        assert ledger.verify() == []


def test_a_few_seconds_back_are_allowed_as_of_servers_that_shared_an_older_ledger(where):
    from datetime import datetime, timedelta

    with filled(where) as ledger:
        first = datetime.fromisoformat(ledger.entries()[1].time)
        for seconds, wrong in ((4, False), (6, True)):
            time = (first - timedelta(seconds=seconds)).isoformat(timespec="milliseconds")
            meddle(where, f"UPDATE {ENTRY} SET time = '{time}' WHERE seq = 3")
            assert any("5 s earlier" in line for line in ledger.verify()) == wrong


SAME_NAME = {
    "sqlite": [
        (
            ["DROP TRIGGER {0}_no_update", "CREATE TRIGGER {0}_no_update BEFORE UPDATE ON {0} BEGIN SELECT 1; END"],
            "the trigger {0}_no_update is not as the ledger made it",
        ),
        (
            [
                "DROP TRIGGER {0}_no_delete",
                "CREATE TRIGGER {0}_no_delete BEFORE DELETE ON {0} WHEN old.secure = 7 "
                "BEGIN SELECT RAISE(ABORT, 'a ledger is only ever added to'); END",
            ],
            "the trigger {0}_no_delete is not as the ledger made it",
        ),
        (
            ["CREATE TRIGGER quiet BEFORE INSERT ON {0} BEGIN SELECT RAISE(IGNORE); END"],
            "the trigger quiet is not the ledger's own: rows may be lost",
        ),
        (
            ["ALTER TABLE {0} RENAME TO other", "CREATE TABLE {0} AS SELECT * FROM other", "DROP TABLE other"],
            "the table {0} lacks its unique index over",
        ),
        (["ALTER TABLE {0} ADD COLUMN more TEXT"], "the table {0} is not as the ledger made it: column more"),
        (["DROP TABLE terrine_tree", "DROP TABLE {0}"], "the table {0} is gone"),
    ],
    "postgresql": [
        (
            ["CREATE OR REPLACE FUNCTION terrine_only_added() RETURNS trigger LANGUAGE plpgsql AS "
             "$$ BEGIN RETURN NULL; END $$"],
            "the trigger {0}_no_change is not as the ledger made it",
        ),
        (
            [
                "DROP TRIGGER {0}_no_change ON {0}",
                "CREATE TRIGGER {0}_no_change BEFORE TRUNCATE ON {0} FOR EACH STATEMENT "
                "EXECUTE FUNCTION terrine_only_added()",
            ],
            "the trigger {0}_no_change is not as the ledger made it",
        ),
        (
            [
                "DROP TRIGGER {0}_no_change ON {0}",
                "CREATE TRIGGER {0}_no_change BEFORE UPDATE OR DELETE OR TRUNCATE ON {0} FOR EACH STATEMENT "
                "WHEN (current_user = 'nobody') EXECUTE FUNCTION terrine_only_added()",
            ],
            "the trigger {0}_no_change is not as the ledger made it",
        ),
        (["ALTER TABLE {0} DISABLE TRIGGER {0}_no_change"], "the trigger {0}_no_change is gone"),
        (["ALTER TABLE {0} ENABLE REPLICA TRIGGER {0}_no_change"], "the trigger {0}_no_change is gone"),
        (
            ["CREATE RULE quiet AS ON INSERT TO {0} DO INSTEAD NOTHING"],
            "the rule quiet on {0} is not the ledger's own",
        ),
        (["ALTER TABLE {0} DROP CONSTRAINT {0}_pkey"], "the table {0} lacks its unique index over"),
        (["ALTER TABLE {0} ADD COLUMN more TEXT"], "the table {0} is not as the ledger made it: column more"),
        (["DROP TABLE terrine_tree", "DROP TABLE {0}"], "the table {0} is gone"),
    ],
}  # fmt: skip


@pytest.mark.parametrize("table", [ENTRY, "terrine_answers"])
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_triggers_and_tables_are_compared_by_what_they_are(kind, table, tmp_path):
    import sqlite3
    from contextlib import closing

    if kind == "postgresql":
        whole = postgres.server().database()
        filled(whole).close()
    for k, (statements, problem) in enumerate(SAME_NAME[kind]):
        if kind == "postgresql":
            place = postgres.server().database(like=whole)
            with postgres.server().superuser(place) as connection:
                for statement in statements:
                    connection.execute(statement.format(table))
        else:
            place = str(tmp_path / f"{k}.sqlite")
            filled(place).close()
            with closing(sqlite3.connect(place, isolation_level=None)) as connection:
                for statement in statements:
                    connection.execute(statement.format(table))
        with Ledger(place) as ledger:
            for found in (ledger.verify(), ledger.verify_recent()):
                assert any(problem.format(table) in line for line in found), (statements, found)
