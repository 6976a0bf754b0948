"""What a run would do, and what that can cost at worst: from public inputs, before anything is written or spent."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from terrine.budgets import mechanism_to_json
from terrine.errors import InputError
from terrine.runs.config import read_config
from terrine.runs.factories import budget_of, check_options, planned
from terrine.runs.local import Run
from terrine.runs.tasks import task_of


def dry_run(source: str | Path) -> dict[str, Any]:
    """What a run would do and what that can cost at worst; nothing is written."""
    path = Path(source)
    given = Run(path).given if path.is_dir() else read_config(path)
    check_options(given)
    task, privacy = task_of(given.data), given.privacy
    if privacy.wants_plan:
        privacy = planned(given, n_classes=len(task.classes), n_public=len(task.public))
    if privacy.queries is not None and privacy.queries > len(task.public):
        raise InputError(
            f"Expected privacy.queries of at most {len(task.public)}, the public rows, got {privacy.queries}."
        )
    budget = budget_of(privacy)
    return {
        "data": given.data.name or "own data",
        "classes": len(task.classes),
        "public_rows": len(task.public),
        "teachers": given.teachers.number,
        "teacher": given.teachers.kind,
        "mechanism": mechanism_to_json(budget.mechanism),
        "queries_at_most": budget.n_queries,
        "answers_at_most": budget.n_answers,
        "student": given.student.kind,
        "guarantee": asdict(budget.guarantee()),
    }
