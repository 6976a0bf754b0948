"""Learn features from public rows, apply them to any rows, keep them, and choose the public rows worth asking about."""

from __future__ import annotations

import hashlib
import heapq
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from terrine import _validate
from terrine._files import write_atomically
from terrine._models import dump_arrays
from terrine._optional import require, require_torch
from terrine.datasets.data import PrivateData, PublicData, array_of
from terrine.errors import DataError, InputError, MissingDependencyError
from terrine.features import spectral
from terrine.features.encoder import as_images, encode, encoder_shapes, fit_encoder

SCHEMA = "terrine.features/1"

_ENCODER = "encoder."  # before the names of the net's own weights
_BLOCK = 16_384  # rows transformed at a time
_CHOSEN_FROM = 10_000  # public rows that representative ones are chosen from
_AT_ONCE = 64  # candidates looked at again together
_WORTH = 2.0  # rows that a representative one stands for, at least


@dataclass(frozen=True, kw_only=True)
class FeatureRecipe:
    """How features are learned from public rows; every field is public.

    Attributes:
        encoder: learn an encoder of uint8 images first; False for rows of plain features.
        width: channels of the encoder's first two convolutions; its features are four times as many.
        steps, batch, learning_rate, weight_decay: of contrastive learning, with AdamW.
        temperature: cosines are divided by it before they are contrasted.
        rotate, zoom, shear, shift: largest random distortions of a view: degrees, share, share, pixels.
        elastic: of a smooth random warp, as a share of half the image.
        stroke: chance of a thinner stroke, and of a thicker one.
        views: the encoder's features are averaged over this many fixed views (1: the image itself).
        whiten: rounds of making neighbors differ alike in every direction, of an encoder's features.
        whiten_rows: how many of the rows are used for that. With many more, a row's nearest ones are near-copies of
            it, which say little about how its class varies.
        standardise: plain features to mean 0 and deviation 1; False where they are on one scale already.
        neighbours: of a row in the graph.
        dimensions: of the spectral map; None leaves it out: features are the encoder's, whitened.
        damping: close to 1 lets chains of neighbors reach far.
        nearest: public rows whose places are averaged for a row.
    """

    encoder: bool = True
    width: int = 64
    steps: int = 2500
    batch: int = 2048
    learning_rate: float = 2e-3
    weight_decay: float = 1e-3
    temperature: float = 0.2
    rotate: float = 20.0
    zoom: float = 0.2
    shear: float = 0.3
    shift: float = 2.8
    elastic: float = 0.03
    stroke: float = 0.15
    views: int = 8
    whiten: int = 3
    whiten_rows: int = 12_000
    standardise: bool = True
    neighbours: int = 30
    dimensions: int | None = 40
    damping: float = 0.99
    nearest: int = 5

    def __post_init__(self) -> None:
        for name in ("encoder", "standardise"):
            if not isinstance(getattr(self, name), bool):
                raise InputError(f"{name} must be True or False, got {getattr(self, name)!r}.")
        for name in ("width", "steps", "views", "neighbours", "nearest"):
            _validate.integer(name, getattr(self, name), at_least=1)
        for name in ("batch", "whiten_rows"):
            _validate.integer(name, getattr(self, name), at_least=2)
        _validate.integer("whiten", self.whiten, at_least=0)
        if self.dimensions is not None:
            _validate.integer("dimensions", self.dimensions, at_least=1)
        for name in ("learning_rate", "temperature"):
            _validate.positive(name, getattr(self, name))
        for name in ("weight_decay", "rotate", "zoom", "shear", "shift", "elastic", "stroke"):
            if _validate.number(name, getattr(self, name)) < 0:
                raise InputError(f"{name} must be at least 0, got {getattr(self, name)}.")
        for name, below in (("zoom", 1.0), ("stroke", 0.5)):
            if getattr(self, name) >= below:
                raise InputError(f"{name} must be below {below:g}, got {getattr(self, name)}.")
        _validate.between("damping", self.damping, 0, 1)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Features:
    """A function from a row to its features, learned from public rows alone.

    Applied to a private row it is a public function of that one row: a teacher that sees features in place of rows is
    a function of its share and public things as before. `transform` treats all rows alike, public ones included: the
    mean place of the ``nearest`` public rows, of which a public row is itself one.

    Attributes:
        public: (n_public, n_features) float32, the features of the public rows it was learned from, in their order.
    """

    recipe: FeatureRecipe
    row_shape: tuple[int, ...]
    public: spectral.Rows
    _arrays: dict[str, NDArray[Any]]

    @property
    def n_features(self) -> int:
        return int(self.public.shape[1])

    def transform(
        self,
        X: PublicData | ArrayLike,
        *,
        device: str = "auto",
        progress: Callable[[float], object] | None = None,
    ) -> spectral.Rows:
        """(n_rows, n_features) float32, rows of length 1 but for plain rows without a map; block by block."""
        rows = array_of(X, who="Features")
        if rows.shape[1:] != self.row_shape:
            raise InputError(
                f"Rows must have shape {self.row_shape}, as the public rows that the features were "
                f"learned from, got {rows.shape[1:]}."
            )
        where = _device(device, needs_torch=self.recipe.encoder)
        result = np.empty((len(rows), self.n_features), dtype=np.float32)
        for start in range(0, len(rows), _BLOCK):
            block = _whitened(_seen(rows[start : start + _BLOCK], self._arrays, self.recipe, where), self._arrays)
            if self.recipe.dimensions is not None:
                known, places = self._arrays["known"], self._arrays["places"]
                near = spectral.nearest(block, known, k=min(self.recipe.nearest, len(known)), device=where)
                block = spectral.placed(places, near)
            result[start : start + _BLOCK] = block
            if progress is not None:
                progress(min(1.0, (start + _BLOCK) / len(rows)))
        return result

    def save(self, path: str | Path) -> None:
        """Keep them in one safetensors file, whole or not at all."""
        data = self.dumps()
        write_atomically(Path(path), lambda file: file.write(data))

    def dumps(self) -> bytes:
        """What `save` writes."""
        arrays = {"public": self.public, **self._arrays}
        tensors = {name: np.ascontiguousarray(array) for name, array in arrays.items()}  # safetensors takes no other
        metadata = {
            "schema": SCHEMA,
            "recipe": json.dumps(asdict(self.recipe)),
            "row_shape": json.dumps(self.row_shape),
            "sha256": _digest(tensors),
        }
        return dump_arrays(tensors, metadata)

    @classmethod
    def load(cls, path: str | Path) -> Features:
        """Features as they were saved: schema, shapes and hash are checked, and nothing in the file is executed."""
        path = Path(path)
        if not path.is_file():
            raise DataError(f"{path}: no such file. Give a file of features.")
        safetensors = require("safetensors", use="A file of features", extra="keep")
        try:
            with safetensors.safe_open(path, "np") as file:
                metadata = file.metadata() or {}
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
        except Exception:  # safetensors raises its own type for whatever is wrong
            raise DataError(f"{path}: the file is damaged, or not a safetensors file of features.") from None
        if metadata.get("schema") != SCHEMA:
            raise DataError(f"{path}: this is not a file of features of schema {SCHEMA}.")
        if metadata.get("sha256") != _digest(tensors):
            raise DataError(
                f"{path}: the arrays are not as they were saved (their sha256 differs). Learn the features again."
            )
        try:
            recipe = FeatureRecipe(**json.loads(metadata["recipe"]))
            row_shape = tuple(int(n) for n in json.loads(metadata["row_shape"]))
            _expect(tensors, recipe, row_shape)
        except (KeyError, TypeError, ValueError):
            raise DataError(
                f"{path}: the arrays do not fit the recipe of the features. Learn the features again."
            ) from None
        public = tensors.pop("public")
        return cls(recipe=recipe, row_shape=row_shape, public=public, _arrays=tensors)

    def __repr__(self) -> str:
        return f"<Features: rows of {self.row_shape} -> {self.n_features}, learned from {len(self.public)} public rows>"


