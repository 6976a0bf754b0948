"""Reading a whole ledger over again: whatever does not add up is said in one line."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator

from terrine.budgets import Budget, Spending, canonical, has_check, mechanism_from_json, mechanism_to_json
from terrine.errors import InputError
from terrine.ledger.entries import ENTRY_SCHEMA, RESERVE, SETTLE, Entry, Kept
from terrine.mechanisms import ABSTAIN, Outcome

_ROOM = 1e-9  # relative: searches for bounds end in other last digits on other machines


def problems(budget: Budget, entries: Iterable[Entry], answers: Iterable[tuple[str, Kept, int]]) -> list[str]:
    """Everything that is wrong with entries and answers; an empty list if nothing is."""
    audit = _Audit(budget)
    found = [f"entry {entry.seq}: {problem}" for entry in entries for problem in audit.entry(entry)]
    found += [f"answer {query[:8]}: {problem}" for query, kept, seq in answers for problem in audit.answer(kept, seq)]
    return found + list(audit.counts())


class _Audit:
    """What the ledger should look like by now."""

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self.seq = 0
        self.total = Spending()
        self.reserved: dict[tuple[str, int], Entry] = {}
        self.settled: dict[int, Entry] = {}
        self.done: set[tuple[str, int]] = set()
        self.kept: Counter[int] = Counter()
        self.given: Counter[int] = Counter()

    def entry(self, entry: Entry) -> Iterator[str]:
        if entry.seq != self.seq + 1:
            yield f"comes after {self.seq}: an entry is missing"
        self.seq = entry.seq
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
            self.reserved[part] = entry
        elif entry.kind == SETTLE:
            before = self.reserved.get(part)
            if before is None:
                yield "settles what was never reserved"
            else:
                change = entry.spending - before.spending
                same = ("mechanism", "n_queries", "secure")
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
        if entry.total != self.total:
            yield "has totals that do not add up"
            self.total = entry.total  # so that one slip is said once
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
        self.kept[seq] += 1
        self.given[seq] += kept.outcome == Outcome.TEACHERS

    def counts(self) -> Iterator[str]:
        """A draw may have been thrown away for an earlier answer, so that fewer are kept than were paid for."""
        for seq, entry in self.settled.items():
            if self.kept[seq] > entry.n_queries or self.given[seq] > entry.n_answers:
                yield f"entry {seq}: has more answers than it paid for"
