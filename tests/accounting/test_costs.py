"""What votes cost: contract tests over all mechanisms and all accountants."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from terrine.accounting import costs, theorems
from terrine.accounting.costs import CostSettings, cost, expected_answered, expected_cost, running_cost, worst_case_cost
from terrine.accounting.curves import ORDERS, RdpCurve
from terrine.datasets.synthetic import synthetic_votes
from terrine.errors import InputError
from terrine.mechanisms import ConfidentGNMax, GNMax, InteractiveGNMax, LNMax, Mechanism
from terrine.sensitive import Sensitive
from terrine.votes import Votes

CONFIDENT = ConfidentGNMax(threshold=150, sigma_check=60, sigma_vote=20)
MECHANISMS: dict[str, Mechanism] = {
    "lnmax": LNMax(scale=10),
    "gnmax": GNMax(sigma=20),
    "confident": CONFIDENT,
    "interactive": InteractiveGNMax(threshold=50, sigma_check=60, sigma_vote=20, student_confidence=0.9),
}
CHARGES = {
    "exact": partial(cost, accountant="exact"),
    "sanitizable": partial(cost, accountant="sanitizable"),
    "paper": partial(cost, accountant="paper"),
    "expected": expected_cost,
    "expected, sanitizable": partial(expected_cost, accountant="sanitizable"),
}
FEW = np.array([2.0, 1.5, 14.5, 5.0, 60.0, 300.0])  # in no order
AGAIN = np.r_[:45, :15]  # some queries come twice
VOTES = Votes(
    synthetic_votes(n_queries=45, n_classes=5, n_teachers=250, consensus=0.8, hard=0.3, seed=1).counts[AGAIN],
    n_teachers=250,
)
PROBA = np.random.default_rng(2).dirichlet(np.ones(5), size=45)[AGAIN]
every_mechanism = pytest.mark.parametrize("name", MECHANISMS)
every_charge = pytest.mark.parametrize("charge", CHARGES)


def student(name: str, rows: slice = slice(None), classes: object = slice(None)) -> dict[str, np.ndarray]:
    return {"student_proba": PROBA[rows][:, classes]} if name == "interactive" else {}


def revealed(charge: str, name: str, votes: Votes = VOTES, **student_proba: np.ndarray) -> np.ndarray:
    secret = CHARGES[charge](MECHANISMS[name], votes, orders=FEW, **(student_proba or student(name)))
    return secret.reveal().epsilons


# What every mechanism must satisfy


@every_mechanism
@every_charge
def test_what_reads_votes_is_a_secret_curve_over_the_orders(name: str, charge: str) -> None:
    secret = CHARGES[charge](MECHANISMS[name], VOTES, orders=FEW, **student(name))
    assert isinstance(secret, Sensitive)
    curve = secret.reveal()
    assert isinstance(curve, RdpCurve)
    assert (curve.orders == FEW).all()
    assert (curve.epsilons > 0).all()
    alone = [CHARGES[charge](MECHANISMS[name], VOTES, orders=x, **student(name)).reveal().epsilons[0] for x in FEW]
    assert curve.epsilons == pytest.approx(alone, rel=1e-9)
    assert isinstance(expected_answered(MECHANISMS[name], VOTES, **student(name)), Sensitive)


@every_mechanism
@pytest.mark.parametrize("bound", ["argmax", "gaussian"])
def test_the_worst_case_is_a_public_curve_that_rises_with_the_order(name: str, bound: str) -> None:
    orders = np.sort(np.concatenate(([1.01, 1.5, 1.77], ORDERS, [700.0, 1e6])))
    curve = worst_case_cost(MECHANISMS[name], n_queries=7, orders=orders, bound=bound)
    assert isinstance(curve, RdpCurve)
    assert (curve.orders == orders).all()
    assert (curve.epsilons > 0).all()
    assert (np.diff(curve.epsilons) >= -1e-12 * curve.epsilons[1:]).all()


@every_mechanism
@every_charge
def test_what_votes_cost_never_exceeds_the_worst_case(name: str, charge: str) -> None:
    bound = "argmax" if charge in ("exact", "sanitizable") else "gaussian"  # the paper knows the Gaussian's only
    worst = worst_case_cost(MECHANISMS[name], n_queries=len(VOTES), orders=FEW, bound=bound).epsilons
    assert (revealed(charge, name) <= worst * (1 + 1e-12)).all()
    assert revealed(charge, name)[0] < 0.9 * worst[0]  # and these votes agree enough to gain


@every_mechanism
def test_the_argmax_worst_case_never_exceeds_the_gaussian(name: str) -> None:
    argmax, plain = (worst_case_cost(MECHANISMS[name], n_queries=9, bound=b).epsilons for b in ("argmax", "gaussian"))
    assert (argmax <= plain).all()
    assert name == "lnmax" or argmax[0] < 0.7 * plain[0]


@every_mechanism
@every_charge
def test_classes_have_no_order(name: str, charge: str) -> None:
    shuffle = [3, 0, 4, 1, 2]
    shuffled = Votes(VOTES.counts[:, shuffle], n_teachers=250)
    got = revealed(charge, name, shuffled, **student(name, classes=shuffle))
    assert got == pytest.approx(revealed(charge, name), rel=1e-9)


@every_mechanism
@every_charge
def test_cost_adds_over_a_split_of_the_batch(name: str, charge: str) -> None:
    parts = [revealed(charge, name, VOTES[rows], **student(name, rows)) for rows in (slice(0, 23), slice(23, 60))]
    assert parts[0] + parts[1] == pytest.approx(revealed(charge, name), rel=1e-9)


@every_mechanism
@pytest.mark.parametrize("accountant", ["exact", "sanitizable", "paper"])
def test_a_running_cost_is_the_cost_of_the_first_queries(name: str, accountant: str) -> None:
    stops = [1, 23, 23, 60]
    how = CostSettings(orders=FEW, accountant=accountant)
    running = running_cost(MECHANISMS[name], VOTES, how, stops=stops, **student(name))
    assert len(running) == len(stops)
    for stop, secret in zip(stops, running, strict=True):
        first = slice(0, stop)
        expected = revealed(accountant, name, VOTES[first], **student(name, first))
        assert secret.reveal().epsilons == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("stops", [[], [0, 5], [40, 10], [61]])
def test_stops_ascend_within_the_votes(stops: list[int]) -> None:
    with pytest.raises(InputError, match="stops must be ascending whole numbers from 1 to 60"):
        running_cost(MECHANISMS["gnmax"], VOTES, CostSettings(orders=FEW), stops=stops)


@every_mechanism
def test_answers_expected_only_are_cheaper(name: str) -> None:
    without_check = name in ("lnmax", "gnmax")
    for expected, charge in (("expected", "paper"), ("expected, sanitizable", "sanitizable")):
        assert (revealed(expected, name) <= revealed(charge, name)).all()
        assert (revealed(expected, name)[0] == revealed(charge, name)[0]) == without_check
    answered = expected_answered(MECHANISMS[name], VOTES, **student(name)).reveal()
    assert answered == 60 if without_check else 0 < answered < 60


@every_mechanism
@pytest.mark.parametrize("charge", [cost, expected_cost, expected_answered])
def test_student_probabilities_are_for_interactive_alone(name: str, charge: Callable[..., object]) -> None:
    wrong = {} if name == "interactive" else {"student_proba": PROBA}
    with pytest.raises(InputError, match="InteractiveGNMax needs student_proba; no other mechanism"):
        charge(MECHANISMS[name], VOTES, **wrong)


@every_charge
def test_a_student_that_knows_nothing_moves_the_threshold(charge: str) -> None:
    """Uniform probabilities subtract M/m from every count, so Interactive is Confident at T - M/m."""
    same = InteractiveGNMax(threshold=100, sigma_check=60, sigma_vote=20, student_confidence=0.9)
    uniform = CHARGES[charge](same, VOTES, orders=FEW, student_proba=np.full((60, 5), 0.2)).reveal()
    assert uniform.epsilons == pytest.approx(revealed(charge, "confident"), rel=1e-9)


def test_an_unknown_accountant_is_refused() -> None:
    for accountant in ("best", "", None):
        with pytest.raises(InputError, match="accountant"):
            cost(CONFIDENT, VOTES, accountant=accountant)
    with pytest.raises(InputError, match="accountant"):
        expected_cost(CONFIDENT, VOTES, accountant="exact")  # an expectation of an exact cost has no meaning


@pytest.mark.parametrize("charge", [cost, expected_cost, expected_answered])
def test_what_is_no_mechanism_and_no_votes_is_refused(charge: Callable[..., object]) -> None:
    for mechanism, votes in (("gnmax", VOTES), (CONFIDENT, VOTES.counts), (GNMax(sigma=20), VOTES.counts)):
        with pytest.raises(InputError, match=r"(mechanism|votes) must be"):
            charge(mechanism, votes)
    with pytest.raises(InputError, match="mechanism must be"):
        worst_case_cost(40.0, n_queries=1)


# Worst case: counts of queries and answers


@every_mechanism
def test_the_number_of_answers_is_checked(name: str) -> None:
    with pytest.raises(InputError, match="n_answered"):
        worst_case_cost(MECHANISMS[name], n_queries=5, n_answered=6)
    for wrong in (-1, 2.5, math.nan):
        with pytest.raises(InputError, match="n_answered"):
            worst_case_cost(MECHANISMS[name], n_queries=5, n_answered=wrong)
        with pytest.raises(InputError, match="n_queries"):
            worst_case_cost(MECHANISMS[name], n_queries=wrong)
    if name in ("lnmax", "gnmax"):
        with pytest.raises(InputError, match="without a check answers every query"):
            worst_case_cost(MECHANISMS[name], n_queries=5, n_answered=4)
    same = worst_case_cost(MECHANISMS[name], n_queries=5, n_answered=5)
    assert (worst_case_cost(MECHANISMS[name], n_queries=5).epsilons == same.epsilons).all()
    assert (worst_case_cost(MECHANISMS[name], n_queries=0).epsilons == 0).all()


def test_checks_and_answers_are_charged_apart() -> None:
    total = worst_case_cost(CONFIDENT, n_queries=11, n_answered=4, bound="gaussian").epsilons
    assert total == pytest.approx(11 * ORDERS / (2 * 60**2) + 4 * ORDERS / 20**2, rel=1e-14)
    argmax = worst_case_cost(CONFIDENT, n_queries=11, n_answered=4).epsilons
    none = worst_case_cost(CONFIDENT, n_queries=11, n_answered=0).epsilons
    assert argmax == pytest.approx(none + worst_case_cost(GNMax(sigma=20), n_queries=4).epsilons, rel=1e-14)


# Sums


@given(seed=st.integers(0, 10**6), sigma=st.floats(0.5, 200), m=st.integers(2, 20), consensus=st.floats(0.05, 0.95))
def test_the_papers_gnmax_cost_is_the_sum_of_its_theorem(seed: int, sigma: float, m: int, consensus: float) -> None:
    votes = synthetic_votes(n_queries=40, n_classes=m, n_teachers=250, consensus=consensus, seed=seed)
    got = cost(GNMax(sigma=sigma), votes, accountant="paper").reveal().epsilons
    log_q = theorems.log_q_gaussian(votes.counts, sigma=sigma)
    assert got == pytest.approx(theorems.rdp_gnmax(log_q, sigma=sigma, orders=ORDERS).sum(axis=0), rel=1e-11)
    assert (got <= 40 * ORDERS / sigma**2 * (1 + 1e-12)).all()


def test_the_papers_confident_costs_are_the_sums_of_their_theorems() -> None:
    log_p = theorems.log_pr_answered(VOTES.counts.max(axis=1), threshold=150, sigma=60)
    check = theorems.rdp_threshold(log_p, sigma=60, orders=FEW)
    vote = theorems.rdp_gnmax(theorems.log_q_gaussian(VOTES.counts, sigma=20), sigma=20, orders=FEW)
    assert revealed("paper", "confident") == pytest.approx((check + vote).sum(axis=0), rel=1e-12)
    expected = (check + np.exp(log_p)[:, None] * vote).sum(axis=0)
    assert revealed("expected", "confident") == pytest.approx(expected, rel=1e-12)


@every_mechanism
def test_small_blocks_give_the_same_sum(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    at_once = revealed("paper", name)
    monkeypatch.setattr(costs, "_CELLS", 7)
    assert revealed("paper", name) == pytest.approx(at_once, rel=1e-13)
