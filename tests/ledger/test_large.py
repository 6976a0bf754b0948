"""No request and no poll reads more of a long ledger than of a short one; a start looks at its newest entries only."""

from __future__ import annotations

import re

import pytest
import sqlalchemy as sa
from tests import postgres
from tests.postgres import meddle, on_server
from tests.soak import amount

from terrine.budgets import CountBudget
from terrine.ledger import Ask, Kept, Ledger, audit
from terrine.mechanisms import GNMax, Outcome
from terrine.service.keys import Keys

where = postgres.where
MECHANISM = GNMax(sigma=40)
BUDGET = CountBudget(MECHANISM, n_queries=10**6, delta=1e-5)
ACCOUNTS = [f"account {k}" for k in range(20)]
TABLES = "entries|answers|requests|tree|counts"


def asks(name, n):
    return [
        Ask(request_id=f"{name}-{k}", digest="0", n_queries=1, account=ACCOUNTS[k % 20], quota=10**6) for k in range(n)
    ]


def filled(ledger, name, n):
    granted = ledger.reserve_each(MECHANISM, asks(name, n))
    return ledger.keep_each([(one, {f"{name}-{k}": Kept(1, Outcome.TEACHERS, True)}) for k, one in enumerate(granted)])


def verbs(ledger, keys, shown, name):
    """Whatever a request or a poll does."""
    filled(ledger, name, 20)
    first = ledger.head().seq // 3
    return {
        "reserve": lambda: ledger.reserve_each(MECHANISM, asks(f"{name}+", 20)),
        "keep": lambda: filled(ledger, f"{name}++", 20),
        "recall": lambda: ledger.recall_each([f"{name}-1", "another"], [f"{name}-1", "another"]),
        "claim": lambda: ledger.claim_each([(f"{name} claimed", "0")]),
        "summary": ledger.summary,
        "outcomes": ledger.outcomes,
        "remaining": ledger.remaining,
        "spent": ledger.spent,
        "head": ledger.head,
        "tree_head": ledger.tree_head,
        "proof": lambda: ledger.proof(first, ledger.head().seq),
        "accounts": ledger.accounts,
        "request": lambda: ledger.request(f"{name}-3"),
        "history": lambda: ledger.history(buckets=10),
        "find": lambda: (setattr(keys, "_read", -1e9), keys.find(shown)),
        "settle": lambda: ledger.settle(
            ledger.reserve(MECHANISM, n_queries=1, request_id=f"{name} s").request_id, n_answered=1
        ),
    }


class Steps:
    """Counts what SQLite's virtual machine does: it grows with every row that is read, and not with the machine."""

    def __init__(self, *stores):
        self.n = 0
        for store in stores:
            sa.event.listen(store._engine, "checkout", self.watch)
            store.close()

    def watch(self, connection, *_):
        connection.set_progress_handler(self.step, 1)

    def step(self):
        self.n += 1

    def of(self, verb):
        before = self.n
        verb()
        return self.n - before


def test_no_verb_does_more_work_in_a_longer_ledger(tmp_path):
    place = tmp_path / "ledger.sqlite"
    with Ledger(place, budget=BUDGET) as ledger:
        keys = Keys(place)
        shown = keys.create("someone")
        steps = Steps(ledger._store, keys._store)
        filled(ledger, "short", 60)
        short = {name: steps.of(verb) for name, verb in verbs(ledger, keys, shown, "one").items()}
        for k in range(20):
            filled(ledger, f"long {k}", 500)
        long = {name: steps.of(verb) for name, verb in verbs(ledger, keys, shown, "two").items()}
        assert ledger.head().seq > 20_000
        keys.close()
    grown = {name: (short[name], long[name]) for name in short if long[name] > 1.5 * short[name] + 200}
    assert not grown, grown  # a tree of 256 times the size has 8 levels more


