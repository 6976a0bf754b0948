"""Rényi-DP curves, how they compose, and what they mean as (epsilon, delta)."""

from __future__ import annotations

import math
import warnings
from dataclasses import asdict, dataclass
from functools import partial
from typing import Literal, Self, overload

import numpy as np
from numpy.typing import NDArray

from terrine import _validate
from terrine._validate import JsonObject
from terrine.errors import DeltaWarning, InputError, OrderGridWarning
from terrine.relations import Relation
from terrine.sensitive import Sensitive

# The orders of the paper's tables: 2, 2.5, ..., 100.5 and 100 points from 100 to 500 (298 in all).
ORDERS: NDArray[np.float64] = np.concatenate((np.arange(2.0, 100.75, 0.5), np.geomspace(100.0, 500.0, 100)))
"""The Rényi orders that costs are computed at, as in the paper: 2 to 500."""
ORDERS.setflags(write=False)
# For budgets whose best order is beyond the paper's: epsilons below a twentieth or so.
WIDE_ORDERS: NDArray[np.float64] = np.concatenate((ORDERS, np.geomspace(500.0, 100_000.0, 129)[1:]))
WIDE_ORDERS.setflags(write=False)

Conversion = Literal["tight", "classic"]


@dataclass(frozen=True, eq=False)
class RdpCurve:
    """Rényi divergence bounds by order. ``a + b`` composes two mechanisms, ``a * n`` the same one n times.

    Args:
        orders: (n_orders,) each above 1.
        epsilons: (n_orders,) bounds in nats, at least 0; inf where nothing is known.
        basis: what the numbers are, in words; it travels into the guarantee.
    """

    orders: NDArray[np.float64]
    epsilons: NDArray[np.float64]
    basis: str = "Rényi bounds given by the caller"

    def __post_init__(self) -> None:
        orders = _validate.orders(self.orders).copy()
        epsilons = np.atleast_1d(np.asarray(self.epsilons, dtype=np.float64)).copy()
        if epsilons.shape != orders.shape:
            raise InputError(f"epsilons must hold one number per order ({orders.size}), got shape {epsilons.shape}.")
        if np.isnan(epsilons).any() or (epsilons < 0).any():
            raise InputError("Every epsilon must be a number of at least 0.")
        orders.setflags(write=False)
        epsilons.setflags(write=False)
        object.__setattr__(self, "orders", orders)
        object.__setattr__(self, "epsilons", epsilons)

    def __add__(self, other: RdpCurve) -> RdpCurve:
        if not isinstance(other, RdpCurve):
            return NotImplemented
        if not np.array_equal(self.orders, other.orders):
            raise InputError("The two curves have different orders. Compute both over the same ones.")
        basis = self.basis if self.basis == other.basis else f"{self.basis}; {other.basis}"
        return RdpCurve(self.orders, self.epsilons + other.epsilons, basis)

    def __mul__(self, times: int) -> RdpCurve:
        times = _validate.integer("times", times, at_least=0)
        # 0 * inf would be nan: no query costs nothing.
        return RdpCurve(self.orders, self.epsilons * times if times else np.zeros_like(self.epsilons), self.basis)

    __rmul__ = __mul__

    def epsilon(self, *, delta: float, conversion: Conversion = "tight") -> float:
        """The smallest over the orders, to compare and to plot; `guarantee` is what may be claimed."""
        return float(epsilons_at(self.orders, self.epsilons, delta=delta, conversion=conversion).min())

    def renamed(self, basis: str) -> RdpCurve:
        """The same numbers, resting on ``basis``."""
        return RdpCurve(self.orders, self.epsilons, basis)


@dataclass(frozen=True, kw_only=True)
class Guarantee:
    """(epsilon, delta)-differential privacy, and what it rests on.

    Attributes:
        order: the Rényi order it came from; None where it came from a privacy profile.
    """

    epsilon: float
    delta: float
    order: float | None = None
    basis: str
    relation: Relation
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "relation", Relation(self.relation))

    def __str__(self) -> str:
        return f"({round_up(self.epsilon)}, {self.delta:g})-DP [{self.basis}; neighbors: {self.relation.sentence}]"

    def to_json(self) -> JsonObject:
        """For programs; ``neighbors`` is the relation for people."""
        return asdict(self) | {"relation": str(self.relation), "neighbors": self.relation.sentence}

    @classmethod
    def from_json(cls, value: object) -> Self:
        """From what `to_json` wrote, or an older version: with the relation's sentence, maybe without notes."""
        found = _validate.from_json(cls, value)
        _validate.between("delta", found.delta, 0.0, 1.0)
        if found.epsilon < 0:
            raise InputError(f"epsilon must be at least 0, got {found.epsilon}.")
        return found


