"""The tutorial does what it says: its blocks in order, in an empty folder.

`make soak` types them into a shell; `make test` runs them in this process, where libraries are imported once.
"""

from __future__ import annotations

import ast
import contextlib
import csv
import io
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from tests.soak import SOAK

from terrine.accounting.curves import round_up
from terrine.cli import main
from terrine.schema import Category, Date, Number, Schema

PAGE = (Path(__file__).parents[1] / "docs" / "tutorial.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", flags=re.DOTALL | re.MULTILINE)
COMMAND = re.compile(r"python - <<'END'\n(.*?)^END\n|(terrine .*?)\n", flags=re.DOTALL | re.MULTILINE)


TABLE, FOLDERS = PAGE.split("## Texts")


def run_here(page: str, folder: Path) -> dict[str, str]:
    """What each shell block printed, by the block: its commands and Python programs, and there is nothing else."""
    printed = {}
    with contextlib.chdir(folder), pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "120")
        for language, block in BLOCK.findall(page):
            assert not language, f"a block of {language}: all are shell commands, without a name"
            assert not COMMAND.sub("", block), f"neither Python nor one of our commands:\n{block}"
            with contextlib.redirect_stdout(io.StringIO()) as out:
                for program, command in COMMAND.findall(block):
                    if program:
                        exec(compile(program, "the tutorial", "exec"), {"__name__": "__main__"})
                        continue
                    patch.setattr(sys, "argv", shlex.split(command))
                    with pytest.raises(SystemExit) as left:
                        main()
                    assert left.value.code == 0, command
            printed[block.strip()] = out.getvalue()
    return printed


def typed(page: str, folder: Path, commands: Path) -> dict[str, str]:
    """What each shell block printed, by the block."""
    for name, words in (("terrine", "-m terrine "), ("python", "")):
        (commands / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {words}"$@"\n')
        (commands / name).chmod(0o755)
    own = {"PATH": f"{commands}{os.pathsep}{os.environ['PATH']}", "COLUMNS": "120", "OMP_NUM_THREADS": "1"}
    printed = {}
    for language, block in BLOCK.findall(page):
        assert not language, f"a block of {language}: all are shell commands, without a name"
        done = subprocess.run(
            ["bash", "-euc", block], cwd=folder, env=os.environ | own, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, f"{block}\n{done.stderr}"
        printed[block.strip()] = done.stdout
    return printed


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """What the part on tables printed; the folder it all happened in."""
    folder = tmp_path_factory.mktemp("tutorial")
    return typed(TABLE, folder, tmp_path_factory.mktemp("bin")) if SOAK else run_here(TABLE, folder), folder


def test_every_step_runs_and_prints_the_numbers_of_the_page(shown):
    printed, _ = shown
    steps, epsilon = re.findall(r"will learn \((\d+) steps, the noise\) and the ε of it all, ([\d.]+),", PAGE)[0]
    planned = printed["terrine run run.toml --dry-run"]
    cells = {row[1].strip(): row[2].strip() for line in planned.splitlines() if len(row := line.split("│")) > 3}
    assert (cells["steps"], cells["ε of the budget"]) == (steps, epsilon)
    assert "probe (chosen)" in planned
    run = printed["terrine run run.toml"]
    assert f"the same ε = {epsilon}" in PAGE
    assert f"Guarantee: ε = {epsilon} at δ = 1e-05; neighbors: one unit is added, removed or changed." in run
    assert "3,000 public rows were labeled" in run
    (right,) = re.findall(r"Student: ([\d.]+)% right on 1,000 test rows", run)
    assert 90 < float(right) < 97  # "more than nine in ten"; 60% are benign
    assert "of one training" in printed["terrine ledger show run"]


def test_a_rehearsal_has_a_line_for_each_epsilon(shown):
    printed, _ = shown
    (rehearsal,) = (out for block, out in printed.items() if block.startswith("terrine rehearse"))
    lines = [row for line in rehearsal.splitlines() if len(row := line.split("│")) > 8]
    assert [(row[1].strip(), row[4].strip()) for row in lines] == [("50", "1"), ("50", "2")]
    assert "costs no privacy" in rehearsal


def test_the_student_says_the_same_in_every_way(shown):
    printed, folder = shown
    names = _column(folder / "predictions.csv", "prediction")
    assert _column(folder / "predictions.csv", "patient") == [f"p{k}" for k in range(5)]
    (by_python,) = (out for block, out in printed.items() if "student.predict(" in block)
    assert ast.literal_eval(by_python.splitlines()[0]) == names
    (exported,) = (out for block, out in printed.items() if block.startswith("terrine export"))
    assert [("benign", "malignant")[int(k)] for k in re.findall(r"[01]", exported.splitlines()[-1])] == names


@pytest.mark.soak  # tests/cli/test_begin.py goes the same way with fewer files
def test_texts_and_images_go_the_same_way(tmp_path):
    (tmp_path / "bin").mkdir()
    printed = typed(FOLDERS, tmp_path, tmp_path / "bin")
    for out, classes, said in zip(
        ("moods.csv", "sides.csv"), ({"good", "bad"}, {"left", "right"}), printed.values(), strict=True
    ):
        (right,) = re.findall(r"Student: ([\d.]+)% right on 300 test rows", said)
        assert float(right) > 65
        assert set(_column(tmp_path / out, "prediction")) <= classes
        assert len(set(_column(tmp_path / out, "file"))) == 5


def test_what_may_leave_is_there_and_the_rest_is_the_owners(shown):
    _, folder = shown
    for name in re.findall(r"`(run/[^`]+)`", PAGE):
        assert (folder / name).exists(), name
    guarantee = json.loads((folder / "run" / "guarantee.json").read_text())
    assert guarantee["delta"] == 1e-5
    assert f"ε = {round_up(guarantee['epsilon'])}" in PAGE
    assert (folder / "run" / "private.sha256").stat().st_mode & 0o777 == 0o600


def test_the_files_that_init_wrote_are_as_the_page_says(shown):
    _, folder = shown
    schema = Schema.from_toml((folder / "schema.toml").read_text())
    assert {name: type(kind) for name, kind in schema.columns.items()} == {
        "ward": Category, "admitted": Date, "age": Number, "bmi": Number}  # fmt: skip
    assert len(schema.columns["ward"].values) == 4
    assert [name for name, kind in schema.columns.items() if kind.blanks] == ["bmi"]


def _column(path: Path, name: str) -> list[str]:
    with path.open(newline="") as file:
        return [row[name] for row in csv.DictReader(file)]
