"""PATEClassifier by the private probe, by the route chosen for the user, and on features."""

from __future__ import annotations

import json
import re
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.special import softmax
from sklearn.base import clone
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import StandardScaler

from terrine import load_student
from terrine.accounting.gdp import gaussian_delta
from terrine.budgets import TrainingBudget
from terrine.errors import InputError, LedgerError, PlanError, SpendingWarning
from terrine.estimator import PATEClassifier
from terrine.estimator import classifier as model
from terrine.features import AutoRecipe, fit_auto
from terrine.ledger import Ledger
from terrine.mechanisms import GNMax
from terrine.noise import SeededNoise
from terrine.probe import fit
from terrine.probe.sureness import sureness
from terrine.relations import Relation
from terrine.schema import Number, Schema
from terrine.students import AutoStudent, FeatureStudent
from terrine.which_route import RouteChoice

pytestmark = pytest.mark.usefixtures("by_renyi")
NAMES = ["ash", "birch", "cedar"]


def rows(n: int, *, seed: int = 0):
    rng = np.random.default_rng(seed)
    y = rng.integers(3, size=n)
    return rng.normal(size=(n, 4)) + 3 * np.eye(4)[y], np.array(NAMES)[y]


X, Y = rows(3019)
UNIT = np.arange(3019) // 4
PUBLIC, PUBLIC_Y = rows(1000, seed=1)
TEST, TRUTH = rows(500, seed=2)


def classifier(**changes):
    settings = {"classes": NAMES, "delta": 1e-5, "epsilon": 1.0, "route": "probe"}
    return PATEClassifier(**(settings | changes))


def test_the_probe_is_the_student_and_says_what_it_guarantees(tmp_path):
    found = classifier().fit(X, Y, X_public=PUBLIC)
    assert found.score(TEST, TRUTH) > 0.9
    assert (found.guarantee_.epsilon, found.guarantee_.relation) == (pytest.approx(1.0), Relation.ROW_REPLACED)
    assert found.guarantee_.epsilon <= 1.0
    assert (found.answers_, found.rounds_, found.route_) == (None, (), None)
    factor = sureness(found.probe_, found.features_.transform(PUBLIC))
    assert factor != 1
    by_hand = softmax(factor * np.log(found.probe_.predict_proba(found.features_.transform(TEST))), axis=1)
    assert np.allclose(found.predict_proba(TEST), by_hand, atol=1e-6)
    found.save(tmp_path / "student")
    kept = load_student(tmp_path / "student")
    assert (np.array(NAMES)[kept.predict(TEST)] == found.predict(TEST)).all()
    card = json.loads((tmp_path / "student" / "card.json").read_text())
    assert card["epsilon"] == found.guarantee_.epsilon
    assert "seeded" not in (tmp_path / "student" / "model_card.md").read_text()


@pytest.mark.parametrize(
    ("changes", "unit", "relation", "twice"),
    [
        ({}, None, Relation.ROW_REPLACED, 2),
        ({"neighbors": "unit_added", "planned_units": 3000}, None, Relation.ROW_ADDED, 1),
        ({"planned_units": 750}, UNIT, Relation.UNIT_ANY, 2),
        ({"neighbors": "unit_added", "planned_units": 750}, UNIT, Relation.UNIT_ADDED, 1),
        ({"method": "balanced"}, UNIT, Relation.UNIT_REPLACED, 2),
    ],
)
def test_the_guarantee_is_that_of_the_noise_for_each_relation(changes, unit, relation, twice):
    """By the published numbers alone: steps, clip and noise; the profile is written out here."""
    found = classifier(**changes).fit(X, Y, X_public=PUBLIC, unit=unit)
    told = found._published
    assert told.relation == found.guarantee_.relation == relation
    mu = np.sqrt(told.steps) * told.clip * twice / told.noise
    assert gaussian_delta(mu=mu, epsilon=told.epsilon) == pytest.approx(1e-5, rel=1e-6)
    planned = {Relation.ROW_REPLACED: 3019, Relation.UNIT_REPLACED: 755}.get(relation, changes.get("planned_units"))
    assert told.planned_units == planned
    settings = found.probe_.settings
    budget = settings.budget(epsilon=1.0, delta=1e-5, planned_units=planned, relation=relation)
    assert budget.guarantee() == found.guarantee_


