"""The ledger, in a file and on a server: reserve and settle against a plain model, refusals that write nothing."""

from __future__ import annotations

import os
import sqlite3
import tempfile
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests import postgres
from tests.postgres import MEMORY, meddle, on_server
from tests.soak import amount

from terrine.accounting.costs import worst_case_cost
from terrine.budgets import UNIT_BITS, CountBudget, FilterBudget
from terrine.errors import BudgetError, InputError, LedgerError, RequestError
from terrine.ledger import Kept, Ledger
from terrine.ledger.tables import METADATA
from terrine.mechanisms import ConfidentGNMax, GNMax, LNMax, Outcome
from terrine.service.keys import Keys

CONFIDENT = ConfidentGNMax(threshold=200, sigma_check=150, sigma_vote=40)
COUNT = CountBudget(CONFIDENT, n_queries=100, n_answers=30, delta=1e-5)
FILTER = FilterBudget(epsilon=1, delta=1e-5, order=20)
where = postgres.where


@pytest.fixture
def path():
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        yield Path(folder) / "ledger.sqlite"


def total(ledger):
    return ledger.entries()[-1].total if ledger.entries() else None


def test_a_reservation_is_the_worst_case_and_settling_lowers_it(where):
    with Ledger(where, budget=COUNT) as ledger:
        assert ledger.remaining() == {"queries": 100, "answers": 30}
        ledger.reserve(CONFIDENT, n_queries=20, request_id="a")
        assert ledger.remaining() == {"queries": 80, "answers": 10}
        ledger.settle("a", n_answered=3)
        assert ledger.remaining() == {"queries": 80, "answers": 27}
        ledger.settle("a", n_answered=3)  # once more: nothing
        first, second = ledger.entries()
        assert [(e.seq, e.kind, e.request_id, e.part, e.n_queries, e.n_answers) for e in (first, second)] == [
            (1, "reserve", "a", 1, 20, 20),
            (2, "settle", "a", 1, 20, 3),
        ]
        assert first.mechanism == '{"kind":"confident","sigma_check":150.0,"sigma_vote":40.0,"threshold":200.0}'
        assert first.time.endswith("+00:00")
        assert first.secure
        assert ledger.verify() == []


def test_what_does_not_fit_is_refused_and_nothing_is_written(where):
    ledger = Ledger(where, budget=COUNT)
    with pytest.raises(BudgetError) as caught:
        ledger.reserve(CONFIDENT, n_queries=31, request_id="a")
    assert str(caught.value) == (
        "Not enough budget. The request needs 31 queries and up to 31 answers; left: 100 queries and 30 answers."
    )
    with pytest.raises(InputError, match="This budget pays for"):
        ledger.reserve(GNMax(sigma=40), n_queries=1, request_id="a")
    for bad in (0, -1, 1.5, "one"):
        with pytest.raises(InputError, match="n_queries"):
            ledger.reserve(CONFIDENT, n_queries=bad, request_id="a")
    for bad in ("", "x" * 201, "a\nb", 7, None):
        with pytest.raises(InputError, match="request_id must be text of 1 to 200 printable characters"):
            ledger.reserve(CONFIDENT, n_queries=1, request_id=bad)
    assert ledger.entries() == []
    ledger.reserve(CONFIDENT, n_queries=30, request_id="a")


def test_two_draws_may_not_share_a_reservation(where):
    ledger = Ledger(where, budget=COUNT)
    reservation = ledger.reserve(CONFIDENT, n_queries=2, request_id="a")
    with pytest.raises(RequestError, match="Request 'a' was used before and has a reservation"):
        ledger.reserve(CONFIDENT, n_queries=2, request_id="a")
    answers = {"q1": Kept(3, Outcome.TEACHERS, True), "q2": Kept(-1, Outcome.ABSTAINED, True)}
    assert ledger.keep(reservation, answers) == answers
    with pytest.raises(LedgerError, match="The reservation of request 'a' is already settled"):
        ledger.keep(reservation, {"q3": Kept(1, Outcome.TEACHERS, True), "q4": Kept(-1, Outcome.ABSTAINED, True)})
    assert len(ledger.entries()) == 2
    assert ledger.recall(["q1", "q2", "q3"], request_id="b", digest="0") == answers


