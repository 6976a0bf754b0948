"""What you may claim about a run, and show.

`publishable_guarantee` is what a budget promises: the worst case, or the tested route if it was chosen beforehand.
`tested_guarantee` says what that route would claim; a ledger with a `TestedBudget` fixes it, and a Labeller releases
under it. `sanitize` draws a number for these votes beside labels that leave anyway, and charges no ledger; a
`CountBudget` with a `CostRelease` pays for one. Proofs are in `docs/math.md`, "Publishing the cost".
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from terrine import _validate
from terrine.accounting.costs import budget_curve, unit_costs, worst_case_cost
from terrine.accounting.curves import Conversion, Guarantee, RdpCurve, delta_cost, guarantee
from terrine.accounting.profile_costs import CountAccountant, count_guarantee
from terrine.errors import InputError, OrderGridWarning
from terrine.mechanisms import ABSTAIN, Answers, ConfidentGNMax, GNMax, InteractiveGNMax, Mechanism, Outcome, answer
from terrine.noise import Noise, as_noise
from terrine.relations import Relation
from terrine.release.gap_bound import gap_costs, gaps_of
from terrine.release.sanitize import Chosen, Method, Sanitizer, delta_shares, rule_of_thumb_order
from terrine.release.smooth import Array
from terrine.release.tested_chances import MOST, ONE, chances, distance, whole_costs
from terrine.sensitive import Sensitive
from terrine.votes import Votes

INSECURE = "INSECURE: seeded noise, not private"


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
    rng: Noise | np.random.Generator | None = None,
) -> Sanitized:
    """Draw a publishable upper bound on what answering these queries cost on these votes.

    It spends `Sanitizer.rdp` each time it is called. The labels are published anyway, so the guarantee of labels and
    number together is the worst case plus that: for a smaller one, choose `tested_guarantee` beforehand.

    It charges no ledger: what it returns holds for labels and ONE number, if nothing else was drawn from these votes,
    and nobody but the caller counts the calls. In a run, `publish_cost = true` in [privacy] makes the ledger pay for
    one number before the first answer, and keep it.

    Of InteractiveGNMax it takes no student's probabilities: the checks are charged their worst case, which they do not
    change, and the answers are those of GNMax. The number then is of this round alone. [TERRINE, Thm. 18]

    Args:
        answers: what was released; answers count where the teachers gave them (every query, if left out).
        epsilon: what one hopes for, from public inputs: rules of thumb then choose what is not given.
        order, beta, sigma_release, sigma_scale: as in `Sanitizer`.
        delta_release: chance that the number is below the truth; default: a tenth of delta.
    """
    if not isinstance(mechanism, GNMax | ConfidentGNMax):
        raise InputError(
            f"mechanism must be GNMax, ConfidentGNMax or InteractiveGNMax here, got {type(mechanism).__name__}."
        )
    needed = (order, beta, sigma_release) if method == "majorant" else (order, beta, sigma_release, sigma_scale)
    if epsilon is None and None in needed:
        raise InputError(
            "Give epsilon (the one you hope for, from public inputs), or order, beta and "
            "sigma_release (and sigma_scale with gnss)."
        )
    delta_answers, delta_release = delta_shares(delta, delta_release)
    sanitizer = Sanitizer.by_rule(
        epsilon=1.0 if epsilon is None else epsilon,
        delta=delta,
        delta_release=delta_release,
        method=method,
        chosen=Chosen(order=order, beta=beta, sigma=sigma_release, sigma_scale=sigma_scale),
    )
    sigma_vote, rows = _answered(mechanism, votes, answers)
    bound = sanitizer.upper_bound(rows, sigma_vote=sigma_vote, rng=rng)
    n_answered = len(votes) if answers is None else answers.n_answered
    at = np.array([sanitizer.order])
    checks = _checks(mechanism, n_queries=len(votes), orders=at)
    on_these_votes = checks + RdpCurve(at, np.array([bound])) + RdpCurve(at, sanitizer.rdp(at))
    labels = worst_case_cost(mechanism, n_queries=len(votes))
    total = guarantee(labels + RdpCurve(labels.orders, sanitizer.rdp(labels.orders)), delta=delta)
    secure = as_noise(rng).secure and (answers is None or answers.secure)
    return Sanitized(
        epsilon=total.epsilon,
        delta=delta,
        order=total.order,
        basis=f"worst case over all votes for {len(votes)} queries, plus the release of a number for these votes",
        relation=Relation.ONE_TEACHER,
        notes=(
            f"on_these_votes holds after the fact, for {n_answered} answers, except with chance {delta_release:g}.",
            *((_ONE_ROUND,) if isinstance(mechanism, InteractiveGNMax) else ()),
            *(() if secure else (INSECURE,)),
        ),
        on_these_votes=on_these_votes.epsilon(delta=delta_answers),
        delta_release=delta_release,
    )


_ONE_ROUND = "on_these_votes is of this round alone, given the student that was asked along."


@dataclass(frozen=True, kw_only=True)
class ConditionalGuarantee(Guarantee):
    """What a tested release claims: (epsilon, delta) for one draw, of answers if it passes, of nothing if it does not.

    It is no release: that takes a ledger with a `TestedBudget`, which is charged first and pays for one draw.

    Attributes:
        budget: Rényi cost at ``order`` of test and answers together, in nats.
        cap: what the answers may cost on the votes at hand; within ``budget``, and secretly tested.
        delta_release: chance that answers are published although they cost more; part of ``delta``.
    """

    order: float
    mechanism: GNMax | ConfidentGNMax
    n_teachers: int
    n_classes: int
    n_queries: int
    n_answers: int
    budget: float
    cap: float
    delta_release: float

    def _draw(self, votes: Votes, noise: Noise) -> Sensitive[tuple[Answers, bool]]:
        """Answers, and whether they may be published: secret until a ledger that was charged keeps the bit.

        The test is one draw: the chance to pass is read off a public table at the number of teachers who would have to
        change their votes before the answers could cost more than the cap. Each call would spend the whole guarantee.

        [TERRINE, Thm. 13]
        """
        answers = self._answers(votes, noise)
        return Sensitive((answers, noise.below(ONE) < self._chance(votes, answers)))

    def pass_chance(self, votes: Votes, *, trials: int = 25, seed: int = 0) -> Sensitive[float]:
        """Chance that a release of these votes would pass, over simulated checks. Secret; nothing is spent."""
        noise = as_noise(np.random.default_rng(seed))
        trials = _validate.integer("trials", trials, at_least=1)
        trials = 1 if isinstance(self.mechanism, GNMax) else trials
        total = sum(self._chance(votes, self._answers(votes, noise)) for _ in range(trials))
        return Sensitive(total / ONE / trials)

    def _answers(self, votes: Votes, noise: Noise) -> Answers:
        if not isinstance(votes, Votes):
            raise InputError(f"votes must be a Votes object, got {type(votes).__name__}.")
        for name, expected, found in (
            ("queries", self.n_queries, max(len(votes), self.n_queries)),  # fewer cost no more: rows that repeat
            ("teachers", self.n_teachers, votes.n_teachers),
            ("classes", self.n_classes, votes.n_classes),
        ):
            if expected != found:
                raise InputError(f"The target was fixed for {expected} {name}, and the votes have {found}.")
        return _at_most(answer(self.mechanism, votes, rng=noise), self.n_answers)

    def _chance(self, votes: Votes, answers: Answers) -> int:
        """Of passing, in units of 1/ONE: a function of the votes behind the answers. Secret."""
        sigma, rows = _answered(self.mechanism, votes, answers)
        table = chances(
            budget=self.budget,
            cap=self.cap,
            order=self.order,
            first=self.delta_release,
            longest=self.n_teachers // 2 + 1,
        )
        if rows is None:
            return table[-1]
        costs = gap_costs(sigma=sigma, order=self.order, n_classes=self.n_classes, n_teachers=self.n_teachers)
        gaps, weights = gaps_of(rows)
        away = distance(gaps, weights, costs=whole_costs(costs), cap=self.cap)
        return table[-1 if away is None else min(away, len(table) - 1)]


def tested_guarantee(
    mechanism: Mechanism,
    *,
    target: float,
    delta: float,
    n_teachers: int,
    n_classes: int,
    n_queries: int,
    n_answers: int | None = None,
    order: float | None = None,
    share: float = 0.8,
    delta_release: float | None = None,
) -> ConditionalGuarantee:
    """What a tested release would claim: labels are published only if a private test says that they cost little.

    Checks are charged by worst case, answers by `gap_costs` on these votes. The target holds whatever the test says,
    for what is released under it: by itself the result is a plan.

    Args:
        mechanism: GNMax or ConfidentGNMax, for a set of queries fixed beforehand.
        target: the epsilon to claim; it must be below the worst case, which needs no test.
        delta: the delta to claim; ``delta_release`` (default: a tenth of it) is the test's share.
        n_answers: the most answers; queries that pass the check after that are withheld.
        order: Rényi order (default: by the paper's rule of thumb).
        share: of what is left for test and answers, how much the answers may cost.

    [TERRINE, Thm. 13]
    """
    mechanism = _check_mechanism(mechanism)
    target = _validate.positive("target", target)
    n_queries = _validate.integer("n_queries", n_queries, at_least=1)
    n_answers = n_queries if n_answers is None else n_answers
    check_target(mechanism, target=target, n_queries=n_queries, n_answers=n_answers, delta=delta)
    return conditional(
        mechanism,
        TestSettings(target=target, delta=delta, order=order, share=share, delta_release=delta_release),
        n_teachers=n_teachers,
        n_classes=n_classes,
        n_queries=n_queries,
        n_answers=n_answers,
    )


def check_target(mechanism: Mechanism, *, target: float, n_queries: int, n_answers: int | None, delta: float) -> None:
    """Refuse a target that the worst case meets without a test."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OrderGridWarning)  # of what is only compared with
        worst = publishable_guarantee(mechanism, n_queries=n_queries, n_answers=n_answers, delta=delta).epsilon
    if target >= worst:
        raise InputError(f"target must be below the worst case, {worst:.4g}, which needs no test; got {target:g}.")


@dataclass(frozen=True, kw_only=True)
class TestSettings:
    """The test's own numbers, as `tested_guarantee` takes them."""

    __test__ = False  # not a test class, whatever its name

    target: float
    delta: float
    order: float | None = None
    share: float = 0.8
    delta_release: float | None = None


def conditional(
    mechanism: Mechanism, test: TestSettings, *, n_teachers: int, n_classes: int, n_queries: int, n_answers: int
) -> ConditionalGuarantee:
    """What a test claims, every condition of the theorem checked; whether it pays is `check_target`'s to say.

    [TERRINE, Thm. 13]
    """
    mechanism, delta = _check_mechanism(mechanism), test.delta
    target = _validate.positive("target", test.target)
    delta_answers, delta_release = delta_shares(delta, test.delta_release)
    share = _validate.between("share", test.share, 0.0, 1.0)
    if n_answers > n_queries or (n_answers != n_queries and isinstance(mechanism, GNMax)):
        most = f"{n_queries}, as every query is answered" if isinstance(mechanism, GNMax) else f"at most {n_queries}"
        raise InputError(f"n_answers must be {most}, got {n_answers}.")
    order = rule_of_thumb_order(epsilon=target, delta=delta) if test.order is None else test.order
    fixed = overhead(mechanism, n_queries=n_queries, order=order, delta=delta_answers)
    if target <= fixed:
        raise InputError(
            f"target must be above {fixed:.4g}, which delta and the checks cost before any answer, "
            f"got {target:g}. Take fewer queries, more noise in the check, another order or a "
            "larger target."
        )
    sigma = mechanism.sigma if isinstance(mechanism, GNMax) else mechanism.sigma_vote
    costs = gap_costs(sigma=sigma, order=order, n_classes=n_classes, n_teachers=n_teachers)
    budget = (target - fixed) * (1 - 1e-12)
    if (n_queries if isinstance(mechanism, GNMax) else 1) * costs[-1] > share * budget:
        raise InputError(
            f"{n_teachers} teachers are too few for a data-dependent bound: at sigma={sigma:g}, "
            f"order={order:g} and {n_classes} classes even unanimous votes would not pass. Use more "
            "teachers, less noise or a larger target."
        )
    if not share * budget < MOST:
        raise InputError(f"target must be below {MOST:g} nats, got {target:g}.")
    chances(budget=budget, cap=share * budget, order=order, first=delta_release, longest=n_teachers // 2 + 1)
    return ConditionalGuarantee(
        epsilon=target,
        delta=delta,
        order=order,
        basis=(
            f"tested release: at most {n_queries} queries and {n_answers} answers, let out only if a private test, "
            "fixed beforehand, shows that they cost no more"
        ),
        relation=Relation.ONE_TEACHER,
        notes=("What a budget with these numbers promises: it holds for what is released under it, once.",),
        mechanism=mechanism,
        n_teachers=n_teachers,
        n_classes=n_classes,
        n_queries=n_queries,
        n_answers=n_answers,
        budget=budget,
        cap=share * budget,
        delta_release=delta_release,
    )


def overhead(mechanism: GNMax | ConfidentGNMax, *, n_queries: int, order: float, delta: float) -> float:
    """Epsilon of a tested release before test and answers: delta's share, and the checks by worst case."""
    checks = _checks(mechanism, n_queries=n_queries, orders=_validate.orders(_validate.number("order", order)))
    return float(checks.epsilons[0]) + delta_cost(order=order, delta=delta)


def publishable_guarantee(
    mechanism: Mechanism,
    *,
    n_queries: int,
    n_answers: int | None = None,
    delta: float,
    tested: ConditionalGuarantee | None = None,
    orders: ArrayLike | None = None,
    bound: Literal["argmax", "gaussian"] = "argmax",
    conversion: Conversion = "tight",
    n_records: int | None = None,
    accountant: CountAccountant = "profile",
) -> Guarantee:
    """What a budget with these numbers promises, and in one sentence why.

    The worst case for numbers of queries and answers fixed beforehand; or, where the run's configuration chose it
    before votes were read, the target of the tested route. It may be published of answers that a ledger with such a
    budget let out. Of other answers it says what would hold if: `analyze_votes` gives that as a `WhatIf`.

    Privacy profiles are for the tight bound and conversion; orders, the Gaussian bound or the paper's conversion are
    Rényi's.
    """
    if tested is not None:
        same = (tested.mechanism, tested.n_queries, tested.delta) == (mechanism, n_queries, delta)
        if not same or (n_answers is not None and n_answers != tested.n_answers):
            raise InputError(
                "The mechanism, queries, answers or delta are not the ones that the tested route was made for."
            )
        return tested
    numbers: Any = {"n_queries": n_queries, "n_answered": n_answers, "bound": bound}
    if orders is None and (bound, conversion, accountant) == ("argmax", "tight", "profile"):
        return count_guarantee(mechanism, n_queries=n_queries, n_answers=n_answers, delta=delta, n_records=n_records)
    if orders is None:
        curve = budget_curve(mechanism, **numbers, delta=delta, conversion=conversion)
    else:
        curve = worst_case_cost(mechanism, **numbers, orders=orders)
    answers = "" if n_answers is None else f" and {n_answers} answers"
    what = f"{curve.basis}, for at most {n_queries} queries{answers} fixed beforehand: it does not depend on the votes"
    return guarantee(curve.renamed(what), delta=delta, conversion=conversion, n_records=n_records)


def _check_mechanism(mechanism: Mechanism) -> GNMax | ConfidentGNMax:
    if isinstance(mechanism, InteractiveGNMax) or not isinstance(mechanism, GNMax | ConfidentGNMax):
        raise InputError(
            f"mechanism must be GNMax or ConfidentGNMax here, got {type(mechanism).__name__}, which "
            "is charged its worst case."
        )
    return mechanism


def _checks(mechanism: GNMax | ConfidentGNMax, *, n_queries: int, orders: Array) -> RdpCurve:
    """The checks alone, by worst case."""
    return unit_costs(mechanism, orders=orders)[0] * n_queries


def _answered(mechanism: GNMax | ConfidentGNMax, votes: Votes, answers: Answers | None) -> tuple[float, Votes | None]:
    """sigma of a vote, and the votes behind the answers that the teachers gave."""
    sigma = mechanism.sigma if isinstance(mechanism, GNMax) else mechanism.sigma_vote
    if answers is None:
        return sigma, votes
    if len(answers) != len(votes) or answers.mechanism != mechanism:
        raise InputError("These answers were given by a different mechanism, or to different queries.")
    rows = votes.counts[answers.outcomes == Outcome.TEACHERS]
    return sigma, Votes(rows, n_teachers=votes.n_teachers) if len(rows) else None


def _at_most(answers: Answers, n_answers: int) -> Answers:
    """The first ``n_answers`` answers; later ones are withheld."""
    late = np.cumsum(answers.outcomes == Outcome.TEACHERS) > n_answers
    return Answers(
        labels=np.where(late, ABSTAIN, answers.labels),
        outcomes=np.where(late, Outcome.ABSTAINED, answers.outcomes).astype(np.int64),
        mechanism=answers.mechanism,
        secure=answers.secure,
    )
