"""SVHN's published format, on a small file that the test makes."""

from __future__ import annotations

import dataclasses
import hashlib

import numpy as np
import pytest
from scipy.io import savemat

from terrine.datasets import files, load, svhn
from terrine.errors import DataError


def digits(n, seed):
    rng = np.random.default_rng(seed)
    return rng.integers(256, size=(32, 32, 3, n), dtype=np.uint8), rng.integers(1, 11, size=(n, 1), dtype=np.uint8)


@pytest.fixture
def made(monkeypatch):
    """Files of the three parts in the cache, with the sha256 that the loader then expects."""
    parts = {}
    (files.cache() / "svhn").mkdir(parents=True)
    for seed, (part, n) in enumerate({"TRAIN": 30, "EXTRA": 50, "TEST": 25}.items()):
        file = getattr(svhn, part)
        X, y = parts[part] = digits(n, seed)
        savemat(files.cache() / file.path, {"X": X, "y": y})
        sha256 = hashlib.sha256((files.cache() / file.path).read_bytes()).hexdigest()
        monkeypatch.setattr(svhn, part, dataclasses.replace(file, sha256=(sha256,)))
    monkeypatch.setattr(svhn, "N_PUBLIC", 10)
    return parts


def test_train_and_extra_are_private_and_the_first_test_images_public(made):
    task = load("svhn")
    assert (len(task.private), len(task.public), len(task.test_y)) == (80, 10, 15)
    for i, (part, k) in enumerate([("TRAIN", 0), ("TRAIN", 29), ("EXTRA", 0), ("EXTRA", 49)]):
        row = (0, 29, 30, 79)[i]
        np.testing.assert_array_equal(task.private.X[row], made[part][0][..., k])
        assert task.private.y[row] == made[part][1][k, 0] % 10
    np.testing.assert_array_equal(task.public.X[9], made["TEST"][0][..., 9])
    np.testing.assert_array_equal(task.test_X[0], made["TEST"][0][..., 10])
    assert 0 in task.private.y  # written as 10 in the file
    assert task.private.y.max() == 9


def test_extra_can_be_left_out(made):
    (files.cache() / svhn.EXTRA.path).unlink()
    assert len(load("svhn", extra=False).private) == 30
    with pytest.raises(DataError, match=r"svhn/extra_32x32\.mat"):
        load("svhn")


def test_the_true_files_are_asked_for_by_their_published_hashes():
    assert {file.path for file in svhn.FILES} == {f"svhn/{part}_32x32.mat" for part in ("train", "extra", "test")}
    assert all(len(file.sha256[0]) == 64 for file in svhn.FILES)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"X": np.zeros((32, 32, 3, 2), np.uint8)}, "must hold X"),
        ({"X": np.zeros((28, 28, 3, 2), np.uint8), "y": [[1], [2]]}, "must hold X"),
        ({"X": np.zeros((32, 32, 3, 2)), "y": [[1], [2]]}, "must hold X"),
        ({"X": np.zeros((32, 32, 3, 2), np.uint8), "y": [[1], [2], [3]]}, "2 digits from 1 to 10"),
        ({"X": np.zeros((32, 32, 3, 2), np.uint8), "y": [[0], [2]]}, "2 digits from 1 to 10"),
    ],
)
def test_other_arrays_are_refused(tmp_path, content, message):
    savemat(tmp_path / "x.mat", content)
    with pytest.raises(DataError, match=message):
        svhn.read_mat(tmp_path / "x.mat")


def test_other_files_are_refused(tmp_path):
    (tmp_path / "x.mat").write_bytes(b"this is no MATLAB file, whatever its name says, and long enough" * 9)
    with pytest.raises(DataError, match="scipy cannot read"):
        svhn.read_mat(tmp_path / "x.mat")
