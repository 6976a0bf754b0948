"""What a run by the probe would do, and what it costs: from public inputs, before anything is written or spent."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from terrine.accounting.advice import Advice, Units
from terrine.accounting.curves import Guarantee
from terrine.datasets import Task
from terrine.probe.exact import LATTICE_BITS
from terrine.probe.settings import signal
from terrine.report.plots import SignalLine
from terrine.runs.config import ProbeConfig, RunConfig
from terrine.runs.features import features_of
from terrine.runs.probe_plan import ProbePlan, advice_on_probe, features_config, people_of, plan_probe
from terrine.which_route import RouteChoice


@dataclass(frozen=True, kw_only=True)
class ProbeDryRun:
    """What a run would do; all of it public.

    Attributes:
        data: the name of the data set, or "own data".
        units: how many are planned with.
        features: their kind; how many the plan's settings say.
        student: its kind.
        advice: whether it will work; where it refuses something, so will the run.
        choice: where the settings left the route open, what was chosen and why.
        classes: their names.
    """

    data: str
    n_classes: int
    n_public: int
    units: Units
    features: str
    plan: ProbePlan
    student: str
    guarantee: Guarantee
    advice: Advice
    choice: RouteChoice | None = None
    classes: tuple[str, ...] = ()

    @property
    def clip(self) -> float:
        """The longest contribution of a unit to a step's sum."""
        return self.plan.budget.clip / 2.0**LATTICE_BITS

    @property
    def noise(self) -> float:
        """The standard deviation of the noise on each number of a step's sum, in the measure of the clip."""
        return self.plan.budget.noise / 2.0**LATTICE_BITS

    def to_json(self) -> dict[str, Any]:
        settings = self.plan.settings
        return {
            "route": "probe",
            "data": self.data,
            "classes": self.n_classes,
            "public_rows": self.n_public,
            "planned_units": self.units.number,
            "features": settings.n_features,
            "steps": settings.steps,
            "rate": settings.rate,
            "clip": self.clip,
            "noise": self.noise,
            "student": self.student,
            "guarantee": self.guarantee.to_json(),
            "advice": self.advice.to_json(),
            **({} if self.choice is None else {"choice": self.choice.to_json()}),
        }


def signals(guarantee: Guarantee, units: Units | None) -> SignalLine | None:
    """How much a number of units says over a probe's noise, by epsilon; None where there is no such number."""
    if units is None:
        return None
    given: dict[str, Any] = {"delta": guarantee.delta, "planned_units": units.number, "relation": guarantee.relation}
    some = sorted({*np.geomspace(0.05, 10.0, 40).tolist(), guarantee.epsilon})
    return SignalLine(
        epsilons=tuple(some),
        signals=tuple(signal(epsilon=one, **given) for one in some),
        here=(guarantee.epsilon, signal(epsilon=guarantee.epsilon, **given)),
        units=units.number,
        relation=guarantee.relation.sentence,
    )


def dry_run_of_probe(
    given: ProbeConfig | RunConfig, task: Task, *, folder: Path | None = None, choice: RouteChoice | None = None
) -> ProbeDryRun:
    """What the training of a run's probe would be.

    Args:
        folder: a run directory, whose features are used where it has some.
    """
    config = given if isinstance(given, ProbeConfig) else ProbeConfig.of(given)
    assert task.private is not None
    people = people_of(task.private, given)
    planned = people.planned
    asked = features_config(config, people)
    kept = None if folder is None else folder / "features.safetensors"
    found = features_of(
        asked,
        task.public,
        seed=config.seed,
        device="auto",
        kept=kept if kept is not None and kept.is_file() else None,
    )
    plan = plan_probe(config, people, task.public, found, len(task.classes))
    assert people.units is not None
    return ProbeDryRun(
        data=given.data.name or "own data",
        n_classes=len(task.classes),
        n_public=len(task.public),
        units=Units(number=planned, public=people.units.public),
        features=asked.kind,
        plan=plan,
        student=config.student.kind,
        guarantee=plan.budget.guarantee(),
        advice=advice_on_probe(config, people),
        choice=choice,
        classes=tuple(task.classes),
    )
