"""A database with a ledger in it: transactions, and what a process remembers from one to the next.

SQLAlchemy is loaded with this: with the first ledger.
"""

from __future__ import annotations

import os
import sqlite3
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from terrine.errors import LedgerError
from terrine.ledger.backends import Sqlite, backend
from terrine.ledger.entries import LEDGER_SCHEMA, Head
from terrine.ledger.files import Replaced
from terrine.ledger.tables import LEDGER, METADATA, TREE
from terrine.ledger.transaction import Transaction
from terrine.ledger.upgrade import upgrade

if TYPE_CHECKING:
    from terrine.ledger.derived import Derived


class Store:
    """A database with a ledger in it, or room for one. Connections are kept open, and not shared with a fork.

    It remembers the newest entry that it has seen. A database that no longer has that entry, or a file that is no
    longer the one that was opened, is refused from then on, by every method: charges are missing from it.
    """

    def __init__(self, where: str | Path) -> None:
        self._backend = backend(where)
        self.name = self._backend.name
        self.start: str | None = None  # the header's digest, once it is known: a writer looks for it
        self._seen: Head | None = None
        self._derived: Derived | None = None  # at the newest entry that this process wrote
        self._is_new = False  # whether tables are known to be this version's
        self._refused: str | None = None
        self._engine = self._backend.engine()
        self._process = os.getpid()
        weakref.finalize(self, self._engine.dispose)

    @property
    def folder(self) -> Path | None:
        """Of a file; None on a server."""
        return self._backend.path.parent if isinstance(self._backend, Sqlite) else None

    @contextmanager
    def transaction(self, *, write: bool) -> Iterator[Transaction]:
        """All of it or nothing. A writer holds the ledger's lock from the start, so what it reads stays true."""
        seen = self._seen
        with self._begin(write=write) as connection:
            now = Transaction(connection, write=write, seen=seen, derived=self._derived)
            if write:
                self._lock(connection, seen)
            if not self._is_new:
                now.has_derived = sa.inspect(connection).has_table(TREE.name)
                if write and not now.has_derived:
                    self._upgrade(now)
            try:
                yield now
            finally:
                now.end_streams()
        self._is_new = now.has_derived
        if write:
            self._derived = now.derived
        if now.newest is not None and (self._seen is None or now.newest.seq > self._seen.seq):
            self._seen = now.newest

    def _lock(self, connection: sa.Connection, seen: Head | None) -> None:
        start, digest = self._backend.lock(connection, seen.seq if seen else 0)
        if start != self.start:
            raise LedgerError(f"The ledger at {self.name} is gone, or is not the one that was opened.")
        if seen is not None and digest != seen.digest:
            raise Replaced(f"entry {seen.seq}, which was there before, is gone or is not the same")

    def _upgrade(self, now: Transaction) -> None:
        try:
            upgrade(now, self.start or "")
        except sa.exc.ProgrammingError as error:  # permission denied; the transaction is rolled back
            why = self._backend.why(error)
            raise LedgerError(
                f"The ledger {self.name} was made by an older version, and this role may not upgrade it ({why}). Run "
                "`terrine ledger upgrade` as the owner of its tables."
            ) from None

    def create(self, header: Mapping[str, Any]) -> None:
        """Make the tables and write the header, unless someone else just did."""
        with self._one_line():
            self._backend.prepare()
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
        self._backend.closed()

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
            self._backend.forked()
            self._process = os.getpid()
        with self._one_line():
            if self._refused:
                raise Replaced(self._refused)
            self._backend.check()
            with self._engine.connect() as connection:
                connection.execution_options(**self._backend.options(write=write))
                with connection.begin():
                    self._backend.check()  # under the lock, where it is a writer
                    yield connection
                self._backend.check()  # what was committed is where others will look for it

    @contextmanager
    def _one_line(self) -> Iterator[None]:
        """A database's error as one line; statements, their values and who connects stay out of it."""
        try:
            yield
        except Replaced as error:
            self._refused = str(error)
            raise LedgerError(
                f"The ledger {self.name} was replaced, removed or restored while it was in use: {error}. Nothing more "
                "is charged or answered. Stop every process that uses it, and run `terrine ledger verify` with a head "
                "that was kept elsewhere."
            ) from None
        except (sa.exc.SQLAlchemyError, sqlite3.Error, OSError) as error:
            why = " ".join(self._backend.why(error).split())
            raise LedgerError(f"The ledger {self.name} cannot be used: {why}.") from None
