"""Kept teachers as a service asks them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numpy.typing import NDArray

from terrine.teachers import TeacherEnsemble
from terrine.votes import Votes


class ServedTeachers:
    """Kept teachers behind a public function of rows: what a service asks. Everything but the votes is public."""

    def __init__(
        self,
        ensemble: TeacherEnsemble,
        *,
        row_shape: tuple[int, ...],
        dtype: str,
        see: Callable[[NDArray[Any]], NDArray[Any]] | None = None,
    ) -> None:
        self.n_teachers, self.classes, self.relation = ensemble.n_teachers, ensemble.classes, ensemble.relation
        self.identity = ensemble.identity
        self.row_shape, self.dtype = row_shape, dtype
        self._ensemble, self._see = ensemble, see

    def vote(self, X: NDArray[Any]) -> Votes:
        """Secret."""
        return self._ensemble.vote(X if self._see is None else self._see(X))

    def __repr__(self) -> str:
        return f"<{self._ensemble!r}>"
