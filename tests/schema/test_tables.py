"""Tables are read whatever their cells hold; frames and files with the same cells are the same table."""

from __future__ import annotations

import bz2
import datetime
import gzip
import lzma
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from terrine.errors import DataError, InputError
from terrine.schema import Encoder, Number, Schema, Table, draft, labels, read_table, units
from terrine.schema.utf8 import not_utf8, refuse_not_utf8, utf8_advice


def cells(table: Table) -> dict[str, list[Any]]:
    return {name: table.column(name).tolist() for name in table.names}


def written(folder: Path, content: bytes | str, name: str = "t.csv") -> Table:
    file = folder / name
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    return read_table(file)


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_the_header_decides_what_separates_cells(tmp_path: Path, separator: str) -> None:
    text = '"a,b;c",d,e\n1,"x,y",3\n'.replace(",", separator)
    found = cells(written(tmp_path, text))
    assert found == {f"a{separator}b;c": ["1"], "d": [f"x{separator}y"], "e": ["3"]}


def test_a_tsv_has_tabs(tmp_path: Path) -> None:
    assert cells(written(tmp_path, "a,b\tc\n1,2\t3\n", "t.tsv")) == {"a,b": ["1,2"], "c": ["3"]}


@pytest.mark.parametrize(("ending", "pack"), [("gz", gzip), ("bz2", bz2), ("xz", lzma)])
def test_packed_files(tmp_path: Path, ending: str, pack: Any) -> None:
    assert cells(written(tmp_path, pack.compress(b"a,b\n1,2\n"), f"t.csv.{ending}")) == {"a": ["1"], "b": ["2"]}
    with pytest.raises(DataError, match=f"t.csv.{ending}: the file is damaged"):
        len(written(tmp_path, pack.compress(b"a,b\n" + b"1,2\n" * 9_000)[:-20], f"t.csv.{ending}"))


@pytest.mark.parametrize(
    ("body", "found"),
    [
        (b"1,2\n", [["1", "2"]]),
        (b"1\n", [["1", ""]]),
        (b"1,2,3,4\n", [["1", "2"]]),
        (b"\n\n1,2\n\n", [["1", "2"]]),
        (b"1,2", [["1", "2"]]),
        (b"1,2\r\n3,4\r\n", [["1", "2"], ["3", "4"]]),
        (b"1,\xff\xfe\n", [["1", "\ufffd\ufffd"]]),
        (b"1,a\x00b\n", [["1", "a\ufffdb"]]),
        (b'1,"two\nlines"\n3,4\n', [["1", "two\nlines"], ["3", "4"]]),
        (b'1,"open\n3,4\n', [["1", "open\n3,4\n"]]),
        (b'1,a"b\n', [["1", 'a"b']]),
        (b'"1"x,2\n', [["1x", "2"]]),
        (b"1," + b"x" * 200_000 + b"\n", [["1", "x" * 200_000]]),  # beyond Python's limit of a cell
        (b"", []),
    ],
)
def test_no_line_is_refused(tmp_path: Path, body: bytes, found: list[list[str]]) -> None:
    table = written(tmp_path, b"\xef\xbb\xbfa, b \n" + body)
    assert table.names == ("a", "b")
    assert [list(row) for row in zip(*cells(table).values(), strict=True)] == found
    assert len(table) == len(found)


def test_lines_are_those_of_the_file(tmp_path: Path) -> None:
    table = written(tmp_path, '\n\na,b\n1,2\n\n3,"4\n4"\n5\n6,7,8\n')
    assert table.lines is not None
    assert table.lines.tolist() == [4, 6, 8, 9]
    assert table.ragged.tolist() == [2, 3]


def test_many_lines_are_read_in_pieces(tmp_path: Path) -> None:
    table = written(tmp_path, "a,b\n" + "".join(f"{k},x\n" for k in range(45_000)))
    assert table.column("a").tolist() == [str(k) for k in range(45_000)]
    assert table.take([3, 1]).column("a").tolist() == ["3", "1"]


