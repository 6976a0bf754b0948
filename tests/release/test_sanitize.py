"""The number that is drawn: above the truth but for delta_release, moved by beta at most, and what that costs."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy.special import ndtr, ndtri
from scipy.stats import binomtest, ks_2samp, kstest
from tests.oracles.sensitivity import Histogram, neighbours, space

from terrine import GNMax, Votes, cost
from terrine.accounting.exact import log_probabilities
from terrine.accounting.theorems import rdp_gnss
from terrine.errors import InputError
from terrine.release import sanitize
from terrine.release.gap_bound import smooth_majorant
from terrine.release.sanitize import FLOOR, GRID, SCALE_FLOOR, SLACK, Chosen, Sanitizer, delta_shares
from terrine.release.smooth import smooth_sensitivity

DRAWS = 2000
BETAS = (0.02, 0.2, 1.0, 4.0)
# (noise of a vote, order): small enough that the cost of a few teachers depends on their votes
CASES = [(1.0, 2.0), (0.7, 3.0), (1.5, 1.5), (2.0, 4.0)]


def votes_of(*rows: Histogram) -> Votes:
    return Votes(rows, n_teachers=sum(rows[0]))


def forward(row: Histogram, *, sigma: float, order: float) -> float:
    """D(M(n) || M(n')), the largest over all moves, from the laws themselves."""
    p, *others = np.exp(log_probabilities([row, *neighbours(row)], sigma=sigma))
    return max(float(np.log((p**order * q ** (1 - order)).sum())) for q in others) / (order - 1)


def true_cost(rows: Votes, *, sigma: float, order: float, accountant: str) -> float:
    return float(cost(GNMax(sigma=sigma), rows, orders=[order], accountant=accountant).reveal().epsilons[0])


def majorant(rows: Votes, *, sigma: float, order: float, beta: float) -> float:
    return smooth_majorant(rows, sigma=sigma, order=order, beta=beta).reveal()


# ---- the majorant


@pytest.mark.parametrize(("sigma", "order"), CASES)
def test_majorant_of_every_small_histogram(sigma: float, order: float) -> None:
    """At least the divergence, at least every discounted maximum over a ball, and one move changes its log by beta."""
    given = {"sigma": sigma, "order": order}
    jumps = 0.0
    for n, classes in [(n, m) for m in (2, 3) for n in range(1, 9)] + [(5, 4)]:
        here = space(n, classes)
        costs = here.values(lambda point: forward(point, **given))
        if classes == 2:  # the exact cost, both directions
            both = here.values(lambda point: true_cost(votes_of(point), **given, accountant="exact"))
            assert (both >= costs - 1e-12).all()
            costs = both
        for beta in BETAS:
            largest = here.values(lambda point: majorant(votes_of(point), **given, beta=beta))  # noqa: B023
            assert (largest >= costs - 1e-12).all()
            balls = np.array([math.exp(-beta * d) * here.within(costs, d) for d in range(n + 1)]).max(axis=0)
            assert (largest >= balls - 1e-12).all()
            change = np.abs(np.log(largest)[:, None] - np.log(largest))[here.adjacent]
            assert change.max() <= beta + 1e-8
            if classes == 2 and n % 2 == 0:  # nothing is lost at a unanimous vote
                assert largest[[0, -1]] == pytest.approx(balls[[0, -1]], rel=1e-5)
        jumps = max(jumps, float(np.abs(np.log(costs)[:, None] - np.log(costs))[here.adjacent].max()))
    assert jumps > 0.25  # the cost itself moves by more than some of the betas: plain f would fail


@pytest.mark.parametrize(("sigma", "order"), CASES)
@pytest.mark.parametrize("classes", [2, 3])
def test_majorant_of_a_sum_where_one_teacher_moves_on_every_query(sigma: float, order: float, classes: int) -> None:
    given = {"sigma": sigma, "order": order}
    rng = np.random.default_rng(3)
    points = space(8, classes).points
    near = {point: [point, *neighbours(point)] for point in points}
    most = dict.fromkeys(BETAS, 0.0)
    for _ in range(30):
        rows = [points[i] for i in rng.integers(len(points), size=rng.integers(2, 7))]
        moved = [near[row][rng.integers(len(near[row]))] for row in rows]
        towards_tie = [min(near[row], key=lambda r: max(r)) for row in rows]
        one = votes_of(*rows)
        for beta in BETAS:
            here = majorant(one, **given, beta=beta)
            assert here >= sum(forward(row, **given) for row in rows) - 1e-12
            for other in moved, towards_tie:
                change = abs(math.log(majorant(votes_of(*other), **given, beta=beta)) - math.log(here))
                assert change <= beta + 1e-8
                most[beta] = max(most[beta], change / beta)
    assert most[0.02] > 0.99  # and it does move so much


@pytest.mark.parametrize("beta", [0.05, 0.4])
@pytest.mark.parametrize("order", [2.0, 3.0])
def test_the_number_itself_moves_by_beta_when_the_noise_stays(order: float, beta: float) -> None:
    """Rounding to the lattice and the floor included: what `SLACK` is charged for."""
    sanitizer = Sanitizer(order=order, beta=beta, sigma=3.0, delta=0.1)

    def log_number(*rows: Histogram) -> float:
        return math.log(sanitizer.upper_bound(votes_of(*rows), sigma_vote=0.6, rng=np.random.default_rng(5)))

    largest = 0.0
    for point in space(8, 3).points:
        for neighbour in neighbours(point):
            largest = max(largest, abs(log_number(point, point) - log_number(neighbour, neighbour)))
    assert 0.99 * beta < largest <= beta + SLACK


# ---- coverage


def remembered(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same, once for the same arguments: votes and arrays by who they are."""
    known: dict[Any, Any] = {}

    def named(given: Any) -> Any:
        return id(given) if isinstance(given, Votes | np.ndarray) else str(given)

    def call(*given: Any, **options: Any) -> Any:
        key = (*map(named, given), *map(named, options.values()))
        if key not in known:
            known[key] = (given, options, function(*given, **options))  # kept: nobody else is to have their id
        return known[key][2]

    return call


@pytest.fixture
def drawn_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """What depends on votes alone is worked out once, not for each of thousands of numbers."""
    for name in ("cost", "log_parts", "log_smooth", "log_majorant"):
        monkeypatch.setattr(sanitize, name, remembered(getattr(sanitize, name)))


def below(sanitizer: Sanitizer, rows: Votes, *, sigma: float, draws: int, seed: int = 11) -> int:
    """How many of so many numbers are below the cost: the exact one of two classes, for gnss the sanitizable one."""
    accountant = "exact" if sanitizer.method == "majorant" else "sanitizable"
    truth = true_cost(rows, sigma=sigma, order=sanitizer.order, accountant=accountant)
    rng = np.random.default_rng(seed)
    return sum(sanitizer.upper_bound(rows, sigma_vote=sigma, rng=rng) < truth for _ in range(draws))


TIE = Votes([[4, 4], [4, 4]], n_teachers=8)  # where the majorant is the cost
SURE = Votes([[8, 0], [7, 1]], n_teachers=8)  # and there too, if beta is large


@pytest.mark.usefixtures("drawn_only")
@pytest.mark.parametrize("delta", [0.1, 0.02])
@pytest.mark.parametrize(
    ("rows", "beta"),
    [(TIE, 0.2), (TIE, 4.0), (SURE, 0.2), (SURE, 4.0)],
    ids=["tie", "tie, large beta", "sure", "sure, large beta"],
)
def test_majorant_is_below_the_cost_with_chance_delta_at_most(rows: Votes, beta: float, delta: float) -> None:
    sanitizer = Sanitizer(order=2.0, beta=beta, sigma=1.5, delta=delta)
    failures = below(sanitizer, rows, sigma=1.0, draws=DRAWS)
    assert binomtest(failures, DRAWS, delta, alternative="greater").pvalue > 1e-6
    if beta == 4.0:  # nothing is lost there: a quantile that is too large, or too small, shows
        assert binomtest(failures, DRAWS, delta, alternative="less").pvalue > 1e-6
        less = float(ndtr(ndtri(delta) + 1))  # with a standard deviation less it would be so often
        assert binomtest(failures, DRAWS, less, alternative="less").pvalue < 1e-6


@pytest.mark.usefixtures("drawn_only")
@pytest.mark.parametrize(
    ("rows", "scale", "delta"),
    [(TIE, 0.5, 0.1), (SURE, 4.0, 0.1), (SURE, 0.5, 0.02)],
    ids=["tie", "noisy scale", "sharp scale"],
)
def test_gnss_is_below_the_cost_with_chance_delta_at_most(rows: Votes, scale: float, delta: float) -> None:
    sanitizer = Sanitizer(order=2.0, beta=0.15, sigma=3.0, delta=delta, sigma_scale=scale, method="gnss")
    failures = below(sanitizer, rows, sigma=1.0, draws=DRAWS)
    assert binomtest(failures, DRAWS, delta, alternative="greater").pvalue > 1e-6
    assert sanitizer.quantile == pytest.approx(-ndtri(delta / 2), rel=1e-8)


@pytest.mark.usefixtures("drawn_only")
def test_gnss_with_a_scale_that_is_hardly_noisy_fails_half_of_the_time_it_may() -> None:
    """Its noise has half of delta, the scale the other half: with beta sigma_scale small the first half is all."""
    sanitizer = Sanitizer(order=2.0, beta=0.02, sigma=4.0, delta=0.1, sigma_scale=0.05, method="gnss")
    failures = below(sanitizer, SURE, sigma=1.0, draws=DRAWS)
    assert binomtest(failures, DRAWS, 0.05, alternative="greater").pvalue > 1e-6
    assert binomtest(failures, DRAWS, 0.05, alternative="less").pvalue > 1e-6


# ---- the law of the number


@pytest.mark.usefixtures("drawn_only")
@pytest.mark.parametrize("rows", [SURE, None], ids=["votes", "no query"])
def test_majorant_has_the_law_it_says(rows: Votes | None) -> None:
    beta, sigma, delta = 0.3, 2.5, 0.05
    sanitizer = Sanitizer(order=2.0, beta=beta, sigma=sigma, delta=delta)
    rng = np.random.default_rng(2)
    logs = np.log([sanitizer.upper_bound(rows, sigma_vote=1.0, rng=rng) for _ in range(2000)])
    cost_and_floor = FLOOR
    if rows is not None:
        cost_and_floor += majorant(rows, sigma=1.0, order=2.0, beta=beta)
    centre = math.log(cost_and_floor) - beta * sigma * ndtri(delta)
    assert kstest(logs, "norm", (centre, beta * sigma)).pvalue > 1e-3
    for wrong in 0.7, 1.3:
        assert kstest(logs, "norm", (centre, beta * sigma * wrong)).pvalue < 1e-6


@pytest.mark.usefixtures("drawn_only")
@pytest.mark.parametrize("rows", [SURE, None], ids=["votes", "no query"])
def test_gnss_has_the_law_it_says(rows: Votes | None) -> None:
    beta, sigma, scale, delta = 0.12, 3.0, 2.0, 0.05
    sanitizer = Sanitizer(order=2.0, beta=beta, sigma=sigma, delta=delta, sigma_scale=scale, method="gnss")
    rng = np.random.default_rng(2)
    drawn = np.array([sanitizer.upper_bound(rows, sigma_vote=1.0, rng=rng) for _ in range(2000)])
    assert (drawn >= 0).all()
    assert all(Fraction(x) % GRID == 0 for x in drawn)
    truth, smooth = 0.0, SCALE_FLOOR
    if rows is not None:
        truth = true_cost(rows, sigma=1.0, order=2.0, accountant="sanitizable")
        smooth += smooth_sensitivity(GNMax(sigma=1.0), rows, order=2.0, beta=beta).reveal()
    quantile = -float(ndtri(delta / 2))

    def simulated(sigma: float) -> np.ndarray:
        z, other = rng.standard_normal((2, 50_000))
        raised = truth + smooth * sigma * z + sigma * quantile * smooth * np.exp(beta * scale * (other + quantile))
        return np.maximum(np.ceil(raised / float(GRID)) * float(GRID), 0.0)

    assert ks_2samp(drawn, simulated(sigma)).pvalue > 1e-3
    if rows is not None:
        for wrong in 0.7, 1.3:
            assert ks_2samp(drawn, simulated(sigma * wrong)).pvalue < 1e-6


@pytest.mark.parametrize("method", ["majorant", "gnss"])
def test_secure_noise_draws_it_too(method: str) -> None:
    sanitizer = Sanitizer(
        order=2.0, beta=0.1, sigma=2.0, delta=1e-6, method=method, sigma_scale=2.0 if method == "gnss" else None
    )
    accountant = "exact" if method == "majorant" else "sanitizable"
    truth = true_cost(SURE, sigma=1.0, order=2.0, accountant=accountant)
    drawn = [sanitizer.upper_bound(SURE, sigma_vote=1.0, rng=None) for _ in range(5)]
    assert len(set(drawn)) > 1
    assert min(drawn) >= truth
    if method == "gnss":
        assert all(Fraction(x) % GRID == 0 for x in drawn)
    assert sanitizer.upper_bound(None, sigma_vote=1.0, rng=None) < 1e-3


# ---- what it costs


def normal_divergence(shift: float, scale: float, order: float) -> float:
    """Rényi divergence of N(0, scale²) from N(shift, scale²), by brute integration."""
    x = np.linspace(-40 * scale, 40 * scale, 8001)
    log_f = -0.5 * (order * (x / scale) ** 2 + (1 - order) * ((x - shift) / scale) ** 2)
    peak = log_f.max()
    mass = np.exp(log_f - peak).sum() * (x[1] - x[0]) / (scale * math.sqrt(2 * math.pi))
    return float(peak + math.log(mass)) / (order - 1)


@pytest.mark.parametrize("order", [1.5, 8.0, 25.0])
@pytest.mark.parametrize(("beta", "sigma"), [(1e-5, 3.0), (0.05, 2.0), (1.0, 10.0)])
def test_majorant_costs_the_divergence_of_two_numbers(order: float, beta: float, sigma: float) -> None:
    charged = float(Sanitizer(order=2.0, beta=beta, sigma=sigma, delta=0.1).rdp(order)[0])
    true = normal_divergence(beta + SLACK, beta * sigma, order)
    assert true <= charged + 1e-12
    assert charged == pytest.approx(true, rel=1e-8)
    assert charged == pytest.approx(order / (2 * sigma**2), rel=1e-2 if beta == 1e-5 else 1e-6)


@pytest.mark.parametrize("order", [1.5, 4.0, 12.0])
def test_lattice_noise_costs_no_more(order: float) -> None:
    """On a lattice so coarse that it would show: a shift of so many steps, noise of sigma times that."""
    for steps, sigma in ((1, 1.0), (2, 1.5), (3, 0.7)):
        k = np.arange(-400, 401)
        log_p, log_q = (-0.5 * ((k - shift) / (steps * sigma)) ** 2 for shift in (0, steps))
        log_p, log_q = (log - np.logaddexp.reduce(log) for log in (log_p, log_q))
        divergence = np.logaddexp.reduce(order * log_p + (1 - order) * log_q) / (order - 1)
        assert divergence <= float(Sanitizer(order=2.0, beta=0.1, sigma=sigma, delta=0.1).rdp(order)[0])


def test_rdp_is_what_the_formulas_say() -> None:
    orders = np.array([1.5, 4.0, 9.9, 10.0, 11.0])
    of = Sanitizer(order=3.0, beta=0.05, sigma=7.0, delta=0.1).rdp(orders)
    assert of == pytest.approx(orders / 98, rel=1e-6)
    assert (of > orders / 98).all()  # SLACK
    of = Sanitizer(order=3.0, beta=0.05, sigma=7.0, delta=0.1, sigma_scale=4.0, method="gnss").rdp(orders)
    for order, found in zip(orders[:3], of, strict=False):
        formula = rdp_gnss(beta=0.05, sigma=7.0, order=order) + order / 32
        assert formula < found < formula * (1 + 1e-4)
    assert np.isinf(of[3:]).all()  # 1/(2 beta) and beyond


def test_rdp_does_not_depend_on_the_chance_to_fail() -> None:
    for method, scale in (("majorant", None), ("gnss", 3.0)):
        few, many = (
            Sanitizer(order=3.0, beta=0.1, sigma=7.0, delta=delta, sigma_scale=scale, method=method)
            for delta in (1e-9, 0.2)
        )
        assert few.rdp(3.0) == many.rdp(3.0)
        assert few.quantile > many.quantile > 0


# ---- parameters


def test_rules_of_thumb() -> None:
    order = 1 + 2 * math.log(1e5) / 0.8
    ours = Sanitizer.by_rule(epsilon=0.8, delta=1e-5)
    assert (ours.method, ours.sigma_scale) == ("majorant", None)
    assert ours.delta == pytest.approx(1e-6)
    assert ours.order == pytest.approx(order)
    assert float(ours.rdp(ours.order)[0]) == pytest.approx(0.8 / 8, rel=1e-5)
    assert ours.beta * ours.sigma * (2 + ours.quantile) == pytest.approx(2, rel=1e-8)  # two deviations up: e²
    papers = Sanitizer.by_rule(epsilon=0.8, delta=1e-5, method="gnss")
    assert papers.order == pytest.approx(order)
    assert papers.beta == pytest.approx(1 / (3 * order))
    assert papers.sigma == pytest.approx(3 * math.sqrt((order + 1) / 0.8))
    assert papers.order / (2 * papers.sigma_scale**2) == pytest.approx(0.8 / 16)
    chosen = Chosen(order=9.0, beta=0.03, sigma=5.0)
    given = Sanitizer.by_rule(epsilon=0.8, delta=1e-5, delta_release=1e-7, chosen=chosen)
    assert (given.order, given.beta, given.sigma, given.delta) == (9.0, 0.03, 5.0, 1e-7)
    assert delta_shares(1e-5, None) == pytest.approx((9e-6, 1e-6))
    assert delta_shares(1e-5, 4e-6) == pytest.approx((6e-6, 4e-6))


GOOD = {"order": 4.0, "beta": 0.05, "sigma": 3.0, "delta": 0.01}
GNSS = {**GOOD, "method": "gnss", "sigma_scale": 2.0}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({**GNSS, "order": 10.0}, "With method gnss the order must be below 1/(2 beta) = 10, got 10"),
        ({**GNSS, "order": 12.0}, "With method gnss the order must be below 1/(2 beta) = 10, got 12"),
        ({**GOOD, "beta": 0.0}, "beta must be above 0, got 0.0."),
        ({**GOOD, "beta": -1.0}, "beta must be above 0, got -1.0."),
        ({**GOOD, "beta": 1e-9}, "beta must be at least 1e-05, got 1e-09."),
        ({**GOOD, "beta": math.nan}, "beta must be finite"),
        ({**GOOD, "sigma": 0.0}, "sigma_release must be above 0, got 0.0."),
        ({**GOOD, "sigma": -2.0}, "sigma_release must be above 0, got -2.0."),
        ({**GOOD, "sigma_scale": 2.0}, "Method gnss needs sigma_scale; no other method takes it."),
        ({**GNSS, "sigma_scale": None}, "Method gnss needs sigma_scale; no other method takes it."),
        ({**GNSS, "sigma_scale": 0.0}, "sigma_scale must be above 0"),
        ({**GOOD, "delta": 0.0}, "delta_release must be above 0 and below 1"),
        ({**GOOD, "delta": 1.0}, "delta_release must be above 0 and below 1"),
        ({**GOOD, "order": 1.0}, "Every order must be finite and above 1"),
        ({**GOOD, "order": "many"}, "order must be a number"),
        ({**GOOD, "method": "paper"}, "method must be one of majorant, gnss"),
    ],
)
def test_bad_parameters_are_one_clear_line(arguments: dict, message: str) -> None:
    with pytest.raises(InputError) as caught:
        Sanitizer(**arguments)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"sigma": 0.0}, "sigma_release must be above 0"),
        ({"sigma": -1.0}, "sigma_release must be above 0"),
        ({"order": -5.0}, "Every order must be finite and above 1"),
        ({"order": "many"}, "order must be a number"),
        ({"order": 0.0}, "Every order must be finite and above 1"),
    ],
)
@pytest.mark.parametrize("method", ["majorant", "gnss"])
def test_bad_parameters_beside_rules_of_thumb_are_one_clear_line(arguments: dict, message: str, method: str) -> None:
    with pytest.raises(InputError, match=message):
        Sanitizer.by_rule(epsilon=1.0, delta=1e-5, method=method, chosen=Chosen(**arguments))


def test_a_number_too_large_for_a_float_is_infinite() -> None:
    sanitizer = Sanitizer(order=2.0, beta=1.0, sigma=1000.0, delta=1e-6)
    assert sanitizer.upper_bound(SURE, sigma_vote=1.0, rng=np.random.default_rng(0)) > 1e300


@pytest.mark.parametrize("delta_release", [1e-5, 1e-4])
def test_delta_release_is_a_share_of_delta(delta_release: float) -> None:
    with pytest.raises(InputError, match=r"delta_release is a part of delta=1e-05 and must be below it, got "):
        Sanitizer.by_rule(epsilon=1.0, delta=1e-5, delta_release=delta_release)


def test_what_cannot_be_drawn_is_refused() -> None:
    with pytest.raises(InputError, match=r"sigma_release x worst case must be below 1024 nats.*Use method='majorant'"):
        Sanitizer(**{**GNSS, "sigma": 1e4}).upper_bound(SURE, sigma_vote=1.0, rng=np.random.default_rng(0))
