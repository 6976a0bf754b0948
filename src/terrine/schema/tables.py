"""Tables from files and frames. What is in a cell never raises: only a header, or a file as a whole, can be refused."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import lzma
import re
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from numpy.typing import NDArray

from terrine._optional import require
from terrine.errors import DataError, InputError

TEXT = np.dtypes.StringDType()
TEXT_COLUMN, LABEL_COLUMN, UNIT_COLUMN = "text", "label", "unit"  # of a folder of texts

IMAGES = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".pgm", ".ppm"})

_DELIMITERS = ",;\t|"
OPENED: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
csv.field_size_limit(max(csv.field_size_limit(), 2**31 - 1))  # a longer cell would raise
_CHUNK = 20_000  # rows that are lists of strings at one time
_FRACTIONS = (float, np.floating, Decimal)  # numbers that as text may have a decimal point
_KINDS = "a .csv, .tsv (also .gz, .bz2 or .xz) or .parquet file, or a folder of .txt files"


@dataclass(frozen=True, eq=False)
class _Rows:
    """Columns of a table that has been read: text, or plain numbers where a frame has those."""

    columns: dict[str, NDArray[Any]]
    lines: NDArray[np.int64] | None = None  # (n_rows,) where each row begins in its file
    ragged: NDArray[np.int64] | None = None  # rows that had more or fewer cells than the header
    # Of a column of text, (n_rows,) which cells were numbers by their type: as text they have a decimal point
    typed: Mapping[str, NDArray[np.bool_]] = field(default_factory=dict)

    def with_commas(self, names: Collection[str]) -> _Rows:
        """The same numbers where cells of these columns are read with a decimal comma."""
        columns = dict(self.columns)
        for name in (odd := [name for name in names if name in self.typed]):
            columns[name] = columns[name].copy()
            columns[name][self.typed[name]] = np.strings.replace(columns[name][self.typed[name]], ".", ",")
        return replace(self, columns=columns, typed={n: which for n, which in self.typed.items() if n not in odd})


class Table:
    """Columns by name. Cells are read when they are first asked for; neither they nor their number are printed.

    It is read for a schema, and nothing in a cell is refused. `terrine.datasets.tables.Frame` holds the typed columns
    that Pipelines take as they are.

    Attributes:
        names: the columns, in order.
        orders: the values of a frame's ordered categorical columns, least first.
        separator: what stands between the cells of its .csv or .tsv file; "" of any other.
    """

    def __init__(
        self,
        names: Iterable[str],
        read: Callable[[], _Rows],
        orders: Mapping[str, tuple[str, ...]] | None = None,
        *,
        separator: str = "",
    ) -> None:
        self.names = tuple(names)
        self.orders = dict(orders or {})
        self.separator = separator
        self._read = read
        self._kept: _Rows | None = None
        places: dict[str, int] = {}
        for place, name in enumerate(self.names, start=1):
            if name in places:
                raise DataError(f"columns {places[name]} and {place} have the same name; rename one of them.")
            places[name] = place

    @property
    def _rows(self) -> _Rows:
        if self._kept is None:
            self._kept = self._read()
        return self._kept

    def __len__(self) -> int:
        return len(next(iter(self._rows.columns.values())))

    def column(self, name: str) -> NDArray[Any]:
        """(n_rows,) cells as text (StringDType), or float64 or int64 where a frame has numbers; nan is missing."""
        if name not in self.names:
            raise InputError(f"The table has no column {name!r}.")
        return self._rows.columns[name]

    def select(self, names: Sequence[str], *, commas: Collection[str] = ()) -> Table:
        """Some of the columns, in this order; nothing is read or copied now.

        Args:
            commas: columns whose text has a decimal comma. A cell that was no text but a number is the same number.
        """
        for name in names:
            if name not in self.names:
                raise InputError(f"The table has no column {name!r}.")
        return Table(names, lambda: self._rows.with_commas(commas), self.orders)

    def take(self, rows: Any) -> Table:
        """Some of the rows, by index or by a mask."""
        found = self._rows
        columns = {name: found.columns[name][rows] for name in self.names}
        lines = None if found.lines is None else found.lines[rows]
        typed = {name: which[rows] for name, which in found.typed.items() if name in self.names}
        return Table(self.names, lambda: _Rows(columns, lines, typed=typed), self.orders)

    @property
    def lines(self) -> NDArray[np.int64] | None:
        """(n_rows,) the line of its file where each row begins; None for frames and Parquet."""
        return self._rows.lines

    @property
    def ragged(self) -> NDArray[np.int64]:
        """Rows that had more or fewer cells than the header."""
        return np.zeros(0, dtype=np.int64) if self._rows.ragged is None else self._rows.ragged

    def __repr__(self) -> str:
        return f"<Table: columns {', '.join(map(repr, self.names))}>"


def read_table(source: Any, *, unit: str | None = None) -> Table:
    """A table from a file, a folder of texts, a frame, or lists by name.

    Cells become text without blanks around them. A line with too few cells is filled up with blanks, one with too many
    is cut; bytes that are not UTF-8 are replaced; blank lines are left out; a quote that is never closed reaches to the
    end of the file. None of this raises.

    Args:
        source: a .csv or .tsv file with a header (also .gz, .bz2, .xz), .parquet, a folder of .txt files, a pandas,
            polars or Arrow table, or a mapping from names to lists. The header decides what separates cells: comma,
            semicolon, tab or bar. A folder has the columns text and label: the sub-folder right under it.
        unit: of a folder: a regular expression whose first group in a file's name is whom the text belongs to; a
            column "unit".
    """
    if isinstance(source, Table):
        return source
    if unit is not None and not (isinstance(source, (str, Path)) and Path(source).is_dir()):
        raise InputError("`unit` is a regular expression for the names of files in a folder; a table has a column.")
    if isinstance(source, (str, Path)):
        path = Path(source)
        try:
            if path.is_dir():
                return _texts(path, unit)
            return _parquet(path) if path.suffix.lower() == ".parquet" else _csv(path)
        except DataError as error:
            raise DataError(f"{path.name}: {error}") from None
    if isinstance(source, Mapping):
        return _mapping(source)
    return _frame(source)


def is_table(path: str | Path) -> bool:
    """Whether `read_table` is for this file or folder: by its name alone, and by the first text file of a folder."""
    path = Path(path)
    if path.is_dir():
        if (path / "X.npy").is_file() or not any(path.rglob("*.txt")):
            return False
        return not any(file.suffix.lower() in IMAGES for file in path.rglob("*"))  # with notes beside them
    suffixes = [one.lower() for one in path.suffixes if one.lower() not in OPENED]
    return bool(suffixes) and suffixes[-1] in (".csv", ".tsv", ".txt", ".parquet")


def _csv(path: Path) -> Table:
    suffixes = [one.lower() for one in path.suffixes[-2:]]
    packed = suffixes.pop() if suffixes and suffixes[-1] in OPENED else ""
    if not suffixes or suffixes[-1] not in (".csv", ".tsv", ".txt"):
        raise DataError(f"the name must end as {_KINDS}.")
    if not path.is_file():
        raise DataError("there is no such file.")

    def opened() -> TextIO:
        binary = OPENED[packed](path, "rb") if packed else path.open("rb")
        return io.TextIOWrapper(binary, encoding="utf-8-sig", errors="replace", newline="")

    with readable(), opened() as file:
        first, _ = _first_line(file)
    delimiter = "\t" if suffixes[-1] == ".tsv" else max(_DELIMITERS, key=_unquoted(first).count)
    names = [name.strip() for name in next(csv.reader([first], delimiter=delimiter), [])]
    if not names:
        raise DataError("there is no header: the file is empty.")

    def read() -> _Rows:
        try:
            with readable(), opened() as file:
                again, skipped = _first_line(file)
                if again != first:
                    raise DataError("the header changed while the file was read.")
                return _records(file, names, delimiter, skipped)
        except DataError as error:
            raise DataError(f"{path.name}: {error}") from None

    return Table(names, read, separator=delimiter)


class readable:
    """A damaged archive is refused as a whole."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile)):
            raise DataError("the file is damaged: it cannot be unpacked.") from None
        if isinstance(error, OSError) and error.errno is None:  # bz2 says "Invalid data stream" so
            raise DataError("the file is damaged: it cannot be unpacked.") from None


