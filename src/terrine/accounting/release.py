"""What may be claimed about a run, and shown.

`publishable_guarantee` is what may be shown: the worst case, or the tested route if it was chosen beforehand.
`tested_guarantee` fixes that route; its `release` lets labels out only if the test passes. `sanitize` draws a number
for these votes beside labels that leave anyway. Proofs are in `docs/math.md`, "Publishing the cost".
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from terrine import _validate
from terrine.accounting.balls import Array
from terrine.accounting.costs import worst_case_cost
from terrine.accounting.curves import ONE_TEACHER, ORDERS, Conversion, Guarantee, RdpCurve, epsilons_at, guarantee
from terrine.accounting.sanitizer import FLOOR, Accountant, Method, Sanitizer, delta_shares
from terrine.accounting.sensitivity import log_parts
from terrine.errors import InputError
from terrine.mechanisms import ABSTAIN, Answers, ConfidentGNMax, GNMax, InteractiveGNMax, Mechanism, Outcome, answer
from terrine.noise import Noise, as_noise
from terrine.sensitive import Sensitive
from terrine.votes import Votes, tick


@dataclass(frozen=True, kw_only=True)
class Sanitized(Guarantee):
    """What `sanitize` gives: a guarantee for labels and number together, and the number.

    Attributes:
        epsilon: of everything that left: the worst case of the labels plus the release. A DP guarantee.
        on_these_votes: epsilon of this very run, checks by worst case, the release included. A statement after the
            fact: it holds except with chance ``delta_release``, and is not a DP guarantee of the mechanism.
    """

    on_these_votes: float
    delta_release: float


def sanitize(
    mechanism: Mechanism,
    votes: Votes,
    *,
    delta: float,
    answers: Answers | None = None,
    epsilon: float | None = None,
    order: float | None = None,
    beta: float | None = None,
    sigma_release: float | None = None,
    sigma_scale: float | None = None,
    delta_release: float | None = None,
    method: Method = "majorant",
    accountant: Accountant = "sanitizable",
    rng: Noise | np.random.Generator | None = None,
) -> Sanitized:
    """Draw a publishable upper bound on what answering these queries cost on these votes.

    It spends `Sanitizer.rdp` each time it is called. The labels have left anyway, so that the guarantee of labels and
    number together is the worst case plus that: for a smaller one, choose `tested_guarantee` beforehand.

    Args:
        answers: what was released; answers count where the teachers gave them (every query, if left out).
        epsilon: what one hopes for, from public inputs: rules of thumb then choose what is not given.
        order, beta, sigma_release, sigma_scale: as in `Sanitizer`.
        delta_release: chance that the number is below the truth; a tenth of delta unless given.
    """
    mechanism = _check_mechanism(mechanism)
    if epsilon is None and None in (order, beta, sigma_release):
        raise InputError(
            "Expected epsilon (hoped for, from public inputs) or order, beta and sigma_release, got neither."
        )
    delta_answers, delta_release = delta_shares(delta, delta_release)
    sanitizer = Sanitizer.by_rule(
        epsilon=1.0 if epsilon is None else epsilon,
        delta=delta,
        delta_release=delta_release,
        order=order,
        beta=beta,
        sigma=sigma_release,
        sigma_scale=sigma_scale,
        method=method,
        accountant=accountant,
    )
    sigma_vote, rows = _answered(mechanism, votes, answers)
    bound = sanitizer.upper_bound(rows, sigma_vote=sigma_vote, rng=rng)
    n_answered = len(votes) if answers is None else answers.n_answered
    at = np.array([sanitizer.order])
    checks = _checks(mechanism, n_queries=len(votes), orders=at)
    on_these_votes = epsilons_at(at, checks + bound + sanitizer.rdp(at), delta=delta_answers, conversion="tight")
    labels = worst_case_cost(mechanism, n_queries=len(votes))
    total = guarantee(RdpCurve(labels.orders, labels.epsilons + sanitizer.rdp(labels.orders)), delta=delta)
    insecure = () if as_noise(rng).secure else ("INSECURE: seeded noise, not private",)
    return Sanitized(
        epsilon=total.epsilon,
        delta=delta,
        order=total.order,
        basis=f"worst case over all votes for {len(votes)} queries, plus the release of a number for these votes",
        relation=ONE_TEACHER,
        notes=(
            f"on_these_votes holds after the fact, for {n_answered} answers, except with chance {delta_release:g}.",
            *insecure,
        ),
        on_these_votes=float(on_these_votes[0]),
        delta_release=delta_release,
    )


@dataclass(frozen=True, kw_only=True)
class ReleaseOutcome:
    """What a tested release let out: the answers, or nothing. Either way the whole guarantee is spent."""

    passed: bool
    answers: Answers | None
    on_these_votes: float
    guarantee: ConditionalGuarantee


@dataclass(frozen=True, kw_only=True)
class ConditionalGuarantee(Guarantee):
    """The tested route, fixed: (epsilon, delta) holds for whatever `release` lets out.

    Attributes:
        target_rdp: the test: the number drawn for the answers must not be above this, in nats at ``order``.
        fixed_at: when it was fixed; votes must have been read later.
    """

    mechanism: GNMax | ConfidentGNMax
    n_teachers: int
    n_classes: int
    n_queries: int
    n_answers: int
    sanitizer: Sanitizer
    target_rdp: float
    fixed_at: int

    def release(self, votes: Votes, *, rng: Noise | np.random.Generator | None = None) -> ReleaseOutcome:
        """Answer, draw the number, and let the answers out only if the test passes. Every call spends the guarantee.

        [TERRINE, Thm. 13]
        """
        if not isinstance(votes, Votes):
            raise InputError(f"Expected votes to be a Votes object, got {type(votes).__name__}.")
        if votes.read_at < self.fixed_at:
            raise InputError(
                "Expected the target to be fixed before the votes were read, got votes read first: "
                "a target chosen after that could depend on them."
            )
        for name, expected, found in (
            ("queries", self.n_queries, len(votes)),
            ("teachers", self.n_teachers, votes.n_teachers),
            ("classes", self.n_classes, votes.n_classes),
        ):
            if expected != found:
                raise InputError(f"Expected {expected} {name}, as the target was fixed for, got {found}.")
        answers = _at_most(answer(self.mechanism, votes, rng=rng), self.n_answers)
        sigma_vote, rows = _answered(self.mechanism, votes, answers)
        bound = self.sanitizer.upper_bound(rows, sigma_vote=sigma_vote, rng=rng)
        passed = bound <= self.target_rdp
        return ReleaseOutcome(
            passed=passed,
            answers=answers if passed else None,
            on_these_votes=self.epsilon + (bound - self.target_rdp),
            guarantee=self,
        )

    def pass_rate(
        self, votes: Votes, *, trials: int = 100, seed: int = 0, progress: Callable[[float], object] | None = None
    ) -> Sensitive[float]:
        """Share of simulated releases of these votes that would pass. Secret; nothing is released or spent."""
        generator = np.random.default_rng(seed)
        passed = 0
        for trial in range(trials):
            passed += self.release(votes, rng=generator).passed
            if progress is not None:
                progress((trial + 1) / trials)
        return Sensitive(passed / trials)


def tested_guarantee(
    mechanism: Mechanism,
    *,
    target: float,
    delta: float,
    n_teachers: int,
    n_classes: int,
    n_queries: int,
    n_answers: int | None = None,
    delta_release: float | None = None,
    order: float | None = None,
    beta: float | None = None,
    sigma_release: float | None = None,
    sigma_scale: float | None = None,
    method: Method = "majorant",
    accountant: Accountant = "sanitizable",
) -> ConditionalGuarantee:
    """Fix the tested route, before any vote is read: labels leave only if a private test shows that they cost little.

    Checks are charged by worst case, answers by a high-probability bound on their sanitizable cost. Whatever leaves,
    (target, delta) holds.

    Args:
        mechanism: GNMax or ConfidentGNMax, for a set of queries fixed beforehand.
        target: the epsilon to claim; it must be below the worst case, which needs no test.
        delta: the delta to claim; ``delta_release`` (a tenth of it unless given) is the test's share.
        n_answers: queries that pass the check after so many answers are withheld.
        order, beta, sigma_release, sigma_scale, method, accountant: as in `Sanitizer`, else by its rules of thumb.

    [TERRINE, Thm. 13]
    """
    mechanism = _check_mechanism(mechanism)
    target = _validate.positive("target", target)
    delta_answers, delta_release = delta_shares(delta, delta_release)
    n_queries = _validate.integer("n_queries", n_queries, at_least=1)
    n_answers = n_queries if n_answers is None else n_answers
    worst = publishable_guarantee(mechanism, n_queries=n_queries, n_answers=n_answers, delta=delta).epsilon
    if target >= worst:
        raise InputError(f"Expected a target below the worst case, {worst:.4g}, which needs no test; got {target:g}.")
    sanitizer = Sanitizer.by_rule(
        epsilon=target,
        delta=delta,
        delta_release=delta_release,
        order=order,
        beta=beta,
        sigma=sigma_release,
        sigma_scale=sigma_scale,
        method=method,
        accountant=accountant,
    )
    # Refuses, before any vote is read, what no votes could pass
    unanimous = Votes([[n_teachers] + [0] * (n_classes - 1)], n_teachers=n_teachers)
    sigma_vote = mechanism.sigma if isinstance(mechanism, GNMax) else mechanism.sigma_vote
    log_parts(GNMax(sigma=sigma_vote), unanimous, sanitizer.order, accountant, of="costs")
    fixed = overhead(mechanism, sanitizer, n_queries=n_queries, delta=delta_answers)
    if target - fixed <= 2 * FLOOR:
        raise InputError(
            f"Expected a target above {fixed:.4g}, what delta, the checks and the test cost before any answer; "
            f"got {target:g}. Fewer queries, more noise in the check or a larger target would do."
        )
    return ConditionalGuarantee(
        epsilon=target,
        delta=delta,
        order=sanitizer.order,
        basis=(
            f"tested release: at most {n_queries} queries and {n_answers} answers, let out only if a private test, "
            "fixed beforehand, shows that they cost no more"
        ),
        relation=ONE_TEACHER,
        mechanism=mechanism,
        n_teachers=n_teachers,
        n_classes=n_classes,
        n_queries=n_queries,
        n_answers=n_answers,
        sanitizer=sanitizer,
        target_rdp=(target - fixed) * (1 - 1e-12),
        fixed_at=tick(),
    )


def overhead(mechanism: GNMax | ConfidentGNMax, sanitizer: Sanitizer, *, n_queries: int, delta: float) -> float:
    """Epsilon of a tested release before any answer: delta's share, the checks by worst case, drawing the number."""
    at = np.array([sanitizer.order])
    rdp = _checks(mechanism, n_queries=n_queries, orders=at) + sanitizer.rdp(at)
    order = sanitizer.order
    return float(rdp[0] + math.log1p(-1 / order) - (math.log(delta) + math.log(order)) / (order - 1))


