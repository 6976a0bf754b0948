"""Proofs by interval arithmetic that a number bounds the divergence of GNMax's winner everywhere.

Numbers are balls of Arb (python-flint): a comparison that comes out true is a theorem.
Shares no code with `terrine`.

Notation. s = 1/sigma. At a point (x, y) of the plane Y_a ~ N(x, 1) and Y_b ~ N(y, 1); a wins if
Y_a > max(Y_b, 0), b wins if Y_b > max(Y_a, 0), else J wins. P is the law of the winner at (x, y), Q
that at (x - s, y + s). All is done in u = (x - y)/√2, v = (x + y)/√2, where the noise is still
standard, the outcomes are three convex cones,
    a = {U > 0, V > -U},   b = {U < 0, V > U},   J = {V < -|U|},
and Q is P at (u - r, v), r = √2 s. F = Σ Pᵢ^λ Qᵢ^(1-λ) and D = log F/(λ - 1). With δᵢ = Qᵢ - Pᵢ,
    F - 1 = Σ G(Pᵢ, δᵢ),   G(p, δ) = p g(δ/p),   g(z) = (1+z)^(1-λ) - 1 - (1-λ)z ≥ 0,
which does not cancel and is what is bounded; G is jointly convex, and decreasing in p.

The derivatives of log P are the cumulants of (U, V) given the outcome: (log P)_uu = Var U - 1,
(log P)_uv = Cov(U, V), (log P)_uuu = E(U - EU)³, (log P)_uvv = E(U - EU)(V - EV)². Given the outcome
(U, V) is a Gaussian restricted to a convex cone: each marginal's density is log-concave relative to
N(mean, 1), so the marginal is below N(mean, 1) in convex order. So variances are at most 1, and third
derivatives at most E|Z|³ < 1.6. In the cone a, (U, -V) is associated (FKG: a lattice), Cov(U, V) ≤ 0.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache

from flint import acb, arb, ctx

ctx.prec = 96  # bits; no other oracle uses Arb
ROOT2, ZERO, INF = arb(2).sqrt(), arb(0), arb("inf")
NODES, RHO, ARCS = 64, 2, 40  # of the quadrature: nodes, Bernstein ellipse, arcs of its upper half
TILE, MAX_CELLS = 2, 20_000  # of a search: side of the first cells, when to give up

Cell = tuple[float, float, float, float]  # u from, u to, v from, v to
Corner = list[tuple[arb, arb, arb]]  # P, Q, Q - P of every outcome at a point


@dataclass(frozen=True)
class Certificate:
    """`proved`: at most the bound everywhere. `refuted`: above it somewhere. Neither: too many cells."""

    proved: bool
    refuted: bool
    cells: int
    worst_cell: Cell | None = None  # where a search that did not prove the bound stopped


def certify_argmax(*, order: float, sigma: float, bound: float) -> Certificate:
    """Prove D(x, y) ≤ bound for all (x, y), or find a point where it is larger.

    By branch and bound in a triangle. Outside it, with c = (λ-1)s and G = λ(λ-1)s²: the densities
    satisfy p^λ q^(1-λ) = e^G N((x+c, y-c), I), so Pᵢ^λ Qᵢ^(1-λ) ≤ e^G Tᵢ (Hölder), Tᵢ the mass of i
    under N((x+c, y-c), I), and
        v ≥ V:   P_a ≤ Φ(u), Q_a ≥ Φ(u-r)Φ(v), b likewise, T_J ≤ Φ(-v): with F₂ of two classes,
                 F ≤ Φ(V)^(1-λ) F₂(u) + e^G Φ(-V);
        x ≤ -X:  P_b ≤ Φ(y), Q_b ≥ Φ(y+s)Φ(X), P_J ≤ Φ(-y), Q_J ≥ Φ(-y-s)Φ(X), T_a ≤ Φ(x+c):
                 F ≤ Φ(X)^(1-λ) e^(G/2) + e^G Φ(c-X), as a shift by s of one Gaussian costs e^(G/2);
        y ≤ -Y:  likewise F ≤ Φ(Y-s)^(1-λ) e^(G/2) + e^G Φ(-Y-c).
    """
    lam, s = arb(order), 1 / arb(sigma)
    tilt, gauss = (lam - 1) * s, (lam * (lam - 1) * s * s).exp()
    excess = ((lam - 1) * arb(bound)).expm1().lower()

    def two_classes(v: arb) -> arb:
        """What F₂ - 1 may be if F - 1 ≤ excess is to follow above v."""
        return ((1 + excess - gauss * _ndtr(-v)) * _ndtr(v) ** (lam - 1) - 1).lower()

    def one_class(x: arb, y: arb) -> arb:
        return _ndtr(x) ** (1 - lam) * gauss.sqrt() + gauss * _ndtr(y) - 1

    top = _first(lambda v: excess - two_classes(v) <= excess / 10**6)
    left = _first(lambda x: one_class(x, tilt - x) <= excess)
    right = _first(lambda y: one_class(y - s, -y - tilt) <= excess)
    if top is None or left is None or right is None:
        return Certificate(False, False, 0)
    limit = _certify_two_outcomes(order, ROOT2 * s, two_classes(arb(top)))
    if not limit.proved:
        refuted = _certify_two_outcomes(order, ROOT2 * s, excess).refuted
        return Certificate(False, refuted, limit.cells, limit.worst_cell)

    def outside(cell: Cell) -> bool:
        a, b, c, d = map(arb, cell)
        return any((c >= top, b + d <= -ROOT2 * left, d - a <= -ROOT2 * right))

    width = 1.5 * (left + right) + top  # |u| ≤ width and v ≥ -width in the triangle
    tiles = itertools.product(_sides(-width, width), _sides(-width, top))
    found = _Winner(order, ROOT2 * s, excess).search([(*u, *v) for u, v in tiles], outside)
    return Certificate(found.proved, found.refuted, limit.cells + found.cells, found.worst_cell)


def certify_check(*, order: float, sigma: float, bound: float) -> Certificate:
    """Prove D(Bern(Φ(u)) ‖ Bern(Φ(u - 1/sigma))) ≤ bound for all u, or find one where it is larger."""
    excess = ((arb(order) - 1) * arb(bound)).expm1().lower()
    return _certify_two_outcomes(order, 1 / arb(sigma), excess)


def _certify_two_outcomes(order: float, shift: arb, excess: arb) -> Certificate:
    """F(u) - 1 ≤ excess for all u. Far out, by Hölder as above, c = (λ-1)r and G = λ(λ-1)r²/2:

    F ≤ e^G Φ(-U-c) + Φ(U-r)^(1-λ) for u ≥ U, F ≤ e^G Φ(c-U) + Φ(U+r)^(1-λ) for u ≤ -U.
    """
    lam = arb(order)
    tilt, gauss = (lam - 1) * shift, (lam * (lam - 1) * shift * shift / 2).exp()

    def far(rare: arb, usual: arb) -> arb:
        return gauss * _ndtr(rare) + _ndtr(usual) ** (1 - lam) - 1

    left = _first(lambda u: far(tilt - u, u + shift) <= excess)
    right = _first(lambda u: far(-u - tilt, u - shift) <= excess)
    if left is None or right is None:
        return Certificate(False, False, 0)
    return _TwoOutcomes(order, shift, excess).search([(*u, 0.0, 0.0) for u in _sides(-left, right)])


class _TwoOutcomes:
    """P = (Φ(u), Φ(-u)) against Q = P(u - r): the check, and the limit v → ∞ of three outcomes."""

    def __init__(self, order: float, shift: arb, excess: arb) -> None:
        self.order, self.shift, self.excess = arb(order), shift, excess
        # -ℓ_kk ≤ 1 + (λ-1)|change of (log P)_kk by the shift|, where ℓ = λ log P - (λ-1) log Q
        self.bend = (1 + (self.order - 1) * (shift * arb(1.6)).min(arb(1))).upper()
        self.corner = cache(self._corner)

    def law(self, u: arb, v: arb) -> tuple[arb, ...]:
        return _ndtr(u), _ndtr(-u)

    def derivatives(self, u: _Interval, v: _Interval) -> list[list[tuple[arb, arb, arb]]]:
        """Over a box, for each axis k = u, v: (P_k, P_kk, P_kku) of every outcome."""
        first, t = u.pdf(), u.ball
        second, third = -t * first, (t * t - 1) * first
        return [[(first, second, third), (-first, -second, -third)], [(ZERO, ZERO, ZERO)] * 2]

    def ranges(self, corners: list[Corner], u: _Interval, v: _Interval) -> list[list[arb]]:
        """Over a cell, hulls of P and Q, and the lowest and highest Q/P, of every outcome.

        P_a grows with u and v. So does Q_a/P_a: the slopes of its logarithm are the integrals over
        the shift of 1 - Var U and of -Cov(U, V). b is a mirrored in u, with Q_b/P_b inverted.
        """

        def between(i: int, p_low: int, p_high: int, low: int, high: int) -> list[arb]:
            (p0, q0, _), (p1, q1, _) = corners[p_low][i], corners[p_high][i]
            ratios = [corners[k][i][1] / corners[k][i][0] for k in (low, high)]
            return [p0.union(p1), q0.union(q1), *ratios]

        return [between(0, 0, 3, 0, 3), between(1, 1, 2, 2, 1)]

    def _corner(self, u: float, v: float) -> Corner:
        p, q = self.law(arb(u), arb(v)), self.law(arb(u) - self.shift, arb(v))
        return [(a, b, b - a) for a, b in zip(p, q, strict=True)]

    def g(self, z: arb) -> arb:
        return (1 + z) ** (1 - self.order) - 1 - (1 - self.order) * z if z > -1 else INF

    def term(self, p: arb, delta: arb) -> arb:
        """G(p, δ)."""
        return p * self.g(delta / p) if p > 0 else INF

    def excess_at(self, u: float, v: float) -> arb:
        """F - 1 at a point."""
        return sum((self.term(p, delta) for p, _, delta in self.corner(u, v)), ZERO)

    def excess_over(self, cell: Cell) -> tuple[arb, int]:
        """An upper bound on F - 1 over a cell, and the axis to split.

        The interpolation weights are the same for every form: F - 1 is at most the sum over the
        outcomes of each one's best form, at the worst corner.
        """
        outcomes, bends = self.forms(cell)
        best = [min(forms, key=_largest) for forms in outcomes]
        sums = [sum(values, ZERO) for values in zip(*best, strict=True)]
        return _largest(sums), int(bool(bends[1] > bends[0]))

    def forms(self, cell: Cell) -> tuple[list[list[list[arb]]], list[arb]]:
        """For each outcome three forms, values at the corners that interpolate to G(P, δ) or above.

        On a cell of sides h, k a function f is its bilinear interpolation, a convex combination of
        the corners, plus a remainder in -[0, h²/8] f_uu - [0, k²/8] f_vv. The forms are
            max P · max g(Q/P - 1), a constant;
            max G(P + e, δ + d), e the lower end of P's remainder and d either end of δ's, as G is
                convex; δ_kk is Q_kk - P_kk, and is the mean of -r P_kku over the shift;
            exp(ℓ + ℓ's remainder) - P + (λ-1)δ + theirs, as G = exp ℓ - P + (λ-1)δ.
        Also how much δ bends along each axis, to choose where to split.
        """
        u, v = _Interval(*map(arb, cell[:2])), _Interval(*map(arb, cell[2:]))
        corners = [self.corner(a, b) for b in cell[2:] for a in cell[:2]]
        here = self.derivatives(u, v)
        there = self.derivatives(_Interval(u.low - self.shift, u.high - self.shift), v)
        swept = self.derivatives(_Interval(u.low - self.shift, u.high), v)
        weights = [(t.high - t.low) * (t.high - t.low) / 8 for t in (u, v)]
        lam, outcomes, bends = self.order, [], [ZERO, ZERO]
        for i, (p_hull, q_hull, low, high) in enumerate(self.ranges(corners, u, v)):
            p_rest = delta_rest = log_rest = ZERO
            for axis, weight in enumerate(weights):
                (p1, p2, _), (q1, q2, _) = here[axis][i], there[axis][i]
                change = (q2 - p2).intersection(-self.shift * swept[axis][i][2])
                p_rest -= ZERO.union(weight) * p2
                delta_rest -= ZERO.union(weight) * change
                p_log, q_log = _log_second(p_hull, p1, p2), _log_second(q_hull, q1, q2)
                local = ((lam - 1) * q_log - lam * p_log).upper().max(ZERO)
                log_rest += weight * (local if local < self.bend else self.bend)
                bends[axis] += weight * abs(change).upper()
            columns = [corner[i] for corner in corners]
            p_low, ends = p_rest.lower(), (delta_rest.lower(), delta_rest.upper())
            slack = ((lam - 1) * delta_rest - p_rest).upper()
            logs = [lam * p.log() - (lam - 1) * q.log() + log_rest for p, q, _ in columns]
            outcomes.append(
                [
                    [p_hull.upper() * self.g(low - 1).max(self.g(high - 1))] * 4,
                    [_largest(self.term(p + p_low, d + e) for e in ends) for p, _, d in columns],
                    [t.exp() - p + (lam - 1) * d + slack for t, (p, _, d) in zip(logs, columns, strict=True)],
                ]
            )
        return outcomes, bends

    def search(self, cells: list[Cell], outside: Callable[[Cell], bool] = lambda cell: False) -> Certificate:
        """Branch and bound: F - 1 ≤ excess on all the cells but those outside."""
        stack, count = list(cells), 0
        while stack:
            a, b, c, d = cell = stack.pop()
            if outside(cell):
                continue
            count += 1
            bound, axis = self.excess_over(cell)
            if bound <= self.excess:
                continue
            values = [self.excess_at(u, v) for u in (a, b) for v in (c, d)]
            refuted = any(value > self.excess and value.is_finite() for value in values)
            if refuted or count >= MAX_CELLS:
                return Certificate(False, refuted, count, cell)
            m, n = (a + b) / 2, (c + d) / 2
            stack += [(a, m, c, d), (m, b, c, d)] if axis == 0 else [(a, b, c, n), (a, b, n, d)]
        return Certificate(True, False, count)


class _Winner(_TwoOutcomes):
    """P = (P_a, P_b, P_J) against Q = P(u - r, v)."""

    def law(self, u: arb, v: arb) -> tuple[arb, ...]:
        x, y = (u + v) / ROOT2, (v - u) / ROOT2
        return _both_positive(u, x), _both_positive(-u, y), _ndtr(-x) * _ndtr(-y)

    def derivatives(self, u: _Interval, v: _Interval) -> list[list[tuple[arb, arb, arb]]]:
        """From ∇P_a = (A + B, B), ∇P_b = (-A - C, C), ∇P_J = (C - B, -B - C), where

        A = φ(u)Φ(v), B = φ(x)Φ(-y)/√2, C = φ(y)Φ(-x)/√2, and N = φ(u)φ(v)/2 = φ(x)φ(y)/2.
        """
        x, y = _turned(u, v)
        a, n, t = u.pdf() * v.ndtr(), u.pdf() * v.pdf() / 2, u.ball
        b, b_x = x.pdf() * y.sf() / ROOT2, x.ball / ROOT2
        c, c_y = y.pdf() * x.sf() / ROOT2, y.ball / ROOT2
        a2, tn = (t * t - 1) * a, t * n
        b2, c2 = (b_x * b_x - arb(0.5)) * b - b_x * n, (c_y * c_y - arb(0.5)) * c - c_y * n
        b1, c1 = b_x * b, c_y * c
        return [
            [
                (a + b, -t * a - b1 + n, a2 + b2 - tn),
                (-a - c, t * a - c1 + n, -a2 - c2 - tn),
                (c - b, b1 + c1 - 2 * n, c2 - b2 + 2 * tn),
            ],
            [
                (b, -b1 - n, b2 + tn),
                (c, -c1 - n, tn - c2),
                (-b - c, b1 + c1 + 2 * n, c2 - b2 - 2 * tn),
            ],
        ]

    def ranges(self, corners: list[Corner], u: _Interval, v: _Interval) -> list[list[arb]]:
        """P_J = Φ(-x)Φ(-y), and Q_J/P_J grows with x and falls with y, as Φ is log-concave."""
        (x, y), s = _turned(u, v), self.shift / ROOT2
        p_x, q_x = ([_ndtr(t - end) for end in (x.low, x.high)] for t in (ZERO, s))
        p_y, q_y = ([_ndtr(t - end) for end in (y.low, y.high)] for t in (ZERO, -s))
        p = (p_x[0] * p_y[0]).union(p_x[1] * p_y[1])
        q = (q_x[0] * q_y[0]).union(q_x[1] * q_y[1])
        low, high = q_x[0] / p_x[0] * q_y[1] / p_y[1], q_x[1] / p_x[1] * q_y[0] / p_y[0]
        return [*super().ranges(corners, u, v), [p, q, low, high]]


@dataclass(frozen=True)
class _Interval:
    low: arb
    high: arb

    @property
    def ball(self) -> arb:
        return self.low.union(self.high)

    def ndtr(self) -> arb:
        return _ndtr(self.low).union(_ndtr(self.high))

    def sf(self) -> arb:
        return _ndtr(-self.low).union(_ndtr(-self.high))

    def pdf(self) -> arb:
        ends = _pdf(self.low).union(_pdf(self.high))
        return ends if self.low > 0 or self.high < 0 else ends.union(_pdf(ZERO))


def _turned(u: _Interval, v: _Interval) -> tuple[_Interval, _Interval]:
    """The ranges of x and y over a box in (u, v)."""
    x = _Interval((u.low + v.low) / ROOT2, (u.high + v.high) / ROOT2)
    return x, _Interval((v.low - u.high) / ROOT2, (v.high - u.low) / ROOT2)


def _both_positive(u: arb, x: arb) -> arb:
    """P(U > 0, X > 0) for means u, x and correlation 1/√2 (Plackett), which is P_a at (u, v):

    Φ(u)Φ(x) + 1/(2π) ∫ exp(-p/(1+sin θ) - q/(1-sin θ)) dθ over [0, π/4], p = (u+x)²/4, q = (u-x)²/4.
    """
    rows, arcs, error = _gauss_legendre()
    p, q = (u + x) * (u + x) / 4, (u - x) * (u - x) / 4  # arb ** 2 is nan where a ball contains 0
    total = _ndtr(u) * _ndtr(x)
    for a, b, weight in rows:
        total += weight * (-a * p - b * q).exp()
    largest = _largest(-a * p - b * q for a, b in arcs)
    return total + arb(0, (error * largest.exp()).upper())


@cache
def _gauss_legendre() -> tuple[list[tuple[arb, ...]], list[tuple[arb, arb]], arb]:
    """Rows (1/(1+sin θ), 1/(1-sin θ), weight); lower bounds of both real parts on arcs; the error.

    The integrand is analytic in the ellipse (|Re θ| < π/2) and |f| ≤ M on it, so its Chebyshev
    coefficients are at most 2Mρ⁻ᵏ; the rule is exact to degree 2n-1 and its weights sum to 2, so it
    errs by at most 4 Σ_{k≥2n} 2Mρ⁻ᵏ = 8Mρ^(1-2n)/(ρ-1).
    """

    def inverses(theta):
        return 1 / (1 + theta.sin()), 1 / (1 - theta.sin())

    middle = arb.pi() / 8
    rule = [arb.legendre_p_root(NODES, k, True) for k in range(NODES)]
    rows = [(*inverses(middle * (1 + node)), weight / 16) for node, weight in rule]
    arcs = []
    for arc in range(ARCS):
        z = RHO * acb(0, arb(2 * arc + 1, 1) * arb.pi() / (2 * ARCS)).exp()
        arcs.append([t.real.lower() for t in inverses(middle * (1 + (z + 1 / z) / 2))])
    return rows, arcs, 8 * arb(RHO) ** (1 - 2 * NODES) / (RHO - 1) / 16


def _ndtr(t: arb) -> arb:
    return (-t / ROOT2).erfc() / 2


def _pdf(t: arb) -> arb:
    return (-t * t / 2).exp() / (2 * arb.pi()).sqrt()


def _log_second(f: arb, first: arb, second: arb) -> arb:
    """(log f)'' from hulls of f, f', f''; not a number where f may be 0."""
    return second / f - first / f * (first / f)


def _largest(values: Iterable[arb]) -> arb:
    """The largest upper end; infinity, never dropped, where one is infinite or not a number."""
    tops = [value.upper() for value in values]
    return max(tops) if all(top.is_finite() for top in tops) else INF


def _first(condition: Callable[[arb], bool]) -> float | None:
    """The first of 0, 1/2, 1, … at which the condition is proved."""
    return next((k / 2 for k in range(200) if condition(arb(k) / 2)), None)


def _sides(low: float, high: float) -> list[tuple[float, float]]:
    """Intervals of length TILE that cover [low, high]."""
    marks = range(math.floor(low / TILE), math.ceil(high / TILE))
    return [(float(k * TILE), float((k + 1) * TILE)) for k in marks]
