"""Teachers that are scikit-learn classifiers, one per share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from terrine.errors import InputError, MissingDependencyError, StoreError

# Compiled parts of scikit-learn's estimators that skops does not list by itself
_COMPILED = (
    "sklearn.tree._tree.Tree",
    "sklearn._loss.",
    "sklearn.neighbors._kd_tree.",
    "sklearn.neighbors._ball_tree.",
    "sklearn.metrics._dist_metrics.",
)

Shares = Sequence[tuple[NDArray[Any], NDArray[np.int64]]]


@dataclass(frozen=True, kw_only=True)
class SklearnTeacher:
    """Any scikit-learn classifier, cloned for every share and seeded by the teacher's id.

    Attributes:
        estimator: unfitted; what it learns (scaling, category lists in a Pipeline) it learns inside one share.
        chunk: teachers trained one after the other by one worker before it reports.

    A share without records votes for class 0, a share of one class for that class.
    """

    estimator: Any
    chunk: int = 4
    suffix = ".skops"

    def __post_init__(self) -> None:
        if not hasattr(self.estimator, "fit") or not hasattr(self.estimator, "predict"):
            raise InputError(
                f"Expected a scikit-learn classifier with fit and predict, got {type(self.estimator).__name__}."
            )

    def fit(
        self,
        shares: Shares,
        *,
        ids: Sequence[int],
        n_classes: int,
        seed: int,
        progress: Callable[[float], object] | None = None,
    ) -> list[Any]:
        """One fitted classifier per share, or the class that an empty or one-class share votes for."""
        from sklearn.base import clone

        models: list[Any] = []
        for k, (X, y) in zip(ids, shares, strict=True):
            present = np.unique(y)
            if present.size < 2:
                models.append(int(present[0]) if present.size else 0)
                continue
            model = clone(self.estimator)
            state = int(np.random.SeedSequence([seed, int(k)]).generate_state(1)[0])
            seeds = {name: state for name in model.get_params() if name.split("__")[-1] == "random_state"}
            models.append(model.set_params(**seeds).fit(_flat(X), y))
        return models

    def predict(self, models: list[Any], X: NDArray[Any]) -> NDArray[np.int16]:
        """(n_models, n_rows) class indices."""
        rows = _flat(X)
        return np.stack(
            [
                np.full(len(rows), model) if isinstance(model, int) else np.asarray(model.predict(rows))
                for model in models
            ]
        ).astype(np.int16)

    def dumps(self, models: list[Any]) -> bytes:
        return bytes(_skops().dumps(models))

    def loads(self, data: bytes) -> list[Any]:
        """Refuses whatever is not on skops' list of trusted types: nothing in the file is executed."""
        skops = _skops()
        try:
            unknown = skops.get_untrusted_types(data=data)
            foreign = [name for name in unknown if not name.startswith(_COMPILED)]
            if foreign:
                raise StoreError(f"Expected scikit-learn models, got types that are not trusted: {foreign[:3]}.")
            models: list[Any] = skops.loads(data, trusted=unknown)
        except StoreError:
            raise
        except Exception:  # skops and zipfile raise many types for damaged files
            raise StoreError("Expected a skops file of models, got one that cannot be read.") from None
        return models


def _flat(X: NDArray[Any]) -> NDArray[Any]:
    X = np.asarray(X)
    return X.reshape(len(X), -1)


def _skops() -> Any:
    try:
        import skops.io
    except ImportError:
        raise MissingDependencyError(
            "Expected skops to keep scikit-learn teachers, got no such package; install it with: pip install skops"
        ) from None
    return skops.io
