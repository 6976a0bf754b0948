"""What is odd in a table, for its owner alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from terrine.schema.cells import ABOVE, BELOW, MISSING, UNREADABLE, Decoded, choices, decode, interned, units
from terrine.schema.kinds import Category, Date, Flag, Kind, Number, Ordered, Text
from terrine.schema.schema import Schema, nearest
from terrine.schema.tables import Table

_NO_CLASS = "unknown label"
_NAMED, _WIDTH = 10, 60  # labels that a summary names, and characters of each


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
        public: label and unit may be missing. They may in any table, but where a column's name looks like theirs.
    """
    others = [name for name in table.names if name not in (*schema.columns, *schema.ignore, schema.label, schema.unit)]
    need_label, need_unit = (
        one is not None and not public and nearest(one, others) is not None for one in (schema.label, schema.unit)
    )
    table = schema.match(table, role=role, need_label=need_label, need_unit=need_unit)
    lines = np.arange(len(table)) if table.lines is None else table.lines
    found: list[Fault] = []
    for name, what, rows in _odd(schema, table):
        found += [Fault(line, name, what) for line in lines[rows].tolist()]
    return sorted(found)


def summary(schema: Schema, table: Table, faults: Sequence[Fault]) -> list[str]:
    """A sentence for each kind of fault in a column, and what the labels say of the list of classes. For the owner."""
    rows, found = len(table), []
    columns = [schema.label, schema.unit, "", *schema.columns]
    counts = Counter((one.column, one.what) for one in faults)
    for (column, what), n in sorted(counts.items(), key=lambda item: columns.index(item[0][0])):
        some = "" if what != _NO_CLASS else f": {_unknown(schema, table)}"
        found.append((f'"{column}": ' if column else "") + f"{n:,} of {rows:,} rows: {what}{some}")
    if schema.label in table.names and schema.label is not None:
        label = choices(table.column(schema.label), schema.classes, schema.missing)
        seen = set(label.values[label.known].tolist())
        unseen = [repr(name) for k, name in enumerate(schema.classes) if k not in seen]
        if unseen:
            found.insert(0, f'"{schema.label}": no row has the class {" or ".join(unseen[:_NAMED])}')
    return found


def _unknown(schema: Schema, table: Table) -> str:
    """Labels that are no class, the commonest first."""
    assert schema.label is not None
    cells = table.column(schema.label)
    odd = choices(cells, schema.classes, schema.missing).state == UNREADABLE
    values, places = interned(cells[odd])
    counts = Counter({values[k]: n for k, n in enumerate(np.bincount(places).tolist())})
    more = f" and {len(counts) - _NAMED:,} more" if len(counts) > _NAMED else ""
    return ", ".join(f"{value[:_WIDTH]!r} ({n:,})" for value, n in counts.most_common(_NAMED)) + more


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
        yield schema.label, _NO_CLASS, label.state == UNREADABLE
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
