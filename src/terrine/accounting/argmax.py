"""The smaller worst case: what releasing only the winner can cost, whatever the votes are.

A move of one vote from class a to class b, seen given the largest noisy count among the other
classes, is a move between two laws on three outcomes (a wins, b wins, another wins) that depend on
two numbers x and y only. The supremum over the plane bounds the Rényi divergence for any number of
classes, any votes and both directions; it is about a third below the Gaussian's λ/σ². The threshold
check is the same with two outcomes. `docs/math.md`, "The argmax bound", has the proof.

The suprema are found by a float search and raised by ``MARGIN``; the tests confirm with interval
arithmetic that the raised value bounds the whole plane.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_ndtr

from terrine import _validate
from terrine.accounting.curves import ORDERS, WIDE_ORDERS

Array = NDArray[np.float64]

MARGIN = 1e-4  # outward: interval arithmetic confirms it in tests/accounting/test_argmax_certified.py
MAX_TILT = 32.0  # of a search; beyond (order - 1)/sigma = 32/sqrt 2 the gain over the Gaussian is below 1%
_LOG_SQRT_2PI = 0.5 * math.log(2 * math.pi)
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(48)

# Orders at which suprema are computed: the paper's grid (curves.ORDERS) and some below it.
ANCHORS: Array = np.concatenate(
    (
        [1.01, 1.05, 1.1, 1.15, 1.2, 1.25, 1.3, 1.4, 1.5, 1.6, 1.7, 1.75, 1.8, 1.9],
        np.arange(2.0, 100.75, 0.5),
        np.geomspace(100.0, 500.0, 100)[2:],
    )
)
BEYOND: Array = WIDE_ORDERS[ORDERS.size :]  # anchors that are searched only where an order above ANCHORS is asked for


def rdp_argmax(*, sigma: float, orders: ArrayLike) -> Array:
    """Upper bound on the Rényi divergence of GNMax's winner: any votes, any move, both directions.

    Never above order/sigma², equal to it where the search does not reach. [TERRINE, Thm. 1]

    Args:
        sigma: standard deviation of the noise on each count, in votes.
        orders: Rényi orders above 1.

    Returns:
        (n_orders,) bounds in nats.
    """
    sigma = _validate.positive("sigma", sigma)
    orders = _validate.orders(orders)
    return _between_anchors(orders, lambda wide: _argmax_at_anchors(sigma, wide), orders / sigma**2)


def rdp_check(*, sigma: float, orders: ArrayLike) -> Array:
    """Upper bound on the Rényi divergence of one noisy threshold check, both directions.

    The score may move by at most one vote. Never above order/(2 sigma²). [TERRINE, Thm. 2]
    """
    sigma = _validate.positive("sigma", sigma)
    orders = _validate.orders(orders)
    return _between_anchors(orders, lambda wide: _check_at_anchors(sigma, wide), orders / (2 * sigma**2))


def _between_anchors(orders: Array, suprema: Callable[[bool], Array], gaussian: Array) -> Array:
    """Chord rule: (order - 1)·epsilon(order) is convex and 0 at order 1. [TERRINE, Lemma 3]"""
    anchors, at_anchors = ANCHORS, suprema(False)
    if orders.max() > ANCHORS[-1]:
        anchors, at_anchors = np.append(ANCHORS, BEYOND), np.append(at_anchors, suprema(True))
    chord = np.interp(orders, np.append(1.0, anchors), np.append(0.0, (anchors - 1) * at_anchors))
    bound = np.where(orders <= anchors[-1], chord / (orders - 1) * (1 + 1e-14), np.inf)
    on_anchor = np.searchsorted(anchors, orders).clip(max=anchors.size - 1)
    bound = np.where(anchors[on_anchor] == orders, at_anchors[on_anchor], bound)
    return np.minimum(bound, gaussian)


@lru_cache(maxsize=256)
def _argmax_at_anchors(sigma: float, wide: bool) -> Array:
    return supremum_argmax(sigma=sigma, orders=BEYOND if wide else ANCHORS) * (1 + MARGIN)


@lru_cache(maxsize=256)
def _check_at_anchors(sigma: float, wide: bool) -> Array:
    return supremum_check(sigma=sigma, orders=BEYOND if wide else ANCHORS) * (1 + MARGIN)


def supremum_argmax(*, sigma: float, orders: Array, part_of: Array | None = None) -> Array:
    """The supremum by float search, without the margin; inf where it is not searched.

    ``part_of`` are more orders, whose search is followed: what it finds depends by a millionth on where it looks, and
    that on all of its orders.
    """
    shift = 1 / sigma

    def divergence(points: tuple[Array, ...], order: Array) -> Array:
        middle, half = points
        before = log_outcomes(middle + half, middle - half)
        after = log_outcomes(middle + half - shift, middle - half + shift)
        return renyi(before, after, order=order)

    def box(tilt: float) -> tuple[Array, Array]:
        # Seen over sigma 1-500 and orders to 500: the maximum lies where both laws are spread out,
        # half in [-(tilt + 2), 1] and middle in [-1, tilt + 6], or at infinity (two classes).
        step = max(0.3, tilt / 40)
        return np.arange(-2.0, tilt + 8, step), np.arange(-(tilt + 4.0), 3.0, step)

    inside = _search(divergence, box, shift=shift, orders=orders, part_of=part_of)
    two_classes = supremum_check(sigma=sigma / math.sqrt(2), orders=orders, part_of=part_of)
    return np.maximum(inside, two_classes)


def supremum_check(*, sigma: float, orders: Array, part_of: Array | None = None) -> Array:
    """The supremum over positions of two Bernoulli laws one vote apart; inf where it is not searched."""
    shift = 1 / sigma

    def divergence(points: tuple[Array, ...], order: Array) -> Array:
        (u,) = points
        return renyi((log_ndtr(u), log_ndtr(-u)), (log_ndtr(u - shift), log_ndtr(shift - u)), order=order)

    def box(tilt: float) -> tuple[Array]:
        return (np.arange(-(1.5 * tilt + 4.0), 4.0, 0.1),)

    return _search(divergence, box, shift=shift, orders=orders, part_of=part_of)


def _search(
    divergence: Callable[[tuple[Array, ...], Array], Array],
    box: Callable[[float], tuple[Array, ...]],
    *,
    shift: float,
    orders: Array,
    part_of: Array | None,
) -> Array:
    """Maximum over a box for every order: a common grid, then quadratic fits around each best point."""
    best = np.full(orders.shape, np.inf)
    tilts = (orders - 1) * shift
    all_tilts = tilts if part_of is None else (part_of - 1) * shift
    edges = [0.0, 2.0, 8.0, MAX_TILT]
    for low, high in pairwise(edges):
        chosen = np.flatnonzero((tilts > low) & (tilts <= high))
        if chosen.size == 0:
            continue
        axes = box(float(all_tilts[(all_tilts > low) & (all_tilts <= high)].max()))
        grid = np.stack([g.ravel() for g in np.meshgrid(*axes, indexing="ij")])
        values = divergence(tuple(grid[:, None, :]), orders[chosen][:, None])
        centre = grid[:, np.argmax(values, axis=1)]
        best[chosen] = values.max(axis=1)
        step = np.full((len(axes), chosen.size), axes[0][1] - axes[0][0])
        value = divergence(tuple(centre), orders[chosen])
        for _ in range(4):
            centre, value = _quadratic_step(divergence, centre, value, step, orders[chosen])
            best[chosen] = np.maximum(best[chosen], value)
            step = step / 4
    return best


def _quadratic_step(
    divergence: Callable[[tuple[Array, ...], Array], Array], centre: Array, value: Array, step: Array, orders: Array
) -> tuple[Array, Array]:
    """Fit a parabola along each axis, move to its top, keep the best of all the points seen."""
    for axis in range(centre.shape[0]):
        offset = np.zeros_like(centre)
        offset[axis] = step[axis]
        left, right = (divergence(tuple(centre + side * offset), orders) for side in (-1, 1))
        bend = left + right - 2 * value
        with np.errstate(divide="ignore", invalid="ignore"):
            move = np.where(bend < 0, 0.5 * (left - right) / bend, 0.0)
        top = centre + np.clip(np.nan_to_num(move), -1, 1) * offset
        points = np.stack((centre, centre - offset, centre + offset, top))
        values = np.stack((value, left, right, divergence(tuple(top), orders)))
        pick = np.argmax(values, axis=0)
        value = values.max(axis=0)
        centre = np.take_along_axis(points, pick[None, None, :], axis=0)[0]
    return centre, value


def log_outcomes(x: Array, y: Array) -> tuple[Array, Array, Array]:
    """Log-probabilities that N(x,1) beats N(y,1) and 0, that N(y,1) beats both others, that 0 does."""
    return _log_wins(x, y), _log_wins(y, x), log_ndtr(-x) + log_ndtr(-y)


def _log_wins(x: Array, y: Array) -> Array:
    """log ∫₀^∞ φ(t−x) Φ(t−y) dt by Gauss-Legendre around the mode of the log-concave integrand."""

    def hazard(d: Array) -> Array:
        result: Array = np.exp(-0.5 * d * d - _LOG_SQRT_2PI - log_ndtr(d))
        return result

    mode = np.maximum(np.maximum(x, (x + y) / 2), 0.0)
    for _ in range(6):
        h = hazard(mode - y)
        mode = np.maximum(mode + (x - mode + h) / (1 + h * (h + mode - y)), 0.0)
    slope = np.minimum(x - mode + hazard(mode - y), 0.0)  # below 0 only where the mode is at 0
    low = np.maximum(mode - 9.0, 0.0)
    high = mode + 80 / (np.sqrt(slope * slope + 80) - slope)  # e⁻⁴⁰ of the peak is left out
    half = (high - low) / 2
    t = (low + half)[..., None] + half[..., None] * _NODES
    log_f = -0.5 * (t - x[..., None]) ** 2 + log_ndtr(t - y[..., None])
    peak = log_f.max(axis=-1)
    result: Array = peak - _LOG_SQRT_2PI + np.log(np.exp(log_f - peak[..., None]) @ _WEIGHTS * half)
    return result


def renyi(log_p: tuple[Array, ...], log_q: tuple[Array, ...], *, order: Array) -> Array:
    """D_order(P‖Q) = log(1 + Σ pᵢ(rᵢᶜ − 1 − c(rᵢ − 1)))/(order − 1), r = q/p, c = 1 − order; all terms ≥ 0."""
    c = 1 - order
    log_excess = np.asarray(-np.inf)
    for p, q in zip(log_p, log_q, strict=True):
        log_r = q - p
        power = c * log_r
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            small = np.log(np.maximum(np.expm1(power) - c * np.expm1(log_r), 0.0))
        log_excess = np.logaddexp(log_excess, p + np.where(power > 500, power, small))
    result: Array = np.logaddexp(0.0, log_excess) / (order - 1)
    return result
