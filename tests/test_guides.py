"""What the guides say is so: the table of answers by teachers and ε, the way of several owners, a new service."""

from __future__ import annotations

import csv
import json
import os
import random
import re
import subprocess
import sys
from math import ceil, exp
from pathlib import Path

import pytest

GUIDES = Path(__file__).parents[1] / "docs" / "guides"
COUNTS = [(100, 2.0), (250, 1.0)]  # a cell takes up to minutes


def cells() -> dict[tuple[int, float], str]:
    """Answers, by teachers and ε."""
    page = (GUIDES / "rows_and_teachers.md").read_text(encoding="utf-8")
    lines = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("|")]
    epsilons = [float(head.removeprefix("ε = ")) for head in lines[0][1:]]
    return {
        (int(line[0].replace(",", "")), epsilon): cell.replace(",", "")
        for line in lines[2:]
        for epsilon, cell in zip(epsilons, line[1:], strict=True)
    }


def test_the_table_has_teachers_and_epsilons() -> None:
    found = cells()
    assert len(found) == 12
    assert set(COUNTS) <= set(found)


@pytest.mark.soak
@pytest.mark.parametrize(("teachers", "epsilon"), COUNTS)
def test_a_budget_buys_the_answers_of_the_table(teachers, epsilon, terrine) -> None:
    (command,) = re.findall(r"`terrine (plan .*?)`", (GUIDES / "rows_and_teachers.md").read_text())
    words = command.split()
    words[words.index("--teachers") + 1], words[words.index("--epsilon") + 1] = str(teachers), str(epsilon)
    code, out, err = terrine(*words, "--json")
    assert code == 0, err
    (expected,) = re.findall(r'"expected_answers": ([\d.]+)', out)
    assert f"{float(expected):.0f}" == cells()[teachers, epsilon]


def test_guesses_are_rounded_up() -> None:
    page = (GUIDES / "epsilon.md").read_text()
    rows = re.findall(r"^\| ([\d.]+) \| (\d+) in 100 \|", page, flags=re.MULTILINE)
    assert len(rows) == 6
    for epsilon, right in rows:
        share = (exp(float(epsilon)) + 1e-6) / (exp(float(epsilon)) + 1)
        assert int(right) == ceil(100 * share)


def patients(path: Path, n: int, *, first: int = 0, private: bool = True) -> None:
    rng = random.Random(first)
    with path.open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["age", "ward", *["patient", "diagnosis"] * private])
        for k in range(n):
            ill = rng.random() < 0.4
            ward = rng.choice(["north", "south"] if ill else ["east", "north"])
            own = [f"p{first + k}", "malignant" if ill else "benign"] if private else []
            out.writerow([round(rng.gauss(50 + 12 * ill, 8)), ward, *own])


@pytest.mark.soak
def test_owners_go_the_way_of_the_guide(tmp_path: Path) -> None:
    patients(tmp_path / "a.csv", 2000)
    patients(tmp_path / "b.csv", 2000, first=10_000)
    patients(tmp_path / "public.csv", 300, private=False)
    page = (GUIDES / "owners.md").read_text()
    (teachers,) = re.findall(r"```toml\n(.*?)```", page, flags=re.DOTALL)
    settings = (
        '[data]\nprivate = "a.csv"\npublic = "public.csv"\nlabel = "diagnosis"\nclasses = ["benign", "malignant"]\n'
        f'unit = "patient"\nunits_planned = 2000\n[teachers]\nkind = "logistic"\n{teachers}'
        '[privacy]\nmechanism = "gnmax"\nepsilon = 2.0\ndelta = 1e-5\nqueries = 60\n[student]\nkind = "supervised"\n'
    )
    (tmp_path / "a.toml").write_text(settings)
    (tmp_path / "b.toml").write_text(settings.replace("a.csv", "b.csv").replace("first_id = 0", "first_id = 50"))
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "terrine").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m terrine "$@"\n')
    (tmp_path / "bin" / "terrine").chmod(0o755)
    (commands,) = re.findall(r"```\n(terrine teach .*?)```", page, flags=re.DOTALL)
    own = {"PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        ["bash", "-euc", commands], cwd=tmp_path, env=os.environ | own, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    assert "100 teachers of 2 owners" in done.stdout
    assert json.loads((tmp_path / "a" / "guarantee.json").read_text())["n_teachers"] == 100
