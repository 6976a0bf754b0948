"""The tested route beside the worst case, on MNIST and Glyph by `terrine run` alone.

`python experiments/tested_runs.py measure OUT` plans once for each set by `terrine plan --route`, writes both settings
that it prints for every seed, types `terrine run` for each of them, and writes docs/results/tested_runs.json; `show`
writes the page from it. A run that is there already is not repeated: a test that failed stays failed.

Nothing is chosen by what comes out. Teachers and student have the settings of `terrine demo`; that such teachers agree
was looked up on public images; the assumed consensus is one number for both sets.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from statistics import mean
from typing import Any

from provenance import record

from terrine.accounting.curves import round_up

RESULTS = Path(__file__).parents[1] / "docs" / "results" / "tested_runs.json"
TEACHERS, CONSENSUS, EPSILON, DELTA, ASKED = 1000, 0.8, 1.0, 1e-6, 8000
TEST_FAILED = 4  # exit code
ROUTES = {"worst case": "worst", "tested": "tested"}
SETS = {  # what is printed: its name, options, classes, private images
    "MNIST": ("mnist", "", 10, 60_000),
    "Glyph, 24 symbols": (
        "small-glyph",
        "\noptions = { n_private = 240_000, n_public = 8_000, n_test = 8_000, true_labels = true }",
        24,
        240_000,
    ),
}
SETTINGS = """seed = {seed}
[data]
name = "{name}"{options}

[features]
kind = "edges"

[teachers]
number = {teachers}
kind = "lda"
options = {{ solver = "lsqr", shrinkage = 0.4 }}
partition = "balanced"
keep = false
executor = "serial"

{privacy}

[student]
kind = "features"
estimator = "sklearn.discriminant_analysis.LinearDiscriminantAnalysis"
options = {{ solver = "lsqr", shrinkage = 0.2 }}
"""
WORST = """[privacy]
delta = {delta}
mechanism = "confident"
threshold = {threshold}
sigma_check = {sigma_check}
sigma_vote = {sigma_vote}
queries = {n_queries}
answers = {n_answers}
consensus = {consensus}"""


def plan_command(classes: int) -> str:
    numbers = f"--teachers {TEACHERS} --classes {classes} --consensus {CONSENSUS} --epsilon {EPSILON:g}"
    return f"terrine plan {numbers} --delta {DELTA:g} --max-queries {ASKED} --route"


def typed(command: str, folder: Path) -> tuple[int, str]:
    words = [sys.executable, "-m", "terrine", *command.split()[1:], "--json"]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode not in (0, TEST_FAILED):
        raise SystemExit(f"{command} ended with {done.returncode}:\n{done.stderr}")
    return done.returncode, done.stdout


def measure(out: Path, *, seeds: int) -> None:
    out.mkdir(parents=True, exist_ok=True)
    plans, cells = {}, []
    for title, (name, _, classes, _) in SETS.items():
        file = out / f"{name}-plan.json"
        if not file.is_file():
            file.write_text(typed(plan_command(classes), out)[1])
        plans[title] = json.loads(file.read_text())
    for seed in range(seeds):
        for title in SETS:
            for route in ROUTES:
                cells.append({"set": title, "route": route, "seed": seed, **ran(out, title, route, seed, plans[title])})
                print(cells[-1], flush=True)
                kept = {"consensus": CONSENSUS, "delta": DELTA, "teachers": TEACHERS, "plans": plans, "cells": cells}
                RESULTS.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n")
    record("tested_runs", "python experiments/tested_runs.py measure OUT && python experiments/tested_runs.py show")


def ran(out: Path, title: str, route: str, seed: int, plan: dict[str, Any]) -> dict[str, Any]:
    """One run, or what it left if it is there."""
    name, options, _, _ = SETS[title]
    worst = WORST.format(**{key: plan[key] for key in ("threshold", "sigma_check", "sigma_vote", "n_queries")},
                         n_answers=plan["n_answers"], delta=DELTA, consensus=CONSENSUS)  # fmt: skip
    privacy = worst if route == "worst case" else plan["settings"]
    stem = f"{name}-{ROUTES[route]}-{seed}"
    (out / f"{stem}.toml").write_text(
        SETTINGS.format(seed=seed, name=name, options=options, teachers=TEACHERS, privacy=privacy)
    )
    code, _ = typed(f"terrine run {stem}.toml --out {stem}", out)
    guarantee = json.loads((out / stem / "guarantee.json").read_text())
    names = ("epsilon", "delta", "queries_at_most", "answers_at_most", "answered", "withheld", "unasked", "test")
    found = {key: guarantee[key] for key in names if key in guarantee} | {"passed": code != TEST_FAILED}
    if code != TEST_FAILED:
        student = json.loads((out / stem / "student.json").read_text())
        found |= {key: student[key] for key in ("accuracy", "n_test")}
    return found


def page(found: dict[str, Any]) -> str:
    cells, rows, said = found["cells"], [], []
    for title in found["plans"]:
        by = {route: [one for one in cells if (one["set"], one["route"]) == (title, route)] for route in ROUTES}
        for route, some in by.items():
            passed = [one for one in some if one["passed"]]
            right = [one["accuracy"] for one in passed]
            accuracy = f"**{mean(right):.1%}** ({', '.join(f'{one:.1%}' for one in right)})" if right else "–"
            answered = f"{mean(one['answered'] for one in passed):,.0f}" if passed else "–"
            rows.append(
                f"| {title} | {route} | **{round_up(max(one['epsilon'] for one in some))}** | "
                f"{some[0]['queries_at_most']:,} | {some[0]['answers_at_most']:,} | {answered} | "
                f"{'–' if route == 'worst case' else f'{len(passed)} of {len(some)}'} | {accuracy} |"
            )
        said.append(verdict(title, by["worst case"], by["tested"]))
    images = "; ".join(f"{title}: {n // TEACHERS} private images each" for title, (_, _, _, n) in SETS.items())
    return PAGE.format(
        rows="\n".join(rows),
        verdict=" ".join(said),
        commands="\n".join(plan_command(classes) for _, _, classes, _ in SETS.values()),
        teachers=f"{found['teachers']:,}",
        consensus=found["consensus"],
        delta=found["delta"],
        seeds=len({one["seed"] for one in cells}),
        images=images,
    )


def verdict(title: str, worst: list[dict[str, Any]], tested: list[dict[str, Any]]) -> str:
    passed = [one for one in tested if one["passed"]]
    share = 1 - max(one["epsilon"] for one in tested) / max(one["epsilon"] for one in worst)
    if not passed:
        return f"{title}: no test passed, so that ε was spent and nothing published."
    change = mean(one["accuracy"] for one in passed) - mean(one["accuracy"] for one in worst)
    failed = len(tested) - len(passed)
    after = f"; {failed} failed, and published nothing" if failed else ""
    return (
        f"{title}: {len(passed)} of {len(tested)} tests passed{after}. The tested student has {share:.0%} less ε, and "
        f"is right on {100 * abs(change):.1f} points {'more' if change >= 0 else 'less'} of the test images."
    )


PAGE = """# Two students by the tested route, beside the worst case

