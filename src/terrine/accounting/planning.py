"""A budget -> threshold, noise and number of queries, from public inputs only.

Starts from the paper's rules of thumb and searches around them for the mechanism with the most right
answers. Votes enter as public stand-ins (an assumption, or votes of teachers trained on public data):
parameters chosen by looking at private votes would leak.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr, ndtr

from terrine import _validate
from terrine.accounting.argmax import rdp_argmax
from terrine.accounting.costs import worst_case_cost
from terrine.accounting.curves import ORDERS, Guarantee, epsilons_at, guarantee
from terrine.errors import InputError, PlanError
from terrine.mechanisms import ConfidentGNMax
from terrine.votes import Votes

Array = NDArray[np.float64]

_SAMPLE = 400  # stand-in queries looked at: enough to plan by


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A proposal, what it costs in the worst case, and what it is expected to give.

    Attributes:
        mechanism, n_queries, n_answers: what to run; fix them before the first query.
        guarantee: the public guarantee of that run.
        accuracy: expected share of the answers that name the teachers' plurality.
        right_answers: how many that is expected to be.
        check_share: share of the Rényi budget that the checks take.
    """

    mechanism: ConfidentGNMax
    n_queries: int
    n_answers: int
    guarantee: Guarantee
    accuracy: float
    right_answers: float
    check_share: float


def rule_of_thumb(*, n_teachers: int) -> ConfidentGNMax:
    """The paper's settings for 250 teachers, scaled: T = 0.8 M, sigma_check = 0.6 M, sigma_vote = 0.16 M."""
    return ConfidentGNMax(threshold=0.8 * n_teachers, sigma_check=0.6 * n_teachers, sigma_vote=0.16 * n_teachers)


def evaluate(
    mechanism: ConfidentGNMax,
    *,
    standin: Votes,
    epsilon: float,
    delta: float,
    max_queries: int | None = None,
) -> Plan:
    """What a given mechanism would give within the budget: as many queries as fit."""
    sample = _Sample(standin)
    candidates = _Candidates(sample, mechanism.threshold, mechanism.sigma_check, mechanism.sigma_vote)
    n_queries = int(candidates.n_queries(epsilon=epsilon, delta=delta, max_queries=max_queries).item())
    while n_queries and _finish(mechanism, sample, n_queries=n_queries, delta=delta).guarantee.epsilon > epsilon:
        n_queries -= 1
    return _finish(mechanism, sample, n_queries=n_queries, delta=delta)


def plan(
    *,
    standin: Votes,
    epsilon: float,
    delta: float,
    max_queries: int | None = None,
    min_accuracy: float = 0.95,
) -> Plan:
    """The Confident-GNMax with the most right answers within (epsilon, delta), in the worst case over votes.

    Args:
        standin: PUBLIC votes to plan by: `synthetic_votes` of an assumed consensus, or votes of teachers that were
            trained on public data.
        epsilon, delta: the budget; the proposal's worst case meets it to 1% where max_queries leaves room.
        max_queries: how many public inputs there are to ask about.
        min_accuracy: at least this share of the answers must name the plurality, by the stand-in votes.
    """
    epsilon = _validate.positive("epsilon", epsilon)
    delta = _validate.between("delta", delta, 0.0, 1.0)
    if max_queries is not None:
        max_queries = _validate.integer("max_queries", max_queries, at_least=1)
    min_accuracy = _validate.between("min_accuracy", min_accuracy, 0.0, 1.0)
    sample = _Sample(standin)
    m = standin.n_teachers
    start = rule_of_thumb(n_teachers=m)
    best = np.array([start.threshold, start.sigma_check, start.sigma_vote])
    thresholds = np.linspace(0.3, 1.3, 21) * m
    checks, votes = np.geomspace(0.03, 2.0, 16) * m, np.geomspace(0.01, 0.7, 20) * m
    for _ in range(3):
        grid = [a.ravel() for a in np.meshgrid(thresholds, checks, votes, indexing="ij")]
        candidates = _Candidates(sample, *(np.append(a, b) for a, b in zip(grid, best, strict=True)))
        queries = candidates.n_queries(epsilon=epsilon, delta=delta, max_queries=max_queries)
        right = np.floor(queries) * candidates.answer_rate * candidates.accuracy
        winner = int(np.argmax(np.where(candidates.accuracy >= min_accuracy, right, -1.0)))
        best = np.array([candidates.threshold[winner], candidates.sigma_check[winner], candidates.sigma_vote[winner]])
        spread = 2.0 if len(votes) == 20 else 1.15
        thresholds = best[0] + m * 0.1 * (spread - 1) * np.linspace(-1, 1, 9)
        checks, votes = (b * np.geomspace(1 / spread, spread, 9) for b in best[1:])
    n_queries = int(queries[winner])
    if n_queries < 1 or candidates.accuracy[winner] < min_accuracy:
        raise PlanError(
            f"Expected a budget that pays for answers of which {min_accuracy:.0%} name the plurality, "
            f"got epsilon={epsilon:g} at delta={delta:g} with {m} teachers, which pays for none; "
            "it takes more teachers, more consensus, a larger epsilon or a lower min_accuracy."
        )
    return _to_target(best, sample, n_queries=n_queries, epsilon=epsilon, delta=delta, capped=max_queries)


