"""Packages that not everybody needs: one sentence says what is missing, for what, and how to install it."""

from __future__ import annotations

import ast
import sys
import tomllib
from pathlib import Path

import pytest

import terrine
from terrine._optional import require
from terrine.errors import MissingDependencyError

ROOT = Path(__file__).parents[1]
SOURCE = Path(terrine.__file__).parent
GUARDS_THAT_STAY = {
    "_optional.py",
    "runs/ready.py",  # says that nothing was taught or spent
    "runs/factories.py",  # asks whether there is a GPU, or such an estimator
    "runs/modules.py",  # imports what a user named
    "features/loaders.py",  # the same
    "service/wire.py",  # modules that an operating system may lack
}


def test_a_module_that_is_there_comes_back():
    assert require("json.decoder", use="A test", extra="data").JSONDecoder is not None


@pytest.mark.parametrize(
    ("module", "extra", "message"),
    [
        (
            "torch",
            "torch",
            "A test needs PyTorch, which is not installed. Install it with: pip install 'terrine[torch]'",
        ),
        (
            "PIL.Image",
            "data",
            "A test needs Pillow, which is not installed. Install it with: pip install 'terrine[data]'",
        ),
        ("opendp.prelude", None, "A test needs opendp, which is not installed. Install it with: pip install opendp"),
    ],
)
def test_a_module_that_is_missing_is_named_with_its_extra(monkeypatch, module, extra, message):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingDependencyError) as found:
        require(module, use="A test", extra=extra)
    assert str(found.value) == message
    assert found.value.__suppress_context__


def test_a_package_that_is_installed_and_broken_is_not_called_missing(monkeypatch, tmp_path):
    (tmp_path / "broken_package.py").write_text("import a_part_that_is_not_there\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(MissingDependencyError, match=r"is installed but cannot be imported \(No module named 'a_part"):
        require("broken_package", use="A test", extra="data")


def test_there_is_one_guard_and_every_extra_it_names_exists():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    named, guarded = set(), set()
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.ExceptHandler(type=kind) if kind is not None and "ImportError" in ast.unparse(kind):
                    guarded.add(path.relative_to(SOURCE).as_posix())
                case ast.Call(func=ast.Name(id="require"), keywords=keywords):
                    named |= {word.value.value for word in keywords if word.arg == "extra"}
    assert guarded <= GUARDS_THAT_STAY
    assert {"torch", "keep", "data", None} <= named
    assert named - {None} <= extras.keys()
