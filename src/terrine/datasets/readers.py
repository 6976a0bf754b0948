"""A user's own data from files. A message names the file, the row and what was expected, never a private value."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from terrine._optional import require
from terrine.datasets.data import PrivateData, PublicData, class_names
from terrine.datasets.units import unit_ids
from terrine.errors import DataError

Categories = Mapping[str, Sequence[str]]
_IMAGES = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".pgm", ".ppm"}
_KINDS = "an .npz, .parquet or .csv file, a folder with X.npy and y.npy, or a folder of images"


def read_private(
    path: str | Path,
    *,
    classes: Sequence[str],
    label: str | None = None,
    unit: str | None = None,
    categories: Categories | None = None,
    columns: Sequence[str] | None = None,
    image_shape: tuple[int, ...] | None = None,
) -> PrivateData:
    """Read labelled private rows. What describes them is given by you and public: nothing is fitted to the rows.

    Args:
        path: an .npz with arrays X, y and perhaps unit; a folder with X.npy, y.npy and perhaps unit.npy, which are
            mapped and not read into memory; a .csv with a header, or .parquet; or a folder of images, one
            sub-folder per class.
        classes: the public list of class names. Labels are class indices in arrays, and names elsewhere.
        label: the label's column in .csv and .parquet.
        unit: whom a row belongs to: a column, in .csv always text, in .parquet of whole numbers or text; for images a
            regular expression, whose first group in a file's name is the person; arrays bring their own.
        categories: public lists of values, by column; such a column becomes one column of 0 or 1 per value. All
            other columns must be numbers, and are left as they are.
        columns: the feature columns, in order; by default all but label and unit.
        image_shape: (height, width) for grey images or (height, width, 3); every image is brought to it.
    """
    path, names = Path(path), class_names(classes)
    try:
        match _kind(path):
            case "npz" | "npy folder" as kind:
                arrays = _arrays(path) if kind == "npz" else _mapped(path)
                if "X" not in arrays or "y" not in arrays:
                    raise DataError("Expected arrays named X and y, got no such arrays.")
                y = arrays["y"]
                y = _labels(y, names, "row {}".format) if y.ndim == 1 and y.dtype.kind in "UO" else y
                data = PrivateData(arrays["X"], y, unit=arrays.get("unit"))
            case "csv" | "parquet" as kind:
                if label is None:
                    raise DataError("Expected label, the name of the label's column, got none.")
                table = _Table(path, kind)
                y = _labels(table.column("label", label), names, table.where)
                units = None if unit is None else table.units(unit)
                X = table.features(_chosen(table, columns, {label, unit}), categories or {})
                data = PrivateData(X, y, unit=units)
            case _:
                data = _image_folder(path, names, unit, image_shape)
        if data.y.max() >= len(names):
            row = int(np.argmax(data.y >= len(names)))
            raise DataError(f"Expected labels from 0 to {len(names) - 1}, got another in row {row}.")
        return data
    except DataError as error:
        raise DataError(f"{path}: {error}") from None


def read_public(
    path: str | Path,
    *,
    ignore: Iterable[str] = (),
    categories: Categories | None = None,
    columns: Sequence[str] | None = None,
    image_shape: tuple[int, ...] | None = None,
) -> PublicData:
    """Read public rows; as `read_private`, without labels: an .npy file, or a folder of images at any depth, will do.

    ``ignore`` names columns of a .csv or .parquet file that are no features, such as a label.
    """
    path = Path(path)
    try:
        if path.suffix.lower() == ".npy" and path.is_file():
            return PublicData(_load(path, mmap_mode="r"))
        match _kind(path):
            case "npz" | "npy folder" as kind:
                arrays = _arrays(path) if kind == "npz" else _mapped(path)
                if "X" not in arrays:
                    raise DataError("Expected an array named X, got no such array.")
                return PublicData(arrays["X"])
            case "csv" | "parquet" as kind:
                table = _Table(path, kind)
                return PublicData(table.features(_chosen(table, columns, set(ignore)), categories or {}))
            case _:
                found = sorted(file for file in path.rglob("*") if _is_image(file))
                return PublicData(_images(found, image_shape))
    except DataError as error:
        raise DataError(f"{path}: {error}") from None


def _kind(path: Path) -> str:
    if path.is_dir():
        return "npy folder" if (path / "X.npy").is_file() else "images"
    if not path.is_file():
        raise DataError(f"Expected {_KINDS}, got no such file.")
    ending = path.suffix.lower().lstrip(".")
    if ending not in {"npz", "csv", "parquet"}:
        raise DataError(f"Expected {_KINDS}, got a file that ends in {path.suffix or 'nothing'}.")
    return ending


def _load(path: Path, **options: Any) -> Any:
    try:
        return np.load(path, allow_pickle=False, **options)
    except OSError:
        raise
    except Exception:  # numpy raises many types here, and a pickled object array is refused with them
        raise DataError(f"Expected a {path.suffix} file of plain arrays, got one that numpy cannot read.") from None


def _arrays(path: Path) -> dict[str, NDArray[Any]]:
    loaded = _load(path)
    if isinstance(loaded, np.ndarray):
        raise DataError("Expected an .npz file of named arrays, got one array.")
    try:
        with loaded:
            return {name: loaded[name] for name in ("X", "y", "unit") if name in loaded.files}
    except Exception:  # a damaged member, or one of pickled objects
        raise DataError("Expected an .npz file of plain arrays, got one that numpy cannot read.") from None


def _mapped(folder: Path) -> dict[str, NDArray[Any]]:
    found = {name: folder / f"{name}.npy" for name in ("X", "y", "unit")}
    return {name: _load(path, mmap_mode="r") for name, path in found.items() if path.is_file()}


def _labels(cells: Iterable[Any], classes: tuple[str, ...], where: Callable[[int], str]) -> NDArray[np.int64]:
    index = {name: k for k, name in enumerate(classes)}
    labels = np.array([-1 if cell is None else index.get(str(cell), -1) for cell in cells], dtype=np.int64)
    if (labels < 0).any():
        place = where(int(np.argmax(labels < 0)))
        raise DataError(f"Expected the label to be one of the {len(classes)} classes, got another in {place}.")
    return labels


def _chosen(table: _Table, columns: Sequence[str] | None, not_features: set[str | None]) -> list[int]:
    if columns is not None:
        return [table.position("columns", name) for name in columns]
    return [k for k, name in enumerate(table.names) if name not in not_features]


class _Table:
    """Columns of a .csv or .parquet file. Its header is not shown: where a file has none, that is a private row."""

    def __init__(self, path: Path, kind: str) -> None:
        read: Callable[[Path], tuple[list[str], list[Any], list[int] | None]] = _csv if kind == "csv" else _parquet
        self.names, self.cells, self._lines = read(path)
        if not self.names or len(self.cells[0]) == 0:
            raise DataError("Expected at least one row and one column, got none.")
        if len(set(self.names)) != len(self.names):
            raise DataError("Expected columns of different names in the header, got two of one name.")

    def where(self, row: int) -> str:
        return f"row {row}" if self._lines is None else f"line {self._lines[row]}"

    def position(self, argument: str, name: str) -> int:
        if name not in self.names:
            raise DataError(f"Expected a column named {name!r} ({argument}), got no such column in {len(self.names)}.")
        return self.names.index(name)

    def column(self, argument: str, name: str) -> Any:
        return self.cells[self.position(argument, name)]

    def units(self, name: str) -> NDArray[Any]:
        """Text in a .csv, whatever the cells hold; in .parquet what the column is declared to be."""
        cells = self.column("unit", name)
        return unit_ids(cells, n_rows=len(cells), where=self.where)

    def features(self, chosen: list[int], categories: Categories) -> NDArray[np.float64]:
        for name in categories:
            self.position("categories", name)
        blocks = [self._feature(k, categories.get(self.names[k])) for k in chosen]
        if not blocks:
            raise DataError("Expected at least one feature column, got none.")
        return np.column_stack(blocks)

    def _feature(self, k: int, values: Sequence[str] | None) -> NDArray[np.float64]:
        cells = self.cells[k]
        if values is not None:
            index = {str(value): i for i, value in enumerate(values)}
            found = np.array([index.get("" if cell is None else str(cell), -1) for cell in cells], dtype=np.int64)
            self._refuse(found < 0, k, f"one of the {len(index)} values listed in categories")
            return np.eye(len(index))[found]
        if isinstance(cells, np.ndarray) and cells.dtype.kind in "biuf":
            numbers = cells.astype(np.float64)
        else:
            numbers = np.array([_number(cell) for cell in cells])
        self._refuse(~np.isfinite(numbers), k, "a finite number (or list the column's values in categories)")
        return numbers[:, None]

    def _refuse(self, bad: NDArray[np.bool_], k: int, expected: str) -> None:
        if bad.any():
            place = self.where(int(np.argmax(bad)))
            raise DataError(f"Expected {expected}, got something else in {place}, column {k + 1}.")


def _number(cell: Any) -> float:
    """A number, or nan for what is none."""
    try:
        return float("nan") if cell is None or "_" in str(cell) else float(cell)
    except (TypeError, ValueError):
        return float("nan")


def _csv(path: Path) -> tuple[list[str], list[Any], list[int]]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, strict=True)
            names = [name.strip() for name in next(reader, [])]
            rows: list[list[str]] = []
            lines: list[int] = []
            for row in reader:
                if not row:
                    continue
                if len(row) != len(names):
                    expected = f"Expected {len(names)} columns as in the header"
                    raise DataError(f"{expected}, got {len(row)} in line {reader.line_num}.")
                lines.append(reader.line_num)
                rows.append([cell.strip() for cell in row])
    except UnicodeDecodeError:
        raise DataError("Expected a text file, got one that is not UTF-8.") from None
    except csv.Error:
        raise DataError("Expected comma-separated values, got a line that cannot be split into them.") from None
    return names, [list(column) for column in zip(*rows, strict=True)] or [[] for _ in names], lines


def _parquet(path: Path) -> tuple[list[str], list[Any], None]:
    pyarrow = require("pyarrow", use="A .parquet file", extra="data")
    parquet = require("pyarrow.parquet", use="A .parquet file", extra="data")
    try:
        table = parquet.read_table(path)
    except (pyarrow.ArrowException, OSError):
        raise DataError("Expected a Parquet file, got one that pyarrow cannot read.") from None

    def cells(column: Any) -> Any:
        plain = pyarrow.types.is_integer(column.type) or pyarrow.types.is_floating(column.type)
        return column.to_numpy() if plain and not column.null_count else column.to_pylist()

    return [str(name) for name in table.column_names], [cells(column) for column in table.columns], None


def _image_folder(
    folder: Path, classes: tuple[str, ...], unit: str | None, image_shape: tuple[int, ...] | None
) -> PrivateData:
    inside = {entry.name for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith(".")}
    if extra := inside - set(classes):
        raise DataError(f"Expected one sub-folder per class and no others, got {len(extra)} that are not in classes.")
    found = [(k, file) for k, name in enumerate(classes) if name in inside for file in _sorted_images(folder / name)]
    X = _images([file for _, file in found], image_shape)
    return PrivateData(X, [k for k, _ in found], unit=None if unit is None else _units(unit, [f for _, f in found]))


def _units(pattern: str, found: list[Path]) -> list[str]:
    try:
        search: Callable[[str], re.Match[str] | None] = re.compile(pattern).search
        matches = [search(file.name) for file in found]
        units = [match.group(1) if match is not None else None for match in matches]
    except (re.error, IndexError):
        raise DataError("Expected unit to be a regular expression with one group, got another string.") from None
    named = [unit for unit in units if unit]
    if len(named) != len(units):
        row = next(k for k, unit in enumerate(units) if not unit)
        raise DataError(f"Expected unit to match every image's file name, got none in row {row} (by class, then name).")
    return named


def _sorted_images(folder: Path) -> Iterator[Path]:
    yield from sorted(file for file in folder.iterdir() if _is_image(file))


def _is_image(file: Path) -> bool:
    return file.suffix.lower() in _IMAGES and not file.name.startswith(".") and file.is_file()


def _images(found: list[Path], image_shape: tuple[int, ...] | None) -> NDArray[np.uint8]:
    Image = require("PIL.Image", use="A folder of images", extra="data")
    match image_shape:
        case (int() as height, int() as width) if height > 0 and width > 0:
            mode = "L"
        case (int() as height, int() as width, 3) if height > 0 and width > 0:
            mode = "RGB"
        case _:
            expected = "Expected image_shape as (height, width) or (height, width, 3)"
            raise DataError(f"{expected}, got {image_shape}.")
    if not found:
        raise DataError("Expected at least one image, got none.")
    X = np.empty((len(found), *image_shape), dtype=np.uint8)
    for row, file in enumerate(found):
        try:
            with Image.open(file) as image:
                X[row] = np.asarray(image.convert(mode).resize((width, height), Image.Resampling.BILINEAR))
        except Exception:  # Pillow raises many types for files that are not what they say
            raise DataError(f"Expected an image, got a file that Pillow cannot read in row {row}.") from None
    return X
