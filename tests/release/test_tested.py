"""What a tested release claims is true: arithmetic, refusals, what leaves, and every output law of a tiny one."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import binomtest
from tests.oracles.sensitivity import histograms, neighbours

from terrine import (
    ABSTAIN,
    ORDERS,
    Answers,
    ConfidentGNMax,
    GNMax,
    InteractiveGNMax,
    LNMax,
    Outcome,
    RdpCurve,
    Votes,
    answer,
    cost,
    guarantee,
    worst_case_cost,
)
from terrine.accounting.argmax import rdp_argmax, rdp_check
from terrine.accounting.exact import log_probabilities
from terrine.errors import InputError, OrderGridWarning
from terrine.noise import as_noise
from terrine.release.gap_bound import gap_costs, gaps_of
from terrine.release.sanitize import Sanitizer
from terrine.release.tested import (
    INSECURE,
    ConditionalGuarantee,
    overhead,
    publishable_guarantee,
    sanitize,
    tested_guarantee,
)
from terrine.release.tested_chances import MOST, ONE, UNIT, chances, distance, whole_costs
from terrine.sensitive import Sensitive

MECHANISM = ConfidentGNMax(threshold=120, sigma_check=40, sigma_vote=10)
FIXED = {"delta": 1e-5, "n_teachers": 200, "n_classes": 3, "n_queries": 60}
STRONG, WEAK = [190, 6, 4], [70, 66, 64]


def strong(n: int = 60) -> Votes:
    return Votes(np.tile(STRONG, (n, 1)), n_teachers=200)


def weak(n: int = 60) -> Votes:
    return Votes(np.tile(WEAK, (n, 1)), n_teachers=200)


def fix(mechanism: GNMax | ConfidentGNMax = MECHANISM, **changes: object) -> ConditionalGuarantee:
    return tested_guarantee(mechanism, **{"target": 2.5, **FIXED, **changes})


@dataclass(frozen=True)
class Outcomes:
    passed: bool
    answers: Answers | None


def release(fixed: ConditionalGuarantee, votes: Votes, rng: np.random.Generator | None = None) -> Outcomes:
    """What a ledger's one release would let out."""
    answers, passed = fixed._draw(votes, as_noise(rng)).reveal()
    return Outcomes(passed, answers if passed else None)


def one_line(caught: pytest.ExceptionInfo[InputError]) -> str:
    message = str(caught.value)
    assert "\n" not in message
    assert message.endswith(".")
    return message


# ---- arithmetic


@pytest.mark.parametrize("mechanism", [MECHANISM, GNMax(sigma=10)])
@pytest.mark.parametrize("delta_release", [None, 4e-6])
def test_target_is_delta_checks_and_what_test_and_answers_may_cost(
    mechanism: GNMax | ConfidentGNMax, delta_release: float | None
) -> None:
    order = 11.0
    fixed = fix(mechanism, order=order, share=0.7, delta_release=delta_release)
    delta_answers = 1e-5 - (1e-6 if delta_release is None else delta_release)
    checks = 60 * float(rdp_check(sigma=40, orders=order)[0]) if mechanism is MECHANISM else 0.0
    spent = checks + math.log((order - 1) / order) - (math.log(delta_answers) + math.log(order)) / (order - 1)
    assert overhead(mechanism, n_queries=60, order=order, delta=delta_answers) == pytest.approx(spent, rel=1e-12)
    assert fixed.budget == pytest.approx(2.5 - spent, rel=1e-11)
    assert fixed.budget < 2.5 - spent  # outward
    assert fixed.cap == pytest.approx(0.7 * fixed.budget, rel=1e-15)
    # and the package's own conversion of everything together comes back to the target
    together = RdpCurve([order], [checks + fixed.budget])
    assert guarantee(together, delta=delta_answers).epsilon == pytest.approx(2.5, rel=1e-9)
    assert (fixed.epsilon, fixed.delta, fixed.order) == (2.5, 1e-5, order)
    assert fixed.delta_release == pytest.approx(1e-5 - delta_answers)
    assert (fixed.n_answers, fixed.n_queries, fixed.mechanism) == (60, 60, mechanism)


