"""What the kill tests of this folder share: files as steps, releases killed and finished, a program of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.ledger.test_kill import MEMORY, Doomed, fork, outcome
from tests.soak import ROOT, amount


def doomed(work: Callable[..., None], last: int, *arguments: Any) -> None:
    """Killed at the last step: also before and after everything that is done to a file."""
    step = Doomed(last)

    def watched(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **options: Any) -> Any:
            step()
            found = real(*given, **options)
            step()
            return found

        return call

    for name in ("fsync", "link", "replace"):
        setattr(os, name, watched(getattr(os, name)))
    Path.unlink = watched(Path.unlink)  # type: ignore[method-assign]
    work(*arguments, step)


def noise_files(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if "noise" in path.name]


def new_folder(where: Path) -> Path:
    """A folder, and one beside it for what is noted of it."""
    folder = Path(tempfile.mkdtemp(dir=where))
    folder.with_name(f"{folder.name}-notes").mkdir()
    return folder


def once(
    work: Callable[..., None], check: Callable[[Path], tuple[str, str | None]], points: Sequence[int], *arguments: Any
) -> list[str]:
    """Killed at each of these steps in turn, then run to the end; the phases in which it was killed."""
    folder = arguments[0]
    phases, noise = [], None
    for point in points:
        if not outcome(fork(doomed, work, point, *arguments)):
            break
        phase, kept = check(folder)
        phases.append(phase)
        assert noise in (None, kept) or kept is None, "the noise changed after it was paid for"
        noise = kept or noise
    for _ in range(2 if len(points) > 1 else amount(1, soak=2)):  # again gives the same
        assert not outcome(fork(work, *arguments))
        assert check(folder)[0] == "release"
        assert noise_files(folder) == []
    return phases


def at_every_step(kill: Callable[[list[int]], list[str]], first: int, stride: int) -> Counter[str]:
    phases: Counter[str] = Counter()
    point = first
    while found := kill([point]):
        phases.update(found)
        point += stride
    return phases


def program(module: str, *calls: Sequence[Any]) -> list[Any]:
    """Functions of a test module, each with its arguments, in one program: children are forked there, without pytest's
    threads. To start it takes longer than a dozen kills."""
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        command = [sys.executable, "-m", module, folder, json.dumps(calls)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=3600)
    assert done.returncode == 0, done.stderr
    found: list[Any] = json.loads(done.stdout)
    return found


def answer(known: dict[str, Any], folder: str, calls: str) -> None:
    """What such a program does, once all is imported."""
    print(json.dumps([known[name](Path(folder), *arguments) for name, *arguments in json.loads(calls)]))
