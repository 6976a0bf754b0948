"""Teachers that are scikit-learn classifiers, one per share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from terrine import _validate
from terrine._models import check_classifier, dump_estimators, estimator_settings, load_estimators, seeded_clone
from terrine.datasets.rows import Rows, numbers, seen_by, takes_tables
from terrine.datasets.tables import Frame
from terrine.sensitive import unheard
from terrine.teachers import asking
from terrine.teachers.teacher import Share


@dataclass(frozen=True, kw_only=True)
class SklearnTeacher:
    """Any scikit-learn classifier, cloned for every share and seeded by the teacher's id.

    Attributes:
        estimator: unfitted; what it learns (scaling, category lists in a Pipeline) it learns inside one share.
        chunk: teachers trained one after the other by one worker before it reports.

    A share without records votes for class 0, a share of one class for that class. A row on which a model raises, or
    gives what is no class index, gets its vote for class 0: a vote is a function of share and row, and always cast.
    How a model is asked, and how often, depends on the estimator's type and settings alone (`terrine.teachers.asking`).
    """

    estimator: Any
    chunk: int = 4
    suffix = ".skops"

    def __post_init__(self) -> None:
        check_classifier(self.estimator)
        _validate.integer("chunk", self.chunk, at_least=1)

    def settings(self) -> dict[str, Any]:
        """What decides what a teacher becomes, for a store's manifest; seeds are its own."""
        return {"teacher": type(self).__name__, **estimator_settings(self.estimator)}

    def fit(
        self,
        shares: Sequence[Share],
        *,
        ids: Sequence[int],
        n_classes: int,
        seed: int,
        progress: Callable[[float], object] | None = None,
    ) -> list[Any]:
        """One fitted classifier per share, or the class that an empty or one-class share votes for.

        Each predicts its first row once: what can never predict fails here, before any vote.
        """
        models: list[Any] = []
        for k, (X, y) in zip(ids, shares, strict=True):
            present = np.unique(y)
            if present.size < 2:
                models.append(int(present[0]) if present.size else 0)
                continue
            model = seeded_clone(self.estimator, [seed, int(k)])
            with _alone():
                model.fit(seen_by(model, X), y)
                model.predict(seen_by(model, X[:1]))
            models.append(model)
        return models

    def predict(self, models: list[Any], X: Rows, *, watched: bool = True) -> NDArray[np.int16]:
        """(n_models, n_rows) class indices.

        Args:
            watched: whether anyone outside may see how long it takes, as those who ask a service do. If nobody does,
                estimators that are not listed in `asking` are asked many rows at a time: the same votes, if they look
                at each row by itself.
        """
        rows = X
        if isinstance(rows, Frame) and not takes_tables(self.estimator):
            rows = numbers(rows, who=type(self.estimator).__name__)
        if isinstance(rows, np.ndarray):
            rows = np.ascontiguousarray(rows.reshape(len(rows), -1))
        ask = asking.ask if asking.is_listed(self.estimator) else asking.ask_each if watched else asking.ask_in_halves
        with _alone():
            return np.stack(
                [_constant(model, rows) if isinstance(model, int) else ask(model, rows) for model in models]
            )

    def dumps(self, models: list[Any]) -> bytes:
        """Refuses at once what `loads` would refuse later."""
        return dump_estimators(models, compress=True)

    def loads(self, data: bytes) -> list[Any]:
        """Refuses whatever is not on skops' list of trusted types: nothing in the file is executed."""
        models: list[Any] = load_estimators(data)
        return models


def _constant(vote: int, rows: Rows) -> NDArray[np.int16]:
    return np.full(len(rows), vote, dtype=np.int16)


@contextmanager
def _alone() -> Iterator[None]:
    """One thread: a share is too small for more, and threads that wait for each other take ten times as long.

    And unheard: what an estimator warns of, in a process of its own too, depends on private rows.
    """
    from joblib import parallel_config  # type: ignore[import-untyped]

    with unheard(), _thread_pools().limit(limits=1), parallel_config(backend="sequential"):
        yield


@cache
def _thread_pools() -> Any:
    from threadpoolctl import ThreadpoolController  # scikit-learn's own

    return ThreadpoolController()
