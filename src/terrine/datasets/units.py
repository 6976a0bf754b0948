"""Unit ids: whole numbers or text, told apart before anything is converted.

A unit's teacher depends on its id's type and value. If numpy or pandas chose the type for all ids together, one odd id
would deal everybody anew: so types are looked at one by one, a mixture is refused, and nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from terrine.errors import DataError

_LONGEST = 1000  # characters of an id: an array of text has the width of its longest
_TEXT, _WHOLE = "text", "a whole number"


def unit_ids(values: Any, *, n_rows: int, where: Callable[[int], str] = "row {}".format) -> NDArray[Any]:
    """(n_rows,) int64 or text, read-only.

    Refused, by row and never by value: a mixture, missing ids, and whatever is neither whole number nor text (True,
    1.0, bytes, dates). Text is compared as it is: "1" is not 1, and " ann" is not "ann".

    Args:
        values: a list, tuple, array, or a column of a DataFrame.
        where: what a row is called in a refusal.
    """
    if hasattr(values, "to_pylist"):  # Arrow's
        values = values.to_pylist()
    plain = type(values) in (np.ndarray, np.memmap)
    dtype = values.dtype if plain else getattr(values, "dtype", None)
    masked = isinstance(values, np.ma.MaskedArray)
    if isinstance(dtype, np.dtype) and dtype.kind in ("iuU" if plain else "iu") and not masked:
        ids = np.asarray(values)
    else:
        ids = _checked(values, n_rows, where, dtype)
    if ids.shape != (n_rows,):
        raise _other_number()
    if ids.dtype.kind == "u" and (large := ids > np.iinfo(np.int64).max).any():
        raise _too_large(where(int(np.argmax(large))))
    if ids.dtype.kind == "U":
        missing = (ids == "") | np.char.isspace(ids)
        if missing.any():
            raise _missing(where(int(np.argmax(missing))))
    found: NDArray[Any] = ids.astype(np.int64 if ids.dtype.kind in "iu" else ids.dtype)
    found.setflags(write=False)
    return found


def _checked(values: Any, n_rows: int, where: Callable[[int], str], dtype: Any) -> NDArray[Any]:
    """Ids that are looked at one by one."""
    listed = hasattr(values, "__len__") and hasattr(values, "__getitem__")
    if not listed or isinstance(values, (str, bytes, Mapping)) or getattr(values, "ndim", 1) != 1:
        raise _other_number()
    if isinstance(dtype, np.dtype) and dtype.kind not in "OUTiu":
        raise DataError(
            f"Unit ids must be whole numbers or text, got dtype {dtype}. Write them as text (whole numbers turn into "
            "floats where one of them is missing)."
        )
    each = list(values)
    kinds = {kind: _word(kind) for kind in set(map(type, each))}
    words = set(kinds.values())
    if len(each) != n_rows:
        raise _other_number()
    if not words <= {_TEXT} and not words <= {_WHOLE}:
        first = kinds[type(each[0])]
        row = 0 if first not in (_TEXT, _WHOLE) else next(k for k, one in enumerate(each) if kinds[type(one)] != first)
        if kinds[type(each[row])] not in (_TEXT, _WHOLE):
            raise _missing(where(row))
        raise DataError(
            f"The unit id in {where(row)} is {kinds[type(each[row])]}, and the first one is {first}. Write all of them "
            "as text."
        )
    if words == {_WHOLE}:
        for row, one in enumerate(each):
            if not -(2**63) <= one < 2**63:
                raise _too_large(where(row))
        return np.array([int(one) for one in each], dtype=np.int64)
    for row, one in enumerate(each):
        if len(one) > _LONGEST:
            raise DataError(f"The unit id in {where(row)} is longer than {_LONGEST} characters. Use shorter ids.")
        if one.endswith("\0"):  # arrays of text drop it: two units would be one
            raise DataError(f"The unit id in {where(row)} ends in a NUL character. Write it without.")
    return np.array(each, dtype=np.str_)


def _word(kind: type) -> str:
    if issubclass(kind, str):
        return _TEXT
    whole = issubclass(kind, (int, np.integer)) and not issubclass(kind, (bool, np.bool_))
    return _WHOLE if whole else "neither"


def _other_number() -> DataError:
    return DataError("unit must be a list or a column with one id for each row of X.")


def _missing(place: str) -> DataError:
    return DataError(
        f"The unit id in {place} is missing, or neither a whole number nor text. Write all ids as text, and leave out "
        "rows that have none."
    )


def _too_large(place: str) -> DataError:
    return DataError(f"The unit id in {place} is 2^63 or larger. Write all ids as text.")
