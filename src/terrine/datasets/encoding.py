"""Tables for learners that take numbers: whether a schema is needed, which one, and private rows by it.

What is decided here is decided by types, by the public rows and by the learners. No private cell has a say.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from terrine.datasets.data import PrivateData
from terrine.datasets.labels import known_indices
from terrine.datasets.rows import takes_nan, takes_tables, with_nan
from terrine.datasets.tables import CATEGORY, NUMBER, Frame, frame_of, is_frame
from terrine.errors import DataError, InputError
from terrine.schema import Encoder, Schema, Table, draft, read_table, units
from terrine.schema.checking import ACCEPT, heed_unread

_DRAFTED = "The schema was drafted from X_public: correct the name in whichever of the two tables is wrong"


def encoder_for(
    schema: Schema | str | Path | Literal[False] | None, X: Any, public: Any, *, learners: Sequence[Any]
) -> Encoder | None:
    """What makes numbers of private and public tables, learned from the public one; None: rows are taken as they are.

    Args:
        schema: given, or its file; None: a draft from the public rows, where they need one; False: none.
        learners: of each learner the scikit-learn estimator; None where it takes arrays only.
    """
    if not isinstance(schema, (Schema, str, Path)) and schema not in (None, False):
        raise InputError("schema must be a Schema, the path of a schema.toml, None, or False for rows as they are.")
    if schema is False or not _is_tabular(X):
        if isinstance(X, Table):
            raise InputError("A table that read_table read needs a schema: leave out schema=False.")
        if schema:
            raise InputError("A schema is for tables of pandas, polars or Arrow, and X is none: leave out schema.")
        return None
    if schema is None and not isinstance(X, Table) and not (_is_tabular(public) and _needs_schema(public, learners)):
        return None
    table = read_table(public)
    if schema is None:
        schema = draft(table, source="X_public")
    elif not isinstance(schema, Schema):
        schema = Schema.from_file(schema)
    return Encoder.fit(schema, schema.match(table, role="X_public"))


def encoded_private(
    encoder: Encoder, X: Any, y: ArrayLike, *, classes: NDArray[Any], unit: Any, drafted: bool = False
) -> PrivateData:
    """Private rows as numbers: a row without a usable label keeps its place, and nothing in a cell is refused.

    Args:
        classes: (n_classes,) the labels.
        unit: whom each row belongs to. None: the schema's column, if it names one; nobody's rows are left out.
        drafted: the schema is a draft from X_public, whose names may be the wrong ones where the two differ.
    """
    schema = encoder.schema
    from_column = unit is None and schema.unit is not None
    role, advice = ("X, compared with X_public", _DRAFTED) if drafted else ("X", None)
    table = schema.match(read_table(X), role=role, need_unit=from_column, advice=advice)
    labels = known_indices(y, classes)
    if len(labels) != len(table):
        raise InputError("X and y must have one length: there must be one label for each row.")
    if from_column:
        ids = units(table, schema)
        there = np.flatnonzero(ids != "")
        table, labels, unit = table.take(there), labels[there], ids[there]
    return PrivateData(encoder.transform(table), labels, unit=unit, unlabelled_ok=True)


def encoded_new(encoder: Encoder, X: Any, *, accept_unreadable: bool = False) -> NDArray[np.float32]:
    """New rows as numbers; what cannot be read of them is warned of, or refused where it is a whole column."""
    if not _is_tabular(X):
        raise InputError(f"X must be a table with the columns of the schema; it is {type(X).__name__}.")
    table = encoder.schema.match(read_table(X), role="X")
    heed_unread(encoder.schema, table, role="X", then=ACCEPT, accept=accept_unreadable)
    return encoder.transform(table, role="X")


def _is_tabular(X: Any) -> bool:
    """Whether rows have named columns: a table of pandas, polars or Arrow, or one that `read_table` read."""
    return isinstance(X, Table) or is_frame(X)


def _needs_schema(public: Any, learners: Sequence[Any]) -> bool:
    """Whether a learner could not take this public table as it is, and none of them wants it so."""
    if isinstance(public, Table):
        return True
    if any(one is not None and takes_tables(one) and not _is_boosting(one) for one in learners):
        return False  # a Pipeline, or code of the user's own
    try:
        found = frame_of("X_public", public)
    except DataError:
        if _plain_numbers(public):
            raise
        return True  # a column of several types, for instance
    return isinstance(found, Frame) and not all(_takes(one, found) for one in learners)


def _takes(estimator: Any, rows: Frame) -> bool:
    kinds = {column.kind for column in rows.columns}
    if estimator is not None and _is_boosting(estimator):
        return kinds <= {NUMBER, CATEGORY}
    return kinds <= {NUMBER} and (not with_nan(rows) or (estimator is not None and takes_nan(estimator)))


def _is_boosting(estimator: Any) -> bool:
    return type(estimator).__name__ == "HistGradientBoostingClassifier"  # takes categories by their type


def _plain_numbers(public: Any) -> bool:
    """Whether all columns are numbers by their types, or have no names: what is wrong then no schema mends."""
    import narwhals as nw

    frame = nw.from_native(public, eager_only=True)
    numeric = all(dtype.is_numeric() or dtype == nw.Boolean for dtype in frame.schema.values())
    return numeric or not all(isinstance(name, str) for name in frame.columns)
