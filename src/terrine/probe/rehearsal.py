"""A probe trained on public rows with seeded noise: what a training would give, at no cost to anybody."""

from __future__ import annotations

import numpy as np

from terrine import _validate
from terrine.noise import UNIT, SeededNoise
from terrine.probe import exact
from terrine.probe.descent import Descent
from terrine.probe.fit import check_agreement
from terrine.probe.model import Probe
from terrine.probe.settings import ProbeSettings
from terrine.probe.sums import ProbeRows, Step, gradient_sum
from terrine.training_budget import TrainingBudget


def rehearse_probe(
    rows: ProbeRows,
    *,
    settings: ProbeSettings,
    budget: TrainingBudget,
    n_units: int,
    seed: int,
    device: str | None = None,
) -> Probe:
    """The steps of `fit_probe` without a ledger, on public rows: NOT private, and without a guarantee.

    Args:
        n_units: units among these rows. The noise is scaled by it over the planned number, so that a mean has the
            noise that the training will have.
        seed: of the noise.
    """
    check_agreement(rows, settings, budget)
    n_units = _validate.integer("n_units", n_units, at_least=1)
    source = SeededNoise(seed)
    descent = Descent(settings, planned_units=n_units)
    noise = budget.noise * n_units / budget.planned_units
    for step in range(1, settings.steps + 1):
        given = Step(exact.whole_weights(descent.weights), settings.scale, budget.clip)
        found = gradient_sum(rows, given, device=device).reveal()  # of public rows
        with np.errstate(over="ignore"):
            descent.add(step, found.ravel() + source.gaussian((budget.dimension,), sigma=noise / UNIT))
    return Probe(weights=descent.average(), settings=settings, steps_kept=settings.steps, guarantee=None)
