"""Which files of a run directory anyone may see, and which are secret: docs/runs.md has the same table."""

from __future__ import annotations

from pathlib import Path

PUBLIC = (
    "student",
    "report.html",
    "guarantee.json",
    "student.json",
    "answers.npz",
    "round-*.npz",
    "probe.npz",
    "training-*",
    "ledger.sqlite",
    "ledger.json",
    "encoder",
    "features.safetensors",
    "rows.json",
    "plan.json",
    "route.json",
    "service.json",
    "request.json",
)
SECRET = (
    "private.sha256",
    "partition.key",
    "partition.npz",
    "votes.npz",
    "teachers",
    "failed.json",
    "noise-*.secret",
    "cost-noise-*.secret",
    "training-*.private.sha256",
    "report.secret.html",
)


def public_files(folder: Path) -> list[str]:
    """What there is of a run that may be published; a folder with a slash at its end."""
    secret = set(secret_files(folder))
    return [name for name in _there(folder, PUBLIC) if name not in secret]


def secret_files(folder: Path) -> list[str]:
    """What there is of a run that nobody else may see, but for config.toml, whose paths need not be public."""
    return _there(folder, SECRET)


def _there(folder: Path, patterns: tuple[str, ...]) -> list[str]:
    found = [path for pattern in patterns for path in sorted(folder.glob(pattern))]
    return list(dict.fromkeys(path.name + ("/" if path.is_dir() else "") for path in found))
