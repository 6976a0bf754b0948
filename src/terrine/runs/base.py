"""What every run directory has on its public side: labels, their guarantee, and the student that learns from them."""

from __future__ import annotations

import json
import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from terrine._files import restore_folder, write_atomically
from terrine.accounting.curves import Guarantee
from terrine.budgets import canonical, mechanism_from_json, mechanism_to_json
from terrine.datasets import Task
from terrine.errors import AdviceWarning, InputError, TestFailedError
from terrine.labeller.voters import repeats
from terrine.mechanisms import ABSTAIN, Answers, Outcome
from terrine.published import PublishedGuarantee, PublishedProbe
from terrine.runs.anew import asks_probe, or_anew
from terrine.runs.config import (
    ProbeConfig,
    RunConfig,
    Settings,
    StudentConfig,
    differences,
    read_settings,
    write_config,
)
from terrine.runs.factories import check_options, student_of
from terrine.runs.ready import check_extras
from terrine.schema.tables import UNIT_COLUMN
from terrine.students.card import StudentResult
from terrine.students.verdict import about_test_rows

if TYPE_CHECKING:
    from terrine.students import FittedStudent

Progress = Callable[[float], object]
ANSWERS_SCHEMA = "terrine.answers/1"
AGAIN = "student.again"  # while it is there, the next `learn` trains a new student in the place of the one there is


