"""Tables of pandas, polars and Arrow in one form: a column is numbers, text, categories or dates, and has a name."""

from __future__ import annotations

import datetime
import numbers
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from terrine.errors import DataError

NUMBER, TEXT, CATEGORY, DATE = "number", "text", "category", "date"
_WORDS = {NUMBER: "numbers", TEXT: "text", CATEGORY: "categories", DATE: "dates"}
_LIBRARIES = ("pandas", "polars")  # of tables that scikit-learn's own steps take


@dataclass(frozen=True)
class Column:
    """What is public of a column.

    Attributes:
        kind: "number" (float64; whole numbers and truth values too, so that one missing cell changes no type), "text",
            "category" (of a public list), "date" (microseconds).
        categories: the list, fixed by the column's type; ordered where that says so.
        zone: of dates.
    """

    name: str
    kind: str
    categories: tuple[Any, ...] = ()
    ordered: bool = False
    zone: str = ""

    def __str__(self) -> str:
        return _WORDS[self.kind]

    def to_json(self) -> dict[str, Any]:
        more = {"categories": list(self.categories), "ordered": self.ordered} if self.kind == CATEGORY else {}
        return {"name": self.name, "kind": self.kind, **more, **({"zone": self.zone} if self.zone else {})}

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Column:
        categories, ordered = tuple(found.get("categories", ())), bool(found.get("ordered", False))
        if found["kind"] not in _WORDS:
            raise ValueError(found["kind"])
        return cls(str(found["name"]), str(found["kind"]), categories, ordered, str(found.get("zone", "")))


class Frame:
    """Rows of named columns of four types, for Pipelines, which encode them inside one share.

    `terrine.schema.Table` is what is read for a schema instead: cells of any kind, which public knowledge makes numbers
    of, and which are never refused.

    Attributes:
        columns: what is public of each.
        values: of each (n_rows,): float64 with nan, text or None, int32 places in the list of categories with -1, or
            datetime64[us] with NaT.
        library: pandas or polars: what `native` makes a table of. Arrow's become one of these, which scikit-learn's
            text and category steps take.
    """

    __slots__ = ("columns", "library", "values")

    def __init__(self, columns: tuple[Column, ...], values: tuple[NDArray[Any], ...], library: str) -> None:
        self.columns = columns
        self.values = values
        self.library = library

    @property
    def shape(self) -> tuple[int, ...]:
        return len(self), len(self.columns)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    def __len__(self) -> int:
        return len(self.values[0])

    def __getitem__(self, rows: Any) -> Frame:
        return Frame(self.columns, tuple(values[rows] for values in self.values), self.library)

    def select(self, places: Sequence[int]) -> Frame:
        """Some of the columns."""
        return Frame(tuple(self.columns[k] for k in places), tuple(self.values[k] for k in places), self.library)

    def like(self, columns: tuple[Column, ...], library: str) -> Frame:
        """The same columns in the order, and with the lists of categories in the order, of these."""
        place = {name: k for k, name in enumerate(self.names)}
        values = []
        for column in columns:
            here, mine = self.values[place[column.name]], self.columns[place[column.name]]
            if mine.categories != column.categories:
                there = np.array([*(column.categories.index(one) for one in mine.categories), -1], dtype=np.int32)
                here = there[here]  # -1 is the last
            values.append(here)
        return Frame(columns, tuple(values), library)

    @classmethod
    def joined(cls, parts: Sequence[Frame]) -> Frame:
        values = tuple(np.concatenate(some) for some in zip(*(part.values for part in parts), strict=True))
        return cls(parts[0].columns, values, parts[0].library)

    def objects(self, place: int) -> NDArray[Any]:
        """A column's values as Python's own; None where one is missing."""
        column, values = self.columns[place], self.values[place]
        found = np.empty(len(values), dtype=object)
        match column.kind:
            case "category":
                found[:] = [None if code < 0 else column.categories[code] for code in values.tolist()]
            case "number":
                found[:] = [None if one != one else one for one in values.tolist()]
            case _:
                found[:] = values.tolist()
        return found

    def native(self) -> Any:
        """A table as scikit-learn takes it."""
        columns = {column.name: values for column, values in zip(self.columns, self.values, strict=True)}
        facts = {column.name: column for column in self.columns}
        make: Callable[[Column, NDArray[Any]], Any] = {"pandas": _pandas, "polars": _polars}[self.library]
        made = {name: make(facts[name], values) for name, values in columns.items()}
        if self.library == "pandas":
            import pandas as pd

            return pd.DataFrame(made, copy=False)
        import polars as pl

        return pl.DataFrame(made)

    def by_name_bytes(self) -> list[list[bytes]]:
        """Of each column, in the order of names, the bytes of each cell: its length or width is told beforehand."""
        places = sorted(range(len(self.columns)), key=lambda k: self.columns[k].name)
        return [_cells(self.columns[k], self.values[k]) for k in places]


