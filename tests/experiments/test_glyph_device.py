"""Records drawn by PyTorch are those that numpy draws."""

from __future__ import annotations

import numpy as np
import pytest
from experiments.glyph_device import records_on

from terrine.datasets.glyph import SPLITS, small_task


@pytest.mark.parametrize("split", SPLITS)
def test_records_are_those_of_the_cpu(split):
    task = small_task(seed=3)
    rows = np.arange(500, 1_000)
    images, labels = task.records(split, rows)
    drawn, same = records_on(task, split, rows, device="cpu")
    assert (same == labels).all()
    off = np.abs(drawn.numpy().astype(int) - images)
    assert off.max() <= 1
    assert (off > 0).mean() < 1e-3


def test_other_records_are_others():
    task = small_task(seed=3)
    one, _ = records_on(task, "private", np.arange(20), device="cpu")
    other, _ = records_on(task, "public", np.arange(20), device="cpu")
    assert (one != other).float().mean() > 0.2
