"""A schema: what the columns of a table are, by name. All of it is public."""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
import json
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from terrine._toml import toml_fault, toml_key, toml_value
from terrine.errors import DataError, InputError
from terrine.schema.kinds import KINDS, Kind, Number, listed_names
from terrine.schema.tables import Table

MISSING = ("", "-", "--", "?", "n/a", "na", "nan", "nat", "none", "null", "<na>", "#n/a", ".")
_WIDTH = 110  # a longer list has a line for each value
_NAMED = 10  # columns that one message names


@dataclass(frozen=True, kw_only=True)
class Schema:
    """Columns by name and kind, the label and its classes, and the unit: whom a row belongs to.

    Attributes:
        columns: the features, in the order in which they are encoded; files may have any order.
        label, classes: the label's column, and the public list of its values.
        unit: the column that says whom a row belongs to.
        ignore: columns that files may have and nothing reads.
        missing: how a missing value is written, in any case. A value that a column lists is never missing.
        notes: why a draft decided as it did, by column; "[schema]" is about the whole, "[classes]" about a key.
            They are comments in TOML, and nothing depends on them.

    Examples:
        >>> schema = Schema(columns={"age": Number(low=0, high=100)}, label="ill", classes=("no", "yes"))
        >>> Schema.from_toml(schema.to_toml()) == schema
        True
    """

    columns: Mapping[str, Kind]
    label: str | None = None
    classes: tuple[str, ...] = ()
    unit: str | None = None
    ignore: tuple[str, ...] = ()
    missing: tuple[str, ...] = MISSING
    notes: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        for name in ("classes", "ignore", "missing"):
            object.__setattr__(self, name, _texts(name, getattr(self, name)))
        for name in ("columns", "notes"):
            object.__setattr__(self, name, dict(getattr(self, name)))
        object.__setattr__(self, "missing", tuple(dict.fromkeys(one.strip().casefold() for one in self.missing)))
        if not self.columns:
            raise InputError("A schema needs at least one column.")
        for name, kind in self.columns.items():
            if not isinstance(name, str) or not isinstance(kind, Kind):
                known = ", ".join(one.__name__ for one in KINDS.values())
                raise InputError(f"Column {name!r} must be one of {known}.")
        roles = [*self.columns, *self.ignore, *(one for one in (self.label, self.unit) if one is not None)]
        if len(set(roles)) != len(roles):
            twice = next(name for name in roles if roles.count(name) > 1)
            raise InputError(f"Column {twice!r} stands twice in the schema: as a column, label, unit or in `ignore`.")
        if (self.label is None) != (not self.classes):
            raise InputError("`label` and `classes` belong together: give both, or neither.")
        if self.label is not None:
            listed_names("classes", self.classes, at_least=2)

    @property
    def digest(self) -> str:
        """SHA-256 of all that the schema says, notes left out."""
        return hashlib.sha256(json.dumps(self.to_dict(), sort_keys=False).encode()).hexdigest()

    def match(
        self, table: Table, *, role: str, need_label: bool = False, need_unit: bool = False, advice: str | None = None
    ) -> Table:
        """The table's columns by name, in the schema's order; label and unit after them, where it has them.

        Names are compared before any cell is read. A name may be quoted in a refusal: headers are public. Where most
        of the schema's names are not there, the first line may be a private row, and is not quoted.

        Args:
            role: what the table is called in a refusal, such as "public.csv".
            need_label, need_unit: refuse a table without the column.
            advice: what to do about a refusal, for those who cannot change the schema.
        """
        wanted = [*self.columns]
        for column, needed, what in ((self.label, need_label, "label"), (self.unit, need_unit, "unit")):
            if column is not None and (needed or column in table.names):
                wanted.append(column)
            elif column is None and needed:
                raise InputError(f"The schema has no {what}: add `{what}` to it.")
        known = {*wanted, *self.ignore}
        if any("\ufffd" in name for name in table.names if name not in known):
            raise DataError(
                f'{role}: the names of its columns have bytes that are not UTF-8. Save it as "CSV UTF-8", as Excel '
                "calls it, or convert it: iconv -f cp1252 -t utf-8"
            )
        absent = [name for name in wanted if name not in table.names]
        extra = [name for name in table.names if name not in known]
        if 2 * len(absent) > len(wanted):
            raise DataError(
                f"{role}: most of the schema's columns are not there ({_listed(absent)}). "
                "Does the file start with a line of column names?"
            )
        if absent or extra:
            raise DataError(f"{role}: {_difference(absent, extra, advice)}")
        commas = [name for name, kind in self.columns.items() if isinstance(kind, Number) and kind.decimal == ","]
        return table.select(wanted, commas=commas)

    def with_roles(self, *, label: str | None, classes: tuple[str, ...], unit: str | None) -> Schema:
        """The same columns, told which others tables may have: a label and a unit that the schema did not name.

        Where it names another label or unit, these go to ``ignore``, since nothing reads them from a table.
        """
        known = {*self.columns, *self.ignore, self.label, self.unit}
        label, unit = (None if name in known else name for name in (label, unit))
        if label is not None and self.label is None and not any(name != name.strip() for name in classes):
            found = replace(self, label=label, classes=classes)
        else:
            found = self if label is None else replace(self, ignore=(*self.ignore, label))
        if unit in (None, label):
            return found
        return replace(found, unit=unit) if self.unit is None else replace(found, ignore=(*found.ignore, unit))

    def to_dict(self) -> dict[str, Any]:
        """The schema as plain values, for JSON."""
        found: dict[str, Any] = {}
        if self.label is not None:
            found |= {"label": self.label, "classes": list(self.classes)}
        if self.unit is not None:
            found["unit"] = self.unit
        found |= {"missing": list(self.missing), "ignore": list(self.ignore)}
        found["columns"] = {name: _kind_dict(kind) for name, kind in self.columns.items()}
        return found

    @classmethod
    def from_dict(cls, given: Any) -> Schema:
        """The schema that `to_dict` wrote, or that was written by hand."""
        if not isinstance(given, dict):
            raise InputError("A schema must be a table with `columns`.")
        known = [one.name for one in fields(cls) if one.name != "notes"]
        _refuse_unknown("the schema", given, known)
        columns = given.get("columns")
        if not isinstance(columns, dict) or not columns:
            raise InputError("The schema has no table `columns`, or an empty one.")
        for name in ("label", "unit"):
            if not isinstance(given.get(name, ""), str):
                raise InputError(f'`{name}` must be the name of a column, such as {name} = "{name}".')
        return cls(**{**given, "columns": {name: _kind(name, value) for name, value in columns.items()}})

    def to_json(self) -> str:
        """As an encoder stores it; `from_json` reads it."""
        return json.dumps(self.to_dict(), indent=1, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Schema:
        """What `to_json` returned; a faulty text is refused, and the fault named."""
        try:
            given = json.loads(text)
        except ValueError as error:
            raise InputError(f"The schema is not JSON: {error}.") from None
        return cls.from_dict(given)

    def to_toml(self, *, comments: bool = True) -> str:
        """The schema as TOML, with its notes as comments."""
        given, notes = self.to_dict(), self.notes if comments else {}
        lines = [_comment(line) for line in notes.get("[schema]", "").splitlines()]
        columns = given.pop("columns")
        for key, value in given.items():
            if key == "ignore" and any(name in notes for name in value):
                lines.append("ignore = [")
                lines += [f"    {toml_value(name)}, {_comment(notes.get(name, 'not used'))}" for name in value]
                lines.append("]")
                continue
            if f"[{key}]" in notes:
                lines.append(_comment(notes[f"[{key}]"]))
            lines.append(f"{key} = {_list_value(value)}")
        lines += ["", "[columns]"]
        for name, kind in columns.items():
            if name in notes:
                lines.append(_comment(notes[name]))
            usual = _USUAL[kind["kind"]]
            said = {key: value for key, value in kind.items() if key not in usual or usual[key] != value}
            inside = ", ".join(f"{key} = {_list_value(value)}" for key, value in said.items())
            lines.append(f"{toml_key(name)} = {{ {inside} }}")
        return "\n".join(lines).strip() + "\n"

    @classmethod
    def from_toml(cls, text: str) -> Schema:
        """The text of a schema.toml; a faulty one is refused, and the fault's place named."""
        try:
            given = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise InputError(f"The schema is not TOML: {toml_fault(text, error)}") from None
        return cls.from_dict(given)

    @classmethod
    def from_file(cls, path: str | Path) -> Schema:
        """The schema of a TOML file; a refusal names the file."""
        path = Path(path)
        try:
            return cls.from_toml(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise InputError(
                f"{path}: there is no such file. Draft one with: terrine schema public.csv > {path.name}"
            ) from None
        except (InputError, UnicodeDecodeError) as error:
            raise InputError(f"{path.name}: {error}") from None


def _kind_dict(kind: Kind) -> dict[str, Any]:
    """All fields of a kind, under the kind's name."""
    name = next(name for name, one in KINDS.items() if one is type(kind))
    given: dict[str, Any] = asdict(kind)
    given = {key: list(value) if isinstance(value, tuple) else value for key, value in given.items()}
    if isinstance(kind, Number):
        for bound in ("low", "high"):
            given[bound] = int(given[bound]) if given[bound].is_integer() else given[bound]
    return {"kind": name, **given}


def _kind(name: str, given: Any) -> Kind:
    where = f"column {name!r}"
    if not isinstance(given, dict) or given.get("kind") not in KINDS:
        raise InputError(f"{where}: `kind` must be one of {', '.join(KINDS)}.")
    kind = KINDS[given["kind"]]
    rest = {key: value for key, value in given.items() if key != "kind"}
    _refuse_unknown(where, rest, [one.name for one in fields(kind)])
    try:
        return kind(**rest)
    except TypeError:  # a field without a default is not there
        needed = [one.name for one in fields(kind) if one.name not in rest and one.name in ("low", "high", "values")]
        raise InputError(f"{where}: a {given['kind']} needs `{'` and `'.join(needed)}`.") from None
    except InputError as error:
        raise InputError(f"{where}: {error}") from None


def _refuse_unknown(where: str, given: Mapping[str, Any], known: list[str]) -> None:
    for key in given:
        if key not in known:
            raise InputError(f"{where}: there is no key `{key}`{_meant(key, known)}. Known keys: {', '.join(known)}.")


def _texts(name: str, values: Any) -> tuple[str, ...]:
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise InputError(f'`{name}` must be a list of texts, such as ["a", "b"].')
    found = tuple(values)
    for value in found:
        if not isinstance(value, str):
            raise InputError(f'`{name}` must hold texts alone: write "{value}" for {value!r}.')
    return found


def _difference(absent: list[str], extra: list[str], advice: str | None) -> str:
    """What a table's columns lack and have too many of, and what to do, in one line."""
    parts, others, left = [], [], list(extra)
    for name in absent:
        close = nearest(name, left)
        if close is None:
            others.append(name)
            continue
        left.remove(close)
        parts.append(f"there is no column {_quoted(name)}, but {_quoted(close)} looks like it")
    if others:
        parts.append(f"missing: {_listed(others)}")
    if left:
        parts.append(f"not in the schema: {_listed(left)}")
    if advice is None:
        advice = "Rename or add columns in the file, or change the schema"
        advice += " (columns that nobody needs go to `ignore`)" if left else ""
    return f"{'; '.join(parts)}. {advice}."


def nearest(name: str, among: Iterable[str]) -> str | None:
    """The nearest of some names, whatever their case."""
    folded = {one.casefold(): one for one in among}
    found = difflib.get_close_matches(name.casefold(), folded, n=1, cutoff=0.7)
    return folded[found[0]] if found else None


def _meant(key: str, known: list[str]) -> str:
    close = nearest(key, known)
    return "" if close is None else f"; did you mean `{close}`?"


def _quoted(name: str) -> str:
    return json.dumps(name[:60], ensure_ascii=False)


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(map(_quoted, names[:_NAMED])) + more


def _comment(note: str) -> str:
    return "# " + "".join(one if one.isprintable() else "?" for one in " ".join(note.split()))


def _list_value(value: Any) -> str:
    """A value on one line, or a list that would be too long for one on several."""
    line = toml_value(value)
    if not isinstance(value, list) or len(line) <= _WIDTH:
        return line
    lines = [""]
    for item in map(toml_value, value):
        if lines[-1] and len(lines[-1]) + len(item) > _WIDTH:
            lines.append("")
        lines[-1] += f"{' ' if lines[-1] else '    '}{item},"
    return "[\n" + "\n".join(lines) + "\n]"


# What a file need not say: the fields that have a default, but for blanks, which a reader should see.
_USUAL: dict[str, dict[str, Any]] = {
    name: {
        one.name: list(one.default) if isinstance(one.default, tuple) else one.default
        for one in fields(kind)
        if one.default is not dataclasses.MISSING and one.name != "blanks"
    }
    for name, kind in KINDS.items()
}
