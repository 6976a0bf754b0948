"""A plain convolutional net on images with weight decay and light augmentation: the bar without privacy.

On a GPU 8,000 steps of 256 images; on a CPU a net half as wide, 6,000 steps of 128: some 15 minutes of one core.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

STEPS, BATCH, WIDTH = (8000, 256, 64) if torch.cuda.is_available() else (6000, 128, 32)
RATE, DECAY, SHIFT = 3e-3, 0.05, 2


def trained(
    X: NDArray[np.uint8], y: NDArray[np.int64], *, n_classes: int, seed: int, flip: bool, steps: int = STEPS
) -> Callable[[NDArray[np.uint8]], NDArray[np.int64]]:
    """What predicts, after learning from all rows."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(seed)
    images = torch.tensor(X, device=device)
    images = images[:, None] if images.ndim == 3 else images.permute(0, 3, 1, 2)
    labels = torch.tensor(y, device=device)
    net = _net(images.shape[1], n_classes).to(device, memory_format=torch.channels_last)
    adam = torch.optim.AdamW(net.parameters(), RATE, weight_decay=DECAY)
    rate = torch.optim.lr_scheduler.OneCycleLR(adam, RATE, total_steps=steps)
    average = torch.optim.swa_utils.AveragedModel(
        net, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.999), use_buffers=True
    )
    for step in range(steps):
        some = torch.randint(len(images), (BATCH,), device=device)
        x = _moved(images[some].float() / 255, flip=flip).contiguous(memory_format=torch.channels_last)
        with torch.autocast(device, torch.bfloat16):
            loss = nn.functional.cross_entropy(net(x).float(), labels[some], label_smoothing=0.05)
        adam.zero_grad(set_to_none=True)
        loss.backward()
        adam.step()
        rate.step()
        if step >= steps // 2:
            average.update_parameters(net)
    average.eval()

    def predict(rows: NDArray[np.uint8]) -> NDArray[np.int64]:
        found = []
        with torch.no_grad():
            for start in range(0, len(rows), 2048):
                x = torch.tensor(rows[start : start + 2048], device=device)
                x = (x[:, None] if x.ndim == 3 else x.permute(0, 3, 1, 2)).float() / 255
                scores = average(x).softmax(1) + (average(x.flip(3)).softmax(1) if flip else 0)
                found.append(scores.argmax(1).cpu().numpy())
        return np.concatenate(found)

    return predict


def _moved(x: Any, *, flip: bool) -> Any:
    """Shifted by up to two pixels, one in two mirrored where that is natural, a square blanked."""
    n, _, height, width = x.shape
    padded = nn.functional.pad(x, (SHIFT,) * 4)
    down, across = torch.randint(2 * SHIFT + 1, (2, n), device=x.device)
    rows = (down[:, None] + torch.arange(height, device=x.device))[:, None, :, None]
    columns = (across[:, None] + torch.arange(width, device=x.device))[:, None, None, :]
    x = padded[
        torch.arange(n, device=x.device)[:, None, None, None],
        torch.arange(x.shape[1], device=x.device)[None, :, None, None],
        rows,
        columns,
    ]
    if flip:
        x = torch.where(torch.rand(n, 1, 1, 1, device=x.device) < 0.5, x.flip(3), x)
    place = torch.rand(2, n, 1, device=x.device)
    gone = ((torch.arange(height, device=x.device) - place[0] * height).abs() < 0.12 * height)[:, None, :, None] & (
        (torch.arange(width, device=x.device) - place[1] * width).abs() < 0.12 * width
    )[:, None, None, :]
    return torch.where(gone, torch.zeros_like(x), x)


def _net(channels: int, n_classes: int) -> Any:
    layers: list[Any] = []
    fan = channels
    for stage, out in enumerate((WIDTH, 2 * WIDTH, 4 * WIDTH)):
        layers += [nn.MaxPool2d(2)] if stage else []
        for _ in range(3 if stage else 2):
            layers += [nn.Conv2d(fan, out, 3, padding=1, bias=False), nn.BatchNorm2d(out), nn.ReLU(inplace=True)]
            fan = out
        layers += [nn.Dropout(0.1)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.3), nn.Linear(fan, n_classes))
