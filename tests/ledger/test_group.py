"""Several requests in one transaction, accounts and quotas, and what can be read of them."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np
import pytest
from tests import postgres
from tests.ledger.test_ledger import CONFIDENT, COUNT, FILTER

from terrine.budgets import CountBudget, Spending
from terrine.errors import BudgetError, InputError, LedgerError, QuotaError, RequestError
from terrine.ledger import Ask, Kept, Ledger, Reservation
from terrine.ledger.views import Point
from terrine.mechanisms import GNMax, Outcome

where = postgres.where
YES, NO = Kept(3, Outcome.TEACHERS, True), Kept(-1, Outcome.ABSTAINED, True)


def ask(name, n=2, digest=None, **options):
    return Ask(request_id=name, digest=name if digest is None else digest, n_queries=n, **options)


def test_several_requests_are_reserved_and_kept_in_one_transaction_each(where):
    with Ledger(where, budget=COUNT) as ledger:
        commits = []
        ledger._store._begin, begin = lambda **how: (commits.append(how), begin(**how))[1], ledger._store._begin
        found = ledger.reserve_each(CONFIDENT, [ask("a", 2), ask("b", 3), ask("a", 1)], secure=False)
        assert [(one.request_id, one.part, one.n_queries) for one in found] == [("a", 1, 2), ("b", 1, 3), ("a", 2, 1)]
        kept = ledger.keep_each(
            [(found[0], {"1": YES, "2": NO}), (found[1], {"2": YES, "3": YES, "4": NO}), (found[2], {"1": NO})]
        )
        assert commits == [{"write": True}] * 2
        insecure = {"1": YES._replace(secure=False), "2": NO._replace(secure=False), "3": YES._replace(secure=False)}
        assert kept == [
            {"1": insecure["1"], "2": insecure["2"]},
            {"2": insecure["2"], "3": insecure["3"], "4": insecure["2"]},  # the first answer to a query stands
            {"1": insecure["1"]},
        ]
        entries = ledger.entries()
        assert [entry.kind for entry in entries] == ["reserve"] * 3 + ["settle"] * 3
        assert [entry.n_answers for entry in entries] == [2, 3, 1, 1, 2, 0]
        assert entries[-1].total == Spending(queries=6, answers=3)
        assert ledger.verify() == []


def test_what_is_refused_is_its_own_error_and_writes_nothing(where):
    with Ledger(where, budget=COUNT) as ledger:
        ledger.reserve(CONFIDENT, n_queries=1, request_id="bare")
        before = len(ledger.entries())
        found = ledger.reserve_each(
            CONFIDENT,
            [
                ask("a", 20),
                ask("a", 1, digest="other"),
                ask("bare"),
                ask("", 1),
                ask("n", 0),
                ask("x", 1, account="a\nb"),
                ask("x", 1, quota=-1),
                ask("b", 20),
                ask("c", 1),
                ask("d", 1, digest=""),
            ],
        )
        kinds = [Reservation, RequestError, RequestError, *[InputError] * 4, Reservation, BudgetError, BudgetError]
        assert [type(one) for one in found] == kinds
        assert (found[0].n_queries, found[7].n_queries) == (20, 9)  # the second takes what is left
        assert len(ledger.entries()) == before + 2
        assert ledger.reserve_each(CONFIDENT, [ask("", 1)])[0].args == found[3].args
        assert ledger.reserve_each(CONFIDENT, []) == []
        ledger.settle("a", n_answered=0)
        ledger.settle("b", n_answered=0)
        (got,) = ledger.reserve_each(
            CONFIDENT, [ask("c", 1, digest="another")]
        )  # a refused one is not tied to its rows
        assert got == Reservation(request_id="c", part=1, n_queries=1)
        assert ledger.verify() == []


def test_keeping_is_all_or_nothing(where):
    with Ledger(where, budget=COUNT) as ledger:
        one, other = ledger.reserve_each(CONFIDENT, [ask("a", 1), ask("b", 1)])
        for bad, message in (
            ([(one, {"1": YES}), (other, {})], "1 answers were reserved, got 0"),
            ([(one, {"1": YES}), (one, {"2": YES})], "The reservation of request 'a' is already settled"),
            (
                [(one, {"1": YES}), (Reservation(request_id="c", part=1, n_queries=1), {"2": YES})],
                "There is no reservation of",
            ),
        ):
            with pytest.raises(LedgerError, match=message):
                ledger.keep_each(bad)
        assert len(ledger.entries()) == 2
        assert ledger.outcomes() == {"answered": 0, "withheld": 0, "reinforced": 0}
        ledger.keep_each([(one, {"1": YES}), (other, {"2": NO})])
        assert ledger.outcomes() == {"answered": 1, "withheld": 1, "reinforced": 0}


def test_an_account_is_charged_up_to_its_quota_and_not_beyond(where):
    with Ledger(where, budget=COUNT) as ledger:
        for n, granted in ((3, 3), (3, 2)):
            got = ledger.reserve_some(
                CONFIDENT, n_queries=n, request_id=f"a{n}{granted}", digest="0", account="ann", quota=5
            )
            assert got.n_queries == granted
        ledger.settle("a33", n_answered=0)  # gives back answers, and no query
        for verb, more in ((ledger.reserve, {}), (ledger.reserve_some, {"digest": "0"})):
            with pytest.raises(QuotaError) as caught:
                verb(CONFIDENT, n_queries=2, request_id="b", account="ann", quota=5, **more)
            assert (caught.value.requested, caught.value.remaining) == ("2 queries", "0 of 5 queries")
            assert str(caught.value) == (
                "Not enough quota for this account. The request needs 2 queries; left: 0 of 5 queries."
            )
        with pytest.raises(QuotaError, match="left: 1 of 6 queries"):
            ledger.reserve(CONFIDENT, n_queries=2, request_id="b", account="ann", quota=6)  # all or nothing
        ledger.reserve(CONFIDENT, n_queries=2, request_id="b", account="bob", quota=5)
        ledger.reserve(CONFIDENT, n_queries=1, request_id="c")
        with pytest.raises(BudgetError) as caught:
            ledger.reserve(CONFIDENT, n_queries=50, request_id="d", account="bob", quota=3)
        assert not isinstance(caught.value, QuotaError)
        assert ledger.accounts() == {
            "ann": Spending(queries=5, answers=2),
            "bob": Spending(queries=2, answers=2),
            "": Spending(queries=1, answers=1),
        }
        grants = ledger.reserve_each(CONFIDENT, [ask(name, 2, account="eve", quota=3) for name in "pqr"])
        assert [getattr(one, "n_queries", None) for one in grants] == [2, 1, None]
        assert isinstance(grants[2], QuotaError)
        assert ledger.verify() == []


def test_accounts_add_up_under_a_filter(where):
    with Ledger(where, budget=FILTER) as ledger:
        for k, account in enumerate(("ann", "bob", "ann")):
            ledger.reserve(CONFIDENT, n_queries=2, request_id=f"{k}", account=account)
            ledger.settle(f"{k}", n_answered=k)
        sums = ledger.accounts()
        assert sums["ann"] + sums["bob"] == ledger.entries()[-1].total
        assert sums["ann"] == FILTER.price(CONFIDENT, n_queries=4, n_answers=2)


def test_history_is_spread_over_all_entries_and_ends_with_the_newest(where):
    with Ledger(where, budget=CountBudget(GNMax(sigma=9), n_queries=100, delta=1e-5)) as ledger:
        assert ledger.history() == []
        ledger.reserve_each(GNMax(sigma=9), [ask(str(k), 1) for k in range(50)])
        for buckets in (1, 2, 7, 49, 50, 51, 200):
            points = ledger.history(buckets=buckets)
            assert len(points) == min(buckets, 50)
            assert points[-1].queries == points[-1].answers == 50
            assert points[-1].share_spent == 0.5
            assert buckets == 1 or points[0].queries == 1
            steps = np.diff([point.queries for point in points])
            assert not steps.size or steps.max() - steps.min() <= 1
        assert ledger.history()[3] == Point(time=ledger.entries()[3].time, queries=4, answers=4, share_spent=0.04)
        with pytest.raises(InputError, match="buckets"):
            ledger.history(buckets=0)


def test_a_request_can_be_looked_up(where):
    with Ledger(where, budget=COUNT) as ledger:
        assert ledger.request("a") is None
        ledger.claim("free", "0")
        one = ledger.reserve_some(CONFIDENT, n_queries=2, request_id="a", digest="0", account="ann")
        ledger.keep(one, {"1": YES, "2": NO})
        done = {"request_id": "a", "account": "ann", "parts": 1, "queries": 2, "answers": 1}
        assert asdict(ledger.request("a")) == done | {"unsettled": 0, "settled": True}
        ledger.reserve_some(CONFIDENT, n_queries=3, request_id="a", digest="0", account="ann")
        more = done | {"parts": 2, "queries": 5, "answers": 4}
        assert asdict(ledger.request("a")) == more | {"unsettled": 3, "settled": False}
        free = {"request_id": "free", "account": "", "parts": 0, "queries": 0, "answers": 0}
        assert asdict(ledger.request("free")) == free | {"unsettled": 0, "settled": True}


def test_claims_are_made_together_and_refused_one_by_one(where):
    with Ledger(where, budget=COUNT) as ledger:
        ledger.claim("a", "0")
        found = ledger.claim_each([("a", "0"), ("a", "1"), ("b", "1"), ("b", "1"), ("b", "2")])
        assert [type(one) for one in found] == [type(None), RequestError, type(None), type(None), RequestError]
        with pytest.raises(RequestError, match="Request 'b' was used before"):
            ledger.claim("b", "0")
        with pytest.raises(InputError, match="digest"):
            ledger.reserve_some(CONFIDENT, n_queries=1, request_id="c", digest="")


def test_no_verb_makes_a_statement_per_row_and_the_newest_entry_is_found_by_index(where):
    """Statements are counted as they reach the database."""
    import sqlalchemy as sa

    budget = CountBudget(CONFIDENT, n_queries=10_000, delta=1e-5)
    with Ledger(where, budget=budget) as ledger:
        seen = []
        sa.event.listen(ledger._store._engine, "before_cursor_execute", lambda *call: seen.append(call[2:6:3]))
        grants = ledger.reserve_each(CONFIDENT, [ask(f"r{k}", 20, account=f"{k}", quota=20) for k in range(64)])
        pairs = [(one, {f"{one.request_id}-{k}": YES for k in range(20)}) for one in grants]
        ledger.keep_each(pairs)
        known, _ = ledger.recall_each([query for _, answers in pairs for query in answers], [])
        assert len(known) == 1280
        assert len(seen) < 28
        if postgres.on_server(where):
            assert not any(many for _, many in seen)  # an executemany goes to the server once for each row
        with ledger._store.transaction(write=False) as now:
            newest = "SELECT * FROM terrine_entries ORDER BY seq DESC LIMIT 1"
            explain = "EXPLAIN" if postgres.on_server(where) else "EXPLAIN QUERY PLAN"
            plan = str(now.connection.exec_driver_sql(f"{explain} {newest}").all())
        assert "Index Scan Backward" in plan or ("SCAN terrine_entries" in plan and "TEMP B-TREE" not in plan)
