"""A budget -> threshold, noise and number of queries, from public inputs only.

Starts from the paper's rules of thumb and searches around them for the mechanism with the most right
answers. Votes enter as public stand-ins (an assumption, or votes of teachers trained on public data):
parameters chosen by looking at private votes would leak.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr, ndtr

from terrine import _validate
from terrine.accounting.costs import budget_curve, cost, worst_case_cost
from terrine.accounting.curves import ORDERS, WIDE_ORDERS, Guarantee, RdpCurve, delta_cost, guarantee
from terrine.accounting.exact import Exact, rdp_check_exact
from terrine.accounting.near import about_rdp, epsilon_near, epsilon_over_all, noise_about
from terrine.accounting.profile_costs import LEAST_STEPS, about_epsilon, count_guarantee
from terrine.accounting.stretch import stretched
from terrine.errors import InputError, OrderGridWarning, PlanError
from terrine.mechanisms import NOISE_BOUNDS, ConfidentGNMax, GNMax, LNMax
from terrine.votes import Votes

Array = NDArray[np.float64]

_SAMPLE = 400  # stand-in queries looked at: enough to plan by
_EXACT_SAMPLE = 100  # with the exact accountant
_EXACT_ORDERS: Array = np.geomspace(2.0, 200.0, 24)

LOWER = "a lower min_accuracy (under [privacy] of a run, --min-accuracy of terrine plan; PATEClassifier has none)"
_ASSUMED = "Do not raise consensus unless you have a reason to: it is an assumption, and teachers do not follow it."
PlanAccountant = Literal["worst-case", "exact"]
_CostOf = Callable[..., float]  # of a mechanism, n_queries, n_answered and delta


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A proposal, what it costs, and what it is expected to give.

    Attributes:
        mechanism, n_queries, n_answers: what to run; fix them before the first query.
        guarantee: what a budget with these numbers promises, the worst case over all votes.
        exact_epsilon: with accountant="exact", what the run would cost on votes like the stand-ins; no guarantee.
        accuracy: expected share of the answers that name the teachers' plurality.
        right_answers: how many that is expected to be.
        check_share: share of the worst-case Rényi budget that the checks take.
    """

    mechanism: ConfidentGNMax
    n_queries: int
    n_answers: int
    guarantee: Guarantee
    exact_epsilon: float | None
    accuracy: float
    right_answers: float
    check_share: float

    @property
    def epsilon(self) -> float:
        """What was planned for: the exact cost where there is one, else the guarantee."""
        return self.guarantee.epsilon if self.exact_epsilon is None else self.exact_epsilon


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
    accountant: PlanAccountant = "worst-case",
) -> Plan:
    """What a given mechanism would give within the budget: as many queries as fit."""
    sample = Sample(standin, accountant)
    candidates = _Candidates(sample, mechanism.threshold, mechanism.sigma_check, mechanism.sigma_vote)
    about = int(candidates.n_queries(epsilon=epsilon, delta=delta, max_queries=None).item())
    most = min(2 * about + 16, max_queries or 2 * about + 16)

    def at(cost_of: _CostOf) -> Plan:
        return sample.priced(sample.draft(mechanism, about, most, epsilon=epsilon, delta=delta, cost_of=cost_of), delta)

    found = at(epsilon_near)
    return found if found.epsilon <= epsilon or not found.n_queries else at(epsilon_over_all)


