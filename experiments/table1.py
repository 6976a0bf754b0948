"""The paper's Table 1, utility and privacy of students, with ours beside it.

    python experiments/table1.py [--svhn]   # writes docs/results/table1.{json,md}
    python experiments/table1.py --students # keeps the costs of the paper's votes, and reads the students again

Privacy columns are computed from the paper's votes ($TERRINE_DATA/votes), Glyph's from ours; accuracies come from the
JSON that mnist_students.py, adult_students.py, glyph_students.py and paper_glyph_page.py wrote. `--svhn` trains SVHN's
student first, which needs its pixels (train_32x32.mat and test_32x32.mat under $TERRINE_DATA/svhn), and keeps what it
finds in table1.json.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from typing import Any

import numpy as np
from adult_students import BEST
from numpy.typing import NDArray
from provenance import record
from tables import RESULTS, markdown, percent, publishable, spread, up, worst_case
from votesets import DATA

from terrine import (
    ConfidentGNMax,
    LNMax,
    Votes,
    answer,
    cost,
    expected_answered,
    expected_cost,
    guarantee,
)
from terrine.accounting.curves import ORDERS
from terrine.datasets import load
from terrine.mechanisms import ABSTAIN
from terrine.noise import SeededNoise
from terrine.students import VATStudent, fit_student

PAPERS_LNMAX_ORDERS: NDArray[np.float64] = np.arange(2.0, 10.0)  # the 2017 paper's moments
SEEDS = range(3)
SVHN_NET = VATStudent(channels=(64, 128, 256), depth=2, steps=10_000)


@dataclass(frozen=True, kw_only=True)
class Row:
    """What the paper printed, and what reproduces it from its votes."""

    task: str
    mechanism: ConfidentGNMax | LNMax | None  # None: on Glyph, whose votes are not public
    name: str
    n_queries: int
    n_answers: int | None  # fixed beforehand, for the worst case
    answered: int  # as printed
    epsilon: float
    student: float
    delta: float

    @property
    def key(self) -> str:
        return f"{self.task}, {self.name}, {self.answered:,} answers"


def _row(
    task: str, delta: float, mechanism: Any, n: int, most: int | None, answered: int, epsilon: float, student: float
) -> Row:
    names = {LNMax: "LNMax", ConfidentGNMax: "Confident-GNMax", str: mechanism}
    return Row(
        task=task,
        mechanism=None if isinstance(mechanism, str) else mechanism,
        name=names[type(mechanism)],
        n_queries=n,
        n_answers=most,
        answered=answered,
        epsilon=epsilon,
        student=student,
        delta=delta,
    )


_LNMAX, _CONFIDENT = LNMax(scale=20), ConfidentGNMax(threshold=300, sigma_check=200, sigma_vote=40)
PRINTED = (
    _row("MNIST", 1e-5, _LNMAX, 100, None, 100, 2.04, 0.980),
    _row("MNIST", 1e-5, _LNMAX, 1000, None, 1000, 8.03, 0.981),
    _row("MNIST", 1e-5, ConfidentGNMax(threshold=200, sigma_check=150, sigma_vote=40), 640, 300, 286, 1.97, 0.985),
    _row("SVHN", 1e-6, _LNMAX, 500, None, 500, 5.04, 0.827),
    _row("SVHN", 1e-6, _LNMAX, 1000, None, 1000, 8.19, 0.907),
    _row("SVHN", 1e-6, _CONFIDENT, 8500, 3100, 3098, 4.96, 0.916),
    _row("Adult", 1e-5, _LNMAX, 500, None, 500, 2.66, 0.830),
    _row("Adult", 1e-5, _CONFIDENT, 1500, 600, 524, 1.90, 0.837),
    _row("Glyph", 1e-8, "LNMax", 4000, None, 4000, 4.3, 0.724),
    _row("Glyph", 1e-8, "Confident-GNMax", 0, None, 10_762, 2.03, 0.755),
    _row("Glyph", 1e-8, "Interactive-GNMax, two rounds", 0, None, 4341, 0.837, 0.732),
)
BASELINES = {"MNIST": 0.992, "SVHN": 0.928, "Adult": 0.850, "Glyph": 0.822}


def privacy(row: Row, votes: Votes) -> dict[str, float | None]:
    """The same answers by every accountant, from the paper's votes, which are of public data."""
    asked, mechanism = votes[: row.n_queries], row.mechanism
    if isinstance(mechanism, LNMax):
        paper = cost(mechanism, asked, orders=PAPERS_LNMAX_ORDERS)
        exact, answered = None, float(row.n_queries)
    else:
        assert mechanism is not None
        paper, answered = expected_cost(mechanism, asked), expected_answered(mechanism, asked).reveal()
        exact = guarantee(cost(mechanism, asked, orders=ORDERS), delta=row.delta).reveal().epsilon
    return {
        "answered": answered,
        "n_answers": row.n_answers,
        "paper_epsilon": guarantee(paper, delta=row.delta, conversion="classic").reveal().epsilon,
        "exact_epsilon": exact,
        **worst_case(mechanism, n_queries=row.n_queries, n_answers=row.n_answers, delta=row.delta),
    }


