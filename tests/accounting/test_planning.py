"""Plans: within the budget and close to it, accurate as asked, better than the rule of thumb and than chance."""

from __future__ import annotations

import math
from functools import cache, partial
from pathlib import Path

import numpy as np
import pytest
from scipy.special import ndtr

from terrine.accounting import near, planning
from terrine.accounting.costs import cost, worst_case_cost
from terrine.accounting.curves import RdpCurve, guarantee
from terrine.accounting.planning import (
    Plan,
    Sample,
    _Candidates,
    evaluate,
    expected_answers,
    least_noise,
    most_questions,
    plan,
    rule_of_thumb,
)
from terrine.budgets import CountBudget
from terrine.datasets.synthetic import synthetic_votes
from terrine.errors import InputError, PlanError
from terrine.mechanisms import ConfidentGNMax, GNMax
from terrine.votes import Votes


@pytest.fixture(autouse=True)
def by_renyi(monkeypatch):  # in `make soak` too
    """The searches themselves, which are by Rényi bounds; test_stretch.py has what profiles make of them."""
    monkeypatch.setattr(planning, "stretched", lambda make, *_, epsilon: make(epsilon))
    monkeypatch.setattr(planning, "count_guarantee", partial(planning.count_guarantee, accountant="renyi"))


BUDGETS = [(0.3, 1e-5), (1.0, 1e-6), (4.0, 1e-5)]
ENSEMBLES = {  # (teachers, classes, consensus, share of hard queries)
    "250 teachers, as MNIST": (250, 10, 0.9, 0.1),
    "1000 teachers": (1000, 10, 0.8, 0.2),
    "two classes": (300, 2, 0.95, 0.1),
    "30 classes": (2000, 30, 0.7, 0.3),
}


@cache
def imagined(name: str) -> Votes:
    n_teachers, n_classes, consensus, hard = ENSEMBLES[name]
    return synthetic_votes(
        n_queries=600, n_classes=n_classes, n_teachers=n_teachers, consensus=consensus, hard=hard, seed=3
    )


@pytest.fixture(scope="module")
def mnist(vote_files: Path) -> Votes:
    return Votes.load(vote_files / "mnist_250_teachers.npy")


def assert_sound(proposal: Plan, *, epsilon: float, delta: float, min_accuracy: float) -> None:
    """What it says it costs is what it costs, just below the budget, and it is accurate as asked."""
    curve = worst_case_cost(proposal.mechanism, n_queries=proposal.n_queries, n_answered=proposal.n_answers)
    assert proposal.guarantee.epsilon == guarantee(curve, delta=delta).epsilon
    assert (proposal.exact_epsilon, proposal.epsilon) == (None, proposal.guarantee.epsilon)
    assert 0.99 * epsilon <= proposal.guarantee.epsilon <= epsilon
    assert proposal.accuracy >= min_accuracy - 0.005
    assert 1 <= proposal.n_answers <= proposal.n_queries
    assert proposal.n_answers * proposal.accuracy >= proposal.right_answers * (1 - 1e-12)
    assert 0 < proposal.check_share < 1


def assert_better(proposal: Plan, standin: Votes, *, epsilon: float, delta: float, min_accuracy: float) -> None:
    """Than the paper's settings where they are accurate enough, and than the best of 300 random settings."""
    thumb = evaluate(rule_of_thumb(n_teachers=standin.n_teachers), standin=standin, epsilon=epsilon, delta=delta)
    assert thumb.guarantee.epsilon <= epsilon
    if thumb.accuracy >= min_accuracy:
        assert proposal.right_answers >= thumb.right_answers
    rng, m = np.random.default_rng(4), standin.n_teachers
    settings = [
        rng.choice(np.geomspace(low, high, 25), 300) * m for low, high in ((0.2, 1.5), (0.05, 2.0), (0.02, 0.6))
    ]
    others = _Candidates(Sample(standin, "worst-case"), *settings)
    right = others.n_queries(epsilon=epsilon, delta=delta, max_queries=None) * others.answer_rate * others.accuracy
    best = int(np.argmax(np.where(others.accuracy >= min_accuracy, right, 0.0)))
    names = ("threshold", "sigma_check", "sigma_vote")
    rival = ConfidentGNMax(**{name: values[best] for name, values in zip(names, settings, strict=True)})
    rival_right = evaluate(rival, standin=standin, epsilon=epsilon, delta=delta).right_answers
    assert proposal.right_answers >= 0.97 * rival_right, rival


