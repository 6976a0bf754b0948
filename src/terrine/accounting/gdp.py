"""What sums plus discrete Gaussian noise cost: Gaussian differential privacy, and what the lattice adds to it.

Every step releases a vector of whole numbers that a neighbor moves by at most ``sensitivity`` in length, plus an
independent discrete Gaussian on each coordinate. `docs/math.md`, "The private probe", has the proofs. All of it is
public.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from numpy.typing import ArrayLike
from scipy.special import log_ndtr, ndtri

from terrine import _validate
from terrine.accounting.curves import WIDE_ORDERS, RdpCurve, round_up
from terrine.errors import InputError, PlanError

LEAST_NOISE = 64  # lattice steps: below, the lattice would take a visible part of delta
MOST_NOISE = 2**53  # whole numbers up to here are floats, as the samplers take them
_SHOWN = 1e-6  # of delta: a smaller share of the lattice stays as it is, so that stored budgets keep their epsilon
_BEYOND = 80.0  # draws as far out as this have e^-80 of all outputs, at most
_ROUNDING = 1e-13  # of a logarithm: a hundred times what log_ndtr and the arithmetic around it can lose


@dataclass(frozen=True, kw_only=True)
class GaussianSteps:
    """Steps that may each be chosen by all outputs before it.

    Attributes:
        steps: how many at most, fixed beforehand.
        sensitivity: the most that neighbors move a step's sum by, in length; in lattice steps.
        noise: the parameter s of the discrete Gaussian, in lattice steps.
        dimension: coordinates of a step's output.
    """

    steps: int
    sensitivity: int
    noise: int
    dimension: int

    def __post_init__(self) -> None:
        for name in ("steps", "sensitivity", "noise", "dimension"):
            object.__setattr__(self, name, _validate.integer(name, getattr(self, name), at_least=1))
        if not LEAST_NOISE <= self.noise <= MOST_NOISE:
            raise InputError(f"noise must be from {LEAST_NOISE} to 2^53 lattice steps, got {self.noise}.")

    @property
    def mu(self) -> float:
        """Of Gaussian differential privacy, rounded up, were the noise a rounded continuous Gaussian.

        [DRS22, Composition]
        """
        return math.sqrt(self.steps) * self.sensitivity / self.noise * (1 + 2.0**-48)

    @property
    def lattice_distance(self) -> float:
        """In total variation, between all noise as it is drawn and rounded continuous noise. [TERRINE, Lemma 19]"""
        return self.steps * self.dimension * lattice_distance(self.noise)

    def delta(self, epsilon: float) -> float:
        """The smallest delta that is proved at an epsilon, rounded up; at most 1. [TERRINE, Thm. 21]"""
        epsilon = _validate.number("epsilon", epsilon)
        if epsilon < 0:
            raise InputError(f"epsilon must be at least 0, got {epsilon}.")
        found, share = self._by_distance(epsilon)
        return found if share < _SHOWN * found else min(found, self._by_ratio(epsilon))

    def _by_distance(self, epsilon: float) -> tuple[float, float]:
        """With the lattice's distance in delta, the least up to epsilon; and its share, which grows as e^epsilon."""
        lattice = self.lattice_distance
        turn = -self.mu * float(ndtri(min(lattice, 0.5))) - self.mu**2 / 2  # the profile falls more slowly from here on
        at = min(epsilon, max(turn, 0.0), 700.0)  # whose exponential is a number
        share = (1 + math.exp(at)) * lattice
        return min((gaussian_delta(mu=self.mu, epsilon=at) + share) * (1 + 1e-12), 1.0), share

    def _by_ratio(self, epsilon: float) -> float:
        """With the ratio of probabilities in epsilon, but for draws beyond ``far`` deviations."""
        draws = self.steps * self.dimension
        far = math.sqrt(2 * (epsilon + math.log(draws) + _BEYOND))
        below, above = lattice_ratios(self.noise, far=far)
        rest = epsilon - draws * (below + above) * (1 + 1e-12)
        if rest <= 0 or draws * below > 1:
            return 1.0
        beyond = math.exp(rest + math.log(2 * draws) + float(log_ndtr(1 / (2 * self.noise) - far)) + 1e-6)
        found = gaussian_delta(mu=self.mu, epsilon=rest) + beyond
        return min(found * math.exp(draws * below) * (1 + 1e-12), 1.0)

    def epsilon(self, *, delta: float) -> float:
        """The smallest epsilon at a delta, rounded up. [TERRINE, Thm. 21]"""
        found = self._least_epsilon(_validate.between("delta", delta, 0.0, 1.0))
        if found == math.inf:
            raise PlanError(
                f"{self.steps} steps with noise of {round_up(self.noise / self.sensitivity)} sensitivities have no "
                f"epsilon below 512 at delta={delta:g}. Take more noise or fewer steps."
            )
        return found

    def _least_epsilon(self, delta: float) -> float:
        if self.delta(0.0) <= delta:
            return 0.0
        high = 1.0
        while self.delta(high) > delta:
            high *= 2
            if high > 512:
                return math.inf
        low = 0.0
        while low < (middle := (low + high) / 2) < high:
            low, high = (low, middle) if self.delta(middle) <= delta else (middle, high)
        return high

    def has(self, epsilon: float, *, delta: float) -> bool:
        """Whether epsilon at delta is proved, and is what `epsilon` says, or more."""
        return self.delta(epsilon) <= delta and self._least_epsilon(delta) <= epsilon

    def curve(self, orders: ArrayLike = WIDE_ORDERS) -> RdpCurve:
        """As Rényi bounds, to be added to those of other answers about the same people.

        [CKS20, Multivariate discrete Gaussian]
        """
        given = _validate.orders(orders)
        rho = self.steps * (self.sensitivity / self.noise) ** 2 / 2 * (1 + 1e-12)
        return RdpCurve(given, given * rho, f"{self.steps} sums with discrete Gaussian noise, Rényi bounds")


