"""Figures. They take public numbers, or secret numbers that the owner has revealed; these are labeled as secret."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from terrine._files import write_atomically
from terrine._optional import require
from terrine.accounting.advice import LOST_SIGNAL, WEAK_SIGNAL
from terrine.accounting.consensus import Consensus
from terrine.errors import InputError
from terrine.release.analysis import Analysis

FORMATS = (".png", ".svg", ".pdf")
_SERIES = ("#1f5fa8", "#c77c11", "#2e7d4f", "#7a4fa3", "#b0413e", "#4c5a67")
_COLOURS = {"gaussian": "#9aa5b1", "argmax": "#1f5fa8", "secret": "#c0392b"}


def plot_analysis(found: Analysis, path: Path) -> None:
    """Epsilon after each question: the worst cases (public) and, if revealed, the data-dependent cost (secret).

    Args:
        found: made with ``n_points``.
        path: where to; .png, .svg or .pdf.
    """
    lines = found.by_query
    if lines is None:
        raise InputError("A plot needs an analysis by query: make it with n_points above 0.")
    if path.suffix.lower() not in FORMATS:
        raise InputError(f"A plot file must end in {', '.join(FORMATS)}, got {path.name}.")
    figure = _figure()
    axes = figure.subplots()
    queries, revealed = lines.queries, lines.revealed
    if lines.gaussian is not None:
        axes.plot(
            queries, lines.gaussian, color=_COLOURS["gaussian"], ls="--", label="worst case, whole noisy histogram"
        )
    axes.plot(
        queries, lines.worst_case, color=_COLOURS["argmax"], lw=2, label="worst case, winner only (if fixed beforehand)"
    )
    if revealed is not None and found.on_these_votes is not None:
        label = f"on these votes, {found.on_these_votes.accountant} accountant (secret)"
        axes.plot(queries, revealed, color=_COLOURS["secret"], lw=2, label=label)
        axes.annotate(
            "secret: the red line depends on private votes",
            (0.99, 0.02),
            xycoords="axes fraction",
            ha="right",
            fontsize=9,
            color=_COLOURS["secret"],
        )
    axes.set(xlabel="questions put to the teachers", ylabel=f"ε at δ = {found.delta:g} (lower is more private)")
    axes.set_title(f"{type(found.mechanism).__name__}, {found.n_teachers:,} teachers, {found.n_classes} classes")
    axes.set_xlim(0, queries[-1])
    axes.set_ylim(0)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="upper left")
    mode = None if revealed is None else 0o600
    write_atomically(path, lambda file: figure.savefig(file, format=path.suffix.lower()[1:], dpi=150), mode=mode)


def consensus_histogram(found: Consensus, path: Path) -> None:
    """Questions by the share of teachers that chose the top class; for the owner only, and marked as secret."""
    if path.suffix.lower() not in FORMATS:
        raise InputError(f"A plot file must end in {', '.join(FORMATS)}, got {path.name}.")
    figure = _figure()
    axes = figure.subplots()
    edges = np.asarray(found.edges)
    axes.bar(edges[:-1], found.queries, width=np.diff(edges), align="edge", color=_COLOURS["secret"])
    axes.set_xlabel("share of teachers that chose the top class")
    axes.set_ylabel("questions")
    axes.set_title(
        "How well the teachers agree\nSECRET: depends on private votes", fontsize=10, color=_COLOURS["secret"]
    )
    axes.spines[["top", "right"]].set_visible(False)
    write_atomically(path, lambda file: figure.savefig(file, format=path.suffix[1:].lower(), dpi=150), mode=0o600)


def rehearsal_plot(facts: dict[str, Any], path: Path) -> None:
    """The student's accuracy by epsilon, a line for each number of teachers, as `Rehearsal.to_json` gives them."""
    check_plot(path)
    figure = _figure()
    axes = figure.subplots()
    teams = sorted({one["n_teachers"] for one in facts["cells"]})
    for place, m in enumerate(teams):
        mine = [one for one in facts["cells"] if one["n_teachers"] == m and one["student_accuracy"] is not None]
        mine.sort(key=lambda one: one["epsilon"])
        right = np.array([one["student_accuracy"] for one in mine])
        axes.errorbar(
            np.array([one["epsilon"] for one in mine]) * 1.03 ** (place - (len(teams) - 1) / 2),  # side by side
            right,
            yerr=1.96 * np.sqrt(right * (1 - right) / facts["n_test"]),
            color=_SERIES[place % len(_SERIES)],
            marker="os^Dv<>"[place % 7],
            capsize=3,
            label=f"{m:,} teachers"
            if not mine
            else f"{m:,} teachers of {mine[0]['rows_per_teacher']:,} rows, {mine[0]['consensus']:.0%} agree",
        )
    if facts["without_privacy"] is not None:
        axes.axhline(
            facts["without_privacy"],
            color=_COLOURS["gaussian"],
            ls="--",
            label="same learner on the true labels, without privacy",
        )
    axes.set_xscale("log")
    epsilons = sorted({one["epsilon"] for one in facts["cells"]})
    axes.set_xticks(epsilons, [f"{epsilon:g}" for epsilon in epsilons])
    axes.minorticks_off()
    axes.set(
        xlabel=f"ε at δ = {facts['delta']:g} (lower is more private)",
        ylabel=f"student right on {facts['n_test']:,} rows (bars: 95%)",
        title=f"Rehearsal on {facts['n_labelled']:,} labeled public rows (simulated noise)",
    )
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:.1%}")
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(frameon=False, fontsize=9, loc="outside lower center", ncols=2)
    write_atomically(path, lambda file: figure.savefig(file, format=path.suffix.lower()[1:], dpi=150))


