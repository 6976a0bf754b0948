"""The paper's figures again, from votes: ours on Glyph and MNIST (both public), and the paper's own on MNIST.

Run: python experiments/figures.py --votes FOLDER            (all; three minutes on one core)
     python experiments/figures.py --votes FOLDER --only noise
     python experiments/figures.py --draw                    (page and pictures again, from the JSON)
FOLDER has votes_glyph_<teachers>.npz (counts, labels) and mnist_votes.npz (votes_features_<teachers>, on the first
9,000 test images); whatever of these is there is used. The paper's votes and MNIST's labels are under $TERRINE_DATA.
Writes docs/results/figures.md and .json, and a picture figures_<name>.png and .svg for each of FIGURES.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from figures_page import DRAWN, page
from provenance import record
from votesets import (
    FEW,
    OUT,
    QUERIES,
    WIDE,
    Array,
    VoteSet,
    chance_right,
    confident,
    epsilon,
    glyph_sets,
    mnist_sets,
    paper_mnist,
    pr_answered,
    tidy,
)

from terrine import ConfidentGNMax, GNMax, LNMax, worst_case_cost
from terrine.accounting.argmax import rdp_argmax
from terrine.accounting.costs import CostSettings, cost, expected_cost, running_cost
from terrine.accounting.curves import epsilons_at
from terrine.accounting.exact import rdp_gnmax_exact
from terrine.accounting.theorems import log_q_gaussian, rdp_gnmax


def favourable(votes: VoteSet) -> LNMax:
    """The LNMax with the least epsilon of those within a point of the plurality's accuracy."""
    best = np.mean(votes.votes.counts.argmax(axis=1) == votes.labels)
    scales = votes.votes.n_teachers * np.geomspace(0.002, 0.2, 25)
    fine = [s for s in scales if chance_right(LNMax(scale=s), votes).mean() >= best - 0.01]
    costs = [epsilon(cost(LNMax(scale=s), votes.votes, orders=WIDE), delta=votes.delta) for s in fine]
    return LNMax(scale=float(fine[int(np.argmin(costs))]))


def progress(glyph: dict[int, VoteSet], mnist: dict[int, VoteSet]) -> list[dict[str, Any]]:
    """As queries are answered: LNMax, which answers all, against Confident-GNMax."""
    largest = glyph[max(glyph)]
    panels = []
    for votes, n_answers, plain, chosen in (
        (largest, QUERIES, favourable(largest.first(QUERIES)), confident(largest.votes.n_teachers)),
        (paper_mnist(), 1_000, LNMax(scale=20), ConfidentGNMax(threshold=200, sigma_check=150, sigma_vote=40)),
    ):
        answered = pr_answered(chosen, votes.votes)
        n_queries = int(np.searchsorted(np.cumsum(answered), n_answers)) + 1
        if n_queries > len(votes.votes):
            n_queries, n_answers = len(votes.votes), int(answered.sum())
        part, answered = votes.first(n_queries), answered[:n_queries]
        stops = np.unique(np.linspace(0, n_answers, 21).round().astype(int))[1:]
        asked = [min(int(np.searchsorted(np.cumsum(answered), stop)) + 1, n_queries) for stop in stops]
        right_plain = chance_right(plain, part)[:n_answers]
        right = answered * chance_right(GNMax(sigma=chosen.sigma_vote), part)
        top = part.votes.counts.max(axis=1) / part.votes.n_teachers
        edges = np.linspace(0, 1, 11)
        delta = votes.delta

        def curve(mechanism: Any, stops: Any, part: VoteSet = part, delta: float = delta, **how: Any) -> list[float]:
            costs = running_cost(mechanism, part.votes, CostSettings(**how), stops=list(stops))
            return [epsilon(rdp, delta=delta) for rdp in costs]

        worst = [
            epsilon(worst_case_cost(chosen, n_queries=n, n_answered=int(a), orders=WIDE), delta=delta)
            for n, a in zip(asked, stops, strict=True)
        ]
        panels.append(
            {
                "votes": votes.about(),
                "lnmax_scale": plain.scale,
                "confident": [chosen.threshold, chosen.sigma_check, chosen.sigma_vote],
                "answers": stops,
                "queries": asked,
                "lnmax": {
                    "accuracy": [right_plain[:stop].mean() for stop in stops],
                    "epsilon": curve(plain, stops, orders=WIDE),
                    "consensus": np.histogram(top[:n_answers], edges)[0] / n_answers,
                    "mean_consensus": top[:n_answers].mean(),
                },
                "gnmax": {
                    "accuracy": [right[:n].sum() / answered[:n].sum() for n in asked],
                    "epsilon": curve(chosen, asked, orders=WIDE, accountant="paper", expected=True),
                    "exact": curve(chosen, asked, orders=FEW),
                    "worst": worst,
                    "consensus": np.histogram(top, edges, weights=answered)[0] / answered.sum(),
                    "mean_consensus": np.average(top, weights=answered),
                },
            }
        )
    return panels


