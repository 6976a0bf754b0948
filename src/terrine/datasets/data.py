"""Private data, public data, and a task of both. Private values are never printed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from terrine.datasets.rows import as_rows, described, kind_of, matched
from terrine.datasets.units import unit_ids
from terrine.errors import DataError, InputError

if TYPE_CHECKING:
    from terrine.schema import RowReader

UNLABELLED = -1  # the label of a private row that has no usable one


@dataclass(frozen=True, eq=False, repr=False, init=False, slots=True)
class PrivateData:
    """Labelled rows that nobody may see. It prints the shape of a row only; it can be pickled, for executors need that.

    Args:
        X: rows on the first axis; an array or a numpy memmap, which is kept as it is and never copied into memory.
            Lists of numbers become float64, whatever numbers they hold: one cell decides no other's type. Or a scipy
            sparse matrix, a list of texts, or a table of pandas, polars or pyarrow (`terrine.datasets.rows`).
        y: (n_rows,) class indices, whole numbers from 0.
        unit: (n_rows,) whom a row belongs to, all whole numbers or all text; None where every row is its own.
        nan_ok: whether an array may hold nan, for teachers that take missing numbers. A table always may.
        unlabelled_ok: whether a label may be -1: the row has no usable one. It keeps its place in the partition and in
            every public number, so that one odd label moves no other row; its teacher does not learn from it.

    How many rows there are is printed where a row is its own unit only: else a person may have any number of them.

    Examples:
        >>> PrivateData([[0.5], [1.5]], [0, 1], unit=["ann", "bob"])
        <PrivateData: rows of (1,) float64, with units; values and number are secret>
    """

    X: Any  # (n_rows, ...) array, read-only; or SparseRows, Texts, Frame
    y: NDArray[np.int64]  # (n_rows,), read-only
    unit: NDArray[Any] | None  # (n_rows,) int64 or str, read-only

    def __init__(
        self,
        X: Any,
        y: ArrayLike,
        *,
        unit: ArrayLike | None = None,
        nan_ok: bool = False,
        unlabelled_ok: bool = False,
    ) -> None:
        rows = as_rows("X", X if isinstance(X, np.ndarray) else _as_floats(X), nan_ok=nan_ok)
        object.__setattr__(self, "X", rows)
        object.__setattr__(self, "y", class_indices("y", y, n_rows=len(rows), unlabelled_ok=unlabelled_ok))
        object.__setattr__(self, "unit", None if unit is None else unit_ids(unit, n_rows=len(rows)))

    def __len__(self) -> int:
        return len(self.X)

    def take(self, rows: ArrayLike) -> PrivateData:
        """Some of the rows, by their indices; these are copied into memory."""
        indices = np.asarray(rows)
        if indices.dtype.kind not in "iu" or ((indices < -len(self)) | (indices >= len(self))).any():
            raise InputError("rows must be indices of rows: whole numbers below the number of rows.")
        unit = None if self.unit is None else self.unit[indices]
        rows = np.asarray(self.X[indices]) if isinstance(self.X, np.ndarray) else self.X[indices]
        return PrivateData(rows, self.y[indices], unit=unit, nan_ok=True, unlabelled_ok=True)  # as they were checked

    def __repr__(self) -> str:
        kind = f"of {described(self.X)}"
        if self.unit is None:
            return f"<PrivateData: {len(self)} rows {kind}, no units; values are secret>"
        return f"<PrivateData: rows {kind}, with units; values and number are secret>"


@dataclass(frozen=True, eq=False, repr=False, init=False, slots=True)
class PublicData:
    """Unlabeled rows that anyone may see, of the same kind as the private ones; X may be a numpy memmap.

    ``nan_ok``: whether an array may hold nan, for teachers and students that take missing numbers.
    """

    X: Any  # (n_rows, ...) array, read-only; or SparseRows, Texts, Frame

    def __init__(self, X: Any, *, nan_ok: bool = False) -> None:
        object.__setattr__(self, "X", as_rows("X", X, nan_ok=nan_ok))

    def __len__(self) -> int:
        return len(self.X)

    def __repr__(self) -> str:
        return f"<PublicData: {len(self)} rows of {described(self.X)}>"


@dataclass(frozen=True, eq=False, repr=False, slots=True, kw_only=True)
class Task:
    """Private rows to learn from, public rows to have labeled, and labels to evaluate with, where there are any.

    ``public_y`` and ``test_y`` are for evaluation only: no part of the pipeline may learn from them.
    ``classes`` is a public list of names, in the order of the class indices.
    ``private`` is None where the teachers are elsewhere, behind a label service.
    """

    name: str = "own data"
    private: PrivateData | None = None
    public: PublicData
    public_y: NDArray[np.int64] | None = None  # (n_public,)
    test_X: Any = None  # (n_test, ...) rows, as the public ones
    test_y: NDArray[np.int64] | None = None  # (n_test,)
    classes: tuple[str, ...]
    encoder: RowReader | None = None  # of tables: what made numbers, or texts, of their rows

    def __post_init__(self) -> None:
        classes = class_names(self.classes)
        object.__setattr__(self, "classes", classes)
        if (self.test_X is None) != (self.test_y is None):
            raise DataError("Test rows and their labels belong together: test_X and test_y, or neither.")
        if self.private is not None:
            n_private = len(self.private)
            class_indices("private.y", self.private.y, n_rows=n_private, n_classes=len(classes), unlabelled_ok=True)
            rows = _like("Public", "private", self.public.X, self.private.X)
            if rows is not self.public.X:
                object.__setattr__(self, "public", PublicData(rows))
        if self.public_y is not None:
            public_y = class_indices("public_y", self.public_y, n_rows=len(self.public), n_classes=len(classes))
            object.__setattr__(self, "public_y", public_y)
        if self.test_X is not None and self.test_y is not None:
            test = _like("Test", "public", as_rows("test_X", self.test_X), self.public.X)
            object.__setattr__(self, "test_X", test)
            test_y = class_indices("test_y", self.test_y, n_rows=len(test), n_classes=len(classes))
            object.__setattr__(self, "test_y", test_y)

    def __repr__(self) -> str:
        parts = [f"{len(self.public)} public"]
        if self.private is not None:
            parts.insert(0, f"{len(self.private)} private" if self.private.unit is None else "private")
        if self.test_y is not None:
            parts.append(f"{len(self.test_y)} test")
        rows = f"{', '.join(parts)} rows of {described(self.public.X)}"
        return f"<Task {self.name}: {rows}, {len(self.classes)} classes>"


def _like(who: str, whom: str, rows: Any, others: Any) -> Any:
    """Rows of the same kind as others; a table's columns are put in their order."""
    if not isinstance(others, np.ndarray):
        return matched(rows, kind_of(others), name=f"{who} rows", like=f"the {whom} rows")
    if not isinstance(rows, np.ndarray) or rows.shape[1:] != others.shape[1:]:
        theirs = rows.shape[1:] if isinstance(rows, np.ndarray) else kind_of(rows)
        raise DataError(f"{who} rows must have the {whom} rows' shape {others.shape[1:]}; theirs is {theirs}.")
    return rows


