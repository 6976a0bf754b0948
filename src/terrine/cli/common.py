"""What the commands share: the application, options, progress, JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")]
Delta = Annotated[float, typer.Option(help="The delta of (epsilon, delta); below one over the number of records.")]
Reveal = Annotated[bool, typer.Option("--reveal", help="Also show numbers that depend on private rows or votes.")]

app = typer.Typer(
    name="terrine",
    help="Private learning by PATE, with an epsilon you can defend.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@contextmanager
def progress_bar(label: str, *, quiet: bool) -> Iterator[Callable[[float], object]]:
    """A bar on a terminal, nothing elsewhere."""
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=quiet or not console.is_terminal) as bar:
        task = bar.add_task(label, total=1.0)
        yield lambda share: bar.update(task, completed=share)


def print_json(result: dict[str, Any]) -> None:
    print(json.dumps(result, indent=2, allow_nan=False))
