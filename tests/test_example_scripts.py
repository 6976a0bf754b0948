"""examples/*.py run as they stand and print what they promise: a guarantee, and a student that learned."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "examples"
SCRIPTS = {  # what a student reaches at least, in percent; ε at most
    "table": (80, 2.0),
    "owners": (70, 1.5),
    "text": (80, 2.0),
    "images": (60, 4.0),
    "service": (80, 2.0),
}
QUICK = ("table",)  # the rest: `make soak`


def test_every_script_is_tried() -> None:
    assert {path.stem for path in FOLDER.glob("*.py")} == set(SCRIPTS)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in QUICK else pytest.mark.soak) for name in SCRIPTS]
)
def test_it_runs_and_says_what_it_reached(name: str, tmp_path: Path) -> None:
    least, epsilon = SCRIPTS[name]
    own = {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "error,ignore::UserWarning"}
    done = subprocess.run(
        [sys.executable, str(FOLDER / f"{name}.py")],
        cwd=tmp_path, env=os.environ | own, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (right,) = re.findall(r"^student: (\d+)% right on \d+ (?:new|test) ", done.stdout, flags=re.MULTILINE)
    assert int(right) >= least
    (said,) = re.findall(r"^\((\d\.\d+), |^ε for all answers that it ever gives: (\d\.\d+)", done.stdout, re.MULTILINE)
    assert 0.9 * epsilon < float(said[0] or said[1]) <= epsilon
    assert list(tmp_path.iterdir()) == []  # they leave nothing where one stands


@pytest.mark.parametrize("name", SCRIPTS)
def test_it_opens_as_a_notebook(name: str) -> None:
    """Cells in jupytext's percent format: text first, then code and text in turn."""
    text = (FOLDER / f"{name}.py").read_text(encoding="utf-8")
    assert text.startswith("# %% [markdown]\n# # ")
    cells = re.split(r"^# %%", text, flags=re.MULTILINE)[1:]
    assert sum(not cell.startswith(" [markdown]") for cell in cells) >= 3
    for cell in cells:
        if cell.startswith(" [markdown]"):
            assert all(line.startswith("#") for line in cell.splitlines()[1:] if line), name
