"""What the answers of a ledger cost, drawn once and kept: the order is in `ledger.cost`."""

from __future__ import annotations

from collections.abc import Callable

from terrine.budgets import CountBudget
from terrine.errors import InputError, LedgerError
from terrine.labeller.noise_file import NoiseFile
from terrine.ledger import Ledger
from terrine.ledger.cost import CostState
from terrine.noise import KeptNoise, Noise, as_noise
from terrine.votes import Votes


def draw_cost(ledger: Ledger, *, asked: str, votes: Callable[[], Votes | None], rng: Noise | None = None) -> CostState:
    """The number, now or as it was kept; a call that was broken off is finished, with the noise that it paid for.

    Args:
        asked: digest of the answers that it is about.
        votes: those behind the answers that the teachers gave, None where they gave none; called after the charge.
    """
    verbs, source, budget = ledger.cost, as_noise(rng), ledger.budget
    if ledger.secrets is None:
        raise InputError(
            "The noise is kept in a file until the number is, and this ledger is on a server. Give "
            "Ledger(..., secrets=FOLDER), a folder of your own on this machine."
        )
    if isinstance(source, KeptNoise) or not isinstance(budget, CountBudget):
        raise InputError("rng must be a sampler: the noise of a published cost is kept apart.")
    file = NoiseFile(ledger.secrets, ledger.id, verbs.release)
    state = verbs.state()
    if state is None:
        try:
            noise, secure = file.draw(source)
            state = verbs.charge(asked=asked, noise=noise, secure=secure)
        except (FileNotFoundError, LedgerError):  # another process finished, and destroyed what we were writing
            if (state := verbs.state()) is None:
                raise
    if state.asked != asked:
        raise LedgerError(
            "The ledger paid for publishing what other answers cost, and pays for one number only. Nothing was drawn."
        )
    if state.number is None:
        kept = file.load(state.noise)
        if kept is None:
            state = verbs.state() or state
            if state.number is None:  # nobody else finished it meanwhile
                raise LedgerError(
                    "The number was paid for, and the noise that it was paid for is not on this machine. If another "
                    "machine began to publish it, finish it there. Else it is lost: epsilon is spent, nothing is "
                    "drawn again, and the answers stay as they are (terrine learn goes on with them)."
                )
        else:
            number = verbs.release.draw(votes(), mechanism=budget.mechanism, noise=kept)
            state = verbs.keep(number.reveal())  # charged; kept before it is given out
    file.destroy()  # also what a crash left after the number was kept
    return state