def test_settling_never_raises_a_charge(where):
    ledger = Ledger(where, budget=FILTER)
    ledger.reserve(CONFIDENT, n_queries=5, request_id="a")
    ledger.reserve(GNMax(sigma=40), n_queries=5, request_id="b")
    with pytest.raises(LedgerError, match="n_answered must be at most 5, as reserved, got 6"):
        ledger.settle("a", n_answered=6)
    with pytest.raises(InputError, match="n_answered must be a whole number of at least 0"):
        ledger.settle("a", n_answered=-1)
    with pytest.raises(LedgerError, match=r"n_answered must be 5, .*: a mechanism without a check answers every query"):
        ledger.settle("b", n_answered=4)
    with pytest.raises(LedgerError, match="There is no reservation of request_id='c', part=1"):
        ledger.settle("c", n_answered=1)
    ledger.settle("a", n_answered=5)
    ledger.settle("b", n_answered=5)
    with pytest.raises(LedgerError, match="'a', part 1, was settled with n_answered=5, not 4"):
        ledger.settle("a", n_answered=4)
    reserved, _, settled, _ = ledger.entries()
    assert settled.charge == reserved.charge
    assert ledger.verify() == []


def test_a_filter_takes_several_mechanisms_and_guarantees_the_whole_budget(where):
    with Ledger(where, budget=FILTER) as ledger:
        ledger.reserve(CONFIDENT, n_queries=10, request_id="a")
        ledger.settle("a", n_answered=4)
        ledger.reserve(LNMax(scale=300), n_queries=6, request_id="b")
        by_hand = (
            worst_case_cost(CONFIDENT, n_queries=10, n_answered=4, orders=[20]).epsilons
            + worst_case_cost(LNMax(scale=300), n_queries=6, orders=[20]).epsilons
        )
        np.testing.assert_allclose(ledger.spent().epsilons, by_hand, rtol=1e-12)
        assert total(ledger).charge / 2**UNIT_BITS == pytest.approx(by_hand[0], rel=1e-12)
        left = ledger.remaining()
        assert left["rdp"] == pytest.approx(FILTER.limit.charge / 2**UNIT_BITS - by_hand[0], rel=1e-9)
        assert 0 < left["share"] < 1
        assert "not a guarantee" in ledger.spent().basis
        assert ledger.summary().guarantee.epsilon == 1  # whatever was spent
        with pytest.raises(BudgetError, match=r"needs 1000 queries at a Rényi cost of 8\.34") as caught:
            ledger.reserve(CONFIDENT, n_queries=1000, request_id="c")
        assert "left: a Rényi cost of 0.5" in str(caught.value)


def test_a_filter_is_filled_to_the_brim_and_not_beyond(where):
    ledger = Ledger(where, budget=FILTER)
    fits = FILTER.room(FILTER.price(CONFIDENT, n_queries=0, n_answers=0), CONFIDENT)
    ledger.reserve(CONFIDENT, n_queries=fits, request_id="most")
    for n_queries in (1, 10**12):
        with pytest.raises(BudgetError):
            ledger.reserve(CONFIDENT, n_queries=n_queries, request_id="more")
    some = ledger.reserve_some(LNMax(scale=60_000), n_queries=10**12, request_id="tiny", digest="0")
    assert 0 < some.n_queries < 10**12
    with pytest.raises(BudgetError):
        ledger.reserve(LNMax(scale=60_000), n_queries=1, request_id="more")
    assert ledger.verify() == []


def test_reserve_some_takes_what_fits_in_numbered_parts(where):
    ledger = Ledger(where, budget=COUNT)
    parts = [ledger.reserve_some(CONFIDENT, n_queries=20, request_id="a", digest="0") for _ in range(2)]
    assert [(part.part, part.n_queries) for part in parts] == [(1, 20), (2, 10)]
    with pytest.raises(BudgetError, match="needs 20 queries and up to 20 answers; left: 70 queries and 0 answers"):
        ledger.reserve_some(CONFIDENT, n_queries=20, request_id="a", digest="0")
    ledger.settle("a", n_answered=5, part=2)
    with pytest.raises(RequestError, match="Request 'a' was used before, for other rows"):
        ledger.reserve_some(CONFIDENT, n_queries=1, request_id="a", digest="1")
    assert ledger.reserve_some(CONFIDENT, n_queries=20, request_id="a", digest="0").n_queries == 5
    assert ledger.verify() == []