def publishable_guarantee(
    mechanism: Mechanism,
    *,
    n_queries: int,
    n_answers: int | None = None,
    delta: float,
    tested: ConditionalGuarantee | None = None,
    orders: ArrayLike = ORDERS,
    bound: Literal["argmax", "gaussian"] = "argmax",
    conversion: Conversion = "tight",
    n_records: int | None = None,
) -> Guarantee:
    """What may be shown for a run, and in one sentence why.

    The worst case for numbers of queries and answers fixed beforehand; or, where the run's configuration chose it
    before votes were read, the target of the tested route.
    """
    if tested is not None:
        same = (tested.mechanism, tested.n_queries, tested.delta) == (mechanism, n_queries, delta)
        if not same or (n_answers is not None and n_answers != tested.n_answers):
            raise InputError("Expected the mechanism, queries, answers and delta of the tested route, got others.")
        return tested
    curve = worst_case_cost(mechanism, n_queries=n_queries, n_answered=n_answers, orders=orders, bound=bound)
    answers = "" if n_answers is None else f" and {n_answers} answers"
    what = f"{curve.basis}, for at most {n_queries} queries{answers} fixed beforehand: it does not depend on the votes"
    return guarantee(
        RdpCurve(curve.orders, curve.epsilons, what), delta=delta, conversion=conversion, n_records=n_records
    )


