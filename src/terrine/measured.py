"""How often a probe is right about the private rows that taught it, as one of its noisy sums tells. Public."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

_CLEAR = 10.0  # standard deviations of the noise: with fewer units than that a share means nothing
_FEW = 4  # classes that are named
_TWO_SIDED = 1.96  # standard deviations, for 95%


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Numbers of units that the probe is right and wrong about, with noise: a unit with several rows counts in shares.

    Attributes:
        right, wrong: of all units.
        right_by_class, wrong_by_class: by true class.
        noise: the standard deviation of each of these numbers.
    """

    right: float
    wrong: float
    right_by_class: tuple[float, ...]
    wrong_by_class: tuple[float, ...]
    noise: float

    @property
    def accuracy(self) -> float | None:
        """The share of units that it is right about; None where the noise hides it."""
        units = self.right + self.wrong
        return min(max(self.right / units, 0.0), 1.0) if units > _CLEAR * self.noise else None

    @property
    def interval(self) -> tuple[float, float] | None:
        """95%, for the noise and for which units happened to be there."""
        share, units = self.accuracy, self.right + self.wrong
        if share is None:
            return None
        variance = (self.noise / units) ** 2 * (share**2 + (1 - share) ** 2) + share * (1 - share) / units
        off = _TWO_SIDED * math.sqrt(variance)
        return max(share - off, 0.0), min(share + off, 1.0)

    @property
    def shares(self) -> tuple[float, ...] | None:
        """Of each class among the units; None where the noise hides them."""
        if self.accuracy is None:
            return None
        found = [max(right + wrong, 0.0) for right, wrong in zip(self.right_by_class, self.wrong_by_class, strict=True)]
        return tuple(one / sum(found) for one in found) if sum(found) > 0 else None

    @property
    def found(self) -> tuple[float | None, ...]:
        """By true class: the share of its units that it is right about; None where the noise hides it."""
        pairs = zip(self.right_by_class, self.wrong_by_class, strict=True)
        return tuple(
            min(max(right / (right + wrong), 0.0), 1.0) if right + wrong > _CLEAR * self.noise else None
            for right, wrong in pairs
        )

    def in_words(self, classes: Sequence[str]) -> str:
        """For people, in a sentence or two."""
        share, interval, shares = self.accuracy, self.interval, self.shares
        if share is None or interval is None or shares is None:
            return "The noise hides how often the probe is right about its own private rows: they are too few to tell."
        low, high = (100 * one for one in interval)
        commonest = max(range(len(shares)), key=lambda k: shares[k])
        return (
            f"On the private rows, by one of the noisy sums, the probe is right about {100 * share:.1f}% (95% interval "
            f"{low:.1f} to {high:.1f}%), and always saying {str(classes[commonest])!r} about "
            f"{100 * shares[commonest]:.1f}%.{self._by_class(classes)} These rows taught it: on new ones expect a "
            "little less."
        )

    def _by_class(self, classes: Sequence[str]) -> str:
        """The classes that it finds least often, up to a few."""
        told = [(share, str(name)) for share, name in zip(self.found, classes, strict=True) if share is not None]
        least = [f"{100 * share:.0f}% of {name!r}" for share, name in sorted(told)[:_FEW]]
        if not least:
            return ""
        return f" It finds {', '.join(least)}{' and more of each other class' if len(told) > _FEW else ''}."