Written by `python experiments/tested_runs.py show` from `tested_runs.json`, which `measure` made by `terrine run`
alone, with secure noise. {teachers} teachers, linear discriminants on [edges](../features.md) ({images}); δ =
{delta:g}; neighbours: one image is replaced. Teachers and student have the settings of `terrine demo`. The assumed
consensus, {consensus}, is one number for both sets, and was fixed before the first run. Noise, threshold, numbers of
questions and answers, and the target are what the plan prints:

```
{commands}
```

Both routes are planned for as many right answers. The target stands in the ledger before the teachers vote; if the test
fails, ε is spent and nothing is published ([what that is](../concepts.md#what-may-be-shown-and-when-a-test-pays)).

| data | route | ε, publishable | questions | answers, at most | answered | test passed | student right (each seed) |
|---|---|---|---|---|---|---|---|
{rows}

{verdict}

Means over {seeds} seeds of partition and student; noise differs every time. The worst case is charged by [privacy
profiles](../math.md#the-profile-accountant), the tested route by Rényi bounds at one order. Every run here is about
the same public images; on private data these releases would add up. Glyph here is the built-in `small-glyph`: 24
symbols, 12% of the labels wrong, 8,000 public and 8,000 test images in other faces (*right* counts the symbol that was
drawn). All 150 symbols would take teachers with thousands of images each, and a GPU. Before the plans, teachers of
this kind and size were tried on public images alone, to see that they agree.
"""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["measure", "show"])
    parser.add_argument("out", nargs="?", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args()
    if given.what == "measure":
        measure(given.out, seeds=given.seeds)
    RESULTS.with_suffix(".md").write_text(page(json.loads(RESULTS.read_text())))


if __name__ == "__main__":
    main()
