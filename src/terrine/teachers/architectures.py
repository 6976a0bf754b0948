"""Modules for `ModuleTeacher`, and the recipe that goes with the paper's largest task. Importing this imports torch.

Each takes ``(n_classes, row_shape)``; use `functools.partial` for the rest, as ``partial(resnet32, width=8)``.
No statistic crosses teachers in any of them, one after the other or stacked.
"""

from __future__ import annotations

import math
from typing import Any

from terrine import _validate
from terrine._optional import require_torch
from terrine.errors import InputError
from terrine.teachers.modules import ModuleRecipe

require_torch()  # or say how to install it
from torch import nn  # noqa: E402

PAPER_GLYPH = ModuleRecipe(
    steps=40_000,
    batch=100,
    optimiser="sgd",
    learning_rate=0.1,
    schedule="steps",
    decay_at=(0.25, 0.5),
    decay_by=0.1,
    momentum=0.9,
)
"""The Glyph teachers' training as the paper prints it (experimental setup, the paragraph on Glyph): batches of 100 for
40K steps of SGD with momentum, the rate 0.1, after 10K steps 0.01, after 20K steps 0.001. It prints neither the
momentum (0.9 here) nor any weight decay or augmentation (none here)."""


def mlp(n_classes: int, row_shape: tuple[int, ...], hidden: tuple[int, ...] = (128,), dropout: float = 0.0) -> Any:
    """Dense layers with ReLU and dropout between, on rows of any shape."""
    layers: list[Any] = [nn.Flatten()]
    width = math.prod(row_shape)
    for units in hidden:
        layers += [nn.Linear(width, units), nn.ReLU(), nn.Dropout(dropout)]
        width = units
    return nn.Sequential(*layers, nn.Linear(width, n_classes))


def two_conv(
    n_classes: int,
    row_shape: tuple[int, ...],
    channels: tuple[int, int] = (32, 64),
    hidden: int = 128,
    dropout: float = 0.0,
) -> Any:
    """The teachers of the first PATE paper on MNIST: two convolutions with max-pooling, one dense layer with ReLU.

    The sizes are ours: convolutions 3 x 3 and maxima over 2 x 2, as in `ConvRecipe`.
    """
    depth, height, width = _image(row_shape, at_least=4)
    first, second = channels
    return nn.Sequential(
        nn.Conv2d(depth, first, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(first, second, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(second * (height // 4) * (width // 4), hidden),
        nn.ReLU(),
        nn.Dropout(dropout),
        nn.Linear(hidden, n_classes),
    )


def resnet32(
    n_classes: int, row_shape: tuple[int, ...], width: int = 16, slope: float = 0.1, norm: str = "batch"
) -> Any:
    """The Glyph teachers: a residual net of 32 layers with leaky ReLU.

    Counted as residual nets are, by layers with a matrix of weights: a first convolution, 3 stages of 5 blocks of 2
    convolutions, and a dense layer, 1 + 30 + 1 = 32; shortcuts have no weights (they are subsampled and filled up with
    zero channels). The stages have ``width``, twice and four times ``width`` channels, as He et al.'s nets for small
    images. The paper prints no width, slope or normalization: those are ours.

    Args:
        norm: "batch" (BatchNorm, as He et al.; a teacher's batches and running statistics are of its own share), or
            "group" (GroupNorm: each image by itself, nothing to keep).
    """
    _validate.integer("width", width, at_least=1)
    _validate.choice("norm", norm, ("group", "batch"))
    depth, _, _ = _image(row_shape, at_least=4)
    layers = [*_convolution(depth, width, 1, norm), nn.LeakyReLU(slope)]
    inside = width
    for stage in range(3):
        for block in range(5):
            outside = width * 2**stage
            layers.append(_Residual(inside, outside, 2 if stage and not block else 1, slope, norm))
            inside = outside
    net = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inside, n_classes))
    for layer in net.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, a=slope, mode="fan_out", nonlinearity="leaky_relu")
    return net


class _Residual(nn.Module):  # type: ignore[misc]  # torch is Any to mypy here
    def __init__(self, inside: int, outside: int, stride: int, slope: float, norm: str) -> None:
        super().__init__()
        self.stride, self.wider = stride, outside - inside
        self.body = nn.Sequential(
            *_convolution(inside, outside, stride, norm),
            nn.LeakyReLU(slope),
            *_convolution(outside, outside, 1, norm),
        )
        self.activation = nn.LeakyReLU(slope)

    def forward(self, x: Any) -> Any:
        short = x[:, :, :: self.stride, :: self.stride]
        if self.wider:
            short = nn.functional.pad(short, (0, 0, 0, 0, 0, self.wider))
        return self.activation(self.body(x) + short)


def _convolution(inside: int, outside: int, stride: int, norm: str) -> list[Any]:
    scaled = nn.BatchNorm2d(outside) if norm == "batch" else nn.GroupNorm(math.gcd(8, outside), outside)
    return [nn.Conv2d(inside, outside, 3, stride=stride, padding=1, bias=False), scaled]


def _image(row_shape: tuple[int, ...], *, at_least: int) -> tuple[int, int, int]:
    """Channels, height and width."""
    if len(row_shape) not in (2, 3) or min(row_shape[:2]) < at_least:
        raise InputError(
            f"Rows must be images (height, width[, channels]) of at least {at_least} x {at_least}, "
            f"got shape {row_shape}."
        )
    return (*row_shape, 1)[2], row_shape[0], row_shape[1]
