"""How far the data-dependent cost can move when teachers move: local, at a distance, and smooth sensitivity. Secret.

The paper's Algorithms 3-5 in log space, for one query or a sum of queries. The cost of a vote is a function of q,
that of a check a function of the top count; a ball of histograms (those within d moves) is then an interval of q or of
the top count, and the largest local sensitivity in it is read off a function of one variable. A sum over queries of
such maxima, discounted by e^(-beta d), is a smooth sensitivity or a smooth majorant. `docs/math.md` has the proofs.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import count
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_ndtr, ndtri_exp

from terrine import _validate
from terrine.accounting import theorems
from terrine.accounting.argmax import rdp_argmax
from terrine.accounting.costs import offsets_of
from terrine.accounting.exact import Exact
from terrine.errors import InputError
from terrine.mechanisms import ConfidentGNMax, GNMax, InteractiveGNMax, Mechanism
from terrine.release.check_steps import CELLS, ROUNDING, cells_of, check_steps, log_difference, score_steps, steps_of
from terrine.sensitive import Sensitive
from terrine.votes import Votes

Array = NDArray[np.float64]
Rows = NDArray[np.int64]
Accountant = Literal["sanitizable", "paper", "exact"]

STEPS = 32  # cells per move, for bounds that need not satisfy C6: local sensitivities are at most 1 + 1/STEPS too large
DEEPEST = -16.0  # in standard deviations: where log q < -131 no cost matters, and one cell covers the rest


def smooth_sensitivity(
    mechanism: Mechanism,
    votes: Votes,
    *,
    order: float,
    beta: float,
    accountant: Accountant = "sanitizable",
    student_proba: ArrayLike | None = None,
) -> Sensitive[float]:
    """A beta-smooth bound on how much one teacher can change `cost` of these queries at one order. Secret.

    max over d of e^(-beta d)·Σ (largest local sensitivity within d moves), by branch and bound over d.

    Args:
        mechanism: GNMax, or ConfidentGNMax or InteractiveGNMax (check and answer charged on every query, as `cost`
            does).
        order, beta: fixed beforehand, from public inputs.
        accountant: whose cost. "paper" needs condition C6 and refuses where it fails; "sanitizable" does not need it;
            "exact" is for two classes, where histograms are a line, and takes no InteractiveGNMax.
        student_proba: (n_queries, n_classes), for InteractiveGNMax only; public.

    [PATE18, Alg. 3] [PATE18, Alg. 4] [PATE18, Alg. 5] [PATE18, Thm. 24] [TERRINE, Thm. 9] [TERRINE, Thm. 10]
    [TERRINE, Thm. 18]
    """
    beta = _validate.positive("beta", beta)
    parts = log_parts(mechanism, votes, order, accountant, student_proba=student_proba)
    return Sensitive(math.exp(log_smooth(parts, beta=beta)))


def expected_smooth_sensitivity(
    mechanism: Mechanism, votes: Votes, *, order: float, beta: float, student_proba: ArrayLike | None = None
) -> Sensitive[float]:
    """The number of the paper's Table 2: max over d of e^(-beta d)·Σ(check + Pr[answered]·vote). Secret.

    For reproduction only, like `expected_cost`: an expectation bounds nothing.
    """
    beta = _validate.positive("beta", beta)
    parts = log_parts(mechanism, votes, order, "paper", expected=True, student_proba=student_proba)
    return Sensitive(math.exp(log_smooth(parts, beta=beta)))


def sensitivity_at(
    mechanism: Mechanism,
    votes: Votes,
    *,
    distance: int,
    order: float,
    accountant: Accountant = "sanitizable",
    student_proba: ArrayLike | None = None,
) -> Sensitive[float]:
    """Σ over queries of the largest local sensitivity within ``distance`` moves; 0 is the local sensitivity. Secret.

    [PATE18, Alg. 3] [PATE18, Alg. 4]
    """
    distance = _validate.integer("distance", distance, at_least=0)
    parts = log_parts(mechanism, votes, order, accountant, student_proba=student_proba)
    return Sensitive(math.exp(log_total(parts, distance)))


@lru_cache(maxsize=64)
def paper_profile(*, sigma: float, order: float, n_classes: int, n_teachers: int) -> Profile:
    """Algorithm 3 of the paper, once C5, C6, B_U(q0) < 1 and q0 > q(unanimous) are seen to hold.

    [PATE18, Alg. 3] [PATE18, Cond. C5] [PATE18, Cond. C6]
    """
    from scipy.interpolate import CubicSpline  # slow to import, and few need it

    log_cost = partial(theorems.log_rdp_gnmax, sigma=sigma, order=order)
    upper = partial(theorems.log_upper, sigma=sigma, n_classes=n_classes)
    lower = partial(theorems.log_lower, sigma=sigma, n_classes=n_classes)
    log_q0 = theorems.log_q0(sigma=sigma, order=order)
    unanimous = theorems.log_q_gaussian([n_teachers] + [0] * (n_classes - 1), sigma=sigma)[0]
    if unanimous >= log_q0:
        raise _too_few(n_teachers, n_classes, sigma, order)
    if upper(log_q0)[0] >= 0:
        raise InputError(
            f"Condition B_U(q0) < 1 does not hold at sigma={sigma:g}, order={order:g}, {n_classes} classes: one move "
            "can take q from q0 to 1. Use accountant='sanitizable', which does not need it, or more noise."
        )
    log_q1 = lower(log_q0)[0]
    log_plateau = math.log(order / sigma**2)

    # C5 and C6 on a grid in units of the noise, from the unanimous histogram to q0 and from there to 1
    start = ndtri_exp(unanimous - math.log(n_classes - 1)) - 2 / sigma
    end = ndtri_exp(log_q0 - math.log(n_classes - 1))
    grid = np.linspace(start, end, 2000 + int(400 * (end - start)))
    log_q = np.minimum(log_ndtr(grid) + math.log(n_classes - 1), log_q0)
    costs, above = log_cost(log_q), log_cost(np.linspace(log_q0, 0.0, 2000)[1:] * (1 - 1e-9))
    rising = np.append(log_q[log_q < log_q1], log_q1)
    steps = log_difference(log_cost(np.minimum(upper(rising), log_q0)), log_cost(rising))
    slack = 1e-9 + 1e-11 * abs(float(unanimous))
    if log_q0 > math.log(0.5) or (np.diff(costs) < -slack).any() or (above < log_plateau - 1e-9).any():
        raise _fails("C5 (the cost grows with q up to q0 <= 1/2 and is constant above)", sigma, order)
    if (np.diff(steps) < -slack).any():
        raise _fails("C6 (the step of the cost from one move to the next grows with q)", sigma, order)
    peak = float(log_difference(np.array([log_plateau]), log_cost(log_q1))[0])
    step_at = CubicSpline(rising, steps)  # smooth, and the grid is fine: to 1e-12

    def at(log_q: Array) -> Array:
        """max{g(B_U(q)) - g(q), g(q) - g(B_L(q))}: by C6 the first where q < q1, by C5 the second where q > q0."""
        result = np.full(log_q.size, peak)
        low, falling = log_q < log_q1, log_q > log_q0
        result[low] = step_at(log_q[low])
        if falling.any():
            result[falling] = log_difference(np.array([log_plateau]), log_cost(lower(log_q[falling])))
        return result

    return Profile(at=at, rise=float(log_q1), fall=float(log_q0), peak=peak)


@lru_cache(maxsize=64)
def cell_profile(*, sigma: float, order: float, n_classes: int, n_teachers: int) -> Profile:
    """Local sensitivity of the sanitizable cost by cells of q, raised to a function that rises and then falls.

    The grid is even in z = Phi^-1(q/(m-1)), which a move changes by at most sqrt 2/sigma [PATE18, Prop. 21]: from a
    move below the unanimous histogram (or DEEPEST) to a move above a tie of all. On a cell between two grid points the
    cost, which grows with q, lies between its values at them: C6 is not needed.

    [TERRINE, Thm. 9]
    """
    unanimous = theorems.log_q_gaussian([n_teachers] + [0] * (n_classes - 1), sigma=sigma)[0]
    log_losers = math.log(n_classes - 1)
    width = math.sqrt(2) / sigma / STEPS
    bottom = max(float(ndtri_exp(unanimous - log_losers)), DEEPEST)
    top = ndtri_exp(math.log1p(-1 / n_classes) - log_losers)
    z = bottom + width * np.arange(-STEPS - 1, math.ceil((top - bottom) / width) + STEPS + 2)
    log_q = np.minimum(log_ndtr(z) + log_losers, 0.0)
    rdp = partial(rdp_argmax, sigma=sigma)
    costs = np.maximum.accumulate(theorems.log_rdp_sanitizable(log_q, rdp=rdp, orders=order)[:, 0])
    if costs[STEPS + 1] >= costs[-1]:
        raise _too_few(n_teachers, n_classes, sigma, order)
    # cell k is between grid points STEPS + k and STEPS + k + 1
    left, right = slice(STEPS, -STEPS - 1), slice(STEPS + 1, -STEPS)
    cells = np.maximum(
        log_difference(costs[2 * STEPS + 1 :], costs[left]), log_difference(costs[right], costs[: -2 * STEPS - 1])
    )
    if bottom == DEEPEST:
        cells[0] = costs[2 * STEPS + 1]  # and all that is deeper
    cells = np.minimum(np.maximum.accumulate(cells), np.maximum.accumulate(cells[::-1])[::-1]) + ROUNDING
    peak = int(np.argmax(cells))
    return Profile(
        at=partial(_look_up, log_q[left], cells),
        rise=float(log_q[left][peak]),
        fall=float(np.nextafter(log_q[right][peak], -np.inf)),  # still in the peak's cell
        peak=float(cells[peak]),
    )


def _look_up(edges: Array, cells: Array, log_q: Array) -> Array:
    """The value of the cell that log q is in; what is below the first edge is in the first cell."""
    result: Array = cells[np.maximum(np.searchsorted(edges, log_q, side="right") - 1, 0)]
    return result


def _too_few(n_teachers: int, n_classes: int, sigma: float, order: float) -> InputError:
    return InputError(
        f"{n_teachers} teachers are too few for a data-dependent bound: at sigma={sigma:g}, "
        f"order={order:g} and {n_classes} classes even a unanimous vote costs the worst case. "
        "Use more teachers or less noise."
    )


def _fails(condition: str, sigma: float, order: float) -> InputError:
    return InputError(
        f"Condition {condition} does not hold at sigma={sigma:g}, order={order:g}. Use "
        "accountant='sanitizable', which does not need it, or a smaller order."
    )


def log_parts(
    mechanism: Mechanism,
    votes: Votes,
    order: float,
    accountant: Accountant,
    *,
    expected: bool = False,
    student_proba: ArrayLike | None = None,
) -> list[Part]:
    """The local sensitivities that the smooth sensitivity of these queries' cost is a sum of."""
    if not isinstance(votes, Votes):
        raise InputError(f"votes must be a Votes object, got {type(votes).__name__}.")
    if not isinstance(mechanism, GNMax | ConfidentGNMax):
        raise InputError(
            "mechanism must be GNMax or ConfidentGNMax here, or InteractiveGNMax with student_proba; got "
            f"{type(mechanism).__name__}."
        )
    offsets = offsets_of(mechanism, votes, student_proba)
    order = float(_validate.orders(_validate.number("order", order))[0])
    _validate.choice("accountant", accountant, ("sanitizable", "paper", "exact"))
    ones = np.ones(len(votes))
    if accountant == "exact":
        if isinstance(mechanism, InteractiveGNMax):
            raise InputError(
                "accountant='exact' takes no InteractiveGNMax: with a student's offsets the histograms are no line. "
                "Use accountant='sanitizable'."
            )
        log_costs = _exact_costs(mechanism, order, n_teachers=votes.n_teachers, n_classes=votes.n_classes)
        return [LineRows(votes.counts[:, 0], ones, log_values=steps_of(log_costs))]
    sigma = mechanism.sigma if isinstance(mechanism, GNMax) else mechanism.sigma_vote
    profile = (paper_profile if accountant == "paper" else cell_profile)(
        sigma=sigma, order=order, n_classes=votes.n_classes, n_teachers=votes.n_teachers
    )
    if isinstance(mechanism, GNMax):
        return [VoteRows(votes.counts, ones, sigma=sigma, profile=profile)]
    scores = (votes.counts if offsets is None else votes.counts - offsets).max(axis=1)
    threshold, sigma_check = mechanism.threshold, mechanism.sigma_check
    weights = np.exp(log_ndtr((scores - threshold) / sigma_check)) if expected else ones
    check: tuple[float, float, float, int, Any] = (threshold, sigma_check, order, votes.n_teachers, accountant)
    if offsets is None:
        checks = LineRows(scores, ones, log_values=check_steps(*check))
    else:
        below, log_steps = score_steps(*check)
        cells = cells_of(scores, threshold=threshold, below=below, n_cells=log_steps.size)
        checks = LineRows(cells, ones, log_values=log_steps, stride=CELLS)
    return [checks, VoteRows(votes.counts, weights, sigma=sigma, profile=profile)]


