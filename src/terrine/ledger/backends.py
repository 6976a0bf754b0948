"""What SQLite and PostgreSQL do differently: how to connect, to lock, to make a ledger, and to say what went wrong."""

from __future__ import annotations

import os
import re
import sqlite3
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from terrine._files import sync_folder
from terrine._optional import require
from terrine.errors import LedgerError
from terrine.ledger import guards
from terrine.ledger.files import Files

_WAIT = 60  # seconds for another process to finish its transaction
_REACH = 10  # seconds for a server to answer at all
_MAKING = 0x7465727269  # PostgreSQL's advisory lock while tables are made
_FORMS = "A ledger is a file's path, sqlite:///path or postgresql://user:password@host:port/database"


class Sqlite:
    """A file. BEGIN IMMEDIATE takes its one write lock."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = path.name
        self._files = Files(path)

    def engine(self) -> sa.Engine:
        query = {"mode": "rw", "uri": "true"}  # one that is gone is not made anew
        if self._is_still():
            query = {"mode": "ro", "immutable": "1", "uri": "true"}
        url = sa.URL.create("sqlite", database=self.path.as_uri(), query=query)
        engine = sa.create_engine(url, connect_args={"timeout": _WAIT}, hide_parameters=True)
        files = self._files

        @sa.event.listens_for(engine, "connect")
        def on_connect(connection: Any, _: object) -> None:
            connection.isolation_level = None  # the driver begins no transaction of its own: on_begin does
            cursor = connection.cursor()
            cursor.execute("PRAGMA synchronous=FULL")  # what is committed survives a power cut
            cursor.execute("SELECT count(*) FROM sqlite_master").fetchall()  # opens the log, and keeps it from removal
            cursor.close()
            files.opened()

        @sa.event.listens_for(engine, "close")
        def on_close(_: Any, __: object) -> None:
            files.closed()

        @sa.event.listens_for(engine, "begin")
        def on_begin(connection: sa.Connection) -> None:
            if connection.get_execution_options().get("terrine_write", False):
                connection.exec_driver_sql("PRAGMA shrink_memory")  # pages are read again: the file may be an older one
                connection.exec_driver_sql("BEGIN IMMEDIATE")
            else:
                connection.exec_driver_sql("BEGIN")

        return engine

    def check(self) -> None:
        """Replaced, if the file is not the one that was opened."""
        self._files.check()

    def closed(self) -> None:
        self._files.forget(connections=False)

    def forked(self) -> None:
        self._files.forget(connections=True)

    def _is_still(self) -> bool:
        """Whether it can only be read: the file is complete, but SQLite cannot create its own files next to it."""
        there = os.path.isfile(self.path) and not os.path.exists(f"{self.path}-wal")
        return there and not os.access(self.path.parent, os.W_OK)

    def options(self, *, write: bool) -> dict[str, Any]:
        return {"terrine_write": write}

    def lock(self, connection: sa.Connection, seq: int) -> tuple[str | None, str | None]:
        """BEGIN IMMEDIATE has it: the header's digest, and that of an entry."""
        ask = "SELECT digest, (SELECT digest FROM terrine_entries WHERE seq = ?) FROM terrine_ledger"
        found = connection.exec_driver_sql(ask, (seq,)).first()
        return (found[0], found[1]) if found else (None, None)

    def is_missing(self) -> bool:
        return not self.path.exists()  # connecting would make a file

    def prepare(self) -> None:
        """A file with a write-ahead log, before the first table."""
        raw = sqlite3.connect(self.path, timeout=_WAIT)
        try:
            raw.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError as error:
            if "locked" not in str(error):  # locked: another process is making it
                raise
        finally:
            raw.close()

    def lock_making(self, connection: sa.Connection) -> None:
        """BEGIN IMMEDIATE has it."""

    def finish(self) -> None:
        sync_folder(self.path.parent)

    def damages(self, connection: sa.Connection) -> list[str]:
        """What SQLite itself finds wrong with the file."""
        found = connection.exec_driver_sql("PRAGMA integrity_check").scalars().all()
        return [] if found == ["ok"] else [f"the file is damaged: {' '.join(str(line).split())}" for line in found]

    def doubts(self, connection: sa.Connection) -> list[str]:
        return guards.doubts(connection)

    def why(self, error: Exception) -> str:
        return str(getattr(error, "orig", None) or getattr(error, "strerror", None) or error)


