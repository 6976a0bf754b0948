"""A run by the tested route: its target is in the ledger before the teachers vote, and what a failed test leaves."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

import numpy as np
from numpy.typing import NDArray

from terrine.accounting.planning import Plan
from terrine.budgets import Budget, CountBudget, FilterBudget, TestedBudget
from terrine.errors import InputError, LedgerError
from terrine.mechanisms import ABSTAIN, Answers, Mechanism, Outcome
from terrine.published import LedgerHead
from terrine.relations import Relation
from terrine.runs.config import PrivacyConfig, RunConfig
from terrine.tested_budget import tested_words
from terrine.tested_route import Route, planned_route, with_chance
from terrine.votes import Votes

B = TypeVar("B", CountBudget, FilterBudget, TestedBudget, CountBudget | TestedBudget, Budget)

if TYPE_CHECKING:
    from terrine.ledger import Ledger
    from terrine.runs.local import Run
    from terrine.runs.remote import RemoteRun


def planned_privacy(proposal: Plan, privacy: PrivacyConfig, *, standin: Votes, max_queries: int) -> PrivacyConfig:
    """The settings with the numbers of a tested release in place of the epsilon that they were planned from."""
    found = planned_route(proposal, standin=standin, max_queries=max_queries, min_accuracy=privacy.min_accuracy)
    numbers = {"queries": found.n_queries, "answers": found.n_answers, "target": found.target}
    test = {"order": found.order, "share": found.share, "mechanism": "confident"}
    kept = privacy.model_dump(include={"delta", "ask", "route"})
    return PrivacyConfig.model_validate({**kept, **asdict(found)["mechanism"], **numbers, **test})


def tested_budget(
    config: RunConfig, mechanism: Mechanism, *, n_classes: int, relation: Relation = Relation.ONE_TEACHER
) -> TestedBudget:
    """What the settings fix, as a ledger's header holds it."""
    privacy = config.privacy
    if privacy.queries is None or privacy.target is None:
        raise InputError('privacy.route = "tested" needs `queries` and `target`.')
    route = Route(
        mechanism=mechanism,
        n_queries=privacy.queries,
        n_answers=privacy.answers,
        target=privacy.target,
        order=privacy.order,
        share=privacy.share,
    )
    sizes = {"n_teachers": config.teachers.number, "n_classes": n_classes}
    found = route.budget(delta=privacy.delta, **sizes, relation=relation)
    assert isinstance(found, TestedBudget)
    return found


def planned_chance(budget: B, consensus: float | None) -> B | TestedBudget:
    return with_chance(budget, consensus) if isinstance(budget, TestedBudget) else budget


def fix(run: Run) -> None:
    """Make the ledger of a tested run before anyone votes: that is what proves the order."""
    if run.config.privacy.route == "tested":
        run.ledger().close()


def require_fixed(run: Run) -> None:
    """Votes from elsewhere are taken only where the ledger is older than they can be: it was made with the ballots."""
    if run.config.privacy.route == "tested" and not (run.folder / "ledger.json").exists():
        raise LedgerError(
            f"{run.folder} has no ledger yet, so that its target could depend on these votes. Let it cast its own "
            f"ballots first, which makes the ledger: terrine vote {run.folder} --ballots FILE"
        )


def refuse_earlier_votes(folder: Path, budget: Budget) -> None:
    """Votes that are older than the ledger: the target could depend on them."""
    if isinstance(budget, TestedBudget) and (folder / "votes.npz").exists():
        raise LedgerError(
            f"{folder} has votes.npz and no ledger: the teachers voted before the target was fixed, so that the target "
            "could depend on their votes. Begin a new run with --out, and let it make its ledger first. Every run on "
            "the same people spends its own epsilon, on top of the others'."
        )


NO_SPENDING: dict[str, list[Any]] = {"queries": [], "epsilon": [], "answered": []}  # a release is charged whole


def nothing_released(run: Run) -> tuple[NDArray[np.int64], Answers]:
    """The rows of a release that did not pass, and no answer to any of them."""
    rows = run.asked()
    empty = np.full(len(rows), ABSTAIN, dtype=np.int64), np.full(len(rows), Outcome.UNASKED, dtype=np.int64)
    return rows, Answers(labels=empty[0], outcomes=empty[1], mechanism=run.mechanism, secure=run.summary().secure)


class TestedFacts(TypedDict):
    failed: bool
    words: list[str]


def tested_facts(run: Run) -> TestedFacts | None:
    """Of a run by the tested route, for its report: what that means, and how the test ended; else None."""
    if run.config.privacy.route != "tested":
        return None
    found = run.summary()
    assert isinstance(found.budget, TestedBudget)
    return {"failed": found.test == "failed", "words": list(tested_words(found.budget, test=found.test))}


def served_facts(run: RemoteRun) -> TestedFacts | None:
    """Of a run whose service published one tested release; else None."""
    if run.about.one_release is None:
        return None
    return {"failed": False, "words": list(run.guarantee().notes)}


def publish_failure(run: Run, ledger: Ledger) -> None:
    """guarantee.json of a release that did not pass: what is spent, for nothing."""
    budget, paid = ledger.budget, ledger.summary()
    if paid.test != "failed":  # no bit is kept: its noise is elsewhere, or lost
        return
    rows = run.asked()[:0]
    empty = np.zeros(0, dtype=np.int64)
    nothing = Answers(labels=empty, outcomes=empty, mechanism=run.mechanism, secure=paid.secure)
    run.publish(
        budget.guarantee(),
        rows,
        nothing,
        n_teachers=run.config.teachers.number,
        queries_at_most=budget.limit.queries,
        answers_at_most=budget.limit.answers,
        ledger=LedgerHead(id=paid.ledger_id, head=paid.head),
        test="failed",
    )
