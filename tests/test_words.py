"""Phrases that readers stumbled over stay out of the docs and of what the package says: each leaves open what it means.

"got another", "so many", "a secret elsewhere": another what, how many, where? Say it. Files that still have such
phrases are listed with their number, which may only fall.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
RIDDLES = (
    r"got (?:an)?others?\b",  # "Expected labels among classes, got another": which label, in which file?
    r"expected another\b",
    r"something else",
    r"so (?:many|much|often)\b(?! that)",  # "at most so many answers": how many?
    r"secrets? elsewhere",
    r"(?:what|whatever|nothing|labels?|noisy winners) (?:would )?(?:leaves?|left)\b(?! out)",  # left what, for where?
    r"between other neighbours",
    r"own doubles",
    r"but for a chance",
    r"like with like",
    r"for want of",
    r"as many first",
    r"unless told",
    r"\bin view\b",
    r"what became of",  # "What happened to a request"
    r"such a one\b",
    r"over a wire",
    r"go(?:es)? on from",  # a ledger "continues from" a head
    r"unless given",  # say "default: ..."
    r"lets? (?:\w+ )?(?:answers|labels) out",
    r"nobody's business",
    r"in its own words",
)
# Rooms whose messages say what is wrong, where, and what to do next: all but the schema's
PLAIN = (
    "_",
    "accounting/",
    "budgets",
    "cli/",
    "datasets/",
    "errors",
    "estimator",
    "executors",
    "features/",
    "labeller/",
)
PLAIN += ("ledger/", "mechanisms", "noise", "partitioning", "published", "relations", "release/", "report/", "runs/")
PLAIN += ("sensitive", "service/", "students/", "teachers/", "votes")
PLAIN += ("probe/", "training_budget", "which_route")
# Occurrences today, in files that are not yet rewritten
ALLOWED: dict[str, int] = {}


def said(node: ast.AST) -> str | None:
    """A string as the reader sees it; what an f-string fills in is … ."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(said(part) or "…" for part in parts)
    return None


def strings(source: str) -> str:
    """The strings of a module, docstrings included, one to a paragraph; comments and names are left out."""
    tree = ast.parse(source)
    inside = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    return "\n\n".join(text for node in ast.walk(tree) if id(node) not in inside and (text := said(node)) is not None)


def texts() -> dict[str, str]:
    """What people read, by file."""
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    package = [file for kind in ("py", "html", "js") for file in (ROOT / "src").rglob(f"*.{kind}")]
    found = {}
    for file in sorted([*pages, *package]):
        text = file.read_text(encoding="utf-8")
        found[file.relative_to(ROOT).as_posix()] = strings(text) if file.suffix == ".py" else text
    return found


def riddles(text: str) -> list[str]:
    """Every occurrence, with the words around it; line breaks count as spaces."""
    flat = re.sub(r"\s+", " ", text)
    places = sorted(found.span() for riddle in RIDDLES for found in re.finditer(riddle, flat, re.IGNORECASE))
    return [flat[max(0, start - 40) : end + 30] for start, end in places]


def test_what_people_read_has_no_riddles() -> None:
    found = {name: places for name, text in texts().items() if (places := riddles(text))}
    counts = {name: len(places) for name, places in found.items()}
    more = {name: found[name] for name, n in counts.items() if n > ALLOWED.get(name, 0)}
    assert not more, "say which, how many, where:\n" + "\n".join(f"{k}: {one}" for k, v in more.items() for one in v)
    assert counts == ALLOWED, f"some are gone: lower the numbers to {counts}"


def test_messages_do_not_make_the_reader_compare_two_things() -> None:
    """ "Expected a ledger, got no such file." is a riddle with two halves; "ledger.sqlite: no such file." is none."""
    rooms = tuple(f"src/terrine/{room}" for room in PLAIN)
    for name, text in texts().items():
        if name.startswith(rooms):
            assert not re.findall(r"Expected (?!2D array)[^.]*", text), name  # that one is scikit-learn's


@pytest.mark.parametrize(
    "text",
    [
        "Expected 3 classes, got another in row 0.",
        "Expected the rows of before, got others.",
        "at most so many\nanswers",
        "ε of these votes (a secret elsewhere)",
        "Expected words as keys, got something else.",
        "If the test fails, nothing leaves.",
    ],
)
def test_a_riddle_is_found(text: str) -> None:
    assert len(riddles(text)) == 1


def test_plain_words_are_no_riddles() -> None:
    plain = (
        "Row 0 has a label that is not in `classes`. Nothing is published. At most 300 answers; it leaves out row 3."
    )
    assert riddles(plain) == []


def test_strings_are_read_as_they_are_shown() -> None:
    source = 'x = f"got {1}: so " f"many {2}"  # something else\n\ndef f():\n    """Got\n    others."""\n'
    assert [place.strip() for place in riddles(strings(source))] == [
        "got …: so many … Got others.",
        "got …: so many … Got others.",
    ]