class Postgres:
    """A server. Writers queue for the row lock on terrine_ledger, and read what was committed before they got it."""

    def __init__(self, url: sa.URL) -> None:
        self._url = url.set(drivername="postgresql+psycopg")
        self.name = f"postgresql://{url.host or ''}/{url.database}"

    def engine(self) -> sa.Engine:
        arguments: dict[str, Any] = {"client_encoding": "utf8", "application_name": "terrine"}
        arguments |= {
            "keepalives_idle": 30,
            "keepalives_interval": 10,
            "keepalives_count": 3,
            "connect_timeout": _REACH,
        }
        given = {name: value for name, value in arguments.items() if name not in self._url.query}
        require("psycopg", use="A ledger on PostgreSQL", extra="service")
        engine = sa.create_engine(
            self._url, connect_args=given, hide_parameters=True, pool_pre_ping=True, pool_timeout=_WAIT
        )

        @sa.event.listens_for(engine, "connect")
        def on_connect(connection: Any, _: object) -> None:
            connection.autocommit = True  # settings of the session: no rollback undoes them
            connection.execute(f"SET lock_timeout = '{_WAIT}s'")
            connection.execute(
                "SET plan_cache_mode = force_custom_plan"
            )  # one made for empty tables would scan full ones
            connection.execute(
                "SELECT set_config('synchronous_commit', 'on', false) "
                "WHERE current_setting('synchronous_commit') <> 'remote_apply'"  # which is stronger
            )
            connection.autocommit = False

        return engine

    def options(self, *, write: bool) -> dict[str, Any]:
        """A writer sees what others committed while it waited for the lock; a reader sees one moment."""
        level = "READ COMMITTED" if write else "REPEATABLE READ"
        return {"terrine_write": write, "isolation_level": level, "postgresql_readonly": not write}

    def check(self) -> None:
        """Nothing: a server answers for its own files."""

    def closed(self) -> None:
        """Nothing."""

    def forked(self) -> None:
        """Nothing."""

    def lock(self, connection: sa.Connection, seq: int) -> tuple[str | None, str | None]:
        """The header's digest, and that of an entry. If this process hangs it loses the lock, and its transaction:
        others wait."""
        found = connection.exec_driver_sql(
            f"SELECT digest, (SELECT digest FROM terrine_entries WHERE seq = %s), "
            f"set_config('idle_in_transaction_session_timeout', '{_WAIT}s', true) FROM terrine_ledger FOR UPDATE",
            (seq,),
        ).first()
        return (found[0], found[1]) if found else (None, None)

    def is_missing(self) -> bool:
        return False

    def prepare(self) -> None:
        """Nothing: a server keeps a write-ahead log anyway."""

    def lock_making(self, connection: sa.Connection) -> None:
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_MAKING)))

    def finish(self) -> None:
        """Nothing: the commit is on the server's disk."""

    def damages(self, connection: sa.Connection) -> list[str]:
        """Nothing that a client could find: damaged pages fail when they are read."""
        return []

    def doubts(self, connection: sa.Connection) -> list[str]:
        """A server that forgets, and tables that may be changed."""
        settings = ("fsync", "full_page_writes")
        off = [name for name in settings if connection.exec_driver_sql(f"SHOW {name}").scalar() != "on"]
        return [
            *(f"the server runs with {name} off: a power cut may lose what was charged" for name in off),
            *guards.doubts(connection),
        ]

    def why(self, error: Exception) -> str:
        """The server's message without user names and passwords."""
        cause = getattr(error, "orig", None) or error
        words = getattr(getattr(cause, "diag", None), "message_primary", None) or str(cause)
        words = words.rpartition("FATAL:")[2].strip().partition("\n")[0].rpartition(" failed: ")[2]
        words = re.sub(r' *"[^"]*"', "", words)
        for secret in (self._url.username, self._url.password):
            words = re.sub(rf"(?<!\w){re.escape(str(secret))}(?!\w)", "...", words) if secret else words
        return words.strip().rstrip(".") or type(cause).__name__


def backend(where: str | Path) -> Sqlite | Postgres:
    """From a path or a URL; what is refused is not repeated, for it may hold a password."""
    if not isinstance(where, (str, Path)) or not str(where):
        raise LedgerError(f"{_FORMS}, not {type(where).__name__}.")
    text = str(where)
    scheme, is_url, rest = text.partition("://")
    if not is_url and not re.match(r"postgres\w*\W", text):  # a misspelled URL is no file name
        return Sqlite(_file(text))
    if scheme == "sqlite" and rest.startswith("/"):
        return Sqlite(_file(rest[1:]))
    if scheme not in ("postgresql", "postgresql+psycopg"):
        given = f", not {scheme}://" if scheme.isalnum() and is_url else "; this has none of these forms"
        raise LedgerError(f"{_FORMS}{given}.")
    try:
        url = sa.make_url(text)
    except Exception:  # its message may hold what is between the slashes
        url = None
    if url is None or not url.database:
        raise LedgerError(f"{_FORMS}; this URL cannot be read, or names no database.")
    return Postgres(url)


def _file(text: str) -> Path:
    if text in ("", ":memory:"):
        raise LedgerError("A ledger must be a file: a database in memory would not last.")
    return Path(text).absolute()
