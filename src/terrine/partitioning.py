"""Which teacher sees whose rows: a unit (a person) to one teacher, by keyed hash or evenly; shares as mapped files."""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import secrets
import shutil
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NoReturn, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from terrine import _validate
from terrine._files import sync_folder, write_atomically
from terrine.datasets.units import unit_ids
from terrine.errors import InputError, SecretError
from terrine.relations import Relation
from terrine.sensitive import Sensitive

SCHEMA = "terrine.partition/1"
SHARES_SCHEMA = "terrine.shares/1"
METHODS = ("hashed", "balanced")
RELATIONS = (Relation.UNIT_ANY, Relation.UNIT_REPLACED, Relation.ROW_REPLACED)  # at most one share differs

_PERSON = b"terrine.unit/1"  # the hash's domain: a change of it changes every assignment
_SECRET, _VOTERS = b"terrine.secret/1", b"terrine.voters/1"  # domains of what `Partition.identify` hashes with
_HASHES_AT_ONCE = 1 << 16
_BYTES_AT_ONCE = 1 << 23  # its rows are written to as many pages: several times that in memory


class UnitData(Protocol):
    """Rows, labels, and the unit (person) that each row belongs to, if known."""

    @property
    def X(self) -> Any: ...
    @property
    def y(self) -> Any: ...
    @property
    def unit(self) -> Any: ...


def new_key() -> bytes:
    """A fresh secret key for `partition`; keep it where the private data are kept."""
    return secrets.token_bytes(32)


def partition(
    data: UnitData,
    *,
    n_teachers: int,
    method: Literal["hashed", "balanced"] = "hashed",
    key: bytes,
    min_units: int | None = None,
) -> Partition:
    """Give every unit, with all its rows, to one teacher.

    Args:
        data: has ``X``, ``y`` and ``unit``: None, or (n_rows,) all whole numbers or all text, compared exactly.
            Without units every row is one.
        n_teachers: public; every one of them votes, whatever its share.
        method: "hashed": a unit's teacher depends on its id and the key alone. "balanced": units in the order of
            their hashes are dealt out in turn, so that shares differ by at most one unit.
        key: 16 to 64 secret bytes, as from `new_key`. The same key and ids give the same teachers anywhere.
        min_units: fewer units than this in any share are refused; 0 accepts empty shares. None: 1 where all neighbors
            have as many units, so that a refusal tells nothing of them, and 0 for hashed ids, where one unit could
            decide whether there is a refusal.

    Formal guarantees:
        Two neighboring data sets, as `Partition.relation` says, differ in one teacher's share.
        "hashed" with unit ids: for every key. Replacing one unit by another is two steps and touches two teachers.
        "balanced", and row numbers where there are no ids: over the draw of the key. A new unit can take the hash of
        the old one and leave all others where they were, which is as likely; so the key is fresh and stays secret,
        and the number of units (rows) is public. Adding or removing a unit is not covered.
    """
    n_teachers = _validate.integer("n_teachers", n_teachers, at_least=1)
    if n_teachers >= 2**31:
        raise InputError(f"n_teachers must be below 2^31, got {n_teachers}.")
    if min_units is not None:
        min_units = _validate.integer("min_units", min_units, at_least=0)
    _validate.choice("method", method, METHODS)
    _check_key(key)
    n_rows = len(data.y)
    unit = getattr(data, "unit", None)
    if unit is None:
        names: NDArray[Any] = np.arange(n_rows)
        inverse, tag, replaced = None, b"r", Relation.ROW_REPLACED
    else:
        names, inverse, tag = _distinct(unit, n_rows)
        replaced = Relation.UNIT_REPLACED
    hashes = _hashes(names, tag=tag, key=key)
    if method == "hashed":
        teachers = (hashes % np.uint64(n_teachers)).astype(np.int32)
        relation = Relation.ROW_REPLACED if unit is None else Relation.UNIT_ANY
    else:
        teachers = np.empty(len(hashes), dtype=np.int32)
        teachers[np.argsort(hashes, kind="stable")] = np.arange(len(hashes)) % n_teachers
        relation = replaced
    if min_units is None:
        min_units = 1 if relation.size_is_public else 0
    if np.bincount(teachers, minlength=n_teachers).min() < min_units:
        raise InputError(
            f"A teacher's share has fewer than min_units={min_units} unit(s). Take fewer teachers, or a smaller "
            "min_units."
        )
    assignment = teachers if inverse is None else teachers[inverse]
    secret = hashlib.blake2b(b"", digest_size=32, key=key, person=_SECRET).digest()
    return Partition(assignment, n_teachers=n_teachers, method=method, relation=relation, secret=secret)


