"""Figures. They take public numbers, or secret numbers that the owner has revealed; these are labeled as secret."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from terrine._files import write_atomically
from terrine._optional import require
from terrine.errors import InputError

Array = NDArray[np.float64]

FORMATS = (".png", ".svg", ".pdf")
_COLOURS = {"gaussian": "#9aa5b1", "argmax": "#1f5fa8", "secret": "#c0392b"}


def epsilon_by_query(
    path: Path,
    *,
    queries: NDArray[np.int64],
    worst_case: Array,
    gaussian: Array | None,
    revealed: Array | None,
    revealed_label: str,
    delta: float,
    title: str,
) -> None:
    """Epsilon after each question: the worst cases (public) and, if given, the data-dependent cost (secret).

    Args:
        path: where to; .png, .svg or .pdf.
        queries: (n_points,) how many questions had been asked.
        worst_case, gaussian, revealed: (n_points,) epsilons; None leaves a line out.
    """
    if path.suffix.lower() not in FORMATS:
        raise InputError(f"Expected a plot file that ends in {', '.join(FORMATS)}, got {path.name}.")
    figure = _figure()
    axes = figure.subplots()
    if gaussian is not None:
        axes.plot(queries, gaussian, color=_COLOURS["gaussian"], ls="--", label="worst case, whole noisy histogram")
    axes.plot(queries, worst_case, color=_COLOURS["argmax"], lw=2, label="worst case, winner only (publishable)")
    if revealed is not None:
        axes.plot(queries, revealed, color=_COLOURS["secret"], lw=2, label=revealed_label)
        axes.annotate(
            "secret: the red line depends on private votes",
            (0.99, 0.02),
            xycoords="axes fraction",
            ha="right",
            fontsize=9,
            color=_COLOURS["secret"],
        )
    axes.set(xlabel="questions put to the teachers", ylabel=f"ε at δ = {delta:g} (lower is more private)", title=title)
    axes.set_xlim(0, int(queries[-1]))
    axes.set_ylim(0)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="upper left")
    mode = None if revealed is None else 0o600
    write_atomically(path, lambda file: figure.savefig(file, format=path.suffix.lower()[1:], dpi=150), mode=mode)


def consensus_histogram(histogram: dict[str, Any], path: Path) -> None:
    """Questions by the share of teachers that chose the top class; for the owner only, and marked as secret."""
    if path.suffix.lower() not in FORMATS:
        raise InputError(f"Expected a plot file that ends in {', '.join(FORMATS)}, got {path.name}.")
    figure = _figure()
    axes = figure.subplots()
    edges = np.asarray(histogram["edges"])
    axes.bar(edges[:-1], histogram["queries"], width=np.diff(edges), align="edge", color=_COLOURS["secret"])
    axes.set_xlabel("share of teachers that chose the top class")
    axes.set_ylabel("questions")
    axes.set_title(
        "How well the teachers agree\nSECRET: depends on private votes", fontsize=10, color=_COLOURS["secret"]
    )
    axes.spines[["top", "right"]].set_visible(False)
    write_atomically(path, lambda file: figure.savefig(file, format=path.suffix[1:].lower(), dpi=150), mode=0o600)


def _figure() -> Any:
    agg = require("matplotlib.backends.backend_agg", use="A plot", extra="report")
    figure = require("matplotlib.figure", use="A plot", extra="report").Figure(figsize=(7.2, 4.3), layout="constrained")
    agg.FigureCanvasAgg(figure)
    return figure
