"""A user's mistake is one line on stderr that says what was expected, nothing on stdout, and exit code 2."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from terrine.errors import DeltaWarning, InputError

CONFIDENT = ["--threshold", "200", "--sigma-check", "150", "--sigma-vote", "40"]
GNMAX = ["--mechanism", "gnmax", "--sigma", "40"]
GIVEN = [*CONFIDENT, "--delta", "1e-5"]
INTERACTIVE = [*GIVEN, "--mechanism", "interactive", "--reveal"]
CONSENSUS = ["--teachers", "250", "--classes", "10", "--consensus", "0.9"]


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """The working folder, with good and bad files in it."""
    monkeypatch.chdir(tmp_path)
    np.save("v.npy", np.tile([150, 100], (20, 1)))
    np.save("uneven.npy", np.array([[150, 100], [150, 101]]))
    np.save("scalar.npy", np.float64(1))
    np.save("short.npy", np.full((5, 2), 0.5))
    np.save("text.npy", np.full((20, 2), "x"))
    np.savez("students.npz", np.full((20, 2), 0.5))
    Path("empty.npy").touch()
    Path("broken.npy").write_bytes(b"PK\x03\x04 not a zip")
    Path("folder.png").mkdir()
    Path("file").touch()
    return tmp_path


MISTAKES = [
    (["analyze", "nothing.npy", *GIVEN], "nothing.npy: no such file. Give a file of votes."),
    (["analyze", "empty.npy", *GIVEN], "empty.npy: the file is empty."),
    (["analyze", "uneven.npy", *GIVEN], "Every row of counts must sum to 250 votes; row 1 sums to 251."),
    (["analyze", "two\nlines.npy", *GIVEN], "two lines.npy: no such file"),
    (["analyze"], "Missing argument 'VOTES'"),
    (["analyze", "v.npy", *CONFIDENT], "Missing option '--delta'"),
    (["nonsense"], "No such command 'nonsense'"),
    (["analyze", "v.npy", *GIVEN, "--colour", "red"], "No such option: --colour"),
    (["analyze", "v.npy", *GIVEN, "--threshold", "many"], "Invalid value for '--threshold'"),
    (["analyze", "v.npy", *GIVEN, "--mechanism", "median"], "Invalid value for '--mechanism'"),
    (["analyze", "v.npy", *GIVEN, "--accountant", "mine"], "Invalid value for '--accountant'"),
    (["analyze", "v.npy", *GIVEN, "--conversion", "loose"], "Invalid value for '--conversion'"),
    (["analyze", "v.npy", *CONFIDENT, "--delta", "0"], "delta must be above 0 and below 1, got 0.0."),
    (["analyze", "v.npy", *CONFIDENT, "--delta", "1"], "delta must be above 0 and below 1, got 1.0."),
    (["analyze", "v.npy", *CONFIDENT, "--delta", "nan"], "delta must be finite, got nan."),
    (["analyze", "v.npy", *GIVEN, "--sigma-vote", "0"], "sigma_vote must be above 0, got 0.0."),
    (["analyze", "v.npy", *GIVEN, "--sigma-check", "-3"], "sigma_check must be above 0, got -3.0."),
    (["analyze", "v.npy", *GIVEN, "--threshold", "nan"], "threshold must be finite, got nan."),
    (["analyze", "v.npy", *GIVEN, "--scale", "20"], "--mechanism confident takes no --scale: leave --scale 20 out."),
    (["analyze", "v.npy", *GIVEN, *GNMAX], "--mechanism gnmax takes no --threshold"),
    (["analyze", "v.npy", "--delta", "1e-5"], "--mechanism confident needs --threshold."),
    (["analyze", "v.npy", *GIVEN, "--queries", "21"], "--queries must be at most 20, the rows in v.npy, got 21."),
    (["analyze", "v.npy", *GIVEN, "--queries", "0"], "whole number of at least 1, got 0."),
    (["analyze", "v.npy", *GIVEN, "--answers", "21"], "n_answered must be at most n_queries, got n_answered=21"),
    (["analyze", "v.npy", *GIVEN, "--answers", "-1"], "whole number of at least 0, got -1."),
    (
        ["analyze", "v.npy", *GNMAX, "--delta", "1e-5", "--answers", "5"],
        "a mechanism without a check answers every query",
    ),
    (["analyze", "v.npy", *GIVEN, "--records", "0"], "whole number of at least 1, got 0."),
    (["analyze", "v.npy", *GIVEN, "--orders", "two"], "--orders must be like '2,3.5,8' or '2..9', got 'two'."),
    (["analyze", "v.npy", *GIVEN, "--orders", ""], "--orders must be like '2,3.5,8' or '2..9', got ''."),
    (["analyze", "v.npy", *GIVEN, "--orders", "1..3"], "Every order must be finite and above 1, got 1.0."),
    (["analyze", "v.npy", *GIVEN, "--orders", "9..2"], "orders must be a list of at least one number"),
    (["analyze", "v.npy", *GIVEN, "--orders", "2,nan"], "Every order must be finite and above 1, got nan."),
    (["analyze", "v.npy", *GIVEN, "--orders", "2..99999999999"], "--orders must be at most 10,000 numbers"),
    (["analyze", "v.npy", *GIVEN, "--orders", f"{10**25}..{10**30}"], "--orders must be at most 10,000 numbers"),
    (["analyze", "v.npy", *GIVEN, "--orders", f"{10**400}..{10**400}"], "--orders must be like"),
    (["analyze", "v.npy", *GIVEN, "--predictions", "--classes", str(10**12)], "memory"),
    (
        ["plan", "--epsilon", "1", "--delta", "1e-5", "--teachers", "9", "--classes", str(10**12), "--consensus", ".9"],
        "There is not enough memory for this.",
    ),
    (["tally", "v.npy", "--out", "nowhere/t.npz"], "v.npy"),
    (["analyze", "v.npy", *GIVEN, "--predictions"], "Predictions need n_classes"),
    (["analyze", "v.npy", *GIVEN, "--classes", "9"], "The file has 2 classes (columns), not 9."),
    (
        ["analyze", "v.npy", *GIVEN, "--plot", "plot.txt"],
        "A plot file must end in .png, .svg, .pdf, got plot.txt.",
    ),
    (["analyze", "v.npy", *INTERACTIVE], "--mechanism interactive needs --student-proba."),
    (["analyze", "v.npy", *GIVEN, "--student-proba", "short.npy"], "--student-proba needs --mechanism interactive"),
    (
        ["analyze", "v.npy", *GIVEN, "--student-confidence", "0.3"],
        "--mechanism confident takes no --student-confidence",
    ),
    (
        ["analyze", "v.npy", *INTERACTIVE, "--student-proba", "no.npy"],
        "--student-proba must be an .npy file",
    ),
    (["analyze", "v.npy", *INTERACTIVE, "--student-proba", "short.npy"], "shape (20, 2), got (5, 2)"),
    (["analyze", "v.npy", *INTERACTIVE, "--student-proba", "text.npy"], "student_proba must be a table of numbers"),
    (["analyze", "v.npy", *INTERACTIVE, "--student-confidence", "2"], "student_confidence must be from 0 to 1"),
    (["plan", "--epsilon", "1", "--delta", "1e-5"], "one of --consensus (an assumption), --standin"),
    (["plan", "--epsilon", "1", "--delta", "1e-5", *CONSENSUS, "--standin", "v.npy"], "one of --consensus"),
    (
        ["plan", "--epsilon", "1", "--delta", "1e-5", "--questions", "9", "--route"],
        "--questions plans for the worst case",
    ),
    (
        ["plan", "--epsilon", "1", "--delta", "1e-5", "--questions", "9", "--teachers", "7"],
        "--questions plans for the worst case",
    ),
    (
        ["plan", "--epsilon", "1", "--delta", "1e-5", "--questions", "0"],
        "n_queries must be a whole number of at least 1",
    ),
    (
        ["plan", "--epsilon", "1", "--delta", "1e-5", "--consensus", "0.9"],
        "--consensus needs --teachers and --classes.",
    ),
    (
        ["plan", "--epsilon", "1", "--delta", "1e-5", "--standin", "v.npy", "--teachers", "9"],
        "--teachers is 9, and v.npy has 250. Leave it out.",
    ),
    (["plan", "--epsilon", "0", "--delta", "1e-5", *CONSENSUS], "epsilon must be above 0, got 0.0."),
    (["plan", "--epsilon", "1", "--delta", "2", *CONSENSUS], "delta must be above 0 and below 1, got 2.0."),
    (["plan", "--epsilon", "1e-9", "--delta", "1e-5", *CONSENSUS], "pays for no answers"),
    (["analyze", "v.npy", *GIVEN, "--plot", "nowhere/plot.png"], "plot.png"),
    (["analyze", "v.npy", *GIVEN, "--plot", "folder.png"], "folder.png"),
    (["demo", "--out", "file"], "file"),
    (["analyze", "v.npy", *INTERACTIVE, "--student-proba", "students.npz"], "--student-proba"),
    (["analyze", "v.npy", *INTERACTIVE, "--student-proba", "scalar.npy"], "--student-proba"),
    (
        ["analyze", "v.npy", *INTERACTIVE, "--student-proba", "empty.npy"],
        "--student-proba",
    ),
    (
        ["analyze", "v.npy", *INTERACTIVE, "--student-proba", "broken.npy"],
        "--student-proba",
    ),
    (["analyze", "v.npy", *GIVEN, "--sigma-vote", "1e-200", "--json"], "sigma_vote"),
    (["analyze", "v.npy", *GIVEN, "--sigma-vote", "1e200"], "sigma_vote"),
    (["analyze", "v.npy", "--mechanism", "lnmax", "--scale", "1e-300", "--delta", "1e-5"], "scale"),
]


@pytest.mark.parametrize(("arguments", "message"), MISTAKES)
def test_a_mistake_is_one_line_and_exit_code_2(folder, terrine, arguments, message):
    before = sorted(os.listdir(folder))
    code, out, err = terrine(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith("terrine: ")
    assert message in err
    assert err.count("\n") == 1
    assert sorted(os.listdir(folder)) == before


@pytest.mark.parametrize("arguments", [MISTAKES[0][0], ["plan", "--epsilon", "x"]])
def test_the_same_in_a_process_of_its_own(folder, arguments):
    done = subprocess.run([sys.executable, "-m", "terrine", *arguments], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("terrine: ")
    assert done.stderr.count("\n") == 1


def test_without_matplotlib_it_says_what_to_install(folder, terrine, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    code, _, err = terrine("analyze", "v.npy", *GIVEN, "--plot", "plot.png")
    assert code == 2
    assert "Install it with: pip install 'terrine[report]'" in err


def test_ctrl_c_is_exit_code_130_without_a_traceback(folder, terrine, monkeypatch):
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("terrine.release.analysis.publishable_guarantee", interrupt)
    assert terrine("analyze", "v.npy", *GIVEN) == (130, "", "terrine: Interrupted.\n")


def test_ctrl_c_in_a_run_says_how_it_goes_on(folder, terrine, monkeypatch):
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("terrine.runs.config.read_settings", interrupt)
    code, out, err = terrine("run", "run.toml")
    assert (code, out) == (130, "")
    assert "The same command goes on where it stopped, and the run's epsilon is not spent twice." in err
    assert "Do not delete the run's folder: it remembers what was charged." in err
    monkeypatch.setattr("terrine.runs.dry_run.dry_run", interrupt)
    assert terrine("run", "run.toml", "--dry-run").err == "terrine: Interrupted.\n"


def test_ctrl_c_while_the_commands_are_loaded_is_as_quiet(monkeypatch, capsys):
    """Importing the package itself loads next to nothing."""

    def interrupt() -> None:
        raise KeyboardInterrupt

    from terrine.__main__ import main

    monkeypatch.setitem(sys.modules, "terrine.cli", SimpleNamespace(main=interrupt))
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 130
    assert capsys.readouterr().err == "terrine: Interrupted.\n"
    loaded = [sys.executable, "-c", "import sys, terrine; print('numpy' in sys.modules)"]
    assert subprocess.run(loaded, capture_output=True, text=True, check=True).stdout == "False\n"


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("kind", [DeltaWarning, UserWarning])
def test_only_our_own_warnings_are_shown(folder, terrine, monkeypatch, kind):
    def warn(*_: object, **__: object) -> None:
        warnings.warn("row 7 is ill", kind, stacklevel=1)
        raise InputError("Do better.")

    monkeypatch.setattr("terrine.release.analysis.publishable_guarantee", warn)
    assert ("row 7" in terrine("analyze", "v.npy", *GIVEN).err) == (kind is DeltaWarning)


def test_a_fault_of_terrines_shows_no_message_that_might_quote_a_value(folder, terrine, monkeypatch):
    def fail(*_: object, **__: object) -> None:
        raise ValueError("cannot convert 'patient 47'")

    monkeypatch.setattr("terrine.release.analysis.publishable_guarantee", fail)
    monkeypatch.setattr("terrine.cli.analyses.analyze_votes", fail)
    code, out, err = terrine("analyze", "v.npy", *GIVEN)
    assert (code, out) == (1, "")
    assert "fault in terrine (ValueError)" in err
    assert "47" not in err
    assert len(err.splitlines()) == 1
    with pytest.raises(ValueError, match="patient 47"):
        terrine("analyze", "v.npy", *GIVEN, TERRINE_DEBUG="1")
