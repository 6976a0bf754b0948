"""Gaussian blobs: a task for tests, made in a moment."""

from __future__ import annotations

import numpy as np

from terrine import _validate
from terrine.datasets.data import PrivateData, PublicData, Task


def blobs(
    *,
    n_private: int = 2000,
    n_public: int = 500,
    n_test: int = 500,
    n_classes: int = 3,
    n_features: int = 2,
    spread: float = 0.5,
    rows_per_unit: int = 1,
    seed: int = 0,
) -> Task:
    """Rows around one center per class; centers lie on a sphere of radius 2, ``spread`` is a standard deviation.

    With ``rows_per_unit`` above 1 the private rows belong to units of that number of rows each, named by whole numbers.
    """
    sizes = {"n_private": n_private, "n_public": n_public, "n_test": n_test}
    sizes = {name: _validate.integer(name, value, at_least=1) for name, value in sizes.items()}
    n_classes = _validate.integer("n_classes", n_classes, at_least=2)
    n_features = _validate.integer("n_features", n_features, at_least=2)
    rows_per_unit = _validate.integer("rows_per_unit", rows_per_unit, at_least=1)
    spread = _validate.positive("spread", spread)
    seed = _validate.integer("seed", seed, at_least=0)
    if n_features == 2:
        angles = 2 * np.pi * np.arange(n_classes) / n_classes
        centres = np.column_stack([np.cos(angles), np.sin(angles)])
    else:
        centres = np.random.default_rng([seed, 0]).normal(size=(n_classes, n_features))
        centres /= np.linalg.norm(centres, axis=1, keepdims=True)
    parts = []
    for part, n_rows in enumerate(sizes.values(), start=1):
        rng = np.random.default_rng([seed, part])
        y = rng.integers(n_classes, size=n_rows)
        parts.append(((2 * centres[y] + rng.normal(scale=spread, size=(n_rows, n_features))).astype(np.float32), y))
    (X, y), (public_X, public_y), (test_X, test_y) = parts
    unit = np.arange(len(y)) // rows_per_unit if rows_per_unit > 1 else None
    return Task(
        name="blobs",
        private=PrivateData(X, y, unit=unit),
        public=PublicData(public_X),
        public_y=public_y,
        test_X=test_X,
        test_y=test_y,
        classes=tuple(f"blob {k}" for k in range(n_classes)),
    )
