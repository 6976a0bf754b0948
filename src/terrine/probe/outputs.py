"""The outputs of a training's steps, each in a file that is written once: public, and named in the ledger's chain."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from terrine._files import sync_folder, write_once
from terrine.errors import LedgerError

_MAGIC = b"terrine.output/1\n"
_TIME = 946_684_800  # 2000-01-01


@dataclass(frozen=True)
class OutputFiles:
    """Where the outputs of one ledger's training are.

    Args:
        folder: of the ledger.
        ledger_id: whose.
        dimension: numbers in an output.
    """

    folder: Path
    ledger_id: str
    dimension: int

    def path(self, step: int) -> Path:
        return self.folder / f"training-{self.ledger_id}" / f"step-{step:05}.out"

    @property
    def lock(self) -> Path:
        """Held by the one process that trains."""
        return self.path(0).parent / "lock"

    def made(self) -> Path:
        """Their folder, which is there from now on."""
        found = self.path(0).parent
        if not found.exists():
            found.mkdir(exist_ok=True)
            sync_folder(self.folder)
        return found

    def write(self, step: int, output: NDArray[np.int64]) -> str:
        """Keep an output unless the step has one: its digest, or that of the one that was there."""
        path = self.made() / self.path(step).name
        write_once(path, self._head(step) + output.astype("<i8").tobytes())
        for one in (path, self.lock, path.parent):  # when a step was done tells how many rows there are
            if one.exists():
                os.utime(one, (_TIME, _TIME))
        return self._digest(step)

    def found(self, step: int) -> str | None:
        """The digest of what is there for a step."""
        return self._digest(step) if self.path(step).exists() else None

    def read(self, step: int, digest: str) -> NDArray[np.int64]:
        """(dimension,) the output that the ledger has by this digest."""
        path = self.path(step)
        if not path.exists():
            raise LedgerError(
                f"{path} is gone: it holds what step {step} of the training released. Without it the training cannot "
                "go on, and nobody can tell that a probe is its. Copy it from the machine that made the step."
            )
        content = self._content(step)
        if hashlib.sha256(content).hexdigest() != digest:
            raise _changed(path)
        return np.frombuffer(content[len(self._head(step)) :], dtype="<i8").astype(np.int64)

    def _digest(self, step: int) -> str:
        return hashlib.sha256(self._content(step)).hexdigest()

    def _content(self, step: int) -> bytes:
        """Of a file that is a whole output of this step of this training."""
        content, head = self.path(step).read_bytes(), self._head(step)
        if content[: len(head)] != head or len(content) != len(head) + 8 * self.dimension:
            raise _changed(self.path(step))
        return content

    def _head(self, step: int) -> bytes:
        return _MAGIC + f"{self.ledger_id} {step} {self.dimension}\n".encode()


def _changed(path: Path) -> LedgerError:
    return LedgerError(f"{path} was changed: it is not the output of this step. Restore the file.")
