"""A run in rounds, killed where charges and answers are kept, and at every event in `make soak`.

The guarantee is the same, no answer ever changes, and the end is that of an unbroken run.
"""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.runs.test_rounds import SETTINGS
from tests.soak import amount

from terrine.ledger import Ledger
from terrine.runs.base import load_answers
from terrine.runs.local import Run

KILLS = amount(3, soak=50)  # in runs that are killed again and again
PROGRAM = Path(__file__).with_name("rounds_killed.py")
SMALL = SETTINGS.replace("queries = 120", "queries = 12").replace("answers = 60", "answers = 12")
SMALL = SMALL.replace("queries = 200", "queries = 12").replace("answers = 20\n", "answers = 12\n")


@pytest.fixture(scope="module")
def voted(tmp_path_factory):
    """A run up to its votes: from there on it is killed."""
    folder = tmp_path_factory.mktemp("killed")
    (folder / "run.toml").write_text(SMALL)
    run = Run.create(folder / "run.toml", folder / "voted")
    run.teach()
    run.vote()
    return run.folder


@pytest.fixture(scope="module")
def go_on():
    """Go on from the votes in a process of its own: the events, or None where it was killed."""
    with subprocess.Popen(
        [sys.executable, str(PROGRAM)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    ) as program:
        assert program.stdin is not None
        assert program.stdout is not None

        def call(folder, *, kill_at=0):
            told = folder / "events"
            program.stdin.write(json.dumps([str(folder), kill_at, str(told)]) + "\n")
            code = int(program.stdout.readline())
            assert code in (0, -9), "it could not go on"
            return told.read_text().split("\n") if code == 0 else None

        yield call
        program.stdin.close()


def kept_answers(folder):
    """Every answer that the ledger has ever kept."""
    if not (folder / "ledger.sqlite").is_file():
        return {}
    with Ledger(folder / "ledger.sqlite") as ledger:
        lines = [json.loads(line) for line in ledger.export()]
    return {one["query"]: (one["label"], one["outcome"]) for one in lines if one["record"] == "answer"}


def everything(folder):
    rounds = [load_answers(folder / f"round-{k}.npz")[1] for k in (1, 2)]
    return [*rounds, load_answers(folder / "answers.npz")[1]]


@pytest.fixture(scope="module")
def unbroken(voted, go_on):
    folder = voted.with_name("unbroken")
    shutil.copytree(voted, folder)
    events = go_on(folder)
    return folder, events


COSTLY = {
    *(f"{when}_each in round {k}" for k in (1, 2) for when in ("after reserve", "before keep", "after keep")),
    "after link round-2.proba.npz",
}
EVENTS = COSTLY | {
    *(f"after replace {name}" for name in ("round-1.npz", "round-2.npz", "answers.npz", "guarantee.json")),
    "after predict_proba in round 1",
    "after link ledger.json",
}
SAME = ("epsilon", "delta", "order", "relation", "rounds", "queries_at_most", "answers_at_most", "answered")


def test_killed_at_every_kind_of_event_once(voted, unbroken, go_on, tmp_path, record_property):
    whole, events = unbroken
    assert set(events) >= EVENTS
    points = amount([events.index(name) + 1 for name in sorted(COSTLY)], soak=range(1, len(events) + 1))
    for kill_at in points:
        folder = tmp_path / str(kill_at)
        shutil.copytree(voted, folder)
        where = f"killed at event {kill_at}, {events[kill_at - 1]}"
        assert go_on(folder, kill_at=kill_at) is None, where
        before = kept_answers(folder)
        assert go_on(folder) is not None, where
        after = kept_answers(folder)
        assert before.items() <= after.items(), where
        assert len(after) == len(kept_answers(whole)), where  # a question with a second opinion would be one more
        for name in SAME:
            assert getattr(Run(folder).guarantee(), name) == getattr(Run(whole).guarantee(), name), where
        for one, other in zip(everything(folder), everything(whole), strict=True):
            np.testing.assert_array_equal(one.labels, other.labels, err_msg=where)
            np.testing.assert_array_equal(one.outcomes, other.outcomes, err_msg=where)
        with Ledger(folder / "ledger.sqlite") as ledger:
            assert ledger.verify() == []
            assert ledger.spent().epsilons[0] <= ledger.budget.limit.charge / 2**50
        shutil.rmtree(folder)
    record_property("kills", len(points))


def test_killed_again_and_again(voted, unbroken, go_on, tmp_path, record_property):
    """Charges that kills lose may leave rows unasked in the end; answers that were kept never change."""
    whole, events = unbroken
    rng, kills, runs = random.Random(7), 0, 0
    while kills < KILLS:
        folder = tmp_path / str(runs)
        shutil.copytree(voted, folder)
        runs += 1
        before: dict[str, tuple[int, int]] = {}
        while kills < KILLS and go_on(folder, kill_at=rng.randint(1, len(events) // 2)) is None:
            kills += 1
            now = kept_answers(folder)
            assert before.items() <= now.items()
            before = now
        assert go_on(folder) is not None
        assert before.items() <= kept_answers(folder).items()
        assert len(kept_answers(folder)) <= len(kept_answers(whole))
        shown, planned = Run(folder).guarantee(), Run(whole).guarantee()
        assert (shown.epsilon, shown.order, shown.delta) == (planned.epsilon, planned.order, planned.delta)
        with Ledger(folder / "ledger.sqlite") as ledger:
            assert ledger.verify() == []
            assert ledger.spent().epsilons[0] <= ledger.budget.limit.charge / 2**50
        if not shown.unasked:
            np.testing.assert_array_equal(everything(folder)[2].labels, everything(whole)[2].labels)
        shutil.rmtree(folder)
    record_property("kills", kills)
    record_property("runs", runs)
