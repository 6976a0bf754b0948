"""What every student shares: the public rows, the answers to learn from, and a folder with a model card."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import ArrayLike, NDArray

from terrine._files import write_atomically
from terrine.datasets import PublicData
from terrine.datasets.rows import RowKind, as_rows, kind_of, matched
from terrine.errors import DataError, InputError, SecretError, StoreError, TerrineWarning
from terrine.mechanisms import ABSTAIN, Answers
from terrine.sensitive import Sensitive

SCHEMA = "terrine.student/1"
CARD, PAGE, SUMS = "model_card.json", "model_card.md", "SHA256SUMS"
SECURE, SEEDED, UNSTATED = "secure", "seeded: the guarantee does not hold", "not stated"


class MissingClassWarning(TerrineWarning):
    """A class has no answer to learn from: the student can hardly predict it."""


@dataclass(frozen=True, eq=False)
class Lessons:
    """What a student may learn from: all public rows, and the released labels of some of them."""

    rows: Any  # (n_rows, ...) array; or SparseRows, Texts, Table
    answered: NDArray[np.int64]  # (n_answered,) which rows
    labels: NDArray[np.int64]  # (n_answered,) class indices
    classes: tuple[str, ...]
    noise: str  # SECURE, SEEDED or UNSTATED: what drew the answers' noise

    @property
    def row_shape(self) -> tuple[int, ...]:
        return kind_of(self.rows).shape

    @property
    def of_images(self) -> bool:
        return isinstance(self.rows, np.ndarray) and self.rows.dtype == np.uint8 and self.rows.ndim in (3, 4)


def lessons(
    public: PublicData | ArrayLike, answers: Answers | ArrayLike, *, classes: Sequence[str], min_per_class: int
) -> Lessons:
    """Refuse what nothing can be learned from; warn of classes without an answer."""
    rows = public.X if isinstance(public, PublicData) else as_rows("X", public)
    names = tuple(str(name) for name in classes)
    if len(names) < 2 or len(set(names)) != len(names):
        raise InputError(f"Expected at least 2 classes of different names, got {len(names)} with {len(set(names))}.")
    labels = _labels(answers, n_rows=len(rows), n_classes=len(names))
    answered = np.flatnonzero(labels != ABSTAIN)
    if answered.size == 0:
        raise InputError(f"Expected at least one answered row, got {len(labels)} rows without an answer.")
    counts = np.bincount(labels[answered], minlength=len(names))
    if (counts > 0).sum() < 2:
        only = names[int(counts.argmax())]
        raise InputError(f"Expected answers of at least 2 classes, got {answered.size} of class {only!r} alone.")
    few = [names[k] for k in np.flatnonzero(counts < min_per_class)]
    if few:
        raise InputError(
            f"Expected at least {min_per_class} answers of every class, got fewer of {len(few)}: {listed(few)}."
        )
    missing = [names[k] for k in np.flatnonzero(counts == 0)]
    if missing:
        warnings.warn(
            f"No answer names {len(missing)} of the {len(names)} classes: {listed(missing)}. The student cannot learn "
            "them; ask about more rows, or choose public rows in which they are less rare.",
            MissingClassWarning,
            stacklevel=3,
        )
    noise = UNSTATED if not isinstance(answers, Answers) else SECURE if answers.secure else SEEDED
    return Lessons(rows, answered, labels[answered], names, noise)


def evened(labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """Indices that repeat the answers of rarer classes until every class has as many as the commonest."""
    most = int(np.bincount(labels).max())
    return np.concatenate([np.resize(np.flatnonzero(labels == k), most) for k in np.unique(labels)])


def listed(names: list[str]) -> str:
    return ", ".join(repr(name) for name in names[:5]) + (", ..." if len(names) > 5 else "")


def _labels(answers: Answers | ArrayLike, *, n_rows: int, n_classes: int) -> NDArray[np.int64]:
    raw = np.asarray(answers.labels if isinstance(answers, Answers) else answers)
    if raw.ndim != 1 or len(raw) > n_rows:
        raise InputError(f"Expected at most one answer for each of {n_rows} public rows, got shape {raw.shape}.")
    if raw.dtype.kind not in "iu":
        raise InputError(f"Expected answers as class indices, or {ABSTAIN} where withheld, got dtype {raw.dtype}.")
    bad = (raw < ABSTAIN) | (raw >= n_classes)
    if bad.any():
        row = int(np.argmax(bad))
        raise InputError(f"Expected answers from {ABSTAIN} to {n_classes - 1}, got {int(raw[row])} in row {row}.")
    return raw.astype(np.int64)


def checked_rows(
    X: Any, *, row_shape: tuple[int, ...], images: bool, kind: RowKind | None = None, nan_ok: bool = False
) -> Any:
    """Rows to predict on: of the kind and shape that the student was trained on, a table's columns by name."""
    rows = X.X if isinstance(X, PublicData) else as_rows("X", X, nan_ok=nan_ok)
    if kind is not None and kind.kind != "array":
        return matched(rows, kind, name="X", like="the student's rows")
    if not isinstance(rows, np.ndarray):
        raise DataError(f"Expected arrays of numbers in rows of shape {row_shape}, got {kind_of(rows)}.")
    if rows.shape[1:] != row_shape:
        raise DataError(f"Expected rows of shape {row_shape}, got {rows.shape[1:]}.")
    if images and rows.dtype != np.uint8:
        raise DataError(f"Expected images of dtype uint8, got {rows.dtype}.")
    return rows


