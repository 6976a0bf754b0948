"""What the scripts of this folder that read votes share: vote files, how often answers are right, tables, pictures.

The votes here are of public data (Glyph, MNIST): what depends on them may be shown.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure
from numpy.typing import NDArray
from tables import RESULTS, markdown

from terrine import ConfidentGNMax, GNMax, LNMax, RdpCurve, Sensitive, Votes, answer, guarantee
from terrine.accounting.theorems import log_pr_answered
from terrine.datasets import load
from terrine.noise import SeededNoise

Array = NDArray[np.float64]

DATA = Path(os.environ.get("TERRINE_DATA", "../shared/data"))
OUT = RESULTS
DRAWS = 8  # of the noise, to say how often an answer is right
FEW: Array = np.geomspace(1.5, 400.0, 36)  # orders of the exact accountant here
WIDE: Array = np.geomspace(1.5, 4000.0, 120)  # of everything else
QUERIES = 4_000  # as in the paper's figure of noise scales
DELTA = {"Glyph": 1e-8, "MNIST": 1e-5}


@dataclass(frozen=True, kw_only=True, repr=False)
class VoteSet:
    """Votes on public inputs, and what the inputs are."""

    task: str
    file: str
    votes: Votes
    labels: NDArray[np.int64]
    whose: str = ""

    @property
    def name(self) -> str:
        return f"{self.task}, {self.whose}{self.votes.n_teachers:,} teachers"

    @property
    def delta(self) -> float:
        return DELTA[self.task]

    def about(self) -> dict[str, Any]:
        counts = self.votes.counts
        return {
            "name": self.name,
            "task": self.task,
            "file": self.file,
            "teachers": self.votes.n_teachers,
            "queries": len(counts),
            "classes": self.votes.n_classes,
            "plurality": float((counts.argmax(axis=1) == self.labels).mean()),
            "mean_accuracy": float(counts[np.arange(len(counts)), self.labels].mean() / self.votes.n_teachers),
            "mean_top_share": float(counts.max(axis=1).mean() / self.votes.n_teachers),
        }

    def first(self, n_queries: int) -> VoteSet:
        part = {"votes": self.votes[:n_queries], "labels": self.labels[:n_queries]}
        return replace(self, **part)

    def spread(self, n_queries: int) -> VoteSet:
        """So many of the queries, at equal distances."""
        some = np.linspace(0, len(self.votes) - 1, min(n_queries, len(self.votes))).round().astype(int)
        votes = Votes(self.votes.counts[some], n_teachers=self.votes.n_teachers)
        return replace(self, votes=votes, labels=self.labels[some])


@cache
def mnist_labels() -> NDArray[np.int64]:
    return load("mnist").public_y


def glyph_sets(folder: Path) -> dict[int, VoteSet]:
    """By number of teachers; votes_glyph_<teachers>.npz goes before another name."""
    found: dict[int, VoteSet] = {}
    for path in sorted(
        folder.glob("votes_glyph_*.npz"), key=lambda path: (not path.stem.split("_")[-1].isdigit(), path)
    ):
        with np.load(path) as arrays:
            counts, labels = arrays["counts"], arrays["labels" if "labels" in arrays.files else "truth"]
        votes = Votes(counts, n_teachers=int(counts[0].sum()))
        found.setdefault(votes.n_teachers, VoteSet(task="Glyph", file=path.name, votes=votes, labels=labels))
    if not found:
        raise SystemExit(f"Expected votes_glyph_<teachers>.npz under {folder}, got none.")
    return dict(sorted(found.items()))


def mnist_sets(folder: Path) -> dict[int, VoteSet]:
    """Our class-mean teachers on features, by number of teachers."""
    file = folder / "mnist_votes.npz"
    if not file.is_file():
        raise SystemExit(f"Expected {file.name} under {folder}, got none.")
    found = {}
    with np.load(file) as arrays:
        for key in arrays.files:
            votes = Votes(arrays[key], n_teachers=int(key.split("_")[-1]))
            found[votes.n_teachers] = VoteSet(task="MNIST", file=file.name, votes=votes, labels=mnist_labels())
    return dict(sorted(found.items()))


def paper_mnist() -> VoteSet:
    file = DATA / "votes" / "mnist_250_teachers.npy"
    return VoteSet(task="MNIST", file=file.name, votes=Votes.load(file), labels=mnist_labels(), whose="the paper's ")


def chance_right(mechanism: LNMax | GNMax, votes: VoteSet, *, draws: int = DRAWS) -> Array:
    """(n_queries,) how often an answer is right, over some draws of seeded noise."""
    noise = SeededNoise(20180224)
    return np.mean(
        [answer(mechanism, votes.votes, rng=noise).labels == votes.labels for _ in range(draws)],
        axis=0,
        dtype=np.float64,
    )


def pr_answered(mechanism: ConfidentGNMax, votes: Votes) -> Array:
    top = votes.counts.max(axis=1)
    return np.exp(log_pr_answered(top, threshold=mechanism.threshold, sigma=mechanism.sigma_check))


def epsilon(curve: RdpCurve | Sensitive[RdpCurve], *, delta: float) -> float:
    """By the tight conversion. The votes here are of public data: nothing needs to stay secret."""
    secret = curve if isinstance(curve, Sensitive) else Sensitive(curve)
    return guarantee(secret, delta=delta).reveal().epsilon


def confident(n_teachers: int, *, threshold: float = 0.7) -> ConfidentGNMax:
    """The paper's settings for 5,000 teachers, as shares of the teachers: a moderate check, or an aggressive one."""
    return ConfidentGNMax(threshold=threshold * n_teachers, sigma_check=0.3 * n_teachers, sigma_vote=0.02 * n_teachers)


