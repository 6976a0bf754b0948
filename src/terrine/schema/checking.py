"""What is odd in a table, for its owner alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from terrine.schema.cells import ABOVE, BELOW, MISSING, UNREADABLE, Decoded, choices, decode, units
from terrine.schema.kinds import Category, Date, Flag, Kind, Number, Ordered, Text
from terrine.schema.schema import Schema
from terrine.schema.tables import Table


@dataclass(frozen=True, order=True)
class Fault:
    """One odd cell of a private table: a secret, as the table is.

    Attributes:
        line: of the file, from 1; of a frame or a Parquet file the row, from 0.
        column: its name; "" where the whole row is meant.
        what: what is odd, without the cell itself.
    """

    line: int
    column: str
    what: str


def check(schema: Schema, table: Table, *, role: str = "the table", public: bool = False) -> list[Fault]:
    """Cells that are not as the schema says, by line. Nothing is refused for them; the list is for the owner alone.

    Args:
        role: what the table is called where its header is refused.
        public: label and unit may be missing.
    """
    need_label, need_unit = (not public and one is not None for one in (schema.label, schema.unit))
    table = schema.match(table, role=role, need_label=need_label, need_unit=need_unit)
    lines = np.arange(len(table)) if table.lines is None else table.lines
    found: list[Fault] = []
    for name, what, rows in _odd(schema, table):
        found += [Fault(line, name, what) for line in lines[rows].tolist()]
    return sorted(found)


def _odd(schema: Schema, table: Table) -> Iterator[tuple[str, str, NDArray[np.bool_] | NDArray[np.int64]]]:
    yield "", "wrong number of cells", table.ragged
    for name, kind in schema.columns.items():
        state = decode(table.column(name), kind, schema.missing).state
        below, above = ("before", "after") if isinstance(kind, Date) else ("below", "above")
        yield name, _UNREADABLE[type(kind)], state == UNREADABLE
        yield name, f"{below} the bounds", state == BELOW
        yield name, f"{above} the bounds", state == ABOVE
        if not kind.blanks:
            yield name, "missing", state == MISSING
    if schema.label in table.names and schema.label is not None:
        label: Decoded = choices(table.column(schema.label), schema.classes, schema.missing)
        yield schema.label, "unknown label", label.state == UNREADABLE
        yield schema.label, "missing label", label.state == MISSING
    if schema.unit in table.names and schema.unit is not None:
        yield schema.unit, "missing unit", units(table, schema) == ""


_UNREADABLE: dict[type[Kind], str] = {
    Number: "not a number",
    Date: "not a date",
    Category: "unknown category",
    Ordered: "unknown category",
    Flag: "not yes or no",
    Text: "not a text",  # any text is one
}