def public_units(data: UnitData, *, method: Literal["hashed", "balanced"]) -> int | None:
    """How many units there are, where the neighbouring relation of such a partition makes that public; else None."""
    unit = getattr(data, "unit", None)
    if unit is None:
        return len(data.y)  # a row is replaced
    return None if method == "hashed" else len(np.unique(np.asarray(unit)))


class Partition:
    """The teacher of every row. Secret, for it depends on unit ids: it prints public numbers only.

    Args:
        assignment: (n_rows,) teacher ids from 0 to ``n_teachers`` - 1.
        n_teachers: public.
        method: "hashed" or "balanced".
        relation: what neighboring data sets may differ in; one of `RELATIONS`.
        secret: 32 bytes that `identify` hashes with; they come from the key and do not reveal it. b"": none.
    """

    _assignment: NDArray[np.int32]
    _secret: bytes
    n_teachers: int
    method: str
    relation: Relation

    def __init__(
        self, assignment: ArrayLike, *, n_teachers: int, method: str, relation: Relation, secret: bytes = b""
    ) -> None:
        given = np.asarray(assignment)
        n_teachers = _validate.integer("n_teachers", n_teachers, at_least=1)
        _validate.choice("method", method, METHODS)
        relation = Relation(relation)
        if relation not in RELATIONS or (method == "balanced" and relation == Relation.UNIT_ANY):
            raise InputError(f"relation must be one that {method} shares have, got {relation.sentence[:80]!r}.")
        if given.ndim != 1 or given.dtype.kind not in "iu":
            raise InputError(f"assignment must be (n_rows,) whole numbers, got {given.dtype} on {given.ndim} axes.")
        if given.size and not (given.min() >= 0 and given.max() < n_teachers):
            raise InputError(f"assignment must hold teacher ids from 0 to {n_teachers - 1}.")
        if not isinstance(secret, bytes) or len(secret) not in (0, 32):
            raise InputError("secret must be 32 bytes, or empty.")
        stored = given.astype(np.int32)
        stored.setflags(write=False)
        public = {"n_teachers": n_teachers, "method": method, "relation": relation}
        self.__dict__.update(_assignment=stored, _secret=secret, **public)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise InputError(f"A partition cannot be changed: {name} stays as it is.")

    __delattr__ = __setattr__  # type: ignore[assignment]

    @property
    def assignment(self) -> NDArray[np.int32]:  # (n_rows,), read-only, secret
        return self._assignment.view()

    def __len__(self) -> int:
        return int(self._assignment.size)

    def __repr__(self) -> str:
        said = f"{self.n_teachers} teachers, {self.method}; neighbors: {self.relation.sentence}"
        return f"<Partition: {said}; shares are secret>"

    def __reduce_ex__(self, *_: Any) -> NoReturn:
        raise SecretError(
            "A Partition is secret and cannot be pickled or copied. Use Partition.save and Partition.load."
        )

    __getstate__ = __reduce_ex__

    @cached_property
    def order(self) -> NDArray[np.int64]:  # (n_rows,), read-only, secret
        """Row indices sorted by teacher, and by row within a teacher."""
        order = np.argsort(self._assignment, kind="stable")
        order.setflags(write=False)
        return order

    @cached_property
    def offsets(self) -> NDArray[np.int64]:  # (n_teachers + 1,), read-only, secret
        """Teacher k's rows are ``order[offsets[k]:offsets[k + 1]]``."""
        offsets = np.zeros(self.n_teachers + 1, dtype=np.int64)
        np.cumsum(np.bincount(self._assignment, minlength=self.n_teachers), out=offsets[1:])
        offsets.setflags(write=False)
        return offsets

    def identify(self, text: str) -> str:
        """64 hex digits that are the same for the same text and key, and tell nothing of either; "" without a secret.

        A keyed hash: what it is taken of may be private, and the result may be published.
        """
        if not self._secret:
            return ""
        return hashlib.blake2b(text.encode(), digest_size=32, key=self._secret, person=_VOTERS).hexdigest()

    @property
    def sizes(self) -> Sensitive[NDArray[np.int64]]:
        """How many rows each teacher has, (n_teachers,)."""
        return Sensitive(np.diff(self.offsets))

    def rows(self, teacher: int) -> NDArray[np.int64]:
        """Sorted indices of one teacher's rows, read-only."""
        _check_teacher(teacher, self.n_teachers)
        return self.order[self.offsets[teacher] : self.offsets[teacher + 1]]

    def check(self, unit: ArrayLike) -> None:
        """Refuse ids, (n_rows,), of which one has rows in two shares: after loading, or when owners join their data."""
        _, inverse, _ = _distinct(unit, len(self))
        teacher_of = np.empty(len(self), dtype=np.int32)  # as many units as rows at most
        teacher_of[inverse] = self._assignment
        if (teacher_of[inverse] != self._assignment).any():
            raise InputError(
                "A unit has rows in two shares, and one person would reach two teachers. Partition again with these "
                "ids."
            )

    def save(self, path: str | Path) -> None:
        """Write an .npz file that only its owner may read (mode 0600), whole or not at all. The key is not in it."""
        path = Path(path)
        if path.suffix != ".npz":
            raise InputError(f"A partition is saved as .npz: give a file name that ends in .npz, got {path.name}.")
        arrays: dict[str, Any] = {"assignment": self._assignment, "n_teachers": self.n_teachers, "schema": SCHEMA}
        arrays |= {"method": self.method, "relation": self.relation}
        arrays |= {"secret": np.frombuffer(self._secret, dtype=np.uint8)} if self._secret else {}
        write_atomically(path, lambda file: np.savez_compressed(file, **arrays), mode=0o600)

    @classmethod
    def load(cls, path: str | Path) -> Partition:
        path = Path(path)
        if not path.is_file():
            raise InputError(f"{path.name}: no such file. Give a partition file.")
        try:
            with path.open("rb") as file:
                loaded = np.load(file, allow_pickle=False)
                arrays = {name: loaded[name] for name in loaded.files}
        except OSError:
            raise
        except Exception:  # numpy and zipfile raise many types here
            raise InputError(f"{path.name}: numpy cannot read this as a partition file.") from None
        if other := _validate.other_schema(arrays, SCHEMA):
            raise InputError(f"{path.name}: this is not a partition file of schema {SCHEMA} (it has {other}).")
        try:
            method, relation = str(arrays["method"]), Relation(str(arrays["relation"]))
            secret = arrays["secret"].tobytes() if "secret" in arrays else b""
            n_teachers = int(arrays["n_teachers"])
            return cls(arrays["assignment"], n_teachers=n_teachers, method=method, relation=relation, secret=secret)
        except (KeyError, TypeError, ValueError) as error:
            reason = str(error) if isinstance(error, InputError) else "the partition file is damaged."
            raise InputError(f"{path.name}: {reason}") from None


