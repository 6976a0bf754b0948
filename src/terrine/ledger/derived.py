"""What is stored with the entries so that nobody has to read them all: running counts, and the Merkle tree.

Both follow from entries and answers alone. They are written with them, in one transaction; entries of a ledger that an
older version wrote are taken up by the next one that writes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

from terrine.budgets import canonical
from terrine.ledger import merkle
from terrine.ledger.entries import RESERVE, SETTLE, Entry, Head, TreeHead
from terrine.mechanisms import Outcome

if TYPE_CHECKING:
    from terrine.ledger.transaction import Transaction

_EVERY = 2000  # entries between two rows of counts where many are taken up at once
_NAMES: dict[int, str] = {Outcome.TEACHERS: "answered", Outcome.ABSTAINED: "withheld", Outcome.REINFORCED: "reinforced"}


@dataclass(frozen=True, kw_only=True)
class Counts:
    """Of everything up to an entry.

    Attributes:
        seq: the entry.
        open: queries that are reserved and not settled: in flight, or left by a crash.
        answered, withheld, reinforced: answers that are kept.
        secure: whether all noise was drawn by the secure sampler.
        sums: queries and answers charged, by mechanism.
        root: of the tree, where the counts are stored; else "".
    """

    seq: int = 0
    open: int = 0
    answered: int = 0
    withheld: int = 0
    reinforced: int = 0
    secure: bool = True
    sums: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    root: str = ""

    def after(self, added: Iterable[tuple[Entry, Iterable[int]]]) -> Counts:
        """From entries, each with the outcomes of the answers it kept."""
        seq, opened, secure, sums = self.seq, self.open, self.secure, dict(self.sums)
        numbers = self.outcomes()
        for entry, outcomes in added:
            for outcome in outcomes:
                if outcome in _NAMES:  # an audit says so where it is none of them
                    numbers[_NAMES[outcome]] += 1
            seq, secure = entry.seq, secure and entry.secure
            queries, answers = sums.get(entry.mechanism, (0, 0))
            if entry.kind == RESERVE:
                opened += entry.n_queries
                sums[entry.mechanism] = (queries + entry.n_queries, answers + entry.n_answers)
            elif entry.kind == SETTLE and entry.asked:  # a test's bit gives nothing back
                opened -= entry.n_queries
            elif entry.kind == SETTLE:
                opened -= entry.n_queries
                sums[entry.mechanism] = (queries, answers + entry.n_answers - entry.n_queries)
        return Counts(seq=seq, open=opened, **numbers, secure=secure, sums=sums, root="")

    def row(self) -> list[Any]:
        """As the table's columns."""
        numbers = [self.seq, self.open, self.answered, self.withheld, self.reinforced]
        sums = canonical({name: list(pair) for name, pair in self.sums.items()})
        return [*numbers, self.secure, sums, self.root]

    @classmethod
    def of_row(cls, row: Mapping[str, Any]) -> Counts:
        sums = {name: (queries, answers) for name, (queries, answers) in json.loads(row["sums"]).items()}
        return cls(**{**row, "sums": sums})

    def outcomes(self) -> dict[str, int]:
        return {name: getattr(self, name) for name in _NAMES.values()}


class Derived:
    """Counts and tree up to an entry, and what of them is still to be written."""

    def __init__(self, counts: Counts | None = None, frontier: merkle.Frontier | None = None, digest: str = "") -> None:
        self.counts = counts or Counts()
        self.frontier = frontier or merkle.Frontier()
        self.digest = digest  # of the entry that it goes up to

    @classmethod
    def stored(cls, now: Transaction, *, at_most: int) -> Derived:
        """As the newest row up to an entry has it."""
        counts = now.counts(at_most=at_most)
        if counts is None:
            return cls()
        digest = now.digests_of([counts.seq]).get(counts.seq, "")
        return cls(counts, merkle.Frontier(counts.seq, now.hashes(merkle.Span(0, counts.seq).nodes())), digest)

    @classmethod
    def newest(cls, now: Transaction, last: Entry | None) -> Derived:
        """Up to the last entry, from what is stored and the entries that came after it."""
        if last is None:
            return cls()
        if now.derived is not None and now.derived.head == last.head:
            return now.derived.copy()
        found = cls.stored(now, at_most=last.seq)
        if found.head == last.head:
            return found
        nodes: list[str] = []
        for entry, outcomes in _with_outcomes(now, after=found.counts.seq):
            nodes += found.add([(entry, outcomes)])
            if now.write and (entry.seq % _EVERY == 0 or entry.seq == last.seq):
                found.write(now, nodes)
                nodes = []
        return found

    @property
    def head(self) -> Head:
        return Head(self.counts.seq, self.digest)

    def tree_head(self, start: str) -> TreeHead:
        """Of an empty ledger, the header's digest."""
        return TreeHead(self.head if self.counts.seq else Head(0, start), self.frontier.root())

    def add(self, added: Iterable[tuple[Entry, Iterable[int]]]) -> list[str]:
        """Entries, each with the outcomes of the answers it kept; the hashes of the nodes that they complete."""
        pairs = list(added)
        self.counts = self.counts.after(pairs)
        self.digest = pairs[-1][0].digest
        return [node for entry, _ in pairs for node in self.frontier.append(entry.digest)]

    def write(self, now: Transaction, nodes: Sequence[str]) -> None:
        """Counts up to here, and the nodes that were completed since the counts that were written before."""
        now.add_nodes(merkle.n_nodes(self.frontier.size) - len(nodes), nodes)
        self.counts = self.rooted()
        now.add_counts(self.counts.row())

    def rooted(self) -> Counts:
        """As they are stored."""
        return replace(self.counts, root=self.frontier.root())

    def copy(self) -> Derived:
        return Derived(self.counts, self.frontier.copy(), self.digest)


def _with_outcomes(now: Transaction, *, after: int) -> Iterator[tuple[Entry, list[int]]]:
    answers = groupby(now.all_kept(after=after), key=lambda row: row[2])
    seq, some = next(answers, (None, iter(())))
    for entry in now.entries(after=after):
        while seq is not None and seq < entry.seq:  # of an entry that is gone: an audit says so
            seq, some = next(answers, (None, iter(())))
        if seq == entry.seq:
            yield entry, [kept.outcome for _, kept, _ in some]
        else:
            yield entry, []