def gaussian_delta(*, mu: float, epsilon: float) -> float:
    """The profile of two normal laws at a distance of mu deviations, in logarithms, rounded up. [DRS22, Cor. 2.13]"""
    upper, lower = -epsilon / mu + mu / 2, -epsilon / mu - mu / 2
    first, second = float(log_ndtr(upper)), epsilon + float(log_ndtr(lower))
    # An argument that is off by a part x of itself moves log Φ by at most x·(argument² + 1)
    error = _ROUNDING * (1 + epsilon + upper**2 + lower**2 + abs(first))
    return math.exp(min(first + error, 0.0)) * -math.expm1(min(second - first - 2 * error, 0.0))


def lattice_distance(noise: float) -> float:
    """Total variation between a discrete Gaussian and a rounded continuous one, at most, on one coordinate.

    [TERRINE, Lemma 19]
    """
    if noise < 1:
        raise InputError(f"noise must be at least 1 lattice step, got {noise:g}.")
    return (1 + 3 * math.exp(-2 * math.pi**2 * noise**2)) / (24 * noise**2) * (1 + 1e-12)


def lattice_ratios(noise: float, *, far: float) -> tuple[float, float]:
    """Logarithms of the largest ratios of a discrete Gaussian to a rounded continuous one, and the other way round.

    The former anywhere, the latter up to ``far`` deviations from the middle. [TERRINE, Lemma 19]
    """
    below = -math.log1p(-1 / (24 * noise**2))
    return below * (1 + 1e-12), (far**2 / (8 * noise**2) + 3 * math.exp(-2 * math.pi**2 * noise**2)) * (1 + 1e-12)


def least_step_noise(*, epsilon: float, delta: float, steps: int, sensitivity: int, dimension: int) -> int:
    """The smallest noise, in whole lattice steps, with which the steps have epsilon at delta. [TERRINE, Thm. 21]"""
    epsilon = _validate.positive("epsilon", epsilon)
    delta = _validate.between("delta", delta, 0.0, 1.0)

    def made(noise: int) -> GaussianSteps:
        return GaussianSteps(steps=steps, sensitivity=sensitivity, noise=noise, dimension=dimension)

    def holds(noise: int) -> bool:
        return made(noise).delta(epsilon) <= delta

    low, high = LEAST_NOISE - 1, LEAST_NOISE
    while not holds(high):
        if high == MOST_NOISE:
            raise PlanError(
                f"No noise up to 2^53 lattice steps gives epsilon={epsilon:g} at delta={delta:g} to {steps} steps. "
                "Take a larger epsilon or delta, or fewer steps."
            )
        low, high = high, min(2 * high, MOST_NOISE)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    while not made(high).has(epsilon, delta=delta):  # by rounding, what `epsilon` finds may be larger in the last digit
        high += 1
    return high
