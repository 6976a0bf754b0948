"""Every histogram of a few votes, every move, every ball: sensitivities from their definitions.

Takes the costs to look at from the caller; shares no code with `terrine`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cache

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Histogram = tuple[int, ...]


def histograms(votes: int, classes: int) -> Iterator[Histogram]:
    """All of them, in all orders of the classes."""
    if classes == 1:
        yield (votes,)
        return
    for first in range(votes + 1):
        for rest in histograms(votes - first, classes - 1):
            yield (first, *rest)


def neighbours(counts: Histogram) -> Iterator[Histogram]:
    """One vote moved."""
    for a, from_a in enumerate(counts):
        for b in range(len(counts)):
            if a != b and from_a > 0:
                moved = list(counts)
                moved[a] -= 1
                moved[b] += 1
                yield tuple(moved)


def log_q(counts: Histogram, *, sigma: float) -> float:
    """Union bound on another winner than the first of the highest, at most 1 - 1/m."""
    top = counts.index(max(counts))
    q = math.fsum(math.erfc((counts[top] - count) / (2 * sigma)) / 2 for j, count in enumerate(counts) if j != top)
    return math.log(min(q, 1 - 1 / len(counts)))


class Space:
    """All histograms of so many votes and classes, and the distances between them."""

    def __init__(self, votes: int, classes: int) -> None:
        self.points = list(histograms(votes, classes))
        self.index = {point: i for i, point in enumerate(self.points)}
        size = len(self.points)
        self.adjacent = np.zeros((size, size), dtype=bool)
        for i, point in enumerate(self.points):
            for neighbour in neighbours(point):
                self.adjacent[i, self.index[neighbour]] = True
        self.distance = np.array([self._breadth_first(i) for i in range(size)])

    def _breadth_first(self, start: int) -> NDArray[np.int64]:
        distance = np.full(len(self.points), -1)
        front = np.zeros(len(self.points), dtype=bool)
        front[start] = True
        step = 0
        while front.any():
            distance[front] = step
            front = self.adjacent[front].any(axis=0) & (distance < 0)
            step += 1
        return distance

    def values(self, function: Callable[[Histogram], float]) -> Array:
        """``function`` everywhere, asked once for all orders of the classes."""
        cached = cache(function)
        return np.array([cached(tuple(sorted(point, reverse=True))) for point in self.points])

    def local(self, costs: Array) -> Array:
        """Largest change of the cost in one move, at every point."""
        changes = np.where(self.adjacent, np.abs(costs[:, None] - costs), 0.0)
        largest: Array = changes.max(axis=1)
        return largest

    def within(self, values: Array, distance: int) -> Array:
        """Largest value in the ball around every point."""
        largest: Array = np.where(self.distance <= distance, values, -np.inf).max(axis=1)
        return largest


@cache
def space(votes: int, classes: int) -> Space:
    return Space(votes, classes)
