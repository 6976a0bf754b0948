"""Commands: init, predict."""

from __future__ import annotations

import math
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from terrine._files import write_atomically
from terrine._toml import toml_value
from terrine.accounting.advice import consensus_for
from terrine.cli.common import app
from terrine.errors import InputError

if TYPE_CHECKING:
    from terrine.schema import Schema

TABLE, TEXTS, IMAGES, ARRAYS = "a table", "a folder of texts", "a folder of images", "arrays"
ROWS_PER_TEACHER, ROWS_PER_CLASS = 100, 4  # what a teacher should see at least
FEWEST, MOST = 10, 1_000  # teachers
UNITS = 10_000  # the default of --units


@app.command("init")
def init_command(
    private: Annotated[Path, typer.Option(help="Your labeled rows: .csv, .parquet, .npz, or a folder.")],
    public: Annotated[Path, typer.Option(help="Unlabeled rows of the same kind, which anyone may see.")],
    test: Annotated[
        Path | None, typer.Option(help="Public labeled rows, to measure the student with. Not needed.")
    ] = None,
    label: Annotated[str | None, typer.Option(help="The label's column, of a table.")] = None,
    classes: Annotated[
        str | None, typer.Option(help="The label's values, separated by commas (default: those of --test).")
    ] = None,
    unit: Annotated[
        str | None,
        typer.Option(
            help="The column that says whose row it is; of a folder, a pattern: '^([^_]+)_' takes ann from ann_1.png."
        ),
    ] = None,
    units: Annotated[
        int | None,
        typer.Option(
            help="About how many people (or rows) you have, from something public such as an annual report. Do not "
            "count your private rows: half or twice the number will do.",
            min=1,
        ),
    ] = None,
    epsilon: Annotated[float, typer.Option(help="The guarantee: smaller protects more, and teaches less.")] = 2.0,
    image_shape: Annotated[str | None, typer.Option(help="Of images: 28x28, or 32x32x3 for color.")] = None,
    out: Annotated[Path, typer.Option(help="The settings to write; schema.toml is written beside it.")] = Path(
        "run.toml"
    ),
) -> None:
    """Write run.toml and schema.toml for your files, with comments.

    The schema is drafted from the public file alone. Of the private file only the names of its columns are read, and
    whether it is the public file over again.
    """
    from terrine.cli.first_look import check_apart, next_steps, remarks
    from terrine.schema.utf8 import refuse_not_utf8

    if not 0 < epsilon < math.inf:
        raise InputError(f"--epsilon must be above 0, got {epsilon:g}.")
    kind = _kind(public)
    table = kind in (TABLE, TEXTS)
    for file in (out, *([out.parent / "schema.toml"] if table else [])):
        if file.exists():
            raise InputError(f"{file} is there already. Delete it, or write to another folder: --out other/run.toml.")
    for path in (private, *([] if test is None else [test])):
        if (own := _kind(path)) != kind:
            raise InputError(f"{path.name} is {own} and {public.name} is {kind}: they must be of one kind.")
    for path in (public, *([] if test is None else [test])):
        refuse_not_utf8(path)
    refuse_not_utf8(private, header=True)  # what is below the header decides nothing
    check_apart(private, public, option="--public")
    if test is not None:
        check_apart(private, test, option="--test")
    if label is not None and kind != TABLE:
        raise InputError(f"--label names a column of a table; {_labels_of(kind)}.")
    if image_shape is not None and kind != IMAGES:
        raise InputError(f"--image-shape is for folders of images, and {public.name} is {kind}.")
    if unit is not None and kind == ARRAYS:
        raise InputError("--unit names a column, or is a pattern for file names; arrays have their units in `unit`.")
    if unit is not None and kind != TABLE:
        _check_pattern(unit)
    names = _classes(classes, test=test, label=label, kind=kind)
    shape = _shape(image_shape) if kind == IMAGES else None
    schema = _schema(private, public, label=label, unit=unit, names=names) if table else None
    if schema is not None:
        _write(out.parent / "schema.toml", schema.to_toml())
    text = _settings(
        out.parent,
        files={"private": private, "public": public, "test": test},
        names=None if table else names,
        unit=None if table and not private.is_dir() else unit,
        units=units,
        epsilon=epsilon,
        shape=shape,
        n_classes=len(names),
        table=table,
    )
    _write(out, text)
    print(f"{out}: the settings, with comments; change what you like.")
    if schema is not None:
        print(f"{out.parent / 'schema.toml'}: what the columns are, from the public file alone. Please read it.")
    listed_in = None if classes is not None or test is None else test.name
    for one in remarks(private, public, schema, classes=names, unit=unit, listed_in=listed_in):
        print(f"- {one}")
    print("\n".join(next_steps(private, out, table=table)))