def test_a_ledger_goes_on_after_a_kill_and_pays_once(tmp_path, monkeypatch):
    place, summed, calls = tmp_path / "probe.sqlite", fit.gradient_sum, []

    def killed(*args, **options):
        calls.append(1)
        if len(calls) == 5:
            raise KeyboardInterrupt
        return summed(*args, **options)

    monkeypatch.setattr(fit, "gradient_sum", killed)
    settings = {"ledger": place, "neighbors": "unit_added", "planned_units": 3000}
    with pytest.raises(KeyboardInterrupt):
        classifier(**settings).fit(X, Y, X_public=PUBLIC)
    with Ledger(place) as ledger:
        assert isinstance(ledger.budget, TrainingBudget)
        assert ledger.training.state().begun == 4  # charged; the fifth step was killed before it was begun
    found = classifier(**settings).fit(X, Y, X_public=PUBLIC)
    assert found.probe_.steps_kept == found.probe_.settings.sums
    assert len(calls) == found.probe_.settings.steps + 1
    again = classifier(**settings).fit(X, Y, X_public=PUBLIC)
    assert (again.probe_.weights == found.probe_.weights).all()
    assert len(calls) == found.probe_.settings.steps + 1  # nothing was drawn again
    with pytest.raises(InputError, match="The private data have changed since the training on this ledger began"):
        classifier(**settings).fit(X[::-1], Y, X_public=PUBLIC)
    with pytest.raises(InputError, match="X_public or the features have changed since the training on this ledger"):
        classifier(**settings).fit(X, Y, X_public=PUBLIC * 1.001)  # weights behind features that are learned anew
    said = "ε = 1.000 at δ = 1e-05 by row_added, not ε = 2.000 at δ = 1e-05 by row_added (steps="
    with pytest.raises(LedgerError, match=re.escape(said)):
        classifier(**settings | {"epsilon": 2.0}).fit(X, Y, X_public=PUBLIC)
    secret = [path for path in tmp_path.iterdir() if "private" in path.name]
    assert [path.stat().st_mode & 0o777 for path in secret] == [0o600]


def test_there_is_no_guarantee_where_noise_was_seeded(tmp_path, monkeypatch):
    monkeypatch.setattr(fit, "SecureNoise", SeededNoise)
    monkeypatch.setattr(fit, "as_noise", lambda _: SeededNoise(0))
    found = classifier(ledger=tmp_path / "probe.sqlite").fit(X, Y, X_public=PUBLIC)
    with pytest.raises(InputError, match="no guarantee"):
        found.guarantee_  # noqa: B018
    found.save(tmp_path / "student")
    assert "NOT PRIVATE" in (tmp_path / "student" / "model_card.md").read_text()


def test_a_student_learns_from_the_probes_labels():
    for student in (LogisticRegression(), AutoStudent(nets="no")):
        found = classifier(student=student).fit(X, Y, X_public=PUBLIC, y_public=PUBLIC_Y)
        assert found.score(TEST, TRUTH) > 0.9
        assert found.student_.about.noise == "secure"


REFUSED = {
    "route": ({"route": "best"}, "route must be one of teachers, tested, probe, auto, or None, got 'best'"),
    "neighbors": ({"neighbors": "row_added"}, 'neighbors must be "unit_added" or None'),
    "mechanism": ({"mechanism": GNMax(sigma=5)}, 'route="probe" has no teachers: leave mechanism out'),
    "rounds": ({"rounds": 2}, 'route="probe" has no teachers: leave rounds out'),
    "teacher": ({"teacher": LogisticRegression()}, 'route="probe" has no teachers: leave teacher out'),
    "questions": ({"n_queries": 100}, 'route="probe" has no teachers: leave n_queries out'),
    "target": ({"target": 1.0}, 'route="probe" has no teachers: leave target out'),
    "no epsilon": ({"epsilon": None}, 'epsilon is missing: route="probe" finds the noise for it'),
    "unplanned": ({"neighbors": "unit_added"}, "planned_units is missing: about how many people"),
    "planned badly": ({"planned_units": 0}, "planned_units must be a whole number of at least 1"),
    "auto": ({"route": "auto", "mechanism": GNMax(sigma=5)}, "plans how teachers are asked: leave mechanism out"),
    "dealt": ({"route": "auto", "neighbors": "unit_added", "method": "balanced"}, "does not hold for teachers"),
    "teachers": ({"route": None, "neighbors": "unit_added", "method": "balanced"}, "does not hold for teachers"),
}


