"""What the commands over a run directory print: plans, guarantees, students."""

from __future__ import annotations

import json
import math
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from terrine.accounting.advice import OF_NOISE_ALONE
from terrine.budgets import mechanism_to_json
from terrine.cli.common import print_json, takes_a_while
from terrine.errors import InputError, LedgerError

if TYPE_CHECKING:
    from terrine.accounting.curves import Guarantee
    from terrine.published import PublishedGuarantee, PublishedProbe
    from terrine.runs.config import DataConfig, Settings
    from terrine.runs.dry_run import DryRun
    from terrine.runs.local import Run
    from terrine.runs.opening import AnyRun
    from terrine.runs.probe_dry_run import ProbeDryRun
    from terrine.runs.remote import RemoteRun
    from terrine.students import StudentResult
    from terrine.which_route import RouteChoice


def secret_of(run: Run) -> dict[str, Any]:
    """What --reveal adds: how many teachers failed on their share, marked as what it is."""
    found = run.failed_teachers()
    if found is None:
        return {}
    return {"secret": "secret: depends on private rows", "failed_teachers": found.reveal()}  # asked for


def print_secret(facts: dict[str, Any], n_teachers: int) -> None:
    if "failed_teachers" in facts:
        print(
            f"{facts['failed_teachers']:,} of {n_teachers:,} teachers could not learn from their share and vote for "
            "class 0 (secret: depends on private rows)."
        )


def publishes_cost(run: Run | RemoteRun) -> bool:
    """Whether a run's epsilon pays for a number that is not published yet."""
    from terrine.runs.local import Run

    return isinstance(run, Run) and run.config.privacy.publish_cost and run.guarantee().cost is None


def describe(source: Path, *, folder: Path, as_json: bool, plot: Path | None) -> None:
    """A run's plan and its worst-case cost; nothing is written but the plot."""
    from terrine.runs.config import RemoteConfig, read_settings
    from terrine.runs.dry_run import DryRun, dry_run
    from terrine.runs.tasks import unread_public

    path = source / "config.toml" if source.is_dir() else source
    if path.is_file() and isinstance(read_settings(path), RemoteConfig):
        raise InputError(
            "--dry-run is for runs of your own teachers, and this one gets its labels from a service (labels.url). The "
            "service's /v1/about has its guarantee, and /v1/budget what is left, or that labels cost nothing."
        )
    if plot is not None:
        from terrine.report.plots import check_plot

        check_plot(plot)
    with takes_a_while("making features of the public rows and comparing what the run could do; nothing is spent"):
        found = dry_run(source)
    for one in unread_public(read_settings(path).data):
        print(f"terrine: warning: {one}", file=sys.stderr)
    if plot is not None:
        _plot_routes(found, plot)
    charged = _charged_already(read_settings(path), folder, found.guarantee)
    if as_json:
        print_json({**found.to_json(), **({} if charged is None else {"charged_already": charged})})
    else:
        from terrine.report.tables import print_advice

        begun = (folder / "ledger.json").is_file() and _same_settings(path, folder)
        if charged is not None:
            print(charged)
        if begun and (folder / "student").is_dir():
            print(f"{folder} is finished, and what it costs is spent. This is the plan that it followed:")
        elif begun:
            print(f"{folder} was begun, and its budget is fixed. This is the plan that it follows:")
        if found.choice is not None:
            print_choice(found.choice)
        if isinstance(found, DryRun):
            print_dry_run(found)
        else:
            print_probe_dry_run(found)
        print_advice(found.advice)
        if not begun:
            _say_whom_it_is_for(path)
            _ask_for_check(path)
        if plot is not None:
            print(f"Plot: {plot}")
    found.advice.check()  # a run would stop here


def _same_settings(settings: Path, folder: Path) -> bool:
    """Whether a run directory is that of these settings."""
    from terrine.runs.config import differences, read_settings

    kept = folder / "config.toml"
    return kept.is_file() and not differences(read_settings(settings), read_settings(kept))


def _say_whom_it_is_for(settings: Path) -> None:
    """Of files in folders without a pattern for whose they are: not for persons."""
    from terrine.cli.first_look import file_hints
    from terrine.runs.config import ProbeConfig, RunConfig, read_settings

    given = read_settings(settings)
    if isinstance(given, RunConfig | ProbeConfig) and given.data.public is not None and given.data.unit is None:
        for one in file_hints(given.data.public, how="name a pattern, data.unit = '^([^_]+)_'; it"):
            print(f"- {one}")