def _kind(path: Path) -> str:
    from terrine.schema import is_table

    if not path.exists():
        raise InputError(f"{path}: there is no such file or folder.")
    if is_table(path):
        return TEXTS if path.is_dir() else TABLE
    if path.is_dir():
        return ARRAYS if (path / "X.npy").is_file() else IMAGES
    if path.suffix.lower() in (".npz", ".npy"):
        return ARRAYS
    raise InputError(f"{path.name}: rows must be in a .csv, .tsv, .parquet or .npz file, or in a folder.")


def _labels_of(kind: str) -> str:
    return "arrays have their labels in y" if kind == ARRAYS else "in a folder the names of sub-folders are the labels"


def _check_pattern(unit: str) -> None:
    try:
        groups = re.compile(unit).groups
    except re.error:
        groups = 0
    if not groups:
        raise InputError(
            "--unit for a folder is a regular expression with a group in brackets, the part of a file's name that says "
            "whose it is: '^([^_]+)_' takes ann from ann_1.png."
        )


def _classes(given: str | None, *, test: Path | None, label: str | None, kind: str) -> list[str]:
    """The public list of classes: typed, or those of public labelled rows."""
    if given is not None:
        return [name.strip() for name in given.split(",")]
    if test is not None and kind == IMAGES:
        return sorted(entry.name for entry in test.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    if test is not None and kind in (TABLE, TEXTS):
        from terrine.schema import draft, read_table
        from terrine.schema.schema import nearest
        from terrine.schema.tables import LABEL_COLUMN

        column = LABEL_COLUMN if test.is_dir() else label
        if column is None:
            raise InputError("Name the label's column with --label.")
        rows = read_table(test)
        if column not in rows.names:
            close = nearest(column, rows.names)
            meant = "" if close is None else f' Did you mean --label "{close}"?'
            raise InputError(f"{test.name} has no column {column!r} (--label).{meant}")
        return list(draft(rows, label=column, source=test.name).classes)
    raise InputError(
        "List the label's values with --classes a,b,c, or give public labelled rows with --test. The values are "
        "public, so terrine never reads them from private rows."
    )


def _schema(private: Path, public: Path, *, label: str | None, unit: str | None, names: list[str]) -> Schema:
    """The draft."""
    from terrine.cli.first_look import check_columns
    from terrine.schema import draft, read_table
    from terrine.schema.tables import LABEL_COLUMN, UNIT_COLUMN

    if public.is_dir():
        label, unit = LABEL_COLUMN, None if unit is None else UNIT_COLUMN
    if label is None:
        raise InputError("Name the label's column with --label.")
    rows = read_table(public)
    if not private.is_dir():
        header = read_table(private).names
        check_columns(private, header, public, rows.names, label=label, unit=unit)
        extra = [name for name in header if name not in (*rows.names, label, unit)]
    else:
        extra = []
    found = draft(rows, label=label, classes=names, unit=unit, source=public.name)
    notes = {**found.notes, **dict.fromkeys(extra, f"not in {public.name}: the student could not use it")}
    found = replace(found, ignore=(*found.ignore, *extra), notes=notes)
    if not private.is_dir():
        found.match(read_table(private), role=private.name)
    return found


def _settings(
    folder: Path,
    *,
    files: dict[str, Path | None],
    names: list[str] | None,
    unit: str | None,
    units: int | None,
    epsilon: float,
    shape: list[int] | None,
    n_classes: int,
    table: bool,
) -> str:
    planned = units or UNITS
    teachers = n_teachers(planned, n_classes=n_classes)
    lines = [
        "# Settings of a run. All of this is public: anyone may read it.",
        '# The pages "Runs" and "Choosing ε, δ and consensus" of the documentation describe them; terrine run --help.',
        "",
        "[data]",
    ]
    for name, path in files.items():
        if path is not None:
            lines.append(f"{name} = {toml_value(_relative(path, folder))}")
    if table:
        lines.append('schema = "schema.toml"  # what the columns are, the label and its classes')
    if names is not None:
        lines.append(f"classes = {toml_value(names)}")
    if unit is not None:
        lines.append(f"unit = {toml_value(unit)}  # the first group in a file's name says whose it is")
    if shape is not None:
        lines.append(f"image_shape = {toml_value(shape)}")
    first = "" if units else "please change: "
    lines += [
        f"units_planned = {planned}  # {first}about how many people (or rows) you have, from something public such as",
        "#   an annual report. Do not count your private rows: half or twice the number will do",
        "",
        "[features]",
        'kind = "auto"  # what teachers, probe and student see of a row, from the public rows alone',
        "",
        "[teachers]  # taught only if the run takes this route",
        f"number = {teachers}  # about {planned // teachers:,} people or rows each; more teachers give less noise,",
        "#   but each then learns from less",
        'kind = "ridge"  # tunes itself inside its share; or forest, boosting, logistic, lda, sklearn',
        "keep = false  # true for a label service of teachers: terrine serve. A probe needs nothing",
        "",
        "[privacy]",
        'route = "auto"  # teachers or a private probe, by these public numbers: terrine run --dry-run says which and',
        '#   why. "teachers" fixes the one; "probe" the other, without [teachers], mechanism and consensus',
        f"epsilon = {epsilon}  # the guarantee: smaller protects more, and teaches less",
        f"delta = {delta_for(planned):.0e}  # a power of ten, at most a tenth of 1 / number of people",
        '# neighbors = "unit_added"  # without the # at the front a probe needs half the noise, and the promise is',
        "#   another one: nobody can tell whether a person is in the data, but what is said of somebody who is known",
        '#   to be in it is hidden less: at 2ε and a δ of (1 + e^ε)δ. The page "Whose data is hidden?" has more.',
        'mechanism = "gnmax"  # of teachers, as consensus is',
        f"consensus = {consensus_for(planned / teachers)}  # an assumption: the share of teachers that agree on an",
        f"#   ordinary row, a guess for {planned // teachers:,} rows a teacher",
        "",
        "[student]",
        'kind = "auto"  # several are compared, at no cost in privacy; the report shows how they did',
        "",
    ]
    return "\n".join(lines)


def n_teachers(units: int, *, n_classes: int) -> int:
    """As many as leave each teacher 100 units, and 4 of each class; a round number between 10 and 1,000."""
    most = units / max(ROWS_PER_TEACHER, ROWS_PER_CLASS * n_classes)
    tenth = 10 ** math.floor(math.log10(max(most, 1)))
    rounded = max(step * tenth for step in (1, 2, 2.5, 5) if step * tenth <= max(most, 1))
    return int(min(max(rounded, FEWEST), MOST))


def delta_for(units: int) -> float:
    """A power of ten, at most a tenth of one over the number of units."""
    return 10.0 ** -math.ceil(math.log10(10 * units))


def _shape(given: str | None) -> list[int]:
    try:
        found = [int(part) for part in (given or "").lower().split("x")]
    except ValueError:
        found = []
    if len(found) not in (2, 3):
        raise InputError("Give the shape that images are brought to: --image-shape 28x28, or 32x32x3 for color.")
    return found


def _relative(path: Path, folder: Path) -> str:
    try:
        return Path(os.path.relpath(path.resolve(), folder.resolve())).as_posix()
    except ValueError:  # on another drive
        return str(path.resolve())


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, lambda file: file.write(text.encode()))