def plan(
    *,
    standin: Votes,
    epsilon: float,
    delta: float,
    max_queries: int | None = None,
    min_accuracy: float = 0.95,
    accountant: PlanAccountant = "worst-case",
) -> Plan:
    """The Confident-GNMax with the most right answers within (epsilon, delta).

    Args:
        standin: PUBLIC votes to plan by: `synthetic_votes` of an assumed consensus, or votes of teachers that were
            trained on public data.
        epsilon, delta: the budget; the proposal meets it to 1% where max_queries leaves room.
        max_queries: how many public inputs there are to ask about.
        min_accuracy: at least this share of the answers must name the plurality, by the stand-in votes.
        accountant: what must meet the budget: "worst-case", what such a budget promises, or "exact", the per-instance
            cost on votes like the stand-ins (secret when the votes are private, and no guarantee).
    """
    epsilon = _validate.positive("epsilon", epsilon)
    delta = _validate.between("delta", delta, 0.0, 1.0)
    if max_queries is not None:
        max_queries = _validate.integer("max_queries", max_queries, at_least=1)
    min_accuracy = _validate.between("min_accuracy", min_accuracy, 0.0, 1.0)
    _validate.choice("accountant", accountant, ("worst-case", "exact"))
    sample = Sample(standin, accountant)

    def at(aim: float, cost_of: _CostOf = epsilon_near) -> _Draft:
        limits: Any = {"max_queries": max_queries, "min_accuracy": min_accuracy}
        return _plan(sample, epsilon=aim, delta=delta, **limits, cost_of=cost_of)

    if accountant == "exact":
        return sample.priced(at(epsilon), delta)

    def promise(found: _Draft) -> Guarantee:
        return count_guarantee(found.mechanism, n_queries=found.n_queries, n_answers=found.n_answers, delta=delta)

    def guess(found: _Draft) -> float:
        return about_epsilon(found.mechanism, n_queries=found.n_queries, n_answers=found.n_answers, delta=delta)

    found = stretched(at, guess, lambda found: promise(found).epsilon, epsilon=epsilon)
    if promise(found).epsilon > epsilon:  # over all orders: rounding alone can do that
        found = at(epsilon, epsilon_over_all)
    return replace(sample.priced(found, delta), guarantee=promise(found))


def _plan(
    sample: Sample,
    *,
    epsilon: float,
    delta: float,
    max_queries: int | None,
    min_accuracy: float,
    cost_of: _CostOf = epsilon_near,
) -> _Draft:
    """`plan` by Rényi bounds, which a search can evaluate by the thousand."""
    m, accountant = sample.votes.n_teachers, sample.accountant
    start = rule_of_thumb(n_teachers=m)
    best = np.array([start.threshold, start.sigma_check, start.sigma_vote])
    thresholds = np.linspace(0.3, 1.3, 21) * m
    exact = accountant == "exact"  # a new sigma_vote costs a tenth of a second then
    checks, votes = np.geomspace(0.03, 2.0, 16) * m, np.geomspace(0.01, 0.7, 12 if exact else 24) * m
    for spread in (1.8, 1.2, 1.0) if exact else (1.8, 1.4, 1.15, 1.0):
        grid = [a.ravel() for a in np.meshgrid(thresholds, checks, votes, indexing="ij")]
        candidates = _Candidates(sample, *(np.append(a, b) for a, b in zip(grid, best, strict=True)))
        queries = candidates.n_queries(epsilon=epsilon, delta=delta, max_queries=max_queries)
        right = np.floor(queries) * candidates.answer_rate * candidates.accuracy
        winner = int(np.argmax(np.where(candidates.accuracy >= min_accuracy, right, -1.0)))
        best = np.array([candidates.threshold[winner], candidates.sigma_check[winner], candidates.sigma_vote[winner]])
        thresholds = best[0] + m * 0.1 * (spread - 1) * np.linspace(-1, 1, 9)
        checks, votes = (b * np.geomspace(1 / spread, spread, 7 if exact else 11) for b in best[1:])
    if queries[winner] >= 1 and candidates.accuracy[winner] >= min_accuracy:
        n_queries = int(queries[winner])
        draft = partial(sample.draft, epsilon=epsilon, delta=delta, cost_of=cost_of)
        found = _to_target(best, draft, n_queries, epsilon=epsilon, capped=max_queries, exact=exact)
        if found.n_queries:
            return found
    raise PlanError(
        f"epsilon={epsilon:g} at delta={delta:g} with {m} teachers pays for no answers of which {min_accuracy:.0%} "
        f"name the plurality. Take more teachers, a larger epsilon or {LOWER}. {_ASSUMED}"
    )


