"""What happened to people who came with data that nobody here had prepared: each complaint is a test.

They are about data as they are: columns in any order, words, dates and blanks, a student that its receiver can use,
and plans that cannot work or runs that fail, both of which must be noticed before a budget is spent.
"""

from __future__ import annotations

import csv
import datetime
import json
import sys
import tomllib
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.compose import make_column_transformer
from sklearn.feature_extraction.text import HashingVectorizer, TfidfVectorizer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler

from terrine import (
    AdviceWarning,
    GNMax,
    InputError,
    PATEClassifier,
    PooledFitWarning,
    Run,
    SpendingWarning,
    load_student,
)
from terrine.ledger import Ledger
from terrine.students import MissingClassWarning

pytestmark = pytest.mark.filterwarnings("ignore::terrine.errors.OrderGridWarning")  # little noise, few teachers

CLASSES = ["<=50K", ">50K"]
JOBS = ["baker", "clerk", "nurse"]
RUN = """
seed = 3
[data]
private = "private.csv"
public = "public.csv"
test = "test.csv"
label = "income"
classes = ["<=50K", ">50K"]
[teachers]
number = 10
kind = "logistic"
executor = "serial"
keep = false
partition = "balanced"
[privacy]
mechanism = "gnmax"
sigma = 2
queries = 60
delta = 1e-5
[student]
kind = "supervised"
estimator = "sklearn.linear_model.LogisticRegression"
"""


def people(n: int, *, seed: int) -> pd.DataFrame:
    """Numbers on different scales, words, dates and blanks; the label shows in each column."""
    rng = np.random.default_rng(seed)
    rich = rng.integers(2, size=n)
    found = pd.DataFrame(
        {
            "age": np.round(30 + 15 * rich + 4 * rng.normal(size=n)),
            "gain": np.round(1000 * (1 - rich) + 200 * rng.normal(size=n)),
            "job": [JOBS[2] if k and rng.random() < 0.8 else JOBS[rng.integers(2)] for k in rich],
            "hired": [datetime.datetime(2013 + int(k), 1 + int(rng.integers(12)), 3) for k in rich],
            "income": [CLASSES[k] for k in rich],
        }
    )
    found.loc[rng.random(n) < 0.1, "age"] = np.nan
    found.loc[rng.random(n) < 0.1, "job"] = None
    return found


PRIVATE, PUBLIC, TEST = people(400, seed=0), people(80, seed=1).drop(columns="income"), people(100, seed=2)
NAMES = list(PUBLIC)
Y = PRIVATE["income"]


def files(folder: Path, *, public: pd.DataFrame = PUBLIC, settings: str = RUN) -> Path:
    """A stranger's files; the settings beside them."""
    folder.mkdir(exist_ok=True)
    for name, table in (("private", PRIVATE), ("public", public), ("test", TEST)):
        table.to_csv(folder / f"{name}.csv", index=False)
    path = folder / "run.toml"
    path.write_text(settings)
    for name in ("private", "public", "test"):
        path.write_text(path.read_text().replace(f'"{name}.csv"', f'"{folder / name}.csv"'))
    return path


def whole(settings: Path, folder: Path) -> Run:
    run = Run.create(settings, folder)
    run.vote()
    run.label()
    run.learn()
    return run


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Run:
    """A run on a stranger's files, as far as its student."""
    folder = tmp_path_factory.mktemp("stranger")
    return whole(files(folder), folder / "run")


def classifier(teacher=None, **changes) -> PATEClassifier:
    settings = {
        "student": teacher,
        "classes": CLASSES,
        "n_teachers": 8,
        "delta": 1e-5,
        "mechanism": GNMax(sigma=1.0),
        "method": "balanced",
    }
    return PATEClassifier(teacher, **(settings | changes))


# Columns are matched by position: `public.csv` with two columns swapped ran without a word, 58.9% instead of 83.6%


def test_public_csv_with_two_columns_swapped_gives_the_same_rows_and_accuracy(finished, tmp_path):
    swapped = PUBLIC[["gain", "age", "job", "hired"]]
    run = whole(files(tmp_path, public=swapped), tmp_path / "run")
    names, others = finished.task.encoder.names, run.task.encoder.names
    assert sorted(names) == sorted(others)
    places = [others.index(name) for name in names]
    np.testing.assert_array_equal(run.task.public.X[:, places], finished.task.public.X)
    np.testing.assert_array_equal(run.task.private.X[:, places], finished.task.private.X)
    for one in (run, finished):
        assert one.student_result().accuracy > 0.9


