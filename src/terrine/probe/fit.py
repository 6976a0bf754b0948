"""A probe learns on a ledger: every step is charged before it is made, and none has two outputs, whenever it is killed.

The order on disk is in `ledger.training`. Noise is never on disk: a folder that is copied or restored has none to use
again for another sum.
"""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from terrine.budgets import TrainingBudget
from terrine.errors import InputError, LedgerError
from terrine.executors import Executor
from terrine.ledger import Ledger
from terrine.ledger.training import TrainingState
from terrine.measured import Measured
from terrine.noise import UNIT, KeptNoise, Noise, SecureNoise, SeededNoise, as_noise
from terrine.probe import exact
from terrine.probe.descent import Descent
from terrine.probe.measuring import measured_of, measured_sum
from terrine.probe.model import Probe
from terrine.probe.outputs import OutputFiles
from terrine.probe.settings import ProbeSettings
from terrine.probe.sums import ProbeRows, Step, gradient_sum
from terrine.relations import Relation
from terrine.sensitive import Sensitive

Progress = Callable[[int, int], object]


class _Given(NamedTuple):
    """Private rows, and who sums blocks of them."""

    rows: ProbeRows
    executor: Executor | None
    device: str | None


def fit_probe(
    rows: ProbeRows,
    *,
    settings: ProbeSettings,
    ledger: Ledger,
    rng: Noise | np.random.Generator | None = None,
    executor: Executor | None = None,
    device: str | None = None,
    progress: Progress | None = None,
) -> Probe:
    """Learn from private rows; called again after a stop or a kill, go on where it stopped.

    Args:
        settings: public, fixed before the first step; the ledger's charge names them.
        ledger: with the `TrainingBudget` of these settings; its folder keeps the outputs (public).
        rng: None is the secure sampler; a seeded one is for experiments, and there is no guarantee then.
        executor, device: who sums blocks of rows, as in `gradient_sum`; the sum is the same by each of them.
        progress: called with the number of sums begun and the number of sums.

    Returns:
        Probe, public: weights and `predict_proba`.

    Formal guarantees:
        `ledger.budget.guarantee()`, for all outputs, the weights and whatever is labeled by them.

    [TERRINE, Thm. 21]
    """
    work = _Fit(settings, ledger, as_noise(rng), _Given(rows, executor, device))
    check_agreement(rows, settings, work.budget)
    check_relation(rows, work.budget, charged=ledger.training.state() is not None)
    with work.alone():
        work.charge()
        while work.step < settings.sums:
            work.next()
            if progress is not None:
                progress(work.step, settings.sums)
        return work.probe()


class _Fit:
    """One call of `fit_probe`."""

    def __init__(self, settings: ProbeSettings, ledger: Ledger, noise: Noise, given: _Given) -> None:
        self._verbs = ledger.training
        self.budget = budget = self._verbs.budget
        if ledger.secrets is None:
            raise InputError(
                "A step's output is kept in a file, and this ledger is on a server. Give Ledger(..., secrets=FOLDER): "
                "a folder of your own on this machine."
            )
        if isinstance(noise, KeptNoise):
            raise InputError("rng must be a sampler: every step draws its own noise.")
        self._source: SecureNoise | SeededNoise = noise
        self._given, self._settings, self._ledger, self._folder = given, settings, ledger, ledger.secrets
        self._outputs = OutputFiles(self._folder, ledger.id, budget.dimension)
        self._descent = Descent(settings, planned_units=budget.planned_units)
        self._told: NDArray[np.int64] | None = None  # by the sum that measures
        self.step = 0  # the last one that is done with: kept or lost

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Of two that train at once, one would take the other's step for lost."""
        self._outputs.made()
        with self._outputs.lock.open("a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise LedgerError(
                    "Another process is training on this ledger. Wait until it is done, or stop it; the same call "
                    "then goes on where it stopped."
                ) from None
            yield

    def charge(self) -> None:
        """Charge, or take up what was charged before; the outputs that are kept move the weights again."""
        asked = self._settings.digest()
        state = self._verbs.charge(asked)
        refuse_other(state, self._settings)
        for step in range(1, state.begun + 1):
            self._take_up(step, state.outputs.get(step))

    def next(self) -> None:
        """The next step: sum and draw in memory, begin, keep. A kill before it is begun loses nothing; after, it."""
        step = self.step + 1
        if self._outputs.path(step).exists():
            raise LedgerError(
                f"{self._outputs.path(step)} holds what step {step} released, and the ledger has not begun that step: "
                "an older ledger was restored. Put back the newest one; if it is gone, the training cannot go on."
            )
        output = self._output()
        if not self._verbs.begin(step, secure=self._source.secure):
            raise LedgerError(
                f"Another machine has begun step {step} of this training. Stop one of the two, copy the outputs that "
                "the other machine has made to this one, and call again."
            )
        digest = self._verbs.keep(step, self._outputs.write(step, output.reveal()))  # charged, begun and noisy
        self._learn(step, digest)
        self.step = step

    def probe(self) -> Probe:
        state = self._verbs.state()
        if state is None or not any(step <= self._settings.steps for step in state.outputs):
            raise LedgerError(
                "Every step of the training was lost before it was finished: epsilon is spent, and nothing was "
                "learned. A new ledger adds its own epsilon and delta."
            )
        return Probe(
            weights=self._descent.average(),
            settings=self._settings,
            steps_kept=len(state.outputs),
            guarantee=self.budget.guarantee() if state.secure else None,
            measured=None if self._told is None else _measured(self._told, self._settings, self.budget),
        )

    def _take_up(self, step: int, digest: str | None) -> None:
        """A step that was begun before: its output, or nothing where it is lost."""
        if digest is None and (there := self._outputs.found(step)) is not None:  # killed before the ledger had it
            digest = self._verbs.keep(step, there)
        if digest is not None:
            self._learn(step, digest)
        self.step = step

    def _learn(self, step: int, digest: str) -> None:
        """From what a step released."""
        output = self._outputs.read(step, digest)
        if step > self._settings.steps:
            self._told = output
        else:
            self._descent.add(step, output)

    def _output(self) -> Sensitive[NDArray[np.int64]]:
        """Of the next step: secret until the step is begun."""
        measures, (rows, executor, device) = self.step >= self._settings.steps, self._given
        weights = exact.whole_weights(self._descent.average() if measures else self._descent.weights)
        step = Step(weights, self._settings.scale, self.budget.clip)
        if measures:
            found = measured_sum(rows, step, executor=executor)
        else:
            found = gradient_sum(rows, step, executor=executor, device=device)
        noise = self._source.gaussian((self.budget.dimension,), sigma=self.budget.noise / UNIT)
        return found.map(lambda total: total.ravel() + noise)