@pytest.mark.parametrize(
    ("content", "name", "message"),
    [
        (b"", "t.csv", "t.csv: there is no header"),
        (b"\n\n", "t.csv", "t.csv: there is no header"),
        (b"a,b,a\n1,2,3\n", "t.csv", "t.csv: columns 1 and 3 have the same name"),
        (b"a", "t.doc", "t.doc: the name must end as"),
        (b"a", "t.parquet", "t.parquet: it cannot be read as a Parquet file"),
    ],
)
def test_what_is_no_table_is_refused(tmp_path: Path, content: bytes, name: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        written(tmp_path, content, name)
    with pytest.raises(DataError, match="there is no such file"):
        read_table(tmp_path / "none.csv")


def test_an_open_quote_in_the_header_does_not_reach_into_the_rows(tmp_path: Path) -> None:
    table = written(tmp_path, 'a,"b\n1,2\n3,4\n')
    assert table.names == ("a", "b")
    assert cells(table) == {"a": ["1", "3"], "b": ["2", "4"]}


def test_neither_cells_nor_their_number_are_printed(tmp_path: Path) -> None:
    table = written(tmp_path, "age,job\n47,nurse\n48,baker\n")
    assert repr(table) == "<Table: columns 'age', 'job'>"
    assert len(table) == 2
    assert repr(table) == "<Table: columns 'age', 'job'>"


DAY = datetime.date(2020, 5, 17)
FRAME = {
    "whole": [1, 2, None, 4],
    "real": [0.5, None, 2.25, 4.0],
    "word": ["x", None, "ÿ", ""],
    "flag": [True, False, None, True],
    "day": [DAY, None, DAY, DAY],
    "label": ["no", "yes", None, "no"],
    "who": [7, 8, 7, None],
}


def frames() -> dict[str, Any]:
    plain = pd.DataFrame(FRAME)
    nullable = plain.astype({"whole": "Int64", "who": "Int64", "real": "Float64", "flag": "boolean"})
    timed = plain.assign(day=pd.to_datetime(plain["day"]), label=plain["label"].astype("category"))
    return {
        "pandas": plain,
        "pandas nullable": nullable,
        "pandas datetime, category": timed,
        "pandas arrow": pa.table(FRAME).to_pandas(types_mapper=pd.ArrowDtype),
        "pandas object": plain.astype(object),
        "polars": pl.DataFrame(FRAME),
        "polars category": pl.DataFrame(FRAME).with_columns(pl.col("label").cast(pl.Categorical)),
        "arrow": pa.table(FRAME),
        "arrow dictionary": pa.table({**FRAME, "label": pa.array(FRAME["label"]).dictionary_encode()}),
        "lists": FRAME,
    }


@pytest.mark.parametrize("name", frames())
def test_a_frame_of_any_kind_is_read_as_its_csv(tmp_path: Path, name: str) -> None:
    """One odd cell turns whole numbers into floats in pandas; they are the same units, labels and features."""
    file = tmp_path / "t.csv"
    pl.DataFrame(FRAME).write_csv(file)
    from_file, from_frame = read_table(file), read_table(frames()[name])
    assert from_frame.names == from_file.names == tuple(FRAME)
    schema = draft(from_file, label="label", classes=["no", "yes"], unit="who")
    encoder = Encoder.fit(schema, from_file)
    assert np.array_equal(encoder.transform(from_frame), encoder.transform(from_file))
    assert labels(from_frame, schema).tolist() == [0, 1, -1, 0]
    assert units(from_frame, schema).tolist() == ["7", "8", "7", ""]


def test_parquet_is_read_as_its_csv(tmp_path: Path) -> None:
    pq.write_table(pa.table(FRAME), tmp_path / "t.parquet")
    pl.DataFrame(FRAME).write_csv(tmp_path / "t.csv")
    one, other = (read_table(tmp_path / f"t.{ending}") for ending in ("parquet", "csv"))
    schema = draft(one, label="label", classes=["no", "yes"], unit="who")
    encoder = Encoder.fit(schema, one)
    assert np.array_equal(encoder.transform(one), encoder.transform(other))
    assert units(one, schema).tolist() == ["7", "8", "7", ""]


def test_large_whole_numbers_keep_their_digits() -> None:
    large = [2**62 + 1, 2**62 + 2]
    schema = Schema.from_toml('unit = "who"\n[columns]\nx = {kind = "flag"}')
    for frame in (pl.DataFrame, pd.DataFrame, pa.table):
        assert units(read_table(frame({"who": large, "x": [0, 1]})), schema).tolist() == [str(one) for one in large]
    with_gap = read_table(pl.DataFrame({"who": [*large, None], "x": [0, 1, 1]}))
    assert units(with_gap, schema).tolist() == [*(str(one) for one in large), ""]
    unsigned = pl.DataFrame({"who": pl.Series([2**64 - 1], dtype=pl.UInt64), "x": [0]})
    assert units(read_table(unsigned), schema).tolist() == [str(2**64 - 1)]


def test_odd_objects_in_a_frame_do_not_raise() -> None:
    class Odd:
        def __str__(self) -> str:
            raise RuntimeError("secret")

    frame = pd.DataFrame({"a": pd.Series([Odd(), b"\xff", "\ud800", pd.NaT, pd.NA, [1], np.float64(3)], dtype=object)})
    assert read_table(frame).column("a").tolist() == ["", "\ufffd", "?", "", "", "[1]", "3"]


def test_what_is_no_frame_is_refused() -> None:
    with pytest.raises(InputError, match="ndarray is none of them"):
        read_table(np.zeros((2, 2)))
    with pytest.raises(InputError, match="one length"):
        read_table({"a": [1], "b": [1, 2]})
    with pytest.raises(InputError, match="list of cells"):
        read_table({"a": "text"})
    for empty in ({}, pd.DataFrame()):
        with pytest.raises(InputError, match="at least one column"):
            read_table(empty)


def test_a_folder_of_texts(tmp_path: Path) -> None:
    for path, text in {
        "good/ann_1.txt": "I like it",
        "bad/bob_1.txt": "No\0 \udcff",
        "bad/deep/ann_2.txt": "",
        "loose.txt": "no label",
        ".hidden/x.txt": "left out",
        "good/notes.md": "left out",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text, errors="surrogateescape")
    table = read_table(tmp_path, unit=r"^([a-z]+)_")
    assert cells(table) == {
        "text": ["No\ufffd \ufffd", "", "I like it", "no label"],
        "label": ["bad", "bad", "good", ""],
        "unit": ["bob", "ann", "ann", ""],
    }
    assert read_table(tmp_path).names == ("text", "label")
    for bad in ("(", "no group"):
        with pytest.raises(InputError, match="one group"):
            read_table(tmp_path, unit=bad)
    with pytest.raises(InputError, match="a table has a column"):
        read_table({"a": [1]}, unit="(a)")


@pytest.mark.parametrize(
    ("content", "line", "in_header"),
    [
        ("a,b\nx,ü\n".encode(), None, None),
        ("\ufeffa,b\r\nx,ü\r\n".encode(), None, None),
        ("a,b\r\nx,y\r\nx,ü\r\n".encode("cp1252"), 3, None),
        ("a,b\rx,ü\r".encode("cp1252"), 2, None),
        ("\r\rä,b\rx,y\r".encode("cp1252"), 3, 3),
        ("\nä,b\nx,y\n".encode("cp1252"), 2, 2),
        ("a,b\n".encode("utf-16"), 1, 1),
        (b"", None, None),
    ],
)
def test_the_first_line_with_bytes_that_are_not_utf8(
    tmp_path: Path, content: bytes, line: int | None, in_header: int | None
) -> None:
    for name, packed in (("t.csv", content), ("t.csv.gz", gzip.compress(content))):
        (tmp_path / name).write_bytes(packed)
        assert not_utf8(tmp_path / name) == line
        assert not_utf8(tmp_path / name, header=True) == in_header
    if line is not None:
        with pytest.raises(DataError, match=rf"t\.csv, line {line}: there are bytes that are not UTF-8"):
            refuse_not_utf8(tmp_path / "t.csv")
        wide = content[:2] == b"\xff\xfe"
        assert f"iconv -f {'utf-16' if wide else 'cp1252'}" in utf8_advice(tmp_path / "t.csv")
        assert "once it is unpacked" in utf8_advice(tmp_path / "t.csv.gz")
    assert not_utf8(tmp_path) is None


COMMA = Schema(columns={"size": Number(low=0, high=200_000, decimal=",", blanks=True)})


@pytest.mark.parametrize(
    ("cells", "read"),
    [
        ([136.901, 7.5], [136.901, 7.5]),
        ([136.901, None, 12], [136.901, None, 12]),
        ([136.901, "1.234,5", "1.234", 1234, True, ""], [136.901, 1234.5, 1234, 1234, None, None]),
        ([1.5e-7, "x"], [1.5e-7, None]),
        ([Decimal("136.901"), 1], [136.901, 1]),
        ([136, 901], [136, 901]),
        (["136.901", "136,901"], [136_901, 136.901]),
    ],
)
def test_a_number_is_the_number_it_is_whatever_the_decimal_mark_of_texts(cells: list[Any], read: list[Any]) -> None:
    encoder = Encoder.fit(COMMA, read_table({"size": ["1,5", "2,5"]}))
    tables = [read_table({"size": cells}), read_table(pd.DataFrame({"size": pd.Series(cells, dtype=object)}))]
    tables += [tables[0].take(np.arange(len(cells))), COMMA.match(tables[0], role="t")]
    for table in tables:
        found = encoder.transform(table)
        assert found[:, 1].tolist() == [one is None for one in read]
        given = [k for k, one in enumerate(read) if one is not None]
        assert found[given, 0] == pytest.approx([read[k] / 200_000 for k in given])
    if all(one is not None for one in read) and not isinstance(cells[0], str):
        frame = pd.DataFrame({"size": [float(one) for one in cells]})
        assert encoder.transform(frame_table := read_table(frame))[:, 0] == pytest.approx(np.array(read) / 200_000)
        assert frame_table.column("size").dtype == np.float64
