"""Which answers to leave out: those that nets trained without them contradict."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from terrine._optional import require_torch
from terrine.students import nets
from terrine.students.nets import NetSettings, Progress

# (settings, rows, answered, labels, *, fresh, device, progress) -> the trained net
Train = Callable[..., Any]


def believed(
    settings: NetSettings,
    x: Any,
    answered: Any,
    labels: Any,
    *,
    train: Train,
    fresh: Callable[[], Any],
    device: str,
    progress: Progress | None,
) -> Any:
    """(n_answered,) whether an answer is kept.

    A net judges the fold of answers that it was not trained on. Its probability p of the class that was answered makes
    the answer right with the odds p (1 - wrong) to (1 - p) wrong / (n_classes - 1).
    """
    torch = require_torch()
    fold = torch.from_numpy(_dealt(labels.cpu().numpy(), settings.folds)).to(device)
    p = torch.zeros(len(labels), device=device)
    for k in range(settings.folds):
        done = None if progress is None else _part(progress, k, settings.folds)
        seen, held = torch.nonzero(fold != k)[:, 0], torch.nonzero(fold == k)[:, 0]
        half = replace(settings, steps=max(1, settings.steps // 2))
        net = train(half, x, answered[seen], labels[seen], fresh=fresh, device=device, progress=done)
        with torch.no_grad():
            scores = net(nets.as_float(x[answered[held]])).softmax(1)
        p[held] = scores.gather(1, labels[held, None])[:, 0]
    kept = kept_of(p.cpu().numpy(), labels.cpu().numpy(), wrong=settings.wrong, n_classes=scores.shape[1])
    return torch.from_numpy(kept).to(device)


def kept_of(
    p: NDArray[Any], labels: NDArray[np.int64], *, wrong: float, n_classes: int
) -> NDArray[np.bool_]:  # (n_answered,)
    """Answers that are more likely right than wrong, and the likelier half of every class: none is left empty."""
    kept: NDArray[np.bool_] = p * (1 - wrong) >= (1 - p) * wrong / (n_classes - 1)
    for label in np.unique(labels):
        mine = np.flatnonzero(labels == label)
        likeliest = mine[np.argsort(-p[mine], kind="stable")]
        kept[likeliest[: (len(mine) + 1) // 2]] = True
    return kept


def _dealt(labels: NDArray[np.int64], folds: int) -> NDArray[np.int64]:
    """The fold of each answer: every class is dealt out evenly."""
    fold = np.empty(len(labels), dtype=np.int64)
    fold[np.argsort(labels, kind="stable")] = np.arange(len(labels)) % folds
    return fold


def _part(progress: Progress, k: int, parts: int) -> Progress:
    return lambda done: progress((k + done) / parts)
