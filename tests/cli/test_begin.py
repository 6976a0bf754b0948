"""From one's own files to predictions: terrine init writes the settings, terrine predict applies the student."""

from __future__ import annotations

import csv
import io
import random
import re
import tomllib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from sklearn.linear_model import LogisticRegression

from terrine.datasets import PublicData
from terrine.runs.config import read_config
from terrine.runs.opening import begin_run
from terrine.schema import Date, Number, Schema, Text
from terrine.students import SupervisedStudent, fit_student, load_student

COLUMNS = ["age", "bmi", "ward", "admitted", "patient", "diagnosis"]
CSV = ("--private", "private.csv", "--public", "public.csv", "--label", "diagnosis")


def clinic(folder: Path) -> None:
    """Tables with blanks, dates and words; the public file has its columns in another order."""
    draw = random.Random(0)

    def row(patient: int) -> dict[str, object]:
        ill = draw.random() < 0.4
        return {
            "age": round(draw.gauss(50 + 12 * ill, 8)),
            "bmi": "" if draw.random() < 0.1 else f"{draw.gauss(25 + 4 * ill, 3):.1f}",
            "ward": draw.choice(["north", "south"] if ill else ["east", "north", "west"]),
            "admitted": f"{draw.randrange(1, 29):02}.{draw.randrange(1, 13):02}.2023",
            "patient": f"p{patient}",
            "diagnosis": "malignant" if ill else "benign",
        }

    table(folder / "private.csv", COLUMNS, [row(k // 2) for k in range(2000)])
    table(folder / "public.csv", ["ward", "admitted", "age", "bmi"], [row(0) for _ in range(400)])
    table(folder / "test.csv", [*COLUMNS[:4], "diagnosis"], [row(0) for _ in range(200)])
    table(folder / "new.csv", ["patient", *COLUMNS[:4]], [row(k) for k in range(7)])


def table(path: Path, columns: list[str], rows: list[dict[str, object]]) -> None:
    with path.open("w", newline="") as file:
        out = csv.DictWriter(file, columns, extrasaction="ignore")
        out.writeheader()
        out.writerows(rows)


def texts(folder: Path) -> None:
    draw, moods = random.Random(0), {"good": ["warm", "kind", "lovely"], "bad": ["cold", "rude", "awful"]}
    for place, n in (("texts", 1200), ("public_texts", 200), ("test_texts", 80), ("new_texts", 5)):
        for k in range(n):
            mood = draw.choice(["good", "bad"])
            inside = folder / place / (mood if place in ("texts", "test_texts") else "")
            inside.mkdir(parents=True, exist_ok=True)
            words = [draw.choice(moods[mood] if draw.random() < 0.4 else ["the", "room", "was"]) for _ in range(20)]
            (inside / f"p{k // 2}_{k}.txt").write_text(" ".join(words))


def images(folder: Path) -> None:
    draw = np.random.default_rng(0)
    for place, n in (("images", 1200), ("public_images", 200), ("test_images", 80), ("new_images", 5)):
        for k in range(n):
            side = int(draw.integers(2))
            inside = folder / place / (("left", "right")[side] if place in ("images", "test_images") else "")
            inside.mkdir(parents=True, exist_ok=True)
            pixels = draw.integers(0, 100, size=(8, 8))
            pixels[:, 4 * side : 4 * side + 4] += 100
            Image.fromarray(pixels.astype(np.uint8)).save(inside / f"p{k // 2}_{k}.png")


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def quick(settings: Path) -> None:
    """The settings as they were written, with simpler teachers and a larger epsilon: seconds, not a minute."""
    text = settings.read_text()
    for found, other in (
        ("number = 10 ", 'executor = "serial"\nnumber = 25 '),
        ("epsilon = 2.0", "epsilon = 8.0"),
    ):
        text = text.replace(found, other)
    settings.write_text(text)


def lines(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_a_table_with_blanks_dates_and_words_goes_all_the_way(here, terrine):
    clinic(here)
    code, out, err = terrine("init", *CSV, "--test", "test.csv", "--unit", "patient", "--units", "1000")
    assert (code, err) == (0, "")
    assert [line for line in out.splitlines() if ": terrine" in line] == [
        "Next: terrine check private.csv --schema schema.toml",
        "Then: terrine run run.toml --dry-run",
    ]
    schema = Schema.from_toml((here / "schema.toml").read_text())
    assert (schema.label, schema.classes, schema.unit) == ("diagnosis", ("benign", "malignant"), "patient")
    assert isinstance(schema.columns["admitted"], Date)
    assert schema.columns["bmi"].blanks
    assert isinstance(schema.columns["age"], Number)
    settings = tomllib.loads((here / "run.toml").read_text())
    assert settings["data"] == {"private": "private.csv", "public": "public.csv", "test": "test.csv",
                                "schema": "schema.toml", "units_planned": 1000}  # fmt: skip
    assert settings["privacy"]["delta"] == 1e-4
    assert settings["teachers"]["number"] == 10

    quick(here / "run.toml")
    code, out, _ = terrine("run", "run.toml", "--dry-run")
    assert code == 0
    assert "terrine check private.csv --schema schema.toml" in out
    assert not (here / "run").exists()
    code, out, err = terrine("run", "run.toml")
    assert code == 0, err
    (right,) = re.findall(r"Student: ([\d.]+)% right on 200 test rows", out)  # which have no column "patient"
    assert float(right) > 70
    card = (here / "run" / "student" / "model_card.md").read_text()
    assert (
        "| input | tables with the columns ward (category), admitted (date), age (number), bmi (number), in any order"
        in card
    )

    code, out, err = terrine("predict", "run/student", "new.csv", "--out", "p.csv", "--keep", "patient")
    assert (code, out, err) == (0, "p.csv: 7 predictions.\n", "")
    found = lines(here / "p.csv")
    assert list(found[0]) == ["row", "patient", "prediction", "P(benign)", "P(malignant)"]
    assert [one["patient"] for one in found] == [f"p{k}" for k in range(7)]
    student = load_student(here / "run" / "student")
    assert [one["prediction"] for one in found] == [student.classes[k] for k in student.predict(here / "new.csv")]
    assert all(abs(float(one["P(benign)"]) + float(one["P(malignant)"]) - 1) < 1e-5 for one in found)

    new = lines(here / "new.csv")
    table(here / "turned.csv", [*reversed(new[0])], new)
    assert terrine("predict", "run", "turned.csv", "--out", "q.csv", "--keep", "patient").code == 0  # a run directory
    assert (here / "q.csv").read_text() == (here / "p.csv").read_text()

    table(here / "few.csv", ["age", "ward", "admitted", "Bmi"], [{**one, "Bmi": one["bmi"]} for one in new])
    code, _, err = terrine("predict", "run/student", "few.csv", "--out", "r.csv")
    assert code == 2
    assert 'there is no column "bmi", but "Bmi" looks like it' in err
    assert "change the schema" not in err  # the receiver cannot
    table(here / "more.csv", [*new[0], "color"], [{**one, "color": "red"} for one in new])
    code, _, err = terrine("predict", "run/student", "more.csv", "--out", "r.csv")
    assert code == 2
    assert 'not in the schema: "color"' in err
    assert "--keep" in err
    assert terrine("predict", "run/student", "more.csv", "--out", "r.csv", "--keep", "color").code == 0
    assert terrine("predict", "run/student", "more.csv", "--out", "both.csv", "--keep", "patient, color").code == 0
    assert list(lines(here / "both.csv")[0])[1:3] == ["patient", "color"]
    table(here / "none.csv", [*new[0]], [])
    for words, said in (
        (["none.csv", "--out", "s.csv"], "none.csv: there is no row in it"),
        (["absent.csv", "--out", "s.csv"], "absent.csv: there is no such file"),
        (["new.csv", "--out", "s.csv", "--keep", "person"], "new.csv has no column 'person' (--keep)"),
        (["new.csv", "--out", "s.txt"], "s.txt: predictions are written as a .csv or .tsv file"),
        ([".", "--out", "s.csv"], 'takes tables with the columns "ward", "admitted", "age", "bmi"'),
    ):
        code, _, err = terrine("predict", "run/student", *words)
        assert code == 2
        assert said in err
    assert not (here / "s.csv").exists()


def test_the_draft_says_nothing_of_private_cells(here, terrine):
    """Private rows that differ in every cell, and in their number, give the same settings and schema."""
    clinic(here)
    options = (*CSV, "--classes", "benign,malignant", "--unit", "patient")
    assert terrine("init", *options).code == 0
    first = [(here / name).read_bytes() for name in ("run.toml", "schema.toml")]
    assert "please change" in first[0].decode()  # no --units
    (here / "private.csv").write_text(",".join(COLUMNS) + "\nx,y,z,no date,nobody,neither\n")
    assert terrine("init", *options, "--out", "again/run.toml").code == 0
    assert (here / "again" / "schema.toml").read_bytes() == first[1]
    again = (here / "again" / "run.toml").read_text()
    assert again.replace("../", "") == first[0].decode()
    assert read_config(here / "again" / "run.toml").data.private == here / "private.csv"


def test_columns_that_the_public_file_lacks_are_ignored_and_the_other_way_round_is_refused(here, terrine):
    clinic(here)
    private = lines(here / "private.csv")
    table(here / "private.csv", [*COLUMNS, "notes"], private)
    assert terrine("init", *CSV, "--classes", "benign,malignant").code == 0
    assert set(Schema.from_toml((here / "schema.toml").read_text()).ignore) == {"patient", "notes"}
    table(here / "private.csv", [name for name in COLUMNS if name != "bmi"], private)
    code, _, err = terrine("init", *CSV, "--classes", "benign,malignant", "--out", "other/run.toml")
    assert code == 2
    assert 'private.csv: missing: "bmi"' in err
    assert not (here / "other").exists()


def test_cells_that_cannot_be_read_are_told_by_column_and_refused_where_they_are_most(here, terrine):
    """Never in silence: the rows are of whoever types the command."""
    clinic(here)
    assert terrine("init", *CSV, "--classes", "benign,malignant", "--units", "1000").code == 0
    quick(here / "run.toml")
    public = lines(here / "public.csv")
    public[3]["age"] = "old"
    table(here / "public.csv", [*public[0]], public)
    done = terrine("run", "run.toml", "--dry-run")
    assert done.code == 0
    assert 'terrine: warning: public.csv, column "age": 1 of ' in done.err
    assert "is not a number, the first in line 5: 'old'. It counts as missing." in done.err
    assert terrine("run", "run.toml").code == 0

    new = lines(here / "new.csv")
    assert len(new) == 7
    new[1]["age"], new[4]["age"], new[2]["admitted"] = "five", "Y7", "soon"
    new[5]["ward"] = "a ward that is new"  # is "other"
    table(here / "odd.csv", [*new[0]], new)
    done = terrine("predict", "run", "odd.csv", "--out", "p.csv", "--keep", "patient")
    assert (done.code, done.out) == (0, "p.csv: 7 predictions.\n")
    said = done.err.splitlines()
    assert len(said) == 3
    names = ("admitted", "age", "ward")
    first, second, third = (next(one for one in said if f'column "{name}"' in one) for name in names)
    assert 'odd.csv, column "ward": 1 of 7 cells that are not blank is not in the schema\'s list' in third
    assert 'first in line 7: \'a ward that is new\'. It counts as "other". The schema lists "east"' in third
    assert 'odd.csv, column "admitted": 1 of 7 cells that are not blank is not a date' in first
    assert "first in line 4: 'soon'. It counts as missing." in first
    assert 'odd.csv, column "age": 2 of ' in second
    assert "are not a number, the first in line 3: 'five'. They count as missing." in second

    for one in new:
        one["bmi"] = "24,5"
    table(here / "commas.csv", [*new[0]], new)
    words = ("predict", "run", "commas.csv", "--out", "q.csv", "--keep", "patient")
    done = terrine(*words)
    assert (done.code, done.out) == (2, "")
    assert "column \"bmi\": 7 of 7 cells that are not blank are not a number, the first in line 2: '24,5'" in done.err
    assert 'with the decimal mark "." (these look as if it were ",")' in done.err
    assert "--accept-unreadable" in done.err
    assert not (here / "q.csv").exists()
    done = terrine(*words, "--accept-unreadable")
    assert done.code == 0
    assert 'column "bmi": 7 of 7' in done.err
    for one in new:
        one["ward"] = "NORTH"
    table(here / "capitals.csv", [*new[0]], new)
    done = terrine("predict", "run", "capitals.csv", "--out", "s.csv", "--keep", "patient", "--accept-unreadable")
    assert done.code == 0
    done = terrine("predict", "run", "capitals.csv", "--out", "t.csv", "--keep", "patient")
    assert (done.code, done.out) == (2, "")
    assert 'column "ward": 7 of 7 cells that are not blank are not in the schema\'s list' in done.err
    assert 'Write "ward" as one of "east"' in done.err
    assert "(perhaps \"north\" for 'NORTH')" in done.err
    for one in new:
        one["ward"], one["bmi"] = "north", "24,512"  # read as a number of thousands
    table(here / "thousands.csv", [*new[0]], new)
    words = ("predict", "run", "thousands.csv", "--out", "r.csv", "--keep", "patient")
    refused = terrine(*words)
    assert (refused.code, 'Write "bmi" as numbers from ' in refused.err) == (2, True)
    done = terrine(*words, "--accept-unreadable")
    assert done.code == 0
    assert "are beyond the bounds of the schema, the first in line 2: '24,512'" in done.err


def test_predictions_replace_nothing_unasked(here, terrine):
    X = np.eye(2)[np.arange(40) % 2]
    learner = SupervisedStudent(estimator=LogisticRegression())
    made = fit_student(learner, PublicData(X), np.arange(40) % 2, classes=["no", "yes"], seed=0)
    made.save(here / "run" / "student", card={})
    table(here / "rows.csv", ["a"], [{"a": 1}])
    np.save(here / "rows.npy", X)
    np.save(here / "others.npy", X[::-1])
    (here / "link.csv").symlink_to(here / "rows.csv")
    before = (here / "rows.csv").read_bytes()
    for out in ("rows.csv", "link.csv", "run/../rows.csv"):
        code, _, err = terrine("predict", "run/student", "rows.csv", "--out", out, "--force")
        assert code == 2
        assert "predictions would replace its rows" in err
    code, _, err = terrine("predict", "run", "rows.npy", "--out", "run/student/p.csv", "--force")
    assert code == 2
    assert "the student's folder, which stays as it is" in err
    (here / "run" / "config.toml").write_text('[data]\npublic = "../rows.csv"\n[labels]\nurl = "http://a"\nqueries = 1')
    code, _, err = terrine("predict", "run", "rows.npy", "--out", "rows.csv", "--force")
    assert code == 2
    assert "which the student or its run reads" in err
    assert (here / "rows.csv").read_bytes() == before

    assert terrine("predict", "run", "rows.npy", "--out", "p.csv") == (0, "p.csv: 40 predictions.\n", "")
    again = terrine("predict", "run", "rows.npy", "--out", "p.csv")
    assert again == (0, "p.csv: 40 predictions, which were there already: nothing was written.\n", "")
    kept = (here / "p.csv").read_bytes()
    code, _, err = terrine("predict", "run", "others.npy", "--out", "p.csv")
    assert code == 2
    assert "p.csv is there already, with content that is not these predictions" in err
    assert (here / "p.csv").read_bytes() == kept
    assert terrine("predict", "run", "others.npy", "--out", "p.csv", "--force").code == 0
    assert (here / "p.csv").read_bytes() != kept


def test_texts_in_folders(here, terrine):
    texts(here)
    folders = ("--private", "texts", "--public", "public_texts", "--test", "test_texts")
    code, _, err = terrine("init", *folders, "--unit", "^(p[0-9]+)_", "--units", "600")
    assert (code, err) == (0, "")
    schema = Schema.from_toml((here / "schema.toml").read_text())
    assert schema.classes == ("bad", "good")
    assert isinstance(schema.columns["text"], Text)
    quick(here / "run.toml")
    code, out, err = terrine("run", "run.toml")
    assert code == 0, err
    assert "one unit is added, removed or changed" in out
    (here / "new_texts" / "z.txt").write_bytes("schön".encode("cp1252"))
    done = terrine("predict", "run/student", "new_texts", "--out", "p.csv")
    assert (done.code, "new_texts: 1 text has bytes that are not UTF-8, the first z.txt" in done.err) == (0, True)
    found = lines(here / "p.csv")
    assert list(found[0]) == ["row", "file", "prediction", "P(bad)", "P(good)"]
    assert [one["file"] for one in found] == sorted(file.name for file in (here / "new_texts").iterdir())


def test_a_folder_of_images_is_checked_by_its_settings(here, terrine):
    images(here)
    folders = ("--private", "images", "--public", "public_images", "--test", "test_images")
    begun = ("init", *folders, "--units", "600", "--image-shape", "8x8")
    assert terrine(*begun, "--unit", "^(p[0-9]+)_").code == 0
    (here / "images" / "left" / "nobody.png").write_bytes(next((here / "images" / "left").iterdir()).read_bytes())
    code, out, _ = terrine("check", "run.toml")
    assert code == 0
    assert out.startswith("secret: depends on private rows\nleft: ")
    assert "names that do not fit it, so that their images are left out: 1, the first nobody.png" in out
    text = (here / "run.toml").read_text().replace("^(p[0-9]+)_", "^(q[0-9]+)_")
    (here / "run.toml").write_text(text)
    code, _, err = terrine("run", "run.toml", "--dry-run")
    assert code == 2
    assert "No file's name fits `unit`, '^(q[0-9]+)_'" in err
    code, _, err = terrine("check", "images")
    assert code == 2
    assert "--schema is missing" in err


def test_images_in_folders(here, terrine):
    images(here)
    folders = ("--private", "images", "--public", "public_images", "--test", "test_images")
    code, _, err = terrine("init", *folders, "--unit", "^(p[0-9]+)_", "--units", "600", "--image-shape", "8x8")
    assert (code, err) == (0, "")
    assert not (here / "schema.toml").exists()
    data = read_config(here / "run.toml").data
    assert (data.classes, data.image_shape) == (["left", "right"], (8, 8))
    quick(here / "run.toml")
    code, _, err = terrine("run", "run.toml")
    assert code == 0, err
    assert terrine("predict", "run/student", "new_images", "--out", "p.csv").code == 0
    found = lines(here / "p.csv")
    assert list(found[0]) == ["row", "file", "prediction", "P(left)", "P(right)"]
    names = [one["file"] for one in found]
    assert names == sorted(file.name for file in (here / "new_images").iterdir())
    rows = np.stack([np.asarray(Image.open(here / "new_images" / name)) for name in names])
    np.save(here / "rows.npy", rows)
    assert terrine("predict", "run/student", "rows.npy", "--out", "q.csv").code == 0
    assert [one["prediction"] for one in lines(here / "q.csv")] == [one["prediction"] for one in found]
    assert "file" not in lines(here / "q.csv")[0]
    code, _, err = terrine("predict", "run/student", "new_images", "--out", "r.csv", "--keep", "id")
    assert code == 2
    assert "--keep copies a column of a table" in err


def test_a_student_without_a_schema_takes_arrays_and_no_table(here, terrine):
    clinic(here)
    X = np.random.default_rng(0).normal(size=(40, 3))
    student = fit_student(
        SupervisedStudent(estimator=LogisticRegression()),
        PublicData(X),
        (X[:, 0] > 0).astype(np.int64),
        classes=["no", "yes"],
        seed=0,
    )
    student.save(here / "student", card={})
    code, _, err = terrine("predict", "student", "new.csv", "--out", "p.csv")
    assert code == 2
    assert "new.csv is a table, and this student has no schema: it takes arrays of shape (3,)" in err
    np.savez(here / "rows.npz", X=X)
    assert terrine("predict", "student", "rows.npz", "--out", "p.csv").code == 0
    assert [one["prediction"] for one in lines(here / "p.csv")] == [student.classes[k] for k in student.predict(X)]


BAD = [
    (["--private", "absent.csv", "--public", "public.csv"], "absent.csv: there is no such file or folder"),
    ([*CSV[:4], "--classes", "a,b"], "Name the label's column with --label"),
    ([*CSV[:4], "--test", "test.csv"], "Name the label's column with --label"),
    ([*CSV[:5], "disease", "--classes", "a,b"], "private.csv has no column 'disease' (--label)"),
    ([*CSV[:5], "disease", "--test", "test.csv"], "test.csv has no column 'disease' (--label)"),
    ([*CSV, "--classes", "a,b", "--unit", "person"], "private.csv has no column 'person' (--unit)"),
    (CSV, "List the label's values with --classes a,b,c, or give public labelled rows with --test"),
    ([*CSV, "--classes", "benign"], "at least 2"),
    ([*CSV, "--classes", "a,b", "--image-shape", "8x8"], "--image-shape is for folders of images"),
    ([*CSV[:2], "--public", "public_texts", "--classes", "a,b"], "private.csv is a table and public_texts is a folder"),
    (["--private", "notes.md", "--public", "notes.md", "--classes", "a,b"], "notes.md: rows must be in a .csv"),
    (["--private", "texts", "--public", "public_texts", "--classes", "a,b", "--label", "y"], "names of sub-folders"),
    (["--private", "texts", "--public", "public_texts", "--classes", "a,b", "--unit", "p.*_"], "a group in brackets"),
    (["--private", "pictures", "--public", "more", "--classes", "a,b"], "--image-shape 28x28"),
    (
        ["--private", "pictures", "--public", "more", "--classes", "a,b", "--image-shape", "8"],
        "--image-shape 28x28",
    ),
    (["--private", "private.csv", "--public", "./private.csv", *CSV[4:], "--classes", "a,b"], "without any protection"),
    (["--private", "private.csv", "--public", "copy.csv", *CSV[4:], "--classes", "a,b"], "copy.csv (--public) has the"),
    ([*CSV, "--classes", "a,b", "--test", "copy.csv"], "copy.csv (--test) has the same rows as private.csv"),
    ([*CSV[:5], "Diagnosys", "--classes", "a,b"], "Did you mean --label diagnosis?"),
    ([*CSV, "--classes", "a,b", "--unit", "Patients"], "Did you mean --unit patient?"),
    (
        ["--private", "public.csv", "--public", "private.csv", *CSV[4:], "--classes", "a,b"],
        "but private.csv has it: are --private and --public swapped?",
    ),
    (["--private", "r.npz", "--public", "s.npz", "--classes", "a,b", "--unit", "who"], "arrays have their units in"),
]


@pytest.mark.parametrize(("words", "said"), BAD, ids=[said[:40] for _, said in BAD])
def test_what_does_not_fit_is_said_and_nothing_is_written(here, terrine, words, said):
    clinic(here)
    for name in ("texts/a", "public_texts"):
        (here / name).mkdir(parents=True)
        (here / name / "1.txt").write_text("a text")
    for name in ("pictures", "more"):
        (here / name).mkdir()
    (here / "notes.md").write_text("notes")
    np.savez(here / "r.npz", X=np.zeros((2, 2)), y=np.zeros(2, dtype=int))
    np.savez(here / "s.npz", X=np.zeros((2, 2)))
    (here / "copy.csv").write_bytes((here / "private.csv").read_bytes())
    code, out, err = terrine("init", *words)
    assert (code, out) == (2, "")
    assert said in err
    assert not list(here.glob("*.toml"))


@pytest.mark.parametrize("name", ["run.toml", "schema.toml"])
def test_files_that_are_there_are_never_written_over(here, terrine, name):
    clinic(here)
    (here / name).write_text("mine")
    code, _, err = terrine("init", *CSV, "--classes", "benign,malignant")
    assert code == 2
    assert f"{name} is there already" in err
    assert (here / name).read_text() == "mine"
    assert len(list(here.glob("*.toml"))) == 1


def test_arrays(here, terrine):
    draw = np.random.default_rng(0)
    X = draw.normal(size=(500, 3))
    np.savez(here / "private.npz", X=X, y=(X[:, 0] > 0).astype(int))
    np.savez(here / "public.npz", X=draw.normal(size=(100, 3)))
    options = ("--private", "private.npz", "--public", "public.npz", "--classes", "no,yes", "--units", "500")
    assert terrine("init", *options).code == 0
    assert not (here / "schema.toml").exists()
    run = begin_run(read_config(here / "run.toml"), here / "run")
    assert run.task.classes == ("no", "yes")


def test_a_label_that_is_unknown_in_a_public_file_is_named_by_its_line(here, terrine):
    """Also where the schema has a unit and some public rows lack one: none of them is left out."""
    clinic(here)
    rows = [{**one, "patient": ""} for one in lines(here / "test.csv")]
    rows[4]["diagnosis"] = "neither"
    table(here / "test.csv", COLUMNS, rows)
    assert terrine("init", *CSV, "--test", "test.csv", "--classes", "benign,malignant", "--unit", "patient").code == 0
    code, _, err = terrine("run", "run.toml", "--dry-run")
    assert code == 2
    assert 'test.csv, line 6, column "diagnosis": the label is not one of the classes.' in err


def test_csv_of_predictions_can_be_read_by_any_reader(here, terrine):
    """Names with commas and quotes are quoted."""
    X = np.eye(2)[np.arange(40) % 2]
    names = ['no, "never"', "yes"]
    student = fit_student(
        SupervisedStudent(estimator=LogisticRegression()), PublicData(X), np.arange(40) % 2, classes=names, seed=0
    )
    student.save(here / "student", card={})
    np.save(here / "rows.npy", X)
    assert terrine("predict", "student", "rows.npy", "--out", "p.csv").code == 0
    found = list(csv.reader(io.StringIO((here / "p.csv").read_text())))
    assert found[0] == ["row", "prediction", 'P(no, "never")', "P(yes)"]
    assert found[1][1] == names[0]


def test_a_private_file_without_a_header_is_not_written_into_the_schema(terrine, tmp_path):
    (tmp_path / "hl.csv").write_text("47,HIV positive,sick\n31,well enough,well\n")
    (tmp_path / "pub.csv").write_text("age,note\n" + "".join(f"{20 + k},fine {k % 3}\n" for k in range(30)))
    words = ["--private", tmp_path / "hl.csv", "--public", tmp_path / "pub.csv", "--out", tmp_path / "new" / "run.toml"]
    code, out, err = terrine("init", *words, "--label", "sick", "--classes", "sick,well")
    assert (code, out) == (2, "")
    assert "line of column names" in err
    assert not any(value in err for value in ("47", "HIV"))
    assert not (tmp_path / "new" / "schema.toml").exists()


def test_the_epsilon_and_a_consensus_for_the_rows_of_a_teacher(here, terrine):
    clinic(here)
    found = {}
    for units, options in ((20_000, ()), (400, ("--epsilon", "1"))):
        folder = here / str(units)
        options = (
            "--label",
            "diagnosis",
            "--classes",
            "no,yes",
            "--units",
            units,
            "--out",
            folder / "run.toml",
            *options,
        )
        assert terrine("init", "--private", "private.csv", "--public", "public.csv", *options).code == 0
        made = tomllib.loads((folder / "run.toml").read_text())
        found[units] = (made["teachers"]["number"], made["privacy"]["consensus"], made["privacy"]["epsilon"])
    assert found == {20_000: (200, 0.8, 2.0), 400: (10, 0.7, 1.0)}
    refused = terrine("init", "--private", "private.csv", "--public", "public.csv", "--label", "diagnosis",
                      "--classes", "no,yes", "--out", here / "x.toml", "--epsilon", "0")  # fmt: skip
    assert refused.code == 2
    assert "--epsilon must be above 0" in refused.err


def test_init_says_what_a_newcomer_overlooks(here, terrine):
    """A forgotten unit, public labels, classes that are spelled in another way, and odd public cells."""
    clinic(here)
    private, public = lines(here / "private.csv"), lines(here / "private.csv")[:400]
    for k, one in enumerate(public):
        one |= {"customer_no": f"C{k // 2}", "age": "36 years" if k == 6 else one["age"], "diagnosis": "Benign"}
    for k, one in enumerate(private):
        one |= {"customer_no": f"C{k // 2}", "Respondent ID": str(k // 2), "KundenNr": "", "MemberID_t": ""}
    table(here / "private.csv", [*COLUMNS, "customer_no", "Respondent ID", "KundenNr", "MemberID_t"], private)
    table(here / "public.csv", [*COLUMNS[:4], "customer_no", "diagnosis"], public)
    code, out, _ = terrine("init", *CSV, "--classes", "benign,malignant")
    assert code == 0
    schema = Schema.from_toml((here / "schema.toml").read_text())
    assert "customer_no" in schema.ignore
    assert "named like an id, with 200 different values in 400 public rows" in (here / "schema.toml").read_text()
    assert isinstance(schema.columns["age"], Number)
    for said in (
        'public.csv has the label\'s column "diagnosis": its labels will be used as public ones',
        "public.csv has labels that are not in the list of classes: 'Benign'",
        'Column "customer_no" looks as if it says whose a row is. If so, begin again with --unit customer_no',
        "begin again with --unit 'Respondent ID'",  # of the private header alone
        "begin again with --unit KundenNr",
        "begin again with --unit MemberID_t",
        "Column \"age\": 1 public cell is not a number and counts as missing. The first: line 8, '36 years'",
    ):
        assert said in out
    code, out, _ = terrine(
        "init", *CSV, "--classes", "Benign,malignant", "--unit", "customer_no", "--out", "b/run.toml"
    )
    assert code == 0
    assert "looks as if" not in out
    assert "not in the list" not in out
    settings = (here / "run.toml").read_text()
    assert '\n# neighbors = "unit_added"' in settings
    assert "docs/" not in settings + (here / "schema.toml").read_text()
    (here / "run.toml").write_text(settings.replace('# neighbors = "unit_added"', 'neighbors = "unit_added"'))
    assert read_config(here / "run.toml").privacy.neighbors == "unit_added"


def test_bytes_that_are_not_utf8_are_told_by_line_and_never_become_other_words(here, terrine):
    """Excel's CSV in Windows' own encoding: every "Süd" would be another word."""
    clinic(here)

    def recoded(name: str, encoding: str, *, header: str = "ward") -> Path:
        text = (here / name).read_text().replace("north", "Süd").replace("ward", header)
        (here / f"{encoding}-{name}").write_bytes(text.encode(encoding))
        return here / f"{encoding}-{name}"

    for name in ("private.csv", "public.csv", "test.csv", "new.csv"):
        for encoding in ("cp1252", "utf-8-sig"):
            recoded(name, encoding)
    rest = ("--label", "diagnosis", "--classes", "benign,malignant", "--units", "1000")

    def init(private: str, public: str, *more: str):
        return terrine("init", "--private", private, "--public", public, *rest, *more)

    done = init("utf-8-sig-private.csv", "cp1252-public.csv")
    line = next(k for k, row in enumerate((here / "cp1252-public.csv").read_bytes().split(b"\n"), 1) if b"\xfc" in row)
    assert done.code == 2
    assert f"cp1252-public.csv, line {line}: there are bytes that are not UTF-8" in done.err
    assert "iconv -f cp1252 -t utf-8 cp1252-public.csv > cp1252-public.utf8.csv" in done.err
    done = init("utf-8-sig-private.csv", "utf-8-sig-public.csv", "--test", "cp1252-test.csv")
    assert (done.code, "cp1252-test.csv, line " in done.err) == (2, True)
    recoded("private.csv", "cp1252", header="Räume")
    done = init("cp1252-private.csv", "utf-8-sig-public.csv")
    assert (done.code, "cp1252-private.csv, line 1: there are bytes that are not UTF-8" in done.err) == (2, True)
    assert not (here / "run.toml").exists()

    # Below its header a private file decides nothing that others can see: check alone tells
    recoded("private.csv", "cp1252")
    done = init("cp1252-private.csv", "utf-8-sig-public.csv", "--test", "utf-8-sig-test.csv")
    assert done.code == 0
    assert "UTF-8" not in done.out + done.err
    quick(here / "run.toml")
    assert '"Süd"' in (here / "schema.toml").read_text()
    done = terrine("check", "cp1252-private.csv", "--schema", "schema.toml")
    assert done.code == 0
    assert ": there are bytes that are not UTF-8, so that letters such as ä or é cannot be read" in done.out
    assert "UTF-8" not in terrine("check", "utf-8-sig-private.csv", "--schema", "schema.toml").out
    assert "UTF-8" not in terrine("run", "run.toml", "--dry-run").err
    settings = (here / "run.toml").read_text()
    for name in ("test", "public"):
        (here / "odd.toml").write_text(settings.replace(f"utf-8-sig-{name}", f"cp1252-{name}"))
        done = terrine("run", "odd.toml", "--dry-run")
        assert (done.code, f"cp1252-{name}.csv, line " in done.err) == (2, True)
    done = terrine("rehearse", "run.toml", "--labelled", "cp1252-test.csv")
    assert (done.code, "cp1252-test.csv, line " in done.err) == (2, True)
    assert terrine("schema", "cp1252-public.csv").code == 2

    assert terrine("run", "run.toml").code == 0
    done = terrine("predict", "run", "cp1252-new.csv", "--out", "p.csv", "--keep", "patient")
    assert (done.code, done.out) == (2, "")
    assert "cp1252-new.csv, line " in done.err
    assert not (here / "p.csv").exists()
    assert terrine("predict", "run", "utf-8-sig-new.csv", "--out", "p.csv", "--keep", "patient").code == 0


@pytest.mark.parametrize("kind", ["images", "texts"])
def test_files_of_nobody_are_protected_one_at_a_time_and_that_is_said_at_once(here, terrine, kind):
    (images if kind == "images" else texts)(here)
    if kind == "texts":
        (here / "public_texts" / "q_1.txt").write_bytes("schön".encode("cp1252"))
    words = ["--private", kind, "--public", f"public_{kind}", "--test", f"test_{kind}", "--units", "1200"]
    words += ["--image-shape", "8x8"] if kind == "images" else []
    said = "a person with several files is protected for one of them at a time"
    done = terrine("init", *words)
    assert done.code == 0
    assert said in done.out
    assert "--unit '^([^_]+)_' takes ann from ann_1.png" in done.out
    assert "rename them" in done.out
    not_read = "public_texts: 1 text has bytes that are not UTF-8, the first q_1.txt"
    assert (not_read in done.out) == (kind == "texts")
    for route in ("teachers", "probe"):
        text = (here / "run.toml").read_text().replace('route = "auto"', f'route = "{route}"')
        if route == "probe":
            text = re.sub(r"\[teachers\].*?(?=\[privacy\])", "", text, flags=re.DOTALL)
            text = re.sub(r"(mechanism|consensus) = .*\n", "", text)
        (here / "dry.toml").write_text(text)
        done = terrine("run", "dry.toml", "--dry-run")
        flat = " ".join(done.out.split())
        assert said in flat, done.err
        assert "name a pattern, data.unit = '^([^_]+)_'; it takes ann from ann_1.png" in flat
        assert "one row is replaced by another" in flat
        assert "unit" not in re.findall(r"(?:one|every|a) (unit|row)", flat)
    done = terrine("init", *words, "--unit", "^(p[0-9]+)_", "--out", "other/run.toml")
    assert said not in done.out
    assert said not in terrine("run", "other/run.toml", "--dry-run").out


def test_a_run_refuses_private_rows_in_the_place_of_public_ones(here, terrine):
    clinic(here)
    assert terrine("init", *CSV, "--classes", "benign,malignant").code == 0
    settings = (here / "run.toml").read_text()
    (here / "link.csv").symlink_to(here / "private.csv")
    (here / "hard.csv").hardlink_to(here / "private.csv")
    for name in ("private.csv", "link.csv", "hard.csv"):
        (here / "run.toml").write_text(settings.replace('"public.csv"', f'"{name}"'))
        code, _, err = terrine("run", "run.toml", "--dry-run")
        assert code == 2
        assert "data.public and data.private are the same rows (private.csv)" in err
        (here / "run.toml").write_text(settings.replace("[features]", f'test = "{name}"\n[features]'))
        code, _, err = terrine("run", "run.toml")
        assert code == 2
        assert "data.test and data.private are the same rows" in err
    swapped = settings.replace('"public.csv"', '"x"').replace('"private.csv"', '"public.csv"')
    (here / "run.toml").write_text(swapped.replace('"x"', '"private.csv"'))
    code, _, err = terrine("run", "run.toml", "--dry-run")
    assert code == 2
    assert "private.csv has the column 'diagnosis': are data.private and data.public swapped?" in err
    (here / "run.toml").write_text(settings)
    assert "--labelled and data.private are the same" in terrine("rehearse", "run.toml", "--labelled", "hard.csv").err


def test_init_says_where_the_classes_come_from(here, terrine):
    clinic(here)
    public = lines(here / "public.csv")
    table(here / "public.csv", [*COLUMNS[:4], "diagnosis"], [{**one, "diagnosis": "unclear"} for one in public])
    code, out, _ = terrine("init", *CSV, "--test", "test.csv", "--unit", "patient")
    assert code == 0
    assert (
        "- The classes are those of test.csv: 'benign', 'malignant'. Private rows of a class that is not there" in out
    )
    assert (
        "public.csv has labels that are not in the list of classes: 'unclear'. The list is that of test.csv; give "
        "--classes."
    ) in out
    typed = ("--test", "test.csv", "--classes", "benign,malignant", "--unit", "patient", "--out", "b/run.toml")
    out = terrine("init", *CSV, *typed).out
    assert "those of test.csv" not in out
    assert "'unclear'. Are the classes spelled right?" in out
