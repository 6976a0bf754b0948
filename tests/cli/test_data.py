"""`terrine data`: what a data set is, and one line where it is not there."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest


def run(*words: str, cache: Path) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": "/usr/bin:/bin", "XDG_CACHE_HOME": str(cache), "HOME": str(cache), "COLUMNS": "100"}
    return subprocess.run(
        [sys.executable, "-m", "terrine", "data", *words], capture_output=True, text=True, env=environment, check=False
    )


def test_it_says_what_the_built_in_set_is(tmp_path: Path) -> None:
    done = run("small-glyph", cache=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "12,000" in done.stdout
    assert "24: A, B, C" in done.stdout


def test_json_has_the_sizes(tmp_path: Path) -> None:
    facts = json.loads(run("blobs", "--json", cache=tmp_path).stdout)
    assert facts["name"] == "blobs"
    assert set(facts["sizes"]) == {"private", "public", "test"}


@pytest.mark.parametrize(("name", "words"), [("nothing", "not one of 'mnist'"), ("", "not one of")])
def test_an_unknown_name_is_one_line(tmp_path: Path, name: str, words: str) -> None:
    done = run(name, cache=tmp_path)
    assert done.returncode == 2
    assert words in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not done.stdout
