"""What it costs to begin anew: a refusal that proposes a new run says so."""

from __future__ import annotations

import json
from pathlib import Path

FURTHER = "Every further run on the same people adds its own epsilon and delta to these."


def or_anew(folder: Path) -> str:
    """The end of a refusal, after "Put it back, or": a new run, and what that spends on top of this one."""
    begin = "begin a new run with --out."
    if (folder / "service.json").is_file():
        if asks_probe(folder):
            return f"{begin} The service's labels cost nothing more."
        return f"{begin} It asks the service anew, which charges for it again."
    if (folder / "ledger.json").is_file():
        return f"{begin} This run's epsilon is charged already, and a new run on the same people spends its own on top."
    return f"{begin} Every run on the same people spends its own epsilon, on top of the others'."


def asks_probe(folder: Path) -> bool:
    """Whether a run gets its labels from a service that serves a probe: these charge nothing."""
    try:
        return json.loads((folder / "service.json").read_text(encoding="utf-8")).get("probe") is not None
    except (OSError, ValueError, AttributeError):
        return False
