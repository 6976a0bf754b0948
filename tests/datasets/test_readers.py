"""A user's own data: every format gives the same rows; what does not fit is named, and no private cell decides."""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from terrine.datasets import read_labelled, read_private, read_public
from terrine.datasets.data import UNLABELLED
from terrine.errors import DataError, MissingDependencyError
from terrine.schema import Encoder, Number, Schema, Text, read_table

CLASSES = ("no", "yes")
X = np.array([[30.0, 1.5], [40.0, 2.5], [50.0, 3.5]])
CSV = "age,dose,who,ill\n30,1.5,ann,no\n40,2.5,bob,yes\n50,3.5,ann,yes\n"
SECRET = "Zyx"
SCHEMA = Schema(
    columns={"age": Number(low=0, high=100, blanks=False), "dose": Number(low=0, high=5, blanks=False)},
    label="ill",
    classes=CLASSES,
    unit="who",
)
ENCODED = (X / [100, 5]).astype(np.float32)


def encoder(schema=SCHEMA):
    return Encoder.fit(schema, read_table({"age": [20, 60], "dose": [1, 4]}))


def write_csv(tmp_path, text=CSV):
    (tmp_path / "rows.csv").write_text(text, encoding="utf-8")
    return tmp_path / "rows.csv"


def write_parquet(tmp_path, **changes):
    columns = {"age": [30, 40, 50], "dose": [1.5, 2.5, 3.5], "who": ["ann", "bob", "ann"], "ill": ["no", "yes", "yes"]}
    pq.write_table(pa.table(columns | changes), tmp_path / "rows.parquet")
    return tmp_path / "rows.parquet"


def write_npz(tmp_path, **changes):
    np.savez(tmp_path / "rows.npz", **{"X": X, "y": [0, 1, 1], "unit": ["ann", "bob", "ann"]} | changes)
    return tmp_path / "rows.npz"


def write_npy_folder(tmp_path, **_):
    for name, array in {"X": X, "y": [0, 1, 1], "unit": ["ann", "bob", "ann"]}.items():
        np.save(tmp_path / f"{name}.npy", array)
    return tmp_path


@pytest.mark.parametrize(
    ("write", "options", "rows"),
    [
        (write_csv, {"encoder": encoder()}, ENCODED),
        (write_parquet, {"encoder": encoder()}, ENCODED),
        (write_npz, {"classes": CLASSES}, X),
        (write_npy_folder, {"classes": CLASSES}, X),
    ],
)
def test_every_format_gives_the_same_rows(tmp_path, write, options, rows):
    data = read_private(write(tmp_path), **options)
    np.testing.assert_allclose(data.X, rows, rtol=1e-6)
    assert data.y.tolist() == [0, 1, 1]
    assert data.unit.tolist() == ["ann", "bob", "ann"]
    assert "ann" not in repr(data)


def test_units_may_be_absent_or_numbers(tmp_path):
    alone = replace(SCHEMA, unit=None, ignore=("who",))
    assert read_private(write_csv(tmp_path), encoder=encoder(alone)).unit is None
    path = write_parquet(tmp_path, who=[7, 8, 7])
    assert read_private(path, encoder=encoder()).unit.tolist() == ["7", "8", "7"]
    path = write_parquet(tmp_path, who=[7, None, 7])  # one blank makes no other id another: nobody's row is left out
    assert read_private(path, encoder=encoder()).unit.tolist() == ["7", "7"]
    np.savez(tmp_path / "plain.npz", X=X, y=["no", "yes", "no"])
    plain = read_private(tmp_path / "plain.npz", classes=CLASSES)
    assert plain.unit is None
    assert plain.y.tolist() == [0, 1, 0]  # names of classes do as well


def test_a_folder_of_arrays_is_mapped(tmp_path):
    assert isinstance(read_private(write_npy_folder(tmp_path), classes=CLASSES).X, np.memmap)
    assert isinstance(read_public(tmp_path / "X.npy").X, np.memmap)


def test_columns_go_by_name_in_any_order(tmp_path):
    (tmp_path / "other.csv").write_text("ill,dose,who,age\nno,1.5,ann,30\nyes,2.5,bob,40\nyes,3.5,ann,50\n")
    np.testing.assert_array_equal(
        read_private(tmp_path / "other.csv", encoder=encoder()).X,
        read_private(write_csv(tmp_path), encoder=encoder()).X,
    )
    (tmp_path / "public.csv").write_text("dose,age\n1.5,30\n")
    np.testing.assert_array_equal(read_public(tmp_path / "public.csv", encoder=encoder()).X, ENCODED[:1])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (CSV.replace("dose", "Doses"), r'rows.csv: there is no column "dose", but "Doses" looks like it'),
        (CSV.replace("ill", "height"), 'missing: "ill"; not in the schema: "height"'),
        (CSV.replace("who", "whose_row"), '"who"'),
        (CSV.replace("dose", "age"), "columns 1 and 2 have the same name"),
        (f"30,1.5,{SECRET},no\n40,2.5,bob,yes\n", "Does the file start with a line of column names"),
        ("", "there is no header"),
    ],
)
def test_a_header_that_does_not_fit_is_refused_before_a_cell_is_read(tmp_path, text, message):
    path = write_csv(tmp_path, text)
    with pytest.raises(DataError, match=message) as caught:
        read_private(path, encoder=encoder())
    said = str(caught.value)
    assert said.startswith("rows.csv: ")
    assert "\n" not in said
    assert not any(value in said for value in (SECRET, "bob", "3.5"))


