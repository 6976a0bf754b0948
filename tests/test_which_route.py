"""Which route is taken, from public numbers alone."""

from __future__ import annotations

import inspect
import json
import math
from pathlib import Path

import pytest

from terrine.accounting.gdp import GaussianSteps
from terrine.errors import InputError
from terrine.probe.settings import signal
from terrine.relations import Relation
from terrine.which_route import SURE, RehearsedRoutes, RouteChoice, choose_route

PLAN = {"epsilon": 1.0, "delta": 1e-5, "relation": Relation.UNIT_ADDED, "planned_units": 60_000}
SIZES = {"n_classes": 10, "n_features": 500, "n_public": 9_000, "n_teachers": 250}


def test_teachers_with_few_rows_for_many_features_give_way_to_a_probe():
    found = choose_route(**PLAN, **SIZES)
    assert (found.route, found.by) == ("probe", "rule")
    assert "Teachers would have too little" in found.reason
    assert found.option("probe").works
    assert not found.option("teachers").works


def test_teachers_whose_shares_are_enough_are_taken():
    sizes = {"n_classes": 2, "n_features": 5, "n_public": 10_000, "n_teachers": 200}
    found = choose_route(**PLAN | {"planned_units": 100_000}, **sizes)
    assert found.route == "teachers"
    assert found.option("teachers").works
    assert choose_route(**PLAN | {"planned_units": 9_000}, **sizes).route == "probe"  # 9 units for each feature
    assert choose_route(**PLAN | {"planned_units": 100_000, "epsilon": 0.1}, **sizes).route == "probe"  # noise
    assert choose_route(**PLAN | {"planned_units": 100_000}, **sizes | {"n_public": 9}).route == "probe"  # questions


def test_without_a_planning_number_there_are_teachers_and_the_reason_says_what_to_give():
    found = choose_route(**PLAN | {"planned_units": None}, **SIZES)
    assert found.route == "teachers"
    assert "planned_units" in found.reason
    assert "not by counting them" in found.reason


@pytest.mark.parametrize(
    ("relation", "sizes", "why"),
    [
        (Relation.ONE_TEACHER, SIZES, "no teachers"),
        (Relation("one hospital is left out"), SIZES, "one hospital is left out"),
        (Relation.UNIT_ADDED, SIZES | {"n_features": 200_000}, "Keep fewer components"),
    ],
)
def test_where_a_probe_cannot_be_there_are_teachers(relation, sizes, why):
    found = choose_route(**PLAN | {"relation": relation}, **sizes)
    assert found.route == "teachers"
    assert why in found.reason
    assert why in found.option("probe").why_not


def test_a_replaced_unit_halves_what_a_probe_has_and_leaves_votes_as_they_are():
    added, replaced = (
        choose_route(**PLAN | {"relation": relation}, **SIZES)
        for relation in (Relation.UNIT_ADDED, Relation.ROW_REPLACED)
    )
    [once], [twice] = added.option("probe").checks, replaced.option("probe").checks
    assert once.value == pytest.approx(2 * twice.value, rel=1e-6)
    assert added.option("teachers") == replaced.option("teachers")


def test_the_lead_is_that_of_answers_with_the_noise_for_epsilon_and_delta():
    lead = choose_route(**PLAN, **SIZES).option("teachers").checks[1]
    questions, unit = 500, 2**30
    noise = 0.5 * SIZES["n_teachers"] / lead.value / math.sqrt(2)  # of one count
    cost = GaussianSteps(
        steps=questions, sensitivity=math.ceil(math.sqrt(2) * unit), noise=round(noise * unit), dimension=1
    )
    assert cost.epsilon(delta=PLAN["delta"]) == pytest.approx(PLAN["epsilon"], rel=1e-3)
    assert f"{questions} questions" in lead.what


def test_where_neither_works_the_reason_says_so():
    found = choose_route(**PLAN | {"planned_units": 200}, **SIZES)
    assert found.route == "probe"
    assert "Neither route is expected to learn much" in found.reason


def rehearsed(teachers: list[float], probe: list[float], n: int = 2_000) -> RehearsedRoutes:
    return RehearsedRoutes(teachers=tuple(teachers), probe=tuple(probe), n_labelled=n)


