"""Apply a student to a file of new rows: a class and probabilities for each."""

from __future__ import annotations

import csv
import io
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from terrine._files import write_atomically
from terrine.datasets import read_public
from terrine.datasets.readers import image_files
from terrine.errors import DataError, InputError, UnreadWarning
from terrine.schema import Number, is_table, read_table
from terrine.schema.checking import heed_unread
from terrine.schema.tables import text_files
from terrine.schema.utf8 import is_marked, refuse_not_utf8, texts_not_utf8
from terrine.students.api import FittedStudent

_ADVICE = (
    "Name columns as in the student's schema.toml; add missing ones, with blank cells if need be; leave out further "
    "ones, or copy them with --keep"
)


def write_predictions(
    student: FittedStudent,
    source: str | Path,
    out: str | Path,
    *,
    keep: Sequence[str] = (),
    accept_unreadable: bool = False,
    force: bool = False,
    same_format: bool = False,
) -> tuple[int, bool]:
    """Write a .csv or, with tabs, a .tsv, with a line for each row, in order.

    Columns: ``row`` from 1, of a folder ``file``, those to ``keep``, ``prediction``, and ``P(class)`` for each class
    where the student gives probabilities.

    Args:
        accept_unreadable: go on where more than half of a column's cells cannot be read, or all are beyond the
            schema's bounds or not in its list.
        force: replace a file that is there with different content.
        same_format: write a .csv as the new rows are written: with what separates their cells, a decimal comma where
            the student reads one, and a byte-order mark if they begin with one. So the Excel that wrote them opens it.

    Returns:
        How many there are; and whether the file was there already, byte for byte, and was left alone.
    """
    source, out = Path(source), Path(out)
    ending = out.suffix.lower()
    if ending not in (".csv", ".tsv"):
        raise InputError(f"{out}: predictions are written as a .csv or .tsv file; give a name that ends so.")
    if is_same(out, source):
        raise InputError(f"--out is {source} itself, and predictions would replace its rows. Give another name.")
    X, copied = _rows(student, source, keep, accept_unreadable=accept_unreadable)
    labels, found = _predicted(student, X)
    written = _format_of(student, source) if same_format else _Format()
    if ending == ".tsv":
        written = replace(written, separator="\t")
    text = io.StringIO()
    lines = csv.writer(text, delimiter=written.separator)
    names = [f"P({name})" for name in student.classes] if found is not None else []
    lines.writerow(["row", *copied, "prediction", *names])
    for k, label in enumerate(labels):
        chances = [] if found is None else [f"{one:.6g}".replace(".", written.decimal) for one in found[k]]
        lines.writerow([k + 1, *(column[k] for column in copied.values()), student.classes[label], *chances])
    content = text.getvalue().encode("utf-8-sig" if written.marked else "utf-8")
    if out.exists() and not force:
        if out.is_file() and out.read_bytes() == content:
            return len(labels), True
        raise InputError(
            f"{out} is there already, with content that is not these predictions. Nothing was written. Give "
            "another name, or replace it with --force."
        )
    write_atomically(out, lambda file: file.write(content))
    return len(labels), False


@dataclass(frozen=True, kw_only=True)
class _Format:
    """How a table is written as text; ``marked``: it begins with UTF-8's byte-order mark."""

    separator: str = ","
    decimal: str = "."
    marked: bool = False


def _format_of(student: FittedStudent, source: Path) -> _Format:
    """As the new rows are written, or as usual where they are no table of text."""
    separator = read_table(source).separator if is_table(source) else ""
    if not separator:
        return _Format()
    kinds = () if student.encoder is None else student.encoder.schema.columns.values()
    comma = separator != "," and any(isinstance(kind, Number) and kind.decimal == "," for kind in kinds)
    return _Format(separator=separator, decimal="," if comma else ".", marked=is_marked(source))


def is_same(one: Path, other: Path) -> bool:
    """Whether two names are of one file, by links too."""
    try:
        return one.samefile(other)
    except OSError:  # one of them is not there
        return one.resolve() == other.resolve()


def _predicted(student: FittedStudent, X: Any) -> tuple[Any, Any]:
    try:
        found = student.predict_proba(X)
    except InputError:  # an estimator that gives none
        return student.predict(X), None
    return np.argmax(found, axis=1), found


def _rows(
    student: FittedStudent, source: Path, keep: Sequence[str], *, accept_unreadable: bool
) -> tuple[Any, dict[str, list[Any]]]:
    """Rows as the student takes them, and columns to copy by name."""
    if not source.exists():
        raise DataError(f"{source}: there is no such file or folder.")
    if not is_table(source):
        return _arrays(student, source, keep)
    if student.encoder is None and student.about.kind is not None:
        raise InputError(
            f"{source.name} is a file, and this student has no schema to read it by: it takes {student.about.kind} in "
            "Python, load_student(folder).predict(rows)."
        )
    if student.encoder is None:
        raise InputError(
            f"{source.name} is a table, and this student has no schema: it takes arrays of shape "
            f"{student.about.row_shape}, in an .npy or .npz file."
        )
    refuse_not_utf8(source)
    if source.is_dir() and (said := texts_not_utf8(source)) is not None:
        warnings.warn(said, UnreadWarning, stacklevel=2)
    table = read_table(source)
    for name in keep:
        if name not in table.names:
            raise InputError(f"{source.name} has no column {name!r} (--keep).")
    schema = student.encoder.schema
    used = [name for name in table.names if name in schema.columns or name not in (*keep, schema.label, schema.unit)]
    found = schema.match(table.select(used), role=source.name, advice=_ADVICE)
    if not len(found):
        raise DataError(f"{source.name}: there is no row in it.")
    then = "Nothing was written. To predict all the same, without such cells: --accept-unreadable."
    heed_unread(schema, found, role=source.name, then=then, accept=accept_unreadable)
    files = {"file": [str(file.relative_to(source)) for file in text_files(source)]} if source.is_dir() else {}
    return student.encoder.transform(found), {**files, **{name: table.column(name).tolist() for name in keep}}


def _arrays(student: FittedStudent, source: Path, keep: Sequence[str]) -> tuple[Any, dict[str, list[Any]]]:
    if keep:
        raise InputError("--keep copies a column of a table, and these rows are not one.")
    images = source.is_dir() and not (source / "X.npy").is_file()
    if images and not student.about.images:
        takes = f"arrays of shape {student.about.row_shape}"
        if student.encoder is not None:
            takes = "tables with the columns " + ", ".join(f'"{name}"' for name in student.encoder.schema.columns)
        raise InputError(f"{source.name} is a folder without texts, and this student takes {takes}.")
    shape = student.about.row_shape if student.about.images else None
    files = {"file": [str(file.relative_to(source)) for file in image_files(source)]} if images else {}
    return read_public(source, image_shape=shape).X, files
