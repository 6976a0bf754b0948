"""What a fit would do and cost, before it does: from public inputs alone."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Literal

from terrine.accounting.advice import Advice
from terrine.accounting.curves import Guarantee
from terrine.errors import AdviceWarning
from terrine.which_route import RouteChoice


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
        said += [f"Warning: {one}" if one.severity == "warn" else str(one) for one in self.advice.findings]
        return "\n".join(said)


def heed(advice: Advice) -> None:
    """Refuse what cannot work, and warn of what hardly will: before a fit teaches or spends."""
    advice.check()
    for one in advice.warnings:
        warnings.warn(str(one), AdviceWarning, stacklevel=4)
