"""Interactive-GNMax: smooth sensitivity with a student's offsets against the definition, and what may be released."""

from __future__ import annotations

from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from tests.oracles.sensitivity import Space, space

from terrine import ConfidentGNMax, GNMax, InteractiveGNMax, Votes, answer, cost, sanitize, synthetic_votes
from terrine.errors import InputError
from terrine.release.check_steps import CELLS, cells_of, score_steps
from terrine.release.smooth import expected_smooth_sensitivity, log_parts, sensitivity_at, smooth_sensitivity

BOUNDS = ("sanitizable", "paper")
ORDER = 2.5
NUMBERS = {"sigma_check": 1.5, "sigma_vote": 2.0}
STUDENTS = {
    "knows nothing": (1 / 3, 1 / 3, 1 / 3),
    "is sure": (1.0, 0.0, 0.0),
    "doubts": (0.61, 0.27, 0.12),
    "is wrong": (0.03, 0.05, 0.92),
}


def mechanism(threshold: float) -> InteractiveGNMax:
    return InteractiveGNMax(threshold=threshold, student_confidence=0.9, **NUMBERS)


@cache
def costs(votes: int, proba: tuple[float, ...], threshold: float, bound: str) -> np.ndarray:
    """Of every histogram, by `cost`."""
    return np.array(
        [
            float(
                cost(
                    mechanism(threshold),
                    Votes([point], n_teachers=votes),
                    orders=[ORDER],
                    accountant=bound,
                    student_proba=[proba],
                )
                .reveal()
                .epsilons[0]
            )
            for point in space(votes, 3).points
        ]
    )


@pytest.mark.parametrize("bound", BOUNDS)
@pytest.mark.parametrize("threshold", [2.0, 4.37, -1.0, 9.5])
@pytest.mark.parametrize("student", STUDENTS)
def test_no_neighbor_of_any_histogram_in_a_ball_changes_the_cost_by_more(student, threshold, bound) -> None:
    votes, proba = 8, STUDENTS[student]
    all_of: Space = space(votes, 3)
    local = all_of.local(costs(votes, proba, threshold, bound))
    for distance in (0, 1, 3):
        ball = np.where(all_of.distance <= distance, local, 0.0).max(axis=1)
        found = [
            sensitivity_at(
                mechanism(threshold),
                Votes([point], n_teachers=votes),
                distance=distance,
                order=ORDER,
                accountant=bound,
                student_proba=[proba],
            ).reveal()
            for point in all_of.points
        ]
        assert (np.array(found) >= ball * (1 - 1e-9) - 1e-12).all()


@pytest.mark.parametrize("bound", BOUNDS)
def test_it_is_smooth_and_bounds_sums_of_queries(bound) -> None:
    votes, beta = 8, 0.2
    students = list(STUDENTS.values())
    rng = np.random.default_rng(0)
    points = space(votes, 3).points
    adjacent = space(votes, 3).adjacent
    for _ in range(20):
        rows = rng.integers(len(points), size=4)
        moved = [rng.choice(np.flatnonzero(adjacent[row])) for row in rows]

        def smooth(which) -> float:
            return smooth_sensitivity(
                mechanism(4.37),
                Votes([points[k] for k in which], n_teachers=votes),
                order=ORDER,
                beta=beta,
                accountant=bound,
                student_proba=students,
            ).reveal()

        here, there = smooth(rows), smooth(moved)
        assert abs(np.log(here / there)) <= beta + 1e-8
        changes = [
            costs(votes, p, 4.37, bound)[a] - costs(votes, p, 4.37, bound)[b]
            for p, a, b in zip(students, rows, moved, strict=True)
        ]
        assert abs(sum(changes)) <= min(here, there) * (1 + 1e-9)