def test_a_first_line_that_may_be_a_private_row_is_not_quoted_though_one_cell_is_a_columns_name(tmp_path):
    path = write_csv(tmp_path, f"30,dose,{SECRET},no\n40,2.5,bob,yes\n")
    with pytest.raises(DataError, match="Does the file start with a line of column names") as caught:
        read_private(path, encoder=encoder())
    assert not any(value in str(caught.value) for value in (SECRET, "30"))


@pytest.mark.parametrize("cell", ["", SECRET, "nan", "inf", "1e999", "-5", '"'])
def test_what_a_private_cell_holds_decides_nothing_but_its_own_row(tmp_path, cell):
    whole = read_private(write_csv(tmp_path), encoder=encoder())
    for old in ("2.5", "yes", "40"):
        data = read_private(write_csv(tmp_path, CSV.replace(old, cell, 1)), encoder=encoder())
        assert len(data) <= len(whole)
        np.testing.assert_array_equal(data.X[0], whole.X[0])
        assert np.isfinite(data.X).all()
    data = read_private(write_csv(tmp_path, CSV.replace("yes", SECRET, 1)), encoder=encoder())
    assert data.y.tolist() == [0, UNLABELLED, 1]
    short = read_private(write_csv(tmp_path, CSV + "60\n"), encoder=encoder())  # a line of one cell is nobody's
    assert short.unit.tolist() == whole.unit.tolist()


@pytest.mark.parametrize(
    ("changes", "labels"),
    [
        ({"y": [0, 1, 2]}, [0, 1, UNLABELLED]),
        ({"y": [0.5, 1, 1]}, [UNLABELLED, 1, 1]),
        ({"y": ["no", "yes", SECRET]}, [0, 1, UNLABELLED]),
        ({"X": [[1.0], [2.0], [np.inf]]}, [0, 1, UNLABELLED]),
    ],
)
def test_a_row_of_an_array_that_cannot_be_used_keeps_its_place(tmp_path, changes, labels):
    data = read_private(write_npz(tmp_path, **changes), classes=CLASSES)
    assert data.y.tolist() == labels
    assert np.isfinite(data.X).all()
    assert data.unit.tolist() == ["ann", "bob", "ann"]


def test_a_row_that_is_nobodys_is_left_out(tmp_path):
    data = read_private(write_npz(tmp_path, unit=["ann", " ", "bob"]), classes=CLASSES)
    assert data.unit.tolist() == ["ann", "bob"]
    assert data.y.tolist() == [0, 1]


def test_no_cell_of_a_frame_raises():
    when = pa.array([0, 10**12, 5]).cast(pa.timestamp("s"))  # the second is in the year 33,658: Python has no such date
    text = pa.Array.from_buffers(pa.string(), 2, pa.array([b"fine", b"\xff"], type=pa.binary()).buffers())
    assert [bool(cell) for cell in read_table(pa.table({"when": when})).column("when").tolist()] == [True, False, True]
    assert read_table(pa.table({"text": text})).column("text").tolist() == ["fine", ""]


def test_in_a_public_file_an_unknown_label_is_refused_by_line(tmp_path):
    path = write_csv(tmp_path, CSV.replace("yes", "maybe", 1).replace("40,", "\n\n40,"))
    with pytest.raises(DataError, match=r'rows.csv, line 5, column "ill": the label is not one of the classes'):
        read_labelled(path, encoder=encoder())
    with pytest.raises(DataError, match=r"rows.npz, row 2: the label is not one of the classes"):
        read_labelled(write_npz(tmp_path, y=[0, 1, 2]), classes=CLASSES)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"y": [0, 1]}, "one label for each row"),
        ({"X": np.array([object()] * 3)}, "numpy cannot read"),
        ({"y": "no"}, "one label per row"),
        ({"y": [["no"], ["yes"], ["no"]]}, "one label per row"),
        ({"y": [True, False, True]}, "class indices or names"),
    ],
)
def test_arrays_that_do_not_fit_together_are_refused(tmp_path, changes, message):
    with pytest.raises(DataError, match=message):
        read_private(write_npz(tmp_path, **changes), classes=CLASSES)


