"""Teacher and student as they were asked for, on features where there are some; and what rows they take."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sklearn.base import BaseEstimator

from terrine.datasets.rows import takes_nan, takes_tables
from terrine.students import AutoStudent, FeatureStudent, SupervisedStudent
from terrine.teachers import RidgeTeacher, SklearnTeacher

if TYPE_CHECKING:
    from terrine.features import AnyFeatures


def teacher_of(asked: Any, *, on_features: bool) -> Any:
    """A random forest by default; on features, which are on scales that can be compared, linear models."""
    from sklearn.ensemble import RandomForestClassifier

    if asked is None:
        asked = RidgeTeacher() if on_features else RandomForestClassifier()
    return SklearnTeacher(estimator=asked) if isinstance(asked, BaseEstimator) else asked


def student_of(asked: Any, features: AnyFeatures | None = None) -> Any:
    """What learns from public rows: of features it takes them along, so that its receiver gives rows."""
    from sklearn.ensemble import RandomForestClassifier

    student = SupervisedStudent(estimator=asked) if isinstance(asked, BaseEstimator) else asked
    if features is None:
        return SupervisedStudent(estimator=RandomForestClassifier()) if student is None else student
    if student is None:
        return FeatureStudent(features=features)
    if isinstance(student, AutoStudent) and student.features is None:
        return replace(student, features=features)
    return FeatureStudent(features=features, **vars(student)) if isinstance(student, SupervisedStudent) else student


def nan_is_taken(learner: Any) -> bool:
    """Whether missing numbers are the learner's own business."""
    return hasattr(learner, "estimator") and takes_nan(learner.estimator)


def tables_are_taken(learner: Any) -> bool:
    """Whether the learner is given tables as they are."""
    estimator = table_estimator(learner)
    return estimator is not None and takes_tables(estimator)


def table_estimator(learner: Any) -> Any:
    """The scikit-learn estimator that may be given a table; None where the learner takes arrays only."""
    return learner.estimator if isinstance(learner, SklearnTeacher | SupervisedStudent) else None


def names_are_wanted(learner: Any) -> bool:
    """Whether columns may be asked for by name: inside a Pipeline they may."""
    return tables_are_taken(learner) and hasattr(learner.estimator, "get_params") and _has_pipeline(learner.estimator)


def _has_pipeline(estimator: Any) -> bool:
    from sklearn.compose import ColumnTransformer
    from sklearn.pipeline import Pipeline

    inside = (estimator, *estimator.get_params(deep=True).values())
    return any(isinstance(one, (Pipeline, ColumnTransformer)) for one in inside)
