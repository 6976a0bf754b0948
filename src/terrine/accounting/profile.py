"""The privacy profile of a number of answers, by recursion: the smallest worst case that we can certify.

δ(α), the largest P(S) − α·Q(S), of k answers is the supremum over one answer's pairs of laws of the expected profile of
the other k − 1. Profiles are kept as convex, piecewise linear functions of α = e^ε on a grid that is uniform in ε;
every step rounds up. `docs/math.md`, "The profile accountant", has the theorems. All of it is public.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from terrine.accounting.cells import Cells

Array = NDArray[np.float64]

ROUNDING = 1e-12  # relative, a step: far above what rounding can do to a sum of positive numbers


@dataclass(frozen=True, eq=False)
class PrivacyProfile:
    """An upper bound on δ at α = e^(step·k), k = start, start + 1, ...; linear in α between them.

    Left of the grid it is on the chord to δ = 1 at α = 0, right of it constant: above any convex profile.
    """

    step: float
    start: int
    values: Array

    @property
    def alphas(self) -> Array:
        result: Array = np.exp(self.step * np.arange(self.start, self.start + len(self.values)))
        return result

    def __call__(self, alpha: Array) -> Array:
        """An upper bound on δ at these α; the position on the grid is rounded down, where profiles are larger."""
        alpha = np.asarray(alpha, dtype=np.float64) * (1 - 1e-13)
        grid = np.append(0.0, self.alphas)
        values = np.append(1.0, self.values)
        result: Array = np.interp(alpha, grid, values) * (1 + 1e-14)
        return result

    def epsilon(self, delta: float) -> float:
        """The smallest ε ≥ 0 with δ(e^ε) ≤ delta, rounded up; inf where the grid does not reach it."""
        return product_epsilon(self, None, delta=delta)


def product_epsilon(one: PrivacyProfile, other: PrivacyProfile | None, *, delta: float) -> float:
    """The smallest ε ≥ 0 at which two composed profiles are at most delta; rounded up. [TERRINE, Thm. 16]

    Two interactive mechanisms side by side cost no more than the product of pairs of laws with these profiles.
    """

    def spent(epsilon: float) -> float:
        return (
            float(one(np.array([math.exp(epsilon)]))[0]) if other is None else _product(one, other, math.exp(epsilon))
        )

    low, high = 0.0, one.step * (one.start + len(one.values) - 1)
    if other is not None:
        high += other.step * (other.start + len(other.values) - 1)
    if spent(0.0) <= delta:
        return 0.0
    if not spent(high) <= delta:
        return math.inf
    while high - low > 1e-9 * (1 + high):
        middle = (low + high) / 2
        low, high = (low, middle) if spent(middle) <= delta else (middle, high)
    return high * (1 + 1e-12)


def _product(one: PrivacyProfile, other: PrivacyProfile, alpha: float) -> float:
    """E[g(α/T)] for the other's profile g and T the likelihood ratio of a pair with the one's profile f, under P.

    As ∫ (−f′(t))·G′(t) dt with G(t) = t·g(α/t): the slopes of f are constant between points, and every term of the sum
    is positive. Where f stays constant for ever, T is infinite.
    """
    t, f = np.append(0.0, one.alphas), np.append(1.0, one.values)
    with np.errstate(divide="ignore"):
        whole = np.append(0.0, one.alphas * other(alpha / one.alphas))
    falling = np.maximum(-np.diff(f), 0.0) / np.diff(t)
    rising = np.maximum(np.diff(whole), 0.0)
    return float((f[-1] + falling @ rising) * (1 + 1e-9))


def composed(
    cells: Cells,
    n_answers: int,
    *,
    step: float,
    n_points: int,
    left_out: float = 0.0,
    progress: Callable[[float], object] | None = None,
) -> PrivacyProfile:
    """The profile of n_answers, each at any position of the cells, chosen by an adversary that sees all before it.

    The cells' family must be closed under swapping the two laws: one half of the profile then gives the other,
    δ(α) = 1 − α + α·δ(1/α).

    Args:
        step, n_points: of the grid, from ε = 0.
        left_out: how far, in total variation, a pair of laws may be from those of the cells.
        progress: called with the share of the work that is done.

    [TERRINE, Thm. 15]
    """
    taps = _Taps(cells, step=step)
    pad = taps.reach
    alphas = np.exp(step * np.arange(-pad, n_points + pad))
    gaps, left, here = np.diff(alphas), alphas[:pad], slice(pad, pad + n_points)
    values = np.zeros(n_points + 2 * pad)

    def mirror() -> None:
        values[:pad] = 1 - left + left * values[2 * pad : pad : -1]
        values[pad + n_points :] = values[pad + n_points - 1]

    mirror()
    for done in range(n_answers):
        if progress is not None:
            progress(done / n_answers)
        slopes = np.append(np.diff(values) / gaps * alphas[:-1], 0.0)
        found = taps.largest(values, slopes, pad, n_points)
        values[here] = np.minimum(found * (1 + ROUNDING) + left_out * (1 + alphas[here]), 1.0)
        mirror()
        values[: pad + n_points] = convex(alphas[: pad + n_points], values[: pad + n_points])
        mirror()
    if progress is not None:
        progress(1.0)
    half = values[here]
    mirrored = 1 - 1 / alphas[here] + half / alphas[here]
    return PrivacyProfile(step, 1 - n_points, np.concatenate([mirrored[:0:-1], half]))


class _Taps:
    """Cells as weights of neighboring points of a grid: all that a step of the recursion needs."""

    def __init__(self, cells: Cells, *, step: float) -> None:
        reach = max(float(np.abs(values).max()) for values in (cells.log_ratio, cells.ends))
        self.reach = math.ceil(reach / step) + 2
        flat = np.concatenate([cells.p, cells.log_ratio], axis=2).reshape(-1, 6)
        once, of_cell = np.unique(flat, axis=0, return_inverse=True)
        self._corners = [corner(row[:3], row[3:], step) for row in once.tolist()]
        self._cells = [
            (sorted(set(corners)), _terms(list(zip(*ends, strict=True)), step))
            for corners, *ends in zip(
                of_cell.reshape(-1, 4).tolist(),
                cells.ends.tolist(),
                cells.mass.tolist(),
                cells.moved.tolist(),
                strict=True,
            )
        ]
        corner_taps = [k for taps in self._corners for k, _ in taps]
        self._of_values = {*corner_taps, *(k for _, (taps, _) in self._cells for k, _ in taps)}
        self._of_slopes = {k for _, (_, taps) in self._cells for k, _ in taps}

    def largest(self, values: Array, slopes: Array, pad: int, n: int) -> Array:
        """The largest over all cells of the best corner plus the cell's terms."""
        from scipy.linalg.blas import daxpy  # here, so that importing terrine stays fast

        # Thousands of short sums at each step: what they share is made once
        of_values = {k: values[pad + k : pad + k + n] for k in self._of_values}
        of_slopes = {k: slopes[pad + k : pad + k + n] for k in self._of_slopes}
        at_corners = list(np.zeros((len(self._corners), n)))
        for row, taps in zip(at_corners, self._corners, strict=True):
            for k, weight in taps:
                daxpy(of_values[k], row, n, weight)
        result, best = np.zeros(n), np.empty(n)
        for corners, (at_values, at_slopes) in self._cells:
            np.maximum(at_corners[corners[0]], at_corners[corners[-1]], out=best)
            for corner in corners[1:-1]:
                np.maximum(best, at_corners[corner], out=best)
            for k, weight in at_values:
                daxpy(of_values[k], best, n, weight)
            for k, weight in at_slopes:
                daxpy(of_slopes[k], best, n, weight)
            np.maximum(result, best, out=result)
        return result


