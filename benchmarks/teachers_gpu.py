"""MNIST ensembles on one GPU: stacked against one at a time, and how well the teachers agree.

Run: python benchmarks/teachers_gpu.py MNIST.npz [OUT]   (X, y, Xt, yt: 60,000 and 10,000 images and labels)
Needs a GPU, PyTorch and the package's source; writes OUT/teachers_gpu.json as it goes. Some ten minutes on an H200.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))
from terrine.teachers.stacked import ConvRecipe, _distort, fit_stacked, predict_stacked

RECIPE = ConvRecipe(steps=3000, learning_rate=0.1, views=8)
ENSEMBLES = ((250, 240, 3000), (1000, 60, 2000), (2000, 30, 1500))  # teachers, images each, steps
CHUNK = 250


def one_at_a_time(images: Any, labels: Any, shares: Any, *, half: bool, steps: int = 100) -> float:
    """Samples per second: the same net, augmentation and optimiser as plain modules, five teachers."""
    seconds = 0.0
    for k in range(-1, 5):  # the first one warms up
        torch.manual_seed(k + 1)
        nn = torch.nn
        layers = (nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 3, padding=1))
        head = (nn.Flatten(), nn.Linear(49 * 64, 128), nn.ReLU(), nn.Dropout(RECIPE.dropout), nn.Linear(128, 10))
        net = nn.Sequential(*layers, nn.ReLU(), nn.MaxPool2d(2), *head).cuda()
        settings = {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": RECIPE.weight_decay, "fused": True}
        optimiser = torch.optim.SGD(net.parameters(), **settings)
        x, y = torch.from_numpy(images[shares[k]]).cuda()[..., None], torch.from_numpy(labels[shares[k]]).cuda()
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(steps):
            rows = torch.randint(0, len(y), (RECIPE.batch,), device="cuda")
            seen = _distort(x[rows], torch.rand(RECIPE.batch, 6, device="cuda"), RECIPE).permute(0, 3, 1, 2)
            optimiser.zero_grad(set_to_none=True)
            with torch.autocast("cuda", torch.bfloat16, enabled=half):
                loss = torch.nn.functional.cross_entropy(net(seen), y[rows], label_smoothing=RECIPE.smoothing)
            loss.backward()
            optimiser.step()
        torch.cuda.synchronize()
        seconds += (time.perf_counter() - start) * (k >= 0)
    return 5 * steps * RECIPE.batch / seconds


def stacked(images: Any, labels: Any, shares: Any) -> float:
    """Samples per second of a whole chunk, after compilation."""
    for steps in (20, 300):
        torch.cuda.synchronize()
        start = time.perf_counter()
        fit(images, labels, shares[:CHUNK], range(CHUNK), replace(RECIPE, steps=steps))
        torch.cuda.synchronize()
    return CHUNK * 300 * RECIPE.batch / (time.perf_counter() - start)


def fit(images: Any, labels: Any, shares: Any, ids: Any, recipe: ConvRecipe) -> Any:
    rows = [(images[share], labels[share]) for share in shares]
    return fit_stacked(rows, recipe=recipe, ids=ids, n_classes=10, seed=0, device="cuda")


def main() -> None:
    data = np.load(sys.argv[1])
    out = Path(sys.argv[2] if len(sys.argv) > 2 else Path(__file__).parent / "results") / "teachers_gpu.json"
    images, labels = data["X"], data["y"].astype(np.int64)
    public, truth = data["Xt"][:9000], data["yt"][:9000].astype(np.int64)
    order = np.random.default_rng(1).permutation(len(labels))
    shares = order.reshape(250, 240)
    slow = {half: one_at_a_time(images, labels, shares, half=half) for half in (False, True)}
    fast = stacked(images, labels, shares)
    result: dict[str, Any] = {
        "machine": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "recipe": asdict(RECIPE),
        "one_at_a_time_samples_per_s": max(slow.values()),
        "stacked_samples_per_s": fast,
        "ratio": fast / max(slow.values()),
        "ensembles": [],
    }
    for teachers, each, steps in ENSEMBLES:
        recipe, start = replace(RECIPE, steps=steps), time.perf_counter()
        shares = order[: teachers * each].reshape(teachers, each)
        votes = []
        for first in range(0, teachers, CHUNK):
            ids = range(first, min(first + CHUNK, teachers))
            votes.append(predict_stacked(fit(images, labels, shares[ids], ids, recipe), public, recipe=recipe))
        predictions = np.concatenate(votes)
        counts = np.stack([(predictions == c).sum(axis=0) for c in range(10)], axis=1)
        row = {
            "teachers": teachers,
            "images_each": each,
            "steps": steps,
            "mean_accuracy": float((predictions == truth).mean()),
            "plurality": float((counts.argmax(axis=1) == truth).mean()),
            "mean_top_vote": float(counts.max(axis=1).mean()),
            "seconds": time.perf_counter() - start,
        }
        result["ensembles"].append(row)
        print(json.dumps(row), flush=True)
        out.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