def test_other_files_are_refused(tmp_path):
    for name in ("x.npz", "x.parquet", "x.docx"):
        (tmp_path / name).write_bytes(b"\xff\xfesomething else")
        with pytest.raises(DataError, match=rf"^{name}: "):
            read_private(tmp_path / name, classes=CLASSES, encoder=encoder())
    for name in ("none.csv", "none.npz"):
        with pytest.raises(DataError, match="there is no such file"):
            read_private(tmp_path / name, classes=CLASSES, encoder=encoder())
    with pytest.raises(DataError, match="A table needs an `encoder`"):
        read_private(write_csv(tmp_path), classes=CLASSES)
    np.savez(tmp_path / "names.npz", a=[1], y=[0])
    for read in (lambda path: read_private(path, classes=CLASSES), read_public):
        with pytest.raises(DataError, match="X"):
            read(tmp_path / "names.npz")
    with pytest.raises(DataError, match="list of names"):
        read_private(tmp_path / "names.npz", classes="yes")
    with pytest.raises(DataError, match="`classes` is missing"):
        read_private(tmp_path / "names.npz")


@pytest.fixture
def images(tmp_path):
    """Two of class no, one of class yes; sizes differ; a note and a hidden file lie beside them."""
    folder = tmp_path / "images"
    for k, (name, size) in enumerate([("no/bob_1.png", (8, 8)), ("no/ann_1.png", (4, 6)), ("yes/ann_2.jpg", (8, 8))]):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", size, (80 * k, 80 * k, 80 * k)).save(folder / name)
    (folder / "no" / "notes.txt").write_text("no image")
    (folder / "no" / ".hidden.png").write_text("no image")
    return folder


def test_an_image_folder_has_one_sub_folder_per_class(images):
    data = read_private(images, classes=("yes", "perhaps", "no"), image_shape=(8, 8), unit=r"^([^_]+)_")
    assert data.X.shape == (3, 8, 8)
    assert data.X.dtype == np.uint8
    assert data.y.tolist() == [0, 2, 2]
    assert data.unit.tolist() == ["ann", "ann", "bob"]
    assert data.X[:, 4, 4].tolist() == [160, 80, 0]
    assert read_private(images, classes=CLASSES, image_shape=(5, 7, 3)).X.shape == (3, 5, 7, 3)
    assert read_public(images, image_shape=(8, 8)).X.shape == (3, 8, 8)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"image_shape": None}, r"`image_shape` must be \(height, width\)"),
        ({"image_shape": (8, 8, 4)}, "`image_shape` must be"),
        ({"image_shape": (0, 8)}, "`image_shape` must be"),
        ({"classes": ("no", "maybe")}, "names of 1 sub-folders are not in `classes`"),
        ({"unit": "ann"}, "regular expression with one group"),
        ({"unit": "("}, "regular expression with one group"),
    ],
)
def test_bad_image_options_are_refused_and_no_name_is_told(images, options, message):
    with pytest.raises(DataError, match=message) as caught:
        read_private(images, **{"classes": ("no", "yes"), "image_shape": (8, 8)} | options)
    assert not any(name in str(caught.value) for name in ("yes", "bob_", "ann_"))


def test_an_image_that_cannot_be_read_keeps_its_place_where_it_is_private(images):
    whole = read_private(images, classes=CLASSES, image_shape=(8, 8))
    (images / "yes" / "ann_2.jpg").write_bytes(b"no image")
    data = read_private(images, classes=CLASSES, image_shape=(8, 8))
    np.testing.assert_array_equal(data.X[:2], whole.X[:2])
    assert data.y.tolist() == [0, 0, UNLABELLED]
    assert not data.X[2].any()
    with pytest.raises(DataError, match=r"yes/ann_2.jpg is not an image"):
        read_public(images, image_shape=(8, 8))
    assert read_private(images, classes=CLASSES, image_shape=(8, 8), unit=r"^(bob)_").unit.tolist() == ["bob"]
    for file in images.rglob("*.*"):
        file.unlink()
    with pytest.raises(DataError, match="There is no image"):
        read_private(images, classes=CLASSES, image_shape=(8, 8))


def test_a_folder_of_texts_has_one_sub_folder_per_class(tmp_path):
    for name, text in {"no/bob_1": "all is well", "yes/ann_1": "it hurts", "yes/ann_2": "it hurts again"}.items():
        (tmp_path / "texts" / f"{name}.txt").parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "texts" / f"{name}.txt").write_text(text)
    schema = Schema(columns={"text": Text(dimensions=2)}, label="label", classes=CLASSES, unit="unit")
    public = read_table({"text": ["it hurts", "all is well here", "nothing", "well again"]})
    data = read_private(tmp_path / "texts", encoder=Encoder.fit(schema, public), unit=r"^([^_]+)_")
    assert data.y.tolist() == [0, 1, 1]
    assert data.unit.tolist() == ["bob", "ann", "ann"]


@pytest.mark.parametrize(("package", "what"), [("pyarrow.parquet", "parquet"), ("PIL.Image", "data")])
def test_a_missing_package_says_how_to_install_it(tmp_path, monkeypatch, images, package, what):
    path = write_parquet(tmp_path) if what == "parquet" else images
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingDependencyError, match=rf"pip install 'terrine\[{what}\]'"):
        read_private(path, classes=CLASSES, image_shape=(8, 8), encoder=encoder())
