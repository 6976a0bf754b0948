"""SVHN, cropped digits: train and extra private, the first 10,000 test images public, the rest for testing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from terrine.datasets import files
from terrine.datasets.data import PrivateData, PublicData, Task
from terrine.errors import DataError

N_PUBLIC = 10_000
CLASSES = tuple("0123456789")

_ADDRESS = "http://ufldl.stanford.edu/housenumbers"


def _file(name: str, sha256: str) -> files.DataFile:
    return files.DataFile(path=f"svhn/{name}", sha256=(sha256,), urls=(f"{_ADDRESS}/{name}",))


TRAIN = _file("train_32x32.mat", "435e94d69a87fde4fd4d7f3dd208dfc32cb6ae8af2240d066de1df7508d083b8")
EXTRA = _file("extra_32x32.mat", "a133a4beb38a00fcdda90c9489e0c04f900b660ce8a316a5e854838379a71eb3")
TEST = _file("test_32x32.mat", "cdce80dfb2a2c4c6160906d0bd7c68ec5a99d7ca4831afa54f09182025b6a75b")
FILES = (TRAIN, EXTRA, TEST)


def load_svhn(*, extra: bool = True, progress: files.Progress | None = None) -> Task:
    """Images (32, 32, 3) uint8; ``extra=False`` leaves out the 531,131 easier private images (1.3 GB)."""
    private_files = (TRAIN, EXTRA) if extra else (TRAIN,)
    parts = [read_mat(files.get(file, progress=progress)) for file in private_files]
    held_X, held_y = read_mat(files.get(TEST, progress=progress))
    X = parts[0][0] if len(parts) == 1 else np.concatenate([part[0] for part in parts])
    return Task(
        name="svhn",
        private=PrivateData(X, np.concatenate([part[1] for part in parts])),
        public=PublicData(held_X[:N_PUBLIC]),
        public_y=held_y[:N_PUBLIC],
        test_X=held_X[N_PUBLIC:],
        test_y=held_y[N_PUBLIC:],
        classes=CLASSES,
    )


def read_mat(path: str | Path) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Images (n, 32, 32, 3) and digits of a file of SVHN's format 2, where the digit 0 is written as 10."""
    from scipy.io import loadmat

    path = Path(path)
    try:
        with path.open("rb") as file:
            content = loadmat(file, variable_names=["X", "y"])
    except OSError:
        raise
    except Exception:  # scipy raises many types for files that are not what they say
        raise DataError(f"{path}: scipy cannot read it as a MATLAB 5 file. Fetch it again.") from None
    X, y = content.get("X"), content.get("y")
    if X is None or y is None or X.ndim != 4 or X.shape[:3] != (32, 32, 3) or X.dtype != np.uint8:
        raise DataError(f"{path}: the file must hold X, (32, 32, 3, n) of uint8, and y, (n, 1), and does not.")
    digits = np.asarray(y).reshape(-1).astype(np.int64)
    if len(digits) != X.shape[3] or digits.min() < 1 or digits.max() > 10:
        raise DataError(f"{path}: y must hold {X.shape[3]} digits from 1 to 10 (which stands for 0), and does not.")
    return np.ascontiguousarray(X.transpose(3, 0, 1, 2)), digits % 10
