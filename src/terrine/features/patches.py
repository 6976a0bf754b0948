"""Small pieces of images, by how much each looks like the typical pieces of public images.

Every piece of a few pixels is brought to one light and one contrast, whitened as public pieces are, and compared with a
dictionary: the middles of public pieces, found by spherical k-means. What is more alike than by chance counts, by its
contrast, and is added up in each ninth of the image (Coates and Ng, 2012). No labels, and no GPU.

What is compared are whole numbers, so that an image's numbers do not depend on the images beside it, bit for bit.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from terrine._blocks import RowProduct, blocks
from terrine._optional import require_torch

Arrays = dict[str, NDArray[Any]]
Maps = NDArray[np.float32]

SIDE = 6  # pixels of a piece's side
WORDS = 400  # in the dictionary
NINTHS = 3  # cells of the image, down and across
LARGEST = 40  # pixels: longer sides are averaged down
_ALIKE = 0.25  # a cosine above which a piece counts as alike
_EVEN = 10.0  # of 255: contrast that is added to a piece's own, so that noise is not blown up
_FAINT = 25.0  # of 255: a piece of this contrast counts half
_SHRINK = 0.1  # of the mean variance: what public pieces hardly differ in is not blown up without end
_PIECES, _EACH, _ROUNDS = 100_000, 25, 10  # pieces that the dictionary is learned from, of an image at most; rounds
_IMAGES = 10_000
_BITS = 18  # of a piece's numbers and of the dictionary's
_FINE = 2.0**14  # parts of a pixel's level that its mean is added up in, on a GPU
_SQUARED = 20  # bits of numbers whose squares are added up, on a GPU
_BLOCK = {"cpu": 16, "cuda": 256}  # images


def learn(images: NDArray[np.uint8], *, seed: int) -> Arrays:
    """Mean and whitening of public pieces, and the dictionary, of images (n, height, width, channels)."""
    rng = np.random.default_rng([seed, 4])
    some = _small(images[np.linspace(0, len(images) - 1, min(len(images), _IMAGES)).astype(np.int64)])
    side = min(SIDE, *some.shape[1:3])
    n = min(max(_PIECES // len(some), 1), _EACH) * len(some)
    which = np.arange(n) % len(some)
    down, across = (rng.integers(0, size - side + 1, size=n) for size in some.shape[1:3])
    step = np.arange(side)
    taken = some[which[:, None, None], (down[:, None] + step)[:, :, None], (across[:, None] + step)[:, None, :]]
    even, contrast = _even(np.moveaxis(taken, 3, 1).reshape(n, -1))
    even = even[contrast[:, 0] > _EVEN] if (contrast > _EVEN).any() else even
    mean = even.mean(axis=0, dtype=np.float64)
    variances, axes = np.linalg.eigh(np.cov(even.astype(np.float64), rowvar=False, bias=True))
    variances = np.maximum(variances, 0)
    white = (axes * (variances + _SHRINK * max(variances.mean(), 1e-9)) ** -0.5) @ axes.T
    found = _unit((even - mean) @ white)
    words = _middles(found, min(WORDS, max(len(found) // 10, 1)), rng)
    return {"mean": mean.astype(np.float32), "white": white.astype(np.float32), "words": words}


def seen(arrays: Arrays, images: NDArray[np.uint8], *, device: str = "cpu") -> Maps:
    """(n, words, cells): how much of each typical piece there is in each cell of an image (height, width, channels).

    Args:
        device: "cpu", or "cuda" for a GPU, which gives the same numbers but for the last digits.
    """
    if device != "cpu":
        return _seen_on(device, arrays, images)
    words = np.rint(arrays["words"].T.astype(np.float64) * (1 << _BITS))  # (length of a piece, words)
    whiten, mean = RowProduct(arrays["white"]), arrays["mean"]
    side = piece_side(images.shape[1:3])
    found = np.empty((len(images), words.shape[1], n_cells(images.shape[1:3])), dtype=np.float32)
    for start in range(0, len(images), _BLOCK["cpu"]):
        some = _small(images[start : start + _BLOCK["cpu"]])
        pieces = np.lib.stride_tricks.sliding_window_view(some, (side, side), (1, 2))
        n, height, width = pieces.shape[:3]
        even, contrast = _even(pieces.reshape(n * height * width, -1))
        weight = contrast / (contrast + np.float32(_FAINT))
        piece = np.rint((_unit(whiten(even - mean)) * weight).astype(np.float64) * (1 << _BITS))
        alike = piece @ words  # whole numbers below 2^53, whatever the order of adding
        alike -= np.rint(weight.astype(np.float64) * (_ALIKE * (1 << (2 * _BITS))))
        np.maximum(alike, 0, out=alike)
        cells = _added(alike.reshape(n, height, width, -1))
        found[start : start + n] = np.moveaxis(cells / float(1 << (2 * _BITS)), 2, 1)
    return found


def _seen_on(device: str, arrays: Arrays, images: NDArray[np.uint8]) -> Maps:
    """`seen` by PyTorch: the same whole numbers, in blocks of one shape."""
    torch = require_torch()
    whiten, mean = RowProduct(arrays["white"]), torch.tensor(arrays["mean"], device=device)
    columns, size = (torch.tensor(array, device=device) for array in (whiten.columns, whiten.size))
    words = torch.tensor(np.rint(arrays["words"].T.astype(np.float64) * (1 << _BITS)), device=device)
    side = piece_side(images.shape[1:3])
    found = np.empty((len(images), words.shape[1], n_cells(images.shape[1:3])), dtype=np.float32)
    for at, block in blocks(images, _BLOCK["cuda"]):
        pixels = torch.from_numpy(_small(block)).to(device)
        pieces = pixels.unfold(1, side, 1).unfold(2, side, 1)  # (n, height, width, channels, side, side)
        n, height, width = pieces.shape[:3]
        piece = pieces.reshape(n * height * width, -1)
        less = piece - (torch.round(piece.double() * _FINE).mean(1, keepdim=True) / _FINE).float()
        contrast = (_length(less) / piece.shape[1] ** 0.5).float()
        less = less / (contrast + _EVEN) - mean
        whole, power = _whole(less, whiten.row_bits)
        white = (whole @ columns * (power * size)).float()
        length = _length(white).float()
        weight = contrast / (contrast + _FAINT)
        white = white / torch.where(length > 0, length, 1.0) * weight
        alike = torch.round(white.double() * (1 << _BITS)) @ words
        alike -= torch.round(weight.double() * (_ALIKE * (1 << (2 * _BITS))))
        cells = _added_on(alike.clamp_(min=0).view(n, height, width, -1)) / float(1 << (2 * _BITS))
        found[at] = cells.transpose(1, 2)[: at.stop - at.start].float().cpu().numpy()
    return found


def _whole(rows: Any, bits: int) -> tuple[Any, Any]:
    """Each row as whole numbers up to 2^bits, in float64, and the power of 2 that they are multiples of."""
    torch = require_torch()
    largest = rows.abs().amax(1, keepdim=True).double()
    largest = torch.where(largest > 0, largest, 1.0)
    power = largest / torch.frexp(largest).mantissa * 2.0**-bits
    return torch.round(rows.double() / power), power


def _length(rows: Any) -> Any:
    """Of each row, in float64: a sum of whole numbers, so that no order of adding rounds."""
    whole, power = _whole(rows, _SQUARED)
    return whole.square().sum(1, keepdim=True).sqrt() * power


def piece_side(shape: tuple[int, ...]) -> int:
    return min(SIDE, *_sides(shape))


def n_cells(shape: tuple[int, ...]) -> int:
    places = [size - piece_side(shape) + 1 for size in _sides(shape)]
    return min(NINTHS, places[0]) * min(NINTHS, places[1])


def _sides(shape: tuple[int, ...]) -> list[int]:
    shrink = -(-max(shape[:2]) // LARGEST)
    return [-(-size // shrink) for size in shape[:2]]


def _small(images: NDArray[np.uint8]) -> Maps:
    """Of images with long sides the means over squares of pixels, 0 to 255."""
    n, height, width, channels = images.shape
    shrink = -(-max(height, width) // LARGEST)
    x = images.astype(np.float32)
    if shrink > 1:
        x = np.pad(x, ((0, 0), (0, -height % shrink), (0, -width % shrink), (0, 0)), mode="edge")
        x = x.reshape(n, x.shape[1] // shrink, shrink, x.shape[2] // shrink, shrink, channels).mean(axis=(2, 4))
    return x


def _even(pieces: Maps) -> tuple[Maps, Maps]:
    """Pieces less their mean, over their contrast; and the contrast, (n, 1)."""
    less = pieces - pieces.mean(axis=1, keepdims=True)
    contrast = np.sqrt(np.square(less).mean(axis=1, keepdims=True))
    less /= contrast + np.float32(_EVEN)
    return less, contrast


def _unit(rows: NDArray[Any]) -> NDArray[Any]:
    lengths = np.sqrt(np.square(rows).sum(axis=1, keepdims=True))
    found: NDArray[Any] = rows / np.where(lengths > 0, lengths, 1).astype(rows.dtype)
    return found


def _added(alike: NDArray[np.float64]) -> NDArray[np.float64]:
    """(n, cells, words) means over each cell of (n, height, width, words): of whole numbers, in whatever order."""
    n, height, width, words = alike.shape
    down, across = (np.linspace(0, size, min(NINTHS, size) + 1).astype(np.int64) for size in (height, width))
    rows = np.add.reduceat(alike, down[:-1], axis=1)
    cells = np.add.reduceat(rows, across[:-1], axis=2)
    cells /= (np.diff(down)[:, None] * np.diff(across)[None, :])[None, :, :, None]
    return cells.reshape(n, -1, words)


def _added_on(alike: Any) -> Any:
    """`_added` by PyTorch."""
    height, width = alike.shape[1:3]
    down, across = (np.linspace(0, size, min(NINTHS, size) + 1).astype(np.int64) for size in (height, width))
    cells = [
        alike[:, top:bottom, left:right].sum((1, 2)) / float((bottom - top) * (right - left))
        for top, bottom in pairwise(down.tolist())
        for left, right in pairwise(across.tolist())
    ]
    return require_torch().stack(cells, 1)


def _middles(rows: NDArray[np.float64], k: int, rng: np.random.Generator) -> Maps:
    """(k, length) rows of length 1: spherical k-means. A middle that no row is nearest to begins again at a row."""
    rows = rows.astype(np.float32)
    found: NDArray[Any] = rows[rng.permutation(len(rows))[:k]]
    for _ in range(_ROUNDS):
        total, nearest = np.zeros(found.shape, dtype=np.float64), np.zeros(k, dtype=np.int64)
        for start in range(0, len(rows), 4096):
            some = rows[start : start + 4096]
            alike = some @ found.T
            best = alike.argmax(axis=1)
            np.add.at(total, best, some * alike[np.arange(len(some)), best][:, None])
            nearest += np.bincount(best, minlength=k)
        total[nearest == 0] = rows[rng.integers(len(rows), size=int((nearest == 0).sum()))]
        found = _unit(total).astype(np.float32)
    return np.asarray(found, dtype=np.float32)
