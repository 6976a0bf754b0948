"""The encoder of a table as a service hands it out, so that everybody asks about the numbers that its teachers took.

It was learned from public rows alone and lies in every student's folder: it is public.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from terrine.datasets.tables import is_frame
from terrine.errors import DataError, InputError
from terrine.schema import Encoder, Schema, Table, read_table
from terrine.schema.checking import Unread, refuse_spoiled, unread
from terrine.schema.schema import nearest

_MOST = 50  # names of columns that are compared with others
_NOTHING = "Nothing was asked, and nothing charged. A cell that is missing may be null (in Python None)."
_ADVICE = "Name columns as the owner's table does: schema.toml of GET /v1/encoder lists them"


@dataclass(frozen=True)
class EncoderFiles:
    """The files of a run's encoder, and what they are known by."""

    files: Mapping[str, bytes] = field(repr=False)

    @property
    def sha256(self) -> str:
        """Of names and contents."""
        whole = hashlib.sha256()
        for name in sorted(self.files):
            whole.update(f"{name} {hashlib.sha256(self.files[name]).hexdigest()}\n".encode())
        return whole.hexdigest()

    @cached_property
    def encoder(self) -> Encoder:
        """Made of the files; nothing in them is executed."""
        return Encoder.from_files(self.files)

    def read(self, X: Any, *, role: str) -> tuple[NDArray[np.float32], list[Unread]]:
        """Rows of a table as the owner's were made numbers, and what of them could not be read.

        Each row's numbers depend on that row alone. Where most of a column is no number, date or flag, or all of it is
        beyond the schema's bounds, the rows are refused.
        """
        schema, listed = self.encoder.schema, isinstance(X, list)
        table = read_table(_by_name(X, role=role) if listed else X)
        _check_names(schema, table.names, role=f"{role}[0]" if listed else role)
        found = schema.match(table, role=role, advice=_ADVICE)
        if not len(found):
            raise DataError(f"{role}: there is no row in it.")
        told = unread(schema, found, role=role)
        refuse_spoiled([one for one in told if one.what != "unknown"], then=_NOTHING)
        return self.encoder.transform(found, role=role), told

    def packed(self) -> dict[str, str]:
        """As JSON takes them."""
        return {name: base64.b64encode(content).decode() for name, content in self.files.items()}

    @classmethod
    def unpacked(cls, files: Mapping[str, str], *, sha256: str) -> EncoderFiles:
        """From `packed`; refused where they are not the files with this hash."""
        try:
            found = cls({name: base64.b64decode(content, validate=True) for name, content in files.items()})
        except ValueError:
            found = cls({})
        if found.sha256 != sha256:
            raise InputError("the files of the encoder are not those that the service names")
        return found


def is_table_of_rows(X: Any) -> bool:
    """Whether rows have named columns: a frame, a table, lists by name, or a list of dicts."""
    return isinstance(X, Table | Mapping) or is_frame(X) or (isinstance(X, list) and bool(X) and type(X[0]) is dict)


def _by_name(rows: list[Any], *, role: str) -> dict[str, list[Any]]:
    """Columns of rows that each name their cells."""
    names = rows[0].keys()
    for k, row in enumerate(rows, start=1):
        if type(row) is not dict or row.keys() != names:
            raise InputError(f"{role}: row {k} must have the column names of row 1.")
    return {str(name): [row[name] for row in rows] for name in names}


def _check_names(schema: Schema, names: Sequence[str], *, role: str) -> None:
    """Say which columns misspelt names may mean; rows in a request have no line of column names to look at."""
    absent = [name for name in schema.columns if name not in names]
    known = {*schema.columns, *schema.ignore, schema.label, schema.unit}
    said = []
    for name in [name for name in names if name not in known][:_MOST]:
        close = nearest(name[:100], absent[:_MOST])
        if close is not None:
            said.append(f"there is no column {_quoted(name)}; did you mean {_quoted(close)}?")
    if said:
        raise DataError(f"{role}: {' '.join(said)}")
    if 2 * len(absent) > len(schema.columns):
        more = f" and {len(absent) - 10} more" if len(absent) > 10 else ""
        raise DataError(f"{role}: missing: {', '.join(map(_quoted, absent[:10]))}{more}. {_ADVICE}.")


def _quoted(name: str) -> str:
    return json.dumps(name[:60], ensure_ascii=False)
