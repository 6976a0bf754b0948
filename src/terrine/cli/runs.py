"""Commands over a run directory: run and its stages, and tally."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from terrine.cli.common import Json, Reveal, app, print_json, progress_bar
from terrine.cli.showing import (
    check_asked,
    describe,
    print_cost,
    print_files,
    print_finished,
    print_guarantee,
    print_label,
    print_probe,
    print_secret,
    print_student,
    publishes_cost,
    secret_of,
    warn_first,
)
from terrine.errors import InputError, LedgerError, TestFailedError

if TYPE_CHECKING:
    from terrine.runs.local import Run
    from terrine.runs.opening import AnyRun
    from terrine.runs.probe import ProbeRun

Source = Annotated[Path, typer.Argument(metavar="RUN", help="A run directory, or a run's settings (.toml).")]
Out = Annotated[
    Path | None, typer.Option(help="With settings: the run directory (default: the settings' name in this folder).")
]


_MADE = (  # of a run that has read private rows, asked or spent; or that knows a service, and the head of its ledger
    "ledger.json", "teachers", "votes.npz", "private.sha256", "partition.npz", "probe.npz", "answers.npz", "round-*",
    "service.json", "request.json", "ledger-head.json",
)  # fmt: skip


@contextmanager
def nothing_left(source: Path, out: Path | None) -> Iterator[None]:
    """A new run directory goes away again where a ledger refuses the run before anything was taught or charged."""
    folder = None if source.is_dir() else out or Path(source.stem)
    new = folder is not None and not folder.exists()
    try:
        yield
    except LedgerError:
        if folder is not None and new and not any(any(folder.glob(name)) for name in _MADE):
            shutil.rmtree(folder, ignore_errors=True)
        raise


def open_run(source: Path, out: Path | None) -> Run:
    """The run of a directory with teachers; or of settings, begun where it is new."""
    from terrine.runs.local import Run
    from terrine.runs.probe import ProbeRun

    found = open_any(source, out)
    if isinstance(found, ProbeRun):
        raise InputError(
            "This run learns a probe, and nobody votes in it, so that it has no stage of this name. Its stages are "
            f"teach, label, learn and report. All that are left: terrine run {found.folder}"
        )
    if not isinstance(found, Run):
        raise InputError(
            "This run gets its labels from a service (labels.url), so that it has no stage of this name. Go on with: "
            f"terrine label {found.folder}"
        )
    return found


def open_any(source: Path, out: Path | None, *, again: bool = False) -> AnyRun:
    """A run of any kind: of a directory, or of settings, begun where it is new."""
    from terrine.runs.config import read_settings
    from terrine.runs.opening import begin_run, opened

    if not source.is_dir():
        return begin_run(read_settings(source), out or Path(source.stem), again=again, name=source.name)
    if out is not None:
        raise InputError(f"--out names a new run's directory, and {source} is one already. Leave --out out.")
    return opened(source)


@app.command()
def teach(source: Source, out: Out = None, reveal: Reveal = False, as_json: Json = False) -> None:
    """Stage 1 of run: train the teachers, or the probe.

    A rerun trains only what is missing. A probe's training is charged before its first step.
    """
    from terrine.runs.probe import ProbeRun
    from terrine.runs.probe_plan import covered

    with nothing_left(source, out):
        run = open_any(source, out)
        if isinstance(run, ProbeRun):
            _teach_probe(run, reveal=reveal, as_json=as_json)
            return
    run = open_run(run.folder, None)
    warn_first(run)
    with progress_bar("teaching", quiet=as_json) as progress:
        shares = run.teach(progress=progress)
    kept, relation = run.config.teachers.keep, covered(shares.relation, run.given)
    facts = {
        "run": str(run.folder),
        "teachers": shares.n_teachers,
        "kept": kept,
        "relation": relation,
        "classes": len(run.task.classes),
        **(secret_of(run) if reveal else {}),
    }
    if as_json:
        print_json(facts)
        return
    done = "trained and kept in teachers/" if kept else "to be trained when they vote, and not kept"
    print(f"{shares.n_teachers:,} teachers, {done}.")
    print(f"Neighbors: {relation.sentence}.")
    print_secret(facts, shares.n_teachers)
    print(f"Next: terrine vote {run.folder}")


def _teach_probe(run: ProbeRun, *, reveal: bool, as_json: bool) -> None:
    if reveal:
        raise InputError("--reveal shows which teachers failed, and this run learns a probe. Leave it out.")
    warn_first(run)
    with progress_bar("features", quiet=as_json) as progress:
        run.prepare(progress=progress)
    with progress_bar("teaching", quiet=as_json) as progress:
        found = run.teach(progress=progress)
    relation, classes = run.plan.budget.relation, len(run.task.classes)
    steps = {"steps": found.settings.steps, "steps_kept": found.descent_kept, "measured": found.measured is not None}
    if as_json:
        print_json({"run": str(run.folder), "route": "probe", **steps, "relation": relation, "classes": classes})
        return
    also = ", and one more noisy sum measured it" if found.measured is not None else ""
    print(f"The probe is trained, in {found.descent_kept:,} of {found.settings.steps:,} steps{also}.")
    print(f"Neighbors: {relation.sentence}.")
    print(f"Next: terrine label {run.folder}")


@app.command()
def vote(
    source: Source,
    out: Out = None,
    ballots: Annotated[
        Path | None,
        typer.Option(help="Write each teacher's choices to this .npz instead: an owner's part, for terrine tally."),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(help="With --reveal: a histogram of the top votes (.png, .svg, .pdf). Secret.")
    ] = None,
    reveal: Reveal = False,
    as_json: Json = False,
) -> None:
    """Stage 2 of run: teachers vote on public rows.

    The votes are secret and stay in the run directory.
    """
    if plot is not None and not reveal:
        raise InputError("--plot needs --reveal: the histogram depends on private votes.")
    run = open_run(source, out)
    if ballots is not None:
        if reveal:
            raise InputError("--ballots and --reveal do not go together. Give one of them.")
        with progress_bar("voting", quiet=as_json) as progress:
            part = run.ballots(progress=progress)
        part.save(ballots)
        first, last = int(part.ids.min()), int(part.ids.max())
        facts: dict[str, Any] = {"ballots": str(ballots), "teachers": len(part.ids), "ids": [first, last]}
        if as_json:
            print_json(facts)
        else:
            print(
                f"Ballots of teachers {first} to {last} written to {ballots}. Secret: hand it to whoever tallies only."
            )
        return
    with progress_bar("voting", quiet=as_json) as progress:
        votes = run.vote(progress=progress)
    facts = {"run": str(run.folder), "teachers": votes.n_teachers, "queries": len(votes), "classes": votes.n_classes}
    found = run.consensus().reveal() if reveal else None  # asked for, and marked as what it is
    if found is not None:
        facts |= {**secret_of(run), "secret": "secret: depends on private votes", **found.to_json()}
        if plot is not None:
            from terrine.report.plots import consensus_histogram

            consensus_histogram(found, plot)
    if as_json:
        print_json(facts)
        return
    print(f"{votes.n_teachers:,} teachers voted on {len(votes):,} questions in {votes.n_classes} classes.")
    print(f"The votes are secret, in {run.folder}/votes.npz.")
    if found is None:
        print(f"Next: terrine label {run.folder}")
        return
    from terrine.report.tables import print_consensus

    print_consensus(found)
    print_secret(facts, votes.n_teachers)


@app.command("tally")
def tally_command(
    files: Annotated[list[Path], typer.Argument(metavar="BALLOTS...", help="The owners' .npz files of ballots.")],
    out: Annotated[Path, typer.Option(help="Write the votes to this .npz file, or into this run directory. Secret.")],
    as_json: Json = False,
) -> None:
    """Merge the ballots of several owners into one vote.

    Their teachers' ids must be disjoint.
    """
    from terrine.votes import Ballots, tally

    votes = tally([Ballots.load(path) for path in files])
    if out.is_dir():
        open_run(out, None).take_votes(votes)
    else:
        votes.save(out)
    facts = {"votes": str(out), "teachers": votes.n_teachers, "queries": len(votes), "owners": len(files)}
    if as_json:
        print_json(facts)
    else:
        print(f"{votes.n_teachers:,} teachers of {len(files)} owners on {len(votes):,} queries: {out} (secret).")


@app.command()
def label(source: Source, out: Out = None, as_json: Json = False) -> None:
    """Stage 3 of run: release noisy answers, charged first.

    The charge is on disk before noise is drawn. A probe, which is charged already, labels all public rows.
    """
    from terrine.runs.probe import ProbeRun

    run = open_any(source, out)
    with progress_bar("labeling", quiet=as_json) as progress:
        run.label(progress=progress)
    if as_json:
        print_json(run.guarantee().to_json())
        check_asked(run)
        return
    if isinstance(run, ProbeRun):
        print_probe(run.guarantee())
        print(f"Next: terrine learn {run.folder}")
        return
    print_label(run.guarantee())
    _, answers = run.released()
    if missing := [name for k, name in enumerate(run.task.classes) if not (answers.labels == k).any()]:
        from terrine.students.verdict import listed

        print(f"No answer names {len(missing)} of the {len(run.task.classes)} classes: {listed(missing)}.")
    print(f"Next: terrine {'cost' if publishes_cost(run) else 'learn'} {run.folder}")
    check_asked(run)


@app.command("cost")
def publish_cost_command(source: Source, out: Out = None, as_json: Json = False) -> None:
    """Publish what the answers of a run cost, once; after label.

    For runs whose settings have publish_cost = true in [privacy]. The number is charged first and kept: the same
    command again prints the same number.
    """
    from terrine.runs.cost import publish_cost

    shown = publish_cost(open_run(source, out))
    if as_json:
        print_json(shown.to_json())
        return
    print_guarantee(shown)
    print_cost(shown)


@app.command()
def learn(
    source: Source,
    out: Out = None,
    again: Annotated[
        bool,
        typer.Option("--again", help="Train a new student in place of the one there is; [student] may have changed."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Stage 4 of run: train the student on the answers.

    It sees public rows and released answers only, and may be published with its guarantee.
    """
    run = open_any(source, out, again=again)
    with progress_bar("learning", quiet=as_json) as progress:
        result = run.learn(again=again, progress=progress)
    if as_json:
        print_json(result.to_json())
        return
    print_student(run, result)
    print(f"Next: terrine report {run.folder}")


