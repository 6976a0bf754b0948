"""A secret Rényi cost in, a public number above it out: the two ways to draw it, and what drawing costs.

"majorant" is ours, "gnss" the paper's with its theorem put right. `docs/math.md`, "Publishing the cost", has the
proofs, and says how the number is rounded and why that is safe.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri

from terrine import _validate
from terrine.accounting.argmax import rdp_argmax
from terrine.accounting.costs import cost
from terrine.accounting.theorems import rdp_gnss
from terrine.errors import InputError
from terrine.mechanisms import GNMax
from terrine.noise import UNIT, Noise, as_noise
from terrine.release.gap_bound import log_majorant
from terrine.release.smooth import Array, log_parts, log_smooth
from terrine.votes import Votes

Method = Literal["majorant", "gnss"]

FLOOR = 1e-9  # nats, added to the secret cost: its logarithm exists
SLACK = 1e-8  # nats: more than float rounding can add to what one teacher changes; charged for
SCALE_FLOOR = 1e-6  # gnss: added to the smooth sensitivity
GRID = Fraction(1, 2**10)  # gnss: the released number is rounded up to a multiple of this
FINE = 2.0**15  # gnss: noise is drawn with this standard deviation, 2^55 lattice steps, and scaled down


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """What of a `Sanitizer` is not left to rules of thumb."""

    order: float | None = None
    beta: float | None = None
    sigma: float | None = None
    sigma_scale: float | None = None


@dataclass(frozen=True, kw_only=True)
class Sanitizer:
    """How a secret Rényi cost becomes a public number above it: all parameters public, fixed before votes are read.

    "majorant": the logarithm of a smooth majorant of the cost, which one teacher moves by at most beta, with Gaussian
    noise beta·sigma. "gnss": the paper's way, the sanitizable cost with Gaussian noise in units of its smooth
    sensitivity, and a noisy upper bound on that scale. Both raise the number so that it is below the cost with chance
    ``delta`` at most.

    Attributes:
        order: Rényi order of the cost.
        beta: smoothness; for gnss below 1/(2·order), about 1/(3·order) is best.
        sigma: noise, in units of what one teacher can change.
        delta: chance that the number is below the truth.
        sigma_scale: gnss only, noise on the logarithm of the smooth sensitivity, in units of beta.
    """

    order: float
    beta: float
    sigma: float
    delta: float
    sigma_scale: float | None = None
    method: Method = "majorant"

    def __post_init__(self) -> None:
        order = float(_validate.orders(_validate.number("order", self.order))[0])
        object.__setattr__(self, "order", order)
        if _validate.positive("beta", self.beta) < 1e-5:
            raise InputError(f"beta must be at least 1e-05, got {self.beta:g}.")
        _validate.positive("sigma_release", self.sigma)
        _validate.between("delta_release", self.delta, 0.0, 1.0)
        _validate.choice("method", self.method, ("majorant", "gnss"))
        if (self.method == "gnss") != (self.sigma_scale is not None):
            raise InputError("Method gnss needs sigma_scale; no other method takes it.")
        if self.method == "gnss":
            _validate.positive("sigma_scale", self.sigma_scale)
            if 2 * order * (self.beta + SLACK) >= 1:
                raise InputError(
                    f"With method gnss the order must be below 1/(2 beta) = {1 / (2 * self.beta):.4g}, got "
                    f"{order:g}. Best is beta about 1/(3 order) = {1 / (3 * order):.3g}."
                )

    @classmethod
    def by_rule(
        cls,
        *,
        epsilon: float,
        delta: float,
        delta_release: float | None = None,
        method: Method = "majorant",
        chosen: Chosen | None = None,
    ) -> Sanitizer:
        """Rules of thumb from public inputs, for an epsilon that one hopes for; what is chosen stays.

        majorant: the release takes epsilon/8 and may raise the number by e². gnss: beta = 1/(3 order),
        sigma = 3 sqrt((order + 1)/epsilon), sigma_scale such that the scale takes epsilon/16.
        """
        epsilon = _validate.positive("epsilon", epsilon)
        _, delta_release = delta_shares(delta, delta_release)
        chosen = chosen or Chosen()
        beta, sigma, sigma_scale = chosen.beta, chosen.sigma, chosen.sigma_scale
        order = rule_of_thumb_order(epsilon=epsilon, delta=delta) if chosen.order is None else chosen.order
        order = float(_validate.orders(_validate.number("order", order))[0])
        sigma = None if sigma is None else _validate.positive("sigma_release", sigma)
        if method == "gnss":
            sigma = 3 * math.sqrt((order + 1) / epsilon) if sigma is None else sigma
            beta = 1 / (3 * order) if beta is None else beta
            sigma_scale = math.sqrt(8 * order / epsilon) if sigma_scale is None else sigma_scale
        else:
            sigma = 2 * math.sqrt(order / epsilon) if sigma is None else sigma
            beta = 2 / (sigma * (2 - float(ndtri(delta_release)))) if beta is None else beta
        return cls(
            order=order,
            beta=beta,
            sigma=sigma,
            delta=delta_release,
            sigma_scale=sigma_scale,
            method=method,
        )

    @property
    def quantile(self) -> float:
        """How many standard deviations the number is raised by."""
        return -float(ndtri(self.delta if self.method == "majorant" else self.delta / 2)) * (1 + 1e-9)

    def rdp(self, orders: ArrayLike) -> Array:
        """Rényi cost of drawing the number, whatever it is: [TERRINE, Thm. 12] or [PATE18, Thm. 23, corrected]."""
        orders = _validate.orders(orders)
        stretch = (1 + SLACK / self.beta) ** 2
        if self.method == "majorant":
            return stretch * orders / (2 * self.sigma**2)
        assert self.sigma_scale is not None
        inside = 2 * orders * (self.beta + SLACK) < 1
        costs = np.full(orders.size, np.inf)
        costs[inside] = [
            rdp_gnss(beta=self.beta + SLACK, sigma=self.sigma, order=order) + SLACK for order in orders[inside]
        ]
        return costs + stretch * orders / (2 * self.sigma_scale**2)

    def upper_bound(self, votes: Votes | None, *, sigma_vote: float, rng: Noise | np.random.Generator | None) -> float:
        """Draw the number for GNMax answers to these queries (None: no query). It charges nothing: callers must.

        Public once ``rdp`` is charged.
        """
        noise = as_noise(rng)
        if self.method == "majorant":
            log_cost = math.log(FLOOR)
            if votes is not None:
                log_cost = float(
                    np.logaddexp(log_cost, log_majorant(votes, sigma=sigma_vote, order=self.order, beta=self.beta))
                )
            return _exp(self._raised(log_cost, sigma=self.sigma, noise=noise)) * (1 + 1e-12)
        exact_cost, scale = 0.0, SCALE_FLOOR
        if votes is not None:
            worst = len(votes) * float(rdp_argmax(sigma=sigma_vote, orders=np.array([self.order]))[0])
            if worst * self.sigma > 2**10:
                raise InputError(
                    f"sigma_release x worst case must be below 1024 nats, got {worst * self.sigma:.4g}. Use "
                    "method='majorant'."
                )
            mechanism = GNMax(sigma=sigma_vote)
            scale += math.exp(log_smooth(log_parts(mechanism, votes, self.order, "sanitizable"), beta=self.beta))
            secret = cost(mechanism, votes, orders=[self.order], accountant="sanitizable")
            exact_cost = float(secret.reveal().epsilons[0])
        assert self.sigma_scale is not None
        log_scale = self._raised(math.log(scale), sigma=self.sigma_scale, noise=noise)
        draw = Fraction(int(noise.gaussian((1,), sigma=FINE)[0]), UNIT) / Fraction(FINE)
        noisy = Fraction(exact_cost) + Fraction(scale) * Fraction(self.sigma) * draw
        allowance = self.sigma * self.quantile * _exp(log_scale)
        if math.isinf(allowance):
            return math.inf
        raised = noisy + Fraction(allowance)
        rounded = Fraction(math.ceil(raised / GRID)) * GRID
        return max(float(rounded), 0.0)

    def _raised(self, log_value: float, *, sigma: float, noise: Noise) -> float:
        """A logarithm of sensitivity beta, rounded up to the lattice, with lattice noise beta·sigma, raised."""
        lattice = math.ceil(log_value * UNIT) + int(noise.gaussian((1,), sigma=self.beta * sigma)[0])
        return float(lattice / UNIT + self.beta * sigma * self.quantile)


def delta_shares(delta: float, delta_release: float | None) -> tuple[float, float]:
    """delta = the answers' share + the share of the number drawn."""
    delta = _validate.between("delta", delta, 0.0, 1.0)
    release = delta / 10 if delta_release is None else _validate.between("delta_release", delta_release, 0.0, 1.0)
    if release >= delta:
        raise InputError(f"delta_release is a part of delta={delta:g} and must be below it, got {release:g}.")
    return delta - release, release


def rule_of_thumb_order(*, epsilon: float, delta: float) -> float:
    """The order at which delta takes half of epsilon: log(1/delta) = (order - 1) epsilon/2. [PATE18, Sec. B.6]"""
    return 1 + 2 * math.log(1 / delta) / epsilon


def _exp(value: float) -> float:
    """inf where a float ends."""
    return math.exp(value) if value < 709 else math.inf