@pytest.mark.parametrize(("changes", "words"), REFUSED.values(), ids=REFUSED)
def test_what_has_no_meaning_is_refused_before_a_row_is_looked_at(changes, words, monkeypatch):
    for name in ("encoder_for", "both_sides", "warn_of_pooled_fit"):
        monkeypatch.setattr(model, name, lambda *_, **__: pytest.fail("rows were looked at"))
    with pytest.raises(InputError, match=re.escape(words)):
        classifier(**changes).fit(None, None)


def test_units_are_needed_where_they_decide():
    with pytest.raises(InputError, match="planned_units is missing"):
        classifier().fit(X, Y, X_public=PUBLIC, unit=UNIT)
    for route in (None, "teachers"):
        with pytest.raises(InputError, match="needs to know whom each row belongs to"):
            classifier(route=route, neighbors="unit_added", planned_units=750).fit(X, Y, X_public=PUBLIC)
    with pytest.raises(InputError, match="too few for a probe"):
        classifier(neighbors="unit_added", planned_units=20, epsilon=0.1).fit(X, Y, X_public=PUBLIC)
    with pytest.raises(InputError, match="y_public has no use here"):
        classifier(route=None, n_teachers=20).fit(X, Y, X_public=PUBLIC, y_public=PUBLIC_Y)
    with pytest.raises(InputError, match="y_public must have one label for each row"):
        classifier(route="auto").fit(X, Y, X_public=PUBLIC, y_public=PUBLIC_Y[:5])


def test_auto_may_be_for_a_row_that_is_added_where_it_takes_the_probe(monkeypatch):
    """The relation is public, and so is the choice: no private row has a say in whether a fit is refused."""
    found = classifier(route="auto", neighbors="unit_added", planned_units=3000, n_teachers=60)
    found.fit(X, Y, X_public=PUBLIC)
    assert found.route_.route == "probe"
    assert found.guarantee_.relation == found.route_.relation == Relation.ROW_ADDED
    monkeypatch.setattr(model, "choose_route", lambda **_: replace(found.route_, route="teachers"))
    with pytest.raises(InputError, match="needs to know whom each row belongs to where there are teachers"):
        classifier(route="auto", neighbors="unit_added", planned_units=3000).fit(X, Y, X_public=PUBLIC)


def test_teachers_may_be_for_a_unit_that_is_added():
    found = classifier(
        route="teachers", teacher=LogisticRegression(), student=LogisticRegression(), n_teachers=40, epsilon=4.0,
        neighbors="unit_added", planned_units=750, min_units=0,
    ).fit(X, Y, X_public=PUBLIC, unit=UNIT)  # fmt: skip
    assert found.guarantee_.relation == Relation.UNIT_ADDED
    assert (found.probe_, found.route_) == (None, None)


def test_auto_takes_the_probe_for_few_rows_and_says_why():
    found = classifier(route="auto", n_teachers=60).fit(X, Y, X_public=PUBLIC)
    assert isinstance(found.route_, RouteChoice)
    assert (found.route_.route, found.route_.by) == ("probe", "rule")
    assert found.route_.planned_units == 3019  # public: a row is replaced
    assert found.probe_ is not None
    assert found.score(TEST, TRUTH) > 0.9


