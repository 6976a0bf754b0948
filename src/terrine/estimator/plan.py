"""What a fit would do and cost, before it does: from public inputs alone."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from terrine.accounting.advice import OF_NOISE_ALONE, Advice
from terrine.accounting.curves import Guarantee
from terrine.budgets import Budget
from terrine.errors import AdviceWarning, warn_caller
from terrine.ledger import Ledger
from terrine.ledger.place import ENVIRONMENT, has_ledger
from terrine.measured import Measured
from terrine.which_route import RouteChoice

_ASK = (
    "Are the classes spelled as in y? Rows of another spelling are left out, and no message says so. Look with "
    "check(...), which takes the same arguments, for your eyes only."
)


@dataclass(frozen=True, kw_only=True)
class FitPlan:
    """What `PATEClassifier.plan` tells. All of it is public; print it for people.

    Attributes:
        route: that a fit would take.
        guarantee: that it would have.
        advice: what the plan means: how many answers to expect, whether the people are enough, and what to change.
        choice: with route="auto" what the routes need and have; else None.
        charged: what is charged already on the ledger that is named, in words; None where there is nothing.
    """

    route: Literal["teachers", "tested", "probe"]
    guarantee: Guarantee
    advice: Advice
    choice: RouteChoice | None = None
    charged: str | None = None

    def __str__(self) -> str:
        said = [f"Route: {self.route}." if self.choice is None else f"Route: {self.route}. {self.choice.reason}"]
        said.append(self.charged or f"A fit would spend {self.guarantee}.")
        said.append("Nothing was taught or spent.")
        said.append(_ASK)
        said += [OF_NOISE_ALONE] if self.route == "probe" else []
        said += [f"Warning: {one}" if one.severity == "warn" else str(one) for one in self.advice.findings]
        return "\n".join(said)


def charged_already(given: str | Path | None, budget: Budget) -> str | None:
    """What a ledger has charged of a budget for answers already; one of another budget is refused as by a fit.

    Args:
        given: as `PATEClassifier` has it; None: the environment's.
    """
    if (place := place_of(given)) is None:
        return None
    with Ledger(place, budget=budget) as ledger:
        asked, name = ledger.summary().queries, Path(str(place)).name
    if not asked:
        return None
    return (
        f"The ledger {name} has this budget, for {budget.guarantee()}, and {asked:,} questions are charged to it "
        "already: a fit asks with what is left, and the guarantee stays what it is."
    )


def place_of(given: str | Path | None) -> str | Path | None:
    """The ledger that is named, if there is one yet."""
    place = given or os.environ.get(ENVIRONMENT)
    return place if place is not None and has_ledger(place) else None


def warn_of_measured(measured: Measured | None, classes: Sequence[str]) -> None:
    """Warn where a probe is not clearly better than a constant by what was measured, or hardly ever finds a class."""
    if measured is not None and (found := measured.warnings(classes)):
        more = measured.ranking(classes)
        warn_caller(" ".join((*found, *([more] if more else []))), AdviceWarning)


def heed(advice: Advice) -> None:
    """Refuse what cannot work, and warn of what hardly will: before a fit teaches or spends."""
    advice.check()
    for one in advice.warnings:
        warn_caller(str(one), AdviceWarning)
