"""Every accepted vote file, and every refusal: one line that names the file and holds no vote."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from terrine.errors import InputError, MissingDependencyError, VotesError
from terrine.votes import Votes

HISTOGRAMS = np.array([[170, 80, 3], [0, 253, 0], [84, 84, 85]])
PREDICTIONS = np.array([[0, 2, 1, 1], [0, 2, 2, 0], [1, 2, 0, 0]])  # (n_teachers, n_queries)
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", ">i4", ">u2")
FLOATS = (
    "float16",
    "float32",
    "float64",
    "longdouble",
)
ENDINGS = ("npy", "npz", "csv", "parquet")


def write(path: Path, table: np.ndarray, *, name: str = "counts", header: str = "") -> Path:
    match path.suffix:
        case ".npy":
            np.save(path, table)
        case ".npz":
            np.savez(path, **{name: table})
        case ".csv":
            np.savetxt(path, table, delimiter=",", fmt="%d", header=header, comments="")
        case ".parquet":
            pyarrow.parquet.write_table(pyarrow.table({f"class_{i}": column for i, column in enumerate(table.T)}), path)
    return path


@pytest.mark.parametrize("ending", ENDINGS)
def test_histograms_load_from_every_format(tmp_path, ending):
    votes = Votes.load(write(tmp_path / f"votes.{ending}", HISTOGRAMS))
    assert (len(votes), votes.n_classes, votes.n_teachers) == (3, 3, 253)
    np.testing.assert_array_equal(votes.counts, HISTOGRAMS)


@pytest.mark.parametrize("ending", ENDINGS)
def test_predictions_load_from_every_format(tmp_path, ending):
    path = write(tmp_path / f"votes.{ending}", PREDICTIONS, name="predictions")
    votes = Votes.load(path, kind="predictions", n_classes=4)
    assert votes.n_teachers == 3
    np.testing.assert_array_equal(votes.counts, [[2, 1, 0, 0], [0, 0, 3, 0], [1, 1, 1, 0], [2, 1, 0, 0]])


@pytest.mark.parametrize("dtype", [*INTEGERS, *FLOATS])
def test_every_whole_dtype_becomes_int64_without_wrapping(tmp_path, dtype):
    table = np.array([[100, 25], [0, 125]], dtype=dtype)
    votes = Votes.load(write(tmp_path / "votes.npy", table))
    assert votes.counts.dtype == np.int64
    assert (votes.counts[:, 0] - votes.counts[:, 1]).tolist() == [75, -125]  # uint8 gaps would wrap
    assert votes.n_teachers == 125


def test_a_csv_may_have_a_header_a_byte_order_mark_and_blank_lines(tmp_path):
    path = write(tmp_path / "votes.csv", HISTOGRAMS, header="cat,dog,cow")
    np.testing.assert_array_equal(Votes.load(path).counts, HISTOGRAMS)
    path.write_bytes("\ufeff3,1\r\n\r\n0,4\r\n".encode())
    np.testing.assert_array_equal(Votes.load(path).counts, [[3, 1], [0, 4]])


def test_an_npz_with_one_array_of_any_name_loads(tmp_path):
    path = write(tmp_path / "votes.npz", HISTOGRAMS, name="arr_0")
    np.testing.assert_array_equal(Votes.load(path).counts, HISTOGRAMS)


BAD_TABLES = [
    (np.array([[77, 3], [81, -1]]), "row 1, column 1 holds a negative number"),
    (np.array([[77, 3], [79.5, 0.5]]), "row 1, column 0 holds a fraction"),
    (np.array([[77, 3], [80, np.nan]]), "row 1, column 1 holds a value that is not finite (nan or inf)"),
    (np.array([[77, 3], [np.inf, 0]]), "row 1, column 0 holds a value that is not finite (nan or inf)"),
    (np.array([[77, 3], [-np.inf, 0]]), "row 1, column 0 holds a value that is not finite (nan or inf)"),
    (np.array([[77, 3], [2**40, 0]]), "row 1, column 0 holds a number above 2^31"),
    (np.array([[77, 3], [77, 3], [77, 4], [77, 5]]), "Every row of counts must sum to 80 votes; row 2 sums to 81."),
    (np.array([[0, 0], [77, 3]]), "Every row of counts must sum to 1 votes; row 0 sums to 0."),
    (np.zeros((0, 77)), "counts must hold at least one query and one column, got shape (0, 77)"),
    (np.zeros((77, 0)), "counts must hold at least one query and one column, got shape (77, 0)"),
    (np.full((3, 1), 77), "at least 2 classes (columns), got 1"),
    (np.array([77, 3]), "a table with two dimensions, got 1"),
    (np.full((2, 2, 2), 77), "a table with two dimensions, got 3"),
    (np.array([["77", "3"]]), "whole numbers, got dtype <U2"),
    (np.array([[True, False]]), "whole numbers, got dtype bool"),
    (np.array([[77 + 0j, 3]]), "whole numbers, got dtype complex128"),
]


@pytest.mark.parametrize(("table", "message"), BAD_TABLES)
def test_a_bad_table_is_refused_in_one_line_without_a_vote_in_it(tmp_path, table, message):
    with pytest.raises(VotesError) as caught:
        Votes.load(write(tmp_path / "v.npy", table))
    said = str(caught.value)
    assert said.startswith("v.npy: ")
    assert message in said
    assert "\n" not in said
    assert "77" not in said.replace(f"shape {table.shape}", "")  # a count; only a row's sum may be named
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


BAD_FILES = [
    ("v.npy", b"", "the file is empty"),
    ("v.csv", b"", "the file is empty"),
    ("v.txt", b"77,3\n", "read from .npy, .npz, .csv or .parquet, not from .txt"),
    ("votes", b"77,3\n", "read from .npy, .npz, .csv or .parquet, not from a file without an ending"),
    ("v.npy", b"77,3\n", "numpy cannot read this as a .npy file of plain numbers"),
    ("v.npy", pickle.dumps([[77, 3]]), "numpy cannot read this as a .npy file of plain numbers"),
    ("v.parquet", b"PAR1 77,3 PAR1", "pyarrow cannot read this"),
    ("v.csv", b"77,3\n76,3,1\n", "line 2 has 3 columns, and the lines before it 2."),
    ("v.csv", b"a,b\n77,3\n\n80,none\n", "line 4 holds text where a number should be."),
    ("v.csv", b"a,b\n77,\n", "line 2 holds text where a number should be."),
    ("v.csv", b"a,b\n", "the file has no row of votes"),
    ("v.csv", b"77,3\n77,\xff3\n", "not a text file in UTF-8"),
    ("v.csv", "77,3\n".encode("utf-16"), "not a text file in UTF-8"),
    ("v.csv", b"77,nan\n", "row 0, column 1 holds a value that is not finite (nan or inf)"),
    ("v.csv", b"77,-3\n", "row 0, column 1 holds a negative number"),
]


@pytest.mark.parametrize(("name", "content", "message"), BAD_FILES)
def test_a_bad_file_is_refused_in_one_line_without_a_vote_in_it(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(VotesError) as caught:
        Votes.load(tmp_path / name)
    said = str(caught.value)
    assert said.startswith(f"{name}: ")
    assert message in said
    assert "\n" not in said
    assert "77" not in said


def test_missing_files_and_folders_are_refused(tmp_path):
    for path in (tmp_path / "nothing.npy", tmp_path):
        with pytest.raises(VotesError, match=f"{path.name}: no such file"):
            Votes.load(path)


@pytest.mark.parametrize("ending", ["npy", "npz"])
def test_a_pickled_array_is_refused_and_never_run(tmp_path, ending):
    class Bomb:
        def __reduce__(self):
            return Path.write_text, (tmp_path / "exploded", "x")

    ragged = np.array([Bomb(), [77, 3]], dtype=object)
    path = tmp_path / f"v.{ending}"
    with path.open("wb") as file:
        np.save(file, ragged) if ending == "npy" else np.savez(file, counts=ragged)
    with pytest.raises(VotesError, match=f"numpy cannot read this as a .{ending} file of plain numbers"):
        Votes.load(path)
    assert not (tmp_path / "exploded").exists()


def test_a_corrupted_npz_is_refused(tmp_path):
    whole, data = write(tmp_path / "v.npz", HISTOGRAMS).read_bytes(), HISTOGRAMS.tobytes()
    assert data in whole
    for broken in (whole[:-9], whole[: len(whole) // 2], whole.replace(data, data[::-1])):  # no end, half, bad checksum
        (tmp_path / "v.npz").write_bytes(broken)
        with pytest.raises(VotesError, match=r"v\.npz: numpy cannot read this as a \.npz file of plain numbers"):
            Votes.load(tmp_path / "v.npz")


def test_a_first_row_with_a_slip_is_not_taken_for_a_header(tmp_path):
    (tmp_path / "v.csv").write_text("77,O\n70,7\n")
    with pytest.raises(VotesError, match="line 1 holds text"):
        Votes.load(tmp_path / "v.csv")


def test_an_npz_that_names_its_array_is_read_as_what_it_says(tmp_path):
    path = tmp_path / "v.npz"
    np.savez(path, counts=[[2, 0, 0, 0]], predictions=[[3], [3]])
    assert Votes.load(path, kind="predictions", n_classes=4).counts.tolist() == [[0, 0, 0, 2]]
    np.savez(path, predictions=[[0, 1], [1, 0]])
    with pytest.raises(VotesError, match="predictions"):
        Votes.load(path)


def test_an_npz_of_several_unnamed_arrays_is_refused(tmp_path):
    np.savez(tmp_path / "v.npz", first=HISTOGRAMS, second=HISTOGRAMS)
    with pytest.raises(VotesError, match=r"no array named counts .it has: first, second"):
        Votes.load(tmp_path / "v.npz")


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"a": [77, None], "b": [3, 4]}, "column 'a' has 1 missing value"),
        ({"a": ["77", "76"], "b": ["3", "4"]}, "column 'a' must hold numbers, got string"),
        ({"a": [], "b": []}, "column 'a' must hold numbers, got null"),
        ({"a": [77.5], "b": [3.5]}, "row 0, column 0 holds a fraction"),
        ({}, r"got shape \(0, 0\)"),
    ],
)
def test_a_bad_parquet_table_is_refused(tmp_path, columns, message):
    pyarrow.parquet.write_table(pyarrow.table(columns), tmp_path / "v.parquet")
    with pytest.raises(VotesError, match=message):
        Votes.load(tmp_path / "v.parquet")


def test_parquet_without_pyarrow_says_what_to_install(tmp_path, monkeypatch):
    path = write(tmp_path / "v.parquet", HISTOGRAMS)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'terrine\[parquet\]'"):
        Votes.load(path)


def test_arguments_of_load_are_checked(tmp_path):
    path = write(tmp_path / "v.npy", PREDICTIONS)
    with pytest.raises(VotesError, match="Predictions need n_classes"):
        Votes.load(path, kind="predictions")
    with pytest.raises(VotesError, match=r"class indices from 0 to 1; teacher 0, query 1 has a larger one"):
        Votes.load(path, kind="predictions", n_classes=2)
    with pytest.raises(InputError, match="kind must be one of histograms, predictions"):
        Votes.load(path, kind="labels")
    with pytest.raises(VotesError, match=r"The file has 3 classes \(columns\), not 9"):
        Votes.load(write(tmp_path / "v.csv", HISTOGRAMS), n_classes=9)


@pytest.mark.parametrize("n_teachers", [None, "abc", [4, 4], np.nan, 4.0, 0, -4])
def test_a_number_of_teachers_that_is_none_is_one_line(tmp_path, n_teachers):
    given = {} if n_teachers is None else {"n_teachers": n_teachers}
    np.savez(tmp_path / "v.npz", counts=[[3, 1]], schema="terrine.votes/1", **given)
    with pytest.raises(VotesError, match=r"^v\.npz: n_teachers must be a whole number of at least 1"):
        Votes.load(tmp_path / "v.npz")


def test_a_schema_is_shown_only_if_it_is_a_word(tmp_path):
    for schema, shown in (
        ("terrine.answers/1", "'terrine.answers/1'"),
        ([511, 511], "no readable schema"),
        (511, "no readable schema"),
    ):
        np.savez(tmp_path / "v.npz", counts=[[3, 1]], n_teachers=4, schema=schema)
        with pytest.raises(VotesError, match=f"schema terrine.votes/1 .it has {shown}.\\.$"):
            Votes.load(tmp_path / "v.npz")
