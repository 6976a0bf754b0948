"""The exact accountant: the Rényi divergence of GNMax and of Confident-GNMax to every neighbor, computed.

The largest divergence over all moves of one vote, in both directions, is the cost of these votes. It is secret.

Classes with equal counts are one kind with a multiplicity and equal histograms are one histogram; `divergence.py` does
the numerics. `docs/math.md`, "The exact accountant", has the theorems.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_ndtr

from terrine import _validate
from terrine.accounting.argmax import rdp_argmax, rdp_check
from terrine.accounting.divergence import CELLS, Batch, Law, Moves, log_cdf_change, log_powers, n_nodes
from terrine.accounting.theorems import histograms
from terrine.errors import InputError

Array = NDArray[np.float64]

MARGIN = 1e-9  # outward and relative; interval arithmetic shows in the tests that it is enough
FLOOR = 1e-300  # a divergence below this is reported as this
_PAIRS = 6_000  # (histogram, move) pairs that are worked on together: their tables fit a cache


def log_probabilities(counts: ArrayLike, *, sigma: float) -> Array:
    """Log-probability of every class to be GNMax's winner, (n_queries, n_classes). [TERRINE, Thm. 4]"""
    sigma = _validate.positive("sigma", sigma)
    rows = histograms(counts)
    size = max(1, CELLS // (n_nodes(rows, sigma=sigma) * rows.shape[1]))
    blocks = [rows[start : start + size] for start in range(0, len(rows), size)]
    return np.concatenate([Law(block, np.ones(block.shape), sigma=sigma).log_p for block in blocks])


def rdp_gnmax_exact(counts: ArrayLike, *, sigma: float, orders: ArrayLike) -> Array:
    """The largest Rényi divergence, both directions, from GNMax at these votes to any neighbor.

    Args:
        counts: (n_queries, n_classes) votes.
        sigma: standard deviation of the noise, in votes.

    Returns:
        (n_queries, n_orders), never above `rdp_argmax`.

    [TERRINE, Thm. 4]
    """
    return _per_query(Exact(sigma=sigma, orders=orders), counts, None)


def rdp_confident_exact(
    counts: ArrayLike,
    *,
    threshold: float,
    sigma_check: float,
    sigma_vote: float,
    orders: ArrayLike,
    offsets: ArrayLike | None = None,
) -> Array:
    """The same for Confident-GNMax as one mechanism on n_classes + 1 outcomes: withheld, or a label.

    Args:
        offsets: (n_queries, n_classes) public numbers that the check subtracts from the counts: n_teachers·p for
            Interactive-GNMax.

    Returns:
        (n_queries, n_orders), never above `rdp_check` + `rdp_argmax`.

    [TERRINE, Thm. 5]
    """
    exact = Exact(sigma=sigma_vote, orders=orders, sigma_check=sigma_check, threshold=threshold)
    return _per_query(exact, counts, offsets)


def rdp_check_exact(scores: ArrayLike, *, threshold: float, sigma: float, orders: ArrayLike) -> Array:
    """The largest Rényi divergence of the threshold check alone, at scores that move by at most one vote.

    Returns:
        (n_queries, n_orders), never above order/(2 sigma²), which is charged where floats overflow.

    [TERRINE, Thm. 5]
    """
    sigma = _validate.positive("sigma", sigma)
    orders = _validate.orders(orders)
    score = np.atleast_1d(np.asarray(scores, dtype=np.float64)) - _validate.number("threshold", threshold)
    side = np.array([1.0, -1.0])[:, None]
    largest = np.zeros((orders.size, score.size))
    before = log_ndtr(side * score / sigma)
    with np.errstate(all="ignore"):  # a warning would depend on the votes
        for moved in (1.0, -1.0):
            shift = log_cdf_change(side * score / sigma, side * moved / sigma)
            for c in (1 - orders, orders):
                excess = log_powers(np.exp(before), before, shift, np.expm1(shift), c)
                largest = np.maximum(largest, np.logaddexp(0.0, excess))
        costs = (largest / (orders - 1)[:, None]).T * (1 + _margin(sigma))
    result: Array = np.fmin(costs, orders / (2 * sigma**2))  # fmin: what is not a number is no bound
    return result


def _margin(sigma: float) -> float:
    """Noise so large that ratios are this near to 1 leaves fewer digits."""
    return MARGIN * max(1.0, sigma / 1e4)


def _per_query(exact: Exact, counts: ArrayLike, offsets: ArrayLike | None) -> Array:
    rows = histograms(counts)
    result = np.empty((len(rows), exact.orders.size))
    for where, costs in exact.by_histogram(rows, None if offsets is None else np.asarray(offsets, dtype=np.float64)):
        result[where] = costs
    return result


class Exact:
    """One mechanism's exact accountant; `by_histogram` streams what distinct histograms cost.

    Args:
        sigma: noise of the vote.
        sigma_check, threshold: of the check, where there is one.
        ceiling: (n_orders,) the largest a cost may be (default: the worst case).
    """

    def __init__(
        self,
        *,
        sigma: float,
        orders: ArrayLike,
        sigma_check: float | None = None,
        threshold: float | None = None,
        ceiling: Array | None = None,
    ) -> None:
        self.sigma = _validate.positive("sigma", sigma)
        self.orders = _validate.orders(orders)
        self.check: tuple[float, float] | None = None
        if sigma_check is not None:
            self.check = (_validate.positive("sigma_check", sigma_check), _validate.number("threshold", threshold))
        if ceiling is None:
            ceiling = rdp_argmax(sigma=sigma, orders=self.orders)
            if self.check is not None:
                ceiling = ceiling + rdp_check(sigma=self.check[0], orders=self.orders)
        self.ceiling = ceiling
        self.fallbacks = 0  # queries charged the ceiling because floats could not resolve them: secret

    def by_histogram(
        self,
        rows: NDArray[np.int64],
        offsets: Array | None,
        *,
        progress: Callable[[float], object] | None = None,
    ) -> Iterator[tuple[NDArray[np.int64], Array]]:
        """(queries that share a histogram, its cost at every order), in no particular order.

        Args:
            rows: (n_queries, n_classes) votes.
            offsets: as in `rdp_confident_exact`.
            progress: called with the share of the work that is done.
        """
        if offsets is not None and offsets.shape != rows.shape:
            raise InputError(f"offsets must have shape {rows.shape}, got {offsets.shape}.")
        merged = Merged(rows, offsets)
        sure = self._sure(merged)
        beyond = self.beyond_floats(merged, sure)
        self.fallbacks += sum(len(merged.queries[i]) for i in np.flatnonzero(beyond))
        yield from ((merged.queries[i], self.ceiling) for i in np.flatnonzero(beyond))
        sure &= ~beyond
        if sure.any():
            costs = np.tile(1e-40 / (self.orders - 1), (int(sure.sum()), 1))
            if self.check is not None:
                sigma, threshold = self.check
                scores = merged.best_score[sure]
                costs += rdp_check_exact(scores, threshold=threshold, sigma=sigma, orders=self.orders)
            yield from zip(
                (merged.queries[i] for i in np.flatnonzero(sure)), np.minimum(costs, self.ceiling), strict=True
            )
        batches = merged.batches(np.flatnonzero(~(sure | beyond)))
        done = sum(len(merged.queries[i]) for i in np.flatnonzero(sure | beyond))
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            for batch, (costs, resolved) in zip(batches, pool.map(self._costs, batches), strict=True):
                self.fallbacks += sum(len(batch.queries[i]) for i in np.flatnonzero(~resolved))
                yield from zip(batch.queries, costs, strict=True)
                done += sum(len(queries) for queries in batch.queries)
                if progress is not None:
                    progress(done / len(rows))

    def beyond_floats(self, merged: Merged, sure: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Histograms that are charged the ceiling instead.

        Noise below half a vote would move an integrand out of its window; ratios beyond e^±690 overflow a float.
        """
        reach = (merged.table[:, 0, 0] - merged.table[:, -1, 0]) / self.sigma**2 + 15 / self.sigma
        result: NDArray[np.bool_] = ((reach > 690) | (self.sigma < 0.5)) & ~sure
        if self.check is not None:
            sigma, threshold = self.check
            result |= (np.abs(merged.best_score - threshold) + 2) / sigma**2 > 690
        return result

    def _sure(self, merged: Merged) -> NDArray[np.bool_]:
        """Histograms so unanimous that the vote's excess is below 10⁻⁴⁰ at every order. [TERRINE, Lemma 8]"""
        order = self.orders.max()
        # By Hölder the losers' part is e^G times their mass under votes tilted by order - 1 towards them.
        tilted = (merged.gap - 2 * (order - 1) - 2) / (self.sigma * math.sqrt(2))
        log_excess = order * (order - 1) / self.sigma**2 + math.log(merged.n_classes) + log_ndtr(-tilted)
        result: NDArray[np.bool_] = (tilted > 0) & (log_excess + math.log(2 * order) < math.log(1e-40))
        return result

    def _costs(self, batch: Batch) -> tuple[Array, NDArray[np.bool_]]:
        """(histograms, orders) with the margin, never above the ceiling; and which ones floats could resolve."""
        ascending = np.argsort(self.orders)
        costs = np.empty((len(batch.counts), self.orders.size))
        # Silent, since a warning would depend on the votes; what is not a number gets the ceiling below.
        with np.errstate(all="ignore"):
            moves = Moves(batch, sigma=self.sigma, check=self.check)
            costs[:, ascending] = moves.largest_divergence(self.orders[ascending])
        margin = _margin(max(self.sigma, self.check[0] if self.check is not None else 0.0))
        resolved = (np.abs(np.expm1(moves.log_total)) < 1e-10) & np.isfinite(costs).all(axis=1)
        costs = np.where(resolved[:, None], costs * (1 + margin) + FLOOR, np.inf)
        return np.minimum(costs, self.ceiling), resolved


class Merged:
    """Equal histograms counted once, equal classes merged into kinds."""

    def __init__(self, rows: NDArray[np.int64], offsets: Array | None) -> None:
        n_queries, self.n_classes = rows.shape
        table = rows.astype(np.float64)[:, :, None]
        if offsets is not None:
            table = np.concatenate((table, table - offsets[:, :, None]), axis=2)
        order = np.lexsort(tuple(table[:, :, i] for i in reversed(range(table.shape[2]))), axis=1)[:, ::-1]
        table = np.take_along_axis(table, order[:, :, None], axis=1)
        distinct, where = np.unique(table.reshape(n_queries, -1), axis=0, return_inverse=True)
        self.queries = np.split(np.argsort(where, kind="stable"), np.cumsum(np.bincount(where))[:-1])
        self.table = distinct.reshape(len(distinct), self.n_classes, -1)  # counts (descending) and scores
        self.gap = self.table[:, 0, 0] - self.table[:, 1, 0]
        self.best_score = self.table[:, :, -1].max(axis=1)
        fresh = np.ones(self.table.shape[:2], dtype=bool)
        fresh[:, 1:] = (self.table[:, 1:] != self.table[:, :-1]).any(axis=2)
        self.kind = np.cumsum(fresh, axis=1) - 1

    def batches(self, chosen: NDArray[np.int64]) -> list[Batch]:
        """Histograms with about equally many kinds go together."""
        n_kinds = self.kind[chosen, -1] + 1
        chosen = chosen[np.argsort(n_kinds, kind="stable")]
        result, start = [], 0
        while start < len(chosen):
            least = int(self.kind[chosen[start], -1]) + 1
            part = chosen[start : start + max(1, _PAIRS // least**2)]
            part = part[self.kind[part, -1] + 1 <= least + least // 8]
            k = int(self.kind[part[-1], -1]) + 1
            cells = (np.arange(len(part))[:, None], self.kind[part])
            values = np.tile(self.table[part, :1, :], (1, k, 1))
            values[cells] = self.table[part]
            multiplicity = np.zeros((len(part), k))
            np.add.at(multiplicity, cells, 1.0)
            queries = [self.queries[i] for i in part]
            result.append(Batch(values[:, :, 0], values[:, :, -1], multiplicity, queries))
            start += len(part)
        return result
