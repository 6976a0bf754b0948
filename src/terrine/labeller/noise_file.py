"""The noise of one release, in a secret file: drawn without votes before the charge, destroyed after what it gives.

Its size is a function of public numbers alone. What the charge names is drawn apart from the noise and tells nothing
about it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from terrine._files import sync_folder, write_once
from terrine.budgets import CostRelease, TestedBudget
from terrine.errors import LedgerError
from terrine.mechanisms import ConfidentGNMax
from terrine.noise import COIN, KeptNoise, SecureNoise, SeededNoise, tie_range, uniform

_MAGIC = b"terrine.noise/1\n"
_NAME = 32  # bytes of a name, in hex
_CHECK = 32  # bytes of sha256


@dataclass(frozen=True, eq=False)
class NoiseFile:
    """Where one ledger's noise is while a release is under way.

    Args:
        folder: its owner's.
        ledger_id: whose noise; in the file and in its name.
        budget: says how much there is: of a tested release or of a published cost.
    """

    folder: Path
    ledger_id: str
    budget: TestedBudget | CostRelease

    @property
    def path(self) -> Path:
        of = "cost-" if isinstance(self.budget, CostRelease) else ""
        return self.folder / f"{of}noise-{self.ledger_id}.secret"

    def draw(self, source: SecureNoise | SeededNoise) -> tuple[str, bool]:
        """Draw and keep, unless there is some that nobody paid for yet; its name, and whether it is secure."""
        whole = None
        while (found := self._read()) is None:
            before, whole = whole, self._content()
            if (
                whole is None
            ):  # not there, or no more: another process finished its release, and destroyed what it found
                write_once(self.path, self._made(source), mode=0o600)
            elif whole == before:  # never removed here: another process may just have put its own in place
                raise LedgerError(f"{self.path} is damaged. Nothing was charged. Delete it, and ask again.")
        name, noise = found
        return name, noise.secure

    def load(self, name: str) -> KeptNoise | None:
        """The noise of this name; None where it is gone, damaged, or other noise."""
        found = self._read()
        return None if found is None or found[0] != name else found[1]

    def destroy(self) -> None:
        """Overwrite and remove it, and what a crash left beside it."""
        gone = self.path.with_name(f".{self.path.name}.{secrets.token_hex(8)}.tmp")
        with contextlib.suppress(FileNotFoundError):
            os.replace(self.path, gone)  # nobody finds it half overwritten
        for path in (gone, *self.folder.glob(f"*{self.path.name}*.tmp")):
            self._erase(path)

    def _erase(self, path: Path) -> None:
        with contextlib.suppress(FileNotFoundError):
            with path.open("r+b") as file:
                file.write(bytes(path.stat().st_size))
                file.flush()
                os.fsync(file.fileno())
            path.unlink()
            sync_folder(self.folder)

    def _shapes(self) -> list[tuple[float, tuple[int, ...]]]:
        """Sigma and shape of each draw, in the order in which `answer` asks for them."""
        if isinstance(self.budget, CostRelease):
            return self.budget.draws
        budget, n = self.budget, self.budget.n_queries
        if isinstance(budget.mechanism, ConfidentGNMax):
            return [(budget.mechanism.sigma_check, (n,)), (budget.mechanism.sigma_vote, (n, budget.n_classes))]
        return [(budget.mechanism.sigma, (n, budget.n_classes))]

    @property
    def _ties(self) -> tuple[int, int]:
        """How many tickets for ties there are, and below what."""
        if isinstance(self.budget, CostRelease):
            return 0, 1
        return self.budget.n_queries, tie_range(self.budget.n_classes)

    @property
    def _ticket(self) -> int:
        """Bytes of a tie's ticket."""
        return (self._ties[1].bit_length() + 7) // 8

    def _made(self, source: SecureNoise | SeededNoise) -> bytes:
        n_ties, ties = self._ties
        parts = [_MAGIC, self.ledger_id.encode(), secrets.token_hex(_NAME // 2).encode(), bytes([source.secure])]
        parts += [source.gaussian(shape, sigma=sigma).astype("<i8").tobytes() for sigma, shape in self._shapes()]
        parts += [uniform(source, ties).to_bytes(self._ticket, "little") for _ in range(n_ties)]
        parts.append(uniform(source, COIN).to_bytes(8, "little"))
        content = b"".join(parts)
        return content + hashlib.sha256(content).digest()

    def _content(self) -> bytes | None:
        try:
            return self.path.read_bytes()
        except FileNotFoundError:
            return None

    def _read(self) -> tuple[str, KeptNoise] | None:
        whole = self._content()
        if whole is None:
            return None
        content = memoryview(whole)[:-_CHECK]
        head = _MAGIC + self.ledger_id.encode()
        if hashlib.sha256(content).digest() != whole[-_CHECK:] or content[: len(head)] != head:
            return None
        at = len(head)

        def taken(n: int) -> bytes:
            nonlocal at
            at += n
            return bytes(content[at - n : at])

        name, secure = taken(_NAME).decode(), bool(taken(1)[0])
        gaussians = [
            (sigma, np.frombuffer(taken(8 * int(np.prod(shape))), dtype="<i8").astype(np.int64).reshape(shape))
            for sigma, shape in self._shapes()
        ]
        ties = [int.from_bytes(taken(self._ticket), "little") for _ in range(self._ties[0])]
        return name, KeptNoise(gaussians, ties=ties, coin=int.from_bytes(taken(8), "little"), secure=secure)
