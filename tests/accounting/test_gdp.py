"""What noisy sums cost, against mpmath, dp-accounting, Opacus and brute force with the law that is drawn."""

from __future__ import annotations

import itertools
import math

import mpmath
import numpy as np
import pytest

from terrine.accounting.curves import ORDERS
from terrine.accounting.gdp import (
    LEAST_NOISE,
    GaussianSteps,
    gaussian_delta,
    lattice_distance,
    lattice_ratios,
    least_step_noise,
)
from terrine.errors import InputError, PlanError
from terrine.training_budget import TrainingBudget

# (mu, epsilon): from what a training has to what nobody would train with
PAIRS = [*itertools.product([1e-6, 1e-3, 0.03, 0.25, 1.0, 4.0, 20.0], [0.0, 1e-6, 0.1, 1.0, 8.0, 60.0])]


def exact_delta(mu, epsilon):
    with mpmath.workdps(60):
        mu, epsilon = mpmath.mpf(mu), mpmath.mpf(epsilon)
        return mpmath.ncdf(-epsilon / mu + mu / 2) - mpmath.exp(epsilon) * mpmath.ncdf(-epsilon / mu - mu / 2)


@pytest.mark.parametrize(("mu", "epsilon"), PAIRS)
def test_delta_is_never_below_the_truth_and_close_to_it(mu, epsilon):
    found, truth = gaussian_delta(mu=mu, epsilon=epsilon), exact_delta(mu, epsilon)
    if truth < mpmath.mpf("1e-300"):
        assert 0 <= found < 1e-290
        return
    assert truth <= found
    with mpmath.workdps(60):  # the rounding is of a logarithm, so that it shows in the far tail
        width = 1 + epsilon + 2 * (epsilon / mu + mu / 2) ** 2
        assert mpmath.log(found / truth) < 1e-12 * width * (1 + 1 / mu) * (1 + epsilon / mu)


def discrete(noise, reach):
    x = np.arange(-reach, reach + 1)
    masses = np.exp(-(x**2) / (2 * noise**2))
    return masses / masses.sum()


def rounded(noise, reach):
    x = [mpmath.mpf(k) for k in range(-reach, reach + 1)]
    return np.array([float(mpmath.ncdf((k + 0.5) / noise) - mpmath.ncdf((k - 0.5) / noise)) for k in x])


@pytest.mark.parametrize("noise", [1.0, 1.5, 3.0, 10.0, 40.0])
def test_the_distance_of_the_lattice_bounds_the_truth_and_is_not_three_times_it(noise):
    reach = int(12 * noise)
    truth = np.maximum(discrete(noise, reach) - rounded(noise, reach), 0).sum()
    assert truth <= lattice_distance(noise)
    assert truth >= 0.35 * lattice_distance(noise)
    if noise >= 10:
        assert truth == pytest.approx(0.0202 / noise**2, abs=1e-4 / noise**2)


@pytest.mark.parametrize("noise", [1.0, 1.5, 3.0, 10.0, 40.0])
def test_the_ratios_of_the_lattice_bound_the_truth(noise):
    reach = int(9 * noise)
    with mpmath.workdps(40):
        found = np.array(
            [
                mpmath.log(mpmath.ncdf((k + 0.5) / noise) - mpmath.ncdf((k - 0.5) / noise))
                for k in map(mpmath.mpf, range(-reach, reach + 1))
            ]
        )
        total = mpmath.nsum(lambda k: mpmath.exp(-(k**2) / (2 * mpmath.mpf(noise) ** 2)), [-mpmath.inf, mpmath.inf])
        drawn = np.array(
            [-(mpmath.mpf(k) ** 2) / (2 * mpmath.mpf(noise) ** 2) - mpmath.log(total) for k in range(-reach, reach + 1)]
        )
        differences = np.array([float(one) for one in drawn - found])
    below, above = lattice_ratios(noise, far=9)
    assert 0.95 * below < differences.max() <= below
    assert 0.15 * above < (-differences).max() <= above


@pytest.mark.parametrize(("sensitivity", "noise", "dimension"), [(200, 200, 1), (1500, 500, 3), (4000, 1000, 1)])
def test_large_epsilons_by_brute_force_with_the_law_that_is_drawn(sensitivity, noise, dimension):
    """One coordinate moves, others are drawn beside it: no share of the lattice that grows as e^epsilon."""
    made = GaussianSteps(steps=1, sensitivity=sensitivity, noise=noise, dimension=dimension)
    reach = 30 * noise
    p = discrete(noise, reach)
    q = np.concatenate([np.zeros(sensitivity), p[:-sensitivity]])
    deltas = []
    for epsilon in (0.5, 2.0, 6.0, 12.0, 20.0, 30.0):
        truth = max(hockey_stick(p, q, epsilon), hockey_stick(q, p, epsilon))
        deltas.append(made.delta(epsilon))
        assert truth <= deltas[-1] * (1 + 1e-9)
        if truth > 1e-30:
            assert deltas[-1] <= 1.05 * truth + 1e-33 + 4 * made.lattice_distance * (epsilon < 1)
    assert deltas == sorted(deltas, reverse=True)
    assert made.delta(650.0) <= made.delta(30.0)
    assert made.delta(1e6) <= 1e-30


