"""Worst case or tested release: which is expected to pay, from public inputs only."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from terrine import _validate
from terrine.accounting.planning import Plan, Sample
from terrine.errors import InputError
from terrine.mechanisms import ConfidentGNMax
from terrine.release.gap_bound import STEP, gap_costs
from terrine.release.sanitize import delta_shares
from terrine.release.smooth import Array
from terrine.release.tested import overhead
from terrine.release.tested_chances import ONE, chances, least_budget
from terrine.votes import Votes

_ORDERS = tuple(float(f"{order:.3g}") for order in np.geomspace(4.0, 300.0, 20))
_SHARES = (0.8, 0.7, 0.9)
_SAMPLE = 10_000  # stand-in queries looked at: what a test sees hangs on rare ones with a small gap

# What is tried, as factors of (threshold, sigma_check, sigma_vote): votes, then checks, then votes again
_SEARCH = (
    [(1.0, 1.0, float(v)) for v in np.geomspace(0.1, 1.0, 7)],
    [(t, c, 1.0) for t in (0.8, 0.9, 1.0, 1.1) for c in (0.5, 0.7, 1.0, 1.5, 2.5)],
    [(1.0, 1.0, float(v)) for v in np.geomspace(0.75, 1.33, 5)],
)


@dataclass(frozen=True, kw_only=True)
class TestedPlan:
    """The tested route on votes like the stand-ins, for as many right answers as a plan gives by worst case.

    Attributes:
        mechanism, n_queries, n_answers, order, share: what to fix beforehand.
        target: the smallest epsilon that such votes would pass with chance ``pass_chance``.
        worst_case: epsilon of the plan it is compared with.
        accuracy, right_answers: as in `Plan`.
    """

    __test__ = False  # not a test class, whatever its name

    mechanism: ConfidentGNMax
    n_queries: int
    n_answers: int
    order: float
    share: float
    target: float
    worst_case: float
    pass_chance: float
    accuracy: float
    right_answers: float

    @property
    def pays(self) -> bool:
        return self.target < self.worst_case


@dataclass(frozen=True, kw_only=True)
class _Wanted:
    """What a plan must meet, as `plan_tested` takes it."""

    pass_chance: float
    min_accuracy: float
    max_queries: int | None


def plan_tested(
    proposal: Plan,
    *,
    standin: Votes,
    max_queries: int | None = None,
    min_accuracy: float = 0.95,
    pass_chance: float = 0.95,
    progress: Callable[[float], object] | None = None,
) -> TestedPlan | None:
    """The smallest target of a tested release that is expected to give as many right answers as the proposal.

    Noise, threshold, order and share are searched for on public stand-in votes. None where no tested release is
    possible with the queries there are.
    """
    pass_chance = _validate.between("pass_chance", pass_chance, 0.0, 1.0)
    wanted = _Wanted(pass_chance=pass_chance, min_accuracy=min_accuracy, max_queries=max_queries)
    sample = Sample(standin, "worst-case", size=_SAMPLE)
    best: TestedPlan | None = None
    for step, scales in enumerate(_SEARCH):
        around = proposal.mechanism if best is None else best.mechanism
        for i, (threshold, sigma_check, sigma_vote) in enumerate(scales):
            if progress is not None:
                progress((step + i / len(scales)) / len(_SEARCH))
            try:
                mechanism = ConfidentGNMax(
                    threshold=float(f"{around.threshold * threshold:.4g}"),
                    sigma_check=float(f"{around.sigma_check * sigma_check:.4g}"),
                    sigma_vote=float(f"{around.sigma_vote * sigma_vote:.4g}"),
                )
            except InputError:  # more noise than can be drawn
                continue
            other = _smallest_target(
                mechanism,
                sample,
                proposal,
                wanted,
                smallest=math.inf if best is None else best.target,
                fine=step == len(_SEARCH) - 1,
            )
            best = other or best
    return best


def _smallest_target(
    mechanism: ConfidentGNMax,
    sample: Sample,
    proposal: Plan,
    wanted: _Wanted,
    *,
    smallest: float,
    fine: bool,
) -> TestedPlan | None:
    """Over orders and shares, for a mechanism with as many queries as the right answers take; None if not below."""
    answered = ndtr((sample.counts[:, 0] - mechanism.threshold) / mechanism.sigma_check)
    right = float((answered * sample.pr_plurality(mechanism.sigma_vote)).mean())
    n_queries = math.ceil(proposal.right_answers / max(right, 1e-12))
    rate = float(answered.mean())
    if right < wanted.min_accuracy * rate or n_queries > (wanted.max_queries or math.inf):
        return None
    m, delta = sample.votes.n_teachers, proposal.guarantee.delta
    delta_answers, delta_release = delta_shares(delta, None)
    gaps, where = np.unique(sample.counts[:, 0] - sample.counts[:, 1], return_inverse=True)
    shares = np.bincount(where, weights=answered) / answered.size  # of all queries, by gap
    spread = n_queries + n_queries**2 / answered.size  # of the queries drawn, and of the stand-ins as a sample
    moved = np.unique(np.linspace(0, m // 2 + 1, 200).astype(np.int64))
    found: tuple[float, float] | None = None
    failures = 0  # in a row: the best target is a valley over orders
    for order in _ORDERS if fine else _ORDERS[::2]:
        fixed = overhead(mechanism, n_queries=n_queries, order=order, delta=delta_answers)
        if fixed >= smallest:
            continue
        if failures == 3:
            break
        failures += 1
        costs = gap_costs(
            sigma=mechanism.sigma_vote, order=order, n_classes=sample.votes.n_classes, n_teachers=m, step=2 * STEP
        )
        sums = np.array([_likely_sum(shares, costs[np.maximum(gaps - 2 * d, 0)], n_queries, spread) for d in moved])
        for share in _SHARES if fine else _SHARES[:1]:

            def passes(budget: float, order: float = order, sums: Array = sums, share: float = share) -> bool:
                if budget < least_budget(order=order, first=delta_release):
                    return False
                away = int(np.interp(share * budget, sums, moved))
                table = chances(budget=budget, cap=share * budget, order=order, first=delta_release, longest=away + 1)
                return away > 0 and table[min(away, len(table) - 1)] >= wanted.pass_chance * ONE

            low, high = 0.0, smallest - fixed if math.isfinite(smallest) else sums[-1] / share
            if not passes(high):
                continue
            while high - low > 1e-3 * high:
                middle = (low + high) / 2
                low, high = (low, middle) if passes(middle) else (middle, high)
            smallest, found, failures = fixed + high, (order, share), 0
    if found is None:
        return None
    return TestedPlan(
        mechanism=mechanism,
        n_queries=n_queries,
        n_answers=min(n_queries, math.ceil(n_queries * rate)),
        order=found[0],
        share=found[1],
        target=float(smallest),
        worst_case=proposal.guarantee.epsilon,
        pass_chance=wanted.pass_chance,
        accuracy=right / max(rate, 1e-300),
        right_answers=n_queries * right,
    )


def _likely_sum(shares: Array, costs: Array, n_queries: int, spread: float) -> float:
    """What the costs of the answers sum up to, with 95% chance at most."""
    mean = float(shares @ costs)
    variance = max(float(shares @ costs**2) - mean**2, 0.0)
    return n_queries * mean + 1.645 * math.sqrt(variance * spread)