@dataclass(frozen=True, kw_only=True, eq=False)
class About:
    """What is known of a fitted student, all of it public: the model card without its guarantee."""

    classes: tuple[str, ...]
    row_shape: tuple[int, ...]
    images: bool  # uint8
    seed: int
    settings: Mapping[str, Any]
    n_public: int
    n_answered: int
    n_learned: int  # answers that were not left out as probably wrong
    noise: str
    kind: RowKind | None = None  # where rows are no arrays

    @classmethod
    def of(cls, given: Lessons, *, seed: int, settings: Mapping[str, Any], n_learned: int | None = None) -> About:
        return cls(
            classes=given.classes,
            row_shape=given.row_shape,
            images=given.of_images,
            seed=seed,
            settings=_public(settings, "settings"),  # as they will be read back
            n_public=len(given.rows),
            n_answered=len(given.answered),
            n_learned=len(given.answered) if n_learned is None else n_learned,
            noise=given.noise,
            kind=None if isinstance(given.rows, np.ndarray) else kind_of(given.rows),
        )


def write_student(
    folder: str | Path,
    *,
    about: About,
    kind: str,
    file: str,
    model: bytes,
    card: Mapping[str, Any],
    more: Mapping[str, bytes] | None = None,
) -> None:
    """The model, further files of it, its card for programs and for people, and last the sha256 of each."""
    if not isinstance(card, Mapping):
        _public(card)  # a secret is refused as one
        raise InputError(f"Expected the card as a dict, got {type(card).__name__}.")
    facts = {
        "schema": SCHEMA,
        "terrine": _version(),
        "model": {"kind": kind, "file": file},
        "classes": list(about.classes),
        "rows": {"shape": list(about.row_shape), "images": about.images, **_kind_facts(about)},
        "training": {
            "settings": dict(about.settings),
            "seed": about.seed,
            "n_public": about.n_public,
            "n_answered": about.n_answered,
            "n_learned": about.n_learned,
            "noise": about.noise,
        },
        "guarantee": _public(card),
    }
    files = {
        **(more or {}),
        file: model,
        CARD: (json.dumps(facts, indent=2, allow_nan=False) + "\n").encode(),
        PAGE: _page(facts).encode(),
    }
    files[SUMS] = "".join(f"{hashlib.sha256(files[name]).hexdigest()}  {name}\n" for name in files).encode()
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, data in files.items():
            write_atomically(folder / name, partial(_write, data=data))
    except OSError as error:
        raise StoreError(f"Expected to write a student to {folder}, got: {error.strerror or error}.") from error


def _kind_facts(about: About) -> dict[str, Any]:
    return {} if about.kind is None else {"kind": about.kind.to_json()}


def _write(file: BinaryIO, data: bytes) -> None:
    file.write(data)


