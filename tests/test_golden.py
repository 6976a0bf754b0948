"""Files that version 0.1.0 wrote before its second plan still load, mean the same, and can be gone on with.

tests/golden/run is a finished run, with keys and ballots; tests/golden/broken one that was killed while it was being
labelled: 12 questions have answers, 4 more are charged. Both are of tests/golden/run.toml and of made-up data.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from terrine import Ledger, Votes
from terrine.datasets import load
from terrine.runs.local import Run
from terrine.service.keys import Keys
from terrine.students import load_student
from terrine.votes import Ballots

GOLDEN = Path(__file__).parent / "golden"


@pytest.fixture
def golden(tmp_path):
    """A copy that may be written to."""
    for name in ("run", "broken"):
        shutil.copytree(GOLDEN / name, tmp_path / name)
    return tmp_path


def test_a_finished_run_is_read_and_not_run_again(golden):
    run = Run(golden / "run")
    before = json.loads((GOLDEN / "run" / "guarantee.json").read_text())
    with np.load(GOLDEN / "run" / "answers.npz") as kept:
        labels = kept["labels"]
    answers = run.label()
    np.testing.assert_array_equal(answers.labels, labels)
    shown = run.guarantee()
    for name in ("epsilon", "delta", "order", "answered", "withheld", "unasked", "n_teachers"):
        assert getattr(shown, name) == before[name], name
    assert shown.relation.sentence == before["relation"]
    with run.ledger() as ledger:
        assert (ledger.summary().queries, ledger.summary().answers) == (34, 30)
        assert ledger.verify() == []
    assert run.learn().accuracy == 1.0
    assert run.teach().n_teachers == 8  # no teacher is trained again


def test_the_teachers_vote_as_they_did(golden):
    run = Run(golden / "run")
    X = run.task.public.X[run.asked()]
    np.testing.assert_array_equal(run.voters().vote(X).counts, Votes.load(golden / "run" / "votes.npz").counts)
    ballots = Ballots.load(golden / "run" / "ballots.npz")
    assert (len(ballots.ids), ballots.n_classes) == (8, len(run.task.classes))


def test_a_killed_run_finds_the_answers_it_had_and_goes_on(golden):
    run = Run(golden / "broken")
    with run.ledger() as ledger:
        had = ledger.summary()
        known = {entry.seq: entry.digest for entry in ledger.entries()}
    assert (had.queries, had.answers, had.unsettled) == (16, 14, 4)
    answers = run.label()
    with run.ledger() as ledger:
        now = ledger.summary()
        digests = {entry.seq: entry.digest for entry in ledger.entries()}
        assert ledger.verify() == []
    assert known.items() <= digests.items()
    # the 12 that were answered are not asked again; the 4 that the kill left are, and are charged twice
    assert now.queries - had.queries == int((answers.outcomes != 3).sum()) - 12
    assert now.answers <= 30


def test_a_ledger_keeps_its_budget_entries_and_keys(golden):
    place = golden / "run" / "ledger.sqlite"
    seq, digest = 18, "47f66d72642db89de11df25d263fb1751d1a9dbc86c421bdf273bd34ca21af40"  # as they were written
    with Ledger(place) as ledger:
        assert ledger.budget.guarantee().epsilon == pytest.approx(22.53540462361238, rel=1e-12)
        assert {entry.seq: entry.digest for entry in ledger.entries()}[seq] == digest
        assert ledger.verify() == []
    keys = {key.name: key for key in Keys(place).list()}
    assert (keys["student team"].quota, keys["student team"].revoked) == (7, None)
    assert keys["owner"].role == "admin"
    assert keys["owner"].revoked is not None
    assert Keys(place).find("terrine_356faf31b977_xwTHqPx-UVQVr-pcZssvp_lHoPF20Tk07IRGQyMdJY0") is not None
    assert Keys(place).find("terrine_d8cd79093bf2_DoILVSWqtW2WvGbZClUWIzi9fumocZLXVNcGq1x8v_4") is None
    with Ledger(place) as ledger:
        assert ledger.verify() == []


def test_a_student_predicts_as_it_did(golden):
    student = load_student(golden / "run" / "student")
    data = load("blobs", n_private=400, n_public=60, n_test=50)
    assert (student.predict(data.test_X) == data.test_y).all()
    assert student.about.n_answered == 30
