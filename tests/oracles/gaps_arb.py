"""The bound by gap proved by interval arithmetic, and recomputed on a fine grid in floats.

Shares no code with `terrine`. Notation and enclosures are those of `argmax_arb`. What is bounded is the one-gap version
of Theorem B (docs/research.md). The winner is at 0, a loser at -Δ, both in σ and relative to C, the largest noisy count
of the classes that do not move: with t = -C the winner is at t, the loser at t - Δ, and the excess of a move given C is
F - 1 at (t, t - Δ) (from the winner) or at (t - Δ, t) (to it). For losers at g or more below the winner
    excess ≤ max(E A(K), E B(K), E H(-gs - Z)),  K = max of m - 2 normals around -gs,  Z normal,
A, B(c) = sup of F - 1 over t ≥ -c and Δ ≥ gs, H(v) = sup of F - 1 over x, y ≤ v.

A proof takes a piecewise linear T from floats, proves A(c) ≤ T(-c) by branch and bound, and integrates T in balls.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import cache

import numpy as np
from flint import acb, arb
from scipy.special import log_ndtr, ndtr
from tests.oracles.argmax_arb import ROOT2, ZERO, Cell, _ndtr, _TwoOutcomes, _Winner, certify_argmax

STRIP = 0.05  # between the nodes of T
EDGE = 9.0
MAX_CELLS = 15_000
WIDE = 1.0  # side of the first cells
LAVISH = 0.2  # how far T is raised where it hardly counts


@dataclass(frozen=True)
class Proof:
    """``parts``: proved costs of moves from the winner, to it and between losers, in units of the bound."""

    proved: bool
    parts: tuple[float, ...]
    cells: int


# ---------------------------------------------------------------- floats


def _orthant(u: np.ndarray, x: np.ndarray) -> np.ndarray:
    """P_a at (u, v) as in `argmax_arb._both_positive`: a sum of positive terms, accurate far out."""
    p, q = (u + x) ** 2 / 4, (u - x) ** 2 / 4
    total = ndtr(u) * ndtr(x)
    for a, b, weight in _float_rule():
        total += weight * np.exp(-a * p - b * q)
    return total


@cache
def _float_rule() -> list[tuple[float, ...]]:
    nodes, weights = np.polynomial.legendre.leggauss(32)
    sines = np.sin(math.pi / 8 * (1 + nodes))
    return list(zip((1 / (1 + sines)).tolist(), (1 / (1 - sines)).tolist(), (weights / 16).tolist(), strict=True))


def law(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, ...]:
    u = (x - y) / math.sqrt(2)
    return _orthant(u, x), _orthant(-u, y), np.exp(log_ndtr(-x) + log_ndtr(-y))


def excess(before: tuple[np.ndarray, ...], after: tuple[np.ndarray, ...], order: float) -> np.ndarray:
    """F - 1 = Σ p g(q/p - 1)."""
    total, c = 0.0, 1 - order
    with np.errstate(all="ignore"):
        for p, q in zip(before, after, strict=True):
            z = (q - p) / p
            g = np.where(np.abs(z) < 1e-5, c * (c - 1) * z * z * (0.5 + (c - 2) * z / 6), (1 + z) ** c - 1 - c * z)
            total = total + np.where(p > 1e-290, p * g, 0.0)
    return total


def tables(order: float, sigma: float, t: np.ndarray, gaps: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """F - 1 on (t, gaps) for the move from the winner and for the move to it."""
    s, high = 1 / sigma, t[:, None] + 0 * gaps
    low = high - gaps
    a, b, other = law(high, low)
    away, back = law(high - s, low + s), law(high + s, low - s)
    return excess((a, b, other), away, order), excess((a, b, other), back, order)


def theorem(
    *,
    order: float,
    sigma: float,
    n_classes: int,
    n_teachers: int,
    worst: float,
    step: float,
    votes: int,
    deepest: float,
) -> tuple[np.ndarray, np.ndarray]:
    """Gaps 0, votes, ... and the theorem's bound there: plain maxima over a grid, a plain trapezoid. Not rigorous.

    Gaps above ``deepest`` standard deviations are not looked at: it may only be too small.
    """
    tilt = (order - 1) / sigma
    counts = np.arange(0, min(n_teachers, math.ceil(deepest * sigma)) + 1, votes)
    gaps, edge = counts / sigma, EDGE + 2 * tilt
    t = np.arange(-edge, gaps[-1] + edge, step)
    most = math.expm1((order - 1) * worst)
    both = [np.minimum(f, most) for f in tables(order, sigma, t, gaps)]
    c = -t[::-1]
    beyond = -np.expm1((n_classes - 2) * log_ndtr(c[:, None] + gaps))  # P(C > c)
    best = np.zeros(gaps.size)
    for table in both:
        upto = np.maximum.accumulate(table[::-1], axis=0)
        upto = np.maximum.accumulate(upto[:, ::-1], axis=1)[:, ::-1]
        mean = upto[0] + (np.diff(upto, axis=0) * (beyond[1:] + beyond[:-1]) / 2).sum(axis=0)
        best = np.maximum(best, mean)
    below = np.maximum.accumulate(np.maximum(*both).max(axis=1))
    z = np.arange(-EDGE, EDGE, step)
    middle = (z[1:] + z[:-1]) / 2
    mean = np.interp(-gaps[:, None] - middle, t, below) @ np.diff(ndtr(z))
    result = np.minimum(np.log1p(np.maximum(best, mean)) / (order - 1), worst)
    return counts, np.maximum.accumulate(result[::-1])[::-1]


def _bent(values: np.ndarray) -> np.ndarray:
    """Raised by what a smooth function may be above its chords."""
    bend = np.zeros(values.size)
    bend[1:-1] = np.abs(np.diff(values, 2)) / 8
    padded = np.pad(bend, 1, mode="edge")
    return values + np.maximum(np.maximum(padded[:-2], padded[2:]), bend)


# ---------------------------------------------------------------- proofs


class _Bounded(_Winner):
    """F - 1 ≤ T(max(x, y)) on a set of cells, T piecewise linear; only at the gaps in question, where these are given.

    ``marks``: narrow intervals of |U|, ascending, that hold the gaps; nothing where every real gap counts.
    """

    def __init__(self, order: float, sigma: float, nodes: np.ndarray, values: np.ndarray, most: float) -> None:
        super().__init__(order, ROOT2 / arb(sigma), arb(most))
        self.nodes, self.values, self.most, self.cells = nodes, values, most, 0

    def prove(self, cells: list[Cell], marks: list[tuple[float, float]] | None = None) -> bool:
        """Cells do not cross U = 0."""
        stack = list(cells)
        while stack:
            a, b, c, d = cell = stack.pop()
            # max(x, y) = (V + |U|)/√2
            ends = [[(v + abs(u)) / math.sqrt(2) for u in (a, b)] for v in (c, d)]
            low, high = min(ends[0]) - 1e-9, max(ends[1]) + 1e-9
            if high <= self.nodes[0] or low >= self.nodes[-1]:
                continue
            i = max(int(np.searchsorted(self.nodes, low)) - 1, 0)
            j = min(int(np.searchsorted(self.nodes, high)), self.nodes.size - 1)
            if self.values[i : j + 1].min() >= self.most:
                continue
            self.cells += 1
            if self.cells > MAX_CELLS:
                return False
            outcomes, bends = self.forms(cell)
            best = [min(forms, key=_top) for forms in outcomes]
            sums = [sum(column, ZERO) for column in zip(*best, strict=True)]
            places = [(arb(v) + abs(arb(u))) / ROOT2 for v in (c, d) for u in (a, b)]
            if self._below(sums, places, i, j):
                continue
            n = (c + d) / 2
            if b - a < 1e-9 or bends[1] > bends[0]:
                stack += [(a, b, c, n), (a, b, n, d)]
            else:
                stack += [(*part, c, d) for part in _halves(a, b, marks)]
        return True

    def _below(self, sums: list[arb], places: list[arb], i: int, j: int) -> bool:
        """T is at least a constant, and at least a line, on nodes i to j; outside the nodes nothing is claimed."""
        t, v = self.nodes[i : j + 1], self.values[i : j + 1]
        least = arb(float(v.min()))
        if all(value <= least for value in sums):
            return True
        if t.size > 60 or not all(value <= self.most for value in sums):
            return False
        slope = arb(float((v[-1] - v[0]) / (t[-1] - t[0])))
        offset = min((arb(float(y)) - slope * arb(float(x))).lower() for x, y in zip(t, v, strict=True))
        return all(value <= offset + slope * place for value, place in zip(sums, places, strict=True))


def _halves(a: float, b: float, marks: list[tuple[float, float]] | None) -> list[tuple[float, float]]:
    """An interval of U cut in two; what lies between two marks goes."""
    m = (a + b) / 2
    if marks is None:
        return [(a, m), (m, b)]
    side = 1 if b > 0 else -1
    inside = [mark if side == 1 else (-mark[1], -mark[0]) for mark in marks[::side]]
    inside = [mark for mark in inside if mark[0] >= a and mark[1] <= b]
    cut = len(inside) // 2
    return [(inside[0][0], inside[cut - 1][1]), (inside[cut][0], inside[-1][1])]


def _top(values: list[arb]) -> float:
    return max(float(value.upper()) if value.is_finite() else math.inf for value in values)


def prove(
    *, order: float, sigma: float, n_classes: int, n_teachers: int, gap: int, bound: float, worst: float, whole: bool
) -> Proof:
    """Prove D(order) ≤ bound for any move at any histogram with this gap or a larger one.

    Args:
        worst: a bound for all votes; it is proved too.
        whole: only gaps of whole votes count; else all real ones are covered, which is easier where sigma is large.
    """
    s, tilt = 1 / sigma, (order - 1) / sigma
    if not certify_argmax(order=order, sigma=sigma, bound=worst).proved:
        return Proof(False, (), 0)
    most = math.nextafter(float(((arb(order) - 1) * arb(worst)).expm1().upper()), math.inf)
    target = math.expm1((order - 1) * bound)  # T aims at it, the comparison at the end is in balls
    reach, edge = n_teachers * s, EDGE + 2 * tilt
    counts = np.arange(gap, n_teachers + 1) * s
    deltas = counts if whole else np.append(np.arange(gap * s, reach, 0.0125), reach)
    marks = [_around(count, sigma) for count in range(gap, n_teachers + 1)] if whole else None
    spans = _cut(_around(gap, sigma)[0], _around(n_teachers, sigma)[1])
    if marks is not None:
        groups = [[mark for mark in marks if a <= mark[0] < b] for a, b in spans]
        spans = [(group[0][0], group[-1][1]) for group in groups if group]
        assert sum(map(len, groups)) == len(marks)
    parts, cells = [], 0
    for side in (1, -1):
        limit = max(_limit(order, s, deltas, side), 1e-6 * target)
        v_top = _far_enough(order, sigma, limit)
        last = (math.sqrt(2) * v_top + reach) / 2 + 1e-6  # t ≥ last has V ≥ v_top
        nodes = np.append(np.arange(-edge, last, STRIP), last)
        table = tables(order, sigma, nodes, deltas)[0 if side == 1 else 1]
        a = np.maximum(np.minimum(table.max(axis=1), most), limit)
        a = np.maximum.accumulate(a[::-1])[::-1]
        values = _raised(nodes, a, most, target, k=n_classes - 2, gap=gap * s)
        if values is None:
            return Proof(False, tuple(parts), cells)
        search = _Bounded(order, sigma, nodes, values, most)
        proved = search.prove(_tiles(spans, side, -edge, last), marks)
        cells += search.cells
        if not proved or not _proved_far(order, sigma, v_top, float(values[-1]), marks or spans, side):
            return Proof(False, tuple(parts), cells)
        mean = _mean(nodes, values, most, k=n_classes - 2, gap=arb(gap) / arb(sigma))
        parts.append(float(_cost(mean, order) / arb(bound)))
        if not _cost(mean, order) <= arb(bound):
            return Proof(False, tuple(parts), cells)
    mean, more = _losers(order, sigma, gap, reach, most, target)
    proved = mean is not None and bool(_cost(mean, order) <= arb(bound))
    if mean is not None:
        parts.append(float(_cost(mean, order) / arb(bound)))
    return Proof(proved, tuple(parts), cells + more)


def _cost(excess: arb, order: float) -> arb:
    return excess.log1p() / (arb(order) - 1)


def _raised(nodes: np.ndarray, a: np.ndarray, most: float, target: float, *, k: int, gap: float) -> np.ndarray | None:
    """T: a, bent, raised as far as its mean may be, most of all where it hardly counts; nothing if a is above."""
    bent = np.maximum.accumulate(_bent(a)[::-1])[::-1]
    beyond = -np.expm1(k * log_ndtr(-nodes + gap))  # P(C > -t), rises with t
    weight = np.append(np.diff(beyond), 0.0) / 2
    weight[1:] += np.diff(beyond) / 2
    weight[0] += beyond[0]
    weight[-1] += 1 - beyond[-1]
    mean = float(bent @ weight)
    room = 0.95 * (target / mean - 1)
    if room <= 0:
        return None
    share = bent * weight
    rank = np.argsort(share)
    cheap = np.zeros(nodes.size, dtype=bool)
    cheap[rank] = np.cumsum(share[rank]) * LAVISH < room / 2 * mean
    values = bent * (1 + np.where(cheap, LAVISH, min(room / 2, LAVISH)))
    return np.minimum.accumulate(np.minimum(values, most))


def _around(count: int, sigma: float) -> tuple[float, float]:
    """Doubles below and above count/(σ√2)."""
    ball = arb(count) / arb(sigma) / ROOT2
    low, high = float(ball.lower()), float(ball.upper())
    return max(math.nextafter(low, -math.inf), 0.0), math.nextafter(high, math.inf)


def _cut(low: float, high: float) -> list[tuple[float, float]]:
    cuts = np.linspace(low, high, max(2, math.ceil((high - low) / WIDE) + 1))
    return [(float(a), float(b)) for a, b in itertools.pairwise(cuts)]


def _tiles(spans: list[tuple[float, float]], side: int, low: float, high: float) -> list[Cell]:
    """Cells in (U, V) that cover max(x, y) from low to high."""
    result = []
    for a, b in spans:
        start, stop = math.sqrt(2) * low - b - 1e-6, math.sqrt(2) * high - a + 1e-6
        u = (a, b) if side == 1 else (-b, -a)
        result += [(*u, *part) for part in _cut(start, stop)]
    return result


def _limit(order: float, s: float, deltas: np.ndarray, side: int) -> float:
    """Two classes: the largest excess at these gaps, in floats."""
    u, r = side * deltas / math.sqrt(2), s * math.sqrt(2)
    return float(excess((ndtr(u), ndtr(-u)), (ndtr(u - r), ndtr(r - u)), order).max())


def _allowed(order: float, sigma: float, v: float, value: float) -> arb:
    """What two classes may have if three are to have ``value`` where (x + y)/√2 ≥ v, as in `certify_argmax`."""
    lam, s = arb(order), 1 / arb(sigma)
    gauss = (lam * (lam - 1) * s * s).exp()
    return ((1 + arb(value) - gauss * _ndtr(-arb(v))) * _ndtr(arb(v)) ** (lam - 1) - 1).lower()


def _far_enough(order: float, sigma: float, limit: float) -> float:
    for k in range(8, 60):
        if _allowed(order, sigma, k / 2, limit) > limit * (1 - 1e-8):
            return k / 2
    raise ArithmeticError("No place is far enough.")


def _proved_far(
    order: float, sigma: float, v: float, value: float, spans: list[tuple[float, float]], side: int
) -> bool:
    allowed = _allowed(order, sigma, v, value)
    cells = [(*((a, b) if side == 1 else (-b, -a)), 0.0, 0.0) for a, b in spans]
    return bool(_TwoOutcomes(order, ROOT2 / arb(sigma), allowed).search(cells).proved)


def _mean(nodes: np.ndarray, values: np.ndarray, most: float, *, k: int, gap: arb) -> arb:
    """E T(-K) ≤ T at the far end + Σ slope·∫ P(K > c) dc, and ``most`` beyond the near end."""
    root = acb(ROOT2)

    def beyond(z: acb, _: object) -> acb:
        return 1 - ((-(z + gap) / root).erfc() / 2) ** k

    total = arb(float(values[-1]))
    for i in range(nodes.size - 1):
        t0, t1, v0, v1 = (arb(float(x)) for x in (nodes[i], nodes[i + 1], values[i], values[i + 1]))
        if v0 > v1:
            total += (v0 - v1) / (t1 - t0) * acb.integral(beyond, -t1, -t0).real
    end = -arb(float(nodes[0]))
    return total + (arb(most) - arb(float(values[0]))) * (1 - _ndtr(end + gap) ** k)


def _losers(order: float, sigma: float, gap: int, reach: float, most: float, target: float) -> tuple[arb | None, int]:
    """E H(-gs - Z): H by a staircase that is as high as the target allows, an upper sum over Z."""
    s, tilt = 1 / sigma, (order - 1) / sigma
    low, high = -EDGE - 2 * tilt, EDGE
    nodes = np.arange(low, high, STRIP)
    deltas = np.append(np.arange(0, reach, 0.05), reach)
    table = np.maximum.accumulate(np.maximum(*tables(order, sigma, nodes, deltas)).max(axis=1))
    lam, at, shift = arb(order), arb(float(nodes[0])), 1 / arb(sigma)
    c, gauss = (lam - 1) * shift, (lam * (lam - 1) * shift * shift).exp()
    # Below the first node J is near certain: Q_J ≥ Φ(-v)Φ(-v-s), and Hölder for a and b
    below = (_ndtr(-at) * _ndtr(-at - shift)) ** (1 - lam) + gauss * (_ndtr(at + c) + _ndtr(at - c)) - 1
    least = max(math.nextafter(float(below.upper()), math.inf), target / 50)
    # v = -gs - Z; P(v ≤ t) = P(Z ≥ -t - gs). T is a line between nodes, and at most its value at the next node
    chance = np.diff(ndtr(nodes + gap * s))
    ahead = np.append(table[1:], table[-1])
    room = 0.98 * (target - least) / float(ahead[1:] @ chance + most * ndtr(-nodes[-1] - gap * s))
    values = np.minimum(np.maximum(ahead * min(max(room, 1.02), 2.0), least), most)
    values[ahead >= ahead[-1]] = most
    search = _Bounded(order, sigma, nodes, values, most)
    spans = _cut(0.0, reach / math.sqrt(2) * (1 + 1e-12))
    if not search.prove(_tiles(spans, 1, low, high) + _tiles(spans, -1, low, high)):
        return None, search.cells
    edges = [_ndtr(arb(float(t)) + arb(gap) * shift) for t in nodes]
    total = arb(float(values[0])) * edges[0] + arb(most) * (1 - edges[-1])
    for k in range(nodes.size - 1):
        total += arb(float(values[k + 1])) * (edges[k + 1] - edges[k])
    return total, search.cells