def test_a_refused_request_is_not_tied_to_its_rows(where):
    ledger = Ledger(where, budget=CountBudget(GNMax(sigma=1), n_queries=1, delta=1e-5))
    ledger.reserve(GNMax(sigma=1), n_queries=1, request_id="first")
    with pytest.raises(BudgetError):
        ledger.reserve_some(GNMax(sigma=1), n_queries=2, request_id="a", digest="0")
    assert ledger.recall([], request_id="a", digest="1") == {}


class Model(RuleBasedStateMachine):
    """The ledger against a dict: what is left is brute-forced from every part's own numbers."""

    def __init__(self):
        super().__init__()
        self.where = self.place()
        self.ledger = Ledger(self.where, budget=COUNT)
        self.parts = {}  # (request, part): [queries, answers, open]
        self.names = 0

    def place(self):
        self.folder = tempfile.TemporaryDirectory(dir=MEMORY)
        return f"{self.folder.name}/l.sqlite"

    def spent(self):
        return sum(q for q, _, _ in self.parts.values()), sum(a for _, a, _ in self.parts.values())

    def fits(self, n):
        queries, answers = self.spent()
        return queries + n <= 100 and answers + n <= 30

    @rule(n=st.integers(1, 40))
    def reserve(self, n):
        self.names += 1
        if self.fits(n):
            self.ledger.reserve(CONFIDENT, n_queries=n, request_id=f"r{self.names}")
            self.parts[f"r{self.names}", 1] = [n, n, True]
        else:
            with pytest.raises(BudgetError):
                self.ledger.reserve(CONFIDENT, n_queries=n, request_id=f"r{self.names}")

    @rule(n=st.integers(1, 40), name=st.sampled_from(["x", "y"]))
    def reserve_some(self, n, name):
        most = max((k for k in range(n + 1) if self.fits(k)), default=0)
        if most == 0:
            with pytest.raises(BudgetError):
                self.ledger.reserve_some(CONFIDENT, n_queries=n, request_id=name, digest=name)
        else:
            got = self.ledger.reserve_some(CONFIDENT, n_queries=n, request_id=name, digest=name)
            assert got.n_queries == most
            assert got.part == 1 + sum(who == name for who, _ in self.parts)
            self.parts[name, got.part] = [most, most, True]

    @precondition(lambda self: self.parts)
    @rule(data=st.data())
    def settle(self, data):
        (name, part), (queries, answers, is_open) = data.draw(st.sampled_from(sorted(self.parts.items())))
        n = data.draw(st.integers(0, queries + 1))
        if n > queries or (not is_open and n != answers):
            with pytest.raises(LedgerError):
                self.ledger.settle(name, n_answered=n, part=part)
        else:
            self.ledger.settle(name, n_answered=n, part=part)
            self.parts[name, part] = [queries, n, False]

    @rule()
    def reopen(self):
        self.ledger.close()
        self.ledger = Ledger(self.where)

    @invariant()
    def adds_up(self):
        queries, answers = self.spent()
        assert self.ledger.remaining() == {"queries": 100 - queries, "answers": 30 - answers}

    def teardown(self):
        assert self.ledger.summary().unsettled == sum(q for q, _, is_open in self.parts.values() if is_open)
        assert self.ledger.verify() == []
        self.ledger.close()
        self.leave()

    def leave(self):
        self.folder.cleanup()


class OnServer(Model):
    def place(self):
        return postgres.server().database()

    def leave(self):
        pass


Model.TestCase.settings = settings(max_examples=amount(8, soak=60), stateful_step_count=25, deadline=None)
OnServer.TestCase.settings = settings(max_examples=amount(3, soak=20), stateful_step_count=25, deadline=None)
TestModel = Model.TestCase
TestModelOnServer = OnServer.TestCase


def test_opening_needs_a_ledger_and_its_own_budget(where):
    name = "postgresql://127.0.0.1/test" if on_server(where) else "ledger.sqlite"
    with pytest.raises(LedgerError, match=f"There is no ledger at {name}"):
        Ledger(where)
    assert on_server(where) or not Path(where).exists()
    with Ledger(where, budget=COUNT) as made:
        made.reserve(CONFIDENT, n_queries=2, request_id="a")
        assert set(made.id) <= set("0123456789abcdef")
        assert len(made.id) == 32
    for spelling in [where] if on_server(where) else [where, Path(where), f"sqlite:///{where}"]:
        with Ledger(spelling) as opened, Ledger(spelling, budget=COUNT) as checked:
            assert opened.budget == checked.budget == COUNT
            assert opened.id == made.id
            assert checked.remaining() == {"queries": 98, "answers": 28}
    other = CountBudget(CONFIDENT, n_queries=100, n_answers=31, delta=1e-5)
    with pytest.raises(LedgerError, match=r"different budget: ε = .*\(n_answers=30, not n_answers=31\)\. Set"):
        Ledger(where, budget=other)
    assert repr(Ledger(where)).startswith(f"<Ledger {name}")
    assert repr(Ledger(where)).endswith(f": {COUNT}>")