def fit_features(
    public: PublicData | ArrayLike,
    *,
    recipe: FeatureRecipe,
    seed: int,
    device: str = "auto",
    progress: Callable[[float], object] | None = None,
) -> Features:
    """Features learned from public rows; never fit them on private ones.

    Applying the result to each private row is a public function of that row, so a teacher's isolation holds. Had it
    been learned from private rows, one person would reach every teacher, and the guarantee would be void.

    Args:
        public: images (n, height, width[, channels]) uint8, or rows (n, ...) of numbers where ``recipe.encoder`` is
            False. Labels are not needed.
        device: "cpu", "cuda", or "auto" for a GPU where there is one. The encoder wants a GPU; the map does not.
        progress: called with the share that is done.
    """
    if isinstance(public, PrivateData):
        raise InputError("Features are learned from public rows, and this is PrivateData. Give PublicData.")
    rows = array_of(public, who="fit_features")
    seed = _validate.integer("seed", seed, at_least=0)
    if recipe.encoder:
        as_images(rows[:1])
    at_least = max(3, 1 + (recipe.dimensions or 0))
    if len(rows) < at_least:
        raise InputError(f"These features need at least {at_least} public rows, got {len(rows)}.")
    where = _device(device, needs_torch=recipe.encoder)

    def tell(share: float) -> None:
        if progress is not None:
            progress(share)

    arrays: dict[str, NDArray[Any]]
    if recipe.encoder:
        told = None if progress is None else lambda share: tell(0.9 * share)
        weights = fit_encoder(rows, recipe=recipe, seed=seed, device=where, progress=told)
        arrays = {_ENCODER + name: array for name, array in weights.items()}
    else:
        flat = rows.reshape(len(rows), -1)
        spread = flat.std(axis=0, dtype=np.float64) if recipe.standardise else np.ones(flat.shape[1])
        arrays = {"middle": flat.mean(axis=0, dtype=np.float64), "spread": np.where(spread > 0, spread, 1.0)}
    tell(0.9)
    blocks = range(0, len(rows), _BLOCK)
    seen = np.concatenate([_seen(rows[start : start + _BLOCK], arrays, recipe, where) for start in blocks])
    if recipe.encoder:
        some = seen[np.linspace(0, len(seen) - 1, min(len(seen), recipe.whiten_rows)).astype(np.int64)]
        arrays["centre"], arrays["matrix"] = spectral.whitening(some, rounds=recipe.whiten, device=where)
    known = _whitened(seen, arrays)
    tell(0.95)
    if recipe.dimensions is None:
        return Features(recipe=recipe, row_shape=rows.shape[1:], public=known, _arrays=arrays)
    own = np.arange(len(known))
    k = min(max(recipe.neighbours, recipe.nearest - 1), len(known) - 1)
    near = spectral.nearest(known, known, k=k, device=where, own=own)
    graph = spectral.shared_neighbours(near[:, : recipe.neighbours])
    places = spectral.spectral_map(graph, dimensions=recipe.dimensions, damping=recipe.damping, seed=seed)
    public_features = spectral.placed(places, np.concatenate((own[:, None], near), axis=1)[:, : recipe.nearest])
    tell(1.0)
    arrays |= {"known": known, "places": places}
    return Features(recipe=recipe, row_shape=rows.shape[1:], public=public_features, _arrays=arrays)


