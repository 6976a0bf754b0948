"""A bound on the cost of an answer that depends on the gap between the two largest counts alone.

One move changes the gap by at most two, so that balls of histograms are intervals of gaps: what a tested release and a
smooth majorant need, near the exact cost (some 10% above it on real votes, where the bound from q is 140% above).
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_ndtr, ndtr

from terrine import _validate
from terrine.accounting.argmax import log_outcomes, rdp_argmax, renyi
from terrine.accounting.exact import Exact
from terrine.release.smooth import Array, Rows, log_smooth
from terrine.sensitive import Sensitive
from terrine.votes import Votes

STEP = 0.1  # of both grids, in standard deviations
DEEPEST = 15.0  # in standard deviations; larger gaps count as this
EDGE = 9.0  # a standard normal is beyond it with chance 1e-19
TILT = 15.0  # (order - 1)/sigma: above it no table is made; it would be large, and moments leave the range of a float
ROUNDING = 1e-6  # outward, far above the error of a float


def gap_costs(*, sigma: float, order: float, n_classes: int, n_teachers: int, step: float = STEP) -> Array:
    """Upper bound on D(M(D) ‖ M(D')) of one GNMax answer by gap 0..n_teachers, non-increasing.

    Two classes: the exact cost. More: the conditioning of the argmax bound, with every losing class as near as the
    second, integrated over the largest unmoved noisy count.

    [TERRINE, Thm. 11]
    """
    sigma = _validate.positive("sigma", sigma)
    order = float(_validate.orders(_validate.number("order", order))[0])
    n_classes = _validate.integer("n_classes", n_classes, at_least=2)
    return _gap_costs(sigma, order, n_classes, _validate.integer("n_teachers", n_teachers, at_least=1), step)


def smooth_majorant(votes: Votes, *, sigma: float, order: float, beta: float) -> Sensitive[float]:
    """A number that is at least the cost of GNMax answers to these queries, and whose log one teacher moves by beta.

    max over d of e^(-beta d)·Σ (largest `gap_costs` within d moves). Secret; its logarithm may be released with plain
    Gaussian noise in units of beta.

    [TERRINE, Thm. 12]
    """
    return Sensitive(math.exp(log_majorant(votes, sigma=sigma, order=order, beta=_validate.positive("beta", beta))))


def log_majorant(votes: Votes, *, sigma: float, order: float, beta: float) -> float:
    """The logarithm of `smooth_majorant`, for what adds noise to it. Secret."""
    costs = gap_costs(sigma=sigma, order=order, n_classes=votes.n_classes, n_teachers=votes.n_teachers)
    gaps, weights = gaps_of(votes)
    return log_smooth([GapRows(gaps, weights, costs=costs)], beta=beta)


def gaps_of(votes: Votes) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Distinct gaps between the two largest counts, and how many queries have them, for what adds noise. Secret."""
    largest = np.partition(votes.counts, -2, axis=1)
    gaps, weights = np.unique(largest[:, -1] - largest[:, -2], return_counts=True)
    return gaps, weights


@lru_cache(maxsize=256)
def _gap_costs(sigma: float, order: float, n_classes: int, n_teachers: int, step: float) -> Array:
    worst = float(rdp_argmax(sigma=sigma, orders=np.array([order]))[0])
    by_gap = np.full(n_teachers + 1, worst)
    if n_classes == 2:
        first = np.arange(-(-n_teachers // 2), n_teachers + 1)
        exact = Exact(sigma=sigma, orders=np.array([order]))
        for places, (cost,) in exact.by_histogram(np.stack((first, n_teachers - first), axis=1), None):
            by_gap[2 * first[places] - n_teachers] = cost
        if n_teachers % 2 == 0:  # gaps are even then, else odd: the other parity is read at the gap below
            by_gap[1::2] = by_gap[:-1:2]
        else:
            by_gap[0], by_gap[2::2] = by_gap[1], by_gap[1:-1:2]
    elif (order - 1) * worst < 600 and (order - 1) / sigma < TILT:  # else the worst case stands
        votes = max(1, int(step * sigma))  # between grid points
        log_costs = np.log(_costs_on_grid(sigma, order, n_classes, n_teachers, step, votes, worst))
        if votes > 1:
            log_costs += _bend(log_costs, 0)
        by_gap = np.exp(np.interp(np.arange(n_teachers + 1), votes * np.arange(log_costs.size), log_costs))
    result: Array = np.maximum.accumulate(np.minimum(by_gap * (1 + ROUNDING), worst)[::-1])[::-1]
    result.setflags(write=False)
    return result


def _costs_on_grid(
    sigma: float, order: float, n_classes: int, n_teachers: int, step: float, votes: int, worst: float
) -> Array:
    """At gaps 0, votes, 2·votes, ...: the worst of moves from the winner, to the winner, and between losers."""
    tilt = (order - 1) / sigma  # moments of this order look so far beyond the bulk; in fours, to share the work
    gaps, u, outcomes = _outcomes(sigma, n_teachers, step, votes, EDGE + 4 * math.ceil(tilt / 2))
    most = math.expm1((order - 1) * worst)  # the excess e^((order-1)D) - 1 is never above it
    with np.errstate(over="ignore"):
        tables = [np.minimum(np.expm1((order - 1) * renyi(*pair, order=np.array(order))), most) for pair in outcomes]
    from_top, to_top = (np.minimum(t + _bend(t, 0) + (_bend(t, 1) if votes > 1 else 0.0), most) for t in tables)
    # C, the largest noisy count of the other losers, in units of sigma above the winner's count: at most that of m - 2
    # classes at the gap. Given C the excess is at most the largest at distances of -C and above, for gaps as large.
    c = -u[::-1]
    beyond = -np.expm1((n_classes - 2) * log_ndtr(c[:, None] + gaps))
    excess = np.zeros(gaps.size)
    for table in (from_top, to_top):
        upto = np.maximum.accumulate(table[::-1], axis=0)
        upto = np.maximum.accumulate(upto[:, ::-1], axis=1)[:, ::-1]
        excess = np.maximum(excess, _mean(upto, beyond) + (most - upto[-1]) * beyond[-1])
    # Moves between losers: both are at least the gap below the winner, whose noise is Z.
    below = np.maximum.accumulate(np.maximum(from_top, to_top).max(axis=1))
    z = np.arange(-EDGE, EDGE + step, step)
    nearest = np.searchsorted(u, -gaps[:, None] - z[:-1])  # the grid point above
    highest = np.where(nearest < u.size, below[np.minimum(nearest, u.size - 1)], most)
    mean = highest @ np.diff(ndtr(z)) + most * ndtr(z[0]) + below[0] * ndtr(-z[-1])
    result: Array = np.log1p(np.maximum(excess, mean)) / (order - 1)
    return result


Laws = tuple[tuple[Array, ...], tuple[Array, ...]]


@lru_cache(maxsize=8)
def _outcomes(sigma: float, n_teachers: int, step: float, votes: int, edge: float) -> tuple[Array, Array, list[Laws]]:
    """Gaps, places u of the higher of two classes, and on (u, gaps) the three-outcome laws of [TERRINE, Thm. 1].

    First for the move from the higher class to the lower, before and after it; then for the opposite move.
    """
    # Moments of high order are largest at gaps of about edge - EDGE
    furthest = min(n_teachers, math.ceil((DEEPEST + edge - EDGE) * sigma))
    if votes > 1:
        furthest = max(furthest, 3 * votes)  # with fewer grid points there are no bends
    gaps = np.arange(0, furthest + votes, votes) / sigma
    u = np.arange(-edge, gaps[-1] + edge, step)
    high, low, s = u[:, None], u[:, None] - gaps, 1 / sigma
    a, b, other = log_outcomes(high + 0 * low, low)
    away = log_outcomes(high - s + 0 * low, low + s)
    back = log_outcomes(low - s, high + s + 0 * low)
    return gaps, u, [((a, b, other), away), ((b, a, other), back)]


def _bend(values: Array, axis: int) -> Array:
    """Twice what a smooth function can rise above a chord between grid points: an eighth of its second difference."""
    around = [(2, 2) if i == axis else (0, 0) for i in range(values.ndim)]
    bends = np.pad(np.abs(np.diff(values, 2, axis=axis)), around)  # two more points than values has
    left, middle, right = (np.take(bends, np.arange(k, k + values.shape[axis]), axis=axis) for k in range(3))
    result: Array = np.maximum(np.maximum(left, middle), right) / 4
    return result


def _mean(rising: Array, beyond: Array) -> Array:
    """Upper bound on the mean, by columns, of a rising function under a law given by its tail, P(C > c).

    The first value and every rise times the tail where it happens: the trapezoid rule, with what the function can rise
    above its chord, and the tail above its. By tails, as a distribution function near 1 has no digits left.
    """
    above, more = (np.maximum(b[1:], b[:-1]) for b in (_bend(rising, 0), _bend(beyond, 0)))
    tail = (beyond[1:] + beyond[:-1]) / 2 + more
    result: Array = (np.diff(rising, axis=0) * tail - above * np.diff(beyond, axis=0)).sum(axis=0) + rising[0]
    return result


class GapRows:
    """Distinct gaps with weights; the largest cost within d moves is that of a gap smaller by 2 d."""

    def __init__(self, gaps: NDArray[np.int64], weights: ArrayLike, *, costs: Array) -> None:
        self.gaps, self.reach = gaps, costs.size // 2 + 1
        self.log_weights: Array = np.log(weights)
        self._log_costs: Array = np.log(costs)

    def log_at(self, distance: int, rows: Rows) -> Array:
        result: Array = self._log_costs[np.maximum(self.gaps[rows] - 2 * distance, 0)]
        return result
