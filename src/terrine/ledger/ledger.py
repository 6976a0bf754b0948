"""The ledger's verbs: reserve before noise is drawn, settle after; answers are kept with what they cost.

Each verb is one transaction. The budget is checked inside it, under the write lock, so that no number of processes can
spend more than there is.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from terrine import _validate
from terrine.accounting.costs import worst_case_cost
from terrine.accounting.curves import RdpCurve
from terrine.budgets import (
    Budget,
    Spending,
    budget_from_json,
    canonical,
    difference,
    has_check,
    mechanism_from_json,
    mechanism_to_json,
)
from terrine.errors import BudgetError, InputError, LedgerError, OrderGridWarning, RequestError
from terrine.ledger.audit import problems
from terrine.ledger.entries import LEDGER_SCHEMA, RESERVE, SETTLE, Entry, Kept, Reservation
from terrine.mechanisms import Mechanism, Outcome

if TYPE_CHECKING:
    from terrine.ledger.store import Transaction


class Ledger:
    """A budget on disk, and everything charged to it. All that it holds is public.

    Args:
        where: a file, or sqlite:///file.
        budget: makes the ledger if there is none; must be the budget of one that exists. None opens what is there.

    Formal guarantees:
        Every answer that leaves was charged at its worst case, on disk, before its noise was drawn. What is charged
        never exceeds the budget, whatever crashes and however many processes share the file; a reservation that a
        crash left behind stays charged. So `budget.guarantee()` holds for everything ever answered.
    """

    def __init__(self, where: str | Path, *, budget: Budget | None = None) -> None:
        from terrine.ledger.store import Store

        self._store = Store(where)
        self._name = self._store.path.name
        header = self._store.header()
        if header is None:
            if budget is None:
                raise LedgerError(f"Expected a ledger at {self._name}, got none; give a budget to make one.")
            text = canonical(budget.to_json())
            self._store.create(budget=text, digest=_sha256(text))
            header = self._store.header() or {}
        self._budget = _budget(header, self._name)
        if budget is not None and (differs := difference(self._budget, budget)):
            raise LedgerError(f"Expected the budget that {self._name} was made with: {differs}.")

    @property
    def budget(self) -> Budget:
        return self._budget

    def reserve(self, mechanism: Mechanism, *, n_queries: int, request_id: str, secure: bool = True) -> Reservation:
        """Charge so many queries and an answer to each, before any noise is drawn.

        All or nothing: BudgetError if they do not fit, and nothing is written. An id that was used is refused, since
        two draws of noise may not share one charge.

        Args:
            secure: False for noise from a seeded sampler; it is recorded.
        """
        return self._reserve(mechanism, n_queries, request_id, secure=secure, digest=None)

    def reserve_some(
        self, mechanism: Mechanism, *, n_queries: int, request_id: str, digest: str, secure: bool = True
    ) -> Reservation:
        """`reserve` as many as fit, but at least one; as a further part, where the request has some already.

        Args:
            digest: of what the request asks; another one under the same id is refused.
        """
        return self._reserve(mechanism, n_queries, request_id, secure=secure, digest=digest)

    def _reserve(
        self, mechanism: Mechanism, n_queries: int, request_id: str, *, secure: bool, digest: str | None
    ) -> Reservation:
        text = canonical(mechanism_to_json(mechanism))
        n_queries = _validate.integer("n_queries", n_queries, at_least=1)
        request_id = checked_request_id(request_id)
        budget = self._budget
        budget.price(mechanism, n_queries=1, n_answers=1)  # its bounds may take a second: not under the lock
        with self._store.transaction(write=True) as now:
            parts = now.parts(request_id)
            if digest is not None:
                _claim(now, request_id, digest)
            elif parts:
                raise RequestError(f"Expected a new request_id, got {request_id!r}, which has a reservation.")
            last = now.last()
            spent = last.total if last else Spending()
            fits = budget.room(spent, mechanism)
            granted = n_queries if digest is None else min(n_queries, fits)
            if not 0 < granted <= fits:
                asked = budget.price(mechanism, n_queries=n_queries, n_answers=n_queries)
                raise BudgetError(budget.in_words(asked), budget.in_words(budget.limit - spent, left=True))
            price = budget.price(mechanism, n_queries=granted, n_answers=granted)
            _append(now, last, RESERVE, request_id, parts + 1, text, price, price, secure=secure)
        return Reservation(request_id=request_id, part=parts + 1, n_queries=granted)

    def settle(self, request_id: str, *, n_answered: int, part: int = 1) -> None:
        """Lower a reservation to its checks and the answers that left: where the outcome was ⊥ no vote was released.

        Never raises a charge. Once more with the same number does nothing; with another it is refused.
        """
        n_answered = _validate.integer("n_answered", n_answered, at_least=0)
        with self._store.transaction(write=True) as now:
            reserved, settled = _part(now, checked_request_id(request_id), part)
            if settled is None:
                self._settle(now, reserved, n_answered)
            elif settled.n_answers != n_answered:
                raise LedgerError(
                    f"Expected n_answered={settled.n_answers}, as {request_id!r}, part {part}, was settled with, "
                    f"got n_answered={n_answered}."
                )

    def _settle(self, now: Transaction, reserved: Entry, n_answered: int) -> int:
        """The settling entry's number."""
        mechanism = mechanism_from_json(json.loads(reserved.mechanism))
        if not has_check(mechanism) and n_answered != reserved.n_queries:
            raise LedgerError(
                f"Expected n_answered={reserved.n_queries} (a mechanism without a check answers every query), "
                f"got n_answered={n_answered}."
            )
        if n_answered > reserved.n_queries:
            raise LedgerError(f"Expected n_answered <= {reserved.n_queries}, as reserved, got n_answered={n_answered}.")
        price = self._budget.price(mechanism, n_queries=reserved.n_queries, n_answers=n_answered)
        price = replace(price, charge=min(price.charge, reserved.charge))
        return _append(
            now,
            now.last(),
            SETTLE,
            reserved.request_id,
            reserved.part,
            reserved.mechanism,
            price,
            price - reserved.spending,
            secure=reserved.secure,
        )

    def keep(self, reservation: Reservation, answers: Mapping[str, Kept]) -> dict[str, Kept]:
        """Settle a reservation and keep its answers, in one transaction; what is returned may leave.

        A query that was answered meanwhile, by another process, has that answer: the one given here is thrown away,
        and stays charged.

        Args:
            answers: by query, for every query of the reservation; it pays for one draw only.
        """
        if len(answers) != reservation.n_queries:
            raise LedgerError(f"Expected {reservation.n_queries} answers, as were reserved, got {len(answers)}.")
        n_answered = sum(answer.outcome == Outcome.TEACHERS for answer in answers.values())
        with self._store.transaction(write=True) as now:
            reserved, settled = _part(now, reservation.request_id, reservation.part)
            if settled is not None or reserved.n_queries != reservation.n_queries:
                raise LedgerError(f"Expected an open reservation of {reservation.request_id!r}, got a settled one.")
            entry = self._settle(now, reserved, n_answered)
            earlier = now.kept(answers)
            fresh = {query: answer._replace(secure=reserved.secure) for query, answer in answers.items()}
            now.keep({query: answer for query, answer in fresh.items() if query not in earlier}, entry=entry)
        return {**fresh, **earlier}

    def recall(self, queries: Iterable[str], *, request_id: str, digest: str) -> dict[str, Kept]:
        """The answers that these queries have had, under any request; a request that asked otherwise is refused."""
        with self._store.transaction(write=False) as now:
            _same_request(now, checked_request_id(request_id), digest)
            return now.kept(queries)

    def claim(self, request_id: str, digest: str) -> None:
        """Tie a request that needs no reservation to what it asks."""
        with self._store.transaction(write=False) as now:
            if _same_request(now, request_id, digest):
                return
        with self._store.transaction(write=True) as now:
            _claim(now, request_id, digest)

    def spent(self) -> RdpCurve:
        """The Rényi cost charged so far, reservations included. For progress bars: it is NOT a guarantee.

        How much was spent depends on what was answered, so that no guarantee follows from it: `budget.guarantee()`
        is the guarantee, from the first answer to the last.
        """
        orders = self._budget.orders
        curve = RdpCurve(orders, 0 * orders, "charged so far: progress, not a guarantee")
        with self._store.transaction(write=False) as now:
            sums = list(now.sums())
        for text, queries, answers in sums:
            mechanism = mechanism_from_json(json.loads(text))
            cost = worst_case_cost(mechanism, n_queries=queries, n_answered=answers, orders=orders)
            curve = curve + RdpCurve(orders, cost.epsilons, curve.basis)
        return curve

    def remaining(self) -> dict[str, float]:
        """What is left: queries and answers, or Rényi cost (rdp) at the filter's order. Reservations count as spent."""
        with self._store.transaction(write=False) as now:
            return self._budget.remaining(_spent(now))

    def entries(self) -> list[Entry]:
        with self._store.transaction(write=False) as now:
            return list(now.entries())

    def verify(self) -> list[str]:
        """What is wrong with the ledger, one line each; an empty list if nothing is."""
        damages = self._store.damages()
        if damages:
            return damages
        try:
            now_budget = _budget(self._store.header() or {}, self._name)
        except LedgerError as error:
            return [str(error)]
        if now_budget != self._budget:
            return ["the budget is not the one that the ledger was opened with"]
        with self._store.transaction(write=False) as now:
            return problems(self._budget, now.entries(), now.all_kept())

    def summary(self) -> dict[str, Any]:
        """Public numbers to show: the budget, its guarantee, what is spent, reserved and left."""
        with self._store.transaction(write=False) as now:
            last, unsettled, secure = now.last(), now.unsettled(), now.all_secure()
        spent = last.total if last else Spending()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", OrderGridWarning)  # it is among the notes
            guarantee = self._budget.guarantee()
        return {
            "schema": LEDGER_SCHEMA,
            "budget": self._budget.to_json(),
            "guarantee": vars(guarantee),
            "secure": secure,
            "entries": last.seq if last else 0,
            "queries": spent.queries,
            "answers": spent.answers,
            "unsettled": unsettled,
            "remaining": self._budget.remaining(spent),
        }

    def close(self) -> None:
        """Let go of the file; a verb called later opens it again."""
        self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Ledger {self._name}: {self._budget}>"


