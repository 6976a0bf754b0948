"""Teachers' votes: the last room that holds raw counts."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from terrine import _validate
from terrine._files import write_atomically
from terrine._optional import require
from terrine.errors import InputError, SecretError, VotesError
from terrine.relations import Relation

SCHEMA = "terrine.votes/1"
BALLOTS_SCHEMA = "terrine.ballots/2"


class Votes:
    """How many teachers voted for each class on each query. Secret: it prints its shape only.

    Args:
        counts: (n_queries, n_classes) whole numbers; every row sums to ``n_teachers``.
        n_teachers: every teacher votes on every query, so this is public and the same for all.

    Examples:
        >>> Votes([[3, 1], [0, 4]], n_teachers=4)
        <Votes: 2 queries x 2 classes, 4 teachers; counts are secret>
    """

    __slots__ = ("_counts", "_n_teachers", "queries", "relation", "voters")

    def __init__(self, counts: ArrayLike, *, n_teachers: int) -> None:
        whole = _whole_numbers(counts, what="counts")
        if whole.shape[1] < 2:
            raise VotesError(f"counts must have at least 2 classes (columns), got {whole.shape[1]}.")
        self._n_teachers = _validate.integer("n_teachers", n_teachers, at_least=1)
        sums = whole.sum(axis=1)
        wrong = sums != self.n_teachers
        if wrong.any():
            row = int(np.argmax(wrong))
            raise VotesError(f"Every row of counts must sum to {self.n_teachers} votes; row {row} sums to {sums[row]}.")
        whole.setflags(write=False)
        self._counts = whole
        self.queries: str | None = None  # of the ballots that they were tallied from, and so the next
        self.relation: Relation | None = None
        self.voters = ""  # whose votes, as `TeacherEnsemble.identity` says it: public

    @property
    def counts(self) -> NDArray[np.int64]:  # (n_queries, n_classes), read-only
        return self._counts.view()  # a view of what is not writeable cannot be made writeable

    @property
    def n_teachers(self) -> int:
        return self._n_teachers

    @property
    def n_classes(self) -> int:
        return int(self._counts.shape[1])

    def __len__(self) -> int:
        return int(self._counts.shape[0])

    def __getitem__(self, rows: slice) -> Votes:
        """A run of queries, as in ``votes[:640]``."""
        if not isinstance(rows, slice):
            raise InputError(f"Votes take a slice of queries, as in votes[:100], got {type(rows).__name__}.")
        some = Votes(self._counts[rows], n_teachers=self.n_teachers)
        some.voters = self.voters
        return some

    def __repr__(self) -> str:
        return f"<Votes: {len(self)} queries x {self.n_classes} classes, {self.n_teachers} teachers; counts are secret>"

    def __reduce_ex__(self, *_: Any) -> NoReturn:
        raise SecretError("Votes are secret and cannot be pickled or copied. Use Votes.save and Votes.load.")

    __getstate__ = __reduce_ex__

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        kind: Literal["histograms", "predictions"] = "histograms",
        n_classes: int | None = None,
    ) -> Votes:
        """Read votes from .npy, .npz, .csv or .parquet.

        Args:
            path: the file.
            kind: "histograms" (n_queries, n_classes), or "predictions" (n_teachers, n_queries) of class indices.
            n_classes: needed for predictions: the public number of classes.
        """
        path = Path(path)
        _validate.choice("kind", kind, ("histograms", "predictions"))
        try:
            table, n_teachers, voters = _read(path, "counts" if kind == "histograms" else "predictions")
            if kind == "predictions":
                return tally(table, n_classes=n_classes)
            whole = _whole_numbers(table, what="counts")
            if n_classes is not None and whole.shape[1] != n_classes:
                raise VotesError(f"The file has {whole.shape[1]} classes (columns), not {n_classes}.")
            votes = cls(whole, n_teachers=max(int(whole[0].sum()), 1) if n_teachers is None else n_teachers)
            votes.voters = voters
            return votes
        except VotesError as error:
            raise VotesError(f"{path.name}: {error}") from None

    def save(self, path: str | Path) -> None:
        """Write an .npz file that only its owner may read (mode 0600), whole or not at all."""
        path = Path(path)
        if path.suffix != ".npz":
            raise InputError(f"Votes are saved as .npz: give a file name that ends in .npz, got {path.name}.")
        arrays: dict[str, Any] = {"counts": self._counts, "n_teachers": self.n_teachers, "schema": SCHEMA}
        arrays |= {"voters": self.voters} if self.voters else {}
        write_atomically(path, lambda file: np.savez_compressed(file, **arrays), mode=0o600)


class Ballots:
    """What each teacher chose on each query: one owner's part of a vote. Secret: it prints its shape only.

    Args:
        choices: (n_teachers, n_queries) class indices.
        ids: (n_teachers,) the teachers' ids, distinct over all owners.
        n_classes: public.
        queries: what was asked, as a sha256 of the public rows: owners' ballots on other rows do not mix.
        relation: what neighboring data sets may differ in, as the owner's partition says; nor do those of others.
        voters: who they are, as `TeacherEnsemble.identity` says it, if that is known.

    Examples:
        >>> Ballots([[0, 1], [0, 0]], ids=[100, 101], n_classes=2, queries="0" * 64, relation=Relation.UNIT_ANY)
        <Ballots: 2 teachers from 100 to 101, 2 queries, 2 classes; choices are secret>
    """

    __slots__ = ("_choices", "ids", "n_classes", "queries", "relation", "voters")

    def __init__(
        self, choices: ArrayLike, *, ids: ArrayLike, n_classes: int, queries: str, relation: Relation, voters: str = ""
    ) -> None:
        self.n_classes = _validate.integer("n_classes", n_classes, at_least=2)
        self._choices = _class_indices(choices, n_classes=self.n_classes)
        found = np.asarray(ids)
        if found.dtype.kind not in "iu" or found.shape != (len(self._choices),) or (found < 0).any():
            raise VotesError(
                f"ids must hold a whole number of at least 0 for each of the {len(self._choices)} teachers."
            )
        if len(np.unique(found)) != len(found):
            raise VotesError("Two teachers have the same id. Give each its own.")
        self.ids = found.astype(np.int64)
        try:
            self.relation = Relation(relation)
        except InputError as error:
            raise VotesError(str(error)) from None
        self.queries, self.voters = str(queries), str(voters)

    @property
    def choices(self) -> NDArray[np.int64]:  # (n_teachers, n_queries)
        return self._choices.view()

    def __repr__(self) -> str:
        n_teachers, n_queries = self._choices.shape
        teachers = f"{n_teachers} teachers from {self.ids.min()} to {self.ids.max()}"
        return f"<Ballots: {teachers}, {n_queries} queries, {self.n_classes} classes; choices are secret>"

    def __reduce_ex__(self, *_: Any) -> NoReturn:
        raise SecretError("Ballots are secret and cannot be pickled or copied. Use Ballots.save and Ballots.load.")

    __getstate__ = __reduce_ex__

    def save(self, path: str | Path) -> None:
        """Write an .npz file that only its owner may read (mode 0600), whole or not at all."""
        path = Path(path)
        if path.suffix != ".npz":
            raise InputError(f"Ballots are saved as .npz: give a file name that ends in .npz, got {path.name}.")
        small = np.int16 if self.n_classes <= np.iinfo(np.int16).max else np.int64
        arrays: dict[str, Any] = {"choices": self._choices.astype(small), "ids": self.ids, "n_classes": self.n_classes}
        arrays |= {"queries": self.queries, "relation": self.relation, "schema": BALLOTS_SCHEMA}
        arrays |= {"voters": self.voters} if self.voters else {}
        write_atomically(path, lambda file: np.savez_compressed(file, **arrays), mode=0o600)

    @classmethod
    def load(cls, path: str | Path) -> Ballots:
        path = Path(path)
        if not path.is_file():
            raise VotesError(f"{path.name}: no such file. Give a file of ballots.")
        try:
            arrays = _load_arrays(path)
            if _validate.other_schema(arrays, BALLOTS_SCHEMA):
                raise VotesError(
                    f"this is not a file of schema {BALLOTS_SCHEMA}. Older files do not say between which neighbors "
                    "they hold: write the ballots again."
                )
            words = {"queries": str(arrays["queries"]), "voters": _voters(arrays)}
            relation, n_classes = Relation(str(arrays["relation"])), int(arrays["n_classes"])
            return cls(arrays["choices"], ids=arrays["ids"], n_classes=n_classes, relation=relation, **words)
        except (KeyError, TypeError, ValueError) as error:
            reason = str(error) if isinstance(error, InputError) else "the file is damaged, or does not hold ballots."
            raise VotesError(f"{path.name}: {reason}") from None


def tally(predictions: ArrayLike | Iterable[Ballots], *, n_classes: int | None = None) -> Votes:
    """Count teachers' predictions into Votes.

    Args:
        predictions: (n_teachers, n_queries) class indices; or the `Ballots` of several owners, on the same queries,
            between neighbors of the same relation, and with ids that no two of them share: a teacher counted twice
            would break the guarantee.
        n_classes: public; ballots bring their own.
    """
    if isinstance(predictions, (list, tuple)) and predictions and all(isinstance(b, Ballots) for b in predictions):
        return _merged(predictions, n_classes)
    if n_classes is None:
        raise VotesError("Predictions need n_classes, the public number of classes.")
    n_classes = _validate.integer("n_classes", n_classes, at_least=2)
    indices = _class_indices(predictions, n_classes=n_classes)  # type: ignore[arg-type]
    return Votes(_counted(indices, n_classes), n_teachers=len(indices))


def _merged(ballots: list[Ballots] | tuple[Ballots, ...], n_classes: int | None) -> Votes:
    first = ballots[0]
    if n_classes is not None and n_classes != first.n_classes:
        raise VotesError(f"The ballots have {first.n_classes} classes, not {n_classes}.")
    seen: set[int] = set()
    counts: Any = 0
    for one in ballots:
        if one.n_classes != first.n_classes or one.choices.shape[1] != first.choices.shape[1]:
            raise VotesError(
                "The ballots differ in their number of queries or classes. Every owner must vote on the same ones."
            )
        if one.queries != first.queries:
            raise VotesError("The ballots are on different public rows. Every owner must vote on the same ones.")
        if one.relation != first.relation:
            raise VotesError(
                f"The ballots are for different neighbors, {first.relation.sentence!r} and {one.relation.sentence!r}: "
                "no one guarantee covers both. Deal the shares of all owners in the same way."
            )
        if not seen.isdisjoint(one.ids.tolist()):
            twice = min(seen.intersection(one.ids.tolist()))
            raise VotesError(
                f"Teacher {twice} is in two ballots and would count twice. Every teacher needs an id of its own."
            )
        seen.update(one.ids.tolist())
        counts = counts + _counted(one.choices, one.n_classes)
    votes = Votes(counts, n_teachers=len(seen))
    votes.queries, votes.relation = first.queries, first.relation
    owners = sorted(one.voters for one in ballots)
    votes.voters = hashlib.sha256(" ".join(owners).encode()).hexdigest() if all(owners) else ""
    return votes


def _counted(choices: NDArray[np.int64], n_classes: int) -> NDArray[np.int64]:
    """(n_queries, n_classes) votes of (n_teachers, n_queries) class indices."""
    n_queries = choices.shape[1]
    counts = np.zeros(n_queries * n_classes, dtype=np.int64)
    offsets = np.arange(n_queries) * n_classes
    for teacher_votes in choices:
        counts[offsets + teacher_votes] += 1  # one index per query: no collisions within a teacher
    return counts.reshape(n_queries, n_classes)


def _class_indices(predictions: ArrayLike, *, n_classes: int) -> NDArray[np.int64]:
    indices = _whole_numbers(predictions, what="predictions")
    if indices.max() >= n_classes:
        teacher, query = np.unravel_index(int(np.argmax(indices >= n_classes)), indices.shape)
        raise VotesError(
            f"Predictions must be class indices from 0 to {n_classes - 1}; teacher {teacher}, query {query} has a "
            "larger one."
        )
    return indices


def _whole_numbers(values: ArrayLike, *, what: str) -> NDArray[np.int64]:
    """A copy as a non-empty two-dimensional int64 table; says where the first bad entry is, never what it is."""
    try:
        raw = np.asarray(values)
    except ValueError:
        raise VotesError(f"{what} must be a table with rows of one length.") from None
    if raw.ndim != 2:
        raise VotesError(f"{what} must be a table with two dimensions, got {raw.ndim}.")
    if raw.size == 0:
        raise VotesError(f"{what} must hold at least one query and one column, got shape {raw.shape}.")
    if raw.dtype.kind not in "iuf":
        raise VotesError(f"{what} must be whole numbers, got dtype {raw.dtype}.")
    if raw.dtype.kind == "f":
        raw = raw.astype(np.float64)
        _refuse_where(~np.isfinite(raw), "a value that is not finite (nan or inf)", what)
        _refuse_where(raw != np.floor(raw), "a fraction", what)
    _refuse_where(raw < 0, "a negative number", what)
    _refuse_where(raw > 2**31, "a number above 2^31", what)
    return raw.astype(np.int64)


def _refuse_where(bad: NDArray[np.bool_], found: str, what: str) -> None:
    if bad.any():
        row, column = np.unravel_index(int(np.argmax(bad)), bad.shape)
        raise VotesError(f"{what} must be whole numbers of at least 0: row {row}, column {column} holds {found}.")


def _read(path: Path, name: str) -> tuple[NDArray[Any], int | None, str]:
    """The table, and number and identity of the teachers where the file says them; ``name`` is an .npz's array's."""
    if not path.is_file():
        raise VotesError("no such file. Give a file of votes.")
    if path.stat().st_size == 0:
        raise VotesError("the file is empty.")
    match path.suffix.lower():
        case ".npy" | ".npz":
            return _read_numpy(path, name)
        case ".csv":
            return _read_csv(path), None, ""
        case ".parquet":
            return _read_parquet(path), None, ""
        case other:
            raise VotesError(
                f"votes are read from .npy, .npz, .csv or .parquet, not from {other or 'a file without an ending'}."
            )


def _read_numpy(path: Path, name: str) -> tuple[NDArray[Any], int | None, str]:
    arrays = _load_arrays(path)
    other = {"counts": "predictions", "predictions": "counts"}[name]
    chosen = name if name in arrays else next(iter(arrays)) if len(arrays) == 1 else None
    if chosen is None or chosen == other:
        raise VotesError(f"the file has no array named {name} (it has: {', '.join(arrays) or 'none'}).")
    if "schema" not in arrays:
        return arrays[chosen], None, ""
    if other_schema := _validate.other_schema(arrays, SCHEMA):
        raise VotesError(f"this is not a file of schema {SCHEMA} (it has {other_schema}).")
    return arrays[chosen], _teachers(arrays) if name == "counts" else None, _voters(arrays)


def _teachers(arrays: dict[str, NDArray[Any]]) -> int:
    given = arrays.get("n_teachers", np.zeros(0))
    if given.ndim or given.dtype.kind not in "iu" or given < 1:
        raise VotesError("n_teachers must be a whole number of at least 1.")
    return int(given)


def _voters(arrays: dict[str, NDArray[Any]]) -> str:
    given = arrays.get("voters", np.array(""))
    if given.ndim or given.dtype.kind != "U":
        raise VotesError("voters must be text.")
    return str(given)


def _load_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """What is in an .npy (under no name) or .npz file; pickled objects are refused."""
    try:
        with path.open("rb") as file:
            loaded = np.load(file, allow_pickle=False)
            return {"": loaded} if isinstance(loaded, np.ndarray) else {key: loaded[key] for key in loaded.files}
    except OSError:
        raise
    except Exception:  # numpy raises many types here
        raise VotesError(f"numpy cannot read this as a {path.suffix} file of plain numbers.") from None


def _read_csv(path: Path) -> NDArray[np.float64]:
    def number(cell: str) -> float | None:
        try:
            return None if "_" in cell else float(cell)
        except ValueError:
            return None

    width = None
    rows: list[list[float]] = []
    try:
        with path.open(encoding="utf-8-sig") as file:
            for line_number, line in enumerate(file, start=1):
                if not line.strip():
                    continue
                row = [number(cell) for cell in line.split(",")]
                width = width or len(row)
                if len(row) != width:
                    raise VotesError(f"line {line_number} has {len(row)} columns, and the lines before it {width}.")
                if line_number == 1 and not any(cell is not None for cell in row):  # a header
                    continue
                if any(cell is None for cell in row):
                    raise VotesError(f"line {line_number} holds text where a number should be.")
                rows.append([cell for cell in row if cell is not None])
    except UnicodeDecodeError:
        raise VotesError("this is not a text file in UTF-8.") from None
    if not rows:
        raise VotesError("the file has no row of votes.")
    return np.array(rows)


def _read_parquet(path: Path) -> NDArray[Any]:
    pyarrow = require("pyarrow", use="A .parquet file", extra="parquet")
    parquet = require("pyarrow.parquet", use="A .parquet file", extra="parquet")
    try:
        table = parquet.read_table(path)
    except (pyarrow.ArrowException, OSError):
        raise VotesError("pyarrow cannot read this as a Parquet file.") from None
    for name, column in zip(table.column_names, table.columns, strict=True):
        if column.null_count:
            raise VotesError(f"column {name!r} has {column.null_count} missing value(s).")
        if not (pyarrow.types.is_integer(column.type) or pyarrow.types.is_floating(column.type)):
            raise VotesError(f"column {name!r} must hold numbers, got {column.type}.")
    return np.column_stack([column.to_numpy() for column in table.columns]) if table.num_columns else np.empty((0, 0))
