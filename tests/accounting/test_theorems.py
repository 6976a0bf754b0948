"""Every theorem against its statement written out in mpmath, and against the divergence itself where it is cheap."""

from __future__ import annotations

import math
from itertools import product

import mpmath as mp
import numpy as np
import pytest

from terrine.accounting import theorems

REAL = mp.mpf
CASES = 250  # random cases per oracle


def agree(got: float, expected: mp.mpf, *case: object) -> None:
    """Equal to ten digits, or both below what a double can hold."""
    if abs(expected) < 1e-300:
        assert 0 <= got <= 1e-299, case
    else:
        assert abs(REAL(float(got)) - expected) <= 1e-10 * abs(expected), (*case, float(got), mp.nstr(expected, 17))


def digits_for(log_q: float) -> mp.workdps:
    """50 significant digits even of (1 - q) - 1."""
    return mp.workdps(50 + int(abs(log_q) / math.log(10)))


def log_uniform(rng: np.random.Generator, low: float, high: float) -> float:
    return float(np.exp(rng.uniform(math.log(low), math.log(high))))


def histograms(rng: np.random.Generator) -> np.ndarray:
    """From near ties to near unanimity, up to 5,000 teachers and 150 classes."""
    n_classes = int(rng.choice([2, 3, 5, 10, 150]))
    n_teachers = int(log_uniform(rng, 1, 5000))
    return rng.multinomial(n_teachers, rng.dirichlet(np.full(n_classes, log_uniform(rng, 0.03, 10))))


def random_orders(rng: np.random.Generator, log_q: float, noise: float) -> list[float]:
    """One from 1.01 to a million, and one on either side of mu_1, where the theorem stops."""
    mu1 = noise * math.sqrt(-log_q) + 1
    return [1 + log_uniform(rng, 0.01, 1e6), max(1.01, mu1 * rng.uniform(0.3, 1.0)), max(1.01, mu1 * rng.uniform(1, 2))]


# The statements, from the paper's appendix.


def q_gaussian(counts: np.ndarray, sigma: float) -> mp.mpf:
    top, *others = sorted((int(n) for n in counts), reverse=True)
    q = sum(mp.erfc(REAL(top - n) / (2 * REAL(sigma))) for n in others) / 2
    return min(q, 1 - REAL(1) / len(counts))


def q_laplace(counts: np.ndarray, scale: float) -> mp.mpf:
    top, *others = sorted((int(n) for n in counts), reverse=True)
    gaps = [REAL(top - n) / REAL(scale) for n in others]
    return min(sum((2 + g) / (4 * mp.exp(g)) for g in gaps), 1 - REAL(1) / len(counts))


def data_dependent(q: mp.mpf, sigma: mp.mpf, order: float) -> tuple[mp.mpf, bool]:
    """Theorem 6 at the mu_1 and mu_2 of Proposition 10, or order/sigma², and whether the first was used."""
    order = REAL(order)
    plain = order / sigma**2
    mu2 = sigma * mp.sqrt(mp.log(1 / q))
    mu1 = mu2 + 1
    eps1, eps2 = mu1 / sigma**2, mu2 / sigma**2
    if not (q < 1 and mu1 >= order and mu2 > 1 and q * mp.exp(eps2) < 1):
        return plain, False
    if q > mp.exp((mu2 - 1) * eps2) / (mu1 / (mu1 - 1) * mu2 / (mu2 - 1)) ** mu2:
        return plain, False
    a = (1 - q) / (1 - (q * mp.exp(eps2)) ** ((mu2 - 1) / mu2))
    b = mp.exp(eps1) / q ** (1 / (mu1 - 1))
    bound = mp.log((1 - q) * a ** (order - 1) + q * b ** (order - 1)) / (order - 1)
    return min(bound, plain), bound < plain


def data_dependent_2017(q: mp.mpf, scale: float, order: float) -> mp.mpf:
    e, order = 2 / REAL(scale), REAL(order)
    pure = min(e**2 * order / 2, e)
    if q >= (mp.exp(e) - 1) / (mp.exp(2 * e) - 1):
        return pure
    first = (1 - q) * ((1 - q) / (1 - mp.exp(e) * q)) ** (order - 1)
    return min(pure, mp.log(first + q * mp.exp(e * (order - 1))) / (order - 1))


