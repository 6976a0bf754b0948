"""A run by the private probe: features, one training on the run's ledger, labels of all public rows, a student.

Nobody is taught and nobody votes. Of its files `private.sha256` is secret, and `config.toml` has the full paths of its
owner's files; all others may be shown.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from terrine._files import write_atomically
from terrine._validate import other_schema
from terrine.accounting.advice import Advice
from terrine.datasets import PrivateData, PublicData, Task
from terrine.errors import InputError, LedgerError, StoreError
from terrine.ledger import Ledger
from terrine.ledger.views import Summary
from terrine.probe import Probe, ProbeRows, fit_probe
from terrine.probe.exact import LATTICE_BITS
from terrine.probe.fit import made_by, refuse_other
from terrine.probe.same_rows import same_rows
from terrine.probe.sureness import sureness
from terrine.published import LedgerHead, PublishedProbe
from terrine.runs.anew import or_anew
from terrine.runs.base import JsonObject, Learning, begin, learns_probe, published_in, read_json, write_json
from terrine.runs.bound import bound_ledger, check_spends, made_ledger, there_already
from terrine.runs.config import ProbeConfig, RunConfig, StudentConfig, read_settings
from terrine.runs.factories import check_student, student_of
from terrine.runs.features import FEATURES, check_features, features_digest, features_of
from terrine.runs.features_config import takes_texts
from terrine.runs.probe_plan import (
    People,
    ProbePlan,
    advice_on_probe,
    features_config,
    people_of,
    plan_probe,
    seen_by_probe,
)
from terrine.runs.ready import check_room
from terrine.runs.served import ROWS, keep_rows, kept_rows
from terrine.runs.tasks import public_labels_of, task_of
from terrine.schema.tables import UNIT_COLUMN
from terrine.sensitive import unheard
from terrine.service.probe_labels import ProbeLabels
from terrine.service.schemas import TRAINING

if TYPE_CHECKING:
    from terrine.features import AnyFeatures
    from terrine.students import FittedStudent

Progress = Callable[[float], object]
LABELS_SCHEMA = "terrine.soft-labels/1"
_SAME = 1e-3  # of a probability: what another machine's rounding of features makes of it, by far
_ROWS = 65_536  # private rows whose features are made at once


class _Classes(JsonObject):
    classes: list[str]


class ProbeRun(Learning):
    """A run directory with route = "probe" in its settings, or with "auto" where the probe was chosen.

    Args:
        folder: as `ProbeRun.create` made it.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        found = read_settings(self.folder / "config.toml")
        if not learns_probe(found, self.folder) or not isinstance(found, ProbeConfig | RunConfig):
            raise InputError(f'{self.folder} is no run by the probe: its settings do not have route = "probe".')
        self.given = found
        self.config = found if isinstance(found, ProbeConfig) else ProbeConfig.of(found)
        self._prepared: ProbeRows | None = None

    @classmethod
    def create(cls, config: ProbeConfig | RunConfig, folder: str | Path) -> ProbeRun:
        """Begin a run, or go on with one of the same settings."""
        begin(config, Path(folder))
        return cls(folder)

    @cached_property
    def task(self) -> Task:
        return task_of(self.config.data, run=self.folder, texts=takes_texts(self.config.features))

    @cached_property
    def people(self) -> People:
        """Whom the guarantee is for, and how many are planned with."""
        assert self.task.private is not None
        return people_of(self.task.private, self.given)

    @property
    def learner(self) -> tuple[StudentConfig, int]:
        return self.config.student, self.config.seed

    def student(self) -> Any:
        """What learns from the probe's labels."""
        return student_of(self.config.student, features=lambda: self.features)

    @cached_property
    def features(self) -> AnyFeatures:
        """What the probe sees of a row: made once, from public rows, and kept."""
        kept = self.folder / "features.safetensors"
        settings = self.config.features if kept.is_file() else features_config(self.config, self.people)
        return features_of(settings, self.task.public, seed=self.config.seed, device="auto", kept=kept)

    @cached_property
    def plan(self) -> ProbePlan:
        """Made once, from public inputs: another machine would round its numbers otherwise."""
        path = self.folder / "plan.json"
        if not path.is_file():
            made = plan_probe(self.config, self.people, self.task.public, self.features, len(self.task.classes))
            write_json(path, made.to_json())
        try:
            return ProbePlan.from_json(read_json(path, "terrine teach"))
        except (InputError, KeyError, TypeError, ValueError):
            raise InputError(
                f"{path} is damaged. Put it back as it was; before the first step it may be deleted."
            ) from None

    @cached_property
    def advice(self) -> Advice:
        """Whether it will work: from public numbers only, so that it may be shown."""
        return advice_on_probe(self.config, self.people)

    def check(self) -> None:
        """Refuse what would fail, or be of no use, after epsilon is spent; where it is spent, go on."""
        if (self.folder / "ledger.json").exists():
            return
        if any((self.folder / name).exists() for name in ("partition.npz", "votes.npz")):
            raise InputError(
                f"Teachers have been taught in {self.folder}. Begin the run by the probe in a new folder, with --out. "
                "Every run on the same people spends its own epsilon, on top of the others'."
            )
        self.advice.check()
        budget = self.plan.budget
        if (there := there_already(self.folder, budget)) is not None:
            with there:
                state = there.training.state()
                refuse_other(state, self.plan.settings)
                if state is not None and not (self.folder / f"training-{there.id}").is_dir():
                    raise LedgerError(
                        "The ledger pays for one training only, and another run's is charged to it, with the same "
                        f"settings. Go on in that run's folder, or name a new ledger for {self.folder}: its epsilon "
                        "and delta add to this one's."
                    )
        needed = 8 * budget.dimension * (budget.steps + 2)
        check_room(self.folder, needed, what="the training", free=shutil.disk_usage(self.folder).free)
        if self.config.student.kind != "probe":
            self.try_student(n_answers=len(self.task.public))

    def ledger(self, where: str | Path | None = None) -> Ledger:
        """The one ledger that pays for this run's training: made when first asked for, and never again.

        Args:
            where: a file or URL; where it is left out, `ledger_place` says which.
        """
        ledger = bound_ledger(self.folder, where) or made_ledger(self.folder, self.plan.budget, where)
        check_spends(self.folder, ledger, self.plan.budget)
        return ledger

    def summary(self) -> Summary:
        """The ledger's public numbers."""
        with self.ledger() as ledger:
            return ledger.summary()

    def prepare(self, *, progress: Progress | None = None) -> None:
        """Check the run, and make what the probe sees of private rows: it may take longer than the training."""
        if self._taught or self._prepared is not None:
            return
        check_student(self.config.student)
        self.check()
        private = self._unchanged()
        seen = self._seen(private, progress=progress)
        self._prepared = ProbeRows(seen, private.y, private.unit, n_classes=len(self.task.classes))

    def teach(self, *, progress: Progress | None = None) -> Probe:
        """Train the probe: charged whole before its first step. What a kill left of it goes on."""
        if self._taught:
            return self.probe()
        self.prepare()
        rows, self._prepared = self._prepared, None  # private: kept no longer than they are needed
        assert rows is not None
        with self.ledger() as ledger:
            found = fit_probe(
                rows,
                settings=self.plan.settings,
                ledger=ledger,
                progress=None if progress is None else lambda step, steps: progress(step / steps),
            )
        keep_rows(self.folder, self.task.public.X, classes=self.task.classes, features=features_digest(self.folder))
        found.save(self._probe_path)
        return found

    def probe(self) -> Probe:
        """The trained probe: public."""
        if not self._probe_path.is_file():
            raise StoreError(f"There is no probe in {self.folder} yet. Train it with: terrine teach {self.folder}")
        return Probe.load(self._probe_path)

    def label(self, *, progress: Progress | None = None) -> NDArray[np.float64]:
        """Soft labels of all public rows, which cost nothing more, and the guarantee of everything."""
        probe = self.probe()
        with self.ledger() as ledger:
            own, paid = made_by(ledger, probe, folder=self.folder), ledger.summary()
        if not own:
            raise InputError(
                f"{self._probe_path} is not the probe that the ledger of {self.folder} paid for. Put back the ledger "
                "or the file. Where the ledger is the right one, delete the file, and make it again from the steps "
                f"that are kept: terrine teach {self.folder}"
            )
        found = probe.predict_proba(self._public)
        arrays = {"proba": found, "labels": found.argmax(axis=1).astype(np.int64), "schema": np.array(LABELS_SCHEMA)}
        write_atomically(self.folder / "answers.npz", lambda file: np.savez_compressed(file, **arrays))
        shown = self._published(probe, paid, labeled=len(found), unit=self.unit_column)
        write_json(self.folder / "guarantee.json", shown.to_json())
        if progress is not None:
            progress(1.0)
        return found

    def labels(self) -> NDArray[np.float64]:
        """(n_public, n_classes) as `label` wrote them."""
        path = self.folder / "answers.npz"
        again = f"Write it again with: terrine label {self.folder}"
        if not path.is_file():
            raise InputError(f"There are no labels yet: no {path}. Get them with: terrine label {self.folder}")
        try:
            with np.load(path, allow_pickle=False) as found:
                arrays = dict(found)
        except (OSError, ValueError):
            raise InputError(f"{path} is damaged. {again}") from None
        if other_schema(arrays, LABELS_SCHEMA) or arrays["proba"].shape != (
            len(self.task.public),
            len(self.task.classes),
        ):
            raise InputError(f"{path} does not hold a label for each public row. {again}")
        result: NDArray[np.float64] = arrays["proba"]
        return result

    def guarantee(self) -> PublishedProbe:
        shown = published_in(self.folder)
        assert isinstance(shown, PublishedProbe)
        return shown

    def served(self, ledger: Ledger) -> ProbeLabels:
        """The trained probe, to be asked about any row. Needs no data, neither private nor public.

        Args:
            ledger: the run's own, which paid for the training.
        """
        probe, rows = self.probe(), kept_rows(self.folder)
        if not made_by(ledger, probe, folder=self.folder):
            raise StoreError(f"{self._probe_path} is not what the ledger's training made. Put the file back.")
        check_features(self.folder)
        stand_in = PublicData(np.zeros((1, *rows.shape), dtype=rows.dtype))  # features are kept: only its shape counts
        features = features_of(
            self.config.features, stand_in, seed=self.config.seed, device="auto", kept=self.folder / FEATURES
        )
        unit = None if rows.encoder is None else rows.encoder.encoder.schema.unit
        shown = self._published(probe, ledger.summary(), labeled=0, unit=None if unit == UNIT_COLUMN else unit)
        return ProbeLabels(
            predict=lambda X: probe.predict(seen_by_probe(features, PublicData(X))),
            classes=self._classes,
            rows=rows,
            secure=shown.secure_noise,
            facts={name: getattr(shown, name) for name in TRAINING},
            measured=None if shown.measured is None else asdict(shown.measured),
        )

    def taught(self, *, progress: Progress | None) -> FittedStudent:
        """The probe itself, or a student of its labels: by the settings, or by labeled public rows."""
        from terrine.students import AutoStudent, fit_beside, fit_student

        found, side, seed = self.labels(), self.task, self.config.seed
        if not np.allclose(self.probe().predict_proba(self._public), found, rtol=0, atol=_SAME):
            raise InputError(
                f"{self._probe_path} is not the probe that labeled the public rows of {self.folder}, for whose ledger "
                f"the guarantee is. Put the file back, or label again: terrine label {self.folder}"
            )
        labels = found.argmax(axis=1)
        own = self._as_student(labels)
        if self.config.student.kind == "probe":
            return own
        if self.config.student.kind != "auto":
            made: FittedStudent = fit_student(
                self.student(), side.public, labels, classes=side.classes, seed=seed, progress=progress
            )
            return _with_noise(made, own)
        truth = public_labels_of(self.config.data, side)
        if truth is None:
            return own
        settings = self.student()
        assert isinstance(settings, AutoStudent)
        return fit_beside(own, settings, side.public, labels, truth=truth, classes=side.classes, seed=seed)

    def _as_student(self, labels: NDArray[np.int64]) -> FittedStudent:
        from terrine.students import linear_on_features
        from terrine.students.lessons import SECURE, SEEDED, Lessons

        probe, rows = self.probe(), self.task.public.X
        given = Lessons(
            rows, np.arange(len(rows)), labels, self.task.classes, SECURE if self.guarantee().secure_noise else SEEDED
        )
        settings = {"student": "Probe", **probe.settings.to_json(), "steps_kept": probe.descent_kept}
        factor = sureness(probe, self._public)
        return linear_on_features(
            self.features,
            factor * probe.weights[:-1] * probe.settings.scale,
            factor * probe.weights[-1] / 2,
            given,
            seed=self.config.seed,
            settings={**settings, "sureness": factor},
        )

    def _published(self, probe: Probe, paid: Summary, *, labeled: int, unit: str | None = None) -> PublishedProbe:
        return PublishedProbe.of(
            self.plan.budget,
            lattice=2.0**LATTICE_BITS,
            classes=self._classes,
            measured=probe.measured,
            measures=probe.settings.measured,
            unit=unit,
            steps_kept=probe.steps_kept,
            features=probe.settings.n_features,
            labeled=labeled,
            secure_noise=paid.secure and probe.guarantee is not None,
            ledger=LedgerHead(id=paid.ledger_id, head=paid.head),
        )

    @property
    def _classes(self) -> tuple[str, ...]:
        """Kept with the rows that the probe takes, so that a service needs no data."""
        return tuple(read_json(self.folder / ROWS, "terrine teach", holds=_Classes)["classes"])

    @property
    def _taught(self) -> bool:
        return self._probe_path.is_file() and (self.folder / ROWS).is_file()

    @property
    def _probe_path(self) -> Path:
        return self.folder / "probe.npz"

    @cached_property
    def _public(self) -> Any:
        return seen_by_probe(self.features, self.task.public)

    def _seen(self, private: PrivateData, *, progress: Progress | None) -> NDArray[np.float32]:
        """Features of the private rows; what is not finite adds nothing to a sum.

        The share done is told only where anyone may know how many rows there are: it would tell.
        """
        found = np.empty((len(private), self.features.n_features), dtype=np.float32)
        with unheard():
            for start in range(0, len(private), _ROWS):
                some = self.features.transform(private.X[start : start + _ROWS])
                found[start : start + _ROWS] = some.reshape(len(some), -1)
                if progress is not None and self.plan.budget.relation.size_is_public:
                    progress(min(1.0, (start + _ROWS) / len(private)))
        return found

    def _unchanged(self) -> PrivateData:
        """The private rows, refused where they are not those that the training began with."""
        private = self.task.private
        assert private is not None
        if not same_rows(private, self.folder / "private.sha256"):
            raise InputError(
                f"The private data have changed since the training in {self.folder} began. Put the data back, or "
                f"{or_anew(self.folder)}"
            )
        return private


def _with_noise(made: FittedStudent, own: FittedStudent) -> FittedStudent:
    """A student of labels, whose noise is the probe's."""
    return replace(made, about=replace(made.about, noise=own.about.noise))
