"""How far the cost of one threshold check can move: by whole votes, or by a score with a student's offsets. Secret.

The cost depends on the distance of the check's score from the threshold alone, and falls with it. A move changes the
score by one vote at most, with offsets as without: an offset is public and stays. But with offsets the score is no
whole number, so that its line is cut into cells.
"""

from __future__ import annotations

import math
from functools import lru_cache, partial
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr

from terrine.accounting import theorems
from terrine.accounting.argmax import rdp_check
from terrine.errors import InputError

Array = NDArray[np.float64]
Bound = Literal["sanitizable", "paper"]

CELLS = 8  # per vote, where scores have offsets: local sensitivities are at most 1 + 1/CELLS too large
ROUNDING = 1e-9  # outward, of every cell: far above the error of a log cost and of its place on the line


def log_difference(log_a: Array, log_b: Array) -> Array:
    """log(e^a - e^b), -inf where b >= a."""
    with np.errstate(invalid="ignore"):
        result = log_a + theorems.log1mexp(np.minimum(log_b - log_a, 0.0))
    return np.where(log_a > log_b, result, -np.inf)


def steps_of(log_costs: Array) -> Array:
    """Log local sensitivity at every place of a line: the larger step to a neighboring place."""
    step = np.maximum(log_difference(log_costs[1:], log_costs[:-1]), log_difference(log_costs[:-1], log_costs[1:]))
    steps: Array = np.maximum(np.append(step, -np.inf), np.append(-np.inf, step))
    return steps


@lru_cache(maxsize=64)
def check_steps(threshold: float, sigma: float, order: float, n_teachers: int, bound: Bound) -> Array:
    """Log local sensitivity of the check's cost by top count."""
    return steps_of(_log_costs(np.abs(np.arange(n_teachers + 1) - threshold), sigma, order, bound))


@lru_cache(maxsize=16)
def score_steps(threshold: float, sigma: float, order: float, n_teachers: int, bound: Bound) -> tuple[int, Array]:
    """Log local sensitivity of the check's cost by cell of a score with offsets, and how many cells are below T.

    Cell k is from threshold + (k - below)/CELLS to a CELLS-th of a vote further. For any score in it and any change of
    at most one vote the cost changes by no more than the extremes of the cost on the cell and a vote around it allow.
    The cost is highest at the threshold, which is between two cells, so that extremes are at the ends.

    [TERRINE, Thm. 18]
    """
    lowest = -1 - n_teachers // 1000  # Σ(n - M p) is at least -1e-4 M, so that no score is below
    below = max(math.ceil((threshold - lowest) * CELLS), 0)
    above = max(math.ceil((n_teachers + 1 - threshold) * CELLS), 0)
    far = max(below, above) + CELLS + 1
    by_distance = _log_costs(np.arange(far + 1) / CELLS, sigma, order, bound)
    if (np.diff(by_distance) > ROUNDING + 1e-11 * np.abs(by_distance[1:])).any():
        raise InputError(
            f"Condition C5 does not hold for the check at sigma_check={sigma:g}, order={order:g}: its cost does not "
            "fall with the distance to the threshold. Use accountant='sanitizable', which does not need it."
        )
    by_distance = np.minimum.accumulate(by_distance)
    at = np.arange(-below, above)  # left end of each cell, in cells from the threshold

    def nearest(low: NDArray[np.int64], high: NDArray[np.int64]) -> Array:
        """The largest log cost between two places."""
        distance = np.where((low <= 0) & (high >= 0), 0, np.minimum(np.abs(low), np.abs(high)))
        result: Array = by_distance[distance]
        return result

    def farthest(low: NDArray[np.int64], high: NDArray[np.int64]) -> Array:
        result: Array = by_distance[np.minimum(np.maximum(np.abs(low), np.abs(high)), far)]
        return result

    inside, around = (at, at + 1), (at - CELLS, at + 1 + CELLS)
    steps = np.maximum(
        log_difference(nearest(*around), farthest(*inside)), log_difference(nearest(*inside), farthest(*around))
    )
    return below, steps + ROUNDING


def cells_of(scores: Array, *, threshold: float, below: int, n_cells: int) -> NDArray[np.int64]:
    """The cell that each score is in."""
    cells = np.floor((scores - threshold) * CELLS).astype(np.int64) + below
    return np.clip(cells, 0, n_cells - 1)


def _log_costs(distance: Array, sigma: float, order: float, bound: Bound) -> Array:
    """Log cost of a check by the distance of its score from the threshold, in votes."""
    log_q = log_ndtr(-distance / sigma)  # of the less likely outcome
    if bound == "paper":
        return theorems.log_rdp_gnmax(log_q, sigma=sigma * math.sqrt(2), order=order)
    rdp = partial(rdp_check, sigma=sigma)
    costs: Array = theorems.log_rdp_sanitizable(log_q, rdp=rdp, orders=order)[:, 0]
    return costs
