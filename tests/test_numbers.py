"""Numbers in README and docs come from results: each is on a page of docs/results, or in the JSON behind its page."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from terrine.accounting.curves import round_up
from terrine.runs.demo import DEMO
from terrine.runs.factories import budget_of, planned

ROOT = Path(__file__).parents[1]
RESULTS, BENCHMARKS = ROOT / "docs" / "results", ROOT / "benchmarks" / "results"
BEHIND = {  # JSON that a page is written from, beside the results that it links to
    "concepts": [RESULTS / "cost_by_gap.json", RESULTS / "accounting.json"],
    "features": [BENCHMARKS / f"{name}.json" for name in ("features_gpu", "glyph_centroids", "glyph_nets", "auto")],
    "ledger": [BENCHMARKS / "ledger.json"],
    "rare_classes": [BENCHMARKS / f"{name}.json" for name in ("probe_level", "probe_top")],
    "schema": [BENCHMARKS / "schema.json"],
    "service": [BENCHMARKS / f"{name}.json" for name in ("service", "soak", "timing")],
    "teachers": [BENCHMARKS / f"{name}.json" for name in ("teachers", "teachers_gpu", "soak", "ridge")],
}
# Not of runs: versions, parameters of drawing, what the paper prints, and limits that an oracle test of math.md asserts
STATED = {
    "README": {"3.11"},
    "start": {"3.11"},
    "datasets": {"0.15", "0.12", "0.08"},
    "paper": frozenset(  # what it prints
        re.findall(
            r"\S+",
            "2.04 8.03 1.97 2.00 5.04 8.19 4.96 2.66 1.90 1.68 4.3 2.03 0.837 98.0 98.1 98.5 99.2 82.7 "
            "90.7 91.6 92.8 83.0 83.7 85.0 72.4 75.5 73.2 82.2 73.5 1.02 0.59 8.42 10.14 0.018 2.52 5.45 "
            "2.09 2.29 1.00 0.0618 0.0717 0.0332 ",
        )
    ),
    "math": {"2.13", "0.9998", "0.995", "0.05", "1.741", "1.90", "1.97", "2.03", "73.5", "1.02", "75.5"},
}
BEHIND["probe"] = [BENCHMARKS / f"{name}.json" for name in ("probe", "probe_rule", "probe_level")]
STATED |= {"probe": {"0.22"}, "which_route": {"0.033", "0.089", "0.27", "0.50", "0.75", "0.48"}}  # test_which_route.py
STATED["epsilon"] = {"99.967"}  # test_guides.py
STATED["math"] |= {"0.0202", "238.2", "87.05", "28.90", "0.111", "0.331", "1.092"}  # tests/accounting/test_gdp.py
# docs/research.md is a notebook of trials; test_tutorial.py runs the tutorial and compares what it says
ELSEWHERE = ("research", "tutorial")
FOLDERS = ("docs", "docs/guides")
PAGES = [ROOT / "README.md", *(p for f in FOLDERS for p in sorted((ROOT / f).glob("*.md")) if p.stem not in ELSEWHERE)]
NEARBY = 2  # blocks before and after, in which a link to a result counts as the number's source


def numbers(value: Any) -> Iterator[float]:
    match value:
        case dict():
            for part in value.values():
                yield from numbers(part)
        case list():
            for part in value:
                yield from numbers(part)
        case bool():
            return
        case int() | float():
            yield float(value)


def agrees(said: str, value: float) -> bool:
    """Whether a number is shown with these digits: epsilons round up, the rest to the nearest."""
    unit = 10.0 ** -len(said.split(".")[1])
    return -unit / 2 <= float(said.replace(",", "")) - value <= unit


@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_every_number_with_decimals_has_a_source(page: Path) -> None:
    """Shares with a decimal, and everything with two: in a result that is linked nearby, or in the page's own JSON."""
    text = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(), flags=re.DOTALL)
    behind = [x for file in BEHIND.get(page.stem, []) for x in numbers(json.loads(file.read_text()))]
    behind += [y for x in behind for y in (100 * x, x / 1000)]  # shares as percentages, ms as s
    blocks = re.split(r"\n\s*\n", text)
    for i, block in enumerate(blocks):
        linked = set(re.findall(r"results/(\w+)\.(?:md|png)", " ".join(blocks[max(0, i - NEARBY) : i + NEARBY + 1])))
        pages = [RESULTS / f"{name}.md" for name in linked if (RESULTS / f"{name}.md").is_file()]
        shown = {x for file in pages for x in re.findall(r"\d[\d,]*\.\d+", file.read_text())}
        values = [*behind, *(float(x.replace(",", "")) for x in shown)]
        for found in re.finditer(r"(?<![\w.\-/])(\d[\d,]*\.\d+)(?![\w.])(%?)", block):
            said, percent = found.groups()
            if (percent or len(said.split(".")[1]) > 1) and said not in STATED.get(page.stem, ()):
                where = f"…{block[max(0, found.start() - 60) : found.end() + 20]}…".replace("\n", " ")
                assert any(agrees(said, x) for x in values), f"{page.name} says {said}, no source is near: {where}"


def test_the_service_s_load_is_what_the_benchmark_wrote() -> None:
    text = (ROOT / "docs" / "service.md").read_text()
    rows = {row["metric"]: row for row in json.loads((BENCHMARKS / "service.json").read_text())}
    for store in ("SQLite", "PostgreSQL"):
        single = rows[f"{store}: one-row requests, 64 connections"]
        batches = rows[f"{store}: .npy batches of 1000, 8 connections"]
        cells = [
            f"{single['ratio']:.1f} times",
            f"{single['p50_ms']:.0f}, {single['p99_ms']:.0f} ms",
            f"{batches['ratio']:.2f} times",
            f"{batches['p50_ms'] / 1000:.2f}, {batches['p99_ms'] / 1000:.2f} s",
        ]
        assert f"| {store} | {' | '.join(cells)} |" in text


def test_the_service_s_kills_are_what_the_soak_counted() -> None:
    text = (ROOT / "docs" / "service.md").read_text()
    counts = {row["file"]: row["counts"] for row in json.loads((BENCHMARKS / "soak.json").read_text())}
    kills = counts["tests/service/test_kill.py"]
    for store in ("sqlite", "postgresql"):
        assert f"| {kills[f'test_the_server_is_killed[{store}]']['kills of the server']} each |" in text
    assert f"| {kills['test_postgresql_is_killed']['kills of PostgreSQL']} |" in text
    fuzz = counts["tests/service/test_fuzz.py"]
    requests, http = fuzz["test_malformed_bodies"], fuzz["test_malformed_http"]
    assert f"| {requests['malformed bodies']:,} | no 5xx" in text
    assert f"memory grew by {requests['memory grew by MiB']} MiB" in text
    assert f"| {http['malformed HTTP']:,} | no 5xx" in text
    assert not [status for status in requests["statuses"] if status.startswith("5")]
    assert f"| {fuzz['test_schemathesis']['examples for each operation and phase']} for each route and phase |" in text


@pytest.mark.soak  # a plan by privacy profiles of a thousand answers
def test_the_demonstration_s_epsilon_is_the_one_in_readme() -> None:
    budget = budget_of(planned(DEMO, n_classes=24, n_public=3_000))
    assert f"ε = {round_up(budget.guarantee().epsilon)} at δ = 1e-6)" in (ROOT / "README.md").read_text()