def tradeoff(votes: VoteSet, shares: Array, *, full: bool) -> dict[str, Any]:
    """GNMax on the first queries over noise scales (shares of the teachers); in full, its exact cost and LNMax too."""
    part = votes.first(QUERIES)
    rows: dict[str, list[dict[str, float]]] = {"lnmax": [], "gnmax": []} if full else {"gnmax": []}
    for scale in shares * part.votes.n_teachers:
        for name in rows:
            mechanism = LNMax(scale=scale) if name == "lnmax" else GNMax(sigma=scale)
            worst = worst_case_cost(mechanism, n_queries=len(part.votes), orders=WIDE)
            row = {
                "scale": scale,
                "accuracy": chance_right(mechanism, part).mean(),
                "epsilon": epsilon(expected_cost(mechanism, part.votes, orders=WIDE), delta=part.delta),
                "worst": epsilon(worst, delta=part.delta),
            }
            if full and name == "gnmax":
                row["exact"] = epsilon(cost(mechanism, part.votes, orders=FEW), delta=part.delta)
            rows[name].append(row)
    plurality = (part.votes.counts.argmax(axis=1) == part.labels).mean()
    return {"votes": votes.about(), "plurality": plurality, **rows}


def noise(glyph: dict[int, VoteSet], mnist: dict[int, VoteSet]) -> list[dict[str, Any]]:
    """Utility against privacy over noise scales; the paper has 1,000 teachers there."""
    near = glyph[min(glyph, key=lambda n: abs(np.log(n / 1_000)))]
    return [
        tradeoff(near, np.geomspace(0.005, 0.3, 12), full=True),
        tradeoff(paper_mnist(), np.geomspace(0.04, 0.5, 10), full=True),
    ]


def teachers(glyph: dict[int, VoteSet], mnist: dict[int, VoteSet]) -> list[dict[str, Any]]:
    """GNMax over noise scales, by number of teachers."""
    return [
        tradeoff(votes, np.geomspace(0.003, 0.6, 14), full=False) for sets in (glyph, mnist) for votes in sets.values()
    ]


