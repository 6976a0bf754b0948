"""Commands on a ledger: show, verify."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from terrine.cli.common import Json, app, print_json
from terrine.errors import LedgerError

ledger_app = typer.Typer(
    help="What was spent of a budget, and whether the ledger is whole.", no_args_is_help=True, rich_markup_mode=None
)
app.add_typer(ledger_app, name="ledger")

Where = Annotated[Path, typer.Argument(metavar="LEDGER", help="A ledger file, or a run directory.")]


def _path(where: Path) -> Path:
    return where / "ledger.sqlite" if where.is_dir() else where


@ledger_app.command("show")
def show_command(where: Where, as_json: Json = False) -> None:
    """The budget, its guarantee, and what was spent of it."""
    from terrine.ledger import Ledger
    from terrine.report.tables import print_ledger

    with Ledger(_path(where)) as ledger:
        found = ledger.summary()
    if as_json:
        print_json(found)
    else:
        print_ledger(found)


@ledger_app.command("verify")
def verify_command(where: Where, as_json: Json = False) -> None:
    """Check every entry of the ledger; a problem is exit code 2."""
    from terrine.ledger import Ledger

    with Ledger(_path(where)) as ledger:
        problems = ledger.verify()
        entries = len(ledger.entries())
    if as_json:
        print_json({"entries": entries, "problems": problems})
    elif not problems:
        print(f"{entries} entries, no problem found.")
    if problems:
        raise LedgerError(f"Expected a whole ledger, got {len(problems)} problem(s): {problems[0]}")
