"""One JSON row per measurement: metric, value, ratio to its baseline in the same run, commit, machine."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"


def seconds(function: Callable[[], Any], *, repeats: int = 3) -> tuple[float, Any]:
    """Best of several runs, and the last result."""
    best, result = float("inf"), None
    for _ in range(repeats):
        start = time.perf_counter()
        result = function()
        best = min(best, time.perf_counter() - start)
    return best, result


def votes_folder() -> Path | None:
    folder = Path(os.environ.get("TERRINE_DATA", "../shared/data")) / "votes"
    return folder if folder.is_dir() else None


def write(name: str, rows: list[dict[str, Any]]) -> None:
    """Print the rows and keep them in benchmarks/results/NAME.json."""
    git = ["git", "-C", str(RESULTS.parent), "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip()
    machine = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    rows = [{**row, "commit": commit, "machine": machine} for row in rows]
    for row in rows:
        print(json.dumps(row))
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(rows, indent=1) + "\n")
