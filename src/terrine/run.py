"""A run directory, from settings to a student: each stage writes whole files, and a rerun goes on where one stopped.

The folder is its owner's (mode 0700): `partition.key`, `partition.npz`, `teachers/` and `votes.npz` are secret; what
may be shown is `answers.npz`, `guarantee.json`, `student/` and `report.html`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from terrine._files import write_atomically
from terrine.accounting.curves import ONE_TEACHER
from terrine.budgets import CountBudget, canonical, mechanism_from_json, mechanism_to_json
from terrine.build import Task, executor_of, mechanism_of, planned, student_of, task_of, teacher_of
from terrine.config import PrivacyConfig, RunConfig, differences, read_config, write_config
from terrine.datasets import PrivateData, PublicData
from terrine.errors import InputError, StoreError
from terrine.labeller import KeptVotes, Labeller
from terrine.ledger import Ledger
from terrine.mechanisms import ABSTAIN, Answers, Mechanism, Outcome
from terrine.partition import Partition, new_key, partition
from terrine.sensitive import Sensitive
from terrine.teachers import TeacherEnsemble, fit_teachers, poll_teachers
from terrine.teachers.ensemble import Teacher
from terrine.votes import Ballots, Votes

if TYPE_CHECKING:
    from terrine.features import Features

Progress = Callable[[float], object]
REQUEST = "run"  # a run asks once
ANSWERS_SCHEMA = "terrine.answers/1"


class Run:
    """A run directory.

    Args:
        folder: as `Run.create` made it.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        if not (self.folder / "config.toml").is_file():
            raise InputError(f"Expected a run directory, got {self.folder}, which has no config.toml.")
        self.given = read_config(self.folder / "config.toml")

    @classmethod
    def create(cls, config: RunConfig | str | Path, folder: str | Path) -> Run:
        """Begin a run, or go on with one of the same settings."""
        settings = config if isinstance(config, RunConfig) else read_config(config)
        folder = Path(folder)
        if (folder / "config.toml").is_file():
            found = cls(folder)
            if other := differences(settings, found.given):
                raise InputError(
                    f"Expected a run directory of these settings, got {folder} with another {other[0]}; "
                    "name a new one, or put the setting back."
                )
            for left in folder.glob(".*.tmp"):  # of a run that was killed
                left.unlink(missing_ok=True)
            return found
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise InputError(f"Expected a new or empty run directory, got {folder} with other files.")
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        folder.chmod(0o700)
        write_atomically(folder / "config.toml", lambda file: file.write(write_config(settings).encode()))
        return cls(folder)

    @cached_property
    def config(self) -> RunConfig:
        """The settings, where a plan was asked for with its numbers: planned once, from public inputs."""
        if self.given.privacy.mechanism is not None:
            return self.given
        path = self.folder / "plan.json"
        if not path.is_file():
            found = planned(self.given, n_classes=len(self.task.classes), n_public=len(self.task.public))
            text = found.model_dump_json(indent=2, exclude_none=True)
            write_atomically(path, lambda file: file.write(text.encode()))
        try:
            privacy = PrivacyConfig.model_validate_json(path.read_bytes())
        except ValidationError:
            raise InputError(f"Expected a plan in {path}, got a damaged file; delete it to plan again.") from None
        return self.given.model_copy(update={"privacy": privacy})

    @cached_property
    def task(self) -> Task:
        return task_of(self.given)

    @property
    def mechanism(self) -> Mechanism:
        return mechanism_of(self.config.privacy)

    def teach(self, *, progress: Progress | None = None) -> Partition:
        """Deal the rows to teachers and, if they are kept, train them; only what is missing."""
        shares = self.partition()
        if self.config.teachers.keep:
            fit_teachers(
                self._private(),
                shares,
                self._teacher,
                classes=self.task.classes,
                seed=self.config.seed,
                first_id=self.config.teachers.first_id,
                executor=executor_of(self.config.teachers),
                store=self.folder / "teachers",
                progress=progress,
            )
        return shares

    def partition(self) -> Partition:
        path = self.folder / "partition.npz"
        if path.is_file():
            shares = Partition.load(path)
            if len(shares) != len(self.task.private) or shares.n_teachers != self.config.teachers.number:
                raise InputError(f"Expected {path.name} of these rows, got one of other rows: the data have changed.")
            return shares
        key = self.folder / "partition.key"
        if not key.is_file():
            write_atomically(key, lambda file: file.write(new_key()), mode=0o600)
        settings = self.config.teachers
        shares = partition(
            self.task.private,
            n_teachers=settings.number,
            method=settings.partition,
            key=key.read_bytes(),
            min_units=settings.min_units,
        )
        shares.save(path)
        return shares

    def asked(self) -> NDArray[np.int64]:
        """(n_queries,) which public rows are put to the teachers: a public choice."""
        privacy, n_public = self.config.privacy, len(self.task.public)
        assert privacy.queries is not None
        if privacy.queries > n_public:
            raise InputError(f"Expected privacy.queries of at most {n_public}, the public rows, got {privacy.queries}.")
        match privacy.ask:
            case "first":
                return np.arange(privacy.queries)
            case "random":
                order = np.random.default_rng([self.config.seed, 1]).permutation(n_public)
                return order[: privacy.queries]
            case _:
                from terrine.features import representative_rows

                return representative_rows(self._learned, privacy.queries, seed=self.config.seed)

    def vote(self, *, progress: Progress | None = None) -> Votes:
        """The teachers' votes on the rows that are asked. Secret."""
        path = self.folder / "votes.npz"
        if path.is_file():
            votes = Votes.load(path)
            if len(votes) != self.config.privacy.queries:
                raise InputError(f"Expected votes on {self.config.privacy.queries} rows, got {path.name} on others.")
            return votes
        rows = self._queries()
        executor = executor_of(self.config.teachers)
        if self.config.teachers.keep:
            votes = self.ensemble().vote(rows, executor=executor, progress=progress)
        else:
            votes = poll_teachers(
                self._private(),
                self.partition(),
                self._teacher,
                rows,
                classes=self.task.classes,
                seed=self.config.seed,
                first_id=self.config.teachers.first_id,
                executor=executor,
                progress=progress,
            )
        votes.save(path)
        return votes

    def ballots(self, *, progress: Progress | None = None) -> Ballots:
        """Each teacher's vote on the rows that are asked: this owner's part of a vote of several. Secret."""
        rows = self._queries()
        return self.ensemble().ballots(rows, executor=executor_of(self.config.teachers), progress=progress)

    def take_votes(self, votes: Votes) -> None:
        """Use a vote of several owners, on the same rows, for the next stages."""
        if len(votes) != self.config.privacy.queries or votes.n_classes != len(self.task.classes):
            raise InputError(f"Expected votes on {self.config.privacy.queries} rows, got votes on others.")
        votes.save(self.folder / "votes.npz")

    def ensemble(self) -> TeacherEnsemble:
        """The teachers that are kept, every file verified."""
        folder = self.folder / "teachers"
        if not folder.is_dir():
            raise StoreError(f"Expected teachers in {folder}, got none; run: terrine teach {self.folder}")
        return TeacherEnsemble.load(folder, self._teacher)

    def consensus(self) -> Sensitive[dict[str, Any]]:
        """How well the teachers agree and, where public labels are known, how right they are. Secret."""
        votes = self.vote()
        counts = votes.counts
        top = counts.max(axis=1)
        share, edges = np.histogram(top / votes.n_teachers, bins=20, range=(0, 1))
        found: dict[str, Any] = {
            "mean_top_vote": float(top.mean()),
            "n_teachers": votes.n_teachers,
            "histogram": {"edges": edges.tolist(), "queries": share.tolist()},
        }
        if self.task.public_y is not None:
            truth = self.task.public_y[self.asked()]
            found["plurality_accuracy"] = float((counts.argmax(axis=1) == truth).mean())
            found["mean_teacher_accuracy"] = float(counts[np.arange(len(truth)), truth].mean() / votes.n_teachers)
        return Sensitive(found)

    def budget(self) -> CountBudget:
        return budget_of(self.config.privacy, relation=self.partition().relation)

    def label(self, *, progress: Progress | None = None) -> Answers:
        """Put the rows to the teachers' votes through the mechanism: charged on disk first, then answered."""
        rows = self.asked()
        X = self.task.public.X[rows]
        budget = self.budget()
        voters = KeptVotes(X, self.vote(), classes=self.task.classes)
        with Ledger(self.folder / "ledger.sqlite", budget=budget) as ledger:
            answers = Labeller(voters, self.mechanism, ledger).label(X, request_id=REQUEST, progress=progress)
        save_answers(self.folder / "answers.npz", rows, answers)
        shown = {
            **asdict(budget.guarantee()),
            "publishable": True,
            "mechanism": mechanism_to_json(self.mechanism),
            "n_teachers": voters.n_teachers,
            "queries_at_most": budget.n_queries,
            "answers_at_most": budget.n_answers,
            "answered": answers.n_answered,
            "withheld": int((answers.outcomes == Outcome.ABSTAINED).sum()),
            "unasked": int((answers.outcomes == Outcome.UNASKED).sum()),
            "secure_noise": answers.secure,
        }
        _write_json(self.folder / "guarantee.json", shown)
        return answers

    def learn(self, *, progress: Progress | None = None) -> dict[str, Any]:
        """Train the student on public rows and answers; its folder carries the guarantee. Public facts of it."""
        from terrine.students import fit_student, load_student

        folder = self.folder / "student"
        if (folder / "SHA256SUMS").is_file():
            student = load_student(folder)
        else:
            rows, answers = load_answers(self.folder / "answers.npz")
            labels = np.full(len(self.task.public), ABSTAIN, dtype=np.int64)
            labels[rows] = answers.labels
            student = fit_student(
                student_of(self.config.student),
                self.task.public,
                replace(answers, labels=labels, outcomes=_spread(answers.outcomes, rows, len(labels))),
                classes=self.task.classes,
                seed=self.config.seed,
                progress=progress,
            )
            student.save(folder, card=self.guarantee())
        facts = {"kind": self.config.student.kind, "settings": dict(student.about.settings), **self._evaluated(student)}
        _write_json(self.folder / "student.json", facts)
        return facts

    def guarantee(self) -> dict[str, Any]:
        """What may be published, as `label` wrote it."""
        return _read_json(self.folder / "guarantee.json", "terrine label")

    def student_facts(self) -> dict[str, Any] | None:
        """What `learn` found, or None where there is no student yet."""
        path = self.folder / "student.json"
        return _read_json(path, "terrine learn") if path.is_file() else None

    def baseline(self, *, progress: Progress | None = None) -> Sensitive[dict[str, Any]] | None:
        """The student's learner on the private rows themselves, for comparison; None without test labels. Secret."""
        if self.task.test_y is None:
            return None
        from terrine.students import fit_student

        private = self.task.private
        learner = fit_student(
            student_of(self.config.student),
            private.X,
            private.y,
            classes=self.task.classes,
            seed=self.config.seed,
            progress=progress,
        )
        accuracy = self._evaluated(learner)["accuracy"]
        return Sensitive({"accuracy": accuracy, "kind": f"{self.config.student.kind}, on the private rows"})

    def _evaluated(self, student: Any) -> dict[str, Any]:
        """Accuracy on the test rows, where there are labels for it, with a 95% interval (Wilson)."""
        X, y = self.task.test_X, self.task.test_y
        if X is None or y is None:
            return {"accuracy": None, "n_test": None, "interval": None, "per_class": None}
        right = student.predict(X) == y
        per_class = {name: _mean(right[y == k]) for k, name in enumerate(self.task.classes)}
        interval = wilson(int(right.sum()), len(right))
        return {"accuracy": float(right.mean()), "n_test": len(right), "interval": interval, "per_class": per_class}

    @property
    def _teacher(self) -> Teacher:
        return teacher_of(self.config.teachers)

    @cached_property
    def _learned(self) -> Features:
        """Features learned once from the public rows, and kept."""
        from terrine.features import FeatureRecipe, Features, fit_features

        path = self.folder / "features.safetensors"
        if path.is_file():
            return Features.load(path)
        assert self.config.features is not None
        try:
            recipe = FeatureRecipe(**self.config.features.options)
        except TypeError as error:
            raise InputError(f"Expected other features.options, got: {error}.") from None
        found = fit_features(self.task.public, recipe=recipe, seed=self.config.seed, device=self.config.teachers.device)
        found.save(path)
        return found

    def _private(self) -> PrivateData:
        """What teachers see of the private rows: the rows, or a public function of each of them."""
        data = self.task.private
        return data if self.config.features is None else PrivateData(self._seen(data.X), data.y, unit=data.unit)

    def _queries(self) -> PublicData:
        """What teachers see of the public rows that are asked."""
        X = self.task.public.X[self.asked()]
        return PublicData(X if self.config.features is None else self._seen(X))

    def _seen(self, X: NDArray[Any]) -> NDArray[np.float32]:
        assert self.config.features is not None
        if self.config.features.kind == "edges":
            from terrine.features.edges import edges

            return edges(X)
        return self._learned.transform(X)


