"""A user's own public encoder as features: checked on public rows, and applied so that each row is by itself."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from terrine import _validate
from terrine._files import write_atomically
from terrine._models import dump_arrays, load_described
from terrine.datasets.data import PrivateData, PublicData
from terrine.datasets.rows import RowKind, Rows, as_rows, kind_of, matched
from terrine.errors import DataError, InputError, StoreError
from terrine.features import loaders
from terrine.features.asked import encoded, same, tried
from terrine.features.auto import AutoFeatures, AutoRecipe, fit_auto
from terrine.features.edges import Edges
from terrine.features.features import Features
from terrine.features.loaders import Loaded
from terrine.sensitive import unheard

SCHEMA = "terrine.features.encoder/1"
_CARRIED, _EVENED, _PROBE = "encoder", "evened", "probe"
_TEXTS = ("", "a", "The quick brown fox jumps over the lazy dog.", "Ångström 42 — 東京")


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class EncoderFeatures:
    """A user's own encoder as features: a public function of one row.

    `as_features` makes and checks them. A row that the encoder fails on, or makes anything but finite numbers of,
    counts as zeros, without a word: of a private row nobody may learn that.

    Attributes:
        kind: of the encoder: callable, sklearn, torch module, torchscript, onnx or sentence-transformers.
        name: of the encoder, for a card.
        digest: sha256 of what decides its numbers: a file's bytes, a module's weights; of a function its name alone.
        carried: whether `save` keeps the encoder itself; else `load` must be given it again.
        block: how many different rows it is given at once.
        evened: components of the public embeddings, which the encoder's numbers then go through; None: they do not.
        scores: where several encoders were compared, each one's by public rows.
    """

    row_kind: RowKind
    of_bytes: bool
    kind: str
    name: str
    digest: str
    block: int
    width: int
    evened: AutoFeatures | None
    scores: dict[str, float]
    _encoder: Loaded

    @property
    def row_shape(self) -> tuple[int, ...]:
        return self.row_kind.shape

    @property
    def n_features(self) -> int:
        return self.width if self.evened is None else self.evened.n_features

    @property
    def carried(self) -> bool:
        return self._encoder.carried is not None

    def transform(self, X: PublicData | Any) -> NDArray[np.float32]:
        """(n_rows, n_features) float32, all finite; equal rows have equal features, bit for bit."""
        rows = self._rows(X)
        with unheard():
            found = encoded(self._encoder, rows, block=self.block, width=self.width)
            return found if self.evened is None else self.evened.transform(found)

    def _rows(self, X: PublicData | Any) -> Rows:
        rows = matched(_rows_of(X), self.row_kind, name="X", like="the public rows of the features")
        if self.of_bytes and isinstance(rows, np.ndarray) and rows.dtype != np.uint8:
            raise InputError(f"X must be of dtype uint8, as the public rows of the features, got {rows.dtype}.")
        return rows

    def save(self, path: str | Path) -> None:
        """Keep them in one safetensors file, whole or not at all; see ``carried`` for what is in it."""
        data = self.dumps()
        write_atomically(Path(path), lambda file: file.write(data))

    def dumps(self) -> bytes:
        """What `save` writes."""
        arrays: dict[str, NDArray[Any]] = {}
        if self._encoder.carried is not None:
            arrays[_CARRIED] = np.frombuffer(self._encoder.carried, dtype=np.uint8)
        elif (probe := _probe(self.row_kind, of_bytes=self.of_bytes)) is not None:
            arrays[_PROBE] = encoded(self._encoder, probe, block=self.block, width=self.width)
        if self.evened is not None:
            arrays[_EVENED] = np.frombuffer(self.evened.dumps(), dtype=np.uint8)
        facts = {name: getattr(self, name) for name in ("kind", "name", "digest", "block", "width", "of_bytes")}
        about = {**facts, "rows": self.row_kind.to_json(), "scores": self.scores}
        return dump_arrays(arrays, {"schema": SCHEMA, "about": json.dumps(about), "sha256": _digest(arrays)})

    @classmethod
    def load(cls, path: str | Path, *, encoder: Any = None, device: str = "auto") -> EncoderFeatures:
        """Features as they were saved; nothing in the file is executed.

        Args:
            encoder: what the file does not carry: the function, module, TorchScript file or folder of a model.
        """
        path = Path(path)
        if not path.is_file():
            raise DataError(f"{path}: no such file. Give a file of features.")
        return cls.loads(path.read_bytes(), what=str(path), encoder=encoder, device=device)

    @classmethod
    def loads(cls, data: bytes, *, what: str, encoder: Any = None, device: str = "auto") -> EncoderFeatures:
        """From what `dumps` returned; ``what`` it is is said where it is damaged."""
        try:
            arrays, metadata = load_described(data, what="features")
        except StoreError as error:
            raise DataError(f"{what}: {error}") from None
        if metadata.get("schema") != SCHEMA:
            raise DataError(f"{what}: this is not a file of features of schema {SCHEMA}.")
        if metadata.get("sha256") != _digest(arrays):
            raise DataError(f"{what}: the arrays are not as they were saved (their sha256 differs). Use a whole copy.")
        try:
            about = json.loads(metadata["about"])
            facts = {name: about[name] for name in ("kind", "name", "digest", "block", "width", "of_bytes", "scores")}
            row_kind = RowKind.from_json(about["rows"])
            evened = AutoFeatures.loads(arrays[_EVENED].tobytes(), what=what) if _EVENED in arrays else None
        except (KeyError, TypeError, ValueError):
            raise DataError(f"{what}: the arrays do not fit their description. Make the features again.") from None
        if _CARRIED in arrays:
            found = loaders.restored(facts["kind"], facts["name"], arrays[_CARRIED].tobytes())
        else:
            found = _given_again(encoder, facts, what=what, device=device)
        made = cls(**facts, row_kind=row_kind, evened=evened, _encoder=found)
        if _PROBE in arrays:
            made._check_probe(arrays[_PROBE])
        return made

    def _check_probe(self, known: NDArray[Any]) -> None:
        """Refuse an encoder that gives other numbers than the one that the file was made with."""
        probe = _probe(self.row_kind, of_bytes=self.of_bytes)
        assert probe is not None
        found = encoded(self._encoder, probe, block=self.block, width=self.width)
        if found.shape != known.shape or not same(found, known):
            raise DataError(
                f"The encoder {self.name} gives different numbers from those that these features were made with. Give "
                "the same version of it."
            )

    def __repr__(self) -> str:
        return f"<EncoderFeatures: {self.row_kind} -> {self.n_features}, by {self.kind} {self.name}>"


AnyFeatures = Features | Edges | AutoFeatures | EncoderFeatures
"""Features of any making: what teachers and students may see in place of rows."""


def as_features(
    given: Any,
    public: PublicData | ArrayLike | Any,
    *,
    seed: int = 0,
    device: str = "auto",
    components: int | None = None,
    block: int | None = None,
) -> AnyFeatures:
    """A user's own public encoder as features, checked on public rows; nothing private may have decided what it is.

    Args:
        given: features, as they are; or "auto", as `fit_auto` makes them; a function from rows to (n, p) numbers; a
            scikit-learn transformer (one that is not fitted is fitted on the public rows; one that is was fitted on
            public rows by your word alone); a PyTorch module; or the path of an .onnx file, a TorchScript file (.pt), a
            .skops file, a file of features (.safetensors), or the folder of a sentence-transformers model.
        public: rows that anyone may see; private ones are refused.
        seed: of what is fitted here.
        device: of a net: "cpu", "cuda", or "auto" for a GPU where there is one.
        components: at most this number of components of the public embeddings in place of the encoder's own numbers, as
            `fit_auto` makes them; linear teachers are better on these. None leaves the numbers as they are.
        block: how many rows the encoder is given at once. None is one, so that no row can change the features of
            another (for a net that takes a fixed number: one row, again and again; for the folder of a
            sentence-transformers model 256 texts, which do not meet). More are faster, and rest on your word that the
            encoder computes each row by itself, whatever rows are beside it: a trial on public rows and some odd ones
            may miss that it does not.

    Raises:
        InputError: the encoder's numbers for a row change when it is asked again, or, with a ``block``, with the rows
            beside it; or it cannot be used on the public rows.

    Examples:
        >>> import numpy as np
        >>> features = as_features(lambda rows: rows[:, :2] * 2, np.arange(12.0).reshape(3, 4))
        >>> features.transform([[1.0, 2.0, 3.0, 4.0]])
        array([[2., 4.]], dtype=float32)
    """
    if isinstance(public, PrivateData):
        raise InputError("An encoder is fitted and tried on public rows only: private rows would reach every teacher.")
    rows = _rows_of(public)
    if len(rows) < 2:
        raise InputError(f"An encoder needs at least 2 public rows to be tried on, got {len(rows)}.")
    if isinstance(given, AnyFeatures):
        return _fitting(given, rows)
    if isinstance(given, str) and given == "auto":
        return fit_auto(PublicData(rows), seed=seed, device=device)
    if isinstance(given, (str, Path)) and Path(given).suffix.lower() == ".safetensors":
        return _fitting(load_features(given, device=device), rows)
    loaded = _loaded(given, rows, seed=seed, device=device)
    if block is not None:
        block = _validate.integer("block", block, at_least=1)
        if block not in (1, loaded.fixed or block):
            raise InputError(f"{loaded.name} takes {loaded.fixed} rows at once and no other number: leave block out.")
    size, width = tried(loaded, rows, block=block)
    made = EncoderFeatures(
        row_kind=kind_of(rows),
        of_bytes=isinstance(rows, np.ndarray) and rows.dtype == np.uint8,
        kind=loaded.kind,
        name=loaded.name,
        digest=loaded.digest,
        block=size,
        width=width,
        evened=None,
        scores={},
        _encoder=loaded,
    )
    return made if components is None else evened(made, rows, components=components, seed=seed)


def evened(made: EncoderFeatures, rows: Rows, *, components: int, seed: int) -> EncoderFeatures:
    """The same encoder, its numbers followed by the components of those of the public rows."""
    recipe = AutoRecipe(components=components, encoder="no")
    return replace(made, evened=fit_auto(made.transform(rows), recipe=recipe, seed=seed))


def load_features(path: str | Path, *, encoder: Any = None, device: str = "auto") -> AnyFeatures:
    """A file of features, whichever kind wrote it; ``encoder`` as `EncoderFeatures.load` takes it."""
    path = Path(path)
    if not path.is_file():
        raise DataError(f"{path}: no such file. Give a file of features.")
    try:
        schema = load_described(path.read_bytes(), what="features")[1].get("schema", "")
    except StoreError:
        schema = ""
    match schema:
        case "terrine.features/1":
            return Features.load(path)
        case "terrine.features.auto/1":
            return AutoFeatures.load(path)
        case "terrine.features.encoder/1":
            return EncoderFeatures.load(path, encoder=encoder, device=device)
    raise DataError(
        f"{path.name} is not a file of features. Weights alone are no encoder: load them into their module yourself "
        "and give the module, or export it to ONNX."
    )


def _rows_of(X: Any) -> Rows:
    return X.X if isinstance(X, PublicData) else as_rows("X", X)


def _fitting(features: AnyFeatures, rows: Rows) -> AnyFeatures:
    """Features as they are, if they are of such rows."""
    if kind_of(rows).shape != features.row_shape:
        raise InputError(f"These features are of rows of shape {features.row_shape}, got {kind_of(rows)}.")
    return features


def _loaded(given: Any, rows: Rows, *, seed: int, device: str) -> Loaded:
    """Which kind of encoder it is."""
    if isinstance(given, (str, Path)):
        if isinstance(given, str) and ":" in given and not Path(given).exists():
            return loaders.of_callable(loaders.imported(given), name=given)
        return loaders.of_path(Path(given), rows, seed=seed, device=device)
    if isinstance(given, type):
        raise InputError(f"Give an encoder, not its class: {given.__name__}(...) in place of {given.__name__}.")
    ways = {one.__module__.partition(".")[0] for one in type(given).__mro__}
    if hasattr(given, "transform") and hasattr(given, "get_params"):
        return loaders.of_transformer(given, rows, seed=seed)
    if "sentence_transformers" in ways:
        return loaders.of_callable(given.encode, name=type(given).__name__)
    if "torch" in ways and hasattr(given, "state_dict"):
        return loaders.of_module(given, device=device)
    if callable(given):
        return loaders.of_callable(given)
    if isinstance(given, (np.ndarray, list, tuple, PublicData)):
        raise InputError(
            "Embeddings that you have already stand in the place of the rows: give them as the private, public and "
            'test rows, and no features, or "auto" for their components.'
        )
    raise InputError(
        "features must be features, a function, a scikit-learn transformer, a PyTorch module, or the path of a file or "
        f"folder, got {type(given).__name__}."
    )


def _given_again(encoder: Any, facts: dict[str, Any], *, what: str, device: str) -> Loaded:
    """The encoder that a file of features only names."""
    kind, name = facts["kind"], facts["name"]
    if encoder is None:
        needs = {
            loaders.CALLABLE: f"the function {name}",
            loaders.MODULE: f"the PyTorch module {name}",
            loaders.TORCHSCRIPT: f"the TorchScript file {name} (sha256 {facts['digest'][:16]}...)",
            loaders.SENTENCES: f"the folder of the sentence-transformers model {name} ({facts['digest'][:16]}...)",
        }.get(kind, f"the {kind} {name}")
        raise DataError(
            f"{what} does not carry its encoder: it needs {needs}. Give it as `encoder` (terrine predict: --encoder)."
        )
    nothing: Any = np.zeros((2, 1))
    own = isinstance(encoder, EncoderFeatures)
    found = encoder._encoder if own else _loaded(encoder, nothing, seed=0, device=device)
    if found.kind != kind or (kind != loaders.CALLABLE and found.digest != facts["digest"]):
        raise DataError(
            f"The encoder that was given is not the one that {what} was made with: that was the {kind} {name}, with "
            f"the digest {facts['digest'][:16]}..., and this is the {found.kind} {found.name}, {found.digest[:16]}..."
        )
    return found


def _probe(kind: RowKind, *, of_bytes: bool) -> Rows | None:
    """Made-up rows, the same everywhere, to know an encoder again by; None for rows that are tables."""
    if kind.kind == "text":
        return as_rows("probe", list(_TEXTS))
    if kind.kind != "array":
        return None
    rng = np.random.default_rng(0)
    if of_bytes:
        return rng.integers(0, 256, (4, *kind.shape)).astype(np.uint8)
    return rng.standard_normal((4, *kind.shape)).astype(np.float32)


def _digest(arrays: dict[str, NDArray[Any]]) -> str:
    digest = hashlib.sha256()
    for name in sorted(arrays):
        digest.update(f"{name} {arrays[name].dtype.str} {arrays[name].shape} ".encode() + arrays[name].tobytes())
    return digest.hexdigest()