def corner(p: list[float], log_ratio: list[float], step: float) -> list[tuple[int, float]]:
    """Weights of Σ p·g(α r), by linear interpolation in α: above, since profiles are convex."""
    taps = []
    for one, log_r in zip(p, log_ratio, strict=True):
        if one > 0:
            k = math.floor(log_r / step)
            share = min(max(math.expm1(log_r - k * step) / math.expm1(step), 0.0), 1.0)
            taps += [(k, one * (1 - share)), (k + 1, one * share)]
    return taps


def _terms(
    ends: list[tuple[float, float, float]], step: float
) -> tuple[list[tuple[int, float]], list[tuple[int, float]]]:
    """Weights of mass·D + moved·G at every end, of values and of α·slopes.

    With the slope m of the grid's segment around α r, D = g(α) − (its line at α) and G = |α·m − α·g'(α)|.
    """
    values: dict[int, float] = {}
    slopes: dict[int, float] = {}
    for log_r, away, apart in ends:
        if log_r == 0:
            continue
        k = math.floor(log_r / step)
        back, turn = math.exp(-k * step), math.copysign(apart, log_r)
        for into, where, weight in (
            (values, 0, away),
            (values, k, -away),
            (slopes, k, -away * (back - 1) + turn * back),
            (slopes, 0, -turn),
        ):
            into[where] = into.get(where, 0.0) + weight
    return list(values.items()), list(slopes.items())


def convex(alphas: Array, values: Array) -> Array:
    """The largest convex function that is nowhere above: the true profile is convex, and so below it as well."""
    kept = np.arange(len(alphas))
    while True:
        slopes = np.diff(values[kept]) / np.diff(alphas[kept])
        above = np.flatnonzero(np.diff(slopes) < 0) + 1  # above the chord of its neighbors: on no convex hull
        if above.size == 0:
            result: Array = np.interp(alphas, alphas[kept], values[kept])
            return result
        kept = np.delete(kept, above)