def _first_line(file: TextIO) -> tuple[str, int]:
    """The header and its line number: the first line that is not blank. A quote in it reaches no further."""
    for number, line in enumerate(file, start=1):
        if line.strip():
            return line.replace("\0", "\ufffd").rstrip("\r\n"), number
    return "", 0


def _unquoted(line: str) -> str:
    return re.sub(r'"[^"]*"', "", line)


def _records(file: TextIO, names: list[str], delimiter: str, header_line: int) -> _Rows:
    reader = csv.reader((line.replace("\0", "\ufffd") for line in file), delimiter=delimiter)
    width = len(names)
    blank = [""] * width
    parts: list[list[NDArray[Any]]] = [[] for _ in names]
    lines: list[int] = []
    ragged: list[int] = []
    rows: list[list[str]] = []

    def keep() -> None:
        for part, cells in zip(parts, zip(*rows, strict=True), strict=True):
            part.append(np.array(cells, dtype=TEXT))
        rows.clear()

    line = reader.line_num
    while True:
        try:
            row = next(reader)
        except StopIteration:
            break
        except csv.Error:  # a cell beyond the limit
            row = [*blank, ""]
        start, line = line + 1, reader.line_num
        if not row:
            continue
        if len(row) != width:
            ragged.append(len(lines))
            row = (row + blank)[:width]
        lines.append(header_line + start)
        rows.append(row)
        if len(rows) == _CHUNK:
            keep()
    if rows:
        keep()
    columns = {}
    for name, part in zip(names, parts, strict=True):
        columns[name] = np.concatenate(part) if part else np.zeros(0, dtype=TEXT)
        part.clear()
    return _Rows(columns, np.array(lines, dtype=np.int64), np.array(ragged, dtype=np.int64))


