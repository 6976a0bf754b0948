"""Charge the students' settings anew, without training one: the ε of the same noise and numbers, by the accountants
of today, in docs/results/{mnist,adult,glyph}_students, student_by_teachers and table2, JSON and pages.

Run: python experiments/worst_cases.py   (minutes the first time: privacy profiles of thousands of answers)
Then table1.py and dpsgd.py --page, which read these files.
"""

from __future__ import annotations

import json
from typing import Any

import adult_students
import glyph_students
import mnist_students
import student_by_teachers
import table2
from tables import RESULTS, worst_case

from terrine import ConfidentGNMax, LNMax


def mnist(found: dict[str, Any]) -> None:
    names = {row["setting"] for row in found["table"]}
    by = {
        one.name: worst_case(one.mechanism, n_queries=one.queries, n_answers=one.answers, delta=mnist_students.DELTA)
        for one in mnist_students.SETTINGS
        if one.name in names
    }
    for row in found["table"]:
        row |= by[row["setting"]]
    for row in found["settings"]:
        row |= by.get(row["name"], {})


def adult(found: dict[str, Any]) -> None:
    for one in found["settings"]:
        laplace = "scale" in one["mechanism"]
        mechanism = LNMax(**one["mechanism"]) if laplace else ConfidentGNMax(**one["mechanism"])
        n_answers = None if laplace else one["n_answers"]
        one.pop("worst_case_epsilon", None)
        one |= worst_case(mechanism, n_queries=one["n_queries"], n_answers=n_answers, delta=found["delta"])


def glyph(found: dict[str, Any]) -> None:
    by = {}
    settings = glyph_students.settings()
    for name in [*reversed(glyph_students.planned_settings()), *settings]:
        one = settings[name]
        numbers = {"n_queries": one.queries, "n_answers": one.answers, "delta": glyph_students.DELTA}
        by[name] = worst_case(one.mechanism, **numbers)
        print(name, by[name], flush=True)
    for row in found["rows"]:
        row |= by.get(row["setting"], {})


def teachers(found: dict[str, Any]) -> None:
    for curve in found["curves"]:
        curve["epsilon"] = student_by_teachers.costs(curve["sigma"])
    student_by_teachers.draw(found)


def table2_rows() -> None:
    """The worst cases of the paper's Table 2; its other numbers are Rényi's by nature."""
    file = RESULTS / "table2.json"
    found = json.loads(file.read_text())
    for name, row in table2.ROWS.items():
        if "worst_case" in found[name]:
            numbers = {"n_queries": row.queries, "n_answers": row.answers, "delta": row.delta}
            cost = worst_case(row.mechanism, **numbers)
            names = {"worst_case": "publishable_epsilon", "worst_case_renyi": "renyi_epsilon"}
            found[name] |= {ours: cost[theirs] for ours, theirs in names.items()}
    file.write_text(json.dumps(found, indent=1) + "\n")
    file.with_suffix(".md").write_text(table2.page(found, table2.tables(found)))


def main() -> None:
    for script, charge in (
        (mnist_students, mnist),
        (adult_students, adult),
        (student_by_teachers, teachers),
        (glyph_students, glyph),
    ):
        file = RESULTS / f"{script.__name__}.json"
        found = json.loads(file.read_text())
        charge(found)
        indent = None if script is student_by_teachers else 1
        file.write_text(json.dumps(found, indent=indent, ensure_ascii=False) + "\n")
        file.with_suffix(".md").write_text(script.page(found))
        print(file.name, flush=True)
    table2_rows()


if __name__ == "__main__":
    main()
