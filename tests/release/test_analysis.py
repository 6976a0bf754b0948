"""An analysis is a value: made, sent as JSON, read back; what depends on the votes is in one part of it."""

from __future__ import annotations

import json

import numpy as np
import pytest

from terrine import ConfidentGNMax, GNMax, LNMax, Votes
from terrine.errors import InputError
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


def test_the_tested_route_is_what_may_be_published():
    mechanism = ConfidentGNMax(threshold=120, sigma_check=40, sigma_vote=10)
    sizes = {"n_teachers": 200, "n_classes": 3, "n_queries": 60}
    tested = fix_tested(mechanism, target=2.5, delta=1e-5, **sizes)
    strong = Votes([[195, 5, 0]] * 60, n_teachers=200)  # after it is fixed
    found = analyze_votes(strong, mechanism, AnalysisSettings(delta=1e-5, tested=tested), reveal=True)
    assert (found.route, found.publishable.epsilon) == ("tested", 2.5)
    assert found.data_independent_epsilon > 2.5
    assert 0 <= found.on_these_votes.pass_chance <= 1
    sent = json.loads(json.dumps(found.to_json()))
    assert (sent["publishable"]["route"], sent["publishable"]["why"]) == ("tested", tested.basis)
    assert Analysis.from_json(sent) == found


def test_a_plot_needs_points(tmp_path):
    with pytest.raises(InputError, match="n_points"):
        plot_analysis(analyze_votes(votes(), CONFIDENT, AnalysisSettings(delta=1e-5)), tmp_path / "a.png")


@pytest.mark.parametrize("value", [None, [], {}, {"mechanism": {"name": "GNMax"}}])
def test_something_that_is_no_analysis_is_refused(value):
    with pytest.raises(InputError, match="Analysis"):
        Analysis.from_json(value)