def _charged_already(settings: Settings, folder: Path, planned: Guarantee) -> str | None:
    """That a run directory's budget is charged for other settings, and what a run of these adds up to with it."""
    from terrine.accounting.curves import round_up
    from terrine.runs.base import fixed_keys
    from terrine.runs.bound import bound_ledger

    if not (folder / "ledger.json").is_file() or not (keys := fixed_keys(settings, folder)):
        return None
    try:
        ledger = bound_ledger(folder)
    except LedgerError:  # it is elsewhere now
        return None
    assert ledger is not None
    with ledger:
        spent = ledger.budget.guarantee()
    both = "each for its own neighbors"
    if spent.relation == planned.relation:
        both = f"to ε = {round_up(spent.epsilon + planned.epsilon)} and δ = {spent.delta + planned.delta:g}"
    return (
        f"{folder} is charged already, for ε = {round_up(spent.epsilon)} at δ = {spent.delta:g}, with a different "
        f"{' and '.join(keys)}: terrine run refuses these settings there. What follows is a new run: name a new folder "
        f"with --out. On the same people both then add up, {both}."
    )


def _ask_for_check(settings: Path) -> None:
    """Labels that are no class stop nothing, for others could see that: their owner must look."""
    from terrine.runs.config import ProbeConfig, RunConfig, read_settings

    given = read_settings(settings)
    if not isinstance(given, RunConfig | ProbeConfig) or given.data.private is None or given.data.public is None:
        return
    if (how := _how_to_check(given.data)) is not None:
        print(
            f"- Are the classes spelled as in {given.data.private.name}? Rows of another spelling are left out, and no "
            f"message says so. Look first, for your eyes only: {how}"
        )


def _how_to_check(data: DataConfig) -> str | None:
    """What to type; None of folders, where the name of a class that is not listed is refused."""
    from terrine.schema import is_table

    assert data.private is not None and data.public is not None
    private, public = (shlex.quote(os.path.relpath(one)) for one in (data.private, data.public))
    if data.private.is_dir() and not (data.private / "X.npy").is_file():
        return None
    if not is_table(data.private):
        there = data.private / "y.npy" if data.private.is_dir() else data.private
        y = f"numpy.load({json.dumps(os.path.relpath(there))})" + ("" if data.private.is_dir() else '["y"]')
        return f"python -c {shlex.quote(f'import numpy; print(numpy.unique({y}, return_counts=True))')}"
    if data.schema_file is not None:
        return f"terrine check {private} --schema {shlex.quote(os.path.relpath(data.schema_file))}"
    roles = {"--label": data.label, "--classes": ",".join(data.classes or ()), "--unit": data.unit}
    said = " ".join(f"{name} {shlex.quote(value)}" for name, value in roles.items() if value)
    return f"terrine schema {public} {said} > schema.toml && terrine check {private} --schema schema.toml"


def _plot_routes(found: DryRun | ProbeDryRun, path: Path) -> None:
    from terrine.report.plots import signal_plot
    from terrine.runs.probe_dry_run import signals

    if (lines := signals(found.guarantee, found.advice.units)) is None:
        raise InputError("--plot needs data.units_planned: it shows what that number of units can teach a probe.")
    signal_plot(lines, path)


