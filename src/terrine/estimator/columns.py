"""Labels and units that stand in a table's own columns, given by name."""

from __future__ import annotations

from typing import Any

from terrine.datasets.tables import is_frame
from terrine.errors import InputError
from terrine.schema import Table


def taken(table: Any, name: str, *, role: str) -> Any:
    """The column with this name, as the table has it."""
    if not isinstance(table, Table) and not is_frame(table):
        raise InputError(
            f"{name!r} names a column, and {role} is no table with named columns. Give the values themselves."
        )
    if name not in names_of(table):
        raise InputError(f"{role} has no column {name!r}.")
    return table.column(name) if isinstance(table, Table) else _frame(table)[name].to_list()


def without(table: Any, names: tuple[str, ...]) -> Any:
    """The table, less the columns with these names where it has them; what is no table is left as it is."""
    if not names or not (isinstance(table, Table) or is_frame(table)):
        return table
    kept = [name for name in names_of(table) if name not in names]
    if len(kept) == len(names_of(table)):
        return table
    return table.select(kept) if isinstance(table, Table) else _frame(table).select(kept).to_native()


def names_of(table: Any) -> tuple[str, ...]:
    """The columns of a table."""
    return table.names if isinstance(table, Table) else tuple(_frame(table).columns)


def _frame(table: Any) -> Any:
    import narwhals as nw

    return nw.from_native(table, eager_only=True)
