"""Requests to a Labeller, one or several at a time: reserve, vote, draw, keep, and only then answer."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from terrine import _validate
from terrine.budgets import TestedBudget, canonical, mechanism_to_json
from terrine.datasets.data import PublicData
from terrine.datasets.rows import Rows, concatenated, row_digests, row_type
from terrine.errors import BudgetError, InputError, LedgerError, QuotaError, TeachersError, TerrineError
from terrine.labeller.tested import Asked, Releasing
from terrine.labeller.voters import KeptVotes, Voters, rows_for
from terrine.ledger import Ask, Kept, Ledger, Reservation
from terrine.ledger.chain import other_rows
from terrine.mechanisms import ABSTAIN, Answers, InteractiveGNMax, Mechanism, Outcome, answer, validated_proba
from terrine.noise import Noise, SeededNoise, as_noise, to_lattice
from terrine.relations import Relation
from terrine.votes import Votes

Progress = Callable[[float], object]

_QUERY = "terrine.query/3"  # the hash's domain: a change of it forgets every answer
_UNASKED = Kept(ABSTAIN, Outcome.UNASKED, True)
_BEFORE = "terrine.query/2"  # did not know who votes, nor for what; of requests that were begun under it


@dataclass(frozen=True, eq=False)
class Question:
    """A request to a Labeller, as one of several: what `Labeller.label` takes."""

    X: PublicData | ArrayLike
    request_id: str
    student_proba: ArrayLike | None = None
    account: str = ""
    quota: int | None = None


class Labeller:
    """Answers that are paid for: charged on disk before noise is drawn, kept on disk before they are returned.

    Args:
        ensemble: the teachers, or votes they cast before.
        mechanism: what answers; one that the ledger's budget allows.
        ledger: what pays.
        rng: None or SecureNoise() for secure noise; SeededNoise(seed) or a numpy Generator for experiments, which the
            ledger records.
        at_once: the most queries that `label` reserves at a time, so that a crash wastes few of them. A ledger with a
            TestedBudget is asked about all rows of its one release at once, whatever this says.

    Formal guarantees:
        `ledger.budget.guarantee()` holds for all answers of all labellers on the ledger, whatever they are asked.
    """

    def __init__(
        self,
        ensemble: Voters,
        mechanism: Mechanism,
        ledger: Ledger,
        *,
        rng: Noise | np.random.Generator | None = None,
        at_once: int = 512,
    ) -> None:
        self.mechanism = mechanism
        self.ledger = ledger
        self._ensemble = ensemble
        self._noise = as_noise(rng)
        self._at_once = _validate.integer("at_once", at_once, at_least=1)
        identity = getattr(ensemble, "identity", "")
        if not isinstance(identity, str):
            raise InputError(f"The voters' identity must be text, got {type(identity).__name__}.")
        asked = {
            "mechanism": mechanism_to_json(mechanism),
            "classes": list(map(str, ensemble.classes)),
            "n_teachers": ensemble.n_teachers,
            "voters": identity,
        }
        before = f"{_BEFORE} {canonical(mechanism_to_json(mechanism))} {len(ensemble.classes)}"
        self._start = hashlib.sha256(f"{_QUERY} {canonical(asked)}".encode()).digest()
        self._before = None if identity else hashlib.sha256(before.encode()).digest()
        ledger.budget.price(mechanism, n_queries=1, n_answers=1)
        relation = getattr(ensemble, "relation", None)
        budgeted = ledger.budget.relation
        if relation is not None and budgeted != Relation.ONE_TEACHER and not Relation(relation).covers(budgeted):
            raise InputError(
                f"The budget's neighbors ({ledger.budget.relation.sentence}) are not those of the teachers: "
                f"{Relation(relation).sentence}. Begin a ledger with a budget for the teachers' relation."
            )
        # All that can fail for public reasons fails here: an answer to votes that anyone may know.
        proba = np.full((1, len(ensemble.classes)), 1 / len(ensemble.classes)) if self._interactive else None
        rehearsal = self._noise if self._noise.secure else SeededNoise(0)
        answer(mechanism, self._unanimous(1), rng=rehearsal, student_proba=proba)
        self._releasing: Releasing | None = None
        if isinstance(ledger.budget, TestedBudget):
            sizes = {"n_teachers": ensemble.n_teachers, "n_classes": len(ensemble.classes)}
            self._releasing = Releasing(ledger, self._noise, **sizes)

    @property
    def _interactive(self) -> bool:
        return isinstance(self.mechanism, InteractiveGNMax)

    def label(
        self,
        X: PublicData | ArrayLike,
        *,
        request_id: str,
        student_proba: ArrayLike | None = None,
        account: str = "",
        quota: int | None = None,
        progress: Progress | None = None,
    ) -> Answers:
        """Answer each row once. A row that these teachers have answered before gets that answer again at no cost.

        That is: under this mechanism and these class names. Rows are the same if their values are. For
        InteractiveGNMax the student's probabilities are part of the question. The same request again gives the same
        answers, and asks what a crash or an empty budget left unasked.

        Args:
            X: (n_rows, ...) public rows of the teachers' shape.
            request_id: the caller's name for this request; with other rows, teachers or classes it is refused.
            student_proba: (n_rows, n_classes), for InteractiveGNMax only.
            account, quota: on whose behalf, and how many queries may ever be charged to it (QuotaError); None: any.
            progress: called with the share of the rows that are done.

        Returns:
            Answers, one per row. Rows that the budget has no room for are `Outcome.UNASKED`; if that is all of them,
            BudgetError is raised. Under a TestedBudget all rows are one release: TestFailedError where its test did
            not pass, TestedRowsError for any other rows.
        """
        request = self._request(Question(X, request_id, student_proba, account, quota))
        if self._releasing is not None:
            return self._released(request, self._releasing)
        known: dict[str, Kept] = {}
        n = len(request.first)
        for start in range(0, n, self._at_once):
            request.wanted = list(request.first)[start : start + self._at_once]
            self._answer([request], known)
            if isinstance(request.stopped, TerrineError) and not isinstance(request.stopped, BudgetError):
                raise request.stopped
            if progress is not None:
                progress(min(start + self._at_once, n) / n)
        (given,) = self._given([request], known)
        if isinstance(given, TerrineError):
            raise given
        return given

    def label_each(self, requests: Sequence[Question]) -> list[Answers | TerrineError]:
        """`label` for several requests in two transactions: charged together, drawn together, kept together.

        A row that several of them ask is drawn once, and charged to the first. What is wrong with one request is its
        error here, and does not touch the others.
        """
        prepared: list[_Request | TerrineError] = []
        for question in requests:
            try:
                prepared.append(self._request(question))
            except TerrineError as error:
                prepared.append(error)
        group = [request for request in prepared if isinstance(request, _Request)]
        if self._releasing is not None:
            return [self._release_or_error(one) if isinstance(one, _Request) else one for one in prepared]
        known: dict[str, Kept] = {}
        try:
            self._answer(group, known)
            given = iter(self._given(group, known))
        except LedgerError as error:
            given = iter([request.stopped or error for request in group])
        return [next(given) if isinstance(request, _Request) else request for request in prepared]

    def _released(self, request: _Request, releasing: Releasing) -> Answers:
        """All rows as the ledger's one release, or as they were released before."""
        rows = request.rows[np.array(list(request.first.values()))]
        queries = list(request.first)
        asked = Asked(ask=request.ask, n_rows=len(request.queries), queries=queries, vote=lambda: self._vote(rows))
        return self._answers(request, dict(releasing.answers(asked)))

    def _release_or_error(self, request: _Request) -> Answers | TerrineError:
        assert self._releasing is not None
        try:
            return self._released(request, self._releasing)
        except TerrineError as error:
            return error

    def _request(self, question: Question) -> _Request:
        """Everything that can be refused is refused here: nothing is charged yet."""
        rows = rows_for(self._ensemble, question.X)
        if isinstance(self._ensemble, KeptVotes):
            self._ensemble.find(rows)
        proba = self._checked_proba(question.student_proba, len(rows))
        queries = self._queries(rows, proba)
        first = _first(queries)
        ask = Ask(
            request_id=question.request_id,
            digest=_digest(queries),
            n_queries=len(first),
            account=question.account,
            quota=question.quota,
        )
        return _Request(ask.checked(), rows, proba, queries, first, list(first))

    def _go_on(self, request: _Request, digest: str) -> bool:
        """Whether a request was begun when queries were hashed without the voters; it then goes on as it was begun.

        Voters that have an identity never do: another ensemble's answers are not theirs.
        """
        if self._before is None:
            return False
        queries = self._queries(request.rows, request.proba, self._before)
        if _digest(queries) != digest:
            return False
        now = dict(zip(request.queries, queries, strict=True))
        request.wanted = [now[query] for query in request.wanted]
        request.queries, request.first = queries, _first(queries)
        request.ask = replace(request.ask, digest=digest)
        return True

    def _answer(self, requests: list[_Request], known: dict[str, Kept]) -> None:
        """Put what is new to the teachers, as much at a time as the budget has answers for, until it has none.

        When to stop depends on public outcomes only. The answers go to ``known`` once they are on disk.
        """
        wanted = {query: None for request in requests for query in request.wanted}
        found, asked = self.ledger.recall_each(wanted, {request.name for request in requests})
        known |= found
        begun: list[str] = []
        for request in requests:
            request.tied = request.name in asked
            digest = asked.setdefault(request.name, request.ask.digest)
            if digest != request.ask.digest and self._go_on(request, digest):
                begun += request.wanted
            elif digest != request.ask.digest:
                request.stopped = other_rows(request.name)
        if begun:
            known |= self.ledger.recall_each(begun, ())[0]
        cast: dict[str, NDArray[np.int64]] = {}  # votes by query: secret, and gone with this call
        while turns := _turns(requests, known):
            asks = [
                request.ask if len(queries) == request.ask.n_queries else replace(request.ask, n_queries=len(queries))
                for request, queries in turns
            ]
            answered = self.ledger.reserve_each(self.mechanism, asks, secure=self._noise.secure)
            granted, short = [], []
            for (request, queries), got in zip(turns, answered, strict=True):
                if isinstance(got, Reservation):
                    granted.append((request, got, queries[: got.n_queries]))
                    request.tied = True
                elif isinstance(got, BudgetError) and not isinstance(got, QuotaError):
                    short.append((request, got))
                else:
                    request.stopped = got
            if granted:  # settling gives back what is withheld: those who are short ask again
                paid = {id(request) for request, _, _ in granted}  # nobody votes for one that nothing was charged for
                self._cast([turn for turn in turns if id(turn[0]) in paid], cast)
                known |= self._draw([one for one in granted if one[0].stopped is None], cast)
            else:
                for request, why in short:
                    request.stopped = why

    def _cast(self, turns: list[_Turn], cast: dict[str, NDArray[np.int64]]) -> None:
        """Votes on all that is to be asked; where teachers fail, request by request, so that none fails another's."""
        for kind in {row_type(request.rows) for request, _ in turns}:  # a teacher may read bytes otherwise than floats
            some = [turn for turn in turns if row_type(turn[0].rows) == kind]
            fresh: dict[str, None] = {}
            parts: list[Rows] = []
            for request, queries in some:
                new = [query for query in queries if query not in cast and query not in fresh]
                fresh.update(dict.fromkeys(new))
                parts += [request.rows[np.array([request.first[query] for query in new])]] if new else []
            if not fresh:
                continue
            votes = self._vote(concatenated(parts))
            if isinstance(votes, Votes):
                cast.update(zip(fresh, votes.counts, strict=True))
            elif len(some) > 1:
                for turn in some:
                    self._cast([turn], cast)
            else:
                some[0][0].stopped = votes

    def _vote(self, rows: Rows) -> Votes | TeachersError:
        """An error says its type only, and that outside of the handler: its message and its frames may hold votes."""
        try:
            votes = self._ensemble.vote(rows)
            expected = (len(rows), len(self._ensemble.classes), self._ensemble.n_teachers)
            if (len(votes), votes.n_classes, votes.n_teachers) == expected:
                return votes
            failure = "wrong number of votes"
        except Exception as error:
            failure = type(error).__name__
        return TeachersError(
            f"The teachers failed to vote ({failure}). Why is withheld, since it may depend on "
            "private data. What was reserved stays charged."
        )

    def _draw(
        self, granted: list[tuple[_Request, Reservation, list[str]]], cast: dict[str, NDArray[np.int64]]
    ) -> dict[str, Kept]:
        """One draw for all that is granted; what is returned is on disk."""
        if not granted:
            return {}
        counts = np.stack([cast[query] for _, _, queries in granted for query in queries])
        proba = [request.proba[request.first[q]] for request, _, qs in granted for q in qs if request.proba is not None]
        drawn = answer(
            self.mechanism,
            Votes(counts, n_teachers=self._ensemble.n_teachers),
            rng=self._noise,
            student_proba=np.stack(proba) if proba else None,
        )
        pairs = zip(drawn.labels.tolist(), drawn.outcomes.tolist(), strict=True)
        fresh = (Kept(label, outcome, drawn.secure) for label, outcome in pairs)
        kept = [(reservation, {query: next(fresh) for query in queries}) for _, reservation, queries in granted]
        return {query: one for some in self.ledger.keep_each(kept) for query, one in some.items()}

    def _given(self, requests: list[_Request], known: dict[str, Kept]) -> list[Answers | TerrineError]:
        """Answers that are on disk, or why there are none."""
        for request in requests:
            if isinstance(request.stopped, BudgetError) and any(query in known for query in request.first):
                request.stopped = None
        untied = [request for request in requests if request.stopped is None and not request.tied]
        if untied:
            refused = self.ledger.claim_each([(request.name, request.ask.digest) for request in untied])
            for request, why in zip(untied, refused, strict=True):
                request.stopped = why
        return [request.stopped or self._answers(request, known) for request in requests]

    def _answers(self, request: _Request, known: dict[str, Kept]) -> Answers:
        given = [known.get(query, _UNASKED) for query in request.queries]
        return Answers(
            labels=np.array([one.label for one in given], dtype=np.int64),
            outcomes=np.array([one.outcome for one in given], dtype=np.int64),
            mechanism=self.mechanism,
            secure=all(one.secure for one in given),
        )

    def _unanimous(self, n_queries: int) -> Votes:
        """Votes that anyone may know: stand-ins for checks that look at shapes."""
        counts = np.zeros((n_queries, len(self._ensemble.classes)), dtype=np.int64)
        counts[:, 0] = self._ensemble.n_teachers
        return Votes(counts, n_teachers=self._ensemble.n_teachers)

    def _checked_proba(self, student_proba: ArrayLike | None, n_rows: int) -> NDArray[np.float64] | None:
        if self._interactive != (student_proba is not None):
            raise InputError("InteractiveGNMax needs student_proba; no other mechanism takes it.")
        return None if student_proba is None else validated_proba(student_proba, self._unanimous(n_rows))

    def _queries(self, rows: Rows, proba: NDArray[np.float64] | None, start: bytes = b"") -> list[str]:
        """A hash of who is asked and how (``start``), row and, where a student is asked along, its rounded scores."""
        digests = row_digests(rows)
        if proba is not None:
            scores = to_lattice(self._ensemble.n_teachers * proba).astype("<i8")
            digests = [digest + score.tobytes() for digest, score in zip(digests, scores, strict=True)]
        start = start or self._start
        return [hashlib.sha256(start + digest).hexdigest() for digest in digests]

    def __repr__(self) -> str:
        return f"<Labeller: {self.mechanism} of {self._ensemble.n_teachers} teachers, paid by {self.ledger!r}>"


