"""Linear teachers that choose their own ridge by leaving out each row of their share in turn, thousands at once.

To tune so costs no privacy: a teacher looks at its own share alone. Shares of equally many rows are one stack of
matrices (`terrine._ridge`), and a teacher is the same whatever others are stacked beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from terrine import _validate
from terrine._blocks import blocks
from terrine._models import dump_arrays, load_arrays
from terrine._ridge import solve
from terrine.errors import InputError, StoreError
from terrine.teachers.estimators import _alone
from terrine.teachers.teacher import Share

Models = dict[str, NDArray[Any]]

_SPARE = 2.0  # standard errors: see RidgeTeacher
_NUMBERS = 1 << 22  # of a stack of shares in memory
_TEACHERS = 32  # voting at once
_ROWS = 1024  # voted on at once; blocks have one shape, so that a row's scores do not depend on the rows beside it
_KINDS = {"weights": (3, "float32"), "bias": (2, "float32"), "seen": (2, "uint8")}  # axes and dtype


@dataclass(frozen=True, kw_only=True)
class RidgeTeacher:
    """Ridge regression on one-hot classes, with the smallest ridge that is nearly as good as any on rows left out.

    Nearly: within two standard errors. A larger ridge makes a single teacher steadier and leans all of them the same
    way, toward the commonest class; votes average the unsteadiness out, and the leaning stays.

    Attributes:
        ridges: public, to choose from: each times the sum of squares of the share's rows about their mean, so that
            the choice does not depend on the unit that features are measured in.
        chunk: teachers that one worker teaches before it reports.

    Rows are features of any shape, on scales that can be compared: standardize them by public numbers, as
    ``[features] kind = "auto"`` does. A teacher is a function of its share and of ``ridges``. It votes for classes in
    its share only; a share without records votes for class 0.
    """

    ridges: tuple[float, ...] = (0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
    chunk: int = 250
    suffix = ".safetensors"

    def __post_init__(self) -> None:
        object.__setattr__(self, "ridges", tuple(sorted(self.ridges)))
        if not self.ridges:
            raise InputError("ridges must be at least one number above 0, got none.")
        for ridge in self.ridges:
            _validate.positive("ridges", ridge)
        _validate.integer("chunk", self.chunk, at_least=1)

    def settings(self) -> dict[str, Any]:
        """What decides what a teacher becomes, for a store's manifest."""
        return {"teacher": type(self).__name__, "ridges": [float(ridge) for ridge in self.ridges]}

    def fit(
        self,
        shares: Sequence[Share],
        *,
        ids: Sequence[int],
        n_classes: int,
        seed: int,
        progress: Callable[[float], object] | None = None,
    ) -> Models:
        """Weights, biases and which classes were seen; the teachers on the first axis."""
        width = int(np.prod(np.asarray(shares[0][0]).shape[1:]))
        models: Models = {
            "weights": np.zeros((len(shares), n_classes, width), dtype=np.float32),
            "bias": np.zeros((len(shares), n_classes), dtype=np.float32),
            "seen": np.zeros((len(shares), n_classes), dtype=np.uint8),
        }
        for k, (_, y) in enumerate(shares):
            models["seen"][k, y] = 1
        sizes = np.array([len(y) for _, y in shares])
        sizes[models["seen"].sum(axis=1) < 2] = 0  # nothing to tell apart: the mask decides
        done = 0
        with _alone():
            for n in np.unique(sizes[sizes > 0]):
                alike = np.flatnonzero(sizes == n)
                at_once = max(1, _NUMBERS // (int(n) * max(width, int(n))))
                for start in range(0, len(alike), at_once):
                    some = alike[start : start + at_once]
                    X = np.stack([_flat(shares[k][0]) for k in some])
                    Y = np.stack([np.eye(n_classes)[shares[k][1]] for k in some])
                    found = solve(X, Y, ridges=self.ridges, spare=_SPARE)
                    models["weights"][some], models["bias"][some] = found.weights.transpose(0, 2, 1), found.bias
                    done += len(some)
                    if progress is not None:
                        progress(done / len(shares))
        return models

    def predict(self, models: Models, X: NDArray[Any], *, watched: bool = True) -> NDArray[np.int16]:
        """(n_models, n_rows) class indices, in blocks of teachers and rows that bound memory."""
        rows, weights = _flat(X).astype(np.float32), models["weights"]
        if rows.shape[1] != weights.shape[2]:
            raise InputError(
                f"X must have rows of {weights.shape[2]} features, as the teachers were taught on, got {rows.shape[1]}."
            )
        votes = np.empty((len(weights), len(rows)), dtype=np.int16)
        with _alone():
            for at, block in blocks(rows, _ROWS):
                columns = np.ascontiguousarray(block.T)
                for first in range(0, len(weights), _TEACHERS):
                    some = slice(first, first + _TEACHERS)
                    scores = weights[some] @ columns  # (teachers, classes, rows)
                    scores += models["bias"][some, :, None]
                    scores[models["seen"][some] == 0] = -np.inf
                    votes[some, at] = _first_best(scores)[:, : at.stop - at.start]
        return votes

    def dumps(self, models: Models) -> bytes:
        """A chunk's file: plain arrays."""
        return dump_arrays(models)

    def loads(self, data: bytes) -> Models:
        """The models again; nothing in the file is executed."""
        models = load_arrays(data, what="weights")
        fits = {name: (array.ndim, str(array.dtype)) for name, array in models.items()} == _KINDS
        if not fits or not models["weights"].shape[:2] == models["bias"].shape == models["seen"].shape:
            raise StoreError("This file does not hold the weights of ridge teachers. Delete it and teach again.")
        return models


def _first_best(scores: NDArray[np.float32]) -> NDArray[np.int16]:
    """argmax over the middle axis, a plane at a time: ten times as fast as numpy's own."""
    best, votes = scores[:, 0].copy(), np.zeros((len(scores), scores.shape[2]), dtype=np.int16)
    for c in range(1, scores.shape[1]):
        np.copyto(votes, np.int16(c), where=scores[:, c] > best)
        np.maximum(best, scores[:, c], out=best)
    return votes


def _flat(X: NDArray[Any]) -> NDArray[np.float64]:
    X = np.asarray(X)
    flat = X.reshape(len(X), int(np.prod(X.shape[1:])))  # also of no rows
    if flat.dtype.kind not in "buif":
        raise InputError(f"Rows must be real numbers, got dtype {flat.dtype}.")
    return flat.astype(np.float64, order="C")
