"""The ledger's methods: reserve before noise is drawn, settle after; answers are stored with what they cost.

Each method is one transaction, for one request or several. The budget is checked inside it, under the write lock, so
that processes together cannot spend more than there is.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Self

from terrine import _validate
from terrine.accounting.curves import RdpCurve
from terrine.budgets import (
    SET_BACK,
    Budget,
    Spending,
    TestedBudget,
    budget_from_json,
    canonical,
    difference,
    has_check,
    mechanism_from_text,
    mechanism_to_json,
)
from terrine.errors import (
    BudgetError,
    InputError,
    LedgerError,
    OrderGridWarning,
    QuotaError,
    RequestError,
    TerrineError,
)
from terrine.ledger import audit
from terrine.ledger import views as reading
from terrine.ledger.chain import Page, Requests, other_rows
from terrine.ledger.cost import CostNumber
from terrine.ledger.derived import Derived
from terrine.ledger.entries import (
    LEDGER_SCHEMA,
    RESERVE,
    SETTLE,
    Ask,
    Entry,
    Head,
    Kept,
    Part,
    Proof,
    Reservation,
    TreeHead,
    checked_request_id,
    header_digest,
)
from terrine.ledger.tested import TestedRelease, refuse_others
from terrine.ledger.training import Training
from terrine.ledger.views import Point, RequestState, Summary
from terrine.mechanisms import Mechanism, Outcome

if TYPE_CHECKING:
    from terrine.ledger.transaction import Transaction


class Ledger:
    """A budget on disk, and everything charged to it. All that it holds is public.

    Args:
        where: a file, sqlite:///file or postgresql://user:password@host:port/database.
        budget: makes the ledger if there is none; must be the budget of one that exists. None opens what is there.
        secrets: a folder for noise that is kept while a release lasts, and for the outputs of a training (default: that
            of an SQLite file).

    Formal guarantees:
        Every answer given was charged at its worst case, on disk, before its noise was drawn. What is charged
        never exceeds the budget, whatever crashes and however many processes share the database; a reservation that a
        crash left behind stays charged. So `budget.guarantee()` holds for everything ever answered.
    """

    def __init__(self, where: str | Path, *, budget: Budget | None = None, secrets: str | Path | None = None) -> None:
        from terrine.ledger.store import Store

        self._store = Store(where)
        self._name = self._store.name
        self.secrets = self._store.folder if secrets is None else Path(secrets)
        header = self._store.header()
        if header is None:
            if budget is None:
                raise LedgerError(f"There is no ledger at {self._name}. Give a ledger's file or URL.")
            if isinstance(budget, TestedBudget):
                budget.check()
            made = {"schema": LEDGER_SCHEMA, "ledger_id": token_hex(16), "budget": canonical(budget.to_json())}
            self._store.create({**made, "digest": header_digest(made)})
            header = self._store.header() or {}
        self._budget = _budget(header, self._name)
        self._id = str(header["ledger_id"])
        self._start = self._store.start = str(header["digest"])
        if budget is not None and (differs := difference(self._budget, budget)):
            raise LedgerError(f"The ledger {self._name} was made with a different budget: {differs}. {SET_BACK}")

    @property
    def budget(self) -> Budget:
        return self._budget

    @property
    def id(self) -> str:
        """32 hex digits, drawn when the ledger was made."""
        return self._id

    @property
    def tested(self) -> TestedRelease:
        """The verbs of a ledger that pays for one tested release, and for nothing else."""
        return TestedRelease(self._store, self._start, self._budget)

    @property
    def cost(self) -> CostNumber:
        """The verbs of publishing, once, what the answers cost, where the budget pays for it."""
        return CostNumber(self._store, self._start, self._budget)

    @property
    def training(self) -> Training:
        """The verbs of a ledger that pays for the training of one probe, and for nothing else."""
        return Training(self._store, self._start, self._budget)

    def reserve(
        self,
        mechanism: Mechanism,
        *,
        n_queries: int,
        request_id: str,
        secure: bool = True,
        account: str = "",
        quota: int | None = None,
    ) -> Reservation:
        """Charge ``n_queries`` and an answer to each, before any noise is drawn.

        All or nothing: BudgetError if they do not fit, and nothing is written. An id that was used is refused, since
        two draws of noise may not share one charge.

        Args:
            secure: False for noise from a seeded sampler; it is recorded.
            account, quota: on whose behalf; at most ``quota`` queries are ever charged to it (QuotaError).
        """
        ask = Ask(request_id=request_id, n_queries=n_queries, account=account, quota=quota)
        return _only(self.reserve_each(mechanism, [ask], secure=secure))

    def reserve_some(
        self,
        mechanism: Mechanism,
        *,
        n_queries: int,
        request_id: str,
        digest: str,
        secure: bool = True,
        account: str = "",
        quota: int | None = None,
    ) -> Reservation:
        """`reserve` as many as fit, at least one; as one more part if the request already has some.

        Args:
            digest: of what the request asks; a different one under the same id is refused.
        """
        if not digest:
            raise InputError("digest must not be empty: it says what the request asks.")
        ask = Ask(request_id=request_id, digest=digest, n_queries=n_queries, account=account, quota=quota)
        return _only(self.reserve_each(mechanism, [ask], secure=secure))

    def reserve_each(
        self, mechanism: Mechanism, asks: Sequence[Ask], *, secure: bool = True
    ) -> list[Reservation | TerrineError]:
        """Grant each in order, in one transaction. A refused one writes nothing, and its error stands in its place."""
        refuse_others(self._budget, self._name)
        text = canonical(mechanism_to_json(mechanism))
        self._budget.price(mechanism, n_queries=1, n_answers=1)  # its bounds may take a second: not under the lock
        checked = [_checked(ask) for ask in asks]
        good = [ask for ask in checked if isinstance(ask, Ask)]
        if not good:
            return [ask for ask in checked if isinstance(ask, TerrineError)]
        with self._store.transaction(write=True) as now:
            page = Page(now, self._start, accounts={ask.account for ask in good})
            requests = Requests(now.parts(ids := {ask.request_id for ask in good}), now.digests(ids))
            found = [
                self._grant(page, requests, ask, mechanism, text, secure=secure) if isinstance(ask, Ask) else ask
                for ask in checked
            ]
            page.write()
            now.claim(requests.claims)
        return found

    def _grant(
        self, page: Page, requests: Requests, ask: Ask, mechanism: Mechanism, text: str, *, secure: bool
    ) -> Reservation | TerrineError:
        if (refused := requests.refusal(ask)) is not None:
            return refused
        budget, wanted = self._budget, ask.n_queries
        fits = budget.room(page.total, mechanism)
        if fits < (1 if ask.digest else wanted):
            asked = budget.price(mechanism, n_queries=wanted, n_answers=wanted)
            return BudgetError(budget.in_words(asked), budget.in_words(budget.limit - page.total, left=True))
        granted = min(wanted, fits)
        if ask.quota is not None:
            left = max(ask.quota - page.spent_by(ask.account).queries, 0)
            if left < (1 if ask.digest else wanted):
                return QuotaError(f"{wanted} queries", f"{left} of {ask.quota} queries")
            granted = min(granted, left)
        price = budget.price(mechanism, n_queries=granted, n_answers=granted)
        number = requests.next_part(ask)
        part = Part(ask.request_id, number, RESERVE, account=ask.account, mechanism=text, secure=secure)
        page.add(part._replace(asked=ask.digest).costing(price), change=price)
        return Reservation(request_id=ask.request_id, part=number, n_queries=granted)

    def settle(self, request_id: str, *, n_answered: int, part: int = 1) -> None:
        """Lower a reservation to its checks and the answers given: where the outcome was ⊥ no vote was released.

        Never raises a charge. Settling again with the same number does nothing; with a different one it is refused.
        """
        n_answered = _validate.integer("n_answered", n_answered, at_least=0)
        with self._store.transaction(write=True) as now:
            found = now.of_parts([(checked_request_id(request_id), part)])
            reserved = _reserved(found, request_id, part)
            settled = found.get((request_id, part, SETTLE))
            if settled is None:
                page = Page(now, self._start, accounts={reserved.account})
                self._settle(page, reserved, n_answered, {})
                page.write()
            elif settled.n_answers != n_answered:
                raise LedgerError(
                    f"{request_id!r}, part {part}, was settled with n_answered={settled.n_answers}, not {n_answered}."
                )

    def _settle(self, page: Page, reserved: Part, n_answered: int, kept: Mapping[str, Kept]) -> None:
        refuse_others(self._budget, self._name)
        mechanism = mechanism_from_text(reserved.mechanism)
        if not has_check(mechanism) and n_answered != reserved.n_queries:
            raise LedgerError(
                f"n_answered must be {reserved.n_queries}, the number of queries, got {n_answered}: a "
                "mechanism without a check answers every query."
            )
        if n_answered > reserved.n_queries:
            raise LedgerError(f"n_answered must be at most {reserved.n_queries}, as reserved, got {n_answered}.")
        price = self._budget.price(mechanism, n_queries=reserved.n_queries, n_answers=n_answered)
        if price.charge > reserved.charge:
            price = replace(price, charge=reserved.charge)
        settled = reserved._replace(kind=SETTLE, asked="").costing(price)
        page.add(settled, change=price - reserved.spending, kept=kept)

    def keep(self, reservation: Reservation, answers: Mapping[str, Kept]) -> dict[str, Kept]:
        """Settle a reservation and keep its answers, in one transaction; the answers it returns may be given out.

        A query that was answered meanwhile, by another process, has that answer: the one given here is thrown away,
        and stays charged.

        Args:
            answers: by query, for every query of the reservation; it pays for one draw only.
        """
        return self.keep_each([(reservation, answers)])[0]

    def keep_each(self, pairs: Sequence[tuple[Reservation, Mapping[str, Kept]]]) -> list[dict[str, Kept]]:
        """`keep` for several reservations, in one transaction: all of them or none."""
        for reservation, answers in pairs:
            if len(answers) != reservation.n_queries:
                raise LedgerError(f"{reservation.n_queries} answers were reserved, got {len(answers)}.")
        given, by_teachers = [], Outcome.TEACHERS
        with self._store.transaction(write=True) as now:
            found = now.of_parts([(reservation.request_id, reservation.part) for reservation, _ in pairs])
            known = now.kept({query: None for _, answers in pairs for query in answers})
            page = Page(now, self._start, accounts={entry.account for entry in found.values()})
            for reservation, answers in pairs:
                name, part = reservation.request_id, reservation.part
                reserved = _reserved(found, name, part)
                if (name, part, SETTLE) in found or reserved.n_queries != reservation.n_queries:
                    raise LedgerError(f"The reservation of request {name!r} is already settled.")
                found[name, part, SETTLE] = reserved
                fresh = {
                    query: answer if answer.secure == reserved.secure else answer._replace(secure=reserved.secure)
                    for query, answer in answers.items()
                    if query not in known
                }
                n_answered = sum(answer.outcome == by_teachers for answer in answers.values())
                self._settle(page, reserved, n_answered, fresh)
                known |= fresh
                given.append({query: known[query] for query in answers})
            page.write()
        return given

    def recall(self, queries: Iterable[str], *, request_id: str, digest: str) -> dict[str, Kept]:
        """The answers that these queries have had, under any request; a request that asked otherwise is refused."""
        known, asked = self.recall_each(list(queries), [checked_request_id(request_id)])
        if asked.get(request_id, digest) != digest:
            raise other_rows(request_id)
        return known

    def recall_each(
        self, queries: Collection[str], request_ids: Collection[str]
    ) -> tuple[dict[str, Kept], dict[str, str]]:
        """The answers that these queries have had; and digests of what these requests asked, where they are known."""
        with self._store.transaction(write=False) as now:
            return now.kept(queries), now.digests(request_ids)

    def claim(self, request_id: str, digest: str) -> None:
        """Tie a request that needs no reservation to what it asks."""
        if (refused := self.claim_each([(request_id, digest)])[0]) is not None:
            raise refused

    def claim_each(self, requests: Sequence[tuple[str, str]]) -> list[RequestError | None]:
        """Tie requests to what they ask, in one transaction; one that asked for other rows before is refused."""
        refused: list[RequestError | None] = []
        with self._store.transaction(write=True) as now:
            known = now.digests({name for name, _ in requests})
            new: dict[str, str] = {}
            for name, digest in requests:
                if name not in known:
                    known[name] = new[name] = digest
                refused.append(None if known[name] == digest else other_rows(name))
            now.claim(new)
        return refused

    def spent(self) -> RdpCurve:
        """The Rényi cost charged so far, reservations included. For progress bars: it is NOT a guarantee.

        How much was spent depends on what was answered, so that no guarantee follows from it: `budget.guarantee()`
        is the guarantee, from the first answer to the last.
        """
        with self._store.transaction(write=False) as now:
            return reading.spent(now, self._budget)

    def remaining(self) -> dict[str, float]:
        """What is left: queries and answers, or Rényi cost (rdp) at the filter's order. Reservations count as spent."""
        with self._store.transaction(write=False) as now:
            last = now.last()
        return self._budget.remaining(last.total if last else Spending())

    def head(self) -> Head:
        """The newest entry's number and digest; of an empty ledger, 0 and the header's."""
        with self._store.transaction(write=False) as now:
            last = now.last()
        return last.head if last else Head(0, self._start)

    def tree_head(self) -> TreeHead:
        """The head, and the root of the Merkle tree over all entries up to it."""
        with self._store.transaction(write=False) as now:
            return Derived.newest(now, now.last()).tree_head(self._start)

    def proof(self, first: int, second: int) -> Proof:
        """That the ledger of the second number of entries continues that of the first: see `Proof`."""
        with self._store.transaction(write=False) as now:
            found = reading.proof(now, first, second)
        if found is not None:
            return found
        self.upgrade()  # an older version wrote entries since
        return self.proof(first, second)

    def entries(self) -> list[Entry]:
        """All entries, the oldest first."""
        with self._store.transaction(write=False) as now:
            return list(now.entries())

    def accounts(self) -> dict[str, Spending]:
        """What was charged on whose behalf."""
        with self._store.transaction(write=False) as now:
            return now.accounts()

    def outcomes(self) -> dict[str, int]:
        """How many of the answers that are kept were answered, withheld or reinforced."""
        with self._store.transaction(write=False) as now:
            return Derived.newest(now, now.last()).counts.outcomes()

    def request(self, request_id: str) -> RequestState | None:
        """A request's parts and what was charged for them; None where it is not known."""
        with self._store.transaction(write=False) as now:
            return reading.request(now, checked_request_id(request_id))

    def history(self, *, buckets: int = 200) -> list[Point]:
        """Time, queries, answers and share of the budget used, at ``buckets`` entries or fewer, evenly spread."""
        buckets = _validate.integer("buckets", buckets, at_least=1)
        with self._store.transaction(write=False) as now:
            return reading.history(now, self._budget, buckets)

    def export(self) -> Iterator[str]:
        """Lines of JSON, at one moment: the header, every entry, every answer; enough to check the chain."""
        header = self._store.header() or {}
        with self._store.transaction(write=False) as now:
            yield from reading.export(now, header)

    def upgrade(self) -> None:
        """Build what this version stores with the entries, if an older one made the ledger or wrote to it since.

        The first method that writes does the same.
        """
        with self._store.transaction(write=True) as now:
            Page(now, self._start, accounts=())

    def verify(self, *, head: Head | None = None) -> list[str]:
        """What is wrong with the ledger, one line each; an empty list if nothing is.

        Args:
            head: one that was seen before: the ledger must still hold that entry, unchanged.
        """
        return self._store.damages() or self._verified(
            lambda now: audit.problems(now, self._budget, start=self._start, head=head)
        )

    def verify_recent(self) -> list[str]:
        """What is wrong with the newest entries, and with everything that they are checked against; for a start.

        From a checkpoint some thousands of entries back, which must be chained to the entry before it and in the
        newest tree. What was changed before it and not in the tree is for `verify` to see, and so is a damaged file.
        """
        return self._verified(lambda now: audit.recent_problems(now, self._budget, start=self._start))

    def _verified(self, look: Callable[[Transaction], list[str]]) -> list[str]:
        doubts = self._store.doubts()
        try:
            header = self._store.header() or {}
            now_budget = _budget(header, self._name)
        except LedgerError as error:
            return [*doubts, str(error)]
        if (now_budget, header["digest"]) != (self._budget, self._start):
            return [*doubts, "the header is not the one that the ledger was opened with"]
        if any(line.endswith("is gone") for line in doubts):  # a table
            return doubts
        with self._store.transaction(write=False) as now:
            return doubts + look(now)

    def summary(self) -> Summary:
        """Public numbers to show: the budget, its guarantee, what is spent, reserved and left."""
        with self._store.transaction(write=False) as now:
            last = now.last()
            derived = Derived.newest(now, last)
            test, cost = reading.test_of(now, self._budget), reading.cost_of(now, self._budget)
        spent = last.total if last else Spending()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", OrderGridWarning)  # it is among the notes
            guarantee = self._budget.guarantee()
        head, root = derived.tree_head(self._start)
        return Summary(
            ledger_id=self._id,
            head=str(head),
            root=root,
            budget=self._budget,
            guarantee=guarantee,
            secure=derived.counts.secure,
            entries=head.seq,
            queries=spent.queries,
            answers=spent.answers,
            unsettled=derived.counts.open,
            **derived.counts.outcomes(),
            remaining=self._budget.remaining(spent),
            test=test,
            cost=cost,
        )

    def close(self) -> None:
        """Close the database; a method called later opens it again."""
        self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Ledger {self._name}: {self._budget}>"


def _checked(ask: Ask) -> Ask | InputError:
    try:
        return ask.checked()
    except InputError as error:
        return error


def _only(found: list[Reservation | TerrineError]) -> Reservation:
    if isinstance(found[0], TerrineError):
        raise found[0]
    return found[0]


def _budget(header: Mapping[str, Any], name: str) -> Budget:
    if header.get("schema") != LEDGER_SCHEMA:
        raise LedgerError(f"{name} is not a ledger of schema {LEDGER_SCHEMA}.")
    text = header["budget"]
    try:
        budget = budget_from_json(json.loads(text))
    except ValueError:
        raise LedgerError(f"The budget in {name} is damaged. Restore the newest copy of the ledger.") from None
    if header_digest(header) != header["digest"] or canonical(budget.to_json()) != text:
        raise LedgerError(f"The budget in {name} was changed after the ledger was made. Do not use it.")
    return budget


def _reserved(found: Mapping[tuple[str, int, str], Part], request_id: str, part: int) -> Part:
    if (request_id, part, RESERVE) not in found:
        raise LedgerError(f"There is no reservation of request_id={request_id!r}, part={part}.")
    return found[request_id, part, RESERVE]
