"""Rounds of given numbers for the least epsilon: the constraints hold, and nothing near costs less."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from terrine import ConfidentGNMax, InteractiveGNMax, synthetic_votes
from terrine.accounting.planning import Sample
from terrine.errors import InputError, PlanError
from terrine.runs.cheapest_rounds import RoundNumbers, cheapest_rounds, parsed_rounds
from terrine.runs.plan_rounds import RoundWish, _Search, filter_of

DELTA = 1e-6
VOTES = synthetic_votes(n_queries=200, n_classes=5, n_teachers=500, consensus=0.85)
NUMBERS = (RoundNumbers(n_queries=600, n_answers=300), RoundNumbers(n_queries=1000, n_answers=100))
WISHES = (RoundWish(kind="confident"), RoundWish(kind="interactive"))


def epsilon(rounds) -> float:
    return filter_of(rounds, delta=DELTA).epsilon


def meets(mechanism, wish: RoundWish, numbers: RoundNumbers) -> bool:
    """With the tolerance of numbers that are written with four digits."""
    search = _Search(Sample(VOTES, "worst-case"), wish)
    tried = search.on(([mechanism.threshold], [mechanism.sigma_check], [mechanism.sigma_vote]), _start(mechanism))
    return bool(tried.accuracy[0] >= 0.95 - 1e-3 and tried.rate[0] * numbers.n_queries >= numbers.n_answers * 0.995)


def _start(mechanism):
    import numpy as np

    return np.array([mechanism.threshold, mechanism.sigma_check, mechanism.sigma_vote])


@pytest.fixture(scope="module")
def planned():
    return cheapest_rounds(NUMBERS, standin=VOTES, delta=DELTA)


def test_the_numbers_are_those_wanted_and_will_be_reached(planned) -> None:
    assert [(one.n_queries, one.n_answers) for one in planned] == [(600, 300), (1000, 100)]
    assert [type(one.mechanism) for one in planned] == [ConfidentGNMax, InteractiveGNMax]
    for one, wish, numbers in zip(planned, WISHES, NUMBERS, strict=True):
        assert meets(one.mechanism, wish, numbers)


def test_nothing_near_it_costs_less(planned) -> None:
    """Every threshold and noise of a coarse grid that meets the wishes, in one round at a time."""
    best, cheaper = epsilon(planned), []
    for k, (wish, numbers) in enumerate(zip(WISHES, NUMBERS, strict=True)):
        here = planned[k].mechanism
        for threshold in (0.5, 0.8, 1.0, 1.2):
            for check in (0.5, 0.8, 1.0, 1.25, 2.0):
                for vote in (0.8, 1.0, 1.25, 2.0):
                    other = replace(
                        here,
                        threshold=here.threshold * threshold,
                        sigma_check=here.sigma_check * check,
                        sigma_vote=here.sigma_vote * vote,
                    )
                    if meets(other, wish, numbers):
                        rounds = [*planned]
                        rounds[k] = replace(planned[k], mechanism=other)
                        cheaper.append(epsilon(rounds))
    assert len(cheaper) > 10
    assert min(cheaper) >= best * 0.98


def test_more_answers_cost_more(planned) -> None:
    more = cheapest_rounds((NUMBERS[0], RoundNumbers(n_queries=1000, n_answers=400)), standin=VOTES, delta=DELTA)
    assert epsilon(more) > epsilon(planned)


@pytest.mark.parametrize(
    ("numbers", "told", "error", "words"),
    [
        ((), {}, InputError, "There must be at least one round."),
        (NUMBERS, {"epsilon": 0.01}, PlanError, "These rounds cost at least about epsilon ="),
        (NUMBERS, {"min_accuracy": 0.999999}, PlanError, "No threshold and noise let 300 of 600 questions of round 1"),
        (NUMBERS, {"delta": 0.0}, InputError, "delta must be above 0"),
    ],
)
def test_refusals(numbers, told, error, words) -> None:
    hard = synthetic_votes(n_queries=200, n_classes=5, n_teachers=20, consensus=0.5)
    votes = hard if "min_accuracy" in told else VOTES
    with pytest.raises(error, match=words):
        cheapest_rounds(numbers, **({"standin": votes, "delta": DELTA} | told))


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        (["300/600"], "--rounds 2 needs --round ANSWERS/QUERIES 2 times, got 1."),
        (["300/600", "many"], "--round must be ANSWERS/QUERIES, such as 3400/6000, got 'many'."),
        (["700/600", "1/1"], "n_answers of a round must be at most its 600 queries, got 700."),
        (["0/600", "1/1"], "n_answers of a round must be a whole number of at least 1"),
        (["300/6000", "1/1"], "No round can ask more than 5,000 questions"),
    ],
)
def test_how_the_command_line_says_them(wanted, words) -> None:
    with pytest.raises(InputError, match=words):
        parsed_rounds(wanted, n_rounds=2, n_public=5000)


PLAN = ("plan", "--teachers", 500, "--classes", 5, "--consensus", 0.85, "--delta", 1e-6)


def test_the_command(terrine) -> None:
    wanted = ("--rounds", 2, "--round", "300/600", "--round", "100/1000")
    code, out, _ = terrine(*PLAN, *wanted, "--epsilon", 9, "--json")
    assert code == 0
    found = json.loads(out)
    assert [(one["n_queries"], one["n_answers"]) for one in found["rounds"]] == [(600, 300), (1000, 100)]
    assert 'mechanism = "interactive"' in found["toml"]
    code, _, err = terrine(*PLAN, *wanted, "--epsilon", 0.1)
    assert code == 2
    assert "These rounds cost at least about" in " ".join(err.split())
    code, _, err = terrine(*PLAN, "--round", "300/600", "--epsilon", 9)
    assert code == 2
    assert "--round needs --rounds" in " ".join(err.split())
