"""What a service asks: kept teachers, and the rows that they, or a probe, take."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from terrine.datasets.rows import Rows
from terrine.errors import InputError, StoreError
from terrine.runs.base import read_json, write_json
from terrine.runs.tasks import ENCODER, kept_files
from terrine.service.encoder_files import EncoderFiles
from terrine.service.parsing import RowFormat
from terrine.teachers import TeacherEnsemble
from terrine.votes import Votes

ROWS = "rows.json"  # in a run's folder


def keep_rows(folder: Path, X: Rows, **seen: Any) -> None:
    """Note what rows are, for a service that has none of the data.

    Args:
        X: the public rows.
        seen: what else it needs.
    """
    dtype = X.dtype.name if isinstance(X, np.ndarray) else "text"
    write_json(folder / ROWS, {"row_shape": X.shape[1:], "dtype": dtype, **seen})


def kept_rows(folder: Path) -> RowFormat:
    """As `keep_rows` noted them."""
    rows = read_json(folder / ROWS, "terrine teach")
    if rows.get("dtype") == "text":
        raise InputError(f"The rows of {folder} are texts, and a service takes rows of numbers.")
    try:
        shape, dtype = tuple(int(size) for size in rows["row_shape"]), np.dtype(rows["dtype"]).name
    except (KeyError, TypeError, ValueError):
        raise StoreError(f"{folder / ROWS} is damaged. Write it again with: terrine teach {folder}") from None
    files = kept_files(folder / ENCODER)
    return RowFormat(shape=shape, dtype=dtype, encoder=None if files is None else EncoderFiles(files))


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
