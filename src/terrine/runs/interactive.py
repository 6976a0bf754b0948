"""The interactive protocol: the student asks in rounds, and later rounds tell the teachers what it thinks already.

Rounds after the first depend on earlier answers. They are charged by the worst case, under one budget of the ledger,
whatever the votes are; see docs/math.md on budgets.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from terrine import _validate
from terrine.budgets import LARGEST_EPSILON, FilterBudget, Spending, has_check
from terrine.datasets.data import PublicData, array_of
from terrine.errors import BudgetError, InputError, TerrineWarning
from terrine.labeller import Labeller
from terrine.labeller.voters import repeats
from terrine.mechanisms import ABSTAIN, Answers, ConfidentGNMax, InteractiveGNMax, Mechanism, Outcome
from terrine.relations import Relation
from terrine.students.api import FittedStudent, Student, fit_student

Progress = Callable[[float], object]


class UnaskedWarning(TerrineWarning):
    """The budget had no room for all rows of a round: the student learns from those that were asked."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Round:
    """Some public rows, which are put to the teachers through one mechanism.

    Attributes:
        mechanism: InteractiveGNMax compares the votes with the student's probabilities; the first round has no student
            yet and takes a mechanism that needs none.
        rows: (n_queries,) indices of public rows; the same row may be asked again in a later round.
        n_answers: after this number of answers the round ends, and the rest of its rows is not asked (default: none).
    """

    mechanism: Mechanism
    rows: NDArray[np.int64]
    n_answers: int | None = None


class Asker(Protocol):
    """A Labeller, or one on another machine."""

    def label(
        self, X: Any, *, request_id: str, student_proba: ArrayLike | None = None, progress: Progress | None = None
    ) -> Answers: ...


Opinion = Callable[[int, Answers], NDArray[np.float64]]  # (round, what is known so far) -> probabilities on its rows


@dataclass(frozen=True, kw_only=True, eq=False)
class InteractiveResult:
    """The last student, and what each round released; a round that the budget had no room for is not there."""

    student: FittedStudent
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


def plan_filter(
    rounds: Sequence[tuple[Mechanism, int, int]], *, delta: float, relation: Relation = Relation.ONE_TEACHER
) -> FilterBudget:
    """The smallest filter that these rounds fit into: the best order for the sum of their worst cases. Public.

    Args:
        rounds: (mechanism, n_queries, n_answers) of each, fixed beforehand. The rounds together answer at most the sum
            of the n_answers: what an early round answers beyond its own number, later rounds have less.
        delta: of the guarantee.
        relation: what neighboring data sets may differ in, as the partition says.
    """
    from scipy.optimize import minimize_scalar

    given = [_checked_plan(k, *one) for k, one in enumerate(rounds, start=1)]
    if not given:
        raise InputError("Give at least one round.")
    options: dict[str, Any] = {"delta": delta, "relation": relation}

    def priced(order: float) -> tuple[float, Spending]:
        """Epsilon, to 1e-8, and the charge: what of the largest filter is not left."""
        largest = FilterBudget(epsilon=LARGEST_EPSILON, order=order, **options)
        prices = [largest.price(one, n_queries=queries, n_answers=answers) for one, queries, answers in given]
        spent = sum(prices, Spending())
        return largest.epsilon - largest.remaining(spent)["rdp"], spent

    def epsilon_at(log_excess: float) -> float:
        return priced(1 + math.exp(log_excess))[0]

    grid = np.linspace(math.log(0.05), math.log(5000.0), 60)
    best = int(np.argmin([epsilon_at(at) for at in grid]))
    ends = grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)]
    order = float(f"{1 + math.exp(minimize_scalar(epsilon_at, bounds=ends, method='bounded').x):.6g}")
    epsilon, spent = priced(order)
    if epsilon >= LARGEST_EPSILON:
        raise InputError(f"These rounds cost an epsilon of {LARGEST_EPSILON:g} or more. Ask less, or add more noise.")
    # A smaller filter has a smaller margin: once more with the one just found, then up to where the charge fits
    epsilon -= FilterBudget(epsilon=epsilon, order=order, **options).remaining(spent)["rdp"]
    step = 2.0**-45
    while not (found := FilterBudget(epsilon=epsilon, order=order, **options)).holds(spent):
        epsilon, step = epsilon + step, 2 * step
    return found


