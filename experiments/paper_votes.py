"""The paper's privacy figures from the paper's own votes, each by one command line.

Run: python experiments/paper_votes.py   (needs the vote files under $TERRINE_DATA/votes)
Writes docs/results/paper.md.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from provenance import record

from terrine import ConfidentGNMax, publishable_guarantee
from terrine.accounting.curves import round_up

VOTES = Path(os.environ.get("TERRINE_DATA", "../shared/data")) / "votes"
OUT = Path(__file__).parents[1] / "docs" / "results" / "paper.md"

# name, queries, threshold, sigma_check, sigma_vote, delta, answers of the worst case, printed epsilon
CONFIDENT = [
    ("mnist", 640, 200, 150, 40, "1e-5", 283, "2.00"),
    ("svhn", 8500, 300, 200, 40, "1e-6", 2969, "4.96"),
    ("adult", 1500, 300, 200, 40, "1e-5", 538, "1.68"),
]
# name, queries, delta, printed epsilon
LAPLACE = [
    ("mnist", 100, "1e-5", "2.04"),
    ("mnist", 1000, "1e-5", "8.03"),
    ("svhn", 500, "1e-6", "5.04"),
    ("svhn", 1000, "1e-6", "8.19"),
    ("adult", 500, "1e-5", "2.66"),
]


def analyze(name: str, options: str) -> tuple[str, dict[str, Any]]:
    """Run `terrine analyze`; the command as a reader would type it, and its JSON."""
    file = f"{name}_250_teachers.npy"
    run = [sys.executable, "-m", "terrine", "analyze", str(VOTES / file), *options.split(), "--json"]
    done = subprocess.run(run, capture_output=True, text=True, check=True)
    return f"terrine analyze {file} {options}", json.loads(done.stdout)


def main() -> None:
    lines = [
        "# The paper's votes",
        "",
        "Printed by `python experiments/paper_votes.py`, each number by a command under its table. Epsilons round up.",
        "",
        "## Confident-GNMax",
        "",
        "| votes | queries | T, σ₁, σ₂ | δ | expected answered | ε printed | ε, paper's accountant | order "
        "| worst case (if fixed beforehand): checks/answers | whole histogram | winner only, Rényi | winner only |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    commands = []
    for name, queries, threshold, check, vote, delta, answers, printed in CONFIDENT:
        base = f"--threshold {threshold} --sigma-check {check} --sigma-vote {vote} --queries {queries} --delta {delta}"
        command, paper = analyze(name, f"{base} --accountant paper --conversion classic --reveal")
        worst_command, worst = analyze(name, f"{base} --answers {answers}")
        _, gaussian = analyze(name, f"{base} --answers {answers} --bound gaussian")
        mechanism = ConfidentGNMax(threshold=threshold, sigma_check=check, sigma_vote=vote)
        numbers = {"n_queries": queries, "n_answers": answers, "delta": float(delta)}
        renyi = publishable_guarantee(mechanism, **numbers, accountant="renyi").epsilon
        lines.append(
            f"| {name} | {queries:,} | {threshold}, {check}, {vote} | {delta} | {paper['expected_answered']:,.1f} "
            f"| {printed} | {round_up(paper['epsilon'])} | {paper['order']:g} | {queries:,}/{answers:,} "
            f"| {round_up(gaussian['data_independent_epsilon'])} | {round_up(renyi)} "
            f"| **{round_up(worst['data_independent_epsilon'])}** |"
        )
        commands += [command, worst_command, f"{worst_command} --bound gaussian"]
    lines += [
        "",
        "The paper's ε is an expectation on these votes: secret if votes are private, and not a guarantee. The worst",
        "cases hold for any votes; the last is by [privacy profiles](../math.md#the-profile-accountant).",
        "",
        "```",
        *commands,
        "```",
        "",
        "## LNMax, scale 20, integer orders 2..9",
        "",
        "| votes | queries | δ | ε printed | ε |",
        "|---|---|---|---|---|",
    ]
    commands = []
    for name, queries, delta, printed in LAPLACE:
        options = f"--mechanism lnmax --scale 20 --orders 2..9 --queries {queries} --delta {delta}"
        command, result = analyze(name, f"{options} --conversion classic --reveal")
        lines.append(f"| {name} | {queries:,} | {delta} | {printed} | {round_up(result['epsilon'])} |")
        commands.append(command)
    lines += [
        "",
        "The first 100 MNIST rows agree with the paper. The numbers below that row are smaller than the printed ones;",
        "the paper does not say which rows it took.",
        "",
        "```",
        *commands,
        "```",
        "",
    ]
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text("\n".join(lines))
    record("paper", "python experiments/paper_votes.py")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
