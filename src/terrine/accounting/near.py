"""What a mechanism costs by worst case, searched at the Rényi orders near the best one only: for planning.

A supremum costs the same at every order, and a plan tries many noises, so that `epsilon_near` computes it at about
fifteen orders in place of hundreds. Every order gives a bound, so that fewer of them never give a smaller epsilon; what
a plan returns is charged by `worst_case_cost` over all of them all the same.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from terrine.accounting.argmax import ANCHORS, BEYOND, MARGIN, rdp_argmax, supremum_argmax, supremum_check
from terrine.accounting.costs import budget_curve
from terrine.accounting.curves import ORDERS, WIDE_ORDERS, delta_cost, epsilons_at, guarantee
from terrine.errors import OrderGridWarning
from terrine.mechanisms import NOISE_BOUNDS, ConfidentGNMax, GNMax

Array = NDArray[np.float64]
Supremum = Callable[..., Array]

# Those of budgets at which suprema are searched, ascending.
_ORDERS: Array = np.intersect1d(WIDE_ORDERS, np.append(ANCHORS, BEYOND))
_AROUND = 7  # orders looked at on either side of the best


def about_rdp(sigma: Array, order: Array | float) -> Array:
    """The argmax bound to a fraction of a percent, fast: its ratio to the Gaussian depends on order/sigma nearly alone.

    For the search only; what is proposed is charged by `worst_case_cost`.
    """
    tilts, ratios = _ratio_by_tilt()
    result: Array = np.interp((order - 1) / sigma, tilts, ratios) * order / sigma**2
    return result


@lru_cache(maxsize=1)
def _ratio_by_tilt() -> tuple[Array, Array]:
    sigma = 20.0
    orders = ORDERS[np.argsort(ORDERS)]
    return (orders - 1) / sigma, rdp_argmax(sigma=sigma, orders=orders) / (orders / sigma**2)


def epsilon_near(mechanism: GNMax | ConfidentGNMax, *, n_queries: int, n_answered: int, delta: float) -> float:
    """Epsilon by worst case at the best of a few orders: what `budget_curve` gives, but for rounding.

    It starts where `about_rdp` has its best order, and moves on while the best is at the edge of those looked at.
    """
    best = int(np.argmin(_at_delta(_about(mechanism, n_queries, n_answered), _ORDERS, delta)))
    while True:
        low, high = max(best - _AROUND, 0), min(best + _AROUND + 1, _ORDERS.size)
        orders = _ORDERS[low:high]
        epsilons = _at_delta(_rdp(mechanism, n_queries, n_answered, orders), orders, delta)
        best = low + int(np.argmin(epsilons))
        if (low < best or not low) and (best < high - 1 or high == _ORDERS.size):
            return float(epsilons.min())


def epsilon_over_all(mechanism: GNMax | ConfidentGNMax, *, n_queries: int, n_answered: int, delta: float) -> float:
    """By worst case over all orders, as a budget promises it: in place of `epsilon_near`."""
    curve = budget_curve(mechanism, n_queries=n_queries, n_answered=n_answered, delta=delta)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OrderGridWarning)
        return guarantee(curve, delta=delta).epsilon


def noise_about(*, n_queries: int, epsilon: float, delta: float) -> float:
    """sigma for this epsilon to about a percent, without a search for suprema."""
    spent = np.array([delta_cost(order=order, delta=delta) for order in WIDE_ORDERS])
    low, high = NOISE_BOUNDS
    while high > low * (1 + 1e-5):
        middle = math.sqrt(low * high)
        cost = n_queries * about_rdp(np.array(middle), WIDE_ORDERS) + spent
        low, high = (low, middle) if cost.min() <= epsilon else (middle, high)
    return high


def _at_delta(rdp: Array, orders: Array, delta: float) -> Array:
    return epsilons_at(orders, rdp, delta=delta, conversion="tight")


def _about(mechanism: GNMax | ConfidentGNMax, n_queries: int, n_answered: int) -> Array:
    if isinstance(mechanism, GNMax):
        return n_queries * about_rdp(np.asarray(mechanism.sigma), _ORDERS)
    checks = about_rdp(np.asarray(mechanism.sigma_check * math.sqrt(2)), _ORDERS)
    return n_queries * checks + n_answered * about_rdp(np.asarray(mechanism.sigma_vote), _ORDERS)


def _rdp(mechanism: GNMax | ConfidentGNMax, n_queries: int, n_answered: int, orders: Array) -> Array:
    if isinstance(mechanism, GNMax):
        return n_queries * _bound(supremum_argmax, mechanism.sigma, orders, orders / mechanism.sigma**2)
    checks = _bound(supremum_check, mechanism.sigma_check, orders, orders / (2 * mechanism.sigma_check**2))
    votes = _bound(supremum_argmax, mechanism.sigma_vote, orders, orders / mechanism.sigma_vote**2)
    return n_queries * checks + n_answered * votes


def _bound(supremum: Supremum, sigma: float, orders: Array, gaussian: Array) -> Array:
    """`rdp_argmax` or `rdp_check` at some of the anchors. What was searched for this noise is kept."""
    kept = _kept(supremum, sigma)
    for anchors in (ANCHORS, BEYOND):
        new = np.array([order for order in orders if order not in kept and anchors[0] <= order <= anchors[-1]])
        if new.size:
            kept.update(zip(new, supremum(sigma=sigma, orders=new, part_of=anchors) * (1 + MARGIN), strict=True))
    return np.minimum([kept[order] for order in orders], gaussian)


@lru_cache(maxsize=256)
def _kept(supremum: Supremum, sigma: float) -> dict[float, float]:
    return {}
