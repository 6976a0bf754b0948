"""The ledger's tables, and every SQL statement: the only module that needs SQLAlchemy, imported with the first ledger.

Rows are inserted and never changed. Statements are portable; SQLite alone gets pragmas, BEGIN IMMEDIATE and triggers.
"""

from __future__ import annotations

import os
import sqlite3
import weakref
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from terrine._files import sync_folder
from terrine.budgets import Spending
from terrine.errors import LedgerError
from terrine.ledger.entries import LEDGER_SCHEMA, SETTLE, Entry, Kept

_AT_ONCE = 500  # values in one IN (...)
_WAIT = 60  # seconds for another process to finish its transaction

METADATA = sa.MetaData()
LEDGER = sa.Table(
    "terrine_ledger",
    METADATA,
    sa.Column("id", sa.Integer, sa.CheckConstraint("id = 1"), primary_key=True, autoincrement=False),  # one row
    sa.Column("schema", sa.String(40), nullable=False),
    sa.Column("budget", sa.Text, nullable=False),
    sa.Column("budget_sha256", sa.String(64), nullable=False),
)
ENTRIES = sa.Table(
    "terrine_entries",
    METADATA,
    sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("schema", sa.String(40), nullable=False),
    sa.Column("time", sa.String(40), nullable=False),
    sa.Column("kind", sa.String(16), nullable=False),
    sa.Column("request_id", sa.String(200), nullable=False),
    sa.Column("part", sa.BigInteger, nullable=False),
    sa.Column("mechanism", sa.Text, nullable=False),
    sa.Column("n_queries", sa.BigInteger, nullable=False),
    sa.Column("n_answers", sa.BigInteger, nullable=False),
    sa.Column("charge", sa.BigInteger, nullable=False),
    sa.Column("secure", sa.Boolean, nullable=False),
    sa.Column("total_queries", sa.BigInteger, nullable=False),
    sa.Column("total_answers", sa.BigInteger, nullable=False),
    sa.Column("total_charge", sa.BigInteger, nullable=False),
    sa.UniqueConstraint("request_id", "part", "kind"),
)
REQUESTS = sa.Table(
    "terrine_requests",
    METADATA,
    sa.Column("request_id", sa.String(200), primary_key=True),
    sa.Column("digest", sa.String(64), nullable=False),
)
ANSWERS = sa.Table(
    "terrine_answers",
    METADATA,
    sa.Column("query", sa.String(64), primary_key=True),  # one answer per query, for ever
    sa.Column("label", sa.BigInteger, nullable=False),
    sa.Column("outcome", sa.Integer, nullable=False),
    sa.Column("secure", sa.Boolean, nullable=False),
    sa.Column("entry", sa.BigInteger, sa.ForeignKey("terrine_entries.seq"), nullable=False),  # that settled it
)


def _only_add(table: sa.Table, connection: sa.Connection, **_: Any) -> None:
    """The database itself refuses to change or delete a row, where it is SQLite."""
    if connection.dialect.name == "sqlite":
        for verb in ("UPDATE", "DELETE"):
            connection.exec_driver_sql(
                f"CREATE TRIGGER {table.name}_no_{verb.lower()} BEFORE {verb} ON {table.name} "
                "BEGIN SELECT RAISE(ABORT, 'a ledger is only ever added to'); END"
            )


for _table in METADATA.tables.values():
    sa.event.listen(_table, "after_create", _only_add)