def expected_answers(mechanism: ConfidentGNMax | GNMax | LNMax, *, standin: Votes) -> tuple[float, float]:
    """On public stand-in votes: the share of questions that are answered, and the share of answers that name the
    plurality."""
    sample = Sample(standin, "worst-case")
    match mechanism:
        case ConfidentGNMax():
            return sample._expected(mechanism)
        case GNMax(sigma=sigma):
            return 1.0, float(sample.pr_plurality(sigma).mean())
        case LNMax(scale=scale):
            rng = np.random.default_rng(0)  # of an estimate on public votes: it protects nothing
            counts = np.repeat(sample.counts, 25, axis=0)
            noisy = counts + rng.laplace(scale=scale, size=counts.shape)
            return 1.0, float((noisy.argmax(axis=1) == 0).mean())


def least_noise(*, n_queries: int, epsilon: float, delta: float) -> GNMax:
    """The GNMax with about the least noise, of four digits, whose n_queries answers cost at most (epsilon, delta).

    For few questions that are all to be answered. By worst case, so that it takes no assumption about votes.
    """
    n_queries = _validate.integer("n_queries", n_queries, at_least=1)
    epsilon = _validate.positive("epsilon", epsilon)
    delta = _validate.between("delta", delta, 0.0, 1.0)

    def spent(found: GNMax) -> float:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", OrderGridWarning)
            return count_guarantee(found, n_queries=n_queries, delta=delta).epsilon

    def at(aim: float, cost_of: _CostOf = epsilon_near) -> GNMax:
        return _least_noise(n_queries=n_queries, epsilon=aim, delta=delta, cost_of=cost_of)

    def guess(found: GNMax) -> float:
        return about_epsilon(found, n_queries=n_queries, n_answers=n_queries, delta=delta)

    found = at(epsilon) if n_queries < LEAST_STEPS else stretched(at, guess, spent, epsilon=epsilon)
    by_renyi = epsilon_over_all(found, n_queries=n_queries, n_answered=n_queries, delta=delta)
    if by_renyi <= epsilon or spent(found) <= epsilon:
        return found
    return at(epsilon, epsilon_over_all)  # over all orders: rounding alone can do that


def _least_noise(*, n_queries: int, epsilon: float, delta: float, cost_of: _CostOf = epsilon_near) -> GNMax:
    """`least_noise` by Rényi bounds."""

    def epsilon_of(sigma: float) -> float:
        return cost_of(GNMax(sigma=sigma), n_queries=n_queries, n_answered=n_queries, delta=delta)

    guess, most = noise_about(n_queries=n_queries, epsilon=epsilon, delta=delta), NOISE_BOUNDS[1]
    if guess > 0.8 * most and epsilon_of(most) > epsilon:
        raise PlanError(
            f"No noise up to {most:g} votes meets epsilon={epsilon:g} at delta={delta:g} for {n_queries} answers. Take "
            "fewer answers, or a larger epsilon or delta."
        )
    return GNMax(sigma=_least_of_four_digits(epsilon_of, epsilon=epsilon, guess=guess))


def _least_of_four_digits(epsilon_of: Callable[[float], float], *, epsilon: float, guess: float) -> float:
    """The least noise of four digits that costs at most epsilon: few evaluations, as epsilon goes as 1/sigma nearly."""
    least, most = NOISE_BOUNDS

    def number(place: int) -> float:
        """Numbers of four digits in their order: 1.000 has place 0, 1.001 place 1, 10.00 place 9000."""
        decade, digits = divmod(place, 9000)
        return min(max(float(f"{1000 + digits}e{decade - 3}"), least), most)

    def place_of(sigma: float) -> int:
        sigma = min(max(sigma, least), most)
        decade = math.floor(math.log10(sigma))
        return 9000 * decade + math.ceil(sigma / 10.0 ** (decade - 3) - 1e-6) - 1000

    too_little, enough, place, tries = place_of(least), place_of(most), place_of(guess), 0
    while enough - too_little > 1:
        found, tries = epsilon_of(number(place)), tries + 1
        too_little, enough = (too_little, place) if found <= epsilon else (place, enough)
        towards = place_of(number(place) * found / epsilon) if tries % 2 or tries < 5 else (too_little + enough) // 2
        place = min(max(towards, too_little + 1), enough - 1)
    return number(enough)


