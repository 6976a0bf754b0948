"""Budgets: their guarantees by hand, whole-number arithmetic that never falls below the truth, and JSON."""

from __future__ import annotations

import dataclasses
import json
import math
import pickle
import re
from dataclasses import replace
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from terrine.accounting.costs import worst_case_cost
from terrine.accounting.curves import ORDERS, RdpCurve, guarantee
from terrine.budgets import (
    UNIT_BITS,
    CountBudget,
    FilterBudget,
    Spending,
    budget_from_json,
    canonical,
    difference,
    mechanism_from_json,
    mechanism_to_json,
)
from terrine.errors import BudgetError, InputError, OrderGridWarning
from terrine.mechanisms import ConfidentGNMax, GNMax, InteractiveGNMax, LNMax
from terrine.relations import Relation

PAPER = ConfidentGNMax(threshold=200, sigma_check=150, sigma_vote=40)
INTERACTIVE = InteractiveGNMax(threshold=100, sigma_check=150, sigma_vote=40, student_confidence=0.9)
MECHANISMS = [LNMax(scale=20), GNMax(sigma=40), PAPER, INTERACTIVE]
UNITS = 2**UNIT_BITS


def tight(rdp, orders, delta):
    """The conversion, written out."""
    return rdp + np.log((orders - 1) / orders) - (np.log(delta) + np.log(orders)) / (orders - 1)


@pytest.mark.parametrize("mechanism", [PAPER, INTERACTIVE])
def test_a_count_budget_is_checks_plus_answers_at_the_best_order(mechanism):
    numbers = {"n_queries": 640, "n_answers": 283, "delta": 1e-5, "relation": Relation.UNIT_ANY}
    budget = CountBudget(mechanism, **numbers, accountant="renyi")
    check = worst_case_cost(mechanism, n_queries=1, n_answered=0).epsilons
    vote = worst_case_cost(GNMax(sigma=40), n_queries=1).epsilons
    by_order = tight(640 * check + 283 * vote, ORDERS, 1e-5)
    found = budget.guarantee()
    assert found.epsilon == pytest.approx(by_order.min(), rel=1e-9)
    assert found.order == ORDERS[by_order.argmin()]
    assert (found.delta, found.relation) == (1e-5, Relation.UNIT_ANY)
    assert "for at most 640 queries and 283 answers fixed beforehand" in found.basis
    assert round(found.epsilon, 3) == 2.142  # theory: MNIST's 640 and 283, tight conversion


@pytest.mark.parametrize("mechanism", [*MECHANISMS, GNMax(sigma=10), GNMax(sigma=1000)])
def test_a_best_order_among_the_papers_is_kept(mechanism):
    """Stored budgets keep their epsilon to the last digit: more orders are tried only beyond the paper's largest."""
    found = CountBudget(mechanism, n_queries=300, delta=1e-5, accountant="renyi").guarantee()
    only = guarantee(worst_case_cost(mechanism, n_queries=300, orders=ORDERS), delta=1e-5)
    assert (found.epsilon, found.order, found.notes) == (only.epsilon, only.order, only.notes)
    assert only.order < 500


def test_a_best_order_beyond_the_papers_lowers_epsilon():
    budget = CountBudget(GNMax(sigma=20_000), n_queries=100, delta=1e-6, accountant="renyi")
    with pytest.warns(OrderGridWarning, match="a wider grid may give a smaller epsilon"):
        before = guarantee(worst_case_cost(budget.mechanism, n_queries=100, orders=ORDERS), delta=1e-6)
    found = budget.guarantee()
    assert (before.order, before.epsilon > 0.01) == (500.0, True)
    assert 500 < found.order < 100_000
    assert found.epsilon < 0.2 * before.epsilon


