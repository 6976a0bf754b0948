"""Files that are whole or not there: temporary name, fsync, rename."""

from __future__ import annotations

import contextlib
import os
import secrets
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO


def write_atomically(path: Path, write: Callable[[BinaryIO], object], *, mode: int | None = None) -> None:
    """Call ``write`` on a temporary file beside ``path``, then put it in place in one step.

    ``mode`` is the file's; None leaves it to the umask, as for any new file.
    """
    path = Path(path)
    if mode is None:
        umask = os.umask(0)
        os.umask(umask)
        mode = 0o666 & ~umask
    with _blamed(path):
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
        try:
            with os.fdopen(descriptor, "wb") as file:
                os.fchmod(file.fileno(), mode)
                write(file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(name, path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
        sync_folder(path.parent)


def write_once(path: Path, content: bytes, *, mode: int | None = None) -> None:
    """Put a whole file in place unless there is one: of several that try at once, the first wins."""
    spare = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    with _blamed(path):
        try:
            write_atomically(spare, lambda file: file.write(content), mode=mode)
            with contextlib.suppress(FileExistsError):
                os.link(spare, path)
        finally:
            spare.unlink(missing_ok=True)
        sync_folder(path.parent)


@contextlib.contextmanager
def _blamed(path: Path) -> Iterator[None]:
    """An error of a temporary file, or of none, names the file that was to be written."""
    try:
        yield
    except OSError as error:
        if error.errno is None or not str(error.filename or ".tmp").endswith(".tmp"):
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error


def sync_folder(folder: Path) -> None:
    """Make names in a folder last: after a rename."""
    directory = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
