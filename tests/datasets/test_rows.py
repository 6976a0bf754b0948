"""Rows of any kind: one form each, matched by name, known by their values alone; and rows without a usable label."""

from __future__ import annotations

import datetime
import pickle
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy import sparse
from sklearn.compose import ColumnTransformer
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from terrine.datasets import PrivateData, PublicData
from terrine.datasets.rows import RowKind, as_rows, concatenated, kind_of, matched, row_digests, seen_by
from terrine.datasets.tables import Frame
from terrine.errors import DataError, InputError
from terrine.labeller import KeptVotes
from terrine.partitioning import partition, write_shares
from terrine.teachers import CentroidTeacher, SklearnTeacher, TeacherEnsemble, asking, fit_teachers
from terrine.votes import Votes

KEY = bytes(range(32))
COLUMNS = {
    "n": [1.5, None, -0.0],
    "t": ["a", None, ""],
    "c": ["x", "y", None],
    "d": [datetime.datetime(2020, 1, 2), None, datetime.datetime(1969, 1, 1)],
    "b": [True, False, True],
}


def pandas() -> pd.DataFrame:
    return pd.DataFrame(COLUMNS).astype({"c": pd.CategoricalDtype(["x", "y"])})


TABLES = {
    "pandas": pandas,
    "pandas, other types": lambda: pandas().astype(
        {"n": "Float64", "b": "boolean", "t": object, "d": "datetime64[ns]"}
    ),
    "pandas, objects": lambda: pandas().astype({"n": object, "b": object, "d": object}),
    "polars": lambda: pl.DataFrame(COLUMNS).cast({"c": pl.Enum(["x", "y"])}),
    "polars, the list in another order": lambda: pl.DataFrame(COLUMNS).cast({"c": pl.Enum(["y", "x"])}),
}


@pytest.mark.parametrize("name", TABLES)
def test_a_table_is_the_same_rows_in_every_library_and_order(name):
    first, table = as_rows("X", pandas()), as_rows("X", TABLES[name]())
    assert [one.kind for one in table.columns] == ["number", "text", "category", "date", "number"]
    assert row_digests(table) == row_digests(first)
    assert len(set(row_digests(table))) == 3
    turned = as_rows("X", TABLES[name]()[["b", "d", "c", "t", "n"]])
    assert row_digests(turned) == row_digests(first)
    again = matched(turned, kind_of(first), name="X_public", like="X")
    pd.testing.assert_frame_equal(seen_by(make_pipeline(StandardScaler()), again), first.native())
    assert row_digests(pickle.loads(pickle.dumps(again))) == row_digests(first)
    assert row_digests(concatenated([again[:1], again[np.array([2, 1])]])) == [row_digests(first)[k] for k in (0, 2, 1)]
    assert RowKind.from_json(kind_of(first).to_json()) == kind_of(first)


def test_arrow_tables_have_text_where_others_have_categories():
    table = as_rows("X", pa.table({**COLUMNS, "c": pa.array(COLUMNS["c"]).dictionary_encode()}))
    assert [one.kind for one in table.columns] == ["number", "text", "text", "date", "number"]
    assert table.native()["t"].tolist()[::2] == ["a", ""]


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (["ab"], ["abc"]),
        (pd.DataFrame({"a": ["x"], "b": [""]}), pd.DataFrame({"a": [""], "b": ["x"]})),
        (pd.DataFrame({"a": ["1"]}), pd.DataFrame({"a": [1]})),
        (pd.DataFrame({"a": [None], "b": ["x"]}, dtype=str), pd.DataFrame({"a": ["x"], "b": [None]}, dtype=str)),
        (pd.DataFrame({"a": ["xs"], "b": ["y"]}), pd.DataFrame({"a": ["x"], "b": ["sy"]})),
        (pd.DataFrame({"a": [1.0]}), pd.DataFrame({"b": [1.0]})),
        (sparse.csr_array([[0.0, 1.0]]), sparse.csr_array([[1.0, 0.0]])),
        (sparse.csr_array([[0.0, 1.0]]), np.array([[0.0, 1.0]])),
    ],
)
def test_rows_that_differ_are_known_apart(one, two):
    assert row_digests(as_rows("X", one)) != row_digests(as_rows("X", two))


