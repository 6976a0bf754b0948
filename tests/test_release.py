"""What a release needs: one version, files that say the same, a container file without a lint."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

from tests.conftest import need

import terrine

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_the_version_has_one_source() -> None:
    assert "version" in PROJECT["dynamic"]
    assert re.findall(r"^version: (\S+)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE) == [terrine.__version__]
    newest = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)[0]
    assert newest == terrine.__version__


def test_every_extra_is_on_the_page_that_says_how_to_install() -> None:
    page = (ROOT / "docs" / "start.md").read_text()
    listed = set(re.findall(r"^\| `([\w-]+)` \|", page, flags=re.MULTILINE))
    assert listed == set(PROJECT["optional-dependencies"]) - {"dev", "docs"}


def test_the_container_file_has_no_lint() -> None:
    program = shutil.which("hadolint", path=str(Path(sys.executable).parent)) or shutil.which("hadolint")
    if program is None:
        need("hadolint")
    done = subprocess.run([str(program), str(ROOT / "Containerfile")], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_the_container_copies_what_is_there_and_serves_as_nobody() -> None:
    text = (ROOT / "Containerfile").read_text()
    for line in re.findall(r"^COPY (?!--from)(.*) \S+$", text, flags=re.MULTILINE):
        assert all((ROOT / name).exists() for name in line.split())
    (extras,) = re.findall(r"'\.\[([\w,]+)\]'", text)
    assert set(extras.split(",")) <= set(PROJECT["optional-dependencies"])
    assert text.index("USER 10001") > text.rindex("FROM")


def test_where_contributing_says_to_add_something_there_is_a_file() -> None:
    part = (ROOT / "CONTRIBUTING.md").read_text().split("## How to add")[1].split("\n## ")[0]
    for name in re.findall(r"`([\w/]+\.(?:py|md))`", part):
        places = (ROOT, ROOT / "src" / "terrine")
        assert any((place / name).is_file() for place in places), name


def test_importing_terrine_loads_no_more_than_it_needs() -> None:
    heavy = (
        "sklearn",
        "sqlalchemy",
        "opendp",
        "pydantic",
        "torch",
        "pandas",
        "matplotlib",
        "scipy.linalg",
        "scipy.stats",
    )
    code = f"import sys, terrine; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