def test_the_order_is_by_the_papers_rule_of_thumb() -> None:
    assert fix().order == pytest.approx(1 + 2 * math.log(1e5) / 2.5)
    assert fix().cap == pytest.approx(0.8 * fix().budget)


def test_it_says_what_it_is() -> None:
    fixed = fix(n_answers=40)
    assert "at most 60 queries and 40 answers" in str(fixed)
    assert "let out only if a private test" in str(fixed)
    assert str(fixed).startswith("(2.500, 1e-05)-DP")


# ---- refusals


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"target": 50.0}, "target must be below the worst case, 3.9"),
        ({"target": 0.3}, "which delta and the checks cost before any answer, got 0.3."),
        ({"target": 0.0}, "target must be above 0, got 0.0."),
        ({"target": math.nan}, "target must be finite"),
        ({"delta_release": 1e-5}, "delta_release is a part of delta=1e-05 and must be below it, got 1e-05."),
        ({"delta_release": 1e-4}, "delta_release is a part of delta=1e-05 and must be below it, got 0.0001."),
        ({"delta": 0.0}, "delta must be above 0 and below 1, got 0.0."),
        ({"mechanism": LNMax(scale=20)}, "mechanism must be GNMax or ConfidentGNMax here, got LNMax"),
        (
            {"mechanism": InteractiveGNMax(threshold=120, sigma_check=40, sigma_vote=10, student_confidence=0.9)},
            "mechanism must be GNMax or ConfidentGNMax here, got InteractiveGNMax",
        ),
        ({"n_queries": 0}, "n_queries must be a whole number of at least 1, got 0."),
        ({"n_answers": 61}, "n_answered must be at most n_queries, got n_answered=61"),
        ({"mechanism": GNMax(sigma=10), "n_answers": 30}, "a mechanism without a check answers every query"),
        ({"n_classes": 1}, "n_classes must be a whole number of at least 2, got 1."),
        ({"n_teachers": 0}, "n_teachers must be a whole number of at least 1, got 0."),
        ({"share": 0.0}, "share must be above 0 and below 1, got 0.0."),
        ({"share": 1.0}, "share must be above 0 and below 1, got 1.0."),
        ({"order": 1.0}, "Every order must be finite and above 1"),
        ({"order": "many"}, "order must be a number"),
    ],
)
def test_what_is_refused_before_any_vote(changes: dict, message: str) -> None:
    with pytest.raises(InputError) as caught:
        fix(**changes)
    assert message in one_line(caught)


def test_too_few_teachers_are_refused() -> None:
    with pytest.raises(InputError, match="10 teachers are too few for a data-dependent bound: at sigma=40"):
        fix(GNMax(sigma=40), n_teachers=10, target=0.7)


@pytest.mark.usefixtures("by_renyi")
def test_no_chance_is_above_what_delta_pays_for() -> None:
    """Refused, or kept."""
    try:
        fixed = fix(GNMax(sigma=10), delta=1e-20, order=60.0)
    except InputError:
        return
    assert fixed.pass_chance(weak()).reveal() <= 1e-20


def test_the_worst_case_itself_is_no_target() -> None:
    worst = publishable_guarantee(MECHANISM, n_queries=60, delta=1e-5).epsilon
    with pytest.raises(InputError, match="which needs no test"):
        fix(target=worst)
    fewer = publishable_guarantee(MECHANISM, n_queries=60, n_answers=20, delta=1e-5).epsilon
    with pytest.raises(InputError, match="which needs no test"):
        fix(target=fewer, n_answers=20)
    assert fix(target=fewer).n_answers == 60


