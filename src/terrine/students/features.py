"""A scikit-learn classifier on features of rows, fixed or learned from public rows: a few answers are enough for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from terrine.errors import DataError, InputError, StoreError
from terrine.features import AnyFeatures, AutoFeatures, EncoderFeatures, load_features
from terrine.features.edges import Edges
from terrine.students.fitted import Fitted, Folder
from terrine.students.lessons import About, Lessons
from terrine.students.onnx import EXPORTABLE
from terrine.students.supervised import FittedEstimator, SupervisedStudent, fit_estimator

KIND, FEATURES, EDGES, AUTO = "estimator on features", "features.safetensors", "edges", "auto"


@dataclass(frozen=True, kw_only=True)
class FeatureStudent:
    """A classifier on features of rows. Where features tell classes apart by themselves, it needs few answers.

    Attributes:
        features: learned from public rows, as `fit_features` and `fit_auto` do, and kept with the student; or `Edges`,
            of images; or an encoder of your own, as `as_features` makes of it.
        estimator: unfitted (default: linear discriminants, shrunk by half toward round ones).
        self_training, balanced: as of a `SupervisedStudent`.
        min_per_class: refuse to learn from fewer answers than this of any class.
    """

    features: AnyFeatures
    estimator: Any = None
    self_training: bool = False
    balanced: bool = False
    min_per_class: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.features, AnyFeatures):
            kind = type(self.features).__name__
            raise InputError(
                f"features must be what fit_features, fit_auto or as_features gives, or Edges, got {kind}."
            )
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
class FittedOnFeatures(Fitted):
    """Features and a classifier that has learned on them; rows are what the features are of."""

    features: AnyFeatures
    fitted: FittedEstimator

    def predict(self, X: ArrayLike, *, accept_unreadable: bool = False) -> NDArray[np.int64]:
        return self.fitted.predict(self.features.transform(self._rows(X, accept=accept_unreadable)))

    def predict_proba(self, X: ArrayLike, *, accept_unreadable: bool = False) -> NDArray[np.float64]:
        return self.fitted.predict_proba(self.features.transform(self._rows(X, accept=accept_unreadable)))

    def dumps(self) -> tuple[str, dict[str, bytes]]:
        more = {} if isinstance(self.features, Edges) else {FEATURES: self.features.dumps()}
        return KIND, {**self.fitted.dumps()[1], **more}

    @classmethod
    def restore(cls, kept: Folder, folder: Path, *, encoder: Any = None) -> FittedOnFeatures:
        """From a checked folder; `load_student` calls it."""
        about = kept.about
        features: AnyFeatures = Edges(row_shape=about.row_shape)
        if about.settings.get("features") != EDGES:
            try:
                features = load_features(folder / FEATURES, encoder=encoder)
            except DataError as error:
                raise StoreError(str(error)) from None
        inner = replace(kept, about=replace(about, row_shape=(features.n_features,), images=False, kind=None))
        extra = {name: data for name, data in kept.files.items() if name != FEATURES}
        return cls(about=about, card=kept.card, extra=extra, features=features, fitted=FittedEstimator.restore(inner))

    def to_onnx(self) -> Any:
        from terrine.students.onnx_features import with_features

        if not isinstance(self.features, AutoFeatures):
            raise InputError(f"This student's features are not part of the ONNX format. {EXPORTABLE}.")
        return with_features(self.fitted.to_onnx(), self.features)


def fit_on_features(settings: FeatureStudent, given: Lessons, *, seed: int) -> FittedOnFeatures:
    if given.row_shape != settings.features.row_shape:
        raise InputError(
            f"Public rows must have the shape {settings.features.row_shape}, as those of the features, got "
            f"{given.row_shape}."
        )
    if settings.self_training:
        seen = replace(given, rows=settings.features.transform(given.rows))
    else:
        seen = replace(given, rows=settings.features.transform(given.rows[given.answered]))
        seen = replace(seen, answered=np.arange(len(given.answered)))
    fitted = fit_estimator(settings.plain(), seen, seed=seed)
    kept = {**fitted.about.settings, "student": type(settings).__name__, **_named(settings.features)}
    return FittedOnFeatures(about=About.of(given, seed=seed, settings=kept), features=settings.features, fitted=fitted)


def linear_on_features(
    features: AnyFeatures,
    weights: NDArray[np.float64],
    intercept: NDArray[np.float64],
    given: Lessons,
    *,
    seed: int,
    settings: Mapping[str, Any],
) -> FittedOnFeatures:
    """A linear model that is there already, as a student: kept, loaded and exported as any other.

    Args:
        weights: (n_features, n_classes) of the logits, and ``intercept`` (n_classes,).
        given: what it labeled.
        settings: how it learned.
    """
    from sklearn.linear_model import LogisticRegression

    two = len(given.classes) == 2  # then scikit-learn has one column, the difference
    model = LogisticRegression()
    model.coef_ = np.ascontiguousarray((weights[:, 1:] - weights[:, :1] if two else weights).T)
    model.intercept_ = intercept[1:] - intercept[:1] if two else intercept.copy()
    model.classes_ = np.arange(len(given.classes))
    model.n_features_in_ = len(weights)
    about = About.of(given, seed=seed, settings={**settings, **_named(features)})
    inner = replace(about, row_shape=(features.n_features,), images=False, kind=None)
    return FittedOnFeatures(about=about, features=features, fitted=FittedEstimator(about=inner, model=model))


def _named(features: AnyFeatures) -> dict[str, Any]:
    """What a card says of them; of an encoder that the folder does not carry, that it is needed."""
    match features:
        case Edges():
            return {"features": EDGES}
        case AutoFeatures():
            return {"features": AUTO}
        case EncoderFeatures():
            said: dict[str, Any] = {"features": f"{features.kind}, {features.name}", "encoder_sha256": features.digest}
            said |= {"components": 0 if features.evened is None else features.n_features}
            return said if features.carried else {**said, "needs": f"{features.name}, which is not in this folder"}
    return {"features": features.n_features}
