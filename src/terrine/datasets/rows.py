"""What rows may be, said once: arrays of numbers, sparse rows, texts, and tables whose columns have names.

Arrays stay numpy arrays. The others are held here in one form each, which no library's inference decides, and are
indexed as arrays are: ``rows[indices]`` and ``rows[start:stop]`` are rows again. `matched` brings public rows into the
form of the private ones, or says by name what does not fit.
"""

from __future__ import annotations

import difflib
import hashlib
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from terrine.datasets.tables import Column, Frame, frame_of, is_frame, quoted
from terrine.errors import DataError, InputError

_CHUNK_BYTES = 1 << 25  # how much of a large array is looked at in one go
_NAMED = 5  # columns in a message
_NAN = np.float64("nan")


class Texts:
    """Rows that are one text each."""

    __slots__ = ("values",)

    def __init__(self, values: NDArray[Any]) -> None:
        self.values = values  # (n_rows,) of str, read-only

    @property
    def shape(self) -> tuple[int, ...]:
        return self.values.shape

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, rows: Any) -> Texts:
        return Texts(self.values[rows])

    def native(self) -> NDArray[Any]:
        return self.values


class SparseRows:
    """Rows of a scipy matrix in CSR form: sorted, without stored zeros, so that equal rows are stored alike."""

    __slots__ = ("matrix",)

    def __init__(self, matrix: Any) -> None:
        self.matrix = matrix

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(int(n) for n in self.matrix.shape)

    def __len__(self) -> int:
        return int(self.matrix.shape[0])

    def __getitem__(self, rows: Any) -> SparseRows:
        return SparseRows(self.matrix[rows])

    def native(self) -> Any:
        return self.matrix


Rows = NDArray[Any] | SparseRows | Texts | Frame
ARRAY, SPARSE, TEXT, TABLE = "array", "sparse", "text", "table"


@dataclass(frozen=True)
class RowKind:
    """What is public of rows: which of the four they are, their shape, and of a table its columns and library."""

    kind: str = ARRAY
    shape: tuple[int, ...] = ()  # of one row
    columns: tuple[Column, ...] = ()
    library: str = ""

    def to_json(self) -> dict[str, Any]:
        table = {"columns": [one.to_json() for one in self.columns], "library": self.library}
        return {"kind": self.kind, "shape": list(self.shape), **(table if self.kind == TABLE else {})}

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> RowKind:
        columns = tuple(Column.from_json(one) for one in found.get("columns", ()))
        return cls(str(found["kind"]), tuple(map(int, found["shape"])), columns, str(found.get("library", "")))

    def __str__(self) -> str:
        match self.kind:
            case "sparse":
                return f"sparse rows of {self.shape[0]} numbers"
            case "text":
                return "texts"
            case "table":
                return f"a table of {self.shape[0]} columns"
        return f"arrays of shape {self.shape}"


def as_rows(name: str, values: Any, *, nan_ok: bool = False) -> Rows:
    """Checked rows, read-only; an array is not copied. A refusal names the column and row, never what stands there.

    Args:
        name: what the rows are called in a refusal.
        nan_ok: whether an array may hold nan, as a missing value. A table may: whether its learners accept that is
            asked where they are known.
    """
    if isinstance(values, (Texts, SparseRows, Frame)):
        return values
    if not isinstance(values, (np.ndarray, list, tuple)):
        from scipy import sparse

        if sparse.issparse(values):
            return _sparse(name, values)
        if is_frame(values):
            found = frame_of(name, values)
            return found if isinstance(found, Frame) else _array(name, found, nan_ok=nan_ok)
    texts = _texts(name, values)
    return _array(name, values, nan_ok=nan_ok) if texts is None else texts


def kind_of(rows: Rows) -> RowKind:
    match rows:
        case Texts():
            return RowKind(TEXT)
        case SparseRows():
            return RowKind(SPARSE, rows.shape[1:])
        case Frame():
            return RowKind(TABLE, rows.shape[1:], rows.columns, rows.library)
    return RowKind(ARRAY, tuple(int(n) for n in rows.shape[1:]))


