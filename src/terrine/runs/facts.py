"""What there is to say of a run: public facts for its report and, apart from them, what only the owner may see."""

from __future__ import annotations

import datetime
import platform
import shlex
import warnings
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from terrine.accounting.costs import cost, unit_costs
from terrine.accounting.curves import ORDERS, guarantee
from terrine.budgets import mechanism_to_json
from terrine.errors import InputError, OrderGridWarning
from terrine.mechanisms import Answers, Outcome
from terrine.published import PublishedGuarantee, PublishedProbe
from terrine.relations import Relation
from terrine.runs.base import settings_name
from terrine.runs.config import RunConfig, Settings, write_config
from terrine.runs.local import Run
from terrine.runs.probe import ProbeRun
from terrine.runs.probe_facts import ELSEWHERE, probe_facts
from terrine.runs.remote import RemoteRun
from terrine.runs.rounds import round_answers, spending_in_rounds
from terrine.runs.tested import NO_SPENDING, nothing_released, served_facts, tested_facts
from terrine.sensitive import Sensitive

AnyRun: TypeAlias = Run | RemoteRun | ProbeRun
Progress = Callable[[float], object]
_PACKAGES = ("terrine", "numpy", "scipy", "scikit-learn", "opendp", "sqlalchemy", "torch")
_POINTS = 80  # of the curve of spending


def write_run_report(run: AnyRun, *, reveal: bool = False, progress: Progress | None = None) -> Path:
    """Write report.html, public; with ``reveal`` the owner's report.secret.html instead."""
    from terrine.report.page import write_report

    path = run.folder / ("report.secret.html" if reveal else "report.html")
    if reveal and isinstance(run, ProbeRun):
        raise InputError(f"--reveal shows votes, and in {run.folder} nobody voted: it learned a probe. Leave it out.")
    if reveal and not isinstance(run, Run):
        raise InputError(
            "--reveal needs the votes, and this run got its labels from a service. Use --reveal where the teachers are."
        )
    secret = (
        secret_facts(run, progress=progress).reveal() if reveal and isinstance(run, Run) else None
    )  # asked for; the page is marked
    write_report(path, public_facts(run), secret=secret)
    return path


def public_facts(run: AnyRun) -> dict[str, Any]:
    """Settings, released answers, the guarantee and the student's test results: nothing that was not paid for."""
    shown = run.guarantee()
    if isinstance(run, ProbeRun) or isinstance(shown, PublishedProbe):
        assert not isinstance(run, Run)
        return {**probe_facts(run), **_shared(run)}
    tested = tested_facts(run) if isinstance(run, Run) else served_facts(run)
    rows, answers = nothing_released(run) if isinstance(run, Run) and tested and tested["failed"] else run.released()
    task, config, elsewhere = run.task, run.config, ELSEWHERE
    fresh, names = run.fresh(rows), ("epsilon", "delta", "order", "basis", "relation", "notes")
    asked = replace(answers, labels=answers.labels[fresh], outcomes=answers.outcomes[fresh])  # a question once
    counts = np.bincount(asked.labels[asked.outcomes == Outcome.TEACHERS], minlength=len(task.classes))
    failed = tested is not None and tested["failed"]
    unasked = 0 if failed else int((asked.outcomes == Outcome.UNASKED).sum())
    student = run.student_result()
    counts_of = {
        "asked": len(asked) - unasked,
        "answered": asked.n_answered,
        "withheld": 0 if failed else len(asked) - unasked - asked.n_answered,
        "unasked": unasked,
        **({"unreleased": len(asked)} if failed else {}),
        "repeated": len(rows) - len(asked),
    }
    given = round_answers(run, len(shown.rounds))
    if shown.rounds:
        kept = shown.reinforced or 0
        counts_of = {
            "asked": shown.answered + shown.withheld + kept,
            "answered": shown.answered,
            "reinforced": kept,
            "withheld": shown.withheld,
            "unasked": shown.unasked,
            "repeated": shown.repeated,
        }
    return {
        "title": config.data.name or run.folder.name,
        "made": datetime.datetime.now(datetime.UTC).date().isoformat(),  # its time tells of private rows
        "guarantee": {name: value for name, value in shown.to_json().items() if name in names},
        "insecure": not answers.secure,
        "data": {
            "name": config.data.name or "own data",
            "rows": f"{task.public.X.shape[1:]} {task.public.X.dtype}",
            "classes": list(task.classes),
            "unit": run.unit_column,
            "n_public": len(task.public),
            "n_test": None if task.test_y is None else len(task.test_y),
            # Where a neighboring data set may have a different number of rows, it is not public
            "n_private": len(task.private) if task.private and shown.relation == Relation.ROW_REPLACED else None,
        },
        "teachers": {
            "number": shown.n_teachers,
            "kind": config.teachers.kind if isinstance(config, RunConfig) else elsewhere,
            "settings": _teacher_settings(config) if isinstance(config, RunConfig) else {},
            "partition": config.teachers.partition if isinstance(config, RunConfig) else elsewhere,
            "min_units": (config.teachers.min_units or 0) if isinstance(config, RunConfig) else 0,
        },
        "advice": [str(one) for one in run.advice.warnings] if isinstance(run, Run) else [],
        "tested": tested,
        "mechanism": None if shown.rounds else mechanism_to_json(answers.drawn_by),
        "rounds": [
            {**one.to_json(), "in_words": one.in_words, "plan_in_words": one.plan_in_words} for one in shown.rounds
        ],
        "queries_at_most": shown.queries_at_most,
        "answers_at_most": shown.answers_at_most,
        "answers": {
            **counts_of,
            "by_class": dict(zip(task.classes, counts.tolist(), strict=True)),
        },
        "spending": _spending(shown, asked, given, tested=tested is not None),
        "per_query": None if tested or shown.rounds or not shown.order else _per_query(answers, order=shown.order),
        "student": None if student is None else student.to_json(),
        **_shared(run),
    }


