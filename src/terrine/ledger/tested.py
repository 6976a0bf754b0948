"""One tested release per ledger: charged whole before a vote is looked at, settled by its bit. All of it is public.

The order on disk: the ledger's header fixes the target; noise is drawn, without votes, and kept in a secret file; the
charge names that noise; votes and noise give answers and bit; the bit, and answers only where it is a pass, are kept in
one transaction; the noise is destroyed. A charge without its noise is never drawn for again.

Charge and bit have one name for all callers, and the database refuses a second row of one name, part and kind: there is
no second release, and no second bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from terrine.budgets import Budget, Spending, TestedBudget, canonical, mechanism_to_json
from terrine.errors import LedgerError, QuotaError
from terrine.ledger.chain import Page, Requests
from terrine.ledger.entries import RESERVE, SETTLE, Ask, Entry, Kept, Part, answers_digest

if TYPE_CHECKING:
    from terrine.ledger.store import Store
    from terrine.ledger.transaction import Transaction

RELEASE = "tested release"  # the request that charge and bit belong to
PASSED, FAILED = "passed", "failed"
Outcome = Literal["open", "passed", "failed"]
_NONE = answers_digest([])


@dataclass(frozen=True, kw_only=True)
class ReleaseState:
    """A tested release that was charged.

    Attributes:
        asked: digest of what it asks.
        noise: name of the noise that was paid for; no other may be used.
        account: on whose behalf.
        outcome: "open" until the bit is kept.
    """

    asked: str
    noise: str
    account: str
    outcome: Outcome


class TestedRelease:
    """The verbs of a ledger with a TestedBudget; `Ledger.tested` makes it."""

    __test__ = False  # not a test class, whatever its name

    def __init__(self, store: Store, start: str, budget: Budget) -> None:
        if not isinstance(budget, TestedBudget):
            raise LedgerError(f"The ledger {store.name} has no budget for a tested release.")
        self._store, self._start, self._budget = store, start, budget

    def state(self) -> ReleaseState | None:
        """None before the charge."""
        with self._store.transaction(write=False) as now:
            return state_of(now)

    def charge(self, ask: Ask, *, noise: str, secure: bool) -> ReleaseState:
        """Charge the whole budget, once; where that was done before, by whomever, say for what.

        Args:
            ask: digest of all queries; account and quota as elsewhere.
            noise: name of the noise that is kept for it.
            secure: False for noise from a seeded sampler.
        """
        if not ask.digest or not noise:
            raise LedgerError("A tested release is charged for queries and noise that are fixed: name both.")
        ask = ask.checked()
        with self._store.transaction(write=True) as now:
            found = state_of(now)
            if found is not None:
                return found
            page = Page(now, self._start, accounts={ask.account})
            requests = Requests({}, now.digests({ask.request_id}))
            if (refused := requests.refusal(ask)) is not None:
                raise refused
            limit = self._budget.limit
            if ask.quota is not None:
                left = max(ask.quota - page.spent_by(ask.account).queries, 0)
                if left < limit.queries:
                    raise QuotaError(f"{limit.queries} queries", f"{left} of {ask.quota} queries")
            text = canonical(mechanism_to_json(self._budget.mechanism))
            part = Part(RELEASE, 1, RESERVE, account=ask.account, mechanism=text, secure=secure, asked=ask.digest)
            page.add(part.costing(limit), change=limit, noise=noise)
            page.write()
            requests.next_part(ask)
            now.claim({**requests.claims, RELEASE: ask.digest})
        return ReleaseState(asked=ask.digest, noise=noise, account=ask.account, outcome="open")

    def settle(self, answers: Mapping[str, Kept] | None) -> Outcome:
        """Keep the bit and, where it is a pass, the answers; None: the test failed. A bit that is kept stays.

        Nothing is given back: the charge is that of the release, whatever its bit.
        """
        with self._store.transaction(write=True) as now:
            found = state_of(now)
            if found is None:
                raise LedgerError("The tested release was not charged: nothing may be kept of it.")
            if found.outcome != "open":
                return found.outcome
            reserved = now.of_parts([(RELEASE, 1)])[RELEASE, 1, RESERVE]
            kept = {query: one._replace(secure=reserved.secure) for query, one in (answers or {}).items()}
            if len(kept) > reserved.n_queries:
                raise LedgerError(f"{reserved.n_queries} answers were paid for, got {len(kept)}.")
            bit: Outcome = "failed" if answers is None else "passed"
            page = Page(now, self._start, accounts={reserved.account})
            page.add(reserved._replace(kind=SETTLE, asked=bit), change=Spending(), kept=kept)
            page.write()
            return bit


def refuse_others(budget: Budget, name: str) -> None:
    """What is not the one release is not charged to its ledger."""
    if isinstance(budget, TestedBudget):
        raise LedgerError(
            f"The ledger {name} pays for one tested release, all of it at once, and for nothing else. Ask a "
            "Labeller on it; for anything else begin a new ledger, whose epsilon and delta add to this one's."
        )


def state_of(now: Transaction) -> ReleaseState | None:
    """From the entries of the one release."""
    entries = {entry.kind: entry for entry in now.of_request(RELEASE)}
    reserved, settled = entries.get(RESERVE), entries.get(SETTLE)
    if reserved is None:
        return None
    outcome: Outcome = "open"
    if settled is not None:  # anything but a pass lets nothing out
        outcome = "passed" if settled.asked == PASSED else "failed"
    return ReleaseState(asked=reserved.asked, noise=reserved.answers_digest, account=reserved.account, outcome=outcome)


def problems(entry: Entry, row: Any, budget: TestedBudget) -> Iterator[str]:
    """What an audit says of a charge or a bit; ``row`` has, of a bit, the charge before it."""
    if (entry.request_id, entry.part) != (RELEASE, 1):
        yield "is not of the one release that this ledger pays for"
    if entry.spending != budget.limit:
        yield "does not charge the whole release"
    if entry.kind == RESERVE and not entry.answers_digest:
        yield "does not name its noise"
    if entry.kind == SETTLE:
        if entry.asked not in (PASSED, FAILED):
            yield "does not say whether the test passed"
        if entry.asked != PASSED and entry.answers_digest != _NONE:
            yield "keeps answers of a test that failed"
