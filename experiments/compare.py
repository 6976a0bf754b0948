"""Two students by their seeds: how far apart, with an interval, and whether that is more than chance and a trifle.

`difference` takes seeds as two samples; `paired` takes them in pairs, where both students had the same answers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import mean, variance

from scipy import stats

TRIFLE = 0.005  # half a point: smaller differences count for nothing, however small the spread over seeds
Apart = Callable[[Sequence[float], Sequence[float]], tuple[float, float | None]]
NOT_TESTED, NOT_HERE = "**not tested**", "**cannot be tested here**"


def difference(one: Sequence[float], other: Sequence[float]) -> tuple[float, float | None]:
    """Of the means, and half of its 95% interval by Welch's t; None with a single seed on either side."""
    apart = mean(one) - mean(other)
    if min(len(one), len(other)) < 2:
        return apart, None
    shares = [variance(some) / len(some) for some in (one, other)]
    if sum(shares) == 0:
        return apart, 0.0
    freedom = sum(shares) ** 2 / sum(s**2 / (len(some) - 1) for s, some in zip(shares, (one, other), strict=True))
    return apart, float(stats.t.ppf(0.975, freedom)) * sum(shares) ** 0.5


def paired(one: Sequence[float], other: Sequence[float]) -> tuple[float, float | None]:
    """The mean of the differences seed by seed, and half of its 95% interval by Student's t; None with one seed."""
    apart = [a - b for a, b in zip(one, other, strict=True)]
    if len(apart) < 2:
        return mean(apart), None
    return mean(apart), float(stats.t.ppf(0.975, len(apart) - 1)) * (variance(apart) / len(apart)) ** 0.5


def better(one: Sequence[float], other: Sequence[float], *, by: Apart = difference) -> bool | None:
    """None where they do not differ by more than chance and a trifle, or where one seed cannot tell."""
    apart, half = by(one, other)
    return None if half is None or abs(apart) <= max(half, TRIFLE) else apart > 0


def decided(cases: Sequence[bool | None]) -> str:
    """A verdict from the cases that differ; it says when some, or all, do not."""
    clear = [case for case in cases if case is not None]
    if not clear:
        return "**undecided**: no difference beyond chance"
    said = "**confirmed**" if all(clear) else "**depends**" if any(clear) else "**refuted**"
    return said if len(clear) == len(cases) else f"{said} in the {len(clear)} of {len(cases)} cases that differ"


def in_points(one: Sequence[float], other: Sequence[float], *, by: Apart = difference) -> str:
    """As "+2.6 (+1.9 to +3.3)"."""
    apart, half = by(one, other)
    said = f"{100 * apart:+.1f}"
    if half is not None:
        said += f" ({100 * (apart - half):+.1f} to {100 * (apart + half):+.1f})"
    return said.replace("-", "−")
