"""The training of one probe per ledger: charged whole before its first step, every output kept. All of it is public.

The order on disk: the ledger's header fixes steps, clip and noise; the charge names the settings; sum and noise of a
step are made in memory; the step is begun; sum plus noise, its output, is kept in a file, whose digest is chained. A
step that was begun and has no output is lost: it is charged, and never made again. Noise by itself is never on disk.

A step's entries are named by its number, and the database refuses a second row of one name, part and kind: no step is
begun twice, and none has two outputs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from terrine.budgets import Budget, Spending, TrainingBudget
from terrine.errors import LedgerError
from terrine.ledger.chain import Page
from terrine.ledger.entries import BEGUN, OUTPUT, TRAIN, Entry, Part, is_digest

if TYPE_CHECKING:
    from terrine.ledger.store import Store
    from terrine.ledger.transaction import Transaction

NAME = "training"  # whom all entries belong to


@dataclass(frozen=True, kw_only=True)
class TrainingState:
    """A training that was charged.

    Attributes:
        asked: digest of its settings.
        begun: steps that were begun: 1, 2, ..., begun.
        outputs: digest of the output of each step that has one.
        secure: False where a step had noise from a seeded sampler.
    """

    asked: str
    begun: int = 0
    outputs: Mapping[int, str] = field(default_factory=dict)
    secure: bool = True


class Training:
    """The verbs of a ledger with a TrainingBudget; `Ledger.training` makes it."""

    def __init__(self, store: Store, start: str, budget: Budget) -> None:
        if not isinstance(budget, TrainingBudget):
            raise LedgerError(
                f"The budget of {store.name} does not pay for the training of a probe. Begin a new ledger with a "
                "TrainingBudget: its epsilon and delta add to this one's."
            )
        self._store, self._start, self.budget = store, start, budget

    def state(self) -> TrainingState | None:
        """None before the charge."""
        with self._store.transaction(write=False) as now:
            return state_of(now)

    def charge(self, asked: str) -> TrainingState:
        """Charge the whole training, once; where that was done before, by whomever, say for which settings.

        Args:
            asked: digest of the settings.
        """
        if not is_digest(asked):
            raise LedgerError("A training is charged for settings that are fixed: give their digest.")
        with self._store.transaction(write=True) as now:
            found = state_of(now)
            if found is not None:
                return found
            limit = self.budget.limit
            self._add(now, Part(NAME, 0, TRAIN, asked=asked).costing(limit), change=limit)
        return TrainingState(asked=asked)

    def begin(self, step: int, *, secure: bool) -> bool:
        """Note that a step is begun, before anything of it is shown; False where it was begun before."""
        with self._store.transaction(write=True) as now:
            found = _charged(now)
            if step <= found.begun:
                return False
            if step != found.begun + 1 or step > self.budget.steps:
                raise LedgerError(
                    f"Step {step} cannot be begun: {found.begun} of {self.budget.steps} steps were begun, one after "
                    "the other."
                )
            self._add(now, Part(NAME, step, BEGUN, secure=secure), change=Spending())
        return True

    def keep(self, step: int, digest: str) -> str:
        """Keep the digest of a step's output, and return the one that is kept: one that is there stays."""
        if not is_digest(digest):
            raise LedgerError("An output is kept by its digest.")
        with self._store.transaction(write=True) as now:
            found = _charged(now)
            if step in found.outputs:
                return found.outputs[step]
            begun = next((one for one in now.of_request(NAME) if (one.kind, one.part) == (BEGUN, step)), None)
            if begun is None:
                raise LedgerError(f"Step {step} was not begun: nothing may be kept of it.")
            self._add(now, Part(NAME, step, OUTPUT, secure=bool(begun.secure)), change=Spending(), digest=digest)
        return digest

    def _add(self, now: Transaction, part: Part, *, change: Spending, digest: str = "") -> None:
        page = Page(now, self._start, accounts={""}, clock=part.kind == TRAIN)  # a step takes longer with more rows
        page.add(part, change=change, noise=digest)
        page.write()


def state_of(now: Transaction) -> TrainingState | None:
    """From the entries of the one training."""
    entries = now.of_request(NAME)
    charged = next((entry for entry in entries if entry.kind == TRAIN), None)
    if charged is None:
        return None
    begun = [entry for entry in entries if entry.kind == BEGUN]
    return TrainingState(
        asked=charged.asked,
        begun=max((entry.part for entry in begun), default=0),
        outputs={entry.part: entry.answers_digest for entry in entries if entry.kind == OUTPUT},
        secure=all(entry.secure for entry in begun),
    )


def _charged(now: Transaction) -> TrainingState:
    found = state_of(now)
    if found is None:
        raise LedgerError("The training was not charged: no step of it may be made.")
    return found


def problems(entry: Entry, now: Transaction, budget: Budget) -> Iterator[str]:
    """What an audit says of a training's charge, of a step or of an output."""
    if not isinstance(budget, TrainingBudget):
        yield "is about a training, which the budget does not pay for"
        return
    charge = budget.limit if entry.kind == TRAIN else Spending()
    if (entry.request_id, entry.account, entry.mechanism, entry.spending) != (NAME, "", "", charge):
        yield "is not of the one training that this ledger pays for"
    before = {(one.kind, one.part): one for one in now.of_request(NAME) if one.seq < entry.seq}
    if entry.kind == TRAIN:
        if entry.part != 0 or not is_digest(entry.asked) or entry.answers_digest:
            yield "does not name the settings of the training"
    elif (TRAIN, 0) not in before:
        yield "is a step of a training that was not charged before"
    elif not 1 <= entry.part <= budget.steps or entry.asked:
        yield "is not a step that was paid for"
    elif entry.kind == BEGUN:
        if entry.answers_digest or (entry.part > 1 and (BEGUN, entry.part - 1) not in before):
            yield "begins a step out of turn"
    else:
        begun = before.get((BEGUN, entry.part))
        if begun is None or begun.secure != entry.secure:
            yield "keeps the output of a step that was not begun, or not with this noise"
        if not is_digest(entry.answers_digest):
            yield "does not name its output"