def _shared(run: AnyRun) -> dict[str, Any]:
    """How to make a run of any kind again."""
    name, settings = run.folder.resolve().name, settings_name(run.folder)
    where = "" if Path(settings).stem == name else f" --out {shlex.quote(name)}"
    return {
        "terrine": _versions()["terrine"],
        "config": write_config(_without_folders(run.config if isinstance(run, RemoteRun) else run.given)),
        "versions": _versions(),
        "commands": [f"terrine run {shlex.quote(settings)}{where}", f"terrine report {shlex.quote(name)}"],
    }


def _teacher_settings(config: RunConfig) -> dict[str, Any]:
    teachers = config.teachers
    return {**({"module": teachers.module} if teachers.module else {}), **teachers.module_options, **teachers.options}


def _without_folders(config: Settings) -> Settings:
    """Settings to show: files by their names, not by where an owner keeps them."""
    names = {name: getattr(config.data, name, None) for name in ("private", "public", "test", "schema_file")}
    shown = {name: Path(path.name) for name, path in names.items() if path is not None}
    return config.model_copy(update={"data": config.data.model_copy(update=shown)})


def secret_facts(run: Run, *, progress: Progress | None = None) -> Sensitive[dict[str, Any]]:
    """Consensus, the exact cost of these votes, and a student that is trained on the private rows themselves.

    The exact cost is left out of runs in rounds: their questions depend on earlier answers.
    """
    tested = tested_facts(run)
    _, answers = nothing_released(run) if tested and tested["failed"] else run.released()
    votes = run.vote()
    if run.given.rounds is not None:
        return _with_baseline(run, Sensitive(_consensus(run)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OrderGridWarning)
        exact = guarantee(
            cost(answers.drawn_by, votes, orders=ORDERS, progress=progress), delta=run.config.privacy.delta
        )
    found = exact.map(
        lambda one: {"exact": {"epsilon": one.epsilon, "order": one.order, "accountant": "exact"}, **_consensus(run)}
    )
    return _with_baseline(run, found)


def _with_baseline(run: Run, found: Sensitive[dict[str, Any]]) -> Sensitive[dict[str, Any]]:
    baseline = run.baseline()
    if baseline is None:
        return found
    return found.map(lambda facts: {**facts, "baseline": baseline.reveal()})  # stays inside a Sensitive


def _consensus(run: Run) -> dict[str, Any]:
    facts = run.consensus().reveal().to_json()  # stays inside a Sensitive
    names = ("mean_top_vote", "plurality_accuracy")
    found = {"consensus": facts["histogram"], **{name: facts[name] for name in names if name in facts}}
    if run.task.public_y is not None and (run.folder / "answers.npz").is_file():
        rows, answers = run.released()
        given = answers.labels >= 0
        if given.any():
            found["answers_right"] = float((answers.labels == run.task.public_y[rows])[given].mean())
    return found


def spending(answers: Answers, *, delta: float) -> dict[str, list[Any]]:
    """Worst-case epsilon as queries were put and answered, from public outcomes: progress, not a guarantee."""
    asked = answers.outcomes != Outcome.UNASKED
    answered = np.concatenate(([0], np.cumsum(answers.outcomes[asked] == Outcome.TEACHERS)))
    at = np.unique(np.linspace(0, len(answered) - 1, min(_POINTS, len(answered))).astype(int))
    check, vote = unit_costs(answers.drawn_by)
    epsilons = [0.0, *((check * int(n) + vote * int(answered[n])).epsilon(delta=delta) for n in at[1:])]
    return {"queries": at.tolist(), "epsilon": epsilons, "answered": answered[at].tolist()}


def _spending(shown: PublishedGuarantee, asked: Answers, given: list[Answers], *, tested: bool) -> dict[str, list[Any]]:
    if tested:
        return NO_SPENDING
    if shown.rounds:
        return spending_in_rounds(given, delta=shown.delta, order=shown.order or 0.0)
    found = spending(asked, delta=shown.delta)
    # By Rényi bounds: the whole budget's guarantee covers every part of it too
    return {**found, "epsilon": [min(one, shown.epsilon) for one in found["epsilon"]]}


def _per_query(answers: Answers, *, order: float) -> dict[str, float]:
    check, vote = unit_costs(answers.drawn_by, orders=[order])
    return {"check": float(check.epsilons[0]), "answer": float(vote.epsilons[0])}


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found
