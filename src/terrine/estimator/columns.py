"""Labels and units that stand in a table's own columns, given by name."""

from __future__ import annotations

import json
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


def named_by(values: Any) -> str | None:
    """The name of the first of these that is a column, or was one: a name itself, or a Series with one."""
    for one in values:
        name = one if isinstance(one, str) else getattr(one, "name", None)
        if isinstance(name, str) and name:
            return name
    return None


def refuse_extra(X: Any, X_public: Any, *, schema: Any) -> None:
    """Refuse columns of X alone, where no schema says what to do with them: whose a row is, most often."""
    if schema or not all(isinstance(one, Table) or is_frame(one) for one in (X, X_public)):
        return
    ours, theirs = names_of(X), names_of(X_public)
    extra = [str(name) for name in ours if name not in theirs]
    if not extra or any(name not in ours for name in theirs):  # a name that is missing may be a misspelled one
        return
    first = json.dumps(extra[0], ensure_ascii=False)
    more = f" and {len(extra) - 1} more" if len(extra) > 1 else ""
    raise InputError(
        f"X has a column {first}{more} that X_public lacks, so that a student could not use it: drop it from X, or add "
        f"it to X_public. If it says whose a row is, pass unit={first} and leave it in X; a label is passed as "
        f"y={first}. Nothing was taught or spent."
    )


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
