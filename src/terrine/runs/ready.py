"""Nothing fails after spending: what a run needs later is looked at first, and the advice on its plan is taken."""

from __future__ import annotations

import importlib
import shutil
from collections.abc import Callable
from pathlib import Path

from terrine.accounting.advice import Advice, Units, advise
from terrine.budgets import CountBudget, Spending, TestedBudget
from terrine.datasets import Task
from terrine.datasets.synthetic import synthetic_votes
from terrine.errors import InputError, MissingDependencyError
from terrine.partitioning import public_units
from terrine.runs.config import ProbeConfig, RunConfig, Settings
from terrine.runs.more_answers import with_more_teachers

_VOTE, _LEDGER = 8, 2_000  # bytes of a count, and about those of a question in the ledger
_SPARE = 32_000_000  # bytes for the student, the report and what else is written


def advice_of(config: RunConfig, budget: CountBudget | TestedBudget, task: Task) -> Advice:
    """What a run's plan means, from public numbers alone: the number of units only where the relation shows it."""
    n_classes, n_teachers = len(task.classes), config.teachers.number
    assert task.private is not None
    known = public_units(task.private, method=config.teachers.partition)
    number = known if known is not None else config.data.units_planned
    consensus = config.privacy.consensus
    return advise(
        mechanism=budget.mechanism,
        n_queries=budget.n_queries,
        n_answers=budget.n_answers or budget.n_queries,
        delta=config.privacy.delta,
        n_teachers=n_teachers,
        n_classes=n_classes,
        n_public=len(task.public),
        units=None if number is None else Units(number=number, public=known is not None),
        standin=None
        if consensus is None
        else synthetic_votes(n_queries=400, n_classes=n_classes, n_teachers=n_teachers, consensus=consensus),
        consensus=consensus,
        accept_large_delta=config.privacy.accept_large_delta,
        target=_claimed(budget),
        instead=lambda: with_more_teachers(config, n_classes=n_classes, n_public=len(task.public)),
    )


def _claimed(budget: CountBudget | TestedBudget) -> float | None:
    """The epsilon that is claimed, where it is not the worst case of the answers alone."""
    if isinstance(budget, TestedBudget):
        return budget.target
    return None if budget.cost_release is None else budget.guarantee().epsilon


def check_extras(config: Settings, *, report: bool) -> None:
    """Refuse a run for whose later stages a package is missing.

    Args:
        report: whether report.html will be written.
    """
    needed: list[tuple[str, str, str]] = []  # (module, what for, how to get it)
    if config.student.kind in ("supervised", "features", "auto", "probe"):
        needed.append(("skops.io", "to keep the student", "keep"))
    else:
        needed += [("torch", "to train the student", "torch"), ("safetensors", "to keep the student", "torch")]
    features = config.features if isinstance(config, RunConfig | ProbeConfig) else None
    if features is not None and (features.own or features.kind in ("learned", "auto")):
        needed.append(("safetensors", "to keep the features", "torch"))
        needed += [("onnxruntime", "to run the encoder", "onnx")] if features.kind == "onnx" else []
        needed += (
            [("torch", "to run the encoder", "torch")] if features.kind in ("torch", "sentence-transformers") else []
        )
    if isinstance(config, RunConfig):
        if config.teachers.kind in ("conv", "module"):
            needed.append(("torch", "to train the teachers", "torch"))
        if config.teachers.keep:
            nets = config.teachers.kind in ("conv", "centroid", "ridge", "module")
            needed.append(("safetensors" if nets else "skops.io", "to keep the teachers", "keep"))
        if config.teachers.executor == "ray":
            needed.append(("ray", "to run the teachers", "ray"))
    if report:
        needed.append(("jinja2", "to write the report", "report"))
    for module, purpose, extra in needed:
        try:
            importlib.import_module(module)
        except ImportError:
            name = module.partition(".")[0]
            raise MissingDependencyError(
                f"This run needs {name} {purpose}, and it is not installed. Nothing was taught or spent. "
                f"Install it with: pip install 'terrine[{extra}]'"
            ) from None


def check_disk(
    folder: Path,
    limit: Spending,
    *,
    n_classes: int,
    teachers_bytes: int,
    free: Callable[[Path], int] = lambda folder: shutil.disk_usage(folder).free,
) -> None:
    """Refuse a disk that cannot hold what the run will write, by an estimate from public numbers."""
    needed = limit.queries * (n_classes * _VOTE + _LEDGER) + teachers_bytes
    check_room(folder, needed, what="teachers, votes and answers", free=free(folder))


def check_room(folder: Path, needed: int, *, what: str, free: int) -> None:
    """Refuse a disk that has no room for this, in bytes, and for what every run writes."""
    needed += _SPARE
    if free < needed:
        raise InputError(
            f"{folder} has {free / 1e6:,.0f} MB of free disk space, and this run needs about {needed / 1e6:,.0f} MB "
            f"for {what}. Nothing was taught or spent. Free some space, or choose another folder with --out."
        )
