"""Teachers that are scikit-learn classifiers, one per share."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from terrine import _validate
from terrine.errors import InputError, MissingDependencyError, StoreError
from terrine.sensitive import unheard
from terrine.teachers import asking

# Parts of scikit-learn's estimators that skops does not list by itself: they hold numbers, or compute with them
_PARTS = (
    "sklearn.tree._tree.Tree",
    "sklearn._loss.",
    "sklearn.calibration._CalibratedClassifier",
    "sklearn.calibration._SigmoidCalibration",
    "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
    "sklearn.neighbors._kd_tree.",
    "sklearn.neighbors._ball_tree.",
    "sklearn.metrics._dist_metrics.",
    "sklearn.neural_network._stochastic_optimizers.",
    "numpy.interp",  # in recipes.py
)

Shares = Sequence[tuple[NDArray[Any], NDArray[np.int64]]]


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
        from sklearn.base import BaseEstimator, is_classifier

        if not isinstance(self.estimator, BaseEstimator) or not is_classifier(self.estimator):
            raise InputError(f"estimator must be a scikit-learn classifier, got {type(self.estimator).__name__}.")
        _validate.integer("chunk", self.chunk, at_least=1)

    def settings(self) -> dict[str, Any]:
        """What decides what a teacher becomes, for a store's manifest; seeds are its own."""
        values = self.estimator.get_params(deep=True).items()
        seeded = {f"estimator.{name}": _named(value) for name, value in values if not _is_seed(name)}
        return {"teacher": type(self).__name__, "estimator": type(self.estimator).__name__, **seeded}

    def fit(
        self,
        shares: Shares,
        *,
        ids: Sequence[int],
        n_classes: int,
        seed: int,
        progress: Callable[[float], object] | None = None,
    ) -> list[Any]:
        """One fitted classifier per share, or the class that an empty or one-class share votes for.

        Each predicts its first row once: what can never predict fails here, before any vote.
        """
        from sklearn.base import clone

        models: list[Any] = []
        for k, (X, y) in zip(ids, shares, strict=True):
            present = np.unique(y)
            if present.size < 2:
                models.append(int(present[0]) if present.size else 0)
                continue
            model = clone(self.estimator)
            state = int(np.random.SeedSequence([seed, int(k)]).generate_state(1)[0])
            seeds = {name: state for name in model.get_params() if _is_seed(name)}
            with _alone():
                model.set_params(**seeds).fit(_flat(X), y)
                model.predict(_flat(X)[:1])
            models.append(model)
        return models

    def predict(self, models: list[Any], X: NDArray[Any], *, watched: bool = True) -> NDArray[np.int16]:
        """(n_models, n_rows) class indices.

        Args:
            watched: whether anyone outside may see how long it takes, as those who ask a service do. If nobody does,
                estimators that are not listed in `asking` are asked many rows at a time: the same votes, if they look
                at each row by itself.
        """
        rows = np.ascontiguousarray(_flat(X))
        ask = asking.ask if asking.is_listed(self.estimator) else asking.ask_each if watched else asking.ask_in_halves
        with _alone():
            return np.stack(
                [_constant(model, rows) if isinstance(model, int) else ask(model, rows) for model in models]
            )

    def dumps(self, models: list[Any]) -> bytes:
        """Refuses at once what `loads` would refuse later."""
        data = bytes(_skops().dumps(models, compression=zipfile.ZIP_DEFLATED))  # a tenth of the size, as fast
        _trusted(data)
        return data

    def loads(self, data: bytes) -> list[Any]:
        """Refuses whatever is not on skops' list of trusted types: nothing in the file is executed."""
        try:
            models: list[Any] = _skops().loads(data, trusted=_trusted(data))
        except StoreError:
            raise
        except Exception:  # skops and zipfile raise many types for damaged files
            raise StoreError("This skops file of models cannot be read. Delete it and teach again.") from None
        return models


def _constant(vote: int, rows: NDArray[Any]) -> NDArray[np.int16]:
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


def _trusted(data: bytes) -> list[str]:
    """The types in a skops file that are on our list and not on skops' own; others are refused by name."""
    found: list[str] = _skops().get_untrusted_types(data=data)
    foreign = [name for name in found if not name.startswith(_PARTS)]
    if foreign:
        raise StoreError(
            f"The models hold types that are neither skops' nor scikit-learn's, and are not trusted: {foreign[:3]}."
        )
    return found


def _is_seed(name: str) -> bool:
    return name.split("__")[-1] == "random_state"


def _named(value: Any) -> Any:
    """A parameter's value in plain words, the same in every process; what is inside an estimator has its own name."""
    if isinstance(value, (list, tuple)):
        return [_named(item) for item in value]
    if hasattr(value, "get_params"):
        return type(value).__name__
    return getattr(value, "__qualname__", None) or repr(value)


def _flat(X: NDArray[Any]) -> NDArray[Any]:
    X = np.asarray(X)
    return X.reshape(len(X), -1)


def _skops() -> Any:
    try:
        import skops.io
    except ImportError:
        raise MissingDependencyError(
            "Keeping scikit-learn teachers needs the package skops. Install it with: pip install skops"
        ) from None
    return skops.io
