"""Where charging and answering meet, and nowhere else: reserve, vote, draw, keep, and only then let answers out."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from terrine import _validate
from terrine.accounting.curves import ONE_TEACHER
from terrine.budgets import canonical, mechanism_to_json
from terrine.datasets.data import PublicData
from terrine.errors import BudgetError, InputError, SecretError, TeachersError
from terrine.ledger import Kept, Ledger, Reservation
from terrine.ledger.ledger import checked_request_id
from terrine.mechanisms import ABSTAIN, Answers, InteractiveGNMax, Mechanism, Outcome, answer, validated_proba
from terrine.noise import Noise, SeededNoise, as_noise, to_lattice
from terrine.votes import Votes

Progress = Callable[[float], object]

_QUERY = "terrine.query/1"  # the hash's domain: a change of it forgets every answer


class Voters(Protocol):
    """What a Labeller asks: a TeacherEnsemble, or KeptVotes. All but the votes is public."""

    @property
    def n_teachers(self) -> int: ...
    @property
    def classes(self) -> Sequence[str]: ...
    @property
    def row_shape(self) -> tuple[int, ...]: ...
    def vote(self, X: NDArray[Any]) -> Votes: ...


class KeptVotes:
    """Votes that were cast before, found again by their rows. Secret: it prints public numbers only.

    Args:
        X: (n_queries, ...) the public rows that were voted on.
        votes: their votes, in the same order.
        classes: public names (default: "0", "1", ...).
    """

    def __init__(self, X: PublicData | ArrayLike, votes: Votes, *, classes: Sequence[str] | None = None) -> None:
        rows = _public_rows(X)
        if not isinstance(votes, Votes):
            raise InputError(f"Expected votes to be a Votes object, got {type(votes).__name__}.")
        if len(rows) != len(votes):
            raise InputError(f"Expected votes on {len(rows)} rows, got votes on {len(votes)}.")
        self.classes = tuple(map(str, range(votes.n_classes) if classes is None else classes))
        if len(self.classes) != votes.n_classes:
            raise InputError(f"Expected {votes.n_classes} classes, as were voted for, got {len(self.classes)}.")
        self.n_teachers = votes.n_teachers
        self.row_shape = rows.shape[1:]
        self._votes = votes
        self._where: dict[bytes, int] = {}
        for row, digest in enumerate(_row_digests(rows)):
            self._where.setdefault(digest, row)

    def find(self, X: NDArray[Any]) -> list[int]:
        """Where these rows are; one that is not among them is refused."""
        found = [self._where.get(digest) for digest in _row_digests(X)]
        if None in found:
            raise InputError(f"Expected rows that were voted on, got another in row {found.index(None)}.")
        return [row for row in found if row is not None]

    def vote(self, X: NDArray[Any]) -> Votes:
        """The votes on these rows. Secret."""
        return Votes(self._votes.counts[self.find(X)], n_teachers=self.n_teachers)

    def __repr__(self) -> str:
        return f"<KeptVotes: {len(self._votes)} queries, {self.n_teachers} teachers; counts are secret>"

    def __reduce_ex__(self, *_: Any) -> NoReturn:
        raise SecretError("Expected a public object to pickle or copy, got KeptVotes; use Votes.save.")


class Labeller:
    """Answers that are paid for: charged on disk before noise is drawn, kept on disk before they leave.

    Args:
        ensemble: the teachers, or votes they cast before.
        mechanism: what answers; one that the ledger's budget allows.
        ledger: what pays.
        rng: None or SecureNoise() for secure noise; SeededNoise(seed) or a numpy Generator for experiments, which the
            ledger records.
        at_once: at most so many queries are reserved at a time, so that a crash leaves little behind.

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
        self._text = f"{_QUERY} {canonical(mechanism_to_json(mechanism))} {len(ensemble.classes)}"
        ledger.budget.price(mechanism, n_queries=1, n_answers=1)
        relation = getattr(ensemble, "relation", None)
        if relation is not None and ledger.budget.relation not in (ONE_TEACHER, relation):
            raise InputError(
                f"Expected teachers for the budget's neighbours ({ledger.budget.relation}), got others: {relation}."
            )
        # All that can fail for public reasons fails here: an answer to votes that anyone may know.
        proba = np.full((1, len(ensemble.classes)), 1 / len(ensemble.classes)) if self._interactive else None
        rehearsal = self._noise if self._noise.secure else SeededNoise(0)
        answer(mechanism, self._unanimous(1), rng=rehearsal, student_proba=proba)

    @property
    def _interactive(self) -> bool:
        return isinstance(self.mechanism, InteractiveGNMax)

    def label(
        self,
        X: PublicData | ArrayLike,
        *,
        request_id: str,
        student_proba: ArrayLike | None = None,
        progress: Progress | None = None,
    ) -> Answers:
        """Answer each row, once: a row that was ever answered under this mechanism has that answer at no cost.

        Rows are the same if their bytes are; for InteractiveGNMax the student's probabilities are part of the
        question. The same request again gives the same answers, and asks what a crash or an empty budget left unasked.

        Args:
            X: (n_rows, ...) public rows of the teachers' shape.
            request_id: the caller's name for this request; with other rows it is refused.
            student_proba: (n_rows, n_classes), for InteractiveGNMax only.
            progress: called with the share of the rows that are done.

        Returns:
            Answers, one per row. Rows that the budget has no room for are `Outcome.UNASKED`; if that is all of them,
            BudgetError is raised.
        """
        request_id = checked_request_id(request_id)
        rows = _public_rows(X)
        if rows.shape[1:] != tuple(self._ensemble.row_shape):
            raise InputError(f"Expected rows of shape {self._ensemble.row_shape}, got {rows.shape[1:]}.")
        if isinstance(self._ensemble, KeptVotes):
            self._ensemble.find(rows)
        proba = self._checked_proba(student_proba, len(rows))
        queries = self._queries(rows, proba)
        digest = hashlib.sha256("".join(queries).encode()).hexdigest()
        asked = _Request(request_id, digest, rows, proba)
        first: dict[str, int] = {}  # query: the first row that asks it
        for row, query in enumerate(queries):
            first.setdefault(query, row)
        known: dict[str, Kept] = {}
        distinct = list(first)
        exhausted: BudgetError | None = None
        for start in range(0, len(distinct), self._at_once):
            some = distinct[start : start + self._at_once]
            known |= self.ledger.recall(some, request_id=request_id, digest=digest)
            fresh = {query: first[query] for query in some if query not in known}
            if fresh and exhausted is None:
                exhausted = self._ask(asked, fresh, known)
            if progress is not None:
                progress(min(start + self._at_once, len(distinct)) / len(distinct))
        if exhausted is not None and not known:
            raise exhausted
        self.ledger.claim(request_id, digest)
        unasked = Kept(ABSTAIN, Outcome.UNASKED, True)
        given = [known.get(query, unasked) for query in queries]
        return Answers(
            labels=np.array([one.label for one in given], dtype=np.int64),
            outcomes=np.array([one.outcome for one in given], dtype=np.int64),
            mechanism=self.mechanism,
            secure=all(one.secure for one in given),
        )

    def _ask(self, asked: _Request, fresh: dict[str, int], known: dict[str, Kept]) -> BudgetError | None:
        """Put fresh queries to the teachers, as many at a time as the budget has answers for, until it has none.

        When to stop depends on public outcomes only. The answers go to ``known`` once they are on disk.
        """
        queries, taken = list(fresh), list(fresh.values())
        votes: Votes | None = None
        done = 0
        while done < len(queries):
            try:
                reservation = self.ledger.reserve_some(
                    self.mechanism,
                    n_queries=len(queries) - done,
                    request_id=asked.request_id,
                    digest=asked.digest,
                    secure=self._noise.secure,
                )
            except BudgetError as error:
                return error
            if votes is None:
                votes = self._vote(asked.rows[taken])
            part = slice(done, done + reservation.n_queries)
            proba = None if asked.proba is None else asked.proba[taken[part]]
            known |= self._draw(reservation, queries[part], votes[part], proba)
            done = part.stop
        return None

    def _vote(self, rows: NDArray[Any]) -> Votes:
        """An error says its type only, and that outside of the handler: its message and its frames may hold votes."""
        try:
            votes = self._ensemble.vote(rows)
            expected = (len(rows), len(self._ensemble.classes), self._ensemble.n_teachers)
            failure = None if (len(votes), votes.n_classes, votes.n_teachers) == expected else "other votes"
        except Exception as error:
            failure = type(error).__name__
        if failure is not None:
            raise TeachersError(
                f"Expected the teachers to vote, got a failure ({failure}); its message is withheld, and what was "
                "reserved stays charged."
            )
        return votes

    def _draw(
        self, reservation: Reservation, queries: list[str], votes: Votes, proba: NDArray[np.float64] | None
    ) -> dict[str, Kept]:
        drawn = answer(self.mechanism, votes, rng=self._noise, student_proba=proba)
        pairs = zip(drawn.labels.tolist(), drawn.outcomes.tolist(), strict=True)
        kept = [Kept(label, outcome, drawn.secure) for label, outcome in pairs]
        return self.ledger.keep(reservation, dict(zip(queries, kept, strict=True)))

    def _unanimous(self, n_queries: int) -> Votes:
        """Votes that anyone may know: stand-ins for checks that look at shapes."""
        counts = np.zeros((n_queries, len(self._ensemble.classes)), dtype=np.int64)
        counts[:, 0] = self._ensemble.n_teachers
        return Votes(counts, n_teachers=self._ensemble.n_teachers)

    def _checked_proba(self, student_proba: ArrayLike | None, n_rows: int) -> NDArray[np.float64] | None:
        if self._interactive != (student_proba is not None):
            raise InputError("Expected student_proba for InteractiveGNMax and for no other mechanism.")
        return None if student_proba is None else validated_proba(student_proba, self._unanimous(n_rows))

    def _queries(self, rows: NDArray[Any], proba: NDArray[np.float64] | None) -> list[str]:
        """A hash of mechanism, number of classes, row and, where a student is asked along, its rounded scores."""
        digests = _row_digests(rows)
        if proba is not None:
            scores = to_lattice(self._ensemble.n_teachers * proba).astype("<i8")
            digests = [digest + score.tobytes() for digest, score in zip(digests, scores, strict=True)]
        start = hashlib.sha256(self._text.encode()).digest()
        return [hashlib.sha256(start + digest).hexdigest() for digest in digests]

    def __repr__(self) -> str:
        return f"<Labeller: {self.mechanism} of {self._ensemble.n_teachers} teachers, paid by {self.ledger!r}>"


@dataclass(frozen=True, eq=False)
class _Request:
    """What is asked for: public."""

    request_id: str
    digest: str
    rows: NDArray[Any]
    proba: NDArray[np.float64] | None


def _public_rows(X: PublicData | ArrayLike) -> NDArray[Any]:
    rows = (X if isinstance(X, PublicData) else PublicData(X)).X
    if rows.dtype.kind == "f" and rows.dtype.itemsize > 8:
        raise InputError(f"Expected rows of at most 64-bit floats, got {rows.dtype}.")  # its padding is random bytes
    return rows


def _row_digests(rows: NDArray[Any]) -> list[bytes]:
    """Of dtype, shape and values in C order, little-endian, with one zero: equal rows have equal digests."""
    dtype = rows.dtype.newbyteorder("<")
    start = hashlib.sha256(f"{dtype.str} {rows.shape[1:]}".encode())
    digests = []
    for row in rows:
        digest = start.copy()
        digest.update((row + 0.0 if dtype.kind == "f" else row).astype(dtype, order="C").tobytes())
        digests.append(digest.digest())
    return digests
