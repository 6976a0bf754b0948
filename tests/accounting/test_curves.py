"""Rényi curves: composition, and conversion against Google's dp_accounting."""

from __future__ import annotations

import math
import warnings
from dataclasses import FrozenInstanceError

import dp_accounting
import numpy as np
import pytest
from dp_accounting import rdp as google
from hypothesis import given
from hypothesis import strategies as st

from terrine.accounting.costs import worst_case_cost
from terrine.accounting.curves import ORDERS, RdpCurve, guarantee, round_up
from terrine.errors import DeltaWarning, InputError, OrderGridWarning, SecretError
from terrine.mechanisms import GNMax
from terrine.relations import Relation
from terrine.sensitive import Sensitive


def gaussian(sigma: float, orders: np.ndarray = ORDERS) -> RdpCurve:
    return RdpCurve(orders, orders / sigma**2, "gaussian")


# Composition


def test_the_grid_is_the_papers() -> None:
    assert ORDERS.size == 298
    assert ORDERS.min() == 2
    assert ORDERS.max() == pytest.approx(500)
    assert {2.5, 14.0, 100.5} <= set(ORDERS)


def test_sum_and_multiple_add_epsilons() -> None:
    a, b = gaussian(40.0), gaussian(150.0)
    assert (a + b).epsilons == pytest.approx(ORDERS / 1600 + ORDERS / 22500, rel=1e-15)
    assert (a * 3).epsilons == pytest.approx((a + a + a).epsilons, rel=1e-15)
    assert (3 * a).epsilons == pytest.approx((a * np.int64(3)).epsilons, rel=1e-15)
    assert ((a + b).orders == ORDERS).all()


def test_basis_travels_and_is_not_said_twice() -> None:
    a, b = gaussian(40.0), RdpCurve(ORDERS, ORDERS / 9, "other")
    assert (a + a).basis == "gaussian"
    assert (a + b).basis == "gaussian; other"
    assert (a * 7).basis == "gaussian"


def test_nothing_known_stays_unknown_and_zero_times_it_is_nothing() -> None:
    unknown = RdpCurve([2.0, 3.0], [math.inf, 1.0])
    assert (unknown * 2).epsilons.tolist() == [math.inf, 2.0]
    assert (unknown + unknown).epsilons.tolist() == [math.inf, 2.0]
    assert (unknown * 0).epsilons.tolist() == [0.0, 0.0]


def test_different_orders_are_refused() -> None:
    for other in (RdpCurve([2.0, 3.5], [1.0, 1.0]), RdpCurve([2.0], [1.0]), RdpCurve([3.0, 2.0], [1.0, 1.0])):
        with pytest.raises(InputError, match="different orders"):
            RdpCurve([2.0, 3.0], [1.0, 1.0]) + other


@pytest.mark.parametrize("times", [-1, 1.5, True, math.nan, "2"])
def test_only_whole_multiples(times: object) -> None:
    with pytest.raises(InputError, match="times must be"):
        gaussian(40.0) * times


def test_a_curve_adds_to_curves_only() -> None:
    for other in (1.0, ORDERS):
        with pytest.raises(TypeError):
            gaussian(40.0) + other
    with pytest.raises(SecretError):
        gaussian(40.0) + Sensitive(gaussian(40.0))


def test_curves_are_immutable_copies() -> None:
    orders, epsilons = np.array([2.0, 3.0]), np.array([1.0, 2.0])
    curve = RdpCurve(orders, epsilons)
    orders[0], epsilons[0] = 50.0, 0.0
    assert curve.orders.tolist() == [2.0, 3.0]
    assert curve.epsilons.tolist() == [1.0, 2.0]
    for array in (curve.orders, curve.epsilons, ORDERS):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0.0
    with pytest.raises(FrozenInstanceError):
        curve.epsilons = epsilons


@pytest.mark.parametrize("epsilons", [[1.0], [1.0, -1e-9], [1.0, math.nan], [[1.0, 2.0]]])
def test_epsilons_that_are_no_bounds_are_refused(epsilons: list[float]) -> None:
    with pytest.raises(InputError, match=r"one number per order|Every epsilon must be"):
        RdpCurve([2.0, 3.0], epsilons)


# Conversion


def test_tight_conversion_is_dp_accountings() -> None:
    rng = np.random.default_rng(1)
    for case in range(300):
        slope, delta = 10 ** rng.uniform(-5, 2), 10 ** rng.uniform(-12, -1)
        orders = np.sort(1 + 10 ** rng.uniform(-1.9, 3, size=40))
        epsilons = slope * orders * rng.uniform(0.5, 1.5, orders.size)
        epsilons[rng.random(orders.size) < 0.1] = math.inf
        epsilons += 2 * delta**2  # below delta² dp_accounting uses another bound
        expected, order = google.compute_epsilon(orders, epsilons, delta)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", OrderGridWarning)
            got = guarantee(RdpCurve(orders, epsilons), delta=delta)
        assert got.epsilon == pytest.approx(expected, rel=1e-9), case
        assert got.epsilon >= expected, case
        assert expected == 0 or got.order == order, case


@pytest.mark.parametrize("sigma", [5.0, 40.0, 300.0])
@pytest.mark.parametrize("n_queries", [1, 100, 5000])
def test_gaussian_worst_case_is_dp_accountings_with_sqrt_2_sensitivity(sigma: float, n_queries: int) -> None:
    accountant = google.RdpAccountant(orders=ORDERS)
    accountant.compose(dp_accounting.GaussianDpEvent(noise_multiplier=sigma / math.sqrt(2)), n_queries)
    expected = accountant.get_epsilon(1e-6)
    curve = worst_case_cost(GNMax(sigma=sigma), n_queries=n_queries, bound="gaussian")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OrderGridWarning)
        assert guarantee(curve, delta=1e-6).epsilon == pytest.approx(expected, rel=1e-9)


