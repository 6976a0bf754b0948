"""Nets trained as one model: randomness by teacher and step alone, no mixing, and they learn."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import chisquare
from tests.teachers.tasks import SMALL, images

from terrine.errors import InputError
from terrine.teachers import ConvRecipe, stacked
from terrine.teachers.stacked import fit_stacked, predict_stacked, teacher_keys, uniform

X, Y = images(200)


def fit(shares, ids, *, recipe=SMALL, seed=3):
    return fit_stacked(shares, recipe=recipe, ids=ids, n_classes=4, seed=seed)


def test_uniform_is_a_function_of_key_and_step():
    keys = teacher_keys(7, [0, 1, 2], "cpu")
    one = uniform(keys, 5, 1000)
    assert torch.equal(one, uniform(keys, 5, 1000))
    assert torch.equal(one[1:2], uniform(teacher_keys(7, [1], "cpu"), 5, 1000))
    assert torch.equal(one[:, :100], uniform(keys, 5, 100))
    assert ((one >= 0) & (one < 1)).all()
    others = [uniform(keys, step, 1000) for step in (-4, -1, 0, 4, 6, 1505)]
    rows = torch.cat([one, *others, uniform(teacher_keys(8, [0], "cpu"), 5, 1000)])
    assert len({tuple(row[:4].tolist()) for row in rows}) == len(rows)
    assert abs(np.corrcoef(rows.numpy()) - np.eye(len(rows))).max() < 0.15


@pytest.mark.parametrize("step", [-2, 0, 3, 2999])
def test_uniform_is_uniform(step):
    drawn = uniform(teacher_keys(1, range(20), "cpu"), step, 10_000).numpy()
    counts = np.histogram(drawn, bins=100, range=(0, 1))[0]
    assert chisquare(counts).pvalue > 1e-6
    pairs = np.histogram2d(drawn[:, ::2].ravel(), drawn[:, 1::2].ravel(), bins=20, range=[[0, 1]] * 2)[0]
    assert chisquare(pairs.ravel()).pvalue > 1e-6
    assert chisquare(np.histogram(drawn**2, bins=100, range=(0, 1))[0]).pvalue < 1e-6  # the test can fail


def test_gradients_do_not_mix():
    a, b, c = (X[:30], Y[:30]), (X[30:90], Y[30:90]), (255 - X[90:97], Y[90:97])
    first, second = fit([a, b], [0, 1]), fit([a, c], [0, 1])
    for p, q in zip(first, second, strict=True):
        assert torch.equal(p[0], q[0])
    assert not torch.equal(first[0][1], second[0][1])
    alone = fit([a], [0])
    moved = fit([c, b, a], [5, 6, 0])
    for p, q, r in zip(first, alone, moved, strict=True):
        assert torch.equal(p[0], q[0])
        assert torch.equal(p[0], r[2])


def test_a_neighbour_that_diverges_stays_alone():
    wild = replace(SMALL, learning_rate=1e4, steps=20)
    a, b = (X[:30], Y[:30]), (X[30:90], Y[30:90])
    found = fit([a, b], [0, 1], recipe=wild)
    assert not torch.isfinite(found[0]).all()
    calm = [p.clone() for p in fit([a, b], [0, 1])]
    calm[0][1] = torch.nan
    assert (predict_stacked(calm, X, recipe=SMALL)[0] == predict_stacked(fit([a], [0]), X, recipe=SMALL)[0]).all()


def test_each_teacher_sees_its_own_records_only(monkeypatch):
    """Records carry their owner in their pixels; sizes differ."""
    sizes = [1, 40, 3, 17]
    shares = [(np.full((n, 8, 8), 60 * k + 10, dtype=np.uint8), np.full(n, k)) for k, n in enumerate(sizes)]
    seen: list[torch.Tensor] = []
    honest = stacked._loss

    def look(x, y, mask, parameters, smoothing):
        seen.append(y.clone())
        assert all((x[k].amax() * 255).round() == 60 * k + 10 for k in range(4))
        return honest(x, y, mask, parameters, smoothing)

    monkeypatch.setattr(stacked, "_loss", look)
    fit(shares, range(4), recipe=replace(SMALL, steps=30))
    assert all((y == torch.arange(4)[:, None]).all() for y in seen)


def test_every_record_of_a_share_is_drawn():
    keys, sizes = teacher_keys(0, [0], "cpu"), 50
    drawn = torch.cat([(uniform(keys, step, 16 * 7).view(16, 7)[:, 0] * sizes).long() for step in range(200)])
    assert chisquare(np.bincount(drawn.numpy(), minlength=50)).pvalue > 1e-6


def test_empty_shares_need_no_neighbour():
    nothing = (X[:0], Y[:0])
    a = (X[:30], Y[:30])
    for p, q in zip(fit([nothing, a], [0, 1]), fit([nothing, nothing], [0, 7]), strict=True):
        assert torch.equal(p[0], q[0])


def test_they_learn_with_the_full_recipe():
    X_test, y_test = images(300, seed=9)
    recipe = ConvRecipe(channels=(8, 8), hidden=32, steps=150, batch=16, shift=0.5, zoom=0.05, rotate=5, shear=0.05)
    parts = [(X[:100], Y[:100]), (X[100:160], Y[100:160])]
    accuracy = (predict_stacked(fit(parts, [0, 1], recipe=recipe), X_test, recipe=recipe) == y_test).mean(1)
    assert (accuracy > 0.9).all()
    untaught = predict_stacked(fit(parts, [0, 1], recipe=replace(recipe, steps=1)), X_test, recipe=recipe)
    assert (untaught == y_test).mean() < 0.7


@pytest.mark.parametrize("views", [1, 3])
def test_a_prediction_does_not_depend_on_where_the_image_stands(views):
    recipe = replace(SMALL, views=views)
    nets = fit([(X[:60], Y[:60])] * 2, [0, 1], recipe=recipe)
    whole = predict_stacked(nets, X, recipe=recipe)
    parts = [predict_stacked(nets, X[i : i + 37], recipe=recipe) for i in range(0, 200, 37)]
    assert (np.concatenate(parts, axis=1) == whole).all()


def test_distortion_is_a_function_of_its_numbers_and_can_be_none():
    x = torch.from_numpy(X[:5, :, :, None])
    draw = uniform(teacher_keys(0, [1], "cpu"), 0, 30).view(5, 6)
    strong = ConvRecipe()
    assert torch.equal(stacked._distort(x, draw, strong), stacked._distort(x, draw, strong))
    assert not torch.allclose(stacked._distort(x, draw, strong), x / 255, atol=0.05)
    centre = torch.full((5, 6), 0.5)
    assert torch.allclose(stacked._distort(x, centre, strong), x / 255, atol=1e-4)


def test_colour_images():
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=90)
    x = rng.integers(0, 100, size=(90, 8, 8, 3), dtype=np.uint8)
    x[np.arange(90), :, :, y] += 120
    nets = fit([(x[:60], y[:60])], [0], recipe=replace(SMALL, rotate=0.0))
    assert (predict_stacked(nets, x[60:], recipe=SMALL)[0] == y[60:]).mean() > 0.9


@pytest.mark.parametrize(
    ("images_", "message"),
    [(X[:, :6, :6], "that 4 divides, got 6 x 6"), (X / 255, "dtype uint8"), (X.reshape(200, 64), "shape")],
)
def test_images_that_do_not_fit_are_refused_in_one_line(images_, message):
    with pytest.raises(InputError, match=message) as caught:
        fit([(images_, Y)], [0])
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "wrong",
    [
        {"steps": 0},
        {"batch": 0},
        {"dropout": 1.0},
        {"learning_rate": 0.0},
        {"channels": (4,)},
        {"channels": (4, 0)},
        {"smoothing": -0.1},
        {"zoom": 1.0},
        {"weight_decay": -1.0},
        {"views": 0},
    ],
)
def test_a_recipe_that_cannot_be_is_refused(wrong):
    with pytest.raises(InputError, match=f"{next(iter(wrong))} must be"):
        ConvRecipe(**wrong)