def at_accuracy(rows: list[dict[str, float]], key: str, target: float) -> float:
    """The least epsilon with at least this accuracy: between two noise scales, straight in log epsilon; nan if none."""
    ascending = sorted((row["accuracy"], row[key]) for row in rows)
    accuracy, value = np.array(ascending).T
    value = np.minimum.accumulate(value[::-1])[::-1]  # bounds that look at votes may fall as noise shrinks
    if not accuracy[0] <= target <= accuracy[-1]:
        return float("nan")
    return float(np.exp(np.interp(target, accuracy, np.log(value))))


def tidy(value: Any) -> Any:
    """Plain numbers of six digits; None for what is not a number."""
    match value:
        case dict():
            return {key: tidy(part) for key, part in value.items()}
        case list() | tuple() | np.ndarray():
            return [tidy(part) for part in value]
        case float() | np.floating():
            return float(f"{value:.6g}") if np.isfinite(value) else None
        case np.integer():
            return int(value)
    return value


def files_table(sets: list[dict[str, Any]]) -> str:
    """What the numbers were made from."""
    header = ["votes", "file", "queries × classes", "a teacher is right", "plurality is right", "mean top vote"]
    body = [
        [
            about["name"],
            f"`{about['file']}`",
            f"{about['queries']:,} × {about['classes']}",
            f"{about['mean_accuracy']:.1%}",
            f"{about['plurality']:.1%}",
            f"{about['mean_top_share']:.1%}",
        ]
        for about in {(about["file"], about["name"]): about for about in sets}.values()
    ]
    return markdown(header, body)


GREY, ORANGE, RED, BLUE, GREEN = "#9aa5b1", "#e08e0b", "#c0392b", "#1f5fa8", "#2e8b57"


def canvas(rows: int, columns: int, *, size: tuple[float, float]) -> tuple[Any, Any]:
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    for each in axes.flat:
        each.grid(alpha=0.25)
        each.spines[["top", "right"]].set_visible(False)
    return figure, axes


def save(figure: Any, name: str) -> None:
    """As .png and .svg; the same figure gives the same bytes."""
    with rc_context({"svg.hashsalt": name}):
        for ending in ("png", "svg"):
            figure.savefig(OUT / f"{name}.{ending}", dpi=150, metadata={"Date": None} if ending == "svg" else None)
