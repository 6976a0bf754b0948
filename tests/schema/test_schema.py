"""A schema says what it is, in TOML and JSON alike, and matches columns by name."""

from __future__ import annotations

import doctest
import re
from pathlib import Path
from typing import Any

import pytest

import terrine.schema.encoder
import terrine.schema.schema
from terrine.errors import DataError, InputError
from terrine.schema import Category, Date, Flag, Number, Ordered, Schema, Text, draft, read_table
from terrine.schema.schema import MISSING

ALL = Schema(
    columns={
        "age": Number(low=0, high=100, blanks=False),
        "pay, €": Number(low=-0.5, high=1e6, scale="log", decimal=","),
        "job": Category(values=("nurse", 'a "b"', "line\nbreak", "\x7f")),
        "size": Ordered(values=("S", "M", "L")),
        "born": Date(low="1920-01-01", high="2020-01-01", format="%d.%m.%Y", cycles=("month",)),
        "note": Text(dimensions=16, characters=True),
        "": Flag(blanks=False),
    },
    label="ill",
    classes=("no", "yes"),
    unit="person",
    ignore=("id",),
    missing=("", "NA", "unknown"),
)


def table(*names: str) -> Any:
    return read_table({name: ["1", "2"] for name in names})


@pytest.mark.parametrize("comments", [True, False])
def test_toml_reads_back(comments: bool) -> None:
    noted = Schema(**{**vars(ALL), "notes": {"[schema]": "two\nlines", "age": "why\nnot \x00", "id": "an id"}})
    text = noted.to_toml(comments=comments)
    assert Schema.from_toml(text) == ALL
    assert ("# two\n# lines\n" in text) is comments
    assert list(Schema.from_toml(text).columns) == list(ALL.columns)


def test_json_reads_back() -> None:
    assert Schema.from_json(ALL.to_json()) == ALL


def test_the_digest_is_of_what_decides_the_encoding_and_not_of_notes() -> None:
    fields = vars(ALL)
    assert Schema(**{**fields, "notes": {"age": "because"}}).digest == ALL.digest
    assert Schema.from_toml(ALL.to_toml()).digest == ALL.digest
    changed = [
        {"columns": dict(reversed(ALL.columns.items()))},
        {"columns": {**ALL.columns, "age": Number(low=0, high=101, blanks=False)}},
        {"unit": None},
        {"classes": ("yes", "no")},
        {"missing": ("",)},
        {"ignore": ()},
    ]
    assert len({ALL.digest, *(Schema(**{**fields, **one}).digest for one in changed)}) == 1 + len(changed)


def test_a_long_list_has_several_lines() -> None:
    values = tuple(f"a rather long value {k}" for k in range(20))
    schema = Schema(columns={"x": Category(values=values)})
    assert max(map(len, schema.to_toml().splitlines())) < 130
    assert Schema.from_toml(schema.to_toml()) == schema


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = ", "not TOML"),
        ("", "no table `columns`"),
        ("[columns]\n", "no table `columns`"),
        ('colums = 1\n[columns]\nx = {kind = "flag"}', "there is no key `colums`; did you mean `columns`?"),
        ('[columns]\nx = {kind = "numbr"}', "column 'x': `kind` must be one of number, category"),
        ("[columns]\nx = 3", "column 'x': `kind` must be one of number, category"),
        ('[columns]\nx = {kind = "number", low = 0}', "column 'x': a number needs `high`"),
        ('[columns]\nx = {kind = "number", lo = 0, high = 1}', "there is no key `lo`; did you mean `low`?"),
        ('[columns]\nx = {kind = "number", low = 2, high = 1}', "`low` must be below `high`, got 2 and 1"),
        ('[columns]\nx = {kind = "number", low = "0", high = 1}', "`low` must be a finite number"),
        ('[columns]\nx = {kind = "number", low = true, high = 2}', "`low` must be a finite number"),
        ('[columns]\nx = {kind = "number", low = 0, high = inf}', "`high` must be a finite number"),
        ('[columns]\nx = {kind = "number", low = 0, high = 1, scale = "root"}', "`scale` must be one of"),
        ('[columns]\nx = {kind = "number", low = 0, high = 1, blanks = 1}', "`blanks` must be true or false"),
        ('[columns]\nx = {kind = "category", values = []}', "at least 1 texts"),
        ('[columns]\nx = {kind = "category", values = "ab"}', "must be a list of texts"),
        ('[columns]\nx = {kind = "category", values = [1]}', 'write "1" for 1'),
        ('[columns]\nx = {kind = "category", values = ["a ", "b"]}', "without blanks around them"),
        ('[columns]\nx = {kind = "ordered", values = ["a", "b", "a"]}', "'a' twice"),
        ('[columns]\nx = {kind = "date", low = "2020", high = "2021-01-01"}', '`low` must be a date such as "2024'),
        ('[columns]\nx = {kind = "date", low = "2021-01-01", high = "2021-01-01"}', "`low` must be before `high`"),
        ('[columns]\nx = {kind = "date", low = "2020-01-01", high = "2021-01-01", format = "dd"}', "`format` must be"),
        ('[columns]\nx = {kind = "date", low = "2020-01-01", high = "2021-01-01", cycles = ["year"]}', "`cycles` must"),
        ('[columns]\nx = {kind = "text", dimensions = 0}', "`dimensions` must be a whole number"),
        ('label = "x"\nclasses = ["a", "b"]\n[columns]\nx = {kind = "flag"}', "'x' stands twice"),
        ('label = "y"\n[columns]\nx = {kind = "flag"}', "`label` and `classes` belong together"),
        ('label = "y"\nclasses = ["a"]\n[columns]\nx = {kind = "flag"}', "at least 2"),
        ('label = 3\nclasses = ["a", "b"]\n[columns]\nx = {kind = "flag"}', "`label` must be the name of a column"),
        ('missing = "NA"\n[columns]\nx = {kind = "flag"}', "`missing` must be a list of texts"),
    ],
)
def test_a_fault_is_named_with_its_column(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        Schema.from_toml(text)
    assert message in str(caught.value)


def test_columns_are_matched_by_name_in_any_order() -> None:
    schema = Schema(columns={"a": Flag(), "b": Flag()}, label="y", classes=("1", "2"), unit="u", ignore=("i",))
    found = schema.match(table("i", "u", "b", "y", "a"), role="private.csv", need_label=True, need_unit=True)
    assert found.names == ("a", "b", "y", "u")
    assert schema.match(table("b", "a"), role="new.csv").names == ("a", "b")


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["age", "ocupation"], ['there is no column "occupation", but "ocupation" looks like it']),
        (["age", "Occupation"], ['there is no column "occupation", but "Occupation" looks like it']),
        (["age"], ['missing: "occupation"']),
        (["age", "occupation", "zip"], ['not in the schema: "zip"', "`ignore`"]),
        (["age", "zip"], ['missing: "occupation"', 'not in the schema: "zip"']),
    ],
)
def test_missing_extra_and_misspelt_columns_are_named(names: list[str], said: list[str]) -> None:
    schema = Schema(columns={"age": Number(low=0, high=100), "occupation": Category(values=("nurse",))})
    with pytest.raises(DataError) as caught:
        schema.match(table(*names), role="public.csv")
    assert str(caught.value).startswith("public.csv: ")
    for words in said:
        assert words in str(caught.value)


