"""A scikit-learn classifier on the answered rows: the student for tables of features, and the baseline for the rest."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from terrine import _validate
from terrine._models import check_classifier, dump_estimators, estimator_settings, load_estimators, seeded_clone
from terrine.datasets.rows import seen_by, takes_nan
from terrine.errors import InputError
from terrine.mechanisms import ABSTAIN
from terrine.students.fitted import Fitted, Folder
from terrine.students.lessons import About, Lessons, evened
from terrine.students.onnx import estimator_to_onnx

KIND, FILE = "estimator", "student.skops"
_SURE = 0.9  # probability above which self-training takes a label over


@dataclass(frozen=True, kw_only=True)
class SupervisedStudent:
    """Any scikit-learn classifier or Pipeline, trained on the answered rows.

    Attributes:
        estimator: unfitted; every parameter named ``random_state`` is set from the seed. Images are flattened.
        self_training: also learn from public rows without an answer: those that the classifier is sure of (a
            probability above 0.9) take its own label, again and again until there are no more.
        balanced: a rare class counts as much as a common one: class_weight="balanced" where the classifier has it,
            else answers of rarer classes are repeated.
        min_per_class: refuse to learn from fewer answers than this of any class.
    """

    estimator: Any
    self_training: bool = False
    balanced: bool = False
    min_per_class: int = 0

    def __post_init__(self) -> None:
        check_classifier(self.estimator)
        for name in ("self_training", "balanced"):
            if not isinstance(getattr(self, name), bool):
                raise InputError(f"{name} must be True or False, got {getattr(self, name)!r}.")
        if self.self_training and not hasattr(self.estimator, "predict_proba"):
            kind = type(self.estimator).__name__
            raise InputError(f"self_training needs a classifier that gives probabilities, and {kind} gives none.")
        _validate.integer("min_per_class", self.min_per_class, at_least=0)


@dataclass(frozen=True, kw_only=True, eq=False)
class FittedEstimator(Fitted):
    """A scikit-learn classifier that has learned.

    Attributes:
        model: the fitted estimator; its classes are class indices.
    """

    model: Any

    def predict(self, X: ArrayLike, *, accept_unreadable: bool = False) -> NDArray[np.int64]:
        labels: NDArray[np.int64] = np.asarray(self.model.predict(self._seen(X, accept=accept_unreadable))).astype(
            np.int64
        )
        return labels

    def predict_proba(self, X: ArrayLike, *, accept_unreadable: bool = False) -> NDArray[np.float64]:
        if not hasattr(self.model, "predict_proba"):
            kind = type(self.model).__name__
            raise InputError(f"{kind} gives no probabilities. Wrap it in CalibratedClassifierCV.")
        rows = self._seen(X, accept=accept_unreadable)
        found = self.model.predict_proba(rows)
        result = np.zeros((len(found), len(self.classes)))
        result[:, np.asarray(self.model.classes_)] = found
        return result

    def dumps(self) -> tuple[str, dict[str, bytes]]:
        return KIND, {FILE: dump_estimators(self.model)}

    @classmethod
    def restore(cls, kept: Folder) -> FittedEstimator:
        """From a checked folder; `load_student` calls it."""
        return cls(about=kept.about, card=kept.card, extra=kept.files, model=load_estimators(kept.model))

    def to_onnx(self) -> Any:
        return estimator_to_onnx(self.model, row_shape=self.about.row_shape, n_classes=len(self.classes))

    def _seen(self, X: Any, *, accept: bool) -> Any:
        return seen_by(self.model, self._rows(X, nan_ok=takes_nan(self.model), accept=accept))


def fit_estimator(settings: SupervisedStudent, given: Lessons, *, seed: int) -> FittedEstimator:
    model = seeded_clone(settings.estimator, seed)
    answered, labels = given.answered, given.labels
    if settings.balanced and not _weighted(model):
        some = evened(labels)
        answered, labels = answered[some], labels[some]
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Only one sample available")  # of a class that was answered once
            if settings.self_training:
                model = _self_trained(model, given.rows, answered, labels)
            else:
                model.fit(seen_by(model, given.rows[answered]), labels)
    except ValueError as error:  # scikit-learn's own words, as of too few answers; rows and labels are checked before
        said = " ".join(str(error).split())
        raise InputError(f"{type(model).__name__} cannot learn from these answers: {said}") from None
    kept: dict[str, Any] = {"student": type(settings).__name__, "self_training": settings.self_training}
    if settings.balanced:
        kept["balanced"] = True
    kept |= estimator_settings(settings.estimator)
    return FittedEstimator(about=About.of(given, seed=seed, settings=kept), model=model)


def _weighted(model: Any) -> bool:
    """Set class_weight="balanced" where the classifier, or a step of a Pipeline, has a class_weight that is not set."""
    names = [name for name in model.get_params() if name.split("__")[-1] == "class_weight"]
    model.set_params(**{name: "balanced" for name in names if model.get_params()[name] is None})
    return bool(names)


def _self_trained(model: Any, public: NDArray[Any], answered: NDArray[np.int64], labels: NDArray[np.int64]) -> Any:
    """The classifier that self-training ends with; rows without an answer are -1 to scikit-learn."""
    from sklearn.semi_supervised import SelfTrainingClassifier

    rows = np.concatenate([np.setdiff1d(np.arange(len(public)), answered), answered])
    known = np.concatenate([np.full(len(rows) - len(answered), ABSTAIN, dtype=np.int64), labels])
    if len(rows) == len(public):  # nothing is repeated: rows as they stand
        order = np.argsort(rows)
        rows, known = rows[order], known[order]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "y contains no unlabeled samples")
        trained = SelfTrainingClassifier(model, threshold=_SURE, max_iter=None)
        return trained.fit(seen_by(model, public[rows]), known).estimator_
