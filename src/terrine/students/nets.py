"""What the students that are nets share: settings, small nets, distortions, losses, and a step that is repeated."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from terrine import _validate
from terrine._optional import require_torch
from terrine.errors import InputError
from terrine.students.lessons import evened

Progress = Callable[[float], object]
Scale = tuple[NDArray[np.float32], NDArray[np.float32]]  # (n_features,) what to subtract, what to divide by

_EAGER = 3  # steps on a GPU before one is recorded
_FLOOR = 0.02  # what is left of the answers' weight when they have faded: enough to keep the classes in place
PROBE = 0.004  # root mean square of the random step that finds an adversarial direction
MEMORY = 0.05  # how much of the running shares of the classes is the last batch's


@dataclass(frozen=True, kw_only=True)
class Distortion:
    """Random changes that leave a row's class as it is, drawn anew for every row and step; each number is the largest.

    Attributes:
        rotate, zoom, shear, shift: of images: degrees, share, share, pixels.
        erase: side of a square of an image that is blanked, as a share of the image's.
        jitter: standard deviation of noise on every value, where a pixel's range, or a feature's deviation, is 1.
    """

    rotate: float = 10.0
    zoom: float = 0.1
    shear: float = 0.1
    shift: float = 2.0
    erase: float = 0.0
    jitter: float = 0.05

    def __post_init__(self) -> None:
        for setting in fields(self):
            at_least_0(self, setting.name)
        for name in ("zoom", "erase"):
            if getattr(self, name) >= 1:
                raise InputError(f"{name} must be below 1, got {getattr(self, name)}.")


@dataclass(frozen=True, kw_only=True)
class NetSettings:
    """A net and its training, public.

    Attributes:
        channels, depth: for images: of each stage, ``depth`` 3 x 3 convolutions and a 2 x 2 maximum.
        hidden: units of the dense layers, for rows of features.
        norm: "batch" scales each channel over a batch, "group" each row by itself over a quarter of its channels.
        steps: how often the net learns from ``batch`` answered rows and ``public_batch`` of all public rows.
        learning_rate: at its top; it rises over a twentieth of the steps and falls to 0 as a cosine.
        schedule: "cosine", or "constant" for the same rate throughout.
        averaging: the student is an average of the net's weights over some 1/(1 - averaging) steps.
        wrong: share of the answers that is expected to be wrong; the loss of one that contradicts all else is bounded.
        fade: share of the training over which the answers lose their weight, so that what the public rows say of one
            another outvotes a wrong one; 0 for never.
        folds: this number of nets is trained first, in half the steps, each without one fold of the answers, and
            answers that the net without them finds wrong are left out; 0 for no such check.
        view: how rows are distorted.
        device: "cpu", "cuda", or "auto" for a GPU where there is one.
        balanced: answers of rarer classes are repeated until every class has as many as the commonest.
        min_per_class: refuse to learn from fewer answers than this of any class.
    """

    channels: tuple[int, ...] = (32, 64, 128)
    depth: int = 1
    hidden: tuple[int, ...] = (128, 128)
    norm: str = "batch"
    steps: int = 2000
    batch: int = 64
    public_batch: int = 128
    learning_rate: float = 3e-3
    schedule: str = "cosine"
    weight_decay: float = 0.01
    averaging: float = 0.99
    wrong: float = 0.05
    fade: float = 0.6
    folds: int = 0
    view: Distortion = field(default_factory=Distortion)
    device: str = "auto"
    balanced: bool = False
    min_per_class: int = 0

    def __post_init__(self) -> None:
        for name in ("depth", "steps"):
            _validate.integer(name, getattr(self, name), at_least=1)
        for name in ("batch", "public_batch"):
            _validate.integer(name, getattr(self, name), at_least=2)
        _validate.integer("min_per_class", self.min_per_class, at_least=0)
        for name in ("channels", "hidden"):
            sizes = getattr(self, name)
            if not isinstance(sizes, (tuple, list)) or not sizes:
                raise InputError(f"{name} must be a list of whole numbers, got {sizes!r}.")
            object.__setattr__(self, name, tuple(_validate.integer(name, size, at_least=1) for size in sizes))
        given_view(self, "view")
        _validate.positive("learning_rate", self.learning_rate)
        for name in ("weight_decay", "averaging", "wrong", "fade"):
            at_least_0(self, name)
        for name, below in (("averaging", 1), ("wrong", 0.5)):
            if getattr(self, name) >= below:
                raise InputError(f"{name} must be below {below}, got {getattr(self, name)}.")
        _validate.integer("folds", self.folds, at_least=0)
        if self.folds == 1 or (self.folds and not self.wrong):
            raise InputError(
                f"folds must be 0, or at least 2 with wrong above 0, got {self.folds} with wrong={self.wrong}."
            )
        _validate.choice("norm", self.norm, ("batch", "group"))
        _validate.choice("schedule", self.schedule, ("cosine", "constant"))
        _validate.choice("device", self.device, ("auto", "cpu", "cuda"))


def at_least_0(settings: Any, name: str) -> None:
    if _validate.number(name, getattr(settings, name)) < 0:
        raise InputError(f"{name} must be at least 0, got {getattr(settings, name)}.")


def given_view(settings: Any, name: str) -> None:
    """Take a distortion also as a dict of its numbers, as a configuration file has it."""
    match getattr(settings, name):
        case Distortion():
            return
        case dict() as numbers if set(numbers) <= {setting.name for setting in fields(Distortion)}:
            object.__setattr__(settings, name, Distortion(**numbers))
        case other:
            raise InputError(f"{name} must be a Distortion, or a dict of its settings, got {other!r}.")


def picked(device: str) -> str:
    """The device itself, or for "auto" a GPU where there is one."""
    if device != "auto":
        return device
    return "cuda" if require_torch().cuda.is_available() else "cpu"


def build(settings: NetSettings, row_shape: tuple[int, ...], n_classes: int) -> Any:
    """Two modules in a row: from rows to a vector, and from that to scores."""
    nn = require_torch().nn
    layers: list[Any] = []

    def scaled(size: int, batch_norm: Any) -> list[Any]:
        norm = batch_norm(size) if settings.norm == "batch" else nn.GroupNorm(math.gcd(4, size), size)
        return [norm, nn.LeakyReLU(0.1)]

    if len(row_shape) == 1:
        size = row_shape[0]
        for units in settings.hidden:
            layers += [nn.Linear(size, units, bias=False), *scaled(units, nn.BatchNorm1d)]
            size = units
    else:
        height, width, size = (*row_shape, 1)[:3]
        for channels in settings.channels:
            for k in range(settings.depth):
                layers.append(nn.Conv2d(size, channels, 3, padding=1, bias=False))
                if k == settings.depth - 1:
                    layers.append(nn.MaxPool2d(2))  # ahead of what follows, which then has a quarter of the work
                layers += scaled(channels, nn.BatchNorm2d)
                size = channels
            height, width = height // 2, width // 2
        layers.append(nn.Flatten())
        size *= height * width
    return nn.Sequential(nn.Sequential(*layers), nn.Linear(size, n_classes))


def as_tensor(rows: NDArray[Any], scale: Scale | None, device: str) -> Any:
    """Images as (n, channels, height, width) uint8; features scaled as (n, n_features)."""
    torch = require_torch()
    if scale is not None:
        return torch.from_numpy((np.asarray(rows, dtype=np.float32) - scale[0]) / scale[1]).to(device)
    images = rows[..., None] if rows.ndim == 3 else rows
    return torch.from_numpy(np.array(images)).to(device).permute(0, 3, 1, 2)  # in memory, channels stay last


def as_float(x: Any) -> Any:
    """Pixels in [0, 1]; features as they are."""
    return x.float() / 255 if x.dtype == require_torch().uint8 else x


def distort(x: Any, by: Distortion) -> Any:
    """Every row its own random distortion."""
    torch = require_torch()
    x = as_float(x)
    if x.ndim == 4:
        n, _, height, width = x.shape
        r = torch.rand(n, 8, device=x.device) * 2 - 1
        angle, zoom = r[:, 0] * math.radians(by.rotate), 1 + r[:, 1] * by.zoom
        stretch, shear = 1 + r[:, 2] * by.zoom, r[:, 3] * by.shear
        cos, sin = angle.cos() / zoom, angle.sin() / zoom
        across = torch.stack((cos * stretch, shear - sin, r[:, 4] * 2 * by.shift / width), 1)
        down = torch.stack((sin, cos / stretch, r[:, 5] * 2 * by.shift / height), 1)
        grid = torch.nn.functional.affine_grid(torch.stack((across, down), 1), list(x.shape), align_corners=False)
        x = torch.nn.functional.grid_sample(x, grid, align_corners=False)
        if by.erase > 0:
            rows = torch.linspace(-1, 1, height, device=x.device) - r[:, 6, None]
            columns = torch.linspace(-1, 1, width, device=x.device) - r[:, 7, None]
            kept = (rows.abs() > by.erase)[:, :, None] | (columns.abs() > by.erase)[:, None, :]
            x = x * kept[:, None]
    return x + by.jitter * torch.randn_like(x) if by.jitter > 0 else x


# Losses, of natural logs of probabilities (n, n_classes)


def cross_entropy(log_p: Any, labels: Any, wrong: float) -> Any:
    """How unlikely the answers are, if a share ``wrong`` of them is any other class than the true one."""
    own = log_p.gather(1, labels[:, None])
    if wrong == 0:
        return -own.mean()
    other = wrong / (log_p.shape[1] - 1)
    return -(own.exp() * (1 - wrong - other) + other).log().mean()


def kl_divergence(log_p: Any, log_q: Any) -> Any:
    """How far a prediction is from another: the mean divergence KL(p, q)."""
    return (log_p.exp() * (log_p - log_q)).sum(1).mean()


def entropy(log_p: Any) -> Any:
    """The mean entropy of predictions."""
    return -(log_p.exp() * log_p).sum(1).mean()


def unbalanced(log_p: Any, running: Any, shares: Any) -> Any:
    """How much is predicted of classes that are predicted more often than answered; ``running`` is kept up to date."""
    mean = log_p.exp().mean(0)
    running.lerp_(mean.detach(), MEMORY)
    return (mean * ((running + 1e-6) / shares).log()).sum()


def balanced(settings: NetSettings, answered: Any, labels: Any) -> tuple[Any, Any]:
    """The answers to draw batches from: where settings ask for it, those of rarer classes are repeated."""
    if not settings.balanced:
        return answered, labels
    some = require_torch().from_numpy(evened(labels.cpu().numpy())).to(labels.device)
    return answered[some], labels[some]


def class_shares(labels: Any, n_classes: int) -> Any:
    """Of each class among the answers, with one more of each so that none is 0."""
    counts = require_torch().bincount(labels, minlength=n_classes) + 1.0
    return counts / counts.sum()


def adversarial(net: Any, x: Any, log_p: Any, radius: float) -> Any:
    """Rows moved to where predictions differ most from ``log_p``, by one step of power iteration.

    ``radius`` is the root mean square of the move over a row's values.
    """
    torch = require_torch()
    probe = _of_size(torch.randn_like(x), PROBE).requires_grad_()
    (steepest,) = torch.autograd.grad(kl_divergence(log_p, net(x + probe).log_softmax(1)), probe)
    return x + _of_size(steepest, radius)


def _of_size(direction: Any, radius: float) -> Any:
    flat = direction.flatten(1)
    length = radius * math.sqrt(flat.shape[1])
    return (length * flat / (flat.norm(dim=1, keepdim=True) + 1e-12)).view_as(direction)


# Training


def averaged(net: Any) -> Any:
    """A copy that will `follow` the net: steadier than any one step's weights."""
    return copy.deepcopy(net).eval().requires_grad_(False)