def test_private_csv_with_columns_in_another_order_gives_the_same_rows(finished, tmp_path):
    path = files(tmp_path)
    PRIVATE[["income", *NAMES[::-1]]].to_csv(tmp_path / "private.csv", index=False)
    run = Run.create(path, tmp_path / "run")
    np.testing.assert_array_equal(run.task.private.X, finished.task.private.X)
    np.testing.assert_array_equal(run.task.private.y, finished.task.private.y)


# "... a DataFrame with reversed columns 17.7% instead of 87.4%"


@pytest.mark.parametrize("teacher", [None, LogisticRegression()], ids=["default teacher", "LogisticRegression"])
def test_a_dataframe_with_reversed_columns_is_matched_by_name(teacher):
    rng = np.random.default_rng(0)
    names = ["a", "b", "c"]
    X, public = (pd.DataFrame(rng.normal(size=(n, 3)) * [1, 10, 100], columns=names) for n in (600, 150))
    y = np.where(X["a"] > 0, CLASSES[1], CLASSES[0])
    found = classifier(teacher).fit(X, y, X_public=public[names[::-1]])
    assert found.score(X[names[::-1]], y) > 0.85
    np.testing.assert_array_equal(found.predict(X), found.predict(X[["b", "c", "a"]]))


# `PATEClassifier` refuses DataFrames with strings, categories, dates or NaN even when the teacher is a Pipeline


def years(dates):
    return np.array([[pd.Timestamp(one).year] for one in np.asarray(dates).ravel()], dtype=float)


COLUMNS = {
    "strings": ("job", OneHotEncoder(handle_unknown="ignore"), None),
    "categories": ("job", OneHotEncoder(handle_unknown="ignore"), pd.CategoricalDtype(JOBS)),
    "dates": ("hired", make_pipeline(FunctionTransformer(years), StandardScaler()), None),
    "NaN": ("age", make_pipeline(SimpleImputer(), StandardScaler()), None),
}


@pytest.mark.parametrize("kind", COLUMNS)
@pytest.mark.parametrize("piped", [True, False], ids=["a Pipeline", "the default teacher"])
def test_a_dataframe_is_taken_with(kind, piped):
    name, step, dtype = COLUMNS[kind]
    private, public, test = (table[[name]].assign(gain=table["gain"]) for table in (PRIVATE, PUBLIC, TEST))
    if dtype is not None:
        private, public, test = (table.astype({name: dtype}) for table in (private, public, test))
    pipeline = make_pipeline(make_column_transformer((step, [name])), LogisticRegression())
    found = classifier(pipeline if piped else None).fit(private, Y, X_public=public)
    assert found.score(test, TEST["income"]) > 0.75
    assert (found.schema_ is None) == (piped or kind == "NaN")  # a forest takes missing numbers as they are


def test_a_dataframe_is_taken_with_all_of_them_at_once_and_a_teacher_that_takes_numbers_only():
    found = classifier(LogisticRegression()).fit(PRIVATE[NAMES], Y, X_public=PUBLIC)
    assert found.score(TEST[NAMES[::-1]], TEST["income"]) > 0.9


# "... and refuses text and sparse rows"


def notes(table: pd.DataFrame) -> list[str]:
    return [f"works as {job}, since {date.year}" for job, date in zip(table["job"], table["hired"], strict=True)]


def test_text_rows_are_taken():
    found = classifier(make_pipeline(TfidfVectorizer(), LogisticRegression())).fit(
        notes(PRIVATE), Y, X_public=notes(PUBLIC)
    )
    assert found.score(notes(TEST), TEST["income"]) > 0.9


def test_sparse_rows_are_taken():
    words = HashingVectorizer(n_features=64)
    private, public, test = (sparse.csr_array(words.transform(notes(one))) for one in (PRIVATE, PUBLIC, TEST))
    found = classifier(LogisticRegression()).fit(private, Y, X_public=public)
    assert found.score(test, TEST["income"]) > 0.9


