"""Logs of costs that underflow: against mpmath with as many digits as q needs, against the plain costs, the ends."""

from __future__ import annotations

import math
from functools import partial

import mpmath as mp
import numpy as np
import pytest

from terrine.accounting.argmax import rdp_argmax, rdp_check
from terrine.accounting.theorems import (
    MU_GRID,
    log_rdp_gnmax,
    log_rdp_sanitizable,
    rdp_gnmax,
    rdp_gnmax_sanitizable,
)
from terrine.errors import InputError

PRECISION = 1e-12  # of a log cost, relative where it is beyond 1; 4e-15 was seen
SIGMAS = (1.0, 7.0, 40.0, 200.0)
BOTH = pytest.mark.parametrize("rdp", [rdp_argmax, rdp_check], ids=["gnmax", "threshold"])


def digits(log_q: float) -> int:
    """Enough to tell 1 + q from 1, and 60 more."""
    return 60 + int(-log_q / math.log(10))


def log_of_bound(q: mp.mpf, order: mp.mpf, first: mp.mpf, second: mp.mpf) -> mp.mpf:
    """log of log((1-q) A^(order-1) + q B^(order-1))/(order-1), from the two terms."""
    return mp.log(mp.log(first + second) / (order - 1))


def paper(log_q: float, sigma: float, order: float) -> float:
    """[PATE18, Thm. 6] with the mu of [PATE18, Prop. 10], its five conditions, and the worst case."""
    with mp.workdps(digits(log_q)):
        q, sigma, order = mp.exp(mp.mpf(log_q)), mp.mpf(sigma), mp.mpf(order)
        worst = mp.log(order / sigma**2)
        mu2 = sigma * mp.sqrt(-mp.mpf(log_q))
        mu1 = mu2 + 1
        eps1, eps2 = mu1 / sigma**2, mu2 / sigma**2
        if not (q < 1 and mu1 >= order and mu2 > 1 and q * mp.exp(eps2) < 1):
            return float(worst)
        if q > mp.exp((mu2 - 1) * eps2) / (mu1 / (mu1 - 1) * mu2 / (mu2 - 1)) ** mu2:
            return float(worst)
        a = (1 - q) / (1 - (q * mp.exp(eps2)) ** (1 - 1 / mu2))
        b = mp.exp(eps1) / q ** (1 / (mu1 - 1))
        return float(min(worst, log_of_bound(q, order, (1 - q) * a ** (order - 1), q * b ** (order - 1))))


def sanitizable(log_q: float, order: float, eps: np.ndarray, worst: float) -> float:
    """The same, the best of all pairs of the grid whose conditions hold."""
    with mp.workdps(digits(log_q)):
        q, order = mp.exp(mp.mpf(log_q)), mp.mpf(order)
        grid = [(mp.mpf(float(mu)), mp.mpf(float(e))) for mu, e in zip(MU_GRID, eps, strict=True)]
        seconds = {mu: q * (mp.exp(e) / q ** (1 / (mu - 1))) ** (order - 1) for mu, e in grid if mu >= order}
        best = mp.inf
        for mu2, eps2 in grid:
            if not q * mp.exp(eps2) < 1:
                continue
            a = (1 - q) / (1 - (q * mp.exp(eps2)) ** (1 - 1 / mu2))
            first = (1 - q) * a ** (order - 1)
            for mu1, second in seconds.items():
                if first + second < best:
                    with mp.workdps(40):
                        allowed = (mu2 - 1) * eps2 - mu2 * mp.log(mu1 / (mu1 - 1) * mu2 / (mu2 - 1))
                    if log_q <= allowed:
                        best = first + second
        worst = mp.log(worst)
        return float(worst if best == mp.inf else min(worst, mp.log(mp.log(best) / (order - 1))))


def samples(n: int, seed: int) -> list[tuple[float, float, float]]:
    """log q, sigma, order over all their ranges, evenly on log scales."""
    rng = np.random.default_rng(seed)
    draw = lambda low, high: np.exp(rng.uniform(np.log(low), np.log(high), n))  # noqa: E731
    return list(zip(-draw(1e-3, 4000), draw(1, 300), 1 + draw(0.1, 199), strict=True))


def close(value: float, reference: float) -> bool:
    return abs(value - reference) <= PRECISION * max(1.0, abs(reference))


def test_the_papers_bound_against_mpmath() -> None:
    helped = 0
    for log_q, sigma, order in samples(300, seed=1):
        (value,) = log_rdp_gnmax([log_q], sigma=sigma, order=order)
        reference = paper(log_q, sigma, order)
        assert close(value, reference), (log_q, sigma, order)
        helped += reference < math.log(order / sigma**2)
    assert helped > 110


@BOTH
def test_the_sanitizable_bound_against_mpmath(rdp) -> None:
    helped = 0
    for i, (log_q, _, order) in enumerate(samples(24, seed=2)):
        sigma = SIGMAS[i % len(SIGMAS)]
        eps, (worst,) = rdp(sigma=sigma, orders=MU_GRID), rdp(sigma=sigma, orders=[order])
        value = log_rdp_sanitizable([log_q], rdp=partial(rdp, sigma=sigma), orders=order)[0, 0]
        reference = sanitizable(log_q, order, eps, worst)
        assert close(value, reference), (log_q, sigma, order)
        helped += reference < math.log(worst)
    assert helped > 6


