"""Glyph: a record is a function of (seed, split, i); rates are as stated; no face is in two splits."""

from __future__ import annotations

import numpy as np
import pytest

from terrine.datasets import files, glyph, load
from terrine.datasets.glyph import Glyph, small_glyph, small_task
from terrine.errors import DataError, InputError

N = 60_000


@pytest.fixture(scope="module")
def task():
    return small_task()


@pytest.fixture
def full(real_data):
    real_data(glyph.STORE.path)
    return Glyph(glyph._stored(glyph.glyph_store()))


def test_a_record_depends_on_seed_split_and_index_only(task):
    X, y = task.records("private", np.arange(5000))
    chosen = np.array([4999, 0, 17, 17, 2048])
    again_X, again_y = small_task().records("private", chosen)
    np.testing.assert_array_equal(again_X, X[chosen])
    np.testing.assert_array_equal(again_y, y[chosen])
    for other in ("public", "test"):
        drawn, keys = task.plan(other, chosen), task.plan("private", chosen).key
        assert not set(drawn.key) & set(keys)
        assert (task.records(other, chosen)[0] != again_X).any()
    assert (small_task(seed=1).records("private", chosen)[0] != again_X).any()
    assert len(np.unique(X.reshape(5000, -1), axis=0)) == 5000  # no two alike


def test_the_first_records_stay_what_they_are_now(task):
    """What is stored never changes meaning: a change of these numbers is a new data set."""
    plan = task.plan("private", np.arange(6))
    assert "".join(task.classes[k] for k in plan.true) == "9WXFML"


@pytest.mark.parametrize("split", glyph.SPLITS)
def test_rates_are_as_stated(task, split):
    plan = task.plan(split, np.arange(N))
    wrong = plan.label != plan.true
    assert wrong.mean() == pytest.approx(glyph.MISLABELLED, abs=0.006)
    assert wrong.mean() > 0.10
    to_partner = (plan.label == task.confused[plan.true])[wrong].mean()
    assert to_partner == pytest.approx(0.5 + 0.5 / 23, abs=0.02)
    counts = np.bincount(plan.true, minlength=24)
    np.testing.assert_allclose(counts / N, task.frequencies, atol=0.004)
    assert task.frequencies.max() / task.frequencies.min() == pytest.approx(5)
    assert 4 < counts.max() / counts.min() < 6


def test_uniform_draws_are_uniform_and_unrelated(task):
    """Parameters of records look independent: no correlation among them, nor from one record to the next."""
    plan = task.plan("private", np.arange(N))
    columns = np.column_stack(
        [plan.true, plan.stroke, plan.contrast, plan.noise, plan.base % 7, plan.label != plan.true]
    )
    together = np.corrcoef(np.column_stack([columns[1:], columns[:-1]]).T)
    off = together[~np.eye(len(together), dtype=bool)].reshape(len(together), -1)
    pairs = np.sort(np.abs(off).ravel())
    assert np.median(pairs) < 0.01
    quarters = np.histogram(plan.contrast, bins=4, range=(0.6, 1.0))[0] / N
    np.testing.assert_allclose(quarters, 0.25, atol=0.01)


def test_no_face_is_in_two_splits(task):
    dealt = np.concatenate([task.faces[split] for split in glyph.SPLITS])
    assert sorted(dealt) == list(range(22))
    assert [len(task.faces[split]) for split in glyph.SPLITS] == [14, 4, 4]
    for split in glyph.SPLITS:
        used = np.unique(task.glyphs.face[task.plan(split, np.arange(5000)).base])
        np.testing.assert_array_equal(used, task.faces[split])
        plan = task.plan(split, np.arange(500))
        np.testing.assert_array_equal(task.glyphs.y[plan.base], plan.true)


def test_look_alikes_are_pairs_of_the_150_symbols():
    assert sorted(a + b for a, b in glyph.PAIRS) == sorted({a + b for a, b in glyph.PAIRS})
    assert sorted("".join(a + b for a, b in glyph.PAIRS)) == sorted(glyph.SYMBOLS)
    partner = glyph._look_alikes(tuple(glyph.SYMBOLS))
    np.testing.assert_array_equal(partner[partner], np.arange(150))
    assert (partner != np.arange(150)).all()
    assert (glyph._look_alikes(tuple(glyph.SMALL_SYMBOLS)) != np.arange(24)).all()


def test_the_ink_stays_inside_and_visible(task):
    plan = task.plan("private", np.arange(4000))
    X, _ = task.records("private", np.arange(4000))
    assert (X.reshape(4000, -1).max(axis=1) > 60).all()
    box = task._boxes[plan.base]
    inverse = np.linalg.inv(plan.affine[:, :, :2].astype(float))
    ends = np.stack([box[:, 0][:, [0, 0, 1, 1]], box[:, 1][:, [0, 1, 0, 1]]], axis=1) - plan.affine[:, :, 2:]
    placed = inverse @ ends  # where the box's corners are drawn
    assert np.abs(placed).max() <= 12.76


