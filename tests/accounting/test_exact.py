"""What these votes cost exactly: against slow oracles, and by properties."""

from __future__ import annotations

import math
from collections.abc import Iterator

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import log_ndtr
from tests.oracles import gnmax as oracle
from tests.soak import amount

from terrine.accounting import divergence, exact, theorems
from terrine.accounting.argmax import rdp_argmax, rdp_check
from terrine.accounting.exact import MARGIN, log_probabilities, rdp_check_exact, rdp_confident_exact, rdp_gnmax_exact
from terrine.errors import InputError

ORDERS = [2.0, 1.2, 14.5, 60.0, 5.0]  # in no order
sigmas = st.sampled_from([1.0, 2.5, 7.0, 40.0, 150.0])  # the worst case of a sigma is searched for once
histograms = st.lists(st.integers(0, 60), min_size=2, max_size=6).filter(any)


def gnmax(counts: object, sigma: float, orders: object = ORDERS) -> np.ndarray:
    """One histogram's cost less the margin."""
    return rdp_gnmax_exact([counts], sigma=sigma, orders=orders)[0] / (1 + MARGIN)


def confident(counts: object, check: dict[str, float], orders: object = ORDERS, **offsets: object) -> np.ndarray:
    return rdp_confident_exact([counts], orders=orders, **check, **offsets)[0] / (1 + MARGIN)


def partitions(total: int, parts: int, largest: int | None = None) -> Iterator[list[int]]:
    """Histograms of so many votes and classes, descending."""
    if parts == 0:
        if total == 0:
            yield []
        return
    for first in range(min(total, total if largest is None else largest), -1, -1):
        yield from ([first, *rest] for rest in partitions(total - first, parts - 1, first))


# Properties


@given(histograms, sigmas)
def test_the_forward_direction_stays_below_the_papers_bound(counts: list[int], sigma: float) -> None:
    bound = theorems.rdp_gnmax(theorems.log_q_gaussian(counts, sigma=sigma), sigma=sigma, orders=ORDERS)[0]
    for move in oracle.distinct_moves(counts):
        forward, _ = oracle.gnmax_divergence(counts, move, sigma=sigma, orders=ORDERS)
        assert (forward <= bound * (1 + 1e-9) + 1e-14).all()


@given(histograms, sigmas, st.floats(-3, 3), st.randoms())
def test_what_any_histogram_costs(counts: list[int], sigma: float, position: float, random) -> None:
    check = {"threshold": max(counts) + position * 2 * sigma, "sigma_check": 2 * sigma, "sigma_vote": sigma}
    alone, joint = gnmax(counts, sigma), confident(counts, check)
    worst = rdp_argmax(sigma=sigma, orders=ORDERS)
    assert (alone <= worst).all()
    assert (joint <= worst + rdp_check(sigma=2 * sigma, orders=ORDERS)).all()
    rising = np.argsort(ORDERS)
    assert (np.diff(alone[rising]) >= 0).all()
    assert (np.diff(joint[rising]) >= 0).all()
    shuffled = random.sample(counts, len(counts))
    assert gnmax(shuffled, sigma) == pytest.approx(alone, rel=1e-12)
    assert confident(shuffled, check) == pytest.approx(joint, rel=1e-12)
    assert alone == pytest.approx([gnmax(counts, sigma, [order])[0] for order in ORDERS], rel=1e-12, abs=1e-38)
    apart = np.array([confident(counts, check, [order])[0] for order in ORDERS])
    assert (apart >= joint * (1 - 1e-12)).all()
    # Where all agree nobody is left to join them, but a vote that is screened out is charged for a check that rises.
    assert apart == pytest.approx(joint, rel=1e-12, abs=1e-38) or np.count_nonzero(counts) == 1


# Against slow computations


@mp.workdps(60)
@pytest.mark.parametrize(("counts", "sigma"), [([1, 0], 1), ([7, 7], 3), ([30, 22], 9), ([250, 0], 40), ([90, 9], 500)])
def test_two_classes_have_a_closed_form(counts: list[int], sigma: float) -> None:
    def law(gap: int) -> tuple[mp.mpf, mp.mpf]:
        x = gap / (sigma * mp.sqrt(2))
        return mp.ncdf(x), mp.ncdf(-x)

    gap = counts[0] - counts[1]
    neighbours = [law(gap - 2), *([law(gap + 2)] if counts[1] else [])]
    for order, value in zip(ORDERS, gnmax(counts, sigma), strict=True):
        pairs = [pair for there in neighbours for pair in ((law(gap), there), (there, law(gap)))]
        truth = max(oracle.mp_renyi_divergence(p, q, order=order) for p, q in pairs)
        assert value == pytest.approx(float(truth), rel=1e-11)


