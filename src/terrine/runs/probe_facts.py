"""The facts of a run by the probe, for its report: settings, released labels, the guarantee, the student's results."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from terrine.published import PublishedProbe
from terrine.relations import Relation
from terrine.runs.base import ROUTE
from terrine.runs.config import RunConfig
from terrine.runs.remote import RemoteRun
from terrine.runs.route import kept_choice

ELSEWHERE = "not told by the label service"

if TYPE_CHECKING:
    from terrine.runs.probe import ProbeRun


def probe_facts(run: ProbeRun | RemoteRun) -> dict[str, Any]:
    """What differs from the facts of a run with teachers; `public_facts` adds what they share."""
    shown, task = run.guarantee(), run.task
    assert isinstance(shown, PublishedProbe)
    labels = run.released()[1].labels if isinstance(run, RemoteRun) else run.labels().argmax(axis=1)
    counts = np.bincount(labels, minlength=len(task.classes))
    student, X = run.student_result(), task.public.X
    return {
        "title": run.config.data.name or run.folder.name,
        "made": datetime.datetime.now(datetime.UTC).date().isoformat(),  # its time tells of private rows
        "guarantee": {
            name: value
            for name, value in shown.to_json().items()
            if name in ("epsilon", "delta", "order", "basis", "relation", "notes")
        },
        "insecure": not shown.secure_noise,
        "data": {
            "name": run.config.data.name or "own data",
            "rows": f"{X.shape[1:]} {X.dtype}",
            "classes": list(task.classes),
            "unit": run.unit_column,
            "n_public": len(task.public),
            "n_test": None if task.test_y is None else len(task.test_y),
            # Where a neighboring data set may have a different number of rows, it is not public
            "n_private": len(task.private) if task.private and shown.relation == Relation.ROW_REPLACED else None,
        },
        "probe": {
            "features": shown.features,
            "kind": ELSEWHERE if isinstance(run, RemoteRun) else run.config.features.kind,
            "steps": shown.descent,
            "steps_kept": shown.descent_kept,
            "measures": shown.steps - shown.descent,
            "clip": shown.clip,
            "noise": shown.noise,
            "planned_units": shown.planned_units,
            "settings": {} if isinstance(run, RemoteRun) else _descent(run),
            "why": _why(run),
            "measured": None if shown.measured is None else [shown.measured.accuracy, shown.measured.words],
            "warnings": [] if shown.measured is None else _warnings(shown, task.classes),
            "measured_of": "units" if shown.relation.of_units else "rows",
            "service": shown.service,
        },
        "advice": [] if isinstance(run, RemoteRun) else [str(one) for one in run.advice.warnings],
        "answers": {"labeled": len(labels), "by_class": dict(zip(task.classes, counts.tolist(), strict=True))},
        "student": None if student is None else student.to_json(),
    }


def _warnings(shown: PublishedProbe, classes: Sequence[str]) -> list[str]:
    """What was measured warns of, but what its own words are."""
    assert shown.measured is not None
    return [one for one in shown.measured.warnings(classes) if one != shown.measured.words]


def _descent(run: ProbeRun) -> dict[str, float]:
    settings = run.plan.settings
    return {"rate": settings.rate, "momentum": settings.momentum, "scale": settings.scale}


def _why(run: ProbeRun | RemoteRun) -> str:
    """Why the run went by the probe."""
    if isinstance(run, RemoteRun):
        return f"The label service at {run.config.labels.url} has one."
    if isinstance(run.given, RunConfig) and (run.folder / ROUTE).is_file():
        return kept_choice(run.folder).reason
    return "The settings asked for it."
