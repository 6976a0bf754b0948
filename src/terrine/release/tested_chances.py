"""The one-bit test: chances that labels are published, by how many teachers would have to move to break a cap.

Everything is fixed beforehand but the distance, and the distance moves by at most one when one teacher does.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from terrine import _validate
from terrine.errors import InputError
from terrine.noise import COIN
from terrine.release.smooth import Array

ONE = COIN  # chances are whole multiples of 1/ONE: what is drawn is what was checked
LIKELY = 0.999  # no chance is above it
UNIT = 2**32  # costs are rounded up to whole multiples of 1/UNIT nats, so that sums of them are exact
MOST = 2.0**30  # nats: what costs more counts as that, which is above any cap
LONGEST = 2**17  # chances in a table: seconds of work; the last one holds for all that follow, so that fewer are sound


@lru_cache(maxsize=1024)
def chances(*, budget: float, cap: float, order: float, first: float, longest: int) -> tuple[int, ...]:
    """Chances, in units of 1/ONE, at distances 0, 1, 2, ...; the last holds for all that follow.

    The first is ``first``, which is paid for by delta. Each next one is the largest for which test and labels together
    (labels that cost at most ``cap``) cost at most ``budget`` at this order, whichever neighbor the other is.

    [TERRINE, Thm. 13]
    """
    budget, order = _validate.positive("budget", budget), float(_validate.orders(order)[0])
    if not 0 <= _validate.number("cap", cap) < budget:
        raise InputError(f"cap must be at least 0 and below the budget, {budget:g} nats, got {cap:g}.")
    _validate.between("first", first, 0.0, 1.0)
    limit = (order - 1) * budget * (1 - 1e-9) - 1e-12 * order  # room for the rounding of logarithms
    if not math.isfinite(limit):
        raise InputError(f"order times budget must be a finite number, got order={order:g}, budget={budget:g}.")
    log, exp = math.log, math.exp

    def log_moment(p: int, q: int) -> float:
        """Of the output at chance p against that at chance q."""
        silent = order * log((ONE - p) / ONE) + (1 - order) * log((ONE - q) / ONE)
        told = order * log(p / ONE) + (1 - order) * log(q / ONE) + (order - 1) * cap
        return max(silent, told) + math.log1p(exp(-abs(silent - told)))

    def allowed(p: int, before: int) -> bool:
        if log_moment(p, before) > limit:
            return False
        if len(table) == 1:
            # At distance 0 the cap is broken: that output counts as silence, and delta pays for the rest.
            return -(order - 1) * log((ONE - p) / ONE) <= limit
        return log_moment(before, p) <= limit

    if budget < (least := least_budget(order=order, first=first)):
        raise InputError(
            f"Test and answers need a budget of at least {least:.3g} nats, the cost of a {first:g} "
            f"chance to pass wrongly, got {budget:.3g}. Use a smaller delta_release or a larger "
            "target."
        )
    table = [min(int(first * ONE), int(LIKELY * ONE))]  # rounded down: delta pays for it
    if table[0] < 1:
        raise InputError(f"delta_release must be at least {1 / ONE:.2g}, got {first:g}.")
    step = 1.0  # in log-odds
    while table[-1] < int(LIKELY * ONE) and len(table) <= min(longest, LONGEST):
        before = table[-1]

        def raised(step: float, before: int = before) -> int:
            return min(int(ONE / (1 + (ONE - before) / before * exp(-step))), int(LIKELY * ONE))

        low, high = 0.0, step
        while high < 64 and allowed(raised(high), before):
            low, high = high, 2 * high
        while high - low > 1e-3 * high and high > 1e-9:
            middle = (low + high) / 2
            low, high = (middle, high) if allowed(raised(middle), before) else (low, middle)
        if low == 0 or raised(low) <= before:  # rounding alone may raise, by what nobody has checked
            break
        table.append(raised(low))
        step = 1.1 * low
    return tuple(table)


def least_budget(*, order: float, first: float) -> float:
    """In nats: the first chance may be the second too, and silence against it costs this, with room for rounding."""
    return (-math.log1p(-first) + 1e-12 * order / (order - 1)) / (1 - 1e-9)


def whole_costs(costs: Array) -> NDArray[np.int64]:
    """In units of 1/UNIT nats, rounded up; at most MOST nats, so that they fit into 64 bits."""
    result: NDArray[np.int64] = np.ceil(np.minimum(costs, MOST) * UNIT).astype(np.int64)
    return result


def distance(
    gaps: NDArray[np.int64], weights: NDArray[np.int64], *, costs: NDArray[np.int64], cap: float
) -> int | None:
    """How many teachers would have to move before the sum of costs could be above the cap; None if they never could.

    Args:
        gaps, weights: distinct gaps between the two largest counts, and how many queries have them.
        costs: (n_teachers + 1,) non-increasing, by gap, from `whole_costs`.
        cap: in nats, below MOST.
    """
    if not cap < MOST:
        raise InputError(f"cap must be below {MOST:g} nats, got {cap:g}.")

    def broken(moved: int) -> bool:
        each = costs[np.maximum(gaps - 2 * moved, 0)]
        total: int = sum(weight * cost for weight, cost in zip(weights.tolist(), each.tolist(), strict=True))
        return total > cap * UNIT

    low, high = -1, costs.size // 2 + 1
    if not broken(high):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if broken(middle) else (middle, high)
    return high
