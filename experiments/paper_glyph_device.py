"""What the paper's Glyph asks of a GPU: features of millions of images, thousands of small nets at once, residual nets.

`encoded`: features of images that are on the device, as `terrine.features` has them, in half precision.
`small_nets`: the nets of one hidden layer that vote, a chunk of them as one batched product, on features.
`ResidualNets`: terrine's resnet32, several side by side in one recorded step.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from glyph_device import draw_on

from terrine.datasets.fonts import Glyphs
from terrine.datasets.glyph import Glyph, Plan
from terrine.features import Features
from terrine.features.encoder import _blank
from terrine.teachers.architectures import PAPER_GLYPH, resnet32

nn = torch.nn.functional
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
ON_GPU = DEVICE == "cuda"
HALF = torch.bfloat16
BLOCK = 32_768 if ON_GPU else 512  # images drawn and encoded at once
SCALE = 16.0  # features have length 1
CLASSES = 150
_TASK: dict[str, Glyph] = {}


def task_of(path: str) -> Glyph:
    if path not in _TASK:
        _TASK[path] = Glyph(Glyphs.load(Path(path)), seed=0)
    return _TASK[path]


def planned(path: str, split: str, rows: range) -> Plan:
    return task_of(path).plan(split, np.arange(rows.start, rows.stop))


def drawn_blocks(path: str, split: str, n: int, *, start: int = 0, planners: int = 12) -> Iterator[tuple[Any, Any]]:
    """Images on the device, and plans, of records from ``start`` on; plans are made ahead, by other processes."""
    glyphs = torch.from_numpy(np.ascontiguousarray(task_of(path).glyphs.X)).to(DEVICE)
    parts = [range(at, min(at + BLOCK, start + n)) for at in range(start, start + n, BLOCK)]
    plan = partial(planned, path, split)
    if len(parts) < 8 or planners < 2:
        for part in parts:
            made = plan(part)
            yield draw_on(glyphs, made), made
        return
    with get_context("spawn").Pool(planners) as pool:
        for made in pool.imap(plan, parts):
            yield draw_on(glyphs, made), made


def drawn(path: str, split: str, n: int, *, start: int = 0) -> tuple[Any, Any, Any]:
    """Images (n, 28, 28) uint8 on the device, the symbols that were drawn, and the labels that were recorded."""
    found = list(drawn_blocks(path, split, n, start=start, planners=1))
    true, label = (np.concatenate([getattr(plan, name) for _, plan in found]) for name in ("true", "label"))
    return torch.cat([images for images, _ in found]), true.astype(np.int64), label.astype(np.int64)


def drawn_shares(path: str, split: str, block: int, shares: range, *, planners: int = 3) -> Iterator[tuple[Any, Any]]:
    """Images and recorded labels on the device, ``block`` records at a time; plans are made from now on, elsewhere."""
    glyphs = torch.from_numpy(np.ascontiguousarray(task_of(path).glyphs.X)).to(DEVICE)
    parts = [[range(at, min(at + BLOCK, (k + 1) * block)) for at in range(k * block, (k + 1) * block, BLOCK)]
             for k in shares]  # fmt: skip
    plan = partial(planned, path, split)

    every = [part for some in parts for part in some]
    pool = None if planners < 2 or len(every) < 8 else get_context("spawn").Pool(planners)
    plans = map(plan, every) if pool is None else pool.imap(plan, every)

    def each() -> Iterator[tuple[Any, Any]]:
        try:
            for some in parts:
                images, labels = [], []
                for _ in some:
                    made = next(plans)
                    images.append(draw_on(glyphs, made))
                    labels.append(torch.from_numpy(made.label.astype(np.int64)).to(DEVICE))
                yield torch.cat(images), torch.cat(labels)
        finally:
            if pool is not None:
                pool.terminate()

    return each()


def encoder(features: Features) -> Callable[[Any], Any]:
    """(n, 28, 28) uint8 to (n, n_features), ``SCALE`` long: `Features.transform` with one view, in half precision."""
    if features.recipe.views != 1 or features.recipe.dimensions is not None:
        raise SystemExit("These features must be of one view and without a map.")
    arrays = features._arrays
    body = _blank(features.recipe.width, 1)
    state = {k.removeprefix("encoder."): torch.tensor(v) for k, v in arrays.items() if k.startswith("encoder.")}
    body.load_state_dict(state, strict=False)
    body = body.to(DEVICE, memory_format=torch.channels_last).eval()
    centre, matrix = (torch.tensor(arrays[name]).to(DEVICE) for name in ("centre", "matrix"))

    def encode(images: Any) -> Any:
        found = []
        with torch.no_grad(), torch.autocast(DEVICE, torch.float16 if ON_GPU else HALF, enabled=ON_GPU):
            for at in range(0, len(images), 16_384):
                x = (images[at : at + 16_384, None].float() / 255).contiguous(memory_format=torch.channels_last)
                seen = nn.normalize(body(x).float(), dim=1)
                with torch.autocast(DEVICE, enabled=False):
                    found.append((nn.normalize((seen - centre) @ matrix, dim=1) * SCALE).to(HALF))
        return torch.cat(found)

    return encode


def encoded(path: str, split: str, n: int, encode: Callable[[Any], Any], *, width: int) -> tuple[Any, Any]:
    """Features (n, width) and recorded labels (n,) of the first records of a split, on the device."""
    X, y = torch.empty((n, width), dtype=HALF, device=DEVICE), torch.empty(n, dtype=torch.int64, device=DEVICE)
    done = 0
    for images, plan in drawn_blocks(path, split, n):
        X[done : done + len(plan)] = encode(images)
        y[done : done + len(plan)] = torch.from_numpy(plan.label.astype(np.int64)).to(DEVICE)
        done += len(plan)
    return X, y


@dataclass(frozen=True, kw_only=True)
class NetRecipe:
    """Nets of one hidden layer: as glyph_students.TEACHER trains them."""

    steps: int = 1500
    batch: int = 128
    hidden: int = 512
    dropout: float = 0.2
    learning_rate: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 1e-3
    smoothing: float = 0.1
    chunk: int = 500


@dataclass(frozen=True, kw_only=True)
class Shares:
    """Features and labels of a private set; teacher k has rows k·each to (k + 1)·each."""

    X: Any
    y: Any
    teachers: int
    each: int


def small_nets(shares: Shares, asked: Any, truth: Any, *, recipe: NetRecipe, seed: int) -> tuple[Any, float]:
    """(n_asked, CLASSES) votes of all teachers, and how often one is right where the ``truth`` is given."""
    counts = torch.zeros((len(asked), CLASSES), dtype=torch.int32, device=DEVICE)
    right, known = 0.0, torch.from_numpy(truth).to(DEVICE)
    for first in range(0, shares.teachers, recipe.chunk):
        ids = range(first, min(first + recipe.chunk, shares.teachers))
        torch.manual_seed(1_000_003 * seed + first)
        weights = _trained(shares, ids, recipe)
        for at in range(0, len(asked), 2000):
            with torch.no_grad():
                scores = _scores(asked[at : at + 2000].expand(len(ids), -1, -1), [w.to(HALF) for w in weights], 0.0)
            votes = scores.argmax(-1)
            here = votes.shape[1]
            counts[at : at + here].scatter_add_(1, votes.T, torch.ones_like(votes.T, dtype=torch.int32))
            if at < len(known):
                some = known[at : at + here]
                right += float((votes[:, : len(some)] == some).sum())
    return counts.cpu().numpy(), right / (shares.teachers * min(len(known), len(asked)))


def _trained(shares: Shares, ids: range, recipe: NetRecipe) -> list[Any]:
    m, wide = len(ids), shares.X.shape[1]
    weights = []
    for fan, out in ((wide, recipe.hidden), (recipe.hidden, CLASSES)):
        bound = 1 / math.sqrt(fan)
        weights += [torch.empty((m, fan, out), device=DEVICE).uniform_(-bound, bound)]
        weights += [torch.empty((m, 1, out), device=DEVICE).uniform_(-bound, bound)]
    weights = [w.requires_grad_() for w in weights]
    sgd = torch.optim.SGD(
        weights, lr=recipe.learning_rate, momentum=recipe.momentum, weight_decay=recipe.weight_decay, fused=ON_GPU
    )
    offsets = torch.arange(ids.start, ids.stop, device=DEVICE)[:, None] * shares.each
    for step in range(recipe.steps):
        for group in sgd.param_groups:
            group["lr"] = recipe.learning_rate * 0.5 * (1 + math.cos(math.pi * step / recipe.steps))
        which = offsets + torch.randint(shares.each, (m, recipe.batch), device=DEVICE)
        scores = _scores(shares.X[which], [w.to(HALF) for w in weights], recipe.dropout)
        loss = nn.cross_entropy(
            scores.flatten(0, 1).float(), shares.y[which].flatten(), reduction="sum", label_smoothing=recipe.smoothing
        )
        sgd.zero_grad(set_to_none=True)
        (loss / recipe.batch).backward()
        sgd.step()
    return [w.detach() for w in weights]


def _scores(x: Any, weights: list[Any], dropout: float) -> Any:
    w1, b1, w2, b2 = weights
    hidden = torch.baddbmm(b1, x, w1).relu()
    return torch.baddbmm(b2, nn.dropout(hidden, dropout) if dropout else hidden, w2)


class ResidualNets:
    """``lanes`` teachers of the paper's kind trained side by side: a step of each is a branch of one recorded step.

    Convolutions and the dense layer are computed in ``kind``, from copies of weights that are kept in single precision,
    as autocast would do it with some sixty kernels more for each teacher's step.
    """

    def __init__(self, *, lanes: int, each: int, batch: int = PAPER_GLYPH.batch, kind: Any = None) -> None:
        self.lanes, self.each, self.batch = lanes, each, batch
        self.kind = kind or (HALF if ON_GPU else torch.float32)
        self.images = torch.zeros((lanes, each, 28, 28), dtype=torch.uint8, device=DEVICE)
        self.labels = torch.zeros((lanes, each), dtype=torch.int64, device=DEVICE)
        self.rate = torch.zeros((), device=DEVICE)
        self.nets = [self._fresh() for _ in range(lanes)]
        self.used = [list(net.parameters()) for net in self.nets]  # by the net, some of them copies of ``weights``
        self.weights = [[w.detach().to(torch.float32, copy=True) for w in some] for some in self.used]
        self.momenta = [[torch.zeros_like(w) for w in some] for some in self.weights]
        self.streams = [torch.cuda.Stream() for _ in range(lanes)] if ON_GPU else []
        self.graph: Any = None

    def _fresh(self) -> Any:
        net = _uncounted(resnet32(CLASSES, (28, 28))).to(DEVICE, memory_format=torch.channels_last).train()
        for layer in net.modules():
            if isinstance(layer, (torch.nn.Conv2d, torch.nn.Linear)):
                layer.to(self.kind)
        return net

    def begin(self, images: Any, labels: Any, *, seed: int) -> None:
        """New shares, (lanes · each, ...), and new first weights."""
        self.images.copy_(images.view(self.images.shape))
        self.labels.copy_(labels.view(self.labels.shape))
        for k, net in enumerate(self.nets):
            torch.manual_seed(1_000_003 * seed + k)
            fresh = _uncounted(resnet32(CLASSES, (28, 28)))
            net.load_state_dict(fresh.state_dict())
            net.train()
            for weight, first in zip(self.weights[k], fresh.parameters(), strict=True):
                weight.copy_(first.detach())
            for momentum in self.momenta[k]:
                momentum.zero_()

    def _lane(self, k: int) -> None:
        which = torch.randint(self.each, (self.batch,), device=DEVICE)
        scores = self.nets[k](self._seen(self.images[k][which]))
        loss = nn.cross_entropy(scores.float(), self.labels[k][which])
        used, weights, momenta = self.used[k], self.weights[k], self.momenta[k]
        gradients = [
            g if g.stride() == w.stride() else torch.empty_like(w, dtype=g.dtype).copy_(g)
            for g, w in zip(torch.autograd.grad(loss, used), weights, strict=True)
        ]  # of one layout, so that lists of them are one kernel
        with torch.no_grad():
            whole = [torch.empty_like(w) for w in weights]
            for dtype in {g.dtype for g in gradients}:
                here = [j for j, g in enumerate(gradients) if g.dtype == dtype]
                torch._foreach_copy_([whole[j] for j in here], [gradients[j] for j in here])
            torch._foreach_mul_(momenta, PAPER_GLYPH.momentum)
            torch._foreach_add_(momenta, whole)
            torch._foreach_sub_(weights, torch._foreach_mul(momenta, self.rate))
            for dtype in {w.dtype for w in used}:
                here = [j for j, w in enumerate(used) if w.dtype == dtype]
                torch._foreach_copy_([used[j] for j in here], [weights[j] for j in here])

    def _seen(self, images: Any) -> Any:
        x = (images[:, None].float() / 255).to(self.kind)
        return x.contiguous(memory_format=torch.channels_last)

    def _step(self) -> None:
        if not ON_GPU:
            for k in range(self.lanes):
                self._lane(k)
            return
        main = torch.cuda.current_stream()
        for k, stream in enumerate(self.streams):
            stream.wait_stream(main)
            with torch.cuda.stream(stream):
                self._lane(k)
        for stream in self.streams:
            main.wait_stream(stream)

    def record(self) -> None:
        """One step on a GPU, recorded to be replayed."""
        if not ON_GPU or self.graph is not None:
            return
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(3):
                self._step()
        torch.cuda.current_stream().wait_stream(aside)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._step()
        self.graph = graph

    def train(self, steps: int, *, of: int | None = None) -> float:
        """Seconds that these steps took, by the paper's schedule shrunk to ``of`` steps (None: to ``steps``)."""
        recipe = replace(PAPER_GLYPH, steps=of or steps)
        self.record()
        if ON_GPU:
            torch.cuda.synchronize()
        start = time.perf_counter()
        for step in range(steps):
            self.rate.fill_(recipe.rate(step))
            if self.graph is None:
                self._step()
            else:
                self.graph.replay()
        if ON_GPU:
            torch.cuda.synchronize()
        return time.perf_counter() - start

    def votes(self, asked: Any) -> Any:
        """(lanes, n_asked) classes; the dense layer in single precision, where scores seldom tie."""
        result = torch.empty((self.lanes, len(asked)), dtype=torch.int64, device=DEVICE)
        with torch.no_grad():
            for k, net in enumerate(self.nets):
                net.eval()
                for at in range(0, len(asked), 4000):
                    x = net[:-1](self._seen(asked[at : at + 4000])).float()
                    result[k, at : at + len(x)] = nn.linear(x, *self.weights[k][-2:]).argmax(1)
                net.train()
        return result


def _uncounted(net: Any) -> Any:
    """Without the number of batches that each layer keeps and nobody reads: a kernel a layer and step."""
    for layer in net.modules():
        if isinstance(layer, torch.nn.BatchNorm2d):
            layer.num_batches_tracked = None
    return net
