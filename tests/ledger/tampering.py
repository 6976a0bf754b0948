"""What an audit finds after a stored entry was changed behind the ledger's back."""

from __future__ import annotations

from pathlib import Path

import sqlalchemy as sa

from terrine.ledger import Ledger


def tampered(folder: Path, statement: str) -> str:
    """All that `verify` says after this statement, with the trigger that would refuse it removed."""
    engine = sa.create_engine(f"sqlite:///{folder / 'ledger.sqlite'}")
    with engine.begin() as connection:
        connection.exec_driver_sql("DROP TRIGGER terrine_entries_no_update")
        connection.exec_driver_sql(statement)
    engine.dispose()
    return " ".join(Ledger(folder / "ledger.sqlite").verify())