def test_a_rehearsal_decides_where_its_difference_is_beyond_its_noise():
    clear = rehearsed([0.93, 0.94, 0.935], [0.85, 0.86, 0.85])
    found = choose_route(**PLAN, **SIZES, rehearsed=clear)
    assert (found.route, found.by) == ("teachers", "rehearsal")
    assert "8.2%" in found.reason
    assert found.option("teachers").accuracy == pytest.approx(0.935)
    close = rehearsed([0.90, 0.86, 0.88], [0.87, 0.89, 0.87])
    found = choose_route(**PLAN, **SIZES, rehearsed=close)
    assert (found.route, found.by) == ("probe", "rule")
    assert "no difference beyond its own noise" in found.reason


def test_a_rehearsal_does_not_bring_back_a_route_that_cannot_be():
    best = rehearsed([0.5, 0.5, 0.5], [0.9, 0.9, 0.9])
    assert choose_route(**PLAN | {"relation": Relation.ONE_TEACHER}, **SIZES, rehearsed=best).route == "teachers"
    assert choose_route(**PLAN | {"planned_units": None}, **SIZES, rehearsed=best).route == "teachers"


def test_equal_folds_are_not_taken_for_certainty():
    """Three folds that differ by the same hundredth have no spread, but 100 rows decide nothing by one of them."""
    found = rehearsed([0.9, 0.9, 0.9], [0.91, 0.91, 0.91], n=100)
    assert found.error > 0.01 / SURE
    assert found.better is None
    assert rehearsed([0.9, 0.9, 0.9], [0.91, 0.91, 0.91], n=10_000).better == "probe"


@pytest.mark.parametrize("folds", [([0.5], [0.5]), ([0.5, 0.6], [0.5]), ([0.5, 1.1], [0.5, 0.5])])
def test_a_rehearsal_has_pairs_of_accuracies(folds):
    with pytest.raises(InputError, match="accuracy"):
        rehearsed(*folds)


def test_the_choice_comes_back_from_json():
    for more in ({}, {"rehearsed": rehearsed([0.9, 0.8], [0.9, 0.8])}):
        found = choose_route(**PLAN, **SIZES, **more)
        assert RouteChoice.from_json(json.loads(json.dumps(found.to_json()))) == found
    with pytest.raises(InputError, match="no choice of a route"):
        RouteChoice.from_json({"schema": "terrine.plan/1"})


def test_the_table_has_a_row_for_each_thing_that_a_route_needs():
    found = choose_route(**PLAN, **SIZES, rehearsed=rehearsed([0.9, 0.8], [0.91, 0.8]))
    rows = found.rows()
    assert [row[0] for row in rows] == ["teachers", "", "", "probe (chosen)"]
    assert rows[0][3].startswith("85.0% ±")
    assert choose_route(**PLAN | {"planned_units": None}, **SIZES).rows()[0][0] == "teachers (chosen)"


def test_the_page_has_the_table_of_its_numbers():
    page = (Path(__file__).parents[1] / "docs" / "which_route.md").read_text(encoding="utf-8")
    for route, needs, has, _ in choose_route(**PLAN, **SIZES).rows():
        assert f"| {route} | {needs} | {has} | |".replace("|  |", "| |") in page


def test_only_public_numbers_are_arguments():
    assert set(inspect.signature(choose_route).parameters) == {*PLAN, *SIZES, "rehearsed"}


def test_what_the_page_says_of_mu():
    said = (Path(__file__).parents[1] / "docs" / "which_route.md").read_text(encoding="utf-8")
    for epsilon, shown in ((0.1, "0.033"), (0.3, "0.089"), (1, "0.27"), (2, "0.50")):
        mu = signal(epsilon=epsilon, delta=1e-5, planned_units=1)
        assert float(shown) == pytest.approx(mu, abs=0.5 * 10 ** -len(shown.split(".")[1]))
        assert f"{shown} at {'ε = ' if epsilon == 0.1 else ''}{epsilon}" in said
    for _, needs, has, _ in choose_route(**PLAN, **SIZES).rows():
        assert f"{needs} | {has} |" in said
