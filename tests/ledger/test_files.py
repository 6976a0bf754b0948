"""A ledger that is replaced, removed or restored while it is in use is noticed, and refused from then on."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import sqlalchemy as sa
from tests import postgres
from tests.ledger.test_ledger import CONFIDENT, COUNT
from tests.postgres import MEMORY, meddle, server
from tests.service.tasks import Service, bearer, label, rows_of

from terrine.budgets import CountBudget
from terrine.errors import LedgerError
from terrine.labeller import KeptVotes, Labeller
from terrine.ledger import Ask, Ledger
from terrine.mechanisms import GNMax
from terrine.votes import Votes

where = postgres.where
GONE = r"The ledger .* was replaced, removed or restored while it was in use: .*\. Nothing more is charged or answered"


@pytest.fixture
def folder():
    with tempfile.TemporaryDirectory(dir=MEMORY) as name:
        (Path(name) / "run").mkdir()
        yield Path(name) / "run"


def sql(path, statement):
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        return other.execute(statement).fetchall()


def back_up(folder):
    """A whole copy in one file, made as docs/service.md says."""
    copy = folder.parent / "copy.sqlite"
    copy.unlink(missing_ok=True)
    sql(folder / "ledger.sqlite", f"VACUUM INTO '{copy}'")
    return copy


def removed(path, copy):
    path.unlink()


def moved_over(path, copy):
    os.replace(copy, path)


def moved_over_without_log(path, copy):
    os.replace(copy, path)
    for end in ("-wal", "-shm"):
        Path(f"{path}{end}").unlink()


def copied_over(path, copy):
    """Into the same inode, once the log holds nothing that is not in the file."""
    sql(path, "PRAGMA wal_checkpoint(TRUNCATE)")
    with path.open("r+b") as file:
        file.write(copy.read_bytes())
        file.truncate()


def log_removed(path, copy):
    Path(f"{path}-wal").unlink()


def log_replaced(path, copy):
    """As by another process that finds none and makes one."""
    Path(f"{path}-wal").unlink()
    Path(f"{path}-wal").touch()


def index_removed(path, copy):
    Path(f"{path}-shm").unlink()


def folder_restored(path, copy):
    path.parent.rename(path.parent.parent / "old")
    path.parent.mkdir()
    shutil.copyfile(copy, path)


WAYS = [
    removed,
    moved_over,
    moved_over_without_log,
    copied_over,
    log_removed,
    log_replaced,
    index_removed,
    folder_restored,
]


@pytest.mark.parametrize("way", WAYS)
def test_what_happens_to_the_files_is_noticed_before_anything_is_charged(folder, way):
    path = folder / "ledger.sqlite"
    with Ledger(path, budget=COUNT) as ledger:
        ledger.reserve(CONFIDENT, n_queries=1, request_id="a")
        copy = back_up(folder)
        for k in range(3):
            ledger.reserve(CONFIDENT, n_queries=1, request_id=f"b{k}")
        way(path, copy)
        with pytest.raises(LedgerError, match=GONE):
            ledger.reserve(CONFIDENT, n_queries=1, request_id="c")
        for verb in (ledger.head, ledger.summary, ledger.entries, lambda: ledger.claim("d", "0")):
            with pytest.raises(LedgerError, match=GONE):  # for good
                verb()
    with pytest.raises(LedgerError, match=GONE):
        ledger.reserve(CONFIDENT, n_queries=1, request_id="e")
    if way is removed:
        assert not path.exists()  # nor was an empty one made
    elif way is not log_replaced:  # whose empty log fits no index
        assert sql(path, "SELECT count(*) FROM terrine_entries WHERE request_id IN ('c', 'e')") == [(0,)]


@pytest.mark.parametrize("way", WAYS)
def test_no_answer_leaves_if_it_happens_while_teachers_vote(folder, way):
    path, X = folder / "ledger.sqlite", np.arange(40.0).reshape(20, 2)
    budget = CountBudget(GNMax(sigma=40), n_queries=100, delta=1e-5)

    class Meanwhile(KeptVotes):
        def vote(self, X):
            way(path, copy)
            return super().vote(X)

    with Ledger(path, budget=budget) as ledger:
        votes = Votes([[20, 5]] * 20, n_teachers=25)
        Labeller(KeptVotes(X, votes), GNMax(sigma=40), ledger).label(X[:5], request_id="a")
        copy = back_up(folder)
        Labeller(KeptVotes(X, votes), GNMax(sigma=40), ledger).label(X[5:10], request_id="b")
        with pytest.raises(LedgerError, match=GONE):
            Labeller(Meanwhile(X, votes), GNMax(sigma=40), ledger).label(X[10:], request_id="c")


@pytest.mark.parametrize("way", [removed, moved_over, log_removed, folder_restored])
def test_no_answer_leaves_if_it_happens_between_the_check_and_the_commit(folder, way):
    path = folder / "ledger.sqlite"
    with Ledger(path, budget=COUNT) as ledger:
        ledger.reserve(CONFIDENT, n_queries=1, request_id="a")
        copy = back_up(folder)
        once = [way]
        sa.event.listen(ledger._store._engine, "commit", lambda _: once and once.pop()(path, copy))
        with pytest.raises(LedgerError, match=GONE):
            ledger.reserve(CONFIDENT, n_queries=1, request_id="b")


def test_a_file_that_comes_back_is_not_trusted_again(folder):
    path = folder / "ledger.sqlite"
    with Ledger(path, budget=COUNT) as ledger:
        ledger.reserve(CONFIDENT, n_queries=1, request_id="a")
        path.rename(folder / "away")
        with pytest.raises(LedgerError, match=GONE):
            ledger.reserve(CONFIDENT, n_queries=1, request_id="b")
        (folder / "away").rename(path)
        with pytest.raises(LedgerError, match=GONE):
            ledger.reserve(CONFIDENT, n_queries=1, request_id="b")
    with Ledger(path) as again:  # by whom someone started it anew
        again.reserve(CONFIDENT, n_queries=1, request_id="b")
        assert again.verify() == []


def test_what_is_no_replacement_is_none(folder):
    """Closed and opened, written by another, its log emptied or made anew, and shared with a fork."""
    path = folder / "ledger.sqlite"
    ledger = Ledger(path, budget=COUNT)
    ledger.reserve(CONFIDENT, n_queries=1, request_id="a")
    ledger.close()
    assert not Path(f"{path}-wal").exists()
    ledger.reserve(CONFIDENT, n_queries=1, request_id="b")  # a new log
    with Ledger(path) as other:
        other.reserve(CONFIDENT, n_queries=1, request_id="c")
    ledger.reserve(CONFIDENT, n_queries=1, request_id="d")
    sql(path, "PRAGMA wal_checkpoint(TRUNCATE)")
    ledger.reserve(CONFIDENT, n_queries=1, request_id="e")
    child = os.fork()
    if child == 0:
        try:
            ledger.reserve(CONFIDENT, n_queries=1, request_id="f")
        except BaseException:
            os._exit(1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    ledger.reserve(CONFIDENT, n_queries=1, request_id="g")
    ledger.close()
    with Ledger(path) as other:
        other.reserve(CONFIDENT, n_queries=1, request_id="h")
    ledger.reserve(CONFIDENT, n_queries=1, request_id="i")
    assert len(ledger.entries()) == 9
    assert ledger.verify() == []
    ledger.close()


def test_entries_that_vanish_from_a_database_in_use_are_noticed(where):
    """As by a point-in-time recovery of a server; a connection may have lived through it, or be new."""
    with Ledger(where, budget=COUNT) as ledger:
        for k in range(4):
            ledger.reserve(CONFIDENT, n_queries=1, request_id=f"{k}")
        tables = ("terrine_entries", "terrine_counts")
        meddle(where, *(f"DELETE FROM {table} WHERE seq > 2" for table in tables))
        with pytest.raises(LedgerError, match=GONE):
            ledger.reserve(CONFIDENT, n_queries=1, request_id="new")
    with Ledger(where) as ledger:
        ledger.head()
        with Ledger(where) as other:
            other.reserve(CONFIDENT, n_queries=1, request_id="new")
            ledger.head()  # was read, never written
        meddle(where, *(f"DELETE FROM {table} WHERE seq > 2" for table in tables))
        with pytest.raises(LedgerError, match=GONE):
            ledger.head()
        with pytest.raises(LedgerError, match=GONE):
            ledger.claim("a", "0")


def test_a_database_that_drops_rows_is_noticed_before_it_commits(where):
    with Ledger(where, budget=COUNT) as ledger:
        ledger.reserve(CONFIDENT, n_queries=1, request_id="a")
        if postgres.on_server(where):
            with server().superuser(where) as connection:
                connection.execute("CREATE RULE lost AS ON INSERT TO terrine_answers DO INSTEAD NOTHING")
                connection.execute(
                    "CREATE FUNCTION lose() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$; "
                    "CREATE TRIGGER lost BEFORE INSERT ON terrine_entries FOR EACH ROW EXECUTE FUNCTION lose()"
                )
        else:
            body = "BEGIN SELECT RAISE(IGNORE); END"
            sql(where, f"CREATE TRIGGER lost BEFORE INSERT ON terrine_entries {body}")
        with pytest.raises(LedgerError, match="did not store every row"):
            ledger.reserve(CONFIDENT, n_queries=1, request_id="b")
        assert "the trigger lost is not the ledger's own: rows may be lost" in ledger.verify()
        assert len(ledger.entries()) == 1


def test_a_service_over_a_replaced_ledger_answers_503_and_is_not_ready(tmp_path):
    service = Service(tmp_path / "ledger.sqlite")
    with service.client() as http:
        assert label(http, rows_of(3), "a", key=service.key).status_code == 200
        assert http.get("/readyz").status_code == 200
        os.replace(back_up(tmp_path), tmp_path / "ledger.sqlite")
        for k in range(3):
            refused = label(http, rows_of(3, seed=k), f"{k}", key=service.key)
            assert refused.status_code == 503
            assert refused.json()["error"]["code"] == "ledger_unavailable"
        assert http.get("/readyz").status_code == 503
        assert http.get("/v1/budget", headers=bearer(service.key)).status_code == 503
        assert http.get("/metrics").status_code == 503
        assert http.get("/healthz").status_code == 200
    assert sql(tmp_path / "ledger.sqlite", "SELECT count(*) FROM terrine_answers") == [(3,)]


@pytest.mark.parametrize("n", [1, 3, 40, 150])
def test_an_older_copy_under_a_log_that_holds_newer_entries_forgets_no_charge(folder, n):
    """The newest entry has all totals: where it is still there nothing that was charged is lost; else it is refused."""
    path, charged = folder / "ledger.sqlite", 0
    budget = CountBudget(GNMax(sigma=40), n_queries=10**6, delta=1e-5)
    with Ledger(path, budget=budget) as ledger:
        ledger.reserve(GNMax(sigma=40), n_queries=1, request_id="a")
        copy = back_up(folder)
        for k in range(n):  # the log is emptied into the file now and then
            charged += len(
                ledger.reserve_each(GNMax(sigma=40), [Ask(request_id=f"{k} {j}", n_queries=1) for j in range(9)])
            )
        with path.open("r+b") as file:
            file.write(copy.read_bytes())
            file.truncate()
        try:
            ledger.reserve(GNMax(sigma=40), n_queries=1, request_id="b")
            assert ledger.remaining()["queries"] == 10**6 - charged - 2
        except LedgerError:
            with pytest.raises(LedgerError):
                ledger.reserve(GNMax(sigma=40), n_queries=1, request_id="c")