def test_classic_conversion_is_the_papers() -> None:
    orders = np.arange(2.0, 60.0)
    expected = min(e / 1600 * 300 + math.log(1e5) / (e - 1) for e in orders)
    got = guarantee(RdpCurve(orders, 300 * orders / 1600), delta=1e-5, conversion="classic")
    assert got.epsilon == pytest.approx(expected, rel=1e-11)
    assert got.epsilon > guarantee(RdpCurve(orders, 300 * orders / 1600), delta=1e-5).epsilon


@given(
    rdp=st.floats(0, 1e-3),
    order=st.floats(1.001, 1e6),
    delta=st.floats(1e-300, 1, exclude_max=True),
    conversion=st.sampled_from(["tight", "classic"]),
)
def test_epsilon_is_never_negative(rdp: float, order: float, delta: float, conversion: str) -> None:
    assert guarantee(RdpCurve([order], [rdp]), delta=delta, conversion=conversion).epsilon >= 0


def test_the_tight_formula_does_go_below_zero_and_is_cut_there() -> None:
    assert math.log1p(-1 / 2) - (math.log(0.9) + math.log(2)) / 1 < 0
    assert guarantee(RdpCurve([2.0], [0.0]), delta=0.9).epsilon == 0


def test_what_costs_nothing_at_any_order_is_0_dp() -> None:
    assert guarantee(gaussian(40.0) * 0, delta=1e-5).epsilon == 0


def test_what_a_guarantee_says() -> None:
    got = guarantee(gaussian(40.0), delta=1e-5)
    assert (got.basis, got.relation, got.delta, got.notes) == ("gaussian", Relation.ONE_TEACHER, 1e-5, ())
    assert str(got).startswith(f"({round_up(got.epsilon)}, 1e-05)-DP [gaussian; ")
    assert guarantee(gaussian(40.0), delta=1e-5, relation="mine").relation.sentence == "mine"


@pytest.mark.parametrize("delta", [0, 1, -0.1, 2, math.nan, "1e-5"])
def test_delta_outside_0_1_is_refused(delta: object) -> None:
    with pytest.raises(InputError, match="delta must be"):
        guarantee(gaussian(40.0), delta=delta)


def test_delta_has_no_default_and_conversions_are_two() -> None:
    with pytest.raises(TypeError, match="delta"):
        guarantee(gaussian(40.0))
    with pytest.raises(InputError, match="tight, classic"):
        guarantee(gaussian(40.0), delta=1e-5, conversion="loose")


# Warnings


@pytest.mark.parametrize(("sigma", "edge"), [(0.1, "2"), (1e5, "500")])
def test_a_best_order_at_the_edge_warns_for_a_public_curve(sigma: float, edge: str) -> None:
    with pytest.warns(OrderGridWarning, match=f"The best order, {edge}, is at the edge"):
        got = guarantee(gaussian(sigma), delta=1e-5)
    assert "edge of the grid" in got.notes[0]


def test_a_secret_curve_gets_the_note_and_no_warning() -> None:
    got = guarantee(Sensitive(gaussian(0.1)), delta=1e-5)  # a warning would be an error here
    assert isinstance(got, Sensitive)
    assert "edge of the grid" in got.reveal().notes[0]


def test_a_secret_curve_gives_the_same_guarantee_wrapped() -> None:
    for conversion in ("tight", "classic"):
        secret = guarantee(Sensitive(gaussian(40.0)), delta=1e-5, conversion=conversion, relation="mine")
        assert secret.reveal() == guarantee(gaussian(40.0), delta=1e-5, conversion=conversion, relation="mine")


def test_one_order_has_no_edge() -> None:
    assert guarantee(RdpCurve([2.0], [100.0]), delta=1e-5).notes == ()


@pytest.mark.parametrize("wrap", [lambda curve: curve, Sensitive], ids=["public", "secret"])
def test_a_delta_that_lets_a_record_out_warns(wrap: object) -> None:
    """n_records and delta are public: the warning comes for secret curves too."""
    with pytest.warns(DeltaWarning, match="not below 1/1000"):
        got = guarantee(wrap(gaussian(40.0)), delta=1e-3, n_records=1000)
    notes = got.reveal().notes if isinstance(got, Sensitive) else got.notes
    assert len(notes) == 1
    guarantee(wrap(gaussian(40.0)), delta=0.99e-3, n_records=1000)
    with pytest.raises(InputError, match="n_records"):
        guarantee(gaussian(40.0), delta=1e-3, n_records=0)


# Printing


@given(st.floats(0, 1e9), st.integers(0, 6))
def test_round_up_is_never_below_and_less_than_a_step_above(value: float, digits: int) -> None:
    printed = round_up(value, digits)
    assert value <= float(printed) <= value + 1.001 * 10**-digits
    assert len(printed.partition(".")[2]) == digits


@pytest.mark.parametrize(
    ("value", "printed"),
    [
        (2.1411, "2.142"),
        (2.142, "2.142"),
        (0.0, "0.000"),
        (1e-12, "0.001"),
        (0.1 + 0.2, "0.301"),
        (math.inf, "inf"),
        (0.043000000000000003, "0.044"),
    ],
)
def test_round_up_examples(value: float, printed: str) -> None:
    assert round_up(value) == printed


def test_round_up_of_the_largest_double() -> None:
    assert float(round_up(1.7e308)) >= 1.7e308
