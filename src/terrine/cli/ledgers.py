"""Commands on a ledger: show, verify, upgrade, export."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from terrine.cli.common import Json, app, print_json
from terrine.errors import LedgerError
from terrine.ledger.place import ledger_place

if TYPE_CHECKING:
    from terrine.ledger import Ledger

ledger_app = typer.Typer(help="Show, verify, upgrade or export a ledger.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(ledger_app, name="ledger")

Where = Annotated[
    str,
    typer.Argument(
        metavar="LEDGER",
        envvar="TERRINE_LEDGER",
        help="A ledger file, a run directory, or postgresql://user:password@host:port/database.",
    ),
]


def _open(given: str) -> Ledger:
    """A ledger; of a run directory, the one that it spends from, by the same rule as every command."""
    from terrine.ledger import Ledger

    folder = Path(given)
    if not folder.is_dir():
        return Ledger(given)
    from terrine.runs.bound import bound_ledger
    from terrine.runs.config import RemoteConfig, read_settings

    settings = read_settings(folder / "config.toml") if (folder / "config.toml").is_file() else None
    if isinstance(settings, RemoteConfig):
        raise LedgerError(
            f"The ledger of {folder} is the service's, at {settings.labels.url}: this run has none. Its guarantee.json "
            "names that ledger and its newest entry; the service's owner can show it, and what is left of the budget "
            f"stands at {settings.labels.url.rstrip('/')}/v1/budget."
        )
    return bound_ledger(folder) or Ledger(ledger_place(None, folder))


@ledger_app.command("show")
def show_command(where: Where, as_json: Json = False) -> None:
    """The budget, what was spent, and the ledger's head.

    Keep the head: it proves later that nothing was removed.
    """
    from terrine.report.tables import print_ledger
    from terrine.runs.rounds import rounds_in_words

    with _open(where) as ledger:
        found, accounts = ledger.summary(), ledger.accounts()
    rounds = rounds_in_words(Path(where)) if Path(where).is_dir() else []
    if as_json:
        facts = {**found.to_json(), "accounts": {name: vars(spent) for name, spent in sorted(accounts.items())}}
        print_json(facts | ({"rounds": rounds} if rounds else {}))
    else:
        print_ledger(found, accounts)
        for k, one in enumerate(rounds, start=1):
            print(f"Round {k}: {one}.")


@ledger_app.command("verify")
def verify_command(
    where: Where,
    head: Annotated[
        str | None, typer.Option(help="What `terrine ledger show` printed once: that entry must be there, unchanged.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Check every entry of the ledger; a problem is exit code 2."""
    from terrine.ledger import Head

    seen = None if head is None else Head.parse(head)
    with _open(where) as ledger:
        problems = ledger.verify(head=seen)
        newest = ledger.head()
    if as_json:
        print_json({"entries": newest.seq, "head": str(newest), "problems": problems})
    elif not problems:
        print(f"{newest.seq} entries, no problem found. Head: {newest}")
    if problems:
        raise LedgerError(f"The ledger is damaged: {len(problems)} problem(s) found, the first: {problems[0]}")


@ledger_app.command("upgrade")
def upgrade_command(where: Where, as_json: Json = False) -> None:
    """Bring an older ledger's tables up to date. Entries stay as they are.

    The first command that writes does the same; on PostgreSQL it takes the owner of the tables.
    """
    with _open(where) as ledger:
        ledger.upgrade()
        head, root = ledger.tree_head()
    if as_json:
        print_json({"entries": head.seq, "head": str(head), "root": root})
    else:
        print(f"{head.seq} entries. Head: {head}")


@ledger_app.command("export")
def export_command(
    where: Where,
    to: Annotated[Path | None, typer.Option(help="A file, written whole or not at all; else to the terminal.")] = None,
) -> None:
    """All entries and answers as lines of JSON."""
    from terrine._files import write_atomically

    with _open(where) as ledger:
        lines = ledger.export()
        if to is None:
            for line in lines:
                print(line)
        else:
            write_atomically(to, lambda file: file.writelines(f"{line}\n".encode() for line in lines))
