"""Which route pays, from public stand-ins: the proposal can be fixed as it is, and votes like the stand-ins pass it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from terrine import Plan, Votes, plan, synthetic_votes
from terrine.errors import InputError
from terrine.noise import SeededNoise
from terrine.release import plan_tested as routes
from terrine.release.plan_tested import TestedPlan, plan_tested
from terrine.release.tested import ConditionalGuarantee, overhead, publishable_guarantee, tested_guarantee

LIKE = {"n_classes": 10, "n_teachers": 5000, "consensus": 0.95}


@pytest.fixture(scope="module")
def standin() -> Votes:
    return synthetic_votes(n_queries=400, **LIKE)


@pytest.fixture(scope="module")
def proposal(standin: Votes) -> Plan:
    return plan(standin=standin, epsilon=1.0, delta=1e-6, max_queries=300)


@contextmanager
def searched_near(*orders: float) -> Iterator[None]:
    """The same search over fewer orders, and around the proposal only: seconds instead of half a minute."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(routes, "_ORDERS", orders)
        patch.setattr(routes, "_SEARCH", [[(1.0, 1.0, v) for v in votes] for votes in ((0.6, 0.8, 1.0), (0.9, 1.1))])
        yield


@pytest.fixture(scope="module")
def tested(proposal: Plan, standin: Votes) -> TestedPlan:
    seen: list[float] = []
    with searched_near(35.0, 45.0):
        found = plan_tested(proposal, standin=standin, max_queries=300, progress=seen.append)
    assert found is not None
    assert seen == sorted(seen)
    assert seen[0] >= 0
    assert seen[-1] < 1
    return found


@pytest.fixture(scope="module")
def fixed(tested: TestedPlan) -> ConditionalGuarantee:
    """The proposal, as one would fix it."""
    return tested_guarantee(
        tested.mechanism,
        target=tested.target,
        delta=1e-6,
        n_teachers=5000,
        n_classes=10,
        n_queries=tested.n_queries,
        n_answers=tested.n_answers,
        order=tested.order,
        share=tested.share,
    )


def test_thousands_of_teachers_that_agree_make_it_pay(tested: TestedPlan, proposal: Plan) -> None:
    assert tested.pays
    assert tested.worst_case == proposal.guarantee.epsilon
    assert tested.target < 0.7 * tested.worst_case
    assert tested.right_answers >= proposal.right_answers * (1 - 1e-9)
    assert tested.accuracy >= 0.95
    assert tested.n_answers <= tested.n_queries <= 300
    # not only against the proposal: by worst case, its own mechanism would cost more too
    own = publishable_guarantee(
        tested.mechanism, n_queries=tested.n_queries, n_answers=tested.n_answers, delta=1e-6
    ).epsilon
    assert tested.target < own


def test_the_numbers_can_be_fixed_as_they_are(fixed: ConditionalGuarantee, tested: TestedPlan) -> None:
    assert (fixed.epsilon, fixed.order) == (tested.target, tested.order)
    spent = overhead(tested.mechanism, n_queries=tested.n_queries, order=tested.order, delta=9e-7)
    assert fixed.budget == pytest.approx(tested.target - spent, rel=1e-9)
    assert fixed.cap == pytest.approx(tested.share * fixed.budget)


def test_votes_like_the_standins_pass(fixed: ConditionalGuarantee, tested: TestedPlan) -> None:
    votes = synthetic_votes(n_queries=tested.n_queries, **LIKE, seed=1)
    assert fixed.pass_chance(votes).reveal() >= 0.8
    rng = np.random.default_rng(2)
    assert sum(fixed._draw(votes, SeededNoise(rng)).reveal()[1] for _ in range(50)) >= 40
    answers, _ = fixed._draw(votes, SeededNoise(0)).reveal()
    assert answers.n_answered >= 0.9 * tested.n_answers
    assert answers.n_answered <= tested.n_answers


def test_votes_that_agree_less_do_not(fixed: ConditionalGuarantee, tested: TestedPlan) -> None:
    votes = synthetic_votes(**{**LIKE, "consensus": 0.5}, n_queries=tested.n_queries, hard=1.0, seed=1)
    assert fixed.pass_chance(votes).reveal() < 0.1


def test_fifty_teachers_keep_to_the_worst_case() -> None:
    votes = synthetic_votes(n_queries=200, n_classes=10, n_teachers=50, consensus=0.95)
    proposal = plan(standin=votes, epsilon=3.0, delta=1e-5)
    with searched_near(4.0, 5.2, 6.3, 7.6):  # the best is 6.3
        tested = plan_tested(proposal, standin=votes)
    assert tested is None or not tested.pays


def test_where_queries_are_too_few_there_is_no_tested_route(standin: Votes, proposal: Plan) -> None:
    with searched_near(25.0, 35.0):
        assert plan_tested(proposal, standin=standin, max_queries=10) is None


@pytest.mark.parametrize("chance", [0.0, 1.0, math.nan])
def test_the_chance_to_pass_is_a_chance(standin: Votes, proposal: Plan, chance: float) -> None:
    with pytest.raises(InputError, match="pass_chance"):
        plan_tested(proposal, standin=standin, pass_chance=chance)


def test_pays_is_a_comparison_and_nothing_else(tested: TestedPlan) -> None:
    assert not TestedPlan(**{**vars(tested), "target": tested.worst_case}).pays
