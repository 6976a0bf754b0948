"""Private rows, and the exact sum over units of their clipped gradients: blocks, order and workers do not change it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from mmap import mmap
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from terrine import _validate
from terrine.datasets.units import unit_ids
from terrine.errors import DataError, InputError
from terrine.executors import Executor, Serial
from terrine.probe import exact
from terrine.probe.exact_torch import OnDevice
from terrine.sensitive import Sensitive, unheard

Array = NDArray[Any]


class ProbeRows:
    """Private rows as features, with labels and the units that they belong to.

    Args:
        features: (n, p) numbers, the same public function of every row; may be a memory-mapped file, which is read in
            blocks. A row that is not finite adds nothing.
        labels: (n,) numbers of classes; a row whose label is none of 0 .. n_classes - 1 adds nothing.
        units: (n,) ids, whole numbers or text; None: each row is a unit. A unit's first 4,096 rows count, so that the
            order of its rows must not depend on other units: shuffle none.
        n_classes: at least 2.
    """

    def __init__(self, features: Array, labels: ArrayLike, units: Any = None, *, n_classes: int) -> None:
        if not isinstance(features, np.ndarray) or features.ndim != 2 or features.dtype.kind not in "fiub":
            raise DataError("features must be an array of numbers with a row for each private row.")
        self.n_classes = _validate.integer("n_classes", n_classes, at_least=2)
        self.n_features = int(features.shape[1])
        check_size(n_features=self.n_features, n_classes=self.n_classes)
        given = np.asarray(labels)
        if given.shape != (len(features),):
            raise DataError("There must be one label for each private row.")
        self._features = features
        self._labels = _class_numbers(given, self.n_classes)
        self._order: NDArray[np.int64] | None = None
        self._groups = [_Group(1, np.arange(0))]
        if units is not None:
            self._order, self._groups = _grouped(unit_ids(units, n_rows=len(features)))

    @property
    def have_units(self) -> bool:
        """Whether it was said whose each row is."""
        return self._order is not None

    @property
    def dimension(self) -> int:
        """Numbers in a gradient: (features + 1) x classes."""
        return (self.n_features + 1) * self.n_classes

    def tasks(self, block: int) -> Iterator[Task]:
        """Units with equal numbers of rows, as many as fit a block."""
        if self._order is None:
            yield from (Task(1, slice(at, at + block)) for at in range(0, len(self._labels), block))
            return
        for n_rows, starts in self._groups:
            step = exact.units_at_once(n_rows, self.dimension, block=block)
            for at in range(0, len(starts), step):
                places = starts[at : at + step, None] + np.arange(n_rows)
                yield Task(n_rows, self._order[places.ravel()])

    def part(self, task: Task) -> tuple[Array, NDArray[np.int64]]:
        """Some of the rows, in order."""
        return self._features[task.rows], self._labels[task.rows]

    def __getstate__(self) -> dict[str, Any]:
        """A memory-mapped file is opened again by a worker, not sent to it."""
        state = self.__dict__.copy()
        found = self._features
        whole = isinstance(getattr(found, "base", None), mmap)  # and not a part of a file, whose place is not known
        shared = getattr(found, "mode", "c") != "c"  # what was changed in a copy on write is not in the file
        if (
            isinstance(found, np.memmap)
            and whole
            and shared
            and found.filename is not None
            and found.flags.c_contiguous
        ):
            options = {"dtype": found.dtype, "shape": found.shape, "offset": found.offset}
            state["_features"] = (found.filename, options)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        if isinstance(state["_features"], tuple):
            state["_features"] = _opened(*state["_features"])
        self.__dict__.update(state)

    def __repr__(self) -> str:
        return f"<ProbeRows: private, {self.n_features} features, {self.n_classes} classes>"


class _Group(NamedTuple):
    n_rows: int  # of each unit
    starts: NDArray[np.int64]  # of units, in the order


class Task(NamedTuple):
    n_rows: int
    rows: Any  # a slice or places, unit by unit


class Step(NamedTuple):
    """What a step's sum depends on beside the rows. Public.

    Attributes:
        weights: (p + 1, n_classes), as `exact.whole_weights` makes them.
        scale: of the features.
        clip: the longest contribution of a unit, in lattice steps.
    """

    weights: NDArray[np.float64]
    scale: float
    clip: int


def gradient_sum(
    rows: ProbeRows,
    step: Step,
    *,
    block: int = exact.BLOCK,
    executor: Executor | None = None,
    device: str | None = None,
) -> Sensitive[NDArray[np.int64]]:
    """(p + 1, n_classes) whole numbers: the sum of all units' clipped mean gradients, exactly.

    Args:
        block: rows at a time, at most 4,096.
        executor: who sums the blocks (default: this process).
        device: "cuda" for PyTorch on a GPU; None: numpy.

    Formal guarantees:
        Each unit adds a vector of length at most ``step.clip``, which is a function of its own rows and of ``step``.
        Sums are modulo 2^64, which changes nothing that is said of them.

    [TERRINE, Lemma 20]
    """
    if not 1 <= step.clip <= exact.LARGEST_CLIP:
        raise InputError(f"clip must be from 1 to 2^31 lattice steps, got {step.clip}.")
    if step.weights.shape != (rows.n_features + 1, rows.n_classes):
        raise InputError(f"weights must have the shape {(rows.n_features + 1, rows.n_classes)}.")
    if not exact.are_whole(step.weights):
        raise InputError("weights must be whole numbers, up to 2^28. Make them by exact.whole_weights.")
    block = min(_validate.integer("block", block, at_least=1), exact.BLOCK)
    total = np.zeros(step.weights.shape, dtype=np.int64)
    for part in (executor or Serial()).map(_partial, rows.tasks(block), shared=(rows, step, device)):
        total += part
    return Sensitive(total)


def _partial(task: Task, shared: tuple[ProbeRows, Step, str | None]) -> NDArray[np.int64]:
    rows, step, device = shared
    _check_products(device)
    with unheard():  # an odd number must not be heard of
        given, labels = rows.part(task)
        if device is not None:
            options: Any = {"n_rows": task.n_rows, **step._asdict()}
            return OnDevice(device).partial_sum(given, labels, **options)
        found, usable = exact.features(given, scale=step.scale)
        usable &= labels >= 0
        found[~usable] = 0.0
        left = exact.residuals(found, step.weights, labels, usable)
        by_unit = found.reshape(-1, task.n_rows, found.shape[1])
        kept = exact.clipped(by_unit, left.reshape(-1, task.n_rows, left.shape[1]), clip=step.clip)
        result: NDArray[np.int64] = (found.T @ kept.reshape(left.shape)).astype(np.int64)
        return result


@cache
def _check_products(device: str | None) -> None:
    """Once in each process, on numbers that are not private."""
    if not exact.products_are_exact(np.matmul if device is None else OnDevice(device).multiply):
        raise InputError(
            f"Matrix products in float64 on {device or 'this machine'} are not exact for whole numbers, which a probe "
            "rests on. Use other hardware, or turn off its emulation of float64."
        )


def check_size(*, n_features: int, n_classes: int) -> None:
    """Refuse what exact arithmetic has no room for."""
    numbers = (n_features + 1) * n_classes
    if not 1 <= n_features <= exact.MOST_FEATURES or n_classes > exact.MOST_CLASSES or numbers > exact.MOST_NUMBERS:
        raise InputError(
            f"A probe takes up to {exact.MOST_FEATURES:,} features, {exact.MOST_CLASSES:,} classes and "
            f"{exact.MOST_NUMBERS:,} weights, got {n_features:,} features and {n_classes:,} classes. Keep fewer "
            "components of the features."
        )


def _class_numbers(labels: Array, n_classes: int) -> NDArray[np.int64]:
    """-1 where a label is no class; which rows have one is private."""
    found = np.full(len(labels), -1, dtype=np.int64)
    if labels.dtype.kind not in "fiub":
        raise DataError("labels must be numbers of classes, 0, 1, 2 and so on.")
    with unheard():
        known = (labels >= 0) & (labels < n_classes) & (labels == np.floor(labels))
        found[known] = labels[known].astype(np.int64)
    return found


def _grouped(ids: Array) -> tuple[NDArray[np.int64], list[_Group]]:
    """Rows unit by unit, each unit's in their own order, and the units by their number of rows."""
    _, inverse, counts = np.unique(ids, return_inverse=True, return_counts=True)
    order = np.argsort(inverse, kind="stable").astype(np.int64)
    starts = np.cumsum(counts) - counts
    counted = np.minimum(counts, exact.MOST_ROWS)
    return order, [_Group(int(n), starts[counted == n].astype(np.int64)) for n in np.unique(counted)]


def _opened(name: Any, options: dict[str, Any]) -> Array:
    return np.memmap(name, mode="r", **options)