@lru_cache(maxsize=16)
def _exact_costs(mechanism: GNMax | ConfidentGNMax, order: float, *, n_teachers: int, n_classes: int) -> Array:
    """Log exact cost of every histogram there is of two classes: they lie on a line. [TERRINE, Thm. 9]"""
    if n_classes != 2:
        raise InputError(
            f"accountant='exact' needs two classes, got {n_classes}: a smooth sensitivity of the "
            "exact cost is known for two only. Use accountant='sanitizable'."
        )
    first = np.arange(n_teachers + 1)
    orders = np.array([order])
    if isinstance(mechanism, GNMax):
        exact = Exact(sigma=mechanism.sigma, orders=orders)
    else:
        exact = Exact(
            sigma=mechanism.sigma_vote, orders=orders, sigma_check=mechanism.sigma_check, threshold=mechanism.threshold
        )
    costs = np.empty(first.size)
    for places, (cost,) in exact.by_histogram(np.stack((first, first[::-1]), axis=1), None):
        costs[places] = cost
    with np.errstate(divide="ignore"):
        log_costs: Array = np.log(costs)
    return log_costs


# Balls of histograms: how large a value can get within d moves


class Part(Protocol):
    """Distinct queries with weights, and for each a quantity that grows with the distance."""

    log_weights: Array
    reach: int  # beyond this distance nothing grows

    def log_at(self, distance: int, rows: Rows) -> Array:
        """(rows,) log of the largest value within ``distance`` moves; non-decreasing in ``distance``."""


