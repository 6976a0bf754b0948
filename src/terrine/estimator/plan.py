"""What a fit would do and cost, before it does: from public inputs alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from terrine.accounting.advice import Advice
from terrine.accounting.curves import Guarantee
from terrine.errors import AdviceWarning, warn_caller
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
    """

    route: Literal["teachers", "tested", "probe"]
    guarantee: Guarantee
    advice: Advice
    choice: RouteChoice | None = None

    def __str__(self) -> str:
        said = [f"Route: {self.route}." if self.choice is None else f"Route: {self.route}. {self.choice.reason}"]
        said.append(f"A fit would spend {self.guarantee}. Nothing was taught or spent.")
        said.append(_ASK)
        said += [f"Warning: {one}" if one.severity == "warn" else str(one) for one in self.advice.findings]
        return "\n".join(said)


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
