"""A tested release: all rows of a ledger's one release, asked as one, and published if the test passes.

The order, and why a kill at any instant neither draws twice nor lets out what was not charged, is in `ledger.tested`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from terrine.budgets import TestedBudget
from terrine.errors import InputError, LedgerError, TerrineError, TestedRowsError, TestFailedError
from terrine.labeller.noise_file import NoiseFile
from terrine.ledger import Ask, Kept, Ledger
from terrine.ledger.chain import other_rows
from terrine.ledger.tested import ReleaseState
from terrine.noise import KeptNoise, Noise
from terrine.votes import Votes


@dataclass(frozen=True, kw_only=True, eq=False)
class Asked:
    """A request as a release sees it. Public.

    Attributes:
        ask: who asks, and the digest of all rows.
        n_rows: rows, repeats included.
        queries: distinct, in the order in which noise is added to them.
        vote: the teachers' votes on them, or why there are none; called after the charge.
    """

    ask: Ask
    n_rows: int
    queries: Sequence[str]
    vote: Callable[[], Votes | TerrineError]


class Releasing:
    """What a Labeller does on a ledger with a TestedBudget."""

    def __init__(self, ledger: Ledger, noise: Noise, *, n_teachers: int, n_classes: int) -> None:
        budget = ledger.budget
        if not isinstance(budget, TestedBudget):
            raise InputError("A tested release needs a ledger with a TestedBudget.")
        for name, expected, found in (
            ("teachers", budget.n_teachers, n_teachers),
            ("classes", budget.n_classes, n_classes),
        ):
            if expected != found:
                raise InputError(f"The ledger's target was fixed for {expected} {name}, and there are {found}.")
        if ledger.secrets is None:
            raise InputError(
                "A tested release keeps its noise in a file while it lasts, and this ledger is on a server. Give "
                "Ledger(..., secrets=FOLDER), a folder of your own on this machine."
            )
        if isinstance(noise, KeptNoise):
            raise InputError("rng must be a sampler: a tested release keeps its own noise.")
        self._ledger, self._source, self._budget = ledger, noise, budget
        self._verbs = ledger.tested
        self._file = NoiseFile(ledger.secrets, ledger.id, budget)

    def answers(self, asked: Asked) -> Mapping[str, Kept]:
        """What was released, now or before; raises TestFailedError where nothing was and nothing will be."""
        name, digest = asked.ask.request_id, asked.ask.digest
        known, tied = self._ledger.recall_each(asked.queries, [name])
        if tied.get(name, digest) != digest:
            raise other_rows(name)
        state = self._verbs.state()
        if state is None:
            self._check_rows(asked)
            state = self._charged(asked.ask)
        if state.outcome == "open":
            if state.asked != digest:
                raise self._others()
            self._finish(asked, state.noise)
        self._file.destroy()  # also what a crash left after the bit was kept
        return self._kept(asked, known, is_tied=name in tied)

    def _charged(self, ask: Ask) -> ReleaseState:
        """Noise, then the charge that names it; or what another process charged meanwhile."""
        try:
            noise, secure = self._file.draw(self._source)
        except (FileNotFoundError, LedgerError):  # it finished its release, and destroyed what we were writing
            if (found := self._verbs.state()) is None:
                raise
            return found
        return self._verbs.charge(ask, noise=noise, secure=secure)

    def _finish(self, asked: Asked, name: str) -> None:
        """From the charge to the bit, by the noise that was paid for; votes and answers are gone with this call."""
        noise = self._file.load(name)
        if noise is None:
            state = self._verbs.state()
            if state is not None and state.outcome != "open":  # someone else finished it meanwhile
                return
            raise self._failed(lost=True)
        votes = asked.vote()
        if isinstance(votes, TerrineError):
            raise votes
        answers, passed = self._budget.fixed._draw(votes, noise).reveal()  # charged; kept before it is given out
        pairs = zip(answers.labels.tolist(), answers.outcomes.tolist(), strict=True)
        drawn = {
            query: Kept(label, outcome, noise.secure)
            for query, (label, outcome) in zip(asked.queries, pairs, strict=True)
        }
        self._verbs.settle(drawn if passed else None)

    def _kept(self, asked: Asked, known: Mapping[str, Kept], *, is_tied: bool) -> Mapping[str, Kept]:
        """From the ledger: the answers of a test that passed."""
        missing = [query for query in asked.queries if query not in known]
        found = {**known, **self._ledger.recall_each(missing, ())[0]} if missing else known
        if all(query in found for query in asked.queries):
            if not is_tied:
                self._ledger.claim(asked.ask.request_id, asked.ask.digest)
            return found
        state = self._verbs.state()
        if state is not None and state.outcome == "failed" and state.asked == asked.ask.digest:
            raise self._failed(lost=False)
        raise self._others()

    def _check_rows(self, asked: Asked) -> None:
        if asked.n_rows != self._budget.n_queries:
            raise TestedRowsError(
                f"This ledger pays for one tested release of exactly {self._budget.n_queries} rows, asked all at once, "
                f"and there are {asked.n_rows}. Nothing was charged."
            )

    def _others(self) -> TestedRowsError:
        return TestedRowsError(
            f"This ledger paid for one tested release of {self._budget.n_queries} rows, and these are other rows. "
            "Nothing was charged for them. To ask about others begin a new run: it adds its own epsilon and delta to "
            "this one's."
        )

    def _failed(self, *, lost: bool) -> TestFailedError:
        return TestFailedError(self._budget.target, self._budget.delta, lost=lost)
