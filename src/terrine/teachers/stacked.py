"""Many small convolutional nets trained as one batched model: the fast way on a GPU.

Every array has the teachers on its first axis and convolutions are matrix products over patches, so that one step of a
whole chunk of teachers is a handful of large kernels. No statistic crosses teachers, and all randomness of teacher k
(first weights, order of its data, augmentation, dropout) is a function of (seed, k) and the step: its neighbors can
change without changing it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from terrine import _validate
from terrine._blocks import blocks
from terrine._optional import require_torch
from terrine.errors import InputError
from terrine.teachers.teacher import Share


@dataclass(frozen=True, kw_only=True)
class ConvRecipe:
    """A two-convolution net and its training: public, the same for every teacher whatever its share.

    Attributes:
        channels: of the two convolutions (3 x 3, each followed by a 2 x 2 maximum).
        hidden: units of the dense layer.
        steps, batch: training steps, and records in each of them, drawn from the teacher's own share.
        learning_rate: at its top; it rises over a tenth of the steps and falls to 0 as a cosine.
        rotate, zoom, shear, shift: largest random distortions: degrees, share, share, pixels.
        dropout: share of hidden units left out.
        smoothing: share of the label spread over all classes.
        views: predictions are averaged over this many fixed distortions of an input (1: the input itself).
    """

    channels: tuple[int, int] = (32, 64)
    hidden: int = 128
    steps: int = 1500
    batch: int = 32
    learning_rate: float = 0.05
    weight_decay: float = 5e-4
    rotate: float = 15.0
    zoom: float = 0.15
    shear: float = 0.2
    shift: float = 2.0
    dropout: float = 0.4
    smoothing: float = 0.05
    views: int = 1

    def __post_init__(self) -> None:
        for name in ("hidden", "steps", "batch", "views"):
            _validate.integer(name, getattr(self, name), at_least=1)
        if len(self.channels) != 2 or not all(isinstance(n, int) and n >= 1 for n in self.channels):
            raise InputError(f"channels must be two whole numbers of at least 1, got {self.channels}.")
        _validate.positive("learning_rate", self.learning_rate)
        for name in ("weight_decay", "rotate", "zoom", "shear", "shift", "dropout", "smoothing"):
            if _validate.number(name, getattr(self, name)) < 0:
                raise InputError(f"{name} must be at least 0, got {getattr(self, name)}.")
        for name in ("zoom", "dropout", "smoothing"):
            if getattr(self, name) >= 1:
                raise InputError(f"{name} must be below 1, got {getattr(self, name)}.")


def fit_stacked(
    shares: Sequence[Share],
    *,
    recipe: ConvRecipe,
    ids: Sequence[int],
    n_classes: int,
    seed: int,
    device: str = "cpu",
    progress: Callable[[float], object] | None = None,
) -> list[Any]:
    """Train one net per share, all at once.

    Args:
        shares: of each teacher, images (n, height, width[, channels]) uint8 and labels (n,) below ``n_classes``; sizes
            may differ, and a share may be empty (its net learns from one blank record).
        ids: of each teacher; with ``seed`` they decide all randomness.

    Returns:
        Parameters, one tensor each with the teachers on the first axis.
    """
    torch = require_torch()
    images, labels, offsets, sizes = _on_device(shares, device)
    keys = teacher_keys(seed, ids, device)
    height, width, depth = images.shape[1:]
    parameters = _first_weights(recipe, keys, (height, width, depth), n_classes)
    parameters = [p.requires_grad_() for p in parameters]
    optimiser = torch.optim.SGD(
        parameters,
        lr=torch.tensor(0.0) if device != "cpu" else 0.0,
        momentum=0.9,
        nesterov=True,
        weight_decay=recipe.weight_decay,
        fused=device != "cpu",
    )
    loss = torch.compile(_loss) if device != "cpu" else _loss
    for step in range(recipe.steps):
        rate = _rate(recipe, step)
        for group in optimiser.param_groups:
            group["lr"] = torch.tensor(rate) if device != "cpu" else rate
        # Columns of uniform numbers: which record, how it is distorted; a block for dropout
        draw = uniform(keys, step, recipe.batch * 7).view(len(keys), recipe.batch, 7)
        which = offsets[:, None] + (draw[..., 0] * sizes[:, None]).long().clamp(max=sizes[:, None] - 1)
        x = _distort(images[which.flatten()], draw[..., 1:].flatten(0, 1), recipe)
        x = x.view(len(keys), recipe.batch, height, width, depth)
        kept = uniform(keys, recipe.steps + step, recipe.batch * recipe.hidden) >= recipe.dropout
        mask = kept.view(len(keys), recipe.batch, recipe.hidden) / (1 - recipe.dropout)
        optimiser.zero_grad(set_to_none=True)
        loss(x, labels[which], mask, parameters, recipe.smoothing).backward()
        optimiser.step()
        if progress is not None and step % 25 == 0:
            progress(step / recipe.steps)
    return [p.detach() for p in parameters]


def predict_stacked(
    parameters: list[Any], images: NDArray[Any], *, recipe: ConvRecipe, batch: int = 128
) -> NDArray[np.int64]:
    """(n_teachers, n_images) class indices, in runs of images that bound memory."""
    torch = require_torch()
    device = parameters[0].device
    n_teachers = parameters[0].shape[0]
    forward = torch.compile(_forward) if device.type != "cpu" else _forward
    result = np.empty((n_teachers, len(images)), dtype=np.int64)
    with torch.no_grad():
        for at, block in blocks(images, batch):
            x = torch.from_numpy(_as_images(block)).to(device)
            total: Any = 0.0
            for view in range(recipe.views):
                if view == 0:
                    seen = x.float() / 255
                else:
                    draw = uniform(teacher_keys(0, [view], device), 0, 6)  # the same wherever the image stands
                    seen = _distort(x, (0.5 + (draw - 0.5) * 0.5).expand(batch, 6), recipe)
                total = total + forward(seen.expand(n_teachers, *seen.shape), None, parameters).log_softmax(-1)
            result[:, at] = total[:, : at.stop - at.start].argmax(-1).cpu().numpy()
    return result


def teacher_keys(seed: int, ids: Sequence[int], device: str) -> Any:
    """One 63-bit key per teacher, from (seed, id) alone."""
    torch = require_torch()
    words = [np.random.SeedSequence([seed, int(k)]).generate_state(1, np.uint64)[0] >> np.uint64(1) for k in ids]
    return torch.tensor(np.array(words, dtype=np.int64), device=device)


def uniform(keys: Any, step: int, n: int) -> Any:
    """(len(keys), n) numbers in [0, 1), the same on every device: a counter through splitmix64's finaliser."""
    torch = require_torch()

    def shifted(z: Any, bits: int) -> Any:
        return (z >> bits) & ((1 << (64 - bits)) - 1)  # logical, as of an unsigned number

    counter = torch.arange(n, device=keys.device, dtype=torch.int64) + step * 0x1_0000_0001
    z = keys[:, None] + counter * -7046029254386353131
    z = (z ^ shifted(z, 30)) * -4658895280553007687
    z = (z ^ shifted(z, 27)) * -7723592293110705685
    return shifted(z ^ shifted(z, 31), 40).to(torch.float32) / 2**24


