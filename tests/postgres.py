"""A throwaway PostgreSQL server, one for each process that runs tests: `server()`, then `server().database()`.

`where` is a fixture: the test runs once with a ledger's file and once with a database.

It runs as the user postgres where tests run as root, which PostgreSQL refuses to. Its files are in memory where there
is /dev/shm, so that it can keep fsync on.
"""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import tempfile
import time
from contextlib import closing
from pathlib import Path

import pytest
from tests.conftest import need

try:
    import psycopg
except ImportError:
    psycopg = None

PASSWORD = "hush-hush"  # of the role terrine: what no message may say
ROLE = "terrine_role"
MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None  # many small commits: not worth a disk


def binary(name: str) -> str | None:
    """The newest one of this machine."""
    places = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: float(path.parent.name), reverse=True)
    for folder in (*os.environ.get("PATH", "").split(os.pathsep), *map(str, places)):
        if folder and (found := Path(folder) / name).is_file() and os.access(found, os.X_OK):
            return str(found.resolve())  # postgres finds its own files from there
    return None


def available() -> bool:
    return psycopg is not None and all(map(binary, ("postgres", "initdb")))


class Server:
    """Listens on a socket in its own folder, and on localhost."""

    def __init__(self) -> None:
        if not available():
            need("PostgreSQL and psycopg")
        self._postgres, initdb = str(binary("postgres")), str(binary("initdb"))
        self._user: list[str] = []
        self.folder = Path(tempfile.mkdtemp(prefix="tpg", dir=MEMORY))
        atexit.register(self.stop)
        if os.geteuid() == 0:
            shutil.chown(self.folder, "postgres", "postgres")
            self._user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self._process: subprocess.Popen[bytes] | None = None
        self._made = 0
        secret = self.folder / "password"
        secret.write_text(PASSWORD)
        secret.chmod(0o644)
        self._run(
            initdb,
            "--no-sync",
            "--username=postgres",
            "--auth-local=trust",
            "--auth-host=password",
            f"--pwfile={secret}",
            "--encoding=UTF8",
            "--locale=C",
            f"--pgdata={self.folder}/data",
        )
        self.start()
        with self.superuser() as connection:
            connection.execute(f"CREATE ROLE {ROLE} LOGIN PASSWORD '{PASSWORD}'")

    def start(self) -> None:
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": self.port,
            "unix_socket_directories": self.folder,
            "max_connections": 60,
            "shared_buffers": "16MB",
            "autovacuum": "off",
        }
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        for _ in range(20):  # after a kill the old server's children may take a moment to go
            with (self.folder / "log").open("ab") as log:
                command = [*self._user, self._postgres, "-D", str(self.folder / "data"), *options]
                self._process = subprocess.Popen(command, cwd=self.folder, stdout=log, stderr=log)
            while self._process.poll() is None:
                try:
                    self.superuser().close()
                    return
                except psycopg.OperationalError:
                    time.sleep(0.02)
            time.sleep(0.1)
        raise AssertionError((self.folder / "log").read_text())

    def kill(self) -> None:
        """As a machine that loses its power: no farewell, and what was not written is lost."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGQUIT)
        shutil.rmtree(self.folder, ignore_errors=True)

    def database(self, *, like: str | None = None) -> str:
        """The URL of a new database: empty, or a copy of another that nobody is connected to."""
        self._made += 1
        name = f"test{self._made}"
        template = "" if like is None else f"TEMPLATE {like.rpartition('/')[2]}"
        with self.superuser() as connection:
            files = "STRATEGY FILE_COPY" if connection.info.server_version >= 150_000 else ""  # in half of the CPU time
            connection.execute(f"CREATE DATABASE {name} OWNER {ROLE} {template} {files}")
        return f"postgresql://{ROLE}:{PASSWORD}@127.0.0.1:{self.port}/{name}"

    def superuser(self, url: str = "postgres") -> psycopg.Connection:
        """Who may do anything: in the database of a URL, through the socket."""
        name = url.rpartition("/")[2]
        return psycopg.connect(
            host=str(self.folder), port=self.port, user="postgres", dbname=name, autocommit=True, connect_timeout=5
        )

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(how)
            self._process.wait()

    def _run(self, *command: str) -> None:
        done = subprocess.run([*self._user, *command], cwd=self.folder, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


@functools.cache
def server() -> Server:
    return Server()


@pytest.fixture(params=["sqlite", "postgresql"])
def where(request):
    """A place for a ledger: a file in memory, or an empty database."""
    if request.param == "postgresql":
        yield server().database()
        return
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        yield str(Path(folder) / "ledger.sqlite")


def on_server(where: str) -> bool:
    return where.startswith("postgresql")


def rows(where: str, query: str) -> list[tuple]:
    """What a ledger's tables hold, read past the ledger."""
    if on_server(where):
        with server().superuser(where) as connection:
            return connection.execute(query).fetchall()
    with closing(sqlite3.connect(where)) as connection:
        return connection.execute(query).fetchall()


def meddle(where: str, *statements: str) -> None:
    """Change a ledger's tables as someone who may do anything and leaves no trace: triggers are put back."""
    if on_server(where):
        with server().superuser(where) as connection:
            connection.execute("SET session_replication_role = replica")
            for statement in statements:
                connection.execute(statement)
        return
    with closing(sqlite3.connect(where, isolation_level=None)) as connection:
        triggers = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
        for name, _ in triggers:
            connection.execute(f"DROP TRIGGER {name}")
        for statement in statements:
            connection.execute(statement)
        for _, again in triggers:
            connection.execute(again)