def described(rows: Rows) -> str:
    """What a row is, for `repr`: public."""
    match rows:
        case Texts():
            return "text"
        case SparseRows():
            return f"{rows.shape[1:]} {rows.matrix.dtype}, sparse"
        case Frame():
            return f"{len(rows.columns)} named columns"
    return f"{rows.shape[1:]} {rows.dtype}"


def matched(rows: Rows, kind: RowKind, *, name: str, like: str) -> Rows:
    """The same rows with their columns in the order of ``kind``; what does not fit is refused by name.

    Args:
        name, like: what these rows, and those that ``kind`` is of, are called in a refusal.
    """
    found = kind_of(rows)
    if isinstance(rows, Frame) and kind.kind == TABLE:
        return _matched_table(rows, kind, name=name, like=like)
    if found.kind != kind.kind:
        raise InputError(f"{name} and {like} must be rows of one kind; {name} has {found}, {like} {kind}.")
    if found.shape != kind.shape:
        raise InputError(f"{name} must have rows of shape {kind.shape}, as {like}, got {found.shape}.")
    return rows


def concatenated(parts: Sequence[Rows]) -> Rows:
    """Rows of one kind, one after the other."""
    first = parts[0]
    if len(parts) == 1:
        return first
    match first:
        case Texts():
            return Texts(np.concatenate([part.native() for part in parts]))  # type: ignore[union-attr]
        case SparseRows():
            from scipy import sparse

            return SparseRows(sparse.vstack([part.native() for part in parts]).tocsr())  # type: ignore[union-attr]
        case Frame():
            return Frame.joined([part for part in parts if isinstance(part, Frame)])
    return np.concatenate([np.asarray(part) for part in parts])


def numbers(rows: Rows, *, who: str) -> NDArray[Any]:
    """Rows as an array, for what takes nothing else; a column that holds no numbers is refused by name."""
    match rows:
        case np.ndarray():
            return rows
        case Frame():
            other = next((one for one in rows.columns if one.kind != "number"), None)
            if other is None:
                return np.stack(rows.values, axis=1)
            raise InputError(
                f"{who} takes numbers only, and column {quoted(other.name)} holds {other}; use a scikit-learn Pipeline "
                "that encodes it (a ColumnTransformer with OneHotEncoder, OrdinalEncoder or TfidfVectorizer), or leave "
                "the column out."
            )
    raise InputError(f"{who} takes arrays of numbers, not {kind_of(rows)}.")


def row_type(rows: Rows) -> str:
    """Rows of one type may be concatenated without changing what a teacher reads."""
    return rows.dtype.str if isinstance(rows, np.ndarray) else kind_of(rows).kind


def odd_rows(rows: NDArray[Any], *, nan_ok: bool = False) -> NDArray[np.bool_]:
    """(n_rows,) which rows hold a number that is not finite, other than nan where that is taken."""
    found = np.zeros(len(rows), dtype=bool)
    if rows.dtype.kind == "f":
        for some in _chunks(rows):
            fine = ~np.isinf(rows[some]) if nan_ok else np.isfinite(rows[some])
            found[some] = ~fine.all(axis=tuple(range(1, rows.ndim)))
    return found


def with_nan(rows: Rows) -> str:
    """Where a missing number stands first: a column's name in quotes, "an array"; "" if there is none."""
    match rows:
        case Frame():
            return next(
                (
                    f"column {quoted(column.name)}"
                    for column, values in zip(rows.columns, rows.values, strict=True)
                    if column.kind == "number" and np.isnan(values).any()
                ),
                "",
            )
        case np.ndarray() if rows.dtype.kind == "f":
            return "an array" if any(np.isnan(rows[some]).any() for some in _chunks(rows)) else ""
    return ""


def row_digests(rows: Rows) -> list[bytes]:
    """A sha256 of each row's values and their types, and of nothing else: equal rows have equal digests.

    An array's row is little-endian doubles in C order, with one zero and one nan. In a table columns are taken by
    name, whatever their order, and a category by its value, whatever its place in the list.
    """
    match rows:
        case Texts():
            start = hashlib.sha256(b"terrine.text")
            return [_digest(start, _framed(text.encode("utf-8", "surrogatepass"))) for text in rows.values]
        case SparseRows():
            start = hashlib.sha256(f"terrine.sparse {rows.shape[1]}".encode())
            return [_digest(start, *parts) for parts in _sparse_bytes(rows.matrix)]
        case Frame():
            facts = sorted((one.name, one.kind, one.zone) for one in rows.columns)
            start = hashlib.sha256(f"terrine.table {facts!r}".encode("utf-8", "surrogatepass"))
            return [_digest(start, *cells) for cells in zip(*rows.by_name_bytes(), strict=True)]
    start = hashlib.sha256(f"{rows.shape[1:]}".encode())
    return [_digest(start, _doubles(row)) for row in rows]