def most_questions(
    *, standin: Votes, epsilon: float, delta: float, max_queries: int, min_accuracy: float = 0.85
) -> tuple[GNMax, int]:
    """The most questions that GNMax can answer within (epsilon, delta), by worst case, and the noise for that.

    More questions take more noise: their number is the largest for which at least ``min_accuracy`` of the answers name
    the plurality on public stand-in votes. Students bear wrong labels better than few: on the paper's votes on Adult a
    student is equally good from 0.80 to 0.90, and worse beyond on both sides (epsilon 2).
    """
    epsilon = _validate.positive("epsilon", epsilon)
    delta = _validate.between("delta", delta, 0.0, 1.0)
    max_queries = _validate.integer("max_queries", max_queries, at_least=1)
    min_accuracy = _validate.between("min_accuracy", min_accuracy, 0.0, 1.0)
    sample = Sample(standin, "worst-case")
    low, high = NOISE_BOUNDS
    while high > low * (1 + 5e-5):  # four digits
        middle = math.sqrt(low * high)
        right = float(sample.pr_plurality(middle).mean()) >= min_accuracy
        low, high = (middle, high) if right else (low, middle)
    noise = GNMax(sigma=float(f"{low:.4g}"))

    def at(aim: float) -> int:
        """By Rényi bounds."""

        def fits(n: int) -> bool:
            return epsilon_over_all(noise, n_queries=n, n_answered=n, delta=delta) <= aim

        if fits(max_queries):
            return max_queries
        some, too_many = 0, max_queries
        while too_many - some > 1:
            middle = (some + too_many) // 2
            some, too_many = (middle, too_many) if fits(middle) else (some, middle)
        return some

    def spent(n: int) -> float:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", OrderGridWarning)
            return count_guarantee(noise, n_queries=n, delta=delta).epsilon if n else 0.0

    def guess(n: int) -> float:
        return about_epsilon(noise, n_queries=max(n, 1), n_answers=n, delta=delta)

    some = stretched(at, guess, spent, epsilon=epsilon)
    if some == max_queries:
        return least_noise(n_queries=max_queries, epsilon=epsilon, delta=delta), max_queries
    if some:
        return noise, some
    raise PlanError(
        f"epsilon={epsilon:g} at delta={delta:g} with {standin.n_teachers} teachers pays for no answer that names the "
        f"plurality {min_accuracy:.0%} of the time. Take more teachers, a larger epsilon or {LOWER}. {_ASSUMED}"
    )


def _to_target(
    best: Array, draft: Callable[..., _Draft], n_queries: int, *, epsilon: float, capped: int | None, exact: bool
) -> _Draft:
    """Round to readable numbers, then put as many queries as fit."""

    def at(factor: float, most: int) -> _Draft:
        sigma_check, sigma_vote = (float(f"{b * factor:.4g}") for b in best[1:])
        mechanism = ConfidentGNMax(threshold=float(f"{best[0]:.4g}"), sigma_check=sigma_check, sigma_vote=sigma_vote)
        return draft(mechanism, min(n_queries, most), most)

    most = 2 * n_queries + 16
    proposal = at(1.0, min(most, capped or most))
    n_queries = proposal.n_queries
    reached = proposal.epsilon / epsilon
    if reached > 0.993 or n_queries in (0, capped) or exact:
        return proposal
    # With few queries one more is a jump: then less noise fills the budget. (The exact cost may not follow the noise.)
    low, high = reached, 1.0
    for _ in range(6):
        middle = (low + high) / 2
        other = at(middle, n_queries)
        if other.n_queries == n_queries:
            proposal, high = other, middle
        else:
            low = middle
    return proposal


@dataclass(frozen=True, kw_only=True)
class _Draft:
    """A mechanism with as many queries as fit, and what that costs by the search: not yet what a budget promises."""

    mechanism: ConfidentGNMax
    n_queries: int
    n_answers: int
    epsilon: float
    exact: RdpCurve | None  # what a query costs on the stand-ins, with accountant="exact"