def _check_key(key: object) -> None:
    if not isinstance(key, bytes):
        raise InputError(f"key must be bytes, as new_key() makes them, got {type(key).__name__}.")
    if not 16 <= len(key) <= 64:
        raise InputError(f"key must have 16 to 64 bytes, as new_key() makes them, got {len(key)}.")


def _check_teacher(teacher: int, n_teachers: int) -> None:
    if not 0 <= teacher < n_teachers:
        raise InputError(f"teacher must be from 0 to {n_teachers - 1}, got {teacher}.")


def _distinct(unit: ArrayLike, n_rows: int) -> tuple[NDArray[Any], NDArray[np.int64], bytes]:
    """Distinct ids, each row's place among them, and the tag of their type."""
    ids = unit_ids(unit, n_rows=n_rows)
    names, inverse = np.unique(ids, return_inverse=True)
    return names, inverse, b"s" if ids.dtype.kind == "U" else b"i"


def _hashes(names: NDArray[Any], *, tag: bytes, key: bytes) -> NDArray[np.uint64]:
    """Keyed hashes of ids: of decimal digits or UTF-8, whatever the width, byte order or machine."""
    base = hashlib.blake2b(tag, digest_size=8, key=key, person=_PERSON)
    found = np.empty(len(names), dtype=np.uint64)

    def digest(name: object) -> bytes:
        one = base.copy()
        one.update(str(name).encode("utf-8", "surrogatepass"))
        return one.digest()

    for start in range(0, len(names), _HASHES_AT_ONCE):
        some = names[start : start + _HASHES_AT_ONCE]
        plain = some.tolist()
        found[start : start + len(plain)] = np.frombuffer(b"".join(map(digest, plain)), dtype="<u8")
    return found


