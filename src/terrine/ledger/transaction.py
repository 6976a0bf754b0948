"""Reading and adding rows within one transaction: the ledger's SQL, the same on SQLite and PostgreSQL."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from terrine.budgets import Spending
from terrine.errors import LedgerError
from terrine.ledger import merkle
from terrine.ledger.derived import Counts
from terrine.ledger.entries import Entry, Head, Kept, Part, fields_of, is_digest
from terrine.ledger.files import Replaced
from terrine.ledger.sql import as_json, statements
from terrine.ledger.tables import ANSWERS, COUNTS, ENTRIES, REQUESTS, TREE

if TYPE_CHECKING:
    from terrine.ledger.derived import Derived

_STREAM = 2000  # rows in memory where all are read


class Transaction:
    """Reading and adding rows within one transaction.

    Args:
        write: whether rows may be added.
        seen: an entry that the process saw before; a ledger that ends before it is refused.
        derived: what is known from an earlier transaction.
    """

    def __init__(
        self, connection: sa.Connection, *, write: bool, seen: Head | None = None, derived: Derived | None = None
    ) -> None:
        self.connection = connection
        self.write = write
        self.newest: Head | None = None  # of the entries that were read or added here
        self.derived = derived  # a writer leaves it as it is from now on
        self.has_derived = True  # whether the tables of counts and of the tree are there
        self._seen = seen
        self._streams: list[sa.CursorResult[Any]] = []
        self._sql = statements(connection.dialect.name)

    def end_streams(self) -> None:
        """Those that were not read to their end hold a cursor on the server."""
        for stream in self._streams:
            stream.close()

    def last(self) -> Entry | None:
        """The newest entry, whose totals are the ledger's."""
        found = next(map(_entry, self.connection.execute(self._sql.last)), None)
        seen, head = self._seen, found.head if found else Head(0, "")
        if seen is not None and (head.seq < seen.seq or (head.seq == seen.seq and head != seen)):
            raise Replaced(f"entry {seen.seq}, which was there before, is gone or is not the same")
        if found is not None and (self.newest is None or self.newest.seq < head.seq):
            self.newest = head
        return found

    def append(self, entries: Sequence[Entry]) -> None:
        self._add(ENTRIES, list(map(_VALUES, entries)))
        if entries:
            self.newest = entries[-1].head

    def entries(self, *, after: int = 0) -> Iterator[Entry]:
        """In the order they were written."""
        return map(_entry, self._stream(self._sql.entries, after=after))

    def audited(self, *, after: int = 0) -> Iterator[tuple[Entry, Any]]:
        """Entries in order, with the row that they are in: what an audit compares them to stands beside them."""
        for row in self._stream(self._sql.audited, after=after):
            yield _entry(row), row

    def some_entries(self, seqs: Collection[int]) -> list[Entry]:
        """Those of these numbers that are there, in order."""
        return [_entry(row) for row in self._among(self._sql.entries_of, seqs)]

    def digests_of(self, seqs: Collection[int]) -> dict[int, str]:
        """Of the entries of these numbers."""
        return {entry.seq: entry.digest for entry in self.some_entries(seqs)}

    def of_request(self, request_id: str) -> list[Entry]:
        return [_entry(row) for row in self._among(self._sql.entries_of_request, [request_id])]

    def of_parts(self, parts: Sequence[tuple[str, int]]) -> dict[tuple[str, int, str], Part]:
        """The reservations and settlements of these requests and parts, by both and kind."""
        found = self.connection.execute(self._sql.entries_of_parts, {"rows": as_json(parts)}) if parts else ()
        return {tuple(row[:3]): Part(*row) for row in found}

    def parts(self, request_ids: Collection[str]) -> dict[str, int]:
        """How many reservations these requests have, where they have some."""
        return {name: int(part) for name, part in self._among(self._sql.parts, request_ids)}

    def accounts(self, names: Collection[str] | None = None) -> dict[str, Spending]:
        """What was charged to these accounts, or to all of them, as their newest entries say."""
        if names is None:
            found = map(_entry, self.connection.execute(self._sql.accounts))
        else:
            found = map(_entry, self._among(self._sql.accounts_of, names))
        return {entry.account: entry.account_total for entry in found}

    def account_at(self, name: str, seq: int) -> Spending:
        """What was charged to an account up to an entry."""
        asked = {"account": name, "at_most": seq}
        found = next(map(_entry, self.connection.execute(self._sql.account_before, asked)), None)
        return found.account_total if found else Spending()

    def digests(self, request_ids: Collection[str]) -> dict[str, str]:
        """Of what these requests asked, where they are known."""
        return {row.request_id: row.digest for row in self._among(self._sql.requests_of, request_ids)}

    def claim(self, digests: Mapping[str, str]) -> None:
        self._add(REQUESTS, list(digests.items()))

    def kept(self, queries: Collection[str]) -> dict[str, Kept]:
        """The answers that these queries have had."""
        return {row[0]: Kept(*row[1:]) for row in self._among(self._sql.answers_of, queries)}

    def keep(self, answers: Mapping[int, Mapping[str, Kept]]) -> None:
        """Answers by query, for each entry that settles some."""
        rows = [[query, *kept, entry] for entry, some in answers.items() for query, kept in some.items()]
        self._add(ANSWERS, rows)

    def all_kept(self, *, after: int = 0) -> Iterator[tuple[str, Kept, int]]:
        """Every query with its answer and the entry that settled it, entry by entry."""
        for row in self._stream(self._sql.answers, after=after):
            yield row.query, Kept(row.label, row.outcome, row.secure), row.entry

    def counts(self, *, at_most: int) -> Counts | None:
        """The newest up to an entry."""
        if not self.has_derived:
            return None
        row = self.connection.execute(self._sql.counts_at, {"at_most": at_most}).mappings().first()
        return Counts.of_row(dict(row)) if row else None

    def all_counts(self, *, after: int = 0) -> Iterator[Counts]:
        """In order; for a row that cannot be read, one that nothing is equal to."""
        for row in self._stream(self._sql.counts, after=after) if self.has_derived else ():
            try:
                yield Counts.of_row(dict(row._mapping))
            except (ValueError, TypeError, AttributeError):
                yield Counts(seq=row.seq, open=-1)

    def add_counts(self, row: Sequence[Any]) -> None:
        self._add(COUNTS, [row])

    def hashes(self, nodes: Sequence[merkle.Node]) -> list[str]:
        """Of complete nodes of the tree, in their order."""
        found = self.look_up(nodes)
        return [found[node] for node in nodes]

    def look_up(self, nodes: Sequence[merkle.Node]) -> dict[merkle.Node, str]:
        """Complete nodes of the tree: leaves from the entries' digests, others as they are stored."""
        leaves = self.digests_of({node.place + 1 for node in nodes if node.level == 0})
        stored = dict(tuple(row) for row in self._among(self._sql.nodes_of, {n.number for n in nodes if n.level}))
        found = {}
        for node in nodes:
            value = stored.get(node.number) if node.level else leaves.get(node.place + 1)
            if value is None or not is_digest(value):
                where = f"level {node.level}, place {node.place}"
                raise LedgerError(f"The ledger's tree lacks a node ({where}). Run `terrine ledger verify`.")
            found[node] = value if node.level else merkle.leaf(value)
        return found

    def all_nodes(self, *, after: int = 0) -> Iterator[tuple[int, str]]:
        """Numbers and hashes, in order."""
        for row in self._stream(self._sql.nodes, after=after) if self.has_derived else ():
            yield row.node, row.hash

    def add_nodes(self, after: int, hashes: Sequence[str]) -> None:
        self._add(TREE, list(enumerate(hashes, after + 1)))

    def key_rows(self) -> list[dict[str, Any]]:
        """The rows of keys, the oldest first."""
        return [dict(row) for row in self.connection.execute(self._sql.keys).mappings()]

    def revocation_rows(self) -> list[dict[str, Any]]:
        return [dict(row) for row in self.connection.execute(self._sql.revoked).mappings()]

    def _among(self, select: sa.Select[Any], values: Collection[Any]) -> Iterable[Any]:
        return self.connection.execute(select, {"wanted": as_json(list(values))}) if values else ()

    def _add(self, table: sa.Table, rows: Sequence[Sequence[Any]]) -> None:
        if rows and self._sql.add(self.connection, table, rows) != len(rows):  # as where someone's trigger drops them
            raise LedgerError("The database did not store every row that the ledger added: nothing was written.")

    def _stream(self, select: sa.Select[Any], **values: int) -> Iterable[Any]:
        found = self.connection.execute(select, values, execution_options={"yield_per": _STREAM})
        self._streams.append(found)
        return found


_NAMES = tuple(ENTRIES.columns.keys())
_VALUES = fields_of(_NAMES)
_TOTALS = _NAMES.index("total_queries")  # and on from there the account's


def _entry(row: Sequence[Any]) -> Entry:
    """From a row that begins with the table's columns."""
    queries, answers, charge, account_queries, account_answers, account_charge, digest = row[_TOTALS : len(_NAMES)]
    return Entry(
        **dict(zip(_NAMES[:_TOTALS], row, strict=False)),
        total=Spending(queries=queries, answers=answers, charge=charge),
        account_total=Spending(queries=account_queries, answers=account_answers, charge=account_charge),
        digest=digest,
    )
