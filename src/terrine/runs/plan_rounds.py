"""Several rounds for one epsilon: which noise, how many questions. From public inputs only.

A student that learned from the first round is asked along in the later ones. How much it will know then nobody can say
beforehand, so that it is assumed (`STUDENT_KNOWS`); the guarantee does not depend on it.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from terrine import _validate
from terrine.accounting.costs import unit_costs
from terrine.accounting.curves import ORDERS, delta_cost, guarantee
from terrine.accounting.near import about_rdp
from terrine.accounting.planning import LOWER, Sample, rule_of_thumb
from terrine.budgets import FilterBudget
from terrine.errors import InputError, OrderGridWarning, PlanError
from terrine.mechanisms import ConfidentGNMax, InteractiveGNMax, Mechanism
from terrine.published import round_in_words
from terrine.runs.interactive import plan_filter
from terrine.votes import Votes

Array = NDArray[np.float64]
STUDENT_KNOWS = 0.7  # share of the later rounds' questions on which the student is sure of what most teachers choose
CONFIDENCE = 0.9  # above which a student keeps its own label
_SPREADS = (1.8, 1.4, 1.15, 1.0)


@dataclass(frozen=True, kw_only=True)
class RoundWish:
    """A round that is to be planned.

    Attributes:
        kind: "confident", or "interactive" from the second round on.
        share: of the budget; None: an equal part of what the others leave.
        max_queries: at most this number of questions; None: as many as there are public rows.
    """

    kind: Literal["confident", "interactive"]
    share: float | None = None
    max_queries: int | None = None
    student_confidence: float = CONFIDENCE


@dataclass(frozen=True, kw_only=True)
class PlannedRound:
    """A round, fixed before the first question.

    Attributes:
        n_queries, n_answers: at most.
    """

    mechanism: Mechanism
    n_queries: int
    n_answers: int

    @property
    def numbers(self) -> tuple[Mechanism, int, int]:
        """As `plan_filter` takes them."""
        return self.mechanism, self.n_queries, self.n_answers

    @property
    def in_words(self) -> str:
        return round_in_words(*self.numbers)


def wishes(n_rounds: int) -> tuple[RoundWish, ...]:
    """A confident round, then interactive ones, with equal shares."""
    n_rounds = _validate.integer("rounds", n_rounds, at_least=1)
    return (RoundWish(kind="confident"), *(RoundWish(kind="interactive"),) * (n_rounds - 1))


def plan_rounds(
    rounds: Sequence[RoundWish],
    *,
    standin: Votes,
    epsilon: float,
    delta: float,
    n_public: int,
    min_accuracy: float = 0.95,
) -> tuple[PlannedRound, ...]:
    """The rounds with the most right answers that one filter of at most (epsilon, delta) pays for.

    In an interactive round an answer counts only where the student does not know it.

    Args:
        rounds: in the order in which they are asked.
        standin: PUBLIC votes to plan by.
        n_public: public rows; no round asks about more.
        min_accuracy: at least this share of each round's answers must name the plurality, by the stand-in votes.
    """
    epsilon = _validate.positive("epsilon", epsilon)
    delta = _validate.between("delta", delta, 0.0, 1.0)
    n_public = _validate.integer("n_public", n_public, at_least=1)
    min_accuracy = _validate.between("min_accuracy", min_accuracy, 0.0, 1.0)
    if not rounds or rounds[0].kind == "interactive":
        raise InputError("The first round cannot be interactive, since there is no student yet. Begin with confident.")
    parts = _shares([one.share for one in rounds])
    most = [min(n_public, one.max_queries or n_public) for one in rounds]
    sample, m = Sample(standin, "worst-case"), standin.n_teachers
    searches = [_Search(sample, one) for one in rounds]
    thumb = rule_of_thumb(n_teachers=m)
    best = [np.array([thumb.threshold, thumb.sigma_check, thumb.sigma_vote]) for _ in rounds]
    grids = [_first_grid(m) for _ in rounds]
    for spread in _SPREADS:
        tried = [search.on(grid, start) for search, grid, start in zip(searches, grids, best, strict=True)]
        found = [
            _best_by_order(one, epsilon=epsilon, delta=delta, share=share, most=at_most, accurate=min_accuracy)
            for one, share, at_most in zip(tried, parts, most, strict=True)
        ]
        order = int(np.argmax(np.sum([right for right, _, _ in found], axis=0)))
        best = [one.at(int(winner[order])) for one, (_, winner, _) in zip(tried, found, strict=True)]
        queries = [float(n[order]) for _, _, n in found]
        grids = [_next_grid(one, m, spread) for one in best]
    if min(queries) >= 1:
        mechanisms = [search.mechanism(one) for search, one in zip(searches, best, strict=True)]
        rates = [search.rate(one) for search, one in zip(searches, mechanisms, strict=True)]
        planned = _to_target(mechanisms, rates, queries, most, epsilon=epsilon, delta=delta)
        if planned:
            return planned
    raise PlanError(
        f"epsilon={epsilon:g} at delta={delta:g} with {m} teachers does not pay for {len(rounds)} rounds in which "
        f"{min_accuracy:.0%} of the answers name the plurality. Take more teachers, a larger epsilon, "
        f"fewer rounds or {LOWER}."
    )


def filter_of(rounds: Sequence[PlannedRound], *, delta: float) -> FilterBudget:
    """The smallest filter that pays for these rounds."""
    return plan_filter([one.numbers for one in rounds], delta=delta)


def _shares(given: Sequence[float | None]) -> list[float]:
    named = sum(share for share in given if share is not None)
    open_ = sum(share is None for share in given)
    if any(share is not None and not 0 < share <= 1 for share in given) or named > 1 + 1e-9 or (open_ and named >= 1):
        raise InputError("The rounds' shares of the budget must be above 0 and add up to at most 1.")
    return [(1 - named) / open_ if share is None else share for share in given]


def _first_grid(m: int) -> tuple[Array, Array, Array]:
    return np.linspace(0.0, 1.3, 27) * m, np.geomspace(0.03, 2.0, 16) * m, np.geomspace(0.01, 0.7, 24) * m


def _next_grid(best: Array, m: int, spread: float) -> tuple[Array, Array, Array]:
    thresholds = best[0] + m * 0.1 * (spread - 1) * np.linspace(-1, 1, 9)
    checks, votes = (b * np.geomspace(1 / spread, spread, 11) for b in best[1:])
    return thresholds, checks, votes


class _Search:
    """How often mechanisms answer in a round, and how well, by stand-in votes and what the student is assumed to know.

    Where the student knows the plurality, it puts all probability on it, and the check sees the runner-up's count;
    elsewhere it takes all classes for as likely, and the check sees the top count less an even share of the teachers.
    """

    def __init__(self, sample: Sample, wish: RoundWish) -> None:
        m, counts = sample.votes.n_teachers, sample.counts.astype(np.float64)
        self.sample, self.wish = sample, wish
        if wish.kind == "confident":
            self.groups = [(1.0, 1.0, counts[:, 0])]  # share of the questions, what an answer counts, the check's score
        else:
            unknown = counts[:, 0] - m / counts.shape[1]
            self.groups = [(STUDENT_KNOWS, 0.0, counts[:, 1]), (1 - STUDENT_KNOWS, 1.0, unknown)]

    def on(self, grid: tuple[Array, Array, Array], start: Array) -> _Tried:
        spread = [a.ravel() for a in np.meshgrid(*grid, indexing="ij")]
        return _Tried(self, *(np.append(a, b) for a, b in zip(spread, start, strict=True)))

    def mechanism(self, best: Array) -> ConfidentGNMax:
        threshold, sigma_check, sigma_vote = (float(f"{value:.4g}") for value in best)
        numbers = {"threshold": threshold, "sigma_check": sigma_check, "sigma_vote": sigma_vote}
        if self.wish.kind == "confident":
            return ConfidentGNMax(**numbers)
        return InteractiveGNMax(**numbers, student_confidence=self.wish.student_confidence)

    def rate(self, mechanism: ConfidentGNMax) -> float:
        """Share of the questions that are answered."""
        scores = ((w, (score - mechanism.threshold) / mechanism.sigma_check) for w, _, score in self.groups)
        return float(sum(weight * ndtr(score).mean() for weight, score in scores))


class _Tried:
    """Many mechanisms side by side in one round."""

    def __init__(self, search: _Search, threshold: Array, sigma_check: Array, sigma_vote: Array) -> None:
        self.threshold, self.sigma_check, self.sigma_vote = threshold, sigma_check, sigma_vote
        pairs, pair = np.unique(np.stack((threshold, sigma_check)), axis=1, return_inverse=True)
        self.checks, self.check = np.unique(sigma_check, return_inverse=True)
        self.sigmas, self.sigma = np.unique(sigma_vote, return_inverse=True)
        right = np.stack([search.sample.pr_plurality(s) for s in self.sigmas])  # (sigmas, queries)
        self.rate: Array = np.zeros(threshold.shape)
        named, self.useful = np.zeros(threshold.shape), np.zeros(threshold.shape)
        for weight, counts, scores in search.groups:
            answered = ndtr((scores - pairs[0][:, None]) / pairs[1][:, None])  # (pairs, queries)
            self.rate += weight * answered.mean(axis=1)[pair]
            good = weight * (answered @ right.T / right.shape[1])[pair, self.sigma]
            named += good
            self.useful += counts * good
        self.accuracy: Array = named / np.maximum(self.rate, 1e-300)

    def at(self, k: int) -> Array:
        return np.array([self.threshold[k], self.sigma_check[k], self.sigma_vote[k]])

    def unit(self, order: float) -> Array:
        """About what a question costs at an order, by worst case."""
        check: Array = about_rdp(self.checks * math.sqrt(2), order)[self.check]
        result: Array = check + self.rate * about_rdp(self.sigmas, order)[self.sigma]
        return result


def _best_by_order(
    tried: _Tried, *, epsilon: float, delta: float, share: float, most: int, accurate: float
) -> tuple[Array, NDArray[np.int64], Array]:
    """(n_orders,) the most right answers for a share of a filter; by which mechanism; to how many questions."""
    right, winner, queries = np.zeros(ORDERS.size), np.zeros(ORDERS.size, dtype=np.int64), np.zeros(ORDERS.size)
    fits = tried.accuracy >= accurate
    for i, order in enumerate(ORDERS):
        left = share * (epsilon - max(delta_cost(order=float(order), delta=delta), 0.0))
        if left <= 0 or not fits.any():
            continue
        n = np.minimum(left / tried.unit(float(order)), most)
        gain = np.where(fits, np.floor(n) * tried.useful, -1.0)
        winner[i] = int(np.argmax(gain))
        right[i], queries[i] = gain[winner[i]], n[winner[i]]
    return right, winner, queries


def _to_target(
    mechanisms: Sequence[ConfidentGNMax],
    rates: Sequence[float],
    queries: Sequence[float],
    most: Sequence[int],
    *,
    epsilon: float,
    delta: float,
) -> tuple[PlannedRound, ...]:
    """As many questions, in these proportions, as a filter of the true costs pays for; none where it pays for none."""
    units = [unit_costs(one) for one in mechanisms]

    def at(factor: float) -> tuple[PlannedRound, ...]:
        asked = [min(int(n * factor), limit) for n, limit in zip(queries, most, strict=True)]
        return tuple(
            PlannedRound(mechanism=one, n_queries=n, n_answers=min(n, max(math.ceil(n * rate), 1)))
            for one, n, rate in zip(mechanisms, asked, rates, strict=True)
        )

    def priced(rounds: Sequence[PlannedRound]) -> float:
        curves = [c * one.n_queries + v * one.n_answers for one, (c, v) in zip(rounds, units, strict=True)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", OrderGridWarning)
            return guarantee(sum(curves[1:], curves[0]), delta=delta).epsilon

    low, high = 0.0, 2.0
    for _ in range(40):
        middle = (low + high) / 2
        rounds = at(middle)
        if min(one.n_queries for one in rounds) < 1 or priced(rounds) <= epsilon:
            low = middle
        else:
            high = middle
    while low > 0:
        rounds = at(low)
        if min(one.n_queries for one in rounds) < 1:
            return ()
        if filter_of(rounds, delta=delta).epsilon <= epsilon:
            return rounds
        low -= 1 / max(queries)
    return ()
