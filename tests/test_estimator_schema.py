"""PATEClassifier on tables by a schema: no private cell is refused, and the student goes to its receiver with it."""

from __future__ import annotations

import csv
import datetime
import json
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from terrine import PATEClassifier, Schema, draft, load_student, read_table
from terrine.datasets.labels import known_indices, named_classes
from terrine.errors import DataError, InputError, UnreadWarning
from terrine.mechanisms import GNMax
from terrine.relations import Relation
from terrine.schema import Category, Number

pytestmark = pytest.mark.filterwarnings("ignore::terrine.errors.OrderGridWarning")  # little noise, few teachers

JOBS = ["baker", "nurse", "smith"]


def people(n: int, *, seed: int) -> tuple[dict[str, list], list[str]]:
    """Words, dates and blanks; the label shows in each column."""
    rng = np.random.default_rng(seed)
    y = rng.integers(2, size=n)
    columns = {
        "age": [None if rng.random() < 0.1 else float(round(30 + 20 * k + rng.normal(), 1)) for k in y],
        "job": [None if rng.random() < 0.1 else JOBS[0 if k else 1 + rng.integers(2)] for k in y],
        "seen": [datetime.datetime(2020, 1 + 6 * int(k), 1 + int(rng.integers(28))) for k in y],
    }
    return columns, ["yes" if k else "no" for k in y]


PRIVATE, Y = people(400, seed=0)
PUBLIC, _ = people(120, seed=1)
NEW, TRUTH = people(100, seed=2)
LIBRARIES = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "pyarrow": pa.table, "read_table": read_table}


def classifier(**changes) -> PATEClassifier:
    settings = {
        "teacher": RandomForestClassifier(10),
        "student": LogisticRegression(),
        "classes": ["no", "yes"],
        "n_teachers": 8,
        "delta": 1e-5,
        "mechanism": GNMax(sigma=1.0),
        "method": "balanced",
    }
    return PATEClassifier(**(settings | changes))


@pytest.fixture
def given(monkeypatch) -> list:
    """What the teachers were given: the private rows of every fit."""
    from terrine.estimator import by_teachers

    seen, poll = [], by_teachers.poll_teachers
    monkeypatch.setattr(by_teachers, "poll_teachers", lambda data, *a, **k: (seen.append(data), poll(data, *a, **k))[1])
    return seen


@pytest.mark.parametrize("library", LIBRARIES)
def test_words_dates_and_blanks_are_encoded_by_a_draft_from_the_public_rows(library):
    make = LIBRARIES[library]
    found = classifier().fit(make(PRIVATE), Y, X_public=make(PUBLIC))
    assert found.schema_ == draft(read_table(PUBLIC))
    assert found.score(make(NEW), TRUTH) > 0.95
    assert list(found.feature_names_in_) == list(PUBLIC)
    np.testing.assert_array_equal(found.predict(pd.DataFrame(NEW)), found.predict(pl.DataFrame(NEW)))


def test_tables_are_matched_by_name(given):
    names = list(PRIVATE)
    private, public, new = (pd.DataFrame(one) for one in (PRIVATE, PUBLIC, NEW))
    models = [
        classifier().fit(private[names], Y, X_public=public[names]),
        classifier().fit(private[names[::-1]], Y, X_public=public[names]),
    ]
    np.testing.assert_array_equal(given[0].X, given[1].X)
    assert models[0].score(new[names[::-1]], TRUTH) > 0.95
    with pytest.raises(DataError, match='X, compared with X_public: there is no column "job", but'):
        classifier().fit(private.rename(columns={"job": "jobb"}), Y, X_public=public)
    with pytest.raises(DataError, match='X: missing: "age"'):
        models[0].predict(new.drop(columns="age"))


def test_private_cells_decide_nothing(given):
    """Numbers far away, words in place of numbers, unknown categories, no dates: each row alone changes."""
    public = pd.DataFrame(PUBLIC)
    odd = {name: list(cells) for name, cells in PRIVATE.items()}
    odd["age"][0], odd["job"][1], odd["seen"][2], odd["age"][3] = 1e300, "a spy", None, "secret"
    odd["job"][4] = {"a": "secret"}
    labels = list(Y)
    labels[5], labels[6], labels[7] = None, "secret", float("nan")
    plain = classifier().fit(pd.DataFrame(PRIVATE), Y, X_public=public)
    strange = classifier().fit(pd.DataFrame(odd), labels, X_public=public)
    assert plain.schema_ == strange.schema_
    assert np.isfinite(given[1].X).all()
    np.testing.assert_array_equal(given[0].X[5:], given[1].X[5:])
    assert given[1].y[5:8].tolist() == [-1, -1, -1]
    np.testing.assert_array_equal(given[0].y[8:], given[1].y[8:])
    assert len(given[1]) == len(Y)


