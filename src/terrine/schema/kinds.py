"""The kinds of column. Every field is public: it is written in a schema, never read off private rows."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from terrine.errors import InputError

Cycle = Literal["month", "weekday", "hour"]
CYCLES: tuple[Cycle, ...] = ("month", "weekday", "hour")
ISO = "iso"  # a Date's format: ISO 8601

YES = frozenset({"1", "yes", "y", "true", "t"})
NO = frozenset({"0", "no", "n", "false", "f"})


@dataclass(frozen=True, kw_only=True)
class Number:
    """A number with public bounds: what is beyond them is clipped.

    Attributes:
        low, high: the bounds; they become 0 and 1.
        scale: "linear", or "log" for log(1 + x - low), where most values are far below the largest.
        decimal: what separates whole and decimal part in text.
        blanks: whether there is a column "... is missing" beside it. A missing number has a typical value either way.
    """

    low: float
    high: float
    scale: Literal["linear", "log"] = "linear"
    decimal: Literal[".", ","] = "."
    blanks: bool = True

    def __post_init__(self) -> None:
        for name in ("low", "high"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
                raise InputError(f"`{name}` must be a finite number, got {value!r}.")
            object.__setattr__(self, name, float(value))
        if not self.low < self.high or not math.isfinite(self.high - self.low):
            raise InputError(f"`low` must be below `high`, got {self.low:g} and {self.high:g}.")
        _one_of("scale", self.scale, ("linear", "log"))
        _one_of("decimal", self.decimal, (".", ","))
        _true_or_false("blanks", self.blanks)


@dataclass(frozen=True, kw_only=True)
class Category:
    """One of a public list of values. Each has a column; values that are not listed share "other"."""

    values: tuple[str, ...]
    blanks: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", listed_names("values", self.values, at_least=1))
        _true_or_false("blanks", self.blanks)


@dataclass(frozen=True, kw_only=True)
class Ordered:
    """One of a public list of values that have an order, least first: its place in the list, from 0 to 1."""

    values: tuple[str, ...]
    blanks: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", listed_names("values", self.values, at_least=2))
        _true_or_false("blanks", self.blanks)


@dataclass(frozen=True, kw_only=True)
class Date:
    """A date, or a date and time, between public bounds.

    Attributes:
        low, high: ISO dates or datetimes, which become 0 and 1.
        format: "iso", or how dates are written, as Python's strptime has it ("%d.%m.%Y"). ISO is read as well.
        cycles: which of month, weekday and hour are given as points on a circle too.
    """

    low: str
    high: str
    format: str = ISO
    cycles: tuple[Cycle, ...] = ()
    blanks: bool = True

    def __post_init__(self) -> None:
        for name in ("low", "high"):
            if seconds_of(getattr(self, name), ISO) is None:
                raise InputError(f'`{name}` must be a date such as "2024-01-31", got {getattr(self, name)!r}.')
        if not self.bounds[0] < self.bounds[1]:
            raise InputError(f"`low` must be before `high`, got {self.low} and {self.high}.")
        if not isinstance(self.format, str) or (self.format != ISO and "%" not in self.format):
            raise InputError(f'`format` must be "iso" or a pattern such as "%d.%m.%Y", got {self.format!r}.')
        try:
            datetime.strptime(datetime(2001, 2, 3).strftime(self.format), self.format)
        except ValueError:
            raise InputError(f'`format` must be "iso" or a pattern such as "%d.%m.%Y", got {self.format!r}.') from None
        object.__setattr__(self, "cycles", tuple(self.cycles))
        for cycle in self.cycles:
            _one_of("cycles", cycle, CYCLES)
        if len(set(self.cycles)) != len(self.cycles):
            raise InputError("`cycles` must name each of month, weekday and hour at most once.")
        _true_or_false("blanks", self.blanks)

    @property
    def bounds(self) -> tuple[float, float]:
        """Seconds since 1970."""
        return seconds_of(self.low, ISO) or 0.0, seconds_of(self.high, ISO) or 0.0


@dataclass(frozen=True, kw_only=True)
class Text:
    """Free text, or strings of which there are too many for a list.

    Attributes:
        dimensions: numbers that a text becomes, at most: fewer where there are few public texts.
        characters: look at pieces of words too, so that names, codes and misspelt words resemble each other.
    """

    dimensions: int = 128
    characters: bool = False
    blanks: bool = True

    def __post_init__(self) -> None:
        if type(self.dimensions) is not int or self.dimensions < 1:
            raise InputError(f"`dimensions` must be a whole number of at least 1, got {self.dimensions!r}.")
        _true_or_false("characters", self.characters)
        _true_or_false("blanks", self.blanks)


@dataclass(frozen=True, kw_only=True)
class Flag:
    """Yes or no, true or false, 1 or 0, in any case and also by first letter."""

    blanks: bool = True

    def __post_init__(self) -> None:
        _true_or_false("blanks", self.blanks)


Kind = Number | Category | Ordered | Date | Text | Flag
"""What a column can be."""
KINDS: dict[str, type[Kind]] = {
    "number": Number,
    "category": Category,
    "ordered": Ordered,
    "date": Date,
    "text": Text,
    "flag": Flag,
}


def listed_names(field: str, values: Any, *, at_least: int) -> tuple[str, ...]:
    """A list of different texts without blanks around them: what cells are compared with."""
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise InputError(f'`{field}` must be a list of texts, such as ["no", "yes"].')
    found = tuple(values)
    for value in found:
        if not isinstance(value, str):
            raise InputError(f'`{field}` must hold texts alone: write "{value}" for {value!r}.')
        if value != value.strip():
            raise InputError(f"`{field}` must hold texts without blanks around them, got {value!r}.")
    if len(found) < at_least:
        raise InputError(f"`{field}` must hold at least {at_least} texts, got {len(found)}.")
    if len(set(found)) != len(found):
        twice = next(value for value in found if found.count(value) > 1)
        raise InputError(f"`{field}` must name each value once, got {twice!r} twice.")
    return found


def seconds_of(cell: Any, format: str) -> float | None:
    """Seconds from 1970 to a date as text, in UTC where it names a zone; None where it is no date."""
    moment = moment_of(cell, format)
    return None if moment is None else (moment - datetime(1970, 1, 1)).total_seconds()


def moment_of(cell: Any, format: str) -> datetime | None:
    """A date as text, without a zone, in UTC where it names one; None where it is no date."""
    if not isinstance(cell, str):
        return None
    try:
        moment = datetime.fromisoformat(cell) if format == ISO else datetime.strptime(cell, format)
        return moment if moment.tzinfo is None else moment.astimezone(UTC).replace(tzinfo=None)
    except (ValueError, OverflowError):
        return None if format == ISO else moment_of(cell, ISO)


def _one_of(field: str, value: Any, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise InputError(f"`{field}` must be one of {', '.join(map(repr, allowed))}, got {value!r}.")


def _true_or_false(field: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise InputError(f"`{field}` must be true or false, got {value!r}.")
