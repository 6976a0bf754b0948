"""Sensitivities of all small histograms against their definitions: every neighbour, every ball, every distance."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, partial

import numpy as np
import pytest
from tests.oracles.sensitivity import Array, Histogram, Space, log_q, neighbours, space

from terrine import ConfidentGNMax, GNMax, Votes, cost
from terrine.errors import InputError
from terrine.release.smooth import Profile, VoteRows, log_parts, sensitivity_at, smooth_sensitivity

BETAS = (0.02, 0.3, 1.5)
# Where a sum of queries was rounded: `cost` is right to some 1e-15 of the worst case, not of itself
SLACK = 1e-12


@dataclass(frozen=True)
class Case:
    """Noise small enough that the bounds of a few teachers depend on their votes."""

    accountant: str
    sigma: float
    order: float
    check: tuple[float, float] | None  # threshold as a share of the teachers, standard deviation

    def mechanism(self, votes: int) -> GNMax | ConfidentGNMax:
        if self.check is None:
            return GNMax(sigma=self.sigma)
        share, sigma_check = self.check
        return ConfidentGNMax(threshold=share * votes, sigma_check=sigma_check, sigma_vote=self.sigma)

    def votes(self, rows: list[Histogram]) -> Votes:
        return Votes(rows, n_teachers=sum(rows[0]))

    def cost(self, *rows: Histogram) -> float:
        curve = cost(
            self.mechanism(sum(rows[0])), self.votes(list(rows)), orders=[self.order], accountant=self.accountant
        )
        return float(curve.reveal().epsilons[0])

    def at(self, distance: int, *rows: Histogram) -> float:
        return sensitivity_at(
            self.mechanism(sum(rows[0])),
            self.votes(list(rows)),
            distance=distance,
            order=self.order,
            accountant=self.accountant,
        ).reveal()

    def at_each(self, rows: list[Histogram], distances: range) -> list[Array]:
        """The same for each row by itself, all at once."""
        parts = log_parts(self.mechanism(sum(rows[0])), self.votes(rows), self.order, self.accountant)
        where = []
        for part in parts:
            if isinstance(part, VoteRows):
                index = {tuple(counts): i for i, counts in enumerate(part.counts.tolist())}
                where.append([index[tuple(sorted(row, reverse=True))] for row in rows])
            else:
                places = part.places.tolist()
                where.append([places.index(row[0] if self.accountant == "exact" else max(row)) for row in rows])
        return [
            sum(np.exp(part.log_at(d, np.array(at))) for part, at in zip(parts, where, strict=True)) for d in distances
        ]

    def refused(self, votes: int, classes: int) -> bool:
        try:
            self.at(0, (votes,) + (0,) * (classes - 1))
        except InputError as error:
            if "teachers are too few" not in str(error):
                raise
            return True
        return False

    def smooth(self, beta: float, *rows: Histogram) -> float:
        return smooth_sensitivity(
            self.mechanism(sum(rows[0])),
            self.votes(list(rows)),
            beta=beta,
            order=self.order,
            accountant=self.accountant,
        ).reveal()

    def __str__(self) -> str:
        return f"{self.accountant}-{self.sigma:g}-{self.order:g}{'-check' if self.check else ''}"


CASES = [
    Case("paper", 1.0, 1.3, None),
    Case("paper", 1.0, 2.0, (0.7, 1.0)),
    Case("paper", 1.5, 1.1, None),
    Case("paper", 2.0, 2.5, (0.9, 0.8)),
    Case("paper", 3.0, 3.0, None),
    Case("sanitizable", 0.7, 4.0, None),
    Case("sanitizable", 1.0, 1.5, (0.7, 0.6)),
    Case("sanitizable", 1.0, 2.0, None),
    Case("sanitizable", 1.5, 3.0, (0.5, 1.5)),
    Case("sanitizable", 2.0, 2.5, None),
    Case("sanitizable", 1.0, 4.0, None),
    Case("sanitizable", 3.0, 3.0, (1.1, 2.0)),
    Case("exact", 0.7, 3.0, None),
    Case("exact", 1.0, 2.0, (0.7, 0.6)),
    Case("exact", 2.0, 10.0, None),
    Case("exact", 1.5, 1.2, (0.9, 3.0)),
]


@dataclass(frozen=True)
class Found:
    """What the package says at every histogram, and what is true there."""

    space: Space
    cost: Array
    local: Array
    at: Array  # (distances, histograms)
    beta: float
    smooth: Array


def found(case: Case, votes: int, classes: int) -> Found | None:
    """None where the package says that these teachers are too few."""
    here = space(votes, classes)
    if case.refused(votes, classes):
        costs = here.values(Case(case.accountant, case.sigma, case.order, None).cost)
        assert np.ptp(costs) <= SLACK * costs[0]  # and they are
        return None
    costs = here.values(case.cost)
    at = np.array(case.at_each(here.points, range(votes + 1)))
    some = votes // 3
    assert here.values(partial(case.at, some)) == pytest.approx(at[some], rel=1e-12)
    beta = BETAS[votes % 3]
    return Found(here, costs, here.local(costs), at, beta, here.values(partial(case.smooth, beta)))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_all_histograms_of_at_most_10_votes_and_3_classes(case: Case) -> None:
    """And those of 6 votes and 4 classes."""
    shapes = [(votes, 2) for votes in range(1, 11)]
    if case.accountant != "exact":
        shapes += [(votes, 3) for votes in range(1, 11)] + [(6, 4)]
    those = [f for f in (found(case, *shape) for shape in shapes) if f is not None]
    assert len(those) >= 4
    assert any(f.local.max() > 0.05 * f.cost.max() for f in those)  # the case is worth having
    for f in those:
        check_every_ball(f)
        check_smoothness(f, exact=case.accountant == "exact")


def check_every_ball(f: Found) -> None:
    for distance, bound in enumerate(f.at):
        assert (bound >= f.space.within(f.local, distance) - SLACK * f.cost.max()).all()
        assert (bound >= f.space.within(f.at[0], distance) * (1 - SLACK)).all()
        if distance:  # and a ball holds the smaller balls of its inner points
            assert (bound >= f.space.within(f.at[distance - 1], 1) * (1 - SLACK)).all()
    assert (np.diff(f.at, axis=0) >= 0).all()


def check_smoothness(f: Found, *, exact: bool) -> None:
    smooth, beta, discount = f.smooth, f.beta, np.exp(-f.beta * np.arange(f.at.shape[0]))[:, None]
    nearby = np.where(f.space.adjacent, smooth, np.inf).min(axis=1)
    assert (smooth <= np.exp(beta) * nearby * (1 + 1e-9)).all()
    assert (smooth >= f.at[0]).all()
    assert smooth == pytest.approx((discount * f.at).max(axis=0), rel=1e-9)
    true = (discount * [f.space.within(f.local, d) for d in range(f.at.shape[0])]).max(axis=0)
    assert (smooth >= true - SLACK * f.cost.max()).all()
    if exact:
        assert smooth == pytest.approx(true, rel=1e-8)


def test_the_order_of_classes_and_queries_does_not_matter() -> None:
    for case in CASES[1], CASES[6]:
        one, other = [(5, 2, 1), (3, 3, 2)], [(2, 3, 3), (1, 5, 2)]
        assert case.at(1, *one) == pytest.approx(case.at(1, *other), rel=1e-14)
        assert case.smooth(0.1, *one) == pytest.approx(case.smooth(0.1, *other), rel=1e-14)


@pytest.mark.parametrize("case", [CASES[i] for i in (1, 6, 7, 8, 10, 12)], ids=str)
def test_one_teacher_moves_on_all_queries_at_once(case: Case) -> None:
    """Joint walks of d teachers from random data sets: the local sensitivity of the sum there, and SS one move on."""
    rng = np.random.default_rng(7)
    votes, classes, beta = 8, 2 if case.accountant == "exact" else 3, 0.2
    cost_of = cache(case.cost)

    def local(rows: list[Histogram]) -> float:
        """The best joint move up or down: on each query the best there is, or none."""
        changes = [[cost_of(near) - cost_of(row) for near in neighbours(row)] for row in rows]
        return max(
            sum(max(0.0, *change) for change in changes), sum(max(0.0, *(-c for c in change)) for change in changes)
        )

    def moved(rows: list[Histogram]) -> list[Histogram]:
        choices = [[row, *neighbours(row)] for row in rows]
        return [choice[rng.integers(len(choice))] for choice in choices]

    sharp = 0.0
    for _ in range(25):
        points = space(votes, classes).points
        start = [points[i] for i in rng.integers(len(points), size=rng.integers(2, 4))]
        assert cost_of(start[0]) + case.cost(*start[1:]) == pytest.approx(case.cost(*start), rel=1e-12)
        smooth, here = case.smooth(beta, *start), start
        for distance in range(4):
            true, bound = local(here), case.at(distance, *start)
            assert true <= bound + SLACK
            assert np.exp(-beta * distance) * true <= smooth + SLACK
            sharp = max(sharp, true / (bound + SLACK))
            here = moved(here)
        near = moved(start)
        assert case.smooth(beta, *near) <= np.exp(beta) * smooth * (1 + 1e-9)
        assert smooth <= np.exp(beta) * case.smooth(beta, *near) * (1 + 1e-9)
        for distance in range(3):
            assert case.at(distance, *start) <= case.at(distance + 1, *near) * (1 + SLACK)
    assert sharp > 0.3  # a bound that is far above everything would prove nothing


@pytest.mark.parametrize("classes", [2, 3, 4])
@pytest.mark.parametrize("sigma", [0.7, 2.0])
def test_the_ends_of_every_ball(classes: int, sigma: float) -> None:
    """Largest and smallest q: ties, distances beyond the gap, and more moves than votes outside the first class."""
    unused = Profile(at=lambda log_q: log_q, rise=0.0, fall=0.0, peak=0.0)
    for votes in range(1, 11 if classes < 4 else 8):
        here = space(votes, classes)
        log_qs = here.values(partial(log_q, sigma=sigma))
        rows = VoteRows(np.array(here.points), np.ones(len(here.points)), sigma=sigma, profile=unused)
        index = [here.index[tuple(row)] for row in rows.counts]
        every = np.arange(len(index))
        assert rows.log_q == pytest.approx(log_qs[index], abs=1e-12)
        gaps = rows.counts[:, 0] - rows.counts[:, 1]
        for distance in range(votes + 3):
            apart = gaps >= 2 * distance
            highest, lowest = rows.highest(distance, every), rows.lowest(distance, every)
            assert highest[apart] == pytest.approx(here.within(log_qs, distance)[index][apart], abs=1e-12)
            assert (highest[~apart] == 0.0).all()  # a tie is above all
            assert lowest == pytest.approx(-here.within(-log_qs, distance)[index], abs=1e-12)
