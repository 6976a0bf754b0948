"""The command line: library verbs, no logic of its own.

Exit codes: 0 ok, 2 bad input (one line), 3 budget exhausted (also where it ended before a service had answered all
questions), 4 a tested release did not pass.
"""

from __future__ import annotations

import io
import os
import sys
import warnings
from typing import Annotated

import typer

from terrine import __version__
from terrine.accounting.profile_costs import WATCHER
from terrine.cli import (  # noqa: F401  # their commands register themselves
    analyses,
    begin,
    data,
    ledgers,
    runs,
    schemas,
    serving,
    students,
)
from terrine.cli.common import ProfileLines, app
from terrine.errors import BudgetError, TerrineError, TerrineWarning, TestFailedError

__all__ = ["app", "main"]

# Threads that wait for work sleep instead of spinning: on a busy machine spinning slows everything tenfold. Read when
# scikit-learn or PyTorch is loaded, which is later.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("KMP_BLOCKTIME", "0")

_INTERRUPTED = 130
_GO_ON = ("run", "teach", "vote", "label", "cost", "learn", "report")


def main() -> None:
    """Run the command line; a user's mistake becomes one line and exit code 2."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without Greek letters still gets its numbers
    WATCHER.set(ProfileLines())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", TerrineWarning)
        try:
            code = app(prog_name="terrine", standalone_mode=False)
        except BudgetError as error:
            code = _complain(str(error), 3)
        except TestFailedError as error:
            code = _complain(str(error), 4)
        except TerrineError as error:
            code = _complain(str(error))
        except typer.TyperException as error:
            message = error.format_message()
            if message.startswith("Usage: "):  # a group without a command: its help
                print(message)
                code = 0
            else:
                code = _complain(message)
        except OSError as error:
            code = _complain(f"{error.filename or 'A file'} cannot be used: {error.strerror or error}.")
        except MemoryError:  # its message may tell how many private rows there are
            code = _complain("There is not enough memory for this. Use smaller sizes, or a machine with more memory.")
        except (KeyboardInterrupt, typer.Abort):
            code = _INTERRUPTED
        except Exception as error:  # its message may quote private values
            if os.environ.get("TERRINE_DEBUG"):
                raise
            code = _complain(
                f"This is a fault in terrine ({type(error).__name__}), not in what you typed. To see where, set "
                "TERRINE_DEBUG=1 and run it again; what that prints may quote private values.",
                1,
            )
    if code == _INTERRUPTED:  # Typer makes an exit code of Ctrl-C, and says nothing
        _complain(_interrupted(sys.argv[1:]))
    # Those of other packages may quote private values
    said = dict.fromkeys(str(one.message) for one in caught if issubclass(one.category, TerrineWarning))
    for message in said:
        print(f"terrine: warning: {message}", file=sys.stderr)
    sys.exit(code if isinstance(code, int) else 0)


def _interrupted(words: list[str]) -> str:
    """What Ctrl-C leaves: of what may have charged a ledger, also what to do now."""
    command = next((word for word in words if not word.startswith("-")), "")
    if command not in _GO_ON or "--dry-run" in words:
        return "Interrupted."
    return (
        "Interrupted. The same command goes on where it stopped, and the run's epsilon is not spent twice. Do not "
        "delete the run's folder: it remembers what was charged."
    )


def _complain(message: str, code: int = 2) -> int:
    print(f"terrine: {' '.join(message.split())}", file=sys.stderr)
    return code


_START = f"""\
terrine {__version__}: a model you may publish, from data you may not.

See it work, about three minutes:
  terrine demo

Your own data, as CSV or Parquet, a folder of images or of texts:
  terrine init --private private.csv --public public.csv --label ill \\
    --classes no,yes        write run.toml and schema.toml, with comments
  terrine check private.csv --schema schema.toml
                            what is odd in your file (for your eyes only)
  terrine run run.toml --dry-run
                            what it will cost, and whether it can work
  terrine run run.toml      teachers, answers, student, report
  terrine predict run/student new.csv --out predictions.csv

All commands: terrine --help        One command: terrine run --help
"""


@app.callback(invoke_without_command=True)
def _start(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.", is_eager=True)] = False,
) -> None:
    if version:
        print(f"terrine {__version__}")
        raise typer.Exit()
    if context.invoked_subcommand is None:
        print(_START, end="")