def _parquet(path: Path) -> Table:
    parquet = require("pyarrow.parquet", use="A Parquet file", extra="parquet")
    import pyarrow

    if not path.is_file():
        raise DataError("there is no such file.")

    def opened(read: Callable[[Path], Any]) -> Any:
        try:
            return read(path)
        except (pyarrow.ArrowException, OSError):
            raise DataError(f"{path.name}: it cannot be read as a Parquet file.") from None

    try:
        names = [str(name) for name in opened(parquet.read_schema).names]
    except DataError:
        raise DataError("it cannot be read as a Parquet file.") from None
    return Table(names, lambda: _frame(opened(parquet.read_table))._rows)


def _frame(frame: Any) -> Table:
    import narwhals.stable.v2 as nw

    try:
        known = nw.from_native(frame, eager_only=True)
    except TypeError:
        kind = type(frame).__name__
        raise InputError(
            f"A table must be {_KINDS}, a pandas, polars or Arrow table; {kind} is none of them."
        ) from None
    names = [str(name) for name in known.columns]
    if not names:
        raise InputError("A table needs at least one column.")

    def read() -> _Rows:
        return _of_cells(dict(zip(names, map(_series, known.iter_columns()), strict=True)))

    orders = {
        str(column.name): tuple(as_text(column.cat.get_categories().to_list()).tolist())
        for column in known.iter_columns()
        if nw.is_ordered_categorical(column)
    }
    return Table(names, read, orders)


def _of_cells(columns: Mapping[str, NDArray[Any] | list[Any]]) -> _Rows:
    """Arrays as they are; lists of cells as text, each by itself."""
    found, typed = {}, {}
    for name, cells in columns.items():
        if not isinstance(cells, list):
            found[name] = cells
            continue
        which = np.array([isinstance(cell, _FRACTIONS) for cell in cells], dtype=bool)
        found[name] = as_text(cells)
        if which.any():
            typed[name] = which
    return _Rows(found, typed=typed)


