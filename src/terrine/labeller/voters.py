"""Whom a Labeller asks, and when two public rows are one question."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from terrine.datasets.data import PublicData
from terrine.datasets.rows import RowKind, Rows, as_rows, kind_of, matched, row_digests
from terrine.errors import InputError, SecretError
from terrine.votes import Votes

_LARGEST = 2**53  # a double holds it and every whole number below


class Voters(Protocol):
    """What a Labeller asks: a TeacherEnsemble, or KeptVotes. All but the votes is public.

    More attributes are read where there are any. ``relation``: between which neighbors they hold. ``identity``: a
    public word that is theirs alone, as `TeacherEnsemble.identity`; answers are known by it. Without one they are known
    by the names of the classes and the number of teachers only. ``row_kind``: what rows are, if they are no arrays.
    """

    @property
    def n_teachers(self) -> int: ...
    @property
    def classes(self) -> Sequence[str]: ...
    @property
    def row_shape(self) -> tuple[int, ...]: ...
    def vote(self, X: Any) -> Votes:
        """How many teachers choose each class, for each row."""


class KeptVotes:
    """Votes that were cast before, found again by their rows. Secret: it prints public numbers only.

    Args:
        X: (n_queries, ...) the public rows that were voted on.
        votes: their votes, in the same order.
        classes: public names (default: "0", "1", ...).
    """

    def __init__(self, X: PublicData | ArrayLike, votes: Votes, *, classes: Sequence[str] | None = None) -> None:
        rows = public_rows(X)
        if not isinstance(votes, Votes):
            raise InputError(f"votes must be a Votes object, got {type(votes).__name__}.")
        if len(rows) != len(votes):
            raise InputError(f"There are {len(rows)} rows, and votes on {len(votes)}.")
        self.classes = tuple(map(str, range(votes.n_classes) if classes is None else classes))
        if len(self.classes) != votes.n_classes:
            raise InputError(f"The votes are on {votes.n_classes} classes, and classes names {len(self.classes)}.")
        self.n_teachers = votes.n_teachers
        self.row_kind = kind_of(rows)
        self.row_shape = self.row_kind.shape
        self.identity = votes.voters
        self._votes = votes
        self._where: dict[bytes, int] = {}
        for row, digest in enumerate(row_digests(rows)):
            self._where.setdefault(digest, row)

    def find(self, X: Rows) -> list[int]:
        """Where these rows are; one that is not among them is refused."""
        found = [self._where.get(digest) for digest in row_digests(X)]
        if None in found:
            raise InputError(
                f"Row {found.index(None)} was never voted on. These votes are kept: only the rows they "
                "were cast on can be asked."
            )
        return [row for row in found if row is not None]

    def vote(self, X: Rows) -> Votes:
        """The votes on these rows. Secret."""
        return Votes(self._votes.counts[self.find(X)], n_teachers=self.n_teachers)

    def __repr__(self) -> str:
        return f"<KeptVotes: {len(self._votes)} queries, {self.n_teachers} teachers; counts are secret>"

    def __reduce_ex__(self, *_: Any) -> NoReturn:
        raise SecretError("KeptVotes are secret and cannot be pickled or copied. Use Votes.save.")


def public_rows(X: PublicData | ArrayLike) -> Rows:
    rows: Rows = X.X if isinstance(X, PublicData) else as_rows("X", X)
    if not isinstance(rows, np.ndarray):
        return rows
    if rows.dtype.kind == "f" and rows.dtype.itemsize > 8:
        raise InputError(f"Rows must be floats of at most 64 bits, got {rows.dtype}.")
    if rows.dtype.kind in "iu" and rows.dtype.itemsize == 8:
        large = (rows > _LARGEST) | (rows < -_LARGEST)
        if large.any():
            row = int(large.reshape(len(rows), -1).any(axis=1).argmax())
            raise InputError(
                f"Row {row} holds a whole number above 2^53, which a 64-bit float cannot hold exactly. Scale it down."
            )
    return rows


def repeats(rows: Rows) -> NDArray[np.bool_]:
    """(n_rows,) whether a row has the values of an earlier one: the same question, which is asked and paid for once."""
    first: dict[bytes, int] = {}
    return np.array([first.setdefault(digest, k) != k for k, digest in enumerate(row_digests(rows))], dtype=np.bool_)


def rows_for(voters: Voters, X: PublicData | ArrayLike) -> Rows:
    """Rows as the voters take them, a table's columns matched by name; refused before anything is charged."""
    rows = public_rows(X)
    kind = getattr(voters, "row_kind", None) or RowKind(shape=tuple(voters.row_shape))
    if kind.kind == "array" and rows.shape[1:] != kind.shape:
        raise InputError(f"X must have rows of shape {voters.row_shape}, as the teachers' rows, got {rows.shape[1:]}.")
    return matched(rows, kind, name="X", like="the teachers' rows")
