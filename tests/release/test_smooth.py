"""Branch and bound against the whole curve, the paper's Table 2, real and extreme votes, and every refusal."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.soak import amount

from terrine import ConfidentGNMax, GNMax, InteractiveGNMax, LNMax, Sensitive, Votes, synthetic_votes
from terrine.errors import InputError
from terrine.release.gap_bound import gap_costs, gaps_of
from terrine.release.smooth import (
    LineRows,
    Part,
    Profile,
    VoteRows,
    expected_smooth_sensitivity,
    log_parts,
    log_smooth,
    log_total,
    sensitivity_at,
    smooth_sensitivity,
)

ACCOUNTANTS = ("paper", "sanitizable", "exact")
MNIST = ConfidentGNMax(threshold=200, sigma_check=150, sigma_vote=40)
OTHERS = ConfidentGNMax(threshold=300, sigma_check=200, sigma_vote=40)
# mechanism, queries, order, beta, E[SS] of the paper's Table 2
RUNS = {
    "mnist": (MNIST, 640, 14.0, 0.0329, 0.06175),
    "adult": (OTHERS, 1500, 15.5, 0.0310, 0.03326),
    "svhn": (OTHERS, 8500, 7.5, 0.0533, 0.07165),
}


def votes_of(folder: Path, name: str) -> Votes:
    return Votes.load(folder / f"{name}_250_teachers.npy")[: RUNS[name][1]]


def log_curve(parts: list[Part], *, every: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """All distances, or some, and log S there."""
    distances = np.arange(0, max(part.reach for part in parts) + 1, every)
    return distances, np.array([log_total(parts, int(d)) for d in distances])


# ---- the maximum over distances ----------------------------------------------------------------------------------


@settings(max_examples=amount(40, soak=500))
@given(st.integers(0, 2**32 - 1), st.sampled_from([1e-4, 0.003, 0.05, 0.4, 5.0]), st.sampled_from([0.0, 1.0, 80.0]))
def test_branch_and_bound_finds_the_maximum(seed: int, beta: float, spread: float) -> None:
    """On any parts: lines with values far apart, with plateaus and with -inf, of several lengths and weights."""
    rng = np.random.default_rng(seed)
    parts: list[Part] = []
    for _ in range(rng.integers(1, 4)):
        size = int(rng.integers(1, 300))
        values = np.round(spread * rng.standard_normal(size), int(rng.integers(0, 3)))
        values[rng.random(size) < 0.2] = -np.inf
        if rng.random() < 0.5:
            values = np.sort(values)
        places = rng.integers(0, size, rng.integers(1, 20))
        parts.append(LineRows(places, rng.uniform(0.1, 9, places.size), log_values=values))
    distances, curve = log_curve(parts)
    assert log_smooth(parts, beta=beta) == pytest.approx((curve - beta * distances).max(), abs=1e-9)


@settings(max_examples=amount(10, soak=100))
@given(st.integers(0, 2**32 - 1), st.sampled_from(ACCOUNTANTS[:2]))
def test_branch_and_bound_on_random_votes(seed: int, accountant: str) -> None:
    rng = np.random.default_rng(seed)
    classes = int(rng.integers(2, 6))
    votes = Votes(
        [rng.multinomial(60, rng.dirichlet(np.full(classes, 0.4))) for _ in range(rng.integers(1, 30))], n_teachers=60
    )
    parts = log_parts(ConfidentGNMax(threshold=45, sigma_check=6, sigma_vote=4), votes, 3.0, accountant)
    distances, curve = log_curve(parts)
    assert (np.diff(curve) >= 0).all()
    for beta in (0.001, 0.03, 0.2, 1.0):
        assert log_smooth(parts, beta=beta) == pytest.approx((curve - beta * distances).max(), abs=1e-9)


@pytest.mark.parametrize("name", RUNS)
def test_branch_and_bound_on_real_votes(vote_files: Path, name: str) -> None:
    mechanism, _, order, beta, _ = RUNS[name]
    votes = votes_of(vote_files, name)
    for accountant in ACCOUNTANTS if votes.n_classes == 2 else ACCOUNTANTS[:2]:
        parts = log_parts(mechanism, votes, order, accountant)
        distances, curve = log_curve(parts)
        assert (np.diff(curve) >= -1e-12).all()
        for some_beta in (beta, 0.01, 0.4):
            expected = (curve - some_beta * distances).max()
            assert log_smooth(parts, beta=some_beta) == pytest.approx(expected, abs=1e-9)


def test_a_line_is_a_range_maximum() -> None:
    rng = np.random.default_rng(1)
    for size in (1, 2, 3, 7, 8, 9, 100):
        values = rng.standard_normal(size)
        rows = LineRows(np.arange(size), np.ones(size), log_values=values)
        for distance in (0, 1, 2, 3, 6, size - 1, size, 3 * size, 10**9):
            expected = [values[max(0, place - distance) : place + distance + 1].max() for place in range(size)]
            assert (rows.log_at(distance, np.arange(size)) == expected).all()


def test_equal_rows_are_one_row_with_a_weight() -> None:
    rows = LineRows(np.array([3, 1, 3]), np.array([1.0, 0.0, 2.5]), log_values=np.arange(5.0))
    assert rows.places.tolist() == [3]
    assert rows.log_weights == pytest.approx([math.log(3.5)])
    profile = Profile(at=lambda log_q: log_q, rise=0.0, fall=0.0, peak=0.0)
    rows = VoteRows(np.array([[2, 5, 1], [5, 1, 2], [8, 0, 0]]), np.ones(3), sigma=2, profile=profile)
    assert rows.counts.tolist() == [[5, 2, 1], [8, 0, 0]]
    assert np.exp(rows.log_weights) == pytest.approx([2, 1])


# ---- numbers -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", RUNS)
def test_the_papers_table_2(vote_files: Path, name: str) -> None:
    mechanism, _, order, beta, printed = RUNS[name]
    value = expected_smooth_sensitivity(mechanism, votes_of(vote_files, name), order=order, beta=beta)
    assert isinstance(value, Sensitive)
    assert value.reveal() == pytest.approx(printed, rel=0.005)


@pytest.mark.parametrize("name", RUNS)
def test_paper_and_sanitizable_are_close(vote_files: Path, name: str) -> None:
    mechanism, _, order, beta, _ = RUNS[name]
    votes = votes_of(vote_files, name)
    smooth = [smooth_sensitivity(mechanism, votes, order=order, beta=beta, accountant=a) for a in ACCOUNTANTS[:2]]
    assert all(isinstance(value, Sensitive) for value in smooth)
    paper, sanitizable = (value.reveal() for value in smooth)
    assert paper / 2 < sanitizable < paper * 2
    for distance in (0, 10, 100, 250):
        at = partial(sensitivity_at, mechanism, votes, distance=distance, order=order)
        assert isinstance(at(), Sensitive)
        ratio = at(accountant="sanitizable").reveal() / at(accountant="paper").reveal()
        assert 0.5 < ratio < 2
    # an answered query at most, and a check on top
    assert expected_smooth_sensitivity(mechanism, votes, order=order, beta=beta).reveal() <= paper


def test_one_query_and_the_sum_of_one() -> None:
    rows = [[40, 15, 5], [20, 20, 20], [60, 0, 0], [31, 29, 0]]
    mechanism = ConfidentGNMax(threshold=45, sigma_check=6, sigma_vote=4)
    for accountant in ACCOUNTANTS[:2]:
        at = partial(sensitivity_at, mechanism, order=3.0, accountant=accountant)
        for distance in (0, 3, 20):
            alone = [at(Votes([row], n_teachers=60), distance=distance).reveal() for row in rows]
            together = at(Votes(rows, n_teachers=60), distance=distance).reveal()
            assert together == pytest.approx(sum(alone), rel=1e-12)
        smooth = partial(smooth_sensitivity, mechanism, order=3.0, beta=0.1, accountant=accountant)
        once = [smooth(Votes([row], n_teachers=60)).reveal() for row in rows]
        for row, value in zip(rows, once, strict=True):
            assert smooth(Votes([row] * 7, n_teachers=60)).reveal() == pytest.approx(7 * value, rel=1e-9)
        assert max(once) <= smooth(Votes(rows, n_teachers=60)).reveal() <= sum(once) * (1 + 1e-9)


@pytest.mark.parametrize("accountant", ACCOUNTANTS[:2])
def test_5000_unanimous_teachers(accountant: str) -> None:
    """log q is -3907 there, and the local sensitivity of the paper's cost underflows: finite in logs all the same."""
    votes = Votes([[5000] + [0] * 149], n_teachers=5000)
    parts = log_parts(GNMax(sigma=40), votes, 20.5, accountant)
    distances, curve = log_curve(parts, every=7)
    assert np.isfinite(curve).all()
    for beta in (0.02, 0.4):
        smooth, sampled = log_smooth(parts, beta=beta), (curve - beta * distances).max()
        assert sampled <= smooth <= sampled + 7 * beta  # S grows and the discount of 7 moves is e^(-7 beta)
    value = smooth_sensitivity(GNMax(sigma=40), votes, order=20.5, beta=0.02, accountant=accountant).reveal()
    assert 0 < value < 1e-10
    # and far from there
    assert sensitivity_at(GNMax(sigma=40), votes, order=20.5, distance=2500, accountant=accountant).reveal() > 1e-4


