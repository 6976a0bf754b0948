"""What a teacher is: the one interface that ensembles, stores and runs know."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import Field
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

Share = tuple[Any, NDArray[np.int64]]  # one teacher's rows (`datasets.rows`) and their class indices (n_rows,)


@runtime_checkable
class Teacher(Protocol):
    """A kind of model, unfitted, as a frozen dataclass: how a chunk of shares is learned from, asked and kept.

    The guarantee rests on one rule: the model of a share is a function of that share, (seed, id) and public settings,
    and of nothing else in the chunk. Every teacher of `terrine.teachers` keeps it.
    """

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    @property
    def chunk(self) -> int:
        """How many teachers one worker trains and reports at a time."""

    @property
    def suffix(self) -> str:
        """Of a chunk's file in a store."""

    def settings(self) -> dict[str, Any]:
        """What decides what a teacher becomes, as plain values: a store of other settings is refused."""

    def fit(
        self,
        shares: Sequence[Share],
        *,
        ids: Sequence[int],
        n_classes: int,
        seed: int,
        progress: Callable[[float], object] | None = None,
    ) -> Any:
        """The models of a chunk. A share without records votes for class 0, a share of one class for that class."""

    def predict(self, models: Any, X: Any, *, watched: bool = True) -> NDArray[np.int16]:
        """(n_models, n_rows) class indices; what is no class index is taken as class 0.

        ``watched`` is False where nobody outside can see how long it takes.
        """

    def dumps(self, models: Any) -> bytes:
        """A chunk's file; refuses what `loads` would refuse."""

    def loads(self, data: bytes) -> Any:
        """The models again; nothing in the file is executed."""
