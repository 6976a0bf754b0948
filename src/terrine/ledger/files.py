"""Whether an SQLite ledger's files are still those that were opened."""

from __future__ import annotations

import os
import threading
from pathlib import Path

_BESIDE = ("-wal", "-shm")  # the write-ahead log and its index: SQLite removes them with the last connection only


class Replaced(Exception):
    """The database is not the one that was opened, or went back: nothing that it says may be trusted."""


class Files:
    """The file and those beside it, by device and inode: a path says nothing about what an open connection writes to.

    Files are looked at by name only, never opened: to close a file that SQLite has open would drop SQLite's locks.
    """

    def __init__(self, path: Path) -> None:
        self._path = str(path)
        self._lock = threading.Lock()
        self._n_open = 0
        self._file: tuple[int, int] | None = None
        self._beside: dict[str, tuple[int, int] | None] = {}  # None: not there yet

    def opened(self) -> None:
        """A connection was made, and has read: what it has open may not change as long as there is one."""
        with self._lock:
            self._n_open += 1
        self.check()

    def closed(self) -> None:
        with self._lock:
            self._n_open -= 1
            if self._n_open == 0:
                self._beside = {}  # SQLite may have removed them

    def forget(self, *, connections: bool) -> None:
        """The ledger was closed, or this is a fork, whose connections are its parent's."""
        with self._lock:
            if connections:
                self._n_open = 0
            if self._n_open == 0:
                self._file, self._beside = None, {}

    def check(self) -> None:
        """Replaced, unless they are what they were."""
        with self._lock:
            now = _identity(self._path)
            if self._file not in (None, now):
                raise Replaced("the file was removed" if now is None else "another file is in its place")
            self._file = now
            for end in _BESIDE if self._n_open else ():
                now = _identity(f"{self._path}{end}")
                if self._beside.get(end) not in (None, now):
                    raise Replaced(f"the file beside it that ends in {end} was removed or replaced")
                self._beside[end] = now


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino
