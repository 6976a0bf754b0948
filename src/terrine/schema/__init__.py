"""What columns are, by name; rows as numbers by public knowledge alone (docs/schema.md)."""

from terrine.schema.cells import labels, units
from terrine.schema.checking import Fault, check
from terrine.schema.drafting import draft
from terrine.schema.encoder import Encoder
from terrine.schema.kinds import Category, Date, Flag, Kind, Number, Ordered, Text
from terrine.schema.plain import PlainTexts, RowReader
from terrine.schema.schema import Schema
from terrine.schema.tables import Table, is_table, read_table

__all__ = [
    "Category",
    "Date",
    "Encoder",
    "Fault",
    "Flag",
    "Kind",
    "Number",
    "Ordered",
    "PlainTexts",
    "RowReader",
    "Schema",
    "Table",
    "Text",
    "check",
    "draft",
    "is_table",
    "labels",
    "read_table",
    "units",
]
