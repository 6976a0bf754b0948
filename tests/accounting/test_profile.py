"""The profile accountant against exact binomials, brute force, Gaussians, Rényi bounds and dp-accounting."""

import math
import warnings

import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import binom
from tests.soak import amount

from terrine.accounting import profile_costs
from terrine.accounting.cells import Cells, left_out, pair_cell
from terrine.accounting.costs import worst_case_cost
from terrine.accounting.profile import PrivacyProfile, _Taps, composed, convex, product_epsilon
from terrine.accounting.profile_costs import _cells, gaussian_profile, profile_epsilon
from terrine.accounting.profile_votes import _composed, profile_of_votes
from terrine.mechanisms import ConfidentGNMax, GNMax, LNMax
from terrine.votes import Votes


@pytest.fixture(autouse=True)
def fresh(monkeypatch, tmp_path):
    """Nothing that was kept before."""
    monkeypatch.setenv("TERRINE_CACHE", str(tmp_path))
    profile_costs.profile.cache_clear()
    profile_costs.profile_epsilon.cache_clear()
    yield
    profile_costs.profile.cache_clear()
    profile_costs.profile_epsilon.cache_clear()


def renyi(mechanism, *, n_queries, n_answers, delta):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        answered = None if isinstance(mechanism, LNMax | GNMax) else n_answers
        return worst_case_cost(mechanism, n_queries=n_queries, n_answered=answered).epsilon(delta=delta)


def binomial_epsilon(p, q, n, delta):
    """Of n Bernoulli(p) against Bernoulli(q), by bisection over the exact sum."""
    k = np.arange(n + 1)
    one, other = binom.logpmf(k, n, p), binom.logpmf(k, n, q)

    def spent(epsilon):
        return np.maximum(np.exp(one) - np.exp(epsilon + other), 0).sum()

    low, high = 0.0, 50.0
    while high - low > 1e-10:
        middle = (low + high) / 2
        low, high = (low, middle) if spent(middle) <= delta else (middle, high)
    return high


@pytest.mark.parametrize(("step", "above"), [(1e-3, 3e-3), (5e-4, 1e-3), (2.5e-4, 3e-4)])
def test_a_fixed_pair_is_the_exact_binomial_from_above(step, above):
    p, q = float(ndtr(0.0)), float(ndtr(-math.sqrt(2) / 40))
    law = (np.array([p, 1 - p]), np.log([q / p, (1 - q) / (1 - p)]))
    found = _composed([([law], 283)], step=step, n_points=int(4 / step), charged=0.0, backwards=False)
    exact = binomial_epsilon(p, q, 283, 1e-5)
    assert exact <= found.epsilon(1e-5) <= exact + above


@pytest.mark.parametrize("n", [10, 100, 1000])
def test_pure_answers_are_randomized_responses(n):
    mechanism = LNMax(scale=20.0)
    p = 1 / (1 + math.exp(-0.1))
    exact = binomial_epsilon(p, 1 - p, n, 1e-5)
    found = profile_epsilon(mechanism, n_queries=n, n_answers=n, delta=1e-5)
    assert exact * (1 - 1e-6) <= found <= exact * 1.005


def cells_of(pairs):
    """Each pair and its mirror image, on three outcomes, without terms."""
    laws = [law for p, q in pairs for law in ((p, q), (q, p))]
    p = np.array([[p] * 4 for p, _ in laws])
    log_ratio = np.array([[np.log(np.array(q) / np.array(p))] * 4 for p, q in laws])
    none = np.zeros((len(laws), 6))
    return Cells(p=p, log_ratio=log_ratio, ends=none, mass=none, moved=none)


@pytest.mark.parametrize("depth", [1, 2, 3, 4])
def test_the_recursion_is_brute_force_over_all_adversaries(depth):
    rng = np.random.default_rng(depth)
    pairs = []
    for _ in range(3):
        p = rng.dirichlet(np.ones(3))
        q = p * np.exp(0.3 * rng.normal(size=3))
        pairs.append((p, q / q.sum()))
    both = [*pairs, *((q, p) for p, q in pairs)]

    def best(k, alpha):
        if k == 0:
            return max(1 - alpha, 0.0)
        return max(sum(a * best(k - 1, alpha * b / a) for a, b in zip(p, q, strict=True)) for p, q in both)

    found = composed(cells_of(pairs), depth, step=2e-3, n_points=2000)
    for epsilon in (0.0, 0.1, 0.4, 1.0):
        exact, ours = best(depth, math.exp(epsilon)), float(found(np.array([math.exp(epsilon)]))[0])
        assert exact <= ours <= exact + 2e-3


