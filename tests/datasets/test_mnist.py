"""MNIST: the split of the paper, in the files' order, from packed or plain files; wrong files are refused."""

from __future__ import annotations

import gzip

import numpy as np
import pytest

from terrine.datasets import files, load, mnist
from terrine.errors import DataError

NAMES = [file.path for file in mnist.FILES]


def idx(array, *, kind=8):
    header = bytes([0, 0, kind, array.ndim]) + np.array(array.shape, dtype=">u4").tobytes()
    return header + array.astype(np.uint8).tobytes()


def test_the_split_is_the_papers(real_data):
    folder = real_data(*NAMES)
    task = load("mnist")
    assert (len(task.private), len(task.public), len(task.test_y)) == (60_000, 9_000, 1_000)
    assert task.private.X.shape[1:] == (28, 28)
    assert task.private.X.dtype == np.uint8
    held = mnist.read_idx(folder / "mnist/t10k-images-idx3-ubyte.gz")
    np.testing.assert_array_equal(np.concatenate([task.public.X, task.test_X]), held)  # in order, each row once
    assert task.private.y[:5].tolist() == [5, 0, 4, 1, 9]
    assert task.public_y[:5].tolist() == [7, 2, 1, 0, 4]
    assert np.bincount(task.private.y).tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert task.classes == tuple("0123456789")


def test_the_public_images_are_those_of_the_papers_votes(real_data):
    folder = real_data(*NAMES, "votes/mnist_250_teachers.npy")
    plurality = np.load(folder / "votes/mnist_250_teachers.npy").argmax(axis=1)
    assert (plurality == load("mnist").public_y).mean() == pytest.approx(0.9437, abs=5e-5)


def test_plain_files_do_as_well(real_data, monkeypatch, tmp_path):
    folder = real_data(*NAMES)
    for name in NAMES:
        target = tmp_path / "plain" / name.removesuffix(".gz")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(gzip.decompress((folder / name).read_bytes()))
    packed = load("mnist")
    monkeypatch.setenv("TERRINE_DATA", str(tmp_path / "plain"))
    np.testing.assert_array_equal(load("mnist").private.X, packed.private.X)


def test_a_damaged_file_is_refused_by_name():
    target = files.cache() / NAMES[0]
    target.parent.mkdir(parents=True)
    target.write_bytes(gzip.compress(idx(np.zeros((2, 28, 28)))))
    with pytest.raises(DataError, match=r"train-images-idx3-ubyte.gz: the file's sha256 must be 440f"):
        load("mnist")


def test_an_absent_file_is_named_with_its_address():
    with pytest.raises(DataError, match=r"mnist/train-images-idx3-ubyte.gz.*Download it from https://"):
        load("mnist")


@pytest.mark.parametrize("name", ["x.idx", "x.idx.gz"])
def test_idx_files_are_read(tmp_path, name):
    array = np.arange(24).reshape(2, 3, 4)
    content = idx(array)
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    np.testing.assert_array_equal(mnist.read_idx(tmp_path / name), array)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "does not begin as an IDX file"),
        (b"hello, this is text", "does not begin as an IDX file"),
        (idx(np.zeros(3), kind=13), "does not begin as an IDX file"),
        (idx(np.zeros((2, 3)))[:6], "does not begin as an IDX file"),
        (idx(np.zeros((2, 3)))[:-1], r"6 bytes of shape \(2, 3\), got 5"),
        (idx(np.zeros((2, 3))) + b"x", r"6 bytes of shape \(2, 3\), got 7"),
    ],
)
def test_other_files_are_refused(tmp_path, content, message):
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(DataError, match=message):
        mnist.read_idx(tmp_path / "x")
