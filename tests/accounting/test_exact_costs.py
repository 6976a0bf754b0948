"""What a batch costs by the exact accountant: sums over queries, and the paper's votes."""

from __future__ import annotations

import numpy as np
import pytest

from terrine.accounting.argmax import rdp_argmax
from terrine.accounting.costs import CostSettings, cost, running_cost
from terrine.accounting.curves import guarantee
from terrine.accounting.exact import rdp_check_exact, rdp_confident_exact, rdp_gnmax_exact
from terrine.datasets.synthetic import synthetic_votes
from terrine.mechanisms import ConfidentGNMax, GNMax, InteractiveGNMax
from terrine.votes import Votes

ORDERS = [2.0, 1.2, 14.5, 60.0, 5.0]  # in no order


def test_cost_is_the_sum_over_queries() -> None:
    votes = synthetic_votes(n_queries=30, n_classes=5, n_teachers=60, consensus=0.7, hard=0.3, seed=1)
    proba = np.random.default_rng(2).dirichlet(np.ones(5), size=30)
    check = {"threshold": 30.0, "sigma_check": 12.0, "sigma_vote": 5.0}
    interactive = InteractiveGNMax(**check, student_confidence=0.9)
    per_query = {
        "gnmax": (GNMax(sigma=5), {}, rdp_gnmax_exact(votes.counts, sigma=5, orders=ORDERS)),
        "confident": (ConfidentGNMax(**check), {}, rdp_confident_exact(votes.counts, orders=ORDERS, **check)),
        "interactive": (
            interactive,
            {"student_proba": proba},
            rdp_confident_exact(votes.counts, orders=ORDERS, offsets=60 * proba, **check),
        ),
    }
    for mechanism, student, costs in per_query.values():
        curve = cost(mechanism, votes, orders=ORDERS, **student).reveal()
        assert curve.epsilons == pytest.approx(costs.sum(axis=0), rel=1e-9)
        assert "exact" in curve.basis
        stops = [1, 17, 30]
        running = running_cost(mechanism, votes, CostSettings(orders=ORDERS), stops=stops, **student)
        for stop, secret in zip(stops, running, strict=True):
            assert secret.reveal().epsilons == pytest.approx(costs[:stop].sum(axis=0), rel=1e-9)


@pytest.mark.parametrize(
    ("name", "queries", "check", "delta", "tight", "classic"),
    [
        ("mnist", 640, {"threshold": 200, "sigma_check": 150, "sigma_vote": 40}, 1e-5, 0.9227, 1.1439),
        ("adult", 1500, {"threshold": 300, "sigma_check": 200, "sigma_vote": 40}, 1e-5, 0.9575, 1.1813),
        ("svhn", 8500, {"threshold": 300, "sigma_check": 200, "sigma_vote": 40}, 1e-6, 2.6630, 3.0267),
    ],
)
def test_the_papers_votes(vote_files, name, queries, check, delta, tight, classic) -> None:
    """Two prototypes that share no code with this package found these numbers (shared/theory.md, section 3)."""
    raw = np.load(vote_files / f"{name}_250_teachers.npy")
    votes = Votes(raw.astype(np.int64), n_teachers=250)[:queries]
    curves = {a: cost(ConfidentGNMax(**check), votes, accountant=a).reveal() for a in ("exact", "sanitizable", "paper")}
    for conversion, expected in (("tight", tight), ("classic", classic)):
        epsilons = [guarantee(curve, delta=delta, conversion=conversion).epsilon for curve in curves.values()]
        assert expected - 0.00006 < epsilons[0] < expected + 0.0003
        assert epsilons[0] < epsilons[1] < epsilons[2]
    if name == "mnist":
        order_14 = cost(ConfidentGNMax(**check), votes, orders=[14.0]).reveal().epsilons[0]
        assert order_14 == pytest.approx(0.352382, abs=1e-6)


def test_what_floats_cannot_resolve_is_charged_the_worst_case_and_said() -> None:
    votes = Votes([[1500, 0], [750, 750]], n_teachers=1500)
    orders = [2.0, 500.0]
    curve = cost(GNMax(sigma=1), votes, orders=orders).reveal()
    rare, tie = rdp_gnmax_exact(votes.counts, sigma=1, orders=orders)
    assert (rare == rdp_argmax(sigma=1, orders=orders)).all()
    assert tie[0] < rare[0]
    assert curve.epsilons == pytest.approx(rare + tie, rel=1e-12)
    assert "the worst case for 1 queries" in curve.basis
    assert "worst case" not in cost(GNMax(sigma=1), votes[1:], orders=orders).reveal().basis


@pytest.mark.parametrize(("score", "sigma"), [(1e4, 1.0), (-1e4, 1.0), (1.0, 0.02)])
def test_a_check_beyond_floats_is_charged_the_gaussian_bound_without_a_warning(score: float, sigma: float) -> None:
    orders = np.array([1.5, 20.0, 500.0])
    costs = rdp_check_exact([score], threshold=0.0, sigma=sigma, orders=orders)[0]
    assert (costs == orders / (2 * sigma**2)).all()


def test_a_check_at_its_threshold_with_little_noise() -> None:
    """Bern(1/2) against Bern(Φ(-100)): -log Φ(-100) = 5005.5242 and the order decides what a half weighs."""
    (cost_,) = rdp_check_exact([0.0], threshold=0.0, sigma=0.01, orders=1.5)[0]
    assert cost_ == pytest.approx((0.5 * 5005.524208 - 1.5 * np.log(2)) / 0.5, rel=1e-8)
