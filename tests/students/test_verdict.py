"""A student beside always naming the commonest class: the bar is shown, and a student below it is warned of."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier

from terrine.errors import AdviceWarning
from terrine.students import (
    AutoStudent,
    MissingClassWarning,
    StudentResult,
    SupervisedStudent,
    VATStudent,
    Verdict,
    fit_student,
    judged,
    load_student,
    rarely_named,
    warn_of,
)
from terrine.students.auto import CONSTANT
from terrine.students.verdict import paired_interval, seldom_predicted, warnings_of

CLASSES = ("no", "yes")
LOGISTIC = SupervisedStudent(estimator=LogisticRegression())


def coins(n: int, *, share: float = 0.4, seed: int = 0):
    """Rows that say nothing about their class."""
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, 3)).astype(np.float32), (rng.random(n) < share).astype(np.int64)


def told(n: int, *, seed: int = 0):
    """Rows that say their class, most of the time."""
    X, _ = coins(n, seed=seed)
    noise = np.random.default_rng(seed + 1).standard_normal(n)
    return X, (X[:, 0] + 0.5 * noise > 0.3).astype(np.int64)


def verdict(student, X, y) -> Verdict:
    made = fit_student(student, X, y, classes=CLASSES, seed=0)
    found = judged(made, student, X, y, seed=0).about.verdict
    assert found is not None
    return found


@pytest.mark.parametrize("student", [LOGISTIC, AutoStudent()], ids=["supervised", "auto"])
def test_a_student_of_coin_tosses_is_not_clearly_better(student):
    X, y = coins(120)
    found = verdict(student, X, y)
    assert (found.commonest, found.n, found.judged_on) == ("no", 120, "left_out")
    assert found.constant == (y == 0).mean()
    assert not found.clear


@pytest.mark.parametrize("student", [LOGISTIC, AutoStudent()], ids=["supervised", "auto"])
def test_a_student_that_learned_something_is(student):
    found = verdict(student, *told(200))
    assert found.clear
    assert found.lead == pytest.approx(found.right - found.constant)
    assert found.interval[0] < found.lead < found.interval[1]


def test_answers_are_left_out_of_the_student_that_predicts_them():
    """A student that knows by heart is right on all that it learned from, and on half of what it did not."""
    X, y = coins(200, share=0.5)
    by_heart = SupervisedStudent(estimator=KNeighborsClassifier(n_neighbors=1))
    made = fit_student(by_heart, X, y, classes=CLASSES, seed=0)
    assert (made.predict(X) == y).all()
    found = judged(made, by_heart, X, y, seed=0).about.verdict
    assert found.right < 0.65
    assert not found.clear


def test_a_net_is_judged_by_what_it_learned_from_and_it_is_said():
    pytest.importorskip("torch")
    X, y = told(80)
    found = verdict(VATStudent(hidden=(8,), steps=50, device="cpu"), X, y)
    assert found.judged_on == "learned"
    assert "answers that the student learned from, which flatters it" in found.in_words


def test_answers_too_few_to_leave_any_out():
    X, y = coins(12)
    y[:] = 0
    y[3] = 1  # the fold without it has one class, and logistic regression learns nothing from one
    found = verdict(LOGISTIC, X, y)
    assert (found.judged_on, found.n, found.clear) == ("learned", 12, False)


def test_one_class_alone_is_a_constant():
    X, _ = coins(20)
    with pytest.warns(MissingClassWarning, match="'yes'"):
        found = verdict(LOGISTIC, X, np.zeros(20, dtype=np.int64))
    assert (found.right, found.constant, found.clear) == (1.0, 1.0, False)


def test_the_constant_is_a_bar_in_the_table_and_never_kept():
    X, y = coins(120)
    settings = fit_student(AutoStudent(), X, y, classes=CLASSES, seed=0).about.settings
    assert settings["compared"][CONSTANT]["right"] == (y == 0).mean()
    assert settings["chosen"] != CONSTANT
    best = settings["compared"][settings["chosen"]]["right"]
    assert settings.get("below_constant", False) == (best <= (y == 0).mean())
    rare = fit_student(AutoStudent(), *coins(150, share=0.1), classes=CLASSES, seed=0).about.settings
    assert rare["below_constant"] is True
    assert "below_constant" not in fit_student(AutoStudent(), *told(200), classes=CLASSES, seed=0).about.settings


def test_the_interval_covers():
    """95% of the time, for a student that is right 5 points more often than a constant, and for one that is not."""
    rng = np.random.default_rng(0)
    for wins, losses, n in ((0.10, 0.05, 100), (0.2, 0.2, 60), (0.02, 0.02, 200)):
        draws = rng.multinomial(n, [wins, losses, 1 - wins - losses], size=2000)
        held = [(low <= wins - losses <= high) for low, high in (paired_interval(b, c, n) for b, c, _ in draws)]
        assert np.mean(held) > 0.93


@pytest.mark.parametrize("n", [20, 100, 1000])
def test_a_lead_that_an_exact_test_calls_chance_is_not_clear(n):
    for wins in range(15):
        for losses in range(15):
            if wins + losses and wins + losses <= n and paired_interval(wins, losses, n)[0] > 0:
                assert (
                    stats.binomtest(wins, wins + losses, alternative="greater").pvalue < 0.065
                )  # of one side; at n = 1,000: 0.035


def test_a_class_that_is_seldom_named():
    names = ("a", "b", "c")
    assert seldom_predicted(np.array([0.97, 0.03, 0.0]), np.array([60, 38, 2]), classes=names) == {"b": (0.03, 0.38)}
    assert seldom_predicted(np.array([0.95, 0.05, 0.0]), np.array([60, 38, 2]), classes=names) == {}
    assert seldom_predicted(np.array([0.999, 0.001, 0.0]), np.array([90, 4, 6]), classes=names) == {}  # 4 are too few


def test_what_is_never_named_is_not_named_seldom():
    X, y = told(200)
    made = fit_student(SupervisedStudent(estimator=DummyClassifier()), X, y, classes=CLASSES, seed=0)
    assert rarely_named(made, X, np.bincount(y)) == (("yes",), {})


def test_warnings_name_numbers_and_advice():
    student = SupervisedStudent(estimator=LinearDiscriminantAnalysis())
    X, y = coins(150, share=0.35)
    made = judged(fit_student(student, X, y, classes=CLASSES, seed=0), student, X, y, seed=0)
    with pytest.warns(AdviceWarning, match=r"not clear that the student is better than a constant.*always saying 'no'"):
        warn_of(made, X, y)
    good = judged(fit_student(LOGISTIC, *told(200), classes=CLASSES, seed=0), LOGISTIC, *told(200), seed=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of(good, *told(200))
    for given in ({"seldom": {"yes": (0.014, 0.386)}, "never": ()}, {"seldom": {}, "never": ("yes",)}):
        (one,) = warnings_of([], **given, by_probe=True)
        assert "ort new rows by the probability of such a class" in one
        assert "balanced" not in one
        assert "more rows" not in one
    (said,) = warnings_of([], seldom={"yes": (0.014, 0.386)}, never=())
    assert "'yes' for 1.4% of the public rows, and 38.6% of the answers" in said


def test_test_rows_decide_where_there_are_some():
    y = np.array([0, 1] * 50)
    poor, fine = (
        Verdict.of(hits, y, classes=CLASSES, judged_on=on)
        for hits, on in ((y == 0, "left_out"), (np.ones(100, dtype=bool), "test"))
    )
    assert warnings_of([poor, fine], seldom={}, never=()) == ()
    assert len(warnings_of([poor], seldom={}, never=())) == 1
    swapped = [Verdict.of(y == y, y, classes=CLASSES, judged_on="left_out"),
               Verdict.of(y == 0, y, classes=CLASSES, judged_on="test")]  # fmt: skip
    assert len(warnings_of(swapped, seldom={}, never=())) == 1


@pytest.mark.parametrize("judged_on", ["left_out", "learned"])
@pytest.mark.parametrize("of_probe", [False, True])
def test_of_answers_it_is_agreement_and_not_called_right(judged_on, of_probe):
    y = np.array([0, 1] * 50)
    found = replace(Verdict.of(y == y, y, classes=CLASSES, judged_on=judged_on), of_probe=of_probe)
    first, rest = found.in_words.split("points). ")
    assert first.startswith("The student agrees with 100.0% of 100 ")
    assert "right" not in first
    assert ("agreement with the probe" if of_probe else "makes some of the answers wrong") in rest
    assert replace(found, judged_on="test").in_words.startswith("On 100 labeled test rows the student is right on 100")
    poor = replace(found, interval=(-0.1, 0.1))
    assert warnings_of([poor], seldom={}, never=())[0].startswith(
        f"It is not clear that the student {'follows the probe' if of_probe else 'is'} better than a constant."
    )


def test_the_verdict_comes_back_with_the_student_and_stands_in_its_cards(tmp_path):
    X, y = coins(120)
    made = judged(fit_student(LOGISTIC, X, y, classes=CLASSES, seed=0), LOGISTIC, X, y, seed=0)
    made.save(tmp_path, card={})
    again = load_student(tmp_path)
    assert again.about.verdict == made.about.verdict
    assert again.card.verdicts == (made.about.verdict,)
    assert again.card.warnings == warnings_of([made.about.verdict], seldom={}, never=())
    page = (tmp_path / "model_card.md").read_text()
    assert made.about.verdict.in_words in page
    assert "**Warning:** It is not clear" in page


def test_a_result_is_read_back_with_its_verdicts():
    made = Verdict.of(np.ones(9, dtype=bool), np.array([0, 1, 1] * 3), classes=CLASSES, judged_on="test")
    result = StudentResult(kind="auto", settings={}, accuracy=1.0, n_test=9, interval=(0.7, 1.0), per_class=None,
                           verdicts=(made,), seldom_predicted={"yes": (0.01, 0.3)})  # fmt: skip
    assert StudentResult.from_json(result.to_json()) == result
    assert len(result.warnings) == 2
