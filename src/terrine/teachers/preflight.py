"""Tries a whole teacher on public rows before a private one is read. What is wrong with it shows here, in full.

After that nothing a share does is an error: one on which a teacher cannot learn votes for class 0, and nobody is told.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from terrine.datasets.rows import Rows
from terrine.errors import InputError, TerrineError
from terrine.sensitive import unheard
from terrine.teachers.modules import ModuleTeacher
from terrine.teachers.nets import ConvTeacher
from terrine.teachers.teacher import Teacher

_ROWS = 200
_EACH = 10  # rows of a class: enough for a cross-validation inside
_MOST = 5_000  # rows, where a teacher needs more than the fewest
_BYTES = 1 << 26
_LETTERS = 400


@dataclass(frozen=True, kw_only=True, repr=False)
class Preflight:
    """What a teacher is tried with: all of it public.

    Attributes:
        teacher: as it will be taught; nets learn for one step, on a CPU.
        row_shape, dtype: of the private rows.
        public: public rows as the teachers will see them; None: rows are made up, which only arrays can be.
        keep: whether it must come back from a store.
    """

    teacher: Teacher
    row_shape: tuple[int, ...]
    dtype: np.dtype[Any]
    n_classes: int
    public: Rows | None = None
    keep: bool = False

    def check(self, *, here: bool = False) -> int:
        """Teach one teacher, let it vote, and keep it; with more rows where it cannot with a few. Refuse what fails.

        Args:
            here: on the device that teachers are taught on, not on a CPU.

        Returns:
            How many bytes such a teacher takes in a store; 0 where it is not kept.
        """
        said = ""
        for X, y in self._tries():
            try:
                with unheard():
                    return self._fly(X, y, here=here)
            except TerrineError:
                raise
            except Exception as error:
                words = " ".join(str(error).split())[:_LETTERS].rstrip(".")
                said = f"on {len(X)} {self._kind} rows it failed with {type(error).__name__}: {words}"
        raise InputError(f"The teacher cannot be used: {said}. Nothing was taught, written or spent.")

    @property
    def _kind(self) -> str:
        return "made-up" if self.public is None else "public"

    def _fly(self, X: Rows, y: NDArray[np.int64], *, here: bool) -> int:
        teacher = _short(self.teacher, here=here)
        models = teacher.fit([(X, y), (X[:0], y[:0])], ids=[0, 1], n_classes=self.n_classes, seed=0)
        size = 0
        if self.keep:
            kept = teacher.dumps(models)
            models, size = teacher.loads(kept), len(kept)
        votes = teacher.predict(models, X[:1])
        if votes.shape != (2, 1):
            raise InputError(f"The teacher cannot be used: two teachers voted on one row with shape {votes.shape}.")
        return size

    def _tries(self) -> Iterator[tuple[Rows, NDArray[np.int64]]]:
        """A few rows of every class, then ten and a hundred times as many; always the same."""
        fewest = min(_EACH, max(1, _ROWS // self.n_classes))
        a_row = max(1, int(np.prod(self.row_shape)) * np.dtype(self.dtype).itemsize)
        most = max(fewest * self.n_classes, min(_MOST, _BYTES // a_row))
        for n in sorted({min(fewest * times * self.n_classes, most) for times in (1, 10, 100)}):
            rng = np.random.default_rng(0)
            y = np.arange(n, dtype=np.int64) % self.n_classes
            if self.public is not None:
                X = self.public[rng.integers(len(self.public), size=n)]
                yield X.astype(self.dtype) if isinstance(X, np.ndarray) else X, y
                continue
            shape, kind = (n, *self.row_shape), np.dtype(self.dtype).kind
            made_up = rng.random(shape) if kind == "f" else rng.integers(2 if kind == "b" else 10, size=shape)
            yield made_up.astype(self.dtype), y


def sample(public: Rows) -> Any:
    """A few thousand public rows: enough to try a teacher with, and small enough to travel to workers."""
    if not isinstance(public, np.ndarray):
        return public if len(public) <= _MOST else public[:: -(-len(public) // _MOST)]
    most = max(1, min(_MOST, _BYTES // max(1, public[:1].nbytes)))
    return np.array(public if len(public) <= most else public[:: -(-len(public) // most)])


def _short(teacher: Teacher, *, here: bool) -> Teacher:
    """The same teacher where learning is short: settings that only decide how long it takes are cut."""
    match teacher:
        case ModuleTeacher():
            device, together = teacher._where()
            recipe = replace(teacher.recipe, steps=1)
            return replace(teacher, recipe=recipe, device=device if here else "cpu", stacked=together)
        case ConvTeacher():
            return replace(teacher, recipe=replace(teacher.recipe, steps=1), device=teacher.device if here else "cpu")
    return teacher
