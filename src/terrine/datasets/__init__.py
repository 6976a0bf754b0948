"""Data for demonstrations, tests and experiments (`load`), and a user's own (`read_private` and its kin)."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from terrine.datasets.data import PrivateData, PublicData, Task

if TYPE_CHECKING:
    from terrine.datasets.catalog import NAMES, describe, load, prepare
    from terrine.datasets.readers import read_labelled, read_private, read_public, read_public_labels

__all__ = [
    "NAMES",
    "PrivateData",
    "PublicData",
    "Task",
    "describe",
    "load",
    "prepare",
    "read_labelled",
    "read_private",
    "read_public",
    "read_public_labels",
]

# Loaded when first asked for: importing terrine stays fast.
_LATER = {
    **dict.fromkeys(("NAMES", "describe", "load", "prepare"), "catalog"),
    **dict.fromkeys(("read_labelled", "read_private", "read_public", "read_public_labels"), "readers"),
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"terrine.datasets.{_LATER[name]}"), name)
