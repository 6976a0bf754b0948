"""Numbers in README and docs come from results: each is on a page of docs/results, or in the JSON behind its page."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
RESULTS, BENCHMARKS = ROOT / "docs" / "results", ROOT / "benchmarks" / "results"
BEHIND = {
    "concepts": [RESULTS / "cost_by_gap.json"],
    "features": [BENCHMARKS / f"{name}.json" for name in ("features_gpu", "glyph_centroids", "glyph_nets")],
    "service": [BENCHMARKS / "service.json", BENCHMARKS / "soak.json"],
    "teachers": [BENCHMARKS / f"{name}.json" for name in ("teachers", "teachers_gpu", "soak")],
}
# Of proofs, not of runs: each is asserted by the test that its own line names or by an oracle of its theorem
PROVED = {"0.9998", "0.995", "1.741", "1.607", "1.763", "3.11", "3.12"}
# docs/research.md is a notebook of trials; test_tutorial.py runs the tutorial and compares what it says
ELSEWHERE = ("research", "tutorial")
PAGES = [ROOT / "README.md", *(p for p in sorted((ROOT / "docs").glob("*.md")) if p.stem not in ELSEWHERE)]


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


@pytest.fixture(scope="module")
def shown() -> set[str]:
    pages = " ".join(page.read_text() for page in RESULTS.glob("*.md"))
    return set(re.findall(r"\d[\d,]*\.\d+", pages))


@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_every_number_with_decimals_has_a_source(page: Path, shown: set[str]) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    behind = [x for file in BEHIND.get(page.stem, []) for x in numbers(json.loads(file.read_text()))]
    for found in re.finditer(r"(?<![\w.\-/])\d[\d,]*\.\d{2,}(?![\w.])", text):
        said, value = found.group(), float(found.group().replace(",", ""))
        unit = 10.0 ** -len(said.split(".")[1])
        # Shares in JSON may be percent on the page, and ms be s; epsilons round up, the rest to the nearest
        near = any(abs(y - value) <= unit for x in behind for y in (x, 100 * x, x / 1000))
        line = text[max(0, found.start() - 60) : found.end() + 20].replace("\n", " ")
        assert said in shown or said in PROVED or near, f"{page.name} says {said}, which nothing prints: …{line}…"


def test_the_service_s_load_is_what_the_benchmark_wrote() -> None:
    text = (ROOT / "docs" / "service.md").read_text()
    rows = {row["metric"]: row for row in json.loads((BENCHMARKS / "service.json").read_text())}
    for store in ("SQLite", "PostgreSQL"):
        single, batches = (row for metric, row in rows.items() if metric.startswith(store))
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
    assert f"| {fuzz['test_malformed_bodies']['malformed bodies']:,} | 4xx and nothing charged" in text
    assert f"memory grew by {fuzz['test_malformed_bodies']['memory grew by MiB']} MiB" in text
    assert f"| {fuzz['test_schemathesis']['examples for each operation and phase']} for each route and phase |" in text
