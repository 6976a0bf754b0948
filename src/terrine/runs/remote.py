"""A run whose teachers are elsewhere: public rows, a label service's answers, a student. Nothing in it is private."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from terrine._files import write_once
from terrine.budgets import canonical, mechanism_from_json
from terrine.datasets import Task
from terrine.errors import InputError, LedgerError
from terrine.labeller.voters import repeats
from terrine.mechanisms import Answers
from terrine.published import LedgerHead, PublishedGuarantee, PublishedProbe
from terrine.runs.anew import or_anew
from terrine.runs.base import Answered, begin, published_in, read_json, save_answers, write_json
from terrine.runs.config import RemoteConfig, StudentConfig, read_settings
from terrine.runs.interactive import Round
from terrine.runs.plan_rounds import PlannedRound
from terrine.runs.rounds import ask_kept, keep_rounds, rounds_on
from terrine.runs.tasks import ENCODER, keep_files, kept_files, public_task_of
from terrine.schema import Encoder
from terrine.service.client import RemoteLabeller
from terrine.service.encoder_files import EncoderFiles
from terrine.service.schemas import About, Budget, Guarantee, Training

Progress = Callable[[float], object]


class RemoteRun(Answered):
    """A run directory with a [labels] table in its settings.

    Args:
        folder: as `RemoteRun.create` made it.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        found = read_settings(self.folder / "config.toml")
        if not isinstance(found, RemoteConfig):
            raise InputError(f"{self.folder} is a run with your own teachers: its settings have no labels.url.")
        self.config = found

    @classmethod
    def create(cls, config: RemoteConfig, folder: str | Path) -> RemoteRun:
        """Begin a run, or go on with one of the same settings."""
        begin(config, Path(folder))
        return cls(folder)

    @cached_property
    def about(self) -> About:
        """What the service said of itself when it was first asked."""
        path = self.folder / "service.json"
        if not path.is_file():
            with self._labeller() as labeller:
                write_json(path, labeller.about().model_dump(mode="json"))
        found = read_json(path, "terrine label", holds=About, advice="Put back the file that this run wrote.")
        return About.model_validate(found)

    @cached_property
    def task(self) -> Task:
        classes = tuple(self.about.classes)
        return public_task_of(self.config.data, classes=classes, run=self.folder, encoder=self._encoder())

    def _encoder(self) -> Encoder | None:
        """The service's own, fetched once and kept: rows are then the numbers that its teachers learned from."""
        digest, folder = self.about.encoder, self.folder / ENCODER
        if digest is None:
            return None
        files = kept_files(folder)
        if files is None:
            with self._labeller() as labeller:
                found = labeller.encoder()
            if found is None or found.sha256 != digest:
                raise InputError(
                    "The service has another encoder now than when this run began: its teachers are others. Put the "
                    f"service back, or {or_anew(self.folder)}"
                )
            keep_files(folder, files := dict(found.files))
        if EncoderFiles(files).sha256 != digest:
            raise InputError(f"{folder} is damaged. Delete it, and the run asks the service for it again.")
        return Encoder.from_files(files)

    @property
    def learner(self) -> tuple[StudentConfig, int]:
        return self.config.student, self.config.seed

    def asked(self) -> NDArray[np.int64]:
        """(n_queries,) which public rows are asked about."""
        labels, n_public = self.config.labels, len(self.task.public)
        queries = labels.queries or 0
        for k, one in enumerate(self.config.rounds or (), start=1):
            if one.queries > n_public:
                raise InputError(
                    f"queries of round {k} must be at most {n_public}, the public rows, got {one.queries}."
                )
            queries = min(queries + one.queries, n_public)
        if queries > n_public:
            raise InputError(f"labels.queries must be at most {n_public}, the public rows, got {queries}.")
        if labels.ask == "first":
            return np.arange(queries)
        return np.random.default_rng([self.config.seed, 1]).permutation(n_public)[:queries]

    def label(self, *, progress: Progress | None = None) -> Answers:
        """Ask the service: it charges; a rerun gets the same answers at no cost."""
        rows = self.asked()
        if self.about.probe is not None and self.config.rounds is not None:
            raise InputError(
                f"{self.config.labels.url} serves a probe, whose labels cost nothing: nothing needs rounds."
                " Leave [[rounds]] out, and set labels.queries to the number of public rows."
            )
        if not (self.folder / "answers.npz").exists():
            self.try_student(n_answers=len(rows))
        request = read_json(self._request(), "terrine label")["request_id"]
        if self.config.rounds is not None:
            return self._label_rounds(rows, request, progress=progress)
        with self._labeller() as labeller:
            self._compare(labeller.about(), "guarantee", "mechanism", "classes", "n_teachers", "probe")
            answers = labeller.label(self.task.public.X[rows], request_id=request, progress=progress)
            budget = labeller.budget()
        self._compare(budget, "guarantee")
        answers = replace(answers, secure=answers.secure and budget.secure)  # of all that the ledger answered
        save_answers(self.folder / "answers.npz", rows, answers)
        head = LedgerHead(id=budget.ledger_id, head=budget.head)
        if (training := self.about.probe) is not None:
            shown = PublishedProbe(
                **vars(self.about.guarantee.read()),
                **training.model_dump(),
                labeled=len(rows),
                secure_noise=answers.secure,
                ledger=head,
                service=self.config.labels.url,
                measured=None if self.about.measured is None else self.about.measured.read(),
            )
            write_json(self.folder / "guarantee.json", shown.to_json())
            return answers
        assert self.about.n_teachers is not None
        caps = {  # of the service's budget, which the guarantee is of; a filter has none
            f"n_{name}": int(getattr(budget, name) + budget.left[name]) if name in budget.left else None
            for name in ("queries", "answers")
        }
        self.publish(
            self.about.guarantee.read(),
            rows,
            answers,
            n_teachers=self.about.n_teachers,
            queries_at_most=len(rows),
            answers_at_most=len(rows),
            why_unasked=labeller.why_unasked,
            service=self.config.labels.url,
            ledger=head,
            **caps,
        )
        return answers

    def guarantee(self) -> PublishedGuarantee | PublishedProbe:
        """What may be published, as `label` wrote it: the service's."""
        return published_in(self.folder)

    def rounds(self, rows: NDArray[np.int64]) -> list[Round]:
        """The rounds of the settings, with the service's mechanisms."""
        assert self.about.mechanism is not None  # `label` refuses a probe
        given, offered = self.config.rounds or [], self.about.rounds or [self.about.mechanism]
        if len(given) > len(offered):
            raise InputError(
                f"{len(given)} rounds are asked for, and {self.config.labels.url} has {len(offered)}. Leave some out, "
                "or ask the service's owner for a service with [[rounds]]."
            )
        planned = []
        for k, (one, mechanism) in enumerate(zip(given, offered, strict=False), start=1):
            if one.mechanism is not None and one.mechanism != mechanism["kind"]:
                raise InputError(
                    f'Round {k} asks for mechanism = "{one.mechanism}", and the service\'s is "{mechanism["kind"]}".'
                )
            answers = one.queries if one.answers is None else min(one.answers, one.queries)
            planned.append(
                PlannedRound(mechanism=mechanism_from_json(mechanism), n_queries=one.queries, n_answers=answers)
            )
        return rounds_on(rows, planned)

    def _label_rounds(self, rows: NDArray[np.int64], request: str, *, progress: Progress | None) -> Answers:
        """As `label`, in rounds: the student's probabilities are kept here before they are sent."""
        rounds = self.rounds(rows)
        assert self.about.n_teachers is not None
        with self._labeller() as labeller:
            self._compare(labeller.about(), "guarantee", "mechanism", "rounds", "classes", "n_teachers")
            askers = [_RoundAsker(labeller, k) for k in range(1, len(rounds) + 1)]
            given = ask_kept(self, rounds, askers, request_id=request, progress=progress)
            budget = labeller.budget()
        self._compare(budget, "guarantee")
        return keep_rounds(
            self,
            rounds,
            [replace(some, secure=some.secure and budget.secure) for some in given],
            rows=rows,
            guarantee=self.about.guarantee.read(),
            n_teachers=self.about.n_teachers,
            why_unasked=labeller.why_unasked,
            service=self.config.labels.url,
            ledger=LedgerHead(id=budget.ledger_id, head=budget.head),
        )

    def fresh(self, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        """As the service sees rows, which casts them to its teachers' type."""
        return ~repeats(self.task.public.X[rows].astype(self.about.dtype))

    def _labeller(self) -> RemoteLabeller:
        return RemoteLabeller(
            self.config.labels.url, batch=self.config.labels.batch, head=self.folder / "ledger-head.json"
        )

    def _compare(self, found: About | Budget, *names: str) -> None:
        """Refuse a service that is not the one of service.json: its guarantee would not cover this run's answers."""
        if other := [name for name in names if _fixed(getattr(found, name)) != _fixed(getattr(self.about, name))]:
            raise LedgerError(
                f"The service at {self.config.labels.url} is not the one that {self.folder} began with: its "
                f"{', '.join(other)} changed. Ask the service's owner, or {or_anew(self.folder)}"
            )

    def _request(self) -> Path:
        """This run's name for its request, chosen once: another run with the same key is another request."""
        path = self.folder / "request.json"
        if not path.is_file():
            write_once(path, canonical({"request_id": f"run {secrets.token_hex(8)}"}).encode())
        return path


class _RoundAsker:
    """A service's labeller, with the number of a round."""

    def __init__(self, labeller: RemoteLabeller, number: int) -> None:
        self._labeller, self._number = labeller, number

    def label(
        self, X: Any, *, request_id: str, student_proba: ArrayLike | None = None, progress: Progress | None = None
    ) -> Answers:
        return self._labeller.label(
            X, request_id=request_id, student_proba=student_proba, round=self._number, progress=progress
        )


def _fixed(value: object) -> object:
    """What stays as long as a run goes on; how a guarantee is written down may change with the service's version."""
    if isinstance(value, Training):  # older services did not say so
        return value.model_copy(update={"measures": False})
    return replace(value.read(), notes=()) if isinstance(value, Guarantee) else value