def svhn_students(votes: Votes, *, net: Any = SVHN_NET, seeds: range = SEEDS) -> dict[str, Any]:
    """By row of the table: accuracy on the test images that are not public."""
    task = load("svhn", extra=False)
    found = {}
    for row in PRINTED:
        if row.task == "SVHN":
            scores = []
            for seed in seeds:
                assert row.mechanism is not None
                asked = votes[: min(row.n_queries, len(task.public))]
                given = answer(row.mechanism, asked, rng=SeededNoise(seed)).labels.copy()
                given[np.flatnonzero(given != ABSTAIN)[row.n_answers or len(given) :]] = ABSTAIN
                student = fit_student(net, task.public, given, classes=task.classes, seed=seed)
                scores.append(float((student.predict(task.test_X) == task.test_y).mean()))
            found[row.key] = spread(scores)
    return found


def stored(name: str) -> dict[str, Any] | None:
    file = RESULTS / f"{name}.json"
    return json.loads(file.read_text()) if file.is_file() else None


def entry(task: str, setting: str, learner: str, student: dict[str, Any] | None, **more: Any) -> dict[str, Any]:
    return {"task": task, "setting": setting, "learner": learner, "student": student, **more}


def mnist() -> tuple[list[dict[str, Any]], float | None]:
    """The students of mnist_students.json: of each setting the learner that is best on the public rows."""
    found = stored("mnist_students")
    if found is None:
        return [], None
    rows = []
    for setting in dict.fromkeys(row["setting"] for row in found["table"]):
        some = [row for row in found["table"] if row["setting"] == setting]
        rows.append(entry("MNIST", **max(some, key=lambda row: row["accuracy_public"])))
    return rows, found["baseline"] and found["baseline"]["mean"]


def adult() -> tuple[list[dict[str, Any]], float | None]:
    found = stored("adult_students")
    if found is None:
        return [], None
    rows = []
    for one in found["settings"]:
        costs = {key: one[key] for key in ("exact_epsilon", "publishable_epsilon", "renyi_epsilon")}
        student = one["students"][BEST]["answers"]
        about = {"answered": one["answered"]["mean"], "chosen": one["chosen"], **costs}
        rows.append(entry("Adult", one["setting"], BEST, student, **about))
    return rows, found["baseline"]["boosting, 300 trees"]["mean"]


def glyph() -> tuple[list[dict[str, Any]], float | None]:
    """Planned settings and those chosen on our votes; the paper's own are `papers_glyph`'s."""
    found, at_the_papers = stored("glyph_students"), papers_glyph()
    if found is None:
        return [], None
    rows = []
    for setting in dict.fromkeys(row["setting"] for row in found["rows"] if "publishable_epsilon" in row):
        some = [row for row in found["rows"] if row["setting"] == setting]
        if setting in at_the_papers and setting not in GLYPH_ROWS:
            rows.append(entry("Glyph", **at_the_papers[setting]))
        elif setting not in GLYPH_ROWS:
            rows.append(entry("Glyph", **max(some, key=lambda row: row["accuracy_public"])))
    return rows, glyph_baseline("accuracy") or found["baseline"]["mean"]


