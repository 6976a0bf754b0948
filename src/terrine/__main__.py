"""The command line as a program. An interruption while it is still being loaded ends as quietly as one later."""

import sys


def main() -> None:
    """`terrine`, and `python -m terrine`."""
    try:
        from terrine.cli import main as commands

        commands()
    except KeyboardInterrupt:
        print("terrine: Interrupted.", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
