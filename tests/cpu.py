"""What each test takes of the processors, and which take most: printed at the end of every run.

All of them go to the file that TERRINE_TEST_CPU names. CPU time, with that of child processes that were waited for: it
hardly depends on what else the machine does. A test above ``MOST`` should do less in `make test` and the whole in
`make soak` (tests/soak.py), or share what it sets up.
"""

from __future__ import annotations

import json
import os
import resource
from collections import Counter
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from _pytest.terminal import TerminalReporter

MOST = 4.0  # seconds
SHOWN = 12
_by_test: Counter[str] = Counter()
_by_worker: list[float] = []
_before = 0.0


def _used(*, children: bool = True) -> float:
    found = [resource.getrusage(resource.RUSAGE_SELF), *[resource.getrusage(resource.RUSAGE_CHILDREN)] * children]
    return sum(one.ru_utime + one.ru_stime for one in found)


def pytest_runtest_logstart() -> None:
    global _before
    _before = _used()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    """Where the test runs: the share of each phase goes with its report to the process that prints."""
    global _before
    report, now = (yield), _used()
    report.cpu, _before = now - _before, now
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _by_test[report.nodeid] += getattr(report, "cpu", 0.0)


def pytest_sessionfinish(session: pytest.Session) -> None:
    if (output := getattr(session.config, "workeroutput", None)) is not None:  # one of pytest-xdist's workers
        output["cpu"] = _used()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    _by_worker.append(getattr(node, "workeroutput", {}).get("cpu", 0.0))  # a worker that died told nothing


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    if len(_by_test) < 2:
        return
    terminalreporter.section("slowest by CPU")
    for name, seconds in _by_test.most_common(SHOWN):
        too_much = f", above {MOST:g} s" if seconds > MOST else ""
        terminalreporter.line(f"{seconds:6.1f} s  {name}{too_much}")
    if path := os.environ.get("TERRINE_TEST_CPU"):  # all of them
        Path(path).write_text(json.dumps(dict(_by_test.most_common()), indent=1) + "\n")
    over = sum(seconds > MOST for seconds in _by_test.values())
    everything = _used(children=not _by_worker) + sum(_by_worker)
    terminalreporter.line(
        f"{over} tests above {MOST:g} s; all tests {sum(_by_test.values()) / 60:.1f} min, with imports and collection "
        f"{everything / 60:.1f} min. What outlives its test, as a Ray cluster does, is not counted."
    )
