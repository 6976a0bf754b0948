"""A student chosen by answers that it has not seen: a handful is tried by cross-validation, and the best is kept.

A student is made from released answers and public rows, so that trying several costs no privacy. The comparison is
part of what is known of the student, and stands in the report.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from terrine import _validate
from terrine.errors import InputError, TerrineError
from terrine.features import AutoFeatures, AutoRecipe, fit_auto
from terrine.features.auto import device_of
from terrine.students.consistency import MatchStudent
from terrine.students.features import AnyFeatures, FeatureStudent
from terrine.students.lessons import Lessons
from terrine.students.supervised import SupervisedStudent

if TYPE_CHECKING:
    from terrine.students.api import FittedStudent, Single

LINEAR = "linear"
_SOFT = (1.0, 10.0)  # of logistic regression on rows of length 1
_SEED = 0  # of the folds
_MANY = 20_000  # public rows: with more, those without an answer are left out


@dataclass(frozen=True, kw_only=True)
class AutoStudent:
    """Several students, tried on folds of the answers; the one that is right most often on answers left out is kept.

    Candidates: linear discriminants and logistic regression on features, self-training, on plain rows boosted trees,
    and on images, where there is a GPU, a net that agrees with itself on distorted images.

    Attributes:
        features: as the teachers have them; None: made from the public rows, without an encoder.
        folds: of the answers.
        nets: "yes", "no", or "auto": where there is a GPU.
        balanced, min_per_class: as of a `SupervisedStudent`.
    """

    features: AnyFeatures | None = None
    folds: int = 5
    nets: Literal["auto", "yes", "no"] = "auto"
    balanced: bool = False
    min_per_class: int = 0

    def __post_init__(self) -> None:
        if self.features is not None and not isinstance(self.features, AnyFeatures):
            raise InputError(f"features must be what fit_auto gives, got {type(self.features).__name__}.")
        _validate.integer("folds", self.folds, at_least=2)
        _validate.choice("nets", self.nets, ("auto", "yes", "no"))
        if not isinstance(self.balanced, bool):
            raise InputError(f"balanced must be True or False, got {self.balanced!r}.")
        _validate.integer("min_per_class", self.min_per_class, at_least=0)


Fit = Callable[["Single", Lessons], "FittedStudent"]


def fit_chosen(settings: AutoStudent, given: Lessons, *, seed: int, fit: Fit) -> FittedStudent:
    """The best of the candidates, taught on all answers; what was compared is in its settings.

    Args:
        fit: teaches one of them.
    """
    tried = candidates(settings, given, seed=seed)
    found = _compared(tried, given, folds=settings.folds, fit=fit)
    best = max(found, key=lambda name: found[name]["right"])
    made = fit(tried[best], given)
    kept = {
        **made.about.settings,
        "student": type(settings).__name__,
        "chosen": best,
        "compared": found,
        "compared_on": f"answers that they had not seen, in {settings.folds} folds",
    }
    return replace(made, about=replace(made.about, settings=kept))


def candidates(settings: AutoStudent, given: Lessons, *, seed: int) -> dict[str, Single]:
    """By name; the plain linear one first."""
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.linear_model import LogisticRegression

    same: dict[str, Any] = {"balanced": settings.balanced}
    if not isinstance(given.rows, np.ndarray):
        learner = LogisticRegression(max_iter=1000)
        return {LINEAR: SupervisedStudent(estimator=learner, **same)}
    features = settings.features
    if features is None:
        features = fit_auto(given.rows, recipe=AutoRecipe(encoder="no"), seed=seed)
    plain = isinstance(features, AutoFeatures) and not features.of_images

    def on_features(estimator: Any, **more: Any) -> FeatureStudent:
        return FeatureStudent(features=features, estimator=estimator, **same, **more)

    linear = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=0.5)
    found: dict[str, Single] = {
        LINEAR: on_features(linear),
        "linear, less shrunk": on_features(LinearDiscriminantAnalysis(solver="lsqr", shrinkage=0.1)),
        **{f"logistic, C = {c:g}": on_features(LogisticRegression(C=c, max_iter=1000)) for c in _SOFT},
    }
    if len(given.rows) <= _MANY:
        found["linear, self-training"] = on_features(linear, self_training=True)
    if plain:
        trees = HistGradientBoostingClassifier(
            max_iter=60, learning_rate=0.05, max_leaf_nodes=8, l2_regularization=5.0, early_stopping=False
        )
        found["boosted trees"] = SupervisedStudent(estimator=trees, **same)
    if given.of_images and (settings.nets == "yes" or (settings.nets == "auto" and device_of("auto") != "cpu")):
        found["net"] = MatchStudent(**same)
    return found


def _compared(tried: dict[str, Single], given: Lessons, *, folds: int, fit: Fit) -> dict[str, dict[str, float]]:
    """By candidate: the share of answers left out that it predicts, and the standard error of its lead on the linear
    one; a candidate that cannot learn from a part of the answers is not there."""
    order = np.random.default_rng(_SEED).permutation(len(given.answered))
    parts = np.array_split(order, min(folds, len(order)))
    right: dict[str, NDArray[np.float64]] = {}
    whole, seen = given, _on_features(tried[LINEAR], given)
    for name, student in tried.items():
        hits = np.zeros(len(order))
        given = seen if isinstance(student, FeatureStudent) else whole
        student = student.plain() if isinstance(student, FeatureStudent) else student
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                for part in parts:
                    rest = np.setdiff1d(order, part)
                    some = replace(given, answered=given.answered[rest], labels=given.labels[rest])
                    guesses = fit(student, some).predict(given.rows[given.answered[part]])
                    hits[part] = guesses == given.labels[part]
        except TerrineError:
            if name == LINEAR:
                return {LINEAR: {"right": 0.0, "lead": 0.0, "error": 0.0}}
            continue
        right[name] = hits
    base = right[LINEAR]
    return {
        name: {
            "right": float(hits.mean()),
            "lead": float((hits - base).mean()),
            "error": float((hits - base).std() / np.sqrt(len(hits))),
        }
        for name, hits in right.items()
    }


def _on_features(linear: Single, given: Lessons) -> Lessons:
    """The same lessons with features in place of rows, made once for all candidates that learn from them."""
    if not isinstance(linear, FeatureStudent):
        return given
    if len(given.rows) <= _MANY:
        return replace(given, rows=linear.features.transform(given.rows))
    rows = linear.features.transform(given.rows[given.answered])
    return replace(given, rows=rows, answered=np.arange(len(rows)))