@pytest.mark.parametrize(
    ("place", "message"),
    [
        (":memory:", "A ledger must be a file: a database in memory"),
        ("sqlite://", "A ledger is a file's path, sqlite:///path or postgresql://.*, not sqlite://"),
        ("", "A ledger is a file's path, sqlite:///path or postgresql://.*, not str"),
        (None, "A ledger is a file's path, sqlite:///path or postgresql://.*, not NoneType"),
        ("mysql://someone:secret@host/db", r"not mysql://"),
        ("postgresql://someone:secret@127.0.0.1:port/db", "this URL cannot be read, or names no database"),
        ("postgresql://someone:secret@127.0.0.1", "this URL cannot be read, or names no database"),
        ("postgresql:someone:secret@127.0.0.1/db", "this has none of these forms"),
        (Path("postgresql://someone:secret@127.0.0.1/db"), "this has none of these forms"),
        (
            "/nowhere/at/all/ledger.sqlite",
            "The ledger ledger.sqlite cannot be used: unable to open database file",
        ),
    ],
)
def test_what_is_no_ledger_is_refused_in_one_line(place, message):
    with pytest.raises(LedgerError, match=message) as caught:
        Ledger(place, budget=COUNT)
    assert "\n" not in str(caught.value)
    assert "secret" not in str(caught.value)
    assert "someone" not in str(caught.value)


def test_other_files_are_refused(tmp_path):
    (tmp_path / "text").write_text("not a database" * 500)
    with pytest.raises(LedgerError, match="The ledger text cannot be used: file is not a database"):
        Ledger(tmp_path / "text", budget=COUNT)
    (tmp_path / "empty").touch()
    with pytest.raises(LedgerError, match="There is no ledger at empty"):
        Ledger(tmp_path / "empty")
    with Ledger(tmp_path / "empty", budget=COUNT) as made:  # as after a crash while it was made
        assert made.verify() == []


def test_a_ledger_of_the_first_schema_is_refused_in_one_line(where):
    columns = "id INTEGER PRIMARY KEY, schema VARCHAR(40), budget TEXT, budget_sha256 VARCHAR(64)"
    meddle(
        where,
        f"CREATE TABLE terrine_ledger ({columns})",
        "INSERT INTO terrine_ledger VALUES (1, 'terrine.ledger/1', '{}', '')",
        *(["GRANT SELECT ON terrine_ledger TO PUBLIC"] if on_server(where) else []),
    )
    with pytest.raises(LedgerError, match=r"is not a ledger of schema terrine\.ledger/2"):
        Ledger(where, budget=COUNT)


def test_a_commit_is_on_disk_before_the_verb_returns(where):
    """As the engine's own connections have it, whatever the database's default is."""
    if on_server(where):
        meddle(where, "ALTER DATABASE " + where.rpartition("/")[2] + " SET synchronous_commit = off")
        expected = {"SHOW synchronous_commit": "on", "SHOW fsync": "on", "SHOW lock_timeout": "1min"}
        expected |= {"SHOW transaction_isolation": "read committed"}
    else:
        expected = {"PRAGMA synchronous": 2, "PRAGMA journal_mode": "wal"}
    with Ledger(where, budget=COUNT) as ledger, ledger._store.transaction(write=True) as now:
        assert {ask: now.connection.exec_driver_sql(ask).scalar() for ask in expected} == expected


def filled(where):
    """A ledger with settled, open and sliced parts and some answers."""
    ledger = Ledger(where, budget=COUNT)
    one = ledger.reserve_some(CONFIDENT, n_queries=2, request_id="a", digest="0")
    ledger.keep(one, {"1" * 64: Kept(3, Outcome.TEACHERS, True), "2" * 64: Kept(-1, Outcome.ABSTAINED, True)})
    ledger.reserve_some(CONFIDENT, n_queries=3, request_id="a", digest="0")
    ledger.reserve(CONFIDENT, n_queries=4, request_id="b", secure=False)
    ledger.settle("b", n_answered=2)
    return ledger