@pytest.mark.parametrize(
    ("counts", "sigma", "digits"),
    [([9, 0, 0], 3.0, amount(30, soak=50)), ([5, 5, 2], 1.0, 30), ([60, 20, 9], 40.0, 30)],
)
def test_three_classes_against_mpmath(counts: list[int], sigma: float, digits: int) -> None:
    laws = [
        oracle.mp_gnmax_probabilities(list(n), sigma=sigma, digits=digits)
        for n in (counts, *(oracle.moved(counts, move) for move in oracle.distinct_moves(counts)))
    ]
    pairs = [pair for there in laws[1:] for pair in ((laws[0], there), (there, laws[0]))]
    with mp.workdps(digits + 10):
        truth = [max(float(oracle.mp_renyi_divergence(p, q, order=x)) for p, q in pairs) for x in ORDERS]
    assert gnmax(counts, sigma) == pytest.approx(truth, rel=1e-10)
    log_p = [float(mp.log(p)) for p in laws[0]]
    assert log_probabilities([counts], sigma=sigma)[0] == pytest.approx(log_p, abs=1e-12)


@pytest.mark.parametrize("n_classes", [2, 3, 4])
@pytest.mark.parametrize("n_votes", [1, 2, 3, 5, 8, 12])
def test_every_small_histogram_and_every_move(n_classes: int, n_votes: int) -> None:
    rows = list(partitions(n_votes, n_classes))
    for sigma in (1.3, 4.0):
        check = {"threshold": 0.6 * n_votes, "sigma_check": 2.0 * sigma, "sigma_vote": sigma}
        alone = rdp_gnmax_exact(rows, sigma=sigma, orders=ORDERS) / (1 + MARGIN)
        joint = rdp_confident_exact(rows, orders=ORDERS, **check) / (1 + MARGIN)
        for counts, vote, answer in zip(rows, alone, joint, strict=True):
            moves = oracle.distinct_moves(counts)
            truth = oracle.gnmax_worst_divergence(counts, sigma=sigma, orders=ORDERS)
            assert vote == pytest.approx(truth, rel=1e-10), (counts, sigma)
            both = [oracle.confident_divergence(counts, move, orders=ORDERS, **check) for move in moves]
            assert answer == pytest.approx(np.max(both, axis=(0, 1)), rel=1e-10), (counts, sigma)


def interactive_by_definition(counts: np.ndarray, offsets: np.ndarray, check: dict[str, float]) -> np.ndarray:
    """The largest divergence of the laws on m + 1 outcomes, each class on its own."""

    def log_law(n: np.ndarray) -> np.ndarray:
        score = ((n - offsets).max() - check["threshold"]) / check["sigma_check"]
        wins = oracle.gnmax_log_probabilities(n, sigma=check["sigma_vote"])
        return np.append(wins + log_ndtr(score), log_ndtr(-score))

    here, worst = log_law(counts), np.zeros(len(ORDERS))
    for a in np.flatnonzero(counts):
        for b in set(range(len(counts))) - {a}:
            there = log_law(oracle.moved(counts, (a, b)))
            for p, q in ((here, there), (there, here)):
                moments = [np.logaddexp.reduce(x * p + (1 - x) * q) / (x - 1) for x in ORDERS]
                worst = np.maximum(worst, moments)
    return worst


INTERACTIVE = [
    ([5, 3, 2, 0], [2.0, 0.5, 0.5, 7.0]),
    ([4, 4, 4, 0], [1.0, 1.0, 2.5, 0.0]),  # a tie in votes alone, and one in votes and offsets
    ([6, 2, 2, 2], [8.0, 0.0, 0.0, 0.25]),  # the plurality's score is the worst; equal and nearly equal best ones
    ([3, 2, 1], [2.5, 1.25, 0.5]),  # any move changes which class has the best score
    ([9, 1, 1, 1, 0, 0], [9.0, 1.0, 1.0, 0.5, 0.0, 0.0]),
    ([300, 20, 5], [298.0, 17.0, 4.0]),  # a sure vote whose best score is not the plurality's
]


@pytest.mark.parametrize(("counts", "offsets"), INTERACTIVE)
@pytest.mark.parametrize("threshold", [-1.0, 1.0, 4.0])
def test_interactive_against_the_definition(counts: list[int], offsets: list[float], threshold: float) -> None:
    check = {"threshold": threshold, "sigma_check": 1.5, "sigma_vote": 1.0}
    truth = interactive_by_definition(np.array(counts), np.array(offsets), check)
    assert confident(counts, check, offsets=[offsets]) == pytest.approx(truth, rel=1e-9)


def test_offsets_that_no_check_sees_and_offsets_of_zero() -> None:
    check = {"threshold": 20.0, "sigma_check": 6.0, "sigma_vote": 3.0}
    plain = confident([30, 12, 12, 4], check)
    assert confident([30, 12, 12, 4], check, offsets=[[0.0] * 4]) == pytest.approx(plain, rel=1e-12)
    shifted = check | {"threshold": 15.0}
    assert confident([30, 12, 12, 4], shifted, offsets=[[5.0] * 4]) == pytest.approx(plain, rel=1e-12)
    with pytest.raises(InputError, match="offsets must have shape"):
        confident([30, 12, 12, 4], check, offsets=[[0.0] * 3])


