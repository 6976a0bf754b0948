"""Where the tested route starts to pay against the worst case, by teachers and consensus.

Run: python experiments/tested_route.py           (about 20 minutes on two cores)
     python experiments/tested_route.py --resume  (keeps what the JSON has: the cells, so the page and picture again)
Writes docs/results/tested_route.md, .json, .png and .svg.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from provenance import record

from terrine import ConfidentGNMax, Outcome, Plan, Votes, plan, synthetic_votes
from terrine.accounting.curves import round_up
from terrine.errors import InputError, PlanError
from terrine.noise import SeededNoise
from terrine.release.plan_tested import plan_tested
from terrine.release.tested import tested_guarantee

OUT = Path(__file__).parents[1] / "docs" / "results"
TEACHERS = (250, 500, 1_000, 2_000, 5_000, 10_000)
CONSENSUS = (0.7, 0.8, 0.9, 0.95, 0.99)
CLASSES, DELTA, STANDINS = 10, 1e-6, 10_000
JOBS = 2

# key: title, share of hard queries, least accuracy, epsilon of the worst case, or right answers where it is fixed
PANELS: dict[str, tuple[str, float, float, float | None, int | None]] = {
    "base": ("Worst case ε = 1, 95% right", 0.1, 0.95, 1.0, None),
    "accurate": ("Worst case ε = 1, 99% right", 0.1, 0.99, 1.0, None),
    "easy": ("Worst case ε = 1, 95% right, no hard queries", 0.0, 0.95, 1.0, None),
    "fixed": ("1,000 right answers, 95% right", 0.1, 0.95, None, 1_000),
}
MAPS = ("base", "accurate")  # over all of CONSENSUS; the others are lines at
LINE = 0.9
SIMULATED = [*((panel, t, LINE) for panel in PANELS for t in (250, 500, 1_000, 2_000)), ("base", 5_000, 0.8)]
RELEASES, ENOUGH = 20, 15


def imagined(teachers: int, consensus: float, hard: float, *, n_queries: int = STANDINS, seed: int = 0) -> Votes:
    return synthetic_votes(
        n_queries=n_queries, n_classes=CLASSES, n_teachers=teachers, consensus=consensus, hard=hard, seed=seed
    )


def worst_case(standin: Votes, accuracy: float, epsilon: float | None, right: int | None) -> Plan:
    """The plan by worst case at an epsilon, or at the epsilon that buys this number of right answers (to 1%)."""
    if epsilon is not None:
        return plan(standin=standin, epsilon=epsilon, delta=DELTA, min_accuracy=accuracy)
    assert right is not None
    epsilon = 4.0
    for _ in range(12):
        proposal = plan(standin=standin, epsilon=epsilon, delta=DELTA, min_accuracy=accuracy)
        if abs(proposal.right_answers / right - 1) < 0.01:
            break
        epsilon *= math.sqrt(right / proposal.right_answers)  # nearly quadratic in epsilon
    return proposal


def cell(panel: str, teachers: int, consensus: float) -> dict[str, Any]:
    """Both routes for one ensemble; their plans are None where there is none."""
    _, hard, accuracy, epsilon, right = PANELS[panel]
    standin = imagined(teachers, consensus, hard)
    row: dict[str, Any] = {"panel": panel, "teachers": teachers, "consensus": consensus, "worst": None, "tested": None}
    try:
        proposal = worst_case(standin, accuracy, epsilon, right)
    except PlanError:
        return row
    row["worst"] = asdict(proposal.mechanism) | {
        "queries": proposal.n_queries,
        "answers": proposal.n_answers,
        "right": proposal.right_answers,
        "accuracy": proposal.accuracy,
        "epsilon": proposal.guarantee.epsilon,
        "order": proposal.guarantee.order,
    }
    try:
        tested = plan_tested(proposal, standin=standin, min_accuracy=accuracy)
    except InputError as refused:  # the planner may try noise that no mechanism takes
        row["refused"] = str(refused)
        return row
    if tested is not None:
        row["tested"] = asdict(tested.mechanism) | {
            "queries": tested.n_queries,
            "answers": tested.n_answers,
            "right": tested.right_answers,
            "accuracy": tested.accuracy,
            "target": float(tested.target),
            "order": tested.order,
            "share": tested.share,
        }
    return row


def simulate(row: dict[str, Any]) -> dict[str, Any]:
    """Fix the planned guarantee, then cast new votes again and again, and see how many releases pass."""
    fixed = row["tested"]
    right = []
    for seed in range(1, RELEASES + 1):
        tested = tested_guarantee(
            ConfidentGNMax(**{name: fixed[name] for name in ("threshold", "sigma_check", "sigma_vote")}),
            target=fixed["target"],
            delta=DELTA,
            n_teachers=row["teachers"],
            n_classes=CLASSES,
            n_queries=fixed["queries"],
            n_answers=fixed["answers"],
            order=fixed["order"],
            share=fixed["share"],
        )
        hard = PANELS[row["panel"]][1]
        votes = imagined(row["teachers"], row["consensus"], hard, n_queries=fixed["queries"], seed=seed)
        answers, passed = tested._draw(votes, SeededNoise(1_000 + seed)).reveal()  # imagined votes: nobody's
        if passed:
            let_out = answers.outcomes == Outcome.TEACHERS
            right.append(int((answers.labels == votes.counts.argmax(axis=1))[let_out].sum()))
    return {
        "panel": row["panel"],
        "teachers": row["teachers"],
        "consensus": row["consensus"],
        "target": fixed["target"],
        "planned_right": fixed["right"],
        "releases": RELEASES,
        "passed": len(right),
        "mean_right_when_passed": float(np.mean(right)) if right else None,
    }


def key_of(row: dict[str, Any]) -> tuple[str, int, float]:
    return row["panel"], row["teachers"], row["consensus"]


def ratio(row: dict[str, Any]) -> float:
    return row["tested"]["target"] / row["worst"]["epsilon"] if row["tested"] else math.nan


def table_of(rows: list[dict[str, Any]], panel: str) -> np.ndarray:
    """(consensus, teachers) of target/worst case; nan where a route has no plan."""
    found = {(row["consensus"], row["teachers"]): ratio(row) for row in rows if row["panel"] == panel}
    return np.array([[found.get((c, t), math.nan) for t in TEACHERS] for c in CONSENSUS])


def draw(rows: list[dict[str, Any]], simulated: list[dict[str, Any]]) -> None:
    figure = Figure(figsize=(11, 8.2), layout="constrained")
    figure.get_layout_engine().set(h_pad=0.12)
    grid = figure.subplot_mosaic([[*MAPS], ["lines", "lines"]], height_ratios=(1.15, 1))
    for panel in MAPS:
        axes, ratios = grid[panel], table_of(rows, panel)
        image = axes.imshow(np.log2(ratios), cmap="RdBu_r", vmin=-2, vmax=2, aspect="auto", origin="lower")
        for (y, x), value in np.ndenumerate(ratios):
            if math.isnan(value):
                axes.text(x, y, "no plan", ha="center", va="center", fontsize=8, color="#8a929b")
                continue
            colour = "white" if abs(math.log2(value)) > 1.2 else "#1d2733"
            axes.text(x, y, round_up(value, 2), ha="center", va="center", fontsize=11, color=colour)
        axes.set_title(PANELS[panel][0], fontsize=11)
        axes.set_xticks(range(len(TEACHERS)), [f"{t:,}" for t in TEACHERS])
        axes.set_yticks(range(len(CONSENSUS)), [f"{c:.0%}" for c in CONSENSUS])
        axes.set(xlabel="teachers", ylabel="teachers who agree, on average")
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
    bar = figure.colorbar(image, ax=[grid[panel] for panel in MAPS], pad=0.02)
    bar.set_ticks([-2, -1, 0, 1, 2], labels=["¼", "½", "1", "2", "4"])
    bar.set_label("tested route ÷ worst case")
    bar.outline.set_visible(False)
    axes = grid["lines"]
    colours = ("#1f5fa8", "#e08e0b", "#2e8b57", "#8e44ad")
    for (panel, (title, *_)), colour in zip(PANELS.items(), colours, strict=True):
        ratios = table_of(rows, panel)[CONSENSUS.index(LINE)]
        axes.plot(TEACHERS, ratios, color=colour, lw=2, marker="o", ms=6, label=title)
        fails = [s["teachers"] for s in simulated if s["panel"] == panel and s["passed"] < ENOUGH]
        axes.plot(
            fails, [ratios[TEACHERS.index(t)] for t in fails], "o", ms=6, mfc="white", mec=colour, mew=2, zorder=3
        )
    axes.axhline(1, color="#9aa5b1", ls="--", lw=1)
    axes.text(TEACHERS[-1], 1.015, "above: the worst case is better", ha="right", color="#5b6672", fontsize=9)
    axes.set(xscale="log", ylim=(0, 1.15), xlabel="teachers", ylabel="tested route ÷ worst case")
    axes.set_xticks(TEACHERS, [f"{t:,}" for t in TEACHERS])
    axes.minorticks_off()
    axes.set_title(f"Where {LINE:.0%} of the teachers agree", fontsize=11)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.plot(
        [], [], "o", ms=6, mfc="white", mec="#5b6672", mew=2, label=f"fewer than {ENOUGH} of {RELEASES} releases passed"
    )
    axes.legend(frameon=False, loc="lower left", fontsize=9, labelspacing=0.3)
    figure.suptitle("ε of the tested route for as many right answers: below 1 (blue) it pays", fontsize=13)
    for ending in ("png", "svg"):
        figure.savefig(OUT / f"tested_route.{ending}", dpi=150)


PAGE = """# Where the tested route pays

