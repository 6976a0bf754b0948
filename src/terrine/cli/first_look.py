"""What init says of the files that it is given: from public rows, and from names of columns."""

from __future__ import annotations

import shlex
import zipfile
from collections.abc import Sequence
from pathlib import Path

from terrine._files import same_bytes, same_rows_in
from terrine.errors import InputError
from terrine.schema import Schema, Table, read_table
from terrine.schema.cells import UNREADABLE, choices
from terrine.schema.drafting import names_unit, odd_cells, unit_columns
from terrine.schema.schema import nearest
from terrine.schema.utf8 import texts_not_utf8
from terrine.students.verdict import listed


def check_apart(private: Path, other: Path, *, option: str) -> None:
    """Refuse private rows that are given as public ones. Who runs this owns them, and may know what they hold."""
    if same_rows_in(private, other) or same_bytes(private, other):
        raise InputError(
            f"{other.name} ({option}) has the same rows as {private.name} (--private). Public rows are shown without "
            f"any protection: give {option} other rows, which anyone may see."
        )


def check_columns(
    private: Path, header: Sequence[str], public: Path, known: Sequence[str], *, label: str, unit: str | None
) -> None:
    """Refuse a private file without the columns that were named, and say which may be meant.

    Its header is quoted only where it shares a name with the public one: else it may be a row.
    """
    if label not in header and label in known:
        raise InputError(
            f"{private.name} has no column {label!r} (--label), but {public.name} has it: are --private and --public "
            "swapped?"
        )
    quoted = header if set(header) & set(known) else ()
    for name, option in ((label, "--label"), (unit, "--unit")):
        if name is not None and name not in header:
            close = nearest(name, quoted)
            meant = "" if close is None else f" Did you mean {option} {shlex.quote(close)}?"
            raise InputError(f"{private.name} has no column {name!r} ({option}).{meant}")
    if not any(name in header for name in known if name not in (label, unit)):
        raise InputError(
            f"{private.name} has none of the columns of {public.name}. Does it start with a line of column names?"
        )


def file_hints(folder: Path, *, how: str = "begin again with a pattern: --unit '^([^_]+)_'") -> list[str]:
    """What the guarantee is for where rows are files and no pattern says whose they are; none for arrays.

    Args:
        how: to give such a pattern.
    """
    if not folder.is_dir() or (folder / "X.npy").is_file():
        return []
    return [
        "Nothing says whose a file is, so that the guarantee is for one file: a person with several files is protected "
        f"for one of them at a time, and not as a person. If the files' names say whose they are, {how} takes ann from "
        "ann_1.png and ann_2.png. If they do not, rename them so."
    ]


def remarks(
    private: Path,
    public: Path,
    schema: Schema | None,
    *,
    classes: Sequence[str],
    unit: str | None,
    listed_in: str | None = None,
) -> list[str]:
    """What its owner should know before going on.

    Args:
        listed_in: the test file that the list of classes was taken from; None: it was typed.
    """
    found = []
    if listed_in is not None:
        found.append(
            f"The classes are those of {listed_in}: {listed(classes)}. Private rows of a class that is not there are "
            "left out, and no message says so; --classes gives the whole list."
        )
    if labels := _public_labels(public, schema, classes):
        found.append(
            f"{public.name} has {labels}: its labels will be used as public ones, to choose between models and to say "
            "how often they are right. They must be labels that anyone may see; if they are not, take them out."
        )
    if schema is None or public.is_dir():
        odd = None if schema is None else texts_not_utf8(public)
        found += [] if odd is None else [odd]
        return found if unit is not None else [*found, *file_hints(public)]
    rows = read_table(public)
    found += _misspelled(rows, schema, public, listed_in)
    only_private = [name for name in read_table(private).names if name not in rows.names]
    return [*found, *unit_hints(rows, only_private, schema), *odd_cells(rows, schema)]


def next_steps(private: Path, out: Path, *, table: bool) -> list[str]:
    """What to type now; what the labels are decides nothing that others see, so that the owner must look first."""
    dry_run = f"terrine run {shlex.quote(str(out))} --dry-run"
    if not table:
        if not private.is_dir() or (private / "X.npy").is_file():
            return [f"Next: {dry_run}"]
        look = "  for your eyes only: how many images each class has, and names that do not fit `unit`"
        return [f"Next: terrine check {shlex.quote(str(out))}", look, f"Then: {dry_run}"]
    check = f"terrine check {shlex.quote(str(private))} --schema {shlex.quote(str(out.parent / 'schema.toml'))}"
    return [
        f"Next: {check}",
        "  for your eyes only: are the classes, categories and numbers spelled as schema.toml says? Nothing else tells",
        f"Then: {dry_run}",
    ]


def _public_labels(public: Path, schema: Schema | None, classes: Sequence[str]) -> str:
    """Where the public rows carry labels; empty where they have none."""
    if public.is_dir():
        if (public / "X.npy").is_file():
            return "a file y.npy" if (public / "y.npy").is_file() else ""
        return "sub-folders with the names of classes" if any((public / name).is_dir() for name in classes) else ""
    if schema is None:
        held = zipfile.ZipFile(public).namelist() if zipfile.is_zipfile(public) else []
        return "an array y" if "y.npy" in held else ""
    return f'the label\'s column "{schema.label}"' if schema.label in read_table(public).names else ""


def _misspelled(rows: Table, schema: Schema, public: Path, listed_in: str | None) -> list[str]:
    """Labels of public rows that are not in the list."""
    if schema.label is None or schema.label not in rows.names:
        return []
    cells = rows.column(schema.label)
    odd = choices(cells, schema.classes, schema.missing).state == UNREADABLE
    names = sorted(set(map(str, cells[odd])))
    if not names:
        return []
    what = "Are the classes spelled right?"
    if listed_in is not None:
        what = f"The list is that of {listed_in}; give --classes."
    return [f"{public.name} has labels that are not in the list of classes: {listed(names)}. {what}"]


def unit_hints(public: Table, only_private: Sequence[str], schema: Schema) -> list[str]:
    """Columns that look as if they said whose a row is, where no unit was named."""
    if schema.unit is not None:
        return []
    found = []
    for name in (*unit_columns(public, schema), *filter(names_unit, only_private)):
        if name == schema.label:
            continue
        now = "It is ignored now."
        if name in schema.columns:
            now = "It is a feature now: if it names no person and is of no use, put it into `ignore` in schema.toml."
        found.append(
            f'Column "{name}" looks as if it says whose a row is. If so, begin again with --unit {shlex.quote(name)}: '
            f"without it the guarantee is for one row, and not for a person with several. {now}"
        )
    return found
