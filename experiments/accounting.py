"""What the same answers cost by every accountant: three real vote sets and a synthetic one.

Run: python experiments/accounting.py   (needs the vote files under $TERRINE_DATA/votes)
Writes docs/results/accounting.md and .json.
"""

from __future__ import annotations

import json
import math
import os
from pathlib import Path

from provenance import record
from scipy.optimize import brentq
from scipy.special import log_ndtr
from tables import MOST

from terrine import (
    ConfidentGNMax,
    Votes,
    cost,
    expected_answered,
    expected_cost,
    guarantee,
    publishable_guarantee,
    synthetic_votes,
    worst_case_cost,
)
from terrine.accounting.curves import round_up
from terrine.accounting.profile_votes import profile_of_votes

VOTES = Path(os.environ.get("TERRINE_DATA", "../shared/data")) / "votes"
OUT = Path(__file__).parents[1] / "docs" / "results"

SETS = {
    "MNIST": ("mnist_250_teachers.npy", 640, ConfidentGNMax(threshold=200, sigma_check=150, sigma_vote=40), 1e-5),
    "Adult": ("adult_250_teachers.npy", 1500, ConfidentGNMax(threshold=300, sigma_check=200, sigma_vote=40), 1e-5),
    "SVHN": ("svhn_250_teachers.npy", 8500, ConfidentGNMax(threshold=300, sigma_check=200, sigma_vote=40), 1e-6),
    "synthetic, Glyph-like": (
        None,
        12_000,
        ConfidentGNMax(threshold=3500, sigma_check=1500, sigma_vote=100),
        1e-8,
    ),
}
COLUMNS = {
    "answers": "expected answers",
    "paper_classic": "paper, its conversion",
    "paper": "paper, tight conversion",
    "sanitizable": "sanitizable",
    "exact": "exact, Rényi",
    "exact_profile": "exact, profile",
    "worst_case_profile": "worst case (if fixed beforehand), profile",
    "worst_case": "worst case, Rényi",
    "gaussian": "worst case, whole histogram",
    "composed": "the same, Gaussians composed exactly",
}


def composed(mechanism: ConfidentGNMax, *, n_queries: int, n_answered: int, delta: float) -> float:
    """Epsilon of publishing every noisy histogram: Gaussians compose to one, whose (epsilon, delta) is known exactly.

    Balle and Wang, "Improving the Gaussian mechanism", ICML 2018, Thm. 8; Dong, Roth and Su, 2022, Cor. 3.3.
    """
    mu = math.sqrt(n_queries / mechanism.sigma_check**2 + 2 * n_answered / mechanism.sigma_vote**2)

    def excess(epsilon: float) -> float:
        spent = math.exp(log_ndtr(mu / 2 - epsilon / mu)) - math.exp(epsilon + log_ndtr(-mu / 2 - epsilon / mu))
        return spent - delta

    return float(brentq(excess, 0.0, mu * mu + 20 * mu, xtol=1e-12))


def shown(epsilon: float | None) -> str:
    return "–" if epsilon is None else round_up(epsilon, 4)


def page(rows: dict[str, dict[str, float | None]]) -> str:
    lines = [
        "# What the same answers cost",
        "",
        "Printed by `python experiments/accounting.py`. The numbers are ε, rounded up, by the tight conversion unless",
        "the column names a different one. Only the worst cases are guarantees. The rest depends on the votes: keep it",
        "secret if your votes are private. *Paper* and *sanitizable* are expectations, check + Pr[answered]·answer;",
        "*exact* is the divergence of check and answer as one mechanism, in both directions. *Profile*: by",
        "[privacy profiles](../math.md#the-profile-accountant), not Rényi bounds; a new budget has that worst case.",
        "",
        f"| votes | δ | {' | '.join(COLUMNS.values())} |",
        f"|---|---|{'---|' * len(COLUMNS)}",
    ]
    for name, row in rows.items():
        cells = [f"{row[key]:,.1f}" if key == "answers" else shown(row[key]) for key in COLUMNS]
        lines.append(f"| {name} | {row['delta']:g} | {' | '.join(cells)} |")
    lines += [
        "",
        "MNIST, Adult, SVHN: the paper's votes (250 teachers), its queries, thresholds and noise (T, σ₁, σ₂ = 200,",
        "150, 40 for MNIST; 300, 200, 40 for Adult and SVHN). Synthetic: 12,000 questions, 150 classes, 5,000",
        "teachers, one question in ten of low consensus; T, σ₁, σ₂ = 3500, 1500, 100 (–: not computed, it takes long).",
        "",
    ]
    return "\n".join(lines)


def main() -> None:
    rows = {}
    for name, (file, n_queries, mechanism, delta) in SETS.items():
        if file is None:
            votes = synthetic_votes(n_queries=n_queries, n_classes=150, n_teachers=5000, consensus=0.9, hard=0.1)
        else:
            votes = Votes.load(VOTES / file)[:n_queries]
        answers = expected_answered(mechanism, votes).reveal()
        paper = expected_cost(mechanism, votes)
        public = {"n_queries": n_queries, "n_answered": round(answers)}
        rows[name] = {
            "answers": answers,
            "paper_classic": guarantee(paper, delta=delta, conversion="classic").reveal().epsilon,
            "paper": guarantee(paper, delta=delta).reveal().epsilon,
            "sanitizable": guarantee(expected_cost(mechanism, votes, accountant="sanitizable"), delta=delta)
            .reveal()
            .epsilon,
            "exact": guarantee(cost(mechanism, votes), delta=delta).reveal().epsilon,
            "exact_profile": profile_of_votes(mechanism, votes, delta=delta).reveal().epsilon,
            "worst_case_profile": None
            if n_queries > MOST
            else publishable_guarantee(mechanism, n_queries=n_queries, n_answers=round(answers), delta=delta).epsilon,
            "worst_case": guarantee(worst_case_cost(mechanism, **public), delta=delta).epsilon,
            "gaussian": guarantee(worst_case_cost(mechanism, **public, bound="gaussian"), delta=delta).epsilon,
            "composed": composed(mechanism, **public, delta=delta),
            "delta": delta,
        }
        print(name, rows[name], flush=True)
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / "accounting.md").write_text(page(rows))
    (OUT / "accounting.json").write_text(json.dumps(rows, indent=1) + "\n")
    record("accounting", "python experiments/accounting.py")
    print(page(rows))


if __name__ == "__main__":
    main()
