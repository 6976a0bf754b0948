"""Rows as numbers: a public function of one row, by a schema and by weights learned from public rows alone."""

from __future__ import annotations

import io
import math
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from terrine._blocks import blocks
from terrine.errors import DataError, InputError
from terrine.schema import texts
from terrine.schema.cells import MISSING, Decoded, decode, interned, is_missing
from terrine.schema.kinds import Category, Date, Flag, Kind, Number, Ordered, Text
from terrine.schema.schema import Schema
from terrine.schema.tables import Table

FORMAT = "terrine.encoder/1"
SCHEMA_FILE, WEIGHTS_FILE = "schema.toml", "encoder.npz"
OTHER = "other"

_DAY = 86_400.0
_TYPICAL = "typical"
_BLOCK = 4096  # numbers whose logarithm is taken together: one shape, so that it never depends on their number
_TEXTS = 16_384  # different texts whose numbers are in memory at one time


@dataclass(frozen=True, eq=False, repr=False)
class Encoder:
    """A function from a row of a table to finite numbers. Never fit it on private rows: it reaches every teacher.

    Examples:
        >>> from terrine.schema import draft, read_table
        >>> public = read_table({"age": [31, 47, 29, 60], "job": ["nurse", "baker", "nurse", "baker"]})
        >>> encoder = Encoder.fit(draft(public), public)
        >>> encoder.names
        ('age', 'job = baker', 'job = nurse', 'job = other')
    """

    schema: Schema
    _arrays: Mapping[str, NDArray[Any]]

    @classmethod
    def fit(cls, schema: Schema, public: Table) -> Encoder:
        """Learn typical values and the weights of texts from public rows."""
        table = schema.match(public, role="the public table")
        if not len(table):
            raise DataError("The public table has no rows to learn from.")
        typical = np.full(len(schema.columns), 0.5)
        arrays: dict[str, NDArray[Any]] = {}
        for k, (name, kind) in enumerate(schema.columns.items()):
            column = table.column(name)
            if isinstance(kind, Text):
                cells, rows = interned(column)
                missing = frozenset(schema.missing)
                there = [k for k in rows.tolist() if not is_missing(cells[k], missing)]
                weights = texts.learn([cells[k] for k in there], kind)
                arrays |= {f"{k}.{part}": array for part, array in weights.items()}
            elif not isinstance(kind, (Category, Flag)):
                found = decode(column, kind, schema.missing)
                if found.known.any():
                    typical[k] = np.median(_scaled(found, kind)[found.known])
        return cls(schema, {_TYPICAL: typical, **arrays})

    @property
    def names(self) -> tuple[str, ...]:
        """The columns of what `transform` returns."""
        return tuple(name for k, column in enumerate(self.schema.columns) for name in self._names(k, column))

    @property
    def n_features(self) -> int:
        return len(self.names)

    def transform(self, table: Table, *, role: str = "the table") -> NDArray[np.float32]:
        """(n_rows, n_features), all finite, whatever the cells hold. A row's numbers depend on that row alone."""
        table = self.schema.match(table, role=role)
        found = np.zeros((len(table), self.n_features), dtype=np.float32)
        start = 0
        for k, (name, kind) in enumerate(self.schema.columns.items()):
            width = len(self._names(k, name))
            self._fill(found[:, start : start + width], k, kind, table.column(name))
            start += width
        return found

    def files(self) -> dict[str, bytes]:
        """Contents by file name; `from_files` makes the same encoder of them, bit by bit."""
        file = io.BytesIO()
        about = {"format": np.array(FORMAT), "schema": np.array(self.schema.digest)}
        arrays: dict[str, Any] = {**about, **self._arrays}
        np.savez_compressed(file, **arrays)
        return {SCHEMA_FILE: self.schema.to_toml(comments=False).encode(), WEIGHTS_FILE: file.getvalue()}

    @classmethod
    def from_files(cls, files: Mapping[str, bytes]) -> Encoder:
        """An encoder from what `files` returned; nothing in the files is executed."""
        for name in (SCHEMA_FILE, WEIGHTS_FILE):
            if name not in files:
                raise DataError(f"The encoder's file {name} is missing.")
        try:
            schema = Schema.from_toml(files[SCHEMA_FILE].decode())
        except (InputError, UnicodeDecodeError) as error:
            raise DataError(f"{SCHEMA_FILE}: {error}") from None
        try:
            with np.load(io.BytesIO(files[WEIGHTS_FILE]), allow_pickle=False) as found:
                arrays = {name: found[name] for name in found.files}
            format_, digest = str(arrays.pop("format")), str(arrays.pop("schema"))
        except (OSError, ValueError, KeyError, EOFError, TypeError, zipfile.BadZipFile):
            raise DataError(f"{WEIGHTS_FILE}: the file is damaged, or was not written by an encoder.") from None
        if format_ != FORMAT:
            raise DataError(f"{WEIGHTS_FILE}: its format is not {FORMAT}; a newer version of terrine may read it.")
        if digest != schema.digest:
            raise DataError(f"{SCHEMA_FILE} was changed after {WEIGHTS_FILE} was written: fit the encoder again.")
        encoder = cls(schema, arrays)
        encoder._check_shapes()
        return encoder

    def __repr__(self) -> str:
        return f"<Encoder: {len(self.schema.columns)} columns -> {self.n_features} numbers>"

    def _weights(self, k: int) -> texts.Weights:
        return {part: self._arrays[f"{k}.{part}"] for part in ("buckets", "idf", "components")}

    def _check_shapes(self) -> None:
        try:
            fits = self._arrays[_TYPICAL].shape == (len(self.schema.columns),)
            fits &= bool(np.isfinite(self._arrays[_TYPICAL]).all())
            for k, kind in enumerate(self.schema.columns.values()):
                if isinstance(kind, Text):
                    weights = self._weights(k)
                    buckets, idf, components = (weights[part] for part in ("buckets", "idf", "components"))
                    fits &= buckets.dtype == np.int64 and buckets.shape == idf.shape == components.shape[:1]
                    fits &= components.ndim == 2 and bool(np.isfinite(components).all() and np.isfinite(idf).all())
                    fits &= bool(((buckets >= 0) & (buckets < 2 * texts.BUCKETS)).all())
        except (KeyError, TypeError):
            fits = False
        if not fits:
            raise DataError(f"{WEIGHTS_FILE}: its arrays do not fit the schema.")

    def _names(self, k: int, column: str) -> list[str]:
        kind = self.schema.columns[column]
        match kind:
            case Number() | Ordered() | Flag():
                found = [column]
            case Category():
                found = [f"{column} = {value}" for value in _with_other(kind)]
            case Date(cycles=cycles):
                found = [column, *(f"{column}, {cycle} ({part})" for cycle in cycles for part in ("sin", "cos"))]
            case Text():
                found = [f"{column} {i + 1}" for i in range(self._weights(k)["components"].shape[1])]
        return [*found, f"{column} is missing"] if kind.blanks else found

    def _fill(self, out: NDArray[np.float32], k: int, kind: Kind, column: NDArray[Any]) -> None:
        """Write a column's numbers to its part of the result."""
        found = decode(column, kind, self.schema.missing)
        unknown = ~found.known
        match kind:
            case Number() | Ordered():
                out[:, 0] = np.where(unknown, self._arrays[_TYPICAL][k], _scaled(found, kind))
            case Flag():
                out[:, 0] = np.where(unknown, 0.5, found.values)
            case Category():
                listed = _with_other(kind)
                gone = len(listed) if kind.blanks else listed.index(OTHER)
                absent = np.where(found.state == MISSING, gone, listed.index(OTHER))
                place = np.where(found.known, found.values, absent).astype(np.int64)
                out[np.arange(len(out)), place] = 1
            case Date(cycles=cycles):
                out[:, 0] = np.where(unknown, self._arrays[_TYPICAL][k], _scaled(found, kind))
                for i, cycle in enumerate(cycles):
                    step, steps = _turn(found.values, cycle)
                    circle = 2 * math.pi * np.arange(steps) / steps
                    out[:, 1 + 2 * i] = np.where(unknown, 0.5, ((1 + np.sin(circle)) / 2)[step])
                    out[:, 2 + 2 * i] = np.where(unknown, 0.5, ((1 + np.cos(circle)) / 2)[step])
            case Text():
                weights = self._weights(k)
                width = weights["components"].shape[1]
                cells, rows = interned(column)
                missing = frozenset(self.schema.missing)
                kept = ["" if is_missing(cell, missing) else cell for cell in cells]
                for start in range(0, len(kept), _TEXTS):
                    here = (rows >= start) & (rows < start + _TEXTS)
                    out[here, :width] = texts.encode(kept[start : start + _TEXTS], kind, weights)[rows[here] - start]
        if kind.blanks and not isinstance(kind, Category):
            out[:, -1] = unknown