class Store:
    """A database with a ledger in it, or room for one. Connections are kept open, and not shared with a fork."""

    def __init__(self, where: str | Path) -> None:
        self.path = _path(where)
        self._engine = sa.create_engine(
            sa.URL.create("sqlite", database=str(self.path)), connect_args={"timeout": _WAIT}, hide_parameters=True
        )
        sa.event.listen(self._engine, "connect", _on_connect)
        sa.event.listen(self._engine, "begin", _on_begin)
        self._process = os.getpid()
        weakref.finalize(self, self._engine.dispose)

    @contextmanager
    def transaction(self, *, write: bool) -> Iterator[Transaction]:
        """All of it or nothing. A writer holds the ledger's lock from the start, so what it reads stays true."""
        with self._begin(write=write) as connection:
            if write:
                connection.execute(sa.select(LEDGER.c.id).with_for_update())  # the lock, where BEGIN takes none
            yield Transaction(connection)

    def create(self, *, budget: str, digest: str) -> None:
        """Make the tables and set the budget, unless someone else just did."""
        with _one_line(self.path.name):
            raw = self._engine.raw_connection()
            try:
                raw.cursor().execute("PRAGMA journal_mode=WAL")
            except sqlite3.OperationalError as error:
                if "locked" not in str(error):  # locked: another process is making it
                    raise
            finally:
                raw.close()
        with self._begin(write=True) as connection:
            METADATA.create_all(connection)
            if connection.execute(sa.select(LEDGER.c.id)).first() is None:
                row = {"id": 1, "schema": LEDGER_SCHEMA, "budget": budget, "budget_sha256": digest}
                connection.execute(sa.insert(LEDGER), row)
        with _one_line(self.path.name):
            sync_folder(self.path.parent)

    def header(self) -> dict[str, Any] | None:
        """Schema and budget; None where there is no ledger."""
        with _one_line(self.path.name):
            if not self.path.exists():  # connecting would make a file
                return None
        with self._begin(write=False) as connection:
            if not sa.inspect(connection).has_table(LEDGER.name):
                return None
            row = connection.execute(sa.select(LEDGER)).mappings().one_or_none()
            return None if row is None else dict(row)

    def close(self) -> None:
        self._engine.dispose()

    def damages(self) -> list[str]:
        """What SQLite itself finds wrong with the file."""
        with self.transaction(write=False) as now:
            found = now.connection.exec_driver_sql("PRAGMA integrity_check").scalars().all()
        return [] if found == ["ok"] else [f"the file is damaged: {' '.join(str(line).split())}" for line in found]

    @contextmanager
    def _begin(self, *, write: bool) -> Iterator[sa.Connection]:
        if self._process != os.getpid():
            self._engine.dispose(close=False)
            self._process = os.getpid()
        with _one_line(self.path.name), self._engine.connect() as connection:
            connection.execution_options(terrine_write=write)
            with connection.begin():
                yield connection


