"""What a run would do, and what that can cost at worst: from public inputs, before anything is written or spent."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from terrine.accounting.advice import Advice
from terrine.accounting.curves import Guarantee
from terrine.budgets import CountBudget, TestedBudget, mechanism_to_json
from terrine.datasets import Task
from terrine.errors import InputError
from terrine.mechanisms import Mechanism
from terrine.runs.base import ROUTE
from terrine.runs.config import ProbeConfig, RemoteConfig, RunConfig, read_settings
from terrine.runs.cost_plan import what_it_adds
from terrine.runs.factories import any_budget_of, check_options, planned
from terrine.runs.plan_rounds import PlannedRound
from terrine.runs.probe_dry_run import ProbeDryRun, dry_run_of_probe
from terrine.runs.probe_plan import check_neighbors, people_of
from terrine.runs.ready import advice_of, check_extras
from terrine.runs.rounds import advice_on, plan_of
from terrine.runs.route import choose, kept_choice
from terrine.runs.tasks import task_of
from terrine.runs.tested import planned_chance
from terrine.tested_budget import tested_words
from terrine.which_route import RouteChoice


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
        choice: where the settings left the route open, what was chosen and why.
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
    choice: RouteChoice | None = None

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
            **({} if self.choice is None else {"choice": self.choice.to_json()}),
        }


def dry_run(source: str | Path) -> DryRun | ProbeDryRun:
    """What a run would do and what that can cost at worst; nothing is written."""
    path = Path(source)
    folder = path if path.is_dir() else None
    given = read_settings(path if folder is None else path / "config.toml")
    if isinstance(given, RemoteConfig):
        raise InputError("A run that gets its labels from a service has no plan of its own: the service's owner has.")
    check_options(given)
    check_extras(given, report=True)
    task = task_of(given.data)
    if isinstance(given, ProbeConfig):
        return dry_run_of_probe(given, task, folder=folder)
    choice = None
    if given.privacy.route == "auto":
        made = folder is not None and (folder / ROUTE).is_file()
        choice = kept_choice(path) if made else choose(given, task)
        if choice.route == "probe":
            return dry_run_of_probe(given, task, folder=folder, choice=choice)
    return _with_teachers(given, task, choice)


def _with_teachers(given: RunConfig, task: Task, choice: RouteChoice | None) -> DryRun:
    assert task.private is not None
    check_neighbors(task.private, given)
    relation = people_of(task.private, given).relation
    privacy = given.privacy
    about: dict[str, Any] = {
        "choice": choice,
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
            guarantee=rounds.budget(delta=privacy.delta, relation=relation).guarantee(),
            advice=advice_on(given, rounds, task),
            rounds=tuple(rounds.planned),
        )
    if privacy.wants_plan:
        privacy = planned(given, n_classes=len(task.classes), n_public=len(task.public))
    filled = given.model_copy(update={"privacy": privacy})
    asked = any_budget_of(filled, n_classes=len(task.classes), relation=relation)
    budget = planned_chance(asked, given.privacy.consensus)
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
