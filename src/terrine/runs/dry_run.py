"""What a run would do, and what that can cost at worst: from public inputs, before anything is written or spent."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from terrine.accounting.advice import Advice
from terrine.accounting.curves import Guarantee
from terrine.budgets import CountBudget, TestedBudget, mechanism_to_json
from terrine.mechanisms import Mechanism
from terrine.runs.config import read_config
from terrine.runs.cost_plan import what_it_adds
from terrine.runs.factories import any_budget_of, check_options, planned
from terrine.runs.local import Run
from terrine.runs.plan_rounds import PlannedRound
from terrine.runs.ready import advice_of, check_extras
from terrine.runs.rounds import advice_on, plan_of
from terrine.runs.tasks import task_of
from terrine.runs.tested import planned_chance
from terrine.tested_budget import tested_words


@dataclass(frozen=True, kw_only=True)
class DryRun:
    """What a run would do; all of it public.

    Attributes:
        data: the name of the data set, or "own data".
        teacher, student: their kinds.
        mechanism: what answers; None where several do, in ``rounds``.
        n_queries, n_answers: at most.
        guarantee: of the whole run, the worst case over all votes.
        advice: whether it will work; where it refuses something, so will the run.
        tested: what a tested release means, in words; empty by worst case.
        cost: what publishing the cost means and adds, in words; empty where it is not published.
    """

    data: str
    n_classes: int
    n_public: int
    n_teachers: int
    teacher: str
    student: str
    mechanism: Mechanism | None
    n_queries: int
    n_answers: int
    guarantee: Guarantee
    advice: Advice
    tested: tuple[str, ...] = ()
    rounds: tuple[PlannedRound, ...] = ()
    cost: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        answering: dict[str, Any] = {
            "rounds": [
                {
                    "mechanism": mechanism_to_json(one.mechanism),
                    "queries_at_most": one.n_queries,
                    "answers_at_most": one.n_answers,
                }
                for one in self.rounds
            ]
        }
        if self.mechanism is not None:
            answering = {"mechanism": mechanism_to_json(self.mechanism)}
        return {
            "data": self.data,
            "classes": self.n_classes,
            "public_rows": self.n_public,
            "teachers": self.n_teachers,
            "teacher": self.teacher,
            **answering,
            "queries_at_most": self.n_queries,
            "answers_at_most": self.n_answers,
            "student": self.student,
            "guarantee": asdict(self.guarantee),
            "advice": self.advice.to_json(),
            **({"tested": list(self.tested)} if self.tested else {}),
            **({"cost": list(self.cost)} if self.cost else {}),
        }


def dry_run(source: str | Path) -> DryRun:
    """What a run would do and what that can cost at worst; nothing is written."""
    path = Path(source)
    given = Run(path).given if path.is_dir() else read_config(path)
    check_options(given)
    check_extras(given, report=True)
    task, privacy = task_of(given.data, texts=given.takes_texts), given.privacy
    about: dict[str, Any] = {
        "data": given.data.name or "own data",
        "n_classes": len(task.classes),
        "n_public": len(task.public),
        "n_teachers": given.teachers.number,
        "teacher": given.teachers.module or given.teachers.kind,
        "student": given.student.kind,
    }
    if given.rounds is not None:
        rounds = plan_of(given, n_classes=len(task.classes), n_public=len(task.public))
        return DryRun(
            **about,
            mechanism=None,
            n_queries=rounds.limit.queries,
            n_answers=rounds.limit.answers,
            guarantee=rounds.budget(delta=privacy.delta).guarantee(),
            advice=advice_on(given, rounds, task),
            rounds=tuple(rounds.planned),
        )
    if privacy.wants_plan:
        privacy = planned(given, n_classes=len(task.classes), n_public=len(task.public))
    filled = given.model_copy(update={"privacy": privacy})
    budget = planned_chance(any_budget_of(filled, n_classes=len(task.classes)), given.privacy.consensus)
    if isinstance(budget, TestedBudget):
        budget.check()
    return DryRun(
        **about,
        mechanism=budget.mechanism,
        n_queries=budget.n_queries,
        n_answers=budget.n_answers or budget.n_queries,
        guarantee=budget.guarantee(),
        advice=advice_of(given, budget, task),
        tested=tested_words(budget) if isinstance(budget, TestedBudget) else (),
        cost=what_it_adds(budget) if isinstance(budget, CountBudget) else (),
    )
