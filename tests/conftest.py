"""Real data where the machine has it; TERRINE_REQUIRE_ALL=1 turns a skip for want of it into a failure."""

from __future__ import annotations

import functools
import gc
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple
from unittest import mock

os.environ.setdefault("OMP_NUM_THREADS", "1")  # test processes beside each other would wait for one another's threads

import pytest
import typer.main
from hypothesis import settings
from tests import cpu
from tests.soak import SOAK

from terrine.accounting import planning, profile_costs
from terrine.cli import common, main

MEMORY = Path("/dev/shm")
COMMAND = functools.cache(typer.main.get_command)  # typer makes it of all functions anew at every call

# The same few examples every time; `make soak` looks for new ones.
settings.register_profile("default", derandomize=True, deadline=None, max_examples=25)
settings.register_profile("soak", deadline=None, max_examples=500)
settings.load_profile("soak" if SOAK else "default")
if SOAK:
    from tests.soak import pytest_runtest_logreport, pytest_sessionfinish  # noqa: F401


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(cpu)
    if not SOAK and MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > 4 << 30:
        # Thousands of small files, each synced: not worth a disk. `make soak` writes to one.
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What is marked `soak` is for `make soak`."""
    left_out = [] if SOAK else [item for item in items if item.get_closest_marker("soak")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


def pytest_collection_finish() -> None:
    """Thousands of tests and all that they import stay: what is freed is looked for among newer objects alone."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 50)


def need(what: str) -> None:
    """Skip a test that lacks something on this machine, or fail where nothing may be lacking."""
    if os.environ.get("TERRINE_REQUIRE_ALL") == "1":
        pytest.fail(f"needs {what}, and TERRINE_REQUIRE_ALL=1 allows no skip")
    pytest.skip(f"needs {what}")


@pytest.fixture(scope="session")
def vote_files() -> Path:
    """The folder of the paper's vote histograms."""
    folder = Path(os.environ.get("TERRINE_DATA", "../shared/data")) / "votes"
    for name in ("mnist", "svhn", "adult"):
        if not (folder / f"{name}_250_teachers.npy").is_file():
            need(f"{name}_250_teachers.npy under $TERRINE_DATA/votes")
    return folder


@pytest.fixture(scope="session", autouse=True)
def profiles(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Privacy profiles are kept for one run of the tests, by all of its processes, and not in anyone's home."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base
    with mock.patch.dict(os.environ, {"TERRINE_CACHE": str(shared / "terrine-cache")}):
        yield


@pytest.fixture
def by_renyi(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a budget costs by Rényi bounds alone: its profile takes a second, and the test is about something else.

    In `make soak` by profiles, as everywhere else.
    """
    if not SOAK:
        monkeypatch.setattr(planning, "stretched", lambda make, *_, epsilon: make(epsilon))
        monkeypatch.setattr(profile_costs, "LARGEST_EPSILON", 0.0)


class Done(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def terrine(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Done]:
    """The command line inside this process, with variables of its own; without progress, which comes by the clock."""
    monkeypatch.setattr(common, "_EVERY", 1e6)
    monkeypatch.setattr(typer.main, "get_command", COMMAND)

    def call(*words: object, **environment: str) -> Done:
        monkeypatch.setattr(sys, "argv", ["terrine", *map(str, words)])
        capsys.readouterr()
        with mock.patch.dict(os.environ, environment), pytest.raises(SystemExit) as left:
            main()
        return Done(left.value.code, *capsys.readouterr())

    return call