class Sample:
    """A sample of stand-in votes, and what mechanisms cost and give on it."""

    def __init__(self, standin: Votes, accountant: PlanAccountant, *, size: int | None = None) -> None:
        if not isinstance(standin, Votes):
            raise InputError(f"standin must be public Votes, got {type(standin).__name__}.")
        size = size or (_SAMPLE if accountant == "worst-case" else _EXACT_SAMPLE)
        rows = standin.counts[:: max(1, len(standin) // size)][:size]
        self.accountant = accountant
        self.votes = Votes(rows, n_teachers=standin.n_teachers)
        self.counts = np.sort(rows, axis=1)[:, ::-1]  # winner first
        gaps = self.counts[:, :1] - self.counts[:, 1:]
        self._gaps, which = np.unique(gaps, return_inverse=True)  # whole numbers: few different ones
        self._gap_of = which.reshape(gaps.shape)
        self._vote_costs: dict[float, Array] = {}

    def pr_plurality(self, sigma: float) -> Array:
        """Chance that GNMax(sigma) names the plurality, (n_queries,): a trapezoid over the winner's noise."""
        t = np.arange(-8.0, 8.1, 0.5)
        weight = np.exp(-t * t / 2) * 0.5 / math.sqrt(2 * math.pi)
        gaps = self._gaps / sigma
        log_all = np.stack([log_ndtr(shift + gaps)[self._gap_of].sum(axis=1) for shift in t])
        result: Array = weight @ np.exp(log_all)
        return result

    def vote_costs(self, sigma: float) -> Array:
        """Exact cost of a vote on each stand-in query, (n_queries, n_orders)."""
        if sigma not in self._vote_costs:
            costs = np.empty((len(self.votes), _EXACT_ORDERS.size))
            exact = Exact(sigma=sigma, orders=_EXACT_ORDERS, ceiling=_EXACT_ORDERS / sigma**2)
            for queries, cost_of_one in exact.by_histogram(self.votes.counts, None):
                costs[queries] = cost_of_one
            self._vote_costs[sigma] = costs
        return self._vote_costs[sigma]

    def draft(
        self, mechanism: ConfidentGNMax, about: int, most: int, *, epsilon: float, delta: float, cost_of: _CostOf
    ) -> _Draft:
        """A mechanism with as many queries, up to ``most``, as the cost allows; ``about`` is a guess of them."""
        answer_rate, _ = self._expected(mechanism)
        per_query: RdpCurve | None = None
        if self.accountant == "exact":
            total = cost(mechanism, self.votes, orders=_EXACT_ORDERS).reveal()  # stand-ins are public
            per_query = RdpCurve(total.orders, total.epsilons / len(self.votes))

        def with_queries(n_queries: int) -> _Draft:
            n_answers = min(n_queries, math.ceil(n_queries * answer_rate))
            if per_query is None:
                spent = cost_of(mechanism, n_queries=n_queries, n_answered=n_answers, delta=delta)
            else:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", OrderGridWarning)
                    spent = guarantee(per_query * n_queries, delta=delta).epsilon
            return _Draft(mechanism=mechanism, n_queries=n_queries, n_answers=n_answers, epsilon=spent, exact=per_query)

        low, high, step, n_queries = 0, most + 1, 1, about
        while high - low > 1:  # about, then away from it, then between two
            n_queries = min(max(n_queries, low + 1), high - 1)
            fits = with_queries(n_queries).epsilon <= epsilon
            low, high = (n_queries, high) if fits else (low, n_queries)
            away = n_queries + (step if fits else -step)
            n_queries, step = (low + high) // 2 if low > 0 and high <= most else away, 2 * step
        return with_queries(low)

    def priced(self, draft: _Draft, delta: float) -> Plan:
        """The plan, with what a budget of its numbers promises by Rényi bounds over all orders."""
        n_queries, n_answers = draft.n_queries, draft.n_answers
        answer_rate, accuracy = self._expected(draft.mechanism)
        worst = budget_curve(draft.mechanism, n_queries=n_queries, n_answered=n_answers, delta=delta)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", OrderGridWarning)
            public = guarantee(worst, delta=delta)
        checks = worst_case_cost(draft.mechanism, n_queries=n_queries, n_answered=0, orders=worst.orders)
        at = worst.orders == public.order
        return Plan(
            mechanism=draft.mechanism,
            n_queries=n_queries,
            n_answers=n_answers,
            guarantee=public,
            exact_epsilon=None if draft.exact is None else draft.epsilon,
            accuracy=accuracy,
            right_answers=n_queries * answer_rate * accuracy,
            check_share=float(checks.epsilons[at][0] / worst.epsilons[at][0]) if n_queries else 0.0,
        )

    def _expected(self, mechanism: ConfidentGNMax) -> tuple[float, float]:
        """The share of the stand-ins that are answered, and of these that are right."""
        one = _Candidates(self, mechanism.threshold, mechanism.sigma_check, mechanism.sigma_vote)
        return float(one.answer_rate.item()), float(one.accuracy.item())


class _Candidates:
    """Many mechanisms side by side: how often they answer, and how well."""

    def __init__(
        self, sample: Sample, threshold: Array | float, sigma_check: Array | float, sigma_vote: Array | float
    ) -> None:
        self.threshold, self.sigma_check, self.sigma_vote = (
            np.atleast_1d(np.asarray(a, dtype=np.float64)) for a in (threshold, sigma_check, sigma_vote)
        )
        self.sample = sample
        self.pairs, self.pair = np.unique(np.stack((self.threshold, self.sigma_check)), axis=1, return_inverse=True)
        self.sigmas, self.sigma = np.unique(self.sigma_vote, return_inverse=True)
        scores = sample.counts[:, 0] - self.pairs[0][:, None]
        self.answered: Array = ndtr(scores / self.pairs[1][:, None])  # (pairs, queries)
        right = np.stack([sample.pr_plurality(s) for s in self.sigmas])  # (sigmas, queries)
        self.answer_rate: Array = self.answered.mean(axis=1)[self.pair]
        named = (self.answered @ right.T / right.shape[1])[self.pair, self.sigma]
        self.accuracy: Array = named / np.maximum(self.answer_rate, 1e-300)

    def n_queries(self, *, epsilon: float, delta: float, max_queries: int | None) -> Array:
        """How many queries fit: N·unit(order) + conversion(order) <= epsilon at some order."""
        # At the best order delta takes about half of epsilon.
        far = delta_cost(order=ORDERS[-1], delta=delta) > epsilon / 4
        orders = WIDE_ORDERS if far else ORDERS
        units = self._worst_units(orders) if self.sample.accountant == "worst-case" else self._exact_units()
        most = np.zeros_like(self.threshold)
        for order, unit in units:
            spent = max(delta_cost(order=float(order), delta=delta), 0.0)
            if spent < epsilon:
                most = np.maximum(most, (epsilon - spent) / unit)
        return most if max_queries is None else np.minimum(most, max_queries)

    def _worst_units(self, orders: Array) -> Iterator[tuple[float, Array]]:
        """Worst-case cost per query, order by order."""
        checks, check = np.unique(self.sigma_check, return_inverse=True)
        for order in orders:
            checked = about_rdp(checks * math.sqrt(2), order)[check]
            yield order, checked + self.answer_rate * about_rdp(self.sigmas, order)[self.sigma]

    def _exact_units(self) -> Iterator[tuple[float, Array]]:
        """Mean of check + Pr[answered]·vote on the stand-ins: below the joint cost, near enough to search by."""
        votes = np.stack([self.sample.vote_costs(s) for s in self.sigmas])  # (sigmas, queries, orders)
        tops, where = np.unique(self.sample.counts[:, 0], return_inverse=True)
        share = np.bincount(where) / where.size
        checks = np.stack(
            [
                share @ rdp_check_exact(tops, threshold=threshold, sigma=sigma, orders=_EXACT_ORDERS)
                for threshold, sigma in self.pairs.T
            ]
        )  # (pairs, orders)
        for i, order in enumerate(_EXACT_ORDERS):
            vote = self.answered @ votes[:, :, i].T / where.size
            yield order, checks[self.pair, i] + vote[self.pair, self.sigma]