def test_a_worse_family_is_noticed():
    """The same recursion on a family that leaves out the worst pair is below brute force."""
    pairs = [((0.5, 0.3, 0.2), (0.4, 0.35, 0.25)), ((0.9, 0.05, 0.05), (0.5, 0.3, 0.2))]
    whole = composed(cells_of(pairs), 3, step=2e-3, n_points=2500)
    part = composed(cells_of(pairs[:1]), 3, step=2e-3, n_points=2500)
    assert part(np.array([2.0]))[0] < 0.5 * whole(np.array([2.0]))[0]


def random_profile(rng, alphas):
    """Convex, non-increasing, 1 at 0: a Gaussian's, or hinges."""
    if rng.random() < 0.3:
        return np.maximum(gaussian_profile(rng.uniform(0.05, 2.0))[0](alphas), 0.0)
    kinks = rng.choice(alphas[:-1], size=rng.integers(1, 6))
    weights = rng.dirichlet(np.ones(len(kinks)))
    return sum(w * np.maximum(1 - alphas / k, 0.0) for w, k in zip(weights, kinks, strict=True))


@pytest.mark.parametrize(
    ("kind", "sigma", "n", "delta"),
    [("winner", 40.0, 283, 1e-5), ("winner", 4.0, 12, 1e-5), ("check", 20.0, 200, 1e-6)],
)
def test_cells_bound_every_position_for_any_convex_profile(kind, sigma, n, delta):
    from terrine.accounting.cells import _log_p

    rng = np.random.default_rng(int(sigma))
    shift, deviation = 1 / sigma, 1.13 / sigma
    step = deviation / 16
    taps = _Taps(_cells(kind, shift, deviation, n, delta), step=step)
    n_points = min(int(6 * deviation * math.sqrt(n) / step), 1500)
    alphas = np.exp(step * np.arange(-taps.reach, n_points + taps.reach))
    inside = alphas[taps.reach : taps.reach + n_points]
    for _ in range(amount(12, soak=200)):
        g = random_profile(rng, alphas)
        slopes = np.append(np.diff(g) / np.diff(alphas) * alphas[:-1], 0.0)
        bound = taps.largest(g, slopes, taps.reach, n_points) + left_out(shift) * (1 + inside) + 1e-15
        for _ in range(40):
            spread = 12.0 if rng.random() < 0.3 else 2.0
            if kind == "winner":
                u, v = rng.normal(0.5, spread), rng.normal(0, spread)
                p, q = (np.exp(_log_p(np.array([u]), np.array([w])))[:, 0] for w in (v, v - shift))
            else:
                t = rng.normal(0, spread)
                p, q = (np.array([ndtr(w), ndtr(-w)]) for w in (t, t - shift))
            value = sum(a * np.interp(inside * (b / a), alphas, g) for a, b in zip(p, q, strict=True) if a > 0)
            assert (value <= bound * (1 + 1e-12)).all()


def test_a_step_sums_what_its_cells_say():
    """As plain sums of shifted values, again and again: no step sees anything of the one before."""
    step, n = 1.13 / 4 / 16, 150
    taps = _Taps(_cells("winner", 1 / 4, 1.13 / 4, 12, 1e-5), step=step)
    alphas = np.exp(step * np.arange(-taps.reach, n + taps.reach))
    rng = np.random.default_rng(0)
    for _ in range(2):
        g = random_profile(rng, alphas)
        slopes = np.append(np.diff(g) / np.diff(alphas) * alphas[:-1], 0.0)

        def summed(source, some, n=n):
            return sum((weight * source[taps.reach + k :][:n] for k, weight in some), np.zeros(n))

        corners = [summed(g, some) for some in taps._corners]
        plain = [
            np.max([corners[k] for k in places], axis=0) + summed(g, of_values) + summed(slopes, of_slopes)
            for places, (of_values, of_slopes) in taps._cells
        ]
        np.testing.assert_allclose(
            taps.largest(g, slopes, taps.reach, n), np.max([*plain, 0 * g[:n]], axis=0), 1e-12, 1e-15
        )


