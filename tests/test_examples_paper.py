"""One row of the paper's Table 1 for each file under examples/paper: its numbers, and settings that would run."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
from tests.conftest import need

from terrine import ConfidentGNMax, InteractiveGNMax, LNMax
from terrine.errors import InputError
from terrine.runs.config import RunConfig, StudentConfig, read_config
from terrine.runs.factories import budget_of, check_options, mechanism_of, student_of, teacher_of
from terrine.runs.plan_rounds import filter_of
from terrine.runs.rounds import plan_of
from terrine.students import GANStudent, SupervisedStudent, VATStudent

FOLDER = Path(__file__).parents[1] / "examples" / "paper"
CONFIDENT = ConfidentGNMax(threshold=300, sigma_check=200, sigma_vote=40)
# mechanism, questions, the most that are answered, delta, teachers
ROWS = {
    "mnist_lnmax_100": (LNMax(scale=20), 100, None, 1e-5, 250),
    "mnist_lnmax_1000": (LNMax(scale=20), 1000, None, 1e-5, 250),
    "mnist_confident": (ConfidentGNMax(threshold=200, sigma_check=150, sigma_vote=40), 640, 300, 1e-5, 250),
    "svhn_lnmax_500": (LNMax(scale=20), 500, None, 1e-6, 250),
    "svhn_lnmax_1000": (LNMax(scale=20), 1000, None, 1e-6, 250),
    "svhn_confident": (CONFIDENT, 8500, 3100, 1e-6, 250),
    "adult_lnmax": (LNMax(scale=20), 500, None, 1e-5, 250),
    "adult_confident": (CONFIDENT, 1500, 600, 1e-5, 250),
    "glyph_lnmax": (LNMax(scale=100), 4000, None, 1e-8, 5000),
    "glyph_confident": (ConfidentGNMax(threshold=1000, sigma_check=500, sigma_vote=100), 12_000, 10_800, 1e-8, 5000),
}
STUDENTS = {"mnist": GANStudent, "svhn": GANStudent, "adult": SupervisedStudent, "glyph": VATStudent}


def settings(name: str) -> RunConfig:
    return read_config(FOLDER / f"{name}.toml")


def test_every_row_of_table_1_has_a_file() -> None:
    assert {path.stem for path in FOLDER.glob("*.toml")} == {*ROWS, "glyph_two_rounds"}


@pytest.mark.parametrize("name", ROWS)
def test_the_numbers_are_the_paper_s(name: str) -> None:
    mechanism, queries, answers, delta, teachers = ROWS[name]
    found = settings(name)
    assert found.data.name == name.split("_")[0]
    assert mechanism_of(found.privacy) == mechanism
    assert (found.privacy.queries, found.privacy.answers, found.privacy.delta) == (queries, answers, delta)
    assert found.teachers.number == teachers
    assert budget_of(found.privacy).n_queries == queries


def test_two_rounds() -> None:
    found = settings("glyph_two_rounds")
    first, second = plan_of(found, n_classes=150, n_public=100_000).planned
    assert first.numbers == (ConfidentGNMax(threshold=3500, sigma_check=1500, sigma_vote=100), 6000, 3400)
    noise = {"threshold": 3500, "sigma_check": 2000, "sigma_vote": 200}
    assert second.numbers == (InteractiveGNMax(**noise, student_confidence=0.9), 10_000, 941)
    assert first.n_answers + second.n_answers == 4341
    assert filter_of((first, second), delta=1e-8).epsilon > 0


@pytest.mark.parametrize("name", [*ROWS, "glyph_two_rounds"])
def test_teachers_and_students_are_the_paper_s(name: str) -> None:
    pytest.importorskip("torch")
    found = settings(name)
    check_options(found)
    student = student_of(found.student)
    assert isinstance(student, STUDENTS[name.split("_")[0]])
    match found.data.name:
        case "adult":
            assert type(teacher_of(found.teachers).estimator).__name__ == "RandomForestClassifier"
            assert type(student.estimator).__name__ == "RandomForestClassifier"
        case "glyph":
            from terrine.teachers.architectures import PAPER_GLYPH, resnet32

            assert teacher_of(found.teachers).recipe == PAPER_GLYPH
            assert teacher_of(found.teachers).module is resnet32
            assert (student.learning_rate, student.schedule) == (6e-5, "constant")
            assert student.steps * student.public_batch == 400 * 100_000
            assert (student.balance, student.fade, student.averaging, student.wrong) == (0, 0, 0, 0)
        case _:
            assert (student.consistency, student.entropy, student.balance) == (0, 0, 0)
            assert student.realness > 0


def test_where_there_is_a_preset() -> None:
    assert student_of(StudentConfig(kind="gan", preset="paper", options={"steps": 7})).steps == 7
    assert student_of(StudentConfig(kind="gan")).consistency == 1
    for kind, preset in (("match", "paper"), ("gan", "small"), ("supervised", "paper"), ("features", "small")):
        with pytest.raises(ValueError, match=f'kind = "{kind}" takes no preset = "{preset}": leave it out'):
            StudentConfig(kind=kind, preset=preset)
    with pytest.raises(InputError, match="schedule must be"):
        VATStudent.paper(schedule="falling")


DATA = Path(os.environ.get("TERRINE_DATA", "../shared/data")).resolve()


@pytest.mark.parametrize("name", ["adult_lnmax", "adult_confident", "mnist_lnmax_100"])
def test_a_dry_run(name: str, terrine, by_renyi, monkeypatch) -> None:
    pytest.importorskip("torch")
    first = {"adult": "adult/adult.data.gz", "mnist": "mnist/train-images-idx3-ubyte.gz"}[name.split("_")[0]]
    if not (DATA / first).is_file():
        need(f"{first} under $TERRINE_DATA")
    monkeypatch.setenv("TERRINE_DATA", str(DATA))
    code, out, err = terrine("run", FOLDER / f"{name}.toml", "--dry-run", "--json")
    assert code == 0, err
    facts = json.loads(out)
    assert (facts["teachers"], facts["queries_at_most"]) == (250, ROWS[name][1])


TINY = {
    r"n_private = [\d_]+": "n_private = 90",
    r"n_public = [\d_]+": "n_public = 400",
    r"n_test = [\d_]+": "n_test = 50",
    r"number = \d+": "number = 3",
    r"steps = [\d_]+": "steps = 1",
    r"batch = \d+": "batch = 4",
    r"queries = [\d_]+": "queries = 170",
    r"answers = [\d_]+": "answers = 160",
    r"scale = \d+": "scale = 5",
    r"(sigma_\w+|threshold) = \d+": r"\1 = 2",
    r'preset = "paper"': 'preset = "paper"\noptions = { steps = 1 }',
}


@pytest.mark.soak
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["glyph_lnmax", "glyph_confident", "glyph_two_rounds", "mnist_confident"])
def test_a_row_that_wants_a_gpu_runs_at_a_tiny_size(name: str, terrine, tmp_path, monkeypatch) -> None:
    """The same kinds of teachers and students, to the end: three teachers, and a step of each net."""
    pytest.importorskip("torch")
    monkeypatch.setenv("TERRINE_DATA", str(DATA))
    text = (FOLDER / f"{name}.toml").read_text(encoding="utf-8")
    for large, small in TINY.items():
        text = re.sub(large, small, text)
    (tmp_path / "run.toml").write_text(text, encoding="utf-8")
    code, _, err = terrine("run", tmp_path / "run.toml", "--out", tmp_path / "run")
    assert code == 0, err
    assert (tmp_path / "run" / "student" / "card.json").is_file()