def array_of(X: PublicData | ArrayLike, *, who: str) -> NDArray[Any]:
    """Rows that must be given as an array: a table would be matched to other rows by position here, not by name."""
    rows = X.X if isinstance(X, PublicData) else as_rows("X", X)
    if isinstance(rows, np.ndarray):
        return rows
    raise InputError(f"{who} takes arrays of numbers, not {kind_of(rows)}; turn the rows into an array first.")


def class_names(classes: Any) -> tuple[str, ...]:
    """The public list of classes: at least two names, all different."""
    if isinstance(classes, str):
        raise DataError(f"classes must be a list of names, got the one text {classes!r}.")
    names = tuple(str(name) for name in classes)
    if len(names) < 2 or len(set(names)) != len(names):
        raise DataError(
            f"classes must be at least 2 names, all different, got {len(names)} with {len(set(names))} different ones."
        )
    return names


def class_indices(
    name: str, values: ArrayLike, *, n_rows: int, n_classes: int | None = None, unlabelled_ok: bool = False
) -> NDArray[np.int64]:
    """Labels as read-only int64 indices; says in which row the first bad one is, never what it is."""
    allowed = "whole numbers of at least 0" if n_classes is None else f"class indices from 0 to {n_classes - 1}"
    raw = np.asarray(values)
    if raw.shape != (n_rows,):
        raise DataError(f"{name} must be a list with one label for each row.")
    if raw.dtype.kind not in "iuf":
        raise DataError(f"{name} must hold {allowed}, got dtype {raw.dtype}.")
    lowest = UNLABELLED if unlabelled_ok else 0
    bad = ~((raw >= lowest) & (raw < (2**31 if n_classes is None else n_classes)))
    if raw.dtype.kind == "f":
        bad |= raw != np.floor(raw)
    if bad.any():
        raise DataError(f"{name} must hold {allowed}; row {int(np.argmax(bad))} does not.")
    indices = raw.astype(np.int64)
    indices.setflags(write=False)
    return indices


def _as_floats(values: Any) -> Any:
    """Lists of numbers: whole numbers become floats, as they would beside one fraction. Other rows as they are."""
    if not isinstance(values, (list, tuple)) or (len(values) and isinstance(values[0], str)):
        return values
    try:
        rows = np.asarray(values)
    except ValueError:
        raise DataError("The rows of X must all have the same length.") from None
    return rows.astype(np.float64) if rows.dtype.kind in "biu" else rows
