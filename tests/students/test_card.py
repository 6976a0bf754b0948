"""The card: what a receiver reads, on a page and by a program; and further files in the same folder."""

from __future__ import annotations

import json
import re
from dataclasses import FrozenInstanceError
from pathlib import Path

import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from tests.students.tasks import NETS, QUARTERS, few, quarters

from terrine.errors import InputError, StoreError
from terrine.students import Card, StudentResult, SupervisedStudent, fit_student, load_student

X, Y = quarters()
GOLDEN = Path(__file__).parents[1] / "golden" / "run"
SAID = {
    "epsilon": 1.0000000000000002,
    "delta": 1e-5,
    "order": 12.5,
    "basis": "worst case",
    "relation": "one row is replaced by another; the number of rows is public",
    "notes": ["one | two"],
    "mechanism": {"kind": "confident", "threshold": 200.0, "sigma_check": 150.12345678901234, "sigma_vote": 40.0},
    "n_teachers": 250,
    "queries_at_most": 1640,
    "answers_at_most": 283,
    "secure_noise": True,
    "ledger": {"id": "0" * 32, "head": f"57:{'ab' * 32}"},
    "accuracy": 0.9333333333333333,
    "n_test": 1500,
    "interval": (0.9195438761234567, 0.9449123456789012),
}


@pytest.fixture(scope="module")
def student():
    estimator = make_pipeline(StandardScaler(), LogisticRegression(C=0.1234567890123456))
    return fit_student(SupervisedStudent(estimator=estimator), X, few(Y, 5), classes=QUARTERS, seed=0)


@pytest.fixture
def folder(student, tmp_path):
    student.save(tmp_path, card=SAID)
    return tmp_path


def test_a_program_reads_what_holds(folder):
    found = json.loads((folder / "card.json").read_text())
    assert found.pop("schema") == "terrine.card/1"
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", found.pop("date"))
    assert found.pop("terrine")
    assert found == {
        "rounds": [],
        "epsilon": 1.0000000000000002,
        "delta": 1e-5,
        "basis": "worst case",
        "relation": SAID["relation"],
        "unit": "row",
        "private": True,
        "mechanism": "confident",
        "parameters": {"threshold": 200.0, "sigma_check": 150.12345678901234, "sigma_vote": 40.0},
        "n_teachers": 250,
        "n_queries": 1640,
        "n_answers": 283,
        "n_answered": 20,
        "ledger": {"id": "0" * 32, "seq": 57, "hash": "ab" * 32},
        "classes": list(QUARTERS),
        "accuracy": 0.9333333333333333,
        "n_test": 1500,
        "interval": [0.9195438761234567, 0.9449123456789012],
        "notes": ["one | two"],
        "verdicts": [],
        "warnings": [],
        "unit_column": None,
        "measured": None,
        "test_rows": "",
    }
    card = load_student(folder).card
    assert card == Card.from_json(card.to_json())
    with pytest.raises(FrozenInstanceError):
        card.epsilon = 0.1


def test_people_read_plain_words(folder):
    page = (folder / "model_card.md").read_text()
    assert "| ε (epsilon), rounded up | 1.001 |" in page
    assert (
        "| mechanism | Confident-GNMax: threshold 200 votes, sigma_check 150.123 votes, sigma_vote 40 votes |" in page
    )
    assert "| budget, fixed beforehand | at most 1,640 questions and 283 answers |" in page
    assert "| protects | each row of the private data |" in page
    assert "Right on 93.3% of 1,500 labeled test rows (95% interval: 92.0% to 94.5%)." in page
    assert "| note | one \\| two |" in page
    assert "| input | images of 8 x 8 pixels, uint8 |" in page
    assert "| estimator.logisticregression__C | 0.123457 |" in page


@pytest.mark.parametrize("name", ["vat", "match", "linear"])
def test_no_python_and_no_long_number_is_on_the_page(name, student, tmp_path):
    made = student if name == "linear" else fit_student(NETS[name], X, few(Y, 5), classes=QUARTERS, seed=0)
    made.save(tmp_path, card={**SAID, "ledger": None})
    page = (tmp_path / "model_card.md").read_text()
    assert not re.search(r"\d{7}", page)
    assert not re.search(r"[{}\[\]]|None|True|False|array|'", page)


