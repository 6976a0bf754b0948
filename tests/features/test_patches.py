"""Pieces of images: an image's own numbers, as a slow sum over its pieces has them, from public images alone."""

from __future__ import annotations

import numpy as np
import pytest

from terrine.features import patches


def textures(n, *, seed=0, shape=(20, 17, 1)):
    """Stripes across or down (the class), of any light and contrast, at any phase."""
    rng = np.random.default_rng(seed)
    y = rng.integers(2, size=n)
    down, across = np.mgrid[: shape[0], : shape[1]]
    along = np.where(y[:, None, None] == 0, down, across)
    wave = np.sin(along * 1.7 + rng.uniform(0, 7, size=(n, 1, 1)))
    images = rng.uniform(90, 160, (n, 1, 1)) + rng.uniform(20, 80, (n, 1, 1)) * wave
    return np.repeat(images.astype(np.uint8)[..., None], shape[2], axis=3), y


X, Y = textures(120)
LEARNED = patches.learn(X, seed=0)


@pytest.mark.parametrize("shape", [(28, 28, 1), (12, 17, 3), (4, 4, 1), (5, 9, 2), (41, 30, 3), (130, 70, 1)])
def test_images_of_any_size(shape):
    images = np.random.default_rng(0).integers(0, 256, size=(20, *shape)).astype(np.uint8)
    learned = patches.learn(images, seed=0)
    maps = patches.seen(learned, images[:3])
    assert maps.shape == (3, len(learned["words"]), patches.n_cells(shape[:2]))
    assert np.isfinite(maps).all()
    assert maps.max() > 0


def test_numbers_are_each_image_s_own():
    maps = patches.seen(LEARNED, X)
    assert (patches.seen(LEARNED, X[3:50]) == maps[3:50]).all()
    assert (patches.seen(LEARNED, X[77:78]) == maps[77:78]).all()
    assert (patches.seen(LEARNED, X[::-1])[::-1] == maps).all()


def test_as_a_slow_sum_over_pieces():
    image, side = X[0, :, :, 0].astype(np.float64), patches.SIDE
    words, mean, white = (LEARNED[name].astype(np.float64) for name in ("words", "mean", "white"))
    total = np.zeros((3, 3, len(words)))
    tall, wide = (size - side + 1 for size in image.shape)
    for i in range(tall):
        for j in range(wide):
            piece = image[i : i + side, j : j + side].ravel()
            contrast = piece.std()
            even = (piece - piece.mean()) / (contrast + 10) - mean
            whitened = even @ white
            alike = words @ (whitened / np.linalg.norm(whitened)) - 0.25
            cell = (0 if i < tall // 3 else 1 if i < 2 * tall // 3 else 2, [4, 8, 12].index(4 * (1 + j // 4)))
            total[cell] += np.maximum(alike, 0) * contrast / (contrast + 25)
    assert (tall, wide) == (15, 12)
    expected = total.reshape(9, -1).T / 20  # pieces in a cell
    assert patches.seen(LEARNED, X[:1])[0] == pytest.approx(expected, abs=1e-4)


def test_texture_is_told_whatever_the_light():
    maps = patches.seen(LEARNED, X).mean(axis=2)
    maps /= np.linalg.norm(maps, axis=1, keepdims=True)
    test, y = textures(80, seed=1)
    seen = patches.seen(LEARNED, test).mean(axis=2)
    middles = np.stack([maps[k == Y].mean(axis=0) for k in range(2)])
    assert ((seen @ middles.T).argmax(axis=1) == y).mean() > 0.97


def test_light_changes_little_and_an_image_of_one_color_is_silent():
    lighter = X[:20] + 20
    maps, after = patches.seen(LEARNED, X[:20]), patches.seen(LEARNED, lighter)
    assert after == pytest.approx(maps, abs=1e-4)
    flat = np.full((1, 20, 17, 1), 7, dtype=np.uint8)
    assert (patches.seen(LEARNED, flat) == 0).all()


def test_public_images_of_one_color_give_a_dictionary():
    flat = np.full((5, 9, 9, 1), 7, dtype=np.uint8)
    maps = patches.seen(patches.learn(flat, seed=0), X[:2, :9, :9])
    assert np.isfinite(maps).all()


def test_the_dictionary_is_its_seed_s():
    again, other = patches.learn(X, seed=0), patches.learn(X, seed=1)
    assert all((again[name] == LEARNED[name]).all() for name in LEARNED)
    assert (other["words"] != LEARNED["words"]).any()
    assert np.linalg.norm(LEARNED["words"], axis=1) == pytest.approx(np.ones(len(LEARNED["words"])), abs=1e-5)


def test_a_gpus_way_gives_the_same_numbers_wherever_an_image_stands():
    pytest.importorskip("torch")
    images = X[:40]
    found = patches._seen_on("cpu", LEARNED, images)
    assert found == pytest.approx(patches.seen(LEARNED, images), abs=1e-6)
    assert (patches._seen_on("cpu", LEARNED, images[7:9]) == found[7:9]).all()
    assert (patches._seen_on("cpu", LEARNED, images[::-1])[::-1] == found).all()
    dark = patches._seen_on("cpu", LEARNED, np.zeros_like(images[:2]))
    assert np.isfinite(dark).all()