def test_cells_without_their_terms_do_not_bound():
    """Corners alone miss what is between them: the test above can fail."""
    sigma = 4.0
    cells = _cells("check", 1 / sigma, 0.8 / sigma, 40, 1e-5)
    bare = Cells(cells.p, cells.log_ratio, 0 * cells.ends, 0 * cells.mass, 0 * cells.moved)
    step = 0.8 / sigma / 16
    taps = _Taps(bare, step=step)
    alphas = np.exp(step * np.arange(-taps.reach, 400 + taps.reach))
    inside = alphas[taps.reach : taps.reach + 400]
    missed = 0
    for kink in inside[5:200:5]:
        g = np.maximum(1 - alphas / kink, 0.0)
        bound = taps.largest(g, np.zeros_like(g), taps.reach, 400)
        for t in np.linspace(-3, 3, 500):
            p, q = (np.array([ndtr(w), ndtr(-w)]) for w in (t, t - 1 / sigma))
            value = sum(a * np.maximum(1 - inside * b / a / kink, 0.0) for a, b in zip(p, q, strict=True))
            missed += bool((value > bound * (1 + 1e-12)).any())
    assert missed


@pytest.mark.parametrize(("sigma", "n", "delta"), [(20.0, 30, 1e-5), (5.0, 10, 1e-5), (60.0, 90, 1e-7)])
def test_between_what_must_be_charged_and_the_renyi_bound(sigma, n, delta):
    mechanism = GNMax(sigma=sigma)
    found = profile_epsilon(mechanism, n_queries=n, n_answers=n, delta=delta)
    with_two_classes = max(
        binomial_epsilon(float(ndtr(t)), float(ndtr(t - math.sqrt(2) / sigma)), n, delta) for t in (-0.2, 0.0, 0.2)
    )
    assert with_two_classes <= found < renyi(mechanism, n_queries=n, n_answers=n, delta=delta)
    assert found < (1.03 if n > 50 else 1.2) * with_two_classes  # with few answers it pays to choose by those before


def test_checks_and_answers_cost_less_than_gaussians_by_dp_accounting():
    from dp_accounting.pld import privacy_loss_distribution as pld

    mechanism = ConfidentGNMax(threshold=60.0, sigma_check=60.0, sigma_vote=20.0)
    found = profile_epsilon(mechanism, n_queries=60, n_answers=20, delta=1e-5)
    mu = math.sqrt(60 / 60**2 + 2 * 20 / 20**2)
    gaussian = pld.from_gaussian_mechanism(1 / mu).get_epsilon_for_delta(1e-5)
    assert 0.6 * gaussian < found < 0.9 * gaussian


def a_gaussian(mu, step, n):
    alphas = np.exp(step * np.arange(-n, n + 1))
    return PrivacyProfile(step, -n, np.maximum(gaussian_profile(mu)[0](alphas), 0.0))


@pytest.mark.parametrize(("one", "other"), [(0.3, 0.4), (1.0, 0.2), (0.7, 1.5)])
def test_the_product_of_two_gaussians_is_a_gaussian(one, other):
    step = 1e-3
    found = product_epsilon(a_gaussian(one, step, 9000), a_gaussian(other, 2 * step, 4500), delta=1e-6)
    exact = a_gaussian(math.hypot(one, other), 1e-4, 150_000).epsilon(1e-6)
    assert exact * (1 - 1e-7) <= found <= exact * (1 + 2e-4)


