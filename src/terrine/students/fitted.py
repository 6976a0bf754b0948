"""A student that has learned, whatever its kind: it predicts, is kept in a folder, and comes back from it.

The folder holds the model, `model_card.json` (what `load_student` needs), `card.json` and `model_card.md` (what its
receiver needs, for programs and for people), further files that whoever saves it adds, and the sha256 of each.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import shutil
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import ArrayLike, NDArray

from terrine._files import replace_folder, write_atomically
from terrine.datasets import PublicData
from terrine.datasets.rows import TEXT, RowKind, Texts
from terrine.errors import InputError, StoreError
from terrine.schema import Encoder, PlainTexts, RowReader, Schema, read_table
from terrine.schema.checking import ACCEPT, heed_unread
from terrine.schema.encoder import SCHEMA_FILE, WEIGHTS_FILE
from terrine.schema.utf8 import refuse_not_utf8
from terrine.students.card import SCHEMA as CARD_SCHEMA
from terrine.students.card import Card, page
from terrine.students.lessons import About, checked_rows, public
from terrine.students.verdict import Verdict

SCHEMA = "terrine.student/1"
MANIFEST, CARD, PAGE, SUMS = "model_card.json", "card.json", "model_card.md", "SHA256SUMS"
_OWN = {MANIFEST, CARD, PAGE, SUMS}


@dataclass(frozen=True, kw_only=True, eq=False)
class Fitted(ABC):
    """A student that has learned.

    Attributes:
        about: what it was trained on and how, all public.
        card: of a student that was loaded: what its receiver may rely on.
        extra: of a student that was loaded: further files of its folder, by name.
    """

    about: About
    card: Card | None = None
    extra: Mapping[str, bytes] = field(default_factory=dict)

    @cached_property
    def encoder(self) -> RowReader | None:
        """What makes numbers, or texts, of a table's rows, by the schema; None where the student takes rows as such."""
        if WEIGHTS_FILE in self.extra:
            return Encoder.from_files(self.extra)
        return PlainTexts.from_files(self.extra) if self._reads_texts(self.extra) else None

    def _reads_texts(self, files: Mapping[str, bytes]) -> bool:
        return SCHEMA_FILE in files and self.about.kind is not None and self.about.kind.kind == TEXT

    @property
    def classes(self) -> tuple[str, ...]:
        return self.about.classes

    @abstractmethod
    def predict(self, X: ArrayLike, *, accept_unreadable: bool = False) -> NDArray[np.int64]:
        """(n_rows,) class indices.

        Args:
            X: rows as the student learned them; or, where it has a schema, a table, whose cells that cannot be used are
                warned of (`UnreadWarning`), as `terrine predict` does.
            accept_unreadable: go on where hardly a cell of a column can be used.
        """

    @abstractmethod
    def predict_proba(self, X: ArrayLike, *, accept_unreadable: bool = False) -> NDArray[np.float64]:
        """(n_rows, n_classes), in the order of ``classes``; 0 for a class that was never answered."""

    @abstractmethod
    def dumps(self) -> tuple[str, dict[str, bytes]]:
        """Its kind, and the model's files, the main one first."""

    @abstractmethod
    def to_onnx(self) -> Any:
        """An ONNX model: from rows as `predict_proba` takes them to class indices and probabilities."""

    def save(self, folder: str | Path, *, card: Mapping[str, Any], extra: Mapping[str, bytes] | None = None) -> None:
        """Write the student's folder. Where a student is there already it is replaced in one step.

        Args:
            card: the guarantee, as a dict of public values; names as in a run's guarantee.json fill `card.json`.
            extra: further files by name, hashed with the others (default: those that the student was loaded with).
        """
        if not isinstance(card, Mapping):
            public(card)  # a secret is refused as one
            raise InputError(f"card must be a dict, got {type(card).__name__}.")
        kind, model = self.dumps()
        more = dict(self.extra if extra is None else extra)
        for name in more:
            if not name or Path(name).name != name or name in _OWN or name in model:
                raise InputError(f"{name!r} cannot be the name of a further file: it is taken, or not a plain name.")
        files = {**more, **model, **self._cards(card, kind=kind, main=next(iter(model)), extra=more)}
        _write_folder(Path(folder).resolve(), files)

    def restate(self, folder: str | Path, *, card: Mapping[str, Any]) -> None:
        """Let the cards of the folder that this student was loaded from say this; the model stays as it is.

        Where they say it already nothing is written. A ledger goes on with keys and others' answers: that its newest
        entry is another one now says nothing of the student.
        """
        if (old := self.card) is not None:
            new = self._card(card)
            if old.ledger is not None and new.ledger is not None and old.ledger.id == new.ledger.id:
                new = replace(new, ledger=old.ledger)
            if old == _as_worded_in(old, new):
                return
        kept = _verified(Path(folder))
        model = json.loads(kept[MANIFEST])["model"]
        cards = self._cards(card, kind=model["kind"], main=model["file"], extra=self.extra)
        _write_folder(Path(folder).resolve(), {**kept, **cards})

    def _cards(self, card: Mapping[str, Any], *, kind: str, main: str, extra: Mapping[str, bytes]) -> dict[str, bytes]:
        """The files that describe the model."""
        shown = self._card(card)
        facts = {
            "schema": SCHEMA,
            "terrine": shown.terrine,
            "model": {"kind": kind, "file": main},
            "classes": list(self.classes),
            "rows": {"shape": list(self.about.row_shape), "images": self.about.images, **_kind_facts(self.about)},
            "training": {
                "settings": dict(self.about.settings),
                "seed": self.about.seed,
                "n_public": self.about.n_public,
                "n_answered": self.about.n_answered,
                "n_learned": self.about.n_learned,
                "noise": self.about.noise,
                **({} if self.about.verdict is None else {"verdict": asdict(self.about.verdict)}),
            },
            "guarantee": public(card),
        }
        twin = {"schema": CARD_SCHEMA, **shown.to_json()}
        columns = _columns(extra[SCHEMA_FILE]) if WEIGHTS_FILE in extra or self._reads_texts(extra) else []
        readable = page(shown, self.about, columns=columns).encode()
        return {MANIFEST: _json(facts), CARD: _json(twin), PAGE: readable}

    def _card(self, card: Mapping[str, Any]) -> Card:
        date = self.card.date if self.card else datetime.datetime.now(datetime.UTC).date().isoformat()
        return Card.of(self.about, card, terrine=_version(), date=date)

    def export_onnx(self, path: str | Path) -> None:
        """Write the model as one ONNX file that other programs run without terrine: from rows to probabilities.

        The file's metadata has the class names, and the card where the student was loaded with one.
        """
        from terrine.students.onnx import write_onnx

        write_onnx(self, Path(path))

    def _rows(self, X: Any, *, nan_ok: bool = False, accept: bool = False) -> Any:
        """Rows as the student takes them: a table's by its encoder, where it has one."""
        about, encoder = self.about, self.encoder
        texts = isinstance(encoder, PlainTexts) and (isinstance(X, Texts) or _are_texts(X))
        if encoder is not None and not texts and not isinstance(X, (np.ndarray, PublicData)):
            X = _read(encoder, X, accept=accept)
        return checked_rows(X, row_shape=about.row_shape, images=about.images, kind=about.kind, nan_ok=nan_ok)


