"""A folder of teachers: one file per chunk, a manifest that says what they are, and a sha256 for each.

A chunk is there or it is not: its file is written under a temporary name and renamed, then its hash likewise, which
also names the manifest it belongs to. What a killed run leaves behind is whole chunks, and a rerun, one program at a
time, trains the others. Nothing in it is executed on loading.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from terrine._files import write_atomically
from terrine.errors import StoreError

SCHEMA = "terrine.teachers/1"
DATA = "data"  # the setting that is a fingerprint of private rows: compared, never shown
IDENTITY = "identity"  # who the teachers are: what a ledger's answers are known by


@dataclass(frozen=True)
class Store:
    """Where teachers are kept.

    Args:
        folder: made if it is not there; readable by its owner only (teachers are as secret as the data).
    """

    folder: Path

    def open(self, settings: dict[str, Any], *, identity: str = "") -> None:
        """Begin, or continue where a run with the same settings stopped.

        Args:
            settings: what decides what the teachers are: kind, recipe, seed, chunk, numbers, and `DATA`.
            identity: kept with them; a store that was begun without one stays without.
        """
        manifest = {"schema": SCHEMA, **settings, **({IDENTITY: identity} if identity else {})}
        if self._manifest.exists():
            self.expect({"schema": SCHEMA, **settings})
            for left in self.folder.glob(".*.tmp"):  # of a run that was killed
                left.unlink(missing_ok=True)
            return
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise self._failed("teachers", error) from error
        if any(self.folder.glob("teachers-*")):
            raise StoreError(
                f"There are teachers in {self.folder}, and no {self._manifest.name} that says what they "
                "are. Restore it, or use a new folder."
            )
        text = json.dumps(manifest, indent=2, sort_keys=True).encode()
        self._write(self._manifest, text)

    def expect(self, settings: dict[str, Any]) -> None:
        """Refuse a store that was made with other settings than these, by the first that differs."""
        found = self.settings()
        wanted = json.loads(json.dumps(settings))
        for key in sorted(wanted, key=lambda key: (key == DATA, key)):
            if found.get(key) != wanted[key]:
                made = f"with {key}={found.get(key)!r}, not {wanted[key]!r} (see {self._manifest.name})"
                if key == DATA:
                    made = f"for other rows or shares (see {key} in {self._manifest.name})"
                raise StoreError(f"The store was made {made}. Use another folder, or delete this one.")

    def settings(self) -> dict[str, Any]:
        try:
            found = json.loads(self._manifest.read_text())
        except FileNotFoundError:
            raise StoreError(
                f"There is no store of teachers in {self.folder}: {self._manifest.name} is missing."
            ) from None
        except (ValueError, UnicodeDecodeError):
            raise StoreError(
                f"{self._manifest.name} is not JSON that can be read. Restore it, or teach again into a new folder."
            ) from None
        if not isinstance(found, dict) or found.get("schema") != SCHEMA:
            raise StoreError(f"{self._manifest.name} is not a manifest of schema {SCHEMA}.")
        return found

    @property
    def _manifest(self) -> Path:
        return self.folder / "manifest.json"

    def path(self, chunk: tuple[int, ...], suffix: str) -> Path:
        return self.folder / f"teachers-{chunk[0]:06d}-{chunk[-1]:06d}{suffix}"

    def save(self, chunk: tuple[int, ...], suffix: str, data: bytes, *, failed: int = 0) -> None:
        """Keep a chunk, and how many of its teachers failed: secret, as all that is here."""
        path = self.path(chunk, suffix)
        self._write(path, data)
        self._write(self._failures(path), f"{failed:06d}\n".encode())
        self._write(self._digest(path), self._seal(path, data).encode())

    def has(self, chunk: tuple[int, ...], suffix: str) -> bool:
        """Whether the chunk was finished; `load` says whether it is whole."""
        path = self.path(chunk, suffix)
        return path.exists() and self._digest(path).exists()

    def load(self, chunk: tuple[int, ...], suffix: str) -> bytes:
        path = self.path(chunk, suffix)
        try:
            data, seal = path.read_bytes(), self._digest(path).read_bytes()
        except FileNotFoundError:
            raise StoreError(
                f"The teachers of {path.name} are missing, or were not finished. Teach again: only they are trained."
            ) from None
        if seal != self._seal(path, data).encode():
            raise StoreError(
                f"{path.name} is not as this store wrote it (its sha256 differs): damaged, or from "
                "elsewhere. Delete it and teach again."
            )
        return data

    def failed(self, chunk: tuple[int, ...], suffix: str) -> int:
        """How many teachers of the chunk failed; 0 in older stores, which did not keep this number."""
        path = self._failures(self.path(chunk, suffix))
        try:
            return int(path.read_text())
        except FileNotFoundError:
            return 0
        except ValueError:
            raise StoreError(
                f"{path.name} is damaged: it should hold a number of teachers. Delete it and teach again."
            ) from None

    def _seal(self, path: Path, data: bytes) -> str:
        """As sha256sum prints it, and the manifest's hash: a chunk of another store does not fit in this one."""
        manifest = hashlib.sha256(self._manifest.read_bytes()).hexdigest()
        return f"{hashlib.sha256(data).hexdigest()}  {path.name}\n{manifest}  {self._manifest.name}\n"

    def _write(self, path: Path, data: bytes) -> None:
        try:
            write_atomically(path, lambda file: file.write(data), mode=0o600)
        except OSError as error:  # a full disk, above all
            raise self._failed(path.name, error) from error

    def _failed(self, what: str, error: OSError) -> StoreError:
        return StoreError(
            f"Cannot write {what} to {self.folder}: {error.strerror or error}. What was finished is "
            "kept; the same call continues from there."
        )

    @staticmethod
    def _failures(path: Path) -> Path:
        return path.with_name(path.name + ".failed")

    @staticmethod
    def _digest(path: Path) -> Path:
        return path.with_name(path.name + ".sha256")