class Transaction:
    """Reading and adding rows within one transaction."""

    def __init__(self, connection: sa.Connection) -> None:
        self.connection = connection

    def last(self) -> Entry | None:
        """The newest entry, whose totals are the ledger's."""
        newest = sa.select(ENTRIES).order_by(ENTRIES.c.seq.desc()).limit(1)
        return next(map(_entry, self.connection.execute(newest)), None)

    def append(self, entry: Entry) -> None:
        row = {name: value for name, value in vars(entry).items() if name != "total"}
        totals = {f"total_{name}": value for name, value in vars(entry.total).items()}
        self.connection.execute(sa.insert(ENTRIES), {**row, **totals})

    def entries(self) -> Iterator[Entry]:
        """In the order they were written."""
        return map(_entry, self.connection.execute(sa.select(ENTRIES).order_by(ENTRIES.c.seq)))

    def part(self, request_id: str, part: int) -> dict[str, Entry]:
        """A part's reservation and settlement, by kind."""
        of_part = sa.select(ENTRIES).where(ENTRIES.c.request_id == request_id, ENTRIES.c.part == part)
        return {entry.kind: entry for entry in map(_entry, self.connection.execute(of_part))}

    def parts(self, request_id: str) -> int:
        """How many reservations a request has."""
        highest = sa.select(sa.func.max(ENTRIES.c.part)).where(ENTRIES.c.request_id == request_id)
        return self.connection.execute(highest).scalar() or 0

    def sums(self) -> Iterator[tuple[str, int, int]]:
        """Queries and answers charged so far, by mechanism."""
        settled = ENTRIES.c.kind == SETTLE
        lowered = ENTRIES.c.n_answers - ENTRIES.c.n_queries  # a settled part's answers, less those reserved
        by_mechanism = sa.select(
            ENTRIES.c.mechanism,
            sa.func.sum(sa.case((settled, 0), else_=ENTRIES.c.n_queries)),
            sa.func.sum(sa.case((settled, lowered), else_=ENTRIES.c.n_answers)),
        ).group_by(ENTRIES.c.mechanism)
        for mechanism, queries, answers in self.connection.execute(by_mechanism.order_by(ENTRIES.c.mechanism)):
            yield mechanism, int(queries), int(answers)

    def unsettled(self) -> int:
        """Queries that are reserved, and not settled: in flight, or left by a crash."""
        signed = sa.case((ENTRIES.c.kind == SETTLE, -ENTRIES.c.n_queries), else_=ENTRIES.c.n_queries)
        return int(self.connection.execute(sa.select(sa.func.sum(signed))).scalar() or 0)

    def all_secure(self) -> bool:
        insecure = sa.select(ENTRIES.c.seq).where(ENTRIES.c.secure.is_(False)).limit(1)
        return self.connection.execute(insecure).first() is None

    def digest(self, request_id: str) -> str | None:
        """Of the rows that a request asked about."""
        of_request = sa.select(REQUESTS.c.digest).where(REQUESTS.c.request_id == request_id)
        return self.connection.execute(of_request).scalar()

    def claim(self, request_id: str, digest: str) -> None:
        self.connection.execute(sa.insert(REQUESTS), {"request_id": request_id, "digest": digest})

    def kept(self, queries: Iterable[str]) -> dict[str, Kept]:
        """The answers that these queries have had."""
        wanted = list(queries)
        found: dict[str, Kept] = {}
        for start in range(0, len(wanted), _AT_ONCE):
            some = sa.select(ANSWERS).where(ANSWERS.c.query.in_(wanted[start : start + _AT_ONCE]))
            found |= {row.query: Kept(row.label, row.outcome, row.secure) for row in self.connection.execute(some)}
        return found

    def keep(self, answers: Mapping[str, Kept], *, entry: int) -> None:
        rows = [{"query": query, **answer._asdict(), "entry": entry} for query, answer in answers.items()]
        if rows:
            self.connection.execute(sa.insert(ANSWERS), rows)

    def all_kept(self) -> Iterator[tuple[str, Kept, int]]:
        """Every query with its answer and the entry that settled it."""
        for row in self.connection.execute(sa.select(ANSWERS).order_by(ANSWERS.c.entry, ANSWERS.c.query)):
            yield row.query, Kept(row.label, row.outcome, row.secure), row.entry


def _entry(row: sa.Row[Any]) -> Entry:
    values = dict(row._mapping)
    total = Spending(**{name: values.pop(f"total_{name}") for name in ("queries", "answers", "charge")})
    return Entry(**values, total=total)


def _path(where: str | Path) -> Path:
    if not isinstance(where, (str, Path)) or not str(where):
        raise LedgerError(f"Expected a path or sqlite:///path for the ledger, got {type(where).__name__}.")
    text = str(where)
    if "://" in text:
        backend, _, text = text.partition(":///")
        if backend != "sqlite":
            raise LedgerError(
                f"Expected a path or sqlite:///path for the ledger, got {backend.partition('://')[0]}://..."
            )
    if text in ("", ":memory:"):
        raise LedgerError("Expected a file for the ledger, got a database in memory: it would not last.")
    return Path(text).absolute()


def _on_connect(connection: Any, _: object) -> None:
    connection.isolation_level = None  # the driver begins no transaction of its own: _on_begin does
    cursor = connection.cursor()
    cursor.execute("PRAGMA synchronous=FULL")  # what is committed survives a power cut
    cursor.execute("PRAGMA foreign_keys=ON")
    cursor.close()


def _on_begin(connection: sa.Connection) -> None:
    write = connection.get_execution_options().get("terrine_write", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")


@contextmanager
def _one_line(name: str) -> Iterator[None]:
    """A database's error as one line; statements and their values stay out of it."""
    try:
        yield
    except (sa.exc.SQLAlchemyError, sqlite3.Error, OSError) as error:
        why = str(getattr(error, "orig", None) or getattr(error, "strerror", None) or error)
        raise LedgerError(f"Expected to use the ledger {name}, got: {' '.join(why.split())}.") from None