def quoted(name: str) -> str:
    """A column's name in a message: one line, and not too long."""
    shown = " ".join(name.split())
    return f'"{shown[:60]}…"' if len(shown) > 60 else f'"{shown}"'


def is_frame(values: Any) -> bool:
    """Whether narwhals knows it as a table; one without rows yet, or with a name twice, is refused."""
    if isinstance(values, (str, bytes, Mapping, np.ndarray, list, tuple)):
        return False
    if not any(hasattr(type(values), name) for name in ("__dataframe__", "columns", "column_names")):
        return False
    import narwhals as nw

    try:
        found = nw.from_native(values, pass_through=True)
    except nw.exceptions.DuplicateError:
        raise DataError("The columns of a table must have different names; two of these have the same.") from None
    if isinstance(found, nw.LazyFrame):
        raise DataError("A lazy table has no rows yet: call collect() first.")
    return isinstance(found, nw.DataFrame)


def frame_of(name: str, values: Any) -> Frame | NDArray[Any]:
    """A table; or, where its columns have no names (as of ``pandas.DataFrame(array)``), the array that it was."""
    import narwhals as nw

    frame = nw.from_native(values, eager_only=True)
    names = list(frame.columns)
    if not names or not len(frame):
        raise DataError(f"{name} must have at least one row and one column, and has none.")
    columns, held = zip(*(_column(name, str(one), frame.get_column(one)) for one in names), strict=True)
    if not all(isinstance(one, str) for one in names):
        if any(isinstance(one, str) for one in names) or any(one.kind != NUMBER for one in columns):
            raise DataError(f"The columns of {name} must have names that are text: use columns.astype(str).")
        return np.stack(held, axis=1)
    library = "pandas" if frame.implementation.is_pandas_like() else frame.implementation.name.lower()
    if library == "pyarrow":
        library = next((one for one in _LIBRARIES if find_spec(one) is not None), "pyarrow without pandas and polars")
    if library not in _LIBRARIES:
        raise DataError(f"{name} must be a table of pandas, polars or pyarrow, got one of {library}.")
    return Frame(columns, held, library)


def _column(table: str, name: str, series: Any) -> tuple[Column, NDArray[Any]]:
    import narwhals as nw

    dtype, where = series.dtype, f"Column {quoted(name)} of {table}"
    listed = _categories(series)
    values: NDArray[Any]
    if listed is not None:
        column, values = Column(name, CATEGORY, *_checked_categories(where, listed[:2])), listed[2]
    elif dtype.is_numeric() or dtype == nw.Boolean:
        column, values = Column(name, NUMBER), _floats(series.cast(nw.Float64))
    elif dtype in (nw.String, nw.Categorical):
        column, values = Column(name, TEXT), _text(series.cast(nw.String).to_list())
    elif dtype == nw.Date or isinstance(dtype, nw.Datetime):
        zone = str(getattr(dtype, "time_zone", None) or "")
        plain = series.cast(nw.Datetime("us")) if dtype == nw.Date else series
        column, values = Column(name, DATE, zone=zone), plain.to_numpy().astype("datetime64[us]")
    elif dtype == nw.Object:
        column, values = _objects(name, where, series.to_list())
    else:
        raise DataError(
            f"{where} has the type {dtype}; a column holds numbers, text, categories or dates: convert it, or leave it "
            "out."
        )
    if column.kind == NUMBER and np.isinf(values).any():
        row = int(np.argmax(np.isinf(values)))
        raise DataError(f"{where} must hold finite numbers or missing ones, and has an infinite one in row {row}.")
    held: NDArray[Any] = values.view() if values.flags.writeable else values
    held.setflags(write=False)
    return column, held


def _floats(series: Any) -> NDArray[np.float64]:
    found = np.array(series.to_numpy(), dtype=np.float64)  # a copy: the user's table may change
    found[np.isnan(found)] = np.nan
    return found


def _text(values: Sequence[Any]) -> NDArray[Any]:
    found = np.empty(len(values), dtype=object)
    found[:] = [one if isinstance(one, str) else None for one in values]
    return found


