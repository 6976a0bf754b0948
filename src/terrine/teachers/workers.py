"""What workers do for an ensemble: teach a chunk of teachers, let it vote, and count. No share makes them raise."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from terrine.datasets.data import UNLABELLED
from terrine.datasets.rows import Rows as AnyRows
from terrine.datasets.rows import takes_nan as rows_takes_nan
from terrine.datasets.rows import with_nan
from terrine.errors import MissingDependencyError, TeachersError, TerrineError
from terrine.partitioning import Shares
from terrine.sensitive import unheard
from terrine.teachers.preflight import Preflight
from terrine.teachers.store import Store
from terrine.teachers.teacher import Share, Teacher
from terrine.votes import Votes

T = TypeVar("T")

_BLOCK = 20_000  # public rows that a worker predicts at a time


@dataclass(frozen=True, repr=False)
class Work:
    """What every worker needs: how to teach, and the rows, sorted by teacher."""

    teacher: Teacher
    rows: Rows | Shares | None
    n_classes: int
    seed: int
    store: Store | None
    queries: Any = None  # public rows of any kind
    first_id: int = 0
    preflight: Preflight | None = None
    watched: bool = True  # whether anyone outside may see how long votes take


@dataclass(frozen=True, repr=False)
class Rows:
    """Shares of rows in memory."""

    X: AnyRows
    y: NDArray[np.int64]
    order: NDArray[np.int64]
    offsets: NDArray[np.int64]

    def share(self, teacher: int) -> Share:
        rows = self.order[self.offsets[teacher] : self.offsets[teacher + 1]]
        return self.X[rows], self.y[rows]


def teach(chunk: tuple[int, ...], work: Work) -> tuple[Any, int]:
    """In a worker: train a chunk, and keep it in the store or hand it back; and how many of its shares failed."""
    assert work.rows is not None
    shares = [_labelled(work.rows.share(k)) for k in chunk]
    with unheard():
        made, n_failed = _taught(shares, [work.first_id + k for k in chunk], work)
    if work.store is None:
        return made, n_failed
    work.store.save(chunk, work.teacher.suffix, made, failed=n_failed)
    return None, n_failed


def _labelled(share: Share) -> Share:
    """What a teacher learns from: rows without a usable label are its own, and stay out of it."""
    X, y = share
    usable = y != UNLABELLED
    return share if usable.all() else (X[np.flatnonzero(usable)], y[usable])


def _taught(shares: list[Share], ids: list[int], work: Work) -> tuple[Any, int]:
    """Models, or their bytes for a store. A share on which this fails is taught as an empty one: it votes for class 0.

    Which shares these are is looked for one by one, so that none of them touches another teacher.
    """
    places = range(len(shares))
    failed = {place for place in places if not _sound(shares[place], work)}

    def made(some: Sequence[int]) -> tuple[Any, str]:
        chosen = [(shares[p][0][:0], shares[p][1][:0]) if p in failed else shares[p] for p in some]
        return _tried(lambda: _made(chosen, [ids[p] for p in some], work))

    models, failure = made(places)
    if failure:
        failed |= {place for place in places if place not in failed and made([place])[1]}
        if work.preflight is not None:
            work.preflight.check(here=True)  # what fails on public rows too, on this device, is no share's doing
        models, failure = made(places)
    if failure:
        raise TeachersError(
            f"The teachers of one chunk cannot be taught together ({failure}), though each of them can alone; take a "
            "smaller chunk."
        )
    return models, len(failed)


def _sound(share: Share, work: Work) -> bool:
    """Whether a share is one of finite numbers and of class indices: shares on disk are not looked at before."""
    X, y = share
    finite = not isinstance(X, np.ndarray) or X.dtype.kind != "f" or not np.isinf(X).any()
    checked = isinstance(work.rows, Rows) and takes_nan(work.teacher)  # missing numbers were allowed by name
    finite = finite and (checked or not with_nan(X))
    return finite and bool(((y >= 0) & (y < work.n_classes)).all())


def takes_nan(teacher: Teacher) -> bool:
    """Whether missing numbers are the teacher's own business."""
    from terrine.teachers.estimators import SklearnTeacher

    return isinstance(teacher, SklearnTeacher) and rows_takes_nan(teacher.estimator)


def _made(shares: list[Share], ids: list[int], work: Work) -> Any:
    models: Any = work.teacher.fit(shares, ids=ids, n_classes=work.n_classes, seed=work.seed)
    if work.store is None:
        return models
    data = work.teacher.dumps(models)
    work.teacher.loads(data)  # what cannot come back fails now, when the share can still be taught as an empty one
    return data


def _tried(call: Callable[[], T]) -> tuple[T | None, str]:
    """A result, or only the type of what was raised: its message and its frames may hold private rows."""
    try:
        return call(), ""
    except MissingDependencyError:
        raise
    except Exception as error:
        return None, type(error).__name__


def teach_and_vote(chunk: tuple[int, ...], work: Work) -> tuple[NDArray[np.int16], int]:
    models, n_failed = teach(chunk, work)
    return _predictions(models, work), n_failed


def vote(task: tuple[tuple[int, ...], Any], work: Work) -> NDArray[np.int16]:
    chunk, models = task
    if work.store is not None:
        models = work.teacher.loads(work.store.load(chunk, work.teacher.suffix))
    return _predictions(models, work)


def _predictions(models: Any, work: Work) -> NDArray[np.int16]:
    """(teachers of the chunk, queries), in blocks of queries; what is no class index is class 0."""
    assert work.queries is not None
    blocks = range(0, len(work.queries), _BLOCK)
    queries, teacher = work.queries, work.teacher
    try:
        with unheard():
            parts = [teacher.predict(models, queries[b : b + _BLOCK], watched=work.watched) for b in blocks]
        votes = np.concatenate(parts, axis=1)
        return np.where((votes >= 0) & (votes < work.n_classes), votes, 0).astype(np.int16)
    except TerrineError:
        raise
    except Exception as error:
        failure = type(error).__name__
    raise TeachersError(
        f"The teachers failed to vote ({failure}). Why is withheld, since it may depend on private rows."
    )


def tally_predictions(predictions: Iterator[NDArray[np.int16]], work: Work) -> Votes:
    """Counts, one chunk's predictions at a time."""
    assert work.queries is not None
    counts = np.zeros((len(work.queries), work.n_classes), dtype=np.int64)
    rows = np.arange(len(work.queries))
    n_teachers = 0
    for chunk in predictions:
        for votes in chunk:
            counts[rows, votes] += 1
            n_teachers += 1
    return Votes(counts, n_teachers=n_teachers)