def test_a_plan_is_enough_to_draw_a_record_elsewhere(task):
    """The documented meaning of a plan, pixel by pixel with scipy, gives the records (noise left out)."""
    from dataclasses import replace

    from scipy.ndimage import map_coordinates, maximum_filter, minimum_filter

    plan = task.plan("test", np.arange(20))
    silent = replace(plan, noise=np.zeros(20, dtype=np.float32))
    drawn = glyph._draw(task.glyphs.X, silent)
    rows, columns = np.mgrid[0:28, 0:28] - 13.5
    cross = np.array([[0, 1, 0], [1, 1, 1], [0, 1, 0]], dtype=bool)
    for k in range(20):
        a = plan.affine[k].astype(float)
        where = [a[i, 0] * rows + a[i, 1] * columns + a[i, 2] + 13.5 for i in (0, 1)]
        image = map_coordinates(task.glyphs.X[plan.base[k]].astype(float), where, order=1, mode="grid-constant")
        extreme = (maximum_filter if plan.stroke[k] > 0 else minimum_filter)(image, footprint=cross, mode="constant")
        image = (image + abs(plan.stroke[k]) * (extreme - image)) * plan.contrast[k]
        assert np.abs(image - drawn[k]).max() < 1.1


def test_a_forest_learns_the_small_task():
    from sklearn.ensemble import RandomForestClassifier

    data = small_glyph(n_private=3000, n_public=10, n_test=1000, true_labels=True)
    forest = RandomForestClassifier(30, random_state=0, max_features=20)
    forest.fit(data.private.X.reshape(3000, -1), data.private.y)
    assert forest.score(data.test_X.reshape(1000, -1), data.test_y) > 0.7  # chance: 0.04


def test_labels_to_evaluate_with_are_as_recorded_or_true():
    recorded, true = (small_glyph(n_private=500, n_public=500, n_test=500, true_labels=flag) for flag in (False, True))
    np.testing.assert_array_equal(recorded.private.y, true.private.y)  # private labels are always as recorded
    np.testing.assert_array_equal(recorded.test_X, true.test_X)
    for part in ("public_y", "test_y"):
        differ = (getattr(recorded, part) != getattr(true, part)).mean()
        assert 0.06 < differ < 0.19


def test_the_stored_glyphs_of_1000_faces(full):
    assert full.glyphs.X.shape == (147_840, 28, 28)
    assert full.classes == tuple(glyph.SYMBOLS)
    assert [len(full.faces[split]) for split in glyph.SPLITS] == [800, 100, 100]
    assert not set(full.faces["private"]) & (set(full.faces["public"]) | set(full.faces["test"]))
    plan = full.plan("private", np.arange(200_000))
    assert (plan.label != plan.true).mean() == pytest.approx(0.12, abs=0.003)
    assert 4.5 < np.bincount(plan.true).max() / np.bincount(plan.true).min() < 6.5
    assert np.isin(full.glyphs.face[plan.base], full.faces["private"]).all()
    data = load("glyph", n_private=300, n_public=200, n_test=100)
    assert (len(data.private), len(data.public), len(data.test_y)) == (300, 200, 100)
    np.testing.assert_array_equal(data.private.y, plan.label[:300])


def test_records_on_disk_are_those_in_memory(task, tmp_path):
    from terrine.datasets import read_private

    seen = []
    task.write("private", 3000, tmp_path / "made", progress=lambda *event: seen.append(event))
    data = read_private(tmp_path / "made", classes=task.classes)
    assert isinstance(data.X, np.memmap)
    X, y = task.records("private", np.arange(3000))
    np.testing.assert_array_equal(data.X, X)
    np.testing.assert_array_equal(data.y, y)
    assert seen[-1] == ("private records", 3000, 3000)


def test_without_the_stored_file_this_machines_fonts_are_rendered_once(monkeypatch):
    from terrine.datasets.fonts import matplotlib_fonts

    monkeypatch.setattr(glyph, "FONT_FOLDERS", (matplotlib_fonts(),))
    path = glyph.glyph_store()
    assert path == files.cache() / glyph.RENDERED
    monkeypatch.setattr(glyph, "render", None)  # not called again
    assert glyph.glyph_store() == path
    data = load("glyph", n_private=50, n_public=20, n_test=20)
    assert len(data.classes) == 150
    assert len(load("glyph", n_private=5, n_public=5, n_test=5, store=path).private) == 5


def test_bad_arguments_are_refused(task):
    with pytest.raises(InputError, match="split must be one of private, public, test"):
        task.records("train", [0])
    for indices in ([-1], [0.5], [[0]]):
        with pytest.raises(DataError, match="indices must be"):
            task.plan("test", indices)
    with pytest.raises(InputError, match="n_test"):
        small_glyph(n_test=0)
    two = glyph.Glyphs(task.glyphs.X[:48], task.glyphs.y[:48], task.glyphs.face[:48], task.glyphs.symbols, ("a", "b"))
    with pytest.raises(DataError, match="at least 3 font faces"):
        Glyph(two)
    few = task.glyphs.y > 0
    lacking = glyph.Glyphs(task.glyphs.X[few], task.glyphs.y[few], task.glyphs.face[few], task.glyphs.symbols, ())
    with pytest.raises(DataError, match="has the symbol 'A'"):
        Glyph(lacking)
