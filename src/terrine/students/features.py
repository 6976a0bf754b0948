"""A scikit-learn classifier on features of rows, fixed or learned from public rows: a few answers are enough for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from terrine.errors import DataError, InputError, StoreError
from terrine.features import Features
from terrine.features.edges import Edges
from terrine.students.lessons import About, Lessons, checked_rows, write_student
from terrine.students.supervised import FILE, FittedEstimator, SupervisedStudent, fit_estimator

KIND, FEATURES, EDGES = "estimator on features", "features.safetensors", "edges"


@dataclass(frozen=True, kw_only=True)
class FeatureStudent:
    """A classifier on features of rows. Where features tell classes apart by themselves, it needs few answers.

    Attributes:
        features: learned from public rows, as `fit_features` does, and kept with the student; or `Edges`, of images.
        estimator: unfitted (default: linear discriminants, shrunk by half towards round ones).
        self_training, balanced: as of a `SupervisedStudent`.
        min_per_class: refuse to learn from fewer answers than this of any class.
    """

    features: Features | Edges
    estimator: Any = None
    self_training: bool = False
    balanced: bool = False
    min_per_class: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.features, Features | Edges):
            raise InputError(f"Expected features, as fit_features gives them, got {type(self.features).__name__}.")
        if self.estimator is None:
            from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

            object.__setattr__(self, "estimator", LinearDiscriminantAnalysis(solver="lsqr", shrinkage=0.5))
        self.plain()  # refuses what is no classifier

    def plain(self) -> SupervisedStudent:
        """What learns on the features."""
        return SupervisedStudent(
            estimator=self.estimator,
            self_training=self.self_training,
            balanced=self.balanced,
            min_per_class=self.min_per_class,
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class FittedOnFeatures:
    """Features and a classifier that has learned on them.

    Attributes:
        about: what it was trained on and how, all public; ``row_shape`` is that of rows, not of features.
    """

    about: About
    features: Features | Edges
    fitted: FittedEstimator

    @property
    def classes(self) -> tuple[str, ...]:
        return self.about.classes

    def predict(self, X: ArrayLike) -> NDArray[np.int64]:
        """(n_rows,) class indices."""
        return self.fitted.predict(self._seen(X))

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """(n_rows, n_classes), in the order of ``classes``; 0 for a class that was never answered."""
        return self.fitted.predict_proba(self._seen(X))

    def save(self, folder: str | Path, *, card: Mapping[str, Any]) -> None:
        """Write features, estimator and model card; ``card`` is the guarantee, as a dict of public values."""
        more = {FEATURES: self.features.dumps()} if isinstance(self.features, Features) else {}
        write_student(folder, about=self.about, kind=KIND, file=FILE, model=self.fitted.dumps(), card=card, more=more)

    @classmethod
    def restore(cls, about: About, model: bytes, folder: Path) -> FittedOnFeatures:
        features: Features | Edges = Edges(row_shape=about.row_shape)
        if about.settings.get("features") != EDGES:
            try:
                features = Features.load(folder / FEATURES)
            except DataError as error:
                raise StoreError(str(error)) from None
        inner = replace(about, row_shape=(features.n_features,), images=False)
        return cls(about=about, features=features, fitted=FittedEstimator.restore(inner, model))

    def _seen(self, X: ArrayLike) -> NDArray[np.float32]:
        rows = checked_rows(X, row_shape=self.about.row_shape, images=self.about.images)
        return self.features.transform(rows)


def fit_on_features(settings: FeatureStudent, given: Lessons, *, seed: int) -> FittedOnFeatures:
    if given.row_shape != settings.features.row_shape:
        raise InputError(
            f"Expected public rows of shape {settings.features.row_shape}, as the features', got {given.row_shape}."
        )
    if settings.self_training:
        seen = replace(given, rows=settings.features.transform(given.rows))
    else:
        seen = replace(given, rows=settings.features.transform(given.rows[given.answered]))
        seen = replace(seen, answered=np.arange(len(given.answered)))
    fitted = fit_estimator(settings.plain(), seen, seed=seed)
    which = EDGES if isinstance(settings.features, Edges) else settings.features.n_features
    kept = {**fitted.about.settings, "student": type(settings).__name__, "features": which}
    return FittedOnFeatures(about=About.of(given, seed=seed, settings=kept), features=settings.features, fitted=fitted)