@pytest.mark.parametrize("delta", [1e-12, 1e-9, 1e-6, 1e-3])
@pytest.mark.parametrize(("steps", "dimension"), [(16, 22), (60, 5010), (5000, 2**20)])
def test_a_budget_says_the_epsilon_that_it_was_made_for(steps, dimension, delta):
    """However large it is: the whole of it may be spent, and a larger epsilon has less noise."""
    noises = []
    for epsilon in (0.01, 0.1, 1.0, 5.0, 8.0, 13.5, 17.0, 21.0, 30.0, 50.0):
        budget = TrainingBudget.for_epsilon(
            epsilon, steps=steps, clip=int(0.2 * 2**30), dimension=dimension, planned_units=1000, delta=delta
        )
        assert 0.99 * epsilon <= budget.guarantee().epsilon <= epsilon
        noises.append(budget.noise)
        made = budget.cost  # by another arithmetic: the smaller of the two bounds of Theorem 21, whatever was taken
        with mpmath.workdps(60):
            s, draws, e = mpmath.mpf(made.noise), steps * dimension, mpmath.mpf(epsilon)
            mu = mpmath.sqrt(steps) * made.sensitivity / s
            t = mpmath.sqrt(2 * (e + mpmath.log(draws) + 80))
            a, b = -mpmath.log(1 - 1 / (24 * s**2)), t**2 / (8 * s**2)
            rest = e - draws * (a + b)
            beyond = 2 * draws * mpmath.exp(rest) * mpmath.ncdf(1 / (2 * s) - t)
            by_ratio = mpmath.exp(draws * a) * (exact_delta(mu, rest) + beyond)
            by_distance = exact_delta(mu, e) + (1 + mpmath.exp(e)) * draws / (24 * s**2)
            assert min(by_ratio, by_distance) <= delta
    assert noises == sorted(noises, reverse=True)


def test_what_no_epsilon_can_be_said_of_is_no_budget():
    with pytest.raises(PlanError, match="have no epsilon below 512"):
        TrainingBudget(steps=10**6, clip=2**31, noise=2**21, dimension=10, planned_units=10, delta=1e-5)


def hockey_stick(p, q, epsilon):
    return np.maximum(p - math.exp(epsilon) * q, 0).sum()


@pytest.mark.parametrize("noise", [4, 12])
@pytest.mark.parametrize("epsilon", [0.0, 0.2, 1.0, 3.0])
def test_brute_force_over_neighboring_sums_with_the_law_that_is_drawn(noise, epsilon):
    """Two coordinates and two adaptive steps: every shift of whole numbers of at most the sensitivity, both ways."""
    reach, sensitivity = 9 * noise, 5
    one = discrete(noise, reach)
    shifts = [(i, j) for i in range(-5, 6) for j in range(6) if 0 < i * i + j * j <= sensitivity**2]

    def moved(k):
        found = np.zeros_like(one)
        found[max(k, 0) : len(one) + min(k, 0)] = one[max(-k, 0) : len(one) - max(k, 0)]
        return found

    worst = 0.0
    for i, j in shifts:
        p = np.outer(one, one).ravel()
        q = np.outer(moved(i), moved(j)).ravel()
        worst = max(worst, hockey_stick(p, q, epsilon), hockey_stick(q, p, epsilon))
    lattice = (1 + math.exp(epsilon)) * 2 * lattice_distance(noise)
    bound = gaussian_delta(mu=sensitivity / noise, epsilon=epsilon) + lattice
    assert worst <= bound
    assert worst >= gaussian_delta(mu=sensitivity / noise, epsilon=epsilon) - lattice
    two_p, two_q = np.outer(one, one).ravel(), np.outer(moved(5), moved(-5)).ravel()  # of one coordinate each
    both = gaussian_delta(mu=math.sqrt(2) * sensitivity / noise, epsilon=epsilon) + lattice
    assert hockey_stick(two_p, two_q, epsilon) <= both