def representative_rows(features: Features | ArrayLike, n: int, *, seed: int) -> NDArray[np.int64]:
    """Indices of n public rows that cover the public set, the most useful first: which to ask about when answers cost.

    Greedy facility location: each next row is the one that brings the other rows closest to a chosen one, closeness
    being the square of the cosine. Once a row would stand for hardly more than itself, the others are drawn at random:
    oddities teach little and are answered badly. A choice by public rows alone costs no privacy.

    Args:
        features: learned from the public rows, or theirs as an array (n_rows, n_features).
        seed: of the random rows, and of the 10,000 that are looked at where there are more.
    """
    rows = spectral.unit_rows(_features_of(features))
    n = _validate.integer("n", n, at_least=1)
    if n > len(rows):
        raise InputError(f"n must be at most {len(rows)}, the number of public rows, got {n}.")
    rng = np.random.default_rng(_validate.integer("seed", seed, at_least=0))
    order = rng.permutation(len(rows))
    kept = np.sort(order[:_CHOSEN_FROM])
    rows = rows[kept]

    def closeness(candidates: list[int] | slice) -> Any:
        return np.square(np.maximum(rows[candidates] @ rows.T, 0))

    # Gains only fall as more is covered: who is not first by an old gain need not be looked at again
    covered = np.zeros(len(rows), dtype=np.float32)
    gains = [closeness(slice(s, s + _AT_ONCE)).sum(axis=1) for s in range(0, len(rows), _AT_ONCE)]
    heap = [(-float(gain), j) for j, gain in enumerate(np.concatenate(gains))]
    heapq.heapify(heap)
    chosen: list[int] = []
    while len(chosen) < n and heap and -heap[0][0] >= _WORTH:
        tried = [heapq.heappop(heap)[1] for _ in range(min(_AT_ONCE, len(heap)))]
        close = closeness(tried)
        fresh = [(-float(gain), j) for j, gain in zip(tried, np.maximum(close - covered, 0).sum(axis=1), strict=True)]
        best = min(fresh)
        if -best[0] >= _WORTH and (not heap or best <= heap[0]):
            chosen.append(best[1])
            covered = np.maximum(covered, close[tried.index(best[1])])
            fresh.remove(best)
        for item in fresh:
            heapq.heappush(heap, item)
    picked = kept[chosen]
    return np.concatenate((picked, order[~np.isin(order, picked)]))[:n]


