"""How often a number that is published for a data-dependent cost is below that cost: three ways to draw it.

Run: python experiments/coverage.py   (uses MNIST votes under $TERRINE_DATA/votes, else synthetic ones)
Writes docs/results/coverage.md, .json, .png and .svg.
"""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from provenance import record
from scipy.stats import binomtest

from terrine import GNMax, Votes, cost, synthetic_votes
from terrine.release.sanitize import Sanitizer
from terrine.release.smooth import smooth_sensitivity

VOTES = Path(os.environ.get("TERRINE_DATA", "../shared/data")) / "votes" / "mnist_250_teachers.npy"
OUT = Path(__file__).parents[1] / "docs" / "results"
QUERIES, SIGMA, DELTA_RELEASE = 100, 40.0, 0.01
DRAWS = 5_000  # of each way
WAYS = {
    "plain": "ε ± noise, as the paper prints it",
    "gnss": "gnss, raised by a noisy bound on its scale",
    "majorant": "majorant, its logarithm with noise, raised",
}


def main() -> None:
    real = VOTES.is_file()
    votes = Votes.load(VOTES) if real else synthetic_votes(n_queries=QUERIES, n_classes=10, n_teachers=250)
    votes = votes[:QUERIES]
    name = "MNIST votes of the paper" if real else "synthetic votes"
    mechanism = GNMax(sigma=SIGMA)
    # Rules of thumb for epsilon = 2, but a chance to fail that a simulation can see
    ways = {
        method: dataclasses.replace(Sanitizer.by_rule(epsilon=2.0, delta=1e-5, method=method), delta=DELTA_RELEASE)
        for method in ("gnss", "majorant")
    }
    gnss, order = ways["gnss"], ways["gnss"].order
    truth = {
        accountant: float(cost(mechanism, votes, orders=[order], accountant=accountant).reveal().epsilons[0])
        for accountant in ("sanitizable", "exact")
    }
    of = {"plain": truth["sanitizable"], "gnss": truth["sanitizable"], "majorant": truth["exact"]}
    smooth = smooth_sensitivity(mechanism, votes, order=order, beta=gnss.beta).reveal()
    rng = np.random.default_rng(20180224)
    drawn = {"plain": of["plain"] + smooth * gnss.sigma * rng.standard_normal(DRAWS)}
    for method, sanitizer in ways.items():
        drawn[method] = np.array([sanitizer.upper_bound(votes, sigma_vote=SIGMA, rng=rng) for _ in range(DRAWS)])
    rows = {}
    for way, numbers in drawn.items():
        below = int((numbers < of[way]).sum())
        rows[way] = {
            "draws": DRAWS,
            "below": below,
            "share_below": below / DRAWS,
            "p_value": float(binomtest(below, DRAWS, DELTA_RELEASE, alternative="greater").pvalue),
            "true_cost": of[way],
            "median_of_ratio": float(np.median(numbers) / of[way]),
            "cost_of_drawing": None if way == "plain" else float(ways[way].rdp(order)[0]),
        }
        print(way, rows[way], flush=True)
    plot(drawn, of, name)
    lines = [
        "# Is a published cost above the truth?",
        "",
        "![Histograms of released over true cost](coverage.png)",
        "",
        f"Printed by `python experiments/coverage.py`: {len(drawn) * DRAWS:,} simulated releases of the Rényi cost of "
        f"{QUERIES} GNMax answers",
        f"({name}, 250 teachers, σ = {SIGMA:g} votes, order {order:.4g}), seeded noise. Each number may be below the "
        f"truth with chance {DELTA_RELEASE:g};",
        "p is the chance of at least this number of failures if that is true (one-sided binomial test).",
        "",
        "| number released | true cost (nats) | below the truth | share | p | median of released/true | drawing it "
        "costs (nats) |",
        "|---|---|---|---|---|---|---|",
    ]
    for way, row in rows.items():
        p = "< 1e-300" if row["p_value"] < 1e-300 else f"{row['p_value']:.2g}"
        price = "see gnss" if row["cost_of_drawing"] is None else f"{row['cost_of_drawing']:.3f}"
        lines.append(
            f"| {WAYS[way]} | {row['true_cost']:.4f} | {row['below']:,} of {DRAWS:,} | {row['share_below']:.2%} | "
            f"{p} | {row['median_of_ratio']:.2f} | {price} |"
        )
    lines += [
        "",
        "The first two release the sanitizable cost, whose smooth sensitivity is known; the majorant releases the "
        "exact cost. The parameters are",
        "the rules of thumb of `Sanitizer.by_rule` for ε = 2 at δ = 1e-5, but with δ_release raised to "
        f"{DELTA_RELEASE:g}, since a simulation cannot see smaller chances. The first row",
        'has one more flaw: the scale of its noise is secret, and without it nobody can say how wide "±" is.',
        "",
    ]
    (OUT / "coverage.md").write_text("\n".join(lines))
    (OUT / "coverage.json").write_text(json.dumps(rows, indent=1) + "\n")
    record("coverage", "python experiments/coverage.py")
    print("\n".join(lines))


def plot(drawn: dict[str, np.ndarray], of: dict[str, float], name: str) -> None:
    figure = Figure(figsize=(7.2, 5.4), layout="constrained")
    panels = figure.subplots(3, 1, sharex=True)
    bins = np.geomspace(0.1, 10, 101)
    colours = {"plain": "#c0392b", "gnss": "#e08e0b", "majorant": "#1f5fa8"}
    for axes, (way, numbers) in zip(panels, drawn.items(), strict=True):
        ratio = np.clip(numbers / of[way], bins[0], bins[-1])
        axes.hist(ratio, bins=bins, color=colours[way], alpha=0.85)
        axes.axvline(1.0, color="black", lw=1.5)
        share = float((numbers < of[way]).mean())
        axes.set_title(f"{WAYS[way]}: below the truth in {share:.2%} of {numbers.size:,}", fontsize=10, loc="left")
        axes.set_ylabel("releases")
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    for x, words in ((1.03, "the truth"), (0.106, "0.1 or less, or negative")):
        panels[0].text(x, 0.85, words, transform=panels[0].get_xaxis_transform(), fontsize=9)
    ticks = [0.1, 0.2, 0.5, 1, 2, 5, 10]
    panels[-1].set(
        xscale="log", xlim=(bins[0], bins[-1]), xlabel="number released / true Rényi cost (nats per nat, log scale)"
    )
    panels[-1].set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    figure.suptitle(f"{QUERIES} answers, {name}; a failure is allowed in {DELTA_RELEASE:.0%} of releases", fontsize=11)
    OUT.mkdir(parents=True, exist_ok=True)
    for ending in ("png", "svg"):
        figure.savefig(OUT / f"coverage.{ending}", dpi=150)


if __name__ == "__main__":
    main()