There are two ways to a guarantee for the same number of right answers: the worst case, which needs no test, and the
[tested route](../math.md), which publishes the answers only if a private test, fixed beforehand, passes. The numbers
are ε of the tested route divided by ε of the worst case, each with its own best noise, threshold and number of
questions. Below 1 (bold, blue) the tested route pays, if the test passes.

{summary}

```
python experiments/tested_route.py
```

![ratio by teachers and consensus](tested_route.png)

{tables}

## Where 90% of the teachers agree

ε by worst case → ε of the tested route.

{lines}

## Do such releases pass?

The guarantee was fixed with the planned numbers. Then new votes were drawn 20 times, with a different seed; the plan is
for a pass chance of 95%. The planner looks at {standins} stand-in votes and allows for their spread, because the test
depends on rare questions with a small gap. (The guarantee holds in any case: if the test fails, nothing is published.)

{simulated}

## What to keep in mind

- A release that fails the test gives no answers, and its ε is spent all the same: here one in twenty, by plan. The
  worst case has no such risk.
- Everything is planned on made-up votes: {classes} classes, δ = {delta:g}, {standins} stand-in questions. On an
  ordinary question the share of teachers in the row's name agrees, on average (a Beta law). One question in ten is
  hard: from a tie up to 60% choose the top class, except where the title says "no hard queries". Real votes that agree
  less than the stand-ins may fail the test. The worst case holds for any votes.
