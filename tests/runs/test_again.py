"""A student that is there: it learns again for free, and its card is never behind what the run says of it."""

from __future__ import annotations

import contextlib
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from tests.runs.test_local import SETTINGS, whole

from terrine import _files
from terrine.cli import runs as commands
from terrine.errors import InputError
from terrine.runs.base import AGAIN, begin
from terrine.runs.config import read_config
from terrine.runs.local import Run
from terrine.service.keys import Keys
from terrine.students import load_student

UNTESTED = SETTINGS.replace("[student]", "[student]\nbalanced = false")
HARDER = UNTESTED + "options = {C = 2.0}\n"


class Killed(BaseException):
    """What nothing catches."""


@pytest.fixture(scope="module")
def taught(tmp_path_factory):
    folder = tmp_path_factory.mktemp("again")
    (folder / "run.toml").write_text(UNTESTED)
    whole(Run.create(folder / "run.toml", folder / "r"))
    return folder


@pytest.fixture
def folder(taught, tmp_path):
    shutil.copytree(taught, tmp_path / "copy")
    return tmp_path / "copy"


def said(run: Path) -> dict:
    """What card, page and student.json say of the accuracy, after every hash was compared."""
    card = load_student(run / "student").card
    own = json.loads((run / "student.json").read_text())
    page = (run / "student" / "model_card.md").read_text()
    assert (card.accuracy is None) == ("Not measured" in page)
    assert list(card.warnings) == own["warnings"]
    assert [one.in_words in page for one in card.verdicts] == [True] * len(own["verdicts"])
    assert card.accuracy == own["accuracy"]
    return own


def without_tests(run: Run) -> Run:
    """The same run where nobody had labeled test rows yet."""
    vars(run)["task"] = replace(run.task, test_X=None, test_y=None)
    return run


def test_a_test_set_that_is_added_later_reaches_the_card(folder):
    run = without_tests(Run(folder / "r"))
    assert run.learn(again=True).accuracy is None
    assert said(folder / "r")["accuracy"] is None
    model = (folder / "r" / "student" / "student.skops").read_bytes()
    date = load_student(folder / "r" / "student").card.date
    assert Run(folder / "r").learn().accuracy > 0.95
    assert said(folder / "r")["accuracy"] > 0.95
    assert (folder / "r" / "student" / "student.skops").read_bytes() == model  # the same student
    assert load_student(folder / "r" / "student").card.date == date


def test_a_card_that_says_it_already_is_left_alone(folder):
    before = {path: path.stat().st_mtime_ns for path in (folder / "r" / "student").iterdir()}
    run = Run(folder / "r")
    run.learn()
    assert {path: path.stat().st_mtime_ns for path in (folder / "r" / "student").iterdir()} == before
    with run.ledger() as ledger:
        Keys(folder / "r" / "ledger.sqlite").create("someone")  # the ledger goes on: no news of the student
        head = str(ledger.head())
    run.label()
    assert run.guarantee().ledger.head == head
    run.learn()
    assert {path: path.stat().st_mtime_ns for path in (folder / "r" / "student").iterdir()} == before


def test_a_student_that_another_ledger_paid_for_is_not_given_this_guarantee(folder):
    other = Run.create(folder / "run.toml", folder / "other")
    whole(other)
    shutil.rmtree(folder / "r" / "student")
    shutil.copytree(other.folder / "student", folder / "r" / "student")
    before = {path.name: path.read_bytes() for path in (folder / "r" / "student").iterdir()}
    with pytest.raises(InputError, match=r"does not name the ledger that paid for .*Move the student away"):
        Run(folder / "r").learn()
    assert {path.name: path.read_bytes() for path in (folder / "r" / "student").iterdir()} == before
    Run(folder / "r").learn(again=True)  # from this run's answers
    assert load_student(folder / "r" / "student").card.ledger.id == Run(folder / "r").guarantee().ledger.id