class JsonObject(BaseModel):
    """What a file of a run must hold, whatever else it holds."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False)


class Learning(ABC):
    """The last stages of a run, over what `label` wrote: of a run that asks teachers, or of one with a probe."""

    folder: Path

    @abstractmethod
    def guarantee(self) -> Guarantee:
        """What may be published, as `label` wrote it."""

    @abstractmethod
    def taught(self, *, progress: Progress | None) -> FittedStudent:
        """A student that has learned from public rows and what was released."""

    @property
    @abstractmethod
    def task(self) -> Task:
        """The public rows, and test rows where there are any."""

    def student(self) -> Any:
        """What learns."""
        return student_of(self.learner[0])

    @property
    @abstractmethod
    def learner(self) -> tuple[StudentConfig, int]:
        """The student's settings, and the seed."""

    def own_features(self) -> Any:
        """Features by an encoder of the user's own, which a student may not carry; None where there is none."""
        return None

    def try_student(self, *, n_answers: int) -> None:
        """Refuse a student that could not learn from answers or not be kept, before they are paid for."""
        if (self.folder / "student" / "SHA256SUMS").is_file():
            return
        from terrine.students import try_student

        side = self.task
        try_student(self.student(), side.public, classes=side.classes, n_answers=n_answers, keep=True)

    def learn(self, *, again: bool = False, progress: Progress | None = None) -> StudentResult:
        """Train the student on public rows and what was released; its folder carries the guarantee and the ledger.

        A student that is there already is only looked at again: where there are test rows now that there were not
        before, its card says so. With ``again`` a new one is trained in its place, which costs no privacy.
        """
        from terrine.students import load_student

        folder, wanted = self.folder / "student", self.folder / AGAIN
        restore_folder(folder)
        there = (folder / "SHA256SUMS").is_file()
        anew = again or not there or wanted.exists()
        if there and anew:
            _check_own(folder)
            wanted.touch()
        student = self.taught(progress=progress) if anew else load_student(folder, encoder=self.own_features())
        if not anew:
            self._check_paid(student)
        if student.about.verdict is not None and isinstance(self.guarantee(), PublishedProbe):
            verdict = replace(student.about.verdict, of_probe=True)
            student = replace(student, about=replace(student.about, verdict=verdict))
        result = self.evaluated(student)
        card = {**self.guarantee().to_json(), **result.for_card(), "unit_column": self.unit_column}
        if anew:
            encoder = self.task.encoder
            student.save(folder, card=card, extra=None if encoder is None else encoder.files())
        else:
            student.restate(folder, card=card)
        write_json(self.folder / "student.json", result.to_json())
        wanted.unlink(missing_ok=True)
        return result

    def _check_paid(self, student: FittedStudent) -> None:
        """Refuse a student of what another ledger paid for: its card would say a guarantee that is not its own.

        A student that was kept before cards named ledgers must have this run's epsilon, delta and number of answers.
        """
        card, shown = student.card, self.guarantee().to_json()
        named, ours = None if card is None else card.ledger, shown.get("ledger")
        older = named is None and not (self.folder / "student" / "card.json").exists()
        if card is not None and older:
            same = (card.epsilon, card.delta, card.n_answered)
            if same == tuple(shown.get(name) for name in ("epsilon", "delta", "answered")):
                return
        if (None if named is None else named.id) != (None if ours is None else ours["id"]):
            raise InputError(
                f"The card of {self.folder / 'student'} does not name the ledger that paid for {self.folder}: the "
                "guarantee of this run is not that of this student. Move the student away, or train one from this "
                f"run's labels in its place: terrine learn {self.folder} --again"
            )

    @property
    def unit_column(self) -> str | None:
        """The column that says whose row it is, by the schema, which is public; None where no column does."""
        encoder = self.task.encoder
        return None if encoder is None or encoder.schema.unit == UNIT_COLUMN else encoder.schema.unit

    def finished(self) -> bool:
        """Whether all is there, to the report, so that a rerun trains, asks and spends nothing."""
        files = ("answers.npz", "guarantee.json", "student.json", "report.html")
        if not _has_learned(self.folder) or not all((self.folder / name).is_file() for name in files):
            return False
        return not getattr(self.guarantee(), "why_unasked", None)  # else a service may have room for more by now

    def student_result(self) -> StudentResult | None:
        """What `learn` found, or None where there is no student yet."""
        path = self.folder / "student.json"
        if not path.is_file():
            return None
        found = read_json(path, "terrine learn")
        try:
            return StudentResult.from_json(found)
        except InputError:
            raise InputError(f"{path} is damaged. Write it again with: terrine learn {self.folder}") from None

    def evaluated(self, student: FittedStudent) -> StudentResult:
        """The student, with its accuracy on the test rows where there are labels for it (interval: Wilson's)."""
        from terrine.students import Verdict, rarely_named

        side, about = self.task, student.about
        never, seldom = rarely_named(student, side.public, self.answered_by_class())
        found: dict[str, Any] = {"kind": self.learner[0].kind, "settings": dict(about.settings)}
        found |= {"never_predicted": never, "seldom_predicted": seldom}
        verdicts = [] if about.verdict is None else [about.verdict]
        tested: dict[str, Any] = {"accuracy": None, "n_test": None, "interval": None, "per_class": None}
        if side.test_X is not None and side.test_y is not None:
            y = side.test_y
            right = student.predict(side.test_X) == y
            verdicts.append(Verdict.of(right, y, classes=side.classes, judged_on="test"))
            tested = {
                "test_rows": about_test_rows(side.test_X, side.public.X),
                "accuracy": float(right.mean()),
                "n_test": len(right),
                "interval": wilson(int(right.sum()), len(right)),
                "per_class": {name: _mean(right[y == k]) for k, name in enumerate(side.classes)},
            }
        result = StudentResult(**found, **tested, verdicts=tuple(verdicts))
        for one in result.warnings:
            warnings.warn(one, AdviceWarning, stacklevel=3)
        return result

    def answered_by_class(self) -> NDArray[np.int64] | None:
        """(n_classes,) how many answers name each class; None where no teacher answered."""
        return None