def log_smooth(parts: Sequence[Part], *, beta: float, tolerance: float = 1e-10) -> float:
    """max over d of log S(d) - beta d, S(d) = Σ weight·value at d: best first, by S(d) <= S(b) on [a, b].

    A row whose value is the same at both ends of an interval is not looked at again inside it, so that most of the work
    is in the first few evaluations. Rounded up by ``tolerance``.

    [TERRINE, Thm. 10]
    """
    last = max(part.reach for part in parts)
    everything = [np.arange(part.log_weights.size) for part in parts]
    ends = [[part.log_at(d, rows) for part, rows in zip(parts, everything, strict=True)] for d in (0, last)]
    first = _Interval(0, last, parts, everything, *ends, log_settled=-math.inf)
    best = max(first.log_low, first.log_high - beta * last)
    serial = count()  # ties in the heap
    heap = [(-first.bound(beta), next(serial), first)]
    while heap:
        bound, _, interval = heapq.heappop(heap)
        if -bound <= best + tolerance:
            break
        middle = (interval.low + interval.high) // 2
        for half in interval.split(middle):
            best = max(best, half.log_low - beta * half.low)
            if half.high - half.low > 1 and half.bound(beta) > best + tolerance:
                heapq.heappush(heap, (-half.bound(beta), next(serial), half))
    return best + tolerance


