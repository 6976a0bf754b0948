"""The command line's two routes: what would hold if it had been fixed first, and what stays secret."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.conftest import Done

from terrine import ConfidentGNMax
from terrine.release.analysis import SECRET
from terrine.release.tested import publishable_guarantee

MECHANISM = ["--threshold", "120", "--sigma-check", "40", "--sigma-vote", "10"]
GIVEN = [*MECHANISM, "--delta", "1e-5"]
SHAPE = ["--teachers", "200", "--classes", "3", "--queries", "60"]
TESTED = [*GIVEN, *SHAPE, "--target", "2.5"]

Run = Callable[..., Done]


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """Vote files of one shape: teachers that agree, and teachers that do not."""
    monkeypatch.chdir(tmp_path)
    np.save("strong.npy", np.tile([190, 6, 4], (60, 1)))
    np.save("weak.npy", np.random.default_rng(0).multinomial(200, [0.36, 0.33, 0.31], size=60))
    np.save("longer.npy", np.tile([190, 6, 4], (80, 1)))
    np.save("fewer.npy", np.tile([189, 6, 4], (60, 1)))
    return tmp_path


def result(terrine: Run, *arguments: object) -> dict:
    code, out, err = terrine(*arguments, "--json")
    assert (code, err) == (0, "")
    return json.loads(out)


def plain(text: str) -> str:
    return " ".join(text.split())


# ---- the worst case


def test_the_worst_case_is_a_what_if_and_says_its_condition(folder: Path, terrine: Run) -> None:
    shown = result(terrine, "analyze", "strong.npy", *GIVEN, "--answers", 40)["worst_case"]
    mechanism = ConfidentGNMax(threshold=120, sigma_check=40, sigma_vote=10)
    worst = publishable_guarantee(mechanism, n_queries=60, n_answers=40, delta=1e-5)
    condition = shown.pop("if")
    assert condition.startswith("at most 60 questions and 40 answers had been fixed in a ledger before the first vote")
    assert shown == worst.to_json() | {"route": "worst case", "notes": []}
    code, out, err = terrine("analyze", "strong.npy", *GIVEN, "--answers", 40)
    assert (code, err) == (0, "")
    assert "ε if fixed beforehand" in out
    assert f"would hold if {condition}. A file of votes does not show that" in plain(out)


@pytest.mark.parametrize("target", [[], ["--target", "2.5", "--teachers", "200"]], ids=["worst case", "tested"])
@pytest.mark.parametrize("more", [[], ["--reveal"], ["--json"], ["--json", "--reveal"]], ids=" ".join)
def test_votes_that_no_ledger_has_seen_have_nothing_publishable(
    folder: Path, terrine: Run, target: list[str], more: list[str]
) -> None:
    code, out, _ = terrine("analyze", "strong.npy", *GIVEN, "--classes", 3, "--queries", 60, *target, *more)
    assert code == 0
    assert "publishable" not in out.lower()
    assert "guarantee" not in plain(out).replace("no guarantee", "")


# ---- a target


def test_a_target_is_a_plan(folder: Path, terrine: Run) -> None:
    tested = result(terrine, "analyze", "strong.npy", *TESTED, "--answers", 50)
    shown = tested["tested"]
    assert (shown["route"], shown["epsilon"], shown["delta"]) == ("tested", 2.5, 1e-5)
    assert "this target, at most 60 questions and 50 answers had been fixed in a ledger" in shown["if"]
    assert tested["worst_case"]["epsilon"] == tested["data_independent_epsilon"] > 2.5
    assert "pass_chance" not in tested
    assert "secret" not in tested
    code, out, _ = terrine("analyze", "strong.npy", *TESTED)
    assert code == 0
    for words in ("ε of a tested release", "2.500 of a tested release would hold if this target", "no guarantee"):
        assert words in plain(out), words
    assert "test would pass" not in out


def test_the_first_rows_of_a_longer_file_will_do(folder: Path, terrine: Run) -> None:
    longer = result(terrine, "analyze", "longer.npy", *TESTED)
    assert longer == result(terrine, "analyze", "strong.npy", *TESTED)


def test_how_the_test_draws_can_be_given(folder: Path, terrine: Run) -> None:
    given = ["--test-order", 8, "--test-share", 0.7]
    assert result(terrine, "analyze", "strong.npy", *TESTED, *given)["tested"]["order"] == 8.0


@pytest.mark.parametrize("json_or_table", [[], ["--json"]])
@pytest.mark.parametrize("target", [[], ["--target", "2.5", "--teachers", "200"]], ids=["worst case", "tested"])
def test_without_reveal_nothing_depends_on_the_votes(
    folder: Path, terrine: Run, target: list[str], json_or_table: list[str]
) -> None:
    asked = [*GIVEN, "--classes", 3, "--queries", 60, *target, *json_or_table]
    assert terrine("analyze", "strong.npy", *asked) == terrine("analyze", "weak.npy", *asked)


def test_reveal_says_how_often_the_test_would_pass_and_marks_it(folder: Path, terrine: Run) -> None:
    often = result(terrine, "analyze", "strong.npy", *TESTED, "--reveal")
    assert often["pass_chance"] > 0.99
    assert often["secret"] == SECRET
    never = result(terrine, "analyze", "weak.npy", *TESTED, "--threshold", 0, "--reveal")
    assert never["pass_chance"] < 1e-5
    assert never["secret"] == SECRET
    code, out, _ = terrine("analyze", "strong.npy", *TESTED, "--reveal")
    assert code == 0
    public, secret = out.split("do not publish them")
    assert "test would pass" in secret
    assert "test would pass" not in public
    assert "pass_chance" not in result(terrine, "analyze", "strong.npy", *GIVEN, "--reveal")


# ---- mistakes


def without(*option: str) -> list[str]:
    """TESTED less one option and its value."""
    at = TESTED.index(option[0])
    return [*TESTED[:at], *TESTED[at + 2 :]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        *(
            (without(option), "--target needs --teachers, --classes and --queries")
            for option in ("--teachers", "--classes", "--queries")
        ),
        *(
            ([*GIVEN, *option], "--teachers, --test-order and --test-share need --target.")
            for option in (["--teachers", "200"], ["--test-order", "8"], ["--test-share", "0.7"])
        ),
        ([*TESTED, "--target", "50"], "target must be below the worst case, 3.9"),
        ([*TESTED, "--target", "0.2"], "target must be above"),
        ([*TESTED, "--target", "0"], "target must be above 0, got 0.0."),
        ([*TESTED, "--target", "much"], "Invalid value for '--target'"),
        ([*TESTED, "--test-order", "1"], "Every order must be finite and above 1"),
        ([*TESTED, "--test-share", "0"], "share must be above 0 and below 1, got 0.0."),
        ([*TESTED, "--test-share", "1.5"], "share must be above 0 and below 1, got 1.5."),
        ([*TESTED, "--teachers", "0"], "n_teachers must be a whole number of at least 1"),
        ([*TESTED, "--answers", "61"], "n_answered must be at most n_queries"),
        ([*TESTED, "--queries", "61"], "--queries must be at most 60"),
        ([*TESTED, "--classes", "4"], "The file has 3 classes (columns), not 4."),
        (
            ["--mechanism", "lnmax", "--scale", "20", "--delta", "1e-5", *SHAPE, "--target", "1"],
            "mechanism must be GNMax or ConfidentGNMax here, got LNMax",
        ),
        (
            [*TESTED, "--mechanism", "interactive"],
            "mechanism must be GNMax or ConfidentGNMax here, got InteractiveGNMax",
        ),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(folder: Path, terrine: Run, arguments: list[str], message: str) -> None:
    code, out, err = terrine("analyze", "strong.npy", *arguments)
    assert (code, out) == (2, "")
    assert err.startswith("terrine: ")
    assert message in err
    assert err.count("\n") == 1


def test_the_target_is_fixed_before_the_file_is_opened(folder: Path, terrine: Run) -> None:
    """A target that is refused is refused whether there are votes or not."""
    code, _, err = terrine("analyze", "no-such-file.npy", *TESTED, "--target", "50")
    assert code == 2
    assert "target must be below the worst case" in err


def test_another_number_of_teachers_is_found_out_with_the_votes(folder: Path, terrine: Run) -> None:
    code, out, err = terrine("analyze", "fewer.npy", *TESTED, "--reveal", "--json")
    assert (code, out) == (2, "")
    assert err == "terrine: The target was fixed for 200 teachers, and the votes have 199.\n"


# ---- a plan


@pytest.fixture
def quick(monkeypatch) -> None:
    """A search over few mechanisms and orders."""
    monkeypatch.setattr("terrine.release.plan_tested._SEARCH", ([(1.0, 1.0, 1.0), (1.0, 1.0, 0.8)],))
    monkeypatch.setattr("terrine.release.plan_tested._ORDERS", (38.0,))


ROUTE = ["plan", "--epsilon", 1.0, "--delta", 1e-6, "--teachers", 5000, "--classes", 10, "--consensus", 0.95,
         "--max-queries", 300, "--route"]  # fmt: skip


@pytest.mark.usefixtures("by_renyi")
def test_a_plan_with_its_route_as_json(terrine: Run, quick: None) -> None:
    code, out, _ = terrine(*ROUTE, "--json")
    assert code == 0
    planned = json.loads(out)
    tested = planned["tested"]
    assert tested["pays"] is True
    assert 0 < tested["target"] < planned["epsilon"]
    assert tested["n_queries"] <= 300


def test_a_plan_prints_the_command_of_a_tested_route_that_pays(tmp_path: Path, terrine: Run, quick: None) -> None:
    code, out, _ = terrine(*ROUTE)
    assert code == 0
    assert "Tested route: expected to pay." in plain(out)
    words = shlex.split(out.splitlines()[-1])
    assert words[:3] == ["terrine", "analyze", "VOTES"]
    counts = np.zeros((int(words[words.index("--queries") + 1]), 10), dtype=np.int64)
    counts[:, 0] = 5000
    np.save(tmp_path / "votes.npy", counts)
    checked = result(terrine, "analyze", tmp_path / "votes.npy", *words[3:])
    assert checked["tested"]["epsilon"] < checked["data_independent_epsilon"]
    assert f"at ε = {checked['tested']['epsilon']:.3f} with chance 95%" in plain(out)
    assert result(terrine, "analyze", tmp_path / "votes.npy", *words[3:], "--reveal")["pass_chance"] > 0.95


@pytest.mark.usefixtures("by_renyi")
def test_without_route_a_plan_does_not_speak_of_it(terrine: Run) -> None:
    assumed = ["--teachers", 500, "--classes", 3, "--consensus", 0.9]
    code, out, _ = terrine("plan", "--epsilon", 0.3, "--delta", 1e-5, *assumed, "--json")
    assert code == 0
    assert "tested" not in json.loads(out)
