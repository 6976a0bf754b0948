"""What it costs to give an encoder of one's own one row at a time, against 64 at once.

Run: python benchmarks/encoder_blocks.py
"""

from __future__ import annotations

import io
import tempfile
import time
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.decomposition import PCA

from terrine.features import as_features

IMAGES = np.random.default_rng(0).integers(0, 256, size=(2000, 28, 28)).astype(np.uint8)
ROWS = np.random.default_rng(1).standard_normal((2000, 384)).astype(np.float32)


def net(width: int) -> Any:
    layers: list[Any] = []
    for fan, out in ((1, width), (width, 2 * width), (2 * width, 4 * width)):
        layers += [torch.nn.Conv2d(fan, out, 3, padding=1), torch.nn.ReLU(), torch.nn.MaxPool2d(2)]
    return torch.nn.Sequential(*layers, torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten()).eval()


def exported(module: Any) -> bytes:
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module, (torch.zeros(2, 1, 28, 28),), file, dynamo=False, input_names=["x"], dynamic_axes={"x": {0: "n"}}
        )
    return file.getvalue()


def cases() -> Iterator[tuple[str, Any, Any]]:
    yield "a function", np.tanh, ROWS
    yield "scikit-learn's PCA, 50 of 384", PCA(50, random_state=0).fit(ROWS), ROWS
    for width in (8, 64):
        yield f"a PyTorch module, {width} to {4 * width} channels", net(width), IMAGES
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "net.onnx"
            path.write_bytes(exported(net(width)))
            yield f"ONNX, {width} to {4 * width} channels", path, IMAGES


def seconds(features: Any, rows: Any) -> float:
    start = time.perf_counter()
    features.transform(rows)
    return time.perf_counter() - start


if __name__ == "__main__":
    torch.set_num_threads(1)
    for name, given, rows in cases():
        features = as_features(given, rows[:300])
        alone, together = seconds(features, rows), seconds(replace(features, block=64), rows)
        print(f"{name}: {len(rows) / alone:,.0f} rows a second one by one, {alone / together:.1f} times as long")