def log_total(parts: Sequence[Part], distance: int) -> float:
    """log S(distance)."""
    return _log_sum([p.log_weights + p.log_at(distance, np.arange(p.log_weights.size)) for p in parts])


class _Interval:
    """Distances low..high, with the values at both ends of the rows that still differ between them."""

    def __init__(
        self,
        low: int,
        high: int,
        parts: Sequence[Part],
        rows: list[Rows],
        at_low: list[Array],
        at_high: list[Array],
        *,
        log_settled: float,
    ) -> None:
        self.low, self.high, self.parts = low, high, parts
        weights = [part.log_weights[r] for part, r in zip(parts, rows, strict=True)]
        self.log_low = _log_sum([w + v for w, v in zip(weights, at_low, strict=True)], log_settled)
        self.log_high = _log_sum([w + v for w, v in zip(weights, at_high, strict=True)], log_settled)
        # Rows that no longer move, and rows that are lost in the sum, are settled at their larger value
        lost = self.log_low - 36.0 - math.log(1 + sum(r.size for r in rows))
        self.rows: list[Rows] = []
        self.at_low: list[Array] = []
        self.at_high: list[Array] = []
        settled = []
        for r, w, a, b in zip(rows, weights, at_low, at_high, strict=True):
            moving = (b > a + 1e-13) & (w + b > lost)
            settled.append((w + b)[~moving])
            self.rows.append(r[moving])
            self.at_low.append(a[moving])
            self.at_high.append(b[moving])
        self.log_settled = _log_sum(settled, log_settled)

    def bound(self, beta: float) -> float:
        """Of log S(d) - beta d at the distances inside."""
        return self.log_high - beta * (self.low + 1)

    def split(self, middle: int) -> tuple[_Interval, _Interval]:
        at = [part.log_at(middle, rows) for part, rows in zip(self.parts, self.rows, strict=True)]
        left = _Interval(self.low, middle, self.parts, self.rows, self.at_low, at, log_settled=self.log_settled)
        right = _Interval(middle, self.high, self.parts, self.rows, at, self.at_high, log_settled=self.log_settled)
        return left, right


