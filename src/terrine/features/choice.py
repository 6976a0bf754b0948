"""Which of several public encoders to take: by labeled public rows, or by how well they know a row again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from terrine.datasets.data import PrivateData, PublicData
from terrine.datasets.rows import Rows, Texts, as_rows
from terrine.errors import InputError
from terrine.features import views
from terrine.features.auto import AutoFeatures, AutoRecipe, distorted_images, fit_auto, judged, left_out
from terrine.features.encoders import AnyFeatures, EncoderFeatures, as_features
from terrine.features.spectral import nearest, unit_rows

_LOOKED_AT = 1000  # public rows that are to be known again


def choose_features(
    candidates: Sequence[Any],
    public: PublicData | ArrayLike | Any,
    *,
    labels: ArrayLike | None = None,
    seed: int = 0,
    device: str = "auto",
    components: int | None = None,
    block: int | None = None,
) -> AnyFeatures:
    """The best of several encoders, by public rows alone; the scores of all are in its ``scores``.

    With labels: how often a linear model on the features is right about a labeled public row left out. Without: how
    often a row is nearest to itself again, an image when it was distorted, a text when one half of its words stands
    for the other. Rows of numbers have no such measure, and need labels.

    Args:
        candidates: each as `as_features` takes it; "auto" is one of them.
        public: rows that anyone may see.
        labels: class indices of the public rows, -1 where unknown, if you have some.
        seed, device, components, block: as of `as_features`.
    """
    if isinstance(public, PrivateData):
        raise InputError("Encoders are compared on public rows only, got PrivateData.")
    rows = public.X if isinstance(public, PublicData) else as_rows("X", public)
    if not candidates:
        raise InputError("Give at least one encoder to choose among.")
    how: dict[str, Any] = {"seed": seed, "device": device, "components": components, "block": block}
    made = {_name(one, k): as_features(one, rows, **how) for k, one in enumerate(candidates, start=1)}
    if labels is not None:
        known = np.asarray(labels)
        scores = {name: _left_out(one, rows, known, seed=seed) for name, one in made.items()}
    else:
        before, after = _two_views(rows, seed=seed)
        scores = {name: _known_again(one, before, after) for name, one in made.items()}
    best = made[max(scores, key=lambda name: scores[name])]
    return replace(best, scores=scores) if isinstance(best, (EncoderFeatures, AutoFeatures)) else best


def _name(one: Any, k: int) -> str:
    """With its place, so that no two are the same."""
    if isinstance(one, (str, Path)):
        return f"{k}: {Path(one).name}"
    return f"{k}: {getattr(one, '__name__', type(one).__name__)}"


def _two_views(rows: Rows, *, seed: int) -> tuple[Rows, Rows]:
    """Some public rows, and the same ones as they might be met again."""
    some = rows[np.sort(np.random.default_rng([seed, 4]).permutation(len(rows))[:_LOOKED_AT])]
    if isinstance(some, Texts):
        words = [text.split() for text in some.native().tolist()]
        halves = [(" ".join(one[: len(one) // 2]), " ".join(one[len(one) // 2 :])) for one in words if len(one) > 1]
        if len(halves) > 1:
            return as_rows("X", [one for one, _ in halves]), as_rows("X", [other for _, other in halves])
    if isinstance(some, np.ndarray) and some.dtype == np.uint8 and some.ndim in (3, 4):
        plain = fit_auto(some, recipe=AutoRecipe(encoder="no"), seed=seed)
        images = some if some.ndim == 4 else some[..., None]
        strengths = views.strengths(images, lambda x: plain.transform(x.reshape(len(x), *some.shape[1:])), seed=seed)
        return some, distorted_images(images, strengths, seed=seed).reshape(some.shape)
    raise InputError(
        "Encoders of rows of numbers cannot be compared without labels: give class indices of some public rows in "
        "choose_features(labels=...), or name one encoder."
    )


def _known_again(features: AnyFeatures, before: Rows, after: Rows) -> float:
    seen = [features.transform(PublicData(some)) for some in (before, after)]
    middle = seen[0].mean(axis=0)
    one, other = (unit_rows(some - middle) for some in seen)
    return float((nearest(other, one, k=1, device="cpu")[:, 0] == np.arange(len(one))).mean())


def _left_out(features: AnyFeatures, rows: Rows, labels: NDArray[Any], *, seed: int) -> float:
    known = judged(labels, n_rows=len(rows), seed=seed)
    seen = features.transform(PublicData(rows[known]))
    X = unit_rows(seen - seen.mean(axis=0)).astype(np.float64)
    return left_out(X, labels[known])
