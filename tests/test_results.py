"""Pages under docs/results say what their JSON says: tables are rendered again from it, and figures are there."""

from __future__ import annotations

import importlib
import json
import math
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import dp_accounting
import pytest

from terrine.accounting.curves import round_up

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "results"
PAGES = sorted(RESULTS.glob("*.md"))


@pytest.fixture(scope="module", autouse=True)
def _scripts() -> Iterator[None]:
    """Scripts import each other by name, as when they are run."""
    sys.path.insert(0, str(ROOT / "experiments"))
    yield
    sys.path.remove(str(ROOT / "experiments"))


def script(name: str) -> ModuleType:
    return importlib.import_module(name)


def stored(name: str) -> Any:
    return json.loads((RESULTS / f"{name}.json").read_text())


def said(name: str) -> str:
    return (RESULTS / f"{name}.md").read_text()


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("figures_page", "figures"),
        ("claims_page", "claims"),
        ("scaling", "scaling"),
        ("adult_students", "adult_students"),
        ("mnist_students", "mnist_students"),
        ("glyph_students", "glyph_students"),
        ("paper_glyph_page", "paper_glyph"),
        ("student_by_teachers", "student_by_teachers"),
        ("table1", "table1"),
        ("rounds", "rounds"),
        ("paper_rows", "paper_rows"),
        ("paper_small_page", "paper_small"),
        ("sanitized_rounds", "sanitized_rounds"),
        ("tested_runs", "tested_runs"),
        ("battery_page", "battery"),
        ("probe_prior", "probe_prior"),
    ],
)
def test_a_page_is_what_its_script_makes_of_the_json(module: str, name: str) -> None:
    assert script(module).page(stored(name)) == said(name), f"run: python experiments/{name}.py"


def test_the_page_of_table_2() -> None:
    table2 = script("table2")
    results = stored("table2")
    assert table2.page(results, table2.tables(results)) == said("table2")


def test_the_page_of_the_tested_route() -> None:
    results = stored("tested_route")
    assert script("tested_route").page(results["cells"], results["simulated"]) == said("tested_route")


def test_table_1_has_the_students_and_costs_of_their_pages() -> None:
    table1, found = script("table1"), stored("table1")
    rows = {row["setting"]: row for row in found["ours"]}
    rows |= {name: row for name, key in table1.PAPERS.items() for row in found["reproduced"] if row["key"] == key}
    mnist = {(row["setting"], row["learner"]): row for row in stored("mnist_students")["table"]}
    adult = {row["setting"]: row for row in stored("adult_students")["settings"]}
    glyph = {(row["setting"], row["learner"]): row for row in stored("glyph_students")["rows"]}
    for row in stored("paper_glyph")["table"]:  # the same settings where it has them, scored both ways
        glyph[row["setting"], row["learner"]] = {
            **row,
            "student": row["accuracy"],
            "recorded": row["accuracy_recorded"],
        }
    assert set(rows) <= {name for name, _ in mnist | glyph} | set(adult)
    for name, row in rows.items():
        if name in adult:
            assert row["student"] == adult[name]["students"][row["learner"]]["answers"]
            for key in ("publishable_epsilon", "renyi_epsilon", "exact_epsilon"):
                assert row[key] == adult[name][key]
        else:
            there = (mnist | glyph)[name, row["learner"]]
            for key in ("student", "recorded", "publishable_epsilon", "renyi_epsilon", "exact_epsilon"):
                assert row.get(key) == there.get(key)
    assert {name for name, _ in mnist} | set(adult) <= set(rows)


def test_glyph_s_rows_of_table_1_have_the_paper_s_parameters_and_both_scores() -> None:
    """With 5,000 teachers nothing is scaled; what stands beside the paper's student is scored on recorded labels."""
    there = {row["setting"]: row for row in stored("paper_glyph")["table"] if row["learner"] == "VAT"}
    rows = [row for row in stored("table1")["reproduced"] if row["task"] == "Glyph"]
    assert [row["name"] for row in rows] == ["LNMax", "Confident-GNMax", "Interactive-GNMax, two rounds"]
    for row in rows:
        one = there[row["name"]]
        assert (row["student"], row["recorded"]) == (one["accuracy"], one["accuracy_recorded"])
        assert row["recorded"]["mean"] < row["student"]["mean"]
        assert row["paper_epsilon"] == one["paper_epsilon"]
    assert there["Confident-GNMax"]["mechanism"] == [1000, 500, 100]
    assert there["Interactive-GNMax, two rounds"]["mechanism"] == [3500, 1500, 100]
    assert "scaled" not in said("table1") + said("glyph_students")


def test_every_result_says_what_made_it() -> None:
    runs = stored("runs")
    assert script("provenance").page(runs) == said("README"), "run: python experiments/provenance.py"
    for page in PAGES:
        assert page.stem in runs or page.stem == "README"
    for run in runs.values():
        assert re.match(r"python (experiments|benchmarks)/\w+\.py", run["command"])
        assert re.fullmatch(r"[0-9a-f]{10}\+?", run["commit"])
        assert run["machine"]


