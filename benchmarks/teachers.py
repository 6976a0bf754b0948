"""Teachers on Adult: processes against one, the framework against a bare loop, and how well 250 teachers agree.

TERRINE_DATA=../shared/data python benchmarks/teachers.py

The estimators were compared, and the features, the penalty and the ramps of `adult_teacher` chosen, on the first half
of adult.test alone, the public half, whose labels serve here as a public tuning set: most votes for the winner among
those of the simplest family with at least 84.6% right answers there. The second half was read after that.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from rows import write
from sklearn.base import clone
from sklearn.ensemble import GradientBoostingClassifier
from sklearn.linear_model import LogisticRegression

from terrine.datasets import load
from terrine.executors import Processes, Serial
from terrine.partitioning import partition
from terrine.teachers import SklearnTeacher, fit_teachers, poll_teachers

sys.path.insert(0, str(Path(__file__).parents[1] / "experiments"))
from recipes import adult_teacher, random_forest

KEY = bytes(32)  # public here: Adult is
N_TEACHERS = 250
REPEATS = 2
BOOSTING = {"subsample": 0.5, "max_features": 0.3}
TEACHERS = {
    "forest of 100 trees": random_forest(chunk=5),
    "logistic regression": SklearnTeacher(estimator=LogisticRegression(max_iter=500), chunk=5),
    "boosting, 50 trees of depth 2": SklearnTeacher(
        estimator=GradientBoostingClassifier(n_estimators=50, max_depth=2, **BOOSTING), chunk=5
    ),
    "boosting, 100 stumps": SklearnTeacher(
        estimator=GradientBoostingClassifier(n_estimators=100, max_depth=1, **BOOSTING), chunk=5
    ),
    "adult_teacher()": adult_teacher(),
}


def speed(task: Any) -> list[dict[str, Any]]:
    """250 forests on shares of 130 rows: taught by a bare loop, Serial and two Processes; and polled as well.

    In turn, the best of some rounds each. What is polled and not kept need not travel back from the workers.
    """
    shares = partition(task.private, n_teachers=N_TEACHERS, method="balanced", key=KEY)
    teacher = TEACHERS["forest of 100 trees"]

    def bare() -> float:
        start = time.perf_counter()
        for k in range(N_TEACHERS):
            rows = shares.rows(k)
            model = clone(teacher.estimator).set_params(random_state=k)
            model.fit(task.private.X[rows], task.private.y[rows])
        return time.perf_counter() - start

    def taught(executor: Serial | Processes) -> float:
        start = time.perf_counter()
        fit_teachers(task.private, shares, teacher, classes=task.classes, seed=0, executor=executor)
        return time.perf_counter() - start

    def polled(executor: Serial | Processes) -> float:
        start = time.perf_counter()
        some = task.public.X[:2000]
        poll_teachers(task.private, shares, teacher, some, classes=task.classes, seed=0, executor=executor)
        return time.perf_counter() - start

    clone(teacher.estimator).fit(task.private.X[:100], task.private.y[:100])  # imports
    ways = (bare, lambda: taught(Serial()), lambda: taught(Processes(n_workers=2)))
    ways += (lambda: polled(Serial()), lambda: polled(Processes(n_workers=2)))
    rounds = [[way() for way in ways] for _ in range(REPEATS)]
    loop, serial, two, serial_polled, two_polled = (min(times) for times in zip(*rounds, strict=True))
    name = f"{N_TEACHERS} forests on Adult"
    return [
        {
            "metric": f"{name}, Serial, seconds",
            "value": serial,
            "baseline": "bare loop, seconds",
            "ratio": serial / loop,
        },
        {
            "metric": f"{name}, taught and handed back by two Processes, with their start, seconds",
            "value": two,
            "baseline": "Serial, seconds",
            "ratio": serial / two,
        },
        {
            "metric": f"{name}, taught and polled by two Processes, with their start, seconds",
            "value": two_polled,
            "baseline": "Serial, seconds",
            "ratio": serial_polled / two_polled,
        },
    ]


def consensus(task: Any) -> list[dict[str, Any]]:
    """250 teachers on adult.test: right answers of the plurality and its mean votes; the paper's: 84.4%, 226.7."""
    X, y = np.concatenate([task.public.X, task.test_X]), np.concatenate([task.public_y, task.test_y])
    halves = {"public_half": slice(0, len(task.public_y)), "test_half": slice(len(task.public_y), None)}
    shares = partition(task.private, n_teachers=N_TEACHERS, method="balanced", key=KEY)
    found = []
    for name, teacher in TEACHERS.items():
        start = time.perf_counter()
        two = Processes(n_workers=2)
        votes = poll_teachers(task.private, shares, teacher, X, classes=task.classes, seed=0, executor=two)
        taken = time.perf_counter() - start
        right, top = votes.counts.argmax(1) == y, votes.counts.max(1)
        row = {"metric": f"Adult, {N_TEACHERS} x {name}: plurality", "value": float(right.mean())}
        row |= {"baseline": "0.844, the paper's", "ratio": float(right.mean()) / 0.844}
        row |= {"mean_top_vote": float(top.mean()), "paper_top_vote": 226.7}
        for half, rows in halves.items():
            row |= {f"{half}_plurality": float(right[rows].mean()), f"{half}_top_vote": float(top[rows].mean())}
        found.append(row | {"seconds": taken})
    return found


if __name__ == "__main__":
    adult = load("adult")
    write("teachers", speed(adult) + consensus(adult))
