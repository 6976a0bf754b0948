"""A budget for training one probe: steps, clip and noise, fixed beforehand. Public."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from terrine import _validate
from terrine._validate import JsonObject
from terrine.accounting.curves import WIDE_ORDERS, Guarantee
from terrine.accounting.gdp import GaussianSteps, least_step_noise
from terrine.errors import InputError
from terrine.mechanisms import Mechanism
from terrine.relations import Relation
from terrine.spending import SCHEMA, Spending

TRAINED = (
    "Epsilon is that of the whole training, however many steps were made of it. Any number of labels by the trained "
    "probe adds nothing to it."
)
_LEAST_NOISE = 2**21  # what the samplers take, and far above what the lattice could show through
# How many contributions neighbors differ in: a changed unit is one that goes and one that comes
_CHANGED = {
    Relation.UNIT_ADDED: 1,
    Relation.ROW_ADDED: 1,
    Relation.UNIT_ANY: 2,
    Relation.UNIT_REPLACED: 2,
    Relation.ROW_REPLACED: 2,
}


def contributions_changed(relation: Relation) -> int:
    """How many units' contributions two neighbors differ in. [TERRINE, Thm. 21]"""
    relation = Relation(relation)
    if relation not in _CHANGED:
        raise InputError(
            f"A probe has no teachers, and its neighbors cannot be that {relation.sentence}. Take one of "
            f"{', '.join(_CHANGED)}."
        )
    return _CHANGED[relation]


@dataclass(frozen=True, kw_only=True)
class TrainingBudget:
    """The training of one probe: a number of noisy sums of clipped gradients, charged whole before the first.

    Args:
        steps: sums that may be released.
        clip: the longest contribution of a unit to a sum, in lattice steps.
        noise: the parameter of the discrete Gaussian on every coordinate, in lattice steps.
        dimension: coordinates of a sum.
        planned_units: stands in for the private number of units where a mean is taken.
        delta: of the guarantee.
        relation: what neighboring data sets may differ in; a unit that is added or removed moves a sum by ``clip`` at
            most, one that is changed or replaced by twice that.

    [TERRINE, Thm. 21]
    """

    steps: int
    clip: int
    noise: int
    dimension: int
    planned_units: int
    delta: float
    relation: Relation = Relation.UNIT_ADDED

    def __post_init__(self) -> None:
        for name in ("steps", "clip", "noise", "dimension", "planned_units"):
            object.__setattr__(self, name, _validate.integer(name, getattr(self, name), at_least=1))
        object.__setattr__(self, "delta", _validate.between("delta", self.delta, 0.0, 1.0))
        object.__setattr__(self, "relation", Relation(self.relation))
        if self.cost.noise < _LEAST_NOISE:
            raise InputError(f"noise must be at least 2^21 lattice steps, got {self.noise}. Take a larger clip.")
        if self.planned_units * self.clip + 64 * self.noise >= 2**63:
            raise InputError(
                "planned_units x clip + 64 x noise must be below 2^63 lattice steps. Take a smaller clip or less noise."
            )
        self.cost.epsilon(delta=self.delta)  # what no epsilon can be said of is not charged

    @classmethod
    def for_epsilon(
        cls,
        epsilon: float,
        *,
        steps: int,
        clip: int,
        dimension: int,
        planned_units: int,
        delta: float,
        relation: Relation = Relation.UNIT_ADDED,
    ) -> TrainingBudget:
        """With the least noise that gives this epsilon at delta."""
        noise = least_step_noise(
            epsilon=epsilon,
            delta=delta,
            steps=steps,
            sensitivity=clip * contributions_changed(relation),
            dimension=dimension,
        )
        return cls(
            steps=steps,
            clip=clip,
            noise=noise,
            dimension=dimension,
            planned_units=planned_units,
            delta=delta,
            relation=relation,
        )

    @property
    def cost(self) -> GaussianSteps:
        """What the steps cost, whatever the data."""
        return GaussianSteps(
            steps=self.steps,
            sensitivity=self.clip * contributions_changed(self.relation),
            noise=self.noise,
            dimension=self.dimension,
        )

    @property
    def limit(self) -> Spending:
        """Its steps stand where other budgets have queries."""
        return Spending(queries=self.steps)

    @property
    def orders(self) -> NDArray[np.float64]:
        return WIDE_ORDERS

    def guarantee(self) -> Guarantee:
        """Of everything that is ever released of the training, and of all that is learned from it."""
        return Guarantee(
            epsilon=self.cost.epsilon(delta=self.delta),
            delta=self.delta,
            basis=(
                f"at most {self.steps} sums of clipped contributions with discrete Gaussian noise, by Gaussian "
                "differential privacy with the lattice's share taken out: it does not depend on the data"
            ),
            relation=self.relation,
            notes=(TRAINED,),
        )

    def price(self, mechanism: Mechanism, *, n_queries: int, n_answers: int) -> NoReturn:
        """It pays for no answers of teachers."""
        raise InputError(
            f"This budget pays for the training of a probe, and not for {type(mechanism).__name__}. Begin a new ledger "
            "for answers of teachers: its epsilon and delta add to this one's."
        )

    def holds(self, spent: Spending) -> bool:
        """Nothing, or all of it."""
        return spent in (Spending(), self.limit)

    def room(self, spent: Spending, mechanism: Mechanism) -> int:
        """Of queries to teachers there are none."""
        return 0

    def remaining(self, spent: Spending) -> dict[str, float]:
        """All of the steps, or none."""
        return {"steps": (self.limit - spent).queries}

    def in_words(self, spending: Spending, *, left: bool = False) -> str:
        """What was spent, or is left, for people."""
        if left:
            return "the whole training" if spending == self.limit else "nothing: the one training is charged"
        return f"one training of {self.steps} noisy sums"

    def to_json(self) -> JsonObject:
        """The whole budget, as ledgers store and hash it; `budget_from_json` reads it."""
        return {
            "schema": SCHEMA,
            "kind": "training",
            "steps": self.steps,
            "clip": self.clip,
            "noise": self.noise,
            "dimension": self.dimension,
            "planned_units": self.planned_units,
            "delta": self.delta,
            "relation": self.relation.sentence,  # not its code: ledgers hash this text
        }
