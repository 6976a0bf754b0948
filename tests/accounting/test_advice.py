"""Whether a plan will work, from public numbers: what is refused, what is warned of, and what is said."""

from __future__ import annotations

import json

import pytest

from terrine.accounting.advice import Advice, Units, advise
from terrine.datasets.synthetic import synthetic_votes
from terrine.errors import InputError
from terrine.mechanisms import ConfidentGNMax, GNMax, LNMax

CHECKED = ConfidentGNMax(threshold=160, sigma_check=60, sigma_vote=30)
STANDIN = synthetic_votes(n_queries=400, n_classes=10, n_teachers=250, consensus=0.9)


def advised(**changes: object) -> Advice:
    settings: dict[str, object] = {
        "mechanism": CHECKED,
        "n_queries": 500,
        "n_answers": 400,
        "delta": 1e-6,
        "n_teachers": 250,
        "n_classes": 10,
        "n_public": 1000,
        "units": Units(number=50_000, public=False),
        "standin": STANDIN,
        "consensus": 0.9,
    }
    return advise(**(settings | changes))


def codes(found: Advice) -> dict[str, str]:
    return {one.code: one.severity for one in found.findings}


def test_a_sound_plan_is_told_in_words():
    found = advised()
    assert codes(found) == {"units": "info", "answers": "info"}
    found.check()
    words = " ".join(map(str, found.findings))
    assert "about 200 units" in words
    assert "90% agreement" in words
    assert found.units_per_teacher == 200
    assert 0 < found.expected_answers <= 400
    assert found.expected_accuracy > 0.95
    assert json.loads(json.dumps(found.to_json()))["findings"][0]["code"] == "units"


@pytest.mark.parametrize(
    ("changes", "code", "severity"),
    [
        ({"units": Units(number=249, public=True)}, "more_teachers_than_units", "refuse"),
        ({"units": Units(number=250, public=True)}, "few_units", "warn"),
        ({"units": Units(number=2499, public=True)}, "few_units", "warn"),
        ({"units": Units(number=5000, public=True), "n_classes": 21}, "few_units", "warn"),
        ({"units": None}, "units_unknown", "info"),
        ({"delta": 0.5}, "delta_large", "refuse"),
        ({"delta": 1 / 50_000}, "delta_large", "refuse"),
        ({"delta": 0.5, "accept_large_delta": True}, "delta_large", "warn"),
        ({"delta": 1e-3, "units": None}, "delta_large", "refuse"),
        ({"mechanism": GNMax(sigma=8.0), "n_answers": 500}, "epsilon_weak", "warn"),
        ({"n_public": 499}, "public_rows", "refuse"),
        ({"n_answers": 9}, "fewer_answers_than_classes", "refuse"),
        ({"n_answers": 9, "standin": None}, "fewer_answers_than_classes", "refuse"),
        ({"n_answers": 49}, "few_answers", "warn"),
        ({"mechanism": CHECKED, "n_queries": 20, "n_answers": 20}, "few_answers", "warn"),
        ({"mechanism": ConfidentGNMax(threshold=900, sigma_check=60, sigma_vote=30)}, "fewer_answers_than_classes",
         "refuse"),
        ({"mechanism": GNMax(sigma=400.0), "n_answers": 500}, "inaccurate_answers", "warn"),
        ({"mechanism": LNMax(scale=400.0), "n_answers": 500}, "inaccurate_answers", "warn"),
        ({"standin": None}, "consensus_unknown", "info"),
    ],
)  # fmt: skip
def test_each_finding(changes, code, severity):
    found = advised(**changes)
    assert codes(found)[code] == severity
    said = next(one for one in found.findings if one.code == code)
    assert said.says.endswith(".")
    assert said.advice.endswith(".")
    if severity == "refuse":
        with pytest.raises(InputError) as caught:
            found.check()
        assert said.says in str(caught.value)
        assert len(str(caught.value).splitlines()) == 1
    else:
        found.check()


@pytest.mark.parametrize(
    "changes",
    [
        {"units": Units(number=2500, public=True)},
        {"delta": 0.99 / 50_000},
        {"delta": 9e-4, "units": None},
        {"n_public": 500},
        {"n_answers": 50},
    ],
)
def test_just_inside_the_lines(changes):
    assert not {"warn", "refuse"} & set(codes(advised(**changes)).values())


def test_what_is_recommended_is_not_refused_again():
    for number in (7, 249, 2000):
        units = Units(number=number, public=True)
        for one in advised(units=units).findings:
            if one.code in ("more_teachers_than_units", "few_units"):
                fewer = int(one.advice.split("at most ")[1].split(" ")[0].replace(",", ""))
                again = codes(advised(units=units, n_teachers=fewer, standin=None))
                assert again.get("more_teachers_than_units") is None
    for number in (100, 499, 50_000):
        (one,) = [one for one in advised(delta=0.5, units=Units(number=number, public=True)).findings
                  if one.code == "delta_large"]  # fmt: skip
        smaller = float(one.advice.split("at most ")[1].split(",")[0])
        assert "delta_large" not in codes(advised(delta=smaller, units=Units(number=number, public=True)))


def test_expected_answers_follow_the_noise():
    """A winner drawn many times agrees with what is expected of every mechanism."""
    import numpy as np

    from terrine.mechanisms import ABSTAIN, answer
    from terrine.noise import SeededNoise

    votes = synthetic_votes(n_queries=400, n_classes=10, n_teachers=250, consensus=0.8)
    for mechanism in (CHECKED, GNMax(sigma=60.0), LNMax(scale=40.0)):
        found = advised(mechanism=mechanism, standin=votes, n_queries=400, n_answers=400)
        drawn = [answer(mechanism, votes, rng=SeededNoise(seed)).labels for seed in range(30)]
        answered = np.stack(drawn) != ABSTAIN
        right = np.stack(drawn) == votes.counts.argmax(axis=1)
        assert answered.sum(axis=1).mean() == pytest.approx(found.expected_answers, rel=0.03)
        assert right[answered].mean() == pytest.approx(found.expected_accuracy, abs=0.02)
