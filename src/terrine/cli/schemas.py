"""Commands: schema, check."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from terrine.cli.common import app
from terrine.errors import InputError

_SECRET = "secret: depends on private rows"


@app.command("schema")
def schema_command(
    public: Annotated[
        Path, typer.Argument(metavar="PUBLIC", help="A public table: .csv, .tsv, .parquet, or a folder.")
    ],
    label: Annotated[str | None, typer.Option(help="The private table's label column.")] = None,
    classes: Annotated[str | None, typer.Option(help="The label's values, separated by commas.")] = None,
    unit: Annotated[str | None, typer.Option(help="The private table's column of whom a row belongs to.")] = None,
    ignore: Annotated[list[str] | None, typer.Option(help="A column to leave out; may be given several times.")] = None,
) -> None:
    """Draft a schema from a public table, as TOML.

    Never give it private rows.
    """
    from terrine.cli.first_look import unit_hints
    from terrine.schema import draft, read_table
    from terrine.schema.drafting import odd_cells
    from terrine.schema.tables import refuse_not_utf8

    listed = None if classes is None else [one.strip() for one in classes.split(",")]
    refuse_not_utf8(public)
    table = read_table(public)
    found = draft(table, label=label, classes=listed, unit=unit, ignore=ignore or (), source=public.name)
    print(found.to_toml(), end="")
    for one in (*unit_hints(table, (), found), *odd_cells(table, found)):
        print(f"terrine: warning: {one}", file=sys.stderr)


@app.command("check")
def check_command(
    table: Annotated[Path, typer.Argument(metavar="TABLE", help="The table, most often the private one.")],
    schema: Annotated[Path, typer.Option(help="The schema, a TOML file.")],
    public: Annotated[
        bool, typer.Option("--public", help="Say nothing of a label or a unit that is not there.")
    ] = False,
    most: Annotated[int, typer.Option(help="List at most this number of faults.", min=0)] = 40,
) -> None:
    """List cells that are not as the schema says. Secret.

    First how many there are in each column, and labels that are not in the list of classes; then by line and column,
    without the cells themselves. A table without label or unit is checked without them.

    The exit code is 0 whatever the cells hold; it is 2 where the header does not fit the schema.
    """
    from terrine.schema import Schema, check, read_table
    from terrine.schema.checking import labels_listed, summary
    from terrine.schema.tables import not_utf8, refuse_not_utf8, utf8_advice

    try:
        known = Schema.from_toml(schema.read_text(encoding="utf-8"))
    except (InputError, UnicodeDecodeError) as error:
        raise InputError(f"{schema.name}: {error}") from None
    refuse_not_utf8(table, header=True)
    found = read_table(table)
    faults = check(known, found, role=table.name, public=public)
    print(_SECRET)
    for column, what in ((known.label, "label"), (known.unit, "unit")):
        if column is not None and column not in found.names and not public:
            print(f'no column "{column}" ({what}): all else is checked')
    if (odd := not_utf8(table)) is not None:
        print(f"line {odd}: {utf8_advice(table)}")
    for line in (*labels_listed(known, found, faults), *summary(known, found, faults)):
        print(line)
    if faults and most:
        print("one by one:")
    word = "row" if found.lines is None else "line"
    for fault in faults[:most]:
        print(f"{word} {fault.line}: " + (f'"{fault.column}": {fault.what}' if fault.column else fault.what))
    if len(faults) > most:
        print(f"... and {len(faults) - most:,} more (--most {len(faults)})")
    if not faults and odd is None:
        print("no faults")
