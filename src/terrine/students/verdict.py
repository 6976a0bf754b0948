"""A student beside always naming the commonest class: whether it has learned anything that shows.

Everything here follows from released answers, or from labeled rows that anyone may see.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from terrine.datasets.rows import Rows, row_digests

Judged = Literal["left_out", "learned", "test"]
_FEW_ROWS = 200  # test rows: an accuracy on fewer says little
FEW = 5  # answers of a class: how often it should be named cannot be told from fewer
SELDOM = 0.1  # of a class's share of the answers
_LEFT_OUT, _LEARNED = "left out when it was predicted", "that the student learned from, which flatters it"
_NOISY = "Agreement is no accuracy: the noise makes some of the answers wrong."
_OF_PROBE = "This is agreement with the probe: it says nothing of how often the probe, or the student, is right."


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """How often a student names a row's label, and how often always naming the commonest class does.

    Labels of test rows are true. Released answers are noisy, or a probe's own: a student agrees with them, and may be
    wrong all the same.

    Attributes:
        judged_on: "left_out": released answers, each left out when it was predicted; "learned": the answers that the
            student learned from, which flatters it; "test": labeled test rows.
        n: how many of them.
        commonest: the class that most of them name.
        right: share on which the student names the label.
        constant: share that names the commonest class.
        lead: ``right`` less ``constant``.
        interval: 95% interval of the lead, the two compared label by label.
        of_probe: whether a probe gave the answers, and no teachers.
    """

    judged_on: Judged
    n: int
    commonest: str
    right: float
    constant: float
    lead: float
    interval: tuple[float, float]
    of_probe: bool = False

    @classmethod
    def of(
        cls, hits: NDArray[np.bool_], labels: NDArray[np.int64], *, classes: Sequence[str], judged_on: Judged
    ) -> Verdict:
        """From (n,) whether the student named the label, and the (n,) labels, as class indices."""
        first = int(np.bincount(labels).argmax())
        named = labels == first
        low, high = paired_interval(int((hits & ~named).sum()), int((named & ~hits).sum()), len(labels))
        return cls(
            judged_on=judged_on,
            n=len(labels),
            commonest=classes[first],
            right=float(hits.mean()),
            constant=float(named.mean()),
            lead=float(hits.mean() - named.mean()),
            interval=(low, high),
        )

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Verdict:
        """From what `asdict` made of one."""
        low, high = value["interval"]
        return cls(**{**value, "interval": (float(low), float(high))})

    @property
    def clear(self) -> bool:
        """Whether the student names the label more often, and chance is no likely reason: the interval is above 0."""
        return self.interval[0] > 0

    @property
    def where(self) -> str:
        """What the labels are, without their number."""
        if self.judged_on == "test":
            return "labeled test rows"
        what = "labels of the probe" if self.of_probe else "released answers"
        return f"{what} {_LEFT_OUT if self.judged_on == 'left_out' else _LEARNED}"

    @property
    def in_words(self) -> str:
        """A sentence; of answers, which are no truth, also what it does not say."""
        low, high = (f"{100 * one:+.1f}" for one in self.interval)
        interval = f"(95% interval of the difference: {low} to {high} points)."
        if self.judged_on == "test":
            return (
                f"On {self.n:,} {self.where} the student is right on {self.right:.1%}, and always saying "
                f"{self.commonest!r} on {self.constant:.1%} {interval}"
            )
        return (
            f"The student agrees with {self.right:.1%} of {self.n:,} {self.where}, and always saying "
            f"{self.commonest!r} with {self.constant:.1%} {interval} {_OF_PROBE if self.of_probe else _NOISY}"
        )


def paired_interval(wins: int, losses: int, n: int) -> tuple[float, float]:
    """A 95% interval for the difference of two shares of the same n labels, of which one alone is right on ``wins``.

    Half a label is added to each of the four outcomes (Agresti and Min, 2005): without it a few wins, or none at all,
    would look certain.
    """
    wins_, losses_, total = wins + 0.5, losses + 0.5, n + 2
    lead = (wins_ - losses_) / total
    half = 1.959964 * math.sqrt(max(wins_ + losses_ - (wins_ - losses_) ** 2 / total, 0.0)) / total
    return max(-1.0, lead - half), min(1.0, lead + half)


def seldom_predicted(
    shares: NDArray[np.float64], answered: NDArray[np.int64], *, classes: Sequence[str]
) -> dict[str, tuple[float, float]]:
    """Classes that a student names for less than a tenth of their share of the answers, and for some rows at least.

    Args:
        shares: (n_classes,) of public rows, by the student's prediction.
        answered: (n_classes,) answers. A class with fewer than 5 is not judged.

    Returns:
        By class: its share of the predictions, and of the answers.
    """
    return {
        name: (float(shares[k]), float(answered[k] / answered.sum()))
        for k, name in enumerate(classes)
        if answered[k] >= FEW and 0 < shares[k] < SELDOM * answered[k] / answered.sum()
    }


def is_probe(settings: Mapping[str, Any]) -> bool:
    """Whether a student's settings are those of a probe that is the student."""
    return settings.get("student") == "Probe"


_RANKED = (
    "sort new rows by the probability of such a class in the place of its predictions; or, before a training is "
    'charged, plan with more people, or with neighbors = "unit_added" where that guarantee is enough'
)


def warnings_of(
    verdicts: Sequence[Verdict],
    *,
    seldom: Mapping[str, tuple[float, float]],
    never: Sequence[str],
    by_probe: bool = False,
) -> tuple[str, ...]:
    """What is wrong with a student, a sentence or two each. Test rows decide where there are some, else the answers.

    Args:
        by_probe: the student is a trained probe: neither weights of classes nor more public rows change it.
    """
    found = []
    decides = next((one for one in verdicts if one.judged_on == "test"), verdicts[0] if verdicts else None)
    if decides is not None and not decides.clear:
        better = "follows the probe better than a constant" if decides.of_probe else "is better than a constant"
        found.append(f"It is not clear that the student {better}. {decides.in_words}")
    if never:
        found.append(
            f"The student never predicts {listed(never)} on the public rows. First ask whether the private rows "
            "spell it so: terrine check (in Python PATEClassifier.check) tells their owner. If they do, "
            + (
                f"{_RANKED}."
                if by_probe
                else "try a balanced student, ask about more rows, or choose public rows in which such classes are "
                "less rare."
            )
        )
    for name, (predicted, answered) in seldom.items():
        found.append(
            f"The student names {name!r} for {predicted:.1%} of the public rows, and {answered:.1%} of the answers "
            f"name it. {_RANKED.capitalize() if by_probe else 'Try a balanced student, or ask about more rows'}."
        )
    return tuple(found)


def about_test_rows(test: Rows, public: Rows) -> str:
    """What an accuracy on test rows does not say, for whoever relies on it: they are public rows, and perhaps few."""
    known = set(row_digests(public))
    there = sum(one in known for one in row_digests(test))
    few = f", and are {len(test):,} only" if len(test) < _FEW_ROWS else ""
    same = (
        "More than half of them are rows of the public file: the number is for rows of that kind. "
        if 2 * there > len(test)
        else ""
    )
    return f"{same}They measure rows of the public kind, from which private rows may differ{few}."


def listed(names: Sequence[str]) -> str:
    """The first few names, in quotes."""
    return ", ".join(repr(name) for name in names[:5]) + (", ..." if len(names) > 5 else "")
