"""What SQLite and PostgreSQL do differently: how to connect, to lock, to make a ledger, and to say what went wrong."""

from __future__ import annotations

import os
import re
import sqlite3
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from terrine._files import sync_folder
from terrine.errors import LedgerError, MissingDependencyError
from terrine.ledger.tables import guards

_WAIT = 60  # seconds for another process to finish its transaction
_REACH = 10  # seconds for a server to answer at all
_MAKING = 0x7465727269  # PostgreSQL's advisory lock while tables are made
_EXPECTED = "Expected a path, sqlite:///path or postgresql://user:password@host:port/database for the ledger"


class Sqlite:
    """A file. BEGIN IMMEDIATE takes its one write lock."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = path.name

    def engine(self) -> sa.Engine:
        url = sa.URL.create("sqlite", database=str(self.path))
        if self._is_still():
            query = {"mode": "ro", "immutable": "1", "uri": "true"}
            url = sa.URL.create("sqlite", database=self.path.as_uri(), query=query)
        engine = sa.create_engine(url, connect_args={"timeout": _WAIT}, hide_parameters=True)

        @sa.event.listens_for(engine, "connect")
        def on_connect(connection: Any, _: object) -> None:
            connection.isolation_level = None  # the driver begins no transaction of its own: on_begin does
            cursor = connection.cursor()
            cursor.execute("PRAGMA synchronous=FULL")  # what is committed survives a power cut
            cursor.close()

        @sa.event.listens_for(engine, "begin")
        def on_begin(connection: sa.Connection) -> None:
            write = connection.get_execution_options().get("terrine_write", False)
            connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")

        return engine

    def _is_still(self) -> bool:
        """Whether it can only be read: a whole file where SQLite can make none beside it, not even to look at it."""
        there = os.path.isfile(self.path) and not os.path.exists(f"{self.path}-wal")
        return there and not os.access(self.path.parent, os.W_OK)

    def options(self, *, write: bool) -> dict[str, Any]:
        return {"terrine_write": write}

    def lock(self, connection: sa.Connection) -> str | None:
        """BEGIN IMMEDIATE has it: the header's digest."""
        return connection.exec_driver_sql("SELECT digest FROM terrine_ledger").scalar()

    def is_missing(self) -> bool:
        return not self.path.exists()  # connecting would make a file

    def prepare(self, engine: sa.Engine) -> None:
        """A write-ahead log, before the first table."""
        raw = engine.raw_connection()
        try:
            raw.cursor().execute("PRAGMA journal_mode=WAL")
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
        there = connection.exec_driver_sql("SELECT name FROM sqlite_master WHERE type = 'trigger'").scalars()
        return unguarded(guards("sqlite") - set(there))

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
        try:
            engine = sa.create_engine(
                self._url, connect_args=given, hide_parameters=True, pool_pre_ping=True, pool_timeout=_WAIT
            )
        except ImportError:
            raise MissingDependencyError(
                "Expected psycopg for a ledger on PostgreSQL, got no such package; install it with: "
                "pip install 'terrine[service]'"
            ) from None

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

    def lock(self, connection: sa.Connection) -> str | None:
        """The header's digest. If this process hangs it loses the lock, and its transaction: others wait."""
        return connection.exec_driver_sql(
            f"SELECT digest, set_config('idle_in_transaction_session_timeout', '{_WAIT}s', true) "
            "FROM terrine_ledger FOR UPDATE"
        ).scalar()

    def is_missing(self) -> bool:
        return False

    def prepare(self, engine: sa.Engine) -> None:
        """Nothing: a server keeps a write-ahead log anyway."""

    def lock_making(self, connection: sa.Connection) -> None:
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_MAKING)))

    def finish(self) -> None:
        """Nothing: the commit is on the server's disk."""

    def damages(self, connection: sa.Connection) -> list[str]:
        """None that a client could find: damaged pages fail when they are read."""
        return []

    def doubts(self, connection: sa.Connection) -> list[str]:
        """A server that forgets, and tables that may be changed."""
        settings = ("fsync", "full_page_writes")
        off = [name for name in settings if connection.exec_driver_sql(f"SHOW {name}").scalar() != "on"]
        there = connection.exec_driver_sql(
            "SELECT tgname FROM pg_trigger WHERE tgenabled IN ('O', 'A') AND tgrelid IN "
            "(SELECT oid FROM pg_class WHERE relname LIKE 'terrine\\_%%' AND pg_table_is_visible(oid))"
        ).scalars()
        return [
            *(f"the server runs with {name} off: a power cut may lose what was charged" for name in off),
            *unguarded(guards("postgresql") - set(there)),
        ]

    def why(self, error: Exception) -> str:
        """The server's words without names: who connects is nobody's business."""
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
        raise LedgerError(f"{_EXPECTED}, got {type(where).__name__}.")
    text = str(where)
    scheme, is_url, rest = text.partition("://")
    if not is_url and not re.match(r"postgres\w*\W", text):  # a misspelt URL is no file name
        return Sqlite(_file(text))
    if scheme == "sqlite" and rest.startswith("/"):
        return Sqlite(_file(rest[1:]))
    if scheme not in ("postgresql", "postgresql+psycopg"):
        raise LedgerError(
            f"{_EXPECTED}, got {f'{scheme}://...' if scheme.isalnum() and is_url else 'another spelling'}."
        )
    try:
        url = sa.make_url(text)
    except Exception:  # its message may hold what is between the slashes
        url = None
    if url is None or not url.database:
        raise LedgerError(f"{_EXPECTED}, got another spelling, or one without a database.")
    return Postgres(url)


def unguarded(missing: set[str]) -> list[str]:
    """Rows of a table without its trigger may have been changed."""
    return [f"the trigger {name} is gone: rows may have been changed" for name in sorted(missing)]


def _file(text: str) -> Path:
    if text in ("", ":memory:"):
        raise LedgerError("Expected a file for the ledger, got a database in memory: it would not last.")
    return Path(text).absolute()
