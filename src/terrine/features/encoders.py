"""A user's own public encoder as features: checked on public rows, and applied so that each row is by itself.

An encoder's result for a row must not depend on the rows beside it: one private row would otherwise reach the teachers
of others. No trial can show that it never does, so that a row is given alone; where more are given at once, because the
user asks for it, that is tried on public rows, with odd ones among them. Equal rows are encoded once. What an encoder
says, and that it fails on a row, is not heard: that row counts as zeros.
"""

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
from terrine.datasets.rows import RowKind, Rows, Texts, as_rows, kind_of, matched, row_digests
from terrine.errors import DataError, InputError, StoreError
from terrine.features import loaders
from terrine.features.auto import AutoFeatures, AutoRecipe, fit_auto
from terrine.features.edges import Edges
from terrine.features.features import Features
from terrine.features.loaders import Loaded
from terrine.sensitive import unheard

SCHEMA = "terrine.features.encoder/1"
_TRIED = 256  # public rows that an encoder is tried on
_TRIED_FIXED = 32  # of an encoder that takes a fixed number of rows, of which each is then given that often
_ALONE = 8  # of them, one by one
_ROUNDING = 2e-3  # of a row's largest number: more is no rounding, even in half precision
_WIDEST = 20_000  # numbers for a row
_CARRIED, _EVENED, _PROBE = "encoder", "evened", "probe"
_ODD = (0.0, 1e30, -1e30, 1e-30, 1e4, np.inf, np.nan)
_ODD_TEXTS = ("", "a", "odd " * 5000, "x" * 20_000, "\x00\n\t", "東京" * 300)
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
            found = _encoded(self._encoder, rows, block=self.block, width=self.width)
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
            arrays[_PROBE] = _encoded(self._encoder, probe, block=self.block, width=self.width)
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
        found = _encoded(self._encoder, probe, block=self.block, width=self.width)
        if found.shape != known.shape or not _same(found, known):
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
    size, width = _tried(loaded, rows, block=block)
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


def _tried(encoder: Loaded, rows: Rows, *, block: int | None) -> tuple[int, int]:
    """How many rows to give at once, and how many numbers come back; refuses an encoder whose rows meet.

    Public rows are encoded in order, in another order and company, with odd rows beside them, a few alone, and in order
    again. Where no block was asked for and company matters in the last digits, each row is given alone from now on.
    """
    size, fixed = block or encoder.block, encoder.fixed
    most = _TRIED_FIXED if fixed and size == 1 else _TRIED
    some = _distinct(rows[np.linspace(0, len(rows) - 1, min(len(rows), 2 * most)).astype(np.int64)])[0]
    some = some[: max(2, min(most, len(some)))]
    first = _heard(encoder, some[: min(size, len(some))], block=size)
    width = first.shape[1]

    def encoded(which: NDArray[np.int64], size: int) -> NDArray[np.float32]:
        found = np.empty((len(which), width), dtype=np.float32)
        for start in range(0, len(which), size):
            part = which[start : start + size]
            found[start : start + size] = _heard(encoder, some[part], block=size, width=width)
        return found

    order = np.arange(len(some))
    once = encoded(order, size)
    if not _same(once, encoded(order, size)):
        raise InputError(
            f"{encoder.name} gives different numbers for the same rows when it is asked again: it is random, or it "
            "keeps something of the rows that it saw. Take out what is random, or fix its seed at every call."
        )
    if size > 1:
        mixed = np.random.default_rng(0).permutation(len(some))
        other = encoded(mixed, size)[np.argsort(mixed)]
        few = np.linspace(0, len(some) - 1, min(_ALONE, len(some))).astype(np.int64)
        try:
            alone = once[few] if fixed else encoded(few, 1)
        except InputError:  # it needs others beside it
            alone = np.full((len(few), width), np.inf, dtype=np.float32)
        meet = not (_same(once, other) and _same(once[few], alone))
        rounds = not meet and not (once == other).all()
        if not meet and not rounds:
            meet = not _same_beside_odd(encoder, some[: size - 1], once[: size - 1], block=size)
        if meet:
            raise InputError(
                f"{encoder.name} gives a row different numbers when other rows stand beside it: one private row would "
                "reach every teacher. Leave block out, so that it sees one row at a time; or give an encoder without "
                "statistics of a batch (a module in eval mode)."
            )
        if rounds and block is not None:
            raise InputError(
                f"{encoder.name} gives a row numbers that differ in the last digits at another place among {size} "
                "rows: one private row would reach every teacher. Leave block out, so that it sees one row at a time."
            )
        size = 1 if rounds else size
    if len(some) > 1 and (once == once[0]).all():
        raise InputError(
            f"{encoder.name} gives the same numbers for all public rows, each by itself: it tells none of them apart."
        )
    return size, width


def _same_beside_odd(encoder: Loaded, some: Rows, known: NDArray[np.float32], *, block: int) -> bool:
    """Whether public rows have the same numbers, bit for bit, with an odd row in front of them or behind."""
    for odd in _odd_like(some):
        for front in (True, False):
            together = _joined(odd, some) if front else _joined(some, odd)
            with unheard():
                found = _attempt(encoder, together, block=block, width=known.shape[1])
            if found is not None and (found[1:] if front else found[:-1]).tobytes() != known.tobytes():
                return False  # where it fails on such a block, each row is given alone
    return True


