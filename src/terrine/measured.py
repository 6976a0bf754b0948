"""How often a probe is right about the private rows that taught it, as one of its noisy sums tells. Public."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

_CLEAR = 10.0  # standard deviations of the noise: with fewer units than that a share means nothing
_FEW = 4  # classes that are named
_TWO_SIDED = 1.96  # standard deviations, for 95%
_HIDDEN = "The noise hides how often the probe is right about its own private rows: they are too few to tell."

Interval = tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Numbers of units that the probe is right and wrong about, with noise: a unit with several rows counts in shares.

    Attributes:
        right, wrong: of all units.
        right_by_class, wrong_by_class: by true class; they add up to the former.
        noise: the standard deviation of each of these numbers.
        words: the same for people.
    """

    right: float
    wrong: float
    right_by_class: tuple[float, ...]
    wrong_by_class: tuple[float, ...]
    noise: float
    words: str = ""

    def __str__(self) -> str:
        return self.words or "no words"

    @property
    def accuracy(self) -> float | None:
        """The share of units that it is right about; None where the noise hides it."""
        return self._share(self.right, self.wrong)

    @property
    def interval(self) -> Interval | None:
        """95%, for the noise and for which units happened to be there."""
        return self._interval(self.right, self.wrong)

    @property
    def shares(self) -> tuple[float, ...] | None:
        """Of each class among the units; None where the noise hides them."""
        if self.accuracy is None:
            return None
        found = [max(right + wrong, 0.0) for right, wrong in self._by_class]
        return tuple(one / sum(found) for one in found) if sum(found) > 0 else None

    @property
    def found(self) -> tuple[float | None, ...]:
        """By true class: the share of its units that it is right about; None where the noise hides it."""
        return tuple(self._share(right, wrong) for right, wrong in self._by_class)

    def named(self, classes: Sequence[str]) -> Measured:
        """With words, which name the classes."""
        return replace(self, words=self._said([str(name) for name in classes]))

    @property
    def _by_class(self) -> list[tuple[float, float]]:
        return list(zip(self.right_by_class, self.wrong_by_class, strict=True))

    def _share(self, right: float, wrong: float) -> float | None:
        units = right + wrong
        return min(max(right / units, 0.0), 1.0) if units > _CLEAR * self.noise else None

    def _interval(self, right: float, wrong: float) -> Interval | None:
        share, units = self._share(right, wrong), right + wrong
        if share is None:
            return None
        variance = (self.noise / units) ** 2 * (share**2 + (1 - share) ** 2) + share * (1 - share) / units
        off = _TWO_SIDED * math.sqrt(variance)
        return max(share - off, 0.0), min(share + off, 1.0)

    def _said(self, classes: Sequence[str]) -> str:
        share, interval, shares = self.accuracy, self.interval, self.shares
        if share is None or interval is None or shares is None:
            return _HIDDEN
        commonest = max(range(len(shares)), key=lambda k: shares[k])
        clear = "" if interval[0] > shares[commonest] else ", so that it is not clearly better"
        return (
            f"On the private rows, by one of the noisy sums, the probe is right about {share:.1%} (95% interval "
            f"{_between(interval)}), and always saying {classes[commonest]!r} about {shares[commonest]:.1%}{clear}."
            f"{self._least(classes)} These rows taught it: on new ones expect a little less."
        )

    def _least(self, classes: Sequence[str]) -> str:
        """The classes that it finds least often, up to a few."""
        told = []
        for (right, wrong), name in zip(self._by_class, classes, strict=True):
            share, interval = self._share(right, wrong), self._interval(right, wrong)
            if share is not None and interval is not None:
                told.append((share, f"{share:.0%} of {name!r} ({_between(interval, digits=0)})"))
        if not told:
            return ""
        more = " and more of each other class" if len(told) > _FEW else ""
        return f" It finds {', '.join(said for _, said in sorted(told)[:_FEW])}{more}."


def _between(interval: Interval, *, digits: int = 1) -> str:
    low, high = (100 * one for one in interval)
    return f"{low:.{digits}f} to {high:.{digits}f}%"
