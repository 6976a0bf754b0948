"""The route of a run that leaves it open: chosen once, from public inputs alone, before anything is taught or spent."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from terrine.datasets import Task
from terrine.errors import InputError, PlanError
from terrine.features import AutoRecipe
from terrine.runs.base import ROUTE, read_json, write_json
from terrine.runs.config import ProbeConfig, RunConfig
from terrine.runs.factories import executor_of, student_of, teacher_of
from terrine.runs.features import features_of
from terrine.runs.features_config import takes_texts
from terrine.runs.probe_plan import People, check_neighbors, features_config, people_of, seen_by_probe
from terrine.runs.rehearse_routes import rehearse_routes
from terrine.runs.tasks import public_labels_of, task_of
from terrine.which_route import RehearsedRoutes, RouteChoice, choose_route


def choose(settings: RunConfig, task: Task) -> RouteChoice:
    """Compare the routes, by a rehearsal too where the public file has labels.

    The private rows are read for what they show anyway: whether there are units, and a number that is public.
    """
    assert task.private is not None
    assert settings.privacy.epsilon is not None
    people = people_of(task.private, settings)
    if people.units is None:
        raise InputError(
            'data.units_planned is missing: route = "auto" compares teachers and probe by about how many people (or '
            "rows, where a row is its own) there are, and the true number is private. Give a number from public "
            "knowledge, such as an annual report, and do not count your private rows; or set "
            'route = "teachers". Nothing was taught or spent.'
        )
    labels = public_labels_of(settings.data, task)
    found = choose_route(
        epsilon=settings.privacy.epsilon,
        delta=settings.privacy.delta,
        relation=people.relation,
        planned_units=people.planned,
        n_classes=len(task.classes),
        n_features=_n_features(settings, task),
        n_public=len(task.public),
        n_teachers=settings.teachers.number,
        rehearsed=None if labels is None else _rehearsed(settings, task, people, labels),
    )
    if found.route == "teachers":  # a probe has any relation, each row being a unit where there are none
        check_neighbors(task.private, settings)
    return found


def _rehearsed(settings: RunConfig, task: Task, people: People, labels: NDArray[np.int64]) -> RehearsedRoutes | None:
    """Both routes on the labeled public rows; None where these are too few for it, and the rule decides alone."""
    asked = ProbeConfig.of(settings).features
    device = settings.teachers.device
    features = features_of(asked, task.public, seed=settings.seed, device=device)
    try:
        return rehearse_routes(
            task.public.X,
            labels,
            seen=seen_by_probe(features, task.public),
            classes=task.classes,
            teacher=teacher_of(settings.teachers),
            student=student_of(settings.student, features=lambda: features),
            n_teachers=settings.teachers.number,
            epsilon=settings.privacy.epsilon or 0.0,
            delta=settings.privacy.delta,
            relation=people.relation,
            planned_units=people.planned,
            seed=settings.seed,
            executor=executor_of(settings.teachers),
        )
    except (InputError, PlanError):  # of public rows
        return None


def settle(settings: RunConfig, folder: Path) -> str:
    """The route of a run directory: what it chose before, else chosen now and kept."""
    path = folder / ROUTE
    if not path.is_file():
        write_json(
            path, choose(settings, task_of(settings.data, run=folder, texts=takes_texts(settings.features))).to_json()
        )
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
        recipe = AutoRecipe(**asked.options)
        n_sets = 1 + recipe.patches + (recipe.encoder == "yes")
        return n_sets * min(recipe.each_of(n_sets), len(X))
    return features_of(asked, task.public, seed=settings.seed, device="auto").n_features