def test_new_budgets_are_charged_by_privacy_profiles_and_stored_ones_as_they_were():
    budget = CountBudget(GNMax(sigma=20), n_queries=30, delta=1e-5, relation=Relation.UNIT_ANY)
    before = replace(budget, accountant="renyi")
    found, old = budget.guarantee(), before.guarantee()
    assert 0.9 * old.epsilon < found.epsilon < 0.97 * old.epsilon
    assert (found.order, found.relation, found.delta) == (None, Relation.UNIT_ANY, 1e-5)
    assert "privacy profile, for at most 30 queries and 30 answers fixed beforehand" in found.basis
    assert "accountant" not in before.to_json()  # as budgets were stored before there was a choice
    assert budget_from_json(before.to_json()) == before
    assert budget_from_json(budget.to_json()) == budget != before
    assert difference(before, budget) is None  # they allow the same: what a ledger began with holds
    with pytest.raises(InputError, match="accountant"):
        replace(budget, accountant="moments")


def test_without_a_check_queries_are_answers():
    laplace = CountBudget(LNMax(scale=20), n_queries=100, delta=1e-5)
    assert (laplace.n_answers, laplace.limit) == (100, Spending(queries=100, answers=100))
    pure = 2 / 20  # of one answer: its Rényi cost is at most order·pure²/2 and at most pure
    by_order = tight(100 * np.minimum(ORDERS * pure**2 / 2, pure), ORDERS, 1e-5)
    assert laplace.guarantee().epsilon <= by_order.min() * (1 + 1e-9)
    assert laplace.guarantee().epsilon > 0.9 * by_order.min()
    assert CountBudget(GNMax(sigma=40), n_queries=7, delta=1e-5) == CountBudget(
        GNMax(sigma=40), n_queries=7, n_answers=7, delta=1e-5
    )


BAD = [
    (
        lambda: CountBudget(PAPER, n_queries=0, delta=1e-5),
        "n_queries must be a whole number of at least 1, got 0",
    ),
    (lambda: CountBudget(PAPER, n_queries=2.5, delta=1e-5), "n_queries must be a whole number"),
    (
        lambda: CountBudget(PAPER, n_queries=5, n_answers=6, delta=1e-5),
        "n_answers must be at most n_queries, got n_answers=6",
    ),
    (
        lambda: CountBudget(PAPER, n_queries=5, n_answers=0, delta=1e-5),
        "n_answers must be a whole number of at least 1",
    ),
    (lambda: CountBudget(GNMax(sigma=40), n_queries=5, n_answers=4, delta=1e-5), "answers every query"),
    (lambda: CountBudget("gnmax", n_queries=5, delta=1e-5), "mechanism must be .*, got str"),
    (lambda: CountBudget(PAPER, n_queries=5, delta=1), "delta must be above 0 and below 1, got 1"),
    (
        lambda: CountBudget(PAPER, n_queries=5, delta=1e-5, relation=""),
        "relation must say in words what neighbors differ in",
    ),
    (lambda: FilterBudget(epsilon=0, delta=1e-5, order=20), "epsilon must be above 0"),
    (lambda: FilterBudget(epsilon=1, delta=0, order=20), "delta must be above 0 and below 1"),
    (lambda: FilterBudget(epsilon=1, delta=1e-5, order=1), "Every order must be finite and above 1"),
    (lambda: FilterBudget(epsilon=5000, delta=1e-5, order=20), "epsilon must be at most 4096"),
    (
        lambda: FilterBudget(epsilon=0.3, delta=1e-5, order=20),
        "epsilon must be above 0.397, got .*delta=1e-05 alone takes that much at",
    ),
    (
        lambda: FilterBudget(epsilon=1, delta=1e-5, order=20, relation=None),
        "relation must say in words what neighbors differ in",
    ),
]


@pytest.mark.parametrize(("make", "message"), BAD)
def test_a_budget_that_makes_no_sense_is_refused(make, message):
    with pytest.raises(InputError, match=message) as caught:
        make()
    assert "\n" not in str(caught.value)