@dataclass(frozen=True, kw_only=True, eq=False)
class Folder:
    """A student's folder as it was read, every file compared with its sha256."""

    kind: str
    about: About
    card: Card
    model: bytes
    files: Mapping[str, bytes]  # all but the model, the cards and the sums: parts of the model, and further ones


def read_folder(folder: str | Path) -> Folder:
    folder = Path(folder)
    files = _verified(folder)
    try:
        facts = json.loads(files[MANIFEST])
        if facts["schema"] != SCHEMA:
            raise StoreError(
                f"{folder} has the schema {facts['schema']!r}, and this terrine reads {SCHEMA}. Use a newer terrine."
            )
        training = facts["training"]
        about = About(
            classes=tuple(facts["classes"]),
            row_shape=tuple(facts["rows"]["shape"]),
            images=facts["rows"]["images"],
            seed=training["seed"],
            settings=training["settings"],
            n_public=training["n_public"],
            n_answered=training["n_answered"],
            n_learned=training["n_learned"],
            noise=training["noise"],
            kind=RowKind.from_json(facts["rows"]["kind"]) if "kind" in facts["rows"] else None,
            verdict=Verdict.from_json(training["verdict"]) if "verdict" in training else None,
        )
        if CARD in files:
            card = Card.from_json(json.loads(files[CARD]))
        else:  # saved before there was one
            card = Card.of(about, facts["guarantee"], terrine=facts["terrine"], date=None)
        main = facts["model"]["file"]
        rest = {name: data for name, data in files.items() if name not in _OWN | {main}}
        return Folder(kind=facts["model"]["kind"], about=about, card=card, model=files[main], files=rest)
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, StoreError):
            raise
        raise StoreError(
            f"{folder}: {MANIFEST} does not fit the schema {SCHEMA}. Use a copy of the folder as it was saved."
        ) from None


