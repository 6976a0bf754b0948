"""Reads a ledger again, entry by entry, in constant memory; everything that does not add up is one line."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import groupby
from typing import TYPE_CHECKING, Any

from terrine.budgets import (
    Budget,
    Spending,
    TestedBudget,
    canonical,
    has_check,
    mechanism_from_json,
    mechanism_to_json,
)
from terrine.errors import InputError, LedgerError
from terrine.ledger import cost, merkle, tested, training
from terrine.ledger.derived import Derived
from terrine.ledger.entries import (
    BEGUN,
    COST,
    ENTRY_SCHEMA,
    KEY,
    NUMBER,
    OUTPUT,
    RESERVE,
    REVOKE,
    SETTLE,
    TRAIN,
    Entry,
    Head,
    Kept,
    answers_digest,
    row_digest,
)
from terrine.mechanisms import ABSTAIN, Outcome

if TYPE_CHECKING:
    from terrine.ledger.transaction import Transaction

_ROOM = 1e-9  # relative: searches for bounds end in other last digits on other machines
_STEP_BACK = timedelta(seconds=5)  # servers of an older version shared a ledger, each with its own clock
_ACCOUNTS = 10_000  # whose totals are in memory
_RECENT = 5_000  # entries, at least, that a start looks at
_NONE = answers_digest([])


def problems(now: Transaction, budget: Budget, *, start: str, head: Head | None) -> list[str]:
    """Everything that is wrong with entries, requests, answers, keys, counts and tree; an empty list if nothing is.

    Args:
        start: the header's digest.
        head: one that someone kept.
    """
    return [*_Audit(now, budget, start=start, head=head).lines(), *_keys(now)]


def recent_problems(now: Transaction, budget: Budget, *, start: str) -> list[str]:
    """What is wrong with the newest entries, after a checkpoint that the stored tree connects to the newest root."""
    last = now.last()
    found = now.counts(at_most=last.seq - _RECENT) if last else None
    if last is None or found is None:
        return problems(now, budget, start=start, head=None)
    try:
        since = Derived.stored(now, at_most=found.seq)
        wrong = list(_checkpoint(now, since))
    except LedgerError as error:
        return [str(error)]
    entries = now.some_entries([found.seq])
    if wrong or not entries:
        return wrong
    return [*_Audit(now, budget, start=start, head=None, since=(entries[0], since)).lines(), *_keys(now)]


def _checkpoint(now: Transaction, since: Derived) -> Iterator[str]:
    """Whether an entry is chained to the one before, and the tree up to it begins the newest one."""
    seq = since.counts.seq
    found = {entry.seq: entry for entry in now.some_entries([seq - 1, seq])}
    if seq not in found or (seq > 1 and seq - 1 not in found):
        yield f"entry {seq}: it, or the one before it, is missing"
        return
    if seq > 1 and found[seq].chained(found[seq - 1].digest) != found[seq].digest:
        yield f"entry {seq}: does not match its digest: it, or one before it, was changed"
    newest = now.counts(at_most=1 << 62)
    size = newest.seq if newest else seq
    root = merkle.folded(now.hashes(merkle.Span(0, size).nodes()))
    if (since.counts.root, newest.root if newest else "") != (since.frontier.root(), root):
        yield f"the tree up to entry {seq} or {size} is not the one that was stored with its entries"
    path = merkle.hashes_of(merkle.consistency(seq, size), now.look_up)
    within = merkle.hashes_of(merkle.inclusion(seq - 1, size), now.look_up)
    given: dict[str, Any] = {"first": seq, "second": size, "first_root": since.frontier.root()}
    if not merkle.is_consistent(**given, root=root, path=path) or not merkle.is_included(
        found[seq].digest, index=seq - 1, size=size, path=within, root=root
    ):
        yield f"the tree up to entry {size} does not continue the tree up to entry {seq}"


class _Audit:
    """What the ledger should look like by now.

    Args:
        since: the entry that it begins after, and what is stored of counts and tree up to it; None: from the start.
    """

    def __init__(
        self,
        now: Transaction,
        budget: Budget,
        *,
        start: str,
        head: Head | None,
        since: tuple[Entry, Derived] | None = None,
    ) -> None:
        self.now = now
        self.budget = budget
        self.seq, self.digest, self.time, self.total = 0, start, "", Spending()
        self.derived = Derived()
        if since is not None:
            entry, self.derived = since
            self.seq, self.digest, self.time, self.total = entry.seq, entry.digest, entry.time, entry.total
        self.head = head
        self.seen = start if head and head.seq == 0 else None  # the digest of the head's entry, as it is now
        self.accounts: dict[str, Spending] = {}
        self.keys = {row["id"]: row for row in now.key_rows()} if now.has_derived else {}
        self.revoked = {row["id"]: row for row in now.revocation_rows()} if now.has_derived else {}
        self.priced = lru_cache(maxsize=4096)(self._priced)
        after = self.seq
        self.rows = now.audited(after=after)
        self.kept = _Ahead(groupby(now.all_kept(after=after), key=lambda row: row[2]))
        self.counts = _Ahead(now.all_counts(after=after))
        self.nodes = _Ahead(now.all_nodes(after=merkle.n_nodes(after)))
        self.comparable = now.has_derived  # until counts or tree are found to differ
        try:
            newest = now.counts(at_most=1 << 62)
        except (ValueError, TypeError, AttributeError):
            newest = None
        self.taken_up = newest.seq if newest else 0  # up to here counts and tree are written

    def lines(self) -> Iterator[str]:
        for entry, row in self.rows:
            yield from (f"entry {entry.seq}: {problem}" for problem in self.entry(entry, row))
            yield from self.request(entry, row)
            answers = yield from self.answers(entry)
            yield from self.follows(entry, answers)
        yield from self.end()
        yield from self.strays(None)
        if self.comparable and (self.counts.next is not None or self.nodes.next is not None):
            yield "the counts or the tree go on after the last entry"

    def entry(self, entry: Entry, row: Any) -> Iterator[str]:
        if entry.seq != self.seq + 1:
            yield f"comes after {self.seq}: an entry is missing"
        self.seq = entry.seq
        if _chained(entry, self.digest) != entry.digest:
            yield "does not match its digest: it, or one before it, was changed"
        self.digest = entry.digest  # so that one slip is said once
        if self.head and self.head.seq == entry.seq:
            self.seen = entry.digest
        if _goes_back(self.time, entry.time):
            yield f"is more than {_STEP_BACK.seconds} s earlier than the entry before it, or its time cannot be read"
        self.time = entry.time
        if not _are_numbers(entry):
            yield "has a field that should be a number and is not"
            self.comparable = False
            return
        if entry.schema != ENTRY_SCHEMA:
            yield f"is not of schema {ENTRY_SCHEMA}"
        change = entry.spending
        if entry.kind in (RESERVE, SETTLE) and isinstance(self.budget, TestedBudget):
            yield from tested.problems(entry, row, self.budget)
        if entry.kind == RESERVE:
            yield from self._charged(entry)
            if entry.n_answers != entry.n_queries and not isinstance(self.budget, TestedBudget):
                yield "does not reserve an answer for every query"
            if entry.part != 1 and (row.before_seq is None or row.before_seq > entry.seq):
                yield "is a later part of a request, and the part before it is missing"
            elif entry.part != 1 and row.before_asked != entry.asked:
                yield "asks for other rows than the request's earlier parts"
        elif entry.kind == SETTLE:
            yield from self._charged(entry)
            if row.before_seq is None or row.before_seq > entry.seq:
                yield "settles a reservation that does not exist"
            elif {type(row.before_n_queries), type(row.before_n_answers), type(row.before_charge)} == {int}:
                change = Spending(
                    queries=entry.n_queries - row.before_n_queries,
                    answers=entry.n_answers - row.before_n_answers,
                    charge=entry.charge - row.before_charge,
                )
                same = ("mechanism", "account", "n_queries", "secure")
                if any(row._mapping[f"before_{name}"] != getattr(entry, name) for name in same):
                    yield "settles with other values than were reserved"
                if change.answers > 0 or change.charge > 0:
                    yield "raises a charge: a settlement may only lower it"
        elif entry.kind in (KEY, REVOKE):
            yield from self._key(entry)
        elif entry.kind in (COST, NUMBER):
            yield from cost.problems(entry, self.now, self.budget)
        elif entry.kind in (TRAIN, BEGUN, OUTPUT):
            yield from training.problems(entry, self.now, self.budget)
        else:
            yield "is not a reservation, a settlement or an entry about a key, a published cost or a training"
        yield from self._totals(entry, change)

    def _totals(self, entry: Entry, change: Spending) -> Iterator[str]:
        total = self.total + change
        if entry.account not in self.accounts:
            if len(self.accounts) >= _ACCOUNTS:
                self.accounts.clear()
            self.accounts[entry.account] = self.now.account_at(entry.account, entry.seq - 1)
        if (entry.total, entry.account_total) != (total, self.accounts[entry.account] + change):
            yield "has totals that do not add up"
        self.total, self.accounts[entry.account] = entry.total, entry.account_total
        if not self.budget.holds(entry.total):
            yield "exceeds the budget"

    def _charged(self, entry: Entry) -> Iterator[str]:
        found, least = self.priced(entry.mechanism, entry.n_queries, entry.n_answers)
        yield from found
        if entry.charge < least * (1 - _ROOM):
            yield "is charged less than it costs"

    def _priced(self, text: str, n_queries: int, n_answers: int) -> tuple[list[str], int]:
        """What is wrong with a mechanism, or with numbers under it; and what it costs."""
        try:
            mechanism = mechanism_from_json(json.loads(text))
            price = self.budget.price(mechanism, n_queries=n_queries, n_answers=n_answers)
        except (InputError, ValueError):
            return ["has a mechanism that the budget does not allow"], 0
        found = []
        if canonical(mechanism_to_json(mechanism)) != text:
            found.append("has its mechanism written in a different form than the ledger writes it")
        least = 0 if has_check(mechanism) else n_queries
        if n_queries < 1 or not least <= n_answers <= n_queries:
            found.append("has impossible numbers of queries and answers")
        return found, price.charge

    def _key(self, entry: Entry) -> Iterator[str]:
        row = (self.keys if entry.kind == KEY else self.revoked).get(entry.request_id)
        if row is None or row_digest(row) != entry.asked:
            yield f"the row of key {entry.request_id} that it records is gone or was changed"
        as_made = (entry.part, entry.account, entry.mechanism, entry.secure, entry.answers_digest)
        if entry.spending != Spending() or as_made != (0, entry.request_id, "", True, ""):
            yield "is about a key, and must not charge anything"

    def request(self, entry: Entry, row: Any) -> Iterator[str]:
        """What a request asks is in its reservations; one that needed none is known by its digest alone."""
        if entry.kind != RESERVE or (entry.part != 1 and row.before_seq is not None):
            return
        if row.known_digest is None:
            if entry.asked:
                yield f"request {entry.request_id!r}: has a reservation, and its own row is missing"
        elif row.known_digest != entry.asked:
            yield f"request {entry.request_id!r}: asks for other rows than were reserved"

    def answers(self, entry: Entry) -> Generator[str, None, list[int]]:
        """Its value: the outcomes of the answers that the entry settled."""
        yield from self.strays(entry.seq)
        found: list[tuple[str, Kept]] = []
        if self.kept.next is not None and self.kept.next[0] == entry.seq:
            found = [(query, kept) for query, kept, _ in self.kept.next[1]]
            self.kept.step()
        if entry.kind != SETTLE:
            yield from (_stray(query, entry.seq) for query, _ in found)
            return []
        for query, kept in found:
            yield from (f"answer {query[:8]}: {problem}" for problem in _answer(kept, entry))
        given = sum(kept.outcome == Outcome.TEACHERS for _, kept in found)
        # A draw may have been thrown away for an earlier answer, so that fewer are kept than were paid for.
        if len(found) > _whole(entry.n_queries) or given > _whole(entry.n_answers):
            yield f"entry {entry.seq}: has more answers than it paid for"
        if (answers_digest(found) if found else _NONE) != entry.answers_digest:
            yield f"entry {entry.seq}: its answers are not the ones that it settled"
        return [kept.outcome for _, kept in found]

    def strays(self, seq: int | None) -> Iterator[str]:
        """Answers of entries that are not there: before this one, or after the last."""
        while self.kept.next is not None and (seq is None or self.kept.next[0] < seq):
            entry, some = self.kept.next
            yield from (_stray(query, entry) for query, _, _ in some)
            self.kept.step()

    def follows(self, entry: Entry, outcomes: list[int]) -> Iterator[str]:
        """Whether counts and tree are what follows from the entries."""
        if not self.comparable:
            return
        try:
            nodes = self.derived.add([(entry, outcomes)])
        except ValueError:  # a digest that is none, of which was said before that it does not match
            self.comparable = False
            return
        if entry.seq > self.taken_up:
            return
        first = merkle.n_nodes(self.derived.frontier.size) - len(nodes) + 1
        for number, value in enumerate(nodes, first):
            if self.nodes.next != (number, value):
                yield f"entry {entry.seq}: the tree is not what follows from the entries, from node {number} on"
                self.comparable = False
                return
            self.nodes.step()
        counts = self.counts.next
        if counts is not None and counts.seq <= entry.seq:
            if counts != self.derived.rooted():
                yield f"entry {entry.seq}: the counts up to here are not what follows from the entries"
                self.comparable = False
            self.counts.step()

    def end(self) -> Iterator[str]:
        """Whether the entry that someone saw is still there."""
        if self.head is None or self.seen == self.head.digest:
            return
        if self.head.seq == 0:
            yield "this is a different ledger: its header is not the one that was seen before"
        elif self.head.seq > self.seq:
            yield f"an older ledger was restored: it ends at entry {self.seq}, and entry {self.head.seq} was seen"
        else:
            yield f"entry {self.head.seq} is not the one that was seen: it was changed, or an older ledger was restored"


class _Ahead:
    """A stream whose next element can be looked at before it is taken; None after the last."""

    def __init__(self, stream: Iterator[Any]) -> None:
        self._stream = stream
        self.step()

    def step(self) -> None:
        self.next: Any = next(self._stream, None)


def _keys(now: Transaction) -> Iterator[str]:
    """Whether every key and every revocation is in the chain."""
    if not now.has_derived:  # they are taken up when the ledger is first written to
        return
    rows = {KEY: now.key_rows(), REVOKE: now.revocation_rows()}
    entries = now.of_parts(sorted({(row["id"], 0) for some in rows.values() for row in some}))
    for kind, some in rows.items():
        for row in some:
            entry = entries.get((row["id"], 0, kind))
            if entry is None or entry.asked != row_digest(row):
                what = "it" if kind == KEY else "its revocation"
                yield f"key {row['id']}: {what} is not in the chain, or was changed"


def _are_numbers(entry: Entry) -> bool:
    """What SQLite keeps may be of any type, whatever its column says."""
    own = (entry.part, entry.n_queries, entry.n_answers, entry.charge)
    sums = (*vars(entry.total).values(), *vars(entry.account_total).values())
    return set(map(type, (*own, *sums))) == {int}


def _chained(entry: Entry, before: str) -> str | None:
    try:
        return entry.chained(before)
    except (TypeError, ValueError):  # a value that no ledger writes
        return None


def _goes_back(before: str, after: str) -> bool:
    if before <= after:
        return False
    try:
        return datetime.fromisoformat(before) - datetime.fromisoformat(after) > _STEP_BACK
    except (TypeError, ValueError):
        return True


def _answer(kept: Kept, entry: Entry) -> Iterator[str]:
    if kept.secure != entry.secure:
        yield "and its entry disagree on whether the noise was secure"
    if kept.outcome not in (Outcome.ABSTAINED, Outcome.TEACHERS, Outcome.REINFORCED):
        yield "has an unknown outcome"
    elif (kept.label == ABSTAIN) != (kept.outcome == Outcome.ABSTAINED) or kept.label < ABSTAIN:
        yield "has a label that its outcome does not allow"


def _stray(query: str, seq: int) -> str:
    return f"answer {query[:8]}: was settled by entry {seq}, which does not exist"


def _whole(number: Any) -> int:
    return number if isinstance(number, int) else 0