@pytest.mark.parametrize("teacher", [RandomForestClassifier(10), LogisticRegression()])
def test_plain_numbers_are_taken_as_they_are_and_matched_by_name(teacher, given):
    rng = np.random.default_rng(0)
    X, public = rng.normal(size=(400, 2)), rng.normal(size=(100, 2))
    y = np.where(X[:, 0] > 0, "yes", "no")
    table = pd.DataFrame(X, columns=["a", "b"])
    found = classifier(teacher=teacher).fit(table, y, X_public=pd.DataFrame(public[:, ::-1], columns=["b", "a"]))
    assert found.schema_ is None
    assert found.encoder_ is None
    np.testing.assert_array_equal(given[0].X, X)
    assert found.score(table[["b", "a"]], y) > 0.9


def test_missing_numbers_are_encoded_only_where_a_learner_takes_none():
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(300, 2)), columns=["a", "b"])
    y = np.where(table["a"] > 0, "yes", "no")
    blanks = table.mask(rng.random(table.shape) < 0.1)
    forest = RandomForestClassifier(10)
    assert classifier(student=forest).fit(blanks, y, X_public=blanks.copy()).schema_ is None
    assert classifier(teacher=LogisticRegression()).fit(blanks, y, X_public=blanks.copy()).schema_ is not None
    # Blanks in the private rows alone choose and refuse nothing: such rows are not learned from
    assert classifier().fit(blanks, y, X_public=table).schema_ is None
    schema = draft(read_table(table))
    assert classifier(schema=schema).fit(blanks, y, X_public=table).schema_ == schema


def test_trees_that_take_categories_are_given_them_but_no_text():
    trees = HistGradientBoostingClassifier(min_samples_leaf=5)
    private, public = pd.DataFrame(PRIVATE)[["age", "job"]], pd.DataFrame(PUBLIC)[["age", "job"]]
    kind = {"job": pd.CategoricalDtype(JOBS)}
    as_it_is = classifier(teacher=trees, student=trees, n_teachers=4).fit(
        private.astype(kind), Y, X_public=public.astype(kind)
    )
    assert as_it_is.schema_ is None
    assert classifier(teacher=trees, student=trees, n_teachers=4).fit(private, Y, X_public=public).schema_ is not None


def test_a_public_column_of_several_types_is_encoded_and_what_no_schema_mends_is_refused():
    rng = np.random.default_rng(0)
    numbers = pd.DataFrame(rng.normal(size=(200, 2)), columns=["a", "b"])
    y = np.where(numbers["a"] > 0, "yes", "no")
    mixed = numbers.assign(c=["x", 1, None, 2.5] * 50)
    found = classifier().fit(mixed, y, X_public=mixed.copy())
    assert list(found.schema_.columns) == ["a", "b", "c"]
    with pytest.raises(DataError, match='"b" of X_public must hold finite numbers'):
        classifier().fit(numbers, y, X_public=numbers.assign(b=np.inf))
    unnamed = numbers.assign(c="x").set_axis(range(3), axis=1)
    with pytest.raises(DataError, match="must have names that are text"):
        classifier().fit(unnamed, y, X_public=unnamed.copy())


def test_a_schema_that_is_given_is_used(tmp_path, given):
    schema = Schema(
        columns={"age": Number(low=0, high=100), "job": Category(values=tuple(JOBS))},
        label="ill",
        classes=("no", "yes"),
        ignore=("seen",),
    )
    path = tmp_path / "schema.toml"
    path.write_text(schema.to_toml())
    for one in (schema, path, str(path)):
        scaled = make_pipeline(StandardScaler(), LogisticRegression())
        found = classifier(schema=one, classes=None, teacher=scaled, student=scaled)
        found.fit(pd.DataFrame(PRIVATE), Y, X_public=pd.DataFrame(PUBLIC))
        assert found.schema_ == schema
        assert list(found.classes_) == ["no", "yes"]
        assert found.score(pd.DataFrame(NEW), TRUTH) > 0.9
    assert given[0].X.shape[1] == found.encoder_.n_features == 7