def log_phi(x: mp.mpf) -> mp.mpf:
    return mp.log(mp.erfc(-x / mp.sqrt(2)) / 2)


def quantile(log_p: mp.mpf) -> mp.mpf:
    """Where log Phi is log_p: a bisection, then Newton."""
    low, high = -mp.sqrt(-2 * log_p) - 10, REAL(12)
    for _ in range(20):
        middle = (low + high) / 2
        low, high = (middle, high) if log_phi(middle) < log_p else (low, middle)
    for _ in range(7):
        low -= (log_phi(low) - log_p) * mp.exp(log_phi(low)) / mp.npdf(low)
    return low


# Oracles


@mp.workdps(50)
def test_log_q_gaussian_is_proposition_7() -> None:
    rng = np.random.default_rng(1)
    for _ in range(CASES):
        counts, sigma = histograms(rng), log_uniform(rng, 0.5, 500)
        agree(-theorems.log_q_gaussian(counts, sigma=sigma)[0], -mp.log(q_gaussian(counts, sigma)), counts, sigma)


@mp.workdps(50)
def test_log_q_laplace_is_lemma_4_of_2017() -> None:
    rng = np.random.default_rng(2)
    for _ in range(CASES):
        counts, scale = histograms(rng), log_uniform(rng, 0.5, 500)
        agree(-theorems.log_q_laplace(counts, scale=scale)[0], -mp.log(q_laplace(counts, scale)), counts, scale)


def test_rdp_gnmax_is_theorem_6() -> None:
    rng, used = np.random.default_rng(3), 0
    for _ in range(CASES):
        log_q, sigma = -log_uniform(rng, 0.001, 4000), log_uniform(rng, 0.5, 500)
        orders = random_orders(rng, log_q, sigma)
        got = theorems.rdp_gnmax(log_q, sigma=sigma, orders=orders)[0]
        with digits_for(log_q):
            for order, bound in zip(orders, got, strict=True):
                expected, better = data_dependent(mp.exp(REAL(log_q)), REAL(sigma), order)
                agree(bound, expected, log_q, sigma, order)
                used += better
    assert used > CASES / 2  # both branches are on trial


def test_rdp_threshold_is_theorem_6_at_sqrt_2_sigma() -> None:
    rng, used = np.random.default_rng(4), 0
    for case in range(CASES):
        # answered hardly ever, or almost surely
        log_p = -log_uniform(rng, 0.001, 4000) if case % 2 else -log_uniform(rng, 1e-290, 1)
        sigma = log_uniform(rng, 0.5, 500)
        log_q = min(log_p, float(theorems.log1mexp(log_p)))
        orders = random_orders(rng, log_q, sigma * math.sqrt(2))
        got = theorems.rdp_threshold(log_p, sigma=sigma, orders=orders)[0]
        with digits_for(2 * log_q):
            p = mp.exp(REAL(log_p))
            for order, bound in zip(orders, got, strict=True):
                expected, better = data_dependent(min(p, 1 - p), mp.sqrt(2) * REAL(sigma), order)
                agree(bound, expected, log_p, sigma, order)
                used += better
    assert used > CASES / 2


def test_rdp_lnmax_is_theorem_3_of_2017() -> None:
    rng, used = np.random.default_rng(5), 0
    for case in range(2 * CASES):
        log_q, scale = -log_uniform(rng, 0.01, 4000), log_uniform(rng, 0.5, 500)
        order = 1 + log_uniform(rng, 0.01, 0.02 if case % 2 else 1e6)  # near order 1 the terms cancel most
        got = theorems.rdp_lnmax(log_q, scale=scale, orders=order)[0, 0]
        with digits_for(log_q):
            expected = data_dependent_2017(mp.exp(REAL(log_q)), scale, order)
            agree(got, expected, log_q, scale, order)
        used += got < theorems.rdp_pure(epsilon=2 / scale, orders=order)[0]
    assert used > CASES


@mp.workdps(50)
def test_log_upper_and_log_lower_are_proposition_21() -> None:
    rng = np.random.default_rng(6)
    for _ in range(CASES):
        log_q, sigma = -log_uniform(rng, 1e-6, 4000), log_uniform(rng, 0.5, 500)
        m = int(rng.choice([2, 3, 10, 150]))
        here = quantile(REAL(log_q) - mp.log(m - 1))
        for bound, sign in ((theorems.log_upper, 1), (theorems.log_lower, -1)):
            expected = mp.log(m - 1) + log_phi(here + sign * mp.sqrt(2) / REAL(sigma))
            got = bound(log_q, sigma=sigma, n_classes=m)[0]
            agree(-got, max(-expected, REAL(0)) if sign > 0 else -expected, sign, log_q, sigma, m)