def test_what_the_cells_leave_out_is_charged_in_every_step():
    cells = pair_cell((0.6, 0.4), (0.5, 0.5))
    bare, charged = (composed(cells, 1, step=0.01, n_points=80, left_out=tau) for tau in (0.0, 1e-3))
    there = bare.alphas[79:]  # from epsilon = 0 on
    assert charged(there) == pytest.approx(np.minimum(bare(there) + 1e-3 * (1 + there), 1), rel=1e-9)
    twice = composed(cells, 2, step=0.01, n_points=80, left_out=1e-3)(np.array([2.0]))
    assert twice[0] >= composed(cells, 2, step=0.01, n_points=80)(np.array([2.0]))[0] + 2e-3 * 3 * 0.9


@pytest.mark.parametrize(("kind", "expected"), [("winner", left_out(0.1)), ("check", left_out(0.1)), ("pure", 0.0)])
def test_a_profile_charges_what_its_cells_leave_out(monkeypatch, kind, expected):
    seen = []

    def spied(*given, **options):
        seen.append(options["left_out"])
        return composed(*given, **options)

    monkeypatch.setattr(profile_costs, "composed", spied)
    profile_costs.profile(kind, 0.1, 8, 1e-3)
    assert seen == [expected]
    assert left_out(0.1) >= 2 * ndtr(0.1 - 8.5)


def test_what_one_of_two_lets_out_for_certain_adds_up():
    """Each tells all with a chance of 1e-3 and else nothing: no epsilon holds at a delta below the sum."""
    alphas = np.exp(0.01 * np.arange(-200, 201))
    one = PrivacyProfile(0.01, -200, 1e-3 + (1 - 1e-3) * np.maximum(1 - alphas, 0.0))
    assert product_epsilon(one, one, delta=1.9e-3) == math.inf
    assert product_epsilon(one, one, delta=2.1e-3) < 0.1


def test_given_votes_cost_what_the_worse_direction_does():
    """Of unanimous votes a teacher can move only one way, and it is the moved votes that tell."""
    unanimous = Votes(np.tile([10, 0], (20, 1)), n_teachers=10)
    found = profile_of_votes(GNMax(sigma=3.0), unanimous, delta=1e-3).reveal().epsilon
    p, q = (float(ndtr(-gap / 3 / math.sqrt(2))) for gap in (10, 8))
    there, back = binomial_epsilon(p, q, 20, 1e-3), binomial_epsilon(q, p, 20, 1e-3)
    assert there < 0.9 * back
    assert back * (1 - 1e-6) <= found <= 1.02 * back


def test_renyi_in_the_limit():
    """With delta falling like e^-cn the Rényi bound is tight to first order, and the profile comes near it."""
    mechanism, ratios = LNMax(scale=40.0), []
    for n, delta in ((50, 1e-3), (200, 1e-12), (900, 1e-54)):
        ours = profile_epsilon(mechanism, n_queries=n, n_answers=n, delta=delta)
        p = 1 / (1 + math.exp(-0.05))
        orders = np.geomspace(1.05, 500, 400)
        rdp = n * np.log(p**orders * (1 - p) ** (1 - orders) + (1 - p) ** orders * p ** (1 - orders)) / (orders - 1)
        by_renyi = float((rdp + np.log1p(-1 / orders) - (math.log(delta) + np.log(orders)) / (orders - 1)).min())
        ratios.append(ours / by_renyi)
    assert ratios[0] < ratios[1] < ratios[2] < 1
    assert ratios[2] > 0.985


def test_more_costs_more():
    mechanism = GNMax(sigma=20.0)
    fewer, more = (profile_epsilon(mechanism, n_queries=n, n_answers=n, delta=1e-5) for n in (20, 24))
    assert fewer < more
    confident = ConfidentGNMax(threshold=60.0, sigma_check=60.0, sigma_vote=20.0)
    checked = [profile_epsilon(confident, n_queries=n, n_answers=20, delta=1e-5) for n in (30, 60)]
    assert fewer < checked[0] < checked[1]


@pytest.mark.parametrize(
    ("mechanism", "n"),
    [(GNMax(sigma=20.0), 5), (GNMax(sigma=20.0), 30_000), (GNMax(sigma=0.5), 10), (GNMax(sigma=2.0), 3000)],
)
def test_what_the_recursion_is_not_made_for_is_infinite(mechanism, n):
    assert profile_epsilon(mechanism, n_queries=n, n_answers=n, delta=1e-5) == math.inf


