"""Ready-made teachers: what their features are, and that a store takes them."""

from __future__ import annotations

import numpy as np
import pytest
from experiments.recipes import adult_teacher, random_forest

from terrine.datasets import adult


def rows(n: int) -> tuple[np.ndarray, np.ndarray]:
    """People who earn more the older they are."""
    rng = np.random.default_rng(0)
    names = adult.feature_names()
    X = rng.integers(2, size=(n, len(names))).astype(np.float32)
    X[:, names.index("age")] = rng.uniform(0.17, 0.9, size=n)
    return X, (X[:, names.index("age")] > 0.4).astype(np.int64)


def test_numbers_become_ramps_between_public_ends():
    teacher = adult_teacher()
    [model] = teacher.fit([rows(100)], ids=[0], n_classes=2, seed=0)
    names = adult.feature_names()
    X = np.zeros((4, len(names)), dtype=np.float32)
    X[:, names.index("age")] = (0.10, 0.17, 0.31, 0.60)
    X[:, names.index("capital-gain")] = np.log1p([0, 3000, 6500, 99_999]) / np.log1p(99_999)
    X[1, names.index("occupation=Sales")] = 1
    X[2, names.index("race=White")] = 1
    seen = model[0].transform(X)
    kept = [name for name in names if name.split("=")[0] in ("marital-status", "relationship", "occupation")]
    assert seen.shape == (4, len(kept) + 5)
    assert seen[:, len(kept)] == pytest.approx([0, 0, 2, 4], abs=1e-5)
    assert seen[:, len(kept) + 2] == pytest.approx([0, 0, 4, 4], abs=1e-4)
    assert seen[:, : len(kept)].sum() == seen[1, kept.index("occupation=Sales")] == 1


@pytest.mark.parametrize("teacher", [adult_teacher(), random_forest(n_trees=7)], ids=["adult", "forest"])
def test_they_learn_and_can_be_kept(teacher):
    X, y = rows(300)
    models = teacher.fit([(X, y)], ids=[0], n_classes=2, seed=0)
    votes = teacher.predict(models, X)
    assert (votes == y).mean() > 0.9
    assert (teacher.predict(teacher.loads(teacher.dumps(models)), X) == votes).all()


def test_the_papers_forest_has_a_hundred_trees():
    assert random_forest().estimator.n_estimators == 100