def write_shares(data: UnitData, partition: Partition, folder: str | Path) -> Shares:
    """Write rows and labels sorted by teacher, so that a worker maps its slice only, whatever their size.

    Reads ``data`` from front to back in chunks, in bounded memory if it is mapped (``np.load(..., mmap_mode="r")``).
    The folder appears when it is complete; one that already holds these very shares stays as it is.
    """
    folder = Path(folder)
    arrays = {"X": np.asanyarray(data.X), "y": np.asanyarray(data.y)}
    for name, array in arrays.items():
        if array.dtype.hasobject or array.ndim == 0 or len(array) != len(partition):
            raise InputError(f"{name} must hold plain values, one for each of the partition's rows.")
    if folder.exists():
        shares = Shares(folder)
        if shares.fingerprint != _sort_into(None, arrays, partition):
            raise InputError(
                f"{folder.name} holds the shares of different data or of a different partition. Remove the folder, or "
                "name a new one."
            )
        return shares
    unfinished = folder.with_name(f".{folder.name}.unfinished")
    if unfinished.exists():
        shutil.rmtree(unfinished)
    unfinished.mkdir(mode=0o700)
    try:
        fingerprint = _sort_into(unfinished, arrays, partition)
        write_atomically(unfinished / "offsets.npy", lambda file: np.save(file, partition.offsets), mode=0o600)
        about = {"schema": SHARES_SCHEMA, "n_teachers": partition.n_teachers, "fingerprint": fingerprint}
        write_atomically(unfinished / "shares.json", lambda file: file.write(json.dumps(about).encode()), mode=0o600)
        os.rename(unfinished, folder)
        sync_folder(folder.parent)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
    return Shares(folder)


