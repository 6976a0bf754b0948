"""Teachers that are any PyTorch module: one after the other on a CPU, a chunk of them as one batched model on a GPU.

The loop is the same for both: tensors have the teachers on their first axis, and a forward pass is the module itself
for one teacher or `torch.func.vmap` of it for many. Losses are summed over teachers, so that gradients do not mix, and
what is drawn for teacher k (first weights, records, shifts, flips) is a function of (seed, k) and the step.
"""

from __future__ import annotations

import copy
import functools
import inspect
import math
import pickle
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from terrine import _validate
from terrine._blocks import blocks
from terrine._models import dump_arrays, load_arrays
from terrine._optional import require_torch
from terrine.errors import InputError, StoreError
from terrine.teachers.nets import _FIXED, _fixed_vote
from terrine.teachers.stacked import teacher_keys, uniform
from terrine.teachers.teacher import Share

Factory = Callable[..., Any]  # (n_classes, row_shape) -> torch.nn.Module
Models = dict[str, NDArray[Any]]

_STATE = "state."  # before the module's own names: they meet no other
_LAYOUT = "layout"  # (teachers, 2 + axes of a row): number of classes, whether rows are uint8, shape of a row
_BYTE = 255  # uint8 is divided by it: a public constant
_BLOCK = 64  # rows predicted at once


@dataclass(frozen=True, kw_only=True)
class ModuleRecipe:
    """How a module is trained: public, the same for every teacher whatever its share.

    Attributes:
        steps, batch: training steps, and records in each of them, drawn from the teacher's own share.
        optimiser: "sgd", or "adam" (its weight decay taken off the weights, not added to the gradient).
        learning_rate: of the first step.
        schedule: "constant"; "cosine", falling to 0; "steps", times ``decay_by`` at each of ``decay_at``.
        decay_at: rising shares of the steps, as (0.25, 0.5).
        momentum: of sgd; adam's first beta.
        clip: largest norm of a teacher's gradient, over all its weights.
        shift: images are moved by up to this many pixels, in both directions, and filled up with 0.
        flip: images are mirrored, left to right, half of the time.
        smoothing: share of the label spread over all classes.
    """

    steps: int = 1000
    batch: int = 32
    optimiser: str = "sgd"
    learning_rate: float = 0.05
    schedule: str = "cosine"
    decay_at: tuple[float, ...] = ()
    decay_by: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 0.0
    clip: float | None = None
    shift: int = 0
    flip: bool = False
    smoothing: float = 0.0

    def __post_init__(self) -> None:
        for name, least in (("steps", 1), ("batch", 1), ("shift", 0)):
            _validate.integer(name, getattr(self, name), at_least=least)
        _validate.choice("optimiser", self.optimiser, ("sgd", "adam"))
        _validate.choice("schedule", self.schedule, ("constant", "cosine", "steps"))
        for name in ("learning_rate", "decay_by"):
            _validate.positive(name, getattr(self, name))
        if self.clip is not None:
            _validate.positive("clip", self.clip)
        for name in ("momentum", "weight_decay", "smoothing"):
            if _validate.number(name, getattr(self, name)) < 0:
                raise InputError(f"{name} must be at least 0, got {getattr(self, name)}.")
        for name in ("momentum", "smoothing"):
            if getattr(self, name) >= 1:
                raise InputError(f"{name} must be below 1, got {getattr(self, name)}.")
        if not isinstance(self.flip, bool):
            raise InputError(f"flip must be True or False, got {self.flip!r}.")
        shares = tuple(_validate.between("decay_at", share, 0, 1) for share in self.decay_at)
        if list(shares) != sorted(set(shares)):
            raise InputError(f"decay_at must rise from step to step, got {shares}.")
        if (self.schedule == "steps") != bool(shares):
            raise InputError(f'decay_at goes with schedule="steps" and with no other; schedule is {self.schedule!r}.')
        object.__setattr__(self, "decay_at", shares)

    def rate(self, step: int) -> float:
        """The learning rate of a step, counted from 0."""
        match self.schedule:
            case "cosine":
                return self.learning_rate * 0.5 * (1 + math.cos(math.pi * step / self.steps))
            case "steps":
                return self.learning_rate * self.decay_by ** sum(step >= share * self.steps for share in self.decay_at)
            case _:
                return self.learning_rate


