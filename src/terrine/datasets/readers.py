"""A user's own data from files. What a private cell holds decides nothing that others can see."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from terrine._optional import require
from terrine.datasets.data import UNLABELLED, PrivateData, PublicData, class_names
from terrine.datasets.rows import odd_rows
from terrine.errors import DataError
from terrine.schema import RowReader, is_table, labels, read_table, units
from terrine.schema.tables import IMAGES
from terrine.sensitive import unheard

_KINDS = "a .csv, .tsv, .parquet or .npz file, a folder with X.npy and y.npy, or a folder of images or texts"


def read_private(
    path: str | Path,
    *,
    classes: Sequence[str] | None = None,
    unit: str | None = None,
    image_shape: tuple[int, ...] | None = None,
    encoder: RowReader | None = None,
) -> PrivateData:
    """Read labeled private rows. What describes them is given by you and public: nothing is fitted to the rows.

    What a cell holds is never refused, for others could see that: a row whose label is unknown, or whose numbers or
    image cannot be read, keeps its place, and no teacher learns from it. `terrine check` tells the owner.

    Args:
        path: a table (.csv, .tsv, .parquet, or a folder of .txt files with one sub-folder per class); an .npz with
            arrays X, y and perhaps unit; a folder with X.npy, y.npy and perhaps unit.npy, which are mapped and not read
            into memory; or a folder of images, one sub-folder per class.
        classes: the public list of class names, of arrays and images. Labels are class indices in arrays, or names.
        unit: whom a row belongs to, in folders of images and texts: a regular expression, whose first group in a
            file's name is the person. Arrays bring their own; a table has the column that the schema names.
        image_shape: (height, width) for gray images or (height, width, 3); every image is brought to it.
        encoder: of a table: what makes numbers of its rows (docs/schema.md); it names label, classes and unit.
    """
    path = Path(path)
    try:
        if is_table(path):
            return _private_table(path, unit, _needed(encoder))
        if classes is None:
            raise DataError("`classes` is missing: list the names of all classes.")
        names = class_names(classes)
        kind = _kind(path)
        if kind == "images":
            return _image_folder(path, names, unit, image_shape)
        arrays = _arrays(path) if kind == "npz" else _mapped(path)
        if "X" not in arrays or "y" not in arrays:
            raise DataError("There must be arrays named X and y.")
        X, y = _usable(arrays["X"], _labels(arrays["y"], names))
        ids = arrays.get("unit")
        if ids is not None and ids.dtype.kind == "U" and ids.shape == y.shape:
            there = np.flatnonzero(np.char.strip(ids) != "")  # a row that is nobody's is left out
            if len(there) < len(ids):
                X, y, ids = X[there], y[there], ids[there]
        return PrivateData(X, y, unit=ids, unlabelled_ok=True)
    except DataError as error:
        raise DataError(_at(path, error)) from None


def read_labelled(
    path: str | Path,
    *,
    classes: Sequence[str] | None = None,
    image_shape: tuple[int, ...] | None = None,
    encoder: RowReader | None = None,
) -> tuple[Any, NDArray[np.int64]]:
    """Rows and labels of a public file, as `read_private` reads one.

    Here a label that is unknown is refused, and a table needs no unit: nobody's rows are protected.
    """
    path = Path(path)
    place = ""
    if is_table(path):
        schema = _needed(encoder).schema
        table = schema.match(read_table(path), role=path.name, need_label=True)
        X, y = _needed(encoder).transform(table), labels(table, schema)
        if table.lines is not None:
            place = f'line {table.lines[np.argmax(y < 0)]}, column "{schema.label}"' if len(y) else ""
    else:
        data = read_private(path, classes=classes, image_shape=image_shape)
        X, y = data.X, data.y
    if (y < 0).any():
        raise DataError(f"{path.name}, {place or f'row {np.argmax(y < 0)}'}: the label is not one of the classes.")
    return X, y


def read_public(
    path: str | Path, *, image_shape: tuple[int, ...] | None = None, encoder: RowReader | None = None
) -> PublicData:
    """Read public rows, as `read_private` without labels; also an .npy file, or a folder of images at any depth."""
    path = Path(path)
    try:
        if is_table(path):
            return PublicData(_needed(encoder).transform(read_table(path), role=path.name))
        if path.suffix.lower() == ".npy" and path.is_file():
            return PublicData(_load(path, mmap_mode="r"))
        kind = _kind(path)
        if kind == "images":
            found = image_files(path)
            images, broken = _images(found, image_shape)
            if broken:
                raise DataError(f"{found[broken[0]].relative_to(path)} is not an image that can be read.")
            return PublicData(images)
        arrays = _arrays(path) if kind == "npz" else _mapped(path)
        if "X" not in arrays:
            raise DataError("There must be an array named X.")
        return PublicData(arrays["X"])
    except DataError as error:
        raise DataError(_at(path, error)) from None


def read_public_labels(
    path: str | Path, *, classes: Sequence[str], encoder: RowReader | None = None
) -> NDArray[np.int64] | None:
    """(n_rows,) class indices of the rows of `read_public`, -1 where a row has none; None where the file has no labels.

    A table has the schema's label column, arrays have a y, and in a folder the first sub-folder's name is the label.
    """
    path = Path(path)
    names = {name: k for k, name in enumerate(classes)}
    if is_table(path):
        schema, table = _needed(encoder).schema, read_table(path)
        found = None if schema.label is None or schema.label not in table.names else labels(table, schema)
    elif path.suffix.lower() == ".npy" and path.is_file():
        return None
    elif (kind := _kind(path)) == "images":
        found = np.array([names.get(file.relative_to(path).parts[0], -1) for file in image_files(path)], dtype=np.int64)
    else:
        arrays = _arrays(path) if kind == "npz" else _mapped(path)
        found = _labels(arrays["y"], tuple(classes)) if "y" in arrays else None
    return None if found is None or (found < 0).all() else found


def image_files(folder: Path) -> list[Path]:
    """The images of a public folder, in the order of its rows."""
    return sorted(file for file in folder.rglob("*") if _is_image(file))


def _at(path: Path, error: DataError) -> str:
    return str(error) if str(error).startswith(path.name) else f"{path.name}: {error}"


def _needed(encoder: RowReader | None) -> RowReader:
    if encoder is None:
        raise DataError("A table needs an `encoder`: Encoder.fit(draft(public), public), of terrine.schema.")
    return encoder


def _private_table(path: Path, unit: str | None, encoder: RowReader) -> PrivateData:
    schema = encoder.schema
    table = schema.match(
        read_table(path, unit=unit if path.is_dir() else None),
        role=path.name,
        need_label=True,
        need_unit=schema.unit is not None,
    )
    ids = None if schema.unit is None else units(table, schema)
    if ids is not None:
        there = np.flatnonzero(ids != "")  # a row that is nobody's is left out
        table, ids = table.take(there), ids[there]
    return PrivateData(encoder.transform(table), labels(table, schema), unit=ids, unlabelled_ok=True)


def _usable(X: NDArray[Any], y: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Rows with a number that is not finite become zeros, without a label."""
    if X.dtype.kind != "f" or X.ndim < 2 or len(X) != len(y):
        return X, y
    bad = odd_rows(X)
    if not bad.any():
        return X, y
    kept = np.array(X)
    kept[bad] = 0
    return kept, np.where(bad, UNLABELLED, y)