def test_nothing_releases_without_a_ledger() -> None:
    """What is drawn is secret by type, and no public name draws."""
    fixed = fix()
    assert [name for name in vars(ConditionalGuarantee) if "release" in name.replace("delta_release", "")] == []
    drawn = fixed._draw(strong(), as_noise(np.random.default_rng(0)))
    assert isinstance(drawn, Sensitive)
    assert "Answers" not in repr(drawn)


@pytest.mark.parametrize(
    ("votes", "message"),
    [
        (([STRONG] * 61, 200), "The target was fixed for 60 queries, and the votes have 61."),
        (([[189, 6, 4]] * 60, 199), "The target was fixed for 200 teachers, and the votes have 199."),
        (([[190, 5, 4, 1]] * 60, 200), "The target was fixed for 3 classes, and the votes have 4."),
    ],
)
def test_votes_of_another_shape_are_refused(votes: tuple, message: str) -> None:
    fixed = fix()
    with pytest.raises(InputError) as caught:
        release(fixed, Votes(votes[0], n_teachers=votes[1]), rng=np.random.default_rng(0))
    assert one_line(caught) == message
    with pytest.raises(InputError, match="votes must be a Votes object, got list"):
        release(fixed, [STRONG] * 60, rng=np.random.default_rng(0))


# ---- what leaves


def test_consensus_passes_and_the_answers_leave() -> None:
    fixed = fix()
    outcome = release(fixed, strong(), rng=np.random.default_rng(1))
    assert outcome.passed
    assert outcome.answers is not None
    assert outcome.answers.n_answered > 50
    assert (outcome.answers.labels[outcome.answers.outcomes == Outcome.TEACHERS] == 0).all()
    assert not outcome.answers.secure
    assert "INSECURE" in repr(outcome)
    assert fixed.pass_chance(strong()).reveal() > 0.99
    assert "Sensitive" in repr(fixed.pass_chance(strong()))


@pytest.mark.parametrize("mechanism", [ConfidentGNMax(threshold=40, sigma_check=40, sigma_vote=10), GNMax(sigma=10)])
def test_without_consensus_nothing_leaves(mechanism: GNMax | ConfidentGNMax) -> None:
    fixed = fix(mechanism)
    outcome = release(fixed, weak(), rng=np.random.default_rng(1))
    assert not outcome.passed
    assert outcome.answers is None
    assert fixed.pass_chance(weak()).reveal() == pytest.approx(1e-6)  # the test's share of delta


def test_the_first_answers_leave_and_no_more_than_fixed() -> None:
    fixed = fix(n_answers=10, target=1.5)
    votes = strong()
    outcome = release(fixed, votes, rng=np.random.default_rng(4))
    free = answer(MECHANISM, votes, rng=np.random.default_rng(4))
    assert outcome.passed
    assert outcome.answers is not None
    assert outcome.answers.n_answered == 10 < free.n_answered
    given = np.flatnonzero(free.outcomes == Outcome.TEACHERS)
    assert (np.flatnonzero(outcome.answers.outcomes == Outcome.TEACHERS) == given[:10]).all()
    assert (outcome.answers.labels[given[10:]] == ABSTAIN).all()
    assert (outcome.answers.outcomes[given[10:]] == Outcome.ABSTAINED).all()
    assert (outcome.answers.labels[given[:10]] == free.labels[given[:10]]).all()


def test_answers_that_do_not_leave_are_not_charged() -> None:
    """The test is about the answers within the cap: votes behind the others may be anything."""
    fixed = fix(ConfidentGNMax(threshold=-1e5, sigma_check=40, sigma_vote=10), n_answers=10, target=1.5)
    mixed = Votes(np.concatenate((np.tile(STRONG, (10, 1)), np.tile(WEAK, (50, 1)))), n_teachers=200)
    turned = Votes(mixed.counts[::-1], n_teachers=200)
    assert fixed.pass_chance(mixed).reveal() > 0.9
    assert fixed.pass_chance(turned).reveal() == pytest.approx(1e-6)