@pytest.mark.parametrize("sigma", SIGMAS)
def test_they_are_the_logs_of_the_plain_costs(sigma: float) -> None:
    log_q = -np.geomspace(1e-3, 4000, 500)
    for order in (1.1, 2.0, 7.5, 20.5, 64.0, 200.0):
        pairs = [
            (log_rdp_gnmax(log_q, sigma=sigma, order=order), rdp_gnmax(log_q, sigma=sigma, orders=order)[:, 0]),
            (
                log_rdp_sanitizable(log_q, rdp=partial(rdp_argmax, sigma=sigma), orders=[order])[:, 0],
                rdp_gnmax_sanitizable(log_q, sigma=sigma, orders=order)[:, 0],
            ),
        ]
        for logs, costs in pairs:
            visible = costs > 1e-6
            assert visible.sum() > 30
            assert np.exp(logs[visible]) == pytest.approx(costs[visible], rel=1e-9)
            assert (logs[~visible] < math.log(1.01e-6)).all()
            assert np.isfinite(logs).all()


@BOTH
@pytest.mark.parametrize("sigma", SIGMAS)
def test_the_sanitizable_bound_grows_with_q(rdp, sigma: float) -> None:
    orders = np.array([20.5, 1.1, 7.5, 200.0])
    log_q = -np.geomspace(2e4, 1e-9, 4200)  # more than one chunk
    logs = log_rdp_sanitizable(log_q, rdp=partial(rdp, sigma=sigma), orders=orders)
    assert logs.shape == (4200, 4)
    assert (np.diff(logs, axis=0) >= -1e-12 * np.maximum(1, np.abs(logs[1:]))).all()
    assert logs[-1] == pytest.approx(np.log(rdp(sigma=sigma, orders=orders)), rel=1e-12)
    assert (logs[0, 1:3] < -1000).all()


def test_several_orders_are_those_one_by_one() -> None:
    log_q, rdp = [-0.5, -3.0, -700.0, 0.0, -math.inf], partial(rdp_argmax, sigma=40)
    together = log_rdp_sanitizable(log_q, rdp=rdp, orders=[20.5, 2, 4500])
    alone = [log_rdp_sanitizable(log_q, rdp=rdp, orders=order)[:, 0] for order in (20.5, 2, 4500)]
    assert (together == np.stack(alone, axis=1)).all()


def test_the_ends() -> None:
    never, sure = log_rdp_gnmax([0.0, -math.inf], sigma=40, order=7.5)
    assert never == math.log(7.5 / 40**2)
    assert sure == -math.inf
    for rdp in rdp_argmax, rdp_check:
        never, sure = log_rdp_sanitizable([0.0, -math.inf], rdp=partial(rdp, sigma=40), orders=[7.5])[:, 0]
        assert never == np.log(rdp(sigma=40, orders=[7.5]))[0]
        assert sure == -math.inf
    # nearly 1, subnormal, and beyond
    extremes = [-5e-324, -1e-300, -1e-20, -744.4, -1e6, -1e300]
    for logs in (
        log_rdp_gnmax(extremes, sigma=40, order=7.5),
        log_rdp_sanitizable(extremes, rdp=partial(rdp_argmax, sigma=40), orders=7.5)[:, 0],
    ):
        assert np.isfinite(logs).all()
        assert (np.diff(logs) <= 0).all()
    assert log_rdp_gnmax([], sigma=40, order=2).shape == (0,)
    assert log_rdp_sanitizable([], rdp=partial(rdp_argmax, sigma=40), orders=[2, 3]).shape == (0, 2)


@pytest.mark.parametrize("order", [1.0, 0.5, -2.0, math.nan, math.inf])
def test_orders_of_at_most_1_are_refused(order: float) -> None:
    with pytest.raises(InputError, match="order"):
        log_rdp_gnmax([-3.0], sigma=40, order=order)
    with pytest.raises(InputError, match="order"):
        log_rdp_sanitizable([-3.0], rdp=partial(rdp_argmax, sigma=40), orders=order)


@pytest.mark.parametrize("sigma", [0.0, -1.0, math.nan, math.inf])
def test_bad_sigma_is_refused(sigma: float) -> None:
    with pytest.raises(InputError, match="sigma"):
        log_rdp_gnmax([-3.0], sigma=sigma, order=2)
    with pytest.raises(InputError, match="sigma"):
        log_rdp_sanitizable([-3.0], rdp=partial(rdp_argmax, sigma=sigma), orders=2)


@pytest.mark.parametrize("log_q", [[0.1], [math.nan], [[-1.0]]])
def test_what_is_no_log_probability_is_refused(log_q) -> None:
    with pytest.raises(InputError, match="log_q"):
        log_rdp_gnmax(log_q, sigma=40, order=2)
    with pytest.raises(InputError, match="log_q"):
        log_rdp_sanitizable(log_q, rdp=partial(rdp_argmax, sigma=40), orders=2)
