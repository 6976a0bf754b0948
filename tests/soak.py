"""The longer run, `make soak`: its counts, and what it ran for benchmarks/results/soak.json.

Tests take their counts from ``amount``, and those marked ``soak`` run there only. The file has a row for each test
file, put in the place of its last one. A test says how much it did with pytest's ``record_property``: kills, rows.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:  # programs that tests start have no need of it
    import pytest

T = TypeVar("T")
SOAK = os.environ.get("TERRINE_SOAK") == "1"
ROOT = Path(__file__).parents[1]
RESULT = ROOT / "benchmarks" / "results" / "soak.json"
_outcomes: dict[str, Counter[str]] = {}
_seconds: Counter[str] = Counter()
_counts: dict[str, dict[str, Any]] = {}


def amount(normal: T, *, soak: T) -> T:
    """How much a test does in `make test`, and in `make soak`."""
    return soak if SOAK else normal


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    file, _, name = report.nodeid.partition("::")
    outcomes = _outcomes.setdefault(file, Counter(passed=0, failed=0, skipped=0))
    if report.when == "call" or report.outcome != "passed":  # a set-up that fails, or skips, has no call
        outcomes[report.outcome] += 1
    _seconds[file] += report.duration
    if report.when == "call" and report.user_properties:
        _counts.setdefault(file, {})[name] = dict(report.user_properties)


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workerinput") or not _outcomes:  # the controller hears of all tests
        return
    git = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip()
    machine = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    rows = {row["file"]: row for row in json.loads(RESULT.read_text())} if RESULT.exists() else {}
    for file, outcomes in _outcomes.items():
        rows[file] = {
            "file": file,
            "outcome": "failed" if outcomes["failed"] else "passed",
            **outcomes,
            "seconds": round(_seconds[file], 1),
            "counts": {**rows.get(file, {}).get("counts", {}), **_counts.get(file, {})},  # of tests not run now, too
            "commit": commit,
            "machine": machine,
        }
    RESULT.write_text(json.dumps([rows[file] for file in sorted(rows)], indent=1) + "\n")