@pytest.mark.parametrize("name", ENSEMBLES)
@pytest.mark.parametrize(("epsilon", "delta"), BUDGETS)
def test_plans_by_an_assumed_consensus(name: str, epsilon: float, delta: float) -> None:
    budget = {"epsilon": epsilon, "delta": delta}
    proposal = plan(standin=imagined(name), **budget)
    assert_sound(proposal, **budget, min_accuracy=0.95)
    assert_better(proposal, imagined(name), **budget, min_accuracy=0.95)


@pytest.mark.parametrize(("epsilon", "delta", "min_accuracy"), [(0.5, 1e-5, 0.9), (2.0, 1e-6, 0.97), (8.0, 1e-5, 0.8)])
def test_plans_by_real_votes(mnist: Votes, epsilon: float, delta: float, min_accuracy: float) -> None:
    target = {"epsilon": epsilon, "delta": delta, "min_accuracy": min_accuracy}
    proposal = plan(standin=mnist, **target)
    assert_sound(proposal, **target)
    assert_better(proposal, mnist, **target)


@pytest.mark.parametrize(
    ("n_teachers", "n_classes", "consensus", "epsilon", "delta", "min_accuracy", "max_queries"),
    [
        (30, 2, 0.88, 0.6, 1e-8, 0.9, None),
        (14, 10, 0.7, 1.7, 1e-6, 0.95, None),
        (51, 2, 0.68, 1.27, 2.5e-7, 0.5, 1),
        (13, 10, 0.62, 5.4, 2.5e-7, 0.95, 1),
    ],
)
def test_a_budget_for_hardly_one_answer_buys_a_right_one_or_says_so(
    n_teachers: int,
    n_classes: int,
    consensus: float,
    epsilon: float,
    delta: float,
    min_accuracy: float,
    max_queries: int | None,
) -> None:
    standin = synthetic_votes(n_queries=500, n_classes=n_classes, n_teachers=n_teachers, consensus=consensus)
    target = {"epsilon": epsilon, "delta": delta, "min_accuracy": min_accuracy, "max_queries": max_queries}
    try:
        proposal = plan(standin=standin, **target)
    except PlanError:
        return
    assert proposal.guarantee.epsilon <= epsilon
    assert proposal.accuracy >= min_accuracy - 0.005
    assert 1 <= proposal.n_answers <= proposal.n_queries


@pytest.mark.parametrize("epsilon", [0.3, 1.0])
def test_plans_by_the_exact_cost_of_the_standins(epsilon: float) -> None:
    """A smaller, secret cost buys more; it is the cost of the stand-ins times queries per stand-in."""
    standin = imagined("250 teachers, as MNIST")[:100]
    proposal = plan(standin=standin, epsilon=epsilon, delta=1e-5, accountant="exact")
    assert 0.99 * epsilon <= proposal.epsilon == proposal.exact_epsilon <= epsilon < proposal.guarantee.epsilon
    assert proposal.accuracy >= 0.945
    curve = cost(proposal.mechanism, standin, orders=np.geomspace(2, 200, 24), accountant="exact").reveal()
    per_query = RdpCurve(curve.orders, curve.epsilons / 100)
    assert guarantee(per_query * proposal.n_queries, delta=1e-5).epsilon == pytest.approx(proposal.epsilon, rel=1e-9)
    budget = {"standin": standin, "epsilon": epsilon, "delta": 1e-5}
    thumb = evaluate(rule_of_thumb(n_teachers=250), **budget, accountant="exact")
    assert proposal.right_answers > max(plan(**budget).right_answers, thumb.right_answers)


@pytest.mark.parametrize("max_queries", [50, 400])
def test_no_more_queries_than_there_are_inputs(max_queries: int) -> None:
    """With fewer queries than the budget pays for, the noise falls instead, and the answers get better."""
    standin = imagined("250 teachers, as MNIST")
    free, capped = (plan(standin=standin, epsilon=4.0, delta=1e-5, max_queries=most) for most in (None, max_queries))
    assert free.n_queries > 400
    assert capped.n_queries <= max_queries
    assert capped.guarantee.epsilon <= 4.0
    assert capped.right_answers > 0.8 * max_queries
    assert capped.accuracy > free.accuracy


def test_a_cap_that_fits_but_for_a_query_does_not_drive_the_noise_down() -> None:
    standin = synthetic_votes(n_queries=500, n_classes=2, n_teachers=78, consensus=0.999, hard=0.37152561236786835)
    budget = {"standin": standin, "epsilon": 12.393551411877715, "delta": 1.4671968511867294e-07, "max_queries": 65}
    proposal = plan(**budget, min_accuracy=0.5)
    assert proposal.right_answers >= evaluate(rule_of_thumb(n_teachers=78), **budget).right_answers


def test_a_larger_budget_buys_more() -> None:
    standin = imagined("250 teachers, as MNIST")
    right = [plan(standin=standin, epsilon=epsilon, delta=1e-5).right_answers for epsilon in (0.5, 1.0, 2.0, 4.0)]
    assert right == sorted(right)


