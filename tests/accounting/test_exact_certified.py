"""The exact accountant against enclosures of the truth: an upper bound, and a tight one. Its margin is enough."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from flint import arb, ctx
from tests.oracles.gnmax_arb import (
    BITS,
    Winner,
    all_moves,
    confident_divergence,
    gnmax_divergence,
    kinds_of,
    largest,
)

from terrine.accounting.argmax import rdp_argmax
from terrine.accounting.exact import (
    MARGIN,
    Exact,
    Merged,
    log_probabilities,
    rdp_confident_exact,
    rdp_gnmax_exact,
)

ORDERS = (1.1, 2.0, 5.5, 17.5, 64.0, 200.0, 500.0)
LOOSE, TINY = 1e-8, 1e-38  # how far above the truth a cost may be
MANY_MOVES = 60  # above it only a good subset of the moves is enclosed

# Classes, as (votes, how many classes have them), and sigmas.
CASES = [
    (kinds, sigma)
    for kinds, sigmas in {
        ((1, 1), (0, 1)): (1, 3, 500),  # one teacher
        ((1, 2),): (1, 40),
        ((13, 1), (12, 1)): (1, 5, 200),
        ((125, 2),): (1, 40, 500),
        ((150, 1), (100, 1)): (2, 10, 40, 200),
        ((250, 1), (0, 1)): (10, 40, 200),
        ((640, 1), (0, 1)): (1, 2),  # log-probability -1e5
        ((84, 1), (83, 2)): (1, 40),
        ((100, 2), (50, 1)): (4, 40, 500),
        ((200, 1), (50, 1), (0, 1)): (3, 40, 100),
        ((12, 3), (0, 1)): (1, 2),
        ((5, 1), (4, 1), (2, 1), (1, 1)): (1, 2, 40),
        ((25, 10),): (1, 40),
        ((226, 1), (24, 1), (0, 8)): (4, 40, 200),
        ((100, 1), (90, 1), (60, 1), (0, 7)): (5, 40),
        ((60, 1), (50, 1), (40, 1), (30, 2), (15, 2), (5, 2), (0, 1)): (20, 100),
        ((250, 1), (0, 9)): (5, 40, 100),
        ((15, 16),): (1, 40),
        ((15, 17),): (1, 40),
        ((900, 1), (60, 1), (40, 1), (0, 17)): (40, 150),
        ((5000, 1), (0, 149)): (8, 40, 500),
        ((2500, 2), (0, 148)): (4, 40),
        ((3000, 1), (1500, 1), (500, 1), (0, 147)): (40, 300),
        ((34, 100), (32, 50)): (1, 40),
        ((1, 150),): (1, 40),
        ((200, 1), (40, 1), (4, 2), (2, 1), (0, 145)): (20, 40),
        ((2, 1), (1, 1), (0, 58)): (2,),  # at order 500 a log-moment just above 600
        ((3, 200),): (2,),
        ((3, 201),): (2,),
        ((60, 1), (50, 1), (0, 998)): (1, 20),
        ((1, 1000),): (1,),
    }.items()
    for sigma in sigmas
]
every_case = pytest.mark.parametrize(("kinds", "sigma"), CASES)


def expanded(kinds: tuple[tuple[int, int], ...]) -> list[int]:
    return [count for count, multiplicity in kinds for _ in range(multiplicity)]


@cache
def winner(sigma: float, n_classes: int) -> Winner:
    return Winner(sigma=sigma, n_classes=n_classes)


def some_moves(kinds: dict[int, int]) -> list[tuple[int, int]]:
    """All, or those that touch the top two kinds and twenty others."""
    moves = all_moves(kinds)
    if len(moves) <= MANY_MOVES:
        return moves
    top = sorted(kinds)[-2:]
    near = [move for move in moves if set(move) & set(top)]
    rest = [move for move in moves if move not in near]
    chosen = np.random.default_rng(0).choice(len(rest), size=min(20, len(rest)), replace=False)
    return near + [rest[i] for i in chosen]


def enclosed(divergences: list[list[tuple[arb, arb]]]) -> list[tuple[arb, arb]]:
    """(lower, upper) end of the largest divergence over moves and directions, at every order."""
    return [largest(ball for move in divergences for ball in move[i]) for i in range(len(divergences[0]))]


def above(values: np.ndarray, truth: list[tuple[arb, arb]]) -> np.ndarray:
    with ctx.workprec(BITS):
        return np.array([bool(arb(float(v)) >= upper) for v, (_, upper) in zip(values, truth, strict=True)])


def tight(values: np.ndarray, truth: list[tuple[arb, arb]]) -> np.ndarray:
    with ctx.workprec(BITS):
        most = [lower * (1 + arb(LOOSE)) + arb(TINY) for lower, _ in truth]
        return np.array([bool(arb(float(v)) <= x) for v, x in zip(values, most, strict=True)])


@cache
def gnmax_truth(kinds: tuple[tuple[int, int], ...], sigma: float) -> list[tuple[arb, arb]]:
    counts = kinds_of(expanded(kinds))
    law = winner(sigma, sum(counts.values()))
    return enclosed([gnmax_divergence(law, counts, move, orders=ORDERS) for move in some_moves(counts)])


def confident_truth(counts, sigma, check, orders) -> list[tuple[arb, arb]]:
    law = winner(sigma, sum(counts.values()))
    return enclosed([confident_divergence(law, counts, move, orders=orders, **check) for move in some_moves(counts)])


@every_case
def test_log_probabilities_lie_in_their_enclosures(kinds, sigma):
    counts = expanded(kinds)
    enclosures = winner(sigma, len(counts)).log_law(kinds_of(counts))
    got = log_probabilities([counts], sigma=sigma)[0]
    for value, count in zip(got, counts, strict=True):
        ball = enclosures[count]
        assert float(ball.rad()) < 1e-30
        assert abs(arb(float(value)) - ball) < 1e-9 * (1 + abs(value) * 1e-3), (count, value, ball)


@every_case
def test_gnmax_costs_the_truth_and_a_margin(kinds, sigma):
    values = rdp_gnmax_exact([expanded(kinds)], sigma=sigma, orders=ORDERS)[0]
    truth = gnmax_truth(kinds, sigma)
    assert above(values, truth).all(), (values, truth)
    assert tight(values, truth).all(), (values, truth)


@every_case
def test_an_order_on_its_own_costs_as_much(kinds, sigma):
    values = np.array([rdp_gnmax_exact([expanded(kinds)], sigma=sigma, orders=[x])[0, 0] for x in ORDERS])
    truth = gnmax_truth(kinds, sigma)
    assert above(values, truth).all(), (values, truth)
    assert tight(values, truth).all(), (values, truth)


@every_case
def test_gnmax_never_costs_more_than_the_worst_case(kinds, sigma):
    """The argmax bound is above every enclosure."""
    assert above(rdp_argmax(sigma=sigma, orders=ORDERS), gnmax_truth(kinds, sigma)).all()


@every_case
@pytest.mark.parametrize("position", [0.8, 3.0, -2.0])  # of the threshold: top + position * sigma_check
def test_confident_gnmax_costs_the_truth_and_a_margin(kinds, sigma, position):
    counts = kinds_of(expanded(kinds))
    check = {"sigma_check": 2.5 * sigma, "threshold": float(round(max(counts) - position * 2.5 * sigma))}
    values = rdp_confident_exact([expanded(kinds)], sigma_vote=sigma, orders=ORDERS, **check)[0]
    truth = confident_truth(counts, sigma, check, ORDERS)
    assert above(values, truth).all(), (values, truth)
    # Where all agree nobody is left to join them, but a vote that is screened out is charged for a check that rises.
    unanimous = len(counts) == 2 and counts[0] == sum(counts.values()) - 1
    assert tight(values, truth).all() or unanimous, (values, truth)


@pytest.mark.parametrize("gap", [100, 300, 640])
def test_where_a_rare_class_starts_to_matter(gap):
    """Log-probabilities down to -1e5 that the order has just lifted to a cost: errors of logarithms show most."""
    counts, orders = kinds_of([gap + 5, 5, 5]), np.linspace(-0.5, 0.1, 25) + gap**2 / (4 * (gap - 1))
    values = rdp_gnmax_exact([[gap + 5, 5, 5]], sigma=1, orders=orders)[0]
    law = winner(1.0, 3)
    truth = enclosed([gnmax_divergence(law, counts, move, orders=orders) for move in all_moves(counts)])
    assert above(values, truth).all(), (values, truth)
    assert tight(values, truth).all(), (values, truth)
    assert values.min() < 1e-20
    assert values.max() > 0.1


@pytest.mark.parametrize(("distance", "sigma_check"), [(100, 5), (150, 5), (300, 3)])
def test_where_a_rare_answer_starts_to_matter(distance, sigma_check):
    """The same for a threshold that is so many standard deviations away."""
    counts, check = kinds_of([30, 10, 4]), {"threshold": 30.0 + distance * sigma_check, "sigma_check": sigma_check}
    orders = np.linspace(0.97, 1.01, 40) * distance * sigma_check / 2
    values = rdp_confident_exact([[30, 10, 4]], sigma_vote=6, orders=orders, **check)[0]
    truth = confident_truth(counts, 6.0, check, orders)
    assert above(values, truth).all(), (values, truth)


@pytest.mark.parametrize("sigma", [0.05, 0.1, 0.2, 0.3, 0.5])
@pytest.mark.parametrize("counts", [[1, 0], [1, 1], [3, 2], [2, 2, 2], [4, 3, 0, 0]])
def test_little_noise(sigma, counts):
    """A move shifts the integrand by 1/sigma: far beyond where the votes' own integrand lives."""
    values = rdp_gnmax_exact([counts], sigma=sigma, orders=ORDERS)[0]
    law, kinds = winner(sigma, len(counts)), kinds_of(counts)
    truth = enclosed([gnmax_divergence(law, kinds, move, orders=ORDERS) for move in all_moves(kinds)])
    assert above(values, truth).all(), (values, truth)


