"""Commands over a run directory: run and its stages, and tally."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from terrine.cli.common import Json, Reveal, app, print_json, progress_bar
from terrine.errors import InputError

if TYPE_CHECKING:
    from terrine.runs.local import Run
    from terrine.runs.remote import RemoteRun

Source = Annotated[Path, typer.Argument(metavar="RUN", help="A run directory, or a run's settings (.toml).")]
Out = Annotated[
    Path | None, typer.Option(help="With settings: the run directory (default: the settings' name in this folder).")
]


def open_run(source: Path, out: Path | None) -> Run:
    """The run of a directory; or of settings, begun where it is new."""
    from terrine.runs.local import Run

    found = open_any(source, out)
    if not isinstance(found, Run):
        raise InputError("Expected a run of your own teachers, got one with labels.url: it has no such stage.")
    return found


def open_any(source: Path, out: Path | None) -> Run | RemoteRun:
    """A run of one's own teachers, or one that asks a label service."""
    from terrine.runs.config import RunConfig, read_settings
    from terrine.runs.local import Run

    if source.is_dir():
        if out is not None:
            raise InputError("Expected --out with a run's settings, got it with a run directory.")
        if not (source / "config.toml").is_file():
            return Run(source)  # says what is missing
        settings = read_settings(source / "config.toml")
        out = source
    else:
        settings = read_settings(source)
        out = out or Path(source.stem)
    if isinstance(settings, RunConfig):
        return Run(out) if source.is_dir() else Run.create(settings, out)
    from terrine.runs.remote import RemoteRun

    return RemoteRun(out) if source.is_dir() else RemoteRun.create(settings, out)


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


@app.command()
def teach(source: Source, out: Out = None, reveal: Reveal = False, as_json: Json = False) -> None:
    """Deal the private rows to teachers and train them; a rerun trains only what is missing."""
    run = open_run(source, out)
    with progress_bar("teaching", quiet=as_json) as progress:
        shares = run.teach(progress=progress)
    kept = run.config.teachers.keep
    facts = {
        "run": str(run.folder),
        "teachers": shares.n_teachers,
        "kept": kept,
        "relation": shares.relation,
        "classes": len(run.task.classes),
        **(secret_of(run) if reveal else {}),
    }
    if as_json:
        print_json(facts)
        return
    done = "trained and kept in teachers/" if kept else "to be trained when they vote, and not kept"
    print(f"{shares.n_teachers:,} teachers, {done}.")
    print(f"Neighbours: {shares.relation.sentence}.")
    print_secret(facts, shares.n_teachers)
    print(f"Next: terrine vote {run.folder}")


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
    """Let the teachers vote on the public rows that are asked. The votes are secret and stay in the run directory."""
    if plot is not None and not reveal:
        raise InputError("Expected --reveal with --plot: the histogram depends on private votes.")
    run = open_run(source, out)
    if ballots is not None:
        if reveal:
            raise InputError("Expected either --ballots or --reveal, got both.")
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
    """Merge the ballots of several owners into one vote; their teachers' ids must be disjoint."""
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
    """Answer the queries through the mechanism: charged on disk before noise is drawn."""
    run = open_any(source, out)
    with progress_bar("labelling", quiet=as_json) as progress:
        run.label(progress=progress)
    if as_json:
        print_json(run.guarantee().to_json())
        return
    print_label(run)
    print(f"Next: terrine learn {run.folder}")


@app.command()
def learn(source: Source, out: Out = None, as_json: Json = False) -> None:
    """Train the student on public rows and answers; it may be published with its guarantee."""
    run = open_any(source, out)
    with progress_bar("learning", quiet=as_json) as progress:
        facts = run.learn(progress=progress)
    if as_json:
        print_json(facts)
        return
    print_student(run, facts)
    print(f"Next: terrine report {run.folder}")


@app.command()
def report(source: Source, out: Out = None, reveal: Reveal = False, as_json: Json = False) -> None:
    """Write the run's page, report.html; with --reveal the owner's own, report.secret.html."""
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
    reveal: Reveal = False,
    as_json: Json = False,
) -> None:
    """The whole of it: teach, vote, label, learn, report. Resumable: what is done is not done again."""
    if dry_run:
        describe(source, as_json=as_json)
        return
    from terrine.runs.facts import write_run_report
    from terrine.runs.local import Run

    run = open_any(source, out)
    if reveal and not isinstance(run, Run):
        raise InputError("--reveal needs the votes, which are elsewhere: this run asks a label service.")
    stages: list[tuple[str, Callable[..., object]]] = [("labelling", run.label), ("learning", run.learn)]
    if isinstance(run, Run):
        stages = [("teaching", run.teach), ("voting", run.vote), *stages]
    for name, stage in stages:
        with progress_bar(name, quiet=as_json) as progress:
            stage(progress=progress)
    path = write_run_report(run)
    shown, facts = run.guarantee(), run.student_facts() or {}
    secret = secret_of(run) if reveal and isinstance(run, Run) else {}
    if as_json:
        print_json(
            {"run": str(run.folder), "report": str(path), "guarantee": shown.to_json(), "student": facts, **secret}
        )
        return
    print_label(run)
    print_student(run, facts)
    print_secret(secret, shown.n_teachers)
    print(f"Report: {path}")


def describe(source: Path, *, as_json: bool) -> None:
    """A run's plan and its worst-case cost; nothing is written."""
    from terrine.runs.config import RunConfig, read_settings
    from terrine.runs.dry_run import dry_run

    path = source / "config.toml" if source.is_dir() else source
    if path.is_file() and not isinstance(read_settings(path), RunConfig):
        raise InputError(
            "Expected --dry-run with a run of your own teachers, got one with labels.url; the service's /v1/about "
            "says what its answers cost."
        )
    facts = dry_run(source)
    if as_json:
        print_json(facts)
    else:
        from terrine.report.tables import print_dry_run

        print_dry_run(facts)


def print_label(run: Run | RemoteRun) -> None:
    from terrine.accounting.curves import round_up

    shown = run.guarantee()
    print(f"{shown.answered:,} queries were answered and {shown.withheld:,} withheld.")
    if shown.repeated:
        print(f"{shown.repeated:,} more rows repeat one of these queries: they share its answer, at no cost.")
    if shown.unasked:
        full = "key's quota" if shown.why_unasked == "quota_exhausted" else "budget"
        print(f"{shown.unasked:,} were never asked: the {full} was used up before.")
    epsilon = f"ε = {round_up(shown.epsilon)} at δ = {shown.delta:g}; neighbours: {shown.relation.sentence}."
    if shown.secure_noise:
        print(f"Guarantee: {epsilon}")
    else:
        print(
            "No guarantee: seeded noise was drawn from this ledger, which protects nobody. Do not publish the answers."
        )
        print(f"With secure noise it would have been {epsilon}")


def print_student(run: Run | RemoteRun, facts: dict[str, Any]) -> None:
    if facts.get("accuracy") is not None:
        low, high = facts["interval"]
        print(f"Student: {facts['accuracy']:.1%} right on {facts['n_test']:,} test rows ({low:.1%} to {high:.1%}).")
    print(f"The student is in {run.folder}/student, with its model card.")