@pytest.mark.parametrize(
    "hopeless",
    [{"epsilon": 0.001}, {"epsilon": 1.0, "min_accuracy": 0.9999}, {"epsilon": 0.05, "delta": 1e-30}],
    ids=["epsilon", "accuracy", "delta"],
)
def test_a_hopeless_target_says_what_would_help(hopeless: dict[str, float]) -> None:
    few = synthetic_votes(n_queries=100, n_classes=10, n_teachers=20, consensus=0.6)
    with pytest.raises(
        PlanError, match=r"Take more teachers, a larger epsilon or a lower min_accuracy .*\. Do not raise consensus"
    ):
        plan(standin=few, **{"delta": 1e-5, **hopeless})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("epsilon", 0),
        ("delta", 1),
        ("max_queries", 0),
        ("min_accuracy", 1.0),
        ("standin", [[3, 1]]),
        ("accountant", "paper"),
    ],
)
def test_wrong_targets_are_refused(name: str, value: object) -> None:
    with pytest.raises(InputError, match=f"^{name} must be"):
        plan(**{"standin": imagined("two classes"), "epsilon": 1.0, "delta": 1e-5, name: value})


def test_evaluate_fits_as_many_queries_as_the_budget_pays_for() -> None:
    standin, thumb = imagined("1000 teachers"), rule_of_thumb(n_teachers=1000)
    assert thumb == ConfidentGNMax(threshold=800, sigma_check=600, sigma_vote=160)
    got = evaluate(thumb, standin=standin, epsilon=1.0, delta=1e-5)
    one_more = math.ceil((got.n_queries + 3) / got.n_queries * got.n_answers)
    dearer = worst_case_cost(thumb, n_queries=got.n_queries + 3, n_answered=one_more)
    assert got.guarantee.epsilon <= 1.0 < guarantee(dearer, delta=1e-5).epsilon
    assert evaluate(thumb, standin=standin, epsilon=1.0, delta=1e-5, max_queries=100).n_queries == 100


def test_evaluate_of_what_no_budget_pays_for_is_nothing_for_nothing() -> None:
    got = evaluate(rule_of_thumb(n_teachers=300), standin=imagined("two classes"), epsilon=0.02, delta=1e-6)
    assert (got.n_queries, got.n_answers, got.right_answers) == (0, 0, 0.0)
    assert got.guarantee.epsilon == 0


@pytest.mark.parametrize(("n_classes", "tolerance"), [(2, 1e-9), (10, 1e-6), (150, 3e-4)])
def test_pr_plurality_is_the_integral(n_classes: int, tolerance: float) -> None:
    rng = np.random.default_rng(5)
    t = np.linspace(-12, 12, 4801)
    density = np.exp(-t * t / 2) / math.sqrt(2 * math.pi) * (t[1] - t[0])
    for _ in range(40):
        counts = rng.multinomial(250, rng.dirichlet(np.full(n_classes, 10 ** rng.uniform(-1.5, 1))))
        sigma = 10 ** rng.uniform(-1, 2.5)
        got = Sample(Votes([counts], n_teachers=250), "worst-case").pr_plurality(sigma)[0]
        top, *others = sorted(counts, reverse=True)
        expected = density @ np.prod([ndtr(t + (top - n) / sigma) for n in others], axis=0)
        assert got == pytest.approx(expected, abs=tolerance), (counts, sigma)


def test_accuracy_and_answer_rate_are_what_sampling_gives() -> None:
    standin, rng, n = imagined("1000 teachers")[:300], np.random.default_rng(6), 400
    mechanism = ConfidentGNMax(threshold=800, sigma_check=300, sigma_vote=250)
    got = _Candidates(Sample(standin, "worst-case"), mechanism.threshold, mechanism.sigma_check, mechanism.sigma_vote)
    counts = np.sort(standin.counts, axis=1)[:, ::-1]
    passed = counts[:, 0] + rng.normal(0, 300, (n, 300)) >= 800
    right = (counts + rng.normal(0, 250, (n, *counts.shape))).argmax(axis=2) == 0
    assert got.answer_rate[0] == pytest.approx(passed.mean(), abs=0.008)  # 5.5 standard errors
    assert got.accuracy[0] == pytest.approx(right[passed].mean(), abs=0.011)


