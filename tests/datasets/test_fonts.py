"""Symbols are rendered whole, once per face that has them, and stored."""

from __future__ import annotations

import shutil
import sys

import numpy as np
import pytest

from terrine.datasets import fonts
from terrine.errors import DataError, MissingDependencyError

FOLDER = fonts.matplotlib_fonts()
FACES = ["DejaVuSans.ttf", "DejaVuSerif-Bold.ttf", "STIXGeneralItalic.ttf"]


@pytest.fixture(scope="module")
def glyphs():
    return fonts.render([FOLDER / face for face in FACES])


def test_every_symbol_of_every_face_is_there_and_inside(glyphs):
    assert len(fonts.SYMBOLS) == len(set(fonts.SYMBOLS)) == 150
    assert glyphs.n_faces == 3
    assert glyphs.fonts == tuple(FACES)
    assert len(glyphs.X) == 450
    assert np.bincount(glyphs.y).tolist() == [3] * 150
    border = np.concatenate([glyphs.X[:, [0, -1]].reshape(450, -1), glyphs.X[:, :, [0, -1]].reshape(450, -1)], axis=1)
    assert (border.max(axis=1) < 128).all()  # nothing is cut off
    assert (glyphs.X.reshape(450, -1).max(axis=1) >= 64).all()


def test_case_and_height_can_be_told_apart(glyphs):
    def rows(symbol):
        ink = (glyphs.X[glyphs.y == fonts.SYMBOLS.index(symbol)] > 96).any(axis=2)
        return ink.argmax(axis=1), 27 - ink[:, ::-1].argmax(axis=1)

    assert (rows("o")[0] > rows("O")[0] + 2).all()
    assert (rows("'")[1] < rows(",")[0]).all()  # apostrophe above, comma below


def test_a_face_of_boxes_or_without_letters_is_left_out_and_copies_count_once(tmp_path):
    for name in ("LastResortHE-Regular.ttf", "STIXSizFourSymReg.ttf", "DejaVuSans.ttf"):
        shutil.copy(FOLDER / name, tmp_path / name)
    shutil.copy(FOLDER / "DejaVuSans.ttf", tmp_path / "Copy.ttf")
    (tmp_path / "broken.ttf").write_bytes(b"no font")
    (tmp_path / "notes.txt").write_text("no font either")
    assert fonts.render([tmp_path]).fonts == ("Copy.ttf",)


def test_stored_glyphs_come_back(glyphs, tmp_path):
    glyphs.save(tmp_path / "new" / "glyphs.npz")
    again = fonts.Glyphs.load(tmp_path / "new" / "glyphs.npz")
    for name in ("X", "y", "face"):
        np.testing.assert_array_equal(getattr(again, name), getattr(glyphs, name))
    assert (again.symbols, again.fonts) == (glyphs.symbols, glyphs.fonts)
    assert "450 of 150 symbols from 3 faces" in repr(again)


def test_other_files_are_refused(tmp_path):
    (tmp_path / "text.npz").write_text("text")
    np.savez(tmp_path / "other.npz", a=[1])
    good = {"y": [0], "face": [0], "symbols": [65], "fonts": ["f"]}
    np.savez(tmp_path / "shape.npz", X=np.zeros((1, 5, 5), np.uint8), **good)
    np.savez(tmp_path / "label.npz", X=np.zeros((1, 28, 28), np.uint8), **good | {"y": [1]})
    for name in ("text", "other", "shape", "label"):
        with pytest.raises(DataError, match=f"{name}.npz: "):
            fonts.Glyphs.load(tmp_path / f"{name}.npz")


def test_a_machine_without_fonts_or_packages_is_told_what_to_install(tmp_path, monkeypatch):
    with pytest.raises(DataError, match="apt install"):
        fonts.render([tmp_path])
    monkeypatch.setitem(sys.modules, "fontTools.ttLib", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'terrine\[data\]'"):
        fonts.render([FOLDER])
