"""What a ledger's answers cost, published once: charged before it is computed, kept for ever. All of it is public.

The order on disk is that of a tested release: the header fixes the noise and the budget includes its cost; noise is
drawn, without votes, and kept in a secret file; the charge names it; votes and noise give the number, which is kept;
the noise is destroyed. A charge without its noise is never drawn for again.

Charge and number are entries of kinds of their own, since callers choose the names of requests. The database refuses a
second row of one name, part and kind.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from terrine.budgets import Budget, CostRelease, CountBudget, Spending
from terrine.errors import LedgerError
from terrine.ledger.chain import Page
from terrine.ledger.entries import COST, NUMBER, Entry, Part, is_digest

if TYPE_CHECKING:
    from terrine.ledger.store import Store
    from terrine.ledger.transaction import Transaction

NAME = "published cost"  # whom both entries belong to


@dataclass(frozen=True, kw_only=True)
class CostState:
    """A published cost that was charged.

    Attributes:
        asked: digest of the answers that it is about.
        noise: name of the noise that was paid for; no other may be used.
        secure: False for noise from a seeded sampler.
        number: None until it is kept; inf where there is no bound.
    """

    asked: str
    noise: str
    secure: bool
    number: float | None


class CostNumber:
    """The verbs of a ledger whose budget has a `cost_release`; `Ledger.cost` makes it."""

    def __init__(self, store: Store, start: str, budget: Budget) -> None:
        if not isinstance(budget, CountBudget) or budget.cost_release is None:
            raise LedgerError(
                f"The budget of {store.name} does not pay for publishing what its answers cost. It takes epsilon too, "
                "so it must be fixed before the first answer: begin a new ledger, or a run with publish_cost = true."
            )
        self._store, self._start = store, start
        self.release: CostRelease = budget.cost_release

    def state(self) -> CostState | None:
        """None before the charge."""
        with self._store.transaction(write=False) as now:
            return state_of(now)

    def charge(self, *, asked: str, noise: str, secure: bool) -> CostState:
        """Charge the number, once; where that was done before, by whomever, say for what.

        Args:
            asked: digest of the answers.
            noise: name of the noise that is kept for it.
            secure: False for noise from a seeded sampler.
        """
        if not is_digest(asked) or not noise:
            raise LedgerError("A number is charged for answers and noise that are fixed: name both.")
        with self._store.transaction(write=True) as now:
            found = state_of(now)
            if found is not None:
                return found
            if now.last() is None:
                raise LedgerError("The ledger has no answers yet: there is nothing to publish the cost of.")
            page = Page(now, self._start, accounts={""})
            page.add(Part(NAME, 1, COST, secure=secure, asked=asked), change=Spending(), noise=noise)
            page.write()
        return CostState(asked=asked, noise=noise, secure=secure, number=None)

    def keep(self, number: float) -> CostState:
        """Keep the number that was drawn; one that is kept stays."""
        with self._store.transaction(write=True) as now:
            found = state_of(now)
            if found is None:
                raise LedgerError("The number was not charged: nothing may be kept of it.")
            if found.number is None:
                page = Page(now, self._start, accounts={""})
                part = Part(NAME, 1, NUMBER, secure=found.secure, asked=repr(float(number)))
                page.add(part, change=Spending())
                page.write()
            return state_of(now) or found


def state_of(now: Transaction) -> CostState | None:
    """From the two entries."""
    entries = {entry.kind: entry for entry in now.of_request(NAME)}
    charged, kept = entries.get(COST), entries.get(NUMBER)
    if charged is None:
        return None
    return CostState(
        asked=charged.asked,
        noise=charged.answers_digest,
        secure=bool(charged.secure),
        number=None if kept is None else _number(kept),
    )


def problems(entry: Entry, now: Transaction, budget: Budget) -> Iterator[str]:
    """What an audit says of a charge or a number."""
    if not isinstance(budget, CountBudget) or budget.cost_release is None:
        yield "publishes a cost, which the budget does not pay for"
    as_made = (entry.request_id, entry.part, entry.account, entry.mechanism, entry.spending)
    if as_made != (NAME, 1, "", "", Spending()):
        yield "is not the one publication of the cost that a ledger pays for"
    if entry.kind == COST:
        if not is_digest(entry.asked) or not entry.answers_digest:
            yield "does not name the answers or the noise that it is about"
        return
    charged = next((one for one in now.of_request(NAME) if one.kind == COST and one.seq < entry.seq), None)
    if charged is None:
        yield "keeps a number that was not charged before"
    elif charged.secure != entry.secure:
        yield "keeps a number with other noise than was charged"
    if math.isnan(_number(entry)) or _number(entry) <= 0 or entry.answers_digest:
        yield "does not hold a number above 0"


def _number(entry: Entry) -> float:
    try:
        return float(entry.asked)
    except ValueError:
        return math.nan
