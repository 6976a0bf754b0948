"""Small tasks and teachers for the tests of teachers, and what tells two teachers apart."""

from __future__ import annotations

import hashlib
from typing import Any

import joblib
import numpy as np
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from tests.teachers.rows import CLASSES, KEY, images, mixed, shares_of, task  # noqa: F401

from terrine.teachers import (
    CentroidTeacher,
    ConvRecipe,
    ConvTeacher,
    ModuleRecipe,
    ModuleTeacher,
    RidgeTeacher,
    SklearnTeacher,
    TeacherEnsemble,
)

SMALL = ConvRecipe(channels=(4, 8), hidden=16, steps=60, batch=16, shift=0.5, dropout=0.1)


FOREST = SklearnTeacher(estimator=RandomForestClassifier(n_estimators=5), chunk=3)
LINEAR = SklearnTeacher(estimator=LogisticRegression(), chunk=3)
NETS = ConvTeacher(recipe=SMALL, device="cpu", chunk=3)
QUICK = ModuleRecipe(steps=30, batch=16, learning_rate=0.02, shift=1, clip=5.0, smoothing=0.05)
MODULES = ModuleTeacher(module=mixed, recipe=QUICK, device="cpu", chunk=3)
CENTROIDS = CentroidTeacher(chunk=3)
RIDGES = RidgeTeacher(chunk=3)
TEACHERS = {
    "forest": FOREST,
    "linear": LINEAR,
    "nets": NETS,
    "modules": MODULES,
    "centroids": CENTROIDS,
    "ridges": RIDGES,
}


def prints(ensemble: TeacherEnsemble) -> list[str]:
    """A fingerprint of every teacher: all that it learned, bit for bit."""
    assert ensemble._models is not None
    found: list[str] = []
    for models in ensemble._models.values():
        found.extend(prints_of(models))
    return found


def prints_of(models: Any) -> list[str]:
    if isinstance(models, dict):
        n = len(next(iter(models.values())))
        one = [b"".join(models[name][k].tobytes() for name in sorted(models)) for k in range(n)]
        return [hashlib.sha256(data).hexdigest() for data in one]
    return [_print_of(model) for model in models]


def _print_of(model: Any) -> str:
    """Of a forest: its trees, field by field, for between the fields of a node lies memory that nobody wrote."""
    trees = [tree.tree_.__getstate__() for tree in np.ravel(getattr(model, "estimators_", []))]
    if not trees:
        return str(joblib.hash(model))
    return str(joblib.hash([[[t["nodes"][name] for name in t["nodes"].dtype.names], t["values"]] for t in trees]))
