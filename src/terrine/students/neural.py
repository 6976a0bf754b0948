"""Nets: from lessons to a fitted student, which predicts and is kept as safetensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from terrine._blocks import blocks
from terrine._models import dump_arrays, load_arrays
from terrine._optional import require_torch
from terrine.errors import DataError, InputError, StoreError
from terrine.students import nets
from terrine.students.fitted import Fitted, Folder
from terrine.students.label_filter import Train, believed
from terrine.students.lessons import About, Lessons
from terrine.students.nets import NetSettings, Progress, Scale
from terrine.students.onnx import net_to_onnx

KIND, FILE = "net", "student.safetensors"
_MEAN, _DEVIATION = "features.mean", "features.deviation"
_BLOCK = {"cpu": 64, "cuda": 1024}  # rows that are predicted in one go


@dataclass(frozen=True, kw_only=True, eq=False)
class FittedNet(Fitted):
    """A net that has learned.

    Attributes:
        weights: by name; with the mean and deviation of the public rows where rows are features.
        device: where it predicts: "cpu", "cuda", or "auto" for a GPU where there is one.
    """

    weights: Mapping[str, NDArray[Any]]
    device: str = "auto"

    def predict(self, X: ArrayLike, *, accept_unreadable: bool = False) -> NDArray[np.int64]:
        labels: NDArray[np.int64] = (
            self.predict_proba(X, accept_unreadable=accept_unreadable).argmax(axis=1).astype(np.int64)
        )
        return labels

    def predict_proba(self, X: ArrayLike, *, accept_unreadable: bool = False) -> NDArray[np.float64]:
        torch = require_torch()
        rows = self._rows(X, accept=accept_unreadable)
        device, parts = nets.picked(self.device), []
        with torch.no_grad():
            for at, block in blocks(rows, _BLOCK["cpu" if device == "cpu" else "cuda"]):
                x = nets.as_tensor(block, self._scale, device)
                parts.append(self._net(nets.as_float(x)).double().softmax(1)[: at.stop - at.start].cpu().numpy())
        return np.concatenate(parts)

    def dumps(self) -> tuple[str, dict[str, bytes]]:
        return KIND, {FILE: dump_arrays(self.weights)}

    @classmethod
    def restore(cls, kept: Folder) -> FittedNet:
        """From a checked folder; `load_student` calls it."""
        weights = load_arrays(kept.model, what="weights")
        student = cls(about=kept.about, card=kept.card, extra=kept.files, weights=weights)
        if (_MEAN in weights) == kept.about.images or student._net is None:
            raise StoreError(
                f"The weights in {FILE} are not those that the model card describes. Use a copy as it was saved."
            )
        return student

    def to_onnx(self) -> Any:
        net = replace(self, device="cpu")._net
        return net_to_onnx(net, row_shape=self.about.row_shape, scale=self._scale)

    @property
    def _scale(self) -> Scale | None:
        return (self.weights[_MEAN], self.weights[_DEVIATION]) if _MEAN in self.weights else None

    @cached_property
    def _net(self) -> Any:
        torch = require_torch()
        sizes = self.about.settings
        settings = NetSettings(
            channels=tuple(sizes["channels"]), depth=sizes["depth"], hidden=tuple(sizes["hidden"]), norm=sizes["norm"]
        )
        with torch.random.fork_rng(devices=[]):  # a blank net draws weights that are not used
            net = nets.build(settings, self.about.row_shape, len(self.classes))
        state = {name: torch.from_numpy(np.array(w)) for name, w in self.weights.items() if not _is_scale(name)}
        try:
            net.load_state_dict(state)
        except RuntimeError:
            raise StoreError(
                f"The weights in {FILE} do not fit the net of the model card. Use a copy as it was saved."
            ) from None
        return net.to(nets.picked(self.device)).to(memory_format=torch.channels_last).eval()


def fit_net(settings: NetSettings, given: Lessons, *, seed: int, train: Train, progress: Progress | None) -> FittedNet:
    """Rows to tensors, all randomness from ``seed``, ``train``, and what came out of it."""
    torch = require_torch()
    device = nets.picked(settings.device)
    if not given.of_images and given.rows.ndim != 2:
        raise DataError(
            "A net takes uint8 images (n, height, width[, channels]) or rows of features (n, d), "
            f"got rows of shape {given.rows.shape[1:]}, dtype {given.rows.dtype}."
        )
    least = 2 ** len(settings.channels)
    if given.of_images and min(given.row_shape[:2]) < least:
        raise DataError(
            f"Images must have at least {least} x {least} pixels for this net, got {given.row_shape[:2]}. Use fewer "
            "channels."
        )
    scale = None if given.of_images else _scale(given.rows)

    def fresh() -> Any:
        net = nets.build(settings, given.row_shape, len(given.classes))
        return net.to(device).to(memory_format=torch.channels_last).train()

    x = nets.as_tensor(given.rows, scale, device)
    answered, labels = (torch.from_numpy(a).to(device) for a in (given.answered, given.labels))
    judging = settings.folds / (settings.folds + 2)  # share of the work: the folds' nets have half the steps

    def done(share: float) -> None:
        if progress is not None:
            progress(share)

    with nets.seeded(seed, device):
        how: dict[str, Any] = {"fresh": fresh, "device": device}
        if settings.folds:
            kept = believed(settings, x, answered, labels, train=train, progress=lambda k: done(k * judging), **how)
            answered, labels = answered[kept], labels[kept]
        net = train(settings, x, answered, labels, progress=lambda k: done(judging + k * (1 - judging)), **how)
    done(1.0)
    weights = {name: tensor.cpu().contiguous().numpy() for name, tensor in net.state_dict().items()}
    if not all(np.isfinite(w).all() for w in weights.values()):
        rate = settings.learning_rate
        raise InputError(f"Training did not converge: weights are not finite. Try a learning_rate below {rate}.")
    if scale is not None:
        weights |= {_MEAN: scale[0], _DEVIATION: scale[1]}
    described = {"student": type(settings).__name__, **asdict(settings)}
    about = About.of(given, seed=seed, settings=described, n_learned=len(labels))
    return FittedNet(about=about, weights=weights, device=settings.device)


def _scale(rows: NDArray[Any]) -> Scale:
    """Mean and deviation of each feature over the public rows; a feature that never changes keeps deviation 1."""
    mean, deviation = rows.mean(axis=0, dtype=np.float64), rows.std(axis=0, dtype=np.float64)
    return mean.astype(np.float32), np.where(deviation > 0, deviation, 1.0).astype(np.float32)


def _is_scale(name: str) -> bool:
    return name in (_MEAN, _DEVIATION)
