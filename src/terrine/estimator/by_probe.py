"""A fit by the private probe: one training, charged whole before its first step, and a student that costs no more."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from terrine.accounting.advice import Advice, advise_probe
from terrine.budgets import TrainingBudget
from terrine.errors import InputError
from terrine.estimator.by_teachers import Learned
from terrine.estimator.people import People
from terrine.estimator.plan import heed, place_of
from terrine.estimator.seen import Sides
from terrine.ledger import Ledger, ledger_place
from terrine.probe import Probe, ProbeRows, ProbeSettings, fit_probe, public_scale
from terrine.probe.exact import LATTICE_BITS
from terrine.probe.fit import refuse_other
from terrine.probe.same_rows import same_features, same_rows
from terrine.probe.settings import signal
from terrine.probe.sureness import sureness
from terrine.published import LedgerHead, PublishedProbe
from terrine.students import (
    AutoStudent,
    FittedStudent,
    fit_beside,
    fit_student,
    linear_on_features,
    try_student,
    warn_of,
)
from terrine.students.lessons import SECURE, SEEDED, Lessons


def learn_by_probe(
    model: Any,
    sides: Sides,
    people: People,
    *,
    names: tuple[str, ...],
    student: Any,
    labels: Any,
    seed: int,
) -> Learned:
    """Train on the ledger, or go on with a training that a kill left; then the student.

    Args:
        model: whose settings decide.
        student: what learns from the probe's labels; None: the probe is the student.
        labels: of public rows, -1 where unknown, to judge students by; or None.
    """
    heed(advice_on(model, people))
    settings, budget = plan_by_probe(model, sides, people, n_classes=len(names))
    if student is not None:
        try_student(student, sides.public, classes=names, n_answers=len(sides.public), keep=False)
    rows = ProbeRows(sides.seen.X, sides.seen.y, sides.seen.unit, n_classes=len(names))
    with (
        tempfile.TemporaryDirectory(prefix="terrine-") as folder,  # for a ledger that is nowhere else
        Ledger(place := ledger_place(model.ledger, folder), budget=budget) as ledger,
    ):
        if ledger.secrets is None and Path(folder) not in Path(place).parents:
            raise InputError(
                "A probe keeps what its steps released in files beside its ledger, and this ledger is on a server. "
                "Give a file as ledger. Nothing was spent."
            )
        ledger.secrets = secrets = ledger.secrets or Path(folder)
        if not same_rows(sides.data, secrets / f"training-{ledger.id}.private.sha256"):
            raise InputError(
                "The private data have changed since the training on this ledger began. Put the data back, or begin a "
                "new ledger: its epsilon and delta add to this one's."
            )
        _refuse_other_features(sides, secrets / f"training-{ledger.id}.features.sha256")
        probe = fit_probe(rows, settings=settings, ledger=ledger, executor=model.executor)
        paid = ledger.summary()
    secure = paid.secure and probe.guarantee is not None
    outside = Path(folder) not in Path(place).parents
    published = PublishedProbe.of(
        budget,
        lattice=2.0**LATTICE_BITS,
        classes=names,
        measured=probe.measured,
        measures=settings.measured,
        unit=model._unit_column,
        steps_kept=probe.steps_kept,
        features=settings.n_features,
        labeled=len(sides.public),
        secure_noise=secure,
        ledger=LedgerHead(id=paid.ledger_id, head=paid.head) if outside else None,
    )
    return Learned(
        student=_student(probe, sides, names, student, labels=labels, secure=secure, seed=seed),
        guarantee=paid.budget.guarantee() if secure else None,
        published=published,
        probe=probe,
    )


def charged_training(model: Any, sides: Sides, settings: ProbeSettings, budget: TrainingBudget) -> str | None:
    """What the ledger has charged already, in words; what a fit would refuse of it is refused, from public inputs."""
    if (place := place_of(model.ledger)) is None:
        return None
    with Ledger(place, budget=budget) as ledger:
        state = ledger.training.state()
        refuse_other(state, settings)
        kept = None if ledger.secrets is None else ledger.secrets / f"training-{ledger.id}.features.sha256"
    if kept is not None and kept.is_file():
        _refuse_other_features(sides, kept)
    if state is None:
        return None
    return (
        f"The ledger {Path(str(place)).name} is charged already, for {budget.guarantee()}: a fit with these settings "
        "and the same rows goes on there, or gives the same student again, at no further cost."
    )


def _refuse_other_features(sides: Sides, kept: Path) -> None:
    if not same_features(sides.public.X, sides.seen_public.X, kept):
        raise InputError(
            "X_public or the features have changed since the training on this ledger began: its weights would stand "
            "behind other features. Give the same X_public and features, or begin a new ledger: its epsilon and delta "
            "add to this one's."
        )


def plan_by_probe(model: Any, sides: Sides, people: People, *, n_classes: int) -> tuple[ProbeSettings, TrainingBudget]:
    """How the probe is trained, and the budget that pays for it."""
    numbers = _numbers(model, people)
    settings = ProbeSettings.by_rule(
        n_features=sides.seen_public.X.shape[1],
        n_classes=n_classes,
        scale=float(f"{public_scale(sides.seen_public.X):.3g}"),  # three digits are the same on every machine
        **numbers,
    )
    if model.measure:
        settings = settings.measuring()
    return settings, settings.budget(**numbers)


def advice_on(model: Any, people: People) -> Advice:
    """Whether a probe can learn anything, from public numbers."""
    assert people.units is not None
    return advise_probe(
        signal=signal(**_numbers(model, people)),
        epsilon=model.epsilon,
        delta=model.delta,
        units=people.units,
        enough=None,
        accept_large_delta=model.accept_large_delta,
    )


def _numbers(model: Any, people: People) -> dict[str, Any]:
    assert people.units is not None
    units, relation = people.units.number, people.relation
    return {"epsilon": model.epsilon, "delta": model.delta, "planned_units": units, "relation": relation}


def _student(
    probe: Probe, sides: Sides, names: tuple[str, ...], student: Any, *, labels: Any, secure: bool, seed: int
) -> FittedStudent:
    """The probe itself, or a student of its labels of all public rows."""
    assert sides.features is not None
    guesses = probe.predict(sides.seen_public.X)
    given = Lessons(sides.public.X, np.arange(len(guesses)), guesses, names, SECURE if secure else SEEDED)
    factor = sureness(probe, sides.seen_public.X)
    settings = {"student": "Probe", **probe.settings.to_json(), "steps_kept": probe.descent_kept, "sureness": factor}
    own = linear_on_features(
        sides.features,
        factor * probe.weights[:-1] * probe.settings.scale,
        factor * probe.weights[-1] / 2,
        given,
        seed=seed,
        settings=settings,
    )
    found: FittedStudent = own
    if isinstance(student, AutoStudent) and labels is not None:
        found = fit_beside(own, student, sides.public, guesses, truth=labels, classes=names, seed=seed)
    elif student is not None:
        made = fit_student(student, sides.public, guesses, classes=names, seed=seed)
        found = replace(made, about=replace(made.about, noise=own.about.noise))
    warn_of(found, sides.public, guesses)
    return found
