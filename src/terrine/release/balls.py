"""Balls of histograms: how large a function of the votes can get within d moves, and the discounted maximum over d.

For a function of q the ball is an interval of q, for a function of a count an interval of counts. A sum over queries
of such maxima, discounted by e^(-beta d), is what smooth sensitivities and smooth majorants are made of.
`docs/math.md`, "Smooth sensitivity", has the proofs.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr

Array = NDArray[np.float64]
Rows = NDArray[np.int64]


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
    """Distinct places on a line 0..reach where one move is one step: a check's top count, or one of two classes.

    ``log_values`` are by place; the largest within a distance is a range maximum. [TERRINE, Thm. 9]
    """

    def __init__(self, places: NDArray[np.int64], weights: Array, *, log_values: Array) -> None:
        self.places, summed = distinct(places, weights)
        self.log_weights = np.log(summed)
        self.reach = log_values.size - 1
        self._tables = [log_values]  # of maxima over 1, 2, 4, ... places
        while (width := 2 ** len(self._tables)) <= log_values.size:
            previous = self._tables[-1]
            self._tables.append(np.maximum(previous[: -(width // 2)], previous[width // 2 :]))

    def log_at(self, distance: int, rows: Rows) -> Array:
        low = np.maximum(self.places[rows] - distance, 0)
        high = np.minimum(self.places[rows] + distance, self.reach)
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
