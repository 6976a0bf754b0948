"""A training's last sum: how many units the probe is right about, exactly, before the noise of any other step."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from terrine.errors import InputError
from terrine.executors import Executor, Serial
from terrine.measured import Measured
from terrine.probe import exact
from terrine.probe.sums import ProbeRows, Step, Task
from terrine.sensitive import Sensitive, unheard

Ints = NDArray[np.int64]


class _Shared(NamedTuple):
    rows: ProbeRows
    step: Step


def measured_sum(rows: ProbeRows, step: Step, *, executor: Executor | None = None) -> Sensitive[Ints]:
    """(dimension,) whole numbers: of all units right and wrong, then right by class, wrong by class, then zeros.

    Args:
        step: with the weights that are measured.

    Formal guarantees:
        Each unit adds a vector of length at most ``step.clip``, which is a function of its own rows and of ``step``.

    [TERRINE, Lemma 22]
    """
    if not exact.are_whole(step.weights):
        raise InputError("weights must be whole numbers, up to 2^28. Make them by exact.whole_weights.")
    told = np.zeros(2 * rows.n_classes, dtype=np.int64)
    for part in (executor or Serial()).map(_partial, rows.tasks(exact.BLOCK), shared=_Shared(rows, step)):
        told += part
    total = np.zeros(rows.dimension, dtype=np.int64)
    total[:2] = told.reshape(2, -1).sum(axis=1)
    total[2 : 2 + len(told)] = told
    return Sensitive(total)


def measured_of(output: Ints, *, n_classes: int, clip: int, noise: int) -> Measured:
    """What the sum with its noise says.

    All units, and the sum over classes, are two measurements of one number: both are moved to where they agree, by
    least squares, which leaves each number a variance of n / (n + 1) of that of its noise, n being the number of
    classes.
    """
    one, n = float(_each(clip)), n_classes
    in_all, by_class = output[:2] / one, output[2 : 2 + 2 * n].reshape(2, n) / one
    off = [float(whole) - math.fsum(parts) for whole, parts in zip(in_all, by_class, strict=True)]
    right, wrong = (by_class + np.array(off)[:, None] / (n + 1)).tolist()
    return Measured(
        right=math.fsum(right),  # the same on every machine
        wrong=math.fsum(wrong),
        right_by_class=tuple(right),
        wrong_by_class=tuple(wrong),
        noise=noise / one * math.sqrt(n / (n + 1)),
    )


def _each(clip: int) -> int:
    """What a unit adds to each half of the numbers: both together have the clip's length at most."""
    return math.isqrt(clip**2 // 2)


def _partial(task: Task, shared: _Shared) -> Ints:
    """(2 x n_classes,) of some units: each row's share of its unit, rounded down, right or wrong, by class."""
    rows, step = shared
    n = rows.n_classes
    with unheard():  # an odd number must not be heard of
        given, labels = rows.part(task)
        found, usable = exact.features(given, scale=step.scale)
        usable &= labels >= 0
        right = (found @ step.weights).argmax(axis=1) == labels  # logits are whole numbers: the same on every machine
        place = np.where(right, 0, n) + np.where(usable, labels, 0)
        unit = np.arange(len(labels)) // task.n_rows
        counts = np.bincount((unit * 2 * n + place)[usable], minlength=(len(labels) // task.n_rows) * 2 * n)
        shares: Ints = counts.astype(np.int64).reshape(-1, 2 * n) * _each(step.clip) // task.n_rows
        result: Ints = shares.sum(axis=0)
    return result
