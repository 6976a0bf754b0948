"""Features that need no choice: a row's own numbers, from public rows alone, and a choice that public rows explain."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from terrine._models import dump_arrays, load_described
from terrine.datasets import PrivateData
from terrine.errors import DataError, InputError
from terrine.features import AutoFeatures, AutoRecipe, Scattering, contrast, fit_auto, ramps, views
from terrine.features.components import principal, projected


def drawn(n, *, seed=0, side=12, channels=None):
    """Bars, in one of four directions (the class), at random places, and noise."""
    rng = np.random.default_rng(seed)
    y = rng.integers(4, size=n)
    down, across = np.mgrid[:side, :side]
    angle, at = y * np.pi / 4, rng.uniform(-2, 2, size=n)
    away = (
        np.cos(angle)[:, None, None] * (down - side / 2)
        + np.sin(angle)[:, None, None] * (across - side / 2)
        - at[:, None, None]
    )
    images = 200 * np.exp(-(away**2) / 2) + rng.integers(0, 40, size=(n, side, side))
    images = images.astype(np.uint8)
    return (images if channels is None else np.repeat(images[..., None], channels, axis=3)), y


X, Y = drawn(300)


@pytest.mark.parametrize("shape", [(28, 28), (12, 17), (9, 8, 3), (50, 44), (4, 4), (130, 70)])
def test_scattering_takes_images_of_any_size(shape):
    scattering = Scattering(row_shape=shape)
    images = np.random.default_rng(0).integers(0, 256, size=(3, *shape)).astype(np.uint8)
    maps = scattering.transform(images)
    assert maps.shape == (3, scattering.n_maps, *scattering.grid)
    assert max(scattering.grid) <= 10
    assert np.isfinite(maps).all()


def test_scattering_is_each_image_s_own():
    scattering = Scattering(row_shape=(12, 12))
    maps = scattering.transform(X[:70])
    assert (scattering.transform(X[13:41]) == maps[13:41]).all()
    assert (scattering.transform(X[5:6]) == maps[5:6]).all()


def test_scattering_hears_directions_and_forgives_shifts():
    scattering = Scattering(row_shape=(12, 12))
    wave = 127 + 120 * np.sin(np.arange(12) * 0.75 * np.pi)
    across, down = np.broadcast_to(wave, (12, 12)), np.broadcast_to(wave[:, None], (12, 12))
    first = scattering.transform(np.stack([across, down]).astype(np.uint8))[:, 1:9].mean(axis=(2, 3))
    assert first[0].argmax() == 4  # of the finest scale, 90 degrees
    assert first[1].argmax() == 0
    moved = np.roll(X[:50], 1, axis=2)
    maps, after = (scattering.transform(some).reshape(50, -1) for some in (X[:50], moved))
    pixels = np.linalg.norm(X[:50].reshape(50, -1).astype(float) - moved.reshape(50, -1), axis=1)
    nearer = np.linalg.norm(maps - after, axis=1) / np.linalg.norm(maps, axis=1)
    assert nearer.mean() < 0.5 * (pixels / np.linalg.norm(X[:50].reshape(50, -1).astype(float), axis=1)).mean()


def test_components_are_those_of_a_whole_decomposition():
    rows = (np.random.default_rng(0).standard_normal((1500, 1200)) * np.geomspace(30, 0.1, 1200)).astype(np.float32)
    _, matrix = principal(rows, 20, evened=0.0, seed=0)  # by the random start
    _, _, V = np.linalg.svd(rows - rows.mean(axis=0), full_matrices=False)
    directions = matrix / np.linalg.norm(matrix, axis=0)
    assert np.linalg.norm(V[:10] @ directions, axis=1) == pytest.approx(np.ones(10), abs=0.02)
    mean, even = principal(rows[:, :50], 50, evened=1.0, seed=0)
    made = projected(rows[:, :50], mean, even, lambda some: some)
    assert made.std(axis=0) == pytest.approx(np.full(50, 50**-0.5), rel=1e-3)
    assert np.square(made).sum(axis=1).mean() == pytest.approx(1, rel=1e-3)


def test_a_row_s_features_do_not_depend_on_the_rows_beside_it():
    features = fit_auto(X, recipe=AutoRecipe(components=20, encoder="no"), seed=0)
    seen = features.transform(X)
    assert (features.transform(X[40:77]) == seen[40:77]).all()
    assert np.linalg.norm(seen, axis=1) == pytest.approx(np.ones(300), abs=1e-5)


def test_features_of_private_rows_are_refused():
    with pytest.raises(InputError, match="public rows only"):
        fit_auto(PrivateData(X, Y), seed=0)
    with pytest.raises(InputError, match="at least 2"):
        fit_auto(X[:1], seed=0)


def test_a_distortion_that_moves_images_among_others_is_dropped():
    """Mirrored, a bar that rises is one that falls: half of the images land among another class."""
    features = fit_auto(X, recipe=AutoRecipe(components=40, encoder="no"), seed=0)
    found = views.strengths(X[..., None], lambda some: features.transform(some[..., 0]), seed=0)
    assert "flip" not in found
    assert found["light"] == 1.0
    mirrored = X // 2 + X[:, :, ::-1] // 2  # each its own mirror image
    features = fit_auto(mirrored, recipe=AutoRecipe(components=40, encoder="no"), seed=0)
    assert "flip" in views.strengths(mirrored[..., None], lambda some: features.transform(some[..., 0]), seed=0)


def test_distortions_of_no_strength_change_nothing():
    x = torch.rand(5, 1, 12, 12)
    same = views.distorted(x, dict.fromkeys(("crop", "rotate", "light", "erase"), 0.0), torch.Generator())
    assert torch.allclose(same, x, atol=1e-5)
    assert (views.distorted(x, {}, torch.Generator()) == x).all()
    erased = views.distorted(x + 1e-3, {"erase": 1.0}, torch.Generator().manual_seed(0))
    assert 0 < (erased == 0).float().mean() < 0.12


@pytest.fixture(scope="module")
def encoder():
    batch, contrast.BATCH = contrast.BATCH, 64
    yield fit_auto(X, recipe=AutoRecipe(components=30, encoder="yes", steps=12), seed=0, labels=Y, device="cpu")
    contrast.BATCH = batch


def test_an_encoder_is_kept_if_public_rows_say_so(encoder):
    both = {"scattering", "scattering + patches"}
    assert set(encoder.scores) == both | {f"{one} + encoder" for one in both}
    best = max(encoder.scores, key=encoder.scores.get)
    assert " + ".join(encoder.parts) == best
    assert encoder.scores["scattering"] > 0.9
    assert encoder.n_features == 30 * len(encoder.parts)


def test_features_come_back_from_a_file(encoder, tmp_path):
    for features, rows in ((encoder, X), (fit_auto(table(), seed=0), table())):
        features.save(tmp_path / "features")
        again = AutoFeatures.load(tmp_path / "features")
        assert (again.transform(rows) == features.transform(rows)).all()
        assert (again.parts, again.scores, again.recipe) == (features.parts, features.scores, features.recipe)


def test_a_changed_file_is_refused(encoder, tmp_path):
    path = tmp_path / "features"
    encoder.save(path)
    data = bytearray(path.read_bytes())
    data[-9] ^= 1
    path.write_bytes(bytes(data))
    with pytest.raises(DataError, match="sha256"):
        AutoFeatures.load(path)
    path.write_bytes(b"no")
    with pytest.raises(DataError, match="damaged"):
        AutoFeatures.load(path)
    with pytest.raises(DataError, match="no such file"):
        AutoFeatures.load(tmp_path / "none")


def table(n=400, *, seed=0):
    """A number with a heavy tail, a yes or no, and a column that is always 1."""
    rng = np.random.default_rng(seed)
    return np.column_stack([rng.exponential(1e4, n), rng.random(n) < 0.2, np.ones(n)]).astype(np.float32)


def test_plain_rows_are_bent_at_public_quantiles():
    rows = table()
    features = fit_auto(rows, seed=0)
    seen = features.transform(rows)
    assert features.parts == ("quantiles",)
    assert seen.shape == (400, 3 + 8)
    assert (seen[:, 2] == 0).all()  # a constant says nothing
    assert np.abs(seen).max() <= ramps.FAR / np.sqrt(10) + 1e-6
    assert seen[:, [0, 1, *range(3, 11)]].std(axis=0).max() < 0.5  # on one scale
    wild = features.transform(np.array([[1e30, 7, -5]], dtype=np.float32))
    assert np.isfinite(wild).all()  # a row unlike any public one is clipped
    assert np.abs(wild).max() <= ramps.FAR / np.sqrt(10) + 1e-6


def test_embeddings_become_components():
    rows = np.random.default_rng(0).standard_normal((200, 60)).astype(np.float32)
    features = fit_auto(rows, seed=0)
    assert features.parts == ("components",)
    assert np.linalg.norm(features.transform(rows), axis=1) == pytest.approx(np.ones(200), abs=1e-5)


def test_patches_are_beside_the_scattering_unless_labels_speak_against_them():
    features = fit_auto(X, recipe=AutoRecipe(components=20, encoder="no"), seed=0)
    assert features.parts == ("scattering", "patches")
    assert features.scores == {}
    seen = features.transform(X)
    share = np.square(seen[:, 20:]).sum(axis=1)  # of a row of length 1: half as long as the scattering's part
    assert share == pytest.approx(np.full(300, 0.25 / 1.25), abs=1e-5)
    alone = fit_auto(X, recipe=AutoRecipe(components=20, patches=False, encoder="no"), seed=0)
    assert alone.parts == ("scattering",)
    judged = fit_auto(X, recipe=AutoRecipe(components=20, encoder="no"), seed=0, labels=Y)
    assert " + ".join(judged.parts) == max(judged.scores, key=judged.scores.get)
    assert set(judged.scores) == {"scattering", "scattering + patches"}
    none = fit_auto(X, recipe=AutoRecipe(components=20, patches=False, encoder="no"), seed=0, labels=Y)
    assert (none.parts, none.scores) == (("scattering",), {})


def test_features_from_before_there_were_patches_come_back():
    features = fit_auto(X, recipe=AutoRecipe(components=20, patches=False, encoder="no"), seed=0)
    tensors, metadata = load_described(features.dumps(), what="features")
    recipe = json.loads(metadata["recipe"])
    del recipe["patches"]
    old = AutoFeatures.loads(dump_arrays(tensors, metadata | {"recipe": json.dumps(recipe)}), what="old")
    assert old.recipe == features.recipe
    assert (old.transform(X) == features.transform(X)).all()


@pytest.mark.parametrize("settings", [{"components": 0}, {"patches": 1}, {"encoder": "perhaps"}, {"steps": 0}])
def test_wrong_settings_are_refused(settings):
    with pytest.raises(InputError, match=next(iter(settings))):
        AutoRecipe(**settings)


def test_rows_of_another_shape_are_refused():
    features = fit_auto(X, recipe=AutoRecipe(components=5, encoder="no"), seed=0)
    with pytest.raises(InputError, match="shape"):
        features.transform(X[:, :5])
    with pytest.raises(InputError, match="uint8"):
        features.transform(X.astype(np.float32))