def _verified(folder: Path) -> dict[str, bytes]:
    try:
        lines = (folder / SUMS).read_text().splitlines()
    except (OSError, UnicodeDecodeError):
        raise StoreError(
            f"{folder} is no student's folder: it has no readable {SUMS}. Give one such as run/student."
        ) from None
    files: dict[str, bytes] = {}
    for line in lines:
        digest, _, name = line.partition("  ")
        if Path(name).name != name:
            raise StoreError(f"{folder / SUMS}, line {len(files) + 1}: must name a file beside it, not a path.")
        try:
            files[name] = (folder / name).read_bytes()
        except OSError:
            raise StoreError(
                f"{folder} has no {name}, which {SUMS} lists. Use a copy of the folder as it was saved."
            ) from None
        if hashlib.sha256(files[name]).hexdigest() != digest:
            raise StoreError(
                f"{folder / name} is damaged, or was changed after it was saved: its sha256 is not that in {SUMS}. Use "
                "a copy of the folder as it was saved."
            )
    return files


def _read(encoder: RowReader, X: Any, *, accept: bool) -> Any:
    """A table's rows, once it was looked at as `terrine predict` looks at a file."""
    role = "X"
    if isinstance(X, (str, Path)):
        role = Path(X).name
        refuse_not_utf8(X)
    table = encoder.schema.match(read_table(X), role=role)
    heed_unread(encoder.schema, table, role=role, then=ACCEPT, accept=accept)
    return encoder.transform(table, role=role)


def _are_texts(X: Any) -> bool:
    return isinstance(X, (list, tuple)) and bool(X) and isinstance(X[0], str)


def _as_worded_in(old: Card, new: Card) -> Card:
    """With what follows from the rest by words of terrine's, which another version may have chosen otherwise."""
    measured = new.measured
    if measured is not None and old.measured is not None:
        measured = replace(measured, words=old.measured.words)
    new = replace(new, measured=measured, warnings=old.warnings, test_rows=old.test_rows)
    return replace(new, terrine=old.terrine, unit_column=old.unit_column)


def _write_folder(folder: Path, files: Mapping[str, bytes]) -> None:
    """All of a student's files and their sums; where a student is there already, in one step."""
    sums = "".join(f"{hashlib.sha256(files[name]).hexdigest()}  {name}\n" for name in files).encode()
    files = {**files, SUMS: sums}
    try:
        if (folder / SUMS).is_file():
            replace_folder(folder, partial(_write_anew, files=files, old=folder))
        else:
            folder.mkdir(parents=True, exist_ok=True)
            _write_all(files, folder)
    except OSError as error:
        raise StoreError(f"The student cannot be written to {folder}: {error.strerror or error}.") from error


def _write_all(files: Mapping[str, bytes], folder: Path) -> None:
    for name, data in files.items():
        write_atomically(folder / name, partial(_write, data=data))


def _write_anew(folder: Path, *, files: Mapping[str, bytes], old: Path) -> None:
    shutil.copytree(old, folder, symlinks=True, ignore=lambda *_: [*_listed(old), SUMS])  # what others put there
    _write_all(files, folder)


def _listed(folder: Path) -> list[str]:
    """The files that a student's folder says it has, the sums aside."""
    return [line.partition("  ")[2] for line in (folder / SUMS).read_text().splitlines()]


def others_in(folder: Path) -> list[str]:
    """What is in a student's folder and no part of it."""
    return sorted({entry.name for entry in folder.iterdir()} - {*_listed(folder), SUMS})


def _kind_facts(about: About) -> dict[str, Any]:
    return {} if about.kind is None else {"kind": about.kind.to_json()}


def _columns(schema: bytes) -> list[str]:
    """Names and kinds, for the page."""
    columns = Schema.from_toml(schema.decode()).to_dict()["columns"]
    return [f"{name} ({kind['kind']})" for name, kind in columns.items()]


def _json(value: Mapping[str, Any]) -> bytes:
    return (json.dumps(value, indent=2, allow_nan=False) + "\n").encode()


def _write(file: BinaryIO, data: bytes) -> None:
    file.write(data)


def _version() -> str:
    try:
        return version("terrine")
    except PackageNotFoundError:  # run from a checkout
        return "not installed"
