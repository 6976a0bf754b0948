"""A small encoder of images, learned without labels from natural distortions that public images bear.

Two distorted views of one image shall look alike, views of others not (NT-Xent). What it sees is kept as means over
the four quarters of the image, so that where something is still counts. All images are public.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from terrine._blocks import blocks
from terrine._optional import require_torch
from terrine.features.encoder import _contrast
from terrine.features.views import distorted

Weights = dict[str, NDArray[Any]]

WIDTH = 64  # channels of the first stage
STEPS, BATCH = 2000, 1024
_RATE, _DECAY, _TEMPERATURE = 2e-3, 1e-3, 0.2
_HEAD = (512, 128)
_QUARTERS = 2
_LARGEST = 64  # pixels: longer sides are averaged down
_BLOCK = {"cpu": 128, "cuda": 2048}  # images encoded at once; the last block is filled up


def learn(
    images: NDArray[np.uint8],
    strengths: Mapping[str, float],
    *,
    steps: int,
    seed: int,
    device: str,
    progress: Callable[[float], object] | None = None,
) -> Weights:
    """Weights of an encoder of public images (n, height, width, channels), by their names in the net.

    Args:
        strengths: of each distortion, as `views.strengths` finds them.
    """
    torch = require_torch()
    pixels = torch.tensor(np.ascontiguousarray(images), device=device)
    on_gpu = device != "cpu"
    with torch.random.fork_rng(devices=range(torch.cuda.device_count()) if on_gpu else []), torch.enable_grad():
        torch.manual_seed(seed)
        draws = torch.Generator(device).manual_seed(seed)
        form = torch.channels_last if on_gpu else torch.contiguous_format
        body = _body(pixels.shape[-1]).to(device, memory_format=form).train()
        head = _head().to(device).train()
        parameters = [*body.parameters(), *head.parameters()]
        adam = torch.optim.AdamW(parameters, weight_decay=_DECAY, fused=on_gpu)
        n = min(BATCH, len(pixels))
        for step in range(steps):
            for group in adam.param_groups:
                group["lr"] = _rate(step, steps)
            which = torch.randint(len(pixels), (n,), generator=draws, device=device)
            x = _seen(pixels[which])
            pair = torch.cat([distorted(x, strengths, draws) for _ in range(2)])
            with torch.autocast("cuda" if on_gpu else "cpu", torch.bfloat16, enabled=on_gpu):
                z = head(_pooled(body(pair.contiguous(memory_format=form)), 1))
            loss = _contrast(torch.nn.functional.normalize(z.float(), dim=1), which, _TEMPERATURE)
            adam.zero_grad(set_to_none=True)
            loss.backward()
            adam.step()
            if progress is not None and step % 25 == 0:
                progress(step / steps)
    named = body.state_dict().items()
    return {name: one.float().cpu().numpy() for name, one in named if not name.endswith("num_batches_tracked")}


def encoded(weights: Weights, images: NDArray[np.uint8], *, device: str) -> NDArray[np.float32]:
    """(n, 16 * WIDTH): each image's own numbers, whatever images are beside it."""
    torch = require_torch()
    with torch.random.fork_rng(devices=[]):
        body = _body(images.shape[-1])
    body.load_state_dict({name: torch.tensor(array) for name, array in weights.items()}, strict=False)
    body = body.to(device).eval()
    found = np.empty((len(images), n_features()), dtype=np.float32)
    with torch.no_grad():
        for at, block in blocks(images, _BLOCK["cpu" if device == "cpu" else "cuda"]):
            maps = body(_seen(torch.from_numpy(block).to(device)))
            found[at] = _pooled(maps, _QUARTERS)[: at.stop - at.start].float().cpu().numpy()
    return found


def n_features() -> int:
    return 4 * WIDTH * _QUARTERS**2


def shapes(channels: int) -> dict[str, tuple[int, ...]]:
    """Names and shapes of an encoder's weights, to check what was stored."""
    with require_torch().random.fork_rng(devices=[]):
        named = _body(channels).state_dict().items()
    return {name: tuple(one.shape) for name, one in named if not name.endswith("num_batches_tracked")}


def _seen(pixels: Any) -> Any:
    x = pixels.permute(0, 3, 1, 2).float() / 255
    shrink = -(-max(x.shape[2:]) // _LARGEST)
    return require_torch().nn.functional.avg_pool2d(x, shrink, ceil_mode=True) if shrink > 1 else x


def _pooled(maps: Any, side: int) -> Any:
    return require_torch().nn.functional.adaptive_avg_pool2d(maps, side).flatten(1)


def _body(channels: int) -> Any:
    nn = require_torch().nn
    layers: list[Any] = []
    fan = channels
    for out, stride in ((WIDTH, 1), (2 * WIDTH, 2), (4 * WIDTH, 2)):
        for step in (stride, 1):
            layers += [nn.Conv2d(fan, out, 3, step, 1, bias=False), nn.BatchNorm2d(out), nn.ReLU(inplace=True)]
            fan = out
    return nn.Sequential(*layers)


def _head() -> Any:
    nn = require_torch().nn
    return nn.Sequential(nn.Linear(4 * WIDTH, _HEAD[0]), nn.ReLU(inplace=True), nn.Linear(*_HEAD))


def _rate(step: int, steps: int) -> float:
    """It rises over three tenths of the steps and falls to 0, as cosines."""
    done = (step + 1) / steps
    rise = 0.3
    if done < rise:
        return _RATE * (1 - math.cos(math.pi * done / rise)) / 2
    return _RATE * (1 + math.cos(math.pi * (done - rise) / (1 - rise))) / 2
