"""What a student's learner would do without privacy: for the owner alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from terrine.datasets import Task
from terrine.runs.config import RunConfig
from terrine.sensitive import Sensitive, unheard


def on_private_rows(
    student: Any, task: Task, config: RunConfig, *, progress: Callable[[float], object] | None = None
) -> Sensitive[dict[str, Any]] | None:
    """How often it is right after learning from the private rows themselves; None without test labels."""
    if task.test_y is None:
        return None
    from terrine.students import fit_student

    assert task.private is not None
    with unheard():
        learner = fit_student(
            student, task.private.X, task.private.y, classes=task.classes, seed=config.seed, progress=progress
        )
        right = learner.predict(task.test_X) == task.test_y
    return Sensitive({"accuracy": float(right.mean()), "kind": f"{config.student.kind}, on the private rows"})
