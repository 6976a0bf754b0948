"""Ballots of several owners: merged into one vote, and refused where they do not belong together."""

from __future__ import annotations

import copy
import json
import pickle
import stat

import numpy as np
import pytest

from terrine import tally
from terrine.errors import SecretError, VotesError
from terrine.relations import Relation
from terrine.votes import Ballots

ROWS = "ab" * 32
PERSON = Relation.UNIT_ANY


def ballots(n: int, *, first: int, n_queries: int = 30, seed: int = 0, **other):
    choices = np.random.default_rng(seed).integers(4, size=(n, n_queries))
    settings = {"ids": np.arange(first, first + n), "n_classes": 4, "queries": ROWS, "relation": PERSON} | other
    return Ballots(choices, **settings)


def test_merged_is_what_one_owner_of_all_would_count():
    one, two, three = ballots(5, first=0), ballots(7, first=5, seed=1), ballots(1, first=40, seed=2)
    votes = tally([one, two, three])
    together = np.concatenate([one.choices, two.choices, three.choices])
    assert votes.n_teachers == 13
    assert (votes.counts == tally(together, n_classes=4).counts).all()
    assert (tally([three, one, two]).counts == votes.counts).all()


def test_saved_and_loaded_again(tmp_path):
    one = ballots(5, first=3)
    one.save(tmp_path / "a.npz")
    assert stat.S_IMODE((tmp_path / "a.npz").stat().st_mode) == 0o600
    again = Ballots.load(tmp_path / "a.npz")
    assert (again.choices == one.choices).all()
    assert (again.ids == one.ids).all()
    assert (again.n_classes, again.queries, again.relation) == (4, ROWS, PERSON)
    assert tally([again]).relation == PERSON


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (ballots(2, first=4), "Teacher 4 is in two ballots"),
        (ballots(2, first=9, n_queries=31), "differ in their number of queries or classes"),
        (ballots(2, first=9, n_classes=5), "differ in their number of queries or classes"),
        (ballots(2, first=9, queries="cd" * 32), "on different public rows"),
        (ballots(2, first=9, relation="one row is replaced"), "different neighbors, 'one unit .*' and 'one row is rep"),
    ],
)
def test_ballots_that_do_not_belong_together(other, words):
    with pytest.raises(VotesError, match=words):
        tally([ballots(5, first=0), other])


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"ids": [1, 1, 2]}, "Two teachers have the same id"),
        ({"ids": [1, 2]}, "ids must hold"),
        ({"ids": [0, 1, -2]}, "ids must hold"),
        ({"n_classes": 3}, "class indices from 0 to 2"),
        ({"relation": ""}, "relation must say in words"),
        ({"relation": None}, "relation must say in words"),
    ],
)
def test_bad_ballots(settings, words):
    with pytest.raises(VotesError, match=words):
        Ballots([[3, 0]] * 3, **({"ids": [0, 1, 2], "n_classes": 4, "queries": ROWS, "relation": PERSON} | settings))


def test_damaged_and_foreign_files_are_refused_by_name(tmp_path):
    (tmp_path / "a.npz").write_bytes(b"PK nothing")
    tally([[0, 1], [1, 1]], n_classes=2).save(tmp_path / "votes.npz")
    for name in ("a.npz", "votes.npz", "none.npz"):
        with pytest.raises(VotesError, match=f"^{name}: .*(such file|schema|cannot read)"):
            Ballots.load(tmp_path / name)


def test_a_file_of_before_that_says_no_relation_is_refused(tmp_path):
    ballots(5, first=0).save(tmp_path / "a.npz")
    arrays = dict(np.load(tmp_path / "a.npz"))
    del arrays["relation"]
    for schema, words in (
        ("terrine.ballots/1", "between which neighbors they hold: write the ballots again"),
        (None, "the file is damaged"),
    ):
        np.savez(tmp_path / "old.npz", **(arrays | ({} if schema is None else {"schema": schema})))
        with pytest.raises(VotesError, match=f"^old.npz: .*{words}") as caught:
            Ballots.load(tmp_path / "old.npz")
        assert len(str(caught.value).splitlines()) == 1


def test_they_are_secret():
    one = ballots(5, first=0)
    assert "secret" in repr(one)
    assert not set(repr(one)) & {"[", "]"}
    for leak in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(SecretError):
            leak(one)
    with pytest.raises(TypeError):
        json.dumps(one)
