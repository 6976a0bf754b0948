"""Rows that stay texts, for an encoder of the user's own: what stands in one column, and no numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from terrine.errors import DataError, InputError
from terrine.schema.cells import interned, is_missing
from terrine.schema.encoder import SCHEMA_FILE, Encoder
from terrine.schema.kinds import Text
from terrine.schema.schema import Schema
from terrine.schema.tables import Table


@dataclass(frozen=True, eq=False, repr=False)
class PlainTexts:
    """In the place of an `Encoder` where the rows of a table are to be texts: a missing one is empty."""

    schema: Schema

    def __post_init__(self) -> None:
        kinds = self.schema.columns
        if len(kinds) != 1 or not isinstance(next(iter(kinds.values())), Text):
            said = ", ".join(f'"{name}" ({type(kind).__name__.lower()})' for name, kind in kinds.items())
            raise InputError(
                f"An encoder of texts needs a table with one column of text, and the schema has {said}. Put the "
                "others into `ignore`, or leave texts out of [features]."
            )

    def transform(self, table: Table, *, role: str = "the table") -> NDArray[Any]:
        """(n_rows,) texts."""
        [name] = self.schema.columns
        cells, rows = interned(self.schema.match(table, role=role).column(name))
        missing = frozenset(self.schema.missing)
        kept = np.array(["" if is_missing(cell, missing) else cell for cell in cells], dtype=object)
        return kept[rows]

    def files(self) -> dict[str, bytes]:
        """As an encoder's, without weights."""
        return {SCHEMA_FILE: self.schema.to_toml(comments=False).encode()}

    @classmethod
    def from_files(cls, files: Mapping[str, bytes]) -> PlainTexts:
        """From what `files` returned."""
        try:
            return cls(Schema.from_toml(files[SCHEMA_FILE].decode()))
        except (InputError, UnicodeDecodeError) as error:
            raise DataError(f"{SCHEMA_FILE}: {error}") from None

    def __repr__(self) -> str:
        return f"<PlainTexts: {next(iter(self.schema.columns))}>"


RowReader = Encoder | PlainTexts
"""What makes a learner's rows of a table's rows."""
