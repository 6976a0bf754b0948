"""Ridge teachers, stacked, against a loop over scikit-learn's RidgeClassifierCV, one thread, processor time.

OMP_NUM_THREADS=1 python benchmarks/ridge.py

Both choose a ridge by leaving out rows in closed form, each inside its share, on 500 made-up features and 10 classes.
The loop is timed on some of the teachers, and the ratio is per teacher.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from rows import write
from sklearn.linear_model import RidgeClassifierCV

from terrine.teachers import RidgeTeacher

FEATURES, CLASSES = 500, 10
SIZES = ((10_000, 6), (10_000, 20), (1_000, 60), (250, 240))  # teachers, rows each
LOOPED = 40  # teachers of the loop
QUERIES = 1_000


def shares(n_teachers: int, n_rows: int) -> list[Any]:
    rng = np.random.default_rng(0)
    centers = rng.standard_normal((CLASSES, FEATURES))
    found = []
    for _ in range(n_teachers):
        y = rng.permutation(np.arange(n_rows) % CLASSES)
        found.append(((centers[y] + 3 * rng.standard_normal((n_rows, FEATURES))).astype(np.float32), y))
    return found


def taught(teacher: RidgeTeacher, given: list[Any], queries: Any) -> tuple[float, float]:
    """Seconds to teach all, and for them to vote."""
    teaching = voting = 0.0
    for first in range(0, len(given), teacher.chunk):
        some = given[first : first + teacher.chunk]
        start = time.process_time()
        models = teacher.fit(some, ids=range(len(some)), n_classes=CLASSES, seed=0)
        middle = time.process_time()
        teacher.predict(models, queries)
        teaching, voting = teaching + middle - start, voting + time.process_time() - middle
    return teaching, voting


def main() -> None:
    rows = []
    queries = np.random.default_rng(1).standard_normal((QUERIES, FEATURES)).astype(np.float32)
    teacher = RidgeTeacher()
    for n_teachers, n_rows in SIZES:
        given = shares(n_teachers, n_rows)
        alphas = [ridge * n_rows * FEATURES * 10 for ridge in teacher.ridges]
        RidgeClassifierCV(alphas=alphas).fit(*given[0])  # imports
        start = time.process_time()
        for X, y in given[:LOOPED]:
            RidgeClassifierCV(alphas=alphas).fit(X, y)
        each = (time.process_time() - start) / LOOPED
        teaching, voting = taught(teacher, given, queries)
        name = f"{n_teachers:,} ridge teachers of {n_rows} rows"
        ratio = each * n_teachers / teaching
        rows.append(
            {
                "metric": f"{name}: taught",
                "value": round(teaching, 2),
                "unit": "s",
                "baseline": "a loop over RidgeClassifierCV",
                "ratio": round(ratio, 1),
            }
        )
        rows.append({"metric": f"{name}: votes on {QUERIES:,} rows", "value": round(voting, 2), "unit": "s"})
    write("ridge", rows)


if __name__ == "__main__":
    main()
