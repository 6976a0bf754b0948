"""A user's own data: every format gives the same rows; a bad file is named with the row, and no value is told."""

from __future__ import annotations

import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from terrine.datasets import read_private, read_public
from terrine.errors import DataError, MissingDependencyError

CLASSES = ("no", "yes")
X = np.array([[30.0, 1.5], [40.0, 2.5], [50.0, 3.5]])
CSV = "age,dose,who,ill\n30,1.5,ann,no\n40,2.5,bob,yes\n50,3.5,ann,yes\n"
SECRET = "Zyx"


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
    ("write", "options"),
    [
        (write_csv, {"label": "ill", "unit": "who"}),
        (write_parquet, {"label": "ill", "unit": "who"}),
        (write_npz, {}),
        (write_npy_folder, {}),
    ],
)
def test_every_format_gives_the_same_rows(tmp_path, write, options):
    data = read_private(write(tmp_path), classes=CLASSES, **options)
    np.testing.assert_array_equal(data.X, X)
    assert data.y.tolist() == [0, 1, 1]
    assert data.unit.tolist() == ["ann", "bob", "ann"]
    assert "ann" not in repr(data)


def test_units_may_be_absent_or_numbers(tmp_path):
    assert read_private(write_csv(tmp_path), classes=CLASSES, label="ill", columns=["age"]).unit is None
    path = write_parquet(tmp_path, who=[7, 8, 7])
    assert read_private(path, classes=CLASSES, label="ill", unit="who").unit.tolist() == [7, 8, 7]
    np.savez(tmp_path / "plain.npz", X=X, y=["no", "yes", "no"])
    plain = read_private(tmp_path / "plain.npz", classes=CLASSES)
    assert plain.unit is None
    assert plain.y.tolist() == [0, 1, 0]  # names of classes do as well


def test_a_folder_of_arrays_is_mapped(tmp_path):
    assert isinstance(read_private(write_npy_folder(tmp_path), classes=CLASSES).X, np.memmap)
    assert isinstance(read_public(tmp_path / "X.npy").X, np.memmap)


@pytest.mark.parametrize("write", [write_csv, write_parquet])
def test_categories_become_columns_of_the_public_list(tmp_path, write):
    path, lists = write(tmp_path), {"who": ["cid", "bob", "ann"]}
    data = read_private(path, classes=CLASSES, label="ill", categories=lists)
    expected = np.column_stack([X, [0, 0, 0], [0, 1, 0], [1, 0, 1]])
    np.testing.assert_array_equal(data.X, expected)
    public = read_public(path, categories=lists, ignore=["ill"])
    np.testing.assert_array_equal(public.X, expected)
    chosen = read_private(path, classes=CLASSES, label="ill", columns=["who", "age"], categories=lists)
    np.testing.assert_array_equal(chosen.X, expected[:, [2, 3, 4, 0]])


def test_classes_come_from_the_list_alone(tmp_path):
    data = read_private(write_csv(tmp_path), classes=("yes", "perhaps", "no"), label="ill", unit="who")
    assert data.y.tolist() == [2, 0, 0]


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        (CSV, {"label": None}, "Expected label, the name of the label's column"),
        (CSV, {"label": "sick"}, "Expected a column named 'sick' .label., got no such column in 4"),
        (CSV, {"unit": "whom"}, "Expected a column named 'whom' .unit."),
        (CSV, {"columns": ["height"]}, "Expected a column named 'height' .columns."),
        (CSV, {"categories": {"height": ["a"]}}, "Expected a column named 'height' .categories."),
        (CSV, {"unit": None}, "Expected a finite number .* in line 2, column 3"),
        (CSV, {"unit": None, "categories": {"who": ["ann"]}}, "one of the 1 values .* in line 3, column 3"),
        (CSV.replace("2.5", SECRET), {}, "Expected a finite number .* in line 3, column 2"),
        (CSV.replace("2.5", ""), {}, "Expected a finite number .* in line 3, column 2"),
        (CSV.replace("2.5", "inf"), {}, "Expected a finite number .* in line 3, column 2"),
        (CSV.replace("yes", SECRET), {}, "Expected the label to be one of the 2 classes, got another in line 3"),
        (CSV.replace("bob", ""), {}, "the unit id of every row, got neither in line 3"),
        (CSV.replace("40,", "\n\n40,").replace("2.5", SECRET), {}, "Expected a finite number .* in line 5, column 2"),
        (CSV + f"{SECRET}\n", {}, "Expected 4 columns as in the header, got 1 in line 5"),
        (CSV.replace("dose", "age"), {}, "two of one name"),
        ("age,dose,who,ill\n", {}, "at least one row"),
        ("", {}, "at least one row"),
        (f'a,b\n"{SECRET}', {}, "cannot be split"),
    ],
)
def test_bad_csv_files_are_refused_by_line(tmp_path, text, options, message):
    path = write_csv(tmp_path, text)
    with pytest.raises(DataError, match=message) as caught:
        read_private(path, **{"classes": CLASSES, "label": "ill", "unit": "who"} | options)
    said = str(caught.value)
    assert said.startswith(f"{path}: ")
    assert "\n" not in said
    assert not any(value in said for value in (SECRET, "bob", "3.5"))
    assert caught.value.__suppress_context__


