"""Edges of an image by place and direction: a fixed public function, with nothing to learn."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from terrine._blocks import blocks
from terrine.datasets.data import PublicData, array_of
from terrine.errors import InputError

DIRECTIONS = 8
CELL = 4  # pixels
_BLOCK = 64  # images at a time


@dataclass(frozen=True, kw_only=True)
class Edges:
    """`edges` as a student's features: of images of one shape."""

    row_shape: tuple[int, ...]

    @property
    def n_features(self) -> int:
        height, width = self.row_shape[:2]
        return -(-height // CELL) * -(-width // CELL) * DIRECTIONS

    def transform(self, X: PublicData | ArrayLike) -> NDArray[np.float32]:
        """(n_rows, n_features)."""
        return edges(X)


def edges(X: PublicData | ArrayLike) -> NDArray[np.float32]:
    """(n, cells · 8) float32: how much each 4 x 4 cell has of edges in each of 8 directions, on a scale of its own.

    Histograms of oriented gradients, the whole image as one block: lengths of gradients are shared between the two
    nearest directions, summed by cell, divided by the image's own norm, and their roots taken. Each row of the result
    depends on one image only, so teachers may see it instead of the image.

    Args:
        X: images (n, height, width[, channels]) uint8; sides that are no multiple of 4 are filled up with 0.
    """
    images = array_of(X, who="edges")
    if images.dtype != np.uint8 or images.ndim not in (3, 4):
        raise InputError(
            f"Edges need images (height, width[, channels]) of dtype uint8, got {images.dtype} of "
            f"shape {images.shape[1:]}."
        )
    return np.concatenate([_edges(block)[: at.stop - at.start] for at, block in blocks(images, _BLOCK)])


def _edges(images: NDArray[np.uint8]) -> NDArray[np.float32]:
    grey = images.astype(np.float32) if images.ndim == 3 else images.mean(axis=3, dtype=np.float32)
    n, height, width = grey.shape
    down, across = np.zeros_like(grey), np.zeros_like(grey)
    down[:, 1:-1] = grey[:, 2:] - grey[:, :-2]
    across[:, :, 1:-1] = grey[:, :, 2:] - grey[:, :, :-2]
    length = np.hypot(down, across)
    direction = np.arctan2(down, across) * np.float32(DIRECTIONS / (2 * np.pi))
    rows, columns = -(-height // CELL), -(-width // CELL)
    found = np.empty((n, rows * columns, DIRECTIONS), dtype=np.float32)
    padding = ((0, 0), (0, rows * CELL - height), (0, columns * CELL - width))
    for k in range(DIRECTIONS):
        away = np.abs((direction - k + DIRECTIONS / 2) % DIRECTIONS - DIRECTIONS / 2)
        part = np.pad(length * np.maximum(0, 1 - away), padding)
        found[:, :, k] = part.reshape(n, rows, CELL, columns, CELL).sum(axis=(2, 4)).reshape(n, -1)
    norm = np.sqrt(np.square(found).sum(axis=(1, 2), keepdims=True))
    roots: NDArray[np.float32] = np.sqrt(found / np.maximum(norm, 1e-6))
    return roots.reshape(n, -1)