GLYPH_ROWS = ("LNMax", "Confident-GNMax", "Interactive-GNMax, two rounds")  # which paper_glyph.py runs as the paper
GLYPH_BASELINE = "a million private images, labels as recorded"


def papers_glyph() -> dict[str, dict[str, Any]]:
    """By setting: the net that is ours, on the symbols drawn and on the labels recorded, as the paper scores."""
    found = stored("paper_glyph")
    rows = [row for row in (found or {"table": []})["table"] if row["learner"] == "VAT"]
    named = {}
    for row in rows:
        costs = {key: row[key] for key in (*COSTS, "renyi_epsilon") if key in row}
        about = {"setting": row["setting"], "learner": "VAT", "chosen": row["chosen"], **costs}
        scores = {"student": row["accuracy"], "recorded": row["accuracy_recorded"]}
        answers = {"answered": row.get("teachers_answers", row["answers"])}
        named[row["setting"]] = {**about, **scores, **answers}
    return named


def glyph_baseline(score: str) -> float | None:
    """Of the better of our two nets without privacy, that of paper_glyph.py."""
    found = stored("paper_glyph")
    rows = [row for row in (found or {"others": []})["others"] if row["setting"] == GLYPH_BASELINE]
    return rows[0][score]["mean"] if rows else None


COSTS = ("paper_epsilon", "exact_epsilon", "publishable_epsilon")


PAPERS = {  # what our scripts call the settings that reproduce a row of the paper
    "the paper's votes, LNMax, 100 answers": PRINTED[0].key,
    "the paper's votes, LNMax, 1,000 answers": PRINTED[1].key,
    "the paper's votes and parameters": PRINTED[2].key,
    "the paper's votes, LNMax": PRINTED[6].key,
    "the paper's votes": PRINTED[7].key,
}


def measure(*, svhn: bool, again: bool = False) -> dict[str, Any]:
    """``again``: costs from the paper's votes as they are stored."""
    files = {"MNIST": "mnist_250_teachers.npy", "SVHN": "svhn_250_teachers.npy", "Adult": "adult_250_teachers.npy"}
    votes = {task: Votes.load(DATA / "votes" / file) for task, file in files.items()}
    last = stored("table1") or {}
    of_svhn = svhn_students(votes["SVHN"]) if svhn else last.get("svhn")
    known = {row["key"]: row for row in last.get("reproduced", [])}
    ours: list[dict[str, Any]] = []
    baselines: dict[str, float | None] = {"SVHN": None}
    for task, read in (("MNIST", mnist), ("Adult", adult), ("Glyph", glyph)):
        rows, baselines[task] = read()
        ours += rows
    students = {PAPERS[row["setting"]]: row for row in ours if row["setting"] in PAPERS}
    students |= {key: entry("SVHN", key, "VAT", value) for key, value in (of_svhn or {}).items()}
    reproduced, at_the_papers = [], papers_glyph()
    for row in PRINTED:
        about: dict[str, Any] = {
            "key": row.key,
            "task": row.task,
            "name": row.name,
            "delta": row.delta,
            "printed": {"answered": row.answered, "epsilon": row.epsilon, "student": row.student},
        }
        if row.task in votes and again:
            costs = ("answered", "n_answers", *COSTS, "renyi_epsilon")
            about |= {name: known[row.key][name] for name in costs if name in known[row.key]}
        elif row.task in votes:
            about |= privacy(row, votes[row.task])
            print(about, flush=True)
        elif row.name in at_the_papers:
            about |= {key: value for key, value in at_the_papers[row.name].items() if key not in ("setting", "chosen")}
        if row.key in students:
            about |= {name: students[row.key][name] for name in ("learner", "student")}
        reproduced.append(about)
    return {
        "reproduced": reproduced,
        "ours": [row for row in ours if row["setting"] not in PAPERS],
        "baselines": {"printed": BASELINES, "ours": baselines, "glyph_recorded": glyph_baseline("accuracy_recorded")},
        "svhn": of_svhn,
    }