def test_a_plan_says_what_a_fit_would_do_and_spends_nothing(tmp_path):
    place = tmp_path / "ledger.sqlite"
    model = classifier(route="auto", n_teachers=60, ledger=place)
    plan = model.plan(X, Y, X_public=PUBLIC)
    assert "about noise alone" in str(plan)
    assert not place.exists()
    assert not hasattr(model, "classes_")  # nothing of it stays
    assert (plan.route, plan.choice.route) == ("probe", "probe")
    found = model.fit(X, Y, X_public=PUBLIC)
    assert (plan.guarantee, plan.choice) == (found.guarantee_, found.route_)
    assert str(plan).startswith(f"Route: probe. {found.route_.reason}\nA fit would spend (1.000, 1e-05)-DP")
    plain = LogisticRegression()
    teachers = {"route": "teachers", "n_teachers": 40, "teacher": plain, "student": plain, "features": None}
    shown = classifier(**teachers, epsilon=4.0).plan(X, Y, X_public=PUBLIC)
    assert shown.route == "teachers"
    assert shown.guarantee == classifier(**teachers, epsilon=4.0).fit(X, Y, X_public=PUBLIC).guarantee_
    few = classifier(**teachers, epsilon=2.0)
    assert "Warning: This plan gives about" in str(few.plan(X, Y, X_public=PUBLIC))
    assert 'Or give route="auto": a private probe may do with fewer people.' in str(few.plan(X, Y, X_public=PUBLIC))
    for too_few in (classifier(epsilon=0.01), classifier(**teachers, epsilon=0.05)):
        said = []
        for call in (too_few.plan, too_few.fit):
            with pytest.raises((InputError, PlanError)) as refused:
                call(X, Y, X_public=PUBLIC)
            said.append(str(refused.value))
        assert said[0] == said[1]


def test_a_plan_looks_at_the_ledger(tmp_path, monkeypatch):
    place = tmp_path / "ledger.sqlite"
    model = classifier(ledger=place)
    model.fit(X, Y, X_public=PUBLIC)
    before = place.read_bytes()
    again = str(model.plan(X, Y, X_public=PUBLIC))
    assert "The ledger ledger.sqlite is charged already, for (1.000, 1e-05)-DP" in again
    assert "gives the same student again, at no further cost" in again
    assert "would spend" not in again
    for other in (classifier(ledger=place, epsilon=2.0), classifier(ledger=place)):
        public = PUBLIC if other.epsilon == 2.0 else 3 * PUBLIC
        said = []
        for call in (other.plan, other.fit):
            with pytest.raises(InputError) as refused:
                call(X, Y, X_public=public)
            said.append(str(refused.value))
        assert said[0] == said[1]
    assert place.read_bytes() == before
    monkeypatch.setenv("TERRINE_LEDGER", str(place))
    assert classifier().plan(X, Y, X_public=PUBLIC).charged is not None
    monkeypatch.delenv("TERRINE_LEDGER")
    assert classifier().plan(X, Y, X_public=PUBLIC).charged is None
    plain = LogisticRegression()
    teachers = {"route": "teachers", "n_teachers": 40, "teacher": plain, "student": plain, "features": None}
    model = classifier(**teachers, epsilon=4.0, ledger=tmp_path / "teachers.sqlite").fit(X, Y, X_public=PUBLIC)
    assert "questions are charged to it already" in str(model.plan(X, Y, X_public=PUBLIC))


def test_auto_without_a_planning_number_is_refused_and_says_what_to_give(tmp_path):
    place = tmp_path / "ledger.sqlite"
    asked = "planned_units is missing.*Teachers and probe are compared.*planned_units=2_000, or set route=.teachers"
    with pytest.raises(InputError, match=asked):
        classifier(route="auto", ledger=place).fit(X, Y, X_public=PUBLIC, unit=UNIT)
    schema = Schema(columns={"a": Number(low=-9, high=9), "b": Number(low=-9, high=9)}, unit="who")
    frame = pd.DataFrame(X[:, :2], columns=["a", "b"]).assign(who=UNIT)
    with pytest.raises(InputError, match=asked):  # the unit is the schema's own column
        classifier(route="auto", ledger=place, schema=schema).fit(frame, Y, X_public=frame.drop(columns="who"))
    assert not place.exists()


