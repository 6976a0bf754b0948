"""The publication of a cost is killed at every step: charged before votes are looked at, one number, for ever.

As in `tests/labeller/test_tested_kill.py`, whose steps these are: every write to the ledger, every commit, everything
that is done to a file, every draw and every number that leaves.
"""

from __future__ import annotations

import hashlib
import random
import sys
import tempfile
import warnings
from collections import Counter
from functools import cache
from pathlib import Path

import numpy as np
from tests.labeller import kills
from tests.ledger.test_kill import fork, note, notes, outcome
from tests.soak import amount

from terrine.budgets import CountBudget
from terrine.cost_release import CostRelease
from terrine.errors import OrderGridWarning
from terrine.labeller import KeptVotes, Labeller
from terrine.labeller.cost import draw_cost
from terrine.ledger import Ledger
from terrine.mechanisms import GNMax
from terrine.votes import Votes

N = 20
X = np.arange(2.0 * N).reshape(N, 2)
MECHANISM = GNMax(sigma=10)
VOTES = Votes(np.tile([140, 60, 0], (N, 1)), n_teachers=200)
BUDGET = CountBudget(
    MECHANISM,
    n_queries=N,
    delta=1e-5,
    cost_release=CostRelease.for_answers(MECHANISM, n_queries=N, n_answers=None, delta=1e-5),
)
PHASES = ("answers", "noise", "charge", "draw", "number", "deletion", "release")
_DRAW = CostRelease.draw


def begin(folder):
    """The answers are there: what follows is about them."""
    with Ledger(folder / "ledger.sqlite", budget=BUDGET) as ledger:
        Labeller(KeptVotes(X, VOTES), MECHANISM, ledger).label(X, request_id="all")


def work(folder, step=lambda: None):
    """Publish; whatever is looked at, drawn and given out is noted elsewhere."""
    apart = folder.with_name(f"{folder.name}-notes")

    def drawn(self, votes, *, mechanism, noise):
        step()
        found = _DRAW(self, votes, mechanism=mechanism, noise=noise)
        note(apart, "draws", found.reveal())
        step()
        return found

    def looked():
        note(apart, "looks", 1)
        step()
        return VOTES

    CostRelease.draw = drawn
    with Ledger(folder / "ledger.sqlite") as ledger:
        step()
        found = draw_cost(ledger, asked="ab" * 32, votes=looked)
        step()
        note(apart, "left", found.number)
    step()


def check(folder):
    """What must hold at any moment; how far it came, and the noise that is paid for and not used up."""
    apart = folder.with_name(f"{folder.name}-notes")
    draws, left = notes(apart, "draws"), notes(apart, "left")
    assert len(set(draws)) <= 1, "a second draw"
    assert len(set(left)) <= 1, "what left changed"
    with Ledger(folder / "ledger.sqlite") as ledger:
        assert ledger.verify() == []
        state, kinds = ledger.cost.state(), [entry.kind for entry in ledger.entries()]
        assert ledger.summary().queries == N
    assert (kinds.count("cost"), kinds.count("number")) in ((0, 0), (1, 0), (1, 1))
    files = kills.noise_files(folder)
    assert all(path.stat().st_mode & 0o077 == 0 for path in files), "the noise is for its owner alone"
    if state is None:
        assert not notes(apart, "looks"), "looked at votes before the charge"
        return ("noise" if files else "answers"), None
    if state.number is None:
        assert not left, "left before it was kept"
        named = [path for path in files if path.suffix == ".secret"]
        assert len(named) == 1, "charged, and its noise is gone"
        return ("draw" if draws else "charge"), hashlib.sha256(named[0].read_bytes()).hexdigest()
    assert [state.number] == draws[:1]
    assert all(one == state.number for one in left)
    return ("release" if left else "number" if files else "deletion"), None


def once(where, points):
    folder = kills.new_folder(where)
    assert not outcome(fork(begin, folder))
    return kills.once(work, check, points, folder)


def at_every_step(where, first, stride):
    return kills.at_every_step(lambda points: once(where, points), first, stride)


def at_random(where, times):
    chance, phases = random.Random(), Counter()
    while phases.total() < times:
        phases.update(once(where, [chance.randint(1, LAST) for _ in range(chance.randint(1, 4))]))
    return phases


LAST = 36  # steps of a publication, about


@cache
def killed():
    """What both tests look at."""
    every = amount((1, 3), soak=(1, 1))  # where time is short, at every third step
    return kills.program(
        "tests.labeller.test_cost_kill", ["at_every_step", *every], ["at_random", amount(10, soak=200)]
    )


def main(folder, calls):
    warnings.simplefilter("ignore", OrderGridWarning)
    once_before = Path(tempfile.mkdtemp(dir=folder))  # what is imported or computed once, no child need do again
    begin(once_before)
    with Ledger(once_before / "ledger.sqlite") as ledger:
        draw_cost(ledger, asked="ab" * 32, votes=lambda: VOTES)
    kills.answer(globals(), folder, calls)


def test_killed_at_every_step(record_property):
    seen = Counter(killed()[0])
    assert set(PHASES) - set(seen) <= {"release"}  # its one step
    record_property("kills", seen.total())


def test_killed_at_random_steps(record_property):
    seen = Counter(killed()[1])
    assert seen.total() >= amount(10, soak=200)
    record_property("kills", seen.total())


if __name__ == "__main__":
    main(*sys.argv[1:])