# Batches


def test_equal_rows_cost_the_same_and_batches_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    rows = rng.multinomial(200, rng.dirichlet(np.full(11, 0.8), size=20))  # 8 to 11 kinds: some are padded
    rows[::5] = rng.permuted(rows[1], axis=0)
    rows[3] = [200, *[0] * 10]
    check = {"threshold": 60.0, "sigma_check": 9.0, "sigma_vote": 4.0}
    offsets = np.round(200 * rng.dirichlet(np.ones(11), size=20) * 4) / 4
    runs = []
    for cells, pairs in ((None, None), (1, 6_000), (500_000, 1), (2_000, 60)):
        if cells is not None:
            for module, name, value in (
                (divergence, "CELLS", cells),
                (exact, "CELLS", cells),
                (exact, "_PAIRS", pairs),
            ):
                monkeypatch.setattr(module, name, value)
        vote = rdp_gnmax_exact(rows, sigma=4, orders=ORDERS)
        assert (vote[::5] == vote[0]).all()
        assert vote[:1] == pytest.approx(rdp_gnmax_exact(rows[1:2], sigma=4, orders=ORDERS), rel=1e-12)
        joint = rdp_confident_exact(rows, orders=ORDERS, offsets=offsets, **check)
        runs.append(np.concatenate((vote, joint, np.exp(log_probabilities(rows, sigma=4))), axis=1))
    for other in runs[1:]:
        assert other == pytest.approx(runs[0], rel=1e-12)
    alone = np.concatenate([rdp_gnmax_exact(row, sigma=4, orders=ORDERS) for row in rows])
    assert alone == pytest.approx(runs[0][:, : len(ORDERS)], rel=1e-12)


def test_pruned_moves_never_win() -> None:
    """An order on its own, and a move on its own, against many orders at once: nothing is left out wrongly."""
    rng = np.random.default_rng(5)
    dense = np.concatenate((np.linspace(1.02, 1.98, 10), np.geomspace(2.1, 90, 20)))
    for n_classes, sigma in ((3, 1.0), (6, 2.0), (6, 12.0)):
        rows = rng.multinomial(30, rng.dirichlet(np.full(n_classes, 0.7), size=60))
        together = rdp_gnmax_exact(rows, sigma=sigma, orders=dense)
        for i, order in enumerate(dense):
            assert rdp_gnmax_exact(rows, sigma=sigma, orders=order)[:, 0] == pytest.approx(together[:, i], rel=1e-11)
        for counts, costs in list(zip(rows, together, strict=True))[:15]:
            truth = oracle.gnmax_worst_divergence(counts, sigma=sigma, orders=dense)
            assert costs / (1 + MARGIN) == pytest.approx(truth, rel=1e-9, abs=1e-38)


# Spots


def test_unanimous_5000_teachers_150_classes() -> None:
    counts = np.zeros((1, 150), dtype=np.uint16)
    counts[0, 7] = 5000
    assert 0 < rdp_gnmax_exact(counts, sigma=40, orders=[2, 100, 500]).max() < 1e-38
    assert log_probabilities(counts, sigma=40)[0, 0] == pytest.approx(-3911.6, abs=1)
    joint = rdp_confident_exact(counts, sigma_vote=40, threshold=5000, sigma_check=200, orders=ORDERS)
    assert joint[0] == pytest.approx(rdp_check_exact(5000, threshold=5000, sigma=200, orders=ORDERS)[0], rel=1e-9)


@pytest.mark.parametrize("sigma", [0.5, 1.0, 40.0, 5000.0])
def test_one_teacher(sigma: float) -> None:
    for counts in ([1, 0], [0, 1, 0], [1, *[0] * 30]):
        truth = oracle.gnmax_worst_divergence(counts, sigma=sigma, orders=ORDERS)
        assert gnmax(counts, sigma) == pytest.approx(truth, rel=1e-9)


def test_refusals() -> None:
    for counts in ([[0, 0, 0]], [[3, 1, 0], [0, 0, 0]]):
        with pytest.raises(InputError, match="at least one vote"):
            rdp_gnmax_exact(counts, sigma=1, orders=ORDERS)
    for counts in ([[5]], [[-1, 3]], [[0.5, 1.0]], [["a", "b"]]):
        with pytest.raises(InputError, match="counts must"):
            rdp_gnmax_exact(counts, sigma=1, orders=ORDERS)
    for wrong in ({"sigma": 0}, {"sigma": -1}, {"sigma": math.nan}, {"orders": [1.0]}, {"orders": []}):
        with pytest.raises(InputError):
            rdp_gnmax_exact([[3, 1]], **({"sigma": 1.0, "orders": ORDERS} | wrong))
    with pytest.raises(InputError):
        rdp_confident_exact([[3, 1]], threshold=math.nan, sigma_check=1, sigma_vote=1, orders=ORDERS)