def accuracy(student: dict[str, Any] | None, learner: str | None, recorded: dict[str, Any] | None = None) -> str:
    """On recorded labels, as the paper scores, first where both are known: 12% of Glyph's are wrong."""
    if student is None:
        return "–"
    if recorded is None:
        return f"{percent(student)}, {learner}"
    return f"{percent(recorded)}; on the symbols drawn {percent(student, interval=False)}, {learner}"


def answers(row: dict[str, Any]) -> str:
    """As printed; expected from the votes, and at most; on Glyph, whose votes are ours, what there was."""
    said = f"{row['printed']['answered']:,}"
    if row["task"] == "Glyph" and "answered" in row:
        return f"{said} ({row['answered']:,.0f})"
    if row.get("n_answers") is None:
        return said
    return f"{said} ({row['answered']:,.0f}, at most {row['n_answers']:,})"


def tables(found: dict[str, Any]) -> tuple[str, str]:
    printed, own = found["baselines"]["printed"], found["baselines"]["ours"]
    header = ["data", "aggregator", "δ", "answered", "ε printed", "ε, the paper's accountant", "ε, exact",
              "ε, if fixed beforehand", "the paper's student", "our student ± deviation over seeds (95% interval)",
              "without privacy: the paper's, ours"]  # fmt: skip
    body = []
    for row in found["reproduced"]:
        base = found["baselines"].get("glyph_recorded") if "recorded" in row else own[row["task"]]
        body.append(
            [
                row["task"],
                row["name"],
                f"{row['delta']:g}",
                answers(row),
                f"{row['printed']['epsilon']:g}",
                up(row.get("paper_epsilon")),
                up(row.get("exact_epsilon")),
                publishable(row) if "publishable_epsilon" in row else "–",
                f"{row['printed']['student']:.1%}",
                accuracy(row.get("student"), row.get("learner"), row.get("recorded")),
                f"{printed[row['task']]:.1%}, {'–' if base is None else f'{base:.1%}'}",
            ]
        )
    ours = []
    for row in found["ours"]:
        base = own[row["task"]]
        ours.append(
            [
                row["task"],
                row["setting"],
                row["chosen"],
                f"{row['answered']:,.0f}",
                up(row["exact_epsilon"]),
                publishable(row),
                accuracy(row["student"], row["learner"], row.get("recorded")),
                "–" if base is None else f"{base:.1%}",
            ]
        )
    second = ["data", "answers by", "noise chosen", "answered", "ε, exact", "ε, worst case",
              "student ± deviation over seeds (95% interval)", "without privacy"]  # fmt: skip
    return markdown(header, body), markdown(second, ours)


def page(found: dict[str, Any]) -> str:
    first, second = tables(found)
    missing = [
        text
        for text, gone in (
            ("SVHN has no student here: its images were not at hand (`--svhn` trains one).", not found["svhn"]),
            ("Glyph students: not measured yet.", not any(row["task"] == "Glyph" for row in found["ours"])),
        )
        if gone
    ]
    return PAGE.format(first=first, second=second, missing=" ".join(missing)).rstrip() + "\n"


HEADLINE = (  # rows of README, by task and setting
    ("MNIST", "5,000 teachers, 30 questions, ε = 0.1", "MNIST, 5,000 teachers of 12 images, 30 questions"),
    ("MNIST", PRINTED[2].key, "MNIST, the paper's own votes (250 teachers)"),
    ("Adult", "our teachers, planned for ε = 2.0", "UCI Adult, 250 teachers, planned for ε = 2"),
    ("Adult", PRINTED[7].key, "UCI Adult, the paper's own votes (250 teachers)"),
    ("Glyph", "GNMax, 8,000 answers, ε = 0.8", "Glyph, 150 symbols, 5,000 teachers, 8,000 questions"),
)