def test_by_dp_accounting():
    from dp_accounting.pld import privacy_loss_distribution as pld

    steps = GaussianSteps(steps=60, sensitivity=322_122_547, noise=322_122_547 * 29, dimension=5010)
    theirs = pld.from_gaussian_mechanism(29 / math.sqrt(60), value_discretization_interval=1e-4)
    for delta in (1e-5, 1e-8):
        assert steps.epsilon(delta=delta) == pytest.approx(theirs.get_epsilon_for_delta(delta), rel=2e-3)
        assert steps.epsilon(delta=delta) <= theirs.get_epsilon_for_delta(delta) * (1 + 1e-4)
    large = GaussianSteps(steps=60, sensitivity=322_122_547, noise=3 * 322_122_547, dimension=5010)
    theirs = pld.from_gaussian_mechanism(3 / math.sqrt(60), value_discretization_interval=1e-3)
    assert large.epsilon(delta=1e-6) == pytest.approx(theirs.get_epsilon_for_delta(1e-6), rel=2e-3)
    assert large.epsilon(delta=1e-6) > 14


def test_by_opacus():
    """At a sampling rate of 1 its Rényi accountant is our curve; ours by Gaussian differential privacy is below."""
    opacus = pytest.importorskip("opacus.accountants")
    steps = GaussianSteps(steps=60, sensitivity=10**8, noise=29 * 10**8, dimension=5010)
    renyi = opacus.RDPAccountant()
    renyi.history = [(29.0, 1.0, 60)]
    theirs = renyi.get_epsilon(1e-5, alphas=ORDERS.tolist())
    assert steps.curve(ORDERS).epsilon(delta=1e-5) == pytest.approx(theirs, rel=1e-6)
    assert 0.9 * theirs < steps.epsilon(delta=1e-5) < 0.95 * theirs


@pytest.mark.parametrize("epsilon", [0.1, 0.3, 1.0, 8.0])
@pytest.mark.parametrize("sensitivity", [322_122_547, 2 * 322_122_547])
def test_the_least_noise_holds_and_one_step_less_does_not(epsilon, sensitivity):
    fixed = {"steps": 60, "sensitivity": sensitivity, "dimension": 5010}
    noise = least_step_noise(epsilon=epsilon, delta=1e-5, **fixed)
    found = GaussianSteps(noise=noise, **fixed)
    assert found.delta(epsilon) <= 1e-5
    assert found.epsilon(delta=1e-5) <= epsilon
    assert GaussianSteps(noise=noise - 1, **fixed).delta(epsilon) > 1e-5
    assert found.lattice_distance < 1e-14


@pytest.mark.parametrize(
    ("epsilon", "ratio", "renyi"), [(0.1, 238.2, 0.11145), (0.3, 87.05, 0.33083), (1.0, 28.90, 1.09217)]
)
def test_the_numbers_of_math_md(epsilon, ratio, renyi):
    fixed = {"steps": 60, "sensitivity": 322_122_547, "dimension": 505}
    noise = least_step_noise(epsilon=epsilon, delta=1e-5, **fixed)
    assert noise / 322_122_547 == pytest.approx(ratio, rel=3e-4)
    assert GaussianSteps(noise=noise, **fixed).curve().epsilon(delta=1e-5) == pytest.approx(renyi, abs=1e-5)


def test_a_replaced_unit_takes_twice_the_noise():
    fixed = {"epsilon": 1.0, "delta": 1e-5, "steps": 60, "dimension": 10}
    once, twice = (least_step_noise(sensitivity=k * 10**8, **fixed) for k in (1, 2))
    assert twice == pytest.approx(2 * once, rel=1e-8)


def test_small_noise_pays_for_the_lattice():
    fine = GaussianSteps(steps=10, sensitivity=10**6, noise=10**8, dimension=1000)
    coarse = GaussianSteps(steps=10, sensitivity=1, noise=100, dimension=1000)
    assert coarse.mu == pytest.approx(fine.mu)
    assert coarse.delta(1.0) > fine.delta(1.0) + 1e-2  # 10,000 draws, each at a distance of 4e-6
    assert coarse.curve().epsilon(delta=1e-5) == pytest.approx(fine.curve().epsilon(delta=1e-5))


def test_nothing_private_within_reach_is_one_plain_refusal():
    with pytest.raises(PlanError, match="No noise up to 2"):
        least_step_noise(epsilon=1e-9, delta=1e-12, steps=10**6, sensitivity=2**31, dimension=10)
    with pytest.raises(PlanError, match="have no epsilon below 512"):
        GaussianSteps(steps=10**6, sensitivity=100, noise=LEAST_NOISE, dimension=1).epsilon(delta=1e-5)
    with pytest.raises(InputError, match="noise must be from 64"):
        GaussianSteps(steps=1, sensitivity=1, noise=63, dimension=1)