@pytest.mark.parametrize("accountant", ACCOUNTANTS[:2])
def test_large_gaps_and_a_large_beta(accountant: str) -> None:
    votes = synthetic_votes(n_queries=40, n_classes=20, n_teachers=5000, consensus=0.99, hard=0.0)
    parts = log_parts(ConfidentGNMax(threshold=4000, sigma_check=30, sigma_vote=20), votes, 5.0, accountant)
    smooth = log_smooth(parts, beta=0.4)
    assert math.isfinite(smooth)
    distances, curve = log_curve(parts, every=11)
    sampled = (curve - 0.4 * distances).max()
    assert sampled <= smooth <= sampled + 11 * 0.4


def test_unsigned_votes() -> None:
    rows = [[3, 250, 2], [130, 120, 5]]
    for accountant in ACCOUNTANTS[:2]:
        small, large = (
            smooth_sensitivity(
                MNIST, Votes(np.array(rows, dtype=t), n_teachers=255), order=14, beta=0.03, accountant=accountant
            ).reveal()
            for t in (np.uint8, np.int64)
        )
        assert small == large > 0


# ---- refusals ----------------------------------------------------------------------------------------------------

VOTES = Votes([[150, 100], [250, 0]], n_teachers=250)
SMOOTH = partial(smooth_sensitivity, GNMax(sigma=40), VOTES, order=14, beta=0.03)