def print_choice(choice: RouteChoice) -> None:
    """Which route a run takes, and why."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(title="Teachers or a probe?", title_style="bold")
    for name in ("route", "what it needs, at least", "it has", "right, rehearsed"):
        table.add_column(name, justify="right" if name in ("it has", "right, rehearsed") else "left")
    rows = choice.rows()
    if not any(row[-1] for row in rows):
        table.columns.pop()
    for row in rows:
        table.add_row(*map(escape, row[: len(table.columns)]))
    Console().print(table)
    print(choice.reason)
    if any(row[-1] for row in rows):
        print("A rehearsal learns from half of the labeled public rows. With more rows, expect more of the run.")
    print('The page "Which route?" of the documentation explains each line.')


def print_probe_dry_run(found: ProbeDryRun) -> None:
    """How a probe would be trained, and what that costs."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from terrine.accounting.curves import round_up
    from terrine.relations import Relation
    from terrine.training_budget import contributions_changed

    table = Table(title="What this run would do", title_style="bold", show_header=False)
    table.add_column()
    table.add_column(justify="right")
    table.add_column()
    planned = "which is public here" if found.units.public else "planned, from what anyone may know"
    whence = "from your files" if found.data == "own data" else escape(found.data)
    one = "row" if found.guarantee.relation in (Relation.ROW_REPLACED, Relation.ROW_ADDED) else "unit"
    table.add_row(f"{one}s", f"{found.units.number:,}", f"{planned}; {whence}")
    table.add_row("features", f"{found.plan.settings.n_features:,}", f"of each row, of kind {found.features}")
    table.add_row("steps", f"{found.plan.settings.steps:,}", f"of one training; each adds up a gradient of every {one}")
    if found.plan.settings.measured:
        table.add_row("measured", "1", "one more sum, in the same ε: how often the probe is right about its rows")
    table.add_row("clip", f"{found.clip:.3g}", f"the longest gradient of one {one}")
    table.add_row("noise", f"{found.noise:.3g}", "standard deviation, on every number of a sum")
    table.add_row("labels", f"{found.n_public:,}", f"all public rows, in {found.n_classes} classes; they cost nothing")
    table.add_row("student", found.student, "")
    epsilon = f"[bold]{round_up(found.guarantee.epsilon)}[/bold]"
    table.add_row("ε of the budget", epsilon, f"δ={found.guarantee.delta:g}, of the whole training")
    table.add_row("neighbors", "", found.guarantee.relation.sentence)
    Console().print(table)
    if contributions_changed(found.guarantee.relation) > 1:
        known = {
            "row": "a row that is known to be in the data says",
            "unit": "the rows of a unit that is known to be in the data say",
        }[one]
        some = " or ".join(repr(name) for name in found.classes[:2]) or "one class or another"
        promised = found.guarantee
        twice, of = round_up(2 * promised.epsilon), _delta_up((1 + math.exp(promised.epsilon)) * promised.delta)
        number = ", and units_planned in [data] (a public number)" if found.units.public else ""
        print(
            f'- With neighbors = "unit_added" in [privacy]{number} half the noise would be enough for this ε; nothing '
            f"else need change. The guarantee is then for one {one} that is added or removed. As the settings are, ε "
            f'also hides whether {known} {some}. With "unit_added", hiding that costs up to ε = {twice} at δ = {of}.'
        )
    print(f"- {OF_NOISE_ALONE}")


def _delta_up(delta: float) -> str:
    """Of two digits, rounded up; a chance is at most 1."""
    if delta >= 1:
        return "1"
    step = 10.0 ** (math.floor(math.log10(delta)) - 1)
    return f"{math.ceil(delta / step) * step:.1e}"


def print_probe(shown: PublishedProbe) -> None:
    """What a probe's labels are, and the guarantee."""
    if shown.service is None:
        print(f"The probe learned by {shown.in_words}.")
        print(f"{shown.labeled:,} public rows were labeled: all of them. Labels cost nothing more.")
    else:
        print(f"The service's probe labeled {shown.labeled:,} public rows. Labels cost nothing more.")
        print(f"Its owner trained it by {shown.in_words}.")
    print_guarantee(shown)
    if shown.measured is not None:
        print(shown.measured)