def follow(average: Any, net: Any, averaging: float) -> None:
    """Move the copy a little toward the net, its batches' statistics included."""
    torch = require_torch()
    torch._foreach_lerp_(_state(average), [tensor.detach() for tensor in _state(net)], 1 - averaging)


def _state(net: Any) -> list[Any]:
    return [tensor for tensor in (*net.parameters(), *net.buffers()) if tensor.is_floating_point()]


def optimiser(net: Any, *, weight_decay: float, momentum: float = 0.9) -> Any:
    """AdamW with a learning rate that `schedule` sets, on the device so that a recorded step reads it."""
    torch = require_torch()
    parameters = list(net.parameters())
    device = parameters[0].device
    return torch.optim.AdamW(
        parameters,
        lr=torch.zeros((), device=device),
        betas=(momentum, 0.99),
        weight_decay=weight_decay,
        fused=True,
        capturable=device.type == "cuda",
    )


def schedule(adam: Any, settings: NetSettings, done: float, *, share: float = 1.0) -> None:
    """Set the rate: a rise over a twentieth of the steps, then a cosine down to 0; or a constant."""
    rate = share * settings.learning_rate
    if settings.schedule == "cosine":
        rate *= done / 0.05 if done < 0.05 else 0.5 * (1 + math.cos(math.pi * (done - 0.05) / 0.95))
    for group in adam.param_groups:
        group["lr"].fill_(rate)