def refusal(call, **arguments) -> str:
    with pytest.raises(InputError) as caught:
        call(**arguments)
    message = str(caught.value)
    assert message.endswith(".")
    assert "\n" not in message
    assert len(message) < 300
    return message


@pytest.mark.parametrize("accountant", ACCOUNTANTS[:2])
def test_too_few_teachers(accountant: str) -> None:
    votes = Votes([[7, 2, 1]], n_teachers=10)
    call = partial(smooth_sensitivity, GNMax(sigma=40), votes, order=14, beta=0.03, accountant=accountant)
    assert "teachers are too few" in refusal(call)
    assert "teachers are too few" in refusal(
        partial(sensitivity_at, GNMax(sigma=40), votes, order=14, distance=1, accountant=accountant)
    )


@pytest.mark.parametrize(("sigma", "order"), [(1.0, 5.0), (40.0, 60.0)])
def test_where_c6_fails_the_sanitizable_bound_works(sigma: float, order: float) -> None:
    votes = Votes([[3000, 1000, 1000], [5000, 0, 0]], n_teachers=5000)
    call = partial(smooth_sensitivity, GNMax(sigma=sigma), votes, order=order, beta=0.01)
    message = refusal(call, accountant="paper")
    assert "C6" in message
    assert "accountant='sanitizable'" in message
    assert 0 < call(accountant="sanitizable").reveal() <= order / sigma**2 * len(votes) * (1 + 1e-8)


@pytest.mark.parametrize("beta", [0, -0.1, math.nan, math.inf, "0.1", True])
def test_bad_beta(beta) -> None:
    assert "beta" in refusal(SMOOTH, beta=beta)
    assert "beta" in refusal(partial(expected_smooth_sensitivity, MNIST, VOTES, order=14), beta=beta)


@pytest.mark.parametrize("accountant", ACCOUNTANTS)
@pytest.mark.parametrize("order", [1, 0.5, -3, math.nan, math.inf])
def test_bad_order(order: float, accountant: str) -> None:
    assert "order" in refusal(SMOOTH, order=order, accountant=accountant)


@pytest.mark.parametrize("distance", [-1, 0.5, math.nan])
def test_bad_distance(distance: float) -> None:
    call = partial(sensitivity_at, GNMax(sigma=40), VOTES, order=14)
    assert "distance" in refusal(call, distance=distance)


@pytest.mark.parametrize("accountant", ACCOUNTANTS)
def test_other_mechanisms(accountant: str) -> None:
    interactive = InteractiveGNMax(threshold=200, sigma_check=150, sigma_vote=40, student_confidence=0.5)
    assert "needs student_proba" in refusal(
        partial(smooth_sensitivity, interactive, VOTES, order=14, beta=0.03, accountant=accountant)
    )
    for mechanism in (LNMax(scale=20), "GNMax"):
        message = refusal(partial(smooth_sensitivity, mechanism, VOTES, order=14, beta=0.03, accountant=accountant))
        assert "GNMax or ConfidentGNMax" in message
        assert type(mechanism).__name__ in message


def test_exact_is_for_two_classes() -> None:
    votes = Votes([[150, 90, 10]], n_teachers=250)
    message = refusal(partial(smooth_sensitivity, GNMax(sigma=40), votes, order=14, beta=0.03, accountant="exact"))
    assert "two classes" in message
    assert "accountant='sanitizable'" in message
    assert SMOOTH(accountant="exact").reveal() > 0


def test_other_votes_and_accountants() -> None:
    assert "Votes" in refusal(partial(smooth_sensitivity, GNMax(sigma=40), [[3, 1]], order=14, beta=0.03))
    assert "accountant" in refusal(SMOOTH, accountant="papers")


def test_the_numbers_that_the_docs_quote(vote_files: Path) -> None:
    """docs/math.md, Theorems 9 and 11."""
    mechanism, _, order, beta, _ = RUNS["adult"]
    adult = votes_of(vote_files, "adult")
    for accountant, expected in (("exact", 0.0066), ("sanitizable", 0.0752)):
        value = smooth_sensitivity(mechanism, adult, order=order, beta=beta, accountant=accountant)
        assert value.reveal() == pytest.approx(expected, abs=0.5e-4)
    gaps, weights = gaps_of(votes_of(vote_files, "mnist"))
    costs = gap_costs(sigma=40, order=14, n_classes=10, n_teachers=250)
    assert weights @ costs[gaps] == pytest.approx(0.823, abs=0.5e-3)
