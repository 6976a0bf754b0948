"""PATEClassifier on tables whose labels and units are columns, given by name."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars
import pytest

from terrine import load_student
from terrine.errors import DataError, InputError
from terrine.estimator import PATEClassifier
from terrine.schema import Number, Schema, read_table


def patients(n: int, *, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    ill = rng.random(n) < 0.4
    return pd.DataFrame(
        {
            "diagnosis": np.where(ill, "ill", "well"),
            "age": rng.normal(50 + 15 * ill, 8).round(),
            "patient": [f"p{k // 3}" for k in range(n)],
            "ward": np.where(ill, rng.choice(["north", "south"], n), rng.choice(["east", "north"], n)),
        }
    )


def classifier() -> PATEClassifier:
    return PATEClassifier(classes=["ill", "well"], route="probe", epsilon=2.0, delta=1e-5, planned_units=1000)


FRAMES = {"pandas": lambda table: table, "polars": polars.from_pandas, "table": read_table}


@pytest.mark.parametrize("kind", FRAMES)
def test_labels_and_units_are_taken_out_by_name(kind, tmp_path, terrine):
    given = FRAMES[kind]
    public, new = patients(400, seed=1), patients(300, seed=2)
    private = patients(3000)
    found = classifier().fit(given(private), "diagnosis", X_public=given(public), unit="patient")
    assert found.guarantee_.relation == "unit_any"
    assert list(found.schema_.columns) == ["age", "ward"]
    right = (found.predict(given(new)) == new["diagnosis"]).mean()  # the columns may be there, or not
    assert right > 0.7
    less = given(new[["ward", "age"]])
    assert (found.predict(less) == found.predict(given(new))).all()
    found.save(tmp_path / "student")  # as the receiver of the saved student finds it
    student = load_student(tmp_path / "student")
    index = [found.classes_.tolist().index(one) for one in found.predict(less)]
    assert student.predict(given(new)).tolist() == student.predict(less).tolist() == index
    new.to_csv(tmp_path / "new.csv", index=False)
    new[["ward", "age"]].to_csv(tmp_path / "less.csv", index=False)
    for name in ("new", "less"):
        terrine("predict", tmp_path / "student", tmp_path / f"{name}.csv", "--out", tmp_path / f"{name}-p.csv")
    assert (tmp_path / "new-p.csv").read_text() == (tmp_path / "less-p.csv").read_text()
    assert private.columns.tolist() == ["diagnosis", "age", "patient", "ward"]  # the caller's table is left alone


def test_what_a_schema_is_told_of_label_and_unit():
    drafted = Schema(columns={"age": Number(low=0, high=9)}, ignore=("code",))
    told = drafted.with_roles(label="ill", classes=("no", "yes"), unit="who")
    assert (told.label, told.classes, told.unit, told.ignore) == ("ill", ("no", "yes"), "who", ("code",))
    assert told.with_roles(label="ill", classes=("no", "yes"), unit="who") == told
    other = told.with_roles(label="sick", classes=("no", "yes"), unit="whom")
    assert (other.label, other.unit, other.ignore) == ("ill", "who", ("code", "sick", "whom"))
    assert drafted.with_roles(label="code", classes=("no", "yes"), unit=None) == drafted
    blank = drafted.with_roles(label="ill", classes=("no ", "yes"), unit=None)  # no class of a schema
    assert (blank.label, blank.ignore) == (None, ("code", "ill"))


def test_a_name_in_which_the_tables_differ_is_not_blamed_on_the_private_one():
    private, public = patients(60), patients(60, seed=1).rename(columns={"ward": "wardd"})
    with pytest.raises(DataError) as refused:
        classifier().fit(private, "diagnosis", X_public=public, unit="patient")
    assert str(refused.value) == (
        'X, compared with X_public: there is no column "wardd", but "ward" looks like it. The schema was drafted from '
        "X_public: correct the name in whichever of the two tables is wrong."
    )


def test_a_name_that_is_no_column_is_refused():
    private, public = patients(60), patients(60, seed=1)
    with pytest.raises(InputError, match="X has no column 'diagnose'"):
        classifier().fit(private, "diagnose", X_public=public, unit="patient")
    with pytest.raises(InputError, match="'diagnosis' names a column, and X is no table"):
        classifier().fit(np.zeros((60, 2)), "diagnosis", X_public=np.zeros((60, 2)))
