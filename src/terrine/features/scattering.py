"""Scattering of images: how much of each scale and direction there is at each place. Fixed: there is nothing to learn.

An image is filtered by wavelets of a few scales and eight directions, the moduli are filtered once more by coarser
wavelets, and all of it is smoothed and sampled on a grid of about 8 x 8. Small shifts and warps of the image change
the result little, and different shapes do not become alike (Bruna and Mallat, 2013).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from terrine._blocks import blocks
from terrine._optional import require_torch
from terrine.datasets.data import PublicData, array_of
from terrine.errors import InputError

ANGLES = 8
LARGEST = 64  # pixels: longer sides are brought down by averaging squares of pixels
_COARSE = 40  # pixels: from here on there is a third scale
_BLOCK = {"cpu": 32, "cuda": 1024}  # images at a time

Maps = NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class Scattering:
    """The scattering of uint8 images of one shape, (height, width[, channels]), each channel by itself."""

    row_shape: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.row_shape) not in (2, 3) or min(self.row_shape) < 1 or min(self.row_shape[:2]) < 4:
            raise InputError(
                "Scattering needs images (height, width[, channels]), at least 4 x 4, got rows of shape "
                f"{self.row_shape}."
            )

    @property
    def n_maps(self) -> int:
        """Of all channels: the smoothed image, one for each wavelet, one for each pair of a finer and a coarser one."""
        scales = self._plan.scales
        pairs = scales * (scales - 1) // 2
        return (*self.row_shape, 1)[2] * (1 + scales * ANGLES + pairs * ANGLES**2)

    @property
    def grid(self) -> tuple[int, int]:
        height, width = self._plan.padded
        return height >> self._plan.scales, width >> self._plan.scales

    @cached_property
    def _plan(self) -> _Plan:
        return _Plan(*self.row_shape[:2])

    def transform(self, X: PublicData | ArrayLike, *, device: str = "cpu") -> Maps:
        """(n, n_maps, grid height, grid width); each image's own numbers, whatever images are beside it.

        Args:
            device: "cpu", or "cuda" for a GPU, which gives the same numbers but for the last digits.
        """
        images = array_of(X, who="Scattering")
        if images.dtype != np.uint8 or images.shape[1:] != self.row_shape:
            raise InputError(
                f"Scattering needs images {self.row_shape} of dtype uint8, got {images.dtype} of shape "
                f"{images.shape[1:]}."
            )
        channels = (*self.row_shape, 1)[2]
        each = self.n_maps // channels
        found = np.empty((len(images), self.n_maps, *self.grid), dtype=np.float32)
        on = _Arrays(device)
        pixels, size = images.reshape(*images.shape[:3], channels), _BLOCK["cpu" if device == "cpu" else "cuda"]
        for at, block in blocks(pixels, size):
            for channel in range(channels):
                made = self._plan.scattered(block[..., channel], on)
                found[at, channel * each : (channel + 1) * each] = made[: at.stop - at.start]
        return found


class _Arrays:
    """The few things that numpy and PyTorch call by different names."""

    def __init__(self, device: str) -> None:
        self.device = device
        if device == "cpu":
            from scipy import fft

            self.fft2, self.ifft2, self.abs, self.cat = fft.fft2, fft.ifft2, np.abs, np.concatenate
        else:
            torch = require_torch()
            self.fft2, self.ifft2, self.abs, self.cat = torch.fft.fft2, torch.fft.ifft2, torch.abs, torch.cat

    def there(self, array: NDArray[Any]) -> Any:
        return array if self.device == "cpu" else require_torch().from_numpy(array).to(self.device)

    def here(self, array: Any) -> Maps:
        return np.asarray(array if self.device == "cpu" else array.cpu().numpy(), dtype=np.float32)


class _Plan:
    """Sizes and filters for images of one height and width."""

    def __init__(self, height: int, width: int) -> None:
        self.shrink = -(-max(height, width) // LARGEST)
        small = tuple(-(-side // self.shrink) for side in (height, width))
        self.scales = 3 if max(small) > _COARSE else 2
        step = 1 << self.scales
        self.padded = tuple(-(-(side + step) // step) * step for side in small)
        self.small = small
        self.banks = [_bank(self.padded, scale, self.scales) for scale in range(self.scales)]
        self.smooth = [_smoothing(self.padded, scale, self.scales) for scale in range(self.scales)]

    def scattered(self, images: NDArray[np.uint8], on: _Arrays) -> Maps:
        """(n, maps, grid height, grid width) of images (n, height, width)."""
        x = on.there(self._prepared(images))
        smooth = [tuple(on.there(one) for one in pair) for pair in self.smooth]
        banks = [[on.there(one) for one in bank] for bank in self.banks]
        maps = [_smoothed(x[:, None], smooth[0])]
        spectrum = on.fft2(x)
        for first, bank in enumerate(banks[0]):
            u = _filtered(spectrum, bank, first, on)
            maps.append(_smoothed(u, smooth[first]))
            if first + 1 == self.scales:
                break
            inner = on.fft2(u)
            for second, coarser in enumerate(banks[first][1:], start=1):
                for angle in range(ANGLES):
                    v = _filtered(inner[:, angle], coarser, second, on)
                    maps.append(_smoothed(v, smooth[first + second]))
        return on.here(on.cat(maps, 1))

    def _prepared(self, images: NDArray[np.uint8]) -> Maps:
        """Between 0 and 1, small enough, and continued beyond the edges."""
        n, height, width = images.shape
        x = images.astype(np.float32) / np.float32(255)
        if self.shrink > 1:
            up, left = ((-side) % self.shrink for side in (height, width))
            x = np.pad(x, ((0, 0), (0, up), (0, left)), mode="edge")
            x = x.reshape(n, self.small[0], self.shrink, self.small[1], self.shrink).mean(axis=(2, 4))
        margins = [
            ((large - small) // 2, -(-(large - small) // 2))
            for large, small in zip(self.padded, self.small, strict=True)
        ]
        return np.pad(x, ((0, 0), *margins), mode="symmetric")


def _smoothed(maps: Any, matrices: tuple[Any, ...]) -> Any:
    """Maps at one of the scales, smoothed and sampled on the grid."""
    down, across = matrices
    return down @ (maps @ across.T)


def _filtered(spectra: Any, bank: Any, scale: int, on: _Arrays) -> Any:
    """Moduli of signals after the filters of a bank, (..., angles, height, width), every 2^scale-th sample kept.

    To keep fewer samples is to add up parts of the spectrum: each part is multiplied by its part of the filter.
    """
    times = 1 << scale
    height, width = (side // times for side in spectra.shape[-2:])
    spectra = spectra[..., None, :, :]
    total: Any = None
    for i in range(times):
        for j in range(times):
            part = np.s_[..., i * height : (i + 1) * height, j * width : (j + 1) * width]
            product = spectra[part] * bank[part]
            if total is None:
                total = product
            else:
                total += product
    return on.abs(on.ifft2(total))


def _bank(padded: tuple[int, ...], scale: int, scales: int) -> list[NDArray[np.float32]]:
    """By scale from this one on: (angles, height, width) Fourier transforms, which are real, on this scale's grid."""
    height, width = (side >> scale for side in padded)
    return [
        np.stack([_morlet(height, width, 1 << coarser, math.pi * a / ANGLES) for a in range(ANGLES)])
        / np.float32(4**coarser)  # of the samples that are kept
        for coarser in range(scales - scale)
    ]


