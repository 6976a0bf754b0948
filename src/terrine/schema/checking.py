"""What is odd in a table: of a private one cell by cell, for its owner alone; of any other summed up by column."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from terrine.schema.cells import (
    ABOVE,
    BELOW,
    MISSING,
    UNREADABLE,
    Decoded,
    choices,
    decode,
    interned,
    number_of,
    units,
)
from terrine.schema.kinds import ISO, Category, Date, Flag, Kind, Number, Ordered, Text
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


@dataclass(frozen=True, kw_only=True)
class Unread:
    """Cells of one column of numbers, dates or flags that cannot be used as they stand.

    It quotes a cell, so that it is for tables that are public, or of whoever looks at them.

    Attributes:
        n, known: how many there are, of how many that are not blank.
        outside: they can be read, and are beyond the schema's bounds.
        in_words: a sentence.
        advice: how cells should be written.
    """

    column: str
    n: int
    known: int
    outside: bool
    in_words: str
    advice: str

    @property
    def most(self) -> bool:
        """More than half of them."""
        return 2 * self.n > self.known


def unread(schema: Schema, table: Table, *, role: str) -> list[Unread]:
    """What cannot be read of a table's numbers, dates and flags, by column; and where most cells are out of bounds.

    A category that the schema does not list is read, as "other".
    """
    found = []
    for name, kind in schema.columns.items():
        if name not in table.names or not isinstance(kind, (Number, Date, Flag)):
            continue
        cells = table.column(name)
        state = decode(cells, kind, schema.missing).state
        known = int((state != MISSING).sum())
        for outside, rows in ((False, state == UNREADABLE), (True, np.isin(state, (BELOW, ABOVE)))):
            n = int(rows.sum())
            if not n or (outside and 2 * n <= known):
                continue
            first = int(rows.argmax())
            where = f"row {first + 1}" if table.lines is None else f"line {table.lines[first]}"
            what = "beyond the bounds of the schema" if outside else _UNREADABLE[type(kind)]
            verb, become = ("is", "It counts") if n == 1 else ("are", "They count")
            become = "Such cells are set to the nearest bound" if outside else f"{become} as missing"
            said = (
                f'{role}, column "{name}": {n:,} of {known:,} cells that are not blank {verb} {what}, the first in '
                f"{where}: {str(cells[first])[:40]!r}. {become}."
            )
            advice = _written(kind, cells[rows])
            found.append(Unread(column=name, n=n, known=known, outside=outside, in_words=said, advice=advice))
    return found


def _written(kind: Number | Date | Flag, cells: NDArray[Any]) -> str:
    """How the schema wants cells."""
    match kind:
        case Number(decimal=decimal):
            other = {".": ",", ",": "."}[decimal]
            fits = sum(number_of(str(cell).strip(), other) is not None for cell in cells[:1000].tolist())
            hint = f' (these look as if it were "{other}")' if 2 * fits > min(len(cells), 1000) else ""
            return f'numbers without units, with the decimal mark "{decimal}"{hint}'
        case Date(format=format):
            return "dates as 2026-01-31" if format == ISO else f"dates as {format}"
        case Flag():
            return "yes or no"


_UNREADABLE: dict[type[Kind], str] = {
    Number: "not a number",
    Date: "not a date",
    Category: "unknown category",
    Ordered: "unknown category",
    Flag: "not yes or no",
    Text: "not a text",  # any text is one
}
