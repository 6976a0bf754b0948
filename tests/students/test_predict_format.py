"""Predictions as the new rows are written, so that the spreadsheet that wrote those opens them."""

from __future__ import annotations

import csv
import gzip
from dataclasses import replace

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from terrine.datasets import PublicData
from terrine.schema import Encoder, draft, read_table
from terrine.students import SupervisedStudent, fit_student
from terrine.students.predict import write_predictions

ROWS = "Größe;Bezirk\n1,25;Süd\n2,5;Ost\n3,75;Süd\n"
MARK = b"\xef\xbb\xbf"


@pytest.fixture(scope="module")
def student(tmp_path_factory):
    public = tmp_path_factory.mktemp("public") / "public.csv"
    public.write_text(
        "Größe;Bezirk\n" + "".join(f"{k % 5},{25 * (k % 4)};{'Süd' if k % 3 else 'Ost'}\n" for k in range(90))
    )
    table = read_table(public)
    encoder = Encoder.fit(draft(table), table)
    learner = SupervisedStudent(estimator=LogisticRegression())
    answers = (np.arange(90) % 5 > 2).astype(int)
    learned = fit_student(learner, PublicData(encoder.transform(table)), answers, classes=["ja", "nein"], seed=0)
    return replace(learned, extra=encoder.files())


def written(student, folder, rows, out="out.csv", **options):
    (folder / "neu.csv").write_bytes(rows)
    write_predictions(student, folder / "neu.csv", folder / out, keep=["Bezirk"], **options)
    return (folder / out).read_bytes()


def cells(content, separator):
    return list(csv.reader(content.decode("utf-8-sig").splitlines(), delimiter=separator))


def test_unasked_they_are_as_any_program_reads_them(student, tmp_path):
    found = written(student, tmp_path, MARK + ROWS.encode())
    assert not found.startswith(MARK)
    header, *rows = cells(found, ",")
    assert header == ["row", "Bezirk", "prediction", "P(ja)", "P(nein)"]
    assert [row[1] for row in rows] == ["Süd", "Ost", "Süd"]
    assert all(0 < float(row[3]) < 1 for row in rows)


@pytest.mark.parametrize("mark", [b"", MARK])
def test_in_the_same_format_they_say_the_same(student, tmp_path, mark):
    usual = cells(written(student, tmp_path, ROWS.encode(), "usual.csv"), ",")
    found = written(student, tmp_path, mark + ROWS.encode(), same_format=True)
    assert found.startswith(MARK) == bool(mark)
    assert b"." not in found
    assert [[cell.replace(",", ".") for cell in row] for row in cells(found, ";")] == usual


def test_a_comma_between_cells_is_no_decimal_comma(student, tmp_path):
    rows = b'Gr\xc3\xb6\xc3\x9fe,Bezirk\n"1,25",Ost\n'
    assert written(student, tmp_path, rows, same_format=True) == written(student, tmp_path, rows, "usual.csv")


def test_a_tsv_has_tabs(student, tmp_path):
    header, *rows = cells(written(student, tmp_path, ROWS.encode(), "out.tsv"), "\t")
    assert (header[0], len(rows[0]), float(rows[0][3]) > 0) == ("row", 5, True)
    assert b"," in written(student, tmp_path, ROWS.encode(), "same.tsv", same_format=True)


def test_rows_that_are_packed_or_no_text(student, tmp_path):
    with gzip.open(tmp_path / "neu.csv.gz", "wb") as file:
        file.write(MARK + ROWS.encode())
    write_predictions(student, tmp_path / "neu.csv.gz", tmp_path / "packed.csv", same_format=True)
    assert (tmp_path / "packed.csv").read_bytes().startswith(MARK + b"row;prediction")
    np.save(tmp_path / "neu.npy", student.encoder.transform(read_table({"Größe": ["1,5"], "Bezirk": ["Ost"]})))
    write_predictions(student, tmp_path / "neu.npy", tmp_path / "array.csv", same_format=True)
    assert (tmp_path / "array.csv").read_bytes().startswith(b"row,prediction")
