"""Both routes played on labeled public rows, fold by fold, so that the better one can be chosen at no cost in privacy.

Nothing private is read. Noise comes from a seed; nothing that comes out is private.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from terrine import _validate
from terrine.errors import InputError
from terrine.executors import Executor
from terrine.probe import ProbeRows, ProbeSettings, public_scale, rehearse_probe
from terrine.relations import Relation
from terrine.runs.rehearsal import LEAST, rehearse
from terrine.students import FeatureStudent, Student
from terrine.teachers import Teacher
from terrine.which_route import RehearsedRoutes

FOLDS = 4  # two teach, one is asked about, one tests


def rehearse_routes(
    X: Any,
    y: ArrayLike,
    *,
    seen: NDArray[Any],
    classes: Sequence[str],
    teacher: Teacher,
    student: Student,
    n_teachers: int,
    epsilon: float,
    delta: float,
    relation: Relation,
    planned_units: int,
    seed: int,
    executor: Executor | None = None,
) -> RehearsedRoutes:
    """How often students of teachers, and a probe, are right on labeled PUBLIC rows that neither saw.

    Each route has the noise, and each pretended teacher the rows, of the planned number of units. The probe's noise is
    scaled by the rows that teach it over that number, so that a mean has the noise that it will have.

    Args:
        X, y: public rows, and their class indices; -1 where a row has no label: it is left out.
        seen: (n_rows, n_features) what teachers and probe see of these rows.
        teacher, student: as in the fit to come.
        relation: what neighbors differ in: teachers pay for one moved vote by any of them.
    """
    seed = _validate.integer("seed", seed, at_least=0)
    planned_units = _validate.integer("planned_units", planned_units, at_least=1)
    labels = np.asarray(y)
    if labels.ndim != 1 or labels.dtype.kind not in "iu" or not len(labels) == len(X) == len(seen):
        raise InputError("y must hold one class index for each row of X and of seen, -1 where a row has no label.")
    known = np.flatnonzero(labels >= 0)
    if len(known) < LEAST:
        raise InputError(f"A rehearsal needs at least {LEAST} labeled public rows, got {len(known)}.")
    labels = labels[known].astype(np.int64)
    plan: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "planned_units": planned_units, "relation": relation}
    settings = ProbeSettings.by_rule(n_features=seen.shape[1], n_classes=len(classes), scale=public_scale(seen), **plan)
    budget = settings.budget(**plan)
    features, rows, learner = seen[known], X[known], student
    if isinstance(student, FeatureStudent):  # it would make the same features again
        rows, learner = features, student.plain()
    if not isinstance(rows, np.ndarray):
        raise InputError(
            "A rehearsal needs rows that are arrays, or a student on features. Give features, or leave out the labels "
            "of the public rows."
        )
    folds = np.array_split(np.random.default_rng([seed, 4]).permutation(len(known)), FOLDS)
    by_teachers, by_probe = [], []
    for k, held in enumerate(folds):
        taught = np.concatenate([folds[(k + 2) % FOLDS], folds[(k + 3) % FOLDS]])
        played = rehearse(
            rows,
            labels,
            classes=classes,
            teacher=teacher,
            student=learner,
            n_teachers=[n_teachers],
            epsilons=[epsilon],
            delta=delta,
            seed=seed + k,
            planned_units=planned_units,
            see=lambda _: features,
            executor=executor,
            split=(taught, folds[(k + 1) % FOLDS], held),
        )
        probe = rehearse_probe(
            ProbeRows(features[taught], labels[taught], n_classes=len(classes)),
            settings=settings,
            budget=budget,
            n_units=len(taught),
            seed=seed + k,
        )
        commonest = np.bincount(labels[taught]).argmax()  # all that is known where no student could learn
        right = played.cells[0].student_accuracy
        by_teachers.append(float((labels[held] == commonest).mean()) if right is None else right)
        by_probe.append(float((probe.predict(features[held]) == labels[held]).mean()))
    return RehearsedRoutes(teachers=tuple(by_teachers), probe=tuple(by_probe), n_labelled=len(known))