def test_a_row_is_known_by_itself():
    """Its digest does not depend on the other rows, on stored zeros, or on how a nan is written."""
    stored = sparse.csr_array((np.array([0.0, 2.0]), np.array([1, 0]), np.array([0, 2])), shape=(1, 3))
    assert row_digests(as_rows("X", stored)) == row_digests(as_rows("X", sparse.coo_matrix([[2, 0, 0]])))
    nans = np.array([[np.nan], [-np.nan]])
    assert len(set(row_digests(as_rows("X", nans, nan_ok=True)))) == 1
    whole, part = pd.DataFrame({"a": [1, 2]}), pd.DataFrame({"a": [1.0, np.nan]})
    assert row_digests(as_rows("X", whole))[0] == row_digests(as_rows("X", part))[0]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (pd.DataFrame({"who": ["Ann", 511]}, dtype=object), 'Column "who" of X holds values of several types'),
        (pd.DataFrame({"who": [1.0, np.inf]}), 'Column "who" of X must hold finite numbers.*row 1'),
        (pd.DataFrame({"who": pd.to_timedelta([1, 2])}), 'Column "who" of X has the type Duration'),
        (pd.DataFrame({"who": pd.cut([1, 5], [0, 3, 6])}), 'Column "who" of X has categories that are neither'),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "must have different names"),
        (pd.DataFrame({0: ["Ann"]}), "names that are text"),
        (pd.DataFrame({"a": []}), "at least one row"),
        (pl.LazyFrame({"a": [1]}), "collect"),
        (["Ann", None], "Row 1 of X is not text"),
        (sparse.csr_array([[0.0, np.nan]]), "must be finite; row 0 has nan"),
        ([["a"], ["b"]], "numbers, got dtype"),
    ],
)
def test_what_rows_cannot_be_is_said_by_name_and_without_values(values, words):
    with pytest.raises(DataError, match=words) as caught:
        as_rows("X", values)
    assert "Ann" not in str(caught.value)
    assert "511" not in str(caught.value)


def test_numbers_in_disguise():
    table = as_rows("X", pd.DataFrame({"a": [Decimal("1.5"), None], "b": [datetime.date(2020, 1, 1), None]}))
    assert [one.kind for one in table.columns] == ["number", "date"]
    assert isinstance(as_rows("X", pd.DataFrame(np.eye(2))), np.ndarray)


def test_data_of_any_kind_prints_no_value():
    for X, words in [
        (["Ann", "Bob"], "2 rows of text"),
        (pd.DataFrame({"a": ["Ann", "Bob"]}), "2 rows of 1 named columns"),
        (sparse.eye_array(2, format="csr"), "2 rows of (2,) float64, sparse"),
    ]:
        data = PrivateData(X, [0, 1])
        assert words in repr(data)
        assert "Ann" not in repr(data) + repr(data.X)
        assert data.take([1]).y.tolist() == [1]


ENCODER = ColumnTransformer(
    [
        ("n", make_pipeline(SimpleImputer(), StandardScaler()), ["n"]),
        ("c", OneHotEncoder(), ["c", "t"]),  # unknown ones are errors
        ("w", TfidfVectorizer(token_pattern=r"\w+"), "w"),
    ]
)


def words_table(n: int, *, seed: int, library=pd.DataFrame):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 2
    columns = {
        "n": np.where(rng.random(n) < 0.2, np.nan, rng.normal(size=n) + 2 * y),
        "c": [["u", "v", "w", None][k] for k in rng.integers(4, size=n)],
        "t": [["p", "q"][k] for k in rng.integers(2, size=n)],
        "w": [("yes " if k else "no ") + "abcdefgh"[rng.integers(8)] for k in y],
    }
    return library(columns), y


@pytest.mark.parametrize("library", [pd.DataFrame, pl.DataFrame])
def test_a_listed_pipeline_on_a_table_is_asked_in_blocks_and_says_what_it_would_row_by_row(library, monkeypatch):
    X, y = words_table(40, seed=0, library=library)
    asked, _ = words_table(300, seed=1, library=library)
    teacher = SklearnTeacher(estimator=make_pipeline(ENCODER, LogisticRegression()))
    assert asking.is_listed(teacher.estimator)
    rows, queries = as_rows("X", X), as_rows("X", asked)
    few = rows[np.array([k for k in range(40) if k % 5])]
    models = teacher.fit([(few, y[np.arange(40) % 5 > 0])], ids=[0], n_classes=2, seed=0)
    shapes = []
    honest = asking._indices
    monkeypatch.setattr(asking, "_indices", lambda m, some: shapes.append(some.shape[0]) or honest(m, some))
    votes = teacher.predict(models, queries)[0]
    assert shapes == [asking.BLOCK, asking.BLOCK]
    monkeypatch.undo()
    assert (votes == asking.ask_each(models[0], queries)).all()
    assert (votes == asking.ask_in_halves(models[0], queries)).all()
    assert 0 < votes.mean() < 1
    monkeypatch.setattr(asking, "BLOCK", 7)
    assert (teacher.predict(models, queries)[0] == votes).all()