def test_label_and_unit_are_wanted_where_they_are_needed() -> None:
    schema = Schema(columns={"a": Flag()}, label="income", classes=("1", "2"), unit="member")
    for needed, word in ({"need_label": True}, "income"), ({"need_unit": True}, "member"):
        with pytest.raises(DataError, match=f'missing: "{word}"'):
            schema.match(table("a"), role="private.csv", **needed)
    plain = Schema(columns={"a": Flag()})
    for needed, word in ({"need_label": True}, "label"), ({"need_unit": True}, "unit"):
        with pytest.raises(InputError, match=f"The schema has no {word}"):
            plain.match(table("a"), role="private.csv", **needed)


def test_a_file_without_a_header_is_not_quoted() -> None:
    """Its first line is a private row."""
    with pytest.raises(DataError) as caught:
        ALL.match(table("47", "nurse", "secret"), role="private.csv")
    assert "Does the file start with a line of column names?" in str(caught.value)
    assert not {"47", "secret"} & set(str(caught.value).replace('"', " ").split())


def test_names_are_compared_before_a_cell_is_read(tmp_path: Any) -> None:
    file = tmp_path / "private.csv"
    file.write_text("age,jb\n1,2\n")
    read = read_table(file)
    file.unlink()
    with pytest.raises(DataError, match="looks like it"):
        Schema(columns={"age": Flag(), "job": Flag()}).match(read, role="private.csv")


def test_the_page_shows_what_is_so() -> None:
    page = (Path(__file__).parents[2] / "docs" / "schema.md").read_text()
    toml = re.findall(r"```toml\n(.*?)```", page, flags=re.DOTALL)
    shown = Schema.from_toml(toml[0])
    assert [type(kind) for kind in shown.columns.values()] == [Number, Category, Number, Date]
    drafted = draft(table("a"), source="public.csv").to_toml()
    assert toml[0].startswith(
        drafted.partition("missing = ")[0].removesuffix("# a cell that holds one of these, in any case, is missing\n")
    )
    assert shown.missing == MISSING
    schema = Schema(columns={"age": Flag(), "occupation": Flag()})
    with pytest.raises(DataError) as caught:
        schema.match(table("age", "ocupation", "zip"), role="private.csv")
    assert f"\n{caught.value}\n" in page


def test_a_file_is_named_where_it_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(ALL.to_toml(), encoding="utf-8")
    assert Schema.from_file(path) == Schema.from_file(str(path)) == ALL
    path.write_text("columns = 3")
    with pytest.raises(InputError, match=r"^mine\.toml: The schema has no table `columns`"):
        Schema.from_file(path)
    path.write_bytes(b"\xff")
    with pytest.raises(InputError, match=r"^mine\.toml: "):
        Schema.from_file(path)
    with pytest.raises(InputError, match=r"mine2\.toml: there is no such file"):
        Schema.from_file(tmp_path / "mine2.toml")


@pytest.mark.parametrize("module", [terrine.schema.schema, terrine.schema.encoder])
def test_examples_in_docstrings(module: Any) -> None:
    found = doctest.testmod(module)
    assert (found.failed, found.attempted > 0) == (0, True)
