"""Rounds without a run directory: what PATEClassifier(rounds=) does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from terrine import _validate
from terrine.accounting.curves import Guarantee
from terrine.budgets import has_check
from terrine.errors import InputError
from terrine.labeller import KeptVotes, Labeller
from terrine.labeller.voters import repeats
from terrine.ledger import Ledger
from terrine.mechanisms import Answers, InteractiveGNMax, Mechanism
from terrine.published import PublishedGuarantee, PublishedRound
from terrine.runs.interactive import Round, ask_rounds, checked_rounds, merged, opinion_of
from terrine.runs.plan_rounds import PlannedRound, plan_rounds, wishes
from terrine.runs.rounds import rounds_on
from terrine.students import FittedStudent
from terrine.votes import Votes


def wanted_rounds(
    given: object, *, epsilon: float | None, delta: float, standin: Votes, n_public: int
) -> tuple[PlannedRound, ...]:
    """Rounds as they were asked for: a number of them, planned from epsilon, or each with its mechanism and counts."""
    if isinstance(given, (int, np.integer)):
        if epsilon is None:
            raise InputError(
                f"rounds={given} needs epsilon, from which the rounds are planned; or give rounds=[(mechanism, "
                "n_queries, n_answers), ...]."
            )
        n_rounds = _validate.integer("rounds", given, at_least=1)
        return plan_rounds(wishes(n_rounds), standin=standin, epsilon=epsilon, delta=delta, n_public=n_public)
    if epsilon is not None:
        raise InputError("A list of rounds has an epsilon of its own: leave epsilon out, or give a number of rounds.")
    if not isinstance(given, Sequence) or not given or isinstance(given, str):
        raise InputError("rounds must be a number, or a list of (mechanism, n_queries, n_answers).")
    found = [_planned(k, one) for k, one in enumerate(given, start=1)]
    if isinstance(found[0].mechanism, InteractiveGNMax):
        raise InputError(
            "Round 1 uses InteractiveGNMax, which needs a student, and there is none yet. Begin with ConfidentGNMax."
        )
    for k, one in enumerate(found, start=1):
        if one.n_queries > n_public:
            raise InputError(
                f"n_queries of round {k} must be at most {n_public}, the public rows, got {one.n_queries}."
            )
    return tuple(found)


def _planned(k: int, given: Any) -> PlannedRound:
    if isinstance(given, PlannedRound):
        return given
    try:
        mechanism, n_queries, n_answers = given
    except (TypeError, ValueError):
        raise InputError(f"Round {k} must be (mechanism, n_queries, n_answers).") from None
    queries = _validate.integer(f"n_queries of round {k}", n_queries, at_least=1)
    answers = _validate.integer(f"n_answers of round {k}", n_answers, at_least=1)
    if answers > queries or (answers != queries and not has_check(mechanism)):
        limit = f"at most {queries}" if has_check(mechanism) else f"{queries}"
        raise InputError(f"n_answers of round {k} must be {limit}, as it has {queries} queries, got {answers}.")
    return PlannedRound(mechanism=mechanism, n_queries=queries, n_answers=answers)


def refuse_alone(mechanism: Mechanism | None) -> None:
    """Refuse a mechanism that cannot be the only one, before anything is taught."""
    if isinstance(mechanism, InteractiveGNMax):
        raise InputError(
            "InteractiveGNMax compares the votes with a student, and before the first answers there is none. Ask in "
            "rounds: rounds=2 with epsilon=, or rounds=[(ConfidentGNMax(...), n_queries, n_answers), "
            "(InteractiveGNMax(...), n_queries, n_answers)] in the place of mechanism. Nothing was taught or spent."
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class RoundsAsked:
    """What came of rounds.

    Attributes:
        known: (n_public,) what a student learns from, of all rounds together.
        given: what each round released.
    """

    known: Answers
    rounds: tuple[Round, ...]
    given: tuple[Answers, ...]

    def published(self, guarantee: Guarantee, X: Any, *, secure: bool, **facts: Any) -> PublishedGuarantee:
        shown = [
            PublishedRound.of(
                self.given[k] if k < len(self.given) else None,
                fresh=~repeats(X[one.rows]),
                mechanism=one.mechanism,
                answers_at_most=len(one.rows) if one.n_answers is None else one.n_answers,
            )
            for k, one in enumerate(self.rounds)
        ]
        return PublishedGuarantee.of_rounds(guarantee, shown, secure=secure, **facts)


def ask_planned(
    planned: Sequence[PlannedRound],
    public: Any,
    asked: NDArray[np.int64],
    *,
    voters: KeptVotes,
    ledger: Ledger,
    request_id: str,
    learn: Callable[[Answers], FittedStudent],
) -> RoundsAsked:
    """Ask the rounds one after another; ``learn`` makes a student of what is known so far."""
    rounds = checked_rounds(rounds_on(asked, planned), n_rows=len(public))

    def opinion(k: int, known: Answers) -> NDArray[np.float64]:
        return opinion_of(lambda: learn(known), public[rounds[k - 1].rows], known, n_classes=len(voters.classes))

    askers = [Labeller(voters, one.mechanism, ledger) for one in rounds]
    given = ask_rounds(rounds, public, askers, request_id=request_id, opinion=opinion)
    secure = ledger.summary().secure
    given = [replace(some, secure=some.secure and secure) for some in given]
    return RoundsAsked(known=merged(rounds, given, n_rows=len(public)), rounds=tuple(rounds), given=tuple(given))