def print_dry_run(found: DryRun) -> None:
    """What a run would do, and its worst-case cost."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from terrine.accounting.curves import round_up

    table = Table(title="What this run would do", title_style="bold", show_header=False)
    table.add_column()
    table.add_column(justify="right")
    table.add_column()
    table.add_row("teachers", f"{found.n_teachers:,}", f"{found.teacher}, on {escape(found.data)}")
    answering = [("mechanism", found.mechanism)] if found.mechanism is not None else []
    answering += [(f"round {k}", one.mechanism) for k, one in enumerate(found.rounds, start=1)]
    for k, (name, chosen) in enumerate(answering):
        mechanism = mechanism_to_json(chosen)
        kind = mechanism.pop("kind")
        table.add_row(name, str(kind), ", ".join(f"{key}={value:g}" for key, value in mechanism.items()))
        if found.rounds:
            one = found.rounds[k]
            table.add_row("", "", f"at most {one.n_queries:,} questions and {one.n_answers:,} answers")
    of_rows = f"{'about' if found.rounds else 'of'} {found.n_public:,} public rows"
    table.add_row("questions, at most", f"{found.n_queries:,}", of_rows)
    table.add_row("answers, at most", f"{found.n_answers:,}", f"in {found.n_classes} classes")
    table.add_row("student", found.student, "")
    epsilon = f"[bold]{round_up(found.guarantee.epsilon)}[/bold]"
    why = "of a tested release, whether it passes or not" if found.tested else "worst case: whatever the votes are"
    table.add_row("ε of the budget", epsilon, f"δ={found.guarantee.delta:g}, {why}")
    table.add_row("neighbors", "", found.guarantee.relation.sentence)
    Console().print(table)
    for words in (*found.tested, *found.cost):
        print(f"- {words}")


def warn_first(run: AnyRun) -> None:
    """What the owner should know before anything is taught or spent; on stderr, in JSON mode too."""
    from terrine.runs.remote import RemoteRun

    if not isinstance(run, RemoteRun) and not (run.folder / "ledger.json").exists():
        for one in run.advice.warnings:
            print(f"terrine: warning: {one}", file=sys.stderr)


def print_cost(shown: PublishedGuarantee) -> None:
    if shown.cost is not None:
        print(shown.cost.in_words)


def print_label(shown: PublishedGuarantee | PublishedProbe) -> None:
    from terrine.published import PublishedProbe

    if isinstance(shown, PublishedProbe):
        print_probe(shown)
        return
    if shown.test == "passed":
        print("The private test passed: all answers of the tested release are published.")
    print(f"{shown.answered:,} queries were answered and {shown.withheld:,} withheld.")
    for k, one in enumerate(shown.rounds, start=1):
        print(f"Round {k}: {one.plan_in_words}; {one.in_words}.")
    if shown.repeated:
        print(f"{shown.repeated:,} more rows repeat one of these queries: they share its answer, at no cost.")
    if shown.unasked and shown.rounds:
        print(f"{shown.unasked:,} were never asked: their round had all its answers, or the budget was used up.")
    elif shown.unasked:
        full = "key's quota" if shown.why_unasked == "quota_exhausted" else "budget"
        print(f"{shown.unasked:,} were never asked: the {full} was used up before.")
    print_guarantee(shown)


def check_asked(run: AnyRun) -> None:
    """Exit code 3 where a service's budget, or a key's quota, had no room for all questions; what it had is kept."""
    from terrine.published import PublishedGuarantee

    shown = run.guarantee()
    if not isinstance(shown, PublishedGuarantee) or shown.rounds or not shown.unasked or not shown.why_unasked:
        return
    full, ask = ("key's quota", "a larger quota") if shown.why_unasked == "quota_exhausted" else ("budget", "a new one")
    print(
        f"terrine: The service's {full} was used up: {shown.unasked:,} of the questions were never asked, and the "
        f"student has {shown.answered:,} answers to learn from. Ask the service's owner for {ask}.",
        file=sys.stderr,
    )
    raise typer.Exit(3)


def print_guarantee(shown: PublishedGuarantee | PublishedProbe) -> None:
    from terrine.accounting.curves import round_up

    epsilon = f"ε = {round_up(shown.epsilon)} at δ = {shown.delta:g}; neighbors: {shown.relation.sentence}."
    if shown.secure_noise:
        print(f"Guarantee: {epsilon}")
    else:
        print(
            "No guarantee: seeded noise was drawn from this ledger, which protects nobody. Do not publish the answers."
        )
        print(f"With secure noise it would have been {epsilon}")


def print_student(run: AnyRun, result: StudentResult | None) -> None:
    if result is not None and result.accuracy is not None and result.interval is not None:
        low, high = result.interval
        print(f"Student: {result.accuracy:.1%} right on {result.n_test:,} test rows ({low:.1%} to {high:.1%}).")
    for one in () if result is None else result.verdicts:
        print(one.in_words)
    print(f"The student is in {run.folder}/student, with its model card.")


def print_finished(run: AnyRun) -> None:
    """That a rerun found everything there, and what it rests on."""
    from terrine.runs.remote import RemoteRun

    print(f"{run.folder} was finished already: nothing was trained, asked or spent.")
    if not isinstance(run, RemoteRun):
        print("It rests on the private rows as they were when it was made; what changed in them since is not used.")


def print_files(run: AnyRun) -> None:
    """Which files of a run may be published, and which not."""
    from terrine.ledger.place import IN_FOLDER
    from terrine.runs.directory import public_files, secret_files

    named = (IN_FOLDER, "service.json")
    public = [f"{name} (with the names of keys)" * (name in named) or name for name in public_files(run.folder)]
    print(f"You may publish, from {run.folder}: {_and(public)}.")
    secrets = secret_files(run.folder)
    print(f"Secret: {_and(secrets)}." if secrets else "No other result in it is secret.")
    print(f"Keep config.toml secret{' too' if secrets else ''}: it names your files by their full paths.")


def _and(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