# "... messages name no column"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda table: table.rename(columns={"job": "Job"}), '"Job"'),
        (lambda table: table.drop(columns="hired"), '"hired"'),
        (lambda table: table.assign(zip=1), '"zip"'),
    ],
    ids=["misspelt", "missing", "extra"],
)
def test_messages_name_the_column(change, words, terrine, tmp_path):
    with pytest.raises(InputError, match=words):
        classifier().fit(change(PRIVATE[NAMES]), Y, X_public=PUBLIC)
    path = files(tmp_path)
    change(PRIVATE).to_csv(tmp_path / "private.csv", index=False)
    code, _, err = terrine("run", path, "--out", tmp_path / "run")
    assert code == 2
    assert "private.csv" in err
    assert words in err
    assert len(err.strip().splitlines()) == 1


def test_a_message_about_a_column_that_a_learner_cannot_take_names_it():
    for columns, words in ((["gain", "job"], '"job"'), (["gain", "age"], '"age"')):
        with pytest.raises(InputError, match=words):
            classifier(LogisticRegression(), schema=False).fit(PRIVATE[columns], Y, X_public=PUBLIC[columns])


# The published student is a function of 22 unnamed numbers: no names, order or categories in its card, no command


def test_the_published_student_knows_names_order_and_categories(finished):
    folder = finished.folder / "student"
    schema = tomllib.loads((folder / "schema.toml").read_text())
    assert list(schema["columns"]) == NAMES
    assert schema["columns"]["job"]["values"] == JOBS
    assert schema["classes"] == CLASSES
    assert "schema.toml" in (folder / "SHA256SUMS").read_text()
    page = (folder / "model_card.md").read_text()
    assert "age (number), gain (number), job (category), hired (date)" in page
    assert "schema.toml" in page


def test_a_command_applies_the_published_student_to_a_new_csv_in_another_order(finished, terrine, tmp_path):
    folder, new = finished.folder / "student", tmp_path / "new.csv"
    TEST[NAMES[::-1]].assign(case=range(100)).to_csv(new, index=False)
    code, _, err = terrine("predict", folder, new, "--out", tmp_path / "p.csv", "--keep", "case")
    assert (code, err) == (0, "")
    with (tmp_path / "p.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert [line["case"] for line in lines] == [str(k) for k in range(100)]
    predicted = [line["prediction"] for line in lines]
    assert np.mean(np.array(predicted) == TEST["income"]) == finished.student_result().accuracy
    for line in lines:
        assert float(line["P(<=50K)"]) + float(line["P(>50K)"]) == pytest.approx(1, abs=1e-5)
    student = load_student(folder)
    assert [student.classes[k] for k in student.predict(TEST[NAMES])] == predicted


# δ = 0.5 on 50,000 rows is accepted


def test_delta_of_a_half_on_50_000_rows_is_refused(terrine, tmp_path, monkeypatch):
    monkeypatch.setattr("terrine.estimator.by_teachers.poll_teachers", lambda *_, **__: pytest.fail("taught"))
    X = np.zeros((50_000, 1))
    with pytest.raises(InputError, match=r"δ = 0\.5 is too large for 50,000 units"):
        classifier(delta=0.5).fit(X, np.array(CLASSES)[np.arange(50_000) % 2], X_public=X[:100].copy())
    path = tmp_path / "run.toml"
    blobs = '[data]\nname = "blobs"\noptions = {n_private = 50_000}\n'
    path.write_text(blobs + RUN[RUN.index("[teachers]") :].replace("1e-5", "0.5"))
    code, _, err = terrine("run", path, "--out", tmp_path / "run")
    assert code == 2
    assert "δ = 0.5 is too large for 50,000 units" in err
    assert not (tmp_path / "run" / "partition.npz").exists()


# 499 rows with 25 teachers: the dry run calmly plans 2 queries and 1 answer


def test_499_rows_with_25_teachers_are_refused_by_the_dry_run(terrine, tmp_path):
    settings = RUN[: RUN.index("[teachers]")] + (
        '[teachers]\nnumber = 25\nkind = "logistic"\n[privacy]\nepsilon = 1.0\ndelta = 1e-5\nconsensus = 0.85\n'
    )
    path = files(tmp_path, settings=settings)
    people(499, seed=5).to_csv(tmp_path / "private.csv", index=False)
    code, out, err = terrine("run", path, "--dry-run")
    assert code == 2
    assert "No. This plan gives" in out
    assert "a student cannot learn every class" in err


# A class of 1% is never predicted, without a word


def test_a_class_of_one_percent_that_is_never_predicted_is_warned_of():
    rng = np.random.default_rng(0)
    y = np.array(["no", "yes"])[np.arange(600) % 2].astype(object)
    y[:6] = "rare"
    X = rng.normal(size=(600, 2)) + 3 * (y == "yes")[:, None]
    model = classifier(LogisticRegression(), classes=["no", "yes", "rare"])
    with (
        pytest.warns(AdviceWarning, match="never predicts 'rare' on the public rows"),
        pytest.warns(MissingClassWarning, match="No answer names 1 of the 3 classes: 'rare'"),
    ):
        model.fit(X, y, X_public=X[6:206].copy())
    assert "rare" not in model.predict(X)


# A scaler fitted on all private rows in front of a PATEClassifier is not noticed


def test_a_scaler_fitted_on_all_private_rows_in_front_is_noticed():
    class WithPublic(PATEClassifier):
        """In a Pipeline without metadata routing."""

        def fit(self, X, y):
            return super().fit(X, y, X_public=np.random.default_rng(1).normal(size=(60, 2)))

    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(200, 2)), np.array(CLASSES)[rng.integers(2, size=200)]
    model = WithPublic(**classifier(LogisticRegression()).get_params(deep=False))
    with pytest.warns(PooledFitWarning, match="'standardscaler' was fitted to all private rows"):
        make_pipeline(StandardScaler(), model).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error", PooledFitWarning)
        warnings.simplefilter("ignore", SpendingWarning)  # the second fit
        model.set_params(teacher=make_pipeline(StandardScaler(), LogisticRegression())).fit(X, y)