def test_labeled_public_rows_decide():
    """XOR of two columns: nothing that adds up columns can know it, and nearest rows do."""
    rng = np.random.default_rng(3)
    corners = rng.integers(2, size=(6000, 2))
    given, truth = corners + rng.normal(0, 0.1, size=corners.shape), corners.sum(axis=1) % 2
    nearest = KNeighborsClassifier(5)
    found = PATEClassifier(nearest, nearest, classes=[0, 1], delta=1e-5, epsilon=3.0, n_teachers=50, route="auto").fit(
        given[:4000], truth[:4000], X_public=given[4000:], y_public=truth[4000:]
    )
    assert (found.route_.route, found.route_.by) == ("teachers", "rehearsal")
    assert found.route_.option("teachers").accuracy > 0.9 > found.route_.option("probe").accuracy
    assert "2,000 labeled public rows" in found.route_.reason
    assert found.score(given[5000:], truth[5000:]) > 0.7  # with secure noise: 0.91 where it was written


def table(n: int, *, seed: int) -> tuple[pd.DataFrame, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = rng.integers(2, size=n)
    frame = pd.DataFrame(
        {
            "stay": np.where(rng.random(n) < 0.1, np.nan, rng.normal(3 + 2 * y, 1)),
            "ward": np.where(rng.random(n) < 0.8, np.array(["north", "south"])[y], "east"),
            "note": np.where(rng.random(n) < 0.7, np.array(["went home early", "came back in pain"])[y], "nothing"),
        }
    )
    return frame, np.array(["no", "yes"])[y]


def test_a_table_with_words_blanks_and_people(tmp_path):
    private, labels = table(4000, seed=0)
    public, new = table(1500, seed=1)[0], table(500, seed=2)
    people = np.array([f"p{k}" for k in np.arange(4000) // 3])
    found = PATEClassifier(
        classes=["no", "yes"], delta=1e-5, epsilon=1.0, route="probe", neighbors="unit_added", planned_units=1300
    ).fit(private, labels, X_public=public, unit=people)
    assert found.score(*new) > 0.85
    assert found.score(new[0][["note", "ward", "stay"]], new[1]) == found.score(*new)
    found.save(tmp_path / "student")
    kept = load_student(tmp_path / "student")
    assert (np.array(["no", "yes"])[kept.predict(new[0])] == found.predict(new[0])).all()
    assert {"schema.toml"} <= {path.name for path in (tmp_path / "student").iterdir()}


def test_images():
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=4000)
    images = rng.integers(0, 90, size=(4000, 12, 12)).astype(np.uint8)
    for k, (row, column) in enumerate([(1, 1), (6, 1), (3, 7)]):
        images[y == k, row : row + 4, column : column + 4] += 120
    found = PATEClassifier(
        classes=[0, 1, 2], delta=1e-5, epsilon=1.0, route="probe", neighbors="unit_added", planned_units=3000,
        features=fit_auto(images[3000:3600], recipe=AutoRecipe(components=20, encoder="no"), seed=0),
    ).fit(images[:3000], y[:3000], X_public=images[3000:3600])  # fmt: skip
    assert (found.student_.predict(images[3600:]) == y[3600:]).mean() > 0.9


def test_texts_without_an_encoder_are_refused_in_words():
    texts, labels = ["a good day", "a bad day"] * 50, ["ash", "birch"] * 50
    with pytest.raises(InputError, match='features="auto" takes arrays of numbers, images and tables'):
        classifier().fit(texts, labels, X_public=[*texts])


def mirrored(rows: np.ndarray) -> np.ndarray:
    return np.concatenate([rows, -rows], axis=1)


@pytest.mark.parametrize("encoder", [mirrored, StandardScaler(), StandardScaler().fit(PUBLIC)])
def test_an_encoder_of_ones_own(encoder):
    found = classifier(features=encoder).fit(X, Y, X_public=PUBLIC)
    assert found.score(TEST, TRUTH) > 0.9
    seen = mirrored(TEST) if encoder is mirrored else StandardScaler().fit(PUBLIC).transform(TEST)
    assert np.allclose(found.features_.transform(TEST), seen, atol=1e-4)  # of public rows, never of private ones


def test_an_encoder_that_looks_at_other_rows_is_refused():
    with pytest.raises(InputError, match="the same numbers for all public rows, each by itself"):
        classifier(features=lambda rows: rows - rows.mean(axis=0)).fit(X, Y, X_public=PUBLIC)


def test_texts_by_an_encoder(tmp_path):
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=4000)
    words = np.array([["fine", "good", "sunny", "calm"], ["bad", "wet", "stormy", "grim"]])
    texts = [f"a {words[k][i]} and {words[k][j]} day no {n}" for n, (k, i, j) in
             enumerate(zip(y, rng.integers(4, size=4000), rng.integers(4, size=4000), strict=True))]  # fmt: skip
    encoder = TfidfVectorizer(max_features=40)
    found = PATEClassifier(classes=[0, 1], delta=1e-5, epsilon=1.0, route="probe", features=encoder).fit(
        texts[:3000], y[:3000], X_public=texts[3000:3600]
    )
    assert found.score(texts[3600:], y[3600:]) > 0.95
    found.save(tmp_path / "student")
    assert (load_student(tmp_path / "student").predict(texts[3600:]) == found.predict(texts[3600:])).all()


def test_teachers_and_student_see_features(tmp_path):
    for given in ("auto", fit_auto(PUBLIC, seed=0)):
        found = classifier(route=None, features=given, n_teachers=60, epsilon=4.0).fit(X, Y, X_public=PUBLIC)
        assert found.score(TEST, TRUTH) > 0.7
        assert found.student_.features is found.features_
        assert found.features_.n_features > 4
    found.save(tmp_path / "student")
    assert (np.array(NAMES)[load_student(tmp_path / "student").predict(TEST)] == found.predict(TEST)).all()
    with pytest.raises(InputError, match="rows of shape"):
        classifier(features=fit_auto(PUBLIC[:, :2], seed=0)).fit(X, Y, X_public=PUBLIC)
    with pytest.raises(InputError, match="features must be"):
        classifier(features=7).fit(X, Y, X_public=PUBLIC)


def test_private_rows_never_make_features():
    """Other private rows, the same features and settings: only public rows and public numbers decide these."""
    one, other = (
        classifier(neighbors="unit_added", planned_units=3000).fit(some, labels, X_public=PUBLIC)
        for some, labels in ((X, Y), (X[:1500] * 5 - 2, Y[:1500]))
    )
    assert (one.features_.transform(TEST) == other.features_.transform(TEST)).all()
    assert one.probe_.settings == other.probe_.settings
    assert one.guarantee_ == other.guarantee_


def test_no_private_count_is_told():
    """3,019 rows of 755 people: neither number stands in anything that a fitted estimator holds, says or keeps."""
    for route in ("probe", "auto"):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            found = classifier(
                route=route, planned_units=700, neighbors="unit_added", n_teachers=50, min_units=0,
                measure=False,  # a measured number is near the private one, and with noise now and then the same
            ).fit(X, Y, X_public=PUBLIC, unit=UNIT)  # fmt: skip
        assert found.probe_ is not None
        told = [repr(found), repr(vars(found)), repr(found.guarantee_), *(str(one.message) for one in caught)]
        told += [repr(vars(part)) for part in (found.probe_, found.student_, found.features_)]
        told.append(json.dumps(found._published.to_json()))
        if found.route_ is not None:
            told.append(json.dumps(found.route_.to_json()))
        numbers = {digits for text in told for digits in re.findall(r"\d+", text.replace(",", ""))}
        assert not {"3019", "755", "754"} & numbers


def test_every_fit_of_a_copy_warns():
    with pytest.warns(SpendingWarning, match="every fit spends its epsilon again"):
        clone(classifier()).fit(X, Y, X_public=PUBLIC)


def test_a_feature_student_of_ones_own_keeps_its_features():
    own = FeatureStudent(features=fit_auto(PUBLIC, seed=7))
    found = classifier(student=own).fit(X, Y, X_public=PUBLIC)
    assert found.student_.features is own.features
