"""Rows in blocks of one shape: what is computed of a row does not depend on how many others there are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray


def blocks(rows: NDArray[Any], size: int) -> Iterator[tuple[slice, NDArray[Any]]]:
    """Where a block's rows stand, and a copy of them, always ``size`` rows: the last block is filled up with zeros.

    A matrix product rounds otherwise for one row than for two, and so do other kernels that are chosen by shape.
    """
    for start in range(0, len(rows), size):
        part = rows[start : start + size]
        block = np.zeros((size, *rows.shape[1:]), dtype=rows.dtype)  # a copy, which torch may call its own
        block[: len(part)] = part
        yield slice(start, start + len(part)), block
