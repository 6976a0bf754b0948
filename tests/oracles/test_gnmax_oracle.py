"""The quadrature oracle against mpmath, closed forms and its own symmetries."""

import mpmath as mp
import numpy as np
import pytest
from scipy.special import logsumexp
from tests.oracles.gnmax import (
    check_divergence,
    confident_divergence,
    distinct_moves,
    gnmax_divergence,
    gnmax_log_probabilities,
    gnmax_worst_divergence,
    moved,
    mp_gnmax_divergence,
    mp_gnmax_probabilities,
    mp_renyi_divergence,
)
from tests.soak import amount

ORDERS = [1.1, 2.0, 17.5, 100.0]


def relative_error(actual, expected):
    with mp.workdps(60):
        return max(abs(float(mp.mpf(float(x)) / y - 1)) for x, y in zip(actual, expected, strict=True))


def mp_two_classes(gap, sigma):
    """Both probabilities in closed form, 60 digits."""
    with mp.workdps(60):
        x = mp.mpf(gap) / (mp.mpf(sigma) * mp.sqrt(2))
        return [mp.ncdf(x), mp.ncdf(-x)]


def random_case(rng, *, n_classes):
    """Counts with gaps of up to some six sigma, and a move."""
    sigma = float(np.exp(rng.uniform(np.log(1), np.log(500))))
    counts = rng.integers(0, int(rng.uniform(0.1, 6) * sigma) + 2, n_classes)
    a, b = rng.choice(n_classes, 2, replace=False)
    counts[a] += 1
    return [int(count) for count in counts], (int(a), int(b)), sigma


@pytest.mark.parametrize(("n_classes", "n_cases"), amount([(2, 6), (3, 3), (4, 1)], soak=[(2, 14), (3, 5), (4, 1)]))
def test_random_divergences_equal_mpmath(n_classes, n_cases):
    rng = np.random.default_rng(n_classes)
    for _ in range(n_cases):
        counts, move, sigma = random_case(rng, n_classes=n_classes)
        actual = gnmax_divergence(counts, move, sigma=sigma, orders=ORDERS)
        expected = mp_gnmax_divergence(counts, move, sigma=sigma, orders=ORDERS, digits=20)
        assert relative_error(actual[0], expected[0]) < 1e-10, (counts, move, sigma)
        assert relative_error(actual[1], expected[1]) < 1e-10, (counts, move, sigma)


@pytest.mark.parametrize(
    ("counts", "move", "sigma"),
    [
        ([60, 3, 3], (0, 1), 4.0),  # confident: divergences of 1e-20
        ([60, 3, 3], (1, 2), 4.0),  # a move that does not touch the top
        ([1, 40, 30], (0, 1), 1.0),  # class 0 wins with probability e**-700
    ],
)
def test_hard_divergences_equal_mpmath_at_fifty_digits(counts, move, sigma):
    actual = gnmax_divergence(counts, move, sigma=sigma, orders=ORDERS)
    expected = mp_gnmax_divergence(counts, move, sigma=sigma, orders=ORDERS)
    assert relative_error(actual[0], expected[0]) < 1e-10
    assert relative_error(actual[1], expected[1]) < 1e-10


def test_mpmath_quadrature_equals_closed_form():
    for gap, sigma in [(7, 3.0), (30, 1.0)]:
        law = mp_gnmax_probabilities([gap, 0], sigma=sigma)
        assert all(abs(p / q - 1) < mp.mpf(10) ** -45 for p, q in zip(law, mp_two_classes(gap, sigma), strict=True))


@pytest.mark.parametrize(
    ("gap", "sigma"),
    [(0, 1), (5, 40), (250, 40), (5000, 40), (447, 1), (632, 1), (1, 500)],
)
def test_two_classes_probabilities_equal_closed_form(gap, sigma):
    log_p = gnmax_log_probabilities([0, gap], sigma=sigma)
    with mp.workdps(60):
        low = float(mp.log(mp_two_classes(gap, sigma)[1]))
    assert log_p[0] == pytest.approx(low, rel=1e-13)
    assert log_p[1] == pytest.approx(np.log1p(-np.exp(low)), rel=1e-11, abs=1e-14)


def test_two_classes_divergences_equal_closed_form():
    """From divergences of 1e4 (sigma 0.1) to log-ratios of 1e-5."""
    rng = np.random.default_rng(0)
    # A neighbour outside a narrow window; a tiny top ratio; cancellation in the left tail.
    cases = [(0.1, 0.3), (0.114, 0.315), (7576.429252002531, -10.10191510279361), (53400.0, 36.4), (9e4, 36.0)]
    for _ in range(50):
        sigma = np.exp(rng.uniform(np.log(0.1), np.log(1e5)))
        cases.append((sigma, rng.choice([1, 5, 20, 100]) * rng.normal()))
    for sigma, gap in cases:
        gap = gap * sigma
        p, q = mp_two_classes(gap, sigma), mp_two_classes(mp.mpf(gap) - 2, sigma)
        actual = gnmax_divergence([gap, 0], (0, 1), sigma=sigma, orders=ORDERS)
        with mp.workdps(2000 if abs(gap) > 15 * sigma else 100):
            p, q = ([x, 1 - x] if x < y else [1 - y, y] for x, y in (p, q))
            forward = [mp_renyi_divergence(p, q, order=order) for order in ORDERS]
            reverse = [mp_renyi_divergence(q, p, order=order) for order in ORDERS]
        for ours, exact in zip(actual, (forward, reverse), strict=True):
            assert ours == pytest.approx([float(x) for x in exact], rel=1e-11, abs=0)


