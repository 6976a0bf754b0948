"""What a run's answers cost, published: the one number, drawn after the answers."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from terrine.cost_release import PublishedCost
from terrine.errors import InputError
from terrine.labeller.cost import draw_cost
from terrine.ledger.cost import CostState
from terrine.mechanisms import Answers, Outcome
from terrine.noise import Noise
from terrine.published import LedgerHead, PublishedGuarantee
from terrine.runs.base import write_json
from terrine.votes import Votes

if TYPE_CHECKING:
    from terrine.ledger import Ledger
    from terrine.runs.local import Run


def publish_cost(run: Run, *, rng: Noise | None = None) -> PublishedGuarantee:
    """Draw and keep the number, or find the one that was kept, and write it into guarantee.json.

    The ledger is charged first and pays for one number: a second call, and one after a kill, gives the same.
    """
    if not run.config.privacy.publish_cost:
        raise InputError(
            f"{run.folder} was begun without publish_cost = true in [privacy]. Publishing what answers cost takes "
            "epsilon too, so it must be fixed before the first answer. A new run with it, on the same people, spends "
            "its own epsilon on top of this one's, which is charged already."
        )
    rows, answers = run.released()
    fresh = run.fresh(rows)
    with run.ledger() as ledger:
        if ledger.cost.state() is None:
            _check_all_here(run, ledger, answers.outcomes[fresh])
        draw_cost(ledger, asked=_digest(rows, answers), votes=lambda: _behind(run, answers, fresh), rng=rng)
    tell_cost(run)
    return run.guarantee()


def tell_cost(run: Run) -> None:
    """Put a number that was published into guarantee.json."""
    if not run.config.privacy.publish_cost:
        return
    rows, answers = run.released()
    with run.ledger() as ledger:
        state: CostState | None = ledger.cost.state()
        paid, release = ledger.summary(), ledger.cost.release
    if state is None or state.number is None or state.asked != _digest(rows, answers):
        return
    shown = run.guarantee()
    cost = PublishedCost.of(
        state.number,
        release,
        whole=shown,
        checks=release.checks(run.mechanism, n_queries=shown.queries_at_most),
        answered=shown.answered,
    )
    found = shown.with_cost(cost, ledger=LedgerHead(id=paid.ledger_id, head=paid.head), secure=paid.secure)
    write_json(run.folder / "guarantee.json", found.to_json())


def _check_all_here(run: Run, ledger: Ledger, outcomes: NDArray[np.int64]) -> None:
    """The number is about all that the ledger answered: their votes must be the run's."""
    paid = ledger.summary()
    here = tuple(int((outcomes == one).sum()) for one in (Outcome.TEACHERS, Outcome.ABSTAINED))
    if here != (paid.answered, paid.withheld):
        raise InputError(
            f"The ledger of {run.folder} has other answers too, such as a service's, and their votes are not in the "
            "run: what all of them cost cannot be said. Nothing was charged."
        )


def _behind(run: Run, answers: Answers, fresh: NDArray[np.bool_]) -> Votes | None:
    """The votes behind the answers that the teachers gave, each question once."""
    votes = run.vote()
    counts = votes.counts[fresh & (answers.outcomes == Outcome.TEACHERS)]
    return Votes(counts, n_teachers=votes.n_teachers) if len(counts) else None


def _digest(rows: NDArray[np.int64], answers: Answers) -> str:
    """Of the answers, as they were released."""
    columns = (np.ascontiguousarray(one, dtype="<i8").tobytes() for one in (rows, answers.labels, answers.outcomes))
    return hashlib.sha256(b"".join(columns)).hexdigest()
