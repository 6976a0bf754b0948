"""Faults of a private table, for its owner: by line and column, never with the cell."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from terrine.errors import InputError
from terrine.schema import Category, Date, Fault, Flag, Number, Ordered, Schema, Text, check, read_table
from terrine.schema.checking import refuse_spoiled, unread

SCHEMA = Schema(
    columns={
        "age": Number(low=0, high=100, blanks=False),
        "job": Category(values=("nurse",)),
        "size": Ordered(values=("S", "L")),
        "seen": Date(low="2020-01-01", high="2021-01-01"),
        "ok": Flag(),
        "note": Text(),
    },
    label="ill",
    classes=("no", "yes"),
    unit="who",
)
GOOD = "47,nurse,S,2020-05-17,yes,fine,no,ann"
HEADER = "age,job,size,seen,ok,note,ill,who"


def written(folder: Path, *lines: str, header: str = HEADER) -> Path:
    file = folder / "private.csv"
    file.write_text("\n".join([header, *lines]) + "\n")
    return file


@pytest.mark.parametrize(
    ("line", "column", "what"),
    [
        ("forty7,nurse,S,2020-05-17,yes,fine,no,ann", "age", "not a number"),
        ("-1,nurse,S,2020-05-17,yes,fine,no,ann", "age", "below the bounds"),
        ("101,nurse,S,2020-05-17,yes,fine,no,ann", "age", "above the bounds"),
        (",nurse,S,2020-05-17,yes,fine,no,ann", "age", "missing"),
        ("47,baker,S,2020-05-17,yes,fine,no,ann", "job", "unknown category"),
        ("47,nurse,XL,2020-05-17,yes,fine,no,ann", "size", "unknown category"),
        ("47,nurse,S,17.5.20,yes,fine,no,ann", "seen", "not a date"),
        ("47,nurse,S,2019-05-17,yes,fine,no,ann", "seen", "before the bounds"),
        ("47,nurse,S,2022-05-17,yes,fine,no,ann", "seen", "after the bounds"),
        ("47,nurse,S,2020-05-17,maybe,fine,no,ann", "ok", "not yes or no"),
        ("47,nurse,S,2020-05-17,yes,fine,perhaps,ann", "ill", "unknown label"),
        ("47,nurse,S,2020-05-17,yes,fine,,ann", "ill", "missing label"),
        ("47,nurse,S,2020-05-17,yes,fine,no,", "who", "missing unit"),
        (GOOD + ",more", "", "wrong number of cells"),
    ],
)
def test_each_fault_has_a_line_and_a_name(tmp_path: Path, line: str, column: str, what: str) -> None:
    file = written(tmp_path, GOOD, "47,,,,,,yes,bob", line)  # blanks are no faults
    assert check(SCHEMA, read_table(file)) == [Fault(4, column, what)]


def test_a_frame_has_rows_and_a_public_table_needs_no_label() -> None:
    table = read_table(
        {"age": [47, 147], "job": ["", ""], "size": ["", ""], "seen": ["", ""], "ok": ["", ""], "note": ["", ""]}
    )
    assert check(SCHEMA, table, public=True) == [Fault(1, "age", "above the bounds")]


def test_values_that_the_schema_does_not_list_are_told_with_what_they_may_be() -> None:
    words = Schema(
        columns={
            "ward": Category(values=("Cardiology", "Süd")),
            "size": Ordered(values=("S", "L", "XL")),
            "n": Number(low=0, high=1),
        }
    )
    wards = ["Cardiology", "CARDIOLOGY", "Süden", "CARDIOLOGY", ""]
    cells = {"ward": wards, "size": ["S", "XXL", "", "", ""], "n": [0] * 5}
    ward, size = unread(words, read_table(cells), role="new.csv")
    assert (ward.what, ward.n, ward.known, ward.first, ward.spoils_the_column) == ("unknown", 3, 4, 2, False)
    assert str(ward) == (
        'new.csv, column "ward": 3 of 4 cells that are not blank are not in the schema\'s list, the first in row 2: '
        '\'CARDIOLOGY\'. They count as "other". The schema lists "Cardiology", "Süd" '
        "(perhaps \"Cardiology\" for 'CARDIOLOGY', \"Süd\" for 'Süden')."
    )
    assert "first in row 2: 'XXL'. It counts as missing." in size.in_words
    assert "(perhaps \"XL\" for 'XXL')" in str(size)
    whole = unread(words, read_table({"ward": ["Nord", "West"], "size": ["S", "S"], "n": [0, 0]}), role="new.csv")
    with pytest.raises(InputError, match=r'2 of 2 .* Write "ward" as one of "Cardiology", "Süd"\. Nothing was done'):
        refuse_spoiled(whole, then="Nothing was done.")
    one = unread(words, read_table({"ward": ["Nord"], "size": ["S"], "n": [0]}), role="new.csv")
    refuse_spoiled(one, then="Nothing was done.")  # of one row alone, nothing is known
    many = Schema(columns={"ward": Category(values=tuple(f"w{k}" for k in range(30)))})
    (told,) = unread(many, read_table({"ward": ["x" * 9000, "w1"]}), role="new.csv")
    assert "and 20 more" in str(told)
    assert len(str(told)) < 400


def run(*words: str | Path) -> subprocess.CompletedProcess[str]:
    arguments = [sys.executable, "-m", "terrine", *map(str, words)]
    return subprocess.run(arguments, capture_output=True, text=True, check=False)


def test_a_column_of_which_every_cell_is_out_of_bounds_is_refused() -> None:
    schema = Schema(columns={"n": Number(low=0, high=500), "day": Date(low="2024-01-01", high="2024-12-31")})
    days = ["2025-01-01", "2025-01-02"]
    n, day = unread(schema, read_table({"n": [900, 901], "day": days}), role="rows")
    assert (n.spoils_the_column, day.spoils_the_column) == (True, True)
    assert n.as_refusal.endswith('Write "n" as numbers from 0 to 500.')
    assert day.as_refusal.endswith('Write "day" as dates from 2024-01-01 to 2024-12-31.')
    for cells in ([900, 901, 7], [900, "", None]):
        table = read_table({"n": cells, "day": ["2024-01-01"] * 3})
        assert [one.spoils_the_column for one in unread(schema, table, role="rows")] == [False]


def test_the_command_says_that_its_output_is_secret_and_quotes_no_cell(tmp_path: Path) -> None:
    schema = tmp_path / "schema.toml"
    schema.write_text(SCHEMA.to_toml())
    file = written(tmp_path, GOOD, "xyzzy,baker,S,2020-05-17,yes,fine,no,", "1")
    done = run("check", file, "--schema", schema)
    assert done.returncode == 0
    assert not done.stderr
    assert done.stdout.splitlines() == [
        "secret: depends on private rows",
        "\"ill\": no row has the class 'yes'",
        '"ill": 1 of 3 rows: missing label',
        '"who": 2 of 3 rows: missing unit',
        "1 of 3 rows: wrong number of cells",
        '"age": 1 of 3 rows: not a number',
        '"job": 1 of 3 rows: unknown category',
        "one by one:",
        'line 3: "age": not a number',
        'line 3: "job": unknown category',
        'line 3: "who": missing unit',
        "line 4: wrong number of cells",
        'line 4: "ill": missing label',
        'line 4: "who": missing unit',
    ]
    assert not {"xyzzy", "baker"} & set(done.stdout.replace('"', " ").split())
    few = run("check", file, "--schema", schema, "--most", "1")
    assert "... and 5 more" in few.stdout
    written(tmp_path, GOOD)
    written(tmp_path, GOOD, GOOD.replace(",no,", ",yes,"))
    assert (
        run("check", file, "--schema", schema).stdout
        == "secret: depends on private rows\nlabels: all in the list of classes\nno faults\n"
    )


def test_labels_that_are_no_class_are_summed_up(terrine, tmp_path: Path) -> None:
    (tmp_path / "schema.toml").write_text(SCHEMA.to_toml())
    rows = [GOOD.replace(",no,", f",{label},") for label in ["No"] * 90 + ["Yes"] * 2 + ["yes"]]
    file = written(tmp_path, *rows)
    out = terrine("check", file, "--schema", tmp_path / "schema.toml").out.splitlines()
    assert out[1] == "\"ill\": no row has the class 'no'"
    assert out[2] == "\"ill\": 92 of 93 rows: unknown label: 'No' (90), 'Yes' (2)"
    assert len(out) == 45
    assert out[-1] == "... and 52 more (--most 92)"


def test_a_table_without_label_and_unit_is_checked_without_them(terrine, tmp_path: Path) -> None:
    """Unless a column looks like theirs."""
    (tmp_path / "schema.toml").write_text(SCHEMA.to_toml())
    words = ("check", tmp_path / "private.csv", "--schema", tmp_path / "schema.toml")
    written(tmp_path, GOOD.removesuffix(",no,ann").replace("47", "147"), header=HEADER.removesuffix(",ill,who"))
    found = terrine(*words)
    assert found.code == 0
    assert found.out.splitlines()[1:4] == [
        'no column "ill" (label): all else is checked',
        'no column "who" (unit): all else is checked',
        '"age": 1 of 1 rows: above the bounds',
    ]
    assert "no column" not in terrine(*words, "--public").out
    written(tmp_path, GOOD, header=HEADER.replace("ill", "Ill"))
    assert 'there is no column "ill", but "Ill" looks like it' in terrine(*words).err


def test_only_a_header_is_refused(tmp_path: Path) -> None:
    schema = tmp_path / "schema.toml"
    schema.write_text(SCHEMA.to_toml())
    done = run("check", written(tmp_path, GOOD, header=HEADER.replace("job", "jobs")), "--schema", schema)
    assert done.returncode == 2
    assert not done.stdout
    assert 'private.csv: there is no column "job", but "jobs" looks like it' in done.stderr
    schema.write_text("x = 1")
    assert (
        "schema.toml: the schema: there is no key `x`"
        in run("check", tmp_path / "private.csv", "--schema", schema).stderr
    )


def test_a_drafted_schema_is_printed_as_toml(tmp_path: Path) -> None:
    file = tmp_path / "public.csv"
    file.write_text("age,job\n" + "17,nurse\n90,baker\n" * 20)
    done = run("schema", file, "--label", "ill", "--classes", "no, yes", "--unit", "who")
    assert done.returncode == 0, done.stderr
    schema = Schema.from_toml(done.stdout)
    assert (schema.label, schema.classes, schema.unit) == ("ill", ("no", "yes"), "who")
    assert schema.columns["age"] == Number(low=0, high=90, blanks=False)
    assert "A draft from public.csv alone" in done.stdout
    refused = run("schema", file, "--label", "ill")
    assert refused.returncode == 2
    assert "Give `classes`" in refused.stderr
