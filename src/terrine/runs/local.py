"""A run directory, from settings to a student: each stage writes whole files, and a rerun goes on where one stopped.

The folder is its owner's (mode 0700): `partition.key`, `partition.npz`, `teachers/`, `failed.json` and `votes.npz` are
secret; what may be shown is `answers.npz`, `guarantee.json`, `student/` and `report.html`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from terrine._files import write_atomically
from terrine.accounting.advice import Advice
from terrine.accounting.consensus import Consensus, consensus
from terrine.budgets import Budget, TestedBudget
from terrine.datasets import PrivateData, PublicData, Task
from terrine.errors import InputError, StoreError, TestFailedError
from terrine.labeller import KeptVotes, Labeller
from terrine.ledger import Ledger
from terrine.ledger.views import Summary
from terrine.mechanisms import Answers, Mechanism
from terrine.partitioning import Partition, new_key, partition
from terrine.published import LedgerHead, PublishedGuarantee
from terrine.relations import Relation
from terrine.runs.anew import or_anew
from terrine.runs.base import (
    ROUTE,
    Answered,
    JsonObject,
    begin,
    learns_probe,
    no_run,
    published_in,
    read_json,
    save_answers,
)
from terrine.runs.baseline import on_private_rows
from terrine.runs.bound import bound_ledger, check_spends, made_ledger
from terrine.runs.config import PrivacyConfig, RunConfig, StudentConfig, read_config
from terrine.runs.cost import tell_cost
from terrine.runs.factories import (
    any_budget_of,
    check_student,
    executor_of,
    mechanism_of,
    planned,
    student_of,
    teacher_of,
)
from terrine.runs.features import FEATURES, check_features, features_digest, features_of
from terrine.runs.features_config import takes_texts
from terrine.runs.probe_plan import check_neighbors, covered
from terrine.runs.ready import advice_of, check_disk
from terrine.runs.rounds import RoundsPlan, advice_on, kept_plan, label_rounds
from terrine.runs.route import settle
from terrine.runs.served import ServedTeachers, keep_rows, kept_rows
from terrine.runs.tasks import task_of
from terrine.runs.tested import fix, planned_chance, publish_failure, refuse_earlier_votes, require_fixed
from terrine.sensitive import Sensitive, unheard
from terrine.teachers import Teacher, TeacherEnsemble, fit_teachers, poll_teachers
from terrine.teachers.ensemble import queries_digest
from terrine.teachers.preflight import Preflight, sample
from terrine.votes import Ballots, Votes

if TYPE_CHECKING:
    from terrine.features import AnyFeatures

Progress = Callable[[float], object]
REQUEST = "run"  # a run asks once
_AT_ONCE = 32  # queries: a kill between charge and answer costs no more, and no more than a tenth of the run's


class _Failed(JsonObject):
    failed: int


class Run(Answered):
    """A run directory.

    Args:
        folder: as `Run.create` made it.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        if not (self.folder / "config.toml").is_file():
            raise no_run(self.folder)
        self.given = read_config(self.folder / "config.toml")
        self._checked = False
        if self.given.privacy.route == "auto":
            self._require_teachers()

    @classmethod
    def create(cls, config: RunConfig | str | Path, folder: str | Path) -> Run:
        """Begin a run, or go on with one of the same settings."""
        settings = config if isinstance(config, RunConfig) else read_config(config)
        begin(settings, Path(folder))
        if settings.privacy.route == "auto":
            settle(settings, Path(folder))
        return cls(folder)

    def _require_teachers(self) -> None:
        if not (self.folder / ROUTE).is_file():
            raise InputError(f"{self.folder} has not chosen its route yet. Choose it with: terrine run {self.folder}")
        if learns_probe(self.given, self.folder):
            raise InputError(
                f"{self.folder} learns a probe ({ROUTE} says why): nobody is taught in it, and nobody votes. Go on "
                f"with: terrine run {self.folder}"
            )

    @cached_property
    def config(self) -> RunConfig:
        """The settings, where a plan was asked for with its numbers: planned once, from public inputs."""
        if self.given.rounds is not None:
            return self.given.model_copy(update={"rounds": self.rounds.rounds})
        if not self.given.privacy.wants_plan:
            return self.given
        path = self.folder / "plan.json"
        if not path.is_file():
            found = planned(self.given, n_classes=len(self.task.classes), n_public=len(self.task.public))
            text = found.model_dump_json(indent=2, exclude_none=True)
            write_atomically(path, lambda file: file.write(text.encode()))
        try:
            privacy = PrivacyConfig.model_validate_json(path.read_bytes())
        except ValidationError:
            raise InputError(f"{path} is damaged. Delete it, and the run plans again.") from None
        return self.given.model_copy(update={"privacy": privacy})

    @cached_property
    def rounds(self) -> RoundsPlan:
        """Of a run in rounds: what each may ask, and the filter that pays for all of them."""
        return kept_plan(self.folder, self.given, task=lambda: self.task)

    @cached_property
    def task(self) -> Task:
        return task_of(self.given.data, run=self.folder, texts=takes_texts(self.given.features))

    @property
    def _rows(self) -> PrivateData:
        assert self.task.private is not None
        return self.task.private

    @property
    def learner(self) -> tuple[StudentConfig, int]:
        return self.config.student, self.config.seed

    def student(self) -> Any:
        """What learns."""
        return student_of(self.config.student, features=None if self.config.features is None else self._features)

    @property
    def mechanism(self) -> Mechanism:
        """What answers; of a run in rounds, in the first of them."""
        return mechanism_of(self.config.privacy) if self.given.rounds is None else self.rounds.planned[0].mechanism

    def teach(self, *, progress: Progress | None = None) -> Partition:
        """Deal the rows to teachers and, if they are kept, train them; only what is missing.

        A teacher that cannot learn from public rows with made-up labels is refused before a private row is dealt.
        """
        self.check()
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
                public=self._public_sample,
                progress=progress,
            )
            seen = {} if self.config.features is None else {"features": features_digest(self.folder)}
            keep_rows(self.folder, self.task.public.X, **seen)
        return shares

    @cached_property
    def advice(self) -> Advice:
        """Whether the plan will work: from public numbers only, so that it may be shown."""
        if self.given.rounds is not None:
            return advice_on(self.given, self.rounds, self.task)
        return advice_of(self.given, any_budget_of(self.config, n_classes=len(self.task.classes)), self.task)

    def check(self) -> None:
        """Refuse what would fail, or be of no use, after something is taught or spent; where it is spent, go on."""
        if self._checked or (self.folder / "ledger.json").exists():
            return
        check_neighbors(self._rows, self.given)
        self.advice.check()
        taught = (self.folder / "partition.npz").is_file()
        each = 0 if taught else self._preflight().check()
        n_classes = len(self.task.classes)
        in_rounds = self.given.rounds is not None
        limit = self.rounds.limit if in_rounds else any_budget_of(self.config, n_classes=n_classes).limit
        teachers_bytes = each * self.config.teachers.number
        check_disk(self.folder, limit, n_classes=n_classes, teachers_bytes=teachers_bytes)
        self.try_student(n_answers=limit.answers)
        self._checked = True

    def partition(self) -> Partition:
        """Which teacher sees which rows: dealt once, and refused where the rows or their units have changed since."""
        path = self.folder / "partition.npz"
        if path.is_file():
            shares = Partition.load(path)
            if not self._fits(shares):
                raise InputError(
                    f"The private data have changed since {path} was made: its rows and units are not these. Put the "
                    f"data back, or {or_anew(self.folder)}"
                )
            return shares
        if not self._key.is_file():
            write_atomically(self._key, lambda file: file.write(new_key()), mode=0o600)
        shares = self._dealt(min_units=self.config.teachers.min_units)
        shares.save(path)
        return shares

    @property
    def _key(self) -> Path:
        return self.folder / "partition.key"

    def _dealt(self, *, min_units: int | None) -> Partition:
        settings, key = self.config.teachers, self._key.read_bytes()
        return partition(
            self._rows, n_teachers=settings.number, method=settings.partition, key=key, min_units=min_units
        )

    def _fits(self, shares: Partition) -> bool:
        """Whether the key deals the private rows so; without the key, whether each unit is with one teacher."""
        private = self._rows
        if len(shares) != len(private) or shares.n_teachers != self.config.teachers.number:
            return False
        if self._key.is_file():
            dealt = self._dealt(min_units=0)
            return dealt.relation == shares.relation and bool((dealt.assignment == shares.assignment).all())
        if private.unit is not None:
            shares.check(private.unit)
        return (shares.relation == Relation.ROW_REPLACED) == (private.unit is None)

    def asked(self) -> NDArray[np.int64]:
        """(n_queries,) which public rows are put to the teachers: a public choice."""
        n_public, n_queries = len(self.task.public), self._n_asked
        if n_queries > n_public:
            raise InputError(f"privacy.queries must be at most {n_public}, the public rows, got {n_queries}.")
        match self.config.privacy.ask:
            case "first":
                return np.arange(n_queries)
            case "random":
                order = np.random.default_rng([self.config.seed, 1]).permutation(n_public)
                return order[:n_queries]
            case _:
                from terrine.features import Features, representative_rows

                found = self._features()
                known = found if isinstance(found, Features) else found.transform(self.task.public)
                return representative_rows(known, n_queries, seed=self.config.seed)

    @property
    def _n_asked(self) -> int:
        """Rows that are put to the teachers; rounds may ask one twice, and they vote on it once."""
        if self.given.rounds is not None:
            return min(self.rounds.limit.queries, len(self.task.public))
        assert self.config.privacy.queries is not None
        return self.config.privacy.queries

    def vote(self, *, progress: Progress | None = None) -> Votes:
        """The teachers' votes on the rows that are asked. Secret."""
        path = self.folder / "votes.npz"
        if path.is_file():
            votes = Votes.load(path)
            if len(votes) != self._n_asked:
                raise InputError(f"{path} is not on the rows that this run asks about. Move it away, and vote again.")
            return votes
        fix(self)
        rows = self._queries()
        executor = executor_of(self.config.teachers)
        if self.config.teachers.keep:
            votes = self.ensemble().vote(rows, executor=executor, progress=progress, watched=False)
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
                tell_failed=self._keep_failed,
            )
        votes.save(path)
        return votes

    def failed_teachers(self) -> Sensitive[int] | None:
        """How many teachers could not learn from their share and vote for class 0; None before they were taught."""
        if self.config.teachers.keep:
            return self.ensemble().n_failed if (self.folder / "teachers").is_dir() else None
        path = self.folder / "failed.json"
        return Sensitive(int(read_json(path, "terrine vote", holds=_Failed)["failed"])) if path.is_file() else None

    def _keep_failed(self, n: Sensitive[int]) -> None:
        data = f'{{"failed": {n.reveal():10d}}}\n'.encode()  # to a file that is secret, of one size
        write_atomically(self.folder / "failed.json", lambda file: file.write(data), mode=0o600)

    def ballots(self, *, progress: Progress | None = None) -> Ballots:
        """Each teacher's vote on the rows that are asked: this owner's part of a vote of several. Secret."""
        fix(self)
        rows = self._queries()
        return self.ensemble().ballots(rows, executor=executor_of(self.config.teachers), progress=progress)

    def take_votes(self, votes: Votes) -> None:
        """Use a vote of several owners, tallied from their ballots on the rows that this run asks."""
        require_fixed(self)
        if (self.folder / "answers.npz").is_file():
            raise InputError(
                f"{self.folder} has answers already, from the votes before. Keep them, or {or_anew(self.folder)}"
            )
        fits = len(votes) == self._n_asked and votes.n_classes == len(self.task.classes)
        if not fits or votes.queries != queries_digest(self._queries().X):
            raise InputError(
                "These votes are not on the rows and classes that this run asks about. Tally ballots of runs with the "
                "same public rows, classes, seed, [features] and [privacy]."
            )
        relation = self.budget().relation
        if votes.relation is None or not votes.relation.covers(relation):
            raise InputError(
                f"This run protects neighbors in the sense of {relation.sentence!r}, and the votes "
                f"{votes.relation and votes.relation.sentence!r}. Use teachers.partition and data.unit in the same way "
                "in every owner's run."
            )
        votes.save(self.folder / "votes.npz")

    def ensemble(self) -> TeacherEnsemble:
        """The teachers that are kept, every file verified."""
        folder = self.folder / "teachers"
        if not self.config.teachers.keep:
            raise StoreError(
                f"This run has teachers.keep = false, and kept none. Do without, or, with keep = true, "
                f"{or_anew(self.folder)}"
            )
        if not folder.is_dir():
            raise StoreError(f"There are no teachers in {folder} yet. Train them with: terrine teach {self.folder}")
        return TeacherEnsemble.load(folder, self._teacher)

    def voters(self) -> ServedTeachers:
        """The teachers that are kept, in memory, to be asked about any row. Needs no private data."""
        rows = kept_rows(self.folder)
        see = self._seen if self.config.features is not None else None
        return ServedTeachers(self.ensemble().in_memory(), row_shape=rows.shape, dtype=rows.dtype, see=see)

    def guarantee(self) -> PublishedGuarantee:
        """What may be published, as `label` wrote it."""
        shown = published_in(self.folder)
        assert isinstance(shown, PublishedGuarantee)
        return shown

    def ledger(self, where: str | Path | None = None) -> Ledger:
        """The one ledger that pays for this run's answers: made when first asked for, and never again.

        Args:
            where: a file or URL; where it is left out, `ledger_place` says which.
        """
        if (ledger := bound_ledger(self.folder, where)) is None:
            refuse_earlier_votes(self.folder, budget := self.budget())
            budget = planned_chance(budget, self.given.privacy.consensus)
            ledger = made_ledger(self.folder, budget, where)
        known = ledger.budget.n_classes if isinstance(ledger.budget, TestedBudget) else None  # without the data
        check_spends(self.folder, ledger, self.budget(n_classes=known))
        return ledger

    def summary(self) -> Summary:
        """The ledger's public numbers."""
        with self.ledger() as ledger:
            return ledger.summary()

    def consensus(self) -> Sensitive[Consensus]:
        """How well the teachers agree and, where public labels are known, how right they are. Secret."""
        known = self.task.public_y
        return consensus(self.vote(), truth=None if known is None else known[self.asked()])

    def budget(self, *, n_classes: int | None = None) -> Budget:
        """What this run may spend, fixed before the first question."""
        path = self.folder / "partition.npz"
        shares = Partition.load(path) if path.is_file() else self.partition()  # the former reads no private rows
        relation = covered(shares.relation, self.given)
        if self.given.rounds is not None:
            return self.rounds.budget(delta=self.given.privacy.delta, relation=relation)
        if n_classes is None and self.config.privacy.route == "tested":
            n_classes = len(self.task.classes)
        return any_budget_of(self.config, n_classes=n_classes or 0, relation=relation)

    def label(self, *, progress: Progress | None = None) -> Answers:
        """Put the rows to the teachers' votes through the mechanism: charged on disk first, then answered."""
        check_student(self.config.student)
        self.check()
        if self.given.rounds is not None:
            return label_rounds(self, progress=progress, at_once=_AT_ONCE)
        rows = self.asked()
        X = self.task.public.X[rows]
        voters = KeptVotes(X, self.vote(), classes=self.task.classes)
        with self.ledger() as ledger:
            labeller = Labeller(voters, self.mechanism, ledger, at_once=min(_AT_ONCE, -(-len(X) // 10)))
            try:
                answers = labeller.label(X, request_id=REQUEST, progress=progress)
            except TestFailedError:
                publish_failure(self, ledger)
                raise
            # The guarantee is for all that the ledger ever answered: seeded noise anywhere in it voids it
            paid = ledger.summary()
            answers = replace(answers, secure=answers.secure and paid.secure)
        save_answers(self.folder / "answers.npz", rows, answers)
        self.publish(
            paid.budget.guarantee(),
            rows,
            answers,
            n_teachers=voters.n_teachers,
            queries_at_most=paid.budget.limit.queries,
            answers_at_most=paid.budget.limit.answers,
            ledger=LedgerHead(id=paid.ledger_id, head=paid.head),
            test=paid.test,
        )
        tell_cost(self)
        return answers

    def baseline(self, *, progress: Progress | None = None) -> Sensitive[dict[str, Any]] | None:
        """The student's learner on the private rows themselves, for comparison; None without test labels. Secret."""
        return on_private_rows(self.student(), self.task, self.config, progress=progress)

    @property
    def _teacher(self) -> Teacher:
        return teacher_of(self.config.teachers)

    def own_features(self) -> Any:
        """Features by an encoder of the user's own, which a student may not carry; None where there is none."""
        return self._features() if self.config.features is not None and self.config.features.own else None

    def _features(self) -> AnyFeatures:
        """What the student sees of a row: as the teachers do."""
        return self._made_features

    @cached_property
    def _made_features(self) -> AnyFeatures:
        """Learned once from the public rows, and kept."""
        settings = self.config.features
        assert settings is not None
        made = features_of(
            settings,
            self.task.public,
            seed=self.config.seed,
            device=self.config.teachers.device,
            kept=self.folder / FEATURES,
        )
        check_features(self.folder)
        return made

    def _private(self) -> PrivateData:
        """What teachers see of the private rows: the rows, or a public function of each of them."""
        data = self._rows
        if self.config.features is None:
            return data
        with unheard():
            seen = self._seen(data.X)
            odd = ~np.isfinite(seen).all(axis=tuple(range(1, seen.ndim)))
            seen[odd] = 0  # a function of the row, where an error would tell that there is one
        return PrivateData(seen, data.y, unit=data.unit, unlabelled_ok=True)

    @cached_property
    def _public_sample(self) -> PublicData:
        """Some public rows as teachers see them, to try one on."""
        X = sample(self.task.public.X)
        return PublicData(X if self.config.features is None else self._seen(X))

    def _preflight(self) -> Preflight:
        public = self._public_sample.X
        return Preflight(
            teacher=self._teacher,
            row_shape=public.shape[1:],
            dtype=self._rows.X.dtype if self.config.features is None else public.dtype,
            n_classes=len(self.task.classes),
            public=public,
            keep=self.config.teachers.keep,
        )

    def _queries(self) -> PublicData:
        """What teachers see of the public rows that are asked."""
        X = self.task.public.X[self.asked()]
        return PublicData(X if self.config.features is None else self._seen(X))

    def _seen(self, X: NDArray[Any]) -> NDArray[np.float32]:
        return self._features().transform(X)
