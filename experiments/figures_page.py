"""Pictures and page of figures.py, from its JSON."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.ticker import LogLocator, NullFormatter, PercentFormatter
from votesets import (
    BLUE,
    DELTA,
    DRAWS,
    GREY,
    ORANGE,
    QUERIES,
    RED,
    at_accuracy,
    canvas,
    files_table,
    markdown,
    save,
)

from terrine.accounting.curves import round_up


def plain_numbers(axis: Any) -> None:
    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter(NullFormatter())


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
        middle.set(ylabel=f"ε at δ = {DELTA[panel['votes']['task']]:g}", ylim=(0, None))
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
            ("gnmax", "worst", BLUE, "--", "GNMax, worst case (if fixed beforehand)"),
            ("gnmax", "epsilon", ORANGE, "-", "GNMax, paper's bound"),
            ("gnmax", "exact", RED, "-", "GNMax, exact"),
        ):
            rows = panel[mechanism]
            x, y = [row[key] for row in rows], [row["accuracy"] for row in rows]
            each.plot(x, y, color=colour, ls=style, marker="o", ms=4, lw=1.8, label=label)
        each.axhline(panel["plurality"], color="#5b6672", lw=1, ls=":")
        each.set(xscale="log", xlabel=f"ε of {QUERIES:,} answers", ylabel="answers that are right")
        each.set_title(f"{panel['votes']['name']} (dotted: without noise)", fontsize=11)
        plain_numbers(each.xaxis)
        each.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    axes[0][1].legend(frameon=False, fontsize=8, loc="lower right", handlelength=4)
    save(figure, "figures_noise")


def draw_teachers(ensembles: list[dict[str, Any]]) -> None:
    tasks = {task: [e for e in ensembles if e["votes"]["task"] == task] for task in DELTA}
    figure, axes = canvas(2, 2, size=(11, 7.6))
    for row, (task, found) in zip(axes, tasks.items(), strict=True):
        shades = colormaps["viridis"](np.linspace(0.85, 0.05, len(found))) if len(found) > 1 else [BLUE]
        for each, key, title in zip(
            row, ("epsilon", "worst"), ("paper's bound", "worst case (if fixed beforehand)"), strict=True
        ):
            for ensemble, shade in zip(found, shades, strict=True):
                x = [point[key] for point in ensemble["gnmax"]]
                y = [point["accuracy"] for point in ensemble["gnmax"]]
                label = f"{ensemble['votes']['teachers']:,} teachers"
                each.plot(x, y, color=shade, marker="o", ms=3.5, lw=1.8, label=label)
            each.set(xscale="log", xlabel=f"ε of {QUERIES:,} answers", ylabel="answers that are right")
            each.set_title(f"{task}, GNMax, {title}", fontsize=11)
            least = min(ensemble["plurality"] for ensemble in found) - 0.15
            shown = [p[key] for e in found for p in e["gnmax"] if p["accuracy"] > least and p[key] < 30]
            most = max(ensemble["plurality"] for ensemble in found) + 0.01
            each.set(ylim=(least, most), xlim=(0.7 * min(shown), 1.4 * max(shown)))
            plain_numbers(each.xaxis)
            each.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
        row[1].legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    save(figure, "figures_teachers")


def draw_check(panels: list[dict[str, Any]]) -> None:
    figure, axes = canvas(1, 2, size=(11, 5))
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
        costs.set(yscale="log", ylim=(1e-24, 1), ylabel=f"Rényi cost at order {panel['order']:.1f} (nats)")
        both = zip(each.get_legend_handles_labels(), costs.get_legend_handles_labels(), strict=True)
        legend = [bars + dots for bars, dots in both]
    figure.legend(*legend, loc="outside lower center", ncols=3, frameon=False, fontsize=9)
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


PAGE = """# The paper's figures, from votes

