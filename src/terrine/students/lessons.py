"""What every student shares: the public rows, the answers to learn from, and what is known of it afterwards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from terrine.datasets import PublicData
from terrine.datasets.rows import RowKind, as_rows, kind_of, matched
from terrine.errors import DataError, InputError, SecretError, TerrineWarning, warn_caller
from terrine.mechanisms import ABSTAIN, Answers
from terrine.sensitive import Sensitive
from terrine.students.verdict import Verdict, listed

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
        raise InputError(
            f"classes must be at least 2 names, all different, got {len(names)} with {len(set(names))} different ones."
        )
    labels = _labels(answers, n_rows=len(rows), n_classes=len(names))
    answered = np.flatnonzero(labels != ABSTAIN)
    if answered.size == 0:
        raise InputError(
            f"None of the {len(labels)} rows has an answer, so that there is nothing to learn from. Ask about more."
        )
    counts = np.bincount(labels[answered], minlength=len(names))
    few = [names[k] for k in np.flatnonzero(counts < min_per_class)]
    if few:
        raise InputError(
            f"min_per_class is {min_per_class}, and {len(few)} classes have fewer answers: {listed(few)}. Lower it, or "
            "ask about more rows."
        )
    missing = [names[k] for k in np.flatnonzero(counts == 0)]
    if missing:
        warn_caller(
            f"No answer names {len(missing)} of the {len(names)} classes: {listed(missing)}. The student cannot learn "
            "them; ask about more rows, or choose public rows in which they are less rare.",
            MissingClassWarning,
        )
    noise = UNSTATED if not isinstance(answers, Answers) else SECURE if answers.secure else SEEDED
    return Lessons(rows, answered, labels[answered], names, noise)


def evened(labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """Indices that repeat the answers of rarer classes until every class has as many as the commonest."""
    most = int(np.bincount(labels).max())
    return np.concatenate([np.resize(np.flatnonzero(labels == k), most) for k in np.unique(labels)])


def _labels(answers: Answers | ArrayLike, *, n_rows: int, n_classes: int) -> NDArray[np.int64]:
    raw = np.asarray(answers.labels if isinstance(answers, Answers) else answers)
    if raw.ndim != 1 or len(raw) > n_rows:
        raise InputError(f"answers must be a list of at most {n_rows}, one for each public row, got shape {raw.shape}.")
    if raw.dtype.kind not in "iu":
        raise InputError(f"answers must be class indices, or {ABSTAIN} where withheld, got dtype {raw.dtype}.")
    bad = (raw < ABSTAIN) | (raw >= n_classes)
    if bad.any():
        row = int(np.argmax(bad))
        raise InputError(f"answers must be from {ABSTAIN} to {n_classes - 1}, got {int(raw[row])} in row {row}.")
    return raw.astype(np.int64)


def checked_rows(
    X: Any, *, row_shape: tuple[int, ...], images: bool, kind: RowKind | None = None, nan_ok: bool = False
) -> Any:
    """Rows to predict on: of the kind and shape that the student was trained on, a table's columns by name."""
    rows = X.X if isinstance(X, PublicData) else as_rows("X", X, nan_ok=nan_ok)
    if kind is not None and kind.kind != "array":
        return matched(rows, kind, name="X", like="the student's rows")
    if not isinstance(rows, np.ndarray):
        raise DataError(f"X must be an array of numbers in rows of shape {row_shape}, got {kind_of(rows)}.")
    if rows.shape[1:] != row_shape:
        raise DataError(f"X must have rows of shape {row_shape}, got {rows.shape[1:]}.")
    if images and rows.dtype != np.uint8:
        raise DataError(f"X must be images of dtype uint8, got {rows.dtype}.")
    return rows


@dataclass(frozen=True, kw_only=True, eq=False)
class About:
    """What is known of a fitted student, all of it public: what it learned from, and how."""

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
    verdict: Verdict | None = None  # by the answers; None where nobody judged

    @classmethod
    def of(cls, given: Lessons, *, seed: int, settings: Mapping[str, Any], n_learned: int | None = None) -> About:
        return cls(
            classes=given.classes,
            row_shape=given.row_shape,
            images=given.of_images,
            seed=seed,
            settings=public(settings, "settings"),  # as they will be read back
            n_public=len(given.rows),
            n_answered=len(given.answered),
            n_learned=len(given.answered) if n_learned is None else n_learned,
            noise=given.noise,
            kind=None if isinstance(given.rows, np.ndarray) else kind_of(given.rows),
        )


def public(value: Any, where: str = "card") -> Any:
    """Plain JSON values; a secret among them, however deep, is refused."""
    match value:
        case Sensitive():
            raise SecretError(
                f"{where} must be public, and is a secret value (it depends on private data). Leave it out."
            )
        case Mapping():
            return {str(name): public(inner, f"{where}[{str(name)!r}]") for name, inner in value.items()}
        case list() | tuple():
            return [public(inner, f"{where}[{k}]") for k, inner in enumerate(value)]
        case None | bool() | str() | int():
            return value
        case float() if np.isfinite(value):
            return value
    raise InputError(f"{where} must be a finite number, text, a list or a dict, got {type(value).__name__}.")
