"""One person's odd id moves nobody else, whatever door it comes through: it is refused, or only that person moves."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.tree import DecisionTreeClassifier

from terrine.datasets import PrivateData
from terrine.datasets.labels import known_indices, named_classes
from terrine.datasets.readers import read_private
from terrine.errors import InputError
from terrine.estimator import PATEClassifier
from terrine.mechanisms import GNMax
from terrine.partitioning import partition
from terrine.schema import Encoder, Number, Schema, read_table

KEY = bytes(range(32))
N = 400
ODD = 17  # the row of the person who is odd
SECRET = "p17x"
NUMBERS = list(range(1000, 1000 + N))
WORDS = [f"person {k}" for k in range(N)]


SCHEMA = Schema(columns={"age": Number(low=0, high=10)}, label="ill", classes=("no", "yes"), unit="who")
ENCODER = Encoder.fit(SCHEMA, read_table({"age": [1, 2]}))


def dealt(unit: Any) -> list[int]:
    n = N - 1 if isinstance(unit, np.ndarray) and unit.dtype.kind == "U" and len(unit) == N - 1 else N
    data = PrivateData(np.zeros((n, 1)), np.zeros(n, dtype=int), unit=unit)
    return partition(data, n_teachers=50, key=KEY, min_units=0).assignment.tolist()


def frame(ids: list[Any]) -> Any:
    return pd.DataFrame({"who": ids})["who"]


def table(write: Callable[[Path, list[Any]], None], suffix: str) -> Callable[[list[Any], Path], Any]:
    def read(ids: list[Any], folder: Path) -> Any:
        path = folder / f"rows{suffix}"
        write(path, ids)
        return read_private(path, encoder=ENCODER).unit

    return read


def write_csv(path: Path, ids: list[Any]) -> None:
    rows = [f"{k % 7},{'' if one is None else one},no" for k, one in enumerate(ids)]
    path.write_text("\n".join(["age,who,ill", *rows]))


def write_parquet(path: Path, ids: list[Any]) -> None:
    """As pandas would, where it can: a column has one type."""
    column = pa.array(pd.Series(ids), from_pandas=True)
    pq.write_table(pa.table({"age": [0.5] * N, "who": column, "ill": ["no"] * N}), path)


DOORS: dict[str, Callable[[list[Any], Path], Any]] = {
    "list": lambda ids, _: ids,
    "tuple": lambda ids, _: tuple(ids),
    "object array": lambda ids, _: np.array(ids, dtype=object),
    "column of a frame": lambda ids, _: frame(ids),
    "object column": lambda ids, _: pd.Series(ids, dtype=object),
    "category column": lambda ids, _: pd.Series(ids, dtype=object).astype("category"),
    "index": lambda ids, _: pd.Index(ids),
    "arrow array": lambda ids, _: pa.array(ids),
    "csv": table(write_csv, ".csv"),
    "parquet": table(write_parquet, ".parquet"),
}
STRANGE: dict[str, Any] = {
    "text": SECRET,
    "a number": 12345678,
    "digits": "1017",
    "none": None,
    "nan": float("nan"),
    "not a time": pd.NaT,
    "missing": pd.NA,
    "empty": "",
    "blank": "   ",
    "a fraction": 17.5,
    "a whole float": 1017.0,
    "true": True,
    "large": 2**70,
    "just too large": 2**63,
    "bytes": b"p17x",
    "a day": datetime.date(2001, 2, 3),
    "decimal": Decimal("17.25"),
    "blanks around": f" {SECRET} ",
    "long": SECRET * 2000,
}


@pytest.mark.parametrize("usual", [NUMBERS, WORDS], ids=["numbers", "words"])
@pytest.mark.parametrize("strange", STRANGE)
@pytest.mark.parametrize("door", DOORS)
def test_an_odd_id_is_refused_or_moves_its_own_rows_only(
    door: str, strange: str, usual: list[Any], tmp_path: Path
) -> None:
    before = dealt(DOORS[door](usual, tmp_path))
    odd = [*usual[:ODD], STRANGE[strange], *usual[ODD + 1 :]]
    try:
        ids = DOORS[door](odd, tmp_path)
    except InputError as refused:
        after, said = None, str(refused)
    except Exception:  # pandas or arrow have no such column
        return
    else:
        try:
            after, said = dealt(ids), ""
        except InputError as refused:
            after, said = None, str(refused)
    if after is None:
        assert "\n" not in said
        assert not any(word in said for word in (SECRET, "17.5", "2001", "17.25", "1017", "12345678", "nan", "NaT"))
        return
    del before[ODD]
    if len(after) == N:  # else the row was nobody's, and is left out
        del after[ODD]
    assert after == before


@pytest.mark.parametrize(
    ("ids", "said"),
    [
        ([*NUMBERS[:-1], SECRET], "in row 399 is text, and the first one is a whole number. Write all of them as text"),
        ([SECRET, *NUMBERS[1:]], "id in row 1 is a whole number, and the first one is text"),
        (
            [*NUMBERS[:-1], None],
            "id in row 399 is missing, .* Write all ids as text, and leave out rows that have none",
        ),
        ([None, *WORDS[1:]], "id in row 0 is missing, or neither"),
        ([*NUMBERS[:-1], True], "id in row 399 is missing, or neither"),
        ([float(k) for k in NUMBERS], "id in row 0 is missing, or neither"),
        (np.array(NUMBERS, dtype=float), "got dtype float64. Write them as text .whole numbers turn into floats"),
        (pd.Series([*NUMBERS[:-1], None]), "got dtype float64"),
        (pd.Series([*NUMBERS[:-1], None], dtype="Int64"), "id in row 399 is missing, or neither"),
        (pd.Series([*WORDS[:-1], None], dtype="string"), "id in row 399 is missing, or neither"),
        (pd.Series(pd.date_range("2020", periods=N)), "got dtype datetime64"),
        (np.array(NUMBERS, dtype=np.uint64) + np.uint64(2**63), "row 0 is 2\\^63 or larger. Write all"),
        (np.ma.masked_equal(NUMBERS, 1017), "id in row 17 is missing, or neither"),
        (np.array(WORDS).astype("S"), "got dtype .S10"),
        ([*WORDS[:-1], "a" * 1001], "id in row 399 is longer than 1000 characters"),
        (NUMBERS[:-1], "one id for each row"),
        (pd.DataFrame({"who": NUMBERS}), "one id for each row"),
        ("a" * N, "one id for each row"),
        (dict.fromkeys(NUMBERS), "one id for each row"),
        (set(NUMBERS), "one id for each row"),
    ],
)
def test_what_is_refused_says_where_and_how_to_repair_it(ids: Any, said: str) -> None:
    for door in (dealt, partition_of):
        with pytest.raises(InputError, match=said) as caught:
            door(ids)
        assert SECRET not in str(caught.value)


def partition_of(ids: Any) -> Any:
    """Without PrivateData in between."""

    class Rows:
        X, y, unit = np.zeros((N, 1)), np.zeros(N), ids

    return partition(Rows(), n_teachers=5, key=KEY, min_units=0)


def test_the_same_ids_are_the_same_whatever_holds_them() -> None:
    for dtype in ("int16", "int32", "int64", "uint16", "uint64", "Int64", "category", object):
        assert dealt(pd.Series(NUMBERS, dtype=dtype)) == dealt(NUMBERS)
    for dtype in ("string", "category", object, "str"):
        assert dealt(pd.Series(WORDS, dtype=dtype)) == dealt(WORDS)
    assert dealt(range(1000, 1000 + N)) == dealt(np.array(NUMBERS, dtype=">i4")) == dealt(NUMBERS)
    assert dealt([np.int8(k % 100) for k in NUMBERS]) == dealt([k % 100 for k in NUMBERS])
    assert dealt(list(map(str, NUMBERS))) != dealt(NUMBERS)  # "1" is not 1


def test_ids_in_files_are_text_always(tmp_path: Path) -> None:
    """One odd id makes text of a column of numbers: so they are text from the start."""
    assert dealt(DOORS["csv"](NUMBERS, tmp_path)) == dealt(list(map(str, NUMBERS)))
    assert dealt(DOORS["parquet"](NUMBERS, tmp_path)) == dealt(list(map(str, NUMBERS)))
    assert dealt(DOORS["parquet"](WORDS, tmp_path)) == dealt(WORDS)


# Labels and classes


def model(classes: Any) -> PATEClassifier:
    return PATEClassifier(
        DecisionTreeClassifier(),
        DecisionTreeClassifier(),
        classes=classes,
        n_teachers=3,
        delta=1e-5,
        mechanism=GNMax(sigma=1.0),
    )


@pytest.mark.parametrize(
    "classes",
    [[0, "1"], ["0", 1], [True, 0], [None, "a"], [0, None], [1, "1"], [True, "True"], ["a"], [0, 0]],
)
def test_classes_of_several_kinds_are_refused(classes: list[Any]) -> None:
    X = np.random.default_rng(0).normal(size=(60, 2))
    with pytest.raises(InputError, match="classes must"):
        model(classes).fit(X, [classes[0]] * 60, X_public=X.copy())


@pytest.mark.parametrize(
    ("classes", "odd"),
    [
        ([0, 1], "1"),
        ([0, 1], None),
        ([0, 1], True),
        (["no", "yes"], 1),
        (["no", "yes"], None),
        (["no", "yes"], b"no"),
        (["0", "1"], 1),
        ([False, True], 1),
    ],
)
@pytest.mark.parametrize("door", ["list", "object array", "object column"])
def test_a_label_of_another_kind_changes_no_other(classes: list[Any], odd: Any, door: str, tmp_path: Path) -> None:
    """It is the class that it is written as, or none; and no reason to refuse, for it is private."""
    y = [classes[k % 2] for k in range(60)]
    y[ODD] = odd
    written = odd.decode() if isinstance(odd, bytes) else str(odd)
    expected = [k % 2 for k in range(60)]
    expected[ODD] = next((k for k, one in enumerate(classes) if str(one) == written), -1)
    assert known_indices(DOORS[door](y, tmp_path), named_classes(classes)[1]).tolist() == expected


def test_a_missing_label_is_no_class_of_that_name(tmp_path: Path) -> None:
    pq.write_table(pa.table({"age": [0.5, 1.5], "ill": ["no", None]}), tmp_path / "rows.parquet")
    schema = replace(SCHEMA, classes=("no", "None"), unit=None)
    encoder = Encoder.fit(schema, read_table({"age": [1, 2]}))
    assert read_private(tmp_path / "rows.parquet", encoder=encoder).y.tolist() == [0, -1]


def test_one_fraction_changes_no_other_rows_type() -> None:
    whole, mixed = [[2**53 + 1, 0], [1, 2]], [[2**53 + 1, 0], [1.5, 2]]
    for make in (list, pd.DataFrame):
        one, other = (PrivateData(make(rows), [0, 1]).X for rows in (whole, mixed))
        assert one.dtype == other.dtype == np.float64
        assert (one[0] == other[0]).all()
    assert (
        PrivateData(np.array([[1], [2]], dtype=np.uint8), [0, 1]).X.dtype == np.uint8
    )  # an array's type is its owner's


# How many rows there are is nobody's business where a person may have any number of them


def test_no_message_tells_how_many_rows_there_are() -> None:
    n = 4321
    data = PrivateData(np.zeros((n, 2)), np.zeros(n, dtype=int), unit=np.arange(n))
    shares = partition(data, n_teachers=2, key=KEY)
    texts = [repr(data), repr(shares)]
    calls: list[Callable[[], Any]] = [
        lambda: PrivateData(np.zeros((n, 2)), np.zeros(9, dtype=int)),
        lambda: PrivateData(np.zeros((n, 2)), np.zeros(n, dtype=int), unit=np.arange(9)),
        lambda: PrivateData(np.zeros(n), np.zeros(n, dtype=int)),
        lambda: PrivateData(np.zeros((n, 0)), np.zeros(n, dtype=int)),
        lambda: data.take([n]),
        lambda: data.take([-n - 1]),
        lambda: data.take([0.5]),
        lambda: shares.check(np.arange(9)),
        lambda: model([0, 1]).fit(np.zeros((n, 2)), np.zeros(9, dtype=int), X_public=np.zeros((5, 2))),
        lambda: model([0, 1]).fit(np.zeros((n, 2)), np.zeros((n, 2), dtype=int), X_public=np.zeros((5, 2))),
        lambda: model([0, 1]).fit(np.zeros((n, 0)), np.zeros(n, dtype=int), X_public=np.zeros((5, 2))),
        lambda: model([0, 1]).fit(np.zeros(n), np.zeros(n, dtype=int), X_public=np.zeros((5, 2))),
        lambda: model([0, 1]).fit(
            np.zeros((n, 2)), np.zeros(n, dtype=int), X_public=np.zeros((5, 2)), unit=np.arange(9)
        ),
    ]
    for call in calls:
        with pytest.raises(InputError) as caught:
            call()
        texts.append(str(caught.value))
    assert not [text for text in texts if "4321" in text or "4,321" in text]