@pytest.mark.parametrize(("n_queries", "epsilon", "delta"), [(30, 0.2, 1e-5), (1, 5.0, 1e-6), (2000, 1.0, 1e-8)])
def test_the_least_noise_meets_the_budget_and_hardly_less_would(n_queries: int, epsilon: float, delta: float) -> None:
    found = least_noise(n_queries=n_queries, epsilon=epsilon, delta=delta)
    assert float(f"{found.sigma:.4g}") == found.sigma

    def costs(sigma: float) -> float:
        return guarantee(worst_case_cost(GNMax(sigma=sigma), n_queries=n_queries), delta=delta).epsilon

    assert costs(found.sigma) <= epsilon < costs(0.998 * found.sigma)


@pytest.mark.parametrize("delta", [1e-5, 1e-6])
@pytest.mark.parametrize(("n_queries", "epsilon"), [(200, 1e-2), (10, 1e-3), (1, 1e-4)])
def test_small_epsilons_have_orders_of_their_own(n_queries: int, epsilon: float, delta: float) -> None:
    """What is planned is what a budget promises, and over any orders hardly less noise would do."""
    found = least_noise(n_queries=n_queries, epsilon=epsilon, delta=delta)
    promised = CountBudget(found, n_queries=n_queries, delta=delta, accountant="renyi").guarantee()
    assert promised.notes == ()  # no order at the edge
    assert 0.998 * epsilon < promised.epsilon <= epsilon
    dense = np.geomspace(2.0, 100_000.0, 10_000)
    least = worst_case_cost(GNMax(sigma=found.sigma), n_queries=n_queries, orders=dense).epsilon(delta=delta)
    assert least > 0.997 * epsilon


@pytest.mark.parametrize("epsilon", [0.05, 0.5, 5.0])
def test_few_searches_for_suprema_find_the_least_noise(monkeypatch, epsilon: float) -> None:
    searched = []
    real = near.supremum_argmax
    monkeypatch.setattr(near, "supremum_argmax", lambda **k: searched.append(k["orders"].size) or real(**k))
    planning._least_noise(n_queries=20, epsilon=epsilon, delta=1e-5)
    assert 0 < sum(searched) <= 5 * (2 * near._AROUND + 1)


@pytest.mark.parametrize("factor", [1e-3, 0.3, 0.97, 1.02, 1.5, 4000.0])
@pytest.mark.parametrize("power", [0.5, 1.0, 3.0])
def test_the_least_number_of_four_digits_is_found_from_any_guess(power: float, factor: float) -> None:
    for least in (1.0, 37.212, 999.95, 4100.4):

        def cost(sigma: float, least: float = least) -> float:
            return (least / sigma) ** power

        found = planning._least_of_four_digits(cost, epsilon=1.0, guess=least * factor)
        digit = 10.0 ** (math.floor(math.log10(least)) - 3)
        assert cost(found) <= 1.0 < cost(found - 1.01 * digit)
        assert float(f"{found:.4g}") == found


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"n_queries": 0, "epsilon": 1.0, "delta": 1e-5}, "n_queries"),
        ({"n_queries": 1, "epsilon": -1.0, "delta": 1e-5}, "epsilon"),
        ({"n_queries": 1, "epsilon": 1.0, "delta": 1.0}, "delta"),
        ({"n_queries": 30, "epsilon": 1e-4, "delta": 1e-5}, "No noise up to 65536 votes .* Take fewer answers"),
    ],
)
def test_a_budget_that_no_noise_meets_is_refused(given: dict[str, float], words: str) -> None:
    with pytest.raises((InputError, PlanError), match=words):
        least_noise(**given)


@pytest.mark.parametrize(("classes", "teachers", "epsilon"), [(2, 200, 2.0), (5, 250, 1.0), (150, 25, 8.0)])
def test_the_most_questions_meet_epsilon_and_one_more_does_not(classes, teachers, epsilon):
    standin = synthetic_votes(n_queries=400, n_classes=classes, n_teachers=teachers, consensus=0.8)
    noise, n = most_questions(standin=standin, epsilon=epsilon, delta=1e-6, max_queries=100_000)

    def cost(n_queries: int) -> float:
        return guarantee(worst_case_cost(noise, n_queries=n_queries), delta=1e-6).epsilon

    assert cost(n) <= epsilon < cost(n + 1)
    right = expected_answers(noise, standin=standin)[1]
    assert 0.85 <= right < 0.851
    few, all_of_them = most_questions(standin=standin, epsilon=epsilon, delta=1e-6, max_queries=max(1, n // 2))
    assert all_of_them == max(1, n // 2)
    assert few.sigma < noise.sigma


def test_too_few_teachers_for_one_question_are_refused():
    standin = synthetic_votes(n_queries=400, n_classes=2, n_teachers=10, consensus=0.8)
    with pytest.raises(PlanError, match=r"with 10 teachers pays for no answer .* \(under \[privacy\] of a run, --min"):
        most_questions(standin=standin, epsilon=2.0, delta=1e-6, max_queries=100)
