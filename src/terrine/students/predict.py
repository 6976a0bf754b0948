"""Apply a student to a file of new rows: a class and probabilities for each."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from terrine._files import write_atomically
from terrine.datasets import read_public
from terrine.errors import DataError, InputError
from terrine.schema import is_table, read_table
from terrine.students.api import FittedStudent


def write_predictions(student: FittedStudent, source: str | Path, out: str | Path, *, keep: Sequence[str] = ()) -> int:
    """Write a .csv with a line for each row, in order; how many there are.

    Columns: ``row`` from 1, those to ``keep``, ``prediction``, and ``P(class)`` for each class where the student gives
    probabilities.
    """
    source, out = Path(source), Path(out)
    if out.suffix.lower() != ".csv":
        raise InputError(f"{out}: predictions are written as a .csv file; give a name that ends so.")
    X, copied = _rows(student, source, keep)
    labels, found = _predicted(student, X)
    text = io.StringIO()
    lines = csv.writer(text)
    names = [f"P({name})" for name in student.classes] if found is not None else []
    lines.writerow(["row", *keep, "prediction", *names])
    for k, label in enumerate(labels):
        chances = [] if found is None else [f"{one:.6g}" for one in found[k]]
        lines.writerow([k + 1, *(column[k] for column in copied), student.classes[label], *chances])
    write_atomically(out, lambda file: file.write(text.getvalue().encode()))
    return len(labels)


def _predicted(student: FittedStudent, X: Any) -> tuple[Any, Any]:
    try:
        found = student.predict_proba(X)
    except InputError:  # an estimator that gives none
        return student.predict(X), None
    return np.argmax(found, axis=1), found


def _rows(student: FittedStudent, source: Path, keep: Sequence[str]) -> tuple[Any, list[Any]]:
    if not source.exists():
        raise DataError(f"{source}: there is no such file or folder.")
    if not is_table(source):
        if keep:
            raise InputError("--keep copies a column of a table, and these rows are not one.")
        shape = student.about.row_shape if student.about.images else None
        return read_public(source, image_shape=shape).X, []
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
    table = read_table(source)
    for name in keep:
        if name not in table.names:
            raise InputError(f"{source.name} has no column {name!r} (--keep).")
    schema = student.encoder.schema
    used = [name for name in table.names if name in schema.columns or name not in (*keep, schema.label, schema.unit)]
    rows = student.encoder.transform(table.select(used), role=source.name)
    return rows, [table.column(name).tolist() for name in keep]
