"""The ledger's SQL, the same on SQLite and PostgreSQL. SQLAlchemy is loaded with this: with the first ledger."""

from __future__ import annotations

import json
import os
import sqlite3
import weakref
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from terrine.budgets import Spending
from terrine.errors import LedgerError
from terrine.ledger.backends import backend
from terrine.ledger.entries import LEDGER_SCHEMA, Entry, Kept
from terrine.ledger.statements import statements
from terrine.ledger.tables import ENTRIES, LEDGER, METADATA

_PAIRS = 500  # in one IN (...)
_STREAM = 2000  # rows in memory where all are read


class Store:
    """A database with a ledger in it, or room for one. Connections are kept open, and not shared with a fork."""

    def __init__(self, where: str | Path) -> None:
        self._backend = backend(where)
        self.name = self._backend.name
        self.start: str | None = None  # the header's digest, once it is known: a writer looks for it
        self._engine = self._backend.engine()
        self._process = os.getpid()
        weakref.finalize(self, self._engine.dispose)

    @contextmanager
    def transaction(self, *, write: bool) -> Iterator[Transaction]:
        """All of it or nothing. A writer holds the ledger's lock from the start, so what it reads stays true."""
        with self._begin(write=write) as connection:
            if write and self._backend.lock(connection) != self.start:
                raise LedgerError(f"Expected the ledger that was opened at {self.name}, got another, or none.")
            yield Transaction(connection)

    def create(self, header: Mapping[str, Any]) -> None:
        """Make the tables and write the header, unless someone else just did."""
        with self._one_line():
            self._backend.prepare(self._engine)
        with self._begin(write=True) as connection:
            self._backend.lock_making(connection)
            METADATA.create_all(connection)
            if connection.execute(sa.select(LEDGER.c.id)).first() is None:
                connection.execute(sa.insert(LEDGER), {"id": 1, **header})
        with self._one_line():
            self._backend.finish()

    def header(self) -> dict[str, Any] | None:
        """Schema, id, budget and digest, or the schema alone of another version; None where there is no ledger."""
        with self._one_line():
            if self._backend.is_missing():
                return None
        with self._begin(write=False) as connection:
            if not sa.inspect(connection).has_table(LEDGER.name):
                return None
            schema = connection.execute(sa.select(LEDGER.c.schema)).scalar()
            if schema != LEDGER_SCHEMA:
                return None if schema is None else {"schema": schema}
            return dict(connection.execute(sa.select(LEDGER)).mappings().one())

    def close(self) -> None:
        self._engine.dispose()

    def damages(self) -> list[str]:
        """What the database itself finds wrong."""
        with self._begin(write=False) as connection:
            return self._backend.damages(connection)

    def doubts(self) -> list[str]:
        """What would let someone change the ledger, or a crash lose some of it."""
        with self._begin(write=False) as connection:
            return self._backend.doubts(connection)

    @contextmanager
    def _begin(self, *, write: bool) -> Iterator[sa.Connection]:
        if self._process != os.getpid():
            self._engine.dispose(close=False)
            self._process = os.getpid()
        with self._one_line(), self._engine.connect() as connection:
            connection.execution_options(**self._backend.options(write=write))
            with connection.begin():
                yield connection

    @contextmanager
    def _one_line(self) -> Iterator[None]:
        """A database's error as one line; statements, their values and who connects stay out of it."""
        try:
            yield
        except (sa.exc.SQLAlchemyError, sqlite3.Error, OSError) as error:
            why = " ".join(self._backend.why(error).split())
            raise LedgerError(f"Expected to use the ledger {self.name}, got: {why}.") from None


