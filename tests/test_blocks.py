"""What is computed of a row is the same, bit for bit, however many rows are beside it and wherever it stands."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.soak import amount

from terrine._blocks import RowProduct, blocks
from terrine.datasets import PublicData
from terrine.features import AutoRecipe, FeatureRecipe, as_features, fit_auto, fit_features
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


def auto(rows: np.ndarray, **recipe: Any) -> Function:
    return fit_auto(PublicData(rows[:120]), recipe=AutoRecipe(steps=1, **recipe), seed=0, device="cpu").transform


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
# Of private rows, too: a neighbor may move every row by a place
FEATURES: dict[str, tuple[Callable[[], Function], np.ndarray]] = {
    "edges": (lambda: edges, IMAGES),
    "edges of colours": (lambda: edges, COLOR),
    "an encoder's": (lambda: learned(IMAGES), IMAGES),
    "an encoder's, without a map": (lambda: learned(IMAGES, dimensions=None), IMAGES),
    "an encoder's, narrow": (lambda: learned(IMAGES, width=1, dimensions=None), IMAGES),
    "of plain rows": (lambda: learned(PLAIN, encoder=False), PLAIN),
    "of plain rows, without a map": (lambda: learned(PLAIN, encoder=False, dimensions=None), PLAIN),
    "of plain rows, in columns": (lambda: learned(PLAIN, encoder=False), np.asfortranarray(PLAIN)),
    "components of an embedding": (lambda: auto(PLAIN), PLAIN),
    "scattering": (lambda: auto(COLOR, encoder="no"), COLOR),
    "scattering and an encoder": (lambda: auto(IMAGES, encoder="yes"), IMAGES),
    "components of an encoder of one's own": (
        lambda: as_features(lambda rows: np.tanh(rows), PLAIN[:120], components=20).transform,
        PLAIN,
    ),
}
FUNCTIONS = {
    **FEATURES,
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
    for k in amount((1, 65, 257), soak=(1, 3, 63, 65, 129, 257)):
        assert (function(rows[:k]) == whole[:k]).all(), f"the first {k}"
    for i in amount((0, 64, N - 1), soak=(0, 1, 5, 64, 131, 256, N - 1)):
        assert (function(rows[i : i + 1])[0] == whole[i]).all(), f"row {i}"
    order = np.random.default_rng(1).permutation(N)
    assert (function(rows[order]) == whole[order]).all()


# In another process: what is made of two of the others is for `make soak`
APART = [name for name in FEATURES if name != "scattering and an encoder" or amount(False, soak=True)]


def at_every_place(names: Any) -> None:
    for name in names:
        make, rows = FEATURES[name]
        function = make()
        same = function(np.repeat(rows[7:8], 257, axis=0))
        assert (same == same[0]).all(), f"{name}: the features of a row depend on its place"
        before = function(rows[:258])
        assert (function(np.concatenate([rows[-1:], rows[:258]]))[1:] == before).all(), f"{name}: a row in front"


@pytest.mark.parametrize("name", FEATURES)
def test_a_row_has_the_same_features_at_every_place(name: str) -> None:
    at_every_place([name])


def test_a_row_has_the_same_features_at_every_place_where_products_round_by_place() -> None:
    """OpenBLAS has a kernel for Haswell, which many machines use, that rounds floats otherwise at other places."""
    flags = Path("/proc/cpuinfo")
    if not flags.exists() or " avx2 " not in flags.read_text():
        pytest.skip("this machine has no AVX2, which the kernel for Haswell needs")
    environment = {**os.environ, "OPENBLAS_CORETYPE": "Haswell", "OMP_NUM_THREADS": "1"}
    products = "x = np.ones((256, 1), np.float32) * np.random.default_rng(0).normal(size=64).astype(np.float32)"
    matrix = "m = np.random.default_rng(1).normal(size=(64, 64)).astype(np.float32)"
    code = (
        f"import numpy as np; {products}; {matrix}; print(len(np.unique(x @ m, axis=0)))\n"
        "import tests.test_blocks as here; here.at_every_place(here.APART)"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        cwd=Path(__file__).parents[1],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 1, "the kernel rounds by place no more: this test needs another one"


@pytest.mark.parametrize("length", [1, 2, 3, 64, 500])
def test_products_of_rows_are_exact(length: int) -> None:
    """As Python's whole numbers have them: bits, sums, odd rows."""
    rng = np.random.default_rng(length)
    rows = (rng.normal(size=(40, length)) * 10.0 ** rng.integers(-30, 30, size=(40, 1))).astype(np.float32)
    rows[0], rows[1], rows[2] = 0, 1e-45, np.finfo(np.float32).max
    rows[3, 0], rows[4, -1], rows[5, 0] = np.nan, np.inf, -np.inf
    rows[6] = np.where(np.arange(length) % 2, 1, np.nextafter(np.float32(1), np.float32(0)))  # the largest of 20 bits
    matrix = (rng.normal(size=(length, 7)) * 10.0 ** rng.integers(-8, 8, size=7)).astype(np.float32)
    matrix[:, 0], matrix[:, 1], matrix[:, 2] = 0, 1, np.nextafter(np.float32(1), np.float32(0))
    times = RowProduct(matrix)
    whole, size = times.whole(rows)
    room = 2**53 // length
    assert np.abs(whole).max() * np.abs(times.columns).max() <= room
    assert np.abs(whole).max() * np.abs(times.columns).max() * 8 > room  # no bits are given away
    found = times(rows)
    assert np.isnan(found[3:6]).all()
    for i in (*range(3), *range(6, 40)):
        for j in range(7):
            exact = sum(int(a) * int(b) for a, b in zip(whole[i], times.columns[:, j], strict=True))
            assert abs(exact) <= 2**53
            with np.errstate(over="ignore"):
                assert found[i, j] == np.float32(exact * (size[i, 0] * times.size[0, j]))
    near = rows[7:].astype(np.float64) @ matrix.astype(np.float64)
    largest = np.abs(rows[7:]).max(axis=1, keepdims=True).astype(np.float64) * np.abs(matrix).max(axis=0)
    with np.errstate(under="ignore"):
        assert (np.abs(found[7:] - near) <= length * 2.0**-18 * largest + 1e-37).all()
    assert times(rows[:0]).shape == (0, 7)
    assert RowProduct(np.zeros((length, 0)))(rows).shape == (40, 0)
    tiny = RowProduct(np.ones((length, 1)))(np.full((1, length), 5e-324))  # in doubles: smaller than whole numbers go
    assert (tiny == 0).all()


def test_blocks_have_one_shape_and_hold_every_row() -> None:
    rows = np.arange(22).reshape(11, 2)
    for size in (1, 3, 11, 20):
        found = list(blocks(rows, size))
        assert {block.shape for _, block in found} == {(size, 2)}
        assert np.concatenate([block[: at.stop - at.start] for at, block in found]).tolist() == rows.tolist()
        assert (found[-1][1][found[-1][0].stop - found[-1][0].start :] == 0).all()