def made_by(ledger: Ledger, probe: Probe, *, folder: Path) -> bool:
    """Whether the ledger's training made this probe: weights and measure follow from the outputs that the chain names.

    Args:
        folder: with the files of the outputs.
    """
    state, budget = ledger.training.state(), ledger.training.budget
    if state is None or (state.asked, len(state.outputs)) != (probe.settings.digest(), probe.steps_kept):
        return False
    files = OutputFiles(folder, ledger.id, budget.dimension)
    descent, measured = Descent(probe.settings, planned_units=budget.planned_units), None
    for step in sorted(state.outputs):
        output = files.read(step, state.outputs[step])
        if step > probe.settings.steps:
            measured = _measured(output, probe.settings, budget)
        else:
            descent.add(step, output)
    return np.array_equal(descent.average(), probe.weights) and probe.measured == measured


def _measured(output: NDArray[np.int64], settings: ProbeSettings, budget: TrainingBudget) -> Measured:
    return measured_of(output, n_classes=settings.n_classes, clip=budget.clip, noise=budget.noise)


def refuse_other(state: TrainingState | None, settings: ProbeSettings) -> None:
    """Refuse a training that was charged for settings that differ; the budget, which is compared first, is the same."""
    if state is None or state.asked == settings.digest():
        return
    others = {name: getattr(settings, name) for name in ("n_features", "n_classes", "scale", "rate", "momentum")}
    given = ", ".join(f"{name} {value:g}" for name, value in others.items())
    raise LedgerError(
        "The ledger pays for one training only, and it was charged for one with other settings. Epsilon, delta, "
        "relation, planning number, number of sums, clip, noise and size of the model are the same as here; what "
        f"differs is one of these, which are now: {given}. The scale follows from the public rows and the features. "
        "Nothing was drawn. Go on with the public rows and settings of that training, or name a new ledger: its "
        "epsilon and delta add to this one's."
    )


def check_agreement(rows: ProbeRows, settings: ProbeSettings, budget: TrainingBudget) -> None:
    """Refuse settings that are not those of the rows and of the budget."""
    pairs = {
        "features": (settings.n_features, rows.n_features),
        "classes": (settings.n_classes, rows.n_classes),
        "steps": (settings.sums, budget.steps),
        "clip in lattice steps": (settings.lattice_clip, budget.clip),
        "weights": (settings.dimension, budget.dimension),
    }
    for name, (ours, theirs) in pairs.items():
        if ours != theirs:
            whose = "the rows have" if name in ("features", "classes") else "the ledger's budget has"
            raise InputError(f"The settings have {name} {ours}, and {whose} {theirs}. They must be the same.")


def check_relation(rows: ProbeRows, budget: TrainingBudget, *, charged: bool) -> None:
    """Refuse a budget whose neighbors differ in a row where rows have units, or in a unit where they have none.

    Args:
        charged: whether the training began before this was asked: rows without units then go on, each as a unit.
    """
    of_rows = budget.relation in (Relation.ROW_ADDED, Relation.ROW_REPLACED)
    if of_rows and rows.have_units:
        raise InputError(
            f'The neighbors of the ledger\'s budget are "{budget.relation.sentence}", and the rows have units: a '
            "unit's whole contribution changes with one row, which such a budget does not pay for. Make it with "
            "relation=Relation.UNIT_ADDED, or leave out the units: each row is then protected by itself."
        )
    if not of_rows and not rows.have_units and not charged:
        row = Relation.ROW_REPLACED if budget.relation.size_is_public else Relation.ROW_ADDED
        raise InputError(
            f'The neighbors of the ledger\'s budget are "{budget.relation.sentence}", and the rows have no units. Give '
            "ProbeRows the units (whose each row is), or make the budget with "
            f"relation=Relation.{row.name} if no unit has several rows, or if single rows are all that you protect."
        )
