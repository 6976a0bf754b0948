"""Natural distortions of images, and whether public images bear them: one that moves images among others is dropped.

A distortion is drawn anew for each image. All of them are for images whose classes nobody has told: which of them
keep a class, and how strong they may be, is asked of the public images themselves (`strengths`), without labels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from terrine._optional import require_torch
from terrine.features.spectral import nearest, unit_rows

NATURAL = ("crop", "rotate", "flip", "light", "color", "erase")
KEPT = 1 / 3  # share of an image's nearest public images that a distortion must leave it, on average
STRENGTHS = (1.0, 0.5, 0.25)  # tried in this order; below the last a distortion is dropped
_NEAR = 10
_ASKED = 1000  # public images distorted for the question
_AMONG = 4000  # public images that neighbors are looked for among


def distorted(x: Any, strengths: Mapping[str, float], draws: Any) -> Any:
    """(n, channels, height, width) images between 0 and 1 after distortions, each up to its strength.

    Args:
        strengths: by name; 1 crops to half the side, turns by 10 degrees, changes light by 40%, blanks a square of 30%
            of the side. One in two images is mirrored, if at all.
        draws: a torch generator on the images' device.
    """
    torch = require_torch()
    n = len(x)

    def uniform(*shape: int) -> Any:
        return torch.rand(*shape, generator=draws, device=x.device)

    def around(name: str, *shape: int) -> Any:
        return (2 * uniform(*shape) - 1) * strengths[name]

    if {"crop", "rotate", "flip"} & set(strengths):
        x = _moved(x, strengths, uniform)
    if "light" in strengths:
        x = (x * (1 + 0.4 * around("light", n, 1, 1, 1))).clamp(0, 1) ** torch.exp(0.4 * around("light", n, 1, 1, 1))
    if "color" in strengths and x.shape[1] > 1:
        x = (x * (1 + 0.3 * around("color", n, x.shape[1], 1, 1))).clamp(0, 1)
    if "erase" in strengths:
        x = _erased(x, uniform, strengths["erase"])
    return x


def _moved(x: Any, strengths: Mapping[str, float], uniform: Callable[..., Any]) -> Any:
    """Cut out and brought back to size, turned, mirrored: one sampling of the image for all three."""
    torch = require_torch()
    functional, n = torch.nn.functional, len(x)
    crop, still = strengths.get("crop", 0.0), torch.ones(n, device=x.device)
    angle = (2 * uniform(n) - 1) * strengths.get("rotate", 0.0) * math.pi / 18
    zoom, aspect = 1 - 0.5 * crop * uniform(n), torch.exp(0.2 * crop * (2 * uniform(n) - 1))
    side = torch.where(uniform(n) < 0.5, -still, still) if "flip" in strengths else still
    theta = torch.zeros(n, 2, 3, device=x.device)
    theta[:, 0, 0], theta[:, 0, 1] = angle.cos() * zoom * aspect * side, -angle.sin() * zoom
    theta[:, 1, 0], theta[:, 1, 1] = angle.sin() * zoom * side, angle.cos() * zoom / aspect
    theta[:, :, 2] = (2 * uniform(n, 2) - 1) * (1 + 0.1 * crop - zoom)[:, None]
    grid = functional.affine_grid(theta, list(x.shape), align_corners=False)
    return functional.grid_sample(x, grid, align_corners=False)


def _erased(x: Any, uniform: Callable[..., Any], strength: float) -> Any:
    """A square of up to 30% of the side is black."""
    torch = require_torch()
    n, (height, width) = len(x), x.shape[2:]
    row, column, half = (uniform(n, 1, 1) for _ in range(3))
    down, across = torch.arange(height, device=x.device), torch.arange(width, device=x.device)
    gone = ((down[None, :, None] - row * height).abs() < half * height * 0.15 * strength) & (
        (across[None, None, :] - column * width).abs() < half * width * 0.15 * strength
    )
    return torch.where(gone[:, None], torch.zeros_like(x), x)


def strengths(
    images: NDArray[np.uint8], see: Callable[[NDArray[np.uint8]], NDArray[np.float32]], *, seed: int
) -> dict[str, float]:
    """The natural distortions that leave public images among their own, each as strong as they bear it.

    An image's ten nearest public images are looked for before and after it is distorted: a distortion, by itself, is
    kept at the largest strength at which a third of them are the same, on average; a mirror image at all or not.

    Args:
        images: public, (n, height, width, channels).
        see: fixed features of images.
    """
    torch = require_torch()
    among = images[np.random.default_rng(seed).permutation(len(images))[:_AMONG]]
    asked = np.arange(min(_ASKED, len(among)))
    known = unit_rows(see(among))
    k = min(_NEAR, len(among) - 1)
    before = nearest(known[asked], known, k=k, device="cpu", own=asked)
    x = torch.from_numpy(np.ascontiguousarray(among[asked])).permute(0, 3, 1, 2).float() / 255

    def left(y: Any) -> float:
        pixels = (y * 255).round().clamp(0, 255).to(torch.uint8).permute(0, 2, 3, 1).contiguous().numpy()
        after = nearest(unit_rows(see(pixels)), known, k=k, device="cpu", own=asked)
        return float((before[:, :, None] == after[:, None, :]).any(axis=2).mean())

    found = {}
    for name in NATURAL:
        if name == "color" and x.shape[1] == 1:
            continue
        for strength in STRENGTHS[:1] if name == "flip" else STRENGTHS:
            draws = torch.Generator().manual_seed(seed)
            if left(x.flip(3) if name == "flip" else distorted(x, {name: strength}, draws)) >= KEPT:
                found[name] = strength
                break
    return found
