"""What can be read from a ledger: numbers to show, lines to export. All of it is public."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from terrine import _validate
from terrine._validate import JsonObject
from terrine.accounting.costs import worst_case_cost
from terrine.accounting.curves import Guarantee, RdpCurve
from terrine.budgets import (
    Budget,
    CountBudget,
    Spending,
    TestedBudget,
    TrainingBudget,
    canonical,
    mechanism_from_text,
)
from terrine.errors import InputError
from terrine.ledger import cost, merkle
from terrine.ledger.derived import Derived
from terrine.ledger.entries import LEDGER_SCHEMA, RESERVE, SETTLE, Head, Proof
from terrine.ledger.tested import RELEASE, state_of

if TYPE_CHECKING:
    from terrine.ledger.transaction import Transaction


CostKnown = Literal["unpublished", "charged", "published"]  # before the charge, before the number, and after it
TestState = Literal["unasked", "open", "passed", "failed"]  # before the charge, before the bit, and the bit


@dataclass(frozen=True, kw_only=True)
class Summary:
    """A ledger's numbers: its budget, the guarantee, and what is spent, reserved and left."""

    ledger_id: str
    head: str
    root: str
    budget: Budget
    guarantee: Guarantee
    secure: bool  # whether all noise was drawn by the secure sampler
    entries: int
    queries: int
    answers: int
    unsettled: int  # queries that are reserved and not settled: in flight, or left by a crash
    answered: int
    withheld: int
    reinforced: int
    remaining: dict[str, float]
    test: TestState | None = None  # of a tested release
    cost: CostKnown | None = None  # where the budget pays for publishing it

    def to_json(self) -> JsonObject:
        found = {"budget": self.budget.to_json(), "guarantee": self.guarantee.to_json()}
        told = {name: value for name, value in vars(self).items() if name not in ("test", "cost") or value is not None}
        return {"schema": LEDGER_SCHEMA, **told, **found}


@dataclass(frozen=True, kw_only=True)
class RequestState:
    """What was charged for a request, and whether all of it is settled."""

    request_id: str
    account: str
    parts: int
    queries: int
    answers: int
    unsettled: int
    settled: bool


@dataclass(frozen=True, kw_only=True)
class Point:
    """What was spent up to a time, and what share of the budget that is."""

    time: str
    queries: int
    answers: int
    share_spent: float


def proof(now: Transaction, first: int, second: int) -> Proof | None:
    """None if the stored tree ends before that."""
    first = _validate.integer("first", first, at_least=0)
    second = _validate.integer("second", second, at_least=first)
    last, counts = now.last(), now.counts(at_most=1 << 62)
    n_entries = last.seq if last else 0
    if second > n_entries:
        raise InputError(f"second must be at most {n_entries}, the number of entries, got {second}.")
    if second > (counts.seq if counts else 0):
        return None
    spans = {
        "path": merkle.consistency(first, second) if first else [],
        "first_path": merkle.inclusion(first - 1, second) if first else [],
        "second_path": merkle.inclusion(second - 1, second) if second else [],
    }
    found = {name: merkle.hashes_of(some, now.look_up) for name, some in spans.items()}
    root = merkle.folded(now.hashes(merkle.Span(0, second).nodes()))
    return Proof(first=first, second=second, root=root, **found)


def test_of(now: Transaction, budget: Budget) -> TestState | None:
    """What is known of a tested release's bit; None under other budgets."""
    if not isinstance(budget, TestedBudget):
        return None
    found = state_of(now)
    return "unasked" if found is None else found.outcome


def cost_of(now: Transaction, budget: Budget) -> CostKnown | None:
    """What is known of a published cost; None where the budget pays for none."""
    if not isinstance(budget, CountBudget) or budget.cost_release is None:
        return None
    found = cost.state_of(now)
    return "unpublished" if found is None else "charged" if found.number is None else "published"


def spent(now: Transaction, budget: Budget) -> RdpCurve:
    orders = budget.orders
    basis = "charged so far: progress, not a guarantee"
    curve = RdpCurve(orders, 0 * orders, basis)
    if isinstance(budget, TrainingBudget):
        last = now.last()
        return budget.cost.curve(orders).renamed(basis) if last and last.total == budget.limit else curve
    sums = Derived.newest(now, now.last()).counts.sums
    if isinstance(budget, TestedBudget):
        return RdpCurve(orders, np.array([budget.rdp]), basis) if sums else curve
    for text, (queries, answers) in sorted(sums.items()):
        mechanism = mechanism_from_text(text)
        worst = worst_case_cost(mechanism, n_queries=queries, n_answered=answers, orders=orders)
        curve = curve + worst.renamed(basis)
    if isinstance(budget, CountBudget) and budget.cost_release is not None and cost.state_of(now) is not None:
        curve = curve + budget.cost_release.curve(orders).renamed(basis)
    return curve


def request(now: Transaction, request_id: str) -> RequestState | None:
    entries = [entry for entry in now.of_request(request_id) if entry.kind in (RESERVE, SETTLE)]
    if not entries:
        known = now.digests([request_id, RELEASE])
        if request_id not in known:
            return None
        if known[request_id] == known.get(RELEASE):  # the release that it asked for
            entries = now.of_request(RELEASE)
    reserved = {entry.part: entry for entry in entries if entry.kind == RESERVE}
    settled = {entry.part: entry for entry in entries if entry.kind == SETTLE}
    charged = [settled.get(part, entry).spending for part, entry in reserved.items()]
    return RequestState(
        request_id=request_id,
        account=entries[0].account if entries else "",
        parts=len(reserved),
        queries=sum(part.queries for part in charged),
        answers=sum(part.answers for part in charged),
        unsettled=sum(entry.n_queries for part, entry in reserved.items() if part not in settled),
        settled=reserved.keys() <= settled.keys(),
    )


def history(now: Transaction, budget: Budget, buckets: int) -> list[Point]:
    last = now.last()
    if last is None:
        return []
    n = min(buckets, last.seq)
    seqs = {last.seq - (last.seq - 1) * k // max(n - 1, 1) for k in range(n)}  # the newest first, the oldest last
    return [
        Point(
            time=entry.time,
            queries=entry.total.queries,
            answers=entry.total.answers,
            share_spent=_share(budget, entry.total),
        )
        for entry in now.some_entries(seqs)
    ]


def export(now: Transaction, header: Mapping[str, Any]) -> Iterator[str]:
    last = now.last()
    head = last.head if last else Head(0, header["digest"])
    about = {name: header[name] for name in ("schema", "ledger_id", "budget", "digest")}
    yield canonical({"record": "header", **about, "head": str(head)})
    for entry in now.entries():
        yield canonical({"record": "entry", **entry.flat()})
    for query, kept, seq in now.all_kept():
        yield canonical({"record": "answer", "query": query, **kept._asdict(), "entry": seq})


def _share(budget: Budget, spent: Spending) -> float:
    """Of what runs out first."""
    used, limit = spent, budget.limit
    pairs = ((used.queries, limit.queries), (used.answers, limit.answers), (used.charge, limit.charge))
    return max(part / whole for part, whole in pairs if whole)