@pytest.mark.parametrize("position", [None, 0.5, 2.0], ids=["vote alone", "near the threshold", "above it"])
def test_the_screening_of_sure_votes_is_an_upper_bound_and_tight(position):
    """One vote more or less decides whether the vote's divergence is computed or replaced by 1e-40."""
    sigma, orders = 5.0, [1.5, 2.0, 14.5, 20.0]

    def is_sure(gap):
        return Exact(sigma=sigma, orders=orders)._sure(Merged(np.array([[10 + gap, 10, 3]]), None))[0]

    edge = next(gap for gap in range(1000) if is_sure(gap))
    assert 40 < edge < 300
    for counts in ([10 + gap, 10, 3] for gap in (edge - 1, edge, edge + 1)):
        kinds = kinds_of(counts)
        if position is None:
            values = rdp_gnmax_exact([counts], sigma=sigma, orders=orders)[0]
            law = winner(sigma, 3)
            truth = enclosed([gnmax_divergence(law, kinds, move, orders=orders) for move in all_moves(kinds)])
        else:
            check = {"threshold": counts[0] - position * 12.0, "sigma_check": 12.0}
            values = rdp_confident_exact([counts], sigma_vote=sigma, orders=orders, **check)[0]
            truth = confident_truth(kinds, sigma, check, orders)
        assert above(values, truth).all(), (values, truth)
        assert tight(values, truth).all(), (values, truth)


@pytest.mark.parametrize("counts", [[956, 44], [1500, 0], [900, 0, 0]])
def test_ratios_that_overflow_cost_at_most_the_worst_case(counts):
    """And draw no warning, which in this suite is an error."""
    values = rdp_gnmax_exact([counts], sigma=1, orders=ORDERS)[0]
    kinds = kinds_of(counts)
    law = winner(1.0, len(counts))
    truth = enclosed([gnmax_divergence(law, kinds, move, orders=ORDERS) for move in all_moves(kinds)])
    assert above(values, truth).all(), (values, truth)
    assert (values <= rdp_argmax(sigma=1, orders=ORDERS)).all()


def test_without_the_margin_the_bound_fails():
    """Two billionths less are refuted at nearly every order: the enclosures are far thinner than the margin."""
    refuted = 0
    for kinds, sigma in CASES[:20]:
        values = rdp_gnmax_exact([expanded(kinds)], sigma=sigma, orders=ORDERS)[0]
        refuted += int((~above(values / (1 + 2 * MARGIN), gnmax_truth(kinds, sigma))).sum())
    assert refuted > 100
