"""Train teachers on disjoint shares, and let them vote. Deliberately there is no way to ask for an un-noised answer."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from terrine import _validate
from terrine.datasets.data import PrivateData, PublicData, class_names
from terrine.errors import InputError, SecretError
from terrine.executors import Executor, Serial
from terrine.partition import Partition, Shares
from terrine.teachers.estimators import SklearnTeacher
from terrine.teachers.nets import ConvTeacher
from terrine.teachers.store import Store
from terrine.votes import Votes

Teacher = SklearnTeacher | ConvTeacher
Progress = Callable[[float], object]

_BLOCK = 20_000  # public rows that a worker predicts at a time


@dataclass(frozen=True)
class _Work:
    """What every worker needs: how to teach, and the rows, sorted by teacher."""

    teacher: Teacher
    rows: _Rows | Shares | None
    n_classes: int
    seed: int
    store: Store | None
    queries: NDArray[Any] | None = None


@dataclass(frozen=True)
class _Rows:
    """Shares of arrays in memory."""

    X: NDArray[Any]
    y: NDArray[np.int64]
    order: NDArray[np.int64]
    offsets: NDArray[np.int64]

    def share(self, teacher: int) -> tuple[NDArray[Any], NDArray[np.int64]]:
        rows = self.order[self.offsets[teacher] : self.offsets[teacher + 1]]
        return self.X[rows], self.y[rows]


def fit_teachers(
    data: PrivateData | Shares,
    partition: Partition,
    teacher: Teacher,
    *,
    classes: Sequence[object],
    seed: int,
    executor: Executor | None = None,
    store: str | Path | None = None,
    progress: Progress | None = None,
) -> TeacherEnsemble:
    """One teacher per share. Teacher k is a function of its share, (seed, k) and public settings.

    Args:
        data: the private rows; or `Shares` on disk, for data larger than memory.
        teacher: `SklearnTeacher` or `ConvTeacher`.
        classes: public: reading them off private labels would leak.
        executor: Serial() unless given; Processes(), Ray().
        store: a folder to keep the teachers in; a rerun trains only what is missing there.
        progress: called with the share of the teachers that are done.
    """
    names = class_names(classes)
    seed = _validate.integer("seed", seed, at_least=0)
    kept = None if store is None else Store(Path(store))
    work = _Work(teacher, _rows_of(data, partition, len(names)), len(names), seed, kept)
    chunks = _chunks(partition.n_teachers, teacher.chunk)
    if kept is not None:
        kept.open(
            {
                "teacher": repr(teacher),
                "n_teachers": partition.n_teachers,
                "n_classes": len(names),
                "classes": list(names),
                "chunk": teacher.chunk,
                "seed": seed,
                "relation": partition.relation,
                "rows": hashlib.sha256(
                    partition.assignment.tobytes()
                ).hexdigest(),  # teachers of other shares are refused
            }
        )
    missing = [chunk for chunk in chunks if kept is None or not kept.has(chunk, teacher.suffix)]
    already = len(chunks) - len(missing)
    results = (executor or Serial()).map(
        _teach,
        missing,
        shared=work,
        progress=None if progress is None else lambda done: progress((already + done) / len(chunks)),
    )
    models = dict(zip(missing, results, strict=True))
    return TeacherEnsemble(
        teacher=teacher,
        classes=names,
        n_teachers=partition.n_teachers,
        relation=partition.relation,
        _store=kept,
        _models=None if kept is not None else models,
    )


def poll_teachers(
    data: PrivateData | Shares,
    partition: Partition,
    teacher: Teacher,
    public: PublicData | NDArray[Any],
    *,
    classes: Sequence[object],
    seed: int,
    executor: Executor | None = None,
    progress: Progress | None = None,
) -> Votes:
    """Train and vote, chunk by chunk, keeping no teacher: votes are enough for everything but a service."""
    names = class_names(classes)
    work = _Work(
        teacher,
        _rows_of(data, partition, len(names)),
        len(names),
        _validate.integer("seed", seed, at_least=0),
        None,
        _queries(public),
    )
    chunks = _chunks(partition.n_teachers, teacher.chunk)
    told = None if progress is None else lambda done: progress(done / len(chunks))
    return _tally((executor or Serial()).map(_teach_and_vote, chunks, shared=work, progress=told), work)


@dataclass(frozen=True, kw_only=True, eq=False)
class TeacherEnsemble:
    """Teachers that were trained, in memory or in a store. They vote, through a mechanism; they do not predict."""

    teacher: Teacher
    classes: tuple[str, ...]
    n_teachers: int
    relation: str
    _store: Store | None
    _models: dict[tuple[int, ...], Any] | None

    @classmethod
    def load(cls, store: str | Path, teacher: Teacher) -> TeacherEnsemble:
        """The teachers of a finished store, with the teacher they were trained by; every file is verified."""
        kept = Store(Path(store))
        settings = kept.settings()
        kept.open({**{k: v for k, v in settings.items() if k != "schema"}, "teacher": repr(teacher)})
        for chunk in _chunks(settings["n_teachers"], settings["chunk"]):
            kept.load(chunk, teacher.suffix)
        return cls(
            teacher=teacher,
            classes=tuple(settings["classes"]),
            n_teachers=settings["n_teachers"],
            relation=settings["relation"],
            _store=kept,
            _models=None,
        )

    def vote(
        self, X: PublicData | NDArray[Any], *, executor: Executor | None = None, progress: Progress | None = None
    ) -> Votes:
        """How many teachers choose each class on each row. Secret."""
        chunks = _chunks(self.n_teachers, self.teacher.chunk)
        work = _Work(self.teacher, None, len(self.classes), 0, self._store, _queries(X))
        tasks = [(chunk, None if self._models is None else self._models[chunk]) for chunk in chunks]
        told = None if progress is None else lambda done: progress(done / len(chunks))
        return _tally((executor or Serial()).map(_vote, tasks, shared=work, progress=told), work)

    def __repr__(self) -> str:
        return f"<TeacherEnsemble: {self.n_teachers} teachers, {len(self.classes)} classes; they vote, not predict>"

    def __reduce_ex__(self, *_: Any) -> NoReturn:
        raise SecretError("Expected a public object to pickle or copy, got a TeacherEnsemble; use a store.")


def _chunks(n_teachers: int, size: int) -> list[tuple[int, ...]]:
    return [tuple(range(start, min(start + size, n_teachers))) for start in range(0, n_teachers, size)]


def _rows_of(data: PrivateData | Shares, partition: Partition, n_classes: int) -> _Rows | Shares:
    if isinstance(data, Shares):
        return data
    if not isinstance(data, PrivateData):
        raise InputError(f"Expected PrivateData or Shares, got {type(data).__name__}.")
    if len(partition) != len(data.y):
        raise InputError(f"Expected a partition of these {len(data.y)} rows, got one of {len(partition)}.")
    if len(data.y) and int(data.y.max()) >= n_classes:
        raise InputError(f"Expected labels below {n_classes}, the number of classes given, got a larger one.")
    return _Rows(data.X, data.y, partition.order, partition.offsets)


def _queries(X: PublicData | ArrayLike) -> NDArray[Any]:
    rows = np.asarray(X.X if isinstance(X, PublicData) else X)
    if rows.ndim < 2 or not len(rows):
        raise InputError(f"Expected at least one row to vote on, as (n_rows, ...), got shape {rows.shape}.")
    return rows


def _teach(chunk: tuple[int, ...], work: _Work) -> Any:
    """In a worker: train a chunk; keep it in the store, or hand it back."""
    assert work.rows is not None
    shares = [work.rows.share(k) for k in chunk]
    models: Any = work.teacher.fit(shares, ids=chunk, n_classes=work.n_classes, seed=work.seed)
    if work.store is None:
        return models
    work.store.save(chunk, work.teacher.suffix, work.teacher.dumps(models))
    return None


def _teach_and_vote(chunk: tuple[int, ...], work: _Work) -> NDArray[np.int16]:
    return _predictions(_teach(chunk, work), work)


def _vote(task: tuple[tuple[int, ...], Any], work: _Work) -> NDArray[np.int16]:
    chunk, models = task
    if work.store is not None:
        models = work.teacher.loads(work.store.load(chunk, work.teacher.suffix))
    return _predictions(models, work)


def _predictions(models: Any, work: _Work) -> NDArray[np.int16]:
    """(teachers of the chunk, queries), in blocks of queries."""
    assert work.queries is not None
    blocks = range(0, len(work.queries), _BLOCK)
    return np.concatenate([work.teacher.predict(models, work.queries[b : b + _BLOCK]) for b in blocks], axis=1)


def _tally(predictions: Iterator[NDArray[np.int16]], work: _Work) -> Votes:
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
