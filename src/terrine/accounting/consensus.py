"""How well teachers agree: numbers that depend on votes, and are secret."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from terrine._validate import JsonObject
from terrine.sensitive import Sensitive
from terrine.votes import Votes


@dataclass(frozen=True, kw_only=True)
class Consensus:
    """How well teachers agree: secret, for it depends on votes.

    Attributes:
        queries: how many have a top class that a share of the teachers between two ``edges`` chose.
        plurality_accuracy, mean_teacher_accuracy: where the true labels are known.
    """

    n_teachers: int
    mean_top_vote: float
    edges: tuple[float, ...]
    queries: tuple[int, ...]
    plurality_accuracy: float | None = None
    mean_teacher_accuracy: float | None = None

    def to_json(self) -> JsonObject:
        found = {name: value for name, value in asdict(self).items() if value is not None}
        return found | {"histogram": {"edges": list(found.pop("edges")), "queries": list(found.pop("queries"))}}


def consensus(votes: Votes, *, truth: NDArray[np.int64] | None = None) -> Sensitive[Consensus]:
    """How well the teachers agree and, where (n_queries,) true classes are known, how right they are. Secret."""
    counts = votes.counts
    top = counts.max(axis=1)
    queries, edges = np.histogram(top / votes.n_teachers, bins=20, range=(0, 1))
    plurality = one = None
    if truth is not None:
        plurality = float((counts.argmax(axis=1) == truth).mean())
        one = float(counts[np.arange(len(truth)), truth].mean() / votes.n_teachers)
    return Sensitive(
        Consensus(
            n_teachers=votes.n_teachers,
            mean_top_vote=float(top.mean()),
            edges=tuple(edges.tolist()),
            queries=tuple(queries.tolist()),
            plurality_accuracy=plurality,
            mean_teacher_accuracy=one,
        )
    )
