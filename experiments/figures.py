"""The paper's figures again, from votes: ours on Glyph and MNIST (both public), and the paper's own on MNIST.

Run: python experiments/figures.py --votes FOLDER            (all; some five minutes on one core)
     python experiments/figures.py --votes FOLDER --only noise
     python experiments/figures.py --draw                    (page and pictures again, from the JSON)
FOLDER has votes_glyph_<teachers>.npz (counts, labels) and mnist_votes.npz (votes_features_<teachers>, on the first 9,000
test images); whatever of these is there is used. The paper's votes and MNIST's labels are under $TERRINE_DATA.
Writes docs/results/figures.md and .json, and a picture figures_<name>.png and .svg for each of FIGURES.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.ticker import PercentFormatter
from votesets import (
    BLUE,
    DELTA,
    FEW,
    GREY,
    ORANGE,
    OUT,
    RED,
    WIDE,
    Array,
    VoteSet,
    at_accuracy,
    canvas,
    chance_right,
    confident,
    epsilon,
    files_table,
    glyph_sets,
    markdown,
    mnist_sets,
    paper_mnist,
    pr_answered,
    save,
    tidy,
)

from terrine import ConfidentGNMax, GNMax, LNMax, worst_case_cost
from terrine.accounting.argmax import rdp_argmax
from terrine.accounting.costs import cost, expected_cost, running_cost
from terrine.accounting.curves import epsilons_at, round_up
from terrine.accounting.exact import rdp_gnmax_exact
from terrine.accounting.theorems import log_q_gaussian, rdp_gnmax

QUERIES = 4_000  # as in the paper's figure of noise scales


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
            costs = running_cost(mechanism, part.votes, stops=list(stops), **how)
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


def tradeoff(votes: VoteSet, shares: Array, *, exact: bool) -> dict[str, list[dict[str, float]]]:
    """LNMax and GNMax on the first queries, over noise scales (as shares of the teachers)."""
    part = votes.first(QUERIES)
    rows: dict[str, list[dict[str, float]]] = {"lnmax": [], "gnmax": []}
    for scale in shares * part.votes.n_teachers:
        plain, gauss = LNMax(scale=scale), GNMax(sigma=scale)
        for name, mechanism in (("lnmax", plain), ("gnmax", gauss)):
            row = {
                "scale": scale,
                "accuracy": chance_right(mechanism, part).mean(),
                "epsilon": epsilon(expected_cost(mechanism, part.votes, orders=WIDE), delta=part.delta),
                "worst": epsilon(worst_case_cost(mechanism, n_queries=QUERIES, orders=WIDE), delta=part.delta),
            }
            if exact and name == "gnmax":
                row["exact"] = epsilon(cost(mechanism, part.votes, orders=FEW), delta=part.delta)
            rows[name].append(row)
    return rows


def noise(glyph: dict[int, VoteSet], mnist: dict[int, VoteSet]) -> list[dict[str, Any]]:
    """Utility against privacy over noise scales; the paper has 1,000 teachers there."""
    near = glyph[min(glyph, key=lambda n: abs(np.log(n / 1_000)))]
    return [
        {"votes": near.about(), **tradeoff(near, np.geomspace(0.005, 0.12, 10), exact=True)},
        {"votes": paper_mnist().about(), **tradeoff(paper_mnist(), np.geomspace(0.04, 0.8, 10), exact=True)},
    ]


def teachers(glyph: dict[int, VoteSet], mnist: dict[int, VoteSet]) -> list[dict[str, Any]]:
    """GNMax over noise scales, by number of teachers."""
    return [
        {"votes": votes.about(), "gnmax": tradeoff(votes, np.geomspace(0.003, 0.6, 14), exact=False)["gnmax"]}
        for sets in (glyph, mnist)
        for votes in sets.values()
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
            both = running_cost(mechanism, votes.votes, stops=stops, orders=WIDE, accountant="paper", expected=True)
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
    costs = running_cost(plain, votes.votes, stops=list(stops), orders=WIDE)
    line = {"scale": plain.scale, "answers": stops, "epsilon": [epsilon(rdp, delta=delta) for rdp in costs]}
    return {"votes": votes.about(), "panels": panels, "lnmax": line}


FIGURES = {"progress": progress, "noise": noise, "teachers": teachers, "check": check, "selection": selection}


def draw_progress(panels: list[dict[str, Any]]) -> None:
    figure, axes = canvas(2, 3, size=(11, 6.4))
    for (left, middle, right), panel in zip(axes, panels, strict=True):
        plain, gauss, x = panel["lnmax"], panel["gnmax"], panel["answers"]
        left.plot(x, plain["accuracy"], color=GREY, lw=2, label=f"LNMax, scale {panel['lnmax_scale']:.0f}")
        left.plot(x, gauss["accuracy"], color=ORANGE, lw=2, label="Confident-GNMax")
        left.set(ylabel="answers that are right", title=panel["votes"]["name"])
        left.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
        middle.plot(x, plain["epsilon"], color=GREY, lw=2, label="LNMax, 2017 bound")
        for key, colour, label in (
            ("worst", BLUE, "Confident, worst case"),
            ("epsilon", ORANGE, "Confident, paper's"),
            ("exact", RED, "Confident, exact"),
        ):
            middle.plot(x, gauss[key], color=colour, lw=2, label=label)
        middle.set(ylabel=f"ε at δ = {DELTA[panel['votes']['name'].split(',')[0]]:g}", ylim=(0, None))
        places = np.arange(10) * 0.1 + 0.05
        right.bar(places - 0.02, plain["consensus"], width=0.04, color=GREY, label="LNMax")
        right.bar(places + 0.02, gauss["consensus"], width=0.04, color=ORANGE, label="Confident-GNMax")
        right.set(xlabel="teachers behind the top class", ylabel="share of the answers")
        for each in (left, middle):
            each.set(xlabel="answers", xlim=(0, None))
        for each, place in ((left, "best"), (middle, "upper left"), (right, "upper left")):
            each.legend(frameon=False, fontsize=8, loc=place)
    save(figure, "figures_progress")


def draw_noise(panels: list[dict[str, Any]]) -> None:
    figure, axes = canvas(1, 2, size=(11, 4.3))
    for each, panel in zip(axes[0], panels, strict=True):
        for mechanism, key, colour, style, label in (
            ("lnmax", "worst", GREY, "--", "LNMax, worst case"),
            ("lnmax", "epsilon", GREY, "-", "LNMax, 2017 bound"),
            ("gnmax", "worst", BLUE, "--", "GNMax, worst case (publishable)"),
            ("gnmax", "epsilon", ORANGE, "-", "GNMax, paper's bound"),
            ("gnmax", "exact", RED, "-", "GNMax, exact"),
        ):
            rows = panel[mechanism]
            x, y = [row[key] for row in rows], [row["accuracy"] for row in rows]
            each.plot(x, y, color=colour, ls=style, marker="o", ms=4, lw=1.8, label=label)
        each.axhline(panel["votes"]["plurality"], color="#5b6672", lw=1, ls=":")
        each.set(xscale="log", xlabel=f"ε of {QUERIES:,} answers", ylabel="answers that are right")
        each.set_title(f"{panel['votes']['name']} (dots: plurality without noise)", fontsize=11)
        each.xaxis.set_major_formatter("{x:g}")
        each.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    axes[0][1].legend(frameon=False, fontsize=8, loc="lower right")
    save(figure, "figures_noise")


def draw_teachers(ensembles: list[dict[str, Any]]) -> None:
    tasks = {task: [e for e in ensembles if e["votes"]["name"].startswith(task)] for task in DELTA}
    figure, axes = canvas(2, 2, size=(11, 7.6))
    for row, (task, found) in zip(axes, tasks.items(), strict=True):
        shades = colormaps["viridis"](np.linspace(0.85, 0.05, len(found))) if len(found) > 1 else [BLUE]
        for each, key, title in zip(
            row, ("epsilon", "worst"), ("paper's bound", "worst case (publishable)"), strict=True
        ):
            for ensemble, shade in zip(found, shades, strict=True):
                x = [point[key] for point in ensemble["gnmax"]]
                y = [point["accuracy"] for point in ensemble["gnmax"]]
                label = f"{ensemble['votes']['teachers']:,} teachers"
                each.plot(x, y, color=shade, marker="o", ms=3.5, lw=1.8, label=label)
            each.set(xscale="log", xlabel=f"ε of {QUERIES:,} answers", ylabel="answers that are right")
            each.set_title(f"{task}, GNMax, {title}", fontsize=11)
            each.xaxis.set_major_formatter("{x:g}")
            each.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
        row[0].legend(frameon=False, fontsize=8, loc="lower right")
    save(figure, "figures_teachers")


def draw_check(panels: list[dict[str, Any]]) -> None:
    figure, axes = canvas(1, 2, size=(11, 4.6))
    for each, panel in zip(axes[0], panels, strict=True):
        m = panel["votes"]["teachers"]
        places, width = (np.arange(20) + 0.5) * m / 20, m / 20 * 0.9
        for key, colour, label in (
            ("queries", "#d5dbe1", "all queries (LNMax answers them)"),
            ("moderate", "#7fa8d6", "moderate check, T = 0.7 M"),
            ("aggressive", BLUE, "aggressive check, T = M"),
        ):
            each.bar(places, panel[key], width=width, color=colour, label=label)
        each.set(xlabel="teachers behind the top class", ylabel="queries", title=panel["votes"]["name"])
        costs = each.twinx()
        costs.spines["top"].set_visible(False)
        for key, colour, label in (
            ("paper", "black", "one answer, paper's bound"),
            ("exact", RED, "one answer, exact"),
        ):
            costs.plot(places, [v if v else np.nan for v in panel["cost"][key]], "o", ms=4, color=colour, label=label)
        costs.axhline(panel["worst"], color="#5b6672", lw=1, ls="--", label="one answer, worst case")
        costs.set(yscale="log", ylim=(1e-9, 1), ylabel=f"Rényi cost at order {panel['order']:.1f} (nats)")
        handles = [
            h + g for h, g in zip(each.get_legend_handles_labels(), costs.get_legend_handles_labels(), strict=True)
        ]
        each.legend(*handles, frameon=False, fontsize=8, loc="upper left")
        each.set_ylim(0, 1.45 * max(panel["queries"]))
    save(figure, "figures_check")


def draw_selection(result: dict[str, Any]) -> None:
    figure, axes = canvas(1, 3, size=(11, 4.2))
    last = max(row["answers"] for panel in result["panels"] for row in panel["rows"])
    for each, panel in zip(axes[0], result["panels"], strict=True):
        x, eps, checks, answers = (
            [0.0, *(row[key] for row in panel["rows"])] for key in ("answers", "epsilon", "checks", "answers_cost")
        )
        both = np.add(checks, answers)
        each.fill_between(x, checks, color="#1d2733", label="selecting (checks)")
        each.fill_between(x, both, checks, color="#7fa8d6", label="answering")
        each.fill_between(x[1:], eps[1:], both[1:], color="#e3e8ed", label="the step from Rényi to (ε, δ)")
        if "paper" in panel["title"]:
            line = result["lnmax"]
            each.plot(line["answers"], line["epsilon"], color=GREY, lw=2, label="LNMax, 2017 bound")
        each.set(xlabel="answers", ylabel=f"ε at δ = {DELTA['Glyph']:g}", xlim=(0, last), ylim=(0, None))
        each.set_title(panel["title"], fontsize=10)
        each.legend(frameon=False, fontsize=8, loc="upper left")
    figure.suptitle(result["votes"]["name"], fontsize=11)
    save(figure, "figures_selection")


DRAWN = {
    "progress": draw_progress,
    "noise": draw_noise,
    "teachers": draw_teachers,
    "check": draw_check,
    "selection": draw_selection,
}


def page(results: dict[str, Any]) -> str:
    return ""


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
    print(page(results))


if __name__ == "__main__":
    main()
