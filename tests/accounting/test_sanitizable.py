"""The tightened bound that is a function of q alone: its shape, and a slow transcription of its theorem."""

from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.oracles import gnmax as oracle

from terrine.accounting import theorems
from terrine.accounting.argmax import rdp_argmax, rdp_check
from terrine.accounting.theorems import MU_GRID, rdp_gnmax_sanitizable, rdp_threshold_sanitizable

ORDERS = np.array([17.5, 1.1, 2.0, 5.0, 64.0, 300.0, 4500.0])  # in no order, and one above the grid
BOTH = pytest.mark.parametrize(
    ("bound", "independent"),
    [(rdp_gnmax_sanitizable, rdp_argmax), (rdp_threshold_sanitizable, rdp_check)],
    ids=["gnmax", "threshold"],
)
SIGMAS = [1.0, 7.0, 40.0, 200.0]


def below_a_half(bound, log_q):
    """The threshold's q is the smaller side: at most a half."""
    return log_q if bound is rdp_gnmax_sanitizable else np.minimum(log_q, -math.log(2))


@BOTH
@pytest.mark.parametrize("sigma", SIGMAS)
def test_it_never_falls_as_q_grows_and_never_exceeds_the_worst_case(bound, independent, sigma):
    log_q = np.concatenate((-np.geomspace(1e5, 1e-12, 2500), np.linspace(-60, -0.001, 2500)))
    log_q = np.sort(below_a_half(bound, log_q))
    values = bound(log_q, sigma=sigma, orders=ORDERS)
    assert (values >= 0).all()
    assert (np.diff(values, axis=0) >= -1e-13 * values[1:]).all()
    worst = independent(sigma=sigma, orders=ORDERS)
    assert (values <= worst).all()
    assert values[-1] == pytest.approx(worst, rel=1e-12)
    assert (values[0] < 1e-3 * worst)[:5].all()  # and it helps


@BOTH
def test_the_ends(bound, independent):
    worst = independent(sigma=40, orders=ORDERS)
    sure, never = bound([-math.inf, 0.0], sigma=40, orders=ORDERS)
    assert (sure == 0).all()
    assert (never == (worst if bound is rdp_gnmax_sanitizable else 0)).all()  # a check that is always passed is sure


@given(st.lists(st.integers(0, 80), min_size=2, max_size=6).filter(any), st.sampled_from(SIGMAS), st.floats(-4, 4))
def test_it_bounds_the_forward_divergence(counts, sigma, position):
    orders = ORDERS[ORDERS < 1000]
    log_q = theorems.log_q_gaussian(counts, sigma=sigma)
    bound = rdp_gnmax_sanitizable(log_q, sigma=sigma, orders=orders)[0]
    for move in oracle.distinct_moves(counts):
        forward, _ = oracle.gnmax_divergence(counts, move, sigma=sigma, orders=orders)
        assert (forward <= bound * (1 + 1e-9) + 1e-14).all()
    threshold = max(counts) + position * sigma
    log_p = theorems.log_pr_answered([max(counts)], threshold=threshold, sigma=sigma)
    bound = rdp_threshold_sanitizable(log_p, sigma=sigma, orders=orders)[0]
    for shift in (1, -1):
        forward, _ = oracle.check_divergence(max(counts), shift, threshold=threshold, sigma=sigma, orders=orders)
        assert (forward <= bound * (1 + 1e-9) + 1e-14).all()


@mp.workdps(30)
def by_the_theorem(log_q, order, eps, independent):
    """The smallest bound over all pairs of the grid whose five conditions hold, and the worst case."""
    q, best = mp.exp(mp.mpf(log_q)), mp.mpf(independent)
    grid = [(mp.mpf(mu), mp.mpf(e)) for mu, e in zip(MU_GRID, eps, strict=True)]
    order = mp.mpf(order)
    for mu2, eps2 in grid:
        if not (q < 1 and mu2 > 1 and q * mp.exp(eps2) < 1):
            continue
        a = (1 - q) / (1 - (q * mp.exp(eps2)) ** (1 - 1 / mu2))
        first = (1 - q) * a ** (order - 1)
        for mu1, eps1 in grid:
            critical = mp.exp((mu2 - 1) * eps2) / (mu1 / (mu1 - 1) * mu2 / (mu2 - 1)) ** mu2
            if order <= mu1 and q <= critical:
                b = mp.exp(eps1) * q ** (-1 / (mu1 - 1))
                best = min(best, mp.log(first + q * b ** (order - 1)) / (order - 1))
    return float(best)


@BOTH
@pytest.mark.parametrize(
    ("sigma", "order", "log_q"),
    [(40, 17.5, -4), (40, 17.5, -1.2), (40, 2, -30), (40, 1.1, -9), (7, 5, -6), (1, 2, -12), (200, 64, -0.75)],
)
def test_against_a_slow_transcription(bound, independent, sigma, order, log_q):
    eps, worst = independent(sigma=sigma, orders=MU_GRID), independent(sigma=sigma, orders=[order])
    (value,) = bound([log_q], sigma=sigma, orders=[order])[0]
    assert value == pytest.approx(by_the_theorem(log_q, order, eps, worst[0]), rel=1e-9)