def test_a_run_is_recorded_with_its_commit_and_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    provenance = script("provenance")
    monkeypatch.setattr(provenance, "RUNS", tmp_path / "runs.json")
    provenance.record("b", "python experiments/b.py")
    provenance.record("a", "python experiments/a.py", ran_on="elsewhere")
    found = json.loads((tmp_path / "runs.json").read_text())
    assert list(found) == ["a", "b"]
    assert (found["a"]["machine"], found["b"]["machine"]) == ("elsewhere", provenance.machine())


def test_headlines_are_those_of_the_results() -> None:
    assert script("battery_page").headline(stored("battery")) in (ROOT / "README.md").read_text(), "its headline()"
    why = (ROOT / "docs" / "why.md").read_text()
    assert script("table1").headline(stored("table1")) in why, "python experiments/table1.py prints it"


def test_planned_noise_of_mnist_is_what_plan_gives() -> None:
    """Planned by Rényi bounds; by privacy profiles the same noise costs less, and less noise is planned."""
    from terrine import GNMax, least_noise, publishable_guarantee

    mnist = script("mnist_students")
    for _, epsilon, sigma in mnist.PLANNED:
        numbers = {"n_queries": 30, "delta": mnist.DELTA}
        assert 0.999 * epsilon < publishable_guarantee(GNMax(sigma=sigma), **numbers, accountant="renyi").epsilon
        assert publishable_guarantee(GNMax(sigma=sigma), **numbers, accountant="renyi").epsilon <= epsilon
    assert publishable_guarantee(GNMax(sigma=sigma), **numbers).epsilon < 0.93 * epsilon  # of the last; a second each
    assert 0.9 * sigma < least_noise(**numbers, epsilon=epsilon).sigma < 0.95 * sigma
    planned = [s.mechanism.sigma for s in mnist.SETTINGS if s.chosen == mnist.BY_PLAN]
    assert planned == [sigma for _, _, sigma in mnist.PLANNED]
    glyph = script("glyph_students")
    for n, epsilon, sigma in glyph.QUESTIONS:
        found = publishable_guarantee(GNMax(sigma=sigma), n_queries=n, delta=glyph.DELTA, accountant="renyi").epsilon
        assert 0.999 * epsilon < found <= epsilon


def test_the_numbers_of_the_accounting_table() -> None:
    for name, row in stored("accounting").items():
        (line,) = [line for line in said("accounting").splitlines() if line.startswith(f"| {name} |")]
        assert "| – |" in line or None not in row.values()
        epsilons = [round_up(x, 4) for key, x in row.items() if key not in ("answers", "delta") and x is not None]
        assert re.findall(r"\d+\.\d{4}(?= \|)", line) == epsilons


@pytest.mark.parametrize("delta", [1e-8, 1e-5])
def test_gaussians_composed_exactly_are_those_of_an_outside_accountant(delta: float) -> None:
    accounting = script("accounting")
    for _, n_queries, mechanism, _ in accounting.SETS.values():
        public = {"n_queries": n_queries, "n_answered": 283}
        mu = math.sqrt(n_queries / mechanism.sigma_check**2 + 2 * 283 / mechanism.sigma_vote**2)
        outside = dp_accounting.get_epsilon_gaussian(1 / mu, delta)
        assert accounting.composed(mechanism, **public, delta=delta) == pytest.approx(outside, rel=1e-6)


def test_the_numbers_of_the_coverage_table() -> None:
    ways = script("coverage").WAYS
    for way, row in stored("coverage").items():
        (line,) = [line for line in said("coverage").splitlines() if line.startswith(f"| {ways[way]} |")]
        assert f"| {row['true_cost']:.4f} | {row['below']:,} of {row['draws']:,} | {row['share_below']:.2%} |" in line


@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_pictures_are_there_in_both_formats(page: Path) -> None:
    for picture in re.findall(r"!\[[^\]]+\]\(([^)]+)\)", page.read_text()):
        assert (RESULTS / picture).is_file()
        assert (RESULTS / picture).with_suffix(".svg").is_file()


def test_every_picture_and_every_json_is_used() -> None:
    pages = "".join(page.read_text() for page in [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md"])
    for picture in RESULTS.glob("*.png"):
        assert picture.name in pages
    for file in RESULTS.glob("*.json"):
        assert (RESULTS / f"{file.stem}.md").is_file() or file.stem in pages or file.stem == "runs"


def test_no_page_holds_what_is_not_a_number() -> None:
    for page in PAGES:
        for line in page.read_text().splitlines():
            assert not (line.startswith("|") and re.search(r"\b(nan|inf|None)\b", line)), f"{page.name}: {line}"
