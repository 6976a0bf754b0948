"""The bridge to dp-accounting: same numbers on both sides, composed with its own events."""

from __future__ import annotations

import subprocess
import sys

import attr
import dp_accounting
import numpy as np
import pytest
from dp_accounting import rdp

from terrine.accounting.costs import worst_case_cost
from terrine.accounting.curves import ORDERS, RdpCurve, guarantee
from terrine.accounting.export import PateDpEvent, PateRdpAccountant
from terrine.errors import InputError
from terrine.mechanisms import ConfidentGNMax, GNMax, InteractiveGNMax, LNMax

CONFIDENT = ConfidentGNMax(threshold=200, sigma_check=150, sigma_vote=40)
EVENTS = {
    "lnmax": PateDpEvent(LNMax(scale=50), n_queries=100),
    "gnmax": PateDpEvent(GNMax(sigma=40), n_queries=300),
    "confident": PateDpEvent(CONFIDENT, n_queries=640, n_answered=283),
    "interactive": PateDpEvent(
        InteractiveGNMax(threshold=150, sigma_check=120, sigma_vote=50, student_confidence=0.9),
        n_queries=500,
        n_answered=100,
    ),
}
GAUSSIAN = dp_accounting.GaussianDpEvent(noise_multiplier=10.0)
DELTA = 1e-5


def curve(name: str) -> RdpCurve:
    event = EVENTS[name]
    return worst_case_cost(event.mechanism, n_queries=event.n_queries, n_answered=event.n_answered)


def epsilon_of(event: dp_accounting.DpEvent, count: int = 1) -> float:
    return PateRdpAccountant(orders=ORDERS).compose(event, count).get_epsilon(DELTA)


def test_an_event_is_frozen_and_compares_by_value() -> None:
    event = EVENTS["confident"]
    with pytest.raises(attr.exceptions.FrozenInstanceError):
        event.n_queries = 1
    assert event == PateDpEvent(CONFIDENT, n_queries=640, n_answered=283)
    assert event != PateDpEvent(CONFIDENT, n_queries=640, n_answered=284)
    assert isinstance(event, dp_accounting.DpEvent)


@pytest.mark.parametrize("name", EVENTS)
def test_epsilon_is_the_worst_cases_by_the_tight_conversion(name: str) -> None:
    assert epsilon_of(EVENTS[name]) == pytest.approx(guarantee(curve(name), delta=DELTA).epsilon, rel=1e-9)


def test_events_compose_with_each_other_and_with_googles() -> None:
    gaussian = RdpCurve(ORDERS, ORDERS / (2 * 10.0**2))
    total = curve("confident") * 3 + curve("gnmax") + gaussian * 2
    expected = guarantee(total, delta=DELTA).epsilon
    nested = dp_accounting.ComposedDpEvent(
        [
            dp_accounting.SelfComposedDpEvent(EVENTS["confident"], 3),
            EVENTS["gnmax"],
            dp_accounting.SelfComposedDpEvent(GAUSSIAN, 2),
            dp_accounting.NoOpDpEvent(),
        ]
    )
    assert epsilon_of(nested) == pytest.approx(expected, rel=1e-9)
    accountant = PateRdpAccountant(orders=ORDERS)
    accountant.compose(EVENTS["confident"], 3).compose(EVENTS["gnmax"]).compose(GAUSSIAN, 2)
    assert accountant.get_epsilon(DELTA) == pytest.approx(expected, rel=1e-9)


def test_a_count_outside_multiplies_a_count_inside() -> None:
    expected = guarantee(curve("gnmax") * 6, delta=DELTA).epsilon
    assert epsilon_of(dp_accounting.SelfComposedDpEvent(EVENTS["gnmax"], 2), 3) == pytest.approx(expected, rel=1e-9)


def test_its_own_orders_are_used() -> None:
    default = PateRdpAccountant().compose(EVENTS["gnmax"]).get_epsilon(DELTA)
    assert default == pytest.approx(guarantee(curve("gnmax"), delta=DELTA).epsilon, rel=0.01)
    coarse = PateRdpAccountant(orders=np.array([3.0, 4.0])).compose(EVENTS["gnmax"]).get_epsilon(DELTA)
    assert coarse > default


def test_asking_whether_it_is_supported_costs_nothing() -> None:
    accountant = PateRdpAccountant(orders=ORDERS)
    assert accountant.supports(EVENTS["confident"])
    assert accountant.supports(dp_accounting.ComposedDpEvent([EVENTS["confident"], GAUSSIAN]))
    assert accountant.get_epsilon(DELTA) == 0
    assert not accountant.supports(dp_accounting.UnsupportedDpEvent())


def test_googles_own_accountant_refuses_the_event() -> None:
    plain = rdp.RdpAccountant(orders=ORDERS)
    assert not plain.supports(EVENTS["confident"])
    with pytest.raises(dp_accounting.UnsupportedEventError):
        plain.compose(EVENTS["confident"])


def test_pate_under_poisson_sampling_is_not_supported() -> None:
    sampled = dp_accounting.PoissonSampledDpEvent(0.1, EVENTS["gnmax"])
    assert not PateRdpAccountant(orders=ORDERS).supports(sampled)


@pytest.mark.parametrize(
    "event", [PateDpEvent(CONFIDENT, n_queries=5, n_answered=6), PateDpEvent(GNMax(sigma=4), n_queries=-1)]
)
def test_impossible_numbers_are_refused_when_composed(event: PateDpEvent) -> None:
    accountant = PateRdpAccountant(orders=ORDERS)
    with pytest.raises(InputError, match=r"n_.* must be"):
        accountant.compose(event)
    assert accountant.get_epsilon(DELTA) == 0


def test_without_dp_accounting_the_error_says_what_to_install() -> None:
    code = "import sys; sys.modules['dp_accounting'] = None; import terrine; import terrine.accounting.export"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert run.returncode == 1
    assert "MissingDependencyError" in run.stderr.splitlines()[-1]
    assert "pip install 'terrine[dp-accounting]'" in run.stderr.splitlines()[-1]
    assert "During handling" not in run.stderr
