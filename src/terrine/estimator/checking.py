"""What is odd in a fit's private rows, for their owner alone: as `terrine check` tells it of a file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from terrine.datasets.labels import known_indices
from terrine.errors import InputError
from terrine.schema import Schema, Text, check, read_table
from terrine.schema.checking import labels_listed, summary
from terrine.schema.tables import as_text
from terrine.sensitive import Sensitive

SECRET = "secret: depends on private rows"
_ROWS = "rows"  # stands for the rows of an array, of whose columns no schema says anything


def checked(
    X: Any,
    y: Any,
    unit: Any,
    *,
    classes: NDArray[Any],
    schema: Schema | None,
    names: Sequence[str | None],
) -> Sensitive[str]:
    """A text for the owner: labels that are no class, classes that no row has, rows of nobody, cells that are odd.

    Args:
        X: without the columns of label and unit.
        classes: (n_classes,) the labels.
        schema: what the columns are; None: rows are taken as they are, and their cells are not looked at.
        names: what label and unit are called.
    """
    label, whose = (name or other for name, other in zip(names, ("y", "unit"), strict=True))
    listed = as_text(classes.tolist())
    cells, n = _labels(y, classes, listed), _length(X)
    given: dict[str, Any] = {label: cells}
    if unit is None and schema is not None and schema.unit in (rows := read_table(X)).names:  # as a fit takes it
        whose, unit = schema.unit, rows.column(schema.unit)
    if unit is not None:
        given[whose] = as_text(unit.to_pylist() if hasattr(unit, "to_pylist") else list(unit))
    if any(len(values) != n for values in given.values()):
        raise InputError("X, y and unit must have one length: there must be one label, and one unit, for each row.")
    roles: dict[str, Any] = {
        "label": label,
        "classes": tuple(listed.tolist()),
        "unit": whose if unit is not None else None,
    }
    if schema is None:
        known = Schema(columns={_ROWS: Text()}, **roles)
        given[_ROWS] = np.full(n, "-", dtype=object)
    else:
        known = Schema(columns=schema.columns, missing=schema.missing, **roles)
        table = Schema(columns=schema.columns, ignore=_apart(schema)).match(read_table(X), role="X")
        given |= {name: table.column(name) for name in table.names}
    rows = read_table(given)
    faults = check(known, rows, role="X")
    said = [*labels_listed(known, rows, faults), *(summary(known, rows, faults) or ["no faults"])]
    return Sensitive("\n".join([SECRET, *said]))


def _labels(y: Any, classes: NDArray[Any], listed: NDArray[Any]) -> NDArray[Any]:
    """(n_rows,) labels as text; one that a fit would know is written as its class."""
    places = known_indices(y, classes)
    values: Any = y.to_pylist() if hasattr(y, "to_pylist") else list(np.asarray(y, dtype=object).reshape(len(places)))
    return np.where(places >= 0, listed[np.maximum(places, 0)], as_text(values))


def _length(X: Any) -> int:
    shape = getattr(X, "shape", None)
    return int(shape[0]) if shape else len(X)


def _apart(schema: Schema) -> tuple[str, ...]:
    """What tables may have beside the columns."""
    roles = (one for one in (schema.label, schema.unit) if one is not None)
    return (*schema.ignore, *roles)