def check_plot(path: Path) -> None:
    """Refuse a plot that could not be written, before hours are spent on what it shows."""
    if path.suffix.lower() not in FORMATS:
        raise InputError(f"A plot file must end in {', '.join(FORMATS)}, got {path.name}.")
    _figure()


def _figure() -> Any:
    agg = require("matplotlib.backends.backend_agg", use="A plot", extra="report")
    figure = require("matplotlib.figure", use="A plot", extra="report").Figure(figsize=(7.2, 4.3), layout="constrained")
    agg.FigureCanvasAgg(figure)
    return figure


@dataclass(frozen=True, kw_only=True)
class SignalLine:
    """What a number of units says over a probe's noise, by epsilon: public.

    Attributes:
        here: epsilon and signal of the plan at hand.
        relation: what neighbors differ in, in words.
    """

    epsilons: tuple[float, ...]
    signals: tuple[float, ...]
    here: tuple[float, float]
    units: int
    relation: str


def signal_plot(line: SignalLine, path: Path) -> None:
    """The signal by epsilon, over the bands in which noise hides everything, or much."""
    figure = _figure()
    axes = figure.subplots()
    low, high = min(line.signals) / 2, max(*line.signals, WEAK_SIGNAL) * 2
    low = min(low, LOST_SIGNAL / 2)
    bands = ((low, LOST_SIGNAL, "noise hides it", 0.45), (LOST_SIGNAL, WEAK_SIGNAL, "learns little", 0.25))
    for bottom, top, words, alpha in bands:
        axes.axhspan(bottom, top, color=_COLOURS["gaussian"], alpha=alpha, lw=0)
        axes.annotate(words, (0.99, np.sqrt(bottom * top)), xycoords=("axes fraction", "data"), ha="right", va="center")
    axes.plot(line.epsilons, line.signals, color=_SERIES[0], lw=2)
    axes.plot(*line.here, "o", color=_SERIES[0], ms=8)
    axes.annotate(f"this plan, ε = {line.here[0]:.3g}", line.here, xytext=(8, -14), textcoords="offset points")
    axes.set(
        xscale="log", yscale="log", xlabel="ε (lower is more private)", ylabel="strength of all units over the noise"
    )
    axes.set_xlim(line.epsilons[0], line.epsilons[-1])
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_ylim(low, high)
    axes.set_title(f"What {line.units:,} units can teach a probe\n{line.relation}", fontsize=11)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    write_atomically(path, lambda file: figure.savefig(file, format=path.suffix.lower()[1:], dpi=150))
