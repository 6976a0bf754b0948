"""Votes that nobody cast: for the demo, for tests, and as public stand-ins when planning."""

from __future__ import annotations

import numpy as np

from terrine import _validate
from terrine.errors import InputError
from terrine.votes import Votes


def synthetic_votes(
    *,
    n_queries: int,
    n_classes: int,
    n_teachers: int,
    consensus: float = 0.9,
    hard: float = 0.1,
    seed: int = 0,
) -> Votes:
    """Votes of an imagined ensemble.

    On an ordinary query the plurality's share is drawn around ``consensus`` (a Beta law); on a
    fraction ``hard`` of the queries it is uniform from a near tie up to 60%. A runner-up takes half of the
    rest, the other classes share what is left, and each teacher votes independently.
    """
    n_queries = _validate.integer("n_queries", n_queries, at_least=1)
    n_classes = _validate.integer("n_classes", n_classes, at_least=2)
    n_teachers = _validate.integer("n_teachers", n_teachers, at_least=1)
    consensus = _validate.between("consensus", consensus, 0.0, 1.0)
    if not 0 <= (hard := _validate.number("hard", hard)) <= 1:
        raise InputError(f"hard must be from 0 to 1, got {hard}.")
    rng = np.random.default_rng(seed)
    share = rng.beta(10 * consensus, 10 * (1 - consensus), n_queries)
    share = np.where(rng.random(n_queries) < hard, rng.uniform(1 / n_classes, 0.6, n_queries), share)
    proba = np.tile(((1 - share) / (2 * max(n_classes - 2, 1)))[:, None], (1, n_classes))
    first = rng.integers(n_classes, size=n_queries)
    second = (first + rng.integers(1, n_classes, size=n_queries)) % n_classes
    rows = np.arange(n_queries)
    proba[rows, second] = (1 - share) / 2 if n_classes > 2 else 1 - share
    proba[rows, first] = share
    counts = rng.multinomial(n_teachers, proba / proba.sum(axis=1, keepdims=True))
    return Votes(counts, n_teachers=n_teachers)
