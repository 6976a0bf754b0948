"""An encoder of images, learned without labels: two distorted views of one image shall look alike, others not.

Contrastive learning with a small convolutional net and the normalized, temperature-scaled cross-entropy (NT-Xent).
All images are public, so batch statistics are no concern here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from terrine._blocks import blocks
from terrine._optional import require_torch
from terrine.errors import InputError

if TYPE_CHECKING:
    from terrine.features.features import FeatureRecipe

_HEAD = 128  # width of the projection that is contrasted, and left out afterwards
_COARSE = 7  # points on a side of the elastic grid
_VIEW_SEED = 7  # of the fixed views that an image's features are averaged over
_VIEW_STRENGTH = 0.7
_BLOCK = {"cpu": 128, "cuda": 2048}  # images encoded at once; the last block is filled up


def fit_encoder(
    images: NDArray[Any],
    *,
    recipe: FeatureRecipe,
    seed: int,
    device: str,
    progress: Callable[[float], object] | None = None,
) -> dict[str, NDArray[Any]]:
    """Weights of an encoder of these images, (n, height, width[, channels]) uint8, by their names in the net."""
    torch = require_torch()
    pixels = torch.tensor(as_images(images), device=device)
    on_gpu = device != "cpu"
    form = torch.channels_last if on_gpu else torch.contiguous_format
    with torch.random.fork_rng(devices=range(torch.cuda.device_count()) if on_gpu else []), torch.enable_grad():
        torch.manual_seed(seed)
        draws = torch.Generator(device).manual_seed(seed)
        body = _body(recipe.width, pixels.shape[-1]).to(device, memory_format=form).train()
        head = _head(recipe.width).to(device).train()
        weights = [*body.parameters(), *head.parameters()]
        optimiser = torch.optim.AdamW(weights, weight_decay=recipe.weight_decay, fused=on_gpu)
        for step in range(recipe.steps):
            for group in optimiser.param_groups:
                group["lr"] = _rate(recipe, step)
            which = torch.randint(len(pixels), (recipe.batch,), generator=draws, device=device)
            x = _seen(pixels[which])
            pair = [_distorted(x, *_drawn(len(x), draws), recipe) for _ in range(2)]
            with torch.autocast("cuda" if on_gpu else "cpu", torch.bfloat16, enabled=on_gpu):
                z = head(body(torch.cat(pair).contiguous(memory_format=form)))
            loss = _contrast(torch.nn.functional.normalize(z.float(), dim=1), which, recipe.temperature)
            optimiser.zero_grad(set_to_none=True)
            loss.backward()
            optimiser.step()
            if progress is not None and step % 25 == 0:
                progress(step / recipe.steps)
    return {name: tensor.detach().float().cpu().numpy() for name, tensor in _kept(body).items()}


def encode(
    weights: dict[str, NDArray[Any]], images: NDArray[Any], *, recipe: FeatureRecipe, device: str
) -> NDArray[np.float32]:
    """(n, 4·width) unit rows: the mean over the image itself and fixed distortions of it."""
    torch = require_torch()
    pixels = as_images(images)
    body = _blank(recipe.width, pixels.shape[-1])
    body.load_state_dict({name: torch.tensor(array) for name, array in weights.items()}, strict=False)
    body = body.to(device).eval()
    block = _BLOCK["cpu" if device == "cpu" else "cuda"]
    result = np.empty((len(pixels), 4 * recipe.width), dtype=np.float32)
    with torch.no_grad():
        for at, filled in blocks(pixels, block):
            x = _seen(torch.from_numpy(filled).to(device))
            total: Any = 0.0
            for view in range(recipe.views):
                seen = x if view == 0 else _distorted(x, *_fixed(view, block, device), recipe)
                total = total + torch.nn.functional.normalize(body(seen), dim=1)
            unit = torch.nn.functional.normalize(total, dim=1)
            result[at] = unit[: at.stop - at.start].cpu().numpy()
    return result


def encoder_shapes(recipe: FeatureRecipe, channels: int) -> dict[str, tuple[int, ...]]:
    """Names and shapes of an encoder's weights, to check what was stored."""
    return {name: tuple(tensor.shape) for name, tensor in _kept(_blank(recipe.width, channels)).items()}


def as_images(images: NDArray[Any]) -> NDArray[np.uint8]:
    """(n, height, width, channels) uint8."""
    images = np.asarray(images)
    if images.ndim not in (3, 4) or images.dtype != np.uint8 or min(images.shape[1:3]) < 4:
        raise InputError(
            "The encoder needs images of shape (height, width[, channels]), at least 4 x 4, and "
            f"dtype uint8, got shape {images.shape[1:]}, dtype {images.dtype}."
        )
    return np.ascontiguousarray(images if images.ndim == 4 else images[..., None])


