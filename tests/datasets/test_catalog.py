"""Data sets by name: what is said of one is what loading it gives."""

from __future__ import annotations

import json

import pytest

from terrine.datasets import NAMES, adult, describe, files, glyph, load, mnist, prepare
from terrine.errors import DataError, InputError

REAL = {
    "mnist": [file.path for file in mnist.FILES],
    "adult": [f"{file.path}.gz" for file in adult.FILES],
}


@pytest.mark.parametrize("name", ["mnist", "adult", "small-glyph", "blobs"])
def test_a_description_is_true(name, real_data):
    real_data(*REAL.get(name, []))
    facts, task = prepare(name), load(name)
    sizes = {"private": len(task.private), "public": len(task.public), "test": len(task.test_y)}
    assert facts["sizes"] == sizes
    assert facts["row"] == f"{task.private.X.shape[1:]} {task.private.X.dtype}"
    assert facts["classes"] == task.classes
    assert facts["n_classes"] == len(task.classes)
    assert all(file["sha256_ok"] for file in facts["files"])
    assert len(facts["files"]) == len(REAL.get(name, []))
    json.dumps(facts)


def test_a_real_glyph_store_is_described_with_its_hash(real_data):
    folder = real_data(glyph.STORE.path)
    [file] = describe("glyph")["files"]
    assert file == {"file": glyph.STORE.path, "path": str(folder / glyph.STORE.path), "sha256_ok": True}


@pytest.mark.parametrize("name", NAMES)
def test_a_bare_machine_can_be_described(name):
    facts = describe(name)
    assert all(file["path"] is None and file["sha256_ok"] is None for file in facts["files"])
    assert facts["looked_in"] == [str(files.cache())]
    assert not files.cache().exists()


def test_a_wrong_file_is_seen():
    target = files.cache() / "svhn/train_32x32.mat"
    target.parent.mkdir(parents=True)
    target.write_bytes(b"wrong")
    assert describe("svhn")["files"][0] == {"file": "svhn/train_32x32.mat", "path": str(target), "sha256_ok": False}
    with pytest.raises(DataError, match=r"train_32x32\.mat: the file's sha256 must be"):
        prepare("svhn")


def test_rendered_glyphs_are_described(monkeypatch):
    from terrine.datasets.fonts import matplotlib_fonts

    monkeypatch.setattr(glyph, "FONT_FOLDERS", (matplotlib_fonts(),))
    [file] = prepare("glyph")["files"]
    assert file["path"] == str(files.cache() / glyph.RENDERED)


def test_unknown_names_and_options_are_refused():
    for ask in (load, describe, prepare):
        with pytest.raises(InputError, match="name must be one of mnist, svhn"):
            ask("imagenet")
    with pytest.raises(InputError, match=r"mnist has no option n_private\. It has: progress"):
        load("mnist", n_private=5)
    assert len(load("blobs", n_private=7).private) == 7
