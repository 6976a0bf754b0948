"""Scattering of images: how much of each scale and direction there is at each place. Fixed: there is nothing to learn.

An image is filtered by wavelets of a few scales and eight directions, the moduli are filtered once more by coarser
wavelets, and all of it is smoothed and sampled on a grid of about 8 x 8. Small shifts and warps of the image change
the result little, and different shapes do not become alike (Bruna and Mallat, 2013).
"""

from __future__ import annotations

import math
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from terrine._blocks import blocks
from terrine.datasets.data import PublicData, array_of
from terrine.errors import InputError

ANGLES = 8
LARGEST = 64  # pixels: longer sides are brought down by averaging squares of pixels
_COARSE = 40  # pixels: from here on there is a third scale
_BLOCK = 32  # images at a time

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

    def transform(self, X: PublicData | ArrayLike) -> Maps:
        """(n, n_maps, grid height, grid width); each image's own numbers, whatever images are beside it."""
        images = array_of(X, who="Scattering")
        if images.dtype != np.uint8 or images.shape[1:] != self.row_shape:
            raise InputError(
                f"Scattering needs images {self.row_shape} of dtype uint8, got {images.dtype} of shape "
                f"{images.shape[1:]}."
            )
        channels = (*self.row_shape, 1)[2]
        each = self.n_maps // channels
        found = np.empty((len(images), self.n_maps, *self.grid), dtype=np.float32)

        def fill(at: slice, block: NDArray[np.uint8]) -> None:
            for channel in range(channels):
                made = plan.scattered(block[..., channel])
                found[at, channel * each : (channel + 1) * each] = made[: at.stop - at.start]

        plan = self._plan
        with ThreadPoolExecutor(_threads()) as pool:
            for _ in pool.map(lambda one: fill(*one), blocks(images.reshape(*images.shape[:3], channels), _BLOCK)):
                pass
        return found


def _threads() -> int:
    """As many as linear algebra takes here, at most 8: blocks do not wait for one another."""
    given = os.environ.get("OMP_NUM_THREADS", "")
    return min(8, int(given) if given.isdigit() and int(given) > 0 else os.cpu_count() or 1)


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

    def scattered(self, images: NDArray[np.uint8]) -> Maps:
        """(n, maps, grid height, grid width) of images (n, height, width)."""
        from scipy import fft

        x = self._prepared(images)
        maps = [self._smoothed(x, 0)[:, None]]
        spectrum = fft.fft2(x)
        for first, bank in enumerate(self.banks[0]):
            u = _filtered(spectrum, bank, first)
            maps.append(self._smoothed(u, first))
            inner = fft.fft2(u) if first + 1 < self.scales else None
            for second, coarser in enumerate(self.banks[first][1:], start=1):
                for angle in range(ANGLES):
                    v = _filtered(inner[:, angle], coarser, second)
                    maps.append(self._smoothed(v, first + second))
        return np.concatenate(maps, axis=1)

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

    def _smoothed(self, maps: Maps, scale: int) -> Maps:
        """Maps at one of the scales, smoothed and sampled on the grid."""
        down, across = self.smooth[scale]
        return down @ (maps @ across.T)


def _filtered(spectra: NDArray[np.complex64], bank: NDArray[np.float32], scale: int) -> Maps:
    """Moduli of signals after the filters of a bank, (..., angles, height, width), every 2^scale-th sample kept.

    To keep fewer samples is to add up parts of the spectrum: each part is multiplied by its part of the filter.
    """
    from scipy import fft

    times = 1 << scale
    height, width = (side // times for side in spectra.shape[-2:])
    spectra = spectra[..., None, :, :]
    total: NDArray[np.complex64] | None = None
    for i in range(times):
        for j in range(times):
            part = np.s_[..., i * height : (i + 1) * height, j * width : (j + 1) * width]
            product = spectra[part] * bank[part]
            total = product if total is None else np.add(total, product, out=total)
    moduli: Maps = np.abs(fft.ifft2(total, overwrite_x=True))
    return moduli


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
    wave, bump = (_wrapped(one, height, width) for one in (bump * np.exp(1j * frequency * along), bump))
    return np.fft.fft2(wave - wave.sum() / bump.sum() * bump).real.astype(np.float32)


def _wrapped(field: NDArray[np.complex128], height: int, width: int) -> NDArray[np.complex128]:
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
