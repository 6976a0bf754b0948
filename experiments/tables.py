"""What pages of results share: means with their spread, percentages, epsilons that round up, tables."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))  # scripts also run where terrine is not installed
from terrine.accounting.curves import round_up
from terrine.mechanisms import Mechanism
from terrine.release.tested import publishable_guarantee

MOST = 8500  # questions: pages do without profiles of more, which take a quarter of an hour each
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


def worst_case(mechanism: Mechanism, *, n_queries: int, n_answers: int | None, delta: float) -> dict[str, float]:
    """Of numbers that are fixed beforehand: by privacy profiles, and by Rényi bounds, as it was planned before."""
    numbers = {"n_queries": n_queries, "n_answers": n_answers, "delta": delta}
    renyi = publishable_guarantee(mechanism, **numbers, accountant="renyi").epsilon
    smaller = renyi if n_queries > MOST else publishable_guarantee(mechanism, **numbers).epsilon
    return {"publishable_epsilon": smaller, "renyi_epsilon": renyi}


def publishable(row: dict[str, Any]) -> str:
    """A worst case; bold where its noise was chosen without votes, as a budget in a ledger would have it."""
    said, renyi = up(row["publishable_epsilon"]), up(row.get("renyi_epsilon"))
    shown = f"**{said}**" if "plan" in row.get("chosen", "") else said
    return shown if renyi in ("–", said) else f"{shown} (Rényi {renyi})"