def test_a_filter_allows_the_largest_cost_whose_conversion_is_within_epsilon():
    for epsilon, delta, order in [(1.0, 1e-5, 20.0), (0.5, 1e-6, 60.0), (8.0, 1e-5, 3.5), (3.0, 0.3, 100.0)]:
        budget = FilterBudget(epsilon=epsilon, delta=delta, order=order)
        largest = budget.limit.charge / UNITS
        curve = RdpCurve(budget.orders, np.array([largest]))
        assert guarantee(curve, delta=delta).epsilon <= epsilon
        more = RdpCurve(budget.orders, np.array([largest * (1 + 1e-10) + 1e-10]))
        assert guarantee(more, delta=delta).epsilon > epsilon
        by_hand = epsilon - math.log((order - 1) / order) + (math.log(delta) + math.log(order)) / (order - 1)
        assert largest == pytest.approx(by_hand, rel=1e-9)
        found = budget.guarantee()
        assert (found.epsilon, found.delta, found.order) == (epsilon, delta, order)


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda m: type(m).__name__)
def test_a_filter_charges_each_step_its_worst_case_rounded_up(mechanism):
    budget = FilterBudget(epsilon=1, delta=1e-5, order=17.5)
    n_answers = 7 if isinstance(mechanism, ConfidentGNMax) else 11
    price = budget.price(mechanism, n_queries=11, n_answers=n_answers)
    cost = worst_case_cost(mechanism, n_queries=11, n_answered=n_answers, orders=[17.5]).epsilons[0]
    assert cost <= price.charge / UNITS <= cost * (1 + 1e-14) + 18 / UNITS
    assert (price.queries, price.answers) == (11, n_answers)
    fits = budget.room(Spending(), mechanism)
    assert budget.holds(budget.price(mechanism, n_queries=fits, n_answers=fits))
    assert not budget.holds(budget.price(mechanism, n_queries=fits + 1, n_answers=fits + 1))


TINY = [GNMax(sigma=40.0), GNMax(sigma=30_000.0), LNMax(scale=50_000.0), PAPER]
FILTER = FilterBudget(epsilon=0.5, delta=1e-5, order=32.0)


@cache
def true_cost(mechanism):
    """Of one query and its answer, as an exact fraction of the bounds."""
    steps = [(mechanism, 1)]
    if isinstance(mechanism, ConfidentGNMax):
        steps = [(mechanism, 0), (GNMax(sigma=mechanism.sigma_vote), 1)]
    costs = [worst_case_cost(m, n_queries=1, n_answered=n, orders=[FILTER.order]).epsilons[0] for m, n in steps]
    return sum(Fraction(float(cost)) for cost in costs)


@given(st.integers(0, 3), st.lists(st.tuples(st.integers(0, 3), st.integers(1, 4000)), min_size=1, max_size=40))
def test_thousands_of_tiny_charges_never_drift_below_the_truth(first, steps):
    """Exact fractions say what was really spent; the filter's whole numbers are never below, and stop in time."""
    spent, truth = Spending(), Fraction(0)
    for kind, times in [(first, 1), *steps]:
        mechanism = TINY[kind]
        n = min(times, FILTER.room(spent, mechanism))
        spent = spent + FILTER.price(mechanism, n_queries=n, n_answers=n)
        truth += n * true_cost(mechanism)
        assert truth <= Fraction(spent.charge, UNITS)
        assert spent.charge <= FILTER.limit.charge
        assert FILTER.holds(spent)
    assert Fraction(spent.charge, UNITS) - truth <= Fraction(2 * spent.queries, UNITS) + truth / 2**48


def test_one_at_a_time_is_as_dear_as_all_at_once():
    one = Spending()
    for _ in range(5000):
        one = one + FILTER.price(TINY[1], n_queries=1, n_answers=1)
    assert one == FILTER.price(TINY[1], n_queries=5000, n_answers=5000)


def test_a_count_budget_has_room_for_the_scarcer_of_queries_and_answers():
    budget = CountBudget(PAPER, n_queries=10, n_answers=4, delta=1e-5)
    assert [
        budget.room(Spending(queries=q, answers=a), PAPER) for q, a in [(0, 0), (8, 0), (4, 3), (4, 4), (10, 0)]
    ] == [
        4,
        2,
        1,
        0,
        0,
    ]
    assert budget.holds(Spending(queries=10, answers=4))
    assert not budget.holds(Spending(queries=11, answers=4))
    assert not budget.holds(Spending(queries=10, answers=5))
    with pytest.raises(InputError, match="This budget pays for ConfidentGNMax"):
        budget.price(dataclasses.replace(PAPER, threshold=201), n_queries=1, n_answers=1)
    with pytest.raises(InputError, match="This budget pays for"):
        budget.price(INTERACTIVE, n_queries=1, n_answers=1)