@pytest.mark.parametrize("bound", [theorems.log_upper, theorems.log_lower])
def test_one_moved_vote_stays_between_log_lower_and_log_upper(bound: object) -> None:
    rng = np.random.default_rng(7)
    sign = 1 if bound is theorems.log_upper else -1
    for _ in range(CASES):
        counts, sigma = histograms(rng), log_uniform(rng, 0.5, 500)
        a, b = rng.choice(np.flatnonzero(counts)), rng.integers(counts.size)
        moved = counts.copy()
        moved[a] -= 1
        moved[b] += 1
        here, there = (theorems.log_q_gaussian(n, sigma=sigma)[0] for n in (counts, moved))
        limit = bound(here, sigma=sigma, n_classes=counts.size)[0]
        assert sign * (limit - there) >= -1e-10 * abs(there), (counts, a, b, sigma)


def test_log_q0_separates_the_two_bounds() -> None:
    rng = np.random.default_rng(8)
    for _ in range(60):
        sigma, order = log_uniform(rng, 2, 500), 1 + log_uniform(rng, 0.01, 100)
        q0 = theorems.log_q0(sigma=sigma, order=order)
        with digits_for(2 * q0):
            for side, log_q in ((True, q0 * (1 + 1e-6)), (False, q0 * (1 - 1e-6))):
                assert data_dependent(mp.exp(REAL(log_q)), REAL(sigma), order)[1] is side, (sigma, order, side)
        below, above = q0 * np.geomspace(1.0001, 100, 40), q0 * np.linspace(0, 0.9999, 40)
        plain = order / sigma**2
        assert (theorems.rdp_gnmax(below, sigma=sigma, orders=order) < plain).all(), (sigma, order)
        assert (theorems.rdp_gnmax(above, sigma=sigma, orders=order) >= plain * (1 - 1e-12)).all(), (sigma, order)


def renyi(p: np.ndarray, q: np.ndarray, order: float) -> np.ndarray:
    """D_order between laws along the first axis."""
    return np.log((p**order * q ** (1 - order)).sum(axis=0)) / (order - 1)


def test_bounds_hold_for_two_classes_where_the_law_is_known() -> None:
    """D(M(n) ‖ M(n')) itself, two outcomes, either class losing a vote: no bound may be below it."""
    gaps = np.arange(2, 251, 3)
    counts = np.stack((200 + gaps, np.full_like(gaps, 200)), axis=1)
    phi = np.vectorize(lambda x: math.erfc(-x / math.sqrt(2)) / 2)

    def laplace(gap: np.ndarray) -> np.ndarray:
        return (2 + gap / 20) / (4 * np.exp(gap / 20))

    losing = {  # probability of the less likely outcome, by gap
        "gnmax": (lambda gap: phi(-gap / (40 * math.sqrt(2))), 2),
        "check": (lambda gap: phi(-gap / 40), 1),
        "lnmax": (laplace, 2),
    }
    for order in (1.1, 2.0, 5.0, 14.0):
        log_answered = theorems.log_pr_answered(gaps, threshold=0, sigma=40)
        log_q = theorems.log_q_gaussian(counts, sigma=40)
        bounds = {
            "gnmax": [f(log_q, sigma=40, orders=order) for f in (theorems.rdp_gnmax, theorems.rdp_gnmax_sanitizable)],
            "check": [
                f(log_answered, sigma=40, orders=order)
                for f in (theorems.rdp_threshold, theorems.rdp_threshold_sanitizable)
            ],
            "lnmax": [theorems.rdp_lnmax(theorems.log_q_laplace(counts, scale=20), scale=20, orders=order)],
        }
        for name, (q, step) in losing.items():
            here, *there = (np.stack((q(gaps + move), 1 - q(gaps + move))) for move in (0, -step, step))
            for law, bound in product(there, bounds[name]):
                assert (renyi(here, law, order) <= bound[:, 0] * (1 + 1e-6) + 1e-13).all(), (name, order)