def test_a_file_without_a_header_does_not_show_its_first_row(tmp_path):
    path = write_csv(tmp_path, f"30,1.5,{SECRET},no\n40,2.5,bob,yes\n")
    with pytest.raises(DataError, match="no such column") as caught:
        read_private(path, classes=CLASSES, label="ill")
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"age": [30, None, 50]}, "Expected a finite number .* in row 1, column 1"),
        ({"dose": [1.5, float("nan"), 1]}, "Expected a finite number .* in row 1, column 2"),
        ({"dose": ["1.5", "2.5", SECRET]}, "Expected a finite number .* in row 2, column 2"),
        ({"ill": ["no", "yes", None]}, "one of the 2 classes, got another in row 2"),
        ({"who": [None, "ann", "bob"]}, "the unit id of every row, got neither in row 0"),
    ],
)
def test_bad_parquet_files_are_refused_by_row(tmp_path, changes, message):
    with pytest.raises(DataError, match=message) as caught:
        read_private(write_parquet(tmp_path, **changes), classes=CLASSES, label="ill", unit="who")
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"y": [0, 1, 2]}, "labels from 0 to 1, got another in row 2"),
        ({"y": ["no", "yes", SECRET]}, "one of the 2 classes, got another in row 2"),
        ({"y": [0, 1]}, "y to hold one label per row"),
        ({"X": [[1.0], [2.0], [np.inf]]}, "in row 2"),
        ({"unit": ["ann", "", "bob"]}, "got neither in row 1"),
        ({"X": np.array([object()] * 3)}, "numpy cannot read"),
    ],
)
def test_bad_arrays_are_refused_by_row(tmp_path, changes, message):
    with pytest.raises(DataError, match=message) as caught:
        read_private(write_npz(tmp_path, **changes), classes=CLASSES)
    assert SECRET not in str(caught.value)


def test_other_files_are_refused(tmp_path):
    for name in ("x.npz", "x.parquet", "x.docx"):
        (tmp_path / name).write_bytes(b"\xff\xfesomething else")
        with pytest.raises(DataError, match=rf"{name}: Expected"):
            read_private(tmp_path / name, classes=CLASSES, label="ill")
    (tmp_path / "x.csv").write_bytes(b"a,ill\n\xff\xfe,no\n")
    with pytest.raises(DataError, match="not UTF-8"):
        read_private(tmp_path / "x.csv", classes=CLASSES, label="ill")
    with pytest.raises(DataError, match="no such file"):
        read_private(tmp_path / "none.csv", classes=CLASSES, label="ill")
    np.savez(tmp_path / "names.npz", a=[1], y=[0])
    for read in (lambda path: read_private(path, classes=CLASSES), read_public):
        with pytest.raises(DataError, match="X"):
            read(tmp_path / "names.npz")
    with pytest.raises(DataError, match="list of names"):
        read_private(tmp_path / "names.npz", classes="yes")


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
        ({"image_shape": None}, r"image_shape as \(height, width\)"),
        ({"image_shape": (8, 8, 4)}, "image_shape as"),
        ({"image_shape": (0, 8)}, "image_shape as"),
        ({"classes": ("no", "maybe")}, "names of 1 sub-folders are not in `classes`"),
        ({"unit": r"^(bob)_"}, r"match every image's file name, got none in row 0"),
        ({"unit": "ann"}, "regular expression with one group"),
        ({"unit": "("}, "regular expression with one group"),
    ],
)
def test_bad_image_options_are_refused_and_no_name_is_told(images, options, message):
    with pytest.raises(DataError, match=message) as caught:
        read_private(images, **{"classes": ("no", "yes"), "image_shape": (8, 8)} | options)
    assert not any(name in str(caught.value) for name in ("yes", "bob_", "ann_"))


def test_a_broken_image_is_refused_by_row(images):
    (images / "yes" / "ann_1.png").write_bytes(b"no image")
    with pytest.raises(DataError, match="Pillow cannot read in row 2"):
        read_private(images, classes=CLASSES, image_shape=(8, 8))
    for file in images.rglob("*.*"):
        file.unlink()
    with pytest.raises(DataError, match="at least one image"):
        read_private(images, classes=CLASSES, image_shape=(8, 8))


@pytest.mark.parametrize(("package", "what"), [("pyarrow", "parquet"), ("PIL", "images")])
def test_a_missing_package_says_how_to_install_it(tmp_path, monkeypatch, images, package, what):
    path = write_parquet(tmp_path) if what == "parquet" else images
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'terrine\[data\]'"):
        read_private(path, classes=CLASSES, label="ill", image_shape=(8, 8))


@pytest.mark.parametrize("y", ["no", [["no"], ["yes"], ["no"]]])
def test_labels_that_are_no_list_are_one_line(tmp_path, y):
    with pytest.raises(
        DataError, match=r"rows\.npz: Expected y to hold one label per row, got a different number of them, or a table"
    ):
        read_private(write_npz(tmp_path, y=y), classes=CLASSES)
