"""Settings or a folder to the run that they are: with teachers, by a service, or by a probe."""

from __future__ import annotations

from pathlib import Path
from typing import TypeAlias

from terrine.runs.base import begin, learns_probe, no_run
from terrine.runs.config import ProbeConfig, RemoteConfig, RunConfig, Settings, read_settings
from terrine.runs.local import Run
from terrine.runs.probe import ProbeRun
from terrine.runs.remote import RemoteRun
from terrine.runs.route import settle

AnyRun: TypeAlias = Run | RemoteRun | ProbeRun


def begin_run(settings: Settings, folder: Path, *, again: bool = False, name: str | None = None) -> AnyRun:
    """Begin a run, or go on with one of the same settings; a route that is left open is chosen now.

    Args:
        name: of the settings' file, for the report's commands.
        again: the student's settings may change after it has learned: a new one will be trained.
    """
    begin(settings, folder, again=again, name=name)
    return opened(folder)


def opened(folder: Path) -> AnyRun:
    """The run of a directory."""
    if not (folder / "config.toml").is_file():
        raise no_run(folder)
    match read_settings(folder / "config.toml"):
        case RemoteConfig():
            return RemoteRun(folder)
        case ProbeConfig():
            return ProbeRun(folder)
        case RunConfig() as settings:
            if settings.privacy.route == "auto":
                settle(settings, folder)
            return ProbeRun(folder) if learns_probe(settings, folder) else Run(folder)
