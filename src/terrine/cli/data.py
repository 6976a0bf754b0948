"""Commands: data, demo."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console
from rich.progress import Progress

from terrine.analysis import analyze_votes
from terrine.cli.analyses import show
from terrine.cli.common import Json, app, print_json, progress_bar
from terrine.datasets import prepare
from terrine.datasets.synthetic import synthetic_votes
from terrine.mechanisms import ConfidentGNMax
from terrine.report.tables import print_data_set

DataName = Literal["mnist", "svhn", "adult", "glyph", "small-glyph", "blobs"]


@app.command("data")
def data_command(
    name: Annotated[DataName, typer.Argument(metavar="NAME", help="mnist, svhn, adult, glyph, small-glyph or blobs.")],
    as_json: Json = False,
) -> None:
    """Fetch a data set where it is missing, check it, and say what it is."""
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
    out: Annotated[Path, typer.Option(help="Folder for the plot.")] = Path("demo"),
    as_json: Json = False,
) -> None:
    """The privacy analysis of a built-in synthetic vote set, with its table and plot: nothing to download."""
    out.mkdir(parents=True, exist_ok=True)
    votes = synthetic_votes(n_queries=1000, n_classes=10, n_teachers=250, consensus=0.9)
    if not as_json:
        print("250 imagined teachers vote on 1,000 queries in 10 classes (synthetic: nobody's data, so all is shown).")
    with progress_bar("exact accountant", quiet=as_json) as progress:
        result = analyze_votes(
            votes,
            ConfidentGNMax(threshold=200, sigma_check=150, sigma_vote=40),
            delta=1e-5,
            n_answers=600,
            n_records=60_000,
            plot=out / "epsilon.png",
            reveal=True,
            progress=progress,
        )
    show(result, as_json=as_json)
