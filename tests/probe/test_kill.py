"""A training is killed at every point of its steps: charged before it begins, and no step has two outputs.

The machinery is that of `tests/labeller/kills.py`: every write to the ledger, every commit, everything that is done to
a file, every draw and every sum is a point at which the process can be killed.
"""

from __future__ import annotations

import hashlib
import random
import sys
import tempfile
from collections import Counter
from functools import cache
from pathlib import Path

import numpy as np
from tests.labeller import kills
from tests.ledger.test_kill import fork, note, notes, outcome
from tests.soak import amount

from terrine.ledger import Ledger
from terrine.noise import SecureNoise
from terrine.probe import ProbeRows, ProbeSettings, fit_probe
from terrine.probe import fit as fit_module
from terrine.probe.outputs import OutputFiles
from terrine.probe.sums import gradient_sum
from terrine.relations import Relation

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(40, 2)), RNG.integers(0, 2, 40)
SETTINGS = ProbeSettings(n_features=2, n_classes=2, steps=3, measured=True)
BUDGET = SETTINGS.budget(epsilon=1.0, delta=1e-5, planned_units=40, relation=Relation.ROW_ADDED)
PHASES = ("nothing", "charged", "begun", "file", "step")
_DRAW, _WRITE = SecureNoise.gaussian, OutputFiles.write


def work(folder, step=lambda: None):
    """Train; whatever is drawn, summed and shown is noted elsewhere."""
    apart = folder.with_name(f"{folder.name}-notes")

    def summed(rows, given, **options):
        note(apart, "sums", 1)
        step()
        found = gradient_sum(rows, given, **options)
        step()
        return found

    def written(self, number, output):
        note(apart, "outputs", [number, hashlib.sha256(output.tobytes()).hexdigest()])
        step()
        found = _WRITE(self, number, output)
        step()
        return found

    def drawn(self, shape, *, sigma):
        step()
        found = _DRAW(self, shape, sigma=sigma)
        note(apart, "draws", hashlib.sha256(found.tobytes()).hexdigest())
        step()
        return found

    SecureNoise.gaussian, OutputFiles.write, fit_module.gradient_sum = drawn, written, summed
    with Ledger(folder / "ledger.sqlite", budget=BUDGET) as ledger:
        step()
        probe = fit_probe(ProbeRows(X, Y, n_classes=2), settings=SETTINGS, ledger=ledger)
        note(apart, "left", [probe.steps_kept, probe.weights.tolist(), probe.guarantee.epsilon])
    step()


def check(folder):
    """What must hold at any moment; how far it came."""
    apart = folder.with_name(f"{folder.name}-notes")
    draws, sums, outputs = (notes(apart, name) for name in ("draws", "sums", "outputs"))
    assert len({number for number, _ in outputs}) == len({tuple(one) for one in outputs}), "two outputs of one step"
    assert len(set(draws)) == len(draws)
    assert kills.noise_files(folder) == [], "noise is on disk"
    state = None
    if (folder / "ledger.sqlite").exists() and (folder / "ledger.sqlite").stat().st_size:
        with Ledger(folder / "ledger.sqlite", budget=BUDGET) as ledger:
            assert ledger.verify() == []
            state, spent, place = ledger.training.state(), ledger.summary().queries, ledger.id
            assert ledger.budget.guarantee() == BUDGET.guarantee()
            assert spent == (0 if state is None else BUDGET.steps), "not charged whole"
            for number, digest in (state.outputs if state else {}).items():
                content = OutputFiles(folder, place, BUDGET.dimension).path(number).read_bytes()
                assert hashlib.sha256(content).hexdigest() == digest
    if state is None:
        assert not draws, "noise was drawn that nobody paid for"
        assert not sums, "rows were summed before the charge"
        return "nothing"
    shown = [int(path.stem[5:]) for path in (folder / f"training-{place}").glob("step-*.out")]
    assert {*shown, *(number for number, _ in outputs)} <= set(range(1, state.begun + 1)), "shown and not begun"
    assert set(state.outputs) <= set(shown)
    assert len(shown) <= len(draws)
    if state.begun == 0:
        return "charged"
    if state.begun in state.outputs:
        return "step"
    return "file" if state.begun in shown else "begun"


def once(where, points):
    """One training, killed at these points of as many processes, then run to its end, twice; where it was killed."""
    folder = kills.new_folder(where)
    apart = folder.with_name(f"{folder.name}-notes")
    phases = []
    for point in points:
        if not outcome(fork(kills.doomed, work, point, folder)):
            break
        phases.append(check(folder))
    for _ in range(2):
        assert not outcome(fork(work, folder))
        assert check(folder) in ("step", "begun")  # the last one may be lost
    with Ledger(folder / "ledger.sqlite") as ledger:
        state = ledger.training.state()
    kept, lost = len(state.outputs), BUDGET.steps - len(state.outputs)
    assert state.begun == BUDGET.steps
    assert lost <= phases.count("begun"), "a step was lost that was not killed between its begin and its output"
    left = notes(apart, "left")
    assert all(one == left[0] for one in left), "what was learned changed"
    assert left[0][0] == kept
    return phases


def at_every_step(where, first, stride):
    return kills.at_every_step(lambda points: once(where, points), first, stride)


def at_random(where, fits, times):
    """At least these numbers of trainings and kills in all."""
    chance, phases, n_fits = random.Random(), Counter(), 0
    while phases.total() < times or n_fits < fits:
        phases.update(once(where, [chance.randint(1, LAST) for _ in range(chance.randint(3, 8))]))
        n_fits += 1
    return [n_fits, phases]


LAST = 150  # points of a training, about


@cache
def killed():
    """What both tests look at."""
    every = amount((3, 13), soak=(1, 1))  # where time is short, at every 13th point
    return kills.program(
        "tests.probe.test_kill", ["at_every_step", *every], ["at_random", *amount((2, 6), soak=(20, 100))]
    )


def main(folder, calls):
    once_before = Path(tempfile.mkdtemp(dir=folder))  # what is imported or computed once, no child need do again
    with Ledger(once_before / "ledger.sqlite", budget=BUDGET) as ledger:
        fit_probe(ProbeRows(X, Y, n_classes=2), settings=SETTINGS, ledger=ledger)
    kills.answer(globals(), folder, calls)


def test_killed_at_every_point(record_property):
    seen = Counter(killed()[0])
    assert set(seen) <= set(PHASES)
    assert set(PHASES) - set(seen) <= amount({"nothing", "charged", "begun", "file"}, soak=set())
    record_property("kills", seen.total())


def test_killed_again_and_again(record_property):
    fits, seen = killed()[1]
    assert sum(seen.values()) >= amount(6, soak=100)
    record_property("fits", fits)
    record_property("kills", sum(seen.values()))


if __name__ == "__main__":
    main(*sys.argv[1:])