def _as_images(images: NDArray[Any]) -> NDArray[np.uint8]:
    """(n, height, width, channels) uint8."""
    images = np.asarray(images)
    if images.ndim == 3:
        images = images[..., None]
    if images.ndim != 4 or images.dtype != np.uint8:
        raise InputError(
            "Rows must be images of shape (height, width[, channels]) and dtype uint8, got shape "
            f"{images.shape[1:]}, dtype {images.dtype}."
        )
    return np.ascontiguousarray(images)


def _on_device(shares: Sequence[Share], device: str) -> tuple[Any, Any, Any, Any]:
    """All records one after the other, and where each teacher's begin."""
    torch = require_torch()
    filled = [(_as_images(x), np.asarray(y, dtype=np.int64)) if len(y) else _blank(x) for x, y in shares]
    images = np.concatenate([x for x, _ in filled])
    labels = np.concatenate([y for _, y in filled])
    sizes = np.array([len(y) for _, y in filled], dtype=np.int64)
    offsets = np.cumsum(sizes) - sizes
    return tuple(torch.from_numpy(a).to(device) for a in (images, labels, offsets, sizes))


def _blank(like: NDArray[Any]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    return np.zeros((1, *_as_images(like).shape[1:]), dtype=np.uint8), np.zeros(1, dtype=np.int64)


def _first_weights(recipe: ConvRecipe, keys: Any, shape: tuple[int, int, int], n_classes: int) -> list[Any]:
    torch = require_torch()
    height, width, depth = shape
    if height % 4 or width % 4:
        raise InputError(f"Images must have a height and width that 4 divides, got {height} x {width}.")
    first, second = recipe.channels
    flat = (height // 4) * (width // 4) * second
    parameters = []
    for layer, (fan, out) in enumerate(
        ((9 * depth, first), (9 * first, second), (flat, recipe.hidden), (recipe.hidden, n_classes))
    ):
        u = uniform(keys, -1 - layer, 2 * fan * out).view(len(keys), 2, fan, out)
        normal = (-2 * (1 - u[:, 0]).log()).sqrt() * (2 * math.pi * u[:, 1]).cos()
        parameters += [normal * math.sqrt(2 / fan), torch.zeros(len(keys), 1, out, device=keys.device)]
    return parameters


def _rate(recipe: ConvRecipe, step: int) -> float:
    warm = max(1, recipe.steps // 10)
    if step < warm:
        return recipe.learning_rate * (step + 1) / warm
    return recipe.learning_rate * 0.5 * (1 + math.cos(math.pi * (step - warm) / (recipe.steps - warm)))


def _distort(images: Any, draw: Any, recipe: ConvRecipe) -> Any:
    """(n, height, width, depth) in [0, 1] after random rotation, zoom, shear and shift, from (n, 6) uniform numbers."""
    torch = require_torch()
    x = images.permute(0, 3, 1, 2).float() / 255
    height, width = x.shape[2:]
    r = draw * 2 - 1
    angle, zoom = r[:, 0] * math.radians(recipe.rotate), 1 + r[:, 1] * recipe.zoom
    stretch, shear = 1 + r[:, 2] * recipe.zoom, r[:, 3] * recipe.shear
    cos, sin = angle.cos() / zoom, angle.sin() / zoom
    theta = torch.stack(
        (
            torch.stack((cos * stretch, -sin + shear, r[:, 4] * 2 * recipe.shift / width), 1),
            torch.stack((sin, cos / stretch, r[:, 5] * 2 * recipe.shift / height), 1),
        ),
        1,
    )
    grid = torch.nn.functional.affine_grid(theta, list(x.shape), align_corners=False)
    return torch.nn.functional.grid_sample(x, grid, align_corners=False).permute(0, 2, 3, 1)


def _patches(x: Any) -> Any:
    """(teachers, records·height·width, 9·depth): the 3 x 3 surroundings of every pixel."""
    torch = require_torch()
    teachers, records, height, width, depth = x.shape
    padded = torch.nn.functional.pad(x, (0, 0, 1, 1, 1, 1))
    parts = [padded[:, :, i : i + height, j : j + width] for i in range(3) for j in range(3)]
    return torch.cat(parts, -1).view(teachers, records * height * width, 9 * depth)


def _pooled(x: Any) -> Any:
    teachers, records, height, width, depth = x.shape
    return x.view(teachers, records, height // 2, 2, width // 2, 2, depth).amax(dim=(3, 5))


def _forward(x: Any, mask: Any, parameters: list[Any]) -> Any:
    """(teachers, records, classes) scores; bfloat16 inside on a GPU."""
    torch = require_torch()
    kind = torch.bfloat16 if x.is_cuda else torch.float32
    w1, b1, w2, b2, w3, b3, w4, b4 = (p.to(kind) for p in parameters)
    teachers, records, height, width = x.shape[:4]
    h = torch.baddbmm(b1, _patches(x.to(kind)), w1).view(teachers, records, height, width, -1)
    h = _pooled(h.relu())
    h = torch.baddbmm(b2, _patches(h), w2).view(teachers, records, height // 2, width // 2, -1)
    h = _pooled(h.relu())
    h = torch.baddbmm(b3, h.reshape(teachers, records, -1), w3).relu()
    if mask is not None:
        h = h * mask.to(kind)
    return torch.baddbmm(b4, h, w4).float()


def _loss(x: Any, y: Any, mask: Any, parameters: list[Any], smoothing: float) -> Any:
    """Sum over teachers of each one's own mean loss: gradients do not mix."""
    torch = require_torch()
    scores = _forward(x, mask, parameters)
    losses = torch.nn.functional.cross_entropy(
        scores.flatten(0, 1), y.flatten(), reduction="none", label_smoothing=smoothing
    )
    return losses.view(y.shape).mean(1).sum()
