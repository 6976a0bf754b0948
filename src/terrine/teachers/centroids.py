"""Teachers that know the mean direction of each class they have seen: a handful of rows is enough on good features.

Everything is whole numbers: unit rows are rounded to multiples of 2^-11, products of two such rows then sum exactly in
float32 whatever the order, and a vote is the same on every machine, in every block.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from terrine import _validate
from terrine._models import dump_arrays, load_arrays
from terrine.errors import InputError, StoreError
from terrine.teachers.teacher import Share

Models = dict[str, NDArray[Any]]

_ONE = 1 << 11  # of a coordinate; a dot product is at most about 2^22, and float32 is exact to 2^24
_TEACHERS = 64  # voting at once
_ROWS = 2048  # voted on at once
_FEATURES = 1 << 16  # more of them, and rounding could carry a dot product past 2^24
_KINDS = {"means": (3, "int16"), "seen": (2, "uint8"), "key": (1, "uint64")}  # axes and dtype


@dataclass(frozen=True, kw_only=True)
class CentroidTeacher:
    """Votes for the class whose mean direction is nearest, by the cosine, among the classes in its share.

    Attributes:
        similarity: a public constant. Where even the nearest mean has a smaller cosine, the row looks like nothing in
            this share, which lacks some classes if it is small. The vote is then drawn among the classes that are not
            in the share (all, if none is missing) by a hash of (seed, teacher's id, row): teachers that do not know
            vote apart, not for a look-alike. -1 turns this off. The default is for spectral features.
        chunk: teachers that one worker teaches before it reports.

    Rows are features of any shape, as `terrine.features` makes them; they are scaled to length 1. A teacher is a
    function of its share, (seed, id) and ``similarity``. A share without records votes for class 0.
    """

    similarity: float = 0.35
    chunk: int = 500
    suffix = ".safetensors"

    def __post_init__(self) -> None:
        if not -1 <= _validate.number("similarity", self.similarity) <= 1:
            raise InputError(f"similarity is a cosine and must be from -1 to 1, got {self.similarity}.")
        _validate.integer("chunk", self.chunk, at_least=1)

    def settings(self) -> dict[str, Any]:
        """What decides what a teacher becomes, for a store's manifest."""
        return {"teacher": type(self).__name__, "similarity": float(self.similarity)}

    def fit(
        self,
        shares: Sequence[Share],
        *,
        ids: Sequence[int],
        n_classes: int,
        seed: int,
        progress: Callable[[float], object] | None = None,
    ) -> Models:
        """Mean directions, which classes were seen, and the key of the hash; the teachers on the first axis."""
        width = int(np.prod(np.asarray(shares[0][0]).shape[1:]))
        models: Models = {
            "means": np.zeros((len(shares), n_classes, width), dtype=np.int16),
            "seen": np.zeros((len(shares), n_classes), dtype=np.uint8),
            "key": np.array([_key(seed, k) for k in ids], dtype=np.uint64),
        }
        for k, (X, y) in enumerate(shares):
            if len(y) == 0:
                continue
            sums = np.zeros((n_classes, width), dtype=np.int64)
            np.add.at(sums, y, _whole(X).astype(np.int64))
            models["means"][k] = _rounded(sums)
            models["seen"][k, y] = 1
            if progress is not None and k % 100 == 0:
                progress(k / len(shares))
        return models

    def predict(self, models: Models, X: NDArray[Any], *, watched: bool = True) -> NDArray[np.int16]:
        """(n_models, n_rows) class indices, in blocks of teachers and rows that bound memory."""
        rows = _whole(X)
        means = models["means"]
        if rows.shape[1] != means.shape[2]:
            raise InputError(
                f"X must have rows of {means.shape[2]} features, as the teachers were taught on, got {rows.shape[1]}."
            )
        hashes = np.array([_hash(row) for row in rows.astype(np.int16)], dtype=np.uint64)
        votes = np.empty((len(means), len(rows)), dtype=np.int16)
        for first in range(0, len(means), _TEACHERS):
            some = slice(first, first + _TEACHERS)
            few = {name: array[some] for name, array in models.items()}
            for start in range(0, len(rows), _ROWS):
                block = slice(start, start + _ROWS)
                votes[some, block] = self._votes(few, rows[block], hashes[block])
        return votes

    def _votes(self, models: Models, rows: NDArray[np.float32], hashes: NDArray[np.uint64]) -> NDArray[np.int16]:
        seen = models["seen"].astype(bool)
        n_classes = seen.shape[1]
        best = np.full((len(seen), len(rows)), -np.inf, dtype=np.float32)
        votes = np.zeros(best.shape, dtype=np.int16)
        for c in range(n_classes):
            scores = models["means"][:, c].astype(np.float32) @ rows.T
            scores[~seen[:, c]] = -np.inf
            np.copyto(votes, np.int16(c), where=scores > best)
            np.maximum(best, scores, out=best)
        unsure = best < np.float32(self.similarity * _ONE**2)
        unsure[~seen.any(axis=1)] = False  # an empty share: class 0
        candidates = seen.argsort(axis=1, kind="stable").astype(np.int16)  # the unseen first
        unseen = n_classes - seen.sum(axis=1)
        n_candidates = np.where(unseen > 0, unseen, n_classes).astype(np.uint64)
        drawn = _mixed(models["key"][:, None] ^ hashes) >> np.uint64(32)
        place = (drawn * n_candidates[:, None]) >> np.uint64(32)  # uniform below n_candidates
        place += np.arange(0, candidates.size, n_classes, dtype=np.uint64)[:, None]
        np.copyto(votes, candidates.ravel().take(place.astype(np.int64)), where=unsure)
        return votes

    def dumps(self, models: Models) -> bytes:
        """A chunk's file: plain arrays."""
        return dump_arrays(models)

    def loads(self, data: bytes) -> Models:
        """The models again; nothing in the file is executed."""
        models = load_arrays(data, what="means")
        fits = {name: (array.ndim, str(array.dtype)) for name, array in models.items()} == _KINDS
        if not fits or models["means"].shape[:2] != models["seen"].shape or len(models["key"]) != len(models["seen"]):
            raise StoreError("This file does not hold the means of centroid teachers. Delete it and teach again.")
        return models


def _whole(X: NDArray[Any]) -> NDArray[np.float32]:
    """Rows scaled to length 1, as whole multiples of 2^-11."""
    X = np.asarray(X)
    flat = X.reshape(len(X), -1)
    if flat.dtype.kind not in "buif":
        raise InputError(f"Rows must be real numbers, got dtype {flat.dtype}.")
    if flat.shape[1] > _FEATURES:
        raise InputError(f"Rows must have at most {_FEATURES} features, got {flat.shape[1]}.")
    return _rounded(flat).astype(np.float32)


def _rounded(rows: NDArray[Any]) -> NDArray[np.float64]:
    rows = rows.astype(np.float64, order="C")  # rows are summed in one order, whatever their layout
    lengths = np.sqrt(np.square(rows).sum(axis=1, keepdims=True))
    return np.asarray(np.rint(rows / np.where(lengths > 0, lengths, 1) * _ONE))


def _key(seed: int, k: int) -> np.uint64:
    return np.uint64(np.random.SeedSequence([seed, int(k)]).generate_state(1, np.uint64)[0])


def _hash(row: NDArray[np.int16]) -> int:
    return int.from_bytes(hashlib.blake2b(row.tobytes(), digest_size=8).digest(), "little")


def _mixed(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """splitmix64's finalizer."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))
