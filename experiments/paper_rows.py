"""Rows of the paper's Table 1 by one command each: `terrine run examples/paper/NAME.toml`, three seeds.

    python experiments/paper_rows.py measure RUNS NAME ...   # runs and keeps what came out, under RUNS
    python experiments/paper_rows.py show                    # draws the page from docs/results/paper_rows.json

Writes docs/results/paper_rows.json and .md. Rows that are not measured keep what the file has of them.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from provenance import record
from tables import markdown

from terrine.accounting.curves import round_up

ROOT = Path(__file__).parents[1]
OUT = ROOT / "docs" / "results" / "paper_rows.json"
SEEDS = (0, 1, 2)
# what the paper prints: answers, epsilon, student
PRINTED = {
    "mnist_lnmax_100": ("MNIST, LNMax", "100", "2.04", "98.0%"),
    "mnist_lnmax_1000": ("MNIST, LNMax", "1,000", "8.03", "98.1%"),
    "mnist_confident": ("MNIST, Confident-GNMax", "286", "1.97", "98.5%"),
    "adult_lnmax": ("Adult, LNMax", "500", "2.66", "83.0%"),
    "adult_confident": ("Adult, Confident-GNMax", "524", "1.90", "83.7%"),
}


def terrine(*words: object) -> dict[str, Any]:
    done = subprocess.run([sys.executable, "-m", "terrine", *map(str, words)], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def measure(runs: Path, name: str) -> list[dict[str, Any]]:
    found = []
    for seed in SEEDS:
        settings = runs / f"{name}_{seed}.toml"
        runs.mkdir(parents=True, exist_ok=True)
        settings.write_text(f"seed = {seed}\n" + (ROOT / "examples" / "paper" / f"{name}.toml").read_text())
        run = runs / f"{name}_{seed}"
        facts = terrine("run", settings, "--out", run, "--json")
        guarantee = facts["guarantee"]
        options = [
            option
            for key, value in guarantee["mechanism"].items()
            for option in (f"--{'mechanism' if key == 'kind' else key.replace('_', '-')}", value)
        ]
        laplace = guarantee["mechanism"]["kind"] == "lnmax"
        orders = ("--orders", "2..9") if laplace else ()
        given = (run / "votes.npz", *options, "--delta", guarantee["delta"], "--reveal", "--json")
        paper = terrine("analyze", *given, "--accountant", "paper", "--conversion", "classic", *orders)
        found.append(
            {
                "seed": seed,
                "answered": guarantee["answered"],
                "epsilon_worst": guarantee["epsilon"],
                "epsilon_paper": paper["epsilon"],
                "epsilon_exact": None if laplace else terrine("analyze", *given)["epsilon"],
                "accuracy": facts["student"]["accuracy"],
            }
        )
        print(name, found[-1], flush=True)
    return found


def page(rows: dict[str, list[dict[str, Any]]]) -> str:
    lines = []
    for name, runs in rows.items():
        what, answers, epsilon, student = PRINTED[name]
        right = [run["accuracy"] for run in runs]
        exact = [run["epsilon_exact"] for run in runs if run["epsilon_exact"] is not None]
        lines.append(
            [
                what,
                f"[`{name}`](../../examples/paper/{name}.toml)",
                f"{statistics.mean(run['answered'] for run in runs):,.0f} ({answers})",
                f"{round_up(statistics.mean(run['epsilon_paper'] for run in runs))} ({epsilon})",
                round_up(statistics.mean(exact)) if exact else "–",
                round_up(max(run["epsilon_worst"] for run in runs)),
                f"{statistics.mean(right):.2%} ± {statistics.stdev(right):.2%} ({student})",
            ]
        )
    head = ["row", "settings", "answered", "ε, the paper's accountant", "ε, exact", "ε, worst case", "student"]
    return "\n".join(
        [
            "# Rows of Table 1, by one command each",
            "",
            "```",
            "terrine run examples/paper/NAME.toml --out runs/NAME",
            "python experiments/paper_rows.py measure RUNS NAME ...    # the same for three seeds, and this page",
            "```",
            "",
            markdown(head, lines),
            "",
            "Teachers, students, noise and numbers of questions as the paper has them, in parentheses what it prints.",
            "Our own votes: the paper's ε is of its votes. *The paper's accountant* and *exact* are means over the",
            "seeds and depend on the votes: secret on private data, and no guarantee; here the data are public. *Worst",
            "case*: what the run's ledger lets one publish. Better students: [Table 1](table1.md).",
            "",
        ]
    )


def main() -> None:
    match sys.argv[1:]:
        case ["measure", runs, *names] if names and set(names) <= set(PRINTED):
            rows = json.loads(OUT.read_text()) if OUT.is_file() else {}
            for name in names:
                rows[name] = measure(Path(runs), name)
            rows = {name: rows[name] for name in PRINTED if name in rows}
            OUT.write_text(json.dumps(rows, indent=1) + "\n")
            record("paper_rows", "python experiments/paper_rows.py measure RUNS " + " ".join(rows))
        case ["show"]:
            rows = json.loads(OUT.read_text())
        case _:
            raise SystemExit(__doc__)
    OUT.with_suffix(".md").write_text(page(rows))


if __name__ == "__main__":
    main()