def test_no_answer_at_all_passes() -> None:
    fixed = fix(ConfidentGNMax(threshold=1e5, sigma_check=40, sigma_vote=10))
    assert fixed.pass_chance(weak()).reveal() > 0.99
    outcome = release(fixed, weak(), rng=np.random.default_rng(0))
    assert outcome.passed
    assert outcome.answers is not None
    assert (outcome.answers.n_answered, len(outcome.answers)) == (0, 60)


# ---- the theorem, by every output law of a tiny release


@dataclass(frozen=True)
class Tiny:
    mechanism: GNMax | ConfidentGNMax
    target: float
    n_classes: int = 2
    n_queries: int = 1
    n_teachers: int = 20
    delta: float = 0.02
    delta_release: float = 0.002
    order: float = 2.5

    def fix(self) -> ConditionalGuarantee:
        with warnings.catch_warnings():  # of the worst case that the target is compared with
            warnings.simplefilter("ignore", OrderGridWarning)
            return tested_guarantee(**vars(self))


# So little noise that labels say it all, and most of delta for the test
SHARP = {"n_teachers": 15, "delta": 0.05, "delta_release": 0.045, "order": 2.0}
TINY = {
    "one query": Tiny(GNMax(sigma=1), 2.7),
    "two queries": Tiny(GNMax(sigma=1), 4.0, n_queries=2),
    "three classes": Tiny(GNMax(sigma=0.8), 3.2, n_classes=3, n_teachers=12),
    "sharp": Tiny(GNMax(sigma=0.25), 5.5, **SHARP),
    "sharp, two queries": Tiny(GNMax(sigma=0.25), 5.5, n_queries=2, **SHARP),
    "with a check": Tiny(ConfidentGNMax(threshold=8, sigma_check=3, sigma_vote=0.25), 5.5, **SHARP),
    "with a check, two queries": Tiny(
        ConfidentGNMax(threshold=8, sigma_check=3, sigma_vote=0.4), 6.0, n_queries=2, **SHARP
    ),
}
Histograms = tuple[tuple[int, ...], ...]


class Laws:
    """The law of all that a release lets out, for every vote set: silence, or an outcome for each query."""

    def __init__(self, fixed: ConditionalGuarantee) -> None:
        self.fixed, mechanism = fixed, fixed.mechanism
        self.points = list(histograms(fixed.n_teachers, fixed.n_classes))
        sigma = mechanism.sigma if isinstance(mechanism, GNMax) else mechanism.sigma_vote
        outcomes = np.exp(log_probabilities(self.points, sigma=sigma))  # (histograms, classes)
        if isinstance(mechanism, ConfidentGNMax):
            answered = ndtr((np.max(self.points, axis=1) - mechanism.threshold) / mechanism.sigma_check)[:, None]
            outcomes = np.hstack((answered * outcomes, 1 - answered))  # the last one is: withheld
        self.outcomes = dict(zip(self.points, outcomes, strict=True))
        costs = gap_costs(sigma=sigma, order=fixed.order, n_classes=fixed.n_classes, n_teachers=fixed.n_teachers)
        self.costs = whole_costs(costs)
        self.table = chances(
            budget=fixed.budget,
            cap=fixed.cap,
            order=fixed.order,
            first=fixed.delta_release,
            longest=fixed.n_teachers // 2 + 1,
        )

    def away(self, rows: Histograms) -> int:
        """Place in the table, for the answered queries."""
        if not rows:
            return len(self.table) - 1
        gaps, weights = gaps_of(Votes(rows, n_teachers=self.fixed.n_teachers))
        found = distance(gaps, weights, costs=self.costs, cap=self.fixed.cap)
        return len(self.table) - 1 if found is None else min(found, len(self.table) - 1)

    def of(self, votes: Histograms, *, paid: bool = False, tested: bool = True) -> np.ndarray:
        """(1 + outcomes,); ``paid`` leaves out what delta_release pays for: labels where the cap is broken."""
        kinds = len(self.outcomes[votes[0]])
        told, silent = [], 0.0
        for outcome in product(range(kinds), repeat=len(votes)):
            chance = math.prod(self.outcomes[row][o] for row, o in zip(votes, outcome, strict=True))
            rows = tuple(row for row, o in zip(votes, outcome, strict=True) if o < self.fixed.n_classes)
            at = self.away(rows)
            passes = self.table[at] / ONE if tested else 1.0
            silent += chance * (1 - passes)
            told.append(0.0 if paid and at == 0 else chance * passes)
        return np.array([silent, *told])

    def pairs(self) -> Iterator[tuple[Histograms, Histograms]]:
        """Both directions: one teacher moves on any of the queries."""
        near = {point: [point, *neighbours(point)] for point in self.points}
        for votes in product(self.points, repeat=self.fixed.n_queries):
            for other in product(*(near[row] for row in votes)):
                if other != votes:
                    yield votes, other


