"""Change, add or remove a row of one share: every other teacher stays as it was, bit for bit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.soak import amount
from tests.teachers.tasks import CLASSES, KEY, TEACHERS, prints, shares_of, task

from terrine.datasets import PrivateData
from terrine.executors import Processes, Serial
from terrine.partitioning import partition
from terrine.teachers import fit_teachers

DATA = task()
TOUCHED = int(shares_of(DATA).assignment[0])


def taught(data, *, teacher, executor=None, seed=5):
    return prints(
        fit_teachers(data, shares_of(data), teacher, classes=CLASSES, seed=seed, executor=executor or Serial())
    )


@pytest.fixture(scope="module")
def undisturbed():
    return {name: taught(DATA, teacher=teacher) for name, teacher in TEACHERS.items()}


def changed() -> PrivateData:
    X, y = DATA.X.copy(), DATA.y.copy()
    X[0], y[0] = 255 - X[0], (y[0] + 1) % 4
    return PrivateData(X, y, unit=DATA.unit)


def removed() -> PrivateData:
    return DATA.take(np.arange(1, len(DATA)))


def added() -> PrivateData:
    """A new unit in the middle of the file, of the touched share."""
    for unit in range(1000, 2000):
        row = PrivateData(DATA.X[:1], DATA.y[:1], unit=[unit])
        if partition(row, n_teachers=7, key=KEY, min_units=0).assignment[0] == TOUCHED:
            break
    place = [100]
    return PrivateData(
        np.insert(DATA.X, place, 255 - DATA.X[:1], axis=0),
        np.insert(DATA.y, place, (DATA.y[0] + 1) % 4),
        unit=np.insert(DATA.unit, place, unit),
    )


@pytest.mark.parametrize("name", TEACHERS)
@pytest.mark.parametrize("neighbour", [changed, removed, added])
def test_one_share_does_not_reach_the_other_teachers(undisturbed, name, neighbour):
    teacher = TEACHERS[name]
    assert 0 < TOUCHED % teacher.chunk < teacher.chunk - 1 or TOUCHED < 6  # it has neighbours in its chunk
    now = taught(neighbour(), teacher=teacher)
    different = [k for k in range(7) if now[k] != undisturbed[name][k]]
    assert different == [TOUCHED]


@pytest.mark.parametrize(
    "name",
    ["forest", "nets", *(pytest.param(name, marks=pytest.mark.soak) for name in ("linear", "modules", "centroids"))],
)
def test_nor_in_other_processes(undisturbed, name):
    now = taught(changed(), teacher=TEACHERS[name], executor=Processes(n_workers=amount(1, soak=2)))
    assert [k for k in range(7) if now[k] != undisturbed[name][k]] == [TOUCHED]


@pytest.mark.parametrize("name", TEACHERS)
@pytest.mark.parametrize("chunk", [1, 2, 7])
def test_a_teacher_does_not_depend_on_how_many_are_taught_together(undisturbed, name, chunk):
    assert taught(DATA, teacher=replace(TEACHERS[name], chunk=chunk)) == undisturbed[name]


@pytest.mark.parametrize("name", ["forest", "nets", "modules"])
def test_the_seed_and_the_id_do_decide(undisturbed, name):
    other = taught(DATA, teacher=TEACHERS[name], seed=6)
    assert not set(other) & set(undisturbed[name])
    assert len(set(other)) == 7
    X, y = DATA.X[:40], DATA.y[:40]
    alike = TEACHERS[name].fit([(X, y), (X, y)], ids=[0, 1], n_classes=4, seed=5)
    first, second = TEACHERS[name].predict(alike, 255 - DATA.X)
    assert (first != second).any()
