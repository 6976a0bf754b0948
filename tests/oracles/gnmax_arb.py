"""Rigorous enclosures of GNMax's law and of its Rényi divergences, in Arb ball arithmetic (python-flint).

Shares no code with `terrine`. A histogram is a mapping from a count to how many classes have it.

The law. f(t) = φ(t - x_i) Π_{j≠i} Φ(t - x_j), x = n/σ, is entire, and Φ(x + iy) = ∫_{-∞}^x φ(u + iy) du shows
|Φ(x + iy)| ≤ e^{y²/2} Φ(x). So |f(x + iy)| ≤ e^{m y²/2} f(x) for m classes, and the trapezoid sum of step h over all of
ℝ errs by at most 2 e^{m d²/2}/(e^{2πd/h} - 1) for any d > 0, *relative* to p_i (Trefethen and Weideman 2014, Thm. 5.1;
best at d = 2π/(hm)). The sum is cut to a window: (log f)'' ≤ -1, so beyond a node T where f already falls
f(T + s) ≤ f(T) e^{-s²/2}, and what is left out is at most f(T) √(π/2).

The divergence. With r = q/p, d = r - 1 and c = 1 - λ or λ, e^{(λ-1)D} - 1 = Σ p g(d), g(d) = (1+d)^c - 1 - cd ≥ 0; the
likeliest outcome's d comes from Σ p d = 0, as both laws sum to 1; a small d goes through Taylor with its remainder.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from flint import arb, ctx
from scipy.special import log_ndtr

BITS = 192
NATS = 85.0  # the quadrature's relative error is e^-NATS
SMALL = 1e-9  # below it g comes from Taylor

Kinds = Mapping[int, int]
Move = tuple[int, int]  # a vote goes from a class with the first count to a class with the second
Outcome = tuple[arb, arb, int]  # probability of one class before and after, and of how many classes


class Winner:
    """The law of argmax(counts + sigma N(0, I)) for histograms of ``n_classes`` classes."""

    def __init__(self, *, sigma: float, n_classes: int) -> None:
        self.sigma, self.n_classes = sigma, n_classes
        self.step = math.floor(1024 * 2 * math.pi / math.sqrt(2 * n_classes * NATS)) / 1024  # a double, exactly
        self.half_window = math.ceil((math.sqrt(2 * NATS) + 1) / self.step)
        with ctx.workprec(BITS):
            d = 2 * arb.pi() / (arb(self.step) * n_classes)
            error = 2 * (d * d * n_classes / 2).exp() / (2 * arb.pi() * d / self.step).expm1()
            self.error = 1 + arb(0, error.upper())
        self._nodes: dict[tuple[int, int], tuple[arb, arb]] = {}
        self._laws: dict[tuple[tuple[int, int], ...], dict[int, arb]] = {}

    def law(self, kinds: Kinds) -> dict[int, arb]:
        """Probability to win of one class with each of the counts."""
        key = tuple(sorted(kinds.items()))
        if sum(kinds.values()) != self.n_classes or min(kinds.values()) < 1:
            raise ValueError(f"Expected {self.n_classes} classes, got {kinds}.")
        if key not in self._laws:
            with ctx.workprec(BITS):
                products: dict[int, arb] = {}
                self._laws[key] = {count: self._probability(kinds, count, products) for count in kinds}
        return self._laws[key]

    def log_law(self, kinds: Kinds) -> dict[int, arb]:
        with ctx.workprec(BITS):
            return {count: p.log() for count, p in self.law(kinds).items()}

    def outcomes(self, kinds: Kinds, move: Move) -> list[Outcome]:
        """What can win, before and after the move."""
        before, after = self.law(kinds), self.law(moved(kinds, move))
        still = Counter(kinds)
        still.subtract(move)
        result = [(before[count], after[count], left) for count, left in still.items() if left]
        return [*result, (before[move[0]], after[move[0] - 1], 1), (before[move[1]], after[move[1] + 1], 1)]

    def _probability(self, kinds: Kinds, own: int, products: dict[int, arb]) -> arb:
        middle = round(self._mode(kinds, own) / self.step)
        nodes = range(middle - self.half_window, middle + self.half_window + 1)
        values = []
        for node in nodes:
            if node not in products:
                products[node] = arb(1)
                for count, multiplicity in kinds.items():
                    products[node] *= self._node(node, count)[1] ** multiplicity
            density, cdf = self._node(node, own)
            values.append(density * products[node] / cdf)
        if not (values[0] < values[1] and values[-1] < values[-2]):
            raise ArithmeticError("The window does not hold the mode.")
        tails = (values[0] + values[-1]) * (arb.pi() / 2).sqrt()
        total = self.step * sum(values, arb(0)) / self.error
        # The tails are part of the trapezoid sum too: they are between 0 and this bound.
        return (total + arb(0).union(tails / self.error)) / (2 * arb.pi()).sqrt()

    def _node(self, node: int, count: int) -> tuple[arb, arb]:
        """e^{-z²/2} and Φ(z) at z = node·step - count/σ."""
        key = (node, count)
        if key not in self._nodes:
            z = node * arb(self.step) - arb(count) / arb(self.sigma)
            self._nodes[key] = ((-z * z / 2).exp(), ndtr(z))
        return self._nodes[key]

    def _mode(self, kinds: Kinds, own: int) -> float:
        """About; the sum does not rely on it."""
        others = Counter(kinds)
        others[own] -= 1
        x = np.array(list(others)) / self.sigma
        weight = np.array(list(others.values()))
        low, high = own / self.sigma, x.max() + math.sqrt(2 * math.log(self.n_classes)) + 1
        while high - low > 0.1:
            t = (low + high) / 2
            hazard = np.exp(-((t - x) ** 2) / 2 - math.log(2 * math.pi) / 2 - log_ndtr(t - x))
            low, high = (t, high) if weight @ hazard > t - own / self.sigma else (low, t)
        return (low + high) / 2


def kinds_of(counts: Iterable[int]) -> Counter[int]:
    return Counter(int(count) for count in counts)


def all_moves(kinds: Kinds) -> list[Move]:
    """Every move of one vote, up to classes with equal counts."""
    return [(a, b) for a in kinds if a >= 1 for b in kinds if a != b or kinds[a] > 1]


def moved(kinds: Kinds, move: Move) -> Counter[int]:
    result = Counter(kinds)
    result.subtract(move)
    result.update((move[0] - 1, move[1] + 1))
    return +result


def ndtr(z: arb) -> arb:
    return (-z / arb(2).sqrt()).erfc() / 2


def gnmax_divergence(winner: Winner, kinds: Kinds, move: Move, *, orders: Sequence[float]) -> list[tuple[arb, arb]]:
    """D(p(n) ‖ p(n')) and D(p(n') ‖ p(n)) at every order."""
    return both_ways(winner.outcomes(kinds, move), orders)


def confident_divergence(
    winner: Winner, kinds: Kinds, move: Move, *, threshold: float, sigma_check: float, orders: Sequence[float]
) -> list[tuple[arb, arb]]:
    """The same for "withheld, or the winner": one law on m + 1 outcomes."""
    with ctx.workprec(BITS):
        scores = [(arb(max(n)) - arb(threshold)) / arb(sigma_check) for n in (kinds, moved(kinds, move))]
        (yes, no), (yes_after, no_after) = ((ndtr(score), ndtr(-score)) for score in scores)
        joint = [(yes * p, yes_after * q, k) for p, q, k in winner.outcomes(kinds, move)]
        return both_ways([(no, no_after, 1), *joint], orders)


def both_ways(outcomes: list[Outcome], orders: Sequence[float]) -> list[tuple[arb, arb]]:
    """Both directions of the Rényi divergence at every order, of two laws given in full."""
    with ctx.workprec(BITS):
        likeliest = max(range(len(outcomes)), key=lambda i: float((outcomes[i][0] * outcomes[i][2]).mid()))
        deltas = [(q - p) / p for p, q, _ in outcomes]
        flow = [p * k * d for (p, _, k), d in zip(outcomes, deltas, strict=True)]
        p, _, k = outcomes[likeliest]
        deltas[likeliest] = -sum((x for i, x in enumerate(flow) if i != likeliest), arb(0)) / (p * k)
        logs = [d.log1p() if d > -0.5 else (q / p).log() for (p, q, _), d in zip(outcomes, deltas, strict=True)]

        def divergence(order: float, c: arb) -> arb:
            terms = (p * k * _g(d, rho, c) for (p, _, k), d, rho in zip(outcomes, deltas, logs, strict=True))
            return sum(terms, arb(0)).log1p() / (arb(order) - 1)

        return [(divergence(order, 1 - arb(order)), divergence(order, arb(order))) for order in orders]


def _g(d: arb, rho: arb, c: arb) -> arb:
    """(1 + d)^c - 1 - cd, rho = log(1 + d)."""
    if not abs(d) < SMALL:
        return (c * rho).exp() - 1 - c * d
    between = ((1 + arb(0).union(d)).log() * (c - 3)).exp()
    return c * (c - 1) * d * d * (arb(1) / 2 + (c - 2) * d * between / 6)


def largest(enclosures: Iterable[arb]) -> tuple[arb, arb]:
    """Lower and upper end of the largest of some enclosed numbers; refuses what is not finite."""
    enclosures = list(enclosures)
    if not all(ball.is_finite() for ball in enclosures):
        raise ArithmeticError("An enclosure is not finite.")
    return max(ball.lower() for ball in enclosures), max(ball.upper() for ball in enclosures)