@pytest.mark.parametrize("name", TINY)
def test_whatever_leaves_is_target_delta_private(name: str) -> None:
    """Hockey-stick divergence at the target, every neighbouring pair, both directions, the whole output."""
    fixed = TINY[name].fix()
    laws = Laws(fixed)
    every = {votes: laws.of(votes) for votes in product(laws.points, repeat=fixed.n_queries)}
    assert all(law.sum() == pytest.approx(1, abs=1e-9) for law in every.values())
    passing = [1 - law[0] for law in every.values()]
    assert min(passing) < 0.3  # both happen
    assert max(passing) > 0.5
    e = math.exp(fixed.epsilon)
    largest = max(np.maximum(every[a] - e * every[b], 0.0).sum() for a, b in laws.pairs())
    assert largest <= fixed.delta
    if "sharp" in name:
        assert largest > fixed.delta / 3  # a test that is wrong more often would show
    free = {votes: laws.of(votes, tested=False) for votes in every}
    untested = max(np.maximum(free[a] - e * free[b], 0.0).sum() for a, b in laws.pairs())
    assert untested > fixed.delta  # and without the test it is not


@pytest.mark.parametrize("name", TINY)
def test_but_for_delta_release_the_renyi_budget_is_kept(name: str) -> None:
    """And nearly spent: every chance is the largest that the one before it allows."""
    fixed = TINY[name].fix()
    laws, order = Laws(fixed), fixed.order
    every = {votes: laws.of(votes) for votes in product(laws.points, repeat=fixed.n_queries)}
    paid = {votes: laws.of(votes, paid=True) for votes in every}
    assert all(every[votes].sum() - paid[votes].sum() <= fixed.delta_release + 1e-12 for votes in every)
    checks = 0.0
    if isinstance(fixed.mechanism, ConfidentGNMax):
        checks = fixed.n_queries * float(rdp_check(sigma=fixed.mechanism.sigma_check, orders=order)[0])
    with np.errstate(divide="ignore"):
        most = max(
            float(np.log((paid[a] ** order * np.maximum(every[b], 1e-300) ** (1 - order)).sum())) / (order - 1)
            for a, b in laws.pairs()
        )
    assert most <= checks + fixed.budget
    if isinstance(fixed.mechanism, GNMax):
        assert most > 0.3 * fixed.budget


