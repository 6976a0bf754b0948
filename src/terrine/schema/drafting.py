"""A first schema, from a public table alone."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from terrine.errors import DataError, InputError
from terrine.schema.cells import FINE, UNREADABLE, decode, flag_of, interned, is_missing, number_of
from terrine.schema.kinds import ISO, Category, Cycle, Date, Flag, Kind, Number, Ordered, Text, moment_of
from terrine.schema.schema import MISSING, Schema
from terrine.schema.tables import Table

MOST_CATEGORIES = 50  # different values of a category; and at most half as many as there are rows
READABLE = 0.95  # share of cells that must be numbers, or dates, for the column to be one
SKEWED = 0.95  # share of values in the lowest tenth of the bounds, for a logarithmic scale
SHORT = 100  # characters of the median text, up to which pieces of words are looked at
_TRIED = 50  # different cells that a date's format is tried on before all
FEW_ROWS = 20  # below this, values that are all different are no sign of an id

_CLOCK = ("", " %H:%M", " %H:%M:%S")
_DAYS = ("%d.%m.%Y", "%m/%d/%Y", "%d/%m/%Y", "%Y/%m/%d", "%d-%m-%Y", "%d.%m.%y", "%m/%d/%y", "%d/%m/%y")
_FORMATS = (ISO, *(day + clock for day in _DAYS for clock in _CLOCK), "%H:%M", "%H:%M:%S")
_ID_NAME = re.compile(
    r"(^|[\W_])(id|uuid|guid|key|index|nr|no|num|number|ssn|mrn|email|e-mail)\.?$|^(id|uuid|guid)[\W_]|(?-i:[a-z]I[dD]$)"
    r"|^(patient|person|customer|client|user|member|respondent|subject|participant|employee|student|household)(id|no|nr)?$",
    re.IGNORECASE,
)
# Parts of names, in the tongues that we know some of. Umlauts may be written ae, oe and ue.
_NUMBERS = """
id ids uid uuid guid key nr no num number nummer numero número numéro nro kennung kennzeichen kennziffer index schlüssel
schluessel clave codice identifier identifiant matricule ssn mrn nhs nin dni cpf cedula cédula passport email mail iban
"""
_PERSONS = """
patient patienten paciente paziente person personen persona personne customer kunde kunden kundin client cliente klient
member mitglied mitglieder miembro socio adherent adhérent user nutzer benutzer utilisateur usuario utente account konto
respondent subject proband probanden participant teilnehmer employee mitarbeiter student schüler schueler household
haushalt versicherter versicherte versicherten insured assuré assure policyholder versicherungsnehmer subscriber
abonnent bürger buerger citizen beneficiary
"""
_NUMBER_WORDS, _PERSON_WORDS = frozenset(_NUMBERS.split()), frozenset(_PERSONS.split())
_COMPOUND = re.compile(f"({'|'.join(_PERSON_WORDS)})s?({'|'.join(_NUMBER_WORDS)})")
NEARLY = 0.5  # different values a row, from which a column that is named like an id is one
MANY = 20  # different values, below which a column that is named like an id is a list of a few things, as wards are
MOSTLY = 0.8  # share of cells that are numbers, from which a column that is no number is worth a word
_EITHER = re.compile(r"[+-]?[1-9]\d{0,2}[.,]\d{3}")  # thousands, or decimals
_RANGE = re.compile(r"[<>]?=?\s*(\d+(?:\.\d+)?)\s*(?:(?:-|–|to)\s*\d+(?:\.\d+)?|\+|and over|or more)?")


class _Ignored(Exception):
    """Why a column is left out."""


def draft(
    public: Table,
    *,
    label: str | None = None,
    classes: Sequence[str] | None = None,
    unit: str | None = None,
    ignore: Sequence[str] = (),
    source: str = "the public table",
) -> Schema:
    """A schema from public rows alone; read it, and change what you know better.

    Never give it private rows: bounds, lists and the choice of kinds would tell of them, in public.

    Args:
        label, unit: columns of the private table; the public one need not have them.
        classes: the label's values (default: those in the public table's own column of that name).
        ignore: columns to leave out.
        source: what the table is called in the comment on top.
    """
    if not len(public):
        raise DataError(f"{source}: there are no rows below the header.")
    missing = frozenset(MISSING)
    notes = {"[schema]": _top(source)}
    if label is not None and classes is None:
        classes, notes["[classes]"] = _classes(public, label, missing), "the values in the public rows; are these all?"
    columns: dict[str, Kind] = {}
    left_out = [*ignore]
    marks = _Marks(public)
    for name in public.names:
        if name in (label, unit) or name in ignore:
            continue
        try:
            columns[name], notes[name] = _drafted(
                name, public.column(name), missing, public.orders.get(name, ()), marks
            )
        except _Ignored as why:
            left_out.append(name)
            notes[name] = str(why)
    if not columns:
        raise DataError(f"{source}: no column is left that could be a feature.")
    notes["[missing]"] = "a cell that holds one of these, in any case, is missing"
    return Schema(
        columns=columns, label=label, classes=tuple(classes or ()), unit=unit, ignore=tuple(left_out), notes=notes
    )


def _top(source: str) -> str:
    return (
        f"A draft from {source} alone: no private row was read. The schema is public, and private rows never\n"
        "change it. Bounds are those of the public rows, widened to round numbers: numbers beyond them are clipped.\n"
        "Change what you know better, from what is known in public and not from the private rows.\n"
        'If the values of a category have an order, list them in it and say kind = "ordered".\n'
        'blanks = true: "is missing" is a column of its own. The page "Schemas" of the documentation has all kinds.'
    )


def _classes(public: Table, label: str, missing: frozenset[str]) -> list[str]:
    if label not in public.names:
        raise InputError(f"Give `classes`, the list of the label's values: the public table has no column {label!r}.")
    found = {cell for cell in interned(public.column(label))[0] if not is_missing(cell, missing)}
    numbers = {cell: number_of(cell) for cell in found}
    if any(value is None for value in numbers.values()):
        return sorted(found)
    return sorted(found, key=lambda cell: numbers[cell] or 0.0)


class _Marks:
    """Decimal marks to try, the likelier first.

    In "1,250" the comma may be of thousands or of decimals. Where all of a column's cells are so, the mark that the
    table's other columns have decides, and else what separates its cells: Excel writes semicolons where a comma is
    the decimal mark.
    """

    def __init__(self, public: Table) -> None:
        self._public = public

    def of(self, found: Iterable[str]) -> tuple[str, str]:
        return (",", ".") if self._either(found) and self._likelier == "," else (".", ",")

    def doubtful(self, found: Iterable[str]) -> str | None:
        """A cell that a reader of the schema should look at: no point of 1.250 where nothing else hints at commas."""
        cells = self._either(found)
        return cells[0] if cells and ("," in cells[0] or self._likelier == ",") else None

    @staticmethod
    def _either(found: Iterable[str]) -> list[str]:
        """The cells with a mark, where each of them may be read in both ways."""
        cells = [cell for cell in found if "," in cell or "." in cell]
        clear = not all(map(_EITHER.fullmatch, cells)) or len({cell[-4] for cell in cells}) > 1
        return [] if clear else cells

    @cached_property
    def _likelier(self) -> str:
        seen = dict.fromkeys(".,", 0)
        for name in self._public.names:
            cells = [cell for cell in interned(self._public.column(name))[0][:_TRIED] if "," in cell or "." in cell]
            for mark, other in (".,", ",."):
                read = [cell for cell in cells if number_of(cell, mark) is not None]
                if len(read) >= READABLE * len(cells) and any(number_of(cell, other) is None for cell in read):
                    seen[mark] += 1
        if seen["."] != seen[","]:
            return max(seen, key=seen.__getitem__)
        return "," if self._public.separator == ";" else "."


def _drafted(
    name: str, column: NDArray[Any], missing: frozenset[str], order: Sequence[str], marks: _Marks
) -> tuple[Kind, str]:
    """A column's kind and why; columns to leave out raise `_Ignored`."""
    if not name:
        raise _Ignored("no name in the header: a row number, most likely")
    cells, rows = interned(column)
    merged: dict[str, int] = {}  # cells that differ in blanks around them are one
    for cell, count in zip(cells, np.bincount(rows, minlength=len(cells)).tolist(), strict=True):
        if not is_missing(cell, missing):
            merged[cell] = merged.get(cell, 0) + count
    found = dict(sorted(merged.items()))
    n_there, n_rows = sum(found.values()), len(rows)
    blanks = n_there < n_rows
    if not found:
        raise _Ignored("no value in the public rows")
    if len(found) == 1 and not blanks:
        raise _Ignored("one value in all public rows")
    if len(found) > 1 and found.keys() <= set(order):  # values that occur alone: a frame may list those of other rows
        values = tuple(value for value in order if value in found)
        return Ordered(values=values, blanks=blanks), "an ordered categorical column"
    if len(found) == 2 and {flag_of(cell) for cell in found} == {0.0, 1.0}:
        return Flag(blanks=blanks), f"values: {', '.join(found)}"
    unique = len(found) == n_rows >= FEW_ROWS
    if not unique and _named_like_id(name) and len(found) >= max(MANY, NEARLY * n_there) and all(map(_is_code, found)):
        raise _Ignored(f"named like an id, with {len(found):,} different values in {n_rows:,} public rows")
    for decimal in marks.of(found):
        numbers = {cell: number_of(cell, decimal) for cell in found}
        if _share(numbers, found) >= READABLE:
            kind, note = _number(name, numbers, found, decimal=decimal, blanks=blanks, unique=unique)
            if (odd := marks.doubtful(found)) is not None:
                note += f'; "{odd}" is read as {numbers[odd]:g}: if that is wrong, change `decimal` and the bounds'
            return kind, note
    for format in _FORMATS:
        some = [*found][:: 1 + len(found) // _TRIED]
        if 2 * sum(moment_of(cell, format) is not None for cell in some) >= len(some):
            moments = {cell: moment_of(cell, format) for cell in found}
            if _share(moments, found) >= READABLE:
                return _date(moments, found, format=format, blanks=blanks)
    if unique and not any(" " in cell for cell in found):
        raise _Ignored("a different word or code in every public row: an id, most likely")
    if len(found) <= MOST_CATEGORIES and 2 * len(found) <= n_there:
        return _category([*found], blanks=blanks)
    median = float(np.median(np.repeat([len(cell) for cell in found], [*found.values()])))
    note = (
        f"{len(found):,} different values in {n_rows:,} public rows, too many for a list"
        if not unique
        else "a text in every row"
    )
    return Text(characters=median <= SHORT, blanks=blanks), note


def _named_like_id(name: str) -> bool:
    """By its name alone; narrower than `names_unit`, since such a column may be left out of a draft."""
    return _ID_NAME.search(name.strip()) is not None


def names_unit(name: str) -> bool:
    """Whether a column's name looks as if the column said whose a row is, in English or a few other languages.

    Examples:
        >>> [names_unit(one) for one in ("KundenNr", "MemberID_t", "client id", "Versicherten-Nummer", "age")]
        [True, True, True, True, False]
    """
    parts = _parts(name)
    return _surely_names_unit(name) or bool({*parts[:1], *parts[-1:]} & (_PERSON_WORDS | _NUMBER_WORDS))


def _surely_names_unit(name: str) -> bool:
    """Where nothing else is likely to have the name: a person, or a person's number."""
    parts = _parts(name)
    pairs = map(set, pairwise(parts))
    within = any(pair & _PERSON_WORDS and pair & _NUMBER_WORDS for pair in pairs)
    whole = any(map(_COMPOUND.fullmatch, parts)) or (len(parts) == 1 and parts[0] in _PERSON_WORDS)
    return _named_like_id(name) or within or whole


def _parts(name: str) -> list[str]:
    """The words of a name, whether they are set apart by signs or by capitals."""
    name = unicodedata.normalize("NFC", name)
    spaced = "".join(
        f" {one}" if one.isupper() and (not before.isupper() or after.islower()) else one
        for before, one, after in zip(" " + name, name, name[1:] + " ", strict=False)
    )
    return re.findall(r"[^\W\d_]+", spaced.casefold())


def unit_columns(public: Table, schema: Schema) -> list[str]:
    """Columns of a public table that look as if they said whose a row is: by name, or a code in every row.

    A name that may as well be another thing's ("patient_age", "no_of_visits") counts where at least half as many values
    differ as there are rows.
    """
    found = []
    for name in public.names:
        if name in (schema.label, schema.unit) or not (names_unit(name) or name in schema.ignore):
            continue
        cells = {cell for cell in interned(public.column(name))[0] if not is_missing(cell, frozenset(MISSING))}
        coded = len(cells) == len(public) >= FEW_ROWS and not any(number_of(cell) is not None for cell in cells)
        enough = NEARLY * len(public) if not _surely_names_unit(name) else min(MANY, NEARLY * len(public))
        several = len(cells) > 2 and len(cells) >= enough
        if all(map(_is_code, cells)) and (coded or (several and names_unit(name))):
            found.append(name)
    return found


def _is_code(cell: str) -> bool:
    """A whole number, or one word."""
    number = number_of(cell)
    return " " not in cell and (number is None or number.is_integer())


def odd_cells(public: Table, schema: Schema) -> list[str]:
    """Public cells that are not as nearly all of their column are, a sentence a column. Never for private rows."""
    found = []
    for name, kind in schema.columns.items():
        column = public.column(name)
        odd = decode(column, kind, schema.missing).state == UNREADABLE
        if isinstance(kind, Number | Date) and odd.any():
            what = "a number" if isinstance(kind, Number) else "a date"
            n = int(odd.sum())
            how = (
                f"{n:,} public cell{'s are' if n > 1 else ' is'} not {what} and count{'' if n > 1 else 's'} as missing"
            )
            then = f"Correct {'them' if n > 1 else 'it'} in the file if {'they are' if n > 1 else 'it is'} wrong."
        elif isinstance(kind, Text | Category) and column.dtype.kind not in "if":
            state = decode(column, Number(low=-1e300, high=1e300), schema.missing).state
            odd = state == UNREADABLE
            numbers = int((state == FINE).sum())
            if numbers < MOSTLY * (numbers + int(odd.sum())) or not odd.any():
                continue
            how = f"it is read as {'text' if isinstance(kind, Text) else 'words'}, though most public cells are numbers"
            then = "If it is a number, correct the file and begin again."
        else:
            continue
        row = int(np.argmax(odd))
        where = f"row {row}" if public.lines is None else f"line {public.lines[row]}"
        found.append(f'Column "{name}": {how}. The first: {where}, {str(column[row])[:40]!r}. {then}')
    return found


def _share(read: dict[str, Any], found: dict[str, int]) -> float:
    """The share of cells that could be read."""
    return sum(found[cell] for cell, value in read.items() if value is not None) / sum(found.values())


def _unread(read: dict[str, Any], found: dict[str, int]) -> str:
    n = sum(found[cell] for cell, value in read.items() if value is None)
    return f"; {n:,} public cell{'s' if n > 1 else ''} that cannot be read: missing" if n else ""


def _number(
    name: str, read: dict[str, float | None], found: dict[str, int], *, decimal: Any, blanks: bool, unique: bool
) -> tuple[Kind, str]:
    kept = {cell: value for cell, value in read.items() if value is not None and math.isfinite(value)}
    if not kept:
        raise _Ignored("no finite number in the public rows")
    values = np.sort(np.repeat([*kept.values()], [found[cell] for cell in kept]))
    least, most = float(values[0]), float(values[-1])
    if unique and (values == np.floor(values)).all():
        if _ID_NAME.search(name):
            raise _Ignored("a different whole number in every public row, and named like an id")
        if most - least < 2 * len(values):
            raise _Ignored("a different whole number in every public row, nearly all in a range: a row number")
    low, high = _rounded(least, most)
    tenth = float(np.mean(values <= low + (high - low) / 10))
    skewed = least >= 0 and high - low > 10 and tenth >= SKEWED
    note = f"public values from {least:.6g} to {most:.6g}"
    if skewed:
        note += f"; {tenth:.0%} of them in the lowest tenth of the bounds, so on a logarithmic scale"
    kind = Number(
        low=low,
        high=high,
        scale="log" if skewed else "linear",
        decimal=decimal,
        blanks=blanks or len(kept) < len(read),
    )
    return kind, note + _unread(read, found)


def _rounded(least: float, most: float) -> tuple[float, float]:
    """Round numbers around a range; 0 below it where that is no further than the range is wide."""
    span = most - least
    if not math.isfinite(span):
        return least / 2, most / 2
    if 0 < span < 1e-300:
        return least, most
    if span == 0:
        return (0.0, _up(most)) if least > 0 else (-_up(-least), 0.0) if least < 0 else (0.0, 1.0)
    power = math.floor(math.log10(span))
    step = next(part * 10.0**power for part in (1.0, 0.5, 0.2) if span / 10.0**power >= 5 * part or part == 0.2)
    low, high = math.floor(least / step) * step, math.ceil(most / step) * step
    if 0 < low <= span:
        low = 0.0
    low, high = (float(f"{bound:.12g}") for bound in (low, high))  # 0.1 * 3 is not 0.3
    return min(low, least), max(high, most)


def _up(value: float) -> float:
    """The next number above with one digit."""
    power = math.floor(math.log10(value))
    return max(value, float(f"{math.ceil(value / 10.0**power)}e{power}"))


def _date(read: dict[str, datetime | None], found: dict[str, int], *, format: str, blanks: bool) -> tuple[Kind, str]:
    moments = sorted(moment for moment in read.values() if moment is not None)
    least, most = moments[0], moments[-1]
    low, high = _whole(least, most)
    cycles: list[Cycle] = []
    if low.year != 1900 or most.year != 1900:  # else times without a day
        if len({moment.month for moment in moments}) > 1:
            cycles.append("month")
        if len({moment.weekday() for moment in moments}) > 1:
            cycles.append("weekday")
    if len({moment.hour for moment in moments}) > 1:
        cycles.append("hour")
    note = f"public values from {least.isoformat()} to {most.isoformat()}"
    if "%d/%m" in format or "%m/%d" in format:
        other = format.translate(str.maketrans("dm", "md"))
        if _share({cell: moment_of(cell, other) for cell in found}, found) >= READABLE:
            note += f"; ALSO READABLE AS {other}: which is right?"
    kind = Date(
        low=_short(low),
        high=_short(high),
        format=format,
        cycles=tuple(cycles),
        blanks=blanks or len(moments) < len(read),
    )
    return kind, note + _unread(read, found)


def _whole(least: datetime, most: datetime) -> tuple[datetime, datetime]:
    """Whole years around a range; months, where it is shorter than two years; a day, where it is all in one."""
    if least.date() == most.date():
        low = least.replace(hour=0, minute=0, second=0, microsecond=0)
        return low, min(low, datetime.max - timedelta(days=1)) + timedelta(days=1)
    years = most - least >= timedelta(days=730)
    low = datetime(least.year, 1 if years else least.month, 1)
    if most.year == 9999:
        return low, datetime.max.replace(microsecond=0)
    month = 12 if years else most.month
    high = datetime(most.year + 1, 1, 1) if month == 12 else datetime(most.year, month + 1, 1)
    return low, high


def _short(moment: datetime) -> str:
    return (
        moment.date().isoformat() if moment == datetime(moment.year, moment.month, moment.day) else moment.isoformat()
    )


def _category(values: list[str], *, blanks: bool) -> tuple[Kind, str]:
    """A list; where every value is a range of numbers, such as 20-29 or 80+, in their order."""
    ranges = [_RANGE.fullmatch(value) for value in values]
    if len(values) > 2 and all(ranges):
        starts = {value: (float(one[1]), value[0] != "<") for value, one in zip(values, ranges, strict=True) if one}
        if len(set(starts.values())) == len(values):
            return Ordered(
                values=tuple(sorted(values, key=starts.__getitem__)), blanks=blanks
            ), "ranges, in their order"
    return Category(values=tuple(values), blanks=blanks), f"{len(values)} different public values"
