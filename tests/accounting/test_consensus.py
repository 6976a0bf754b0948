"""How well teachers agree is secret, and counted by hand here."""

from __future__ import annotations

import json

import numpy as np
import pytest

from terrine import Votes
from terrine.accounting.consensus import consensus
from terrine.sensitive import Sensitive

VOTES = Votes([[8, 2, 0], [0, 10, 0], [5, 1, 4]], n_teachers=10)


def test_by_hand():
    found = consensus(VOTES, truth=np.array([0, 1, 2]))
    assert isinstance(found, Sensitive)
    shown = found.reveal()
    assert shown.mean_top_vote == pytest.approx(23 / 3)
    assert shown.plurality_accuracy == pytest.approx(2 / 3)
    assert shown.mean_teacher_accuracy == pytest.approx(22 / 30)
    assert (sum(shown.queries), shown.queries[10], shown.queries[16], shown.queries[19]) == (3, 1, 1, 1)
    assert (shown.edges[0], shown.edges[-1], len(shown.edges)) == (0, 1, 21)


def test_without_true_labels_nothing_is_said_of_who_is_right():
    sent = json.loads(json.dumps(consensus(VOTES).reveal().to_json()))
    assert sorted(sent) == ["histogram", "mean_top_vote", "n_teachers"]
    assert sorted(sent["histogram"]) == ["edges", "queries"]
