"""Figures. They take public numbers, or secret numbers that the owner has revealed; these are labeled as secret."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from terrine._files import write_atomically
from terrine.accounting.consensus import Consensus
from terrine.errors import InputError, MissingDependencyError
from terrine.release.analysis import Analysis

FORMATS = (".png", ".svg", ".pdf")
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
        raise InputError(f"Expected a plot file that ends in {', '.join(FORMATS)}, got {path.name}.")
    figure = _figure()
    axes = figure.subplots()
    queries, revealed = lines.queries, lines.revealed
    if lines.gaussian is not None:
        axes.plot(
            queries, lines.gaussian, color=_COLOURS["gaussian"], ls="--", label="worst case, whole noisy histogram"
        )
    axes.plot(queries, lines.worst_case, color=_COLOURS["argmax"], lw=2, label="worst case, winner only (publishable)")
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
        raise InputError(f"Expected a plot file that ends in {', '.join(FORMATS)}, got {path.name}.")
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


def _figure() -> Any:
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingDependencyError(
            "Plots need matplotlib, which is not installed. Install it with: pip install 'terrine[report]'"
        ) from None
    figure = Figure(figsize=(7.2, 4.3), layout="constrained")
    FigureCanvasAgg(figure)
    return figure
