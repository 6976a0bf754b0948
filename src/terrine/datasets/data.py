"""Private data, public data, and a data set of both. Private values are never printed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from terrine.errors import DataError

_CHUNK_BYTES = 1 << 25  # how much of a large array is looked at in one go


@dataclass(frozen=True, eq=False, repr=False, init=False, slots=True)
class PrivateData:
    """Labelled rows that nobody may see. It prints its shape only; it can be pickled, for executors need that.

    Args:
        X: rows on the first axis; an array or a numpy memmap, which is kept as it is and never copied into memory.
        y: (n_rows,) class indices, whole numbers from 0.
        unit: (n_rows,) whom a row belongs to, whole numbers or strings; None where every row is its own.

    Examples:
        >>> PrivateData([[0.5], [1.5]], [0, 1], unit=["ann", "bob"])
        <PrivateData: 2 rows of (1,) float64, with units; values are secret>
    """

    X: NDArray[Any]  # (n_rows, ...), read-only
    y: NDArray[np.int64]  # (n_rows,), read-only
    unit: NDArray[Any] | None  # (n_rows,) int64 or str, read-only

    def __init__(self, X: ArrayLike, y: ArrayLike, *, unit: ArrayLike | None = None) -> None:
        rows = _rows("X", X)
        object.__setattr__(self, "X", rows)
        object.__setattr__(self, "y", class_indices("y", y, n_rows=len(rows)))
        object.__setattr__(self, "unit", None if unit is None else _units(unit, n_rows=len(rows)))

    def __len__(self) -> int:
        return len(self.X)

    def take(self, rows: ArrayLike) -> PrivateData:
        """Some of the rows, by their indices; these are copied into memory."""
        indices = np.asarray(rows)
        unit = None if self.unit is None else self.unit[indices]
        return PrivateData(np.asarray(self.X[indices]), self.y[indices], unit=unit)

    def __repr__(self) -> str:
        units = "no units" if self.unit is None else "with units"
        return f"<PrivateData: {len(self)} rows of {self.X.shape[1:]} {self.X.dtype}, {units}; values are secret>"


@dataclass(frozen=True, eq=False, repr=False, init=False, slots=True)
class PublicData:
    """Unlabelled rows that anyone may see, of the same kind as the private ones; X may be a numpy memmap."""

    X: NDArray[Any]  # (n_rows, ...), read-only

    def __init__(self, X: ArrayLike) -> None:
        object.__setattr__(self, "X", _rows("X", X))

    def __len__(self) -> int:
        return len(self.X)

    def __repr__(self) -> str:
        return f"<PublicData: {len(self)} rows of {self.X.shape[1:]} {self.X.dtype}>"


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class DataSet:
    """A task: private rows to learn from, public rows to have labelled, and labels to evaluate with.

    ``public_y`` and ``test_y`` are for evaluation only: no part of the pipeline may learn from them.
    ``classes`` is a public list of names, in the order of the class indices.
    """

    name: str
    private: PrivateData
    public: PublicData
    public_y: NDArray[np.int64]  # (n_public,)
    test_X: NDArray[Any]  # (n_test, ...)
    test_y: NDArray[np.int64]  # (n_test,)
    classes: tuple[str, ...]

    def __post_init__(self) -> None:
        classes = class_names(self.classes)
        test = _rows("test_X", self.test_X)
        public_y = class_indices("public_y", self.public_y, n_rows=len(self.public), n_classes=len(classes))
        test_y = class_indices("test_y", self.test_y, n_rows=len(test), n_classes=len(classes))
        class_indices("private.y", self.private.y, n_rows=len(self.private), n_classes=len(classes))
        for part, rows in (("public", self.public.X), ("test", test)):
            if rows.shape[1:] != self.private.X.shape[1:]:
                expected = f"Expected {part} rows of the private rows' shape {self.private.X.shape[1:]}"
                raise DataError(f"{expected}, got {rows.shape[1:]}.")
        for name, value in (("classes", classes), ("public_y", public_y), ("test_X", test), ("test_y", test_y)):
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        sizes = f"{len(self.private)} private, {len(self.public)} public, {len(self.test_y)} test rows"
        shape = f"{self.private.X.shape[1:]} {self.private.X.dtype}"
        return f"<DataSet {self.name}: {sizes} of {shape}, {len(self.classes)} classes>"


def class_names(classes: Any) -> tuple[str, ...]:
    """The public list of classes: at least two names, all different."""
    if isinstance(classes, str):
        raise DataError(f"Expected classes as a list of names, got the one string {classes!r}.")
    names = tuple(str(name) for name in classes)
    if len(names) < 2 or len(set(names)) != len(names):
        raise DataError(f"Expected at least 2 classes of different names, got {len(names)} with {len(set(names))}.")
    return names


def class_indices(name: str, values: ArrayLike, *, n_rows: int, n_classes: int | None = None) -> NDArray[np.int64]:
    """Labels as read-only int64 indices; says in which row the first bad one is, never what it is."""
    allowed = "whole numbers of at least 0" if n_classes is None else f"class indices from 0 to {n_classes - 1}"
    raw = np.asarray(values)
    if raw.shape != (n_rows,):
        raise DataError(f"Expected {name} of shape ({n_rows},), one label per row, got {raw.shape}.")
    if raw.dtype.kind not in "iuf":
        raise DataError(f"Expected {name} to be {allowed}, got dtype {raw.dtype}.")
    bad = ~((raw >= 0) & (raw < (2**31 if n_classes is None else n_classes)))
    if raw.dtype.kind == "f":
        bad |= raw != np.floor(raw)
    if bad.any():
        raise DataError(f"Expected {name} to be {allowed}, got something else in row {int(np.argmax(bad))}.")
    indices = raw.astype(np.int64)
    indices.setflags(write=False)
    return indices


def _rows(name: str, values: ArrayLike) -> NDArray[Any]:
    """A read-only view with rows on the first axis; nothing is copied that is an array already."""
    try:
        rows = values if isinstance(values, np.ndarray) else np.asarray(values)
    except ValueError:
        raise DataError(f"Expected {name} as a rectangular array, got rows of different lengths.") from None
    if rows.ndim < 2:
        raise DataError(f"Expected {name} with rows on the first of at least 2 axes, got shape {rows.shape}.")
    if rows.size == 0:
        raise DataError(f"Expected at least one row and one feature of {name}, got shape {rows.shape}.")
    if rows.dtype.kind not in "biuf":
        raise DataError(f"Expected {name} to be numbers, got dtype {rows.dtype}.")
    if rows.dtype.kind == "f":
        step = max(1, _CHUNK_BYTES // (rows[0].nbytes or 1))
        for start in range(0, len(rows), step):
            finite = np.isfinite(rows[start : start + step]).all(axis=tuple(range(1, rows.ndim)))
            if not finite.all():
                row = start + int(np.argmin(finite))
                raise DataError(f"Expected {name} to be finite, got a value that is not (nan or inf) in row {row}.")
    view = rows.view()
    view.setflags(write=False)
    return view


def _units(values: ArrayLike, *, n_rows: int) -> NDArray[Any]:
    raw = np.asarray(values)
    if raw.shape != (n_rows,):
        raise DataError(f"Expected unit of shape ({n_rows},), one per row, got {raw.shape}.")
    if raw.dtype.kind == "O":
        kinds = np.array([_unit_kind(value) for value in raw])
        bad = kinds != ("int" if kinds[0] == "int" else "str")
        if bad.any():
            row = int(np.argmax(bad))
            raise DataError(f"Expected unit to be all whole numbers or all strings, got something else in row {row}.")
        raw = raw.astype(np.int64 if kinds[0] == "int" else np.str_)
    if raw.dtype.kind not in "iuU":
        raise DataError(f"Expected unit to be whole numbers or strings, got dtype {raw.dtype}.")
    if raw.dtype.kind == "u" and raw.max() > np.iinfo(np.int64).max:
        raise DataError(f"Expected unit below 2^63, got a larger one in row {int(np.argmax(raw))}.")
    if raw.dtype.kind == "U" and (raw == "").any():
        raise DataError(f"Expected every row to have a unit, got an empty one in row {int(np.argmax(raw == ''))}.")
    units = raw.astype(np.int64 if raw.dtype.kind in "iu" else raw.dtype)
    units.setflags(write=False)
    return units


def _unit_kind(value: Any) -> str:
    if isinstance(value, str):
        return "str"
    fits = isinstance(value, (int, np.integer)) and not isinstance(value, bool) and -(2**63) <= int(value) < 2**63
    return "int" if fits else "other"
