"""The docs say what the code does: citations resolve both ways, the CLI page is generated, README's example runs."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

ROOT = Path(__file__).parents[1]
CITATION = re.compile(r"\[((?:PATE17|PATE18|TERRINE|CKS20|MIR17|BS16|DRS22), [^\]]+)\]")


def test_every_citation_has_a_heading_and_every_heading_is_cited() -> None:
    cited = {c for file in (ROOT / "src").rglob("*.py") for c in CITATION.findall(file.read_text())}
    headings = {
        c
        for line in (ROOT / "docs" / "math.md").read_text().splitlines()
        if line.startswith("### [")
        for c in CITATION.findall(line)
    }
    assert cited == headings


@pytest.mark.parametrize("name", ["generate_cli", "generate_api"])
def test_generated_pages_are_up_to_date(name: str) -> None:
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.PAGE.read_text(encoding="utf-8") == module.page(), f"run: python docs/{name}.py"


def test_readme_examples_run_and_print_what_they_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save(tmp_path / "votes.npy", np.tile([240, 4, 6], (640, 1)))
    for name, n, seed in (("private", 4000, 0), ("public", 1000, 1), ("new", 50, 2)):
        patients(n, seed=seed, known=name == "private").to_csv(tmp_path / f"{name}.csv", index=False)
    monkeypatch.chdir(tmp_path)
    for page, n_blocks in (("README.md", 1), ("docs/why.md", 2)):
        blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), flags=re.DOTALL)
        assert len(blocks) == n_blocks
        for block in blocks:
            exec(compile(block, page, "exec"), namespace := {})
        said = re.findall(r"^# (\(.*\)-DP \[.*\])$", blocks[0], flags=re.MULTILINE)
        assert said
        assert said[0] in capsys.readouterr().out
    assert round(namespace["accountant"].get_epsilon(target_delta=1e-5), 2) == 2.19
    assert (tmp_path / "student" / "card.json").is_file()


def patients(n: int, *, seed: int, known: bool) -> pd.DataFrame:
    """As README has them: three rows a patient, a blank here and there; labels in the private file alone."""
    rng = np.random.default_rng(seed)
    ill = rng.random(n) < 0.4
    made = pd.DataFrame(
        {
            "age": rng.normal(50 + 12 * ill, 8).round(),
            "bmi": np.where(rng.random(n) < 0.1, np.nan, rng.normal(25 + 4 * ill, 3).round(1)),
            "ward": np.where(ill, rng.choice(["north", "south"], n), rng.choice(["east", "north", "west"], n)),
        }
    )
    if known:
        made["diagnosis"] = np.where(ill, "malignant", "benign")
        made["patient"] = [f"p{k // 3}" for k in range(n)]
    return made


def test_relative_links_lead_somewhere() -> None:
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
