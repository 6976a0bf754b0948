"""What is computed of a row is the same, bit for bit, however many rows are beside it and wherever it stands."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from terrine._blocks import blocks
from terrine.datasets import PublicData
from terrine.features import FeatureRecipe, fit_features
from terrine.features.edges import edges
from terrine.students import MatchStudent, VATStudent, fit_student
from terrine.teachers import CentroidTeacher, ConvTeacher, ModuleTeacher
from terrine.teachers.modules import ModuleRecipe
from terrine.teachers.stacked import ConvRecipe

RNG = np.random.default_rng(0)
N = 300
IMAGES = RNG.integers(0, 256, size=(N, 12, 12)).astype(np.uint8)
COLOR = RNG.integers(0, 256, size=(N, 12, 12, 3)).astype(np.uint8)
PLAIN = RNG.normal(size=(N, 64)).astype(np.float32)
LABELS = RNG.integers(0, 3, size=N)
# Products with a width of 4 and of 16 up (times 4) round otherwise for one row than for two
WIDE = FeatureRecipe(width=16, steps=2, batch=16, views=2, dimensions=6, neighbours=8, whiten=2)
Function = Callable[[np.ndarray], np.ndarray]


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Any:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def learned(rows: np.ndarray, **changed: Any) -> Function:
    return fit_features(PublicData(rows[:120]), recipe=replace(WIDE, **changed), seed=0, device="cpu").transform


def small_net(n_classes: int, row_shape: tuple[int, ...]) -> Any:
    size = int(np.prod(row_shape))
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(size, 40), torch.nn.Tanh(), torch.nn.Linear(40, 3))


def teacher(kind: Any, rows: np.ndarray) -> Function:
    shares = [(rows[k::4][:20], LABELS[k::4][:20]) for k in range(4)]
    models = kind.fit(shares, ids=range(4), n_classes=3, seed=0)
    return lambda X: kind.predict(models, X).T


def student(kind: Any, rows: np.ndarray) -> Function:
    return fit_student(kind, PublicData(rows), LABELS, classes="abc", seed=0).predict_proba


NET: dict[str, Any] = {"channels": (8, 16, 16), "steps": 2, "batch": 8, "public_batch": 8, "device": "cpu"}
FUNCTIONS: dict[str, tuple[Callable[[], Function], np.ndarray]] = {
    "edges": (lambda: edges, IMAGES),
    "edges of colours": (lambda: edges, COLOR),
    "an encoder's": (lambda: learned(IMAGES), IMAGES),
    "an encoder's, without a map": (lambda: learned(IMAGES, dimensions=None), IMAGES),
    "an encoder's, narrow": (lambda: learned(IMAGES, width=1, dimensions=None), IMAGES),
    "of plain rows": (lambda: learned(PLAIN, encoder=False), PLAIN),
    "of plain rows, without a map": (lambda: learned(PLAIN, encoder=False, dimensions=None), PLAIN),
    "of plain rows, in columns": (lambda: learned(PLAIN, encoder=False), np.asfortranarray(PLAIN)),
    "centroid teachers": (lambda: teacher(CentroidTeacher(similarity=-1), PLAIN), PLAIN),
    "centroid teachers, in columns": (lambda: teacher(CentroidTeacher(), PLAIN), np.asfortranarray(PLAIN)),
    "conv teachers": (
        lambda: teacher(
            ConvTeacher(recipe=ConvRecipe(channels=(8, 8), hidden=32, steps=60, views=2, dropout=0.0)), IMAGES
        ),
        IMAGES,
    ),
    "module teachers": (
        lambda: teacher(ModuleTeacher(module=small_net, recipe=ModuleRecipe(steps=2)), PLAIN),
        PLAIN,
    ),
    "a net of images": (lambda: student(MatchStudent.small(**NET), IMAGES), IMAGES),
    "a net of plain rows": (lambda: student(VATStudent(**NET), PLAIN), PLAIN),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_row_alone_is_as_among_others(name: str) -> None:
    make, rows = FUNCTIONS[name]
    function = make()
    whole = function(rows)
    assert len(np.unique(whole, axis=0)) > 1
    for k in (1, 3, 63, 65, 129, 257):
        assert (function(rows[:k]) == whole[:k]).all(), f"the first {k}"
    for i in (0, 1, 5, 64, 131, 256, N - 1):
        assert (function(rows[i : i + 1])[0] == whole[i]).all(), f"row {i}"
    order = np.random.default_rng(1).permutation(N)
    assert (function(rows[order]) == whole[order]).all()


def test_blocks_have_one_shape_and_hold_every_row() -> None:
    rows = np.arange(22).reshape(11, 2)
    for size in (1, 3, 11, 20):
        found = list(blocks(rows, size))
        assert {block.shape for _, block in found} == {(size, 2)}
        assert np.concatenate([block[: at.stop - at.start] for at, block in found]).tolist() == rows.tolist()
        assert (found[-1][1][found[-1][0].stop - found[-1][0].start :] == 0).all()