def _kind(path: Path) -> str:
    if path.is_dir():
        return "npy folder" if (path / "X.npy").is_file() else "images"
    if not path.is_file():
        raise DataError("there is no such file or folder.")
    if path.suffix.lower() != ".npz":
        raise DataError(f"Data must be {_KINDS}.")
    return "npz"


def _load(path: Path, **options: Any) -> Any:
    try:
        return np.load(path, allow_pickle=False, **options)
    except OSError:
        raise
    except Exception:  # numpy raises many types here, and a pickled object array is refused with them
        raise DataError(
            f"numpy cannot read it as a {path.suffix} file of plain arrays. Write it with numpy.save or numpy.savez."
        ) from None


def _arrays(path: Path) -> dict[str, NDArray[Any]]:
    loaded = _load(path)
    if isinstance(loaded, np.ndarray):
        raise DataError("This is a single array. Write an .npz file with numpy.savez(file, X=..., y=...).")
    try:
        with loaded:
            return {name: loaded[name] for name in ("X", "y", "unit") if name in loaded.files}
    except Exception:  # a damaged member, or one of pickled objects
        raise DataError("numpy cannot read it as an .npz file of plain arrays. Write it with numpy.savez.") from None


def _mapped(folder: Path) -> dict[str, NDArray[Any]]:
    found = {name: folder / f"{name}.npy" for name in ("X", "y", "unit")}
    return {name: _load(path, mmap_mode="r") for name, path in found.items() if path.is_file()}