def round_up(value: float, digits: int = 3) -> str:
    """A decimal that is never below the value."""
    if not math.isfinite(value) or abs(value) > 1e12:
        return str(value)
    scaled = math.ceil(value * 10**digits)
    while scaled / 10**digits < value:
        scaled += 1
    return f"{scaled / 10**digits:.{digits}f}"


@overload
def guarantee(
    curve: RdpCurve,
    *,
    delta: float,
    conversion: Conversion = ...,
    relation: Relation = ...,
    n_records: int | None = ...,
) -> Guarantee: ...
@overload
def guarantee(
    curve: Sensitive[RdpCurve],
    *,
    delta: float,
    conversion: Conversion = ...,
    relation: Relation = ...,
    n_records: int | None = ...,
) -> Sensitive[Guarantee]: ...
def guarantee(
    curve: RdpCurve | Sensitive[RdpCurve],
    *,
    delta: float,
    conversion: Conversion = "tight",
    relation: Relation = Relation.ONE_TEACHER,
    n_records: int | None = None,
) -> Guarantee | Sensitive[Guarantee]:
    """The smallest epsilon that the curve gives at ``delta``; a secret curve gives a secret guarantee.

    tight:    epsilon = rdp + log((order-1)/order) - (log delta + log order)/(order-1), never below 0
    classic:  epsilon = rdp + log(1/delta)/(order-1), the conversion of the paper's tables

    Args:
        curve: an RdpCurve, or a Sensitive one.
        delta: in (0, 1); it has no default on purpose.
        conversion: "tight" or "classic".
        relation: what two neighboring data sets may differ in.
        n_records: where given, a delta that is not below 1/n_records draws a warning.

    Returns:
        Guarantee. What it warns of is in ``notes`` too; for a secret curve it is there only,
        since a warning that depends on the votes would leak.

    References:
        [CKS20, Prop. 12] [MIR17, Prop. 3]
    """
    delta = _validate.between("delta", delta, 0.0, 1.0)
    _validate.choice("conversion", conversion, ("tight", "classic"))
    public_notes = delta_notes(delta=delta, n_records=n_records)
    convert = partial(_convert, delta=delta, conversion=conversion, relation=relation, notes=public_notes)
    if isinstance(curve, Sensitive):
        return curve.map(convert)
    result = convert(curve)
    for note in result.notes[len(public_notes) :]:
        warnings.warn(note, OrderGridWarning, stacklevel=2)
    return result


def delta_notes(*, delta: float, n_records: int | None) -> tuple[str, ...]:
    """What is to be said of a delta that is not below 1/n_records; it warns of it too."""
    if n_records is None or delta < 1 / _validate.integer("n_records", n_records, at_least=1):
        return ()
    note = (
        f"delta={delta:g} is not below 1/{n_records}, one over the number of records: "
        "such a delta allows one record in the data set to be published outright."
    )
    warnings.warn(note, DeltaWarning, stacklevel=3)
    return (note,)


def epsilons_at(
    orders: NDArray[np.float64], rdp: NDArray[np.float64], *, delta: float, conversion: Conversion
) -> NDArray[np.float64]:
    """Epsilon at every order, axis -1 being orders. [CKS20, Prop. 12] or [MIR17, Prop. 3]"""
    if conversion == "classic":
        epsilons = rdp - math.log(delta) / (orders - 1)
    else:
        epsilons = rdp + np.log1p(-1 / orders) - (math.log(delta) + np.log(orders)) / (orders - 1)
    return np.maximum(epsilons, 0.0)


def delta_cost(*, order: float, delta: float) -> float:
    """What ``delta`` takes of epsilon at this order, before anything is spent: the tight conversion of 0.

    [CKS20, Prop. 12]
    """
    return math.log1p(-1 / order) - (math.log(delta) + math.log(order)) / (order - 1)


def _convert(
    curve: RdpCurve, *, delta: float, conversion: Conversion, relation: Relation, notes: tuple[str, ...]
) -> Guarantee:
    epsilons = epsilons_at(curve.orders, curve.epsilons, delta=delta, conversion=conversion)
    best = int(np.argmin(epsilons))
    # No divergence at any order: the two laws are the same.
    epsilon = float(epsilons[best]) if curve.epsilons.any() else 0.0
    at_edge = curve.orders[best] in (curve.orders.min(), curve.orders.max())
    if curve.orders.size > 1 and at_edge and epsilon > 0:
        notes += (
            f"The best order, {curve.orders[best]:g}, is at the edge of the grid "
            f"({curve.orders.min():g} to {curve.orders.max():g}): a wider grid may give a smaller epsilon.",
        )
    return Guarantee(
        epsilon=epsilon * (1 + 1e-12),  # outward, for float rounding of the conversion
        delta=delta,
        order=float(curve.orders[best]),
        basis=curve.basis,
        relation=relation,
        notes=notes,
    )
