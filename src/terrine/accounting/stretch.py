"""From a search by one bound to what a smaller one allows."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")


def stretched(
    make: Callable[[float], Found],
    guess_of: Callable[[Found], float],
    cost_of: Callable[[Found], float],
    *,
    epsilon: float,
) -> Found:
    """What a search by Rényi bounds finds for an epsilon so large that what it finds costs just epsilon.

    Privacy profiles cost seconds, so that a handful of them is evaluated, and a guess leads the way: what is found
    meets epsilon to about a percent, and never exceeds it.
    """
    plain = make(epsilon)
    off = 1.0  # how far the guess is off
    for _ in range(3):
        aim, found = epsilon, plain
        for _ in range(4):
            wanted = 0.998 * epsilon / (off * guess_of(found))
            if abs(wanted - 1) < 1e-3:
                break
            aim *= wanted
            if aim <= epsilon:
                return plain
            found = make(aim)
        spent = cost_of(found)
        if spent <= epsilon:
            return found
        off *= spent / (off * guess_of(found)) * 1.001
    return plain