class Shares:
    """Shares that `write_shares` wrote. Holds the folder's name only, so it travels to workers.

    ``Shares("run/shares").share(17)`` maps teacher 17's rows and labels.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        try:
            about = json.loads((self.folder / "shares.json").read_text())
            schema, self.n_teachers, self.fingerprint = about["schema"], about["n_teachers"], about["fingerprint"]
        except (OSError, ValueError, KeyError, TypeError):
            raise InputError(f"{self.folder.name}: no such folder of shares, or a damaged one.") from None
        if schema != SHARES_SCHEMA:
            raise InputError(
                f"{self.folder.name}: this is not a folder of shares of schema {SHARES_SCHEMA} (it has {schema!r})."
            )

    def __repr__(self) -> str:
        return f"<Shares: {self.n_teachers} teachers in {self.folder.name}; contents are secret>"

    def __reduce__(self) -> tuple[type[Shares], tuple[Path]]:
        return Shares, (self.folder,)

    def share(self, teacher: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """One teacher's rows and labels as read-only views of mapped files."""
        _check_teacher(teacher, self.n_teachers)
        X, y, offsets = self._mapped
        rows = slice(int(offsets[teacher]), int(offsets[teacher + 1]))
        return X[rows], y[rows]

    @cached_property
    def _mapped(self) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.int64]]:
        try:
            X = _open(self.folder / "X.npy")
            y = _open(self.folder / "y.npy")
            offsets = np.load(self.folder / "offsets.npy", allow_pickle=False)
        except Exception:
            raise InputError(f"{self.folder.name}: the folder of shares is damaged. Write the shares again.") from None
        if not (len(X) == len(y) == offsets[-1] and offsets.shape == (self.n_teachers + 1,)):
            raise InputError(
                f"{self.folder.name}: the files of this folder of shares do not fit together. Write the shares again."
            )
        return X, y, offsets


def _open(path: Path) -> NDArray[Any]:
    """Mapped where there is something to map: an empty array cannot be."""
    try:
        mapped: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except ValueError:
        mapped = np.load(path, allow_pickle=False)
        if mapped.size:
            raise
    return mapped


def _sort_into(folder: Path | None, arrays: dict[str, NDArray[Any]], partition: Partition) -> str:
    """Write each array sorted by teacher; the fingerprint of what was read. Without a folder, only the fingerprint."""
    digest = hashlib.blake2b(digest_size=32)
    digest.update(f"{partition.n_teachers} {partition.method} {partition.relation.sentence}".encode())
    digest.update(partition.assignment.data)
    place: NDArray[np.int64] | None = None  # where each row goes
    if folder is not None:
        place = np.empty(len(partition), dtype=np.int64)
        place[partition.order] = np.arange(len(partition))
    for name, array in arrays.items():
        digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
        target = None if folder is None else _reserve(folder / f"{name}.npy", array)
        for start, chunk in _chunks(array):
            digest.update(chunk.reshape(-1).view(np.uint8).data)
            if target is not None and place is not None:
                places = place[start : start + len(chunk)]
                sorted_rows = np.argsort(places)  # neighbors in the file are written together
                target[places[sorted_rows]] = chunk[sorted_rows]
                _let_go(target)
        if isinstance(target, np.memmap):
            target.flush()
    return digest.hexdigest()


def _reserve(path: Path, like: NDArray[Any]) -> NDArray[Any]:
    """A new .npy file to be filled, with its room on the disk: a full disk is an error now, not a bus error later."""
    if like.size == 0:
        np.save(path, like)
        return np.empty_like(like)
    target: NDArray[Any] = np.lib.format.open_memmap(path, mode="w+", dtype=like.dtype, shape=like.shape)
    path.chmod(0o600)
    if hasattr(os, "posix_fallocate"):
        with path.open("r+b") as file:
            os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
    return target


def _chunks(array: NDArray[Any]) -> Iterator[tuple[int, NDArray[Any]]]:
    rows = max(1, _BYTES_AT_ONCE // max(1, array.itemsize * int(np.prod(array.shape[1:]))))
    for start in range(0, len(array), rows):
        yield start, np.ascontiguousarray(array[start : start + rows])
        _let_go(array)


def _let_go(array: NDArray[Any]) -> None:
    """Drop the pages of a mapped file from this process; they stay in the system's cache, written ones too."""
    base: Any = array
    while isinstance(base, np.ndarray):
        if isinstance(base, np.memmap) and base.mode in ("r", "r+", "w+") and isinstance(base._mmap, mmap.mmap):  # type: ignore[attr-defined]
            if hasattr(mmap, "MADV_DONTNEED"):
                base._mmap.madvise(mmap.MADV_DONTNEED)  # type: ignore[attr-defined]
            return
        base = base.base
