"""Cost of one answer against the gap between the two largest counts: the figure of docs/concepts.md.

Run: python experiments/cost_by_gap.py
Writes docs/results/cost_by_gap.png, .svg and .json.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from provenance import record

from terrine.accounting.argmax import rdp_argmax
from terrine.accounting.exact import rdp_gnmax_exact
from terrine.accounting.theorems import log_q_gaussian, rdp_gnmax

OUT = Path(__file__).parents[1] / "docs" / "results"
TEACHERS, CLASSES, SIGMA, ORDER = 250, 10, 40.0, 14.0


def main() -> None:
    gaps = np.arange(0, TEACHERS + 1, 2)
    counts = np.zeros((gaps.size, CLASSES), dtype=np.int64)
    counts[:, 0], counts[:, 1] = (TEACHERS + gaps) // 2, (TEACHERS - gaps) // 2
    lines = {
        "whole noisy histogram, λ/σ²": np.full(gaps.size, ORDER / SIGMA**2),
        "winner only, worst case (if fixed beforehand)": np.full(gaps.size, rdp_argmax(sigma=SIGMA, orders=ORDER)[0]),
        "the paper's bound (secret)": rdp_gnmax(log_q_gaussian(counts, sigma=SIGMA), sigma=SIGMA, orders=ORDER)[:, 0],
        "exact (secret)": rdp_gnmax_exact(counts, sigma=SIGMA, orders=ORDER)[:, 0],
    }
    figure = Figure(figsize=(7.2, 4.3), layout="constrained")
    axes = figure.subplots()
    styles = (("#9aa5b1", "--"), ("#1f5fa8", "-"), ("#e08e0b", "-"), ("#c0392b", "-"))
    for (label, values), (colour, style) in zip(lines.items(), styles, strict=True):
        axes.plot(gaps, values, label=label, color=colour, ls=style, lw=2)
    axes.set(
        xlabel="votes between the first and the second class",
        ylabel=f"Rényi cost of one answer at order {ORDER:g} (nats)",
        title=f"{TEACHERS} teachers, noise of {SIGMA:g} votes",
        yscale="log",
        ylim=(1e-7, 2e-2),
        xlim=(0, TEACHERS),
    )
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="lower left")
    OUT.mkdir(parents=True, exist_ok=True)
    for ending in ("png", "svg"):
        figure.savefig(OUT / f"cost_by_gap.{ending}", dpi=150)
    rows = {"gap": gaps.tolist()} | {label: values.tolist() for label, values in lines.items()}
    (OUT / "cost_by_gap.json").write_text(json.dumps(rows) + "\n")
    record("cost_by_gap", "python experiments/cost_by_gap.py")
    at = int(np.searchsorted(gaps, 100))
    for label, values in lines.items():
        print(f"{label}: {values[0]:.3g} at a tie, {values[at]:.3g} at a gap of 100")


if __name__ == "__main__":
    main()
