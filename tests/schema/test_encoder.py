"""Rows become finite numbers by public knowledge alone; each by itself."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import HashingVectorizer, TfidfTransformer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer

from terrine.errors import DataError
from terrine.schema import (
    Category,
    Date,
    Encoder,
    Flag,
    Number,
    Ordered,
    Schema,
    Table,
    Text,
    check,
    draft,
    labels,
    read_table,
    units,
)

TEXTS = ["the film was good", "the film was bad", "a good book", "a bad book, really bad", "nothing", "film and book"]


def encoded(kind: Any, cells: list[Any], public: list[Any] | None = None, **options: Any) -> dict[str, list[float]]:
    schema = Schema(columns={"x": kind}, **options)
    encoder = Encoder.fit(schema, read_table({"x": cells if public is None else public}))
    found = encoder.transform(read_table({"x": cells}))
    assert found.dtype == np.float32
    return {name: np.round(found[:, k].astype(float), 4).tolist() for k, name in enumerate(encoder.names)}


def test_numbers_are_scaled_and_clipped_and_the_missing_are_typical() -> None:
    found = encoded(Number(low=0, high=100), ["50", "-7", "1e9", "", "n/a", "x", "inf", "-inf"], ["10", "20", "90", ""])
    assert found == {
        "x": [0.5, 0, 1, 0.2, 0.2, 0.2, 1, 0],
        "x is missing": [0, 0, 0, 1, 1, 1, 0, 0],
    }
    assert encoded(Number(low=0, high=10, blanks=False), ["5", ""]) == {"x": [0.5, 0.5]}
    assert encoded(Number(low=0, high=10, blanks=False), ["", "?"]) == {"x": [0.5, 0.5]}  # nothing is typical


def test_numbers_on_a_logarithmic_scale() -> None:
    found = encoded(Number(low=-1, high=98, scale="log", blanks=False), ["-1", "8", "98", "-5"])
    assert found == {"x": [0, 0.5, 1, 0]}


@pytest.mark.parametrize(
    ("cell", "decimal", "value"),
    [
        ("1_000", ".", None),
        ("1,000", ".", 1000),
        ("0,123", ".", None),  # no thousand begins with 0
        ("0.123", ",", None),
        ("-0.500", ",", None),
        ("1,00", ".", None),
        ("١٢", ".", 12),  # Python reads any digits
        (" 7 ", ".", 7),
        ("nan", ".", None),
        ("1.000,5", ",", 1000.5),
        ("05.01.2013", ",", None),
        ("", ",", None),
        ("1.5", ",", None),
    ],
)
def test_numbers_as_text(cell: str, decimal: Any, value: float | None) -> None:
    found = encoded(Number(low=0, high=2000, decimal=decimal), [cell], ["0"])
    assert found == {"x": [round((value or 0) / 2000, 4)], "x is missing": [value is None]}


def test_categories_have_a_column_each_and_one_for_all_others() -> None:
    kind = Category(values=("a", "none"))
    assert encoded(kind, ["a", " a ", "A", "none", "", "?", "zzz"]) == {
        "x = a": [1, 1, 0, 0, 0, 0, 0],
        "x = none": [0, 0, 0, 1, 0, 0, 0],  # listed, so not missing
        "x = other": [0, 0, 1, 0, 0, 0, 1],
        "x is missing": [0, 0, 0, 0, 1, 1, 0],
    }
    no_blanks = encoded(Category(values=("other", "b"), blanks=False), ["b", "", "zzz", "other"])
    assert no_blanks == {"x = other": [0, 1, 1, 1], "x = b": [1, 0, 0, 0]}
    numbers = Category(values=("1", "2.0"), blanks=False)  # 1.0: what pandas makes of 1 where one is missing
    assert encoded(numbers, ["1", "1.0", "2", "2.0"])["x = other"] == [0, 0, 1, 0]


def test_ordered_values_are_ranks() -> None:
    found = encoded(Ordered(values=("S", "M", "L")), ["S", "M", "L", "", "XL"], ["L", "L", "S"])
    assert found == {"x": [0, 0.5, 1, 1, 1], "x is missing": [0, 0, 0, 1, 1]}


def test_flags() -> None:
    found = encoded(Flag(), ["yes", "TRUE", "1", "t", "Y", "1.0", "no", "False", "0", "f", "n", "", "maybe"])
    assert found == {"x": [1] * 6 + [0] * 5 + [0.5] * 2, "x is missing": [0] * 11 + [1] * 2}


def test_dates_are_a_time_and_places_on_circles() -> None:
    kind = Date(low="2020-01-01", high="2021-01-01", format="%d.%m.%Y", cycles=("month", "weekday", "hour"))
    cells = ["01.01.2020", "2020-07-01", "2030-01-01", "", "31.02.2020", "2020-07-01T12:00:00"]
    found = encoded(kind, cells, ["2020-07-01", "2020-07-01"])
    assert found["x"] == pytest.approx([0, 182 / 366, 1, 182 / 366, 182 / 366, 182.5 / 366], abs=1e-4)
    assert found["x is missing"] == [0, 0, 0, 1, 1, 0]
    assert found["x, month (cos)"] == [1, 0, 1, 0.5, 0.5, 0]  # January, July; unknown in the middle
    assert found["x, hour (cos)"] == [1, 1, 1, 0.5, 0.5, 0]
    assert found["x, weekday (sin)"][:2] == pytest.approx([np.float32(0.5 + np.sin(4 * np.pi / 7) / 2)] * 2, abs=1e-4)
    early = encoded(
        Date(low="1901-01-01", high="1902-01-01", cycles=("month", "weekday")), ["1901-06-30", "1901-12-31"]
    )
    assert early["x, month (sin)"] == [round(0.5 + np.sin(2 * np.pi * m / 12) / 2, 4) for m in (5, 11)]
    utc = encoded(Date(low="2020-01-01", high="2020-01-03"), ["2020-01-02T00:00:00+12:00", "2020-01-01T12:00:00"])
    assert utc["x"] == [0.25, 0.25]


def test_texts_are_near_where_they_share_words() -> None:
    encoder = Encoder.fit(Schema(columns={"x": Text(dimensions=4)}), read_table({"x": TEXTS * 3}))
    assert encoder.names == ("x 1", "x 2", "x 3", "x 4", "x is missing")
    found = encoder.transform(read_table({"x": ["good film", "GOOD film!", "bad bad book", "", "zzz", "film good"]}))
    near = found[:, :4] @ found[:, :4].T
    assert np.array_equal(found[0], found[1])
    assert near[0, 5] > 0.9 > near[0, 2]
    assert found[3].tolist() == [0, 0, 0, 0, 1]
    assert found[4].tolist() == [0, 0, 0, 0, 0]  # no public text has the word
    assert np.allclose(np.diag(near)[[0, 2]], 1)


def test_texts_are_what_scikit_learn_makes_of_them() -> None:
    """Cosines of hashed tf-idf rows after a truncated SVD; its directions are unique but for rotations among equals."""
    public = [f"{text} {k % 3} {'film ' * (k % 5)}" for k, text in enumerate(TEXTS * 4)]
    steps = [
        HashingVectorizer(
            n_features=2**15, ngram_range=(1, 2), token_pattern=r"(?u)\b\w+\b", norm=None, alternate_sign=False
        ),
        TfidfTransformer(sublinear_tf=True),
        TruncatedSVD(5, n_iter=20, random_state=1),
        Normalizer(),
    ]
    expected = make_pipeline(*steps).fit(public).transform(public)
    encoder = Encoder.fit(Schema(columns={"x": Text(dimensions=5, blanks=False)}), read_table({"x": public}))
    found = encoder.transform(read_table({"x": public}))
    assert np.allclose(found @ found.T, expected @ expected.T, atol=0.02)


def test_pieces_of_words_forgive_spelling() -> None:
    names = ["Katherine", "Catherine", "Jonathan", "Johnathan", "Mehmet", "Mahmut", "Ulrike", "Ulrika"] * 3
    encoder = Encoder.fit(Schema(columns={"x": Text(dimensions=7, characters=True)}), read_table({"x": names}))
    found = encoder.transform(read_table({"x": ["Catherin", "Katherine", "Mehmet"]}))[:, :7]
    assert found[0] @ found[1] > 0.5 > found[0] @ found[2]


@pytest.mark.parametrize("public", [[""], ["one"], ["", "", "a b"], ["same", "same"]])
def test_few_public_texts_have_fewer_dimensions(public: list[str]) -> None:
    found = encoded(Text(dimensions=8), ["same", "a b", ""], public)
    assert len(found) <= 2
    assert np.isfinite([*found.values()]).all()


MIXED = {
    "age": ["17", "90", "", "40"] * 10,
    "pay": ["0"] * 38 + ["50", "99999"],
    "job": ["nurse", "baker", "", "smith"] * 10,
    "band": ["0-9", "10-19", "20+", "10-19"] * 10,
    "seen": ["2020-01-05 10:00", "2020-03-07 12:00", "", "2020-02-02 11:30"] * 10,
    "ok": ["yes", "no", "", "no"] * 10,
    "note": [f"{text}, {k}" for k in range(10) for text in TEXTS[:4]],
}


def mixed() -> tuple[Schema, Table]:
    public = read_table(MIXED)
    schema = draft(public, label="ill", classes=["no", "yes"], unit="who")
    kinds = {Number, Category, Ordered, Date, Flag, Text}
    assert {type(kind) for kind in schema.columns.values()} == kinds
    return schema, public


SCHEMA, PUBLIC = mixed()
ENCODER = Encoder.fit(SCHEMA, PUBLIC)
HEADER = ",".join(['"who"', "ill", *SCHEMA.columns]).encode() + b"\n"


def test_what_is_stored_encodes_bit_by_bit_as_before() -> None:
    files = ENCODER.files()
    assert set(files) == {"schema.toml", "encoder.npz"}
    again = Encoder.from_files(files)
    assert again.names == ENCODER.names
    assert again.files() == files
    assert np.array_equal(again.transform(PUBLIC), ENCODER.transform(PUBLIC))
    assert Encoder.fit(SCHEMA, PUBLIC).files() == files  # the same public rows, the same encoder


def test_stored_files_that_do_not_belong_together_are_refused() -> None:
    files = ENCODER.files()
    other = Encoder.fit(Schema(columns={"a": Flag()}), read_table({"a": ["1"]})).files()
    for bad, message in (
        ({"schema.toml": files["schema.toml"]}, "encoder.npz is missing"),
        ({**files, "schema.toml": other["schema.toml"]}, "was changed after"),
        ({**files, "schema.toml": b"\xff"}, "schema.toml: "),
        ({**files, "encoder.npz": files["encoder.npz"][:-30]}, "damaged"),
        ({**files, "encoder.npz": b""}, "damaged"),
    ):
        with pytest.raises(DataError, match=message):
            Encoder.from_files(bad)


@pytest.mark.parametrize("change", ["typical", "6.idf", "6.components", "6.buckets"])
def test_arrays_of_another_shape_are_refused(change: str) -> None:
    arrays = dict(ENCODER._arrays)
    assert change in arrays
    for wrong in ({**arrays, change: arrays[change][:-1]}, {k: v for k, v in arrays.items() if k != change}):
        with pytest.raises(DataError, match="do not fit the schema"):
            Encoder.from_files(Encoder(SCHEMA, wrong).files())


def test_an_encoder_learns_from_the_public_rows_and_from_nothing_else() -> None:
    before = {name: array.copy() for name, array in ENCODER._arrays.items()}
    ENCODER.transform(read_table({name: ["odd", "1e9"] for name in SCHEMA.columns}))
    assert all(np.array_equal(before[name], array) for name, array in ENCODER._arrays.items())
    with pytest.raises(DataError, match="no rows to learn from"):
        Encoder.fit(SCHEMA, read_table({name: [] for name in SCHEMA.columns}))


def test_an_encoder_refuses_a_table_by_its_header(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r'new\.csv: missing: "age"'):
        ENCODER.transform(PUBLIC.select([*SCHEMA.columns][1:]), role="new.csv")
    backwards = PUBLIC.select([*reversed(SCHEMA.columns)])
    assert np.array_equal(ENCODER.transform(backwards), ENCODER.transform(PUBLIC))
    assert ENCODER.transform(read_table({name: [] for name in SCHEMA.columns})).shape == (0, ENCODER.n_features)


CELL = st.one_of(
    st.sampled_from([cell for cells in MIXED.values() for cell in cells[:4]]),
    st.text(max_size=8),
    st.floats(allow_nan=True).map(str),
    st.sampled_from(["NA", "1e400", "-1e400", "9999-12-31T23:59:59", "0001-01-01T00:00:00+23:59", "1.0", '"', "\0"]),
)


@settings(max_examples=200 if os.environ.get("TERRINE_SOAK") == "1" else 40)
@given(st.lists(st.tuples(*(CELL for _ in SCHEMA.columns)), min_size=2, max_size=6))
def test_a_row_has_the_numbers_that_it_has_alone(rows: list[tuple[str, ...]]) -> None:
    """Bit by bit, whatever rows stand beside it, and they are all finite."""

    def table(some: list[tuple[str, ...]]) -> Table:
        return read_table(
            {name: list(cells) for name, cells in zip(SCHEMA.columns, zip(*some, strict=True), strict=True)}
        )

    together = ENCODER.transform(table(rows))
    assert np.isfinite(together).all()
    assert (np.abs(together) <= 1 + 1e-6).all()
    for k, row in enumerate(rows):
        assert np.array_equal(ENCODER.transform(table([row]))[0], together[k])
    many = table([*rows, *(rows[0] for _ in range(1000))])
    assert np.array_equal(ENCODER.transform(many)[: len(rows)], together)


@pytest.mark.parametrize(
    "cells", [np.array([0.0, -0.0, np.nan, np.inf, -np.inf, 1e308]), np.array([0, 1, -(2**63), 2**63 - 1, 5, 6])]
)
def test_numbers_of_a_frame_are_finite_in_a_column_of_any_kind(cells: Any) -> None:
    table = read_table(dict.fromkeys(SCHEMA.columns, cells))
    found = ENCODER.transform(table)
    assert np.isfinite(found).all()
    for k in range(len(cells)):
        assert np.array_equal(ENCODER.transform(table.take([k]))[0], found[k])
    as_text = read_table({name: [repr(cell) for cell in cells.tolist()] for name in SCHEMA.columns})
    numbers = [k for k, name in enumerate(ENCODER.names) if name.startswith(("age", "pay"))]
    assert np.array_equal(ENCODER.transform(as_text)[:, numbers], found[:, numbers])


BODY = st.one_of(
    st.binary(max_size=300),
    st.lists(st.sampled_from([b",", b"\n", b'"', b"\r", b"\0", b"\xff", b"yes", b"17", b"2020-01-05", b" "])).map(
        b"".join
    ),
)


@settings(max_examples=500 if os.environ.get("TERRINE_SOAK") == "1" else 60)
@given(BODY)
def test_no_bytes_below_the_header_raise(body: bytes) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "private.csv"
        file.write_bytes(HEADER + body)
        table = SCHEMA.match(read_table(file), role="private.csv", need_label=True, need_unit=True)
        found = ENCODER.transform(table)
        assert np.isfinite(found).all()
        assert len(found) == len(labels(table, SCHEMA)) == len(units(table, SCHEMA)) == len(table)
        assert set(labels(table, SCHEMA)) <= {-1, 0, 1}
        check(SCHEMA, read_table(file))


def test_labels_and_units() -> None:
    table = read_table(
        {"x": [1] * 6, "ill": ["no", " yes ", "", "NA", "perhaps", "No"], "who": ["1", " 2", "", "?", "x" * 500, "1"]}
    )
    schema = Schema(columns={"x": Flag()}, label="ill", classes=("no", "yes"), unit="who")
    assert labels(table, schema).tolist() == [0, 1, -1, -1, -1, -1]
    found = units(table, schema)
    assert found[:4].tolist() == ["1", "2", "", ""]
    assert found[4].startswith("sha256:")
    assert found.dtype.itemsize <= 4 * 100
    ones = Schema(columns={"x": Flag()}, label="ill", classes=("0", "1"))
    assert labels(read_table({"x": [1, 1, 1], "ill": [0.0, 1.0, np.nan]}), ones).tolist() == [0, 1, -1]
    none = Schema(columns={"x": Flag()}, label="ill", classes=("none", "some"))
    assert labels(read_table({"x": [1, 1], "ill": ["none", "null"]}), none).tolist() == [0, -1]
