"""Built-in data sets in tests: real files where the machine has them, a cache of the test's own, and no network."""

from __future__ import annotations

import os
import urllib.request
from pathlib import Path

import pytest
from tests.conftest import need

DATA = Path(os.environ.get("TERRINE_DATA", "../shared/data")).resolve()


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    """Nothing is found but what the test puts there, and only this machine can be asked for files."""
    monkeypatch.delenv("TERRINE_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    really = urllib.request.urlopen

    def local_only(url, *args, **options):
        if not str(url).startswith(("file://", "http://127.0.0.1")):
            raise OSError("no network in tests")
        return really(url, *args, **options)

    monkeypatch.setattr(urllib.request, "urlopen", local_only)


@pytest.fixture
def real_data(monkeypatch):
    """A function that sets $TERRINE_DATA to where the named files are, or skips the test."""

    def set_data(*names: str) -> Path:
        for name in names:
            if not (DATA / name).is_file():
                need(f"{name} under $TERRINE_DATA")
        monkeypatch.setenv("TERRINE_DATA", str(DATA))
        return DATA

    return set_data