*Accuracy* is the share of right answers, not the accuracy of a student. ε is by the tight conversion, rounded up, at δ
= 1e-8 (Glyph) or 1e-5 (MNIST). The paper's bound and the exact cost depend on the votes: with private data they are
secret, and they are not guarantees; here the votes are on public data. The worst case holds for any; here it is by
Rényi bounds, like the rest ([privacy profiles](../math.md#the-profile-accountant), as a budget is charged today, take
off 5 to 9%). How often answers are right is a mean over {draws} draws of seeded noise; expected numbers of answers are
sums of probabilities.

```
python experiments/figures.py --votes FOLDER
```

Made from these files (*a teacher is right* and *mean top vote* are over all questions of a file):

{files}

## As questions are answered

![accuracy, epsilon and consensus as questions are answered](figures_progress.png)

{progress}

LNMax answers every question. On Glyph its scale is the one with the smallest ε whose accuracy is within a point of the
plurality's; on MNIST it is the paper's 20. Confident-GNMax has T, σ₁, σ₂ = 0.7 M, 0.3 M, 0.02 M with M teachers (Glyph,
the paper's round one) or 200, 150, 40 (MNIST, the paper's Table 1). Such a small σ₂ suits a cost that depends on the
votes. With noise chosen for the worst case, the same number of answers costs a far smaller ε on Glyph
(where fewer answers are then right), and at a slightly smaller ε with MNIST's 250 teachers: see
[the claims](claims.md). A student's accuracy while it is trained: [small nets](paper_small.md), by number of answers:
[Glyph](paper_glyph.md#as-answers-come-in-figure-1-left-figure-4-right).

## Noise

![utility against privacy over noise scales](figures_noise.png)

{noise}

ε of 4,000 answers at equal accuracy, interpolated between two noise scales. By the paper's bound more noise can cost
more, near the noise at which the bound starts to apply: there its curve turns back. The exact cost does not jump.

## Teachers

![utility against privacy by number of teachers](figures_teachers.png)

{teachers}

ε of 4,000 GNMax answers at an accuracy that every ensemble of the task reaches. MNIST: class-mean teachers on features
that were learned from public images; they share 60,000 images, so more teachers have fewer images each. "–": this
accuracy was not reached with the noise scales tried.

## What a check lets through

![plurality votes, checks and costs](figures_check.png)

{check}

The expected shares of questions that pass, with T = 0.7 M (moderate) or T = M (aggressive), σ₁ = 0.3 M. Costs are means
over the questions of a row, in nats at one order ({orders}), of one GNMax answer with σ₂ = 0.02 M.

## Selecting and answering

![epsilon of selecting and of answering](figures_selection.png)

{selection}

Shares are of the Rényi cost at the best order. By the paper's expectation, an answer on which the teachers agree costs
next to nothing, so checks are a large part of the cost. By worst case every answer costs the same, and checks with σ₁
fifteen times σ₂ cost next to nothing in comparison.
"""


def page(results: dict[str, Any]) -> str:
    eps = round_up

    def tiny(value: float) -> str:
        return f"{value:.1e}" if value > 1e-20 else "< 1e-20"

    def maybe(value: float) -> str:
        return eps(value) if value == value else "–"

    rows = []
    for panel in results["progress"]:
        plain, gauss, n = panel["lnmax"], panel["gnmax"], len(panel["answers"])
        for i in (n // 4 - 1, n // 2 - 1, n - 1):
            rows.append(
                [
                    panel["votes"]["name"],
                    f"{panel['answers'][i]:,}",
                    f"{plain['accuracy'][i]:.1%}",
                    eps(plain["epsilon"][i]),
                    f"{panel['queries'][i]:,}",
                    f"{gauss['accuracy'][i]:.1%}",
                    *(eps(gauss[key][i]) for key in ("epsilon", "exact", "worst")),
                ]
            )
    progress_table = markdown(
        ["votes", "answers", "LNMax: right", "ε (2017 bound)", "Confident: queries", "right", "ε, paper's", "ε, exact",
         "ε, worst case"],
        rows,
    )  # fmt: skip
    columns = {
        "LNMax, 2017 bound": ("lnmax", "epsilon"),
        "GNMax, paper's bound": ("gnmax", "epsilon"),
        "GNMax, exact": ("gnmax", "exact"),
        "LNMax, worst case": ("lnmax", "worst"),
        "GNMax, worst case": ("gnmax", "worst"),
    }
    rows = [
        [
            panel["votes"]["name"],
            f"{panel['plurality'] - below:.1%}",
            *(maybe(at_accuracy(panel[name], key, panel["plurality"] - below)) for name, key in columns.values()),
        ]
        for panel in results["noise"]
        for below in (0.01, 0.03)
    ]
    noise_table = markdown(["votes", "right", *columns], rows)
    rows = []
    for task in DELTA:
        found = [e for e in results["teachers"] if e["votes"]["task"] == task]
        target = min(e["plurality"] for e in found) - 0.02
        for e in found:
            values = (maybe(at_accuracy(e["gnmax"], key, target)) for key in ("epsilon", "worst"))
            rows.append([e["votes"]["name"], f"{e['votes']['mean_accuracy']:.1%}", f"{target:.1%}", *values])
    header = ["votes", "a teacher is right", "answers right", "ε, paper's bound", "ε, worst case (if fixed beforehand)"]
    teachers_table = markdown(header, rows)
    rows = []
    for panel in results["check"]:
        for low, high in ((0, 10), (10, 14), (14, 18), (18, 20)):
            queries = np.array(panel["queries"][low:high])
            if not (total := queries.sum()):
                continue

            def mean(values: list[Any], low: int = low, high: int = high, queries: Any = queries) -> float:
                return float(np.array([v or 0.0 for v in values[low:high]]) @ queries / queries.sum())

            through = [np.sum(panel[key][low:high]) / total for key in ("moderate", "aggressive")]
            rows.append(
                [
                    panel["votes"]["name"],
                    f"{low / 20:.0%} to {high / 20:.0%}",
                    f"{total:,}",
                    *(f"{share:.1%}" for share in through),
                    f"{mean(panel['right']):.1%}",
                    *(tiny(mean(panel["cost"][key])) for key in ("paper", "exact")),
                    f"{panel['worst']:.1e}",
                ]
            )
    check_table = markdown(
        ["votes", "teachers behind the top class", "queries", "moderate lets through", "aggressive",
         "plurality is right", "an answer costs, paper's bound", "exact", "worst case"],
        rows,
    )  # fmt: skip
    rows = []
    for panel in results["selection"]["panels"]:
        for row in (panel["rows"][len(panel["rows"]) // 2 - 1], panel["rows"][-1]):
            share = row["checks"] / (row["checks"] + row["answers_cost"])
            rows.append(
                [panel["title"], f"{row['queries']:,}", f"{row['answers']:,.0f}", eps(row["epsilon"]), f"{share:.1%}"]
            )
    selection_table = markdown(["", "queries", "answers", "ε", "of the Rényi cost, checks take"], rows)
    everything = [part["votes"] for name in ("progress", "noise", "teachers", "check") for part in results[name]]
    return PAGE.format(
        draws=DRAWS,
        files=files_table(everything),
        progress=progress_table,
        noise=noise_table,
        teachers=teachers_table,
        check=check_table,
        selection=selection_table,
        orders=", ".join(f"{p['order']:.1f} for {p['votes']['task']}" for p in results["check"]),
    )
