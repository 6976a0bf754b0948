"""Commands of the label service: serve, keys."""

from __future__ import annotations

import gc
import json
import os
import socket
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from terrine._optional import require
from terrine.budgets import TrainingBudget
from terrine.cli.common import Json, app, print_json
from terrine.errors import InputError, LedgerError, ServiceError
from terrine.ledger.place import ledger_place

if TYPE_CHECKING:
    from fastapi import FastAPI

    from terrine.ledger import Ledger
    from terrine.ledger.views import Summary
    from terrine.runs.local import Run
    from terrine.runs.probe import ProbeRun
    from terrine.service.keys import Key, Keys

keys_app = typer.Typer(
    help="Make, list and revoke keys of a label service.", no_args_is_help=True, rich_markup_mode=None
)
app.add_typer(keys_app, name="keys")

Folder = Annotated[Path, typer.Argument(metavar="RUN", help="A run directory.")]
Where = Annotated[
    str | None,
    typer.Option(
        "--ledger",
        help="The ledger's file or URL (default: the environment's TERRINE_LEDGER, where a password is safer than "
        "here; else the run's own).",
        show_default=False,
    ),
]
_SERVED = "TERRINE_SERVED"  # what worker processes serve, as JSON


@app.command()
def serve(
    folder: Folder,
    ledger: Where = None,
    host: Annotated[str, typer.Option(help="Address to listen on; put TLS in front of any other than this.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(min=1, max=65535)] = 8100,
    workers: Annotated[int, typer.Option(min=1, help="Server processes; more than one need PostgreSQL.")] = 1,
    rate: Annotated[float, typer.Option(min=0.001, help="Requests per second and key, in each process.")] = 200.0,
    rows: Annotated[int, typer.Option(min=1, help="Rows in one request.")] = 10_000,
    body: Annotated[int, typer.Option(min=1024, help="Bytes in one .npy body; JSON: at most 8 MiB.")] = 32 << 20,
    seconds: Annotated[float, typer.Option(min=0.1, help="For a body to arrive, and for its answers.")] = 60.0,
    pace: Annotated[
        float,
        typer.Option(
            min=0.0, max=10.0, help="Seconds: answers are sent at multiples of it, so that time tells nothing."
        ),
    ] = 0.02,
    header: Annotated[
        float, typer.Option(min=0.1, help="Seconds for a request's header, and for each next piece of its body.")
    ] = 10.0,
    least: Annotated[
        int, typer.Option(min=1, help="Bytes of a body per second, on average; a slower one is refused.")
    ] = 16 << 10,
    connections: Annotated[int, typer.Option(min=1, help="Open connections, in each process.")] = 1000,
    connections_per_address: Annotated[
        int,
        typer.Option(min=1, help="Of these, from one address; behind a proxy all of them come from the proxy's."),
    ] = 500,
    in_flight: Annotated[
        int, typer.Option(min=1024, help="Bytes of bodies that wait or arrive, in each process; half of it by one key.")
    ] = 256 << 20,
) -> None:
    """Label rows over HTTP, by a run's teachers or probe.

    All answers of teachers are paid from one budget; labels by a probe cost nothing. Callers need a key: terrine keys
    create.
    """
    for package in ("fastapi", "prometheus_client", "uvicorn"):
        require(package, use="The label service", extra="service")
    import uvicorn

    limits: dict[str, Any] = {
        "rate": rate,
        "rows": rows,
        "body": body,
        "json": min(body, 8 << 20),
        "seconds": seconds,
        "pace": pace,
        "header": header,
        "least": least,
        "connections": connections,
        "connections_per_address": connections_per_address,
        "in_flight": in_flight,
    }
    if in_flight < 2 * body:
        raise InputError(
            f"--in-flight must be at least twice --body, {2 * body}, so that one body fits its key's half."
        )
    served = {"folder": str(folder.absolute()), "ledger": ledger, "limits": limits}
    if workers > 1 and not str(ledger_place(ledger, folder)).startswith("postgresql"):
        raise InputError(
            "More than one worker needs a ledger on PostgreSQL. Name it with --ledger or TERRINE_LEDGER, or use "
            "--workers 1."
        )
    os.environ[_SERVED] = json.dumps(served)
    from terrine.service.app import Limits, check_release

    with checked(folder, ledger) as bound:  # what is wrong is said here, in one line, before any worker starts
        check_release(bound, Limits(**limits))
        left, by_probe = left_in_words(bound.summary()), isinstance(bound.budget, TrainingBudget)
    address = bind(host, port)
    intact = "The probe" if by_probe else "Teachers"
    print(f"{intact} and newest entries are intact. Serving {folder} at http://{host}:{port}, with a dashboard at /.")
    print(left)
    if by_probe and _has_other_student(folder):
        print(f"Labels are the probe's. {folder / 'student'} is another model, which the service does not ask.")
    if by_probe:
        print(_instead(folder))
    if not any(key.revoked is None for key in _keys(folder, ledger).list()):
        print(f"Nobody has a key yet: terrine keys create {folder} --name NAME")
    print("To stop: Ctrl-C. Whoever waits then is answered first.")
    sys.stdout.flush()
    config: dict[str, Any] = {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"lines": {"()": "terrine.service.middleware.JsonLines"}},
        "handlers": {"lines": {"class": "logging.StreamHandler", "formatter": "lines"}},
        "loggers": {
            "uvicorn": {"handlers": ["lines"], "level": "INFO", "propagate": False},
            "terrine.service": {"handlers": ["lines"], "level": "INFO", "propagate": False},
        },
    }
    from terrine.service.middleware import metrics_folder
    from terrine.service.wire import settings

    served_app = "terrine.cli.serving:app_of_run"
    try:
        if workers > 1:
            address.close()  # uvicorn binds it again, for its workers
            with metrics_folder():
                uvicorn.run(
                    served_app, host=host, port=port, workers=workers, **settings(factory=True, log_config=config)
                )
        else:
            with address:
                given = uvicorn.Config(served_app, **settings(factory=True, log_config=config))
                uvicorn.Server(given).run(sockets=[address])
    except KeyboardInterrupt:
        pass  # uvicorn has ended in good order
    except SystemExit:  # with uvicorn's exit code, which is none of ours
        raise ServiceError("The service did not start. The log above says why.") from None


def _has_other_student(folder: Path) -> bool:
    """Whether the student of a run by the probe is not the probe itself."""
    try:
        card = json.loads((folder / "student" / "model_card.json").read_text(encoding="utf-8"))
        return bool(card["training"]["settings"]["student"] != "Probe")
    except (OSError, ValueError, KeyError, TypeError):
        return False  # there is none yet


def _instead(folder: Path) -> str:
    """A probe need not be served at all."""
    student = folder / "student"
    made = "" if student.is_dir() else f" (terrine learn {folder} makes it)"
    return (
        f"No service is needed: {student}{made} may be given away instead, and gives probabilities too. The service "
        "gives classes alone."
    )


def left_in_words(summary: Summary) -> str:
    """How many answers a service still has."""
    left = summary.remaining
    if isinstance(summary.budget, TrainingBudget):
        return "Labels cost nothing, however many rows they are of: the training was paid for as a whole."
    if min(left.get(name, 1) for name in ("queries", "answers", "share")) <= 0:
        return (
            "Warning: nothing is left of this budget. New questions get no answer; a question that was answered before "
            "gets the same answer, at no cost. A second run on the same private rows adds its own ε and δ."
        )
    if "answers" in left:
        return f"Left of the budget: {left['answers']:,.0f} answers to at most {left['queries']:,.0f} questions."
    return f"Left of the budget: {left['share']:.0%} of it." if "share" in left else ""


def bind(host: str, port: int) -> socket.socket:
    """A socket at this address, which does not listen yet."""
    bound = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
    except (OSError, TypeError) as error:  # TypeError: a name that cannot be encoded
        bound.close()
        why = getattr(error, "strerror", None) or str(error)
        raise InputError(
            f"Cannot listen at {host}, port {port}: {why}. Choose others with --host and --port."
        ) from None
    return bound


def app_of_run() -> FastAPI:
    """What each server process serves: named in its environment by `serve`."""
    from terrine.runs.probe import ProbeRun
    from terrine.runs.served import kept_rows
    from terrine.service.app import Limits, make_app, make_probe_app
    from terrine.service.keys import Keys

    served = json.loads(os.environ[_SERVED])
    run = _served(Path(served["folder"]))
    limits, ledger = Limits(**served["limits"]), run.ledger(served["ledger"])
    keys = Keys(ledger_place(served["ledger"], run.folder))
    if isinstance(run, ProbeRun):
        app = make_probe_app(run.served(ledger), ledger, keys, limits=limits)
    else:
        voters = run.voters()
        rows = kept_rows(run.folder)
        mechanisms = [run.mechanism] if run.given.rounds is None else [one.mechanism for one in run.rounds.planned]
        app = make_app(voters, mechanisms, ledger, keys, rows=rows, limits=limits)
    gc.collect()
    gc.freeze()  # modules and teachers stay as long as the process: no collection need look at them again
    return app


def checked(folder: Path, where: str | None) -> Ledger:
    """The run's ledger, after a look at its newest entries, and at every teacher or the probe.

    `terrine ledger verify` reads all of it.
    """
    from terrine.runs.probe import ProbeRun

    run = _served(folder)
    if not isinstance(run, ProbeRun):
        run.ensemble()  # every file is verified
    ledger = run.ledger(where)
    if isinstance(run, ProbeRun):
        run.served(ledger)
    if problems := ledger.verify_recent():
        raise LedgerError(f"The ledger is damaged: {len(problems)} problem(s) found, the first: {problems[0]}")
    return ledger


def _served(folder: Path) -> Run | ProbeRun:
    """The run of a directory: with teachers, or with a probe that is trained."""
    from terrine.runs.opening import opened
    from terrine.runs.probe import ProbeRun
    from terrine.runs.remote import RemoteRun

    run = opened(folder)
    if isinstance(run, RemoteRun):
        raise InputError(f"{folder} gets its labels from a service, and has nothing to serve.")
    if isinstance(run, ProbeRun):
        run.probe()  # before its ledger is made: the training alone may do that
    return run


def _summary(folder: Path, where: str | None) -> Summary:
    with _served(folder).ledger(where) as ledger:
        return ledger.summary()


def _keys(folder: Path, where: str | None) -> Keys:
    from terrine.service.keys import Keys

    _served(folder).ledger(where).close()
    return Keys(ledger_place(where, folder))


@keys_app.command("create")
def create_command(
    folder: Folder,
    name: Annotated[
        str,
        typer.Option(
            help="Whose key it is. It is written into the ledger, which may be published: take a name that may be seen."
        ),
    ],
    ledger: Where = None,
    admin: Annotated[bool, typer.Option("--admin", help="May also see every key's use.")] = False,
    quota: Annotated[
        int | None,
        typer.Option(min=0, help="At most this number of queries is ever charged to it (default: no limit)."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Make a key and print it, this once: only a hash of it is kept."""
    summary = _summary(folder, ledger)
    if quota is not None and isinstance(summary.budget, TrainingBudget):
        raise InputError(
            f"{folder} has a probe, whose labels are charged to no key: --quota would limit nothing. Leave it out; "
            "terrine serve --rate limits requests, and --rows their rows."
        )
    key = _keys(folder, ledger).create(name, role="admin" if admin else "client", quota=quota)
    if as_json:
        role = "admin" if admin else "client"
        left = {} if isinstance(summary.budget, TrainingBudget) else summary.remaining  # of a training nothing runs out
        print_json({"name": name, "role": role, "quota": quota, "key": key, "left": left})
    else:
        print(key)
        print("Keep it: it cannot be shown again.", file=sys.stderr)
        print(f"The name {name!r} stands in the ledger, which may be published with the run.", file=sys.stderr)
        print(left_in_words(summary), file=sys.stderr)
        if isinstance(summary.budget, TrainingBudget):
            print(_instead(folder), file=sys.stderr)


@keys_app.command("revoke")
def revoke_command(
    folder: Folder,
    name: Annotated[str, typer.Argument(metavar="KEY", help="The key's name or id.")],
    ledger: Where = None,
    as_json: Json = False,
) -> None:
    """Refuse a key from now on; what it was charged stays charged."""
    key = _keys(folder, ledger).revoke(name)
    if as_json:
        print_json(_shown(key))
    else:
        print(f"Revoked: {key.name} ({key.id}).")


@keys_app.command("list")
def list_command(folder: Folder, ledger: Where = None, as_json: Json = False) -> None:
    """All keys, without their secrets."""
    found = _keys(folder, ledger).list()
    if as_json:
        print_json({"keys": [_shown(key) for key in found]})
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table()
    for name in ("name", "id", "role", "quota", "created", "revoked"):  # a narrow terminal wraps, and cuts nothing
        widest = 10 if name in ("created", "revoked") else None  # a date
        table.add_column(name, justify="right" if name == "quota" else "left", overflow="fold", min_width=widest)
    for key in found:
        quota = "no limit" if key.quota is None else f"{key.quota:,}"
        times = (str(time or "")[:19].replace("T", " ") for time in (key.created, key.revoked))
        table.add_row(escape(key.name), key.id, key.role, quota, *times)
    Console().print(table)


def _shown(key: Key) -> dict[str, Any]:
    return asdict(key)
