"""What the commands share: the application, options, progress, JSON."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress
from typer.core import TyperGroup

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")]
Delta = Annotated[float, typer.Option(help="The delta of (epsilon, delta); below one over the number of records.")]
Reveal = Annotated[bool, typer.Option("--reveal", help="Also show numbers that depend on private rows or votes.")]

_EVERY = 5.0  # seconds between two lines of progress where there is no terminal


class _InOrder(TyperGroup):
    """What most people type comes first in the list of commands."""

    FIRST = ("demo", "init", "check", "run", "predict")

    def list_commands(self, ctx: Any) -> list[str]:
        found: list[str] = super().list_commands(ctx)
        return sorted(found, key=lambda name: self.FIRST.index(name) if name in self.FIRST else len(self.FIRST))


app = typer.Typer(
    name="terrine",
    cls=_InOrder,
    help="A model you may publish, from data you may not, with an epsilon you can defend.",
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@contextmanager
def progress_bar(label: str, *, quiet: bool) -> Iterator[Callable[[float], object]]:
    """A bar on a terminal; elsewhere, in a pipe or a log, a line now and then. Both go to stderr."""
    console = Console(stderr=True)
    if not quiet and not console.is_terminal:
        with _progress_lines(label) as told:
            yield told
        return
    with Progress(console=console, transient=True, disable=quiet) as bar:
        task = bar.add_task(label, total=1.0)
        yield lambda share: bar.update(task, completed=share)


@contextmanager
def _progress_lines(label: str) -> Iterator[Callable[[float], object]]:
    """The share done, every few seconds: what is quick says nothing."""
    started, done, share = time.monotonic(), threading.Event(), 0.0  # 0: how much there is to do is not known yet

    def told(now: float) -> None:
        nonlocal share
        share = now

    def tell() -> None:
        while not done.wait(_EVERY):
            known = f"{share:.0%}, " if share else ""
            print(f"{label}: {known}{time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)

    thread = threading.Thread(target=tell, daemon=True)
    thread.start()
    try:
        yield told
    finally:
        done.set()
        thread.join()


@contextmanager
def takes_a_while(what: str) -> Iterator[None]:
    """One line on stderr if something takes more than some seconds, and its share done cannot be told."""
    timer = threading.Timer(_EVERY, lambda: print(f"{what} ...", file=sys.stderr, flush=True))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


class ProfileLines:
    """A line now and then while a privacy profile is computed: once for some noise, seconds to minutes, then kept."""

    def __init__(self) -> None:
        self._last: float | None = None

    def __call__(self, share: float) -> None:
        now = time.monotonic()
        if self._last is None:
            self._last = now
        elif now - self._last >= _EVERY and share < 1:
            self._last = now
            print(f"privacy profile (computed once, then kept): {share:.0%}", file=sys.stderr, flush=True)
        if share >= 1:
            self._last = None


def print_json(result: dict[str, Any]) -> None:
    print(json.dumps(result, indent=2, allow_nan=False))