@dataclass(frozen=True, kw_only=True)
class ModuleTeacher:
    """Any classifier in PyTorch, a new one for every share.

    Attributes:
        module: a function at the top level of a module, or `functools.partial` of one with plain keywords, that takes
            ``(n_classes, row_shape)`` and returns a `torch.nn.Module` from (batch, ...) to scores (batch, n_classes).
            ``row_shape`` is that of the data. The module sees float32: rows (features,) as they are, images (height,
            width[, channels]) as (channels, height, width), and uint8 divided by 255.
        recipe: its training, public.
        device: "cpu", "cuda", "cuda:1", or "auto" for a GPU where there is one.
        stacked: a chunk as one batched model, or one teacher after the other; None is the first on a GPU only.
        chunk: teachers of one task. On a CPU a small one feeds all workers; on a GPU memory and speed grow with it.

    A share without records votes for class 0, a share of one class for that class. A module has to take any finite
    rows: where it raises with a teacher's weights, and not with fresh ones, the teacher votes for class 0 on all rows
    of that block.

    What a module keeps, it keeps in parameters and in buffers that it changes in place; each teacher has its own, so
    BatchNorm's running statistics are of one share. A layer that needs other rows of the batch to predict is refused.
    Its randomness is torch's. One after the other, all of it is a function of (seed, k), and a teacher is the same bit
    for bit whatever the executor and the chunk. Stacked, dropout is drawn for a chunk at once, from the seed, the ids
    and no data: neighbors' shares still change nothing, but another chunk size is another draw; and a GPU may round
    differently from run to run.
    """

    module: Factory
    recipe: ModuleRecipe = field(default_factory=ModuleRecipe)
    device: str = "auto"
    stacked: bool | None = None
    chunk: int = 16
    suffix = ".safetensors"

    def __post_init__(self) -> None:
        _validate.integer("chunk", self.chunk, at_least=1)
        if not isinstance(self.recipe, ModuleRecipe):
            raise InputError(f"recipe must be a ModuleRecipe, got {type(self.recipe).__name__}.")
        if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", str(self.device)):
            raise InputError(f"device must be auto, cpu, cuda or cuda:N, got {self.device!r}.")
        if self.stacked not in (None, True, False):
            raise InputError(f"stacked must be True, False or None, got {self.stacked!r}.")
        _parameters(self.module)

    def settings(self) -> dict[str, Any]:
        """What decides what a teacher becomes, for a store's manifest: not where, and not how many together."""
        recipe = {f"recipe.{name}": value for name, value in asdict(self.recipe).items()}
        parameters = {f"module.{name}": value for name, value in _parameters(self.module).items()}
        return {"teacher": type(self).__name__, "module": _name(self.module), **parameters, **recipe}

    def fit(
        self,
        shares: Sequence[Share],
        *,
        ids: Sequence[int],
        n_classes: int,
        seed: int,
        progress: Callable[[float], object] | None = None,
    ) -> Models:
        """All tensors of the chunk's modules, the teachers on the first axis."""
        device, together = self._where()
        shape, bytes_ = _kind(shares, self.recipe)
        places = range(len(shares))
        runs = [list(places)] if together else [[place] for place in places]
        parts = []
        for done, run in enumerate(runs):

            def tell(share: float, done: int = done) -> None:
                if progress is not None:
                    progress((done + share) / len(runs))

            with _apart(device):
                keys = teacher_keys(seed, [ids[k] for k in run], device)
                module, state = self._first(keys, n_classes, shape, device)
                records = _records([shares[k] for k in run], bytes_, device)
                _train(module, state, records, keys, self.recipe, together, n_classes, tell)
                parts.append({name: tensor.detach().cpu().numpy() for name, tensor in state.items()})
        models = {_STATE + name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        models[_FIXED] = np.array([_fixed_vote(y) for _, y in shares], dtype=np.int64)
        models[_LAYOUT] = np.tile(np.array([n_classes, bytes_, *shape], dtype=np.int64), (len(shares), 1))
        return models

    def predict(self, models: Models, X: NDArray[Any], *, watched: bool = True) -> NDArray[np.int16]:
        """(n_models, n_rows) class indices, in blocks of rows that bound memory."""
        torch = require_torch()
        device, together = self._where()
        n_classes, bytes_, *axes = (int(n) for n in models[_LAYOUT][0])
        X = np.asarray(X)
        if X.shape[1:] != tuple(axes) or (X.dtype == np.uint8) != bytes_:
            kind = "uint8" if bytes_ else "numbers that are not uint8"
            raise InputError(f"Each row must be {kind} of shape {tuple(axes)}, got {X.dtype} of {X.shape[1:]}.")
        n_teachers = len(models[_FIXED])
        votes = np.empty((n_teachers, len(X)), dtype=np.int64)
        runs = [slice(0, n_teachers)] if together else [slice(k, k + 1) for k in range(n_teachers)]
        with _apart(device), torch.no_grad():
            module = self._built(n_classes, tuple(axes)).to(device).eval()
            for run in runs:
                _seed(0, device)
                state = {name: torch.tensor(models[_STATE + name][run]).to(device) for name in _tensors(module)}
                n = run.stop - run.start
                for at, block in blocks(X, _BLOCK):
                    x = _seen(torch.from_numpy(_numbers(block)).to(device)[None])
                    found = _votes(module, state, x.expand(n, *x.shape[1:]), together, n_classes)
                    votes[run, at] = found[:, : at.stop - at.start]
        fixed = models[_FIXED][:, None]
        return np.where(fixed >= 0, fixed, votes).astype(np.int16)

    def dumps(self, models: Models) -> bytes:
        """A chunk's file: plain arrays."""
        return dump_arrays(models)

    def loads(self, data: bytes) -> Models:
        """Refuses what is not the weights of this teacher's module, name by name and shape by shape."""
        models: Models = load_arrays(data, what="weights")
        others = StoreError(
            f"The weights are not those of {_name(self.module)}. Train again, or use a copy as it was saved."
        )
        layout = models.get(_LAYOUT, np.zeros(0))
        if layout.ndim != 2 or layout.dtype != np.int64 or layout.shape[1] < 3 or not (layout == layout[:1]).all():
            raise others
        n, (n_classes, _, *axes) = len(layout), (int(number) for number in layout[0])
        with _apart("cpu"):
            try:
                module = self._built(n_classes, tuple(axes))
            except Exception:  # whatever a factory raises on sizes that are not its own
                raise others from None
        wanted = {
            _STATE + name: ((n, *tensor.shape), str(tensor.dtype).removeprefix("torch."))
            for name, tensor in _tensors(module).items()
        }
        wanted |= {_FIXED: ((n,), "int64"), _LAYOUT: (layout.shape, "int64")}
        if {name: (array.shape, str(array.dtype)) for name, array in models.items()} != wanted:
            raise others
        return models

    def _where(self) -> tuple[str, bool]:
        """The device, and whether teachers are stacked there."""
        device = self.device
        if device == "auto":
            device = "cuda" if require_torch().cuda.is_available() else "cpu"
        return device, device != "cpu" if self.stacked is None else self.stacked

    def _built(self, n_classes: int, row_shape: tuple[int, ...]) -> Any:
        """A module of its own, even from a factory that hands out the same one twice."""
        torch = require_torch()
        module = self.module(n_classes, row_shape)
        if not isinstance(module, torch.nn.Module):
            raise InputError(f"{_name(self.module)} must return a torch.nn.Module, got {type(module).__name__}.")
        if any(torch.nn.parameter.is_lazy(parameter) for parameter in module.parameters()):
            raise InputError(f"{_name(self.module)} has a lazy layer. Give every layer its size, from row_shape.")
        if not any(parameter.requires_grad for parameter in module.parameters()):
            raise InputError(f"{_name(self.module)} must return a module with weights that can be trained.")
        for part in module.modules():
            if isinstance(part, torch.nn.modules.batchnorm._BatchNorm) and not part.track_running_stats:
                raise InputError(
                    "BatchNorm without track_running_stats needs other rows to predict one. Turn "
                    "track_running_stats on, or use GroupNorm."
                )
        return copy.deepcopy(module).float()

    def _first(self, keys: Any, n_classes: int, shape: tuple[int, ...], device: str) -> tuple[Any, dict[str, Any]]:
        """A module to run, and the first tensors of every teacher; leaves torch seeded for what training draws."""
        torch = require_torch()
        modules = []
        for key in keys.tolist():
            _seed(key, device)
            modules.append(self._built(n_classes, shape).train())
        if len(modules) > 1:
            _seed(int(np.random.SeedSequence(keys.tolist()).generate_state(1, np.uint64)[0] >> np.uint64(1)), device)
        state = {}
        for name, tensor in _tensors(modules[0]).items():
            stack = torch.stack([_tensors(module)[name].detach() for module in modules]).to(device)
            state[name] = stack.requires_grad_(tensor.requires_grad)
        return modules[0].to(device), state


def _train(
    module: Any,
    state: dict[str, Any],
    records: tuple[Any, Any, Any, Any],
    keys: Any,
    recipe: ModuleRecipe,
    together: bool,
    n_classes: int,
    tell: Callable[[float], None],
) -> None:
    """Change ``state`` in place, step by step."""
    torch = require_torch()
    rows, labels, offsets, sizes = records
    weights = [tensor for tensor in state.values() if tensor.requires_grad]
    if recipe.optimiser == "sgd":
        optimiser = torch.optim.SGD(weights, momentum=recipe.momentum, weight_decay=recipe.weight_decay)
    else:
        optimiser = torch.optim.AdamW(weights, betas=(recipe.momentum, 0.999), weight_decay=recipe.weight_decay)
    for step in range(recipe.steps):
        for group in optimiser.param_groups:
            group["lr"] = recipe.rate(step)
        # Columns of uniform numbers: which record, how far it moves down and right, whether it is mirrored
        draw = uniform(keys, step, recipe.batch * 4).view(len(keys), recipe.batch, 4)
        which = offsets[:, None] + (draw[..., 0] * sizes[:, None]).long().clamp(max=sizes[:, None] - 1)
        x = _seen(_moved(rows[which], draw[..., 1:], recipe))
        scores = _scores(module, state, x, together, n_classes).flatten(0, 1)
        losses = torch.nn.functional.cross_entropy(
            scores, labels[which].flatten(), reduction="none", label_smoothing=recipe.smoothing
        )
        optimiser.zero_grad(set_to_none=True)
        losses.view(which.shape).mean(1).sum().backward()
        if recipe.clip is not None:
            _clip(weights, recipe.clip)
        optimiser.step()
        if step % 25 == 0:
            tell(step / recipe.steps)
    tell(1.0)


def _scores(module: Any, state: dict[str, Any], x: Any, together: bool, n_classes: int) -> Any:
    """(teachers, rows, classes); each teacher's from its own tensors and rows."""
    torch = require_torch()

    def of_one(tensors: dict[str, Any], rows: Any) -> Any:
        scores = torch.func.functional_call(module, tensors, (rows,))
        found = tuple(getattr(scores, "shape", ())) or type(scores).__name__
        if found != (len(rows), n_classes):
            raise InputError(f"The module must give scores of shape {(len(rows), n_classes)}, got {found}.")
        return scores

    if together:
        return torch.func.vmap(of_one, randomness="different")(state, x)
    # A view, not an index: buffers change in place, and gradients are not copied
    return of_one({name: tensor.squeeze(0) for name, tensor in state.items()}, x[0])[None]


def _votes(module: Any, state: dict[str, Any], x: Any, together: bool, n_classes: int) -> NDArray[np.int64]:
    """(teachers, rows). A teacher whose weights make the module raise votes for class 0, and no other teacher does."""
    try:
        found: NDArray[np.int64] = _scores(module, state, x, together, n_classes).argmax(-1).cpu().numpy()
        return found
    except Exception:  # whether it is the module or a share shows with weights that are nobody's
        fresh = {name: tensor.detach()[None] for name, tensor in _tensors(module).items()}
        _scores(module, fresh, x[:1], False, n_classes)
    if len(x) == 1:
        return np.zeros(tuple(x.shape[:2]), dtype=np.int64)
    each = [{name: tensor[k : k + 1] for name, tensor in state.items()} for k in range(len(x))]
    return np.concatenate([_votes(module, one, x[k : k + 1], False, n_classes) for k, one in enumerate(each)])


def _clip(weights: list[Any], largest: float) -> None:
    """Each teacher's gradient to a norm of at most ``largest``."""
    gradients = [weight.grad for weight in weights if weight.grad is not None]
    squares = sum(gradient.flatten(1).square().sum(1) for gradient in gradients)
    factor = (largest / squares.sqrt().clamp(min=1e-12)).clamp(max=1)
    for gradient in gradients:
        gradient.mul_(factor.view(-1, *[1] * (gradient.ndim - 1)))


def _moved(x: Any, draw: Any, recipe: ModuleRecipe) -> Any:
    """(teachers, rows, height, width[, channels]), each row shifted and mirrored by its own three numbers."""
    if not recipe.shift and not recipe.flip:
        return x
    torch = require_torch()
    far = recipe.shift
    images = x.flatten(0, 1)
    images = images[..., None] if images.ndim == 3 else images
    height, width = images.shape[1:3]
    padded = torch.nn.functional.pad(images, (0, 0, far, far, far, far))
    down, right = ((draw[..., k].flatten() * (2 * far + 1)).long() for k in (0, 1))
    mirrored = (draw[..., 2].flatten() < 0.5) if recipe.flip else torch.zeros_like(down, dtype=torch.bool)
    column = torch.arange(width, device=x.device).expand(len(images), width)
    column = torch.where(mirrored[:, None], width - 1 - column, column) + right[:, None]
    line = torch.arange(height, device=x.device) + down[:, None]
    each = torch.arange(len(images), device=x.device)
    return padded[each[:, None, None], line[:, :, None], column[:, None, :]].view(x.shape)


def _seen(x: Any) -> Any:
    """What a module sees of (teachers, rows, ...): float32, channels before height and width."""
    torch = require_torch()
    if x.ndim == 4:
        x = x[:, :, None]
    elif x.ndim == 5:
        x = x.permute(0, 1, 4, 2, 3)
    return x.float() / _BYTE if x.dtype == torch.uint8 else x


def _numbers(X: NDArray[Any]) -> NDArray[Any]:
    X = np.asarray(X)
    if X.dtype.kind not in "buif":
        raise InputError(f"Rows must be real numbers, got dtype {X.dtype}.")
    return X if X.dtype == np.uint8 else X.astype(np.float32)


def _kind(shares: Sequence[Share], recipe: ModuleRecipe) -> tuple[tuple[int, ...], bool]:
    """Shape of a row, and whether rows are uint8: the same in every share."""
    shape, dtype = np.asarray(shares[0][0]).shape[1:], np.asarray(shares[0][0]).dtype
    if not shape or any(X.shape[1:] != shape or X.dtype != dtype for X, _ in shares):
        raise InputError("All shares must have rows of one shape and dtype.")
    if (recipe.shift or recipe.flip) and len(shape) not in (2, 3):
        raise InputError(f"shift and flip need images (height, width[, channels]), got rows of shape {shape}.")
    return shape, dtype == np.uint8


def _records(shares: Sequence[Share], bytes_: bool, device: str) -> tuple[Any, Any, Any, Any]:
    """All rows one after the other, labels, where each teacher's begin, how many; an empty share has a blank one."""
    torch = require_torch()
    kind = np.uint8 if bytes_ else np.float32
    rows = [_numbers(X) if len(X) else np.zeros((1, *X.shape[1:]), kind) for X, _ in shares]
    labels = [np.asarray(y, dtype=np.int64) if len(y) else np.zeros(1, np.int64) for _, y in shares]
    sizes = np.array([len(y) for y in labels], dtype=np.int64)
    arrays = (np.concatenate(rows), np.concatenate(labels), np.cumsum(sizes) - sizes, sizes)
    return tuple(torch.from_numpy(array).to(device) for array in arrays)


def _tensors(module: Any) -> dict[str, Any]:
    return dict(module.named_parameters()) | dict(module.named_buffers())


@contextmanager
def _apart(device: str) -> Iterator[None]:
    """Gradients on, one thread on a CPU; torch's generators and threads are afterwards as they were."""
    torch = require_torch()
    threads = torch.get_num_threads()
    devices = range(torch.cuda.device_count()) if device != "cpu" else []
    with torch.random.fork_rng(devices=devices), torch.enable_grad():
        try:
            if device == "cpu":
                torch.set_num_threads(1)
            yield
        finally:
            torch.set_num_threads(threads)


def _seed(seed: int, device: str) -> None:
    torch = require_torch()
    torch.default_generator.manual_seed(seed)
    if device != "cpu":
        torch.cuda.manual_seed_all(seed)


def _name(factory: Factory) -> str:
    function = factory.func if isinstance(factory, functools.partial) else factory
    return f"{function.__module__}.{function.__qualname__}"


def _parameters(factory: Factory) -> dict[str, Any]:
    """Its public arguments beside (n_classes, row_shape), defaults included; refuses what has none, or no name."""
    function = factory.func if isinstance(factory, functools.partial) else factory
    given = getattr(function, "__qualname__", type(function).__name__)
    try:
        pickle.dumps(factory)
        parameters = inspect.signature(factory).parameters.values()
        inspect.signature(factory).bind(2, (1,))
        named = hasattr(function, "__qualname__") and not inspect.ismethod(function)
        named = named and not (isinstance(factory, functools.partial) and factory.args)
    except (pickle.PicklingError, AttributeError, TypeError, ValueError):
        named = False
    if not named:
        raise InputError(
            f"module must be a function of (n_classes, row_shape) at the top level of a module, got {given}."
        )
    values = {p.name: p.default for p in list(parameters)[2:] if p.default is not inspect.Parameter.empty}
    values |= factory.keywords if isinstance(factory, functools.partial) else {}
    return {name: _plain(name, value) for name, value in values.items()}


def _plain(name: str, value: Any) -> Any:
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple)):
        return [_plain(name, item) for item in value]
    if "<" not in getattr(value, "__qualname__", "<"):
        return f"{value.__module__}.{value.__qualname__}"
    raise InputError(
        f"The module's argument {name} must be a plain value or a named function, got {type(value).__name__}."
    )
