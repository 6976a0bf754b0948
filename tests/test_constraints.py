"""constraints.txt pins everything that an install with all extras brings, and says nothing of where it came from."""

from __future__ import annotations

import re
import tomllib
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def pins() -> dict[str, str]:
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if line and line[0] != "#"]
    found = [re.fullmatch(r"([A-Za-z0-9][A-Za-z0-9._-]*)==([A-Za-z0-9.!+]+)", line) for line in lines]
    assert None not in found, "a line that is not name==version: a host, a path or an option has no place here"
    return {canonicalize_name(one[1]): one[2] for one in found if one}


def needed() -> dict[str, bool]:
    """Every installed package that terrine's extras need, through any number of others; True: its parent pins it."""
    waiting = [Requirement(text) for text in PROJECT["dependencies"]]
    for some in PROJECT["optional-dependencies"].values():
        waiting += [Requirement(text) for text in some]
    found: dict[str, bool] = {}
    seen: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        wanted = waiting.pop()
        name, extras = canonicalize_name(wanted.name), frozenset(wanted.extras)
        if (name, extras) in seen or name == "terrine":
            continue
        seen.add((name, extras))
        try:
            requires = metadata.distribution(name).requires or []
        except metadata.PackageNotFoundError:  # an extra that is not installed here
            continue
        exact = any(one.operator == "==" and "*" not in one.version for one in wanted.specifier)
        found[name] = found.get(name, False) or exact
        for one in map(Requirement, requires):
            if one.marker is None or any(one.marker.evaluate({"extra": extra}) for extra in {"", *extras}):
                waiting.append(one)
    return found


def test_every_package_that_is_needed_is_pinned() -> None:
    """But for what a pinned one pins itself: a build of torch for a GPU names its own."""
    pinned, everything = pins(), needed()
    assert {"anyio", "typing-extensions", "protobuf"} & set(everything)  # it goes beyond what pyproject names
    assert sorted(name for name, exact in everything.items() if name not in pinned and not exact) == []
    direct = [Requirement(text) for some in PROJECT["optional-dependencies"].values() for text in some]
    direct += [Requirement(text) for text in PROJECT["dependencies"]]
    for one in direct:
        name = canonicalize_name(one.name)
        assert name == "terrine" or one.specifier.contains(pinned[name]), name


def test_pins_name_no_host_and_nothing_twice() -> None:
    text = (ROOT / "constraints.txt").read_text()
    assert len(pins()) == sum(line[0] != "#" for line in text.splitlines() if line)
    assert "terrine" not in pins()
    assert not re.search(r"://|index-url|find-links|@|file:|/work|/home", text)
    assert all(Version(version).local is None for version in pins().values())  # +cpu is one index's own
