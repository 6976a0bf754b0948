"""A tested release is killed at every step: one draw, charged first; of one that failed no answer is anywhere.

The test runs this file as a program, as `tests/ledger/test_kill.py` does. In a child every write to the ledger, every
commit, every file that is synced, linked, renamed or removed, every draw and every answer that leaves is a step at
which it can be killed. What the child drew and gave out is noted in another folder.
"""

from __future__ import annotations

import hashlib
import json
import random
import sys
import tempfile
import warnings
from collections import Counter
from contextlib import suppress
from functools import cache
from pathlib import Path

import numpy as np
from tests.labeller import kills
from tests.ledger.test_kill import note, notes
from tests.soak import amount

from terrine.budgets import TestedBudget
from terrine.errors import LedgerError, OrderGridWarning, TestFailedError
from terrine.labeller import KeptVotes, Labeller
from terrine.ledger import Ledger
from terrine.mechanisms import ConfidentGNMax
from terrine.release.tested import ConditionalGuarantee
from terrine.votes import Votes

N = 60
X = np.arange(2.0 * N).reshape(N, 2)
CONFIDENT = ConfidentGNMax(threshold=115, sigma_check=40, sigma_vote=10)
ROWS = {  # half of the queries are withheld, by chance: no two draws are the same
    "passes": [140, 60, 0],
    "even": [131, 69, 0],  # passes about every second time
    "fails": [110, 90, 0],
}
PHASES = ("nothing", "fix", "noise", "charge", "draw", "bit", "deletion", "release")
_DRAW = ConditionalGuarantee._draw


@cache
def budget():
    """Not where the file is read, which each process that runs tests does."""
    return TestedBudget(CONFIDENT, n_queries=N, target=2.5, delta=1e-5, n_teachers=200, n_classes=3)


def work(folder, kind, step=lambda: None):
    """Fix, and release; whatever is drawn and whatever leaves is noted elsewhere."""
    apart = folder.with_name(f"{folder.name}-notes")

    def drawn(self, votes, noise):
        step()
        found = _DRAW(self, votes, noise)
        answers, passed = found.reveal()
        note(apart, "draws", [answers.labels.tolist(), answers.outcomes.tolist(), passed])
        step()
        return found

    ConditionalGuarantee._draw = drawn
    votes = Votes(np.tile(ROWS[kind], (N, 1)), n_teachers=200)
    ledger = Ledger(folder / "ledger.sqlite", budget=budget())
    step()
    try:
        got = Labeller(KeptVotes(X, votes), CONFIDENT, ledger).label(X, request_id="all")
    except TestFailedError as error:
        if error.lost:
            raise
        step()
        note(apart, "left", None)
    else:
        step()
        note(apart, "left", [got.labels.tolist(), got.outcomes.tolist()])
    step()


def check(folder):
    """What must hold at any moment; how far it came, and what is drawn for it."""
    apart = folder.with_name(f"{folder.name}-notes")
    draws, left = notes(apart, "draws"), notes(apart, "left")
    assert len({json.dumps(one) for one in draws}) <= 1, "a second draw"
    assert len({json.dumps(one) for one in left}) <= 1, "what left changed"
    try:
        ledger = Ledger(folder / "ledger.sqlite")
    except LedgerError:
        assert not draws
        assert not left
        return "nothing", None
    with ledger:
        assert ledger.verify() == []
        entries, test = ledger.entries(), ledger.summary().test
        stored = [line for line in map(json.loads, ledger.export()) if line["record"] == "answer"]
    files = kills.noise_files(folder)
    assert all(path.stat().st_mode & 0o077 == 0 for path in files), "the noise is for its owner alone"
    if test == "unasked":
        assert not draws, "drawn before the charge"
        return ("noise" if files else "fix"), None
    assert [entry.kind for entry in entries] == ["reserve", "settle"][: len(entries)]
    assert (entries[0].n_queries, entries[0].n_answers) == (N, N)
    if test == "open":
        assert not left, "left before the bit was kept"
        assert not stored, "an answer is kept before its bit"
        named = [path for path in files if path.suffix == ".secret"]
        assert len(named) == 1, "charged, and its noise is gone"
        return ("draw" if draws else "charge"), hashlib.sha256(named[0].read_bytes()).hexdigest()
    labels, outcomes, passed = draws[0]
    assert test == ("passed" if passed else "failed")
    given = sorted((line["label"], line["outcome"]) for line in stored)
    if passed:
        assert given == sorted(zip(labels, outcomes, strict=True))
        assert all(one == [labels, outcomes] for one in left)
    else:
        assert not stored, "an answer of a failed release is in the ledger"
        assert all(one is None for one in left)
        for path in folder.iterdir():
            for what in (np.array(labels).tobytes(), np.array(labels, dtype="<i4").tobytes(), json.dumps(labels)):
                found = what.encode() if isinstance(what, str) else what
                assert found not in path.read_bytes(), f"a failed release's answers are in {path.name}"
    return ("release" if left else "bit" if files else "deletion"), None


def once(where, kind, points):
    return kills.once(work, check, points, kills.new_folder(where), kind)


def at_every_step(where, kind, first, stride):
    return kills.at_every_step(lambda points: once(where, kind, points), first, stride)


def at_random(where, times):
    """Several kills in one release, at random steps, until that many kills are done."""
    chance, phases, bits = random.Random(), Counter(), Counter()
    while phases.total() < times:
        kind = chance.choice(list(ROWS))
        phases.update(once(where, kind, [chance.randint(1, LAST) for _ in range(chance.randint(1, 5))]))
        bits[kind] += 1
    return {"kills": phases.total(), "releases": bits.total(), "phases": phases}


LAST = 48  # steps of a release, about


@cache
def killed():
    """What both tests look at: kills at steps of a release that passes and of one that fails, and at random."""
    # Where time is short, at every third step, of the two in turn
    steps = [["at_every_step", kind, *amount((k, 3), soak=(1, 1))] for k, kind in enumerate(("passes", "fails"), 1)]
    return kills.program("tests.labeller.test_tested_kill", *steps, ["at_random", amount(10, soak=200)])


def release_once(where, kind):
    """A release in this process, without notes of it."""
    votes = Votes(np.tile(ROWS[kind], (N, 1)), n_teachers=200)
    with Ledger(Path(tempfile.mkdtemp(dir=where)) / "ledger.sqlite", budget=budget()) as ledger:
        Labeller(KeptVotes(X, votes), CONFIDENT, ledger).label(X, request_id="all")


def main(folder, calls):
    warnings.simplefilter("ignore", OrderGridWarning)
    for kind in ROWS:  # what is imported or computed once, no child need do again
        with suppress(TestFailedError):
            release_once(Path(folder), kind)
    kills.answer(globals(), folder, calls)


def test_killed_at_every_step(record_property):
    passes, fails, _ = killed()
    seen = Counter(passes) + Counter(fails)
    assert set(seen) == set(PHASES)
    record_property("kills", seen.total())


def test_killed_at_random_steps(record_property):
    found = killed()[2]
    assert found["kills"] >= amount(10, soak=200)
    record_property("kills", found["kills"])


if __name__ == "__main__":
    main(*sys.argv[1:])
