"""Features that need no choice: of images by scattering, pieces and an encoder, of plain rows by public quantiles.

All of it is fixed or learned from public rows alone. Which distortions the encoder may learn from, and whether it is
used at all, is decided by public rows too: without labels, or by those that the user has for them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from terrine import _validate
from terrine._files import write_atomically
from terrine._models import dump_arrays, load_described
from terrine._optional import require_torch
from terrine._ridge import solve
from terrine.datasets.data import PrivateData, PublicData, array_of
from terrine.errors import DataError, InputError, MissingDependencyError, StoreError
from terrine.features import contrast, patches, ramps, views
from terrine.features.components import ROWS, Rows, principal, projected, some_rows
from terrine.features.scattering import Scattering
from terrine.features.spectral import nearest, unit_rows

SCHEMA = "terrine.features.auto/1"
SCATTERING, PATCHES, ENCODER = "scattering", "patches", "encoder"  # of images
QUANTILES, COMPONENTS = "quantiles", "components"  # of plain rows: tables; embeddings and texts

_EVENED = 0.5
_LENGTHS = {PATCHES: 0.5}  # of a set's part of a row; of the others 1
_BLOCK = 256
_HELD = 1000  # public images that the encoder does not learn from, to judge it by
_JUDGED = 3000  # labeled public rows that a set of features is judged by, at most
_RIDGES = (0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)

Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True, kw_only=True)
class AutoRecipe:
    """How features are made; every field is public.

    Attributes:
        components: of each set of features of images, at most.
        in_all: components of all sets together, at most; each set has an equal part. None: as many as there are.
        patches: beside the scattering of images also small pieces, by a dictionary of public ones.
        encoder: learn an encoder beside the scattering of images: "yes", "no", or "auto", where there is a GPU.
        steps: of the encoder's learning.
    """

    components: int = 500
    in_all: int | None = None
    patches: bool = True
    encoder: Literal["auto", "yes", "no"] = "auto"
    steps: int = contrast.STEPS

    def __post_init__(self) -> None:
        _validate.integer("components", self.components, at_least=1)
        if self.in_all is not None:
            _validate.integer("in_all", self.in_all, at_least=1)
        if not isinstance(self.patches, bool):
            raise InputError(f"patches must be True or False, got {self.patches!r}.")
        _validate.choice("encoder", self.encoder, ("auto", "yes", "no"))
        _validate.integer("steps", self.steps, at_least=1)

    def each_of(self, n_sets: int) -> int:
        """Components of each of ``n_sets`` sets, at most."""
        return self.components if self.in_all is None else min(self.components, -(-self.in_all // n_sets))


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class AutoFeatures:
    """A function from a row to its features, fixed or learned from public rows alone.

    Applied to a private row it is a public function of that one row: a teacher that sees features in place of rows is
    a function of its share and public things as before.

    Attributes:
        parts: the sets of features that stand beside one another.
        strengths: of the distortions that the encoder learned from.
        scores: of each candidate set, by public rows: how it was chosen.
    """

    recipe: AutoRecipe
    row_shape: tuple[int, ...]
    parts: tuple[str, ...]
    strengths: dict[str, float]
    scores: dict[str, float]
    _arrays: Arrays

    @property
    def n_features(self) -> int:
        if self.parts == (QUANTILES,):
            return len(self._arrays[f"{QUANTILES}.scale"])
        return sum(self._arrays[f"{part}.matrix"].shape[1] for part in self.parts)

    def transform(self, X: PublicData | ArrayLike, *, device: str = "auto") -> Rows:
        """(n_rows, n_features) float32; each row's own, whatever rows are beside it."""
        rows = array_of(X, who="AutoFeatures")
        if rows.shape[1:] != self.row_shape:
            raise InputError(
                f"Rows must have shape {self.row_shape}, as the public rows that the features were learned from, got "
                f"{rows.shape[1:]}."
            )
        if not self.of_images:
            return self._of_plain(rows.reshape(len(rows), int(np.prod(self.row_shape))))
        if rows.dtype != np.uint8:
            raise InputError(f"Images must be of dtype uint8, got {rows.dtype}.")
        return _joined(as_images(rows), self.parts, self._arrays, device=device_of(device))

    def arrays(self, part: str) -> Arrays:
        """What one of its parts computes with, by name."""
        return _inside(self._arrays, part)

    @property
    def of_images(self) -> bool:
        return SCATTERING in self.parts

    def _of_plain(self, rows: NDArray[Any]) -> Rows:
        arrays = self._arrays
        if self.parts == (COMPONENTS,):
            mean, matrix = arrays[f"{COMPONENTS}.mean"], arrays[f"{COMPONENTS}.matrix"]
            return unit_rows(projected(rows.astype(np.float32), mean, matrix, lambda some: some))
        found = np.empty((len(rows), self.n_features), dtype=np.float32)
        for start in range(0, len(rows), _BLOCK):
            found[start : start + _BLOCK] = ramps.apply(rows[start : start + _BLOCK], _inside(arrays, QUANTILES))
        return found

    def save(self, path: str | Path) -> None:
        """Keep them in one safetensors file, whole or not at all."""
        data = self.dumps()
        write_atomically(Path(path), lambda file: file.write(data))

    def dumps(self) -> bytes:
        """What `save` writes."""
        tensors = {name: np.ascontiguousarray(array) for name, array in self._arrays.items()}
        facts = {"parts": self.parts, "strengths": self.strengths, "scores": self.scores}
        metadata = {
            "schema": SCHEMA,
            "recipe": json.dumps(asdict(self.recipe)),
            "row_shape": json.dumps(self.row_shape),
            "facts": json.dumps(facts),
            "sha256": _digest(tensors),
        }
        return dump_arrays(tensors, metadata)

    @classmethod
    def load(cls, path: str | Path) -> AutoFeatures:
        """Features as they were saved: schema and hash are checked, and nothing in the file is executed."""
        path = Path(path)
        if not path.is_file():
            raise DataError(f"{path}: no such file. Give a file of features.")
        return cls.loads(path.read_bytes(), what=str(path))

    @classmethod
    def loads(cls, data: bytes, *, what: str) -> AutoFeatures:
        """From what `dumps` returned; ``what`` it is is said where it is damaged."""
        try:
            tensors, metadata = load_described(data, what="features")
        except StoreError:
            raise DataError(f"{what}: the file is damaged, or not a safetensors file of features.") from None
        if metadata.get("schema") != SCHEMA:
            raise DataError(f"{what}: this is not a file of features of schema {SCHEMA}.")
        if metadata.get("sha256") != _digest(tensors):
            raise DataError(
                f"{what}: the arrays are not as they were saved (their sha256 differs). Make the features again."
            )
        try:
            facts = json.loads(metadata["facts"])
            found = cls(
                recipe=AutoRecipe(**{"patches": False, **json.loads(metadata["recipe"])}),  # older ones had none
                row_shape=tuple(int(n) for n in json.loads(metadata["row_shape"])),
                parts=tuple(facts["parts"]),
                strengths=dict(facts["strengths"]),
                scores=dict(facts["scores"]),
                _arrays=tensors,
            )
            _check(found)
        except (KeyError, TypeError, ValueError, InputError):
            raise DataError(f"{what}: the arrays do not fit their description. Make the features again.") from None
        return found

    def __repr__(self) -> str:
        return f"<AutoFeatures: rows of {self.row_shape} -> {self.n_features}, {' + '.join(self.parts)}>"


