"""Blobs have the sizes asked for, are learnable, and are the same each time."""

from __future__ import annotations

import numpy as np
import pytest

from terrine.datasets.blobs import blobs
from terrine.errors import InputError


@pytest.mark.parametrize(("n_features", "n_classes"), [(2, 3), (10, 4)])
def test_a_nearest_centre_rule_learns_them(n_features, n_classes):
    task = blobs(n_features=n_features, n_classes=n_classes)
    assert (len(task.private), len(task.public), len(task.test_y)) == (2000, 500, 500)
    centres = np.stack([task.private.X[task.private.y == k].mean(axis=0) for k in range(n_classes)])
    nearest = ((task.test_X[:, None] - centres) ** 2).sum(axis=2).argmin(axis=1)
    assert (nearest == task.test_y).mean() > 0.9


def test_a_seed_fixes_them_and_sizes_do_not_change_other_parts():
    first, again, other, larger = blobs(), blobs(), blobs(seed=1), blobs(n_private=3000)
    np.testing.assert_array_equal(first.private.X, again.private.X)
    assert (first.private.X != other.private.X).any()
    np.testing.assert_array_equal(first.test_X, larger.test_X)


def test_units_hold_so_many_rows():
    unit = blobs(n_private=100, rows_per_unit=5).private.unit
    assert np.bincount(unit).tolist() == [5] * 20


@pytest.mark.parametrize("wrong", [{"n_private": 0}, {"n_classes": 1}, {"spread": 0}, {"rows_per_unit": 0}])
def test_bad_arguments_are_refused(wrong):
    with pytest.raises(InputError, match=next(iter(wrong))):
        blobs(**wrong)