def test_teachers_of_tables_come_back_from_a_store_and_know_their_columns(tmp_path):
    X, y = words_table(60, seed=0)
    asked, _ = words_table(30, seed=1)
    data, teacher = PrivateData(X, y), SklearnTeacher(estimator=make_pipeline(ENCODER, LogisticRegression()))
    shares = partition(data, n_teachers=3, method="balanced", key=KEY)
    made = fit_teachers(data, shares, teacher, classes=["a", "b"], seed=0, store=tmp_path / "kept", public=asked)
    loaded = TeacherEnsemble.load(tmp_path / "kept", teacher)
    turned = asked[list(asked)[::-1]]
    assert (loaded.vote(turned).counts == made.vote(PublicData(asked)).counts).all()
    assert loaded.row_kind == made.row_kind
    with pytest.raises(InputError, match='missing in the public rows: "w"'):
        loaded.vote(asked.drop(columns="w"))
    with pytest.raises(InputError, match="rows of one kind"):
        loaded.vote(["a text"])
    with pytest.raises(InputError, match="Give public="):
        fit_teachers(data, shares, teacher, classes=["a", "b"], seed=0)
    kept = KeptVotes(asked, Votes(made.vote(asked).counts, n_teachers=3))
    assert kept.find(as_rows("X", turned)) == kept.find(as_rows("X", asked))


@pytest.mark.parametrize("method", ["balanced", "hashed"])
@pytest.mark.parametrize("on_disk", [False, True])
@pytest.mark.parametrize(
    "teacher", [SklearnTeacher(estimator=LogisticRegression()), CentroidTeacher()], ids=lambda t: type(t).__name__
)
def test_a_label_that_became_unknown_changes_one_teacher_alone(method, on_disk, teacher, tmp_path):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(90, 3)), np.arange(90) % 3
    X[:, 0] += 3 * y
    asked = rng.normal(size=(40, 3)) * 3
    lost = y.copy()
    lost[7] = -1
    ballots, sizes = [], []
    for k, labels in enumerate((y, lost)):
        data = PrivateData(X, labels, unlabelled_ok=True)
        shares = partition(data, n_teachers=6, method=method, key=KEY, min_units=0)
        rows = write_shares(data, shares, tmp_path / str(k)) if on_disk else data
        made = fit_teachers(rows, shares, teacher, classes=list("abc"), seed=0)
        ballots.append(made.ballots(asked).choices)
        sizes.append(shares.sizes.reveal())
        assert made.n_failed.reveal() == 0
        one = int(shares.assignment[7])
    assert (sizes[0] == sizes[1]).all()
    assert (np.delete(ballots[0], one, axis=0) == np.delete(ballots[1], one, axis=0)).all()
    without = np.delete(np.arange(90), 7)
    share = without[shares.assignment[without] == one]
    alone = teacher.fit([(X[share], y[share])], ids=[one], n_classes=3, seed=0)
    assert (teacher.predict(alone, asked)[0] == ballots[1][one]).all()


def test_unknown_labels_are_refused_unless_they_are_allowed():
    with pytest.raises(DataError, match="row 1 does not"):
        PrivateData(np.eye(2), [0, -1])
    with pytest.raises(DataError, match="row 1 does not"):
        PrivateData(np.eye(2), [0, -2], unlabelled_ok=True)
    data = PrivateData(np.eye(4), [0, -1, -1, -1], unlabelled_ok=True)
    shares = partition(data, n_teachers=2, method="balanced", key=KEY)
    made = fit_teachers(data, shares, SklearnTeacher(estimator=LogisticRegression()), classes=["a", "b"], seed=0)
    assert made.n_failed.reveal() == 0  # a share of unknown labels alone is an empty one
    assert (made.ballots(np.eye(4)).choices == 0).all()
    assert isinstance(as_rows("X", pandas()), Frame)
