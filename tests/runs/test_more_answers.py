"""Where a plan buys too few answers, the dry run names a number of teachers that would buy more."""

from __future__ import annotations

import re

import pytest

from terrine.errors import PlanError
from terrine.runs.config import RunConfig
from terrine.runs.factories import planned
from terrine.runs.more_answers import with_more_teachers


def settings(number: int, *, units: int | None = 1300, epsilon: float = 1.0, consensus: float = 0.8) -> RunConfig:
    data = {"name": "blobs"} if units is None else {"name": "blobs", "units_planned": units}
    privacy = {"mechanism": "gnmax", "epsilon": epsilon, "delta": 1e-5, "consensus": consensus}
    given = {"data": data, "teachers": {"number": number, "kind": "logistic"}, "privacy": privacy,
             "student": {"kind": "auto"}}  # fmt: skip
    return RunConfig.model_validate(given)


def test_the_number_that_is_named_buys_what_is_said():
    with pytest.raises(PlanError, match="Do not raise consensus") as refused:
        planned(settings(10), n_classes=2, n_public=500)
    teachers, share, answers = re.search(
        r"With (\d+) teachers, .* (\d+)% agreement: about (\d+) answers", str(refused.value)
    ).groups()
    assert int(teachers) > 10
    again = planned(settings(int(teachers), consensus=int(share) / 100), n_classes=2, n_public=500)
    assert again.queries == int(answers) >= 1


def test_nothing_is_named_where_nothing_would_do_or_nobody_can_say():
    assert "No number of teachers" in with_more_teachers(settings(10, units=150), n_classes=10, n_public=500)
    assert with_more_teachers(settings(10, units=None), n_classes=2, n_public=500) == ""


def test_more_agreement_than_the_settings_assume_is_never_assumed():
    few = with_more_teachers(settings(10, units=100_000, consensus=0.55, epsilon=0.3), n_classes=2, n_public=500)
    assert "and 55% agreement" in few
