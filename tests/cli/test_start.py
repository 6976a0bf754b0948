"""The first minute: what somebody sees who types terrine and nothing else."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from terrine.cli import main


@pytest.fixture
def terrine(capsys, monkeypatch):
    """Exit code and output of a command on a terminal of 80 columns."""
    monkeypatch.setenv("COLUMNS", "80")

    def call(*words: str) -> tuple[int, str]:
        monkeypatch.setattr("sys.argv", ["terrine", *words])
        with pytest.raises(SystemExit) as left:
            main()
        shown = capsys.readouterr()
        assert shown.err == ""
        return left.value.code, shown.out

    return call


def test_nothing_typed_shows_where_to_begin(terrine):
    code, out = terrine()
    assert code == 0
    for words in ("terrine demo", "terrine init", "terrine run run.toml --dry-run", "terrine predict", "--help"):
        assert words in out
    assert all(len(line) <= 80 for line in out.splitlines())


def test_the_first_command_that_is_shown_can_be_typed(terrine, tmp_path, monkeypatch):
    """With the page's file names, as it stands."""
    shown = terrine()[1].replace("\\\n", "")
    (words,) = re.findall(
        r"^  terrine (init --private \S+ --public \S+ --label \S+\s+--classes \S+)", shown, re.MULTILINE
    )
    monkeypatch.chdir(tmp_path)
    (tmp_path / "private.csv").write_text("age,ill\n50,no\n60,yes\n")
    (tmp_path / "public.csv").write_text("age\n40\n70\n")
    assert terrine(*words.split())[0] == 0
    assert (tmp_path / "run.toml").is_file()


@pytest.mark.parametrize("group", ["ledger", "keys"])
def test_a_group_without_a_command_shows_its_commands(terrine, group):
    code, out = terrine(group)
    assert code == 0
    assert "Commands:" in out
    assert len(out.splitlines()) > 5


@pytest.mark.parametrize("words", [["-h"], ["--help"], ["run", "-h"], ["ledger", "-h"], ["ledger", "show", "-h"]])
def test_help_is_asked_for_in_both_ways(terrine, words):
    code, out = terrine(*words)
    assert code == 0
    assert "Usage: terrine" in out


@pytest.mark.parametrize("words", [["-h"], ["ledger", "-h"], ["keys", "-h"]])
def test_no_summary_is_cut(terrine, words):
    assert "..." not in terrine(*words)[1].split("Commands:")[1]


def test_completion_can_be_installed(terrine):
    assert "--install-completion" in terrine("-h")[1]
    script = subprocess.run(
        [sys.executable, "-m", "terrine"],
        env=os.environ | {"_TERRINE_COMPLETE": "complete_bash", "COMP_WORDS": "terrine ru", "COMP_CWORD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "run" in script.stdout.split()


def test_threads_that_wait_do_not_spin():
    shown = subprocess.run(
        [sys.executable, "-c", "import terrine.cli, os; print(os.environ['OMP_WAIT_POLICY'])"],
        env={name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert shown.stdout.strip() == "PASSIVE"
