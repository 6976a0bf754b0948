"""What is computed of a row does not depend on how many others there are, nor on where it stands among them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

_EXACT = 53  # bits of a whole number that a double holds


def blocks(rows: NDArray[Any], size: int) -> Iterator[tuple[slice, NDArray[Any]]]:
    """Where a block's rows stand, and a copy of them, always ``size`` rows: the last block is filled up with zeros.

    A matrix product rounds otherwise for one row than for two, and so do other kernels that are chosen by shape.
    """
    for start in range(0, len(rows), size):
        part = rows[start : start + size]
        block = np.zeros((size, *rows.shape[1:]), dtype=rows.dtype)  # a copy, which torch may call its own
        block[: len(part)] = part
        yield slice(start, start + len(part)), block


class RowProduct:
    """Rows times a public matrix, each row by itself, bit for bit: on some machines a product in floats rounds
    otherwise for a row at another place.

    A row and a column of the matrix are brought to whole numbers, so small that their products add up without an error
    in doubles; some 20 bits of each are kept, for up to 8,192 numbers in a row.
    """

    def __init__(self, matrix: NDArray[Any]) -> None:
        length = matrix.shape[0]
        room = _EXACT - max(length - 1, 1).bit_length()
        self._row_bits = room // 2
        self._columns, self._size = _whole(matrix, room - self._row_bits, axis=0)

    def __call__(self, rows: NDArray[Any]) -> NDArray[np.float32]:
        """(n, n_columns) float32; a row that is not finite is nan."""
        with np.errstate(invalid="ignore", over="ignore"):
            found, size = _whole(rows, self._row_bits, axis=1)
            result: NDArray[np.float32] = (found @ self._columns * (size * self._size)).astype(np.float32)
        return result


def _whole(numbers: NDArray[Any], bits: int, *, axis: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Whole numbers up to 2^bits, and the power of 2 that they are multiples of, along an axis."""
    largest = np.abs(numbers).max(axis=axis, keepdims=True).astype(np.float64)
    size = np.ldexp(1.0, np.frexp(np.where(np.isfinite(largest), largest, 1.0))[1] - bits)
    return np.rint(numbers / size), size
