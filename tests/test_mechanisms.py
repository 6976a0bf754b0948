"""The four mechanisms: ties, checks and their sensitivity, and the contracts that all of them keep."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy import stats

from terrine.errors import InputError
from terrine.mechanisms import (
    ABSTAIN,
    ConfidentGNMax,
    GNMax,
    InteractiveGNMax,
    LNMax,
    Outcome,
    answer,
    check_scores,
    validated_proba,
)
from terrine.noise import UNIT, SecureNoise, SeededNoise
from terrine.votes import Votes


class Silent(SeededNoise):
    """No noise at all, but true random tie-breaking."""

    def gaussian(self, shape, *, sigma):
        return np.zeros(shape, dtype=np.int64)

    def laplace(self, shape, *, scale):
        return np.zeros(shape, dtype=np.int64)


@pytest.mark.parametrize("mechanism", [GNMax(sigma=1), LNMax(scale=1)], ids=lambda m: type(m).__name__)
def test_ties_are_broken_uniformly_and_not_by_index(mechanism, monkeypatch):
    votes = Votes(np.tile([0, 3, 1, 3, 3], (6000, 1)), n_teachers=10)
    monkeypatch.setattr(SecureNoise, "gaussian", Silent.gaussian)
    monkeypatch.setattr(SecureNoise, "laplace", Silent.laplace)
    for rng in (SecureNoise(), Silent(0)):
        counted = np.bincount(answer(mechanism, votes, rng=rng).labels, minlength=5)
        assert counted[[0, 2]].sum() == 0
        assert stats.chisquare(counted[[1, 3, 4]]).pvalue > 1e-12
    assert stats.chisquare([6000, 0, 0]).pvalue < 1e-12


def test_the_check_is_at_least_and_not_above_and_rounds_no_score():
    votes = Votes([[7, 3], [6, 4]], n_teachers=10)
    for threshold, labels in (
        (7, [0, ABSTAIN]),
        (7 + 2**-40, [ABSTAIN, ABSTAIN]),
        (7 - 2**-40, [0, ABSTAIN]),
        (6, [0, 0]),
    ):
        mechanism = ConfidentGNMax(threshold=threshold, sigma_check=1, sigma_vote=1)
        assert answer(mechanism, votes, rng=Silent(0)).labels.tolist() == labels


def test_interactive_has_three_outcomes():
    votes = Votes([[9, 1, 0], [5, 5, 0], [4, 3, 3], [0, 10, 0]], n_teachers=10)
    proba = [[0.1, 0.1, 0.8], [0.45, 0.55, 0.0], [0.3, 0.3, 0.4], [0.02, 0.95, 0.03]]
    mechanism = InteractiveGNMax(threshold=5, sigma_check=1, sigma_vote=1, student_confidence=0.5)
    answers = answer(mechanism, votes, rng=Silent(0), student_proba=proba)
    assert answers.outcomes.tolist() == [Outcome.TEACHERS, Outcome.REINFORCED, Outcome.ABSTAINED, Outcome.REINFORCED]
    assert answers.labels.tolist() == [0, 1, ABSTAIN, 1]
    assert (len(answers), answers.n_answered) == (4, 1)
    assert "4 queries, 1 answered by the teachers, 2 reinforced, 1 withheld" in repr(answers)
    sure = dataclasses.replace(mechanism, student_confidence=0.95)  # above, not at
    assert answer(sure, votes, rng=Silent(0), student_proba=proba).outcomes.tolist() == [1, 0, 0, 0]


@pytest.mark.parametrize(
    ("proba", "message"),
    [
        ([[0.5, 0.5]], r"student_proba must have shape \(2, 2\), got \(1, 2\)"),
        ([[0.5, 0.5, 0], [1, 0, 0]], r"student_proba must have shape \(2, 2\), got \(2, 3\)"),
        ([0.5, 0.5], r"student_proba must have shape \(2, 2\), got \(2,\)"),
        ([[0.5, 0.5], [np.nan, 1]], "probabilities that sum to 1; row 1 sums to nan"),
        ([[0.5, 0.5], [np.inf, 0]], "probabilities that sum to 1; row 1 sums to inf"),
        ([[1.5, -0.5], [1, 0]], "probabilities that sum to 1; row 0 sums to 1"),
        ([[0.5, 0.5], [0.5, 0.499]], r"probabilities that sum to 1; row 1 sums to 0\.999"),
        ([["a", "b"], ["c", "d"]], "student_proba must be a table of numbers"),
        ([[0.5, 0.5], [1]], "student_proba must be a table of numbers"),
    ],
)
def test_student_probabilities_are_checked(proba, message):
    mechanism = InteractiveGNMax(threshold=5, sigma_check=1, sigma_vote=1, student_confidence=0.5)
    with pytest.raises(InputError, match=message):
        answer(mechanism, Votes([[1, 2], [3, 0]], n_teachers=3), rng=SeededNoise(0), student_proba=proba)


@st.composite
def histograms_and_students(draw):
    counts = draw(st.lists(st.integers(0, 300), min_size=2, max_size=6).filter(any))
    awkward = st.sampled_from([0.0, 1 / 3, 0.1, 2 / 7, 0.5, 2**-41, 3 * 2**-42, 1e-13]) | st.floats(0, 1)
    raw = draw(st.lists(awkward, min_size=len(counts), max_size=len(counts)).filter(lambda p: sum(p) > 1e-3))
    return np.array(counts), np.array(raw) / sum(raw)


ROUNDS_APART = 2.0**-49 + 2.0**-54  # 128 - 256 p rounds down to the lattice as floats go, and 129 - 256 p up


@given(histograms_and_students())
@example((np.array([128, 128]), np.array([ROUNDS_APART, 1 - ROUNDS_APART])))
def test_a_move_changes_the_score_by_at_most_one_vote_exactly(case):
    """[theory: n' = n - e_a + e_b] for every a that has a vote and every b, with and without a student."""
    counts, proba = case
    identity = np.eye(counts.size, dtype=np.int64)
    moved = [counts - identity[a] + identity[b] for a in np.flatnonzero(counts) for b in range(counts.size)]
    votes = Votes(np.stack([counts, *moved]), n_teachers=counts.sum())
    for student in (None, validated_proba(np.tile(proba, (len(votes), 1)), votes)):
        scores = [int(score) for score in check_scores(votes, student)]
        assert max(abs(score - scores[0]) for score in scores) <= UNIT
    excess = max(n * UNIT - counts.sum() * p * UNIT for n, p in zip(counts.tolist(), proba.tolist(), strict=True))
    assert abs(scores[0] - excess) <= 1  # and the score is what it should be
    assert check_scores(votes, None)[0] == counts.max() * UNIT


CONTRACTS = {
    "LNMax": LNMax(scale=3),
    "GNMax": GNMax(sigma=3),
    "ConfidentGNMax": ConfidentGNMax(threshold=9, sigma_check=4, sigma_vote=3),
    "InteractiveGNMax": InteractiveGNMax(threshold=5, sigma_check=4, sigma_vote=3, student_confidence=0.6),
}
VOTES = Votes(np.random.default_rng(0).multinomial(12, [0.5, 0.2, 0.2, 0.1], size=200), n_teachers=12)


def put(mechanism, rng):
    proba = np.random.default_rng(1).dirichlet([0.3] * 4, size=200)
    return answer(mechanism, VOTES, rng=rng, student_proba=proba if isinstance(mechanism, InteractiveGNMax) else None)


@pytest.mark.parametrize("mechanism", CONTRACTS.values(), ids=CONTRACTS)
class TestContract:
    def test_labels_are_in_range_or_withheld(self, mechanism):
        answers = put(mechanism, None)
        assert answers.labels.dtype == answers.outcomes.dtype == np.int64
        withheld = answers.outcomes == Outcome.ABSTAINED
        assert (answers.labels[withheld] == ABSTAIN).all()
        assert np.isin(answers.labels[~withheld], range(4)).all()
        assert answers.n_answered == (answers.outcomes == Outcome.TEACHERS).sum()
        assert answers.mechanism is mechanism
        if not isinstance(mechanism, ConfidentGNMax):
            assert answers.n_answered == len(answers) == 200

    def test_insecure_noise_marks_the_answers(self, mechanism):
        for rng, secure in (
            (None, True),
            (SecureNoise(), True),
            (SeededNoise(0), False),
            (np.random.default_rng(0), False),
        ):
            answers = put(mechanism, rng)
            assert answers.secure is secure
            assert ("INSECURE: seeded noise, not private" in repr(answers)) is not secure

    def test_a_seed_fixes_the_answers_and_the_secure_sampler_has_none(self, mechanism):
        same = [put(mechanism, rng) for rng in (SeededNoise(5), SeededNoise(5), np.random.default_rng(5))]
        for other in same[1:]:
            np.testing.assert_array_equal(same[0].labels, other.labels)
            np.testing.assert_array_equal(same[0].outcomes, other.outcomes)
        assert (put(mechanism, None).labels != put(mechanism, None).labels).any()

    def test_it_is_frozen_keyword_only_and_hashable(self, mechanism):
        for field in dataclasses.fields(mechanism):
            with pytest.raises(dataclasses.FrozenInstanceError):
                setattr(mechanism, field.name, 1.0)
            assert isinstance(getattr(mechanism, field.name), float)
        with pytest.raises(TypeError, match="positional"):
            type(mechanism)(*dataclasses.astuple(mechanism))
        assert {mechanism: 1}[dataclasses.replace(mechanism)] == 1

    def test_bad_numbers_are_refused_in_one_voice(self, mechanism):
        for field in dataclasses.fields(mechanism):
            bad = {"nan": "finite", "inf": "finite", "True": "a number", "'40'": "a number"}
            if field.name not in ("threshold", "student_confidence"):
                bad |= {"0": "above 0", "-1.5": "above 0"}
            for text, expected in bad.items():
                value = eval(text, {"nan": float("nan"), "inf": float("inf")})
                with pytest.raises(InputError) as caught:
                    dataclasses.replace(mechanism, **{field.name: value})
                shown = repr(float(value)) if type(value) in (int, float) else text
                assert str(caught.value) == f"{field.name} must be {expected}, got {shown}."

    def test_what_could_overflow_is_refused(self, mechanism):
        for field in dataclasses.fields(mechanism):
            if field.name != "student_confidence":
                with pytest.raises(InputError, match=r"64 x noise scale must be below 4194304 votes|to 65536 votes"):
                    put(dataclasses.replace(mechanism, **{field.name: 2.0**22}), SeededNoise(0))

    def test_other_arguments_are_refused(self, mechanism):
        interactive = isinstance(mechanism, InteractiveGNMax)
        with pytest.raises(InputError, match="InteractiveGNMax needs student_proba; no other mechanism"):
            answer(mechanism, VOTES, rng=None, student_proba=None if interactive else np.full((200, 4), 0.25))
        with pytest.raises(InputError, match="votes must be a Votes object, got ndarray"):
            answer(mechanism, VOTES.counts, rng=None)
        with pytest.raises(TypeError, match="rng"):
            answer(mechanism, VOTES)
        with pytest.raises(InputError, match=r"mechanism must be .*, got str"):
            answer(type(mechanism).__name__, VOTES, rng=None)


@pytest.mark.parametrize("confidence", [-0.1, 1.1])
def test_student_confidence_is_a_probability(confidence):
    with pytest.raises(InputError, match=f"student_confidence must be from 0 to 1, got {confidence}"):
        InteractiveGNMax(threshold=1, sigma_check=1, sigma_vote=1, student_confidence=confidence)


@pytest.mark.parametrize("rng", [None, SeededNoise(0)], ids=["secure", "seeded"])
def test_a_check_that_nothing_passes_withholds_everything(rng):
    answers = answer(ConfidentGNMax(threshold=1000, sigma_check=1, sigma_vote=1), VOTES, rng=rng)
    assert (answers.labels == ABSTAIN).all()
    assert answers.n_answered == 0


class Counting(SeededNoise):
    """Remembers the shapes that were drawn."""

    def __init__(self):
        super().__init__(0)
        self.drawn = []

    def gaussian(self, shape, *, sigma):
        self.drawn.append((shape, sigma))
        return super().gaussian(shape, sigma=sigma)


@pytest.mark.parametrize("kind", ["confident", "interactive"])
def test_withheld_queries_take_as_much_noise_as_answered_ones(kind):
    """Else the time of an answer would tell how the teachers agree."""
    mechanism = ConfidentGNMax(threshold=70, sigma_check=2, sigma_vote=3)
    more = {}
    if kind == "interactive":
        mechanism = InteractiveGNMax(threshold=30, sigma_check=2, sigma_vote=3, student_confidence=0.9)
        more = {"student_proba": np.tile([0.6, 0.2, 0.2], (50, 1))}
    drawn, outcomes = [], []
    for counts in ([5, 95, 0], [50, 30, 20]):
        noise = Counting()
        given = answer(mechanism, Votes(np.tile(counts, (50, 1)), n_teachers=100), rng=noise, **more)
        drawn.append(noise.drawn)
        outcomes.append(set(given.outcomes.tolist()))
    assert outcomes == [{Outcome.TEACHERS}, {Outcome.ABSTAINED}]
    assert drawn[0] == drawn[1] == [((50,), 2), ((50, 3), 3)]