- The target depends on the planner's search, which is coarse: a better plan may exist for either route.{refused}
- Worst cases on this page are by Rényi bounds, as plans were when it was made. By [privacy
  profiles](../math.md#the-profile-accountant), as budgets of up to 20,000 questions are charged today, they are 5 to 9%
  less, and the tested route, which stays with Rényi bounds, gains less by that: [two students](tested_runs.md) by plans
  of today.
"""


def markdown(header: list[str], body: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in (header, ["---"] * len(header), *body))


def by_cell(rows: list[dict[str, Any]], panel: str, text: Callable[[dict[str, Any]], str]) -> str:
    found = {(row["consensus"], row["teachers"]): text(row) for row in rows if row["panel"] == panel and row["tested"]}
    body = [[f"{c:.0%}", *(found.get((c, t), "–") for t in TEACHERS)] for c in CONSENSUS]
    return markdown(["teachers who agree", *(f"{t:,} teachers" for t in TEACHERS)], body)


def page(rows: list[dict[str, Any]], simulated: list[dict[str, Any]]) -> str:
    def bold(row: dict[str, Any]) -> str:
        return f"**{round_up(ratio(row), 2)}**" if ratio(row) < 1 else round_up(ratio(row), 2)

    def both(row: dict[str, Any]) -> str:
        return f"{round_up(row['worst']['epsilon'])} → {round_up(row['tested']['target'])}"

    tables = [f"## {PANELS[panel][0]}\n\n{by_cell(rows, panel, bold)}" for panel in MAPS]
    found = {(row["panel"], row["teachers"]): both(row) for row in rows if row["consensus"] == LINE and row["tested"]}
    lines = [[title, *(found.get((panel, t), "–") for t in TEACHERS)] for panel, (title, *_) in PANELS.items()]
    planned = [row for row in rows if row["tested"]]
    loses = [row for row in planned if ratio(row) >= 1]
    where = "; ".join(f"{r['teachers']:,} teachers at {r['consensus']:.0%} ({PANELS[r['panel']][0]})" for r in loses)
    failing = [s for s in simulated if s["passed"] < ENOUGH]
    summary = "\n".join(
        (
            f"- By plan the tested route pays in {len(planned) - len(loses)} of {len(planned)} cells. It does not pay "
            f"with {where or 'any'}.",
            "- It mostly pays more with more teachers, with more consensus, and if answers must be right more often; "
            "not with 250 teachers of whom 70% agree, nor with 5,000 or more of whom 99% do.",
            f"- In {len(simulated) - len(failing)} of {len(simulated)} simulated cells at least {ENOUGH} of "
            f"{RELEASES} releases passed."
            + (f" In {len(failing)} fewer did: the ε planned there is too small (see below)." if failing else ""),
        )
    )
    releases = [
        [
            PANELS[s["panel"]][0],
            f"{s['teachers']:,}",
            f"{s['consensus']:.0%}",
            round_up(s["target"]),
            f"{s['passed']} of {s['releases']}" if s["passed"] >= ENOUGH else f"**{s['passed']} of {s['releases']}**",
            f"{s['planned_right']:,.0f}",
            "–" if s["mean_right_when_passed"] is None else f"{s['mean_right_when_passed']:,.0f}",
        ]
        for s in sorted(simulated, key=lambda s: SIMULATED.index(key_of(s)))
    ]
    header = [
        "panel",
        "teachers",
        "agree",
        "target ε",
        "passed",
        "right answers planned",
        "right answers published, mean",
    ]
    return PAGE.format(
        summary=summary,
        tables="\n\n".join(tables),
        lines=markdown(["", *(f"{t:,} teachers" for t in TEACHERS)], lines),
        simulated=markdown(header, releases),
        refused="".join(
            f"\n- No plan with {row['teachers']:,} teachers and no hard queries: the planner stopped. {row['refused']}"
            for row in rows
            if "refused" in row
        ),
        classes=CLASSES,
        delta=DELTA,
        standins=STANDINS,
    )


def main() -> None:
    file = OUT / "tested_route.json"
    OUT.mkdir(parents=True, exist_ok=True)
    wanted = [
        (panel, teachers, consensus)
        for panel in PANELS
        for teachers in TEACHERS
        for consensus in (CONSENSUS if panel in MAPS else (LINE,))
    ]
    stored = json.loads(file.read_text()) if "--resume" in sys.argv else {"cells": [], "simulated": []}
    rows = [row for row in stored["cells"] if key_of(row) in wanted]
    simulated = [row for row in stored["simulated"] if key_of(row) in SIMULATED]
    start = time.monotonic()

    def done(what: str) -> None:
        file.write_text(json.dumps({"cells": rows, "simulated": simulated}, indent=1) + "\n")
        print(f"{time.monotonic() - start:5.0f} s  {what}", flush=True)

    with ProcessPoolExecutor(JOBS) as pool:
        missing = [key for key in wanted if key not in map(key_of, rows)]
        for row in pool.map(cell, *([key[i] for key in missing] for i in range(3))):
            rows.append(row)
            worst = "none" if row["worst"] is None else f"{row['worst']['epsilon']:.3f}"
            where = f"{row['panel']:8} {row['teachers']:6,} teachers {row['consensus']:.0%}"
            done(f"{where}: worst case {worst}, ratio {ratio(row):.3f} {row.get('refused', '')}")
        done_before = {key_of(row) for row in simulated}
        for result in pool.map(simulate, [r for r in rows if key_of(r) in SIMULATED and key_of(r) not in done_before]):
            simulated.append(result)
            done(str(result))
    done("all")
    draw(rows, simulated)
    text = page(rows, simulated)
    (OUT / "tested_route.md").write_text(text)
    if "--resume" not in sys.argv:
        record("tested_route", "python experiments/tested_route.py")
    print(text)


if __name__ == "__main__":
    main()
