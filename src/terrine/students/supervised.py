"""A scikit-learn classifier on the answered rows: the student for tables of features, and the baseline for the rest."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from terrine import _validate
from terrine.datasets.rows import seen_by, takes_nan
from terrine.errors import InputError, MissingDependencyError, StoreError
from terrine.mechanisms import ABSTAIN
from terrine.students.lessons import About, Lessons, checked_rows, write_student

KIND, FILE = "estimator", "student.skops"
_SURE = 0.9  # probability above which self-training takes a label over

# Parts of scikit-learn's estimators that skops does not list by itself: they hold numbers
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
    "numpy.dtype",  # an encoder's or a vectorizer's
)


@dataclass(frozen=True, kw_only=True)
class SupervisedStudent:
    """Any scikit-learn classifier or Pipeline, trained on the answered rows.

    Attributes:
        estimator: unfitted; every parameter named ``random_state`` is set from the seed. Images are flattened.
        self_training: also learn from public rows without an answer: those that the classifier is sure of (a
            probability above 0.9) take its own label, again and again until there are no more.
        min_per_class: refuse to learn from fewer answers than this of any class.
    """

    estimator: Any
    self_training: bool = False
    min_per_class: int = 0

    def __post_init__(self) -> None:
        from sklearn.base import BaseEstimator, is_classifier

        if not isinstance(self.estimator, BaseEstimator) or not is_classifier(self.estimator):
            raise InputError(f"Expected a scikit-learn classifier, got {type(self.estimator).__name__}.")
        if not isinstance(self.self_training, bool):
            raise InputError(f"self_training must be True or False, got {self.self_training!r}.")
        if self.self_training and not hasattr(self.estimator, "predict_proba"):
            kind = type(self.estimator).__name__
            raise InputError(f"self_training needs a classifier that gives probabilities, and {kind} gives none.")
        _validate.integer("min_per_class", self.min_per_class, at_least=0)


@dataclass(frozen=True, kw_only=True, eq=False)
class FittedEstimator:
    """A scikit-learn classifier that has learned.

    Attributes:
        about: what it was trained on and how, all public.
        model: the fitted estimator; its classes are class indices.
    """

    about: About
    model: Any

    @property
    def classes(self) -> tuple[str, ...]:
        return self.about.classes

    def predict(self, X: ArrayLike) -> NDArray[np.int64]:
        """(n_rows,) class indices."""
        labels: NDArray[np.int64] = np.asarray(self.model.predict(self._rows(X))).astype(np.int64)
        return labels

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """(n_rows, n_classes), in the order of ``classes``; 0 for a class that was never answered."""
        if not hasattr(self.model, "predict_proba"):
            kind = type(self.model).__name__
            raise InputError(
                f"Expected an estimator that gives probabilities, got {kind}; wrap it in CalibratedClassifierCV."
            )
        rows = self._rows(X)
        found = self.model.predict_proba(rows)
        result = np.zeros((len(found), len(self.classes)))
        result[:, np.asarray(self.model.classes_)] = found
        return result

    def save(self, folder: str | Path, *, card: Mapping[str, Any]) -> None:
        """Write the estimator and its model card; ``card`` is the guarantee, as a dict of public values."""
        write_student(folder, about=self.about, kind=KIND, file=FILE, model=self.dumps(), card=card)

    def dumps(self) -> bytes:
        model = bytes(_skops().dumps(self.model))
        _trusted(model)  # refuses now what could not be loaded later
        return model

    @classmethod
    def restore(cls, about: About, model: bytes) -> FittedEstimator:
        """Refuses types that are neither skops' nor scikit-learn's own: nothing in the file is executed."""
        try:
            return cls(about=about, model=_skops().loads(model, trusted=_trusted(model)))
        except StoreError:
            raise
        except Exception:  # skops and zipfile raise many types for damaged files
            raise StoreError(f"Expected a skops file in {FILE}, got one that cannot be read.") from None

    def _rows(self, X: Any) -> Any:
        about = self.about
        rows = checked_rows(
            X, row_shape=about.row_shape, images=about.images, kind=about.kind, nan_ok=takes_nan(self.model)
        )
        return seen_by(self.model, rows)


def fit_estimator(settings: SupervisedStudent, given: Lessons, *, seed: int) -> FittedEstimator:
    from sklearn.base import clone

    model = clone(settings.estimator)
    state = int(np.random.SeedSequence(seed).generate_state(1)[0])
    model.set_params(**{name: state for name in model.get_params() if _is_seed(name)})
    try:
        if settings.self_training:
            model = _self_trained(model, given)
        else:
            model.fit(seen_by(model, given.rows[given.answered]), given.labels)
    except ValueError as error:  # scikit-learn's own words, as of too few answers; rows and labels are checked before
        said = " ".join(str(error).split())
        raise InputError(f"Expected answers that {type(model).__name__} can learn from, got: {said}") from None
    parameters = settings.estimator.get_params(deep=True).items()
    kept = {f"estimator.{name}": _named(value) for name, value in parameters if not _is_seed(name)}
    names = {"student": type(settings).__name__, "estimator": type(settings.estimator).__name__}
    kept = {**names, "self_training": settings.self_training, **kept}
    return FittedEstimator(about=About.of(given, seed=seed, settings=kept), model=model)


def _self_trained(model: Any, given: Lessons) -> Any:
    """The classifier that self-training ends with; rows without an answer are -1 to scikit-learn."""
    from sklearn.semi_supervised import SelfTrainingClassifier

    labels = np.full(len(given.rows), ABSTAIN, dtype=np.int64)
    labels[given.answered] = given.labels
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "y contains no unlabeled samples")
        trained = SelfTrainingClassifier(model, threshold=_SURE, max_iter=None)
        return trained.fit(seen_by(model, given.rows), labels).estimator_


def _is_seed(name: str) -> bool:
    return name.split("__")[-1] == "random_state"


def _named(value: Any) -> Any:
    """A parameter's value in plain words; what is inside an estimator has its own name."""
    if isinstance(value, (list, tuple)):
        return [_named(item) for item in value]
    if hasattr(value, "get_params"):
        return type(value).__name__
    return getattr(value, "__qualname__", None) or repr(value)


def _trusted(model: bytes) -> list[str]:
    """The types in a skops file that are on our list and not on skops' own; others are refused by name."""
    found: list[str] = _skops().get_untrusted_types(data=model)
    foreign = [name for name in found if not name.startswith(_PARTS)]
    if foreign:
        raise StoreError(f"Expected a scikit-learn model, got types that are not trusted: {foreign[:3]}.")
    return found


def _skops() -> Any:
    try:
        import skops.io
    except ImportError:
        raise MissingDependencyError(
            "Expected skops to keep a scikit-learn student, got no such package; install it with: pip install skops"
        ) from None
    return skops.io