def test_no_statement_of_a_verb_scans_a_table(where):
    with Ledger(where, budget=BUDGET) as ledger:
        keys = Keys(where)
        shown = keys.create("someone")
        filled(ledger, "a", 200)
        seen = []
        for store in (ledger._store, keys._store):
            sa.event.listen(store._engine, "before_cursor_execute", lambda *call: seen.append(call[2:4]))
        for verb in verbs(ledger, keys, shown, "b").values():
            verb()
        plans = {}
        with ledger._store.transaction(write=False) as now:
            if on_server(where):
                now.connection.exec_driver_sql(
                    "SET LOCAL enable_seqscan = off"
                )  # the table is small: it would not mind
            explain = "EXPLAIN" if on_server(where) else "EXPLAIN QUERY PLAN"
            for statement, values in seen:
                if re.match("(SELECT|WITH|INSERT)", statement) and "FOR UPDATE" not in statement:
                    one = values[0] if isinstance(values, list) else values  # of many rows
                    plan = now.connection.exec_driver_sql(f"{explain} {statement}", one).all()
                    plans[statement] = [str(row[-1]) for row in plan]
        keys.close()
    assert len(plans) > 12
    for statement, plan in plans.items():
        for step in plan:
            scans = re.search(rf"(SCAN|Seq Scan on) (terrine_({TABLES})|newest)", step)
            first_of_index = "ORDER BY" in statement and "LIMIT" in statement and "USING INDEX" in step
            smallest = "min(" in statement and "USING COVERING INDEX" in step  # the first of an index
            assert not scans or first_of_index or smallest, (statement, plan)


@pytest.fixture
def checked(where, monkeypatch):
    """A ledger of some transactions, and a start that looks at few of them."""
    monkeypatch.setattr(audit, "_RECENT", 30)
    with Ledger(where, budget=BUDGET) as ledger:
        for k in range(10):
            filled(ledger, f"{k}", 5)  # 100 entries
        filled(ledger, "one more", 1)
        yield where, ledger


def test_a_start_looks_at_the_newest_entries(checked):
    _, ledger = checked
    assert ledger.verify_recent() == ledger.verify() == []
    seen = []
    sa.event.listen(ledger._store._engine, "before_cursor_execute", lambda *call: seen.append(call[2:4]))
    ledger.verify_recent()
    ((_, values),) = [one for one in seen if "before_seq" in one[0]]
    assert "70" in str(values)  # 102 entries, and a transaction ended at the 70th


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        ("UPDATE terrine_entries SET time = time || 'x' WHERE seq = 90", "entry 90: does not match its digest"),
        ("UPDATE terrine_entries SET time = time || 'x' WHERE seq = 70", "entry 70: does not match its digest"),
        ("UPDATE terrine_entries SET total_queries = 0 WHERE seq = 102", "entry 102: has totals that do not add up"),
        ("UPDATE terrine_answers SET label = 2 WHERE entry = 100", "entry 100: its answers are not the ones"),
        ("DELETE FROM terrine_answers WHERE entry = 100", "entry 100: its answers are not the ones"),
        (
            "DELETE FROM terrine_requests WHERE request_id = '9-1'",
            "request '9-1': has a reservation, and its own row is missing",
        ),
        ("DELETE FROM terrine_entries WHERE seq = 85", "entry 86: comes after 84: an entry is missing"),
        ("UPDATE terrine_counts SET open = 7 WHERE seq = 95", "entry 95: the counts up to here are not what follows"),
        ("UPDATE terrine_tree SET hash = 'x' WHERE node = 64 - 1", "The ledger's tree lacks a node"),
        (
            f"UPDATE terrine_tree SET hash = '{'0' * 64}' WHERE node = 63",
            "the tree up to entry 70 or 102 is not the one",
        ),
        (f"UPDATE terrine_tree SET hash = '{'0' * 64}' WHERE node = 90", "the tree is not what follows"),
        ("DELETE FROM terrine_tree WHERE node = 90", "the tree is not what follows"),
        ("INSERT INTO terrine_keys VALUES ('0', 'eve', 'admin', NULL, '0', '0')", "key 0: it is not in the chain"),
    ],
)
def test_a_start_finds_what_is_wrong_there(checked, statement, problem):
    where, _ = checked
    meddle(where, statement)
    with Ledger(where) as again:
        found = again.verify_recent()
        assert any(problem in line for line in found), found


def test_what_a_start_does_not_see_a_verification_does(checked):
    """As docs/ledger.md says."""
    where, _ = checked
    meddle(where, "UPDATE terrine_entries SET account = 'eve' WHERE seq = 33")
    with Ledger(where) as again:
        assert again.verify_recent() == []
        assert any("entry 33: does not match its digest" in line for line in again.verify())


def test_a_million_rows_are_not_held_in_memory(where):
    """The audit asks for rows some thousands at a time, and lets them go."""
    import tracemalloc

    rounds = amount(5, soak=20)
    with Ledger(where, budget=BUDGET) as ledger:
        filled(ledger, "a", 200)
        assert ledger.verify() == []
        peaks = []
        for k in range(2):
            tracemalloc.start()
            assert ledger.verify() == []
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
            for j in range(rounds):
                filled(ledger, f"{k} {j}", 500) if k == 0 else None
        assert peaks[1] < peaks[0] + 6e5 * rounds  # of a thousand entries each: 2,000 of them are held at a time
