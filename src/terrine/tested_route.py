"""What is fixed before there are votes, by worst case or by a test: planned from public inputs, or as it is given."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from terrine.accounting.curves import round_up
from terrine.accounting.planning import Plan
from terrine.budgets import CountBudget, TestedBudget
from terrine.datasets.synthetic import synthetic_votes
from terrine.errors import InputError, PlanError
from terrine.mechanisms import ConfidentGNMax, GNMax, Mechanism
from terrine.relations import Relation
from terrine.release.plan_tested import plan_tested
from terrine.votes import Votes

STANDINS = 10_000  # queries: what a test sees hangs on rare ones
_MOST_TRIALS, _ROWS = 20, 200_000  # of simulated releases, and of their queries together


@dataclass(frozen=True, kw_only=True)
class Route:
    """Numbers for a CountBudget or, where there is a target, for a TestedBudget."""

    mechanism: Mechanism
    n_queries: int
    n_answers: int | None
    target: float | None = None
    order: float | None = None
    share: float | None = None

    def budget(
        self,
        *,
        delta: float,
        n_teachers: int,
        n_classes: int,
        relation: Relation = Relation.ONE_TEACHER,
        consensus: float | None = None,
    ) -> CountBudget | TestedBudget:
        """Where a consensus is assumed, with the chance that the test passes."""
        if self.target is None:
            return CountBudget(
                self.mechanism, n_queries=self.n_queries, n_answers=self.n_answers, delta=delta, relation=relation
            )
        if not isinstance(self.mechanism, GNMax | ConfidentGNMax):
            raise InputError("A tested release needs the mechanism GNMax or ConfidentGNMax.")
        found = TestedBudget(
            self.mechanism,
            n_queries=self.n_queries,
            n_answers=self.n_answers,
            target=self.target,
            delta=delta,
            n_teachers=n_teachers,
            n_classes=n_classes,
            order=self.order,
            share=0.8 if self.share is None else self.share,
            relation=relation,
        )
        return with_chance(found, consensus)


def planned_route(proposal: Plan, *, standin: Votes, max_queries: int, min_accuracy: float | None = None) -> Route:
    """The tested release that gives as many right answers as a plan by worst case does, at a smaller epsilon."""
    accuracy = 0.95 if min_accuracy is None else min_accuracy
    found = plan_tested(proposal, standin=standin, max_queries=max_queries, min_accuracy=accuracy)
    worst = round_up(proposal.guarantee.epsilon)
    if found is None:
        raise PlanError(
            "A tested release is not possible with this number of public rows and teachers. Leave out the route: the "
            f"worst case is ε = {worst}."
        )
    if not found.pays:
        raise PlanError(
            f"A tested release is not expected to pay: votes like these would pass a test at ε = "
            f"{round_up(found.target)}, and the worst case is ε = {worst}. Leave out the route, or use more teachers."
        )
    return Route(
        mechanism=found.mechanism,
        n_queries=found.n_queries,
        n_answers=found.n_answers,
        target=above(found.target),
        order=found.order,
        share=found.share,
    )


def above(epsilon: float) -> float:
    """With four digits, never below."""
    scale = 10.0 ** (3 - math.floor(math.log10(epsilon)))
    return math.ceil(epsilon * scale) / scale


def with_chance(budget: TestedBudget, consensus: float | None) -> TestedBudget:
    """With the chance that it passes, on public stand-in votes of the consensus that is assumed; else unknown."""
    if consensus is None:
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
