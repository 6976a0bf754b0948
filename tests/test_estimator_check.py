"""What PATEClassifier tells the owner alone: odd labels, a measured verdict, columns that X_public lacks."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pandas as pd
import pytest

from terrine import PATEClassifier
from terrine.errors import AdviceWarning, InputError, SecretError, SpendingWarning
from terrine.schema import Number, Schema
from terrine.sensitive import Sensitive

PLAN = {"epsilon": 4.0, "delta": 1e-5, "planned_units": 2_000, "route": "probe"}


def frame(n: int, *, seed: int = 0, rare: float = 0.5) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    ill = rng.random(n) < rare
    age = rng.normal(40 + 20 * ill, 10)
    return pd.DataFrame({"age": age, "size": rng.normal(size=n), "who": [f"p{k}" for k in range(n)], "ill": ill})


PUBLIC = frame(300, seed=1)[["age", "size"]]


@pytest.fixture
def model() -> PATEClassifier:
    return PATEClassifier(classes=["no", "yes"], **PLAN)


def labelled(n: int = 600, **words: str) -> pd.DataFrame:
    found = frame(n)
    return found.assign(ill=[words.get("yes", "yes") if one else words.get("no", "no") for one in found["ill"]])


def test_check_names_labels_that_are_no_class_and_keeps_nothing(model):
    rows = labelled(yes="Yes")
    rows.loc[3, "who"] = None
    found = model.check(rows, "ill", X_public=PUBLIC, unit="who")
    assert isinstance(found, Sensitive)
    assert "Yes" not in f"{found} {found!r}"
    with pytest.raises(SecretError):
        json.dumps(str(len(found)))
    said = found.reveal()
    n = int((rows["ill"] == "Yes").sum())
    assert said.startswith("secret: depends on private rows\n")
    assert "\"ill\": no row has the class 'yes'" in said
    assert f"\"ill\": {n} of 600 rows: unknown label: 'Yes' ({n})" in said
    assert '"who": 1 of 600 rows: missing unit' in said
    assert not [name for name in vars(model) if name.endswith("_")]


def test_check_takes_the_schema_s_unit_as_a_fit_does(model):
    rows = labelled()
    rows.loc[:9, "who"] = None
    schema = Schema(columns={"age": Number(low=0, high=90), "size": Number(low=-5, high=5)}, unit="who")
    said = model.set_params(schema=schema).check(rows, "ill", X_public=PUBLIC).reveal()
    assert '"who": 10 of 600 rows: missing unit' in said


def test_check_of_arrays_and_of_labels_by_value(model):
    rows = labelled()
    X, y = rows[["age", "size"]].to_numpy(), rows["ill"].tolist()
    assert model.check(X, y, X_public=PUBLIC.to_numpy()).reveal().endswith("\nno faults")
    y[:2] = [None, "maybe"]
    said = model.check(X, y, unit=rows["who"]).reveal()
    assert '"ill"' not in said  # a list has no name
    assert "\"y\": 1 of 600 rows: unknown label: 'maybe' (1)" in said
    assert '"y": 1 of 600 rows: missing label' in said
    numbers = PATEClassifier(classes=[0, 1], **PLAN)
    assert (
        numbers.check(X, rows["ill"].eq("yes").astype(float), X_public=PUBLIC.to_numpy()).reveal().endswith("no faults")
    )
    with pytest.raises(InputError, match="one length"):
        model.check(X, y[:5])


def test_check_tells_of_cells_that_the_schema_does_not_know(model):
    rows = labelled().assign(size="small")
    public = PUBLIC.assign(size=["small", "large"] * 150)
    rows.loc[:4, "size"] = "tiny"
    said = model.check(rows, "ill", X_public=public, unit="who").reveal()
    assert '"size": 5 of 600 rows: unknown category' in said


def test_a_plan_asks_for_a_check(model):
    said = str(model.plan(labelled(), "ill", X_public=PUBLIC, unit="who"))
    assert "Are the classes spelled as in y?" in said
    assert "check(" in said


def test_a_fit_warns_of_a_verdict_that_is_not_clear_and_the_card_has_it(tmp_path, model):
    rng = np.random.default_rng(0)
    rows = labelled(2_000).assign(age=rng.normal(size=2_000))  # nothing to learn
    rows["ill"] = np.where(rng.random(2_000) < 0.2, "yes", "no")
    with pytest.warns(AdviceWarning, match="It is not clear that the probe is better than a constant") as heard:
        model.fit(rows, "ill", X_public=PUBLIC, unit="who")
    said = next(str(one.message) for one in heard if "constant" in str(one.message))
    assert "P(yes)" in said
    assert '"Rare classes" of terrine' in said
    model.save(tmp_path / "student")
    card = json.loads((tmp_path / "student" / "card.json").read_text())
    assert any("It is not clear that the probe is better" in one for one in card["warnings"])
    page = (tmp_path / "student" / "model_card.md").read_text()
    assert "**Warning:** It is not clear that the probe is better" in page
    assert card["unit_column"] == "who"
    assert "each `who` of the private data: all rows that share it" in page
    assert "right about" in page
    assert "A unit is all rows that share one who" in page
    steps = model.probe_.settings.steps
    assert f"{steps} noisy sums of gradients and one that measured it" in page
    assert f"| steps_kept | {steps} |" in page


def test_a_fit_says_that_labels_may_be_misspelled_where_nothing_is_measured(model):
    rows = labelled(2_000, yes="Yes", no="No")
    with pytest.warns(AdviceWarning, match="hardly any private label is spelled as in `classes`"):
        model.fit(rows, "ill", X_public=PUBLIC, unit="who")


def test_a_clear_verdict_warns_of_nothing(model):
    rows = labelled(2_000)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.fit(rows.drop(columns="who"), "ill", X_public=PUBLIC, unit=rows["who"])
    assert model.measured_.clear


def test_the_card_names_a_unit_that_the_schema_or_a_series_names(tmp_path, model):
    rows = labelled(2_000)
    model.fit(rows.drop(columns="who"), "ill", X_public=PUBLIC, unit=rows["who"].rename("person"))
    assert "share one person" in model.measured_.words
    kinds = {name: Number(low=-9, high=99) for name in ("age", "size")}
    model.set_params(schema=Schema(columns=kinds, unit="who"), classes=["no", "yes"])
    with pytest.warns(SpendingWarning):
        model.fit(rows, "ill", X_public=PUBLIC)
    model.save(tmp_path / "student")
    assert json.loads((tmp_path / "student" / "card.json").read_text())["unit_column"] == "who"


@pytest.mark.parametrize("named", [True, False])
def test_a_column_of_units_that_stays_in_X_is_named_with_what_to_do(model, named):
    rows = labelled()
    unit = rows["who"] if named else rows["who"].tolist()
    with pytest.raises(InputError, match=r'X has a column "who" that X_public lacks.*drop it from X.*unit="who"'):
        model.fit(rows.drop(columns="ill"), rows["ill"], X_public=PUBLIC, unit=unit)


def test_a_planning_number_does_not_come_from_counting():
    with pytest.raises(InputError, match=r"does not come from counting your rows, as len\(X\) does"):
        PATEClassifier(classes=["no", "yes"], route="probe", epsilon=1.0, delta=1e-5).fit(
            labelled(), "ill", X_public=PUBLIC, unit="who"
        )
