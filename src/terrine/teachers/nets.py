"""Teachers that are convolutional nets: on a GPU a chunk of them is one batched model, on a CPU the same code runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from terrine import _validate
from terrine._models import dump_arrays, load_arrays
from terrine._optional import require_torch
from terrine.errors import StoreError
from terrine.teachers.stacked import ConvRecipe, fit_stacked, predict_stacked
from terrine.teachers.teacher import Share

_NAMES = ("conv1", "bias1", "conv2", "bias2", "dense", "bias3", "scores", "bias4")
_FIXED = "fixed"  # (teachers,) the class that an empty or one-class share votes for, else -1


@dataclass(frozen=True, kw_only=True)
class ConvTeacher:
    """The two-convolution net of `ConvRecipe` on uint8 images.

    Attributes:
        recipe: architecture and training, public.
        device: "cpu", "cuda", or "auto" for a GPU where there is one.
        chunk: teachers trained as one model; memory grows with it. On a CPU a small one feeds all workers.

    A share without records votes for class 0, a share of one class for that class.
    """

    recipe: ConvRecipe = field(default_factory=ConvRecipe)
    device: str = "auto"
    chunk: int = 250
    suffix = ".safetensors"

    def __post_init__(self) -> None:
        _validate.integer("chunk", self.chunk, at_least=1)

    def settings(self) -> dict[str, Any]:
        """What decides what a teacher becomes, for a store's manifest."""
        recipe = {f"recipe.{name}": value for name, value in asdict(self.recipe).items()}
        return {"teacher": type(self).__name__, **recipe}

    def fit(
        self,
        shares: Sequence[Share],
        *,
        ids: Sequence[int],
        n_classes: int,
        seed: int,
        progress: Callable[[float], object] | None = None,
    ) -> dict[str, NDArray[np.float32]]:
        """Weights of the whole chunk, the teachers on the first axis."""
        parameters = fit_stacked(
            shares,
            recipe=self.recipe,
            ids=ids,
            n_classes=n_classes,
            seed=seed,
            device=self._device(),
            progress=progress,
        )
        weights = {name: p.float().cpu().numpy() for name, p in zip(_NAMES, parameters, strict=True)}
        return weights | {_FIXED: np.array([_fixed_vote(y) for _, y in shares], dtype=np.float32)}

    def predict(
        self, models: dict[str, NDArray[np.float32]], X: NDArray[Any], *, watched: bool = True
    ) -> NDArray[np.int16]:
        """(n_models, n_rows) class indices."""
        torch = require_torch()
        parameters = [
            torch.tensor(models[name], device=self._device()) for name in _NAMES
        ]  # a copy: Ray's are read-only
        votes = predict_stacked(parameters, X, recipe=self.recipe)
        fixed = models[_FIXED][:, None]
        return np.where(fixed >= 0, fixed, votes).astype(np.int16)

    def dumps(self, models: dict[str, NDArray[np.float32]]) -> bytes:
        """A chunk's file: plain arrays."""
        return dump_arrays(models)

    def loads(self, data: bytes) -> dict[str, NDArray[np.float32]]:
        """The models again; nothing in the file is executed."""
        models = load_arrays(data, what="weights")
        if set(models) != {*_NAMES, _FIXED}:
            raise StoreError("This file does not hold the weights of two-convolution nets. Delete it and teach again.")
        return models

    def _device(self) -> str:
        if self.device != "auto":
            return self.device
        return "cuda" if require_torch().cuda.is_available() else "cpu"


def _fixed_vote(y: NDArray[np.int64]) -> int:
    present = np.unique(y)
    return -1 if present.size > 1 else int(present[0]) if present.size else 0
