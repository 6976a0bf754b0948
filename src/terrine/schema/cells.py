"""What a cell means, by its column's kind. A function of the cell and the schema alone; nothing in a cell raises."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from terrine.errors import InputError
from terrine.schema.kinds import NO, YES, Category, Date, Flag, Kind, Number, Ordered, Text, seconds_of
from terrine.schema.schema import Schema
from terrine.schema.tables import Table, number_text

FINE, MISSING, UNREADABLE, BELOW, ABOVE = range(5)

_LONGEST_UNIT = 100  # characters; an array of text has the width of its longest
_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+(\.\d*)?")  # 0,123 is no thousand
_COMMA = re.compile(r"[+-]?([1-9]\d{0,2}(\.\d{3})+|\d+)?(,\d+)?([eE][+-]?\d+)?")
_TRAILING_ZERO = re.compile(r"[+-]?\d+\.0+")


@dataclass(frozen=True, eq=False)
class Decoded:
    """Cells of one column.

    Attributes:
        values: (n_rows,) float64: a number, seconds since 1970, or the place in a list; 0 where there is none.
        state: (n_rows,) int8, one of FINE, MISSING, UNREADABLE, BELOW, ABOVE.
    """

    values: NDArray[np.float64]
    state: NDArray[np.int8]

    @property
    def known(self) -> NDArray[np.bool_]:
        return ~np.isin(self.state, (MISSING, UNREADABLE))


def interned(column: NDArray[Any]) -> tuple[list[str], NDArray[np.int64]]:
    """The different cells as text without blanks around them, and which of them each row has."""
    if column.dtype.kind in "if":
        found, rows = np.unique(column, return_inverse=True)
        if column.dtype.kind == "i":
            return [str(value) for value in found.tolist()], rows.astype(np.int64)
        return [number_text(value) for value in found.tolist()], rows.astype(np.int64)
    cells: list[str] = column.tolist()
    index = dict(zip(different := dict.fromkeys(cells), range(len(different)), strict=True))
    rows = np.fromiter(map(index.__getitem__, cells), dtype=np.int64, count=len(cells))
    return [cell.strip() for cell in index], rows


def is_missing(cell: str, missing: frozenset[str]) -> bool:
    return cell in missing or cell.casefold() in missing


def decode(column: NDArray[Any], kind: Kind, missing: Sequence[str]) -> Decoded:
    """A column's cells. Of text, whether there is any."""
    absent = frozenset(missing)
    match kind:
        case Number(low=low, high=high, decimal=decimal):
            if column.dtype.kind in "if":
                values = column.astype(np.float64)
                state = np.where(np.isnan(values), MISSING, FINE).astype(np.int8)
            else:
                values, state = _looked_up(column, lambda cell: number_of(cell, decimal), absent)
            return _bounded(values, state, low, high)
        case Date(format=format):
            values, state = _looked_up(column, lambda cell: seconds_of(cell, format), absent)
            return _bounded(values, state, *kind.bounds)
        case Category(values=listed) | Ordered(values=listed):
            return choices(column, listed, missing)
        case Flag():
            return Decoded(*_looked_up(column, flag_of, absent))
        case Text():
            return Decoded(*_looked_up(column, lambda cell: 0.0, absent))


def choices(column: NDArray[Any], listed: Sequence[str], missing: Sequence[str]) -> Decoded:
    """Places in a list. A listed value is never missing; 1.0 is read as 1 where only that is listed."""
    place = {value: float(k) for k, value in enumerate(listed)}

    def find(cell: str) -> float | None:
        if cell not in place and _TRAILING_ZERO.fullmatch(cell):
            cell = cell.partition(".")[0]
        return place.get(cell)

    return Decoded(*_looked_up(column, find, frozenset(missing), found_first=True))


def number_of(cell: str, decimal: str = ".") -> float | None:
    """A number as text, or None; nan is none."""
    if decimal == ",":
        if not _COMMA.fullmatch(cell):
            return None
        cell = cell.replace(".", "").replace(",", ".")
    elif "," in cell and _THOUSANDS.fullmatch(cell):
        cell = cell.replace(",", "")
    if "_" in cell:  # Python's own way to write numbers
        return None
    try:
        value = float(cell)
    except ValueError:
        return None
    return None if value != value else value


def flag_of(cell: str) -> float | None:
    folded = cell.casefold()
    if _TRAILING_ZERO.fullmatch(folded):
        folded = folded.partition(".")[0]
    return 1.0 if folded in YES else 0.0 if folded in NO else None


def labels(table: Table, schema: Schema) -> NDArray[np.int64]:
    """(n_rows,) class indices; -1 where the label is missing or not among the schema's classes."""
    if schema.label is None:
        raise InputError("The schema has no label: add `label` and `classes` to it.")
    found = choices(table.column(schema.label), schema.classes, schema.missing)
    return np.where(found.known, found.values, -1).astype(np.int64)


def units(table: Table, schema: Schema) -> NDArray[np.str_]:
    """(n_rows,) whom each row belongs to, as text; "" where that is missing. A very long id stands as its SHA-256."""
    if schema.unit is None:
        raise InputError("The schema has no unit: add `unit` to it.")
    missing = frozenset(schema.missing)
    cells, rows = interned(table.column(schema.unit))
    ids = ["" if is_missing(cell, missing) else cell if len(cell) <= _LONGEST_UNIT else _short(cell) for cell in cells]
    return np.array(ids, dtype=np.str_)[rows] if ids else np.zeros(0, dtype=np.str_)


def _short(cell: str) -> str:
    return "sha256:" + hashlib.sha256(cell.encode("utf-8")).hexdigest()


def _looked_up(
    column: NDArray[Any],
    find: Callable[[str], float | None],
    missing: frozenset[str],
    *,
    found_first: bool = False,
) -> tuple[NDArray[np.float64], NDArray[np.int8]]:
    """Each different cell is looked at once."""
    cells, rows = interned(column)
    values, state = np.zeros(len(cells)), np.full(len(cells), FINE, dtype=np.int8)
    for k, cell in enumerate(cells):
        if not found_first and is_missing(cell, missing):
            state[k] = MISSING
            continue
        value = find(cell)
        if value is not None:
            values[k] = value
        else:
            state[k] = MISSING if is_missing(cell, missing) else UNREADABLE
    return values[rows], state[rows]


def _bounded(values: NDArray[np.float64], state: NDArray[np.int8], low: float, high: float) -> Decoded:
    fine = state == FINE
    state[fine & (values < low)] = BELOW
    state[fine & (values > high)] = ABOVE
    return Decoded(np.where(fine, np.clip(values, low, high), 0.0), state)