def _morlet(height: int, width: int, times: int, theta: float) -> NDArray[np.float32]:
    """A Morlet wavelet's Fourier transform: a wave under an ellipse, less what would make its mean other than 0."""
    sigma, frequency, slant = 0.8 * times, 0.75 * math.pi / times, 4 / ANGLES
    down, across = np.meshgrid(np.arange(-2 * height, 2 * height), np.arange(-2 * width, 2 * width), indexing="ij")
    along, aside = (
        down * math.cos(theta) + across * math.sin(theta),
        across * math.cos(theta) - down * math.sin(theta),
    )
    bump = np.exp(-(along**2 + (slant * aside) ** 2) / (2 * sigma**2)) * slant / (2 * math.pi * sigma**2)
    wave, round_bump = _wrapped(bump * np.exp(1j * frequency * along), height, width), _wrapped(bump, height, width)
    return np.fft.fft2(wave - wave.sum() / round_bump.sum() * round_bump).real.astype(np.float32)


def _wrapped(field: NDArray[Any], height: int, width: int) -> NDArray[Any]:
    return np.asarray(field.reshape(4, height, 4, width).sum(axis=(0, 2)))


def _smoothing(padded: tuple[int, ...], scale: int, scales: int) -> tuple[Maps, Maps]:
    """Matrices that smooth a map of this scale, down and across, and keep every sample of the grid."""
    sigma, step = 0.8 * 2.0 ** (scales - 1 - scale), 1 << (scales - scale)

    def matrix(side: int) -> Maps:
        away = np.arange(-2 * side, 2 * side)
        bell = np.exp(-(away**2) / (2 * sigma**2)).reshape(4, side).sum(axis=0)
        bell = bell / bell.sum()
        return np.stack([np.roll(bell, at) for at in range(0, side, step)]).astype(np.float32)

    return matrix(padded[0] >> scale), matrix(padded[1] >> scale)
