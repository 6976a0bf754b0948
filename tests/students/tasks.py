"""Small tasks for the tests of students: scikit-learn's 8 x 8 digits, and images of which a quarter is bright."""

from __future__ import annotations

from functools import cache

import numpy as np
from sklearn.datasets import load_digits

from terrine.students import Distortion, FittedStudent, GANStudent, MatchStudent, VATStudent

VIEW = Distortion(rotate=5, zoom=0.1, shear=0.1, shift=0.7)
STRONG = Distortion(rotate=15, zoom=0.2, shear=0.2, shift=1.2, erase=0.25, jitter=0.1)
NET = {"channels": (16, 32), "batch": 16, "public_batch": 48, "averaging": 0.95, "learning_rate": 0.01, "view": VIEW}
DENSE = {**NET, "hidden": (64, 64), "public_batch": 64, "view": Distortion(jitter=0.2)}
DIGITS = tuple(str(digit) for digit in range(10))
QUARTERS = ("north west", "north east", "south west", "south east")

# Of a second or less each: for whatever does not depend on how well they learn
BRIEF = {"channels": (4, 8), "hidden": (8,), "batch": 8, "public_batch": 16, "averaging": 0.9, "steps": 12}
NETS = {
    "vat": VATStudent(**BRIEF),
    "match": MatchStudent(**BRIEF),
    "gan": GANStudent(**BRIEF, generator_channels=8),
}


@cache
def digits() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """1,200 public images and their labels, 597 to test on."""
    data = load_digits()
    order = np.random.default_rng(0).permutation(len(data.target))
    X, y = (data.images[order] * 15.9).astype(np.uint8), data.target[order]
    return X[:1200], y[:1200], X[1200:], y[1200:]


def few(y: np.ndarray, each: int, *, wrong: float = 0.0, seed: int = 0) -> np.ndarray:
    """Answers for so many rows of each class, a share of them wrong; withheld elsewhere."""
    rng, answers, n_classes = np.random.default_rng(seed), np.full(len(y), -1), int(y.max()) + 1
    for label in range(n_classes):
        answers[rng.choice(np.flatnonzero(y == label), each, replace=False)] = label
    answered = rng.permutation(np.flatnonzero(answers >= 0))
    changed = answered[: int(wrong * len(answered))]
    answers[changed] = (answers[changed] + rng.integers(1, n_classes, size=len(changed))) % n_classes
    return answers


def accuracy(student: FittedStudent, X: np.ndarray, y: np.ndarray) -> float:
    return float((student.predict(X) == y).mean())


def quarters(n: int = 80, *, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """(n, 8, 8) uint8 with one bright quarter, which is the class."""
    rng = np.random.default_rng(seed)
    y = rng.integers(4, size=n)
    X = rng.integers(0, 120, size=(n, 8, 8))
    for k, (row, column) in enumerate(((0, 0), (0, 4), (4, 0), (4, 4))):
        X[y == k, row : row + 4, column : column + 4] += 80
    return X.astype(np.uint8), y
