"""Files and folders that are whole or not there: temporary name, fsync, rename."""

from __future__ import annotations

import contextlib
import ctypes
import filecmp
import os
import secrets
import shutil
import sys
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


def replace_folder(folder: Path, write: Callable[[Path], object]) -> None:
    """Call ``write`` on a new folder beside one, put the new one in its place, and delete the other.

    In one step where the system can exchange two names. Elsewhere in two: `restore_folder` mends a kill between them.
    """
    restore_folder(folder)
    new, old = _beside(folder)
    write(new)
    if not _exchange(new, folder):
        os.rename(folder, old)
        os.rename(new, folder)
    sync_folder(folder.parent)
    restore_folder(folder)


def restore_folder(folder: Path) -> None:
    """Mend what a kill in `replace_folder` left: the folder is back in its place, and nothing lies beside it."""
    new, old = _beside(folder)
    if not folder.exists() and old.is_dir():
        os.rename(old, folder)
        sync_folder(folder.parent)
    for left in (new, old):
        shutil.rmtree(left, ignore_errors=True)


def _beside(folder: Path) -> tuple[Path, Path]:
    return folder.with_name(f".{folder.name}.new"), folder.with_name(f".{folder.name}.old")


def _exchange(first: Path, second: Path) -> bool:
    """Whether the system exchanged two names in one step."""
    system, a, b = ctypes.CDLL(None), os.fsencode(first), os.fsencode(second)
    if sys.platform == "darwin":
        return bool(system.renamex_np(a, b, 2) == 0)  # RENAME_SWAP
    if not hasattr(system, "renameat2"):
        return False
    return bool(system.renameat2(-100, a, -100, b, 2) == 0)  # AT_FDCWD, RENAME_EXCHANGE


def same_rows_in(one: Path, other: Path) -> bool:
    """Whether two paths lead to one file or folder, or one of them holds the other's rows. Nothing is read."""
    try:
        first, second = one.resolve(), other.resolve()
        inside = first.is_relative_to(second) or second == first / "X.npy"  # a folder's rows are at any depth in it
        return inside or os.path.samefile(one, other)
    except OSError:  # one of them is not there, which is said where it is read
        return False


def same_bytes(one: Path, other: Path) -> bool:
    """Whether two files hold the same; folders never do."""
    return one.is_file() and other.is_file() and filecmp.cmp(one, other, shallow=False)


def sync_folder(folder: Path) -> None:
    """Make names in a folder last: after a rename."""
    directory = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
