"""Inputs that broke other implementations of PATE's analysis, one test each."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable

import mpmath as mp
import numpy as np
import pytest

from terrine.accounting import argmax, costs, curves, theorems
from terrine.accounting.curves import ORDERS
from terrine.errors import InputError

SIGMA = 40.0


def gnmax(counts: object, *, orders: object = ORDERS, sigma: float = SIGMA) -> np.ndarray:
    return theorems.rdp_gnmax(theorems.log_q_gaussian(counts, sigma=sigma), sigma=sigma, orders=orders)


def plain(orders: object = ORDERS, sigma: float = SIGMA) -> np.ndarray:
    return np.asarray(orders) / sigma**2


@mp.workdps(50)
def test_unanimous_5000_teachers_150_classes() -> None:
    """q underflows a double: only its log exists."""
    counts = np.zeros((1, 150), dtype=np.int64)
    counts[0, 7] = 5000
    log_q = theorems.log_q_gaussian(counts, sigma=SIGMA)[0]
    assert log_q == pytest.approx(float(mp.log(149 * mp.erfc(mp.mpf(5000) / 80) / 2)), rel=1e-14)
    assert log_q == pytest.approx(-3906.647, abs=1e-3)
    cost = gnmax(counts)
    assert np.isfinite(cost).all()
    assert (cost >= 0).all()
    assert cost.max() < 1e-300


def test_lower_bound_at_a_subnormal_q() -> None:
    log_q = -310 * math.log(10)  # q = 1e-310
    assert theorems.log_lower(log_q, sigma=SIGMA, n_classes=150)[0] == pytest.approx(-715.139, abs=5e-4)


@mp.workdps(60)
def test_log1mexp_at_both_ends() -> None:
    for log_x in (-1e-20, -1e-300, -1e-5, -0.3, -math.log(2), -0.7, -5.0, -40.0, -700.0):
        assert theorems.log1mexp(log_x) == pytest.approx(float(mp.log(-mp.expm1(mp.mpf(log_x)))), rel=1e-14)
    assert theorems.log1mexp(-1e-20) == pytest.approx(-20 * math.log(10), rel=1e-14)
    assert theorems.log1mexp(0.0) == -math.inf
    assert theorems.log1mexp(-math.inf) == 0.0


@pytest.mark.parametrize("log_q", [-4.0, -3.9, -1.0, -1e-300])
def test_mu2_at_most_one_leaves_the_data_independent_bound(log_q: float) -> None:
    orders = [1.01, 2, 3]
    assert (theorems.rdp_gnmax(log_q, sigma=0.5, orders=orders) == plain(orders, 0.5)).all()  # mu_2 = sqrt(-log_q)/2


def test_log_q_zero_costs_the_data_independent_bound_and_minus_infinity_nothing() -> None:
    cost = theorems.rdp_gnmax([-math.inf, 0.0, -1e9], sigma=SIGMA, orders=ORDERS)
    assert (cost[0] == 0).all()
    assert (cost[1] == plain()).all()
    assert (cost[2] == 0).all()
    assert (theorems.rdp_lnmax([-math.inf, -1e9], scale=20, orders=ORDERS) == 0).all()
    pure = theorems.rdp_pure(epsilon=0.1, orders=ORDERS)
    assert (theorems.rdp_lnmax([0.0], scale=20, orders=ORDERS) == pure).all()
    assert (theorems.rdp_threshold([-math.inf, 0.0], sigma=SIGMA, orders=ORDERS) == 0).all()


def test_rows_keep_their_place_whatever_their_order() -> None:
    log_q = np.array([-3.0, -math.inf, -50.0, 0.0, -8.0, -50.0, -0.5])
    together = theorems.rdp_gnmax(log_q, sigma=SIGMA, orders=ORDERS)
    for row, alone in zip(together, log_q, strict=True):
        assert (row == theorems.rdp_gnmax(alone, sigma=SIGMA, orders=ORDERS)[0]).all()


@pytest.mark.parametrize("log_q", [[0.1], [math.nan], [[-1.0]]])
@pytest.mark.parametrize("bound", [theorems.rdp_gnmax, theorems.rdp_threshold])
def test_what_is_no_log_probability_is_refused(bound: Callable[..., np.ndarray], log_q: object) -> None:
    with pytest.raises(InputError, match="log-probabilities"):
        bound(log_q, sigma=SIGMA, orders=ORDERS)


LOG_Q = [(theorems.log_q_gaussian, "sigma"), (theorems.log_q_laplace, "scale")]


@pytest.mark.parametrize(("log_q", "noise"), LOG_Q)
class TestHistograms:
    def test_one_class_is_refused(self, log_q: Callable[..., np.ndarray], noise: str) -> None:
        with pytest.raises(InputError, match="at least 2 classes"):
            log_q([[250]], **{noise: 20})

    def test_two_tied_classes_have_q_at_its_cap(self, log_q: Callable[..., np.ndarray], noise: str) -> None:
        assert log_q([125, 125], **{noise: 20})[0] == pytest.approx(math.log(0.5), rel=1e-15)

    @pytest.mark.parametrize("counts", [[50, 50, 50, 50], [0, 0, 0, 0]])
    def test_a_tie_of_all_and_an_all_zero_row_are_at_the_cap(
        self, log_q: Callable[..., np.ndarray], noise: str, counts: list[int]
    ) -> None:
        assert log_q(counts, **{noise: 20})[0] == pytest.approx(math.log(0.75), rel=1e-15)

    def test_a_tie_for_the_top_counts_half_for_its_rival(self, log_q: Callable[..., np.ndarray], noise: str) -> None:
        assert log_q([10_000, 10_000, 0], **{noise: 20})[0] == pytest.approx(math.log(0.5), rel=1e-15)

    @pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.uint16, np.float64])
    def test_narrow_votes_do_not_wrap(self, log_q: Callable[..., np.ndarray], noise: str, dtype: type) -> None:
        rows = [[3, 120, 7], [120, 0, 5], [40, 41, 47]]
        assert (log_q(np.array(rows, dtype=dtype), **{noise: 20}) == log_q(rows, **{noise: 20})).all()

    @pytest.mark.parametrize("counts", [[1.5, 2.0], [-1, 5], [True, False], ["1", "2"], [[[1, 2]]], 5])
    def test_what_is_no_histogram_is_refused(
        self, log_q: Callable[..., np.ndarray], noise: str, counts: object
    ) -> None:
        with pytest.raises(InputError, match="counts must"):
            log_q(counts, **{noise: 20})

    @pytest.mark.parametrize("value", [math.nan, math.inf])
    def test_nan_and_infinite_counts_are_refused(
        self, log_q: Callable[..., np.ndarray], noise: str, value: float
    ) -> None:
        with pytest.raises(InputError, match="counts must"):
            log_q([value, 2.0], **{noise: 20})


def test_a_tie_costs_the_data_independent_bound() -> None:
    for counts in ([125, 125], [100, 100, 50], [0, 0, 0]):
        assert (gnmax(counts) == plain()).all()


BOUNDS = {
    "gnmax": lambda orders: theorems.rdp_gnmax(-30.0, sigma=SIGMA, orders=orders)[0],
    "threshold": lambda orders: theorems.rdp_threshold(-30.0, sigma=SIGMA, orders=orders)[0],
    "lnmax": lambda orders: theorems.rdp_lnmax(-30.0, scale=20, orders=orders)[0],
    "pure": lambda orders: theorems.rdp_pure(epsilon=0.1, orders=orders),
    "argmax": lambda orders: argmax.rdp_argmax(sigma=SIGMA, orders=orders),
    "check": lambda orders: argmax.rdp_check(sigma=SIGMA, orders=orders),
}


@pytest.mark.parametrize("name", BOUNDS)
def test_orders_may_be_a_list_of_ints_a_scalar_or_a_million(name: str) -> None:
    bound = BOUNDS[name]
    expected = bound(np.array([2.0, 14.0, 1e6]))
    assert expected.shape == (3,)
    assert np.isfinite(expected).all()
    assert (expected > 0).all()
    assert (bound([2, 14, 1_000_000]) == expected).all()
    assert (bound(range(2, 3)) == expected[:1]).all()
    assert (bound(14) == expected[1:2]).all()


def test_order_a_million_is_data_independent() -> None:
    assert gnmax([250, 0], orders=1e6)[0, 0] == 625.0


@pytest.mark.parametrize("name", BOUNDS)
@pytest.mark.parametrize("orders", [1, 0.5, -2, [2, 1.0], math.nan, math.inf, [], [[2, 3]], "two"])
def test_orders_that_are_none_are_refused(name: str, orders: object) -> None:
    with pytest.raises(InputError, match=r"(Every order|orders) must be"):
        BOUNDS[name](orders)


TAKES_SIGMA = {
    "log_q_gaussian": lambda sigma: theorems.log_q_gaussian([3, 1], sigma=sigma),
    "rdp_gnmax": lambda sigma: theorems.rdp_gnmax(-3.0, sigma=sigma, orders=2),
    "rdp_threshold": lambda sigma: theorems.rdp_threshold(-3.0, sigma=sigma, orders=2),
    "log_pr_answered": lambda sigma: theorems.log_pr_answered(3, threshold=2, sigma=sigma),
    "log_upper": lambda sigma: theorems.log_upper(-3.0, sigma=sigma, n_classes=3),
    "log_lower": lambda sigma: theorems.log_lower(-3.0, sigma=sigma, n_classes=3),
    "log_q0": lambda sigma: theorems.log_q0(sigma=sigma, order=2),
    "rdp_gnss": lambda sigma: theorems.rdp_gnss(beta=0.01, sigma=sigma, order=2),
    "rdp_argmax": lambda sigma: argmax.rdp_argmax(sigma=sigma, orders=2),
    "rdp_check": lambda sigma: argmax.rdp_check(sigma=sigma, orders=2),
}
REFUSED = {
    0: "sigma must be above 0, got 0.0.",
    -1.0: "sigma must be above 0, got -1.0.",
    math.nan: "sigma must be finite, got nan.",
    math.inf: "sigma must be finite, got inf.",
    "40": "sigma must be a number, got '40'.",
    True: "sigma must be a number, got True.",
    None: "sigma must be a number, got NoneType.",
}


@pytest.mark.parametrize("name", TAKES_SIGMA)
@pytest.mark.parametrize(("sigma", "message"), REFUSED.items(), ids=str)
def test_sigma_that_is_no_scale_is_refused_in_one_voice(name: str, sigma: object, message: str) -> None:
    with pytest.raises(InputError) as refusal:
        TAKES_SIGMA[name](sigma)
    assert str(refusal.value) == message


def partitions(total: int, largest: int) -> list[list[int]]:
    if total == 0:
        return [[]]
    return [[n, *rest] for n in range(min(total, largest), 0, -1) for rest in partitions(total - n, n)]


def test_ten_teachers_at_sigma_40_never_profit_from_consensus() -> None:
    rows = np.array([p + [0] * (10 - len(p)) for p in partitions(10, 10)])
    assert len(rows) == 42  # every histogram, up to the order of its classes
    assert (gnmax(rows) == plain()).all()


@pytest.mark.parametrize("module", [theorems, argmax, curves, costs], ids=lambda module: module.__name__)
def test_numbers_are_keyword_only(module: object) -> None:
    """Swapped positional arguments are impossible: what may be positional is an array, a curve, votes, a mechanism."""
    positional = {"counts", "log_q", "log_p", "log_x", "top", "curve", "value", "digits", "mechanism", "votes"}
    positional |= {"orders", "rdp"}  # epsilons_at: two arrays
    positional |= {"how"}  # a settings object
    positional |= {"student_proba"}  # an array, beside the votes
    positional |= {"x", "y"}  # log_outcomes: places of two classes
    seen = 0
    for name, function in inspect.getmembers(module, inspect.isfunction):
        if name.startswith("_") or function.__module__ != module.__name__:
            continue
        for parameter in inspect.signature(function).parameters.values():
            assert parameter.kind is parameter.KEYWORD_ONLY or parameter.name in positional, (name, parameter.name)
        seen += 1
    assert seen >= 3
    with pytest.raises(TypeError):
        theorems.rdp_gnmax([-3.0], SIGMA, ORDERS)
