"""The interactive protocol: the student asks in rounds, and later rounds tell the teachers what it thinks already.

Rounds after the first depend on earlier answers. They are charged by the worst case, under one budget of the ledger,
whatever the votes are; see docs/math.md on budgets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from terrine import _validate
from terrine.datasets import PublicData
from terrine.errors import InputError
from terrine.labeller import Labeller
from terrine.mechanisms import ABSTAIN, Answers, ConfidentGNMax, InteractiveGNMax, Mechanism, Outcome
from terrine.students.fitting import fit_student

Progress = Callable[[float], object]


@dataclass(frozen=True, kw_only=True, eq=False)
class Round:
    """So many public rows are put to the teachers through one mechanism.

    Attributes:
        mechanism: InteractiveGNMax compares the votes with the student's probabilities; the first round has no student
            yet and takes another.
        rows: (n_queries,) indices of public rows; the same row may be asked again in a later round.
    """

    mechanism: Mechanism
    rows: NDArray[np.int64]


@dataclass(frozen=True, kw_only=True, eq=False)
class Taught:
    """The last student, and what each round released."""

    student: Any
    rounds: tuple[Answers, ...]
    labels: NDArray[np.int64]  # (n_public,) what the last student learned from; ABSTAIN elsewhere


def paper_mechanisms(*, n_teachers: int, student_confidence: float = 0.9) -> tuple[ConfidentGNMax, InteractiveGNMax]:
    """Two rounds on the paper's scale: its Glyph experiment, for any number of teachers."""
    m = _validate.integer("n_teachers", n_teachers, at_least=1)
    first = ConfidentGNMax(threshold=0.7 * m, sigma_check=0.3 * m, sigma_vote=0.02 * m)
    second = InteractiveGNMax(
        threshold=0.7 * m, sigma_check=0.4 * m, sigma_vote=0.04 * m, student_confidence=student_confidence
    )
    return first, second


def fit_interactive(
    student: Any,
    public: PublicData | ArrayLike,
    rounds: Sequence[Round],
    *,
    labeller: Callable[[Mechanism], Labeller],
    classes: Sequence[str],
    seed: int,
    request_id: str = "interactive",
    progress: Progress | None = None,
) -> Taught:
    """Ask, learn, ask about what the student is unsure or wrong of, learn again.

    Args:
        student: settings, as for `fit_student`.
        labeller: from a round's mechanism to the Labeller that asks; all of them on one ledger.
        request_id: round k asks as "<request_id> <k>": a rerun after a crash gets the same answers.

    Where the teachers answer, their label counts; where they withhold and the student was sure, its own label is kept
    (reinforced); what an earlier round answered stays unless a later one answers anew.
    """
    rows = (public if isinstance(public, PublicData) else PublicData(public)).X
    if not rounds:
        raise InputError("Expected at least one round, got none.")
    if isinstance(rounds[0].mechanism, InteractiveGNMax):
        raise InputError("Expected a first round without a student, got InteractiveGNMax.")
    labels = np.full(len(rows), ABSTAIN, dtype=np.int64)
    by_teachers = np.zeros(len(rows), dtype=bool)
    fitted: Any = None
    given: list[Answers] = []
    for k, one in enumerate(rounds):
        asked = np.asarray(one.rows, dtype=np.int64)
        if asked.size and not (asked.min() >= 0 and asked.max() < len(rows)):
            raise InputError(f"Expected rows from 0 to {len(rows) - 1} in round {k + 1}, got another.")
        proba = fitted.predict_proba(rows[asked]) if isinstance(one.mechanism, InteractiveGNMax) else None
        answers = labeller(one.mechanism).label(rows[asked], request_id=f"{request_id} {k + 1}", student_proba=proba)
        answered = answers.outcomes == Outcome.TEACHERS
        sure = (answers.outcomes == Outcome.REINFORCED) & ~by_teachers[asked]
        labels[asked[answered]] = answers.labels[answered]
        labels[asked[sure]] = answers.labels[sure]
        by_teachers[asked[answered]] = True
        given.append(answers)
        told = None if progress is None else lambda share, k=k: progress((k + share) / len(rounds))
        fitted = fit_student(student, rows, labels, classes=classes, seed=seed, progress=told)
    return Taught(student=fitted, rounds=tuple(given), labels=labels)
