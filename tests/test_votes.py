"""Votes: what it refuses to let out, how it is saved, and counting."""

from __future__ import annotations

import copy
import json
import os
import pickle
import stat

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from terrine.errors import InputError, SecretError, VotesError
from terrine.votes import Votes, tally

HISTOGRAMS = np.array([[170, 80, 3], [0, 253, 0], [84, 84, 85]])


def test_arguments_are_checked():
    with pytest.raises(VotesError, match="a table with rows of one length"):
        Votes([[1, 2], [3]], n_teachers=3)
    for n_teachers in (0, 2.5, True, "3"):
        with pytest.raises(InputError, match="n_teachers must be a"):
            Votes([[1, 2]], n_teachers=n_teachers)
    with pytest.raises(InputError, match="n_classes must be a whole number of at least 2, got 1"):
        tally([[0, 0]], n_classes=1)
    with pytest.raises(VotesError, match=r"predictions must be .* row 0, .* holds a negative number"):
        tally([[0, -1]], n_classes=2)


def test_it_prints_its_shape_only_and_refuses_to_be_copied_out():
    votes = Votes(HISTOGRAMS, n_teachers=253)
    for shown in (repr(votes), str(votes), f"{votes}", f"{votes!a}", repr([votes])):
        assert "3 queries x 3 classes, 253 teachers; counts are secret" in shown
        assert not any(count in shown for count in ("170", "80", "84", "85"))
    for way_out in (copy.copy, copy.deepcopy, *(lambda v, p=p: pickle.dumps(v, p) for p in range(6))):
        with pytest.raises(SecretError, match=r"Votes\.save"):
            way_out(votes)
    for way_out in (list, np.asarray, json.dumps, lambda v: v[0], lambda v: 170 in v):
        with pytest.raises((InputError, TypeError)):
            way_out(votes)
    with pytest.raises(TypeError):
        vars(votes)


def test_counts_are_read_only_and_apart_from_what_was_given():
    given_counts = HISTOGRAMS.copy()
    votes = Votes(given_counts, n_teachers=253)
    given_counts[0, 0] = 0
    assert votes.counts[0, 0] == 170
    with pytest.raises(ValueError, match="read-only"):
        votes.counts[0, 0] = 1
    with pytest.raises(ValueError, match="read-only"):
        votes[:1].counts[0, 0] = 1


def test_a_slice_is_votes_on_those_queries():
    votes = Votes(HISTOGRAMS, n_teachers=253)
    np.testing.assert_array_equal(votes[1:].counts, HISTOGRAMS[1:])
    assert votes[1:].n_teachers == 253
    with pytest.raises(VotesError, match="at least one query"):
        votes[3:]


def test_save_and_load_give_the_same_votes(tmp_path):
    votes = Votes(HISTOGRAMS, n_teachers=253)
    votes.save(tmp_path / "v.npz")
    again = Votes.load(tmp_path / "v.npz")
    np.testing.assert_array_equal(again.counts, HISTOGRAMS)
    assert again.n_teachers == 253
    assert str(np.load(tmp_path / "v.npz")["schema"]) == "terrine.votes/1"
    with pytest.raises(InputError, match=r"ends in \.npz, got v\.npy"):
        votes.save(tmp_path / "v.npy")


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o777])
@pytest.mark.parametrize("older", [None, 0o666])
def test_a_saved_file_is_for_its_owner_alone(tmp_path, umask, older):
    path = tmp_path / "v.npz"
    if older is not None:
        path.write_bytes(b"older")
        path.chmod(older)
    before = os.umask(umask)
    try:
        Votes(HISTOGRAMS, n_teachers=253).save(path)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_save_that_fails_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "v.npz"
    Votes(HISTOGRAMS, n_teachers=253).save(path)
    before = path.read_bytes()

    def full_disk(file, **_):
        file.write(b"half a file")
        raise OSError("No space left on device")

    monkeypatch.setattr(np, "savez_compressed", full_disk)
    with pytest.raises(OSError, match="No space left"):
        Votes(HISTOGRAMS[:1], n_teachers=253).save(path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["v.npz"]


@given(data=st.data(), n_teachers=st.integers(1, 9), n_queries=st.integers(1, 7), n_classes=st.integers(2, 6))
def test_tally_counts_like_a_loop_and_knows_no_teacher_by_place(data, n_teachers, n_queries, n_classes):
    row = st.lists(st.integers(0, n_classes - 1), min_size=n_queries, max_size=n_queries)
    predictions = data.draw(st.lists(row, min_size=n_teachers, max_size=n_teachers))
    by_hand = [[sum(row[q] == c for row in predictions) for c in range(n_classes)] for q in range(n_queries)]
    votes = tally(np.array(predictions, dtype=np.uint8), n_classes=n_classes)
    assert votes.counts.tolist() == by_hand
    assert votes.n_teachers == n_teachers
    shuffled = data.draw(st.permutations(predictions))
    assert tally(shuffled, n_classes=n_classes).counts.tolist() == by_hand