def budget_of(privacy: PrivacyConfig, *, relation: str = ONE_TEACHER) -> CountBudget:
    assert privacy.queries is not None
    answers = privacy.answers if privacy.mechanism == "confident" else None
    return CountBudget(
        mechanism_of(privacy), n_queries=privacy.queries, n_answers=answers, delta=privacy.delta, relation=relation
    )


def dry_run(source: str | Path) -> dict[str, Any]:
    """What a run would do and what that can cost at worst; nothing is written."""
    path = Path(source)
    given = Run(path).given if path.is_dir() else read_config(path)
    task, privacy = task_of(given), given.privacy
    if privacy.mechanism is None:
        privacy = planned(given, n_classes=len(task.classes), n_public=len(task.public))
    if privacy.queries is not None and privacy.queries > len(task.public):
        raise InputError(
            f"Expected privacy.queries of at most {len(task.public)}, the public rows, got {privacy.queries}."
        )
    budget = budget_of(privacy)
    return {
        "data": given.data.name or "own data",
        "classes": len(task.classes),
        "public_rows": len(task.public),
        "teachers": given.teachers.number,
        "teacher": given.teachers.kind,
        "mechanism": mechanism_to_json(budget.mechanism),
        "queries_at_most": budget.n_queries,
        "answers_at_most": budget.n_answers,
        "student": given.student.kind,
        "guarantee": asdict(budget.guarantee()),
    }


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
            answers = Answers(
                labels=found["labels"],
                outcomes=found["outcomes"],
                mechanism=mechanism_from_json(json.loads(str(found["mechanism"]))),
                secure=bool(found["secure"]),
            )
            return found["rows"], answers
    except InputError:
        raise
    except Exception:  # numpy and zipfile raise many types for damaged files
        raise InputError(f"Expected answers in {path}, got a damaged file; run: terrine label {path.parent}") from None


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


def _write_json(path: Path, value: dict[str, Any]) -> None:
    text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    write_atomically(path, lambda file: file.write(text.encode()))


def _read_json(path: Path, command: str) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"Expected {path}, got no such file; run: {command} {path.parent}") from None
    except ValueError:
        raise InputError(f"Expected {path} in JSON, got a damaged file; run: {command} {path.parent}") from None
    return found