def _series(column: Any) -> NDArray[Any] | list[Any]:
    """Numbers stay numbers where the column declares them; whole ones without a gap keep every digit."""
    if column.dtype.is_float() or (column.dtype.is_integer() and not column.null_count()):
        cells = np.asarray(column.to_numpy())
        if cells.dtype.kind == "f":
            return cells.astype(np.float64)
        if cells.dtype.kind in "iu" and cells.dtype != np.uint64:
            return cells.astype(np.int64)
    try:
        return list(column.to_list())
    except Exception:  # one cell that Python has no value for: a date beyond the year 9999, text that is not UTF-8
        return [_cell(column, k) for k in range(len(column))]


def _cell(column: Any, k: int) -> Any:
    try:
        return column[k : k + 1].to_list()[0]
    except Exception:
        return None


def _mapping(given: Mapping[Any, Any]) -> Table:
    columns: dict[str, NDArray[Any] | list[Any]] = {}
    for name, values in given.items():
        if isinstance(values, (str, bytes)) or not hasattr(values, "__len__"):
            raise InputError(f"Column {name!r} must be a list of cells.")
        plain = type(values) is np.ndarray and values.ndim == 1
        if plain and values.dtype.kind == "f":
            columns[str(name)] = values.astype(np.float64)
        elif plain and values.dtype.kind == "i":
            columns[str(name)] = values.astype(np.int64)
        else:
            columns[str(name)] = list(values)
    if not columns:
        raise InputError("A table needs at least one column.")
    if len({len(values) for values in columns.values()}) > 1:
        raise InputError("The lists of a table must have one length.")
    found = _of_cells(columns)
    return Table(columns, lambda: found)


def as_text(cells: Iterable[Any]) -> NDArray[Any]:
    """(n,) cells as text, each by itself: its neighbours' types play no part."""
    return np.array([cell if type(cell) is str and cell.isascii() else _as_text(cell) for cell in cells], dtype=TEXT)


def _as_text(cell: Any) -> str:
    try:
        match cell:
            case None:
                return ""
            case bool() | np.bool_():
                return "true" if cell else "false"
            case str():
                return cell.encode("utf-8", "replace").decode("utf-8")  # half a surrogate pair is no text
            case bytes():
                return cell.decode("utf-8", "replace")
            case float() | np.floating():
                return number_text(float(cell))
            case datetime() | date():
                return "" if cell != cell else cell.isoformat()  # pandas' NaT is a datetime
            case _:
                return "" if type(cell).__name__ == "NAType" else str(cell).encode("utf-8", "replace").decode("utf-8")
    except Exception:  # whatever an object's own str raises says something of a private cell
        return ""


def number_text(value: float) -> str:
    """A number as text: whole numbers as such, so that 1.0 beside a missing number is the 1 it was before."""
    if value != value:
        return ""
    return str(int(value)) if value.is_integer() and abs(value) < 2**53 else repr(value)


def text_files(folder: Path) -> Iterator[Path]:
    """The files of a folder of texts, in the order of its rows."""
    for file in sorted(folder.rglob("*.txt")):
        inside = file.relative_to(folder).parts
        if file.is_file() and not any(part.startswith(".") for part in inside):
            yield file


def _texts(folder: Path, unit: str | None) -> Table:
    """Text files at any depth, by path."""
    try:
        pattern = None if unit is None else re.compile(unit)
    except re.error:
        pattern = None
    if unit is not None and (pattern is None or pattern.groups < 1):
        raise InputError(f"`unit` must be a regular expression with one group in brackets, got {unit!r}.")

    def read() -> _Rows:
        files = list(text_files(folder))
        texts = [file.read_text(encoding="utf-8-sig", errors="replace").replace("\0", "\ufffd") for file in files]
        parts = [file.relative_to(folder).parts for file in files]
        columns = {TEXT_COLUMN: as_text(texts), LABEL_COLUMN: as_text(one[0] if one[1:] else "" for one in parts)}
        if pattern is not None:
            matches = [pattern.search(file.name) for file in files]
            columns[UNIT_COLUMN] = as_text((one.group(1) or "") if one else "" for one in matches)
        return _Rows(columns)

    return Table([TEXT_COLUMN, LABEL_COLUMN, *([] if pattern is None else [UNIT_COLUMN])], read)
