"""A draft decides by the public rows alone, and says why."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from terrine.errors import DataError, InputError
from terrine.schema import Category, Date, Flag, Kind, Number, Ordered, Schema, Text, draft, read_table
from terrine.schema.drafting import names_unit, odd_cells, unit_columns

N = 60
WORDS = [f"word{k}" for k in range(N)]


def kind_of(cells: list[Any], name: str = "x") -> Kind | str:
    """The drafted kind, or why the column is left out."""
    schema = draft(read_table({name: cells, "filler": [0.5, 1.5] * (len(cells) // 2)}))
    return schema.columns.get(name) or schema.notes[name]


def repeated(*values: Any) -> list[Any]:
    return [values[k % len(values)] for k in range(N)]


@pytest.mark.parametrize(
    ("cells", "beside", "separator", "value", "doubt"),
    [
        (["0,126", "-0,132", "0,5"], ["1", "2"], ";", "-0.2", False),
        (["1,250", "2,375"], ["1", "2"], ";", "1.2", True),  # Excel's semicolons
        (["1,250", "2,375"], ["0.5", "1.5"], ";", "1200", True),  # no, the other columns have points
        (["1,250", "2,375"], ["0,5", "1,5"], "|", "1.2", True),
        (["1,250", "2,375"], ["1", "2"], "|", "1200", True),
        (["1.250", "2.375"], ["1", "2"], ";", "1200", True),
        (["1.250", "2.375"], ["1", "2"], "|", "1.2", False),
        (["1.250", "2.375"], ["0.5", "1.5"], ";", "1.2", False),
    ],
)
def test_a_mark_that_may_be_of_thousands_or_of_decimals(
    tmp_path: Path, cells: list[str], beside: list[str], separator: str, value: str, doubt: bool
) -> None:
    lines = [f"{cells[k % len(cells)]}{separator}{beside[k % 2]}" for k in range(60)]
    (tmp_path / "t.csv").write_text("\n".join([f"x{separator}y", *lines]))
    schema = draft(read_table(tmp_path / "t.csv"))
    kind = schema.columns["x"]
    assert isinstance(kind, Number)
    assert kind.low == float(value)
    assert ("is read as" in schema.notes["x"]) == doubt
    if doubt:
        assert f'"{cells[0]}" is read as {1250 if kind.low > 100 else 1.25:g}: if that is wrong' in schema.notes["x"]


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        (repeated("17", "90"), Number(low=0, high=90, blanks=False)),
        (repeated("17.2", "NA", "89"), Number(low=0, high=90, blanks=True)),
        (repeated("1990", "2023"), Number(low=1990, high=2025, blanks=False)),
        (repeated(-3, 4.5), Number(low=-3, high=5, blanks=False)),
        (repeated("1", "2", "3"), Number(low=0, high=3, blanks=False)),  # codes stay numbers
        (repeated("1,234", "9,999.5"), Number(low=0, high=10_000, blanks=False)),
        (repeated("1,5", "2.000,25"), Number(low=0, high=2200, decimal=",", blanks=False)),
        (repeated("yes", "No"), Flag(blanks=False)),
        (repeated("0", "1", ""), Flag(blanks=True)),
        (repeated(True, False), Flag(blanks=False)),
        (repeated("T", "F"), Flag(blanks=False)),
        (repeated("b ", "a", "b", "?"), Category(values=("a", "b"), blanks=True)),
        (repeated("yes", "no", "maybe"), Category(values=("maybe", "no", "yes"), blanks=False)),
        (repeated("10-19", "0-9", "80+"), Ordered(values=("0-9", "10-19", "80+"), blanks=False)),
        (repeated(">65", "18-65", "<18"), Ordered(values=("<18", "18-65", ">65"), blanks=False)),
        ([f"{k} words" for k in range(N)], Text(characters=True, blanks=False)),
        ([f"{k} words " * 30 for k in range(N)], Text(characters=False, blanks=False)),
        (WORDS[:40] * 2, Category(values=tuple(sorted(WORDS[:40])), blanks=False)),
        (WORDS[:40] + WORDS[:20], Text(characters=True, blanks=False)),  # more than half as many as there are rows
        ([f"v{k}" for k in range(51)] * 4, Text(characters=True, blanks=False)),  # more than 50
    ],
)
def test_kinds(cells: list[Any], kind: Kind) -> None:
    assert kind_of(cells) == kind


@pytest.mark.parametrize(
    ("cells", "low", "high", "format", "cycles"),
    [
        (["2020-01-05", "2020-03-07"], "2020-01-01", "2020-04-01", "iso", ("month", "weekday")),
        (["2010-01-05", "2020-03-07"], "2010-01-01", "2021-01-01", "iso", ("month", "weekday")),
        (["2020-01-05T04:00:00Z", "2020-01-05 07:00"], "2020-01-05", "2020-01-06", "iso", ("hour",)),
        (["05.01.2020", "31.01.2020"], "2020-01-01", "2020-02-01", "%d.%m.%Y", ("weekday",)),
        (["05.01.20 10:30", "31.01.20 11:00"], "2020-01-01", "2020-02-01", "%d.%m.%y %H:%M", ("weekday", "hour")),
        (["12/31/2019", "01/02/2020"], "2019-12-01", "2020-02-01", "%m/%d/%Y", ("month", "weekday")),
        (["31/12/2019", "01/02/2020"], "2019-12-01", "2020-03-01", "%d/%m/%Y", ("month", "weekday")),
        (["14:20", "03:05"], "1900-01-01", "1900-01-02", "%H:%M", ("hour",)),
        (["0001-01-01", "9999-12-31"], "0001-01-01", "9999-12-31T23:59:59", "iso", ("month", "weekday")),
    ],
)
def test_dates(cells: list[str], low: str, high: str, format: str, cycles: Any) -> None:
    assert kind_of(repeated(*cells)) == Date(low=low, high=high, format=format, cycles=cycles, blanks=False)


def test_a_date_that_two_formats_read_says_so() -> None:
    schema = draft(read_table({"day": repeated("01/02/2020", "03/04/2020")}))
    assert schema.columns["day"].format == "%m/%d/%Y"
    assert "ALSO READABLE AS %d/%m/%Y" in schema.notes["day"]


def test_one_odd_public_cell_does_not_change_the_kind() -> None:
    found = draft(read_table({"x": [*map(str, range(5, 99)), "unknown", "5"]}))
    assert found.columns["x"] == Number(low=0, high=100, blanks=True)
    assert "1 public cell that cannot be read: missing" in found.notes["x"]
    days = [f"2020-01-{1 + k % 31:02}" for k in range(60)]
    assert isinstance(kind_of([*days, "soon", "2020-01-01"]), Date)
    assert isinstance(kind_of([*repeated("5", "6"), *["unknown"] * 10]), Category)  # too many odd ones


def test_skewed_numbers_are_on_a_logarithmic_scale() -> None:
    assert kind_of([0] * 57 + [10, 1000, 99_999]) == Number(low=0, high=100_000, scale="log", blanks=False)
    assert kind_of([*range(60)]) != "log"
    assert kind_of([-1] * 57 + [0, 1000, 99_999]).scale == "linear"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("name", "cells", "reason"),
    [
        ("x", [""] * N, "no value in the public rows"),
        ("x", repeated("NA", "?", " - "), "no value in the public rows"),
        ("x", ["same"] * N, "one value in all public rows"),
        ("", [*range(N)], "no name in the header"),
        ("row", [*range(1, N + 1)], "a row number"),
        ("customerId", [k * 7919 % 10_007 for k in range(1, N + 1)], "named like an id"),
        ("member_id", [k * 7919 % 10_007 for k in range(1, N + 1)], "named like an id"),
        ("x", WORDS, "a different word or code in every public row"),
        ("patient_no", [k // 2 for k in range(N)], f"named like an id, with {N // 2:,} different values"),
        ("Respondent ID", [f"R{k // 2}" for k in range(N)], "named like an id"),
    ],
)
def test_columns_that_tell_nothing_are_left_out_with_a_reason(name: str, cells: list[Any], reason: str) -> None:
    schema = draft(read_table({name: cells, "filler": [0.5, 1.5] * (N // 2)}))
    assert schema.ignore == (name,)
    assert reason in schema.notes[name]
    line = next(line for line in schema.to_toml().splitlines() if reason in line)
    assert line.strip().startswith(f'"{name}", #')


def test_columns_that_look_as_if_they_named_a_person() -> None:
    """By name, with more than a few values; or a code in every row. Neither a list of wards nor amounts."""
    table = read_table(
        {"patient": [k // 3 for k in range(N)], "ward_no": [k % 4 for k in range(N)], "codes": WORDS, "label": WORDS,
         "account_key": [k + 0.5 for k in range(N)], "income": [k * 7919 % 10_007 for k in range(N)]}
    )  # fmt: skip
    assert unit_columns(table, draft(table, label="label", classes=["a", "b"])) == ["patient", "codes"]
    assert unit_columns(table, draft(table, label="label", classes=["a", "b"], unit="patient")) == ["codes"]


@pytest.mark.parametrize(
    "name",
    ["KundenNr", "customer", "patient_no", "Kunde", "client id", "MemberID_t", "Versicherten-Nummer", "kundennummer",
     "userId", "id_personne", "Schülernr.", "Schu\u0308ler", "account number", "KUNDENNR", "mitgliedsnummer",
     "paciente", "nr_kunde", "policyholder", "PatientID"],
)  # fmt: skip
def test_names_of_persons_are_known_in_several_spellings(name: str) -> None:
    """Where public rows have the column too, with several rows a person; and none of them is lost as a feature."""
    assert names_unit(name)
    table = read_table({name: [f"K{k // 3}" for k in range(N)], "filler": [0.5, 1.5] * (N // 2)})
    assert unit_columns(table, draft(table)) == [name]


@pytest.mark.parametrize("name", ["age", "ward", "Betrag", "gekündigt", "keyboard", "united", "nurse", "idle", "notes"])
def test_names_of_other_things_are_none(name: str) -> None:
    assert not names_unit(name)


def test_numbers_that_are_named_after_persons_stay_features() -> None:
    """A number of visits, or an age of patients, is no person; a hint comes only where values hardly repeat."""
    cells = {"num_visits": [k % 60 for k in range(4 * N)], "patient_age": [k % 70 for k in range(4 * N)]}
    table = read_table(cells | {"account_balance": [k * 7919 % 10_007 for k in range(1, 4 * N + 1)]})
    schema = draft(table)
    assert [*schema.columns] == ["num_visits", "patient_age", "account_balance"]
    assert unit_columns(table, schema) == ["account_balance"]


def test_odd_public_cells_are_named_with_their_line(tmp_path: Path) -> None:
    rows = [*(f"{k},{k % 9},a b {k}" for k in range(90)), *["x,y,7"] * 4, *["1,y,7"] * 10]
    (tmp_path / "p.csv").write_text("\n".join(["age,size,note", *rows]))
    table = read_table(tmp_path / "p.csv")
    assert odd_cells(table, draft(table)) == [
        "Column \"age\": 4 public cells are not a number and count as missing. The first: line 92, 'x'. Correct them "
        "in the file if they are wrong.",
        "Column \"size\": it is read as words, though most public cells are numbers. The first: line 92, 'y'. If it is "
        "a number, correct the file and begin again.",
    ]


def test_different_amounts_are_no_ids() -> None:
    assert isinstance(kind_of([k * 7919 % 10_007 for k in range(1, N + 1)], "income"), Number)
    assert isinstance(kind_of(["a", "b"], "x"), Text)  # too few rows to tell


def test_a_single_value_beside_blanks_is_kept() -> None:
    assert kind_of(repeated("ticked", "")) == Category(values=("ticked",), blanks=True)


def test_ordered_categoricals_keep_their_order_and_no_value_that_does_not_occur() -> None:
    sizes = pd.Categorical(repeated("M", "S"), categories=["S", "M", "of a private row"], ordered=True)
    assert draft(read_table(pd.DataFrame({"size": sizes}))).columns["size"] == Ordered(values=("S", "M"), blanks=False)
    enum = pl.Series(repeated("M", "S", "L"), dtype=pl.Enum(["S", "M", "L"]))
    assert draft(read_table(pl.DataFrame({"size": enum}))).columns["size"].values == ("S", "M", "L")  # type: ignore[union-attr]


def test_label_and_unit_are_no_features_and_classes_may_come_from_public_rows() -> None:
    table = read_table({"x": repeated(1.5, 2.5), "income": repeated("10", "9", ""), "who": WORDS})
    schema = draft(table, label="income", unit="who")
    assert (schema.label, schema.classes, schema.unit, [*schema.columns]) == ("income", ("9", "10"), "who", ["x"])
    given = draft(table, label="income", classes=["10", "9", "8"], ignore=["who"])
    assert given.classes == ("10", "9", "8")
    assert given.ignore == ("who",)
    elsewhere = draft(read_table({"x": repeated(1.5, 2.5)}), label="ill", classes=["a", "b"], unit="member")
    assert (elsewhere.label, elsewhere.unit) == ("ill", "member")
    with pytest.raises(InputError, match="Give `classes`"):
        draft(read_table({"x": [1, 2]}), label="ill")


def test_the_toml_says_where_it_is_from_and_reads_back() -> None:
    table = read_table({"age": repeated(17, 90), "job": repeated("nurse", "baker", ""), "id": [*range(N)]})
    text = draft(table, source="public.csv").to_toml()
    assert text.startswith("# A draft from public.csv alone: no private row was read.")
    assert "# public values from 17 to 90\nage = " in text
    assert "# 2 different public values\njob = " in text
    assert Schema.from_toml(text) == draft(table)


def test_a_draft_is_refused_where_there_is_nothing_to_draft(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no rows below the header"):
        draft(read_table({"x": []}))
    with pytest.raises(DataError, match="no column is left"):
        draft(read_table({"x": ["same"] * 5}))


@pytest.mark.parametrize("seed", range(20))
def test_bounds_hold_every_public_number(seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = (rng.normal(size=30) + rng.normal()) * 10.0 ** rng.uniform(-12, 12)
    kind = kind_of([float(value) for value in values])
    assert isinstance(kind, Number)
    assert kind.low <= values.min() < values.max() <= kind.high
    assert kind.high - kind.low <= 2.5 * np.ptp(values)


@pytest.mark.parametrize("values", [[1e308, -1e308], [5e-324, 0], [1e16, 1e16 + 2], ["inf", "1", "2"], [7, ""]])
def test_bounds_of_extreme_numbers(values: list[Any]) -> None:
    kind = kind_of(repeated(*values))
    assert isinstance(kind, Number)
    assert kind.low < kind.high
