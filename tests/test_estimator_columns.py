"""PATEClassifier on tables whose labels and units are columns, given by name."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars
import pytest

from terrine.errors import InputError
from terrine.estimator import PATEClassifier
from terrine.schema import read_table


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
def test_labels_and_units_are_taken_out_by_name(kind):
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
    assert private.columns.tolist() == ["diagnosis", "age", "patient", "ward"]  # the caller's table is left alone


def test_a_name_that_is_no_column_is_refused():
    private, public = patients(60), patients(60, seed=1)
    with pytest.raises(InputError, match="X has no column 'diagnose'"):
        classifier().fit(private, "diagnose", X_public=public, unit="patient")
    with pytest.raises(InputError, match="'diagnosis' names a column, and X is no table"):
        classifier().fit(np.zeros((60, 2)), "diagnosis", X_public=np.zeros((60, 2)))
