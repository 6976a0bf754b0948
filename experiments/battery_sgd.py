"""DP-SGD on a linear model as Opacus does it, without Opacus: the noise is from a table that its accountant made.

    python experiments/battery_sgd.py OUT   # the table, OUT/sgd_noise.json, for the battery's tasks: wants Opacus

Poisson samples of rows, gradients of rows clipped to 1, Gaussian noise, momentum. On a linear model the length of a
row's gradient has a closed form, so that a step is two matrix products, on a GPU where there is one.
`battery_probe.py` has the same by Opacus itself (cells of the kind "opacus"), to compare with.
"""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

CLIP, MOMENTUM = 1.0, 0.9
TABLE = "sgd_noise.json"
# Rows of each task and its delta
SIZES = {"mnist": (60_000, 1e-5), "fashion": (60_000, 1e-5), "glyph": (103_595, 1e-6), "adult": (32_561, 1e-5)}
SIZES |= {"census": (199_523, 1e-6), "cifar10": (50_000, 1e-5), "imdb": (24_996, 1e-5), "clinc150": (15_000, 1e-5)}


@dataclass(frozen=True, kw_only=True)
class Schedule:
    batch: int  # rows in a step, expected
    epochs: int
    rate: float  # of learning

    def sampling(self, n: int) -> tuple[float, int]:
        """Chance of a row to be in a step, and the number of steps, as Opacus' loader has them."""
        each = math.ceil(n / self.batch)
        return 1 / each, self.epochs * each


# To choose from by labels of public rows
SCHEDULES = tuple(Schedule(batch=4096, epochs=epochs, rate=rate) for epochs, rate in ((5, 10.0), (20, 4.0), (20, 16.0)))


def key(n: int, schedule: Schedule, epsilon: float, delta: float) -> str:
    rate, steps = schedule.sampling(n)
    return f"{epsilon:g} {delta:g} {rate:.9f} {steps}"


def weights(X: Any, y: Any, schedule: Schedule, *, n_classes: int, noise: float, seed: int) -> Any:
    """(n_features + 1, n_classes), the last row the constant's."""
    device = X.device
    draws = torch.Generator(device).manual_seed(seed)
    chance, steps = schedule.sampling(len(y))
    bound = 1 / math.sqrt(X.shape[1])  # as torch.nn.Linear begins
    shape = (X.shape[1] + 1, n_classes)
    w = (2 * torch.rand(shape, generator=draws, device=device) - 1) * bound
    speed, squares = torch.zeros_like(w), X.square().sum(1) + 1
    for _ in range(steps):
        some = torch.rand(len(y), generator=draws, device=device).lt(chance).nonzero()[:, 0]
        rows = X[some]
        left = (rows @ w[:-1] + w[-1]).softmax(1)
        left[torch.arange(len(some), device=device), y[some]] -= 1
        left *= (CLIP / (left.square().sum(1) * squares[some]).sqrt().clamp_min(1e-9)).clamp_max(1.0)[:, None]
        total = torch.cat([rows.T @ left, left.sum(0, keepdim=True)])
        total += noise * CLIP * torch.randn(shape, generator=draws, device=device)
        speed = MOMENTUM * speed + total / (chance * len(y))
        w = w - schedule.rate * speed
    return w


def main() -> None:
    parser = argparse.ArgumentParser(description="Noise of DP-SGD by Opacus' accountant")
    parser.add_argument("out", type=Path)
    given = parser.parse_args()
    from dpsgd import noise_multiplier

    file = given.out / TABLE
    found = json.loads(file.read_text()) if file.is_file() else {}
    for n, delta in sorted(set(SIZES.values())):
        for schedule in SCHEDULES:
            for epsilon in (0.1, 0.3, 0.5, 1.0, 2.0):
                if (name := key(n, schedule, epsilon, delta)) not in found:
                    rate, steps = schedule.sampling(n)
                    found[name] = noise_multiplier(epsilon=epsilon, delta=delta, sample_rate=rate, steps=steps)
                    print(name, found[name], flush=True)
        file.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
