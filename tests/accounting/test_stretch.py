"""Plans by privacy profiles: more answers or less noise at the same epsilon, never above it."""

import pytest

from terrine.accounting import planning
from terrine.accounting.costs import worst_case_cost
from terrine.accounting.planning import least_noise, most_questions, plan
from terrine.accounting.profile_costs import about_epsilon, count_guarantee
from terrine.accounting.stretch import stretched
from terrine.budgets import CountBudget
from terrine.datasets.synthetic import synthetic_votes
from terrine.errors import PlanError
from terrine.mechanisms import GNMax


@pytest.mark.parametrize("gain", [1.0, 1.04, 1.08, 1.3])
@pytest.mark.parametrize("off", [0.9, 0.99, 1.0, 1.02, 1.2])
def test_what_is_found_costs_just_epsilon(gain, off):
    """A search that finds its aim, a true cost below it by a gain, and a guess that is off."""
    evaluated = []

    def cost(found):
        evaluated.append(found)
        return found / gain

    found = stretched(lambda aim: aim, lambda found: off * found / gain, cost, epsilon=2.0)
    assert found >= 2.0
    assert found / gain <= 2.0
    assert len(evaluated) <= 3
    if off <= 1.0 and gain > 1.0:
        assert found / gain > 0.98 * 2.0


def test_a_guess_that_is_far_too_low_ends_with_the_plain_search():
    assert stretched(lambda aim: aim, lambda found: found / 100, lambda found: found, epsilon=2.0) == 2.0


def test_a_search_that_finds_nothing_says_so():
    def make(aim):
        raise PlanError("nothing")

    with pytest.raises(PlanError, match="nothing"):
        stretched(make, lambda found: 1.0, lambda found: 1.0, epsilon=2.0)


def test_the_least_noise_is_less_than_by_renyi():
    found, plain = least_noise(n_queries=40, epsilon=0.8, delta=1e-5), planning._least_noise
    assert found.sigma < 0.97 * plain(n_queries=40, epsilon=0.8, delta=1e-5).sigma
    promised = CountBudget(found, n_queries=40, delta=1e-5).guarantee()
    assert 0.975 * 0.8 < promised.epsilon <= 0.8
    assert promised.order is None
    by_renyi = worst_case_cost(found, n_queries=40).epsilon(delta=1e-5)
    assert by_renyi > 0.8


def test_a_plan_has_more_right_answers_than_by_renyi():
    standin = synthetic_votes(n_queries=400, n_classes=3, n_teachers=100, consensus=0.9)
    numbers = {"epsilon": 1.0, "delta": 1e-5, "max_queries": None, "min_accuracy": 0.9}
    sample = planning.Sample(standin, "worst-case")
    plain = sample.priced(planning._plan(sample, **numbers), 1e-5)
    found = plan(standin=standin, **numbers)
    assert found.right_answers > plain.right_answers
    numbers = {"n_queries": found.n_queries, "n_answers": found.n_answers, "delta": 1e-5}
    assert found.guarantee == count_guarantee(found.mechanism, **numbers)
    assert 0.97 < found.guarantee.epsilon <= 1.0


def test_most_questions_are_more_than_by_renyi():
    standin = synthetic_votes(n_queries=400, n_classes=3, n_teachers=60, consensus=0.8)
    noise, n = most_questions(standin=standin, epsilon=1.0, delta=1e-5, max_queries=1000)
    assert 0.97 < count_guarantee(noise, n_queries=n, delta=1e-5).epsilon <= 1.0
    assert worst_case_cost(noise, n_queries=n).epsilon(delta=1e-5) > 1.0


def test_the_guess_is_near():
    for sigma, n in ((20.0, 12), (24.0, 40)):
        true = count_guarantee(GNMax(sigma=sigma), n_queries=n, delta=1e-5).epsilon
        assert about_epsilon(GNMax(sigma=sigma), n_queries=n, n_answers=n, delta=1e-5) == pytest.approx(true, rel=0.03)
