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
    from terrine.schema.utf8 import refuse_not_utf8

    listed = None if classes is None else [one.strip() for one in classes.split(",")]
    refuse_not_utf8(public)
    table = read_table(public)
    found = draft(table, label=label, classes=listed, unit=unit, ignore=ignore or (), source=public.name)
    print(found.to_toml(), end="")
    for one in (*unit_hints(table, (), found), *odd_cells(table, found)):
        print(f"terrine: warning: {one}", file=sys.stderr)


@app.command("check")
def check_command(
    table: Annotated[
        Path,
        typer.Argument(
            metavar="TABLE", help="The table, most often the private one; or run.toml, for its private data."
        ),
    ],
    schema: Annotated[Path | None, typer.Option(help="The schema of the table, a TOML file.")] = None,
    public: Annotated[
        bool, typer.Option("--public", help="Say nothing of a label or a unit that is not there.")
    ] = False,
    most: Annotated[int, typer.Option(help="List at most this number of faults.", min=0)] = 40,
) -> None:
    """List cells that are not as the schema says. Secret.

    Of folders of images, named by run.toml: images of each class, and file names that do not fit `unit`. Of a table
    first how many there are in each column, and labels that are not in the list of classes; then by line and column,
    without the cells themselves. A table without label or unit is checked without them.

    The exit code is 0 whatever the cells hold; it is 2 where the header does not fit the schema.
    """
    from terrine.schema import Schema, check, read_table
    from terrine.schema.checking import labels_listed, summary
    from terrine.schema.utf8 import not_utf8, refuse_not_utf8, utf8_advice

    if table.suffix == ".toml":
        given = _private_of(table)
        if isinstance(given, list):
            print(_SECRET)
            print("\n".join(given))
            return
        table, schema = given
    if schema is None:
        raise InputError("--schema is missing: the schema of the table, or name run.toml in place of the table.")
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


def _private_of(settings: Path) -> tuple[Path, Path] | list[str]:
    """The private table and the schema that settings name; of a folder of images what there is to say of it."""
    from terrine.datasets.readers import look_at
    from terrine.runs.config import ProbeConfig, RunConfig, read_settings

    found = read_settings(settings)
    data = found.data if isinstance(found, RunConfig | ProbeConfig) else None
    if data is None or data.private is None:
        raise InputError(f"{settings.name} names no private files: there is nothing to check.")
    if data.schema_file is not None:
        return data.private, data.schema_file
    if not data.private.is_dir() or (data.private / "X.npy").is_file():
        raise InputError(f"{settings.name} names no schema: name the table, and --schema.")
    return look_at(data.private, data.classes or [], data.unit)
