"""Rounds of given numbers for the least epsilon: the paper's search for its parameters. From public inputs only.

The paper fixes how many questions are asked and about how many are to be answered, and searches a grid of threshold and
noise for the best privacy. `plan_rounds` goes the other way, from an epsilon to the most right answers.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from terrine import _validate
from terrine.accounting.curves import ORDERS, delta_cost, round_up
from terrine.accounting.near import about_rdp
from terrine.accounting.planning import Sample, rule_of_thumb
from terrine.errors import InputError, PlanError
from terrine.runs.plan_rounds import (
    _SPREADS,
    PlannedRound,
    RoundWish,
    _first_grid,
    _next_grid,
    _Search,
    _Tried,
    filter_of,
)
from terrine.votes import Votes

Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class RoundNumbers:
    """How many questions a round asks, and how many of them are to be answered, by expectation."""

    n_queries: int
    n_answers: int

    def __post_init__(self) -> None:
        queries = _validate.integer("n_queries of a round", self.n_queries, at_least=1)
        answers = _validate.integer("n_answers of a round", self.n_answers, at_least=1)
        if answers > queries:
            raise InputError(f"n_answers of a round must be at most its {queries} queries, got {answers}.")


def cheapest_rounds(
    numbers: Sequence[RoundNumbers],
    *,
    standin: Votes,
    delta: float,
    epsilon: float = math.inf,
    min_accuracy: float = 0.95,
) -> tuple[PlannedRound, ...]:
    """Threshold and noise of every round at which all rounds together cost the least, by worst case.

    The first round is confident, later ones are interactive. Of each at least ``n_answers`` questions must be answered
    by expectation on the stand-in votes (in interactive rounds with what the student is assumed to know), and
    ``min_accuracy`` of the answers must name the plurality. At one order the rounds are searched apart, since their
    costs add up; the order with the least epsilon wins.

    Args:
        numbers: of each round, in the order in which they are asked.
        standin: PUBLIC votes to plan by.
        epsilon: refuse rounds that cost more.
    """
    delta = _validate.between("delta", delta, 0.0, 1.0)
    min_accuracy = _validate.between("min_accuracy", min_accuracy, 0.0, 1.0)
    if not numbers:
        raise InputError("There must be at least one round.")
    wishes = [RoundWish(kind="interactive" if k else "confident") for k in range(len(numbers))]
    sample, m = Sample(standin, "worst-case"), standin.n_teachers
    searches = [_Search(sample, one) for one in wishes]
    thumb = rule_of_thumb(n_teachers=m)
    best = [np.array([thumb.threshold, thumb.sigma_check, thumb.sigma_vote]) for _ in numbers]
    grids = [_first_grid(m) for _ in numbers]
    spent = np.array([delta_cost(order=float(order), delta=delta) for order in ORDERS])
    for spread in _SPREADS:
        tried = [search.on(grid, start) for search, grid, start in zip(searches, grids, best, strict=True)]
        found = [_cheapest(k, *of, accurate=min_accuracy) for k, of in enumerate(zip(tried, numbers, strict=True))]
        order = int(np.argmin(np.sum([costs for costs, _ in found], axis=0) + spent))
        best = [one.at(int(winner[order])) for one, (_, winner) in zip(tried, found, strict=True)]
        grids = [_next_grid(one, m, spread) for one in best]
    planned = tuple(
        PlannedRound(mechanism=search.mechanism(one), n_queries=given.n_queries, n_answers=given.n_answers)
        for search, one, given in zip(searches, best, numbers, strict=True)
    )
    cost = filter_of(planned, delta=delta).epsilon
    if cost > epsilon:
        raise PlanError(
            f"These rounds cost at least about epsilon = {round_up(cost)} at delta={delta:g}, more than {epsilon:g}. "
            "Want fewer answers, or take a larger epsilon or more teachers."
        )
    return planned


def parsed_rounds(wanted: Sequence[str], *, n_rounds: int, n_public: int) -> list[RoundNumbers]:
    """ANSWERS/QUERIES of each round, as the command line takes them."""
    numbers = []
    for one in wanted:
        parts = re.fullmatch(r"\s*(\d+)\s*/\s*(\d+)\s*", one)
        if parts is None:
            raise InputError(f"--round must be ANSWERS/QUERIES, such as 3400/6000, got {one[:60]!r}.")
        numbers.append(RoundNumbers(n_answers=int(parts[1]), n_queries=int(parts[2])))
    if len(numbers) != n_rounds:
        raise InputError(f"--rounds {n_rounds} needs --round ANSWERS/QUERIES {n_rounds} times, got {len(numbers)}.")
    if max(one.n_queries for one in numbers) > n_public:
        raise InputError(f"No round can ask more than {n_public:,} questions, the public rows (--max-queries).")
    return numbers


def _cheapest(k: int, tried: _Tried, numbers: RoundNumbers, *, accurate: float) -> tuple[Array, NDArray[np.int64]]:
    """(n_orders,) the least that the round costs, about, and by which mechanism."""
    fits = (tried.accuracy >= accurate) & (tried.rate * numbers.n_queries >= numbers.n_answers)
    if not fits.any():
        raise PlanError(
            f"No threshold and noise let {numbers.n_answers:,} of {numbers.n_queries:,} questions of round {k + 1} be "
            f"answered with {accurate:.0%} of the answers naming the plurality. Ask more questions, want fewer "
            "answers, or lower min_accuracy."
        )
    costs, winner = np.empty(ORDERS.size), np.empty(ORDERS.size, dtype=np.int64)
    for i, order in enumerate(ORDERS):
        check = about_rdp(tried.checks * math.sqrt(2), float(order))[tried.check]
        vote = about_rdp(tried.sigmas, float(order))[tried.sigma]
        cost = np.where(fits, numbers.n_queries * check + numbers.n_answers * vote, np.inf)
        winner[i] = int(np.argmin(cost))
        costs[i] = cost[winner[i]]
    return costs, winner