@pytest.mark.parametrize("exchanged", [True, False], ids=["one step", "two steps"])
def test_a_kill_while_a_card_is_replaced_leaves_a_whole_folder(folder, monkeypatch, exchanged):
    without_tests(Run(folder / "r")).learn(again=True)
    shutil.copytree(folder / "r", folder / "before")
    inner, seen = folder / "r" / "student", set()
    if not exchanged:
        monkeypatch.setattr(_files, "_exchange", lambda first, second: False)
    step = 0
    while True:  # killed before the first step on disk, the second, ...
        left = step
        shutil.rmtree(folder / "r")
        shutil.copytree(folder / "before", folder / "r")

        def dies(real):
            def act(*args, **kwargs):
                nonlocal left
                left -= 1
                if left < 0:
                    raise Killed
                return real(*args, **kwargs)

            return act

        with monkeypatch.context() as patch:
            for module, name in ((_files.os, "replace"), (_files.os, "rename"), (_files.shutil, "rmtree")):
                patch.setattr(module, name, dies(getattr(module, name)))
            if exchanged:
                patch.setattr(_files, "_exchange", dies(_files._exchange))
            with contextlib.suppress(Killed):
                Run(folder / "r").learn()
        found = left
        _files.restore_folder(inner)  # what the next command does first
        assert [path.name for path in inner.parent.glob(".student*")] == []
        seen.add(load_student(inner).card.accuracy is None)
        if found >= 0:
            break
        step += 1
    assert seen == {True, False}
    assert step > 10
    assert said(folder / "r")["accuracy"] > 0.95


def test_a_student_learns_again_for_nothing(folder, capsys):
    settings, run = folder / "run.toml", folder / "r"
    answers = (run / "answers.npz").read_bytes()
    with Run(run).ledger() as ledger:
        spent = ledger.summary()
    settings.write_text(HARDER)
    with pytest.raises(InputError, match=r"terrine learn SETTINGS\.toml --again"):
        begin(read_config(settings), run)
    commands.learn(settings, run, again=True)
    assert "terrine report" in capsys.readouterr().out
    assert load_student(run / "student").about.settings["estimator.C"] == "2.0"
    assert Run(run).config.student.options == {"C": 2.0}
    assert (run / "answers.npz").read_bytes() == answers
    with Run(run).ledger() as ledger:
        assert ledger.summary() == spent
    assert not (run / AGAIN).exists()
    said(run)
    commands.learn(settings, run)  # and stays
    assert load_student(run / "student").about.settings["estimator.C"] == "2.0"


def test_other_settings_stay_closed(folder):
    (folder / "run.toml").write_text(HARDER.replace("seed = 3", "seed = 4"))
    with pytest.raises(InputError, match="different seed, which cannot change any more"):
        begin(read_config(folder / "run.toml"), folder / "r", again=True)
    assert not (folder / "r" / AGAIN).exists()


def test_a_kill_between_settings_and_student_is_made_good(folder):
    """The settings are the new ones already: the next command trains, asked to or not."""
    (folder / "run.toml").write_text(HARDER)
    begin(read_config(folder / "run.toml"), folder / "r", again=True)
    assert load_student(folder / "r" / "student").about.settings["estimator.C"] != "2.0"
    Run.create(folder / "run.toml", folder / "r").learn()
    assert load_student(folder / "r" / "student").about.settings["estimator.C"] == "2.0"
    assert not (folder / "r" / AGAIN).exists()


def test_what_others_put_into_the_folder_is_never_deleted(folder):
    foreign = folder / "r" / "student" / "model.onnx"
    foreign.write_bytes(b"old")
    with pytest.raises(InputError, match=r"also holds model\.onnx, .*Move it away"):
        Run(folder / "r").learn(again=True)
    assert not (folder / "r" / AGAIN).exists()
    run = without_tests(Run(folder / "r"))
    run.learn()  # its card says less now
    assert said(folder / "r")["accuracy"] is None
    assert foreign.read_bytes() == b"old"
