"""What is computed of a row does not depend on how many others there are, nor on where it stands among them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

_EXACT = 53  # bits of a whole number that a double holds
_SMALLEST = -1022  # exponent of the smallest double that is as exact as others


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

    A row, and each column of the matrix, is brought to whole numbers of at most a and b bits times a power of 2. With
    n numbers in a row a + b is 53 less the bits of n, so that every sum of their products is a whole number of at most
    n 2^(a + b) <= 2^53, which a double holds: no order of adding rounds. Some 20 bits of a row's largest number are
    kept, for up to 8,192 numbers in a row.

    Attributes:
        columns: (n, n_columns) whole numbers.
        size: (1, n_columns) powers of 2 that the columns are multiples of.
        row_bits: of a row's whole numbers, at most.
    """

    def __init__(self, matrix: NDArray[Any]) -> None:
        length = matrix.shape[0]
        room = _EXACT - max(length - 1, 1).bit_length()
        self.row_bits = room // 2
        self.columns, self.size = _whole(matrix, room - self.row_bits, axis=0)

    def whole(self, rows: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """(n, length) whole numbers, and (n, 1) what they are multiples of; of a row that is not finite 0 and nan."""
        finite = np.isfinite(rows).all(axis=1, keepdims=True)
        found, size = _whole(np.where(finite, rows, 0), self.row_bits, axis=1)
        return found, np.where(finite, size, np.nan)

    def __call__(self, rows: NDArray[Any]) -> NDArray[np.float32]:
        """(n, n_columns) float32; a row that is not finite is nan."""
        found, size = self.whole(rows)
        with np.errstate(invalid="ignore", over="ignore"):
            result: NDArray[np.float32] = (found @ self.columns * (size * self.size)).astype(np.float32)
        return result


def _whole(numbers: NDArray[Any], bits: int, *, axis: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Whole numbers up to 2^bits, and the power of 2 that they are multiples of, along an axis."""
    largest = np.abs(numbers).max(axis=axis, keepdims=True, initial=0).astype(np.float64)
    size = np.ldexp(1.0, np.maximum(np.frexp(largest)[1] - bits, _SMALLEST))  # not 0: what is smaller counts as 0
    return np.rint(numbers / size), size
