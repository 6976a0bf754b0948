"""Small tasks and teachers for the tests of teachers, and what tells two teachers apart."""

from __future__ import annotations

import hashlib
from typing import Any

import joblib
import numpy as np
import torch
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression

from terrine.datasets import PrivateData
from terrine.partitioning import Partition, partition
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

KEY = bytes(range(32))
CLASSES = ("a", "b", "c", "d")
SMALL = ConvRecipe(channels=(4, 8), hidden=16, steps=60, batch=16, shift=0.5, dropout=0.1)


def mixed(n_classes: int, row_shape: tuple[int, ...], channels: int = 6, dropout: float = 0.2) -> torch.nn.Module:
    """A module with all that could cross teachers: batch statistics, buffers, randomness of its own."""
    height, width = row_shape[:2]
    return torch.nn.Sequential(
        torch.nn.Conv2d((*row_shape, 1)[2], channels, 3, padding=1),
        torch.nn.BatchNorm2d(channels),
        torch.nn.ReLU(),
        torch.nn.AvgPool2d(2),
        torch.nn.Flatten(),
        torch.nn.Dropout(dropout),
        torch.nn.Linear(channels * (height // 2) * (width // 2), n_classes),
    )


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


def images(n: int, *, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """(n, 8, 8) uint8 with one bright quarter, which is the class."""
    rng = np.random.default_rng(seed)
    y = rng.integers(4, size=n)
    X = rng.integers(0, 120, size=(n, 8, 8))
    for k, (row, column) in enumerate(((0, 0), (0, 4), (4, 0), (4, 4))):
        X[y == k, row : row + 4, column : column + 4] += 80
    return X.astype(np.uint8), y


def task(n: int = 240, *, seed: int = 0) -> PrivateData:
    """Two rows to a unit."""
    X, y = images(n, seed=seed)
    return PrivateData(X, y, unit=np.arange(n) // 2)


def shares_of(data: PrivateData, n_teachers: int = 7) -> Partition:
    return partition(data, n_teachers=n_teachers, key=KEY, min_units=0)


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
