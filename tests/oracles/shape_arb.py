"""C5 and C6 of the paper's cost in Arb ball arithmetic: for every q of an interval, not for a grid of them.

With t = sqrt(log 1/q), s = 1/sigma and k = order - 1 the bound of Theorem 6 at the orders of Proposition 10 is
log(F)/k, F = (1 - u)^order (1 - w)^-k + exp(-t² + k(2 s t + s²)), u = exp(-t²), w = exp(-(t - s)²). As a function of
z = Phi^-1(q/(m-1)), which a move shifts by r = sqrt(2)/sigma, C5 says that it does not fall, and C6 that its growth
over a shift does not: the latter follows where it is convex. Both are read off the coefficients of a power series whose
constant term is a ball around a whole cell of z. Shares no code with `terrine`.
"""

from __future__ import annotations

from collections.abc import Callable

from flint import arb, arb_series, ctx


class Shape:
    """The paper's data-dependent bound of GNMax by z."""

    def __init__(self, *, sigma: float, order: float, n_classes: int) -> None:
        self.sigma, self.order, self.losers = arb(sigma), arb(order), arb(n_classes - 1)

    def log_q(self, z: arb_series) -> arb_series:
        return (self.losers / 2 * (-z / arb(2).sqrt()).erfc()).log()

    def bound(self, z: arb_series) -> arb_series:
        """log(F)/(order - 1) with its first two derivatives."""
        s, k = 1 / self.sigma, self.order - 1
        t = (-self.log_q(z)).sqrt()
        log_u, log_w = -t * t, -(t - s) * (t - s)
        first = self.order * (1 - log_u.exp()).log() - k * (1 - log_w.exp()).log()
        return (first.exp() + (log_u + k * (2 * s * t + s * s)).exp()).log() / k

    def allowed(self, z: arb) -> bool:
        """Whether Theorem 6's conditions hold at z, and so below it: each gets easier as t grows."""
        t = (-self.log_q(arb_series([z], prec=1))[0]).sqrt()
        mu = self.sigma * t
        return bool(
            mu + 1 >= self.order and mu > 1 and 2 * t - 1 / self.sigma - self.sigma * ((mu + 1) / (mu - 1)).log() >= 0
        )

    def rises(self, low: float, high: float) -> bool:
        """C5 on the whole of an interval of z: the first derivative is at least 0."""
        return _everywhere(lambda z: self.bound(arb_series([z, 1], prec=2))[1] >= 0, low, high)

    def step_grows(self, low: float, high: float) -> bool:
        """C6 on the whole of an interval: there the bound is convex in z, or its slope is larger a move further."""
        r = arb(2).sqrt() / self.sigma

        def holds(z: arb) -> bool:
            if self.bound(arb_series([z, 1, 0], prec=3))[2] >= 0:
                return True
            here, there = (self.bound(arb_series([x, 1], prec=2))[1] for x in (z, z + r))
            return bool(there >= here)

        return _everywhere(holds, low, high)


def _everywhere(holds: Callable[[arb], bool], low: float, high: float) -> bool:
    """Whether it holds on balls that cover the interval: halved until it does, or until they are hopelessly small."""
    before, ctx.prec = ctx.prec, 128 + int(3 * max(low * low, high * high))  # F - 1 is as small as q
    try:
        cells = [(arb(low), arb(high))]
        while cells:
            left, right = cells.pop()
            middle, radius = (left + right) / 2, (right - left) / 2
            if holds(middle + radius * arb(0, 1)):
                continue
            if radius < 1e-5:
                return False
            cells += [(left, middle), (middle, right)]
        return True
    finally:
        ctx.prec = before