def _to_target(
    best: Array, sample: _Sample, *, n_queries: int, epsilon: float, delta: float, capped: int | None
) -> Plan:
    """Round to readable numbers, drop queries that do not fit, then lower the noise until the target is met."""
    factor = 1.0
    for _ in range(40):
        threshold = float(f"{best[0]:.4g}")
        sigma_check, sigma_vote = (float(f"{b * factor:.4g}") for b in best[1:])
        mechanism = ConfidentGNMax(threshold=threshold, sigma_check=sigma_check, sigma_vote=sigma_vote)
        proposal = _finish(mechanism, sample, n_queries=n_queries, delta=delta)
        while factor == 1 and n_queries > 1 and proposal.guarantee.epsilon > epsilon:
            n_queries -= 1
            proposal = _finish(mechanism, sample, n_queries=n_queries, delta=delta)
        reached = proposal.guarantee.epsilon / epsilon
        if 0.995 < reached <= 1 or (reached <= 1 and n_queries == capped):
            return proposal
        factor *= max(reached, 0.5) * (1.001 if reached > 1 else 1.0)
    raise PlanError(f"Expected a plan at epsilon={epsilon:g}, got none within 0.5% of it.")


def _finish(mechanism: ConfidentGNMax, sample: _Sample, *, n_queries: int, delta: float) -> Plan:
    candidates = _Candidates(sample, mechanism.threshold, mechanism.sigma_check, mechanism.sigma_vote)
    answer_rate = float(candidates.answer_rate.item())
    n_answers = min(n_queries, math.ceil(n_queries * answer_rate))
    total = worst_case_cost(mechanism, n_queries=n_queries, n_answered=n_answers)
    checks = worst_case_cost(mechanism, n_queries=n_queries, n_answered=0)
    result = guarantee(total, delta=delta)
    at = total.orders == result.order
    return Plan(
        mechanism=mechanism,
        n_queries=n_queries,
        n_answers=n_answers,
        guarantee=result,
        accuracy=float(candidates.accuracy.item()),
        right_answers=n_queries * answer_rate * float(candidates.accuracy.item()),
        check_share=float(checks.epsilons[at][0] / total.epsilons[at][0]) if n_queries else 0.0,
    )


class _Sample:
    """A sample of stand-in votes with what every candidate needs of it."""

    def __init__(self, standin: Votes) -> None:
        if not isinstance(standin, Votes):
            raise InputError(f"Expected standin to be public Votes, got {type(standin).__name__}.")
        step = max(1, len(standin) // _SAMPLE)
        self.counts = np.sort(standin.counts[::step][:_SAMPLE], axis=1)[:, ::-1]  # winner first

    def pr_plurality(self, sigma: float) -> Array:
        """Chance that GNMax(sigma) names the plurality, (n_queries,): a trapezoid over the winner's noise."""
        t = np.arange(-8.0, 8.1, 0.5)
        weight = np.exp(-t * t / 2) * 0.5 / math.sqrt(2 * math.pi)
        gaps = (self.counts[:, :1] - self.counts[:, 1:]) / sigma
        log_all = np.stack([log_ndtr(shift + gaps).sum(axis=1) for shift in t])
        result: Array = weight @ np.exp(log_all)
        return result


class _Candidates:
    """Many mechanisms side by side: how often they answer, and how well."""

    def __init__(
        self, sample: _Sample, threshold: Array | float, sigma_check: Array | float, sigma_vote: Array | float
    ) -> None:
        self.threshold, self.sigma_check, self.sigma_vote = (
            np.atleast_1d(np.asarray(a, dtype=np.float64)) for a in (threshold, sigma_check, sigma_vote)
        )
        pairs, pair = np.unique(np.stack((self.threshold, self.sigma_check)), axis=1, return_inverse=True)
        answered = ndtr((sample.counts[:, 0] - pairs[0][:, None]) / pairs[1][:, None])  # (pairs, queries)
        sigmas, sigma = np.unique(self.sigma_vote, return_inverse=True)
        right = np.stack([sample.pr_plurality(s) for s in sigmas])  # (sigmas, queries)
        n = sample.counts.shape[0]
        self.answer_rate: Array = answered.mean(axis=1)[pair]
        self.accuracy: Array = (answered @ right.T / n)[pair, sigma] / np.maximum(self.answer_rate, 1e-300)

    def n_queries(self, *, epsilon: float, delta: float, max_queries: int | None) -> Array:
        """How many queries fit: N·unit(order) + conversion(order) <= epsilon at some order."""
        room = epsilon - epsilons_at(ORDERS, np.zeros_like(ORDERS), delta=delta, conversion="tight")
        useful = room > 0
        if not useful.any():
            return np.zeros_like(self.threshold)
        orders, room = ORDERS[useful], room[useful]
        most = np.zeros_like(self.threshold)
        checks, check = np.unique(self.sigma_check, return_inverse=True)
        votes, vote = np.unique(self.sigma_vote, return_inverse=True)
        for order, allowance in zip(orders, room, strict=True):
            unit = _about(checks * math.sqrt(2), order)[check] + self.answer_rate * _about(votes, order)[vote]
            most = np.maximum(most, allowance / unit)
        return most if max_queries is None else np.minimum(most, max_queries)


def _about(sigma: Array, order: float) -> Array:
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
