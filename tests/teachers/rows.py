"""Rows for the tests of teachers, and a teacher that takes its time: a program that has only these starts at once."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from terrine.datasets import PrivateData
from terrine.partitioning import Partition, partition
from terrine.teachers import CentroidTeacher

KEY = bytes(range(32))
CLASSES = ("a", "b", "c", "d")


@dataclass(frozen=True, kw_only=True)
class Patient(CentroidTeacher):
    """Needs a moment for each chunk, so that it can be killed in the middle; no PyTorch, and no scikit-learn."""

    def fit(self, *shares: Any, **options: Any) -> Any:
        time.sleep(0.05)
        return super().fit(*shares, **options)


PATIENT = Patient(chunk=3)


def images(n: int, *, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """(n, 8, 8) uint8 with one bright quarter, which is the class."""
    rng = np.random.default_rng(seed)
    y = rng.integers(4, size=n)
    X = rng.integers(0, 120, size=(n, 8, 8))
    for k, (row, column) in enumerate(((0, 0), (0, 4), (4, 0), (4, 4))):
        X[y == k, row : row + 4, column : column + 4] += 80
    return X.astype(np.uint8), y


def task(n: int = 240, *, seed: int = 0) -> PrivateData:
    """Two rows to a unit."""
    X, y = images(n, seed=seed)
    return PrivateData(X, y, unit=np.arange(n) // 2)


def shares_of(data: PrivateData, n_teachers: int = 7) -> Partition:
    return partition(data, n_teachers=n_teachers, key=KEY, min_units=0)


def mixed(n_classes: int, row_shape: tuple[int, ...], channels: int = 6, dropout: float = 0.2) -> Any:
    """A module with all that could cross teachers: batch statistics, buffers, randomness of its own."""
    import torch

    height, width = row_shape[:2]
    return torch.nn.Sequential(
        torch.nn.Conv2d((*row_shape, 1)[2], channels, 3, padding=1),
        torch.nn.BatchNorm2d(channels),
        torch.nn.ReLU(),
        torch.nn.AvgPool2d(2),
        torch.nn.Flatten(),
        torch.nn.Dropout(dropout),
        torch.nn.Linear(channels * (height // 2) * (width // 2), n_classes),
    )
