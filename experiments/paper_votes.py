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

import numpy as np
from provenance import record

from terrine import ConfidentGNMax, LNMax, Votes, cost, guarantee, publishable_guarantee
from terrine.accounting.curves import round_up

VOTES = Path(os.environ.get("TERRINE_DATA", "../shared/data")) / "votes"
OUT = Path(__file__).parents[1] / "docs" / "results" / "paper.md"

# name, queries, threshold, sigma_check, sigma_vote, delta, answers of the worst case, printed epsilon
CONFIDENT = [
    ("mnist", 640, 200, 150, 40, "1e-5", 283, "2.00"),
    ("svhn", 8500, 300, 200, 40, "1e-6", 2969, "4.96"),
    ("adult", 1500, 300, 200, 40, "1e-5", 538, "1.68"),
]
INDICES = "mnist_250_teachers_100_indices_used_by_student.npy"  # published with the votes
DRAWS = 1000
# name, queries, the rows where they are not the first ones, delta, printed epsilon
LAPLACE = [
    ("mnist", 100, INDICES, "1e-5", "2.04"),
    ("mnist", 100, None, "1e-5", "2.04"),
    ("mnist", 1000, None, "1e-5", "8.03"),
    ("svhn", 500, None, "1e-6", "5.04"),
    ("svhn", 1000, None, "1e-6", "8.19"),
    ("adult", 500, None, "1e-5", "2.66"),
]


def analyze(name: str, options: str) -> tuple[str, dict[str, Any]]:
    """Run `terrine analyze`; the command as a reader would type it, and its JSON."""
    file = f"{name}_250_teachers.npy"
    words = [str(VOTES / word) if word == INDICES else word for word in options.split()]
    run = [sys.executable, "-m", "terrine", "analyze", str(VOTES / file), *words, "--json"]
    done = subprocess.run(run, capture_output=True, text=True, check=True)
    return f"terrine analyze {file} {options}", json.loads(done.stdout)


def random_rows(name: str, queries: int, delta: float) -> tuple[float, float]:
    """The smallest and the largest epsilon of LNMax among random choices of as many rows."""
    votes, rng = Votes.load(VOTES / f"{name}_250_teachers.npy"), np.random.default_rng(0)
    found = []
    for _ in range(DRAWS):
        some = Votes(votes.counts[rng.choice(len(votes), queries, replace=False)], n_teachers=votes.n_teachers)
        spent = cost(LNMax(scale=20), some, orders=np.arange(2.0, 10.0), accountant="paper")
        found.append(guarantee(spent, delta=delta, conversion="classic").reveal().epsilon)
    return min(found), max(found)


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
        f"| votes | queries | rows | δ | ε printed | ε | ε of {DRAWS:,} random choices |",
        "|---|---|---|---|---|---|---|",
    ]
    commands, ranges = [], {}
    for name, queries, rows, delta, printed in LAPLACE:
        some = f"--rows {rows}" if rows else f"--queries {queries}"
        options = f"--mechanism lnmax --scale 20 --orders 2..9 {some} --delta {delta}"
        command, result = analyze(name, f"{options} --conversion classic --reveal")
        if (name, queries) not in ranges:
            ranges[name, queries] = "{} to {}".format(*map(round_up, random_rows(name, queries, float(delta))))
        which = "the authors' own" if rows else "the first"
        lines.append(
            f"| {name} | {queries:,} | {which} | {delta} | {printed} | {round_up(result['epsilon'])} "
            f"| {ranges[name, queries]} |"
        )
        commands.append(command)
    lines += [
        "",
        "The authors published which 100 rows their MNIST student asked about: these cost less than the printed",
        "number, and the first 100 rows cost just as much as it. For the other rows of the table no choice was",
        "published; 1,000 answers on MNIST and on SVHN cost less than printed for every choice that we drew.",
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
