"""Where a plan buys too few answers: a number of teachers that would buy more, from public numbers."""

from __future__ import annotations

from terrine.accounting.advice import ANSWERS_EACH, FEW_UNITS, consensus_for
from terrine.accounting.planning import most_questions
from terrine.datasets.synthetic import synthetic_votes
from terrine.errors import PlanError
from terrine.runs.config import RunConfig

_NUMBERS = (10, 15, 20, 25, 50, 75, 100, 150, 200, 250, 500, 750, 1_000)


def with_more_teachers(config: RunConfig, *, n_classes: int, n_public: int) -> str:
    """A sentence: how many answers a larger number of teachers would buy; empty where nobody can say.

    Of those that leave a teacher 10 units of ``units_planned``, the least that buys 5 answers a class, else the one
    that buys most. The consensus is the guide's for their rows, and never more than the settings'.
    """
    privacy, units, now = config.privacy, config.data.units_planned, config.teachers.number
    if units is None or privacy.epsilon is None or privacy.consensus is None or privacy.mechanism != "gnmax":
        return ""
    best = (0, 0, 0.0)  # answers, teachers, consensus
    for number in (one for one in _NUMBERS if one > now and units / one >= FEW_UNITS):
        assumed = min(privacy.consensus, consensus_for(units / number))
        votes = synthetic_votes(n_queries=400, n_classes=n_classes, n_teachers=number, consensus=assumed)
        try:
            _, n = most_questions(standin=votes, epsilon=privacy.epsilon, delta=privacy.delta, max_queries=n_public)
        except PlanError:
            continue
        best = max(best, (n, number, assumed), key=lambda one: one[0])
        if n >= ANSWERS_EACH * n_classes:
            break
    n, number, assumed = best
    if not n:
        return f"No number of teachers that leaves each {FEW_UNITS} units or more would buy an answer."
    return (
        f"With {number:,} teachers, of about {units / number:,.0f} units each and {assumed:.0%} agreement: about "
        f"{n:,} answers."
    )
