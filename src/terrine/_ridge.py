"""Ridge regression on classes for a stack of shares at once, each with a ridge of its own, chosen by leaving out rows.

One eigendecomposition gives the errors of all ridges in closed form. numpy takes the matrices of a stack one by one:
what comes of one does not depend on the others.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Stack = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Solved:
    """Of each share of a stack."""

    weights: Stack  # (k, width, classes)
    bias: Stack  # (k, classes)
    ridges: Stack  # (k,) that were chosen
    accuracy: Stack  # (k,) how often the class of a row that is left out is right, with that ridge


def solve(X: Stack, Y: Stack, *, ridges: tuple[float, ...], spare: float) -> Solved:
    """Each share's weights, with the smallest ridge that is good enough.

    With centered rows A = P V', P orthogonal columns whose squared lengths are ``values``, ridge l fits with
    P (P'Y / (values + l)). A row that is left out has its residual divided by 1 - 1/n - h, h what it weighs in its own
    fit: as RidgeClassifierCV has it, intercept included.

    Args:
        X: (k, n, width) rows of k shares.
        Y: (k, n, classes) their classes, one-hot.
        ridges: rising; each times the sum of squares of a share's rows about their mean.
        spare: standard errors by which a smaller ridge may be right less often than the best one.
    """
    n = X.shape[1]
    mean, middle = X.mean(axis=1, keepdims=True), Y.mean(axis=1, keepdims=True)
    A, B = X - mean, Y - middle
    total = np.square(A).sum(axis=(1, 2))[:, None]
    total = np.where(total > 0, total, 1.0)  # 0 where all rows are one: weights are 0 then
    dual = n <= A.shape[2]
    values, axes = np.linalg.eigh(A @ A.transpose(0, 2, 1) if dual else A.transpose(0, 2, 1) @ A)
    values = np.maximum(values, 0)
    P = axes * np.sqrt(values)[:, None, :] if dual else A @ axes
    T, squares, truth = P.transpose(0, 2, 1) @ B, np.square(P), Y.argmax(axis=2)
    right = np.empty((len(ridges), len(X)))
    for place, ridge in enumerate(ridges):
        inverse = (1 / (values + ridge * total))[:, :, None]
        left = 1 - 1 / n - squares @ inverse  # (k, n, 1), above 0
        wrong = (B - P @ (inverse * T)) / np.maximum(left, 1e-12)
        right[place] = ((Y - wrong).argmax(axis=2) == truth).mean(axis=1)
    best = right.max(axis=0)
    at = (right >= best - spare * np.sqrt(best * (1 - best) / n) - 1e-9).argmax(axis=0)
    chosen = np.asarray(ridges)[at]
    inverse = (1 / (values + chosen[:, None] * total))[:, :, None]
    inner = A.transpose(0, 2, 1) @ axes if dual else axes
    weights = inner @ (inverse * (axes.transpose(0, 2, 1) @ B if dual else T))
    bias = (middle - mean @ weights)[:, 0]
    return Solved(weights=weights, bias=bias, ridges=chosen, accuracy=right[at, np.arange(len(X))])
