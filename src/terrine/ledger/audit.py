"""Reading a whole ledger over again: whatever does not add up is said in one line."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from itertools import groupby
from typing import TYPE_CHECKING

from terrine.budgets import Budget, Spending, canonical, has_check, mechanism_from_json, mechanism_to_json
from terrine.errors import InputError
from terrine.ledger.entries import ENTRY_SCHEMA, RESERVE, SETTLE, Entry, Head, Kept, answers_digest
from terrine.mechanisms import ABSTAIN, Outcome

if TYPE_CHECKING:
    from terrine.ledger.store import Transaction

_ROOM = 1e-9  # relative: searches for bounds end in other last digits on other machines


def problems(now: Transaction, budget: Budget, *, start: str, head: Head | None) -> list[str]:
    """Everything that is wrong with entries, requests and answers; an empty list if nothing is.

    Args:
        start: the header's digest.
        head: one that someone kept.
    """
    audit = _Audit(budget, start, head)
    found = [f"entry {entry.seq}: {problem}" for entry in now.entries() for problem in audit.entry(entry)]
    found += audit.end()
    for seq, group in groupby(now.all_kept(), key=lambda row: row[2]):
        answers = [(query, kept) for query, kept, _ in group]
        found += [f"answer {query[:8]}: {problem}" for query, kept in answers for problem in audit.answer(kept, seq)]
        audit.kept[seq] = answers_digest(answers)
    return found + list(audit.counts()) + list(audit.requests(now.requests()))


class _Audit:
    """What the ledger should look like by now."""

    def __init__(self, budget: Budget, start: str, head: Head | None) -> None:
        self.budget = budget
        self.seq = 0
        self.digest = start
        self.head = head
        self.seen = start if head and head.seq == 0 else None  # the digest of the head's entry, as it is now
        self.total = Spending()
        self.accounts: dict[str, Spending] = {}
        self.asked: dict[str, str] = {}
        self.reserved: dict[tuple[str, int], Entry] = {}
        self.settled: dict[int, Entry] = {}
        self.done: set[tuple[str, int]] = set()
        self.n_kept: Counter[int] = Counter()
        self.given: Counter[int] = Counter()
        self.kept: dict[int, str] = {}  # digests of answers, by their settlement

    def entry(self, entry: Entry) -> Iterator[str]:
        if entry.seq != self.seq + 1:
            yield f"comes after {self.seq}: an entry is missing"
        self.seq = entry.seq
        if entry.chained(self.digest) != entry.digest:
            yield "does not match its digest: it, or one before it, was changed"
        self.digest = entry.digest  # so that one slip is said once
        if self.head and self.head.seq == entry.seq:
            self.seen = entry.digest
        numbers = [entry.part, *vars(entry.spending).values(), *vars(entry.total).values()]
        if not all(isinstance(number, int) for number in [*numbers, *vars(entry.account_total).values()]):
            yield "has a number that is none"
            return
        if entry.schema != ENTRY_SCHEMA:
            yield f"is not of schema {ENTRY_SCHEMA}"
        yield from self._priced(entry)
        part = (entry.request_id, entry.part)
        change = entry.spending
        if entry.kind == RESERVE:
            if part in self.reserved:
                yield "reserves what was reserved before"
            if entry.part != 1 and (entry.request_id, entry.part - 1) not in self.reserved:
                yield "is a later part without the one before"
            if entry.n_answers != entry.n_queries:
                yield "does not reserve an answer to every query"
            if self.asked.setdefault(entry.request_id, entry.asked) != entry.asked:
                yield "asks something else than the request's parts before"
            self.reserved[part] = entry
        elif entry.kind == SETTLE:
            before = self.reserved.get(part)
            if before is None:
                yield "settles what was never reserved"
            else:
                change = entry.spending - before.spending
                same = ("mechanism", "account", "n_queries", "secure")
                if any(getattr(before, name) != getattr(entry, name) for name in same):
                    yield "settles something else than was reserved"
                if change.answers > 0 or change.charge > 0:
                    yield "raises a charge"
            if part in self.done:
                yield "settles for a second time"
            self.done.add(part)
            self.settled[entry.seq] = entry
        else:
            yield "is neither a reservation nor a settlement"
        self.total = self.total + change
        spent = self.accounts.get(entry.account, Spending()) + change
        if (entry.total, entry.account_total) != (self.total, spent):
            yield "has totals that do not add up"
        self.total, self.accounts[entry.account] = entry.total, entry.account_total
        if not self.budget.holds(entry.total):
            yield "exceeds the budget"

    def _priced(self, entry: Entry) -> Iterator[str]:
        try:
            mechanism = mechanism_from_json(json.loads(entry.mechanism))
            price = self.budget.price(mechanism, n_queries=entry.n_queries, n_answers=entry.n_answers)
        except (InputError, ValueError):
            yield "has a mechanism that the budget does not know"
            return
        if canonical(mechanism_to_json(mechanism)) != entry.mechanism:
            yield "has a mechanism in another spelling"
        least = 0 if has_check(mechanism) else entry.n_queries
        if entry.n_queries < 1 or not least <= entry.n_answers <= entry.n_queries:
            yield "has impossible numbers of queries and answers"
        if entry.charge < price.charge * (1 - _ROOM):
            yield "is charged less than it costs"

    def end(self) -> Iterator[str]:
        """Whether the entry that someone saw is still there."""
        if self.head is None or self.seen == self.head.digest:
            return
        if self.head.seq == 0:
            yield "another ledger: its header is not the one that was seen"
        elif self.head.seq > self.seq:
            yield f"an older ledger was restored: it ends at entry {self.seq}, and entry {self.head.seq} was seen"
        else:
            yield f"entry {self.head.seq} is not the one that was seen: it was changed, or an older ledger was restored"

    def answer(self, kept: Kept, seq: int) -> Iterator[str]:
        if seq not in self.settled:
            yield f"was settled by entry {seq}, which is not there"
            return
        if kept.secure != self.settled[seq].secure:
            yield "and its entry disagree on how noise was drawn"
        if kept.outcome not in (Outcome.ABSTAINED, Outcome.TEACHERS, Outcome.REINFORCED):
            yield "has an outcome that there is not"
        elif (kept.label == ABSTAIN) != (kept.outcome == Outcome.ABSTAINED) or kept.label < ABSTAIN:
            yield "has a label that its outcome does not allow"
        self.n_kept[seq] += 1
        self.given[seq] += kept.outcome == Outcome.TEACHERS

    def counts(self) -> Iterator[str]:
        """A draw may have been thrown away for an earlier answer, so that fewer are kept than were paid for."""
        for seq, entry in self.settled.items():
            if self.n_kept[seq] > entry.n_queries or self.given[seq] > entry.n_answers:
                yield f"entry {seq}: has more answers than it paid for"
            if self.kept.get(seq, _NONE) != entry.answers_digest:
                yield f"entry {seq}: its answers are not those that it settled"

    def requests(self, known: Iterator[tuple[str, str]]) -> Iterator[str]:
        """What a request asks is in its reservations; one that needed none is known by its digest alone."""
        left = {name: digest for name, digest in self.asked.items() if digest}
        for name, digest in known:
            if self.asked.get(name, digest) != digest:
                yield f"request {name!r}: asks something else than was reserved for it"
            left.pop(name, None)
        yield from (f"request {name!r}: has a reservation and is not known" for name in left)


_NONE = answers_digest([])
