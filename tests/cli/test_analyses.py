"""The command line: the numbers it must show, the secrets it must not, and one line for every mistake."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from terrine import __version__
from terrine.release.analysis import SECRET

PNG = b"\x89PNG\r\n\x1a\n"
PAPER = ["--accountant", "paper", "--conversion", "classic", "--reveal", "--json"]
CONFIDENT = ["--threshold", "200", "--sigma-check", "150", "--sigma-vote", "40"]
MECHANISMS = {
    "confident": CONFIDENT,
    "interactive": CONFIDENT,
    "gnmax": ["--sigma", "40"],
    "lnmax": ["--scale", "20"],
}


@pytest.fixture
def result(terrine):
    """What the command prints as JSON."""

    def call(*arguments: object) -> dict:
        code, out, _ = terrine(*arguments, "--json")
        assert code == 0
        return json.loads(out)

    return call


@pytest.fixture
def votes(tmp_path) -> Path:
    """A small vote file: 40 queries, 3 classes, 250 teachers."""
    path = tmp_path / "votes.npy"
    np.save(path, np.random.default_rng(0).multinomial(250, [0.8, 0.15, 0.05], size=40))
    return path


# ---- the numbers of the paper and of the design


@pytest.mark.parametrize(
    ("name", "queries", "mechanism", "delta", "answered", "epsilon", "order"),
    [
        ("mnist", 640, (200, 150, 40), "1e-5", 282.7, 1.999, 14.0),
        ("svhn", 8500, (300, 200, 40), "1e-6", 2969.1, 4.915, 7.5),
        ("adult", 1500, (300, 200, 40), "1e-5", 538.3, 1.678, 15.5),
    ],
)
def test_the_paper_is_reproduced(vote_files, name, queries, mechanism, delta, answered, epsilon, order, terrine):
    threshold, check, vote = mechanism
    options = ["--mechanism", "confident", "--threshold", threshold, "--sigma-check", check, "--sigma-vote", vote]
    file = vote_files / f"{name}_250_teachers.npy"
    done = terrine("analyze", file, *options, "--queries", queries, "--delta", delta, *PAPER)
    assert (done.code, done.err) == (0, "")
    shown = json.loads(done.out)
    assert f"{shown['expected_answered']:.1f}" == f"{answered:.1f}"
    assert abs(shown["epsilon"] - epsilon) < 0.0006
    assert shown["order"] == order
    assert (shown["delta"], shown["accountant"], shown["conversion"]) == (float(delta), "paper", "classic")
    assert shown["data_independent_epsilon"] > shown["epsilon"]
    assert shown["secret"] == SECRET == "secret: depends on private votes"


def test_the_laplace_numbers_of_2017_are_reproduced(vote_files, terrine):
    options = ["--mechanism", "lnmax", "--scale", 20, "--queries", 100, "--delta", "1e-5", *PAPER]
    file = vote_files / "mnist_250_teachers.npy"
    few = json.loads(terrine("analyze", file, *options, "--orders", "2..9").out)
    assert abs(few["epsilon"] - 2.043) < 0.0006
    assert json.loads(terrine("analyze", file, *options).out)["epsilon"] < few["epsilon"]


@pytest.mark.parametrize(
    ("name", "queries", "answers", "mechanism", "delta", "argmax", "gaussian"),
    [
        ("mnist", 640, 283, (200, 150, 40), "1e-5", 1.993, 2.743),
        pytest.param("adult", 1500, 538, (300, 200, 40), "1e-5", 2.817, 3.892, marks=pytest.mark.soak),
        pytest.param("svhn", 8500, 2969, (300, 200, 40), "1e-6", 8.402, 11.555, marks=pytest.mark.soak),
    ],
)
def test_the_worst_cases(vote_files, result, name, queries, answers, mechanism, delta, argmax, gaussian):
    threshold, check, vote = mechanism
    options = ["--threshold", threshold, "--sigma-check", check, "--sigma-vote", vote, "--delta", delta]
    file = vote_files / f"{name}_250_teachers.npy"
    asked = ["analyze", file, *options, "--queries", queries, "--answers", answers]
    winner_only = result(*asked)
    assert argmax - 0.001 < winner_only["data_independent_epsilon"] <= argmax + 0.003
    assert (winner_only["queries"], winner_only["answers_at_most"]) == (queries, answers)
    assert "secret" not in winner_only
    assert abs(result(*asked, "--bound", "gaussian")["data_independent_epsilon"] - gaussian) <= 0.001


def test_the_table_shows_what_the_json_shows(vote_files, terrine):
    file = vote_files / "mnist_250_teachers.npy"
    arguments = ["analyze", file, *CONFIDENT, "--queries", 640, "--delta", "1e-5", *PAPER[:-1]]
    code, out, err = terrine(*arguments)
    assert (code, err) == (0, "")
    for words in ("ConfidentGNMax", "250 teachers, 10 classes", "282.7", "1.999", "order 14", "do not publish"):
        assert words in out, words
    assert "3.762" in out  # the worst case, 3.76124..., rounded up


def test_a_plan_prints_a_command_that_spends_its_budget(tmp_path, terrine):
    assumed = ["--teachers", 250, "--classes", 10, "--consensus", 0.9]
    planned = terrine("plan", "--epsilon", 1.5, "--delta", 1e-5, *assumed)
    assert planned.code == 0
    words = shlex.split(next(line for line in planned.out.splitlines() if "terrine analyze VOTES" in line))
    assert words[:3] == ["terrine", "analyze", "VOTES"]
    counts = np.random.default_rng(1).multinomial(250, np.full(10, 0.1), size=int(words[words.index("--queries") + 1]))
    np.save(tmp_path / "votes.npy", counts)
    checked = json.loads(terrine("analyze", tmp_path / "votes.npy", *words[3:], "--json").out)
    assert 1.5 * 0.99 < checked["data_independent_epsilon"] <= 1.5


def test_a_plan_from_public_stand_ins_agrees_with_its_own_command(vote_files, result, by_renyi):
    file = vote_files / "mnist_250_teachers.npy"
    planned = result("plan", "--epsilon", 2, "--delta", "1e-5", "--standin", file)
    assert 2 * 0.99 < planned["epsilon"] <= 2
    assert planned["accuracy"] >= 0.95
    assert planned["right_answers"] >= planned["rule_of_thumb"]["right_answers"]
    checked = result(*[file if word == "VOTES" else word for word in shlex.split(planned["analyze"])[1:]])
    assert checked["data_independent_epsilon"] == pytest.approx(planned["epsilon"], rel=1e-9)
    assert (checked["queries"], checked["answers_at_most"]) == (planned["n_queries"], planned["n_answers"])


def test_a_plan_of_so_many_questions_agrees_with_its_own_command(tmp_path, result, terrine):
    asked = ["plan", "--questions", 30, "--epsilon", 0.5, "--delta", "1e-5"]
    planned, shown = result(*asked), terrine(*asked)
    assert planned["epsilon"] <= 0.5
    assert f"sigma = {planned['sigma']:g} votes" in shown.out
    assert shown.out.splitlines()[-1].strip() == planned["analyze"]
    np.save(tmp_path / "votes.npy", np.random.default_rng(1).multinomial(250, np.full(10, 0.1), size=40))
    words = shlex.split(planned["analyze"])[1:]
    checked = result(*[tmp_path / "votes.npy" if word == "VOTES" else word for word in words])
    assert checked["data_independent_epsilon"] == pytest.approx(planned["epsilon"], rel=1e-9)


# ---- secrets


@pytest.fixture
def two_files(tmp_path) -> list[Path]:
    """Two vote files of the same name and shape, as unlike as votes can be."""
    paths = []
    for folder, counts in (("unanimous", [250, 0, 0, 0]), ("torn", [63, 63, 62, 62])):
        (tmp_path / folder).mkdir()
        np.save(tmp_path / folder / "votes.npy", np.tile(counts, (60, 1)))
        paths.append(tmp_path / folder)
    return paths


@pytest.mark.parametrize("form", [[], ["--json"]], ids=["table", "json"])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_without_reveal_nothing_depends_on_the_votes(two_files, terrine, monkeypatch, mechanism, form):
    def shown(*extra: str) -> list[tuple[int, str, str]]:
        outputs = []
        for folder in two_files:
            monkeypatch.chdir(folder)
            np.save("student.npy", np.full((60, 4), 0.25))
            student = ["--student-proba", "student.npy"] if mechanism == "interactive" else []
            options = ["--mechanism", mechanism, *MECHANISMS[mechanism], *student, "--delta", "1e-5"]
            outputs.append(terrine("analyze", "votes.npy", *options, *form, *extra))
        return outputs

    unanimous, torn = shown()
    assert unanimous == torn
    assert unanimous[0] == 0
    unanimous, torn = shown("--reveal", "--accountant", "paper")
    assert unanimous != torn  # the comparison can tell
    assert all("secret" in out for _, out, _ in (unanimous, torn))


@pytest.mark.parametrize("mechanism", ["confident", "gnmax", "lnmax"])
def test_reveal_needs_no_further_option(votes, result, mechanism):
    shown = result("analyze", votes, "--mechanism", mechanism, *MECHANISMS[mechanism], "--delta", 1e-5, "--reveal")
    assert 0 < shown["epsilon"] <= shown["data_independent_epsilon"]


def test_without_reveal_a_plot_does_not_depend_on_the_votes(two_files, terrine, monkeypatch):
    for reveal in ([], ["--reveal"]):
        plots = []
        for folder in two_files:
            monkeypatch.chdir(folder)
            code, out, err = terrine("analyze", "votes.npy", *CONFIDENT, "--delta", 1e-5, "--plot", "plot.png", *reveal)
            assert (code, err) == (0, "")
            assert "Plot: plot.png" in out
            plots.append(Path("plot.png").read_bytes())
            assert plots[-1].startswith(PNG)
            assert len(plots[-1]) > 10_000
        assert (plots[0] == plots[1]) is not bool(reveal)


@pytest.mark.parametrize(("ending", "magic"), [(".svg", b"<?xml"), (".pdf", b"%PDF-")])
def test_other_plot_formats(votes, terrine, ending, magic):
    path = votes.with_suffix(ending)
    assert terrine("analyze", votes, *CONFIDENT, "--delta", "1e-5", "--plot", path)[0] == 0
    assert path.read_bytes().startswith(magic)
    assert not list(votes.parent.glob("*.tmp"))


def test_a_plot_of_any_name_is_named_as_it_is(votes, terrine, monkeypatch):
    monkeypatch.chdir(votes.parent)
    assert "Plot: a[bold].png" in terrine("analyze", votes, *CONFIDENT, "--delta", 1e-5, "--plot", "a[bold].png")[1]


# ---- options


def test_predictions_and_histograms_of_them_cost_the_same(tmp_path, result):
    predictions = np.random.default_rng(3).integers(0, 4, size=(30, 25))
    np.save(tmp_path / "predictions.npy", predictions)
    np.save(tmp_path / "histograms.npy", np.stack([np.bincount(q, minlength=4) for q in predictions.T]))
    options = ["--mechanism", "gnmax", "--sigma", "10", "--delta", "1e-5", "--reveal"]
    of_predictions = result("analyze", tmp_path / "predictions.npy", "--predictions", "--classes", 4, *options)
    assert of_predictions == result("analyze", tmp_path / "histograms.npy", *options)
    assert (of_predictions["n_teachers"], of_predictions["queries"]) == (30, 25)


def test_version_and_help():
    """The real thing, in a process of its own."""
    command = [sys.executable, "-m", "terrine"]
    assert subprocess.check_output([*command, "--version"], text=True) == f"terrine {__version__}\n"
    shown = subprocess.check_output([*command, "--help"], text=True)
    assert all(
        name in shown for name in ("analyze", "plan", "demo", "run", "teach", "vote", "label", "learn", "report")
    )


def test_a_delta_too_large_for_the_records_draws_one_line_of_warning(votes, terrine):
    done = terrine("analyze", votes, *CONFIDENT, "--delta", "1e-3", "--records", "1000", "--json")
    assert done.code == 0
    assert done.err.startswith("terrine: warning: delta=0.001 is not below 1/1000")
    assert done.err.count("\n") == 1
    assert json.loads(done.out)["delta"] == 1e-3
    assert terrine("analyze", votes, *CONFIDENT, "--delta", "9e-4", "--records", "1000").err == ""


def test_a_warning_is_said_once(terrine):
    options = ["--epsilon", 50, "--delta", 1e-5, "--teachers", 250, "--classes", 10, "--consensus", 0.9]
    assert terrine("plan", *options)[2].count("at the edge of the grid") == 1


# ---- chosen rows


def test_lnmax_on_the_rows_that_the_authors_student_asked_about(vote_files, result):
    """docs/math.md, Erratum 8."""
    rows = vote_files / "mnist_250_teachers_100_indices_used_by_student.npy"
    if not rows.is_file():
        pytest.skip("the authors' file of rows is not here")
    found = result(
        *("analyze", vote_files / "mnist_250_teachers.npy", "--rows", rows, "--delta", "1e-5", "--mechanism", "lnmax"),
        *("--scale", "20", "--orders", "2..9", "--conversion", "classic", "--reveal"),
    )
    assert found["epsilon"] == pytest.approx(1.9587, abs=1e-4)
    assert found["queries"] == 100


def test_rows_are_those_of_the_file_in_its_order(votes, tmp_path, result):
    rows = np.array([7, 3, 30])
    np.save(tmp_path / "rows.npy", rows)
    np.save(tmp_path / "some.npy", np.load(votes)[rows])
    options = ("--delta", "1e-5", "--mechanism", "gnmax", "--sigma", "40", "--reveal")
    chosen = result("analyze", votes, "--rows", tmp_path / "rows.npy", *options)
    assert chosen == result("analyze", tmp_path / "some.npy", *options)
    first = result("analyze", votes, "--rows", tmp_path / "rows.npy", "--queries", "2", *options)
    assert first["queries"] == 2


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([0, 40], "--rows must be from 0 to 39, the rows of the votes; rows.npy has others."),
        ([-1, 3], "--rows must be from 0 to 39"),
        ([3, 3], "--rows names a row twice in rows.npy"),
        ([0.5], "--rows must be an .npy file with a list of whole numbers; rows.npy is not."),
        ([[1, 2]], "--rows must be an .npy file with a list of whole numbers"),
        ([], "--rows must be an .npy file with a list of whole numbers"),
    ],
)
def test_other_rows_are_refused(votes, tmp_path, terrine, rows, words):
    np.save(tmp_path / "rows.npy", np.array(rows))
    code, out, err = terrine("analyze", votes, "--rows", tmp_path / "rows.npy", "--delta", "1e-5", *CONFIDENT)
    assert code == 2
    assert words in " ".join((out + err).split())
