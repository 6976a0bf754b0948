"""How a probe learns, and a rule for it from public numbers alone."""

from __future__ import annotations

import hashlib
import math
from dataclasses import asdict, dataclass, replace

import numpy as np
from numpy.typing import NDArray

from terrine import _validate
from terrine._validate import JsonObject
from terrine.accounting.gdp import least_step_noise
from terrine.errors import InputError
from terrine.probe import exact
from terrine.probe.sums import check_size
from terrine.relations import Relation
from terrine.spending import canonical
from terrine.training_budget import TrainingBudget, contributions_changed

SCHEMA = "terrine.probe/1"
_LEAST_CLIP = 0.01  # far above what rounding of residuals can add to a length: it biases nothing
_REACH, _CLIP = 0.22, 0.2  # of the rule: docs/probe.md, Settings


@dataclass(frozen=True, kw_only=True)
class ProbeSettings:
    """Full-batch gradient descent on clipped sums, with momentum; the later iterates are averaged. Public.

    Args:
        n_features, n_classes: of the rows.
        steps: of the descent.
        clip: a unit's mean gradient is shortened to this length, from 0.01 to 2.
        rate: a step moves the weights by rate / clip times the mean of clipped gradients.
        momentum: of 0 up to but not 1.
        scale: what features are multiplied with; `public_scale` of public rows makes their mean length 1.
        measured: one more sum, after the steps, tells with noise how often the probe is right about its own rows.
    """

    n_features: int
    n_classes: int
    steps: int = 60
    clip: float = 0.3
    rate: float = 16.0
    momentum: float = 0.9
    scale: float = 1.0
    measured: bool = False

    def __post_init__(self) -> None:
        for name, least in (("n_features", 1), ("n_classes", 2), ("steps", 1)):
            object.__setattr__(self, name, _validate.integer(name, getattr(self, name), at_least=least))
        for name in ("clip", "rate", "scale"):
            object.__setattr__(self, name, _validate.positive(name, getattr(self, name)))
        object.__setattr__(self, "momentum", _validate.number("momentum", self.momentum))
        if not 0 <= self.momentum < 1:
            raise InputError(f"momentum must be at least 0 and below 1, got {self.momentum}.")
        if not _LEAST_CLIP <= self.clip <= 2:
            raise InputError(f"clip must be from {_LEAST_CLIP:g} to 2, got {self.clip:g}.")
        check_size(n_features=self.n_features, n_classes=self.n_classes)
        if self.measured and self.n_features < 2:
            raise InputError("A probe of one feature has no room for what is measured. Leave out measured.")

    @classmethod
    def by_rule(
        cls,
        *,
        n_features: int,
        n_classes: int,
        epsilon: float,
        delta: float,
        planned_units: int,
        relation: Relation = Relation.UNIT_ADDED,
        scale: float = 1.0,
    ) -> ProbeSettings:
        """Steps and rate from public numbers: the better a mean over all units is known, the farther one may go.

        Let mu be what epsilon and delta allow (Gaussian differential privacy, for one unit's contribution). In all, the
        weights move by 10 x rate x steps gradients at most, and noise moves a row's logits by about
        10 x rate x steps / (mu x planned_units). The rule keeps the latter near 2: steps x rate is 0.22 x mu x
        planned_units, from 16 to 5,000, with steps = 4 x rate. Rounded, so that the same numbers give the same settings
        on every machine.
        """
        planned = _validate.integer("planned_units", planned_units, at_least=1)
        mu = _allowed(epsilon=epsilon, delta=delta, relation=relation)
        reach = min(max(_REACH * mu * planned, 16.0), 5000.0)
        return cls(
            n_features=n_features,
            n_classes=n_classes,
            steps=round(2 * math.sqrt(reach)),
            clip=_CLIP,
            rate=float(f"{math.sqrt(reach) / 2:.2g}"),
            scale=scale,
        )

    def measuring(self) -> ProbeSettings:
        """The same with a sum that measures, which one feature has no room for."""
        return replace(self, measured=self.n_features > 1)

    @property
    def sums(self) -> int:
        """Noisy sums that are paid for: the steps, and the one that measures."""
        return self.steps + int(self.measured)

    @property
    def lattice_clip(self) -> int:
        """The clip in lattice steps, rounded down."""
        return int(self.clip * (1 << exact.LATTICE_BITS))

    @property
    def dimension(self) -> int:
        return (self.n_features + 1) * self.n_classes

    def budget(
        self, *, epsilon: float, delta: float, planned_units: int, relation: Relation = Relation.UNIT_ADDED
    ) -> TrainingBudget:
        """What a ledger is made with, so that these steps have this epsilon at delta."""
        return TrainingBudget.for_epsilon(
            epsilon,
            steps=self.sums,
            clip=self.lattice_clip,
            dimension=self.dimension,
            planned_units=planned_units,
            delta=delta,
            relation=relation,
        )

    def digest(self) -> str:
        """What a ledger's charge names them by."""
        return hashlib.sha256(canonical({"schema": SCHEMA, **self.to_json()}).encode()).hexdigest()

    def to_json(self) -> JsonObject:
        """The settings as plain values; ledgers hash those of a training that is not measured as they always did."""
        found = asdict(self)
        return found if self.measured else {name: value for name, value in found.items() if name != "measured"}

    @classmethod
    def from_json(cls, value: object) -> ProbeSettings:
        """Settings that `to_json` wrote."""
        return _validate.from_json(cls, value)


def components_by_rule(
    *, epsilon: float, delta: float, planned_units: int, relation: Relation = Relation.UNIT_ADDED
) -> int:
    """How many components of features, the largest first, a training can make use of: a tenth of mu x planned_units.

    At least 16. With fewer units or a smaller epsilon more components only dilute the first ones. This is about
    components, which have an order: of a table's columns all are kept.
    """
    planned = _validate.integer("planned_units", planned_units, at_least=1)
    return max(round(_allowed(epsilon=epsilon, delta=delta, relation=relation) * planned / 10), 16)


def signal(*, epsilon: float, delta: float, planned_units: int, relation: Relation = Relation.UNIT_ADDED) -> float:
    """mu x planned_units: how far the rule's numbers reach; below some twenty, noise hides everything."""
    return _allowed(epsilon=epsilon, delta=delta, relation=relation) * planned_units


def _allowed(*, epsilon: float, delta: float, relation: Relation) -> float:
    """The mu of one unit's contribution that epsilon and delta allow."""
    sensitivity = contributions_changed(relation) << exact.LATTICE_BITS
    noise = least_step_noise(epsilon=epsilon, delta=delta, steps=1, sensitivity=sensitivity, dimension=1)
    return (1 << exact.LATTICE_BITS) / noise


def public_scale(features: NDArray[np.floating]) -> float:
    """What makes the mean squared length of these public rows 1; rows that are not finite do not count."""
    squares = np.einsum("ij,ij->i", features, features, dtype=np.float64)
    squares = squares[np.isfinite(squares)]
    if not squares.size or not squares.mean() > 0:
        raise InputError("The public rows have no features that are finite and not all 0: no scale follows from them.")
    return float(1 / np.sqrt(squares.mean()))
