"""What every run directory has on its public side: answers, their guarantee, and the student that learns from them."""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from terrine._files import write_atomically
from terrine.budgets import canonical, mechanism_from_json, mechanism_to_json
from terrine.datasets import PublicData
from terrine.errors import InputError
from terrine.mechanisms import ABSTAIN, Answers, Outcome
from terrine.runs.config import Settings, StudentConfig, differences, read_settings, write_config
from terrine.runs.factories import check_options, student_of
from terrine.students.card import StudentResult

if TYPE_CHECKING:
    from terrine.students import FittedStudent

Progress = Callable[[float], object]
ANSWERS_SCHEMA = "terrine.answers/1"


class PublicSide(Protocol):
    """Of a task: the public rows, and labelled test rows where there are any."""

    @property
    def public(self) -> PublicData: ...
    @property
    def classes(self) -> tuple[str, ...]: ...
    @property
    def test_X(self) -> NDArray[Any] | None: ...
    @property
    def test_y(self) -> NDArray[np.int64] | None: ...


class JsonObject(BaseModel):
    """What a file of a run must hold, whatever else it holds."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False)


class _Guarantee(JsonObject):
    epsilon: float
    delta: float
    order: float
    basis: str
    relation: str
    notes: list[str]
    n_teachers: int
    queries_at_most: int
    answers_at_most: int
    answered: int
    withheld: int
    unasked: int


class Learning(ABC):
    """The last stages of a run, over what `label` wrote."""

    folder: Path

    @property
    @abstractmethod
    def learns_from(self) -> PublicSide:
        """The public rows, and test rows where there are any."""

    def student(self) -> Any:
        """What learns."""
        return student_of(self.learner[0])

    @property
    @abstractmethod
    def learner(self) -> tuple[StudentConfig, int]:
        """The student's settings, and the seed."""

    def learn(self, *, progress: Progress | None = None) -> StudentResult:
        """Train the student on public rows and answers; its folder carries the guarantee, its accuracy and the ledger.

        A student that is there already is only looked at again.
        """
        from terrine.students import fit_student, load_student

        folder = self.folder / "student"
        if (folder / "SHA256SUMS").is_file():
            result = self.evaluated(load_student(folder))
        else:
            rows, answers = self.released()
            labels = np.full(len(self.learns_from.public), ABSTAIN, dtype=np.int64)
            labels[rows] = answers.labels
            student = fit_student(
                self.student(),
                self.learns_from.public,
                replace(answers, labels=labels, outcomes=_spread(answers.outcomes, rows, len(labels))),
                classes=self.learns_from.classes,
                seed=self.learner[1],
                progress=progress,
            )
            result = self.evaluated(student)
            tested = {name: getattr(result, name) for name in ("accuracy", "n_test", "interval")}
            student.save(folder, card={**self.guarantee(), **tested})
        write_json(self.folder / "student.json", result.to_json())
        return result

    def released(self) -> tuple[NDArray[np.int64], Answers]:
        """The public rows that were asked, and what came back."""
        path, side = self.folder / "answers.npz", self.learns_from
        rows, answers = load_answers(path)
        if (rows >= len(side.public)).any() or (answers.labels >= len(side.classes)).any():
            raise InputError(f"Expected answers for these rows and classes in {path}, got others: the data changed.")
        return rows, answers

    def guarantee(self) -> dict[str, Any]:
        """What may be published, as `label` wrote it."""
        return read_json(self.folder / "guarantee.json", "terrine label", holds=_Guarantee)

    def student_result(self) -> StudentResult | None:
        """What `learn` found, or None where there is no student yet."""
        path = self.folder / "student.json"
        if not path.is_file():
            return None
        found = read_json(path, "terrine learn")
        try:
            return StudentResult.from_json(found)
        except InputError:
            raise InputError(f"Expected {path} in JSON, got a damaged file; run: terrine learn {self.folder}") from None

    def evaluated(self, student: FittedStudent) -> StudentResult:
        """The student, with its accuracy on the test rows where there are labels for it (interval: Wilson's)."""
        X, y = self.learns_from.test_X, self.learns_from.test_y
        found: dict[str, Any] = {"kind": self.learner[0].kind, "settings": dict(student.about.settings)}
        if X is None or y is None:
            return StudentResult(**found, accuracy=None, n_test=None, interval=None, per_class=None)
        right = student.predict(X) == y
        return StudentResult(
            **found,
            accuracy=float(right.mean()),
            n_test=len(right),
            interval=wilson(int(right.sum()), len(right)),
            per_class={name: _mean(right[y == k]) for k, name in enumerate(self.learns_from.classes)},
        )


