"""Nets as teachers: kept as safetensors, refused when they are something else."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import safetensors.numpy
from tests.teachers.tasks import NETS, SMALL, images

from terrine.errors import InputError, MissingDependencyError, StoreError
from terrine.teachers import ConvTeacher

X, Y = images(60)


@pytest.fixture(scope="module")
def models():
    return NETS.fit([(X, Y), (X[:0], Y[:0]), (X[Y == 2], Y[Y == 2])], ids=[0, 1, 2], n_classes=4, seed=0)


def test_they_are_kept_and_come_back_with_the_same_votes(models):
    votes = NETS.predict(models, X)
    assert votes.dtype == np.int16
    assert len(set(votes[0])) > 1
    assert (votes[1] == 0).all()
    assert (votes[2] == 2).all()
    data = NETS.dumps(models)
    assert NETS.dumps(NETS.loads(data)) == data
    assert (NETS.predict(NETS.loads(data), X) == votes).all()


def test_the_same_bytes_every_time(models):
    again = NETS.fit([(X, Y), (X[:0], Y[:0]), (X[Y == 2], Y[Y == 2])], ids=[0, 1, 2], n_classes=4, seed=0)
    assert NETS.dumps(again) == NETS.dumps(models)


def test_other_files_are_refused(models):
    data = NETS.dumps(models)
    for damaged in (b"", data[:50], data[:-1]):
        with pytest.raises(StoreError, match="is damaged, or not"):
            NETS.loads(damaged)
    with pytest.raises(StoreError, match="does not hold the weights"):
        NETS.loads(safetensors.numpy.save({"weights": np.zeros(3)}))


def test_settings_are_the_recipe_and_not_the_device():
    assert NETS.settings() == ConvTeacher(recipe=SMALL, device="auto", chunk=9).settings()
    assert NETS.settings()["recipe.steps"] == 60
    with pytest.raises(InputError, match="chunk"):
        ConvTeacher(chunk=0)


def test_without_packages_the_error_says_how_to_install_them(models, monkeypatch):
    monkeypatch.setitem(sys.modules, "safetensors.numpy", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'terrine\[keep\]'"):
        NETS.dumps(models)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'terrine\[torch\]'"):
        NETS.predict(models, X)


def test_a_message_about_images_does_not_tell_how_many_a_share_has():
    with pytest.raises(InputError, match=r"got shape \(8, 8, 1\), dtype float64\.$"):
        NETS.fit([(X[:17].astype(float), Y[:17])], ids=[0], n_classes=4, seed=0)
