"""The command line: library verbs, no logic of its own.

Exit codes: 0 ok, 2 bad input (one line), 3 budget exhausted.
"""

from __future__ import annotations

import io
import sys
import warnings
from typing import Annotated

import typer

from terrine import __version__
from terrine.cli import analyses, data, ledgers, runs, serving, students  # noqa: F401  # their commands register themselves
from terrine.cli.common import app
from terrine.errors import BudgetError, TerrineError, TerrineWarning

__all__ = ["app", "main"]

_INTERRUPTED = 130


def main() -> None:
    """Run the command line; a user's mistake becomes one line and exit code 2."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without Greek letters still gets its numbers
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", TerrineWarning)
        try:
            code = app(prog_name="terrine", standalone_mode=False)
        except BudgetError as error:
            code = _complain(str(error), 3)
        except TerrineError as error:
            code = _complain(str(error))
        except typer.TyperException as error:
            code = _complain(error.format_message())
        except OSError as error:
            code = _complain(f"Expected to use {error.filename or 'a file'}, got: {error.strerror or error}.")
        except MemoryError:  # its message may tell how many private rows there are
            code = _complain("Expected sizes that fit into memory, got larger ones.")
        except (KeyboardInterrupt, typer.Abort):
            code = _INTERRUPTED
    if code == _INTERRUPTED:  # Typer makes an exit code of Ctrl-C, and says nothing
        _complain("Interrupted.")
    for warning in caught:
        if issubclass(warning.category, TerrineWarning):  # another's may quote private values
            print(f"terrine: warning: {warning.message}", file=sys.stderr)
    sys.exit(code if isinstance(code, int) else 0)


def _complain(message: str, code: int = 2) -> int:
    print(f"terrine: {' '.join(message.split())}", file=sys.stderr)
    return code


@app.callback(invoke_without_command=True)
def _version(
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.", is_eager=True)] = False,
) -> None:
    if version:
        print(f"terrine {__version__}")
        raise typer.Exit()