@pytest.mark.parametrize("table", METADATA.tables)
def test_the_database_itself_refuses_to_change_or_delete_a_row(where, table):
    with filled(where) as ledger:
        keys = Keys(where)
        keys.create("someone")
        keys.revoke("someone")
        keys.close()
        column = METADATA.tables[table].columns.keys()[0]
        verbs = [f"UPDATE {table} SET {column} = {column}", f"DELETE FROM {table}"]
        for statement in [*verbs, f"TRUNCATE {table} CASCADE"] if on_server(where) else verbs:
            with (
                pytest.raises(LedgerError, match="a ledger is only ever added to"),
                ledger._store.transaction(write=True) as now,
            ):
                now.connection.exec_driver_sql(statement)
        assert len(ledger.entries()) == 7
        assert ledger.verify() == []


def test_a_clean_ledger_is_read_where_nothing_can_be_written(tmp_path, monkeypatch):
    path = tmp_path / "a ledger? 100%.sqlite"
    with Ledger(path, budget=COUNT) as ledger:
        ledger.reserve(CONFIDENT, n_queries=20, request_id="a")
        head = ledger.head()
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
    monkeypatch.setattr(os, "access", lambda where, mode: False)  # root may write anywhere
    with Ledger(path) as ledger:
        assert ledger.verify(head=head) == []
        assert len(list(ledger.export())) == 2
        assert [file.name for file in tmp_path.iterdir()] == [path.name]  # no log beside it, nor an index of one
        with pytest.raises(LedgerError, match="readonly"):
            ledger.settle("a", n_answered=3)
    (tmp_path / f"{path.name}-wal").touch()  # someone writes to it
    with Ledger(path) as ledger:
        ledger.settle("a", n_answered=3)


def test_a_damaged_file_is_found(path):
    filled(path).close()
    whole = bytearray(path.read_bytes())
    assert len(whole) > 3 * 4096
    for page in range(2, len(whole) // 4096):
        whole[page * 4096 + 8 : page * 4096 + 600] = os.urandom(592)
    path.write_bytes(whole)
    try:
        found = Ledger(path).verify()
    except LedgerError as error:
        found = [str(error)]
    assert found
    assert all("\n" not in line for line in found)


def test_a_table_without_its_guard_is_told(where):
    with filled(where) as ledger:
        if on_server(where):
            meddle(where, "ALTER TABLE terrine_answers DISABLE TRIGGER ALL")
            assert ledger.verify() == ["the trigger terrine_answers_no_change is gone: rows may have been changed"]
        else:
            with sqlite3.connect(where) as raw:
                raw.execute("DROP TRIGGER terrine_entries_no_delete")
            raw.close()
            assert ledger.verify() == ["the trigger terrine_entries_no_delete is gone: rows may have been changed"]


def test_what_may_be_shown_is_plain_and_complete(where):
    with filled(where) as ledger:
        shown = ledger.summary()
    assert (shown.budget, shown.guarantee) == (COUNT, COUNT.guarantee())
    assert (shown.ledger_id, shown.head) == (ledger.id, str(ledger.head()))
    assert shown.to_json()["budget"] == COUNT.to_json()
    assert shown.to_json()["guarantee"]["relation"] == "one_teacher"
    numbers = {
        name: getattr(shown, name) for name in ("secure", "entries", "queries", "answers", "unsettled", "remaining")
    }
    assert numbers == {
        "secure": False,
        "entries": 5,
        "queries": 9,
        "answers": 6,
        "unsettled": 3,
        "remaining": {"queries": 91, "answers": 24},
    }


def test_threads_share_a_ledger(where):
    ledger, refused = Ledger(where, budget=CountBudget(GNMax(sigma=1), n_queries=20, delta=1e-5)), []

    def spend(name):
        for k in range(8):
            try:
                ledger.reserve(GNMax(sigma=1), n_queries=1, request_id=f"{name}-{k}")
            except BudgetError:
                refused.append(name)

    threads = [threading.Thread(target=spend, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(refused) == 12
    assert ledger.remaining() == {"queries": 0, "answers": 0}
    assert ledger.verify() == []
