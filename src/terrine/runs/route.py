"""The route of a run that leaves it open: chosen once, from public inputs alone, before anything is taught or spent."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from terrine.datasets import Task
from terrine.errors import InputError
from terrine.runs.base import ROUTE, read_json, write_json
from terrine.runs.config import ProbeConfig, RunConfig
from terrine.runs.features import features_of
from terrine.runs.probe_plan import check_neighbors, features_config, people_of
from terrine.runs.tasks import task_of
from terrine.which_route import RouteChoice, choose_route


def choose(settings: RunConfig, task: Task) -> RouteChoice:
    """Compare the routes; the private rows are read for what they show anyway: units or none, and a public number."""
    assert task.private is not None
    assert settings.privacy.epsilon is not None
    check_neighbors(task.private, settings)
    people = people_of(task.private, settings)
    return choose_route(
        epsilon=settings.privacy.epsilon,
        delta=settings.privacy.delta,
        relation=people.relation,
        planned_units=None if people.units is None else people.units.number,
        n_classes=len(task.classes),
        n_features=_n_features(settings, task),
        n_public=len(task.public),
        n_teachers=settings.teachers.number,
    )


def settle(settings: RunConfig, folder: Path) -> str:
    """The route of a run directory: what it chose before, else chosen now and kept."""
    path = folder / ROUTE
    if not path.is_file():
        write_json(path, choose(settings, task_of(settings.data, run=folder)).to_json())
    return kept_choice(folder).route


def kept_choice(folder: Path) -> RouteChoice:
    """What a run directory chose."""
    path = folder / ROUTE
    try:
        return RouteChoice.from_json(read_json(path, "terrine run"))
    except InputError as error:
        why = str(error).rstrip(".")
        raise InputError(
            f"{path} is damaged ({why}). Put it back as it was: what was taught or spent went by it."
        ) from None


def _n_features(settings: RunConfig, task: Task) -> int:
    """How many numbers the probe would see of a row; of images about, for making them takes a while."""
    X = task.public.X
    probe = ProbeConfig.of(settings)
    asked = probe.features
    people = people_of(task.private, settings) if task.private is not None else None
    if people is not None and people.units is not None:
        asked = features_config(probe, people)
    if isinstance(X, np.ndarray) and X.dtype == np.uint8 and X.ndim in (3, 4) and asked.kind == "auto":
        return min(int(asked.options.get("components", 500)), len(X))
    return features_of(asked, task.public, seed=settings.seed, device="auto").n_features