def faded(fade: float, done: float) -> float:
    """The answers' weight when a share of the training is done."""
    return max(_FLOOR, 1 - done / fade) if fade > 0 else 1.0


@contextmanager
def seeded(seed: int, device: str) -> Iterator[None]:
    """All of torch's randomness from ``seed`` inside; as it was before outside."""
    torch = require_torch()
    with torch.random.fork_rng(devices=[torch.cuda.current_device()] if device.startswith("cuda") else []):
        torch.manual_seed(seed)
        yield


def repeat(
    step: Callable[[], None],
    *,
    times: int,
    before: Callable[[float], None],
    device: str,
    progress: Progress | None,
) -> None:
    """Call ``step`` for each of the steps, and ahead of each call ``before`` with the share done.

    On a GPU one step is recorded and replayed, as its kernels are shorter than their launches: ``step`` may not look
    at a tensor's value, and whatever changes from step to step is a tensor that ``before`` writes to.
    """
    torch = require_torch()
    graph, stream = None, torch.cuda.Stream() if device.startswith("cuda") else None
    for k in range(times):
        before(k / times)
        if stream is None:
            step()
        elif k < _EAGER:
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                step()
            torch.cuda.current_stream().wait_stream(stream)
        else:
            if graph is None:
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph):
                    step()
            graph.replay()
        if progress is not None and k % 20 == 0:
            progress(k / times)