def headline(found: dict[str, Any]) -> str:
    """README's table: students, what may be published of their cost, and the paper's."""
    rows = {row["key"]: row for row in found["reproduced"]} | {row["setting"]: row for row in found["ours"]}
    papers = {row["task"]: row["printed"] for row in found["reproduced"] if row["name"] == "Confident-GNMax"}
    body = []
    for task, key, name in HEADLINE:
        row, paper = rows[key], papers[task]
        said = f"**{row['student']['mean']:.1%}**"
        if "recorded" in row:
            said = (
                f"**{row['recorded']['mean']:.1%}** of recorded labels, {row['student']['mean']:.1%} of symbols drawn"
            )
        body.append(
            [
                name,
                said,
                publishable(row),
                up(row["exact_epsilon"]),
                f"{paper['student']:.1%}, {paper['epsilon']:.2f}",
            ]
        )
    header = ["", "student is right", "ε, worst case (bold: noise fixed before the votes)",
              "ε computed from these votes (keep it secret on private data)",
              "the paper: student, ε of its votes"]  # fmt: skip
    return markdown(header, body)


PAGE = """# Table 1: students, and what they cost

```
python experiments/table1.py
```

## The paper's rows

From the paper's own votes (250 teachers), mechanisms and numbers of questions; neighbours: one record is replaced.
*Answered*: the printed number, and in parentheses the expected number on these votes and the limit, if there is one.
*ε printed*, *the paper's accountant* (its formulas and conversion) and *exact* depend on the votes: with private data
they are secret, and they are not guarantees; here the votes are on public data. *If fixed beforehand* is the worst
case over all votes, for these numbers of questions and answers, by
[privacy profiles](../math.md#the-profile-accountant) (in parentheses: by Rényi bounds). With private data you would
have to choose noise and numbers without looking at votes; the paper's authors looked.

{first}

The paper's Glyph is not public; these rows have its parameters on ours, made from public fonts, with 5,000 teachers:
*answered* has our number in parentheses, and both the paper's student and ours are scored on recorded labels, of which
12% are wrong in ours and at least 10% in the paper's. What else is ours: [Glyph at the paper's own
parameters](paper_glyph.md). {missing}

## Ours

{second}

Bold: `terrine plan` chose the noise, as a ledger would have it: for the ε in parentheses, when worst cases were by
Rényi bounds. The same noise and numbers cost the smaller ε by privacy profiles, as a budget is charged today. Noise
chosen after looking at private votes would give something away. On MNIST and Glyph the number of questions was chosen
after looking at results on public images: with private data fix it beforehand. *Without privacy*: a net on pixels
(MNIST; a linear model on the students' features is right more often, see [DP-SGD](dpsgd.md)), and a net on a million
of 15 million private images (Glyph, on the symbols drawn). MNIST has 1,000 test images, so 99.3% has a standard error
of 0.26 points, which is not part of the spread over seeds; the same students are right on about 98.9% of the 9,000
public images.

Students, settings, seeds and intervals: [MNIST](mnist_students.md), [Adult](adult_students.md),
[Glyph](glyph_students.md). What the paper publishes instead of its ε, corrected: [Table 2](table2.md). The same ε by
different conversions: [accounting](accounting.md). DP-SGD at the same (ε, δ): [comparison](dpsgd.md).
"""


def main() -> None:
    parser = argparse.ArgumentParser(description="Table 1")
    parser.add_argument("--svhn", action="store_true", help="train SVHN's student, where its pixels are")
    parser.add_argument("--students", action="store_true", help="keep the costs of the paper's votes as they are")
    given = parser.parse_args()
    found = measure(svhn=given.svhn, again=given.students)
    (RESULTS / "table1.json").write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    (RESULTS / "table1.md").write_text(page(found))
    record("table1", "python experiments/table1.py")
    print(page(found))
    print(headline(found))


if __name__ == "__main__":
    main()
