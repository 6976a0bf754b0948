"""A folder of teachers: one file per chunk, a manifest that says what they are, and a sha256 for each.

A chunk is there or it is not: its file is written under a temporary name and renamed, then its hash likewise. What a
killed run leaves behind is whole chunks, and a rerun trains the others. Nothing in it is executed on loading.
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


@dataclass(frozen=True)
class Store:
    """Where teachers are kept.

    Args:
        folder: made if it is not there; readable by its owner only (teachers are as secret as the data).
    """

    folder: Path

    def open(self, settings: dict[str, Any]) -> None:
        """Begin, or go on where a run with the same settings stopped.

        Args:
            settings: public facts that decide what the teachers are: kind, recipe, seed, chunk, numbers.
        """
        manifest = {"schema": SCHEMA, **settings}
        if not self._manifest.exists():
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            text = json.dumps(manifest, indent=2, sort_keys=True).encode()
            write_atomically(self._manifest, lambda file: file.write(text), mode=0o600)
            return
        found = self.settings()
        for key in sorted({*manifest, *found}):
            if found.get(key) != manifest.get(key):
                raise StoreError(
                    f"Expected a store made with {key}={manifest.get(key)!r}, got {found.get(key)!r} in "
                    f"{self._manifest.name}; use another folder, or delete this one."
                )

    def settings(self) -> dict[str, Any]:
        try:
            found = json.loads(self._manifest.read_text())
        except FileNotFoundError:
            raise StoreError(f"Expected a store of teachers, got no {self._manifest.name} in {self.folder}.") from None
        except (ValueError, UnicodeDecodeError):
            raise StoreError(f"Expected a manifest in JSON, got {self._manifest.name} that cannot be read.") from None
        if not isinstance(found, dict) or found.get("schema") != SCHEMA:
            raise StoreError(f"Expected a manifest of schema {SCHEMA}, got another in {self._manifest.name}.")
        return found

    @property
    def _manifest(self) -> Path:
        return self.folder / "manifest.json"

    def path(self, chunk: tuple[int, ...], suffix: str) -> Path:
        return self.folder / f"teachers-{chunk[0]:06d}-{chunk[-1]:06d}{suffix}"

    def save(self, chunk: tuple[int, ...], suffix: str, data: bytes) -> None:
        path = self.path(chunk, suffix)
        write_atomically(path, lambda file: file.write(data), mode=0o600)
        digest = hashlib.sha256(data).hexdigest().encode()
        write_atomically(self._digest(path), lambda file: file.write(digest), mode=0o600)

    def has(self, chunk: tuple[int, ...], suffix: str) -> bool:
        """Whether the chunk was finished; `load` says whether it is whole."""
        path = self.path(chunk, suffix)
        return path.exists() and self._digest(path).exists()

    def load(self, chunk: tuple[int, ...], suffix: str) -> bytes:
        path = self.path(chunk, suffix)
        try:
            data, digest = path.read_bytes(), self._digest(path).read_text()
        except FileNotFoundError:
            raise StoreError(
                f"Expected teachers in {path.name}, got no such file (or none that was finished)."
            ) from None
        if hashlib.sha256(data).hexdigest() != digest:
            raise StoreError(f"Expected {path.name} as it was written, got a file with another sha256: it is damaged.")
        return data

    @staticmethod
    def _digest(path: Path) -> Path:
        return path.with_name(path.name + ".sha256")
