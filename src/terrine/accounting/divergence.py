"""Numerics of the exact accountant: the winner's law, what every move does to it, and the largest divergence.

The law is a one-dimensional integral, pᵢ(n) = ∫ φ(t − nᵢ/σ) Π_{j≠i} Φ(t − nⱼ/σ) dt, and what a moved vote does to it is
a ratio rᵢ = pᵢ(n')/pᵢ(n) that is a weighted mean over the same integrand. For every move and both directions the
divergence follows from (p, r). Moves that a cheap bound shows to be smaller than one already computed are left out.

Arrays run (histograms, nodes, kinds) or (histograms, outcomes, moves); the outcomes of a move a→b are the kinds less
the two moved classes, then those two.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.special import erfcx, log_ndtr

from terrine.errors import InputError

Array = NDArray[np.float64]

CELLS = 500_000  # floats in the largest temporary of one thread
_REACH = 9.0  # standard deviations beyond a mode: e⁻⁴⁰ of the mass is left out
_LOG_SQRT_2PI = 0.5 * math.log(2 * math.pi)
_BLOCK = 12  # neighboring orders that share one decision about which moves to evaluate


@dataclass(frozen=True)
class Batch:
    """Distinct histograms as kinds of classes: (histograms, kinds), padded with kinds of multiplicity 0."""

    counts: Array
    scores: Array  # what the check looks at: counts less offsets
    multiplicity: Array
    queries: list[NDArray[np.int64]]  # of each histogram


def _step(n_classes: float) -> float:
    """Trapezoid step in units of sigma: more classes make sharper integrands."""
    return 0.2 if n_classes <= 16 else 0.1 if n_classes <= 200 else 0.05


def n_nodes(counts: NDArray[np.generic], *, sigma: float) -> int:
    spread = float((counts.max(axis=1) - counts.min(axis=1)).max()) / sigma
    return int((spread / 2 + 2 * _REACH + 4) / _step(counts.shape[1])) + 1


class Law:
    """The winner's law at each histogram: log-probabilities of one class of each kind, and the integrand's weights."""

    def __init__(self, counts: NDArray[np.generic], multiplicity: Array, *, sigma: float) -> None:
        x = np.asarray(counts, dtype=np.float64) / sigma
        m = float(multiplicity.sum(axis=1).max())
        step = _step(m)
        top = x.max(axis=1)
        # A class's integrand peaks above the middle between it and the top and falls off like a normal density.
        low = (top + x.min(axis=1)) / 2 - _REACH
        high = top + _REACH + math.sqrt(2 * math.log(m))
        t = low[:, None] + step * np.arange(int(((high - low).max()) / step) + 2)
        self.z = t[:, :, None] - x[:, None, :]  # (histograms, nodes, kinds)
        self.log_cdf = log_ndtr(self.z)
        all_below = np.einsum("htk,hk->ht", self.log_cdf, multiplicity)
        log_f = -0.5 * self.z**2 + all_below[:, :, None] - self.log_cdf
        peak = log_f.max(axis=1)
        log_f -= peak[:, None, :]
        # Where no kind's integrand is above e⁻⁵⁰ of its peak a node does not matter: put the others first and cut.
        matters = (log_f > -50).any(axis=2)
        nodes = np.argsort(~matters, axis=1, kind="stable")[:, : int(matters.sum(axis=1).max()), None]
        self.z, self.log_cdf, log_f = (np.take_along_axis(a, nodes, axis=1) for a in (self.z, self.log_cdf, log_f))
        weights = np.exp(log_f)
        total = weights.sum(axis=1)
        self.weights = weights / total[:, None, :]
        self.log_p = peak + np.log(total) + (math.log(step) - _LOG_SQRT_2PI)
        with np.errstate(divide="ignore"):
            self.log_total = np.log((np.exp(self.log_p) * multiplicity).sum(axis=1))


def _ratios(law: Law, s: float) -> tuple[Array, Array, Array, Array]:
    """log p, log Σp, and what every move does to every outcome: r - 1 and log r, (histograms, outcomes, moves).

    When a vote leaves a, the factor of a's count in the others' integrands grows; that of b shrinks.
    """
    h, _, k = law.z.shape
    logs = (
        log_cdf_change(law.z, s),
        log_cdf_change(law.z, -s),
        -law.z * s - 0.5 * s * s,  # the moved classes' own densities
        law.z * s - 0.5 * s * s,
    )
    weights = law.weights.transpose(0, 2, 1)  # (h, kind, node)

    def means(down: Array, up: Array, own_down: Array, own_up: Array, *, less_one: bool) -> Array:
        """Weighted means of down·up, or, where each is a ratio less one, of (1 + down)(1 + up) - 1."""
        stays = (weights @ (down[:, :, :, None] * up[:, :, None, :]).reshape(h, -1, k * k)).reshape(h, k, k, k)
        a_moves = (law.weights * own_down).transpose(0, 2, 1) @ up  # (h, a, b)
        b_moves = ((law.weights * own_up).transpose(0, 2, 1) @ down).transpose(0, 2, 1)
        if less_one:
            mean_down, mean_up = weights @ down, weights @ up  # (h, kind, a), (h, kind, b)
            stays = stays + mean_down[:, :, :, None] + mean_up[:, :, None, :]
            a_moves = a_moves + (law.weights * own_down).sum(axis=1)[:, :, None] + mean_up
            b_moves = b_moves + (law.weights * own_up).sum(axis=1)[:, None, :] + mean_down.transpose(0, 2, 1)
        return np.concatenate((stays, a_moves[:, None], b_moves[:, None]), axis=1).reshape(h, k + 2, k * k)

    delta = means(*(np.expm1(log) for log in logs), less_one=True)
    log_r = np.log1p(np.maximum(delta, -0.95))
    if delta.min() < -0.9:  # small ratios: no cancellation in the mean of the ratios themselves
        ratio = means(*(np.exp(log) for log in logs), less_one=False)
        with np.errstate(divide="ignore"):
            log_r = np.where(delta < -0.9, np.log(ratio), log_r)
    return law.log_p, law.log_total, delta, log_r


class Moves:
    """What every move does to the law: masses and ratios, (histograms, outcomes, moves)."""

    def __init__(self, batch: Batch, *, sigma: float, check: tuple[float, float] | None) -> None:
        h, k = batch.counts.shape
        multiplicity = batch.multiplicity
        same = np.eye(k, dtype=bool)
        may_leave = (multiplicity > 0) & (batch.counts >= 1)
        allowed = may_leave[:, :, None] & (multiplicity > 0)[:, None, :] & (~same | (multiplicity > 1)[:, :, None])
        self.allowed = allowed.reshape(h, k * k)
        size = max(1, CELLS // (k * k * n_nodes(batch.counts, sigma=sigma)))
        parts = [
            _ratios(Law(batch.counts[i : i + size], multiplicity[i : i + size], sigma=sigma), 1 / sigma)
            for i in range(0, h, size)
        ]
        log_p, self.log_total, delta, self.log_r = (np.concatenate(part) for part in zip(*parts, strict=True))
        stays = multiplicity[:, :, None, None] - same[:, :, None] - same[:, None, :]  # (h, kind, a, b)
        with np.errstate(divide="ignore"):
            log_stays = np.log(np.maximum(stays, 0.0)) + log_p[:, :, None, None]
        moved_a = np.broadcast_to(log_p[:, None, :, None], (h, 1, k, k))
        moved_b = np.broadcast_to(log_p[:, None, None, :], (h, 1, k, k))
        self.log_mass = np.concatenate((log_stays, moved_a, moved_b), axis=1).reshape(h, k + 2, k * k)
        self.mass = np.exp(self.log_mass)
        # The largest outcome's ratio from Σ p r = 1: its own mean would lose what the others change.
        largest = np.argmax(self.mass, axis=1)[:, None, :]
        change = self.mass * delta
        others = change.sum(axis=1, keepdims=True) - np.take_along_axis(change, largest, axis=1)
        of_largest = -others / np.take_along_axis(self.mass, largest, axis=1)
        np.put_along_axis(delta, largest, of_largest, axis=1)
        np.put_along_axis(self.log_r, largest, np.log1p(of_largest), axis=1)
        self.delta = delta
        self._check(batch, check, k)

    def _check(self, batch: Batch, check: tuple[float, float] | None, k: int) -> None:
        """Log-probabilities of the check's two outcomes before, and their log-ratios after each move."""
        self.has_check = check is not None
        if check is None:
            return
        sigma, threshold = check
        scores, multiplicity = batch.scores, batch.multiplicity
        counted = np.where(multiplicity > 0, scores, -np.inf)
        before = counted.max(axis=1)
        kinds = np.arange(k)
        # The best score among classes that do not move: at most the three kinds with the best scores matter.
        untouched = np.full((len(scores), k, k), -np.inf)
        for best in np.argsort(-counted, axis=1, kind="stable")[:, :3].T:
            rows = np.arange(len(scores))
            left = multiplicity[rows, best][:, None, None] - (kinds[:, None] == best[:, None, None])
            left = left - (kinds[None, :] == best[:, None, None])
            untouched = np.maximum(untouched, np.where(left > 0, counted[rows, best][:, None, None], -np.inf))
        after = np.maximum(np.maximum(untouched, scores[:, :, None] - 1), scores[:, None, :] + 1)
        after = after.reshape(len(scores), k * k)
        self.log_before = [log_ndtr(side * (before - threshold) / sigma)[:, None] for side in (1, -1)]
        self.log_shift = [
            log_cdf_change(side * (before[:, None] - threshold) / sigma, side * (after - before[:, None]) / sigma)
            for side in (1, -1)
        ]

    def largest_divergence(self, orders: Array) -> Array:
        """Max over moves and directions, (histograms, orders), for ascending orders."""
        if not self.allowed.any(axis=1).all():
            raise InputError("Every histogram needs at least one vote and two classes.")
        n_histograms, n_moves = self.allowed.shape
        self._flatten()
        promise = self._log_bound(2.0, 1)  # which move is likely the worst: only the order of evaluation hangs on it
        promise = np.where(self.allowed, promise.reshape(n_histograms, n_moves), -np.inf)
        # From here on a pair is one index: histogram x n_moves + move.
        first = np.argmax(promise, axis=1) + n_moves * np.arange(n_histograms)
        best = np.maximum(*(self._log_moment(first, orders, direction) for direction in (1, -1)))
        rivals = self.allowed.ravel().copy()
        rivals[first] = False
        owner = np.repeat(np.arange(n_histograms), n_moves)
        edges = [*range(0, orders.size - 1, _BLOCK), orders.size - 1]
        for start, last in pairwise(edges) if orders.size > 1 else [(0, 0)]:
            for direction in (1, -1):
                bound = np.logaddexp(0.0, self._log_bound(orders[last], direction))
                # Moments grow with the order: what at the last order is below the best at the first never matters.
                pairs = np.flatnonzero(rivals & (bound > best[start, owner]))
                size = max(1, CELLS // (last - start + 1))
                for i in range(0, len(pairs), size):
                    self._contest(best, pairs[i : i + size], owner, orders, start, last, direction)
        result: Array = np.maximum.accumulate(best / (orders - 1)[:, None], axis=0).T
        return result

    def _flatten(self) -> None:
        """Lay everything out as (outcomes, pairs), so that work on chosen pairs runs over contiguous memory."""

        def flat(table: Array) -> Array:
            return np.ascontiguousarray(table.transpose(1, 0, 2)).reshape(table.shape[1], -1)

        self._mass, self._log_mass, self._log_r, self._delta = map(
            flat, (self.mass, self.log_mass, self.log_r, self.delta)
        )
        with np.errstate(divide="ignore"):
            self._log_spread = self._log_mass + 2 * np.log(np.abs(self._delta))
        if self.has_check:
            starts = (np.broadcast_to(start, self.allowed.shape) for start in self.log_before)
            self._before = np.stack([start.ravel() for start in starts])
            self._shift = np.stack([log_shift.ravel() for log_shift in self.log_shift])

    def _contest(
        self,
        best: Array,
        pairs: NDArray[np.int64],
        owner: NDArray[np.int64],
        orders: Array,
        start: int,
        last: int,
        direction: int,
    ) -> None:
        """Raise ``best`` between two orders; a move whose chord stays below it is evaluated at the ends only."""
        ends = orders[[start, last]]
        at_ends = self._log_moment(pairs, ends, direction)
        for index, value in zip((start, last), at_ends, strict=True):
            np.maximum.at(best[index], owner[pairs], value)
        inside = slice(start + 1, last)
        share = ((orders[inside] - ends[0]) / max(ends[1] - ends[0], 1e-300))[:, None]
        chord = at_ends[0] + (at_ends[1] - at_ends[0]) * share  # the log-moment is convex in the order
        pairs = pairs[(chord > best[inside][:, owner[pairs]]).any(axis=0)]
        for index, value in zip(
            range(start + 1, last), self._log_moment(pairs, orders[inside], direction), strict=True
        ):
            np.maximum.at(best[index], owner[pairs], value)

    def _log_moment(self, pairs: NDArray[np.int64], orders: Array, direction: int) -> Array:
        """(order - 1) D, (orders, pairs): log Σ p r^(1 - order) forwards, log Σ p r^order backwards."""
        c = 1 - orders if direction > 0 else orders
        log_mass, log_r, delta = (table[:, pairs] for table in (self._log_mass, self._log_r, self._delta))
        excess = log_powers(self._mass[:, pairs], log_mass, log_r, delta, c)
        if self.has_check:
            excess = _with_check(self._before[:, pairs], self._shift[:, pairs], excess, c)
        result: Array = np.logaddexp(0.0, excess)
        return result

    def _log_bound(self, order: float, direction: int) -> Array:
        """An upper bound on the log-excess of every move, (pairs,). [TERRINE, Lemma 6]"""
        if direction > 0:
            c, growth = 1 - order, (order + 1) * np.maximum(-self._log_r, 0.0)
        elif order >= 2:
            c, growth = order, (order - 2) * np.maximum(self._log_r, 0.0)
        else:
            c, growth = order, (2 - order) * np.maximum(-self._log_r, 0.0)
        largest: Array = (self._log_spread + growth).max(axis=0)
        vote = largest + math.log(0.5 * c * (c - 1) * len(growth))
        return _with_check(self._before, self._shift, vote, np.array([c]))[0] if self.has_check else vote


def _with_check(before: Array, shift: Array, log_vote: Array, c: Array) -> Array:
    """Check and vote as one mechanism: log(X + α(α'/α)ᶜ Y), X the check's excess, Y the vote's. [TERRINE, Thm. 5]"""
    log_check = log_powers(np.exp(before), before, shift, np.expm1(shift), c)
    result: Array = np.logaddexp(log_check, before[0] + c[:, None] * shift[0] + log_vote)
    return result


def log_cdf_change(z: Array, change: Array | float) -> Array:
    """log Φ(z + change) − log Φ(z); in the left tail through erfcx, where the difference of the logs would cancel."""
    z, change = np.broadcast_arrays(z, change)
    direct: Array = log_ndtr(z + change) - log_ndtr(z)
    tail = np.maximum(z, z + change) < -2
    if not tail.any():
        return direct
    start = np.where(tail, z, -3.0)
    step = np.where(tail, change, 0.0)
    ratio = erfcx(-(start + step) / math.sqrt(2)) / erfcx(-start / math.sqrt(2))
    result: Array = np.where(tail, np.log(ratio) - step * (2 * start + step) / 2, direct)
    return result


def log_powers(mass: Array, log_mass: Array, log_r: Array, delta: Array, c: Array) -> Array:
    """log Σ pᵢ(rᵢᶜ − 1 − c(rᵢ − 1)) over outcomes, (orders, pairs): every term is at least 0 and none cancels."""
    c = c[:, None]
    total = np.zeros((len(c), mass.shape[1]))
    log_largest = None  # of what would overflow
    for p, log_p, rho, change in zip(mass, log_mass, log_r, delta, strict=True):
        exponent = c * rho
        linear = c * change
        if exponent.max(initial=0.0) < 30:
            total += p * (np.expm1(exponent) - linear)
            continue
        small = p * (np.expm1(np.minimum(exponent, 30.0)) - linear)
        log_term = log_p + exponent
        large = np.maximum(np.exp(np.minimum(log_term, 600.0)) - p * (1 + linear), 0.0)
        overflows = (exponent >= 30) & (log_term > 600)
        total += np.where(exponent < 30, small, np.where(overflows, 0.0, large))
        if overflows.any():
            over = np.where(overflows, log_term, -np.inf)
            log_largest = over if log_largest is None else np.logaddexp(log_largest, over)
    with np.errstate(divide="ignore"):
        result: Array = np.log(np.maximum(total, 0.0))
    return result if log_largest is None else np.logaddexp(result, log_largest)
