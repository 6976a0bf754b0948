"""Files of the built-in data sets: found under $TERRINE_DATA, then in the user's cache, else downloaded."""

from __future__ import annotations

import gzip
import hashlib
import os
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from terrine._files import write_atomically
from terrine.errors import DataError

# Called with the file's name, bytes done and bytes in all (None where the server does not say).
Progress = Callable[[str, int, int | None], None]

_BLOCK = 1 << 20
_TIMEOUT_SECONDS = 60


@dataclass(frozen=True, kw_only=True)
class DataFile:
    """A public file: where it lies below a data folder, where it comes from, and what it must hash to.

    ``sha256`` lists what is accepted, each for the file's bytes or for what a .gz unpacks to.
    """

    path: str
    sha256: tuple[str, ...]
    urls: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Accepted paths: packed or not."""
        plain = self.path.removesuffix(".gz")
        return (self.path, plain) if plain != self.path else (self.path, f"{self.path}.gz")


def cache() -> Path:
    """The user's cache: $XDG_CACHE_HOME/terrine, or ~/.cache/terrine."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "terrine"


def folders() -> tuple[Path, ...]:
    """Where files are looked for, in order."""
    data = os.environ.get("TERRINE_DATA")
    return (Path(data), cache()) if data else (cache(),)


def find(file: DataFile) -> Path | None:
    """The first folder's copy, unchecked; None where there is none."""
    candidates = (folder / name for folder in folders() for name in file.names)
    return next((path for path in candidates if path.is_file()), None)


def intact(path: Path, file: DataFile) -> bool:
    """Whether the file, or what it unpacks to, has an accepted sha256."""
    with path.open("rb") as stream:
        if _digest(stream) in file.sha256:
            return True
    if path.suffix != ".gz":
        return False
    try:
        with gzip.open(path) as stream:
            return _digest(stream) in file.sha256
    except (OSError, EOFError, zlib.error):
        return False


def get(file: DataFile, *, progress: Progress | None = None) -> Path:
    """The file's path, after a download where it is nowhere; its sha256 is checked every time."""
    path = find(file)
    if path is None:
        return _download_first(file, progress)
    if not intact(path, file):
        raise DataError(
            f"{path}: the file's sha256 must be {file.sha256[0]}, and is not. Remove the file, and it is fetched again."
        )
    return path


def read(path: Path) -> bytes:
    """All bytes, unpacked where the name ends in .gz."""
    if path.suffix != ".gz":
        return path.read_bytes()
    try:
        with gzip.open(path) as stream:
            return stream.read()
    except (OSError, EOFError, zlib.error):
        raise DataError(
            f"{path}: the file is not gzip, or it is damaged. Remove it, and it is fetched again."
        ) from None


def download(url: str, target: Path, *, sha256: tuple[str, ...], progress: Progress | None = None) -> None:
    """Fetch ``url`` to ``target``, whole and with an accepted sha256, or leave nothing behind."""
    import urllib.request

    def write(out: BinaryIO) -> None:
        digest, done = hashlib.sha256(), 0
        with urllib.request.urlopen(url, timeout=_TIMEOUT_SECONDS) as response:
            length = response.headers.get("Content-Length")
            total = int(length) if length and length.isdigit() else None
            while block := response.read(_BLOCK):
                out.write(block)
                digest.update(block)
                done += len(block)
                if progress is not None:
                    progress(target.name, done, total)
        if digest.hexdigest() not in sha256:
            raise DataError(
                f"{url}: the file's sha256 must be {sha256[0]}, got {digest.hexdigest()}. Nothing was kept."
            )

    target.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(target, write)


def missing(path: str, *, how: str) -> DataError:
    """One line that names the file, where it was looked for and how to get it."""
    looked = ", ".join(str(folder / path) for folder in folders())
    hint = "" if os.environ.get("TERRINE_DATA") else " ($TERRINE_DATA is not set)"
    return DataError(f"There is no file {path}; looked for {looked}{hint}. {how}")


def _download_first(file: DataFile, progress: Progress | None) -> Path:
    """Try the addresses in order; the file's form in the cache is that of its address."""
    reasons = []
    for url in file.urls:
        name = file.path if url.endswith(".gz") == file.path.endswith(".gz") else file.path.removesuffix(".gz")
        target = cache() / name
        try:
            download(url, target, sha256=file.sha256, progress=progress)
            return target
        except DataError as error:
            reasons.append(str(error))
        except OSError as error:  # urllib's own are among them
            reasons.append(f"{url}: {getattr(error, 'reason', None) or error}")
    if not file.urls:
        raise missing(file.path, how="It has no address to download it from.")
    put = f"Download it from {file.urls[0]} and put it under one of these folders"
    raise missing(file.path, how=f"{put}; downloading failed ({'; '.join(reasons)}).")


def _digest(stream: Any) -> str:
    digest = hashlib.sha256()
    while block := stream.read(_BLOCK):
        digest.update(block)
    return digest.hexdigest()
