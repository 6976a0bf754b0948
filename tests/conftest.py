"""Real data where the machine has it; TERRINE_REQUIRE_ALL=1 turns a skip for want of it into a failure."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

# The same examples every time; `make soak` looks for new ones.
settings.register_profile("fixed", derandomize=True, deadline=None)
settings.register_profile("soak", deadline=None, max_examples=500)
settings.load_profile("soak" if os.environ.get("TERRINE_SOAK") == "1" else "fixed")
if os.environ.get("TERRINE_SOAK") == "1":
    from tests.soak import pytest_runtest_logreport, pytest_sessionfinish  # noqa: F401


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
