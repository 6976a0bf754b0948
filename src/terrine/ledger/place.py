"""Where a ledger is: one rule for every command, for runs and for the estimator."""

from __future__ import annotations

import os
from pathlib import Path

ENVIRONMENT = "TERRINE_LEDGER"
IN_FOLDER = "ledger.sqlite"


def ledger_place(given: str | Path | None, folder: str | Path) -> str | Path:
    """The file or URL that was given; else the environment's TERRINE_LEDGER; else ledger.sqlite in the folder."""
    return given or os.environ.get(ENVIRONMENT) or Path(folder) / IN_FOLDER


def has_ledger(place: str | Path) -> bool:
    """Whether there is a ledger at a file or URL; none is made."""
    from terrine.ledger.store import Store

    store = Store(place)
    try:
        return store.header() is not None
    finally:
        store.close()
