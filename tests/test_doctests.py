"""The examples in docstrings print what they say."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import terrine

MODULES = sorted(
    module.name for module in pkgutil.walk_packages(terrine.__path__, "terrine.") if "__main__" not in module.name
)


def examples(name: str) -> list[doctest.DocTest]:
    """Those of one module, however deep."""
    return [found for found in doctest.DocTestFinder().find(importlib.import_module(name)) if found.examples]


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module(name):
    said: list[str] = []
    runner = doctest.DocTestRunner()
    for example in examples(name):
        runner.run(example, out=said.append)
    assert runner.failures == 0, "".join(said)


def test_examples_are_found_and_none_is_skipped():
    found = {one.name: one for name in MODULES for one in examples(name)}
    assert "terrine.votes.Votes" in found
    skipped = [name for name, one in found.items() if any(doctest.SKIP in e.options for e in one.examples)]
    assert skipped == []


def test_a_wrong_example_fails():
    wrong = doctest.DocTestParser().get_doctest(">>> 1 + 1\n3\n", {}, "wrong", None, None)
    assert doctest.DocTestRunner().run(wrong, out=lambda _: None).failed == 1