@app.command()
def report(source: Source, out: Out = None, reveal: Reveal = False, as_json: Json = False) -> None:
    """Stage 5 of run: write report.html.

    With --reveal it writes the owner's own page, report.secret.html.
    """
    from terrine.runs.facts import public_facts, write_run_report

    run = open_any(source, out)
    with progress_bar("report", quiet=as_json or not reveal) as progress:
        path = write_run_report(run, reveal=reveal, progress=progress)
    if as_json:
        print_json({"report": str(path), **public_facts(run)})
    else:
        print(f"{path}" + (" (secret: depends on private votes; do not publish it)" if reveal else ""))


@app.command("run")
def run_command(
    source: Source,
    out: Out = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be done, and what it costs.")] = False,
    plot: Annotated[
        Path | None, typer.Option(help="With --dry-run: what a probe could learn by epsilon (.png, .svg, .pdf).")
    ] = None,
    reveal: Reveal = False,
    as_json: Json = False,
) -> None:
    """From settings to a student: all five stages.

    Teach, vote, label, learn, report; by the private probe there is no vote.
    If it is interrupted, the same command goes on where it stopped.
    """
    if dry_run:
        describe(source, folder=source if source.is_dir() else out or Path(source.stem), as_json=as_json, plot=plot)
        return
    if plot is not None:
        raise InputError("--plot goes with --dry-run: it shows a plan. report.html has the pictures of a run.")
    from terrine.published import PublishedGuarantee
    from terrine.runs.anew import FURTHER
    from terrine.runs.facts import write_run_report
    from terrine.runs.local import Run
    from terrine.runs.probe import ProbeRun
    from terrine.runs.ready import check_extras
    from terrine.runs.remote import RemoteRun

    with nothing_left(source, out):
        run = open_any(source, out)
        check_extras(run.config, report=True)
        warn_first(run)
        if reveal and isinstance(run, ProbeRun):
            raise InputError("--reveal shows which teachers failed, and this run learns a probe. Leave it out.")
        if reveal and not isinstance(run, Run):
            raise InputError("--reveal needs the votes, which are elsewhere: this run asks a label service.")
        finished = run.finished()
        stages: list[tuple[str, Callable[..., object]]] = [("labeling", run.label), ("learning", run.learn)]
        if isinstance(run, Run):
            stages = [("teaching", run.teach), ("voting", run.vote), *stages]
            if run.config.privacy.publish_cost:
                stages.insert(3, ("publishing the cost", partial(_publish_cost, run)))
        if isinstance(run, ProbeRun):
            stages = [("features", run.prepare), ("teaching", run.teach), *stages]
        for name, stage in stages:
            try:
                with progress_bar(name, quiet=as_json) as progress:
                    stage(progress=progress)
            except TestFailedError as error:
                if isinstance(run, Run) and not error.lost:  # the bit is public, and so is a report that says so
                    write_run_report(run)
                raise
    path = write_run_report(run)
    shown, result = run.guarantee(), run.student_result()
    secret = secret_of(run) if reveal and isinstance(run, Run) else {}
    if as_json:
        student = {} if result is None else result.to_json()
        found = {"run": str(run.folder), "report": str(path), "guarantee": shown.to_json(), "student": student}
        print_json({**found, "finished_before": finished, **secret})
        check_asked(run)
        return
    if finished:
        print_finished(run)
    print_label(shown)
    if isinstance(shown, PublishedGuarantee):
        print_cost(shown)
        print_secret(secret, shown.n_teachers)
    print_student(run, result)
    print(f"Report: {path}")
    if shown.secure_noise:
        print_files(run)
    if not finished and not isinstance(run, RemoteRun):
        print(FURTHER)
    check_asked(run)