def _check_mechanism(mechanism: Mechanism) -> GNMax | ConfidentGNMax:
    if isinstance(mechanism, InteractiveGNMax) or not isinstance(mechanism, GNMax | ConfidentGNMax):
        raise InputError(
            f"Expected GNMax or ConfidentGNMax, got {type(mechanism).__name__}: the others are charged by worst case."
        )
    return mechanism


def _checks(mechanism: GNMax | ConfidentGNMax, *, n_queries: int, orders: Array) -> Array:
    """Rényi cost of the checks alone, by worst case."""
    if isinstance(mechanism, GNMax):
        return np.zeros(orders.size)
    return worst_case_cost(mechanism, n_queries=n_queries, n_answered=0, orders=orders).epsilons


def _answered(mechanism: GNMax | ConfidentGNMax, votes: Votes, answers: Answers | None) -> tuple[float, Votes | None]:
    """sigma of a vote, and the votes behind the answers that the teachers gave."""
    sigma = mechanism.sigma if isinstance(mechanism, GNMax) else mechanism.sigma_vote
    if answers is None:
        return sigma, votes
    if len(answers) != len(votes) or answers.mechanism != mechanism:
        raise InputError("Expected the answers of this mechanism to these queries, got others.")
    rows = votes.counts[answers.outcomes == Outcome.TEACHERS]
    return sigma, Votes(rows, n_teachers=votes.n_teachers) if len(rows) else None


def _at_most(answers: Answers, n_answers: int) -> Answers:
    """The first so many answers; later ones are withheld."""
    late = np.cumsum(answers.outcomes == Outcome.TEACHERS) > n_answers
    return Answers(
        labels=np.where(late, ABSTAIN, answers.labels),
        outcomes=np.where(late, Outcome.ABSTAINED, answers.outcomes).astype(np.int64),
        mechanism=answers.mechanism,
        secure=answers.secure,
    )
