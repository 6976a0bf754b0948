"""A guarantee as JSON, with what it covers: one type, read back as it was written, by this version or an older one."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from terrine import ConfidentGNMax, GNMax, Guarantee
from terrine.errors import InputError
from terrine.published import LedgerHead, PublishedGuarantee
from terrine.relations import Relation

GOLDEN = Path(__file__).parent / "golden" / "run" / "guarantee.json"
PLAIN = Guarantee(epsilon=2.0, delta=1e-5, order=8.5, basis="by hand", relation=Relation.UNIT_ANY, notes=("a", "b"))
WHOLE = PublishedGuarantee(
    **vars(PLAIN),
    mechanism=ConfidentGNMax(threshold=30, sigma_check=12, sigma_vote=6),
    n_teachers=40,
    queries_at_most=120,
    answers_at_most=90,
    answered=80,
    withheld=30,
    unasked=2,
    repeated=8,
    why_unasked="quota_exhausted",
    service="https://labels.example.org",
    ledger=LedgerHead(id="ab", head="3:cd"),
)


def sent(value):
    return json.loads(json.dumps(value, allow_nan=False))


@pytest.mark.parametrize("one", [PLAIN, WHOLE, replace(WHOLE, ledger=None, order=None, mechanism=GNMax(sigma=3))])
def test_what_is_written_is_read_back(one):
    assert type(one).from_json(sent(one.to_json())) == one
    assert one.to_json()["relation"] == "unit_any"
    assert one.to_json()["neighbors"] == "one unit is added, removed or changed"


def test_a_file_of_before_means_the_same():
    stored = json.loads(GOLDEN.read_text())
    assert stored["relation"].startswith("one ")
    found = PublishedGuarantee.from_json(stored)
    shown = found.to_json()
    assert found.relation.sentence == stored["relation"]
    assert found.repeated == 0
    assert {name: sent(shown)[name] for name in stored} == stored | {"relation": str(found.relation)}


def test_a_guarantee_without_notes_is_one_of_an_older_service():
    told = {name: value for name, value in PLAIN.to_json().items() if name not in ("notes", "neighbors")}
    assert Guarantee.from_json(told) == replace(PLAIN, notes=())


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"epsilon": "2"}, "epsilon"),
        ({"epsilon": -1.0}, "epsilon"),
        ({"epsilon": float("nan")}, "PublishedGuarantee"),
        ({"delta": 1.0}, "delta"),
        ({"order": "8.5"}, "order"),
        ({"relation": ""}, "relation"),
        ({"notes": [1]}, "notes"),
        ({"n_teachers": 2.5}, "n_teachers"),
        ({"mechanism": {"kind": "no"}}, "mechanism"),
        ({"secure_noise": "yes"}, "secure_noise"),
        ({"ledger": "ab"}, "ledger"),
    ],
)
def test_what_is_damaged_is_refused_by_name(change, said):
    with pytest.raises(InputError, match=said):
        PublishedGuarantee.from_json({**WHOLE.to_json(), **change})
    for value in (None, [], 3, {}):
        with pytest.raises(InputError, match="PublishedGuarantee"):
            PublishedGuarantee.from_json(value)