def _labels(cells: NDArray[Any], classes: tuple[str, ...]) -> NDArray[np.int64]:
    """Class indices, or names; UNLABELLED where one is neither."""
    if cells.ndim != 1:
        raise DataError("`y` must hold one label per row.")
    index = {name: k for k, name in enumerate(classes)}
    if cells.dtype.kind in "UO":
        return np.array([index.get(str(cell), UNLABELLED) for cell in cells], dtype=np.int64)
    if cells.dtype.kind not in "iuf":
        raise DataError(f"`y` must hold class indices or names; its type is {cells.dtype}.")
    fine = (cells >= 0) & (cells < len(classes)) & (cells == np.floor(cells))
    return np.where(fine, cells, UNLABELLED).astype(np.int64)


def _image_folder(
    folder: Path, classes: tuple[str, ...], unit: str | None, image_shape: tuple[int, ...] | None
) -> PrivateData:
    inside = {entry.name for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith(".")}
    if extra := inside - set(classes):
        raise DataError(
            f"The names of {len(extra)} sub-folders are not in `classes`. Add these classes, or move the sub-folders "
            "away."
        )
    found = [(k, file) for k, name in enumerate(classes) if name in inside for file in _sorted_images(folder / name)]
    ids = None if unit is None else _units(unit, [file for _, file in found])
    if ids is not None:  # an image that is nobody's is left out
        if found and not any(ids):
            raise DataError(
                f"No file's name fits `unit`, {unit!r}: all images would be left out. It is a regular expression, "
                "searched for in the file's name, and its group in brackets says whose the image is."
            )
        found, ids = [one for one, who in zip(found, ids, strict=True) if who], [who for who in ids if who]
    X, broken = _images([file for _, file in found], image_shape)
    y = np.array([k for k, _ in found], dtype=np.int64)
    y[broken] = UNLABELLED
    return PrivateData(X, y, unit=ids, unlabelled_ok=True)


def look_at(folder: Path, classes: Sequence[str], unit: str | None) -> list[str]:
    """For its owner's eyes: images of each class, sub-folders that are no class, and how names fit the pattern."""
    inside = sorted(entry.name for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    files = {name: list(_sorted_images(folder / name)) for name in inside}
    told = [f"{name}: {len(files.get(name, [])):,} images" for name in classes]
    told += [
        f"{name}: {len(files[name]):,} images, but it is not in `classes`" for name in inside if name not in classes
    ]
    if unit is not None:
        every = [file for name in classes for file in files.get(name, [])]
        ids = _units(unit, every)
        odd = [file.name for file, who in zip(every, ids, strict=True) if not who]
        told.append(
            f"{len(set(ids) - {''}):,} different values of the unit {unit!r} in {len(every) - len(odd):,} names"
        )
        if odd:
            told.append(
                f"names that do not fit it, so that their images are left out: {len(odd):,}, the first {odd[0]}"
            )
    return told


def _units(pattern: str, found: list[Path]) -> list[str]:
    """Whom each file belongs to; "" where the pattern does not match."""
    try:
        search: Callable[[str], re.Match[str] | None] = re.compile(pattern).search
        matches = [search(file.name) for file in found]
        return [(match.group(1) or "").strip() if match is not None else "" for match in matches]
    except (re.error, IndexError):
        raise DataError("`unit` must be a regular expression with one group in brackets.") from None


def _sorted_images(folder: Path) -> Iterator[Path]:
    yield from sorted(file for file in folder.iterdir() if _is_image(file))


def _is_image(file: Path) -> bool:
    return file.suffix.lower() in IMAGES and not file.name.startswith(".") and file.is_file()


def _images(found: list[Path], image_shape: tuple[int, ...] | None) -> tuple[NDArray[np.uint8], list[int]]:
    """Images of one shape, and which of them could not be read: these are black."""
    Image = require("PIL.Image", use="A folder of images", extra="data")
    match image_shape:
        case (int() as height, int() as width) if height > 0 and width > 0:
            mode = "L"
        case (int() as height, int() as width, 3) if height > 0 and width > 0:
            mode = "RGB"
        case _:
            raise DataError(f"`image_shape` must be (height, width) or (height, width, 3), got {image_shape}.")
    if not found:
        raise DataError("There is no image in the folder.")
    X = np.zeros((len(found), *image_shape), dtype=np.uint8)
    broken = []
    for row, file in enumerate(found):
        try:
            with unheard(), Image.open(file) as image:
                X[row] = np.asarray(image.convert(mode).resize((width, height), Image.Resampling.BILINEAR))
        except Exception:  # Pillow raises many types for files that are not what they say
            broken.append(row)
    return X, broken
