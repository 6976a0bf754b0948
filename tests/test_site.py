"""The documentation site: it builds without a warning, loads nothing from elsewhere, and misses no public name."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tests.conftest import need
from tests.service.browser import chromium

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def hooks() -> ModuleType:
    if any(importlib.util.find_spec(name) is None for name in ("mkdocs", "mkdocstrings", "latex2mathml", "pymdownx")):
        need("the extra docs")
    spec = importlib.util.spec_from_file_location("site_hooks", ROOT / "docs" / "site_hooks.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def site(hooks: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return folder


def test_every_page_is_in_the_menu_and_every_entry_is_a_page() -> None:
    menu = set(re.findall(r"([\w/]+\.md)$", (ROOT / "mkdocs.yml").read_text().split("\nnav:")[1], flags=re.MULTILINE))
    pages = {page.relative_to(ROOT / "docs").as_posix() for page in (ROOT / "docs").rglob("*.md")}
    assert menu == pages | {"contributing.md", "changes.md", "security.md"}


def test_pages_load_nothing_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        assert not re.findall(r'<(?:script|img|link)[^>]+(?:src|href)="(?:https?:)?//', text), page.name


def test_what_a_fit_leaves_is_named_with_its_own_type() -> None:
    """A name without a type would get that of the one before it."""
    if importlib.util.find_spec("griffe") is None:
        need("the extra docs")
    import griffe

    model = griffe.load("terrine", search_paths=[ROOT / "src"])["estimator.classifier.PATEClassifier"]
    [section] = [one for one in model.docstring.parse("google") if one.kind.value == "attributes"]
    types = {one.name: str(one.annotation) for one in section.value}
    assert types["answers_"] == "Answers | None"
    assert [name for name, given in types.items() if given == "Guarantee"] == ["guarantee_"]
    assert all(name.endswith("_") for name in types)


def test_formulas_are_mathml_and_none_is_left(site: Path) -> None:
    for page in site.rglob("*.html"):
        assert "xformula" not in page.read_text(encoding="utf-8"), page.name
    assert (site / "math.html").read_text(encoding="utf-8").count("<math") > 200


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


def test_search_finds_a_page_without_a_server(site: Path, browser: Any) -> None:
    page = browser.new_context(offline=True).new_page()
    page.goto((site / "index.html").as_uri())
    page.get_by_role("textbox", name="Search").fill("consensus")
    found = page.locator(".md-search-result__link").first
    found.wait_for(timeout=30_000)
    assert "file://" in str(found.evaluate("link => link.href"))


def test_no_page_is_wider_than_a_phone(site: Path, browser: Any) -> None:
    page = browser.new_context(viewport={"width": 390, "height": 844}).new_page()
    for name in ("index", "start", "math", "guides/rows_and_teachers", "reference/classifier", "results/dpsgd"):
        page.goto((site / f"{name}.html").as_uri())
        wider = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert wider <= 0, name


def test_a_public_name_without_words_or_without_a_page_is_named(hooks: ModuleType, tmp_path: Path) -> None:
    assert hooks.undocumented(str(ROOT / "docs")) == []
    (tmp_path / "reference").mkdir()
    (tmp_path / "reference" / "some.md").write_text("::: terrine.students\n")
    faults = hooks.undocumented(str(tmp_path))
    assert "No page of docs/reference shows terrine.PATEClassifier." in faults
    assert not [fault for fault in faults if "terrine.students" in fault]


def test_markdown_is_read_as_github_reads_it(hooks: ModuleType) -> None:
    assert hooks.as_github("Text:\n- one\n- two\n") == "Text:\n\n- one\n- two\n"
    assert hooks.as_github("Text:\n| a |\n|---|\n") == "Text:\n\n| a |\n|---|\n"
    code = "```\nx\n- one\n```\n"
    assert hooks.as_github(code) == code
    text, formulas = hooks.without_formulas("Costs $5 or `$x$`, and $x_1$ is $$y$$ here.")
    assert "`$x$`" in text
    assert [formula.startswith("<math") for formula in formulas] == [True, True]
    assert text.startswith("Costs $5 or")
