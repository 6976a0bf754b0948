"""MNIST teachers with a handful of images each, on features learned from the public images.

Run: python benchmarks/features_gpu.py MNIST.npz OUT   (X, y, Xt, yt: 60,000 and 10,000 images and labels)
The first 9,000 of Xt are the public images; their labels evaluate only. Learns the encoder and the map, transforms all
images, polls CentroidTeacher ensembles, and writes OUT/features_gpu.json, OUT/features.npz (features of all images) and
OUT/votes_features_TEACHERS.npz (secret: raw counts) as it goes. Some two minutes on an H200; needs no safetensors.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))
from terrine.features import FeatureRecipe, fit_features, representative_rows
from terrine.teachers.centroids import CentroidTeacher

RECIPE = FeatureRecipe()
TEACHER = CentroidTeacher()
ENSEMBLES = ((250, 240), (1000, 60), (2000, 30), (5000, 12), (10_000, 6), (20_000, 3))  # teachers, images each
N_PUBLIC = 9000
KEPT = 0.98  # share of noisy answers that shall be the plurality's
ASKED = (15, 30, 100, 270)


def largest_sigma(counts: Any, good: Callable[[Any], float], target: float) -> float:
    """The largest noise at which answers are good often enough, by simulation with the same draws for every sigma."""
    draws = [np.random.default_rng(k).standard_normal(counts.shape) for k in range(4)]
    low, high = 0.0, float(counts.sum(axis=1).max())
    for _ in range(16):
        sigma = (low + high) / 2
        share = np.mean([good((counts + sigma * noise).argmax(axis=1)) for noise in draws])
        low, high = (sigma, high) if share >= target else (low, sigma)
    return low


def poll(private: Any, labels: Any, public: Any, order: Any, teachers: int, each: int) -> Any:
    """(n_public, 10) votes of an ensemble."""
    counts = np.zeros((len(public), 10), dtype=np.int32)
    for first in range(0, teachers, TEACHER.chunk):
        ids = range(first, min(first + TEACHER.chunk, teachers))
        rows = order[ids.start * each : ids.stop * each].reshape(len(ids), each)
        models = TEACHER.fit([(private[r], labels[r]) for r in rows], ids=ids, n_classes=10, seed=0)
        votes = TEACHER.predict(models, public)
        counts += np.stack([(votes == c).sum(axis=0) for c in range(10)], axis=1, dtype=np.int32)
    return counts


def asked(features: Any, rows: Any, plurality: Any, truth: Any) -> dict[str, float]:
    """How right the answers on these rows are, and all public rows by the nearest of them."""
    nearest = (features @ features[rows].T).argmax(axis=1)
    return {
        "answers_right": float((plurality[rows] == truth[rows]).mean()),
        "nearest_answer_right": float((plurality[rows][nearest] == truth).mean()),
    }


def main() -> None:
    data, out = np.load(sys.argv[1]), Path(sys.argv[2])
    device = sys.argv[3] if len(sys.argv) > 3 else "cuda"
    labels, truth = data["y"].astype(np.int64), data["yt"][:N_PUBLIC].astype(np.int64)
    start = time.perf_counter()
    features = fit_features(data["Xt"][:N_PUBLIC], recipe=RECIPE, seed=0, device=device)
    fitted = time.perf_counter()
    private = features.transform(data["X"], device=device)
    public, test = np.split(features.transform(data["Xt"], device=device), [N_PUBLIC])
    np.savez(out / "features.npz", private=private, public=public, test=test)
    chosen = representative_rows(features, max(ASKED), seed=0)
    cosines = np.einsum("ij,ij->i", public, features._arrays["places"])
    result: dict[str, Any] = {
        "machine": torch.cuda.get_device_name() if device != "cpu" else "cpu",
        "torch": torch.__version__,
        "recipe": asdict(RECIPE),
        "similarity": TEACHER.similarity,
        "fit_seconds": fitted - start,
        "transform_seconds": time.perf_counter() - fitted,
        "transformed_images": len(private) + len(public) + len(test),
        "public_cosine_to_own_place": float(cosines.mean()),
        "representative_rows": chosen.tolist(),
        "ensembles": [],
    }
    order = np.random.default_rng(1).permutation(len(labels))
    for teachers, each in ENSEMBLES:
        start = time.perf_counter()
        counts = poll(private, labels, public, order, teachers, each)
        seconds = time.perf_counter() - start
        plurality, top = counts.argmax(axis=1), np.sort(counts, axis=1) / teachers
        gap = top[:, -1] - top[:, -2]
        random = np.random.default_rng(0).permutation(N_PUBLIC)
        row = {
            "teachers": teachers,
            "images_each": each,
            "mean_accuracy": float(counts[np.arange(N_PUBLIC), truth].mean() / teachers),
            "plurality": float((plurality == truth).mean()),
            "mean_top_vote": float(top[:, -1].mean()),
            "mean_gap": float(gap.mean()),
            "gap_5_percent": float(np.quantile(gap, 0.05)),
            "sigma": largest_sigma(counts, lambda a, p=plurality: float((a == p).mean()), KEPT),
            "sigma_for_96_percent_right": largest_sigma(counts, lambda a: float((a == truth).mean()), 0.96),
            "seconds": seconds,
            "asked": {
                str(n): {
                    "representative": asked(public, chosen[:n], plurality, truth),
                    "random": asked(public, random[:n], plurality, truth),
                }
                for n in ASKED
            },
        }
        result["ensembles"].append(row)
        print(json.dumps(row), flush=True)
        np.savez_compressed(out / f"votes_features_{teachers}.npz", counts=counts)
        (out / "features_gpu.json").write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
