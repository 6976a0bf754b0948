"""Private data is validated, read-only, silent, and never copied into memory."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from terrine.datasets import PrivateData, PublicData, Task
from terrine.errors import DataError

X = np.array([[0.25, 77.125], [1.5, -3.0], [2.5, 9.0]])
Y = [2, 0, 1]


def make_set(**changes):
    fields = {
        "name": "toy",
        "private": PrivateData(X, Y),
        "public": PublicData(X),
        "public_y": Y,
        "test_X": X,
        "test_y": Y,
        "classes": ("a", "b", "c"),
    }
    return Task(**fields | changes)


@pytest.mark.parametrize("unit", [None, ["ann", "bob", "ann"], [7, 7, 8], np.array(["x", "y", "z"], dtype=object)])
def test_what_is_printed_holds_no_value(unit):
    data = PrivateData(X, Y, unit=unit)
    holders = [data, make_set(private=data), [data], {"data": data}]
    for text in [f(thing) for thing in holders for f in (repr, str, "{}".format)]:
        assert not any(secret in text for secret in ("77.125", "0.25", "ann", "bob", "array", "[[", "'x'"))
    if unit is None:
        assert repr(data) == "<PrivateData: 3 rows of (2,) float64, no units; values are secret>"
    else:  # a person may have any number of rows
        assert repr(data) == "<PrivateData: rows of (2,) float64, with units; values and number are secret>"
        assert repr(make_set(private=data)).startswith("<Task toy: private, 3 public, 3 test rows")
    assert repr(make_set()) == "<Task toy: 3 private, 3 public, 3 test rows of (2,) float64, 3 classes>"


def test_it_survives_pickling_and_taking_rows():
    data = PrivateData(X, Y, unit=["ann", "bob", "cid"])
    again = pickle.loads(pickle.dumps(data))
    np.testing.assert_array_equal(again.X, X)
    np.testing.assert_array_equal(again.unit, data.unit)
    some = data.take([2, 0])
    assert len(some) == 2
    np.testing.assert_array_equal(some.X, X[[2, 0]])
    assert some.y.tolist() == [1, 2]
    assert some.unit.tolist() == ["cid", "ann"]


def test_arrays_are_kept_and_cannot_be_written_through():
    data = PrivateData(X, Y, unit=[1, 2, 3])
    assert np.shares_memory(data.X, X)
    for array in (data.X, data.y, data.unit):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0
    X[0, 0] = X[0, 0]  # the user's own array stays writeable
    with pytest.raises(AttributeError):
        data.X = X


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_a_memmap_stays_one(tmp_path, dtype):
    np.save(tmp_path / "X.npy", np.zeros((50, 4), dtype=dtype))
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    for data in (PrivateData(mapped, np.zeros(50, int)), PublicData(mapped)):
        assert isinstance(data.X, np.memmap)
        assert np.shares_memory(data.X, mapped)


@pytest.mark.parametrize(
    ("X", "y", "unit", "message"),
    [
        ([1.0, 2.0], [0, 1], None, r"at least 2 axes, the first for rows, got 1"),
        ([[1.0], [2.0, 3.0]], [0, 1], None, "must all have the same length"),
        (np.zeros((0, 2)), [], None, "at least one row"),
        ([["a"], ["b"]], [0, 1], None, "must hold numbers, got dtype"),
        ([[1.0], [np.nan]], [0, 1], None, "row 1 has nan or inf"),
        ([[1.0], [2.0]], [0], None, "y must be a list with one label for each row"),
        ([[1.0], [2.0]], [0, -1], None, "whole numbers of at least 0; row 1 does not"),
        ([[1.0], [2.0]], [0.5, 1], None, "whole numbers of at least 0; row 0 does not"),
        ([[1.0], [2.0]], [0, np.nan], None, "whole numbers of at least 0; row 1 does not"),
        ([[1.0], [2.0]], ["a", "b"], None, "got dtype"),
        ([[1.0], [2.0]], [0, 1], ["a"], "unit must be a list or a column with one id for each row"),
        ([[1.0], [2.0]], [0, 1], ["a", ""], "id in row 1 is missing, or neither"),
        ([[1.0], [2.0]], [0, 1], ["a", None], "id in row 1 is missing, or neither"),
        ([[1.0], [2.0]], [0, 1], np.array([None, "a"]), "id in row 0 is missing, or neither"),
        (
            [[1.0], [2.0]],
            [0, 1],
            np.array([3, "a"], dtype=object),
            "id in row 1 is text, and the first one is a whole number",
        ),
        ([[1.0], [2.0]], [0, 1], np.array([1, 2**70], dtype=object), "id in row 1 is 2\\^63 or larger"),
        ([[1.0], [2.0]], [0, 1], [0.5, 1.5], "id in row 0 is missing, or neither"),
        ([[1.0], [2.0]], [0, 1], np.array([1, 2**64 - 1], dtype=np.uint64), "id in row 1 is 2\\^63 or larger"),
    ],
)
def test_bad_data_is_refused_by_row(X, y, unit, message):
    with pytest.raises(DataError, match=message):
        PrivateData(X, y, unit=unit)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"classes": ("a", "b")}, "class indices from 0 to 1; row 0 does not"),
        ({"classes": "abc"}, "list of names"),
        ({"classes": ("a", "a", "b")}, "at least 2 names, all different"),
        ({"public": PublicData(X[:, :1])}, "Public rows must have the private rows' shape"),
        ({"test_X": X[:, :1]}, "Test rows must have the public rows' shape"),
        ({"test_y": [0, 1]}, "test_y must be a list with one label for each row"),
    ],
)
def test_a_set_that_does_not_fit_together_is_refused(changes, message):
    with pytest.raises(DataError, match=message):
        make_set(**changes)
