"""Whether the private rows, and the features, of a training that goes on are those that it began with."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from terrine._files import write_once
from terrine.datasets import PrivateData
from terrine.datasets.rows import Rows, row_digests

_CHUNK = 1 << 25  # bytes that are hashed at once


def same_rows(private: PrivateData, path: Path) -> bool:
    """Whether these rows, labels and units are those of the first call; that keeps their hash, which is secret."""
    # Secret: whoever guesses all of the data could check the guess
    return _same(path, _numbers(private.X), private.y, np.zeros(0) if private.unit is None else private.unit)


def same_features(public: Rows, features: NDArray[Any], path: Path) -> bool:
    """Whether public rows and their features are those of the first call: the weights are of no use behind others."""
    return _same(path, _numbers(public), features)


def _numbers(rows: Rows) -> NDArray[Any]:
    return rows if isinstance(rows, np.ndarray) else np.frombuffer(b"".join(row_digests(rows)), dtype=np.uint8)


def _same(path: Path, *arrays: NDArray[Any]) -> bool:
    digest = _digest(*arrays)
    write_once(path, f"{digest}\n".encode(), mode=0o600)
    return path.read_text().strip() == digest


def _digest(*arrays: NDArray[Any]) -> str:
    found = hashlib.sha256()
    for array in arrays:
        found.update(f"{array.dtype.str} {array.shape}".encode())
        step = max(1, _CHUNK // max(1, array[:1].nbytes))
        for start in range(0, len(array), step):
            found.update(np.ascontiguousarray(array[start : start + step]).tobytes())
    return found.hexdigest()