@pytest.mark.parametrize("name", TINY)
def test_a_release_has_the_law_that_was_looked_at(name: str) -> None:
    """How often it passes, and how often which labels leave."""
    fixed = TINY[name].fix()
    laws, trials = Laws(fixed), 400
    last = len(laws.points) - 1
    for places in ((last, last - 2), (last - 1, last - 4)):  # (M, 0) and (M - 2, 2), and so on
        rows = tuple(laws.points[i] for i in places[: fixed.n_queries])
        law = laws.of(rows)
        votes = Votes(rows, n_teachers=fixed.n_teachers)
        rng = np.random.default_rng(8)
        outcomes = [release(fixed, votes, rng=rng) for _ in range(trials)]
        found = np.zeros(law.size, dtype=np.int64)
        for outcome in outcomes:
            place = 0
            if outcome.answers is not None:
                kinds = len(laws.outcomes[rows[0]])
                digits = [kinds - 1 if label == ABSTAIN else int(label) for label in outcome.answers.labels]
                place = 1 + sum(digit * kinds**i for i, digit in enumerate(reversed(digits)))
            found[place] += 1
        for seen, chance in zip(found, law, strict=True):
            assert binomtest(int(seen), trials, min(chance, 1.0)).pvalue > 1e-5
        if isinstance(fixed.mechanism, GNMax):
            assert fixed.pass_chance(votes).reveal() == pytest.approx(1 - law[0], abs=1e-12)


@pytest.mark.parametrize(("sigma", "n_queries"), [(1e-5, 100), (1e-4, 1000), (1e-4, 10_000_000)])
def test_costs_beyond_64_bits_break_every_cap(sigma: float, n_queries: int) -> None:
    costs = gap_costs(sigma=sigma, order=10.0, n_classes=2, n_teachers=250)
    assert costs[0] * n_queries * UNIT > 2**63
    assert distance(np.array([0]), np.array([n_queries]), costs=whole_costs(costs), cap=2.0) == 0
    assert distance(np.array([250]), np.array([n_queries]), costs=whole_costs(costs), cap=2.0) > 100
    with pytest.raises(InputError, match="cap must be below"):
        distance(np.array([0]), np.array([1]), costs=whole_costs(costs), cap=MOST)


def test_distance_is_the_number_of_teachers_who_must_move() -> None:
    """By brute force over walks of all teachers at once, and one move changes it by one at most."""
    costs = whole_costs(gap_costs(sigma=1.0, order=2.5, n_classes=3, n_teachers=15))
    points = list(histograms(15, 3))
    rng = np.random.default_rng(1)

    def away(rows: Histograms, cap: float) -> int | None:
        gaps, weights = gaps_of(Votes(rows, n_teachers=15))
        return distance(gaps, weights, costs=costs, cap=cap)

    seen = set()
    for _ in range(150):
        rows = tuple(points[i] for i in rng.integers(len(points), size=2))
        cap = float(rng.uniform(0.0, 1.0) ** 3)
        one = away(rows, cap)
        total = [int(costs[max(r) - sorted(r)[-2]]) for r in rows]
        assert (one == 0) == (sum(total) > cap * 2**32)
        moved = tuple(([row, *neighbours(row)])[rng.integers(1 + len(list(neighbours(row))))] for row in rows)
        other = away(moved, cap)
        assert (one is None) == (other is None)
        if one is not None and other is not None:
            assert abs(one - other) <= 1
        seen.add(one)
    assert len(seen) > 3


# ---- what may be shown


def test_publishable_is_the_worst_case_and_says_for_what() -> None:
    shown = publishable_guarantee(MECHANISM, n_queries=60, n_answers=40, delta=1e-5)
    worst = guarantee(worst_case_cost(MECHANISM, n_queries=60, n_answered=40), delta=1e-5)
    assert 0.9 * worst.epsilon < shown.epsilon < worst.epsilon
    assert (shown.order, shown.delta) == (None, worst.delta)
    old = publishable_guarantee(MECHANISM, n_queries=60, n_answers=40, delta=1e-5, accountant="renyi")
    assert (old.epsilon, old.order, old.delta) == (worst.epsilon, worst.order, worst.delta)
    assert "at most 60 queries and 40 answers fixed beforehand" in shown.basis
    assert "does not depend on the votes" in shown.basis
    every = publishable_guarantee(GNMax(sigma=10), n_queries=60, delta=1e-5, accountant="renyi")
    assert every.epsilon == guarantee(worst_case_cost(GNMax(sigma=10), n_queries=60), delta=1e-5).epsilon
    assert "at most 60 queries fixed beforehand" in every.basis
    classic = publishable_guarantee(
        GNMax(sigma=10), n_queries=60, delta=1e-5, orders=[4.0, 5.0, 6.0], bound="gaussian", conversion="classic"
    )
    curve = worst_case_cost(GNMax(sigma=10), n_queries=60, orders=[4.0, 5.0, 6.0], bound="gaussian")
    assert classic.epsilon == guarantee(curve, delta=1e-5, conversion="classic").epsilon