def check(glyph: dict[int, VoteSet], mnist: dict[int, VoteSet]) -> list[dict[str, Any]]:
    """Queries by plurality, what two checks let through, and what an answer costs."""
    panels = []
    for votes in (glyph[max(glyph)], mnist[5_000] if 5_000 in mnist else mnist[max(mnist)]):
        m, counts = votes.votes.n_teachers, votes.votes.counts
        mechanism = confident(m)
        total = expected_cost(mechanism, votes.votes, orders=WIDE).reveal()
        order = float(WIDE[np.argmin(epsilons_at(WIDE, total.epsilons, delta=votes.delta, conversion="tight"))])
        sigma = mechanism.sigma_vote
        costs = {
            "paper": rdp_gnmax(log_q_gaussian(counts, sigma=sigma), sigma=sigma, orders=order)[:, 0],
            "exact": rdp_gnmax_exact(counts, sigma=sigma, orders=order)[:, 0],
        }
        place = np.minimum(counts.max(axis=1) * 20 // m, 19)
        all_of = np.bincount(place, minlength=20)
        right = counts.argmax(axis=1) == votes.labels

        def by_bin(weights: Any, place: Any = place) -> Array:
            return np.bincount(place, weights=weights, minlength=20)

        with np.errstate(invalid="ignore"):
            panels.append(
                {
                    "votes": votes.about(),
                    "order": order,
                    "sigma_vote": sigma,
                    "queries": all_of,
                    "moderate": by_bin(pr_answered(mechanism, votes.votes)),
                    "aggressive": by_bin(pr_answered(confident(m, threshold=1.0), votes.votes)),
                    "right": by_bin(right) / all_of,
                    "cost": {name: by_bin(values) / all_of for name, values in costs.items()},
                    "worst": float(rdp_argmax(sigma=sigma, orders=order)[0]),
                }
            )
    return panels


def selection(glyph: dict[int, VoteSet], mnist: dict[int, VoteSet]) -> dict[str, Any]:
    """What of epsilon goes into checks and what into answers, as answers come in."""
    votes = glyph[max(glyph)]
    m, delta = votes.votes.n_teachers, votes.delta
    panels = []
    for title, threshold, how in (
        ("moderate check, the paper's bound", 0.7, "paper"),
        ("aggressive check, the paper's bound", 1.0, "paper"),
        ("moderate check, worst case", 0.7, "worst"),
    ):
        mechanism = confident(m, threshold=threshold)
        answered = pr_answered(mechanism, votes.votes)
        stops = np.linspace(0, len(answered), 25).round().astype(int)[1:]
        rows = []
        never = ConfidentGNMax(threshold=100 * m, sigma_check=mechanism.sigma_check, sigma_vote=mechanism.sigma_vote)
        if how == "paper":
            counted = CostSettings(orders=WIDE, accountant="paper", expected=True)
            both = running_cost(mechanism, votes.votes, counted, stops=stops)
            vote_only = GNMax(sigma=mechanism.sigma_vote)
            each = rdp_gnmax(
                log_q_gaussian(votes.votes.counts, sigma=vote_only.sigma), sigma=vote_only.sigma, orders=WIDE
            )
            votes_part = np.cumsum(answered[:, None] * each, axis=0)[stops - 1]
            pairs = [(rdp.reveal().epsilons, part) for rdp, part in zip(both, votes_part, strict=True)]
        else:
            pairs = []
            for n in stops:
                public = {"n_queries": int(n), "orders": WIDE}
                total = worst_case_cost(mechanism, n_answered=round(answered[:n].sum()), **public)
                checks = worst_case_cost(never, n_answered=0, **public)
                pairs.append((total.epsilons, total.epsilons - checks.epsilons))
        for n, (total, part) in zip(stops, pairs, strict=True):
            best = int(np.argmin(epsilons_at(WIDE, total, delta=delta, conversion="tight")))
            rows.append(
                {
                    "queries": int(n),
                    "answers": answered[:n].sum(),
                    "epsilon": epsilons_at(WIDE, total, delta=delta, conversion="tight")[best],
                    "checks": total[best] - part[best],
                    "answers_cost": part[best],
                }
            )
        panels.append({"title": title, "rows": rows})
    plain = favourable(votes.first(QUERIES))
    stops = np.linspace(0, len(votes.votes), 25).round().astype(int)[1:]
    costs = running_cost(plain, votes.votes, CostSettings(orders=WIDE), stops=list(stops))
    line = {"scale": plain.scale, "answers": stops, "epsilon": [epsilon(rdp, delta=delta) for rdp in costs]}
    return {"votes": votes.about(), "panels": panels, "lnmax": line}


FIGURES = {"progress": progress, "noise": noise, "teachers": teachers, "check": check, "selection": selection}


def main() -> None:
    parser = argparse.ArgumentParser(description="The paper's figures from votes")
    parser.add_argument("--votes", type=Path, help="folder of vote files")
    parser.add_argument("--only", choices=list(FIGURES), help="compute one figure and keep the others")
    parser.add_argument("--draw", action="store_true", help="no votes: page and pictures from the JSON")
    given = parser.parse_args()
    file = OUT / "figures.json"
    results = json.loads(file.read_text()) if (given.draw or given.only) and file.is_file() else {}
    if not given.draw:
        if given.votes is None:
            parser.error("Expected --votes FOLDER (or --draw), got neither.")
        sets = glyph_sets(given.votes), mnist_sets(given.votes)
        for name in [given.only] if given.only else FIGURES:
            start = time.monotonic()
            results[name] = tidy(FIGURES[name](*sets))
            print(f"{name}: {time.monotonic() - start:.0f} s", flush=True)
            file.write_text(json.dumps(results) + "\n")
    for name, result in results.items():
        DRAWN[name](result)
    (OUT / "figures.md").write_text(page(results))
    if not (given.draw or given.only):
        record("figures", "python experiments/figures.py --votes FOLDER")
    print(page(results))


if __name__ == "__main__":
    main()
