"""How often a probe is right about the private rows that taught it, as one of its noisy sums tells. Public."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from terrine._pages import pages

_CLEAR = 10.0  # standard deviations of the noise: with fewer units than that a share means nothing
_FEW = 4  # classes that are named
_TWO_SIDED = 1.96  # standard deviations, for 95%
_RARE = 0.4  # of two classes, the share below which rows are better ranked than named
_MISSED = 0.5  # of two classes: a rare one of which less is found is better ranked than named
_PARTS = 1000  # of a share, when the largest likely one is looked for
_HARDLY = 0.1  # of any class: it is as good as never found
_HIDDEN = (
    "The noise hides how often the probe is right about its own private {what}. Either they are too few to tell, or "
    "hardly any private label is spelled as in `classes`: look with terrine check (in Python PATEClassifier.check), "
    "for your eyes only."
)
_RANK = (
    "Rows may still be ranked well, which nothing here has measured: sort new rows by {columns}, as the predictions "
    "file and predict_proba have it, act on the first of them, whatever the prediction says, and count how many are "
    f"right. Where a class is rare a larger ε may change little. See {pages('Use the student', 'Rare classes')}."
)

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
        """Of each class among the units, drawn toward equal shares by James and Stein's rule as far as their spread is
        that of the noise: else the largest of many would be too large. None where the noise hides them."""
        if self.accuracy is None:
            return None
        counts = [right + wrong for right, wrong in self._by_class]
        middle, n = math.fsum(counts) / len(counts), len(counts)
        spread = math.fsum((one - middle) ** 2 for one in counts)
        kept = max(1 - max(n - 3, 0) * 2 * self.noise**2 / spread, 0.0) if spread > 0 else 0.0
        found = [max(middle + kept * (one - middle), 0.0) for one in counts]
        return tuple(one / sum(found) for one in found) if sum(found) > 0 else None

    @property
    def found(self) -> tuple[float | None, ...]:
        """By true class: the share of its units that it is right about; None where the noise hides it."""
        return tuple(self._share(right, wrong) for right, wrong in self._by_class)

    def named(self, classes: Sequence[str], *, units: bool = False, column: str | None = None) -> Measured:
        """With words, which name the classes.

        Args:
            units: whether units with all their rows were counted, and not rows.
            column: the one that says whose row it is, where it is known.
        """
        return replace(self, words=self._said([str(name) for name in classes], units=units, column=column))

    @property
    def clear(self) -> bool:
        """Whether it is right more often than a constant, and not by chance; False where the noise hides that."""
        interval, shares = self.interval, self.shares
        return interval is not None and shares is not None and interval[0] > max(shares)

    def warnings(self, classes: Sequence[str]) -> tuple[str, ...]:
        """What is wrong with the probe, a sentence each, by what was measured."""
        share, shares = self.accuracy, self.shares
        if share is None or shares is None:
            return (self.words or _HIDDEN.format(what="data"),)
        said = []
        if not self.clear:
            said.append(
                "It is not clear that the probe is better than a constant: about the private data it is right about "
                f"{share:.1%}, and always saying {str(classes[_largest(shares)])!r} about {max(shares):.1%}."
            )
        if never := [str(classes[k]) for k, found in enumerate(self.found) if self._at_most(k, found) < _HARDLY]:
            said.append(f"The probe hardly ever finds {' or '.join(map(repr, never[:_FEW]))} among the private data.")
        return tuple(said)

    def ranking(self, classes: Sequence[str]) -> str:
        """What to do where a rare class is named seldom, or never; empty where that is not so."""
        shares, found = self.shares, self.found
        if shares is None:
            return ""
        ranked = [k for k, one in enumerate(found) if one is not None and one < _HARDLY]
        if len(shares) == 2 and min(shares) < _RARE:
            rare = 1 - _largest(shares)
            share = found[rare]
            ranked = [rare] if not self.clear or share is None or share < _MISSED else []
        return _RANK.format(columns=" or ".join(f"P({classes[k]})" for k in ranked[:_FEW])) if ranked else ""

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

    def _at_most(self, k: int, share: float | None) -> float:
        """The share of a class that it finds; where the noise hides that, the largest that it may be, with 95%."""
        if share is not None:
            return share
        right, units = self.right_by_class[k], self.right_by_class[k] + self.wrong_by_class[k]
        likely = [one for one in (j / _PARTS for j in range(_PARTS + 1)) if self._may_be(one, right, units)]
        return max(likely, default=1.0)

    def _may_be(self, share: float, right: float, units: float) -> bool:
        """Whether this share of a class may be right, for the noise and for which units happened to be there."""
        variance = self.noise**2 * (share**2 + (1 - share) ** 2) + share * (1 - share) * max(units, 0.0)
        return (right - share * units) ** 2 <= _TWO_SIDED**2 * variance

    def _said(self, classes: Sequence[str], *, units: bool, column: str | None) -> str:
        share, interval, shares = self.accuracy, self.interval, self.shares
        what, of = ("units", " of them") if units else ("rows", "")
        if share is None or interval is None or shares is None:
            return _HIDDEN.format(what=what)
        clear = "" if self.clear else ", so that it is not clearly better"
        whose = "its rows" if column is None else f"all rows that share one {column}"
        counts = f" A unit is {whose}, and counts by the share of them that are right." if units else ""
        more = self.ranking(classes)
        return (
            f"On the private {what}, by one of the noisy sums, the probe is right about {share:.1%}{of} (95% interval "
            f"{_between(interval)}), and always saying {classes[_largest(shares)]!r} about {max(shares):.1%}{clear}."
            f"{self._least(classes)}{counts} These {what} taught it: on new ones expect a little less."
            f"{' ' if more else ''}{more}"
        )

    def _least(self, classes: Sequence[str]) -> str:
        """The classes that it finds least often, up to a few."""
        told, bounded, hidden = [], [], []
        for k, ((right, wrong), name) in enumerate(zip(self._by_class, classes, strict=True)):
            share, interval = self._share(right, wrong), self._interval(right, wrong)
            if share is not None and interval is not None:
                none = ", so perhaps none" if round(100 * interval[0]) == 0 else ""
                told.append((share, f"{share:.0%} of {name!r} ({_between(interval, digits=0)}{none})"))
            elif (most := self._at_most(k, None)) < _MISSED:
                bounded.append((most, f"at most {math.ceil(100 * most)}% of {name!r}"))
            else:
                hidden.append(repr(name))
        more = " and more of each other class" if len(told) > _FEW else ""
        said = f" It finds {', '.join(said for _, said in sorted(told)[:_FEW])}{more}." if told else ""
        if bounded:
            said += f" Of what the noise nearly hides it finds {_some([one for _, one in sorted(bounded)])}."
        if hidden:
            said += f" How much of {_some(hidden)} it finds the noise hides."
        return said


def _some(names: Sequence[str]) -> str:
    """The first few of a list."""
    more = f" and {len(names) - _FEW:,} more" if len(names) > _FEW else ""
    return ", ".join(names[:_FEW]) + more


def _largest(shares: Sequence[float]) -> int:
    return max(range(len(shares)), key=lambda k: shares[k])


def _between(interval: Interval, *, digits: int = 1) -> str:
    low, high = (100 * one for one in interval)
    return f"{low:.{digits}f} to {high:.{digits}f}%"
