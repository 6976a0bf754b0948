"""Glyph on one GPU: how well teachers agree by the images they have, and the largest ensemble.

Run: OMP_NUM_THREADS=1 python benchmarks/glyph_gpu.py GLYPHS.npz OUT centroids|nets
GLYPHS is a file as terrine.datasets.fonts.Glyphs.save writes it. Needs a GPU, PyTorch and the package's source; writes
OUT/glyph_centroids.json or OUT/glyph_nets.json as it goes, and the votes of the last ensemble (secret, were the data
private) beside it. Both kinds of teacher see features that were learned from the 100,000 public images without labels:
class means, or nets of one hidden layer.
Accuracy is against the symbol that was drawn; 12% of the private labels are wrong. Some five minutes on an H200 each.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))
sys.path.insert(0, str(Path(__file__).parents[1] / "experiments"))
from glyph_device import draw_on, records_on

from terrine.datasets.fonts import Glyphs
from terrine.datasets.glyph import Glyph, Plan
from terrine.features import FeatureRecipe, fit_features
from terrine.teachers import ModuleRecipe, ModuleTeacher
from terrine.teachers.architectures import mlp
from terrine.teachers.centroids import CentroidTeacher

FEATURES = FeatureRecipe(
    dimensions=None, steps=3500, rotate=12.0, zoom=0.18, shear=0.2, shift=2.5, elastic=0.025, stroke=0.3, views=2
)
NETS = ModuleTeacher(
    module=partial(mlp, hidden=(512,), dropout=0.2),
    recipe=ModuleRecipe(steps=1500, batch=128, learning_rate=0.1, weight_decay=1e-4, smoothing=0.1),
    device="cuda",
    chunk=250,
)
SCALE = np.float32(16)  # features have length 1
MEANS = CentroidTeacher(similarity=0.0, chunk=100)
QUERIES = 12_000
RECORDS = 10_000_000  # private ones, dealt anew to each ensemble of class means
AT_ONCE = 100_000
_TASK: dict[str, Glyph] = {}


def _task(path: str) -> Glyph:
    if path not in _TASK:
        _TASK[path] = Glyph(Glyphs.load(Path(path)), seed=0)
    return _TASK[path]


def _planned(path: str, rows: range) -> Plan:
    return _task(path).plan("private", np.arange(rows.start, rows.stop))


def encoded(path: str, glyphs: Any, features: Any, n: int) -> Iterator[tuple[Any, Any]]:
    """Features and labels of private records 0 to n, a block at a time; plans are made ahead, by other processes."""
    with get_context("spawn").Pool(14) as pool:
        parts = [range(start, min(start + AT_ONCE, n)) for start in range(0, n, AT_ONCE)]
        for plan in pool.imap(partial(_planned, path), parts):
            yield features.transform(draw_on(glyphs, plan).cpu().numpy(), device="cuda"), plan.label


def by_centroids(blocks: Iterator[tuple[Any, Any]], asked: Any) -> Iterator[tuple[int, Any]]:
    """Images each, and (teachers, queries) choices, of growing shares and then of a growing ensemble."""
    X, y = np.empty((RECORDS, asked.shape[1]), dtype=np.float32), np.empty(RECORDS, dtype=np.int64)
    done = 0
    for features, labels in blocks:
        X[done : done + len(labels)], y[done : done + len(labels)] = features, labels
        done += len(labels)
    for teachers, each in ((500, 125), (500, 500), (500, 2_000), (500, 8_000), (10_000, 1_000), (5_000, 2_000)):

        def poll(first: int, each: int = each) -> Any:
            rows = [slice(k * each, (k + 1) * each) for k in range(first, first + MEANS.chunk)]
            models = MEANS.fit([(X[r], y[r]) for r in rows], ids=range(first, first + len(rows)), n_classes=150, seed=0)
            return MEANS.predict(models, asked)

        with ThreadPoolExecutor(14) as pool:  # numpy lets go of the interpreter
            yield each, np.concatenate(list(pool.map(poll, range(0, teachers, MEANS.chunk))))


def by_nets(blocks: Iterator[tuple[Any, Any]], asked: Any) -> Iterator[tuple[int, Any]]:
    """250 nets on shares of growing size."""
    found = [next(blocks) for _ in range(25)]
    X, y = np.concatenate([x for x, _ in found]) * SCALE, np.concatenate([labels for _, labels in found])
    for each in (100, 300, 1_000, 3_000, 10_000):
        rows = [slice(k * each, (k + 1) * each) for k in range(250)]
        models = NETS.fit([(X[r], y[r]) for r in rows], ids=range(250), n_classes=150, seed=0)
        yield each, NETS.predict(models, asked * SCALE)


def main() -> None:
    path, out, kind = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
    torch.set_float32_matmul_precision("high")
    task = _task(path)
    images, _ = records_on(task, "public", np.arange(100_000), device="cuda")
    truth = task.plan("public", np.arange(QUERIES)).true
    start = time.perf_counter()
    features = fit_features(images.cpu().numpy(), recipe=FEATURES, seed=0, device="cuda")
    result: dict[str, Any] = {
        "machine": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "features": asdict(FEATURES),
        "features_seconds": time.perf_counter() - start,
        "teacher": (MEANS if kind == "centroids" else NETS).settings(),
        "queries": QUERIES,
        "ensembles": [],
    }
    print(json.dumps({"features_seconds": result["features_seconds"]}), flush=True)
    glyphs = torch.from_numpy(np.ascontiguousarray(task.glyphs.X)).cuda()
    blocks = encoded(path, glyphs, features, RECORDS)
    ensembles = (by_centroids if kind == "centroids" else by_nets)(blocks, features.public[:QUERIES])
    start = time.perf_counter()
    for each, votes in ensembles:
        counts = np.stack([(votes == c).sum(axis=0) for c in range(150)], axis=1)
        top = np.sort(counts, axis=1)
        row = {
            "teachers": len(votes),
            "images_each": each,
            "mean_accuracy": float((votes == truth).mean()),
            "plurality": float((counts.argmax(axis=1) == truth).mean()),
            "mean_top_vote": float(top[:, -1].mean()),
            "mean_top_share": float(top[:, -1].mean() / len(votes)),
            "mean_gap_share": float((top[:, -1] - top[:, -2]).mean() / len(votes)),
            "seconds": time.perf_counter() - start,
        }
        start = time.perf_counter()
        result["ensembles"].append(row)
        print(json.dumps(row), flush=True)
        (out / f"glyph_{kind}.json").write_text(json.dumps(result, indent=2) + "\n")
        np.savez_compressed(out / f"votes_glyph_{kind}.npz", counts=counts.astype(np.int16), truth=truth)


if __name__ == "__main__":
    main()
