"""The tutorial does what it says: its blocks in order, in an empty folder, through the real command."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[1] / "docs" / "tutorial.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", flags=re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """What each shell block printed, by its first line; the folder it all happened in."""
    folder, commands = tmp_path_factory.mktemp("tutorial"), tmp_path_factory.mktemp("bin")
    for name, words in (("terrine", "-m terrine "), ("python", "")):
        (commands / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {words}"$@"\n')
        (commands / name).chmod(0o755)
    own = {"PATH": f"{commands}{os.pathsep}{os.environ['PATH']}", "COLUMNS": "120", "OMP_NUM_THREADS": "1"}
    printed = {}
    for found in BLOCK.finditer(PAGE):
        language, block = found.groups()
        if language == "toml":
            (name,) = re.findall(r"Save as `([^`]+)`", PAGE[: found.start()])
            (folder / name).write_text(block)
            continue
        assert not language, f"a block of {language}: shell commands have no name, files say under which to save them"
        done = subprocess.run(
            ["bash", "-euc", block], cwd=folder, env=os.environ | own, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, f"{block}\n{done.stderr}"
        printed[block.splitlines()[0]] = done.stdout
    return printed, folder


def test_every_step_runs_and_prints_the_numbers_of_the_page(shown):
    printed, _ = shown
    assert list(printed)[1:] == [
        "terrine run clinic.toml --dry-run",
        "terrine run clinic.toml",
        "terrine vote clinic --reveal",
    ]
    ((queries, answers, epsilon),) = re.findall(
        r"at most (\d+), of which at most (\d+) .* worst-case ε, ([\d.]+)\.", PAGE
    )
    cells = {row[1].strip(): row[2].strip() for line in printed["terrine run clinic.toml --dry-run"].splitlines()
             if len(row := line.split("│")) > 3}  # fmt: skip
    assert cells["questions, at most"] == queries
    assert cells["answers, at most"] == answers
    assert cells["ε, publishable"] == epsilon
    run = printed["terrine run clinic.toml"]
    assert f"ε = {epsilon}" in PAGE.split("## 4. Run")[1]
    assert f"Guarantee: ε = {epsilon} at δ = 1e-05; neighbours: one unit is added, removed or changed." in run
    (answered,) = re.findall(r"^(\d+) queries were answered", run, flags=re.MULTILINE)
    assert 0 < int(answered) <= int(answers)
    (right,) = re.findall(r"Student: ([\d.]+)% right on 1,000 test rows", run)
    assert float(right) > 70  # 60% are benign
    assert "do not publish" in " ".join(printed["terrine vote clinic --reveal"].split())


def test_what_may_leave_is_there_and_the_rest_is_the_owners(shown):
    _, folder = shown
    for name in re.findall(r"`(clinic/[^`]+)`", PAGE):
        assert (folder / name).exists(), name
    guarantee = json.loads((folder / "clinic" / "guarantee.json").read_text())
    assert guarantee["delta"] == 1e-5
    assert f"{guarantee['epsilon']:.3f}" == "0.996"
    assert (folder / "clinic" / "votes.npz").stat().st_mode & 0o777 == 0o600
