"""A run in rounds inside processes that kill themselves at a chosen event: what tests/runs/test_rounds_kill.py starts.

As a program it imports and plans once, then reads lines of JSON, [folder, event, file], and forks for each.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import traceback
from pathlib import Path
from typing import Any

import numpy as np

from terrine.labeller import labeller
from terrine.ledger import Ledger
from terrine.noise import SeededNoise
from terrine.runs.local import Run
from terrine.students.supervised import FittedEstimator


class NoNoise(SeededNoise):
    """Answers that depend on votes and questions alone: the same after any kill."""

    def gaussian(self, shape: tuple[int, ...], *, sigma: float) -> Any:
        return np.zeros(shape, dtype=np.int64)

    def below(self, n: int) -> int:
        return 0


def think_otherwise() -> None:
    """A student that thinks a little otherwise in every process, as one trained on a GPU may."""
    rng, predict = np.random.default_rng(os.getpid()), FittedEstimator.predict_proba

    def other(self: FittedEstimator, X: Any) -> Any:
        proba = predict(self, X)
        proba = proba + rng.uniform(1e-9, 1e-7, size=proba.shape)
        return proba / proba.sum(axis=1, keepdims=True)

    FittedEstimator.predict_proba = other  # type: ignore[method-assign]


def count_events(folder: str, kill_at: int) -> list[str]:
    """Files that come into place, charges, opinions and answers that are kept. At event ``kill_at``, SIGKILL."""
    seen: list[str] = []

    def happens(name: str) -> None:
        seen.append(name)
        if len(seen) == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    def watch(owner: Any, name: str, *, before: bool = False) -> None:
        does = getattr(owner, name)

        def watched(*given: Any, **options: Any) -> Any:
            if owner is os:
                path = Path(given[1])
                of = re.sub(r"\.[0-9a-f]{16}\.tmp$", "", path.name) if path.parent == Path(folder) else "elsewhere"
            else:
                of = f"in round {1 + Path(folder, 'round-2.proba.npz').exists()}"
            if before:
                happens(f"before {name} {of}")
            result = does(*given, **options)
            happens(f"after {name} {of}")
            return result

        setattr(owner, name, watched)

    watch(os, "replace")
    watch(os, "link")
    watch(Ledger, "reserve_each")
    watch(Ledger, "keep_each", before=True)  # drawn, and not on disk
    watch(FittedEstimator, "predict_proba")
    return seen


def label_and_learn(folder: str, kill_at: int, told: str) -> None:
    """From the votes on; the names of all events to a file, if it comes to its end."""
    labeller.as_noise = lambda rng: NoNoise(0)  # type: ignore[assignment]
    think_otherwise()
    seen = count_events(folder, kill_at)
    run = Run(folder)
    run.label()
    run.learn()
    Path(told).write_text("\n".join(seen))


def main() -> None:
    import sklearn.linear_model  # noqa: F401
    import skops.io  # noqa: F401

    import terrine.ledger.store  # noqa: F401

    known: list[object] = []
    for line in sys.stdin:
        folder, *_ = json.loads(line)
        if not known:  # what is computed once, no child need do again
            known.append(Run(Path(folder)).advice)
        child = os.fork()
        if child == 0:
            try:
                label_and_learn(*json.loads(line))
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    main()
