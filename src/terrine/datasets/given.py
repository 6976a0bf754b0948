"""Rows as a caller of PATEClassifier gives them: what is wrong with them is said without quoting a private one."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_array

from terrine.datasets.rows import Rows, as_rows, odd_rows
from terrine.datasets.tables import is_frame
from terrine.errors import InputError

# What scikit-learn says of rows without quoting them, in the first line
_QUOTES_NOTHING = ("Expected 2D array", "Complex data not supported", "Found array with", "Input X contains")


def any_rows(name: str, X: Any) -> Rows | None:
    """Rows that are no array: sparse, texts, or a table with names; None where they are arrays of numbers."""
    if isinstance(X, np.ndarray) and X.ndim != 1:
        return None
    if isinstance(X, (list, tuple)) and not (len(X) and isinstance(X[0], str)):
        return None
    try:
        rows = as_rows(name, X)
    except InputError:
        if is_frame(X) or hasattr(X, "tocsr") or (isinstance(X, (list, tuple)) and isinstance(X[0], str)):
            raise
        return None
    return None if isinstance(rows, np.ndarray) else rows


def array_rows(name: str, X: Any, *, nan_ok: bool, any_value: bool = False) -> NDArray[Any]:
    finite: Any = "allow-nan" if nan_ok else True
    return np.asarray(
        check_array(
            X,
            dtype="numeric",
            allow_nd=True,
            ensure_all_finite=False if any_value else finite,
            input_name=name,
            estimator="PATEClassifier",
        )
    )


def private_rows(X: Any, *, nan_ok: bool) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """As `array_rows`, and which rows hold what is no usable number: these are zeros, and nothing is said of them.

    Which row is no row of numbers at all is said, what it holds is not.
    """
    try:
        rows = array_rows("X", X, nan_ok=nan_ok, any_value=True)
    except ValueError as error:
        told = re.sub(r"shape=\(\d+", "shape=(", str(error).partition("\n")[0].rstrip(":"))  # not how many rows
    else:
        # One fraction makes floats of all numbers in a list or a frame: so they are floats always
        rows = rows if isinstance(X, np.ndarray) or rows.dtype.kind not in "biu" else rows.astype(np.float64)
        odd = odd_rows(rows, nan_ok=nan_ok)
        if odd.any():
            rows = np.array(rows)
            rows[odd] = 0
        return rows, odd
    if not told.startswith(_QUOTES_NOTHING):
        told = f"X must be rows of numbers, all of one length; a row is not{_first_not_numbers(X)}."
    raise InputError(told)


def _first_not_numbers(X: Any) -> str:
    for row, values in enumerate(X if isinstance(X, (list, tuple)) else np.asarray(X, dtype=object)):
        try:
            np.asarray(values, dtype=np.float64)
        except (TypeError, ValueError):
            return f": row {row}"
    return ""
