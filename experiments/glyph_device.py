"""Glyph's records drawn by PyTorch, on a GPU where there is one: millions of them in seconds."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from terrine.datasets.fonts import SIDE
from terrine.datasets.glyph import Glyph, Plan

_CENTRE = (SIDE - 1) / 2
_AT_ONCE = 65_536
_GOLDEN = -7046029254386353131  # as in glyph.py, signed
_MIX = (-4658895280553007687, -7723592293110705685)


def records_on(task: Glyph, split: str, indices: NDArray[np.int64], *, device: str) -> tuple[Any, NDArray[np.int64]]:
    """Images, (n, 28, 28) uint8 on the device, and the labels that they carry; as `Glyph.records`, to one grey level.

    Rounding differs: a pixel in some ten thousand is off by one from what numpy draws.
    """
    glyphs = torch.from_numpy(np.ascontiguousarray(task.glyphs.X)).to(device)
    images = torch.empty((len(indices), SIDE, SIDE), dtype=torch.uint8, device=device)
    labels = np.empty(len(indices), dtype=np.int64)
    for start in range(0, len(indices), _AT_ONCE):
        plan = task.plan(split, indices[start : start + _AT_ONCE])
        images[start : start + len(plan)] = draw_on(glyphs, plan)
        labels[start : start + len(plan)] = plan.label
    return images, labels


def draw_on(glyphs: Any, plan: Plan) -> Any:
    """A plan's records on the device of the stored glyphs, (n_glyphs, 28, 28) uint8."""
    device, nn = glyphs.device, torch.nn.functional
    on = {name: torch.from_numpy(getattr(plan, name)).to(device) for name in ("base", "stroke", "contrast", "noise")}
    # Offsets from the centre in pixels, (row, column); grid_sample wants (column, row) in units of half the width
    affine = torch.from_numpy(plan.affine).to(device)
    offset = torch.arange(SIDE, device=device, dtype=torch.float32) - _CENTRE
    rows, columns = offset[None, :, None], offset[None, None, :]
    at = [affine[:, k, 0, None, None] * rows + affine[:, k, 1, None, None] * columns for k in (0, 1)]
    at = [at[k] + affine[:, k, 2, None, None] for k in (0, 1)]
    grid = torch.stack((at[1], at[0]), dim=-1) * (2 / SIDE)
    image = nn.grid_sample(glyphs[on["base"]][:, None].float(), grid, align_corners=False)
    padded = nn.pad(image, (1, 1, 1, 1))
    around = (image, padded[:, :, :-2, 1:-1], padded[:, :, 2:, 1:-1], padded[:, :, 1:-1, :-2], padded[:, :, 1:-1, 2:])
    stacked = torch.stack(around)
    stroke = on["stroke"][:, None, None, None]
    image = image + stroke.abs() * (torch.where(stroke > 0, stacked.amax(0), stacked.amin(0)) - image)
    image = image[:, 0] * on["contrast"][:, None, None] + on["noise"][:, None, None] * _grain(plan.key, device)
    return image.clamp(0, 255).to(torch.uint8)


def _grain(key: NDArray[np.uint64], device: Any) -> Any:
    """Noise of deviation 1 per pixel, (n, 28, 28), hashed from the records' keys as numpy's is."""
    counter = torch.arange(1, SIDE**2 // 4 + 1, device=device, dtype=torch.int64)
    words = torch.from_numpy(key.view(np.int64)).to(device)[:, None] + counter * _GOLDEN
    words = (words ^ _shifted(words, 30)) * _MIX[0]
    words = (words ^ _shifted(words, 27)) * _MIX[1]
    words = words ^ _shifted(words, 31)
    octets = torch.stack([(words >> (8 * k)) & 255 for k in range(8)], dim=-1).view(len(key), SIDE, SIDE, 2)
    return (octets.sum(-1).float() - 255) / 104.5


def _shifted(words: Any, bits: int) -> Any:
    return (words >> bits) & ((1 << (64 - bits)) - 1)  # logical, as of an unsigned number
