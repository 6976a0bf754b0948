"""docs/paper.md: every part of the paper has a row with a verdict; its links lead somewhere, its commands exist."""

from __future__ import annotations

import itertools
import re
import shlex
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer

from terrine.cli import app

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "paper.md"
TEXT = PAGE.read_text(encoding="utf-8")
VERDICT = re.compile(r"\*(same|differs because|not possible here because)\*")
HEADER = "| the paper | here | doors | command | its number; ours | verdict |"


def rows() -> list[list[str]]:
    lines = [
        line for line in TEXT.splitlines() if line.startswith("|") and not line.startswith(("|---", "| the paper"))
    ]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def commands() -> list[str]:
    return [found for row in rows() for found in re.findall(r"`([^`]+)`", row[3])]


ROWS, COMMANDS = rows(), sorted(set(commands()))


@pytest.mark.parametrize("row", ROWS, ids=[row[0][:50] for row in ROWS])
def test_a_row_says_where_how_and_whether_it_is_the_same(row: list[str]) -> None:
    assert len(row) == 6, row
    assert re.search(r"\[[^\]]+\]\([^)]+\)", row[1]), "a link to where it is"
    assert re.fullmatch(r"–|[LERCS]( [LERCS])*", row[2])
    assert len(re.findall(r"`[^`]+`", row[3])) == 1
    assert row[4]
    assert VERDICT.match(row[5])


def test_every_table_has_the_same_columns() -> None:
    assert TEXT.count(HEADER) == len(re.findall(r"^\| the paper \|", TEXT, flags=re.MULTILINE)) == 7


def test_nothing_of_the_paper_is_left_out() -> None:
    """Its statements are counted together, 1 to 24; two are stated twice."""
    named = " ".join(row[0] for row in ROWS)
    kinds = {
        "Definition": (1, 2, 3, 12, 15, 22),
        "Theorem": (4, 5, 6, 20, 23, 24),
        "Proposition": (7, 8, 10, 13, 14, 16, 19, 21),
        "Lemma": (9, 17, 18),
        "Corollary": (11,),
        "Algorithm": (1, 2, 3, 4, 5),
        "Figure": (1, 2, 3, 4, 5),
    }
    for kind, numbers in kinds.items():
        for number in numbers:
            assert re.search(rf"\b{kind} {number}\b", named), f"{kind} {number}"
    for answers in ("100 answers", "1,000 answers", "500 and 1,000 answers", "4,000 answers", "10,762", "4,341"):
        assert answers in named
    for data in ("MNIST", "SVHN", "Adult", "Glyph"):
        assert re.search(rf"Table 2[^|]*{data}", named)
    assert "Conditions C1 to C4, C7, C8" in named
    assert "Conditions C5 and C6" in named


def slug(heading: str) -> str:
    """As GitHub makes an anchor of a heading."""
    plain = re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", heading.strip())
    return re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")


@cache
def anchors(page: Path) -> frozenset[str]:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    return frozenset(slug(found) for found in re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE))


def test_every_link_leads_to_a_file_and_every_anchor_to_a_heading() -> None:
    links = re.findall(r"\]\(([^)#]+)(?:#([^)]*))?\)", TEXT)
    assert len(links) > 100
    for target, anchor in links:
        file = PAGE.parent / target
        assert file.is_file(), target
        if anchor:
            assert anchor in anchors(file), f"{target}#{anchor}"


def _terrine(words: list[str]) -> None:
    command: Any = typer.main.get_command(app)
    rest = words[1:]
    while hasattr(command, "commands"):
        assert rest[0] in command.commands, rest[0]
        command, rest = command.commands[rest[0]], rest[1:]
    options = {name: one for one in command.params for name in (*one.opts, *one.secondary_opts) if name.startswith("-")}
    given = [word for word in rest if word.startswith("--")]
    assert set(given) <= set(options), set(given) - set(options)
    values = sum(not getattr(options[word], "is_flag", False) for word in given)
    positional = [one for one in command.params if one.param_type_name == "argument"]
    assert len(rest) - len(given) - values == len(positional), "an option without its value, or a word too many"
    shown = (
        (ROOT / "docs" / "cli.md").read_text(encoding="utf-8").split(f"## terrine {words[1]}\n")[1].split("\n## ")[0]
    )
    for option, value in itertools.pairwise(rest):
        if choices := re.search(rf"{option}\s+<([\w-]+(?:\|[\w-]+)+)>", shown):
            assert value in choices[1].split("|"), f"{option} {value}"
    _files(rest)


def _files(words: list[str]) -> None:
    for word in words:
        if word.startswith(("examples/", "experiments/", "tests/")):
            assert (ROOT / word).is_file(), word


def _python(words: list[str]) -> None:
    if words[1:3] == ["-m", "pytest"]:
        assert len(words) == 4
        return _files(words[3:])
    script = ROOT / words[1]
    assert script.is_file(), words[1]
    settings = script.with_name(f"{script.stem}_settings.py")
    text = "".join(file.read_text(encoding="utf-8") for file in (script, settings) if file.is_file())
    for word in words[2:]:
        if not re.fullmatch(r"[A-Z][A-Z.a-z]*|\d+", word):  # FOLDER, RUNS.json, a number: the reader's own
            assert f'"{word}"' in text, f"{words[1]} knows no {word}"
    return None


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_is_one_that_there_is(command: str) -> None:
    words = shlex.split(command)
    {"terrine": _terrine, "python": _python}[words[0]](words)


@pytest.mark.parametrize(
    "command",
    [
        "terrine analise votes.npy",
        "terrine analyze votes.npy --no-such-option 3",
        "terrine analyze votes.npy --mechanism gnmaxx --delta 1e-5",
        "terrine analyze --delta 1e-5",
        "terrine run examples/paper/no_such.toml",
        "python experiments/no_such.py",
        "python experiments/figures.py --vote FOLDER",
        "python experiments/paper_glyph.py learn GLYPHS.npz OUT KEEP --groups epoch",
    ],
)
def test_other_commands_would_be_noticed(command: str) -> None:
    words = shlex.split(command)
    with pytest.raises(AssertionError):
        {"terrine": _terrine, "python": _python}[words[0]](words)


def test_the_page_is_listed() -> None:
    assert "(docs/paper.md)" in (ROOT / "README.md").read_text(encoding="utf-8")