def rows_digest(digest: Any, rows: Rows, *, step_bytes: int = _CHUNK_BYTES) -> str:
    """Of all rows in their order: an array's type, shape and values a piece at a time, otherwise every row's digest."""
    if isinstance(rows, np.ndarray):
        digest.update(f"{rows.dtype.str} {rows.shape}".encode())
        step = max(1, step_bytes // rows[:1].nbytes)
        for start in range(0, len(rows), step):
            digest.update(np.ascontiguousarray(rows[start : start + step]).tobytes())
        return str(digest.hexdigest())
    digest.update(f"{kind_of(rows)!r} {len(rows)}".encode("utf-8", "surrogatepass"))
    for one in row_digests(rows):
        digest.update(one)
    return str(digest.hexdigest())


def seen_by(estimator: Any, rows: Rows) -> Any:
    """What a scikit-learn estimator is given of rows: a table with its names where it can use them, else numbers."""
    match rows:
        case np.ndarray():
            return rows.reshape(len(rows), -1)
        case Frame() if not takes_tables(estimator):
            return numbers(rows, who=type(estimator).__name__)
    return rows.native()


def takes_tables(estimator: Any) -> bool:
    """Whether an estimator is given tables as they are: a Pipeline, something around one, or code of a user's own."""
    from sklearn.compose import ColumnTransformer
    from sklearn.pipeline import Pipeline

    if not type(estimator).__module__.startswith("sklearn."):
        return True
    if type(estimator).__name__ == "HistGradientBoostingClassifier":  # takes categories by their dtype
        return True
    inside = (estimator, *estimator.get_params(deep=True).values())
    return any(isinstance(one, (Pipeline, ColumnTransformer)) for one in inside)


def takes_nan(estimator: Any) -> bool:
    """Whether missing numbers are the estimator's own business: a Pipeline's, or one's whose tags say so."""
    from sklearn.pipeline import Pipeline
    from sklearn.utils import get_tags

    return isinstance(estimator, Pipeline) or bool(get_tags(estimator).input_tags.allow_nan)


def _matched_table(rows: Frame, kind: RowKind, *, name: str, like: str) -> Frame:
    columns = kind.columns
    have, want = {one.name: one for one in rows.columns}, {one.name: one for one in columns}
    missing, extra = [one for one in want if one not in have], [one for one in have if one not in want]
    if missing or extra:
        said = [f"missing in {name}: {_listed(missing)}"] if missing else []
        said += [f"only in {name}: {_listed(extra)}"] if extra else []
        near = [(one, difflib.get_close_matches(one, extra, n=1, cutoff=0.6)) for one in missing]
        near = [(one, found) for one, found in near if found] or [
            (one, [other]) for one in missing for other in extra if one.casefold() == other.casefold()
        ]
        hints = [f"{quoted(found[0])} may be {quoted(one)} misspelled" for one, found in near[:_NAMED]]
        raise InputError(
            f"The columns of {name} and {like} must have the same names, in any order: {'; '.join(said + hints)}. "
            "Nothing was taught or spent."
        )
    for column in columns:
        found = have[column.name]
        where = f"Column {quoted(column.name)}"
        if found.kind != column.kind:
            raise InputError(
                f"{where} holds {found} in {name} and {column} in {like}; give it one type in both. "
                "Nothing was taught or spent."
            )
        if found.zone != column.zone:
            raise InputError(f"{where} has one time zone in {name} and a different one in {like}; use one in both.")
        same = found.categories == column.categories if column.ordered or found.ordered else True
        if found.ordered != column.ordered or not same or set(found.categories) != set(column.categories):
            raise InputError(
                f"{where} has one list of categories in {name} and a different one in {like}; give both the same "
                "public list, as with astype(pandas.CategoricalDtype([...])). Nothing was taught or spent."
            )
    return rows.like(columns, kind.library)


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(quoted(name) for name in names[:_NAMED])
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return shown + more


def _texts(name: str, values: Any) -> Texts | None:
    """Rows of text, if the first of them is one; then all must be."""
    if isinstance(values, np.ndarray):
        if values.ndim != 1 or values.dtype.kind not in "UOT":
            return None
        each = values.tolist()
    elif isinstance(values, (list, tuple)):
        each = values if len(values) and isinstance(values[0], str) else []
    elif hasattr(values, "to_pylist"):  # Arrow's
        each = values.to_pylist()
    elif hasattr(values, "to_list") and getattr(values, "ndim", 1) == 1:  # a column of a DataFrame
        each = values.to_list()
    else:
        return None
    if not len(each) or not isinstance(each[0], str):
        return None
    other = next((row for row, one in enumerate(each) if not isinstance(one, str)), None)
    if other is not None:
        raise DataError(f"Row {other} of {name} is not text, and row 0 is; give every row as text, or leave it out.")
    held = np.empty(len(each), dtype=object)
    held[:] = [str(one) for one in each]
    held.setflags(write=False)
    return Texts(held)


def _sparse(name: str, values: Any) -> SparseRows:
    matrix = values.tocsr(copy=True)
    if matrix.ndim != 2 or min(matrix.shape) == 0:
        raise DataError(f"{name} must have at least one row and one feature, and has none.")
    if matrix.dtype.kind not in "biuf":
        raise DataError(f"{name} must hold numbers, got dtype {matrix.dtype}.")
    matrix.sum_duplicates()
    bad = ~np.isfinite(matrix.data) if matrix.dtype.kind == "f" else np.zeros(0, dtype=bool)
    if bad.any():
        row = int(np.searchsorted(matrix.indptr, np.argmax(bad), side="right")) - 1
        raise DataError(f"{name} must be finite; row {row} has nan or inf.")
    matrix.eliminate_zeros()
    return SparseRows(matrix)


def _array(name: str, values: ArrayLike, *, nan_ok: bool) -> NDArray[Any]:
    """A read-only view with rows on the first axis; nothing is copied that is an array already."""
    try:
        rows = values if isinstance(values, np.ndarray) else np.asarray(values)
    except ValueError:
        raise DataError(f"The rows of {name} must all have the same length.") from None
    if rows.ndim < 2:
        raise DataError(f"{name} must have at least 2 axes, the first for rows, got {rows.ndim}.")
    if rows.size == 0:
        raise DataError(f"{name} must have at least one row and one feature, and has none.")
    if rows.dtype.kind not in "biuf":
        raise DataError(f"{name} must hold numbers, got dtype {rows.dtype}.")
    if rows.dtype.kind == "f":
        for some in _chunks(rows):
            fine = ~np.isinf(rows[some]) if nan_ok else np.isfinite(rows[some])
            if not fine.all():
                row = some.start + int(np.argmin(fine.all(axis=tuple(range(1, rows.ndim)))))
                raise DataError(f"{name} must be finite; row {row} has nan or inf.")
    view = rows.view()
    view.setflags(write=False)
    return view


def _chunks(rows: NDArray[Any]) -> Iterator[slice]:
    step = max(1, _CHUNK_BYTES // (rows[:1].nbytes or 1))
    for start in range(0, len(rows), step):
        yield slice(start, start + step)


def _digest(start: Any, *parts: bytes) -> bytes:
    digest = start.copy()
    for part in parts:
        digest.update(part)
    return bytes(digest.digest())


def _framed(data: bytes) -> bytes:
    return struct.pack("<q", len(data)) + data


def _doubles(row: NDArray[Any]) -> bytes:
    doubles = (row + 0.0).astype("<f8", order="C")
    return np.where(np.isnan(doubles), _NAN, doubles).astype("<f8", order="C").tobytes()


def _sparse_bytes(matrix: Any) -> Iterator[tuple[bytes, bytes]]:
    places, values = matrix.indices.astype("<i8"), matrix.data.astype("<f8")
    for start, stop in zip(matrix.indptr[:-1], matrix.indptr[1:], strict=True):
        yield _framed(places[start:stop].tobytes()), values[start:stop].tobytes()