class Transaction:
    """Reading and adding rows within one transaction."""

    def __init__(self, connection: sa.Connection) -> None:
        self.connection = connection
        self._sql = statements(connection.dialect.name)

    def last(self) -> Entry | None:
        """The newest entry, whose totals are the ledger's."""
        return next(map(_entry, self.connection.execute(self._sql.last)), None)

    def append(self, entries: Sequence[Entry]) -> None:
        rows = (entry.flat() for entry in entries)
        self._add(self._sql.add_entries, [[row[column.name] for column in ENTRIES.columns] for row in rows])

    def entries(self) -> Iterator[Entry]:
        """In the order they were written."""
        return map(_entry, self._stream(self._sql.entries))

    def some_entries(self, seqs: Collection[int]) -> list[Entry]:
        """Those of these numbers that are there, in order."""
        return [_entry(row) for row in self._among(self._sql.entries_of, seqs)]

    def of_request(self, request_id: str) -> list[Entry]:
        return [_entry(row) for row in self._among(self._sql.entries_of_request, [request_id])]

    def of_parts(self, parts: Sequence[tuple[str, int]]) -> dict[tuple[str, int, str], Entry]:
        """The reservations and settlements of these requests and parts, by both and kind."""
        found = {}
        for start in range(0, len(parts), _PAIRS):
            pairs = {"pairs": parts[start : start + _PAIRS]}
            for entry in map(_entry, self.connection.execute(self._sql.entries_of_parts, pairs)):
                found[entry.request_id, entry.part, entry.kind] = entry
        return found

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

    def sums(self) -> list[tuple[str, int, int]]:
        """Queries and answers charged so far, by mechanism."""
        found = self.connection.execute(self._sql.sums)
        return sorted((mechanism, int(queries), int(answers)) for mechanism, queries, answers in found)

    def unsettled(self) -> int:
        """Queries that are reserved, and not settled: in flight, or left by a crash."""
        return int(self.connection.execute(self._sql.unsettled).scalar() or 0)

    def all_secure(self) -> bool:
        return self.connection.execute(self._sql.insecure).first() is None

    def digests(self, request_ids: Collection[str]) -> dict[str, str]:
        """Of what these requests asked, where they are known."""
        return {row.request_id: row.digest for row in self._among(self._sql.requests_of, request_ids)}

    def claim(self, digests: Mapping[str, str]) -> None:
        self._add(self._sql.add_requests, list(digests.items()))

    def requests(self) -> Iterator[tuple[str, str]]:
        """Every request and the digest of what it asked."""
        return ((row.request_id, row.digest) for row in self._stream(self._sql.requests))

    def kept(self, queries: Collection[str]) -> dict[str, Kept]:
        """The answers that these queries have had."""
        return {row[0]: Kept(*row[1:]) for row in self._among(self._sql.answers_of, queries)}

    def keep(self, answers: Mapping[int, Mapping[str, Kept]]) -> None:
        """Answers by query, for each entry that settles some."""
        rows = [[query, *kept, entry] for entry, some in answers.items() for query, kept in some.items()]
        self._add(self._sql.add_answers, rows)

    def all_kept(self) -> Iterator[tuple[str, Kept, int]]:
        """Every query with its answer and the entry that settled it, entry by entry."""
        for row in self._stream(self._sql.answers):
            yield row.query, Kept(row.label, row.outcome, row.secure), row.entry

    def outcomes(self) -> dict[int, int]:
        """How many answers have each outcome."""
        return {outcome: int(n) for outcome, n in self.connection.execute(self._sql.outcomes)}

    def _among(self, select: sa.Select[Any], values: Collection[Any]) -> Iterable[Any]:
        return self.connection.execute(select, {"wanted": _json(list(values))}) if values else ()

    def _add(self, insert: sa.Insert, rows: Sequence[Sequence[Any]]) -> None:
        if rows:
            self.connection.execute(insert, {"rows": _json(rows)})

    def _stream(self, select: sa.Select[Any]) -> Iterable[Any]:
        return self.connection.execute(select, execution_options={"yield_per": _STREAM})


def _json(values: Sequence[Any]) -> str:
    return json.dumps(values, separators=(",", ":"))


def _entry(row: Any) -> Entry:
    values = dict(row._mapping)
    total, account_total = (
        Spending(**{name: values.pop(f"{whose}_{name}") for name in ("queries", "answers", "charge")})
        for whose in ("total", "account")
    )
    return Entry(**values, total=total, account_total=account_total)