def test_the_convex_envelope_is_convex_and_below():
    rng = np.random.default_rng(0)
    alphas = np.cumsum(rng.uniform(0.1, 1, 60))
    values = np.exp(-alphas / 5) + 0.05 * rng.random(60)
    found = convex(alphas, values)
    assert (found <= values + 1e-15).all()
    assert (np.diff(np.diff(found) / np.diff(alphas)) >= -1e-12).all()
    assert (convex(alphas, np.exp(-alphas)) == np.exp(-alphas)).all()


def test_a_profile_is_kept_and_found_again_and_damage_is_noticed(monkeypatch, tmp_path):
    settings = {"n_queries": 12, "n_answers": 12, "delta": 1e-5}
    first = profile_epsilon(GNMax(sigma=30.0), **settings)
    (path,) = tmp_path.rglob("*.npz")
    profile_costs.profile.cache_clear()
    profile_costs.profile_epsilon.cache_clear()
    with monkeypatch.context() as patched:
        patched.setattr(profile_costs, "composed", None)  # it may not be computed again
        assert profile_epsilon(GNMax(sigma=30.0), **settings) == first
    with np.load(path) as file:
        arrays = dict(file)
    np.savez(path, **{**arrays, "values": 0.5 * arrays["values"]})
    profile_costs.profile.cache_clear()
    profile_costs.profile_epsilon.cache_clear()
    assert profile_epsilon(GNMax(sigma=30.0), **settings) == first
    path.write_bytes(b"no archive")
    profile_costs.profile.cache_clear()
    profile_costs.profile_epsilon.cache_clear()
    assert profile_epsilon(GNMax(sigma=30.0), **settings) == first


@pytest.mark.parametrize("other", [{"sigma": 60.0}, {"n": 8}, {"delta": 1e-2}, {"version": 1}], ids=str)
def test_a_file_of_another_profile_in_its_place_is_not_taken(monkeypatch, tmp_path, other):
    def found(*, sigma=30.0, n=12, delta=1e-5, version=profile_costs.VERSION):
        profile_costs.profile.cache_clear()
        with monkeypatch.context() as patched:
            patched.setattr(profile_costs, "VERSION", version)
            return profile_costs.profile("check", 1 / sigma, n, delta)

    right = found()
    (path,) = tmp_path.rglob("*.npz")
    path.unlink()
    found(**other)
    (elsewhere,) = tmp_path.rglob("*.npz")
    assert elsewhere != path
    elsewhere.rename(path)
    assert (found().values == right.values).all()


def test_a_cache_that_cannot_be_written_costs_time_only(monkeypatch, tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("TERRINE_CACHE", str(blocked))
    assert profile_epsilon(GNMax(sigma=30.0), n_queries=12, n_answers=12, delta=1e-5) < 1


PAPER = {
    "270": (GNMax(sigma=100.0), 270, 270, 1e-5, 0.69),
    "mnist": (ConfidentGNMax(threshold=200.0, sigma_check=150.0, sigma_vote=40.0), 640, 283, 1e-5, 2.02),
    "adult": (ConfidentGNMax(threshold=300.0, sigma_check=200.0, sigma_vote=40.0), 1500, 538, 1e-5, 2.86),
    "svhn": (ConfidentGNMax(threshold=300.0, sigma_check=200.0, sigma_vote=40.0), 8500, 2969, 1e-6, 8.50),
}


@pytest.mark.parametrize(
    "name", ["mnist", *(pytest.param(name, marks=pytest.mark.soak) for name in ("270", "adult", "svhn"))]
)
def test_the_papers_budgets(name):
    mechanism, n_queries, n_answers, delta, at_most = PAPER[name]
    found = profile_epsilon(mechanism, n_queries=n_queries, n_answers=n_answers, delta=delta)
    assert 0.9 * renyi(mechanism, n_queries=n_queries, n_answers=n_answers, delta=delta) < found <= at_most


def test_one_pair_with_its_mirror_image():
    cells = pair_cell((0.6, 0.4), (0.5, 0.5))
    assert cells.p[0, 0, :2] == pytest.approx([0.6, 0.4])
    assert cells.p[0, 1, :2] == pytest.approx([0.5, 0.5])
