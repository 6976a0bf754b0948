"""Principal components of public rows, their spread evened out: what linear teachers and students learn from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from terrine._blocks import RowProduct, blocks

Rows = NDArray[np.float32]

ROWS = 10_000  # public rows that components are computed from, at most
_SPARE = 40  # directions beyond those wanted, in the search for them
_ROUNDS = 6
_TINY = 1e-6
_BLOCK = 256  # rows multiplied at once


def principal(rows: Rows, n: int, *, evened: float, seed: int) -> tuple[Rows, Rows]:
    """Mean (width,) and matrix (width, at most n) of rows' components, each divided by its deviation to a power.

    Args:
        rows: public rows.
        evened: 0 leaves the components their own spread, 1 gives all the same. With 1/2 the many small ones, which
            tell similar classes apart, count for more without drowning the few large ones.
        seed: of the random directions that the search begins with.

    The result is scaled so that public rows have a mean squared length of 1.
    """
    mean = rows.mean(axis=0, dtype=np.float64).astype(np.float32)
    A = rows - mean
    n = min(n, *A.shape)
    deviations, V = _svd(A, n, seed=seed)
    kept = deviations > _TINY * max(float(deviations[0]), _TINY)
    deviations, V = deviations[kept] / np.sqrt(len(A)), V[:, kept]
    matrix = V * deviations**-evened
    length = np.sqrt((deviations ** (2 - 2 * evened)).sum())
    return mean, (matrix / (length if length > 0 else 1.0)).astype(np.float32)


def _svd(A: Rows, n: int, *, seed: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The n largest singular values and right singular vectors: by a random start and a few rounds, or exactly."""
    if min(A.shape) <= 3 * n or min(A.shape) <= 1000:
        small = A.astype(np.float64)
        values, vectors = np.linalg.eigh(small.T @ small if A.shape[1] <= len(A) else small @ small.T)
        values, vectors = np.sqrt(np.maximum(values[::-1][:n], 0)), vectors[:, ::-1][:, :n]
        if A.shape[1] > len(A):
            vectors = (small.T @ vectors) / np.maximum(values, _TINY)
        return values, _signed(vectors)
    rng = np.random.default_rng(seed)
    Q = rng.standard_normal((A.shape[1], n + _SPARE)).astype(np.float32)
    for _ in range(_ROUNDS):
        Q, _ = np.linalg.qr(A.T @ (A @ Q))
    values, vectors = np.linalg.eigh((B := (A @ Q).astype(np.float64)).T @ B)
    return np.sqrt(np.maximum(values[::-1][:n], 0)), _signed(Q @ vectors[:, ::-1][:, :n])


def _signed(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    """A direction has no sign of its own: the largest number is positive."""
    largest = np.abs(vectors).argmax(axis=0)
    return vectors * np.where(vectors[largest, np.arange(vectors.shape[1])] < 0, -1.0, 1.0)


def projected(
    rows: NDArray[Any], mean: Rows, matrix: Rows, see: Callable[[NDArray[Any]], NDArray[Any]], *, block: int = _BLOCK
) -> Rows:
    """(n, components) of what ``see`` makes of rows, in blocks of one shape: a row's own, whatever is beside it."""
    found, times = np.empty((len(rows), matrix.shape[1]), dtype=np.float32), RowProduct(matrix)
    for at, some in blocks(rows, block):
        found[at] = times(see(some) - mean)[: at.stop - at.start]
    return found


def some_rows(n: int, most: int = ROWS) -> NDArray[np.int64]:
    """Evenly spaced indices of n rows, at most ``most`` of them."""
    return np.linspace(0, n - 1, min(n, most)).astype(np.int64)