@pytest.mark.parametrize("n_classes", [2, 3, 10, 40, 150])
def test_probabilities_sum_to_one(n_classes):
    rng = np.random.default_rng(n_classes)
    for spread in [1000.0] if n_classes == 150 else [0.0, 1.0, 10.0, 1000.0]:
        log_p = gnmax_log_probabilities(spread * rng.random(n_classes), sigma=30.0)
        assert abs(logsumexp(log_p)) < 1e-12


def test_probabilities_sum_to_one_with_astronomically_many_classes():
    for log10 in (2, 12, 100, 250):
        many = np.array([1.0, 1.0, 10.0**log10])
        for counts in ([0, 0, 0], [5, 6, 0], [38, 36, 0], [100, -20, 0]):
            log_p = gnmax_log_probabilities(counts, sigma=1.0, multiplicity=many)
            assert abs(logsumexp(log_p, b=many)) < 1e-12


def test_multiplicity_equals_repeated_classes():
    short = gnmax_divergence([9, 7, 4, 1], (0, 1), sigma=3.0, orders=ORDERS, multiplicity=[1, 1, 3, 2])
    long = gnmax_divergence([9, 7, 4, 4, 4, 1, 1], (0, 1), sigma=3.0, orders=ORDERS)
    np.testing.assert_allclose(short, long, rtol=1e-13)


def test_permuting_classes_changes_nothing():
    rng = np.random.default_rng(2)
    for n_classes in (3, 8, 20):
        counts = rng.integers(1, 60, n_classes)
        order = rng.permutation(n_classes)
        a, b = int(order[0]), int(order[1])
        np.testing.assert_allclose(
            gnmax_log_probabilities(counts[order], sigma=9.0),
            gnmax_log_probabilities(counts, sigma=9.0)[order],
            rtol=1e-13,
        )
        np.testing.assert_allclose(
            gnmax_divergence(counts[order], (0, 1), sigma=9.0, orders=ORDERS),
            gnmax_divergence(counts, (a, b), sigma=9.0, orders=ORDERS),
            rtol=1e-11,
        )


def test_moving_back_swaps_the_directions():
    rng = np.random.default_rng(3)
    for _ in range(20):
        sigma = np.exp(rng.uniform(0, 4))
        counts = sigma * 3 * rng.random(rng.integers(2, 12)) + 1
        there = gnmax_divergence(counts, (0, 1), sigma=sigma, orders=ORDERS)
        back = gnmax_divergence(moved(counts, (0, 1)), (1, 0), sigma=sigma, orders=ORDERS)
        np.testing.assert_allclose(there, back[::-1], rtol=1e-11)


def test_worst_divergence_covers_every_move_both_ways():
    counts = [5, 5, 3, 0, 0]
    every = [
        np.maximum(*gnmax_divergence(counts, (a, b), sigma=2.0, orders=ORDERS))
        for a in range(5)
        for b in range(5)
        if a != b and counts[a] >= 1
    ]
    worst = gnmax_worst_divergence(counts, sigma=2.0, orders=ORDERS)
    np.testing.assert_allclose(worst, np.max(every, axis=0), rtol=1e-13)
    assert len(distinct_moves(counts)) == 5  # 5>5, 5>3, 5>0, 3>5, 3>0; not from 0


@pytest.mark.parametrize(
    ("counts", "move", "threshold"),
    [([30, 20, 9], (0, 1), 25), ([30, 29, 0], (1, 0), 60), ([8, 8], (0, 1), 300)],
)
def test_confident_divergence_equals_mpmath_law_of_all_outcomes(counts, move, threshold):
    sigma_check, sigma_vote = 12.0, 5.0

    def law(counts):
        votes = mp_gnmax_probabilities(counts, sigma=sigma_vote, digits=20)
        with mp.workdps(400):
            x = (max(counts) - mp.mpf(threshold)) / sigma_check
            return [mp.ncdf(-x), *(mp.ncdf(x) * p / mp.fsum(votes) for p in votes)]

    p, q = law(counts), law([int(count) for count in moved(counts, move)])
    actual = confident_divergence(
        counts,
        move,
        threshold=threshold,
        sigma_check=sigma_check,
        sigma_vote=sigma_vote,
        orders=ORDERS,
    )
    with mp.workdps(400):
        expected = [[mp_renyi_divergence(x, y, order=order) for order in ORDERS] for x, y in ((p, q), (q, p))]
    assert relative_error(actual[0], expected[0]) < 1e-10
    assert relative_error(actual[1], expected[1]) < 1e-10


def test_check_is_two_class_gnmax_with_more_noise():
    """A gap of two classes moves by 2 under noise sqrt(2) sigma: a check at sigma."""
    for gap in (-90.0, 0.0, 3.0, 250.0):
        check = check_divergence(gap, -2, threshold=0, sigma=8 * np.sqrt(2), orders=ORDERS)
        vote = gnmax_divergence([gap, 0], (0, 1), sigma=8.0, orders=ORDERS)
        np.testing.assert_allclose(check, vote, rtol=1e-11)
