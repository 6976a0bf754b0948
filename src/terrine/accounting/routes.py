"""Worst case or tested release: which is expected to pay, from public inputs only."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, ndtri

from terrine import _validate
from terrine.accounting.balls import VoteRows, log_smooth
from terrine.accounting.planning import Plan, Sample
from terrine.accounting.release import overhead
from terrine.accounting.sanitizer import FLOOR, Sanitizer, delta_shares
from terrine.accounting.sensitivity import cost_profiles
from terrine.mechanisms import ConfidentGNMax
from terrine.votes import Votes

_ORDERS = tuple(float(order) for order in np.geomspace(4.0, 300.0, 12))
_BETAS = (0.15, 0.3, 0.6, 1.2, 2.4)  # times 1/order
_SIGMAS = np.geomspace(1.0, 1000.0, 60)  # of the release

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
        mechanism, n_queries, n_answers, sanitizer: what to fix beforehand.
        target: the smallest epsilon that such votes would pass with chance ``pass_chance``.
        worst_case: epsilon of the plan it is compared with.
        accuracy, right_answers: as in `Plan`.
    """

    __test__ = False  # not a test class, whatever its name

    mechanism: ConfidentGNMax
    n_queries: int
    n_answers: int
    sanitizer: Sanitizer
    target: float
    worst_case: float
    pass_chance: float
    accuracy: float
    right_answers: float

    @property
    def pays(self) -> bool:
        return self.target < self.worst_case


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

    Noise, threshold, order and release are searched for on public stand-in votes. None where no tested release is
    possible with the queries there are.
    """
    pass_chance = _validate.between("pass_chance", pass_chance, 0.0, 1.0)
    sample = Sample(standin, "worst-case")
    best: TestedPlan | None = None
    for step, scales in enumerate(_SEARCH):
        around = proposal.mechanism if best is None else best.mechanism
        for i, (threshold, sigma_check, sigma_vote) in enumerate(scales):
            if progress is not None:
                progress((step + i / len(scales)) / len(_SEARCH))
            mechanism = ConfidentGNMax(
                threshold=float(f"{around.threshold * threshold:.4g}"),
                sigma_check=float(f"{around.sigma_check * sigma_check:.4g}"),
                sigma_vote=float(f"{around.sigma_vote * sigma_vote:.4g}"),
            )
            smallest = math.inf if best is None else best.target
            other = _smallest_target(mechanism, sample, proposal, pass_chance=pass_chance, smallest=smallest)
            if other is None or other.accuracy < min_accuracy or other.n_queries > (max_queries or math.inf):
                continue
            best = other
        if best is None:
            return None
    return best


def _smallest_target(
    mechanism: ConfidentGNMax, sample: Sample, proposal: Plan, *, pass_chance: float, smallest: float
) -> TestedPlan | None:
    """Over orders and releases, for a mechanism with as many queries as the right answers take; None if not below."""
    answered = ndtr((sample.counts[:, 0] - mechanism.threshold) / mechanism.sigma_check)
    right = float((answered * sample.pr_plurality(mechanism.sigma_vote)).mean())
    n_queries = math.ceil(proposal.right_answers / max(right, 1e-12))
    delta = proposal.guarantee.delta
    delta_answers, delta_release = delta_shares(delta, None)
    profiles = cost_profiles(
        sigma=mechanism.sigma_vote,
        orders=_ORDERS,
        n_classes=sample.votes.n_classes,
        n_teachers=sample.votes.n_teachers,
        coarsest=2.0**-6,
    )
    chance = float(ndtri(pass_chance))
    chosen: Sanitizer | None = None
    rows = VoteRows(
        sample.counts, answered * n_queries / answered.size, sigma=mechanism.sigma_vote, profile=profiles[0]
    )
    for order, profile in zip(_ORDERS, profiles, strict=True):
        rows.profile = profile
        for share in _BETAS:
            beta = share / order
            silent = Sanitizer(order=order, beta=beta, sigma=float(_SIGMAS[-1]), delta=delta_release)
            if overhead(mechanism, silent, n_queries=n_queries, delta=delta_answers) >= smallest:
                continue
            log_cost = np.logaddexp(log_smooth([rows], beta=beta, tolerance=0.01), math.log(FLOOR))
            raised = -float(ndtri(delta_release)) + chance
            totals = np.exp(np.minimum(log_cost + beta * _SIGMAS * raised, 50.0)) + order / (2 * _SIGMAS**2)
            sanitizer = Sanitizer(
                order=order, beta=beta, sigma=float(_SIGMAS[int(np.argmin(totals))]), delta=delta_release
            )
            target = overhead(mechanism, sanitizer, n_queries=n_queries, delta=delta_answers) + float(
                np.exp(min(log_cost + beta * sanitizer.sigma * (sanitizer.quantile + chance), 50.0))
            )
            if target < smallest:
                smallest, chosen = target, sanitizer
    if chosen is None:
        return None
    rate = float(answered.mean())
    return TestedPlan(
        mechanism=mechanism,
        n_queries=n_queries,
        n_answers=min(n_queries, math.ceil(n_queries * rate)),
        sanitizer=chosen,
        target=smallest,
        worst_case=proposal.guarantee.epsilon,
        pass_chance=pass_chance,
        accuracy=right / max(rate, 1e-300),
        right_answers=n_queries * right,
    )