def _categories(series: Any) -> tuple[list[Any], bool, NDArray[np.int32]] | None:
    """A list that the column's type fixes; polars' Categorical and Arrow's dictionaries hold what the rows hold."""
    native = series.to_native()
    if series.implementation.is_pandas_like() and hasattr(native, "cat"):
        codes = np.array(native.cat.codes, dtype=np.int32)
        return native.cat.categories.tolist(), bool(native.cat.ordered), codes
    if series.implementation.is_polars() and str(series.dtype).startswith("Enum"):
        codes = native.to_physical().cast(int).fill_null(-1).to_numpy().astype(np.int32)
        return list(series.dtype.categories), False, codes
    return None


def _checked_categories(where: str, listed: tuple[list[Any], bool]) -> tuple[tuple[Any, ...], bool]:
    categories, ordered = listed
    if not all(isinstance(one, (str, bool, int, float)) for one in categories):
        raise DataError(f"{where} has categories that are neither text nor numbers: make them text, astype(str).")
    return tuple(categories), ordered


def _objects(name: str, where: str, values: Sequence[Any]) -> tuple[Column, NDArray[Any]]:
    """A column without a type of its own: all of one kind, or refused."""
    there = [one for one in values if not _is_missing(one)]
    if there and all(isinstance(one, str) for one in there):
        return Column(name, TEXT), _text(values)
    if there and all(isinstance(one, (numbers.Real, np.bool_)) or type(one).__name__ == "Decimal" for one in there):
        found = [np.nan if _is_missing(one) else float(one) for one in values]
        return Column(name, NUMBER), np.array(found, dtype=np.float64)
    plain = all(isinstance(one, datetime.date) and getattr(one, "tzinfo", None) is None for one in there)
    if there and plain:
        dates = [np.datetime64("NaT") if _is_missing(one) else np.datetime64(one) for one in values]
        return Column(name, DATE), np.array(dates, dtype="datetime64[us]")
    raise DataError(
        f"{where} holds values of several types, or of a type that a column cannot have; make all of them text, "
        "numbers or dates (missing ones None), or leave the column out."
    )


def _is_missing(value: Any) -> bool:
    return (
        value is None or type(value).__name__ in ("NAType", "NaTType") or (isinstance(value, float) and value != value)
    )


def _pandas(column: Column, values: NDArray[Any]) -> Any:
    import pandas as pd

    match column.kind:
        case "category":
            dtype = pd.CategoricalDtype(list(column.categories), ordered=column.ordered)
            return pd.Categorical.from_codes(values, dtype=dtype)
        case "text":
            as_text = "str" if int(pd.__version__.split(".")[0]) >= 3 else object
            return pd.Series([np.nan if one is None else one for one in values.tolist()], dtype=as_text)
        case "date" if column.zone:
            return pd.Series(values.copy()).dt.tz_localize("UTC").dt.tz_convert(column.zone)
    return values.copy()


def _polars(column: Column, values: NDArray[Any]) -> Any:
    import polars as pl

    match column.kind:
        case "category":
            names = [None if code < 0 else column.categories[code] for code in values.tolist()]
            return pl.Series(column.name, names, dtype=pl.Enum(list(column.categories)))
        case "text":
            return pl.Series(column.name, values.tolist(), dtype=pl.String)
        case "date":
            dates = pl.Series(column.name, values)
            if not column.zone:
                return dates
            return dates.dt.replace_time_zone("UTC").dt.convert_time_zone(column.zone)
    return pl.Series(column.name, values)


def _cells(column: Column, values: NDArray[Any]) -> list[bytes]:
    match column.kind:
        case "number":
            doubles = np.where(np.isnan(values), np.float64("nan"), values + 0.0).astype("<f8").tobytes()
            return [doubles[k : k + 8] for k in range(0, len(doubles), 8)]
        case "date":
            whole = values.astype("<i8").tobytes()
            return [whole[k : k + 8] for k in range(0, len(whole), 8)]
        case "category":
            each = [*(_value(one) for one in column.categories), _value(None)]
            return [each[code] for code in values.tolist()]  # -1 is the last
    return [_value(one) for one in values.tolist()]


def _value(value: Any) -> bytes:
    """Typed and framed: no two values have the same bytes."""
    match value:
        case None:
            return b"-"
        case str():
            data = value.encode("utf-8", "surrogatepass")
            return b"s" + struct.pack("<q", len(data)) + data
        case bool():
            return b"b1" if value else b"b0"
        case int() if abs(value) > 2**53:
            return b"i" + struct.pack("<q", value)
    return b"f" + struct.pack("<d", float(value) + 0.0)