def _body(width: int, channels: int) -> Any:
    nn = require_torch().nn
    layers: list[Any] = []
    fan = channels
    for stage, out in enumerate((width, 2 * width, 4 * width)):
        layers += [nn.MaxPool2d(2)] if stage else []
        for _ in range(2):
            layers += [nn.Conv2d(fan, out, 3, padding=1, bias=False), nn.BatchNorm2d(out), nn.ReLU(inplace=True)]
            fan = out
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())


def _blank(width: int, channels: int) -> Any:
    """A net to load weights into; making it leaves torch's generator as it was."""
    with require_torch().random.fork_rng(devices=[]):
        return _body(width, channels)


def _head(width: int) -> Any:
    nn = require_torch().nn
    wide = 4 * width
    return nn.Sequential(nn.Linear(wide, wide), nn.BatchNorm1d(wide), nn.ReLU(inplace=True), nn.Linear(wide, _HEAD))


def _kept(body: Any) -> dict[str, Any]:
    return {name: tensor for name, tensor in body.state_dict().items() if not name.endswith("num_batches_tracked")}


def _rate(recipe: FeatureRecipe, step: int) -> float:
    """It rises over the first twelfth of the steps and falls to 0 as a cosine."""
    rise = min(1.0, (step + 1) / max(1, recipe.steps // 12))
    return recipe.learning_rate * rise * 0.5 * (1 + math.cos(math.pi * step / recipe.steps))


def _contrast(z: Any, which: Any, temperature: float) -> Any:
    """Each view against its twin among all others; other views of the same image, drawn twice, do not count."""
    torch = require_torch()
    n = len(which)
    same = torch.cat((which, which))
    hidden = same[:, None] == same[None]
    twin = torch.arange(2 * n, device=z.device).roll(n)
    hidden[torch.arange(2 * n, device=z.device), twin] = False
    scores = (z @ z.T / temperature).masked_fill(hidden, -torch.inf)
    return torch.nn.functional.cross_entropy(scores, twin)


def _seen(pixels: Any) -> Any:
    return pixels.permute(0, 3, 1, 2).float() / 255


def _drawn(n: int, draws: Any) -> tuple[Any, Any, Any]:
    """Random numbers of n distortions: affine in [-1, 1], elastic normal, stroke in [0, 1]."""
    torch = require_torch()
    where = draws.device
    affine = torch.rand(n, 6, generator=draws, device=where) * 2 - 1
    elastic = torch.randn(n, 2, _COARSE, _COARSE, generator=draws, device=where)
    return affine, elastic, torch.rand(n, generator=draws, device=where)


def _fixed(view: int, n: int, device: str) -> tuple[Any, Any, Any]:
    """The numbers of one public view, the same for every image wherever it stands."""
    torch = require_torch()
    affine, elastic, stroke = _drawn(1, torch.Generator().manual_seed(1000 * _VIEW_SEED + view))
    one = (affine * _VIEW_STRENGTH, elastic * _VIEW_STRENGTH, stroke)
    return tuple(numbers.to(device).expand(n, *numbers.shape[1:]) for numbers in one)


def _distorted(x: Any, affine: Any, elastic: Any, stroke: Any, recipe: FeatureRecipe) -> Any:
    """(n, channels, height, width) after rotation, zoom, shear and shift, a smooth warp, a thinner or thicker stroke.

    No mirror images: many signs change their meaning.
    """
    torch = require_torch()
    functional = torch.nn.functional
    height, width = x.shape[2:]
    angle, zoom = affine[:, 0] * math.radians(recipe.rotate), 1 + affine[:, 1] * recipe.zoom
    stretch, shear = 1 + affine[:, 2] * recipe.zoom, affine[:, 3] * recipe.shear
    right, down = affine[:, 4] * 2 * recipe.shift / width, affine[:, 5] * 2 * recipe.shift / height
    cos, sin = angle.cos() / zoom, angle.sin() / zoom
    theta = torch.stack(
        (torch.stack((cos * stretch, -sin + shear, right), 1), torch.stack((sin, cos / stretch, down), 1)), 1
    )
    y = functional.grid_sample(
        x, functional.affine_grid(theta, list(x.shape), align_corners=False), align_corners=False
    )
    still = torch.eye(2, 3, device=x.device).expand(len(x), 2, 3)
    warp = functional.interpolate(elastic * recipe.elastic, size=(height, width), mode="bicubic", align_corners=False)
    grid = functional.affine_grid(still, list(x.shape), align_corners=False) + warp.permute(0, 2, 3, 1)
    y = functional.grid_sample(y, grid, align_corners=False)
    chance = stroke[:, None, None, None]
    thick = 0.5 * (y + functional.max_pool2d(y, 3, 1, 1))
    return torch.where(
        chance < recipe.stroke,
        functional.avg_pool2d(y, 3, 1, 1),
        torch.where(chance > 1 - recipe.stroke, thick, y),
    )