def _with_other(kind: Category) -> list[str]:
    return [*kind.values] if OTHER in kind.values else [*kind.values, OTHER]


def _scaled(found: Decoded, kind: Kind) -> NDArray[np.float64]:
    """Between 0 and 1."""
    values = found.values
    match kind:
        case Number(low=low, high=high, scale="log"):
            logs = np.empty_like(values)
            for at, block in blocks(np.maximum(values - low, 0), _BLOCK):
                logs[at] = np.log1p(block)[: at.stop - at.start]
            return logs / math.log1p(high - low)
        case Number(low=low, high=high):
            return (values - low) / (high - low)
        case Date():
            low, high = kind.bounds
            return (values - low) / (high - low)
        case Ordered(values=listed):
            return values / (len(listed) - 1)
        case _:
            return values


def _turn(seconds: NDArray[np.float64], cycle: str) -> tuple[NDArray[np.int64], int]:
    """How far round its circle each moment is, and in how many steps: 12 months, 7 weekdays, 1,440 minutes."""
    days = np.floor(seconds / _DAY)
    match cycle:
        case "month":
            months = days.astype("datetime64[D]").astype("datetime64[M]").astype(np.int64)
            return months % 12, 12
        case "weekday":
            return (days.astype(np.int64) + 3) % 7, 7  # 1970 began on a Thursday; Monday is 0
        case _:
            return ((seconds - days * _DAY) // 60).astype(np.int64), 1440