def test_publishable_is_the_tested_route_where_that_was_chosen() -> None:
    fixed = fix(n_answers=40)
    for n_answers in (None, 40):
        shown = publishable_guarantee(MECHANISM, n_queries=60, n_answers=n_answers, delta=1e-5, tested=fixed)
        assert shown is fixed
    asked = {"mechanism": MECHANISM, "n_queries": 60, "n_answers": 40, "delta": 1e-5}
    for other in (
        {"mechanism": GNMax(sigma=10)},
        {"mechanism": ConfidentGNMax(threshold=121, sigma_check=40, sigma_vote=10)},
        {"n_queries": 59},
        {"n_answers": 41},
        {"delta": 1e-6},
    ):
        with pytest.raises(InputError) as caught:
            publishable_guarantee(**{**asked, **other}, tested=fixed)
        assert "queries, answers or delta are not the ones that the tested route was made for" in one_line(caught)


# ---- a number beside labels that leave anyway


def per_instance(answers: float, sanitizer: Sanitizer) -> float:
    """Epsilon of this very run, with 60 checks, where the answers cost so much."""
    at = [sanitizer.order]
    checks = worst_case_cost(MECHANISM, n_queries=60, n_answered=0, orders=at).epsilons
    return guarantee(RdpCurve(at, answers + checks + sanitizer.rdp(at)), delta=9e-6).epsilon


@pytest.mark.parametrize("method", ["majorant", "gnss"])
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("some", [False, True], ids=["every query", "answered queries"])
def test_sanitize(method: str, classes: int, some: bool) -> None:
    rows = [[170, 30]] * 30 + [[110, 90]] * 30 if classes == 2 else [[170, 20, 10]] * 30 + [[90, 80, 30]] * 30
    votes = Votes(rows, n_teachers=200)
    answers = answer(MECHANISM, votes, rng=np.random.default_rng(0)) if some else None
    behind = Votes(votes.counts[answers.outcomes == Outcome.TEACHERS], n_teachers=200) if answers else votes
    sanitizer = Sanitizer.by_rule(epsilon=2.0, delta=1e-5, method=method)
    asked = {"delta": 1e-5, "answers": answers, "epsilon": 2.0, "method": method}
    drawn = [sanitize(MECHANISM, votes, **asked, rng=np.random.default_rng(seed)) for seed in range(25)]
    worst = worst_case_cost(MECHANISM, n_queries=60)
    together = guarantee(RdpCurve(ORDERS, worst.epsilons + sanitizer.rdp(ORDERS)), delta=1e-5)
    exact = cost(GNMax(sigma=10), behind, orders=[sanitizer.order]).reveal().epsilons[0]
    for seed, one in enumerate(drawn):
        assert one.epsilon == pytest.approx(together.epsilon, rel=1e-12)
        assert one.epsilon > guarantee(worst, delta=1e-5).epsilon
        assert one.on_these_votes >= per_instance(exact, sanitizer)
        number = sanitizer.upper_bound(behind, sigma_vote=10, rng=np.random.default_rng(seed))
        assert one.on_these_votes == pytest.approx(per_instance(number, sanitizer), rel=1e-9)
    assert len({one.on_these_votes for one in drawn}) > 20
    (first, *_) = drawn
    assert (first.delta, first.delta_release) == (1e-5, pytest.approx(1e-6))
    assert "worst case over all votes for 60 queries, plus the release of a number" in first.basis
    assert f"holds after the fact, for {len(behind)} answers, except with chance 1e-06" in first.notes[0]
    assert any("INSECURE" in note for note in first.notes)