def test_a_student_without_an_opinion_is_a_lower_threshold() -> None:
    """With even offsets of a whole number the score is a top count: cells cost an eighth at most."""
    votes = synthetic_votes(n_queries=50, n_classes=5, n_teachers=250, consensus=0.8)
    even = np.full((50, 5), 0.2)
    for bound in BOUNDS:
        with_offsets = smooth_sensitivity(
            InteractiveGNMax(threshold=100, sigma_check=75, sigma_vote=40, student_confidence=0.9),
            votes,
            order=8,
            beta=0.04,
            accountant=bound,
            student_proba=even,
        ).reveal()
        without = smooth_sensitivity(
            ConfidentGNMax(threshold=150, sigma_check=75, sigma_vote=40), votes, order=8, beta=0.04, accountant=bound
        ).reveal()
        assert without * (1 - 1e-8) <= with_offsets <= without * (1 + 1.5 / CELLS)


def test_expected_is_below_every_query_and_sums_the_chances() -> None:
    votes = synthetic_votes(n_queries=30, n_classes=4, n_teachers=250, consensus=0.8)
    proba = np.random.default_rng(0).dirichlet(np.ones(4), size=30)
    one = InteractiveGNMax(threshold=100, sigma_check=75, sigma_vote=40, student_confidence=0.9)
    told = {"order": 8, "beta": 0.04, "student_proba": proba}
    assert (
        0
        < expected_smooth_sensitivity(one, votes, **told).reveal()
        < smooth_sensitivity(one, votes, accountant="paper", **told).reveal()
    )


def test_cells_cover_every_score_there_can_be() -> None:
    for threshold in (-7.3, 0.0, 100.0, 271.9):
        below, steps = score_steps(threshold, 75.0, 8.0, 250, "sanitizable")
        scores = np.array([-0.02, 0.0, 50.0, 249.99, 250.0])
        cells = cells_of(scores, threshold=threshold, below=below, n_cells=steps.size)
        left = threshold + (cells - below) / CELLS
        assert ((left <= scores + 1e-9) & (scores <= left + 1 / CELLS + 1e-9)).all()
        assert all(a <= b for a, b in pairwise(cells))


def test_refusals() -> None:
    votes = Votes([[150, 100], [250, 0]], n_teachers=250)
    one = InteractiveGNMax(threshold=100, sigma_check=75, sigma_vote=40, student_confidence=0.9)
    with pytest.raises(InputError, match="needs student_proba"):
        smooth_sensitivity(one, votes, order=8, beta=0.04)
    with pytest.raises(InputError, match="no other mechanism takes it"):
        log_parts(GNMax(sigma=40), votes, 8.0, "paper", student_proba=[[0.5, 0.5]] * 2)
    with pytest.raises(InputError, match=r"with a student's offsets the histograms are no line\. Use"):
        smooth_sensitivity(one, votes, order=8, beta=0.04, accountant="exact", student_proba=[[0.5, 0.5]] * 2)


def test_the_answers_of_a_round_are_sanitized_as_those_of_gnmax() -> None:
    """The checks are charged their worst case, so that the number needs no student; it says that it is of one round."""
    votes = synthetic_votes(n_queries=200, n_classes=4, n_teachers=1000, consensus=0.9)
    proba = np.random.default_rng(0).dirichlet(np.ones(4), size=200)
    one = InteractiveGNMax(threshold=400, sigma_check=300, sigma_vote=80, student_confidence=0.9)
    given = answer(one, votes, rng=np.random.default_rng(1), student_proba=proba)
    told = {"delta": 1e-5, "epsilon": 1.0, "rng": np.random.default_rng(2)}
    found = sanitize(one, votes, answers=given, **told)
    assert any("of this round alone" in note for note in found.notes)
    # the same draw for the same answers by Confident-GNMax with that noise
    plain = ConfidentGNMax(threshold=400, sigma_check=300, sigma_vote=80)
    same = type(given)(labels=given.labels, outcomes=given.outcomes, mechanism=plain, secure=False)
    again = sanitize(plain, votes, answers=same, **(told | {"rng": np.random.default_rng(2)}))
    assert found.on_these_votes == again.on_these_votes
    assert found.epsilon == again.epsilon
    assert not any("of this round alone" in note for note in again.notes)