numbers = st.floats(1e-3, 1e4)
mechanisms = st.one_of(
    st.builds(LNMax, scale=numbers),
    st.builds(GNMax, sigma=numbers),
    st.builds(ConfidentGNMax, threshold=st.floats(-1e4, 1e4), sigma_check=numbers, sigma_vote=numbers),
    st.builds(
        InteractiveGNMax,
        threshold=st.floats(-1e4, 1e4),
        sigma_check=numbers,
        sigma_vote=numbers,
        student_confidence=st.floats(0, 1),
    ),
)


@given(mechanisms, st.integers(1, 10**9), st.floats(1e-12, 0.1), st.floats(2, 100))
def test_json_there_and_back_is_the_same(mechanism, n_queries, delta, order):
    assert mechanism_from_json(json.loads(canonical(mechanism_to_json(mechanism)))) == mechanism
    for budget in (
        CountBudget(mechanism, n_queries=n_queries, delta=delta),
        FilterBudget(epsilon=100.0, delta=delta, order=order, relation=Relation.UNIT_ANY),
    ):
        again = budget_from_json(json.loads(canonical(budget.to_json())))
        assert again == budget
        assert difference(budget, again) is None
        assert canonical(again.to_json()) == canonical(budget.to_json())


def test_minus_zero_has_one_spelling():
    minus, plus = (ConfidentGNMax(threshold=zero, sigma_check=1, sigma_vote=1) for zero in (-0.0, 0.0))
    assert canonical(mechanism_to_json(minus)) == canonical(mechanism_to_json(plus))


def test_a_subclass_of_a_mechanism_is_not_one():
    class Quiet(GNMax):
        pass

    with pytest.raises(InputError, match=r"mechanism must be .*, got Quiet"):
        mechanism_to_json(Quiet(sigma=1))


COUNT = CountBudget(PAPER, n_queries=640, n_answers=283, delta=1e-5)


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        {},
        {**COUNT.to_json(), "schema": "terrine.budget/2"},
        {**COUNT.to_json(), "kind": "filter"},
        {**COUNT.to_json(), "kind": "other"},
        {**COUNT.to_json(), "extra": 1},
        {**COUNT.to_json(), "mechanism": {"kind": "none", "sigma": 1}},
        {**COUNT.to_json(), "mechanism": {"kind": "gnmax"}},
        {**COUNT.to_json(), "mechanism": 3},
        {**COUNT.to_json(), "n_queries": "many"},
        {name: value for name, value in COUNT.to_json().items() if name != "delta"},
    ],
)
def test_other_json_is_refused(value):
    with pytest.raises(InputError, match=r"\.$"):
        budget_from_json(value)


def test_the_first_field_that_differs_is_named():
    small = dataclasses.replace(COUNT, n_queries=64, n_answers=28)  # each guarantee is evaluated
    for other, words in [
        (dataclasses.replace(small, n_queries=70, n_answers=30), "n_queries=64, not n_queries=70"),
        (dataclasses.replace(small, n_answers=30), "n_answers=28, not n_answers=30"),
        (dataclasses.replace(small, delta=1e-6), "delta=1e-05, not delta=1e-06"),
        (FILTER, "kind='count', not kind='filter'"),
        (dataclasses.replace(small, mechanism=INTERACTIVE), 'not mechanism={"kind":"interactive",'),
    ]:
        assert words in difference(small, other)


def test_a_budget_error_says_both_numbers_and_survives_pickling():
    error = pickle.loads(pickle.dumps(BudgetError("9 queries", "3 queries")))
    assert str(error) == "Not enough budget. The request needs 9 queries; left: 3 queries."
    assert (error.requested, error.remaining) == ("9 queries", "3 queries")


def test_what_a_filter_says_of_costs_is_rounded_outward():
    spending = FILTER.price(TINY[1], n_queries=3, n_answers=3)
    asked, left = (float(re.search(r"cost of ([\d.]+)", FILTER.in_words(spending, left=x))[1]) for x in (False, True))
    assert left <= spending.charge / UNITS <= asked
