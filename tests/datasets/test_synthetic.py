"""Imagined votes are proper votes, as agreed as they are asked to be, and the same each time."""

from __future__ import annotations

import numpy as np
import pytest

from terrine.datasets.synthetic import synthetic_votes
from terrine.errors import InputError

SMALL = {"n_queries": 50, "n_classes": 4, "n_teachers": 30}


@pytest.mark.parametrize("n_classes", [2, 3, 150])
@pytest.mark.parametrize("consensus", [0.6, 0.95])
def test_the_plurality_has_the_share_that_was_asked_for(n_classes, consensus):
    votes = synthetic_votes(n_queries=3000, n_classes=n_classes, n_teachers=200, consensus=consensus, hard=0.0)
    assert votes.counts.shape == (3000, n_classes)
    assert votes.counts.max(axis=1).mean() / 200 == pytest.approx(consensus, abs=0.05)
    assert np.unique(votes.counts.argmax(axis=1)).size == n_classes  # no class is favoured away


def test_hard_queries_agree_less():
    easy, hard = (synthetic_votes(**SMALL, hard=share).counts.max(axis=1).mean() for share in (0.0, 1.0))
    assert hard < 0.7 * easy


def test_a_seed_fixes_the_votes():
    first, again, other = (synthetic_votes(**SMALL, seed=seed).counts for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"n_queries": 0}, "n_queries must be a whole number of at least 1"),
        ({"n_classes": 1}, "n_classes must be a whole number of at least 2"),
        ({"n_teachers": 2.5}, "n_teachers must be a whole number of at least 1"),
        ({"consensus": 1.0}, "consensus must be above 0 and below 1"),
        ({"hard": -0.1}, "hard must be from 0 to 1"),
    ],
)
def test_bad_arguments_are_refused(wrong, message):
    with pytest.raises(InputError, match=message):
        synthetic_votes(**SMALL | wrong)