def begin(settings: Settings, folder: Path) -> None:
    """Make a run directory; one that is there must be of the same settings, but for a student that is yet to learn."""
    check_options(settings)
    path = folder / "config.toml"
    if path.is_file():
        other = differences(settings, read_settings(path))
        if all(key.startswith("student.") for key in other) and not (folder / "student" / "SHA256SUMS").is_file():
            if other:
                _write_settings(path, settings)
        elif other:
            raise InputError(
                f"Expected a run directory of these settings, got {folder} with another {other[0]}; "
                "name a new one, or put the setting back."
            )
        for left in folder.glob(".*.tmp"):  # of a run that was killed
            left.unlink(missing_ok=True)
        return
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"Expected a new or empty run directory, got {folder} with other files.")
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    folder.chmod(0o700)
    _write_settings(path, settings)


def _write_settings(path: Path, settings: Settings) -> None:
    write_atomically(path, lambda file: file.write(write_config(settings).encode()))


def save_answers(path: Path, rows: NDArray[np.int64], answers: Answers) -> None:
    """(n_queries,) public rows, labels and outcomes: public."""
    arrays: dict[str, Any] = {"rows": rows, "labels": answers.labels, "outcomes": answers.outcomes}
    arrays |= {"secure": answers.secure, "mechanism": canonical(mechanism_to_json(answers.mechanism))}
    arrays |= {"schema": ANSWERS_SCHEMA}
    write_atomically(path, lambda file: np.savez_compressed(file, **arrays))


def load_answers(path: Path) -> tuple[NDArray[np.int64], Answers]:
    """The public rows that were asked, and what came back."""
    if not path.is_file():
        raise InputError(f"Expected answers in {path}, got no such file; run: terrine label {path.parent}")
    try:
        with np.load(path, allow_pickle=False) as found:
            if str(found["schema"]) != ANSWERS_SCHEMA:
                raise InputError(f"Expected answers of schema {ANSWERS_SCHEMA}, got another in {path}.")
            rows, labels, outcomes = (found[name] for name in ("rows", "labels", "outcomes"))
            _check_answers(rows, labels, outcomes)
            answers = Answers(
                labels=labels,
                outcomes=outcomes,
                mechanism=mechanism_from_json(json.loads(str(found["mechanism"]))),
                secure=bool(found["secure"]),
            )
            return rows, answers
    except InputError:
        raise
    except Exception:  # numpy and zipfile raise many types for damaged files
        raise InputError(f"Expected answers in {path}, got a damaged file; run: terrine label {path.parent}") from None


def _check_answers(rows: NDArray[Any], labels: NDArray[Any], outcomes: NDArray[Any]) -> None:
    for values, least in ((rows, 0), (labels, ABSTAIN), (outcomes, min(Outcome))):
        if values.ndim != 1 or values.dtype.kind not in "iu" or values.shape != rows.shape or (values < least).any():
            raise ValueError
    if (outcomes > max(Outcome)).any() or len(np.unique(rows)) != len(rows):
        raise ValueError


def wilson(right: int, n: int) -> tuple[float, float]:
    """A 95% interval for a share of right predictions."""
    z, share = 1.959964, right / n
    middle, half = share + z * z / (2 * n), z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return (middle - half) / (1 + z * z / n), (middle + half) / (1 + z * z / n)


def _spread(outcomes: NDArray[np.int64], rows: NDArray[np.int64], n: int) -> NDArray[np.int64]:
    """Outcomes at their rows of all public ones; the others were never asked."""
    found = np.full(n, int(Outcome.UNASKED), dtype=np.int64)
    found[rows] = outcomes
    return found


def _mean(values: NDArray[np.bool_]) -> float | None:
    return float(values.mean()) if values.size else None


def write_json(path: Path, value: dict[str, Any]) -> None:
    text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    write_atomically(path, lambda file: file.write(text.encode()))


def read_json(
    path: Path, command: str, *, holds: type[JsonObject] = JsonObject, advice: str | None = None
) -> dict[str, Any]:
    """An object from a file of a run; ``holds`` says what must be in it, ``advice`` what to do if it is damaged."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        holds.model_validate(found)
    except FileNotFoundError:
        raise InputError(f"Expected {path}, got no such file; run: {command} {path.parent}") from None
    except ValueError:
        what = advice or f"run: {command} {path.parent}"
        raise InputError(f"Expected {path} in JSON, got a damaged file; {what}") from None
    return dict(found)