def checked_request_id(request_id: Any) -> str:
    """1 to 200 printable characters."""
    if not isinstance(request_id, str) or not 1 <= len(request_id) <= 200 or not request_id.isprintable():
        raise InputError("Expected request_id to be 1 to 200 printable characters, got something else.")
    return request_id


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _budget(header: Mapping[str, Any], name: str) -> Budget:
    if header.get("schema") != LEDGER_SCHEMA:
        raise LedgerError(f"Expected {name} to be a ledger of schema {LEDGER_SCHEMA}, got another.")
    text = header["budget"]
    try:
        budget = budget_from_json(json.loads(text))
    except ValueError:
        raise LedgerError(f"Expected a budget in {name}, got a damaged one.") from None
    if _sha256(text) != header["budget_sha256"] or canonical(budget.to_json()) != text:
        raise LedgerError(f"Expected the budget that {name} was made with, got one that was changed.")
    return budget


def _spent(now: Transaction) -> Spending:
    last = now.last()
    return last.total if last else Spending()


def _append(
    now: Transaction,
    last: Entry | None,
    kind: str,
    request_id: str,
    part: int,
    mechanism: str,
    price: Spending,
    change: Spending,
    *,
    secure: bool,
) -> int:
    entry = Entry(
        seq=last.seq + 1 if last else 1,
        time=datetime.now(UTC).isoformat(timespec="milliseconds"),
        kind=kind,
        request_id=request_id,
        part=part,
        mechanism=mechanism,
        n_queries=price.queries,
        n_answers=price.answers,
        charge=price.charge,
        secure=secure,
        total=(last.total if last else Spending()) + change,
    )
    now.append(entry)
    return entry.seq


def _part(now: Transaction, request_id: str, part: int) -> tuple[Entry, Entry | None]:
    """A reservation, and what settled it."""
    found = now.part(request_id, part)
    if RESERVE not in found:
        raise LedgerError(f"Expected a reservation, got none of request_id={request_id!r}, part={part}.")
    return found[RESERVE], found.get(SETTLE)


def _same_request(now: Transaction, request_id: str, digest: str) -> bool:
    """Whether the request is known; one that asked something else is refused."""
    known = now.digest(request_id)
    if known is not None and known != digest:
        raise RequestError(f"Expected the rows that request {request_id!r} asked about before, got others.")
    return known is not None


def _claim(now: Transaction, request_id: str, digest: str) -> None:
    if not _same_request(now, request_id, digest):
        now.claim(request_id, digest)
