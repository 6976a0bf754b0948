"""Ready-made teachers: the paper's forest, and a better one for UCI Adult."""

from __future__ import annotations

import math
from typing import Any

from terrine.teachers.estimators import SklearnTeacher

# Where income starts and stops growing with a number, in its own unit; and the columns of names that are kept. Public,
# chosen on the public half of adult.test. Race, sex and country add noise to small shares and no right answer.
_RAMPS = {
    "age": (17, 45),
    "education-num": (8, 14),
    "capital-gain": (3_000, 6_500),
    "capital-loss": (1_300, 1_900),
    "hours-per-week": (30, 50),
}
_NAMES = ("marital-status", "relationship", "occupation")


def random_forest(*, n_trees: int = 100, chunk: int = 4) -> SklearnTeacher:
    """A random forest as scikit-learn makes it: the paper's teacher for tables."""
    from sklearn.ensemble import RandomForestClassifier

    return SklearnTeacher(estimator=RandomForestClassifier(n_estimators=n_trees), chunk=chunk)


def adult_teacher(*, chunk: int = 10) -> SklearnTeacher:
    """For ``load("adult")``: logistic regression on five ramps and three columns of names.

    Few, bounded and strongly penalized features: teachers of some 130 rows agree on more rows than forests or boosted
    trees do, and are right on more (docs/teachers.md).
    """
    import numpy as np
    from sklearn.compose import ColumnTransformer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer

    from terrine.datasets.adult import feature_names

    columns = feature_names()
    parts: list[Any] = [("names", "passthrough", [i for i, name in enumerate(columns) if name.split("=")[0] in _NAMES])]
    for name, ends in _RAMPS.items():
        # From 0 to 4: the penalty bears on a number 16 times less than on a name
        ramp = {"xp": [_coded(name, end) for end in ends], "fp": [0.0, 4.0]}
        parts.append((name, FunctionTransformer(np.interp, kw_args=ramp), [columns.index(name)]))
    return SklearnTeacher(estimator=make_pipeline(ColumnTransformer(parts), LogisticRegression(C=0.3)), chunk=chunk)


def _coded(column: str, value: float) -> float:
    """As `terrine.datasets.adult` codes a number."""
    from terrine.datasets.adult import COLUMNS

    match COLUMNS[column]:
        case ("linear", float() as scale):
            return value / scale
        case ("log", float() as scale):
            return math.log1p(value) / math.log1p(scale)
    raise AssertionError(column)
