"""Sums of neighbors differ by one unit's own contribution, bit for bit, and by the clip at most, in whole numbers."""

from __future__ import annotations

import itertools
import pickle

import numpy as np
import pytest
from tests.soak import amount

from terrine.errors import DataError, InputError
from terrine.executors import Processes
from terrine.probe import ProbeRows, exact, gradient_sum, sums
from terrine.probe.sums import Step

ODD = [np.nan, np.inf, -np.inf, 1e308, -1e300, 5e-324, -0.0, 0.0, 1e5, 8.0, 7.9999999, 1e-4, 2.0**-13, 3 * 2.0**-13]
CLIPS = [1, 1_100_000, 30_000_000, 322_122_547, 2**31]


class Unit:
    """Rows and labels of one unit, some of them odd."""

    def __init__(self, rng, n_features, n_classes, n_rows=None):
        some = [0, 1, 1, 1, 2, 3, 5, 31, 33, 60]
        self.n = int(rng.choice(some)) if n_rows is None else n_rows
        size = rng.choice([1e-3, 1.0, 1.0, 1.0, 20.0])
        self.X = rng.normal(size=(self.n, n_features)) * size / np.sqrt(n_features)
        if rng.random() < 0.3:
            self.X[rng.random(self.X.shape) < 0.1] = rng.choice(ODD)
        self.y = rng.integers(0, n_classes, self.n).astype(float)
        if rng.random() < 0.3 and self.n:
            self.y[rng.integers(self.n)] = rng.choice([-1.0, n_classes, 0.5, np.nan, np.inf, 1e300])
        if rng.random() < 0.1:  # rows that all pull one way
            self.X[:], self.y[:] = rng.normal(size=n_features), 0


class Setting:
    def __init__(self, rng):
        self.p, self.c = int(rng.choice([1, 2, 7, 40])), int(rng.choice([2, 3, 10]))
        weights = rng.normal(size=(self.p + 1, self.c)) * rng.choice([0.0, 1e-3, 1.0, 30.0, 1e7])
        scale = float(rng.choice([1.0, 0.3, 40.0]))
        self.step = Step(exact.whole_weights(weights), scale, int(rng.choice(CLIPS)))

    def total(self, rng, units, **options):
        """By any order of units and rows and any size of blocks."""
        names = rng.permutation(1000)[: len(units)]
        ids = np.repeat(names, [unit.n for unit in units]).astype(np.int64)
        X = np.concatenate([np.empty((0, self.p)), *(unit.X for unit in units)])
        y = np.concatenate([np.empty(0), *(unit.y for unit in units)])
        order = rng.permutation(len(y))
        single = all(unit.n <= 1 for unit in units)
        rows = ProbeRows(X[order], y[order], None if single else ids[order], n_classes=self.c)
        block = int(rng.choice([1, 2, 5, 64, 4096]))
        return gradient_sum(rows, self.step, block=block, **options).reveal()


def squared(vector):
    return sum(int(one) ** 2 for one in vector.ravel())


def check_pair(seed):
    """A data set with a unit more, and one with that unit replaced."""
    rng = np.random.default_rng(seed)
    setting = Setting(rng)
    units = [Unit(rng, setting.p, setting.c) for _ in range(rng.integers(0, 6))]
    one, other = (Unit(rng, setting.p, setting.c) for _ in range(2))
    without = setting.total(rng, units)
    with_one, with_other = setting.total(rng, [*units, one]), setting.total(rng, [other, *units])
    assert squared(with_one - without) <= setting.step.clip**2
    assert squared(with_one - with_other) <= (2 * setting.step.clip) ** 2
    assert (with_one - without == setting.total(rng, [one])).all(), "a unit's contribution depends on the others"
    return bool((with_one != without).any())


def check_pairs(n):
    """How many of them differ."""
    return sum(check_pair(seed) for seed in range(n))


def test_neighboring_sums_differ_by_one_units_own_contribution_and_the_clip_at_most(record_property):
    pairs = amount(300, soak=10_000)
    moved = check_pairs(pairs)
    assert moved > pairs / 3
    record_property("pairs", pairs)
    record_property("pairs that differ", moved)


def _unclipped(rows, found, *, clip):
    return np.rint(found / found.shape[1])


def _with_the_block(real):
    def mutant(rows, found, *, clip):
        return real(rows, found - np.rint(found.mean(axis=0)), clip=clip)

    return mutant


