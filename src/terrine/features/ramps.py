"""Plain rows for linear learners: columns to one scale by public rows, and numbers bent at public quantiles.

A linear model then has a slope of its own between one quantile and the next, as a tree has steps.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.float32]
Arrays = dict[str, NDArray[Any]]

_PIECES = 8  # between quantiles of a column
_FEW = 2  # different values: a column with no more than these is no number to bend
_RARE = 0.1  # the least deviation to divide by: a category of one row in a hundred is not blown up without end
FAR = 5.0  # deviations: what lies further out in a new row counts as this
_MOST = 40  # columns that are bent; where there are more, a slope each is enough


def is_embedding(public: NDArray[Any]) -> bool:
    """Whether rows have many columns of numbers, and hardly one of two values: what an encoder or a text gives."""
    two = np.array([len(np.unique(column)) <= _FEW for column in public[:1000].T])
    return len(two) > _MOST and bool(two.mean() < 0.1)


def fit(public: NDArray[Any]) -> Arrays:
    """What `apply` needs, from public rows (n, width): which columns are bent and where, then means and deviations."""
    rows = public.astype(np.float64)
    bent = [j for j in range(rows.shape[1]) if len(np.unique(rows[:, j])) > _FEW]
    bent = bent if len(bent) <= _MOST else []
    places, lows, highs = [], [], []
    for j in bent:
        knots = _knots(rows[:, j])
        places += [j] * (len(knots) - 1)
        lows += knots[:-1].tolist()
        highs += knots[1:].tolist()
    arrays: Arrays = {
        "places": np.array(places, dtype=np.int64),
        "lows": np.array(lows, dtype=np.float64),
        "highs": np.array(highs, dtype=np.float64),
    }
    wide = _wide(rows, arrays)
    spread = wide.std(axis=0)
    constant = spread <= 1e-9 * np.maximum(np.abs(wide).max(axis=0), 1e-300)
    scale = np.where(constant, np.inf, _floored(spread, wide))  # what never varies in public says nothing: 0
    return {**arrays, "middle": wide.mean(axis=0), "scale": scale}


def apply(rows: NDArray[Any], arrays: Arrays) -> Rows:
    """(n, features): mean squared length about 1 on public rows."""
    wide = (_wide(rows.astype(np.float64), arrays) - arrays["middle"]) / arrays["scale"]
    varying = max(1, int(np.isfinite(arrays["scale"]).sum()))
    return np.asarray(np.clip(wide, -FAR, FAR) / np.sqrt(varying), dtype=np.float32)


def _floored(spread: NDArray[np.float64], wide: NDArray[np.float64]) -> NDArray[np.float64]:
    """Deviations, not below a tenth of the column's range where it has two values."""
    two = np.array([len(np.unique(column[:1000])) <= _FEW for column in wide.T])
    reach = wide.max(axis=0) - wide.min(axis=0)
    return np.where(two, np.maximum(spread, _RARE * reach), spread)


def _knots(column: NDArray[np.float64]) -> NDArray[np.float64]:
    """Quantiles; where one value has most of the rows, those of the others beside it."""
    knots = np.unique(np.quantile(column, np.linspace(0, 1, _PIECES + 1)))
    if len(knots) >= _PIECES // 2:
        return knots
    values, counts = np.unique(column, return_counts=True)
    common = values[counts.argmax()]
    rest = np.quantile(column[column != common], np.linspace(0, 1, _PIECES))
    return np.unique(np.concatenate(([common], rest)))


def _wide(rows: NDArray[np.float64], arrays: Arrays) -> NDArray[np.float64]:
    """The columns, and beside them how far each number is on its way through each piece, from 0 to 1."""
    places, lows, highs = arrays["places"], arrays["lows"], arrays["highs"]
    pieces = np.clip((rows[:, places] - lows) / (highs - lows), 0, 1)
    return np.concatenate((rows, pieces), axis=1)
