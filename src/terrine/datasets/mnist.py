"""MNIST: 60,000 private images, the first 9,000 test images public, the last 1,000 for testing."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from terrine.datasets import files
from terrine.datasets.data import PrivateData, PublicData, Task
from terrine.errors import DataError

N_PUBLIC = 9_000
CLASSES = tuple("0123456789")

_MIRRORS = ("https://storage.googleapis.com/cvdf-datasets/mnist", "https://ossci-datasets.s3.amazonaws.com/mnist")


def _file(name: str, packed: str, raw: str) -> files.DataFile:
    urls = tuple(f"{mirror}/{name}.gz" for mirror in _MIRRORS)
    return files.DataFile(path=f"mnist/{name}.gz", sha256=(packed, raw), urls=urls)


FILES = (
    _file(
        "train-images-idx3-ubyte",
        "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
        "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    ),
    _file(
        "train-labels-idx1-ubyte",
        "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
        "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    ),
    _file(
        "t10k-images-idx3-ubyte",
        "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
        "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    ),
    _file(
        "t10k-labels-idx1-ubyte",
        "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
        "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    ),
)


def load_mnist(*, progress: files.Progress | None = None) -> Task:
    """Images (28, 28) uint8; the split of the paper."""
    X, y, held_X, held_y = (read_idx(files.get(file, progress=progress)) for file in FILES)
    return Task(
        name="mnist",
        private=PrivateData(X, y),
        public=PublicData(held_X[:N_PUBLIC]),
        public_y=held_y[:N_PUBLIC].astype(np.int64),
        test_X=held_X[N_PUBLIC:],
        test_y=held_y[N_PUBLIC:].astype(np.int64),
        classes=CLASSES,
    )


def read_idx(path: str | Path) -> NDArray[Any]:
    """An IDX file of unsigned bytes, packed with gzip or not."""
    path = Path(path)
    content = files.read(path)
    if len(content) < 4 or content[:3] != b"\x00\x00\x08" or len(content) < 4 + 4 * content[3]:
        raise DataError(f"{path}: the file does not begin as an IDX file of unsigned bytes. Fetch it again.")
    n_axes = content[3]
    shape = tuple(int(size) for size in np.frombuffer(content, dtype=">u4", count=n_axes, offset=4))
    offset = 4 + 4 * n_axes
    if len(content) - offset != math.prod(shape):
        raise DataError(
            f"{path}: the header says {math.prod(shape)} bytes of shape {shape}, got {len(content) - offset}. Fetch it "
            "again."
        )
    return np.frombuffer(content, dtype=np.uint8, offset=offset).reshape(shape)
