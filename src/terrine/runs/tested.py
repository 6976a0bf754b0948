"""A run by the tested route: its target is in the ledger before the teachers vote, and what a failed test leaves."""

from __future__ import annotations

import math
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from terrine.accounting.curves import round_up
from terrine.accounting.planning import Plan
from terrine.budgets import CountBudget, TestedBudget
from terrine.datasets.synthetic import synthetic_votes
from terrine.errors import InputError, LedgerError, PlanError
from terrine.mechanisms import ABSTAIN, Answers, ConfidentGNMax, GNMax, Mechanism, Outcome
from terrine.published import LedgerHead
from terrine.relations import Relation
from terrine.release.plan_tested import plan_tested
from terrine.runs.config import PrivacyConfig, RunConfig
from terrine.tested_budget import tested_words
from terrine.votes import Votes

if TYPE_CHECKING:
    from terrine.ledger import Ledger
    from terrine.runs.local import Run

STANDINS = 10_000  # queries: what a test sees hangs on rare ones
_MOST_TRIALS, _ROWS = 20, 200_000  # of simulated releases, and of their queries together


def planned_route(proposal: Plan, privacy: PrivacyConfig, *, standin: Votes, max_queries: int) -> PrivacyConfig:
    """The tested release that gives as many right answers as a plan by worst case does, at a smaller epsilon."""
    accuracy = 0.95 if privacy.min_accuracy is None else privacy.min_accuracy
    found = plan_tested(proposal, standin=standin, max_queries=max_queries, min_accuracy=accuracy)
    worst = round_up(proposal.guarantee.epsilon)
    if found is None:
        raise PlanError(
            "A tested release is not possible with this number of public rows and teachers. Leave out privacy.route: "
            f"the worst case is ε = {worst}."
        )
    if not found.pays:
        raise PlanError(
            f"A tested release is not expected to pay: votes like these would pass a test at ε = "
            f"{round_up(found.target)}, and the worst case is ε = {worst}. Leave out privacy.route, or use more "
            "teachers."
        )
    numbers = {"queries": found.n_queries, "answers": found.n_answers, "target": above(found.target)}
    kept = privacy.model_dump(include={"delta", "ask", "route"})
    return PrivacyConfig.model_validate(
        {
            **kept,
            **asdict(found.mechanism),
            **numbers,
            "mechanism": "confident",
            "order": found.order,
            "share": found.share,
        }
    )


def above(epsilon: float) -> float:
    """With four digits, never below."""
    scale = 10.0 ** (3 - math.floor(math.log10(epsilon)))
    return math.ceil(epsilon * scale) / scale


def tested_budget(
    config: RunConfig, mechanism: Mechanism, *, n_classes: int, relation: Relation = Relation.ONE_TEACHER
) -> TestedBudget:
    """What the settings fix, as a ledger's header holds it."""
    privacy = config.privacy
    if privacy.queries is None or privacy.target is None or not isinstance(mechanism, GNMax | ConfidentGNMax):
        raise InputError('route = "tested" needs a target, queries and the mechanism gnmax or confident.')
    return TestedBudget(
        mechanism,
        n_queries=privacy.queries,
        n_answers=privacy.answers,
        target=privacy.target,
        delta=privacy.delta,
        n_teachers=config.teachers.number,
        n_classes=n_classes,
        order=privacy.order,
        share=0.8 if privacy.share is None else privacy.share,
        relation=relation,
    )


def with_chance(budget: CountBudget | TestedBudget, consensus: float | None) -> CountBudget | TestedBudget:
    """With the chance that it passes, on public stand-in votes of the consensus that is assumed; else unknown."""
    if not isinstance(budget, TestedBudget) or consensus is None:
        return budget
    sizes = {"n_queries": budget.n_queries, "n_classes": budget.n_classes, "n_teachers": budget.n_teachers}
    trials = max(3, min(_MOST_TRIALS, _ROWS // budget.n_queries))
    chances = [
        budget.fixed.pass_chance(
            synthetic_votes(**sizes, consensus=consensus, seed=1_000 + k), trials=1, seed=k
        ).reveal()  # of nobody's votes
        for k in range(trials)
    ]
    return replace(budget, pass_chance=round(float(np.mean(chances)), 3))


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


def refuse_earlier_votes(folder: Path, budget: CountBudget | TestedBudget) -> None:
    """Votes that are older than the ledger: the target could depend on them."""
    if isinstance(budget, TestedBudget) and (folder / "votes.npz").exists():
        raise LedgerError(
            f"{folder} has votes.npz and no ledger: the teachers voted before the target was fixed, so that the target "
            "could depend on their votes. Begin a new run with --out, and let it make its ledger first."
        )


NO_SPENDING: dict[str, list[Any]] = {"queries": [], "epsilon": [], "answered": []}  # a release is charged whole


def nothing_released(run: Run) -> tuple[NDArray[np.int64], Answers]:
    """The rows of a release that did not pass, and no answer to any of them."""
    rows = run.asked()
    empty = np.full(len(rows), ABSTAIN, dtype=np.int64), np.full(len(rows), Outcome.UNASKED, dtype=np.int64)
    return rows, Answers(labels=empty[0], outcomes=empty[1], mechanism=run.mechanism, secure=run.summary().secure)


def tested_facts(run: Run) -> dict[str, Any] | None:
    """Of a run by the tested route, for its report: what that means, and how the test ended; else None."""
    if run.config.privacy.route != "tested":
        return None
    found = run.summary()
    assert isinstance(found.budget, TestedBudget)
    return {"failed": found.test == "failed", "words": list(tested_words(found.budget, test=found.test))}


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
