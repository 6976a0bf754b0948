"""What is odd in a table: of a private one cell by cell, for its owner alone; of any other summed up by column."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from terrine.errors import InputError, UnreadWarning, warn_caller
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
from terrine.schema.encoder import OTHER
from terrine.schema.kinds import ISO, Category, Date, Flag, Kind, Number, Ordered, Text
from terrine.schema.schema import Schema, nearest
from terrine.schema.tables import Table

_NO_CLASS, _NO_LABEL = "unknown label", "missing label"
_NAMED, _WIDTH = 10, 60  # labels or values that a sentence names, and characters of each
_MEANT = 3  # unknown values of which a sentence says what they are like

ACCEPT = "Nothing was predicted. To predict all the same, without such cells: accept_unreadable=True."

What = Literal["unreadable", "outside", "unknown"]


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


def labels_listed(schema: Schema, table: Table, faults: Sequence[Fault]) -> list[str]:
    """A line where each label is one of the classes; none where some are not, or there is no column of them."""
    odd = any(one.column == schema.label and one.what in (_NO_CLASS, _NO_LABEL) for one in faults)
    return [] if odd or schema.label not in table.names else ["labels: all in the list of classes"]


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
        yield schema.label, _NO_LABEL, label.state == MISSING
    if schema.unit in table.names and schema.unit is not None:
        yield schema.unit, "missing unit", units(table, schema) == ""


@dataclass(frozen=True, kw_only=True)
class Unread:
    """Cells of one column that cannot be used as they stand.

    It quotes a cell, so that it is for tables that are public, or of whoever looks at them.

    Attributes:
        what: they are no number, date or flag ("unreadable"); they can be read, and are beyond the schema's bounds
            ("outside"); or the schema does not list them ("unknown").
        n, known: how many there are, of how many that are not blank.
        first: the row of the first one, from 1.
        in_words: a sentence.
        advice: how cells should be written.
    """

    column: str
    what: What
    n: int
    known: int
    first: int
    in_words: str
    advice: str

    @property
    def most(self) -> bool:
        """More than half of them."""
        return 2 * self.n > self.known

    @property
    def spoils_the_column(self) -> bool:
        """Whether hardly anything is left of it: most cannot be read; or all are unlisted, or beyond the bounds."""
        return self.most if self.what == "unreadable" else 1 < self.n == self.known

    def __str__(self) -> str:
        return f"{self.in_words} The schema {'lists' if self.what == 'unknown' else 'has'} {self.advice}."

    @property
    def as_refusal(self) -> str:
        """With what to do."""
        return f'{self.in_words} Write "{self.column}" as {"one of " * (self.what == "unknown")}{self.advice}.'


def unread(schema: Schema, table: Table, *, role: str) -> list[Unread]:
    """What cannot be read of a table by a schema, by column; and where most cells are out of bounds.

    Args:
        role: what the table is called, as "new.csv".
    """
    found = []
    for name, kind in schema.columns.items():
        if name not in table.names or isinstance(kind, Text):
            continue
        cells = table.column(name)
        state = decode(cells, kind, schema.missing).state
        known = int((state != MISSING).sum())
        odd: What = "unknown" if isinstance(kind, (Category, Ordered)) else "unreadable"
        cases: tuple[tuple[What, Any], ...] = (
            (odd, state == UNREADABLE),
            ("outside", np.isin(state, (BELOW, ABOVE))),
        )
        for what, rows in cases:
            n = int(rows.sum())
            if not n or (what == "outside" and 2 * n <= known):
                continue
            first = int(rows.argmax())
            where = f"row {first + 1}" if table.lines is None else f"line {table.lines[first]}"
            how = _BEYOND if what == "outside" else _UNREADABLE[type(kind)] if what == "unreadable" else _UNLISTED
            said = (
                f'{role}, column "{name}": {n:,} of {known:,} cells that are not blank {"is" if n == 1 else "are"} '
                f"{how}, the first in {where}: {str(cells[first])[:40]!r}. {_become(kind, what, n)}"
            )
            advice = _bounds(kind) if what == "outside" else _written(kind, cells[rows])
            found.append(
                Unread(column=name, what=what, n=n, known=known, first=first + 1, in_words=said, advice=advice)
            )
    return found


def heed_unread(schema: Schema, table: Table, *, role: str, then: str, accept: bool = False) -> None:
    """Warn of what cannot be read of rows that a student is given; refuse them where a column is spoiled.

    Args:
        role: what the table is called.
        then: what has not happened, and how to go on all the same.
        accept: warn only.
    """
    found = unread(schema, table, role=role)
    if not accept:
        refuse_spoiled(found, then=then)
    for one in found:
        warn_caller(str(one), UnreadWarning)


def refuse_spoiled(found: Sequence[Unread], *, then: str) -> None:
    """Refuse a table of which a column is spoiled.

    Args:
        then: what has not happened, and how to go on all the same.
    """
    if spoiled := [one.as_refusal for one in found if one.spoils_the_column]:
        raise InputError(f"{' '.join(spoiled)} {then}")


def _become(kind: Kind, what: What, n: int) -> str:
    """What odd cells count as."""
    if what == "outside":
        return "Such cells are set to the nearest bound."
    become = "It counts" if n == 1 else "They count"
    return f'{become} as "{OTHER}".' if isinstance(kind, Category) else f"{become} as missing."


def _bounds(kind: Kind) -> str:
    """What the schema's bounds are."""
    match kind:
        case Number(low=low, high=high):
            return f"numbers from {low:.12g} to {high:.12g}"
        case Date(low=low, high=high):
            return f"dates from {low} to {high}"
        case _:
            return "values within its bounds"


def _written(kind: Kind, cells: NDArray[Any]) -> str:
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
        case Category(values=values) | Ordered(values=values):
            more = f" and {len(values) - _NAMED:,} more" if len(values) > _NAMED else ""
            return ", ".join(f'"{value[:_WIDTH]}"' for value in values[:_NAMED]) + more + _meant(cells, values)
        case Text():
            return "texts"


def _meant(cells: NDArray[Any], values: Sequence[str]) -> str:
    """For the commonest unknown values, the listed ones that are like them."""
    different, places = interned(cells)
    counts = Counter(dict(enumerate(np.bincount(places).tolist())))
    found = []
    for k, _ in counts.most_common(_MEANT):
        close = nearest(different[k][:_WIDTH], values)
        if close is not None:
            found.append(f'"{close[:_WIDTH]}" for {different[k][:_WIDTH]!r}')
    return f" (perhaps {', '.join(found)})" if found else ""


_BEYOND, _UNLISTED = "beyond the bounds of the schema", "not in the schema's list"
_UNREADABLE: dict[type[Kind], str] = {
    Number: "not a number",
    Date: "not a date",
    Category: "unknown category",
    Ordered: "unknown category",
    Flag: "not yes or no",
    Text: "not a text",  # any text is one
}