@app.command("predict")
def predict_command(
    student: Annotated[
        Path, typer.Argument(metavar="STUDENT", help="A student's folder, such as run/student, or its run directory.")
    ],
    new: Annotated[Path, typer.Argument(metavar="ROWS", help="New rows: a table, an array file or a folder.")],
    out: Annotated[Path, typer.Option(help="The predictions, a .csv or .tsv file.")],
    keep: Annotated[
        list[str] | None,
        typer.Option(help="Columns of ROWS to copy, such as an id, separated by commas; may be given several times."),
    ] = None,
    encoder: Annotated[
        str | None,
        typer.Option(
            help="The encoder of a student that does not carry it: a file, a folder, or package.module:function."
        ),
    ] = None,
    accept_unreadable: Annotated[
        bool,
        typer.Option(
            "--accept-unreadable",
            help="Go on where most cells of a column cannot be read, or none is in the schema's list.",
        ),
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace a file --out of different content.")] = False,
    same_format: Annotated[
        bool,
        typer.Option(
            "--same-format",
            help="Separate cells as ROWS does, with its decimal mark: the Excel that wrote ROWS opens it.",
        ),
    ] = False,
) -> None:
    """Apply a student to new rows: a class and probabilities for each.

    Columns are found by name, in any order; what a schema ignores may be there or not. Numbers, dates and flags that
    cannot be read are told, and count as missing; so are words that the schema does not list, which count as "other".
    """
    from terrine.students import load_student
    from terrine.students.predict import write_predictions

    inner = student / "student"
    folder = inner if inner.is_dir() else student
    found = load_student(folder, encoder=encoder)
    _check_out(out, folder, encoder)
    kept = [name.strip() for one in keep or () for name in one.split(",")]
    n, there = write_predictions(
        found, new, out, keep=kept, accept_unreadable=accept_unreadable, force=force, same_format=same_format
    )
    print(f"{out}: {n:,} predictions{', which were there already: nothing was written' if there else ''}.")


def _check_out(out: Path, student: Path, encoder: str | None) -> None:
    """Refuse predictions in the place of what they are made with, or of what the student's run reads."""
    from terrine.runs.config import read_settings
    from terrine.students.predict import is_same

    if student.resolve() in out.resolve().parents:
        raise InputError(f"--out is inside {student}, the student's folder, which stays as it is. Give another name.")
    read = [] if encoder is None else [Path(encoder)]
    run = student.resolve().parent
    if (run / "config.toml").is_file():
        try:
            data = read_settings(run / "config.toml").data
        except InputError:  # of another version: its files are unknown
            data = None
        named = (getattr(data, name, None) for name in ("private", "public", "test", "schema_file"))
        read += [path for path in named if path is not None]
    for path in read:
        if is_same(out, path):
            raise InputError(f"--out is {path}, which the student or its run reads. Give another name.")