def _log_sum(terms: Sequence[Array], start: float = -math.inf) -> float:
    """log(e^start + Σ e^terms)."""
    largest = max([start, *(float(t.max()) for t in terms if t.size)])
    if math.isinf(largest):
        return largest
    return largest + math.log(math.exp(start - largest) + sum(float(np.exp(t - largest).sum()) for t in terms))


@dataclass(frozen=True, eq=False)
class Profile:
    """A value as a function of log q: rises up to ``rise``, is ``peak`` from there to ``fall``, then falls."""

    at: Callable[[Array], Array]
    rise: float
    fall: float
    peak: float


class VoteRows:
    """Distinct sorted histograms and a profile of q: the largest value in a ball is at an end of its interval of q.

    [PATE18, Alg. 4] [TERRINE, Thm. 9]
    """

    def __init__(self, counts: NDArray[np.int64], weights: Array, *, sigma: float, profile: Profile) -> None:
        descending = -np.sort(-counts, axis=1)
        self.counts, summed = distinct(descending, weights)
        self.log_weights = np.log(summed)
        self.reach = int(counts[0].sum())
        self.profile = profile
        # Gaps are whole numbers: every tail there can be, once
        self._log_tails: Array = log_ndtr(-np.arange(2 * self.reach + 1) / (sigma * math.sqrt(2)))
        self.log_q = self._log_q_of(self.counts[:, :1] - self.counts[:, 1:])

    def _log_q_of(self, gaps: NDArray[np.int64]) -> Array:
        """`log_q_gaussian` from the losing classes' gaps."""
        log_terms = self._log_tails[gaps]
        largest = log_terms.max(axis=1)
        log_q = largest + np.log(np.exp(log_terms - largest[:, None]).sum(axis=1))
        result: Array = np.minimum(log_q, math.log1p(-1 / (gaps.shape[1] + 1)))
        return result

    def log_at(self, distance: int, rows: Rows) -> Array:
        profile, log_q = self.profile, self.log_q[rows]
        values = np.full(rows.size, profile.peak)
        rising, falling = log_q < profile.rise, log_q > profile.fall
        if rising.any():
            values[rising] = profile.at(np.minimum(self.highest(distance, rows[rising]), profile.rise))
        if falling.any():
            values[falling] = profile.at(np.maximum(self.lowest(distance, rows[falling]), profile.fall))
        return values

    def highest(self, distance: int, rows: Rows) -> Array:
        """Largest log q within ``distance`` moves: all from the first class to the second; a tie is above all."""
        counts = self.counts[rows]
        gaps = counts[:, :1] - counts[:, 1:] - distance
        gaps[:, 0] -= distance
        apart = gaps[:, 0] >= 0
        log_q = np.zeros(rows.size)
        log_q[apart] = self._log_q_of(gaps[apart])
        return log_q

    def lowest(self, distance: int, rows: Rows) -> Array:
        """Smallest log q within ``distance`` moves: votes go to the first class, always from the highest other one."""
        counts = self.counts[rows]
        top, rest = counts[:, :1], counts[:, 1:]
        # After the moves the others are level at u or below: Σ(n_j - u)+ = max over k of (n_2 + ... + n_k+1) - k u
        prefix = np.cumsum(rest, axis=1)
        spread = np.arange(1, rest.shape[1] + 1)
        moved = np.minimum(distance, prefix[:, -1:])
        level = np.maximum(-((moved - prefix) // spread), 0).max(axis=1, keepdims=True)  # ceil((prefix - moved)/k)
        lowered = np.minimum(rest, level)
        left = moved - (rest - lowered).sum(axis=1, keepdims=True)  # fewer than the classes at the level
        lowered = lowered - (spread <= left)
        return self._log_q_of(top + moved - lowered)


class LineRows:
    """Distinct places on a line where one move is ``stride`` steps: a check's score, or one of two classes.

    ``log_values`` are by place; the largest within a distance is a range maximum. [TERRINE, Thm. 9]
    """

    def __init__(self, places: NDArray[np.int64], weights: Array, *, log_values: Array, stride: int = 1) -> None:
        self.places, summed = distinct(places, weights)
        self.log_weights = np.log(summed)
        self._last, self._stride = log_values.size - 1, stride
        self.reach = -(-self._last // stride)
        self._tables = [log_values]  # of maxima over 1, 2, 4, ... places
        while (width := 2 ** len(self._tables)) <= log_values.size:
            previous = self._tables[-1]
            self._tables.append(np.maximum(previous[: -(width // 2)], previous[width // 2 :]))

    def log_at(self, distance: int, rows: Rows) -> Array:
        steps = self._stride * min(distance, self.reach)
        low = np.maximum(self.places[rows] - steps, 0)
        high = np.minimum(self.places[rows] + steps, self._last)
        level = np.frexp(high - low + 1)[1] - 1  # floor log2 of the width
        values = np.empty(rows.size)
        for k in np.unique(level):
            at = level == k
            table = self._tables[k]
            values[at] = np.maximum(table[low[at]], table[high[at] - 2**k + 1])
        return values


def distinct(rows: NDArray[np.int64], weights: Array) -> tuple[NDArray[np.int64], Array]:
    """Equal rows are one row with a weight; those of weight 0 go."""
    keys = np.ascontiguousarray(rows.reshape(len(rows), -1).astype(">u4"))  # as strings: ten times faster than axis=0
    _, first, where = np.unique(keys.view(f"S{4 * keys.shape[1]}"), return_index=True, return_inverse=True)
    total: Array = np.bincount(where.ravel(), weights=weights).astype(np.float64)
    present = total > 0
    return rows[first[present]], total[present]