def fit_interactive(
    student: Student,
    public: PublicData | ArrayLike,
    rounds: Sequence[Round],
    *,
    labeller: Callable[[Mechanism], Labeller],
    classes: Sequence[str],
    seed: int,
    request_id: str = "interactive",
    progress: Progress | None = None,
) -> InteractiveResult:
    """Ask, learn, ask about what the student is unsure or wrong of, learn again.

    Args:
        student: settings, as for `fit_student`.
        labeller: from a round's mechanism to the Labeller that asks; all of them on one ledger.
        request_id: round k asks as "<request_id> <k>": a rerun after a crash gets the same answers.

    Where the teachers answer, their label counts; where they withhold and the student was sure, its own label is kept
    (reinforced); what an earlier round answered stays unless a later one answers anew. Where the budget ends, so do the
    rounds: the student of what was answered is returned, with an UnaskedWarning.
    """
    rows = array_of(public, who="fit_interactive")
    asked_in = checked_rounds(rounds, n_rows=len(rows))
    askers = [labeller(one.mechanism) for one in rounds]  # what does not fit the ledger is refused before any charge
    if any(asker.ledger is not askers[0].ledger for asker in askers):
        raise InputError("All rounds must be paid from one ledger; `labeller` gave Labellers on several ledgers.")

    def learned(known: Answers, k: int) -> FittedStudent:
        told = None if progress is None else _part(progress, k - 1, len(rounds))
        return fit_student(student, rows, known, classes=classes, seed=seed, progress=told)

    def opinion(k: int, known: Answers) -> NDArray[np.float64]:
        return opinion_of(lambda: learned(known, k - 1), rows[asked_in[k - 1].rows], known, n_classes=len(classes))

    given = ask_rounds(asked_in, rows, askers, request_id=request_id, opinion=opinion)
    known = merged(asked_in, given, n_rows=len(rows))
    return InteractiveResult(student=learned(known, len(rounds)), rounds=tuple(given), labels=known.labels)


def opinion_of(learned: Callable[[], FittedStudent], X: Any, known: Answers, *, n_classes: int) -> NDArray[np.float64]:
    """A student's probabilities; where nothing was answered yet nothing is learned, and all classes are as likely."""
    if (known.labels == ABSTAIN).all():
        return np.full((len(X), n_classes), 1 / n_classes)
    proba: NDArray[np.float64] = np.asarray(learned().predict_proba(X), dtype=np.float64)
    return proba


def ask_rounds(
    rounds: Sequence[Round],
    rows: Any,
    askers: Sequence[Asker],
    *,
    request_id: str,
    opinion: Opinion,
    progress: Progress | None = None,
) -> list[Answers]:
    """What each round released; where the budget ends, so do the rounds, with an UnaskedWarning.

    Args:
        rounds: as `checked_rounds` gives them.
        askers: who asks, one for each round; all of them on one ledger.
        request_id: round k asks as "<request_id> <k>".
        opinion: the student's probabilities on a round's rows. They are part of the question: after a crash they must
            be the same.
    """
    given: list[Answers] = []
    for k, (one, asker) in enumerate(zip(rounds, askers, strict=True), start=1):
        known = merged(rounds[: k - 1], given, n_rows=len(rows)) if given else None
        proba = opinion(k, known) if known is not None and isinstance(one.mechanism, InteractiveGNMax) else None
        told = None if progress is None else _part(progress, k - 1, len(rounds))
        try:
            answers = _ask(asker, one, rows[one.rows], f"{request_id} {k}", proba, told)
        except BudgetError as error:
            if not given:
                raise
            _warn_unasked(
                f"The budget has no room for round {k} (left: {error.remaining}). The student has learned from the "
                "rounds before it."
            )
            break
        full = one.n_answers is not None and answers.n_answered >= one.n_answers
        if not full and (unasked := int((answers.outcomes == Outcome.UNASKED).sum())):
            _warn_unasked(
                f"The budget ran out in round {k}: {unasked:,} of its {len(one.rows):,} rows were not asked about."
            )
        given.append(answers)
    return given


