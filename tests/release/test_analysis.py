"""An analysis is a value: made, sent as JSON, read back; what depends on the votes is in one part of it."""

from __future__ import annotations

import json

import numpy as np
import pytest

from terrine import ConfidentGNMax, CountBudget, GNMax, Guarantee, LNMax, Votes, answer
from terrine.errors import InputError
from terrine.published import PublishedGuarantee
from terrine.release.analysis import SECRET, Analysis, AnalysisSettings, analyze_votes
from terrine.release.tested import tested_guarantee as fix_tested
from terrine.report.plots import plot_analysis

CONFIDENT = ConfidentGNMax(threshold=60, sigma_check=40, sigma_vote=10)


def votes(seed=0):
    top = np.random.default_rng(seed).integers(70, 100, size=30)
    return Votes(np.stack([top, 100 - top, 0 * top], axis=1), n_teachers=100)


@pytest.mark.parametrize("mechanism", [CONFIDENT, GNMax(sigma=20), LNMax(scale=20)])
@pytest.mark.parametrize("reveal", [False, True])
@pytest.mark.parametrize("n_points", [0, 7])
def test_it_is_read_back_as_it_was_written(mechanism, reveal, n_points):
    accountant = "paper" if isinstance(mechanism, LNMax) else "exact"
    settings = AnalysisSettings(delta=1e-5, accountant=accountant)
    found = analyze_votes(votes(), mechanism, settings, reveal=reveal, n_points=n_points)
    sent = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert Analysis.from_json(sent) == found
    assert (found.on_these_votes is not None) == reveal == (sent.get("secret") == SECRET)
    assert (found.by_query is not None) == bool(n_points)
    if found.by_query is not None:
        assert found.by_query.queries[-1] == 30
        assert found.by_query.worst_case[-1] <= found.data_independent_epsilon
        assert (found.by_query.revealed is not None) == reveal


def test_what_is_not_revealed_does_not_depend_on_the_votes():
    settings = AnalysisSettings(delta=1e-5)
    one, two = (analyze_votes(votes(seed), CONFIDENT, settings, n_points=5) for seed in (0, 1))
    assert one == two
    secret = [analyze_votes(votes(seed), CONFIDENT, settings, reveal=True).on_these_votes for seed in (0, 1)]
    assert secret[0] != secret[1]


def test_a_tested_release_is_what_might_have_been():
    mechanism = ConfidentGNMax(threshold=120, sigma_check=40, sigma_vote=10)
    sizes = {"n_teachers": 200, "n_classes": 3, "n_queries": 60}
    tested = fix_tested(mechanism, target=2.5, delta=1e-5, **sizes)
    strong = Votes([[195, 5, 0]] * 60, n_teachers=200)  # after it is fixed
    found = analyze_votes(strong, mechanism, AnalysisSettings(delta=1e-5, tested=tested), reveal=True)
    assert (found.tested.route, found.tested.epsilon) == ("tested", 2.5)
    assert found.worst_case.epsilon == found.data_independent_epsilon > 2.5
    assert 0 <= found.on_these_votes.pass_chance <= 1
    sent = json.loads(json.dumps(found.to_json()))
    assert (sent["tested"]["if"], sent["tested"]["basis"]) == (found.tested.condition, tested.basis)
    assert Analysis.from_json(sent) == found


def test_a_what_if_is_no_guarantee_and_cannot_be_published():
    found = analyze_votes(votes(), CONFIDENT, AnalysisSettings(delta=1e-5)).worst_case
    assert not isinstance(found, Guarantee)
    assert str(found).startswith("what if: (")
    answers = answer(CONFIDENT, votes(), rng=np.random.default_rng(0))
    counts = {"n_teachers": 100, "queries_at_most": 30, "answers_at_most": 30}
    fresh = np.ones(30, dtype=bool)
    with pytest.raises(InputError, match="Only a budget's guarantee can be published, got WhatIf"):
        PublishedGuarantee.of(found, answers, fresh=fresh, **counts)
    promised = CountBudget(CONFIDENT, n_queries=30, delta=1e-5).guarantee()
    assert PublishedGuarantee.of(promised, answers, fresh=fresh, **counts).epsilon == found.epsilon


@pytest.mark.parametrize("route", ["worst case", "tested"])
def test_an_older_analysis_loads(route):
    """It named one epsilon and called it publishable."""
    new = analyze_votes(votes(), CONFIDENT, AnalysisSettings(delta=1e-5, n_answers=20), reveal=True)
    old = json.loads(json.dumps(new.to_json()))
    shown = old.pop("worst_case")
    del shown["if"]
    old |= {"route": route, "publishable": shown | {"route": route, "why": shown["basis"]}}
    if route == "tested":
        old["publishable"] |= {"epsilon": 0.5, "order": 9.0, "basis": "tested release"}
        old["pass_chance"] = 0.25
    found = Analysis.from_json(old)
    assert (found.worst_case.epsilon, found.worst_case.order) == (new.worst_case.epsilon, new.worst_case.order)
    assert found.worst_case.condition == new.worst_case.condition
    if route == "tested":
        assert (found.tested.epsilon, found.tested.basis, found.on_these_votes.pass_chance) == (
            0.5,
            "tested release",
            0.25,
        )
    else:
        assert found == new


def test_a_plot_needs_points(tmp_path):
    with pytest.raises(InputError, match="n_points"):
        plot_analysis(analyze_votes(votes(), CONFIDENT, AnalysisSettings(delta=1e-5)), tmp_path / "a.png")


@pytest.mark.parametrize("value", [None, [], {}, {"mechanism": {"name": "GNMax"}}])
def test_something_that_is_no_analysis_is_refused(value):
    with pytest.raises(InputError, match="Analysis"):
        Analysis.from_json(value)