def _features_of(features: Features | ArrayLike) -> NDArray[np.float32]:
    if isinstance(features, Features):
        return features.public
    if isinstance(features, PrivateData):
        raise InputError("Rows to ask about are chosen among features of public rows only, got PrivateData.")
    rows = np.asarray(features, dtype=np.float32)
    if rows.ndim != 2 or not rows.size or not np.isfinite(rows).all():
        raise InputError(f"features must be (n_rows, n_features) finite numbers, got shape {rows.shape}.")
    return rows


def _seen(rows: NDArray[Any], arrays: dict[str, NDArray[Any]], recipe: FeatureRecipe, device: str) -> spectral.Rows:
    """Rows as the encoder sees them, or scaled by public constants."""
    rows = np.asarray(rows)
    if recipe.encoder:
        weights = {name.removeprefix(_ENCODER): a for name, a in arrays.items() if name.startswith(_ENCODER)}
        return encode(weights, rows, recipe=recipe, device=device)
    flat = rows.reshape(len(rows), -1).astype(np.float64)
    return np.asarray((flat - arrays["middle"]) / arrays["spread"], dtype=np.float32)


def _whitened(seen: spectral.Rows, arrays: dict[str, NDArray[Any]]) -> spectral.Rows:
    return spectral.whitened(seen, arrays["centre"], arrays["matrix"]) if "matrix" in arrays else seen


def _expect(tensors: dict[str, NDArray[Any]], recipe: FeatureRecipe, row_shape: tuple[int, ...]) -> None:
    """Raises a ValueError unless these are the arrays of such features, name by name."""
    n, wide = len(tensors["public"]), 4 * recipe.width if recipe.encoder else int(np.prod(row_shape))
    wanted: dict[str, tuple[int, ...]]
    if recipe.encoder:
        shapes = encoder_shapes(recipe, (*row_shape, 1)[2])
        wanted = {_ENCODER + name: shape for name, shape in shapes.items()}
        wanted |= {"centre": (wide,), "matrix": (wide, wide)}
    else:
        wanted = {"middle": (wide,), "spread": (wide,)}
    if recipe.dimensions is None:
        wanted |= {"public": (n, wide)}
    else:
        places = (n, recipe.dimensions)
        wanted |= {"public": places, "places": places, "known": (n, wide)}
    kinds = {name: "float64" if name in ("middle", "spread") else "float32" for name in wanted}
    found = {name: (array.shape, str(array.dtype)) for name, array in tensors.items()}
    if found != {name: (wanted[name], kinds[name]) for name in wanted}:
        raise ValueError
    if not all(np.isfinite(array).all() for array in tensors.values()):
        raise ValueError


def _digest(tensors: dict[str, NDArray[Any]]) -> str:
    digest = hashlib.sha256()
    for name in sorted(tensors):
        digest.update(f"{name} {tensors[name].dtype.str} {tensors[name].shape} ".encode())
        digest.update(np.ascontiguousarray(tensors[name]).tobytes())
    return digest.hexdigest()


def _device(device: str, *, needs_torch: bool) -> str:
    """What "auto" means here; without an encoder PyTorch may be missing."""
    if device != "auto":
        if device.split(":")[0] not in ("cpu", "cuda"):
            raise InputError(f"device must be one of auto, cpu, cuda, got {device!r}.")
        return device
    try:
        torch = require_torch()
    except MissingDependencyError:
        if needs_torch:
            raise
        return "cpu"
    return "cuda" if torch.cuda.is_available() else "cpu"