def test_sanitize_says_insecure_where_its_noise_or_the_answers_was_seeded() -> None:
    votes, how = strong(), {"delta": 1e-5, "epsilon": 2.0}
    assert INSECURE not in sanitize(MECHANISM, votes, **how).notes
    assert INSECURE in sanitize(MECHANISM, votes, **how, rng=np.random.default_rng(0)).notes
    seeded = answer(MECHANISM, votes, rng=np.random.default_rng(0))
    assert INSECURE in sanitize(MECHANISM, votes, **how, answers=seeded).notes
    assert INSECURE not in sanitize(MECHANISM, votes, **how, answers=answer(MECHANISM, votes, rng=None)).notes


def test_sanitize_where_nothing_was_answered() -> None:
    never = ConfidentGNMax(threshold=1e5, sigma_check=40, sigma_vote=10)
    votes = strong()
    answers = answer(never, votes, rng=np.random.default_rng(0))
    one = sanitize(never, votes, delta=1e-5, answers=answers, epsilon=2.0, rng=np.random.default_rng(0))
    assert "for 0 answers" in one.notes[0]
    at = np.array([one_order := 1 + 2 * math.log(1e5) / 2.0])
    checks = worst_case_cost(never, n_queries=60, n_answered=0, orders=at).epsilons
    assert one.on_these_votes == pytest.approx(
        guarantee(RdpCurve(at, checks + one_order / (2 * (2 * math.sqrt(one_order / 2.0)) ** 2)), delta=9e-6).epsilon,
        rel=1e-5,
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"epsilon": None},
            "Give epsilon (the one you hope for, from public inputs), or order, beta and sigma_release",
        ),
        (
            {"epsilon": None, "order": 8.0, "beta": 0.1},
            "Give epsilon (the one you hope for, from public inputs), or order",
        ),
        (
            {"epsilon": None, "beta": 0.1, "sigma_release": 3.0},
            "Give epsilon (the one you hope for, from public inputs)",
        ),
        ({"delta_release": 1e-5}, "delta_release is a part of delta=1e-05"),
        ({"mechanism": LNMax(scale=20)}, "mechanism must be GNMax, ConfidentGNMax or InteractiveGNMax here, got LNMax"),
        ({"answers": 10}, "These answers were given by a different mechanism, or to different queries."),
        ({"answers": GNMax(sigma=10)}, "These answers were given by a different mechanism, or to different queries."),
        ({"answers": 59}, "These answers were given by a different mechanism, or to different queries."),
    ],
)
def test_what_sanitize_refuses(changes: dict, message: str) -> None:
    given = {"mechanism": MECHANISM, "epsilon": 2.0, "delta": 1e-5, **changes}
    rng = np.random.default_rng(0)
    match given.get("answers"):
        case int(n):
            given["answers"] = answer(MECHANISM, strong(n), rng=rng)
        case GNMax() as other:
            given["answers"] = answer(other, strong(), rng=rng)
    with pytest.raises(InputError) as caught:
        sanitize(given.pop("mechanism"), strong(), **given, rng=rng)
    assert message in one_line(caught)


def test_what_an_answer_costs_at_worst_is_what_these_tests_assume() -> None:
    """The vote sets above are far from it, or at it."""
    worst = 60 * float(rdp_argmax(sigma=10, orders=9.0)[0])
    for votes, share in ((strong(), 1e-6), (weak(), 1.0)):
        found = cost(GNMax(sigma=10), votes, orders=[9.0], accountant="sanitizable").reveal().epsilons[0]
        assert found <= worst * share * (1 + 1e-9)
