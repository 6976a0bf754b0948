"""Epsilon at a few orders for a search, and over all of them for what is found."""

from typing import Any

import numpy as np
import pytest

from terrine.accounting import near, planning
from terrine.accounting.argmax import ANCHORS, BEYOND, MARGIN, rdp_argmax, supremum_argmax
from terrine.accounting.near import epsilon_near, epsilon_over_all
from terrine.accounting.planning import evaluate, least_noise, plan
from terrine.datasets.synthetic import synthetic_votes
from terrine.mechanisms import ConfidentGNMax, GNMax

MECHANISMS = [
    (GNMax(sigma=1.387), 1),
    (GNMax(sigma=31.07), 184),
    (GNMax(sigma=3960.0), 200),
    (GNMax(sigma=40.0), 100_000),  # its best order is the smallest
    (ConfidentGNMax(threshold=40.0, sigma_check=25.39, sigma_vote=10.4), 81),
    (ConfidentGNMax(threshold=200.0, sigma_check=15_000.0, sigma_vote=4000.0), 50),
]


@pytest.mark.parametrize(("mechanism", "n"), MECHANISMS)
def test_near_the_best_order_it_is_what_all_orders_give(mechanism: GNMax | ConfidentGNMax, n: int) -> None:
    for delta in (1e-5, 1e-9):
        numbers = {"n_queries": n, "n_answered": n if isinstance(mechanism, GNMax) else n // 3, "delta": delta}
        assert epsilon_near(mechanism, **numbers) == pytest.approx(epsilon_over_all(mechanism, **numbers), rel=1e-10)


def test_part_of_a_search_finds_the_same() -> None:
    rng = np.random.default_rng(3)
    for anchors in (ANCHORS, BEYOND):
        orders = np.sort(rng.choice(anchors, 9, replace=False))
        for sigma in (9.93, 260.0):
            part = supremum_argmax(sigma=sigma, orders=orders, part_of=anchors) * (1 + MARGIN)
            whole = rdp_argmax(sigma=sigma, orders=orders)
            np.testing.assert_allclose(np.minimum(part, orders / sigma**2), whole, rtol=1e-10)


def test_it_finds_the_best_order_from_a_bad_start(monkeypatch) -> None:
    numbers = {"n_queries": 184, "n_answered": 184, "delta": 1e-5}
    right = epsilon_over_all(GNMax(sigma=31.07), **numbers)
    for wrong in (1e-3, 1e3):
        monkeypatch.setattr(near, "about_rdp", lambda sigma, order, wrong=wrong: wrong * order / sigma**2)
        assert epsilon_near(GNMax(sigma=31.07), **numbers) == pytest.approx(right, rel=1e-10)


def test_what_is_returned_meets_the_budget_whatever_the_search_said(monkeypatch) -> None:
    """A search that promises too much is not believed."""
    monkeypatch.setattr(planning, "epsilon_near", lambda *a, **k: 0.8 * epsilon_near(*a, **k))
    standin = synthetic_votes(n_queries=100, n_classes=3, n_teachers=60, consensus=0.9)
    numbers: Any = {"epsilon": 1.0, "delta": 1e-5}
    assert epsilon_over_all(least_noise(n_queries=5, **numbers), n_queries=5, n_answered=5, delta=1e-5) <= 1.0
    assert plan(standin=standin, **numbers).guarantee.epsilon <= 1.0
    given = ConfidentGNMax(threshold=30.0, sigma_check=40.0, sigma_vote=15.0)
    assert 0.8 < evaluate(given, standin=standin, **numbers).epsilon <= 1.0