def fit_auto(
    public: PublicData | ArrayLike,
    *,
    recipe: AutoRecipe | None = None,
    seed: int,
    labels: ArrayLike | None = None,
    device: str = "auto",
    progress: Callable[[float], object] | None = None,
) -> AutoFeatures:
    """Features from public rows; never fit them on private ones.

    Images (uint8, with two or three axes) have features by scattering and by small pieces and, where it is worth it,
    those of an encoder; other rows are standardized, and numbers bent at quantiles.

    Args:
        public: rows that anyone may see.
        seed: of all randomness.
        labels: class indices of the public rows, -1 where unknown, if the user has some: the sets of features are then
            compared by how often a linear model on them is right about a row left out; else by how often a distorted
            image is nearest to itself.
        device: of the encoder: "cpu", "cuda", or "auto" for a GPU where there is one.
    """
    recipe = recipe or AutoRecipe()
    if isinstance(public, PrivateData):
        raise InputError("Features are made from public rows only: private rows would reach every teacher.")
    rows = array_of(public, who="fit_auto")
    if len(rows) < 2:
        raise InputError(f"Features need at least 2 public rows, got {len(rows)}.")
    shape: dict[str, Any] = {"recipe": recipe, "row_shape": rows.shape[1:]}
    if rows.dtype != np.uint8 or rows.ndim not in (3, 4) or min(rows.shape[1:3]) < 4:
        part, made = _of_rows(rows.reshape(len(rows), -1), recipe.each_of(1), seed=seed)
        named = {f"{part}.{name}": array for name, array in made.items()}
        return AutoFeatures(**shape, parts=(part,), strengths={}, scores={}, _arrays=named)
    images, where = as_images(rows), device_of(device)
    known = None if labels is None else np.asarray(labels)
    encoded = recipe.encoder == "yes" or (recipe.encoder == "auto" and where != "cpu")
    encoded = encoded and len(images) >= 4
    n = recipe.each_of(1 + recipe.patches + encoded)
    arrays = _of_scattering(images, n, seed=seed, device=where)
    base: tuple[str, ...] = (SCATTERING,)
    if recipe.patches:
        arrays |= _of_patches(images, n, seed=seed, device=where)
        base += (PATCHES,)
    sets = [base] if known is None else [base[:k] for k in range(1, len(base) + 1)]
    strengths: dict[str, float] = {}
    held = np.random.default_rng([seed, 2]).permutation(len(images))[: min(_HELD, len(images) // 4)]
    if encoded:

        def see(some: NDArray[np.uint8]) -> Rows:
            return _part(SCATTERING, some, arrays, device=where)

        strengths = views.strengths(images, see, seed=seed)
        taught = np.delete(images, held, axis=0)
        weights = contrast.learn(taught, strengths, steps=recipe.steps, seed=seed, device=where, progress=progress)
        arrays |= {f"{ENCODER}.net.{name}": array for name, array in weights.items()}
        arrays |= _components_of(ENCODER, images, arrays, n, seed=seed, device=where)
        sets += [(*parts, ENCODER) for parts in sets]
    scores = {}
    if len(sets) > 1:
        scores = {
            " + ".join(parts): _found_again(images[held], parts, arrays, strengths, seed=seed, device=where)
            if known is None
            else _left_out(images, known, parts, arrays, seed=seed, device=where)
            for parts in sets
        }
    parts = max(sets, key=lambda parts: scores.get(" + ".join(parts), 0.0))
    kept = {name: array for name, array in arrays.items() if name.split(".")[0] in parts}
    return AutoFeatures(**shape, parts=parts, strengths=strengths, scores=scores, _arrays=kept)


def as_images(rows: NDArray[Any]) -> NDArray[np.uint8]:
    """(n, height, width, channels)."""
    return np.ascontiguousarray(rows if rows.ndim == 4 else rows[..., None])


def _of_rows(rows: NDArray[Any], n: int, *, seed: int) -> tuple[str, Arrays]:
    """Many columns of numbers and no categories are an embedding; else each column has a meaning of its own."""
    some = rows[some_rows(len(rows), 10 * ROWS)]
    if ramps.is_embedding(some):
        mean, matrix = principal(some[some_rows(len(some))].astype(np.float32), n, evened=_EVENED, seed=seed)
        return COMPONENTS, {"mean": mean, "matrix": matrix}
    return QUANTILES, ramps.fit(some)


def _of_scattering(images: NDArray[np.uint8], n: int, *, seed: int, device: str) -> Arrays:
    """Means and deviations of each map over public images and places, then components."""
    some = images[some_rows(len(images))]
    maps = Scattering(row_shape=some.shape[1:]).transform(some, device=device)
    flat = maps.reshape(len(maps), maps.shape[1], -1)
    middle = flat.mean(axis=(0, 2), dtype=np.float64).astype(np.float32)
    spread = flat.std(axis=(0, 2), dtype=np.float64).astype(np.float32) + np.float32(1e-6)
    flat -= middle[:, None]
    flat /= spread[:, None]
    mean, matrix = principal(flat.reshape(len(flat), -1), n, evened=_EVENED, seed=seed)
    return {f"{SCATTERING}.{name}": a for name, a in _named(middle, spread, mean, matrix)}


def _of_patches(images: NDArray[np.uint8], n: int, *, seed: int, device: str) -> Arrays:
    """A dictionary of public pieces, then components as of the scattering."""
    made = patches.learn(images, seed=seed)
    maps = patches.seen(made, images[some_rows(len(images))], device=device)
    middle, spread = maps.mean(axis=(0, 2)), maps.std(axis=(0, 2)) + np.float32(1e-6)
    maps -= middle[:, None]
    maps /= spread[:, None]
    mean, matrix = principal(maps.reshape(len(maps), -1), n, evened=_EVENED, seed=seed)
    learned = [*_named(middle, spread, mean, matrix), *((f"dictionary.{name}", array) for name, array in made.items())]
    return {f"{PATCHES}.{name}": array for name, array in learned}


def _components_of(part: str, images: NDArray[np.uint8], arrays: Arrays, n: int, *, seed: int, device: str) -> Arrays:
    some = images[some_rows(len(images))]
    seen = contrast.encoded(_inside(arrays, f"{part}.net"), some, device=device)
    middle, spread = seen.mean(axis=0), seen.std(axis=0) + np.float32(1e-6)
    mean, matrix = principal((seen - middle) / spread, n, evened=_EVENED, seed=seed)
    return {f"{part}.{name}": a for name, a in _named(middle, spread, mean, matrix)}


def _named(middle: Rows, spread: Rows, mean: Rows, matrix: Rows) -> list[tuple[str, Rows]]:
    return [("middle", middle), ("spread", spread), ("mean", mean), ("matrix", matrix)]


def _part(part: str, images: NDArray[np.uint8], arrays: Arrays, *, device: str) -> Rows:
    """(n, components) rows of length 1, of one set of features."""
    middle, spread, mean, matrix = (arrays[f"{part}.{name}"] for name in ("middle", "spread", "mean", "matrix"))
    at_once = _BLOCK if device == "cpu" else 4 * _BLOCK
    if part == SCATTERING:
        scattering = Scattering(row_shape=images.shape[1:])

        def see(block: NDArray[np.uint8]) -> NDArray[Any]:
            maps = scattering.transform(block, device=device)
            flat = maps.reshape(len(maps), maps.shape[1], -1)
            return ((flat - middle[:, None]) / spread[:, None]).reshape(len(maps), -1)

        return unit_rows(projected(images, mean, matrix, see, block=at_once))
    if part == PATCHES:
        words = _inside(arrays, f"{part}.dictionary")

        def compare(block: NDArray[np.uint8]) -> NDArray[Any]:
            maps = patches.seen(words, block, device=device)
            return ((maps - middle[:, None]) / spread[:, None]).reshape(len(maps), -1)

        return unit_rows(projected(images, mean, matrix, compare, block=at_once))
    seen = contrast.encoded(_inside(arrays, f"{part}.net"), images, device=device)
    return unit_rows(projected(seen, mean, matrix, lambda block: (block - middle) / spread))


def _joined(images: NDArray[np.uint8], parts: tuple[str, ...], arrays: Arrays, *, device: str) -> Rows:
    """Rows of length 1, of all sets."""
    lengths = [np.float32(_LENGTHS.get(part, 1.0)) for part in parts]
    seen: list[Rows] = [_part(part, images, arrays, device=device) * n for part, n in zip(parts, lengths, strict=True)]
    return np.concatenate(seen, axis=1) / np.float32(np.sqrt(sum(n**2 for n in lengths)))


def _found_again(
    images: NDArray[np.uint8],
    parts: tuple[str, ...],
    arrays: Arrays,
    strengths: dict[str, float],
    *,
    seed: int,
    device: str,
) -> float:
    """How often a distorted public image, which the encoder never saw, is nearest to itself as it was."""
    pixels = distorted_images(images, strengths, seed=seed)
    before, after = (_joined(some, parts, arrays, device=device) for some in (images, pixels))
    return float((nearest(after, before, k=1, device="cpu")[:, 0] == np.arange(len(images))).mean())


def _left_out(
    images: NDArray[np.uint8],
    labels: NDArray[Any],
    parts: tuple[str, ...],
    arrays: Arrays,
    *,
    seed: int,
    device: str,
) -> float:
    """How often a linear model is right about a labeled public row left out."""
    known = judged(labels, n_rows=len(images), seed=seed)
    X = _joined(images[known], parts, arrays, device=device).astype(np.float64)
    return left_out(X, labels[known])


def distorted_images(images: NDArray[np.uint8], strengths: dict[str, float], *, seed: int) -> NDArray[np.uint8]:
    """(n, height, width, channels) images, each with distortions up to these strengths."""
    torch = require_torch()
    x = torch.from_numpy(np.ascontiguousarray(images)).permute(0, 3, 1, 2).float() / 255
    y = views.distorted(x, strengths, torch.Generator().manual_seed(seed))
    pixels: NDArray[np.uint8] = (y * 255).round().clamp(0, 255).to(torch.uint8).permute(0, 2, 3, 1).numpy()
    return np.ascontiguousarray(pixels)


def judged(labels: NDArray[Any], *, n_rows: int, seed: int) -> NDArray[np.int64]:
    """Which of the labeled public rows features are judged by."""
    if labels.shape != (n_rows,) or labels.dtype.kind not in "iu":
        raise InputError("labels must be a class index for each public row, or -1.")
    known = np.random.default_rng([seed, 3]).permutation(np.flatnonzero(labels >= 0))[:_JUDGED]
    if len(np.unique(labels[known])) < 2:
        raise InputError("labels must name at least two classes among the public rows.")
    return known


def left_out(X: NDArray[np.float64], labels: NDArray[Any]) -> float:
    """How often a linear model is right about a row that it did not learn from."""
    Y = np.eye(int(labels.max()) + 1)[labels]
    return float(solve(X[None], Y[None], ridges=_RIDGES, spare=0.0).accuracy[0])


def _inside(arrays: Arrays, prefix: str) -> Arrays:
    return {name.removeprefix(f"{prefix}."): a for name, a in arrays.items() if name.startswith(f"{prefix}.")}


def _check(features: AutoFeatures) -> None:
    """Raises a ValueError unless the arrays are those of such features, and they give numbers."""
    images = [(SCATTERING, *some) for some in ((), (PATCHES,), (ENCODER,), (PATCHES, ENCODER))]
    if features.parts not in (*images, (QUANTILES,), (COMPONENTS,)):
        raise ValueError
    dtype = np.uint8 if features.of_images else np.float32
    if not np.isfinite(features.transform(np.zeros((1, *features.row_shape), dtype=dtype), device="cpu")).all():
        raise ValueError


def _digest(tensors: Arrays) -> str:
    digest = hashlib.sha256()
    for name in sorted(tensors):
        digest.update(f"{name} {tensors[name].dtype.str} {tensors[name].shape} ".encode())
        digest.update(np.ascontiguousarray(tensors[name]).tobytes())
    return digest.hexdigest()


def device_of(device: str) -> str:
    """What "auto" means here; without PyTorch, a CPU."""
    if device != "auto":
        if device.split(":")[0] not in ("cpu", "cuda"):
            raise InputError(f"device must be one of auto, cpu, cuda, got {device!r}.")
        return device
    try:
        torch = require_torch()
    except MissingDependencyError:
        return "cpu"
    return "cuda" if torch.cuda.is_available() else "cpu"
