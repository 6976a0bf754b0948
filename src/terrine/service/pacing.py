"""Votes are handed out at fixed times, not when they are ready, so that time tells nothing about a share."""

from __future__ import annotations

import math
import time
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from terrine.labeller import Voters
from terrine.votes import Votes

MARGIN = 2.0  # the unit is at least this many times what was measured
_SIZES = 11  # 1, 2, 4, ... rows
_QUICK = 0.05  # seconds; a call of less is measured several times, and on every kind of row
_ENOUGH = 2.0  # seconds; a call of more is measured no further: more rows take proportionally longer
_measured: dict[str, dict[int, float]] = {}  # by public settings: teachers that differ in their shares have one pace


class PacedVoters:
    """Voters whose votes on n rows come after u(n), 2 u(n), 4 u(n), ... seconds, whatever else they took.

    u(n) is a power of two, at least twice as long as votes on n made-up rows took when the service started: the
    slowest of ordinary, huge and tiny ones. Doubling, and not counting, where votes take longer still: a share then
    shows only if it makes all of them together take twice as long.

    Args:
        voters: who vote; all their public attributes are handed on.
        row_shape, dtype: of a row.
    """

    def __init__(self, voters: Voters, *, row_shape: tuple[int, ...], dtype: str) -> None:
        self._voters = voters
        self.n_teachers, self.classes, self.row_shape = voters.n_teachers, voters.classes, voters.row_shape
        self._taken = _measured.get(public := _public(voters, dtype), {})
        if not self._taken:
            self._measure(tuple(row_shape), np.dtype(dtype))
        if public:
            _measured[public] = self._taken

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._voters, name)

    def unit(self, n_rows: int) -> float:
        """u(n), in seconds: a function of the number of rows that is fixed when the service starts."""
        largest = max(self._taken)
        n = min(largest, 1 << (n_rows - 1).bit_length())
        taken = self._taken[n] * -(-n_rows // n)
        return float(2.0 ** math.ceil(math.log2(max(MARGIN * taken, 1e-9))))

    def vote(self, X: NDArray[Any]) -> Votes:
        """Secret."""
        started = time.monotonic()
        try:
            return self._voters.vote(X)
        finally:
            due = self.unit(len(X))
            while due < time.monotonic() - started:
                due *= 2
            time.sleep(max(0.0, started + due - time.monotonic()))

    def _measure(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        kinds = list(range(len(_made_up(1, shape, dtype))))
        taken = self._seconds(_made_up(1, shape, dtype)[0])  # the first call also warms up
        for size in range(_SIZES):
            n, quick = 1 << size, taken < _QUICK
            rows = _made_up(n, shape, dtype)
            found = {kind: min(self._seconds(rows[kind]) for _ in range(3 if quick else 1)) for kind in kinds}
            if not quick:
                kinds = [max(found, key=found.__getitem__)]
            taken = max(taken if size else 0.0, *found.values())
            self._taken[n] = taken
            if taken > _ENOUGH:
                return

    def _seconds(self, rows: NDArray[Any]) -> float:
        started = time.monotonic()
        with suppress(Exception):  # whoever cannot vote on made-up rows may on others
            self._voters.vote(rows)
        return time.monotonic() - started

    def __repr__(self) -> str:
        return f"<paced {self._voters!r}>"


def _public(voters: Voters, dtype: str) -> str:
    """All that decides how long teachers take but their shares, where that is known."""
    teacher = getattr(voters, "teacher", None)
    if teacher is None:
        return ""
    return f"{teacher.settings()} {voters.n_teachers} {len(voters.classes)} {voters.row_shape} {dtype}"


def _made_up(n: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> list[NDArray[Any]]:
    """Rows of several kinds, always the same: how long a call takes may depend on it."""
    rng = np.random.default_rng(0)
    if dtype.kind != "f":
        most = 2 if dtype.kind == "b" else min(256, np.iinfo(dtype).max)
        return [rng.integers(most, size=(n, *shape)).astype(dtype), np.zeros((n, *shape), dtype)]
    ends = np.finfo(dtype)
    plain, signs = rng.normal(size=(n, *shape)), rng.choice([-1.0, 1.0], size=(n, *shape))
    kinds = [plain, signs * float(ends.max), signs * float(ends.tiny) / 2, signs * 1e6]
    return [rows.astype(dtype) for rows in kinds]