def test_what_was_not_said_is_none_and_the_page_says_so(student, tmp_path):
    student.save(tmp_path, card={})
    card = load_student(tmp_path).card
    assert (card.epsilon, card.mechanism, card.ledger, card.accuracy, card.unit) == (None,) * 5
    page = (tmp_path / "model_card.md").read_text()
    assert "No guarantee was given." in page
    assert "Not measured on test rows: none with labels were given." in page


def test_a_wrong_kind_of_fact_is_named(student, tmp_path):
    for fact, where in (
        ({"epsilon": "small"}, "epsilon"),
        ({"ledger": {"head": "57:ab"}}, r"ledger\.id"),
        ({"ledger": "57:ab"}, "ledger"),
        ({"mechanism": {"kind": "gnmax", "sigma": "wide"}}, r"parameters\.sigma"),
        ({"interval": [0.5]}, "interval"),
    ):
        with pytest.raises(InputError, match=rf"Card, {where}"):
            student.save(tmp_path / "new", card=fact)
    assert not (tmp_path / "new").exists()


def test_further_files_are_hashed_come_back_and_go_on(student, tmp_path):
    extra = {"schema.toml": b"[columns]\n", "encoder.safetensors": bytes(9)}
    student.save(tmp_path / "a", card=SAID, extra=extra)
    again = load_student(tmp_path / "a")
    assert again.extra == extra
    again.save(tmp_path / "b", card=SAID)
    assert load_student(tmp_path / "b").extra == extra
    (tmp_path / "a" / "schema.toml").write_bytes(b"[columns] \n")
    with pytest.raises(StoreError, match=r"schema.toml is damaged, or was changed"):
        load_student(tmp_path / "a")


@pytest.mark.parametrize("name", ["card.json", "SHA256SUMS", "student.skops", "../other", "a/b", ""])
def test_a_further_file_takes_no_name_that_is_taken_and_no_path(student, tmp_path, name):
    with pytest.raises(InputError, match="cannot be the name of a further file"):
        student.save(tmp_path / "new", card=SAID, extra={name: b""})
    assert not (tmp_path / "new").exists()


def test_a_folder_without_a_card_for_programs_gets_one_from_what_it_says():
    card = load_student(GOLDEN / "student").card
    assert (card.epsilon, card.delta, card.unit, card.n_teachers) == (22.53540462361238, 1e-5, "row", 8)
    assert (card.n_queries, card.n_answers, card.n_answered) == (40, 30, 30)
    assert card.mechanism == "confident"
    assert card.parameters == {"threshold": 6.0, "sigma_check": 3.0, "sigma_vote": 2.0}
    assert (card.date, card.ledger, card.private) == (None, None, True)


def test_a_card_that_cannot_be_read_is_refused(folder):
    from tests.students.test_lessons import seal

    card = json.loads((folder / "card.json").read_text())
    for changed in ({**card, "epsilon": "1"}, {**card, "classes": None}, []):
        (folder / "card.json").write_text(json.dumps(changed))
        seal(folder)
        with pytest.raises(StoreError, match="card"):
            load_student(folder)


def test_a_run_reads_its_student_s_result_back():
    facts = json.loads((GOLDEN / "student.json").read_text())
    result = StudentResult.from_json(facts)
    more: dict[str, object] = {"never_predicted": [], "verdicts": [], "seldom_predicted": {}, "warnings": []}
    assert result.to_json() == {**facts, **more, "test_rows": ""}
    assert result.interval == (0.9286523998213858, 0.9999999999999998)
    with pytest.raises(InputError, match="StudentResult, interval"):
        StudentResult.from_json({**facts, "interval": [0.5]})
    with pytest.raises(InputError, match="StudentResult: a value that JSON has no form for"):
        StudentResult.from_json({**facts, "accuracy": float("nan")})
    with pytest.raises(InputError, match="StudentResult, kind"):
        StudentResult.from_json({name: value for name, value in facts.items() if name != "kind"})