# A run without skops votes, spends, then cannot keep its student


def test_a_run_without_skops_refuses_before_it_votes_or_spends(terrine, tmp_path, monkeypatch):
    path = files(tmp_path)
    with monkeypatch.context() as patched:
        patched.setitem(sys.modules, "skops.io", None)
        code, _, err = terrine("run", path, "--out", tmp_path / "run")
    assert code == 2
    assert "needs skops to keep the student" in err
    for made in ("partition.npz", "votes.npz", "ledger.sqlite", "answers.npz"):
        assert not (tmp_path / "run" / made).exists()
    assert terrine("run", path, "--out", tmp_path / "run")[0] == 0


# A failed first run leaves a directory that refuses the corrected file


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda text: text.replace('label = "income"', 'label = "incom"'), '"incom"'),
        (lambda text: text.replace("queries = 60", "queries = 61000"), "public rows"),
        (lambda text: text.replace("test.csv", "tset.csv"), "tset.csv"),
    ],
    ids=["a label's name", "too many questions", "a file's name"],
)
def test_a_failed_first_run_goes_on_with_the_corrected_settings(wrong, words, terrine, tmp_path):
    path = files(tmp_path)
    good = path.read_text()
    path.write_text(wrong(good))
    code, _, err = terrine("run", path, "--out", tmp_path / "run")
    assert code == 2
    assert words in err
    path.write_text(good)
    assert terrine("run", path, "--out", tmp_path / "run")[0] == 0


def test_a_failed_first_run_goes_on_with_the_corrected_data(terrine, tmp_path):
    path = files(tmp_path)
    PRIVATE.rename(columns={"job": "jbo"}).to_csv(tmp_path / "private.csv", index=False)
    assert terrine("run", path, "--out", tmp_path / "run")[0] == 2
    PRIVATE.to_csv(tmp_path / "private.csv", index=False)
    assert terrine("run", path, "--out", tmp_path / "run")[0] == 0


# `guarantee.json` says "answered 255, at most 254": repeats of a question that were free are counted as answers


def test_guarantee_json_counts_free_repeats_apart_and_agrees_with_the_ledger(tmp_path):
    public = pd.concat([PUBLIC.head(50), PUBLIC.head(10)])
    run = whole(files(tmp_path, public=public), tmp_path / "run")
    shown = json.loads((run.folder / "guarantee.json").read_text())
    assert shown["repeated"] == 10
    assert shown["answered"] == 50 <= shown["answers_at_most"]
    assert shown["answered"] + shown["withheld"] + shown["unasked"] + shown["repeated"] == 60
    with Ledger(run.folder / "ledger.sqlite") as ledger:
        spent = ledger.summary()
    assert (spent.queries, spent.answered) == (50, 50)
    card = json.loads((run.folder / "student" / "model_card.json").read_text())["guarantee"]
    assert {name: card[name] for name in ("answered", "repeated")} == {"answered": 50, "repeated": 10}