class Answered(Learning):
    """A run whose labels are answers of teachers."""

    def taught(self, *, progress: Progress | None) -> FittedStudent:
        """Taught on the answers, and judged by them."""
        from terrine.students import fit_student, judged

        rows, answers = self.released()
        student, seed, public = self.student(), self.learner[1], self.task.public
        labels = np.full(len(public), ABSTAIN, dtype=np.int64)
        labels[rows] = answers.labels
        answers = replace(answers, labels=labels, outcomes=_spread(answers.outcomes, rows, len(labels)))
        made = fit_student(student, public, answers, classes=self.task.classes, seed=seed, progress=progress)
        return judged(made, student, public, answers, seed=seed)

    def answered_by_class(self) -> NDArray[np.int64]:
        labels = self.released()[1].labels
        return np.bincount(labels[labels != ABSTAIN], minlength=len(self.task.classes))

    def released(self) -> tuple[NDArray[np.int64], Answers]:
        """The public rows that were asked, and what came back."""
        path, side = self.folder / "answers.npz", self.task
        if not path.is_file() and (self.folder / "guarantee.json").is_file():
            shown = self.guarantee()
            if isinstance(shown, PublishedGuarantee) and shown.test == "failed":  # there are none, and none will come
                raise TestFailedError(shown.epsilon, shown.delta)
        rows, answers = load_answers(path)
        if (rows >= len(side.public)).any() or (answers.labels >= len(side.classes)).any():
            raise InputError(
                f"{path} has answers for rows or classes that the data do not have: the data have changed since. Put "
                f"the data back, or {or_anew(self.folder)}"
            )
        return rows, answers

    def fresh(self, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        """(n_queries,) whether a row that was asked is a question of its own, and no repeat of a row before it."""
        return ~repeats(self.task.public.X[rows])

    def publish(self, guarantee: Guarantee, rows: NDArray[np.int64], answers: Answers, **facts: Any) -> None:
        """Write guarantee.json; ``facts`` are its fields that do not follow from guarantee and answers."""
        shown = PublishedGuarantee.of(guarantee, answers, fresh=self.fresh(rows), **facts)
        write_json(self.folder / "guarantee.json", shown.to_json())


def published_in(folder: Path) -> PublishedGuarantee | PublishedProbe:
    """What may be published of a run, as `label` wrote it."""
    path = folder / "guarantee.json"
    found = read_json(path, "terrine label")
    try:
        return (PublishedProbe if found.get("route") == "probe" else PublishedGuarantee).from_json(found)
    except InputError as error:
        why = str(error).rstrip(".")
        raise InputError(f"{path} is damaged ({why}). Write it again with: terrine label {folder}") from None


def learns_probe(settings: Settings, folder: Path) -> bool:
    """Whether a run goes by the private probe: its settings say so, or left it open and it was chosen."""
    if isinstance(settings, RunConfig) and settings.privacy.route == "auto" and (folder / ROUTE).is_file():
        return bool(read_json(folder / ROUTE, "terrine run").get("route") == "probe")
    return isinstance(settings, ProbeConfig)


def no_run(folder: Path) -> InputError:
    """What a folder is told that has no settings."""
    if (folder / "model_card.json").is_file():
        return InputError(
            f"{folder} is a student's folder, not a run's: there are no teachers and no probe in it that could be "
            "served or trained on. It needs no service: terrine predict applies it to a file, terrine export makes it "
            "ONNX for other programs. For a service of labels begin a run on the private data: that is a new training, "
            "with an epsilon of its own that adds to this student's."
        )
    return InputError(f"{folder} is no run directory: it has no config.toml. Begin one with: terrine run")


def begin(settings: Settings, folder: Path, *, again: bool = False, name: str | None = None) -> None:
    """Make a run directory, or go on with one; a setting may be corrected until something was made with it.

    Args:
        name: of the settings' file, for the report's commands.
        again: the student's settings may change after it has learned: a new one will be trained.
    """
    check_options(settings)
    check_extras(settings, report=False)
    path = folder / "config.toml"
    restore_folder(folder / "student")
    if path.is_file():
        before = read_settings(path)
        changed = [key for key in differences(settings, before) if not _left_out(key, settings)]
        by_probe = learns_probe(before, folder)
        for key in changed:
            if key.startswith("student.") and not again and _has_learned(folder):
                raise InputError(
                    f"{folder} was begun with a different {key}, and its student has learned. A new student may learn "
                    "from what was released, at no cost in privacy, and take its place: terrine learn SETTINGS.toml "
                    f"--again --out {folder} (with your settings' name). To keep the student, put {key} back."
                )
            if made := _made_with(key, folder, by_probe=by_probe):
                raise InputError(
                    f"{folder} was begun with a different {key}, which cannot change any more: {made}. Put {key} back, "
                    f"or {or_anew(folder)}"
                )
        if changed:
            _forget(changed, folder, by_probe=by_probe)
            if (folder / "student").exists() and any(key.startswith("student.") for key in changed):
                (folder / AGAIN).touch()  # before the settings: a kill between leaves no student of other settings
            _write_settings(path, settings, name)
        for left in folder.glob(".*.tmp"):  # of a run that was killed
            left.unlink(missing_ok=True)
        return
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(
            f"{folder} is no run directory, and it is not empty. Choose a new or an empty folder with --out."
        )
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    folder.chmod(0o700)
    _write_settings(path, settings, name)


def fixed_keys(settings: Settings, folder: Path) -> list[str]:
    """The settings that differ from those a run directory was begun with, and cannot change any more."""
    if not (folder / "config.toml").is_file():
        return []
    before = read_settings(folder / "config.toml")
    by_probe = learns_probe(before, folder)
    changed = (key for key in differences(settings, before) if not _left_out(key, settings))
    return [key for key in changed if _made_with(key, folder, by_probe=by_probe)]


def _left_out(key: str, settings: Settings) -> bool:
    """Runs of an older version were begun with min_units = 1, and keep it where the settings do not name another."""
    return key == "teachers.min_units" and isinstance(settings, RunConfig) and settings.teachers.min_units is None


# Settings that decide neither what is taught, asked or answered, nor what the student is
_ANY_TIME = (
    "data.test",
    "data.units_planned",
    "privacy.accept_large_delta",
    "teachers.executor",
    "teachers.workers",
    "labels.batch",
)
_ANSWERING = ("privacy.", "rounds")  # settings that teachers do not depend on
ROUTE = "route.json"  # of a run that chooses between teachers and a probe: what it chose, once
_DERIVED = ("plan.json", "partition.npz", "partition.key", "features.safetensors", "rows.json", "service.json")


def _has_learned(folder: Path) -> bool:
    """Whether there is a student, and none that is to take its place."""
    return (folder / "student" / "SHA256SUMS").is_file() and not (folder / AGAIN).exists()


def _check_own(folder: Path) -> None:
    from terrine.students.fitted import others_in

    if found := others_in(folder):
        raise InputError(
            f"{folder} also holds {found[0]}, which is no part of the student there. Move it away: a new student takes "
            "the folder's place."
        )


def _made_with(key: str, folder: Path, *, by_probe: bool) -> str | None:
    """What there is that depends on a setting, in words; None where it may still change."""
    if key in _ANY_TIME and not (by_probe and key == "data.units_planned"):
        return None
    if key.startswith("student."):
        return None
    if by_probe:
        return "the training of the probe was charged" if (folder / "ledger.json").exists() else None
    if asks_probe(folder) and any((folder / name).exists() for name in ("request.json", "answers.npz")):
        return "the service's probe was asked for labels"
    for name in ("ledger.json", "ledger.sqlite", "request.json", "answers.npz"):
        if (folder / name).exists():
            return "questions were asked and charged"
    if (folder / "votes.npz").exists():
        return "the teachers have voted"
    if (folder / "teachers").exists() and not key.startswith(_ANSWERING):
        return "teachers have been trained"
    return None


def _forget(changed: list[str], folder: Path, *, by_probe: bool) -> None:
    """Remove what was derived from settings that have changed and that nothing else was made from yet."""
    if not any((folder / name).exists() for name in ("ledger.json", "teachers", "votes.npz")):
        (folder / ROUTE).unlink(missing_ok=True)  # nothing is taught or spent: the choice is still open
    if by_probe and not all(key.startswith("student.") for key in changed):  # even features follow from epsilon
        if not (folder / "ledger.json").exists():
            for name in _DERIVED:
                (folder / name).unlink(missing_ok=True)
        return
    of_privacy = all(key in _ANY_TIME or key.startswith(("student.", *_ANSWERING)) for key in changed)
    if all(key in _ANY_TIME or key.startswith("student.") for key in changed):
        return
    for name in _DERIVED[:1] if of_privacy else _DERIVED:
        (folder / name).unlink(missing_ok=True)


_FROM = "# settings: "  # the first line of config.toml: the name of the file that it was made from


def _write_settings(path: Path, settings: Settings, name: str | None) -> None:
    first = f"{_FROM}{name}\n" if name is not None and name.isprintable() else ""
    write_atomically(path, lambda file: file.write((first + write_config(settings)).encode()))


def settings_name(folder: Path) -> str:
    """The name of the file that a run was begun with; of a run that does not say, the one its folder's name follows."""
    first = (folder / "config.toml").read_text(encoding="utf-8").partition("\n")[0]
    return first.removeprefix(_FROM) if first.startswith(_FROM) else f"{folder.resolve().name}.toml"


def save_answers(path: Path, rows: NDArray[np.int64], answers: Answers) -> None:
    """(n_queries,) public rows, labels and outcomes: public."""
    arrays: dict[str, Any] = {"rows": rows, "labels": answers.labels, "outcomes": answers.outcomes}
    mechanism = "null" if answers.mechanism is None else canonical(mechanism_to_json(answers.mechanism))
    arrays |= {"secure": answers.secure, "mechanism": mechanism, "schema": ANSWERS_SCHEMA}
    write_atomically(path, lambda file: np.savez_compressed(file, **arrays))


def load_answers(path: Path) -> tuple[NDArray[np.int64], Answers]:
    """The public rows that were asked, and what came back."""
    if not path.is_file():
        raise InputError(f"There are no answers yet: no {path}. Get them with: terrine label {path.parent}")
    try:
        with np.load(path, allow_pickle=False) as found:
            if str(found["schema"]) != ANSWERS_SCHEMA:
                raise InputError(
                    f"{path} does not have the schema {ANSWERS_SCHEMA}: a different version of terrine wrote it, or it "
                    f"holds no answers. Move it away, then run: terrine label {path.parent}"
                )
            rows, labels, outcomes = (found[name] for name in ("rows", "labels", "outcomes"))
            _check_answers(rows, labels, outcomes)
            mechanism = json.loads(str(found["mechanism"]))
            answers = Answers(
                labels=labels,
                outcomes=outcomes,
                mechanism=None if mechanism is None else mechanism_from_json(mechanism),
                secure=bool(found["secure"]),
            )
            return rows, answers
    except InputError:
        raise
    except Exception:  # numpy and zipfile raise many types for damaged files
        raise InputError(f"{path} is damaged. Write it again with: terrine label {path.parent}") from None


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
    path: Path, command: str, *, holds: type[BaseModel] = JsonObject, advice: str | None = None
) -> dict[str, Any]:
    """An object from a file of a run; ``holds`` says what must be in it, ``advice`` what to do if it is damaged."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        holds.model_validate(found)
    except FileNotFoundError:
        raise InputError(f"There is no {path} yet. Make it with: {command} {path.parent}") from None
    except ValueError:
        what = advice or f"Write it again with: {command} {path.parent}"
        raise InputError(f"{path} is damaged. {what}") from None
    return dict(found)
