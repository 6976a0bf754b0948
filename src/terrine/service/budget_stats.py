"""The ledger's numbers as the service shows them: public, read at most a few times a second."""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

from terrine.accounting.curves import round_up
from terrine.budgets import UNIT_BITS, CountBudget, Spending, TestedBudget, TrainingBudget
from terrine.errors import OrderGridWarning
from terrine.ledger import Ledger
from terrine.ledger.views import Point, Summary
from terrine.mechanisms import Mechanism
from terrine.service import schemas
from terrine.tested_budget import tested_words

T = TypeVar("T")
_FRESH = 0.25  # seconds


class PublicNumbers:
    """What is spent and left, remembered for a moment.

    Args:
        mechanism: what answers; None where a probe does, and a question has no price.
    """

    def __init__(self, ledger: Ledger, mechanism: Mechanism | None) -> None:
        self._ledger = ledger
        self._price = None if mechanism is None else ledger.budget.price(mechanism, n_queries=1, n_answers=1)
        self._lock = threading.Lock()
        self._seen: dict[str, tuple[float, Any]] = {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", OrderGridWarning)
            self.guarantee = ledger.budget.guarantee()

    def budget(self) -> schemas.Budget:
        """The head is the newest at every call: clients refuse one that goes back, as another process's would."""
        head, root = self._ledger.tree_head()
        return self._fresh("budget", self._budget).model_copy(update={"head": str(head), "root": root})

    def history(self) -> list[Point]:
        """Of what questions were charged: by a probe, nothing ever."""
        return [] if self._price is None else self._fresh("history", self._ledger.history)

    def _budget(self) -> schemas.Budget:
        found = self._ledger.summary()
        share = share_spent(found)
        return schemas.Budget(
            ledger_id=found.ledger_id,
            head=found.head,
            root=found.root,
            guarantee=schemas.Guarantee(**self.guarantee.to_json()),
            queries=0 if self._price is None else found.queries,  # a training's steps are no queries
            answers=found.answers,
            open=found.unsettled,
            left={} if self._price is None else found.remaining,  # a training's steps are all taken
            labels_free=self._price is None,
            room=None if self._price is None else room(found.remaining, self._price),
            secure=found.secure,
            share_spent=None if self._price is None else share,
            answered=found.answered,
            withheld=found.withheld,
            reinforced=found.reinforced,
            test=found.test,
            words=self._words(found, share),
        )

    def _words(self, found: Summary, share: float) -> str:
        budget, epsilon = self._ledger.budget, round_up(self.guarantee.epsilon)
        if isinstance(budget, TrainingBudget):
            labels = "Labels cost nothing, however many rows they are of: the training was paid for as a whole."
            if not found.secure:
                return f"Seeded noise was drawn, for experiments: the labels are not private. {labels}"
            return (
                f"The training, and all labels together, have ε = {epsilon} at δ = {self.guarantee.delta:g}. {labels}"
            )
        if isinstance(budget, TestedBudget):
            seeded = "" if found.secure else "Seeded noise was drawn, for experiments: the answers are not private. "
            return seeded + " ".join(tested_words(budget, test=found.test))
        if isinstance(budget, CountBudget):
            used = (
                f"{found.queries:,} of at most {budget.n_queries:,} questions were put to the teachers, and "
                f"{found.answers:,} of at most {budget.n_answers:,} answers were given or are reserved"
            )
        else:
            used = f"{share:.1%} of the budget is used by {found.queries:,} questions"
        if not found.secure:
            return f"Seeded noise was drawn, for experiments: the answers are not private. {used}."
        return (
            f"Whatever is asked, all answers together have ε = {epsilon} at δ = {self.guarantee.delta:g}. {used}. "
            "When the budget is used up, only questions that were answered before get their answers."
        )

    def _fresh(self, name: str, read: Callable[[], T]) -> T:
        with self._lock:
            if name not in self._seen or time.monotonic() - self._seen[name][0] >= _FRESH:
                self._seen[name] = (time.monotonic(), read())
            value: T = self._seen[name][1]
            return value


def share_spent(summary: Summary) -> float:
    """Of a budget, from 0 to 1: of answers or of queries, whichever is scarcer; of a training, all or nothing."""
    left, limit = summary.remaining, summary.budget.limit
    if "steps" in left:
        return 1.0 - left["steps"] / limit.queries
    if "share" in left:
        return 1.0 - left["share"]
    return 1.0 - min(left["queries"] / limit.queries, left["answers"] / limit.answers)


def room(left: dict[str, float], price: Spending) -> int:
    """How many more queries fit at this price each, if every one is answered."""
    if "rdp" in left:
        return int(left["rdp"] * 2**UNIT_BITS) // price.charge
    return max(int(min(left["queries"], left["answers"])), 0)
