"""The one ledger that a run directory is bound to: two over the same teachers would spend the budget twice."""

from __future__ import annotations

from pathlib import Path

from terrine._files import write_once
from terrine.budgets import Budget, canonical, difference
from terrine.errors import LedgerError
from terrine.ledger import Ledger, ledger_place
from terrine.runs.base import JsonObject, read_json


class _Bound(JsonObject):
    ledger: str


def bound_ledger(folder: Path, where: str | Path | None = None) -> Ledger | None:
    """The ledger that a run directory's ledger.json binds it to; None where there is no such file yet."""
    if not (folder / "ledger.json").is_file():
        return None
    place = ledger_place(where, folder)
    if place == ledger_place(None, folder) and isinstance(place, Path) and not place.exists():
        raise LedgerError(
            f"There is no {place}, the ledger that pays for {folder}. Put it back; if it is elsewhere, name it in "
            "TERRINE_LEDGER."
        )
    ledger = Ledger(place, secrets=folder)
    check_bound(folder, ledger)
    return ledger


def made_ledger(folder: Path, budget: Budget, where: str | Path | None) -> Ledger:
    """Begin the one ledger of a run directory, and bind the directory to it."""
    ledger = Ledger(ledger_place(where, folder), budget=budget, secrets=folder)
    write_once(folder / "ledger.json", canonical({"ledger": ledger.id}).encode())
    check_bound(folder, ledger)
    return ledger


def there_already(folder: Path, budget: Budget) -> Ledger | None:
    """The ledger that a run directory would be bound to, where there is one of this budget; another one is refused."""
    place = ledger_place(None, folder)
    if "://" not in str(place) and not Path(place).exists():
        return None
    try:
        Ledger(place).close()
    except LedgerError:  # a server without one
        return None
    return Ledger(place, budget=budget, secrets=folder)


def check_spends(folder: Path, ledger: Ledger, budget: Budget) -> None:
    """Refuse a ledger with a budget that is not the run's."""
    if differs := difference(ledger.budget, budget):
        ledger.close()
        raise LedgerError(
            f"The ledger's budget is not the one that {folder} spends from: {differs}. Name the run's own ledger, or "
            "put the settings back."
        )


def check_bound(folder: Path, ledger: Ledger) -> None:
    advice = 'Put back {"ledger": ID}, with the ledger_id that terrine ledger show --json prints.'
    bound = read_json(folder / "ledger.json", "terrine label", holds=_Bound, advice=advice)["ledger"]
    if bound != ledger.id:
        ledger.close()
        raise LedgerError(
            f"This is not the ledger that pays for {folder}: two ledgers over the same teachers would spend the budget "
            f"twice. Name the ledger with the id that {folder / 'ledger.json'} holds."
        )
