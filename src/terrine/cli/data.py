"""Commands: data, demo."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console
from rich.progress import Progress

from terrine.cli.common import Json, app, print_json, progress_bar
from terrine.datasets import prepare
from terrine.report.tables import print_data_set, print_demo

DataName = Literal["mnist", "svhn", "adult", "glyph", "small-glyph", "blobs"]


@app.command("data")
def data_command(
    name: Annotated[DataName, typer.Argument(metavar="NAME", help="mnist, svhn, adult, glyph, small-glyph or blobs.")],
    as_json: Json = False,
) -> None:
    """Fetch and check a built-in data set, and describe it."""
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=as_json or not console.is_terminal) as bar:
        tasks: dict[str, Any] = {}

        def progress(what: str, done: int, total: int | None) -> None:
            if what not in tasks:
                tasks[what] = bar.add_task(what, total=total)
            bar.update(tasks[what], completed=done, total=total)

        facts = prepare(name, progress=progress)
    if as_json:
        print_json(facts)
    else:
        print_data_set(facts)


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="The run directory; a new one, or one to go on with.")] = Path("demo"),
    as_json: Json = False,
) -> None:
    """Show the whole way on built-in images, in about three minutes.

    500 teachers, private answers, a student, a report. Nothing to download.
    """
    from terrine.runs.demo import COMPARED, DEMO, without_privacy
    from terrine.runs.facts import write_run_report
    from terrine.runs.local import Run

    run = Run.create(DEMO, out)
    if not as_json:
        print("Symbols in the fonts that matplotlib ships; 120,000 private images, dealt to 500 teachers.")
    with progress_bar("planning", quiet=as_json):
        _ = run.config
    stages = (("teaching", run.teach), ("voting", run.vote), ("labeling", run.label), ("learning", run.learn))
    for name, stage in stages:
        with progress_bar(name, quiet=as_json) as progress:
            stage(progress=progress)
    with progress_bar("learning without privacy, to compare", quiet=as_json):
        accuracy = without_privacy(run).reveal()  # the demo's private images are nobody's
    baseline = {"accuracy": accuracy, "kind": f"a support vector machine on {COMPARED:,} private images"}
    path = write_run_report(run)
    facts: dict[str, Any] = {"run": str(run.folder), "report": str(path), "guarantee": run.guarantee().to_json()}
    student = run.student_result()
    facts |= {"student": None if student is None else student.to_json(), "baseline": baseline}
    if as_json:
        print_json(facts)
    else:
        print_demo(run.guarantee(), facts)