@app.command("rehearse")
def rehearse_command(
    source: Annotated[Path, typer.Argument(metavar="RUN", help="A run's settings (.toml), or a run directory.")],
    labelled: Annotated[
        Path | None, typer.Option(help="Labeled PUBLIC rows, in columns like the private ones. Never private rows.")
    ] = None,
    teachers: Annotated[
        str | None, typer.Option(help="Numbers of teachers, as 50,100 (default: half, once and twice the run's).")
    ] = None,
    epsilons: Annotated[str, typer.Option(help="Budgets to try, as 0.5,1,2.")] = "0.5,1,2,4",
    units: Annotated[
        int | None, typer.Option(help="Public guess of the number of people, no count (default: data.units_planned).")
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="Write a plot of accuracy by epsilon (.png, .svg, .pdf).")] = None,
    as_json: Json = False,
) -> None:
    """Play a run on labeled public rows, at no cost in privacy.

    For several numbers of teachers and budgets.
    """
    from terrine.report.plots import check_plot, rehearsal_plot
    from terrine.report.tables import print_rehearsal
    from terrine.runs.config import read_config
    from terrine.runs.rehearsal import rehearse_run

    if plot is not None:
        check_plot(plot)
    config = read_config(source / "config.toml" if source.is_dir() else source)
    number = config.teachers.number
    teams = sorted({max(1, number // 2), number, 2 * number}) if teachers is None else _numbers(teachers, "--teachers")
    with progress_bar("rehearsing", quiet=as_json) as progress:
        found = rehearse_run(
            config,
            labelled=labelled,
            n_teachers=[int(m) for m in teams],
            epsilons=_numbers(epsilons, "--epsilons"),
            units=units,
            progress=progress,
        )
    if plot is not None:
        rehearsal_plot(found.to_json(), plot)
    if as_json:
        print_json(found.to_json())
        return
    print_rehearsal(found.to_json())
    if plot is not None:
        print(f"Plot: {plot}")


def _numbers(text: str, option: str) -> list[float]:
    try:
        found = [float(part) for part in text.split(",")]
    except ValueError:
        found = [-1.0]
    if min(found) <= 0 or (option == "--teachers" and any(value != int(value) for value in found)):
        raise InputError(f"{option} must be a list of numbers above 0, such as 50,100; got {text[:60]!r}.")
    return found


def _publish_cost(run: Run, *, progress: Callable[[float], object]) -> None:
    from terrine.runs.cost import publish_cost

    publish_cost(run)