def test_the_schema_s_unit_is_whom_rows_belong_to(given):
    schema = Schema(columns={"age": Number(low=0, high=100)}, unit="who", ignore=("job", "seen"))
    who = [f"p{k // 2}" for k in range(400)]
    who[7] = None  # nobody's row is left out
    table = pd.DataFrame(PRIVATE | {"who": who})
    found = classifier(schema=schema, method="hashed").fit(table, Y, X_public=pd.DataFrame(PUBLIC))
    assert found.guarantee_.relation is Relation.UNIT_ANY
    assert len(given[0]) == 399
    assert given[0].unit[:7].tolist() == who[:7]
    with pytest.raises(DataError, match='X: missing: "who"'):
        classifier(schema=schema).fit(table.drop(columns="who"), Y, X_public=pd.DataFrame(PUBLIC))
    classifier(schema=schema).fit(table.drop(columns="who"), Y, X_public=pd.DataFrame(PUBLIC), unit=np.arange(400))
    assert given[1].unit.tolist() == list(range(400))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"schema": True}, "schema must be a Schema, the path"),
        ({"schema": "nowhere.toml"}, "nowhere.toml: there is no such file. Draft one with: terrine schema"),
        ({"classes": None}, "classes is missing: give a list of all labels"),
        (
            {
                "schema": Schema(columns={"age": Number(low=0, high=9)}, label="l", classes=("a", "b")),
                "classes": ["b", "a"],
            },
            'X_public: not in the schema: "job", "seen"',
        ),
        (
            {
                "schema": Schema(
                    columns={"age": Number(low=0, high=9)}, label="l", classes=("a", "b"), ignore=("job", "seen")
                )
            },
            "classes and the schema's classes differ",
        ),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_is_taught(changes, words, monkeypatch):
    monkeypatch.setattr("terrine.estimator.by_teachers.poll_teachers", lambda *_, **__: pytest.fail("taught"))
    with pytest.raises(InputError, match=words) as caught:
        classifier(**changes).fit(pd.DataFrame(PRIVATE), Y, X_public=pd.DataFrame(PUBLIC))
    assert len(str(caught.value).splitlines()) == 1


def test_a_schema_is_for_tables():
    X = np.zeros((400, 2))
    schema = Schema(columns={"age": Number(low=0, high=9)})
    with pytest.raises(InputError, match="A schema is for tables"):
        classifier(schema=schema).fit(X, Y, X_public=X.copy())
    with pytest.raises(InputError, match="leave out schema=False"):
        classifier(schema=False).fit(read_table(PRIVATE), Y, X_public=read_table(PUBLIC))
    with pytest.raises(InputError, match="one label for each row"):
        classifier().fit(pd.DataFrame(PRIVATE), Y[:-1], X_public=pd.DataFrame(PUBLIC))
    found = classifier().fit(pd.DataFrame(PRIVATE), Y, X_public=pd.DataFrame(PUBLIC))
    with pytest.raises(InputError, match="X must be a table with the columns of the schema; it is ndarray"):
        found.predict(np.zeros((2, 3)))


