"""`terrine data`: what a data set is, and one line where it is not there."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.conftest import Done

Run = Callable[..., Done]


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TERRINE_DATA", raising=False)
    for name, value in {"XDG_CACHE_HOME": str(tmp_path), "HOME": str(tmp_path), "COLUMNS": "100"}.items():
        monkeypatch.setenv(name, value)


def test_it_says_what_the_built_in_set_is(terrine: Run) -> None:
    done = terrine("data", "small-glyph")
    assert done.code == 0, done.err
    assert "12,000" in done.out
    assert "24: A, B, C" in done.out


def test_json_has_the_sizes(terrine: Run) -> None:
    facts = json.loads(terrine("data", "blobs", "--json").out)
    assert facts["name"] == "blobs"
    assert set(facts["sizes"]) == {"private", "public", "test"}


@pytest.mark.parametrize(("name", "words"), [("nothing", "not one of 'mnist'"), ("", "not one of")])
def test_an_unknown_name_is_one_line(terrine: Run, name: str, words: str) -> None:
    done = terrine("data", name)
    assert done.code == 2
    assert words in done.err
    assert len(done.err.strip().splitlines()) == 1
    assert not done.out
