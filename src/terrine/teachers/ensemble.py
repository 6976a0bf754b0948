"""Train teachers on disjoint shares, and let them vote. Deliberately there is no way to ask for an un-noised answer."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from terrine import _validate
from terrine.datasets.data import PrivateData, PublicData, class_indices, class_names
from terrine.datasets.rows import RowKind, as_rows, kind_of, matched, numbers, rows_digest, with_nan
from terrine.datasets.rows import Rows as AnyRows
from terrine.errors import InputError, SecretError, StoreError
from terrine.executors import Executor, Serial
from terrine.partitioning import Partition, Shares
from terrine.relations import Relation
from terrine.sensitive import Sensitive
from terrine.teachers.estimators import SklearnTeacher
from terrine.teachers.preflight import Preflight, sample
from terrine.teachers.store import DATA, IDENTITY, Store
from terrine.teachers.teacher import Teacher
from terrine.teachers.workers import Rows, Work, takes_nan, tally_predictions, teach, teach_and_vote, vote
from terrine.votes import Ballots, Votes

Progress = Callable[[float], object]

_ROWS = "rows"  # in a manifest: what rows are, where they are no arrays


def fit_teachers(
    data: PrivateData | Shares,
    partition: Partition,
    teacher: Teacher,
    *,
    classes: Sequence[object],
    seed: int,
    first_id: int = 0,
    executor: Executor | None = None,
    store: str | Path | None = None,
    public: Any = None,
    progress: Progress | None = None,
) -> TeacherEnsemble:
    """One teacher per share. Teacher k is a function of its share, (seed, k) and public settings.

    The teacher is first tried on public rows, and refused if it cannot learn, vote or be kept. After that no share can
    stop the others: one on which it fails votes for class 0, and only `TeacherEnsemble.n_failed` tells.

    Args:
        data: the private rows; or `Shares` on disk, for data larger than memory.
        teacher: `SklearnTeacher`, `ModuleTeacher`, `ConvTeacher`, `CentroidTeacher`, or one's own `Teacher`.
        classes: public: reading them off private labels would leak.
        first_id: the id of this owner's first teacher; where several owners vote together, no two share an id.
        executor: Serial() (the default), Processes() or Ray().
        store: a folder to keep the teachers in; a rerun trains only what is missing there.
        public: public rows to try the teacher on; without them rows of the same shape and dtype are made up. Needed
            where rows are sparse, texts or a table.
        progress: called with the share of the teachers that are done.
    """
    kept = None if store is None else Store(Path(store))
    names, kind, work, made_with = _prepared(
        data, partition, teacher, classes=classes, seed=seed, first_id=first_id, public=public, store=kept
    )
    chunks = _chunks(partition.n_teachers, teacher.chunk)
    missing = [chunk for chunk in chunks if kept is None or not kept.has(chunk, teacher.suffix)]
    if missing and work.preflight is not None:
        work.preflight.check()
    identity = _identity(partition, made_with)
    if kept is not None:
        kept.open(made_with, identity=identity)
        identity = str(kept.settings().get(IDENTITY, ""))
    already = len(chunks) - len(missing)
    results = (executor or Serial()).map(
        teach,
        missing,
        shared=replace(work, queries=None),
        progress=None if progress is None else lambda done: progress((already + done) / len(chunks)),
    )
    taught = dict(zip(missing, results, strict=True))
    return TeacherEnsemble(
        teacher=teacher,
        classes=names,
        row_shape=kind.shape,
        row_kind=kind,
        n_teachers=partition.n_teachers,
        first_id=work.first_id,
        relation=partition.relation,
        identity=identity,
        _store=kept,
        _models=None if kept is not None else {chunk: models for chunk, (models, _) in taught.items()},
        _failed=sum(failed for _, failed in taught.values()),
    )


def poll_teachers(
    data: PrivateData | Shares,
    partition: Partition,
    teacher: Teacher,
    public: Any,
    *,
    classes: Sequence[object],
    seed: int,
    first_id: int = 0,
    executor: Executor | None = None,
    progress: Progress | None = None,
    tell_failed: Callable[[Sensitive[int]], object] | None = None,
) -> Votes:
    """Train and vote, chunk by chunk, keeping no teacher. Only a service needs kept teachers.

    ``tell_failed`` is called in the end with the number of teachers that failed, as `TeacherEnsemble.n_failed`.
    """
    _, _, work, made_with = _prepared(
        data, partition, teacher, classes=classes, seed=seed, first_id=first_id, public=public, store=None
    )
    if work.preflight is not None:
        work.preflight.check()
    chunks = _chunks(partition.n_teachers, teacher.chunk)
    told = None if progress is None else lambda done: progress(done / len(chunks))
    n_failed = 0

    def predictions() -> Iterator[NDArray[np.int16]]:
        nonlocal n_failed
        for found, failed in (executor or Serial()).map(teach_and_vote, chunks, shared=work, progress=told):
            n_failed += failed
            yield found

    votes = tally_predictions(predictions(), work)
    if tell_failed is not None:
        tell_failed(Sensitive(n_failed))
    votes.voters = _identity(partition, made_with)
    return votes


@dataclass(frozen=True, kw_only=True, eq=False)
class TeacherEnsemble:
    """Teachers that were trained, in memory or in a store. They vote, through a mechanism; they do not predict.

    ``identity`` is theirs alone: a hash, under the partition's secret, of all that decides what they are. It tells
    nothing of the rows, so that a ledger may know answers by it; "" where the partition was made without a secret.
    """

    teacher: Teacher
    classes: tuple[str, ...]
    row_shape: tuple[int, ...]
    n_teachers: int
    first_id: int
    relation: Relation
    identity: str = ""
    row_kind: RowKind | None = None  # None: arrays of row_shape
    _store: Store | None
    _models: dict[tuple[int, ...], Any] | None
    _failed: int = 0  # of those in memory; a store knows its own

    @property
    def n_failed(self) -> Sensitive[int]:
        """How many teachers could not learn from their share, and vote for class 0. For the owner alone."""
        if self._store is None:
            return Sensitive(self._failed)
        chunks = _chunks(self.n_teachers, self.teacher.chunk)
        return Sensitive(sum(self._store.failed(chunk, self.teacher.suffix) for chunk in chunks))

    @classmethod
    def load(cls, store: str | Path, teacher: Teacher) -> TeacherEnsemble:
        """The teachers of a finished store, with the teacher they were trained by; every file is verified."""
        kept = Store(Path(store))
        kept.expect(teacher.settings())
        settings = kept.settings()
        try:
            teacher = replace(teacher, chunk=settings["chunk"])
            ensemble = cls(
                teacher=teacher,
                classes=class_names(settings["classes"]),
                row_shape=tuple(settings["row_shape"]),
                row_kind=RowKind.from_json(settings[_ROWS]) if _ROWS in settings else None,
                n_teachers=_validate.integer("n_teachers", settings["n_teachers"], at_least=1),
                first_id=_validate.integer("first_id", settings["first_id"], at_least=0),
                relation=Relation(settings["relation"]),
                identity=str(settings.get(IDENTITY, "")),
                _store=kept,
                _models=None,
            )
        except (KeyError, TypeError, InputError):
            raise StoreError(
                f"The manifest of the teachers in {kept.folder} is damaged. Restore it, or teach again "
                "into a new folder."
            ) from None
        for chunk in _chunks(ensemble.n_teachers, teacher.chunk):
            kept.load(chunk, teacher.suffix)
        return ensemble

    def in_memory(self) -> TeacherEnsemble:
        """The same teachers, read from their store once: for a service, which asks again and again."""
        if self._store is None:
            return self
        chunks = _chunks(self.n_teachers, self.teacher.chunk)
        models = {chunk: self.teacher.loads(self._store.load(chunk, self.teacher.suffix)) for chunk in chunks}
        return replace(self, _store=None, _models=models, _failed=self.n_failed.reveal())  # private to it, as before

    def vote(
        self,
        X: Any,
        *,
        executor: Executor | None = None,
        progress: Progress | None = None,
        watched: bool = True,
    ) -> Votes:
        """How many teachers choose each class on each row. Secret.

        Args:
            watched: False where nobody outside can see how long it takes: estimators that are not known never to raise
                are then asked faster, in a time that tells of their shares.
        """
        work, choices = self._choices(X, executor, progress, watched=watched)
        votes = tally_predictions(choices, work)
        votes.voters = self.identity
        return votes

    def ballots(self, X: Any, *, executor: Executor | None = None, progress: Progress | None = None) -> Ballots:
        """What each teacher chooses on each row: an owner's part, for `tally` to merge with others'. Secret."""
        work, choices = self._choices(X, executor, progress, watched=False)
        ids = np.arange(self.first_id, self.first_id + self.n_teachers)
        assert work.queries is not None
        rest = {"queries": queries_digest(work.queries), "voters": self.identity}
        return Ballots(np.concatenate(list(choices)), ids=ids, n_classes=work.n_classes, relation=self.relation, **rest)

    def _choices(
        self, X: Any, executor: Executor | None, progress: Progress | None, *, watched: bool
    ) -> tuple[Work, Iterator[NDArray[np.int16]]]:
        chunks = _chunks(self.n_teachers, self.teacher.chunk)
        queries = _queries(X, self.row_kind or RowKind(shape=self.row_shape), self.teacher)
        work = Work(self.teacher, None, len(self.classes), 0, self._store, queries, watched=watched)
        tasks = [(chunk, None if self._models is None else self._models[chunk]) for chunk in chunks]
        told = None if progress is None else lambda done: progress(done / len(chunks))
        return work, (executor or Serial()).map(vote, tasks, shared=work, progress=told)

    def __repr__(self) -> str:
        return f"<TeacherEnsemble: {self.n_teachers} teachers, {len(self.classes)} classes; they vote, not predict>"

    def __reduce_ex__(self, *_: Any) -> NoReturn:
        raise SecretError("A TeacherEnsemble is secret and cannot be pickled or copied. Use a store.")


def _chunks(n_teachers: int, size: int) -> list[tuple[int, ...]]:
    return [tuple(range(start, min(start + size, n_teachers))) for start in range(0, n_teachers, size)]


def _classes(classes: Sequence[object]) -> tuple[str, ...]:
    names = class_names(classes)
    if len(names) > np.iinfo(np.int16).max:
        raise InputError(f"There may be at most {np.iinfo(np.int16).max} classes, got {len(names)}.")
    return names


def _rows_of(
    data: PrivateData | Shares, partition: Partition, teacher: Teacher, n_classes: int
) -> tuple[RowKind, Rows | Shares]:
    """The rows by teacher. All labels are checked first, so that errors come before any teaching."""
    if isinstance(data, Shares):
        if data.n_teachers != partition.n_teachers:
            raise InputError(f"The partition has {partition.n_teachers} teachers, and the shares {data.n_teachers}.")
        for k, size in enumerate(np.diff(partition.offsets)):
            labels = data.share(k)[1]
            if len(labels) != size:
                raise InputError("data must be the shares of this partition, and they are not: make them with it.")
            class_indices("labels", labels, n_rows=len(labels), n_classes=n_classes, unlabelled_ok=True)
        return kind_of(data.share(0)[0]), data
    if not isinstance(data, PrivateData):
        raise InputError(f"data must be PrivateData or Shares, got {type(data).__name__}.")
    if len(partition) != len(data.y):
        raise InputError("The partition has a different number of rows than the data. Partition this data again.")
    if len(data.y) and int(data.y.max()) >= n_classes:
        raise InputError(f"Every label must be below {n_classes}, the number of classes, and one is not.")
    return kind_of(data.X), Rows(_taken(data.X, teacher), data.y, partition.order, partition.offsets)


def _taken(rows: AnyRows, teacher: Teacher) -> AnyRows:
    """Rows as the teacher takes them; missing numbers are refused where they are not its own business."""
    if not takes_nan(teacher) and (where := with_nan(rows)):
        raise InputError(
            f"There are missing numbers in {where}, and the teacher takes none; use a Pipeline with SimpleImputer, or "
            "HistGradientBoostingClassifier. Nothing was taught or spent."
        )
    return rows if isinstance(teacher, SklearnTeacher) else numbers(rows, who=type(teacher).__name__)


def _preflight(
    teacher: Teacher, rows: Rows | Shares, *, n_classes: int, public: AnyRows | None, keep: bool = False
) -> Preflight:
    like = rows.share(0)[0]
    if public is None and not isinstance(like, np.ndarray):
        raise InputError(
            f"Give public=, public rows to try the teacher on: where rows are {kind_of(like)}, none can be made up."
        )
    return Preflight(
        teacher=teacher,
        row_shape=like.shape[1:],
        dtype=like.dtype if isinstance(like, np.ndarray) else np.dtype(object),
        n_classes=n_classes,
        public=None if public is None else sample(public),
        keep=keep,
    )


def _prepared(
    data: PrivateData | Shares,
    partition: Partition,
    teacher: Teacher,
    *,
    classes: Sequence[object],
    seed: int,
    first_id: int,
    public: PublicData | NDArray[Any] | None,
    store: Store | None,
) -> tuple[tuple[str, ...], RowKind, Work, dict[str, Any]]:
    """Class names, kind of rows, what workers need, and all that decides what the teachers are: a store's manifest."""
    if not isinstance(teacher, Teacher):
        raise InputError(
            f"{type(teacher).__name__} is not a teacher. Wrap a scikit-learn classifier: SklearnTeacher(estimator=...)."
        )
    names = _classes(classes)
    kind, rows = _rows_of(data, partition, teacher, len(names))
    queries = None if public is None else _queries(public, kind, teacher)
    work = Work(
        teacher,
        rows,
        len(names),
        seed=_validate.integer("seed", seed, at_least=0),
        store=store,
        queries=queries,
        first_id=_validate.integer("first_id", first_id, at_least=0),
        preflight=_preflight(teacher, rows, n_classes=len(names), public=queries, keep=store is not None),
        watched=False,
    )
    made_with = {
        **teacher.settings(),
        "n_teachers": partition.n_teachers,
        "classes": names,
        "row_shape": kind.shape,
        **({} if kind.kind == "array" else {_ROWS: kind.to_json()}),
        "chunk": teacher.chunk,
        "seed": work.seed,
        "first_id": work.first_id,
        "relation": partition.relation.sentence,  # not its code: an identity is a hash of this
        DATA: _fingerprint(data, partition),
    }
    return names, kind, work, made_with


def _identity(partition: Partition, made_with: dict[str, Any]) -> str:
    return partition.identify(json.dumps(made_with, sort_keys=True))


def _fingerprint(data: PrivateData | Shares, partition: Partition) -> str:
    """A hash of rows, labels and shares: teachers of different ones are refused."""
    if isinstance(data, Shares):
        return str(data.fingerprint)
    digest = hashlib.sha256(partition.assignment.tobytes())
    rows_digest(digest, data.X)
    return rows_digest(digest, data.y)


def queries_digest(rows: AnyRows) -> str:
    """What teachers are asked, as `Ballots` say it."""
    return rows_digest(hashlib.sha256(), rows)


def _queries(X: Any, kind: RowKind, teacher: Teacher) -> AnyRows:
    rows = X.X if isinstance(X, PublicData) else as_rows("X", X, nan_ok=takes_nan(teacher))
    if kind.kind == "array" and rows.shape[1:] != kind.shape:
        raise InputError(f"X must have rows of shape {kind.shape}, as the teachers' rows, got {rows.shape[1:]}.")
    return _taken(matched(rows, kind, name="the public rows", like="the private rows"), teacher)