def test_the_saved_student_is_applied_to_a_new_file_and_frame(tmp_path, terrine):
    found = classifier(ledger=tmp_path / "ledger.sqlite").fit(pd.DataFrame(PRIVATE), Y, X_public=pd.DataFrame(PUBLIC))
    found.save(tmp_path / "student")
    new = pd.DataFrame(NEW)[["seen", "job", "age"]]
    new.to_csv(tmp_path / "new.csv", index=False)
    code, _, err = terrine("predict", tmp_path / "student", tmp_path / "new.csv", "--out", tmp_path / "p.csv")
    assert (code, err) == (0, "")
    with (tmp_path / "p.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert [line["prediction"] for line in lines] == found.predict(new).tolist()
    assert list(lines[0]) == ["row", "prediction", "P(no)", "P(yes)"]
    student = load_student(tmp_path / "student")
    assert [student.classes[k] for k in student.predict(new)] == found.predict(new).tolist()
    np.testing.assert_allclose(student.predict_proba(pl.DataFrame(NEW)), found.predict_proba(new))
    assert student.encoder.schema == found.schema_
    card = json.loads((tmp_path / "student" / "card.json").read_text())
    assert card["epsilon"] == found.guarantee_.epsilon
    assert (card["n_teachers"], card["n_queries"], card["private"]) == (8, 120, True)
    assert card["ledger"]["seq"] >= 1


def test_new_rows_are_looked_at_in_python_as_by_the_command(tmp_path):
    found = classifier().fit(pd.DataFrame(PRIVATE), Y, X_public=pd.DataFrame(PUBLIC))
    found.save(tmp_path / "student")
    new = pd.DataFrame(NEW)[["seen", "job", "age"]]
    some = new.assign(job=["Baker", *new.job[1:]])
    spoiled = [new.assign(job="x-17"), new.assign(age="old")]
    new.assign(age="old").to_csv(tmp_path / "new.csv", index=False)
    for student in (found, load_student(tmp_path / "student")):
        for ask in (student.predict, student.predict_proba):
            with pytest.warns(UnreadWarning, match=r'X, column "job": 1 of .*perhaps "baker" for .Baker') as told:
                ask(some)
            assert [Path(one.filename).name for one in told] == ["test_estimator_schema.py"]
            for table in spoiled:
                with pytest.raises(InputError, match=r"Nothing was predicted\. .* accept_unreadable=True"):
                    ask(table)
                with pytest.warns(UnreadWarning, match=r"100 of 100"):
                    assert len(ask(table, accept_unreadable=True)) == 100
            ask(new)
    with pytest.raises(InputError, match=r'new\.csv, column "age": 100 of 100 .* the first in line 2'):
        load_student(tmp_path / "student").predict(tmp_path / "new.csv")


def test_a_student_that_is_a_pipeline_is_saved_too_and_named_as_one_without_a_schema(tmp_path, terrine):
    steps = make_column_transformer((OneHotEncoder(handle_unknown="ignore"), ["job"]))
    pipeline = make_pipeline(steps, LogisticRegression())
    found = classifier(teacher=pipeline, student=pipeline).fit(pd.DataFrame(PRIVATE), Y, X_public=pd.DataFrame(PUBLIC))
    found.save(tmp_path / "student")
    new = pd.DataFrame(NEW)[["seen", "job", "age"]]
    np.testing.assert_allclose(load_student(tmp_path / "student").predict_proba(new), found.predict_proba(new))
    assert "columns age, job, seen, in any order" in (tmp_path / "student" / "model_card.md").read_text()
    new.to_csv(tmp_path / "new.csv", index=False)
    code, _, err = terrine("predict", tmp_path / "student", tmp_path / "new.csv", "--out", tmp_path / "p.csv")
    assert code == 2
    assert "no schema to read it by: it takes a table of 3 columns in Python" in err


def test_a_student_of_arrays_is_saved_too(tmp_path):
    X = np.random.default_rng(0).normal(size=(300, 2))
    y = np.where(X[:, 0] > 0, "yes", "no")
    found = classifier().fit(X, y, X_public=X[:100].copy())
    found.save(tmp_path / "student")
    student = load_student(tmp_path / "student")
    assert student.encoder is None
    assert student.card.ledger is None
    np.testing.assert_allclose(student.predict_proba(X), found.predict_proba(X))


@pytest.mark.parametrize(
    ("classes", "y", "places"),
    [
        (["no", "yes"], ["yes", "no", None, "maybe", 3, float("nan"), [], " yes"], [1, 0, -1, -1, -1, -1, -1, 1]),
        ([0, 1], [1.0, 0.0, float("nan"), 2.0], [1, 0, -1, -1]),
        ([0, 1], ["1", "1.0", "x", True], [1, 1, -1, -1]),
        (["0", "1"], np.array([1, 0, 7]), [1, 0, -1]),
        (["0", "1"], pd.Series([1.0, None]), [1, -1]),
        ([False, True], [True, None, False, 1], [1, -1, 0, -1]),
        (["a", "b"], pd.DataFrame({"y": ["b", None]}), [1, -1]),
        (["a", "b"], pl.Series(["b", None]), [1, -1]),
        (["a", "b"], pa.array(["b", None]), [1, -1]),
        ([datetime.date(2020, 1, 1), datetime.date(2021, 1, 1)], pd.to_datetime(["2021-01-01", None]), [1, -1]),
        ([("a", 1), ("b", 2)], [("b", 2), None, ("b", [])], [1, -1, -1]),
    ],
)
def test_labels_that_are_missing_or_unknown_are_marked(classes, y, places):
    assert known_indices(y, named_classes(classes)[1]).tolist() == places


@pytest.mark.parametrize("y", [None, np.zeros((2, 2)), pd.DataFrame({"a": [1], "b": [2]})])
def test_labels_must_be_one_column(y):
    with pytest.raises(InputError, match="y "):
        known_indices(y, named_classes([0, 1])[1])