def _ask(
    asker: Asker, one: Round, X: Any, request_id: str, proba: NDArray[np.float64] | None, progress: Progress | None
) -> Answers:
    """A round's answers. With a limit on them it asks no more rows at a time than may be answered yet.

    When to stop follows from released outcomes alone, so that a rerun makes the same requests.
    """
    if one.n_answers is None:
        return asker.label(X, request_id=request_id, student_proba=proba, progress=progress)
    fresh, n = ~repeats(X), len(X)
    labels, outcomes = np.full(n, ABSTAIN, dtype=np.int64), np.full(n, int(Outcome.UNASKED), dtype=np.int64)
    secure, start = True, 0
    while start < n and (left := one.n_answers - int((outcomes[fresh] == Outcome.TEACHERS).sum())) > 0:
        part = slice(start, min(start + left, n))
        try:
            some = asker.label(
                X[part],
                request_id=f"{request_id} {start}+{part.stop - start}",
                student_proba=None if proba is None else proba[part],
            )
        except BudgetError:
            if start == 0:
                raise
            break
        labels[part], outcomes[part], secure = some.labels, some.outcomes, secure and some.secure
        if (some.outcomes == Outcome.UNASKED).any():
            break
        start = part.stop
        if progress is not None:
            progress(start / n)
    return Answers(labels=labels, outcomes=outcomes, mechanism=one.mechanism, secure=secure)


def merged(rounds: Sequence[Round], given: Sequence[Answers], *, n_rows: int) -> Answers:
    """(n_rows,) what all rounds together say of each public row: the one place where it is decided whose label counts.

    A teachers' label counts before a reinforced one, and a later one of a kind before an earlier one. The mechanism is
    the last round's.
    """
    labels = np.full(n_rows, ABSTAIN, dtype=np.int64)
    outcomes = np.full(n_rows, int(Outcome.UNASKED), dtype=np.int64)
    for one, answers in zip(rounds, given, strict=False):  # rounds that the budget had no room for gave nothing
        before = outcomes[one.rows]
        asked = answers.outcomes != Outcome.UNASKED
        kept = np.where(asked & (before == Outcome.UNASKED), answers.outcomes, before)
        counts = answers.outcomes == Outcome.TEACHERS
        counts |= (answers.outcomes == Outcome.REINFORCED) & (before != Outcome.TEACHERS)
        outcomes[one.rows] = np.where(counts, answers.outcomes, kept)
        labels[one.rows[counts]] = answers.labels[counts]
    return Answers(
        labels=labels, outcomes=outcomes, mechanism=given[-1].mechanism, secure=all(some.secure for some in given)
    )


def _checked_plan(k: int, mechanism: Mechanism, n_queries: int, n_answers: int) -> tuple[Mechanism, int, int]:
    queries = _validate.integer(f"n_queries of round {k}", n_queries, at_least=1)
    answers = _validate.integer(f"n_answers of round {k}", n_answers, at_least=0)
    if answers > queries or (answers != queries and not has_check(mechanism)):
        limit = f"at most {queries}" if has_check(mechanism) else f"{queries}"
        raise InputError(f"n_answers of round {k} must be {limit}, as it has {queries} queries, got {answers}.")
    return mechanism, queries, answers


def checked_rounds(rounds: Sequence[Round], *, n_rows: int) -> list[Round]:
    """The rounds, their rows as whole numbers; a bad one is refused before any is asked."""
    if not rounds:
        raise InputError("Give at least one round.")
    if isinstance(rounds[0].mechanism, InteractiveGNMax):
        raise InputError(
            "Round 1 uses InteractiveGNMax, which needs a student, and there is none yet. Begin with ConfidentGNMax."
        )
    result = []
    for k, one in enumerate(rounds, start=1):
        asked = np.asarray(one.rows)
        if asked.ndim != 1 or asked.size == 0 or asked.dtype.kind not in "iu":  # a mask would be read as rows 0 and 1
            raise InputError(
                f"rows of round {k} must be a list of at least one row's index, got shape {asked.shape}, dtype "
                f"{asked.dtype}."
            )
        if asked.min() < 0 or asked.max() >= n_rows:
            wrong = asked[(asked < 0) | (asked >= n_rows)][0]
            raise InputError(f"rows of round {k} must be from 0 to {n_rows - 1}, got {wrong}.")
        result.append(replace(one, rows=asked.astype(np.int64)))
    return result


def _warn_unasked(message: str) -> None:
    warnings.warn(message, UnaskedWarning, stacklevel=3)


def _part(progress: Progress, done: int, n_rounds: int) -> Progress:
    return lambda share: progress((done + share) / n_rounds)