def read_student(folder: str | Path) -> tuple[dict[str, Any], About, bytes]:
    """The card, what it says of the student, and the model's bytes; each file is compared with its sha256."""
    folder = Path(folder)
    try:
        lines = (folder / SUMS).read_text().splitlines()
    except (OSError, UnicodeDecodeError):
        raise StoreError(f"Expected a student's folder, got no readable {SUMS} in {folder}.") from None
    files = {}
    for line in lines:
        digest, _, name = line.partition("  ")
        if Path(name).name != name:
            raise StoreError(f"Expected {SUMS} to name files beside it, got something else.")
        try:
            files[name] = (folder / name).read_bytes()
        except OSError:
            raise StoreError(f"Expected {name} in {folder}, got no such file.") from None
        if hashlib.sha256(files[name]).hexdigest() != digest:
            raise StoreError(f"Expected {name} as it was saved, got a file with another sha256: damaged, or changed.")
    try:
        card = json.loads(files[CARD])
        if card["schema"] != SCHEMA:
            raise StoreError(f"Expected a student of schema {SCHEMA}, got {card['schema']!r}.")
        training = card["training"]
        about = About(
            classes=tuple(card["classes"]),
            row_shape=tuple(card["rows"]["shape"]),
            images=card["rows"]["images"],
            seed=training["seed"],
            settings=training["settings"],
            n_public=training["n_public"],
            n_answered=training["n_answered"],
            n_learned=training["n_learned"],
            noise=training["noise"],
            kind=RowKind.from_json(card["rows"]["kind"]) if "kind" in card["rows"] else None,
        )
        return card, about, files[card["model"]["file"]]
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, StoreError):
            raise
        raise StoreError(f"Expected a model card of schema {SCHEMA}, got one that cannot be read.") from None


def _public(value: Any, where: str = "card") -> Any:
    """Plain JSON values; a secret among them, however deep, is refused."""
    match value:
        case Sensitive():
            raise SecretError(f"Expected {where} to be public, got a secret value (it depends on private votes).")
        case Mapping():
            return {str(name): _public(inner, f"{where}[{str(name)!r}]") for name, inner in value.items()}
        case list() | tuple():
            return [_public(inner, f"{where}[{k}]") for k, inner in enumerate(value)]
        case None | bool() | str() | int():
            return value
        case float() if np.isfinite(value):
            return value
    raise InputError(f"Expected {where} to be a finite number, a string, a list or a dict, got {type(value).__name__}.")


def _version() -> str:
    try:
        return version("terrine")
    except PackageNotFoundError:  # run from a checkout
        return "not installed"


def _page(facts: Mapping[str, Any]) -> str:
    """The card for people, in Markdown."""
    training, settings = facts["training"], facts["training"]["settings"]
    classes = facts["classes"]
    rows = [
        ("student", settings["student"]),
        ("classes", f"{len(classes)}: " + ", ".join(classes[:20]) + (", ..." if len(classes) > 20 else "")),
        ("rows", f"{tuple(facts['rows']['shape'])}, {_row_words(facts['rows'])}"),
        ("public rows", f"{training['n_public']:,}, of them {training['n_answered']:,} with a released label"),
        ("labels left out as probably wrong", training["n_answered"] - training["n_learned"]),
        ("noise of the labels", training["noise"]),
        ("seed", training["seed"]),
        ("terrine", facts["terrine"]),
    ]
    guarantee = [(name, value) for name, value in facts["guarantee"].items()]
    lines = ["# Model card", "", "## Privacy guarantee", ""]
    if training["noise"] == SEEDED:
        lines += [
            "**NOT PRIVATE: a seeded sampler drew the noise of the labels. The guarantee below does not hold.**",
            "",
        ]
    lines += _table(guarantee) if guarantee else ["None was given."]
    lines += [
        "",
        "The model was trained on public rows and on labels that a private mechanism released, and on nothing else: "
        "whatever is done with it costs no further privacy.",
        "",
        "## Model",
        "",
        *_table(rows),
        "",
        "## Settings",
        "",
        *_table([item for item in settings.items() if item[0] != "student"]),
        "",
    ]
    return "\n".join(lines)


def _row_words(rows: Mapping[str, Any]) -> str:
    if "kind" in rows:
        return str(RowKind.from_json(rows["kind"]))
    return "uint8 images" if rows["images"] else "features"


def _table(rows: Sequence[tuple[str, Any]]) -> list[str]:
    cells = [(name, str(value).replace("|", "\\|").replace("\n", " ")) for name, value in rows]
    return ["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in cells)]
