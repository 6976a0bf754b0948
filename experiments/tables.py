"""What pages of results share: means with their spread, percentages, epsilons that round up, tables."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))  # scripts also run where terrine is not installed
from terrine.accounting.curves import round_up

RESULTS = Path(__file__).parents[1] / "docs" / "results"


def spread(values: list[float]) -> dict[str, Any]:
    """Mean; over more than one seed also deviation and 95% interval (Student's t) of the mean; a share is at most 1."""
    mean = float(np.mean(values))
    if len(values) < 2:
        return {"mean": mean, "deviation": None, "interval": None, "by_seed": values}
    deviation = float(np.std(values, ddof=1))
    half = float(stats.t.ppf(0.975, len(values) - 1)) * deviation / np.sqrt(len(values))
    high = mean + half
    interval = [mean - half, min(1.0, high) if max(values) <= 1 else high]
    return {"mean": mean, "deviation": deviation, "interval": interval, "by_seed": values}


def percent(found: dict[str, Any], *, interval: bool = True) -> str:
    """As "99.30% ± 0.10% (99.20% to 99.40%)", as far as it is known."""
    said = f"{found['mean']:.2%}"
    if found.get("deviation") is None:
        return said
    said += f" ± {found['deviation']:.2%}"
    if not interval:
        return said
    low, high = found["interval"]
    return f"{said} ({low:.2%} to {high:.2%})"


def up(epsilon: float | None) -> str:
    return "–" if epsilon is None else round_up(epsilon)


def markdown(header: list[str], body: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in (header, ["---"] * len(header), *body))


def publishable(row: dict[str, Any]) -> str:
    """A worst case; bold where its noise was chosen without votes, as a budget in a ledger would have it."""
    said = up(row["publishable_epsilon"])
    return f"**{said}**" if "plan" in row.get("chosen", "") else said
