"""Private data, public data, and a task of both. Private values are never printed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from terrine.datasets.units import unit_ids
from terrine.errors import DataError, InputError

if TYPE_CHECKING:
    from terrine.schema import Encoder

_CHUNK_BYTES = 1 << 25  # how much of a large array is looked at in one go


@dataclass(frozen=True, eq=False, repr=False, init=False, slots=True)
class PrivateData:
    """Labelled rows that nobody may see. It prints the shape of a row only; it can be pickled, for executors need that.

    Args:
        X: rows on the first axis; an array or a numpy memmap, which is kept as it is and never copied into memory.
            Lists and DataFrames become float64, whatever numbers they hold: one cell decides no other's type.
        y: (n_rows,) class indices, whole numbers from 0.
        unit: (n_rows,) whom a row belongs to, all whole numbers or all text; None where every row is its own.

    How many rows there are is printed where a row is its own unit only: else a person may have any number of them.

    Examples:
        >>> PrivateData([[0.5], [1.5]], [0, 1], unit=["ann", "bob"])
        <PrivateData: rows of (1,) float64, with units; values and number are secret>
    """

    X: NDArray[Any]  # (n_rows, ...), read-only
    y: NDArray[np.int64]  # (n_rows,), read-only
    unit: NDArray[Any] | None  # (n_rows,) int64 or str, read-only

    def __init__(self, X: ArrayLike, y: ArrayLike, *, unit: ArrayLike | None = None) -> None:
        rows = _rows("X", X if isinstance(X, np.ndarray) else _as_floats(X))
        object.__setattr__(self, "X", rows)
        object.__setattr__(self, "y", class_indices("y", y, n_rows=len(rows)))
        object.__setattr__(self, "unit", None if unit is None else unit_ids(unit, n_rows=len(rows)))

    def __len__(self) -> int:
        return len(self.X)

    def take(self, rows: ArrayLike) -> PrivateData:
        """Some of the rows, by their indices; these are copied into memory."""
        indices = np.asarray(rows)
        if indices.dtype.kind not in "iu" or ((indices < -len(self)) | (indices >= len(self))).any():
            raise InputError("Expected indices of rows, whole numbers below their number, got something else.")
        unit = None if self.unit is None else self.unit[indices]
        return PrivateData(np.asarray(self.X[indices]), self.y[indices], unit=unit)

    def __repr__(self) -> str:
        kind = f"of {self.X.shape[1:]} {self.X.dtype}"
        if self.unit is None:
            return f"<PrivateData: {len(self)} rows {kind}, no units; values are secret>"
        return f"<PrivateData: rows {kind}, with units; values and number are secret>"


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


@dataclass(frozen=True, eq=False, repr=False, slots=True, kw_only=True)
class Task:
    """Private rows to learn from, public rows to have labelled, and labels to evaluate with, where there are any.

    ``public_y`` and ``test_y`` are for evaluation only: no part of the pipeline may learn from them.
    ``classes`` is a public list of names, in the order of the class indices.
    ``private`` is None where the teachers are elsewhere, behind a label service.
    """

    name: str = "own data"
    private: PrivateData | None = None
    public: PublicData
    public_y: NDArray[np.int64] | None = None  # (n_public,)
    test_X: NDArray[Any] | None = None  # (n_test, ...)
    test_y: NDArray[np.int64] | None = None  # (n_test,)
    classes: tuple[str, ...]
    encoder: Encoder | None = None  # of tables: what made numbers of their rows

    def __post_init__(self) -> None:
        classes = class_names(self.classes)
        object.__setattr__(self, "classes", classes)
        if (self.test_X is None) != (self.test_y is None):
            raise DataError("Test rows and their labels belong together: test_X and test_y, or neither.")
        if self.private is not None:
            class_indices("private.y", self.private.y, n_rows=len(self.private), n_classes=len(classes))
            if self.public.X.shape[1:] != self.private.X.shape[1:]:
                raise DataError(
                    f"Public rows must have the private rows' shape {self.private.X.shape[1:]}; theirs is "
                    f"{self.public.X.shape[1:]}."
                )
        if self.public_y is not None:
            public_y = class_indices("public_y", self.public_y, n_rows=len(self.public), n_classes=len(classes))
            object.__setattr__(self, "public_y", public_y)
        if self.test_X is not None and self.test_y is not None:
            test = _rows("test_X", self.test_X)
            if test.shape[1:] != self.public.X.shape[1:]:
                raise DataError(
                    f"Test rows must have the public rows' shape {self.public.X.shape[1:]}; theirs is {test.shape[1:]}."
                )
            object.__setattr__(self, "test_X", test)
            test_y = class_indices("test_y", self.test_y, n_rows=len(test), n_classes=len(classes))
            object.__setattr__(self, "test_y", test_y)

    def __repr__(self) -> str:
        parts = [f"{len(self.public)} public"]
        if self.private is not None:
            parts.insert(0, f"{len(self.private)} private" if self.private.unit is None else "private")
        if self.test_y is not None:
            parts.append(f"{len(self.test_y)} test")
        shape = f"{self.public.X.shape[1:]} {self.public.X.dtype}"
        return f"<Task {self.name}: {', '.join(parts)} rows of {shape}, {len(self.classes)} classes>"


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
        raise DataError(f"Expected {name} to hold one label per row, got a different number of them, or a table.")
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


def _as_floats(values: ArrayLike) -> NDArray[Any]:
    """Rows that are no array yet: whole numbers become floats, as they would beside one fraction."""
    try:
        rows = np.asarray(values)
    except ValueError:
        raise DataError("Expected X as a rectangular array, got rows of different lengths.") from None
    return rows.astype(np.float64) if rows.dtype.kind in "biu" else rows


def _rows(name: str, values: ArrayLike) -> NDArray[Any]:
    """A read-only view with rows on the first axis; nothing is copied that is an array already."""
    try:
        rows = values if isinstance(values, np.ndarray) else np.asarray(values)
    except ValueError:
        raise DataError(f"Expected {name} as a rectangular array, got rows of different lengths.") from None
    if rows.ndim < 2:
        raise DataError(f"Expected {name} with rows on the first of at least 2 axes, got {rows.ndim}.")
    if rows.size == 0:
        raise DataError(f"Expected at least one row and one feature of {name}, got none.")
    if rows.dtype.kind not in "biuf":
        raise DataError(f"Expected {name} to be numbers, got dtype {rows.dtype}.")
    if rows.dtype.kind == "f":
        step = max(1, _CHUNK_BYTES // (rows[0].nbytes or 1))
        for start in range(0, len(rows), step):
            finite = np.isfinite(rows[start : start + step])
            if not finite.all():
                row = start + int(np.argmin(finite.all(axis=tuple(range(1, rows.ndim)))))
                raise DataError(f"Expected {name} to be finite, got a value that is not (nan or inf) in row {row}.")
    view = rows.view()
    view.setflags(write=False)
    return view