def _by_float(rows, found, *, clip):
    """Clipped as one does it in floats, without a check."""
    mean = found / found.shape[1]
    length = np.sqrt(np.square(np.einsum("uip,uic->upc", rows, mean)).sum(axis=(1, 2)))
    return np.rint(mean * np.minimum(1, clip / np.maximum(length, 1e-9))[:, None, None])


def _by_rows(real):
    """Each row clipped and not their sum: right for units of one row alone."""

    def mutant(rows, found, *, clip):
        flat = rows.reshape(-1, 1, rows.shape[2]), found.reshape(-1, 1, found.shape[2])
        return real(*flat, clip=clip).reshape(found.shape)

    return mutant


MUTANTS = {
    "unclipped": _unclipped,
    "block": _with_the_block(exact.clipped),
    "float": _by_float,
    "rows": _by_rows(exact.clipped),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_the_check_of_pairs_sees_what_is_wrong(name, monkeypatch):
    monkeypatch.setattr(exact, "clipped", MUTANTS[name])
    with pytest.raises(AssertionError):
        check_pairs(300)


def test_the_check_of_pairs_sees_sums_of_floats(monkeypatch):
    """Features that are not whole numbers: sums then depend on blocks."""
    real = exact.features

    def mutant(rows, *, scale):
        found, usable = real(rows, scale=scale)
        return found * 1.0001, usable

    monkeypatch.setattr(exact, "features", mutant)
    with pytest.raises(AssertionError):
        check_pairs(300)


@pytest.fixture
def data():
    rng = np.random.default_rng(5)
    return rng.normal(size=(600, 30)) / 5, rng.integers(0, 4, 600), rng.integers(0, 150, 600)


def by_floats(X, y, units, weights, clip):
    """The same in ordinary arithmetic."""
    A = np.column_stack([X, np.full(len(X), 0.5)])
    logits = A @ weights
    odds = np.exp(logits - logits.max(axis=1, keepdims=True))
    residuals = odds / odds.sum(axis=1, keepdims=True) - np.eye(4)[y]
    total = np.zeros_like(weights)
    for unit in np.unique(units):
        own = units == unit
        mean = A[own].T @ residuals[own] / own.sum()
        total += mean * min(1, clip / np.linalg.norm(mean))
    return total


@pytest.mark.parametrize("clip", [0.05, 0.3, 1.9])
@pytest.mark.parametrize("grouped", [False, True])
def test_it_is_the_clipped_gradient(data, clip, grouped):
    X, y, units = data
    weights = np.random.default_rng(1).normal(size=(31, 4))
    step = Step(exact.whole_weights(weights), 1.0, int(clip * 2**30))
    found = gradient_sum(ProbeRows(X, y, units if grouped else None, n_classes=4), step).reveal() / 2**30
    wanted = by_floats(X, y, units if grouped else np.arange(600), weights, clip)
    assert np.abs(found - wanted).max() < 1e-3 * np.linalg.norm(wanted)
    assert np.abs(found - wanted).max() < 0.02


def test_both_ways_to_a_length_are_one(data, monkeypatch):
    X, y, units = data
    step = Step(exact.whole_weights(np.ones((31, 4))), 1.0, 30_000_000)
    rows = ProbeRows(X, y, units % 40, n_classes=4)
    by_pairs = gradient_sum(rows, step).reveal()
    monkeypatch.setattr(exact, "_GRAM", 0)
    assert (gradient_sum(rows, step).reveal() == by_pairs).all()


def test_lengths_are_exact_at_the_largest_numbers():
    """At the limits of features, residuals and rows no part of a sum overflows, by either way."""
    rng = np.random.default_rng(0)
    for n_rows, size in ((1, 1), (3, 2), (40, 5)):
        rows = rng.integers(-(2**15) // size, 2**15 // size + 1, size=(4, n_rows, 30)).astype(float)
        found = rng.integers(-(2**18), 2**18 + 1, size=(4, n_rows, 6)).astype(float) // n_rows
        rows[0], found[0] = 0.0, 0.0
        rows[0, :, 0], found[0, :, 0], found[0, :, 1] = 2**15, 2**18 // n_rows, -(2**18) // n_rows
        for products in (exact._products(rows), None):
            high, low = exact._squared_length(rows, found, products)
            for unit in range(4):
                whole = [
                    sum(int(rows[unit, i, p]) * int(found[unit, i, c]) for i in range(n_rows))
                    for p, c in itertools.product(range(30), range(6))
                ]
                assert int(high[unit]) * 2**15 + int(low[unit]) == sum(one**2 for one in whole)
                assert 0 <= low[unit] < 2**15


def test_a_length_that_is_the_clip_is_within_it_and_one_more_is_not():
    clip = 2**31
    for more, within in ((-1, True), (0, True), (1, False)):
        high, low = divmod(clip**2 + more, 2**15)
        assert exact._at_most(np.array([high]), np.array([low]), clip).tolist() == [within]


def test_the_table_is_the_exponential():
    table = exact.table()
    wanted = np.exp(-np.arange(len(table)) / 4096) * 2**30
    assert np.abs(table - wanted).max() <= 0.5 + 1e-6
    assert table[-1] == 0
    assert table.dtype == np.int64


def test_a_long_row_is_shortened_and_an_odd_one_is_absent():
    rows = np.array([[3.0, 4.0], [300.0, 400.0], [1e300, -1e300], [np.nan, 0.0], [np.inf, 0.0]])
    found, usable = exact.features(rows, scale=1.0)
    assert usable.tolist() == [True, True, True, False, False]
    assert found[0].tolist() == [3 * 4096, 4 * 4096, 2048]
    assert (np.square(found[:, :-1]).sum(axis=1) <= 2**30).all()
    assert np.hypot(*found[2, :2]) > 0.999 * 2**15
    assert (found[3:] == 0).all()


def test_weights_that_grew_beyond_all_bounds_are_cut():
    assert exact.whole_weights(np.array([[1e30, -1e30, np.nan, 0.5]])).tolist() == [[2**28, -(2**28), 0, 2**15]]


def test_blocks_files_and_processes_give_one_sum(data, tmp_path):
    X, y, units = data
    stored = np.lib.format.open_memmap(tmp_path / "rows.npy", mode="w+", dtype=np.float32, shape=X.shape)
    stored[:] = X
    step = Step(exact.whole_weights(np.ones((31, 4))), 1.0, 30_000_000)
    mapped = ProbeRows(np.load(tmp_path / "rows.npy", mmap_mode="r"), y, units, n_classes=4)
    wanted = gradient_sum(ProbeRows(X.astype(np.float32), y, units, n_classes=4), step, block=7).reveal()
    assert (gradient_sum(mapped, step).reveal() == wanted).all()
    assert (gradient_sum(mapped, step, block=100, executor=Processes(2)).reveal() == wanted).all()
    part = np.load(tmp_path / "rows.npy", mmap_mode="r")[300:]
    again = pickle.loads(pickle.dumps(ProbeRows(part, y[300:], n_classes=4)))
    wanted = gradient_sum(ProbeRows(X[300:].astype(np.float32), y[300:], n_classes=4), step).reveal()
    assert (gradient_sum(again, step).reveal() == wanted).all()
    assert len(pickle.dumps(mapped)) < len(pickle.dumps(X)) / 2  # the file is opened again, not sent
    changed = np.load(tmp_path / "rows.npy", mmap_mode="c")
    changed *= 0.5  # in this process alone, and not in the file
    rows = ProbeRows(changed, y, units, n_classes=4)
    assert (gradient_sum(rows, step, executor=Processes(2)).reveal() == gradient_sum(rows, step).reveal()).all()


def test_pytorch_gives_the_same_sums():
    pytest.importorskip("torch")
    for seed in range(amount(60, soak=1000)):
        rng = np.random.default_rng(seed)
        setting = Setting(rng)
        units = [Unit(rng, setting.p, setting.c) for _ in range(6)]
        assert (setting.total(rng, units) == setting.total(rng, units, device="cpu")).all()


def test_a_gpu_that_divides_by_reciprocals_gives_the_same_sums(monkeypatch):
    """PyTorch does on a GPU, where the divisor is a number: of 98 rows, 147 / 98 is then not a half."""
    torch = pytest.importorskip("torch")
    real = torch.Tensor.__truediv__

    def by_reciprocals(self, other):
        return self * (1.0 / other) if isinstance(other, (int, float)) else real(self, other)

    rng = np.random.default_rng(0)
    X, y, units = rng.normal(size=(98 * 60, 3)), rng.integers(0, 5, 98 * 60), np.repeat(np.arange(60), 98)
    rows = ProbeRows(X, y, units, n_classes=5)
    step = Step(exact.whole_weights(rng.normal(size=(4, 5))), 1.0, 2**31)
    wanted = gradient_sum(rows, step).reveal()
    monkeypatch.setattr(torch.Tensor, "__truediv__", by_reciprocals)
    assert (gradient_sum(rows, step, device="cpu").reveal() == wanted).all()


def test_products_that_are_not_exact_are_refused(monkeypatch):
    assert exact.products_are_exact(np.matmul)
    assert not exact.products_are_exact(lambda one, other: one @ (other * (1 + 2.0**-52)))
    assert not exact.products_are_exact(lambda one, other: (one.astype("f4") @ other.astype("f4")).astype(float))
    sums._check_products.cache_clear()
    monkeypatch.setattr(exact, "products_are_exact", lambda multiply: False)
    rows = ProbeRows(np.zeros((3, 2)), [0, 1, 0], n_classes=2)
    with pytest.raises(InputError, match="are not exact for whole numbers"):
        gradient_sum(rows, Step(np.zeros((3, 2)), 1.0, 100))


def test_memory_does_not_grow_with_the_rows_that_units_have():
    for n_rows in (1, 33, 500, 4096):
        for dimension in (4, 5010, 2**20):
            units = exact.units_at_once(n_rows, dimension, block=4096)
            assert units == 1 or n_rows * units <= 4096
            assert n_rows <= 32 or units == 1 or units * dimension <= 2**22
    assert exact.units_at_once(33, 5010, block=4096) == 4096 // 33
    assert exact.units_at_once(33, 2**20, block=4096) == 4


def test_two_ids_that_arrays_of_text_would_make_one_are_refused():
    """As one unit they would move a sum by more than the clip, where one of them comes or goes."""
    with pytest.raises(DataError, match="The unit id in row 1 ends in a NUL character"):
        ProbeRows(np.zeros((2, 3)), [0, 1], ["ann", "ann\0"], n_classes=2)


def test_weights_that_are_not_whole_are_refused():
    """Sums of them would depend on blocks."""
    rows = ProbeRows(np.zeros((3, 2)), [0, 1, 0], n_classes=2)
    for odd in (0.5, 2.0**29, np.nan, np.inf):
        with pytest.raises(InputError, match="weights must be whole numbers"):
            gradient_sum(rows, Step(np.full((3, 2), odd), 1.0, 100))
    for least, most in ((-1e9, 1e9), (0.25, 0.3)):
        made = exact.whole_weights(np.array([[least, most]] * 3))
        gradient_sum(rows, Step(made, 1.0, 100))


def test_a_unit_with_very_many_rows_counts_by_its_first_ones(monkeypatch):
    monkeypatch.setattr(exact, "MOST_ROWS", 10)
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(25, 3)), rng.integers(0, 2, 25)
    step = Step(exact.whole_weights(np.ones((4, 2))), 1.0, 2**30)
    all_rows, first = (gradient_sum(ProbeRows(X[:n], y[:n], ["a"] * n, n_classes=2), step).reveal() for n in (25, 10))
    assert (all_rows == first).all()


def test_what_rows_cannot_be_is_refused_without_a_private_number():
    X, y = np.zeros((3, 2)), [0, 1, 0]
    for make, words in (
        (lambda: ProbeRows(X.astype(complex), y, n_classes=2), "features must be an array of numbers"),
        (lambda: ProbeRows(X, [0, 1], n_classes=2), "one label for each private row"),
        (lambda: ProbeRows(X, ["a", "b", "c"], n_classes=2), "labels must be numbers of classes"),
    ):
        with pytest.raises(DataError, match=words) as caught:
            make()
        assert "3" not in str(caught.value)
    with pytest.raises(InputError, match="Keep fewer components"):
        sums.check_size(n_features=2**16, n_classes=2)
    rows = ProbeRows(X, y, n_classes=2)
    assert repr(rows) == "<ProbeRows: private, 2 features, 2 classes>"
    for clip in (0, 2**31 + 1):
        with pytest.raises(InputError, match="clip must be from 1 to 2"):
            gradient_sum(rows, Step(np.zeros((3, 2)), 1.0, clip))


def test_a_sum_is_secret():
    found = gradient_sum(ProbeRows(np.zeros((3, 2)), [0, 1, 0], n_classes=2), Step(np.zeros((3, 2)), 1.0, 100))
    assert "depends on private" in repr(found)