def _odd_like(rows: Rows) -> list[Rows]:
    """Single rows that nobody expects; of tables there are none."""
    if isinstance(rows, Texts):
        return [as_rows("odd", [text]) for text in _ODD_TEXTS]
    if not isinstance(rows, np.ndarray):
        return []
    if rows.dtype.kind != "f":
        return [np.full_like(rows[:1], value) for value in (0, 1, np.iinfo(rows.dtype).max)]
    whole = [np.full_like(rows[:1], value) for value in _ODD]
    with np.errstate(over="ignore"):
        return [*whole, rows[:1] * rows.dtype.type(1e4)]


def _joined(one: Rows, other: Rows) -> Rows:
    if isinstance(one, Texts) and isinstance(other, Texts):
        return as_rows("rows", [*one.native().tolist(), *other.native().tolist()])
    return np.concatenate([np.asarray(one), np.asarray(other)])


def _heard(encoder: Loaded, rows: Rows, *, block: int, width: int | None = None) -> NDArray[np.float32]:
    """Numbers of public rows; what is wrong with them is said."""
    try:
        found = encoder.apply(_filled(rows, shape := encoder.fixed or block))
    except InputError:
        raise
    except Exception as error:  # whatever it raises, about public rows
        said = " ".join(str(error).split())[:300]
        raise InputError(f"{encoder.name} fails on the public rows ({type(error).__name__}: {said}).") from error
    numbers = _numbers(found, shape)
    if numbers is None:
        got = getattr(found, "shape", None)
        raise InputError(
            f"{encoder.name} must give an array (rows, numbers), a row for each of {shape} given, got "
            f"{type(found).__name__ if got is None else f'shape {tuple(got)}'}."
        )
    if width is not None and numbers.shape[1] != width:
        raise InputError(f"{encoder.name} must give {width} numbers for every row, got {numbers.shape[1]}.")
    if numbers.shape[1] > _WIDEST:
        raise InputError(
            f"{encoder.name} gives {numbers.shape[1]:,} numbers for a row, and at most {_WIDEST:,} are taken. Follow "
            "it by one that reduces them, such as TruncatedSVD."
        )
    if not np.isfinite(numbers).all():
        raise InputError(f"{encoder.name} gives nan or inf for a public row.")
    return numbers[: len(rows)]


def _encoded(encoder: Loaded, rows: Rows, *, block: int, width: int) -> NDArray[np.float32]:
    """(n, width): equal rows are encoded once; a row that the encoder fails on counts as zeros."""
    some, place = _distinct(rows)
    found = np.zeros((len(some), width), dtype=np.float32)
    for start in range(0, len(some), block):
        part = some[start : start + block]
        numbers = _attempt(encoder, part, block=block, width=width)
        if numbers is None:  # one of them is odd: each is alone, in a block of its own
            each = [_attempt(encoder, part[k : k + 1], block=block, width=width) for k in range(len(part))]
            numbers = np.concatenate([np.zeros((1, width), np.float32) if one is None else one for one in each])
        found[start : start + len(part)] = numbers
    found[~np.isfinite(found).all(axis=1)] = 0
    return found[place]


def _attempt(encoder: Loaded, rows: Rows, *, block: int, width: int) -> NDArray[np.float32] | None:
    shape = encoder.fixed or block
    try:
        numbers = _numbers(encoder.apply(_filled(rows, shape)), shape)
    except KeyboardInterrupt:
        raise
    except BaseException:  # an odd row: what of, is not said; a panic of a library in Rust is no Exception
        return None
    return None if numbers is None or numbers.shape[1] != width else numbers[: len(rows)]


def _filled(rows: Rows, block: int) -> Rows:
    """Always ``block`` rows: the first of them again and again behind the last."""
    which = np.zeros(block, dtype=np.int64)
    which[: len(rows)] = np.arange(len(rows))
    filled = rows[which]
    return filled + 0 if isinstance(filled, np.ndarray) and filled.dtype.kind == "f" else filled  # one zero


def _numbers(found: Any, n: int) -> NDArray[np.float32] | None:
    """(n, width) float32; None if it is anything else."""
    if hasattr(found, "detach"):
        found = found.detach().cpu().float().numpy()
    if hasattr(found, "toarray"):
        found = found.toarray()
    numbers = np.asarray(found)
    if numbers.ndim < 2 or len(numbers) != n or numbers.dtype.kind not in "biuf" or not numbers.size:
        return None
    with np.errstate(all="ignore"):
        return numbers.reshape(n, -1).astype(np.float32)


def _distinct(rows: Rows) -> tuple[Rows, NDArray[np.int64]]:
    """Different rows, in the order of their first, and which of them each row is."""
    seen: dict[bytes, int] = {}
    first: list[int] = []
    place = np.empty(len(rows), dtype=np.int64)
    for k, digest in enumerate(row_digests(rows)):
        if digest not in seen:
            seen[digest] = len(first)
            first.append(k)
        place[k] = seen[digest]
    return (rows if len(first) == len(rows) else rows[np.array(first)]), place


def _same(one: NDArray[np.float32], other: NDArray[np.float32]) -> bool:
    """Whether numbers differ by rounding at most."""
    largest = np.abs(one).max(axis=1, keepdims=True)
    return bool((np.abs(one - other) <= _ROUNDING * largest + 1e-6).all())


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