@dataclass(eq=False)
class _Request:
    """A request that is being answered: public."""

    ask: Ask
    rows: Rows
    proba: NDArray[np.float64] | None
    queries: list[str]  # of each row
    first: dict[str, int]  # query: the first row that asks it
    wanted: list[str]  # of the slice at hand
    tied: bool = False  # to its rows, in the ledger
    stopped: TerrineError | None = None  # why no more of it is asked

    @property
    def name(self) -> str:
        return self.ask.request_id


def _first(queries: list[str]) -> dict[str, int]:
    """The first row that asks each query."""
    first: dict[str, int] = {}
    for row, query in enumerate(queries):
        first.setdefault(query, row)
    return first


def _digest(queries: list[str]) -> str:
    """Of what a request asks."""
    return hashlib.sha256("".join(queries).encode()).hexdigest()


_Turn = tuple[_Request, list[str]]


def _turns(requests: list[_Request], known: dict[str, Kept]) -> list[_Turn]:
    """What each request is to ask: of queries without an answer, those that none before it asks."""
    taken: set[str] = set()
    turns = []
    for request in requests:
        if request.stopped is None:
            fresh = [query for query in request.wanted if query not in known and query not in taken]
            taken.update(fresh)
            turns += [(request, fresh)] if fresh else []
    return turns
