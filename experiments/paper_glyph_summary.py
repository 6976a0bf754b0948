"""The numbers of paper_glyph_page.py, from what paper_glyph.py left: costs, means over seeds, what was asked."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from figures import tradeoff
from paper_glyph import EVERYWHERE, RESNET, RESNETS, TEACHERS, all_runs, opinion_of, read
from paper_glyph_device import task_of
from paper_glyph_page import AS_GLYPH_STUDENTS
from paper_glyph_settings import (
    AUTO,
    BOTH,
    DELTA,
    EVEN,
    FEATURES,
    HEAD,
    LEARNERS,
    LN,
    LOW,
    MNIST,
    MODERATE,
    PLURALITY_ALL,
    SHORT,
    SIZES,
    STAGES,
    TABLE,
    TAKEN,
    K,
    Size,
    mechanism,
    questions,
    second_round,
    second_rows,
    taken,
)
from tables import spread, worst_case
from votesets import VoteSet, tidy

from terrine.accounting.costs import cost, expected_cost, worst_case_cost
from terrine.accounting.curves import guarantee
from terrine.accounting.theorems import log_q_gaussian, rdp_gnmax
from terrine.mechanisms import LNMax
from terrine.votes import Votes

SIZE = SIZES["full"]
FEW = np.geomspace(1.5, 400.0, 48)  # orders
NOISE = np.geomspace(0.003, 0.6, 14)  # of the teachers
CHOSEN = {HEAD: "by `terrine plan --questions`"}  # the others: by the paper, on votes


def means(runs: list[dict[str, Any]], setting: str, learner: str) -> dict[str, Any] | None:
    """Over the seeds of one student: both scores with their spread, and means of the rest."""
    some = [run for run in runs if (run["setting"], run["learner"]) == (setting, learner)]
    if not some:
        return None
    some.sort(key=lambda run: run["seed"])
    found: dict[str, Any] = {"setting": setting, "learner": learner, "seeds": len(some)}
    for name in ("accuracy", "accuracy_recorded", "accuracy_public"):
        if name in some[0]:
            found[name] = spread([run[name] for run in some])
    kept = ("answers", "answers_right", "answers_recorded", "answers_rare", "accuracy_rare", "teachers_answers",
            "reinforced", "first_round", "first_accuracy", "questions", "teachers")  # fmt: skip
    for name in kept:
        if name in some[0]:
            found[name] = float(np.mean([run[name] for run in some]))
    found |= {name: some[0][name] for name in ("mechanism", "teachers_kind") if name in some[0]}
    return found


def beforehand(setting: str, how: Any, n: int) -> dict[str, float]:
    """Worst cases, every question answered; `refreshed` has those of glyph_students.py, which take minutes each."""
    return {} if setting in AS_GLYPH_STUDENTS else worst_case(how, n_queries=n, n_answers=None, delta=DELTA)


def costs(out: Path, counts: Any, size: Size = SIZE) -> dict[str, dict[str, float | None]]:
    """By setting, and for two rounds by learner: the paper's accountant and conversion, exact, and worst case.

    By residual nets, which are so few that no worst case says anything, it is left out.
    """
    found: dict[str, dict[str, float | None]] = {}
    first: Any = None
    for setting in TABLE:
        how, n = mechanism(setting, counts, size), questions(setting, size)
        votes = Votes(counts[:n], n_teachers=size.teachers)
        paper = expected_cost(how, votes, orders=FEW).reveal()
        exact = None if isinstance(how, LNMax) else cost(how, votes, orders=FEW).reveal()
        if setting == BOTH:
            first = paper, exact, worst_case_cost(how, n_queries=n)
            continue
        found[setting] = {
            "paper_epsilon": guarantee(paper, delta=DELTA, conversion="classic").epsilon,
            "exact_epsilon": None if exact is None else guarantee(exact, delta=DELTA).epsilon,
            **({} if size.as_many else beforehand(setting, how, n)),
        }
        print(setting, found[setting], flush=True)
    rows, how = second_rows(size), second_round(size)
    votes = Votes(counts[rows], n_teachers=size.teachers)
    for learner in (*LEARNERS, FEATURES, AUTO):
        file = out / opinion_of(learner, resnets=size.as_many)
        if not file.is_file():
            continue
        proba = np.load(file)["proba"].astype(float)
        proba /= proba.sum(axis=1, keepdims=True)  # as they were, but for half precision
        paper = expected_cost(how, votes, orders=FEW, student_proba=proba).reveal()
        bound = cost(how, votes, orders=FEW, student_proba=proba, accountant="sanitizable").reveal()
        worst = first[2] + worst_case_cost(how, n_queries=len(rows))
        by_round = [guarantee(part, delta=DELTA, conversion="classic").epsilon for part in (first[0], paper)]
        found[f"{BOTH}, {learner}"] = {
            "paper_epsilon": guarantee(first[0] + paper, delta=DELTA, conversion="classic").epsilon,
            "exact_epsilon": guarantee(first[1] + bound, delta=DELTA).epsilon,
            **(
                {}
                if size.as_many
                else {
                    "publishable_epsilon": guarantee(worst, delta=DELTA).epsilon,
                    "renyi_epsilon": guarantee(worst, delta=DELTA).epsilon,
                }
            ),
            "first_epsilon": by_round[0],
            "second_epsilon": by_round[1],
        }
        print(learner, found[f"{BOTH}, {learner}"], flush=True)
    return found


def inputs(counts: Any, plan: Any) -> dict[str, Any]:
    """Of the questions: what the recorded labels say of consensus and cost, and how rare the rarest class is."""
    wrong = plan.label != plan.true
    top = counts.max(axis=1) / SIZE.teachers
    price = rdp_gnmax(log_q_gaussian(counts, sigma=100.0), sigma=100.0, orders=20.0)[:, 0]
    by = {}
    for name, some in (("right", ~wrong), ("wrong", wrong)):
        by[name] = {"n": int(some.sum()), "top": top[some].mean(), "weak": (top[some] < 0.5).mean(),
                    "price": price[some].mean()}  # fmt: skip
    each = np.stack([np.cumsum(plan.true == c) for c in range(150)])  # (classes, questions)
    enough = {str(n): int(np.argmax((each >= n).all(axis=0))) + 1 for n in (1, 5, 10)}
    return {"recorded": by, "until_each_class_has": enough, "rarest": float(np.bincount(plan.true).min() / len(wrong))}


def split(out: Path, counts: Any, plan: Any) -> list[dict[str, Any]]:
    """Utility against privacy, of ensembles that split a fixed number of images (Figure 4, right)."""
    n = SIZE.fixed_queries
    sets = {f"{SIZE.teachers * SIZE.each}_{SIZE.teachers}": counts[:n], **np.load(out / "paper_glyph_fixed.npz")}
    found = []
    for name, some in sets.items():
        images, teachers = (int(part) for part in name.split("_"))
        votes = Votes(some.astype(np.int64), n_teachers=teachers)
        one = tradeoff(VoteSet(task="Glyph", file="", votes=votes, labels=plan.true[:n]), NOISE, full=False)
        recorded = float((some.argmax(axis=1) == plan.label[:n]).mean())
        about = {"images": images, "teachers": teachers, "each": images // teachers, "plurality_recorded": recorded}
        found.append({**about, "plurality": one["plurality"], "gnmax": one["gnmax"]})
        print(name, recorded, flush=True)
    return sorted(found, key=lambda row: (-row["images"], row["teachers"]))


def table_of(known: dict[tuple[str, str], Any], by_setting: dict[str, Any]) -> list[dict[str, Any]]:
    """Table 1's rows, each with its costs."""
    found = []
    for setting in TABLE:
        for learner in (*LEARNERS, FEATURES, AUTO):
            if (setting, learner) in known:
                key = f"{setting}, {learner}" if setting == BOTH else setting
                cost_of = by_setting.get(key, {"paper_epsilon": None, "exact_epsilon": None})
                found.append({**known[setting, learner], **cost_of, "chosen": CHOSEN.get(setting, "")})
    return found


def students(runs: list[dict[str, Any]]) -> dict[tuple[str, str], Any]:
    """Of each setting and learner, over its seeds."""
    pairs = dict.fromkeys((run["setting"], run["learner"]) for run in runs)
    return {pair: row for pair in pairs if (row := means(runs, *pair))}


def added(found: dict[str, Any], out: Path) -> dict[str, Any]:
    """What there is, with students by residual nets and on MNIST; no row of the small nets is changed or left out."""
    runs, more = all_runs(out, resnets=True), dict(found)
    if (out / RESNETS).is_file():
        counts = np.load(out / RESNETS)["counts"].astype(np.int64)
        teachers = int(counts[0].sum())
        known = students(runs)
        of_table = {pair for pair in known if pair[0] in TABLE}
        if {row["teachers"] for row in known.values() if row["setting"] in TABLE} - {teachers}:
            raise SystemExit("Some of these students are by another number of teachers.")
        by_setting = costs(out, counts, replace(SIZE, teachers=teachers, as_many=True)) if of_table else {}
        more["resnets"] = tidy(
            {
                "teachers": teachers,
                "many_teachers": int(np.load(out / EVERYWHERE)["teachers"]) if (out / EVERYWHERE).is_file() else 0,
                "ensembles": [
                    {k: v for k, v in row.items() if k != "machine"}
                    for row in read(out / TEACHERS)
                    if row["kind"] == RESNET
                ],
                "table": table_of(known, by_setting),
                "others": [row for pair, row in known.items() if pair not in of_table],
            }
        )
    ours = {pair: row for pair, row in students(all_runs(out)).items() if pair[0] in MNIST}
    there = [row for row in found["mnist"] if (row["setting"], row["learner"]) not in ours]
    more["mnist"] = sorted([*tidy(list(ours.values())), *there], key=lambda row: MNIST.index(row["setting"]))
    on = {run["machine"] for run in [*runs, *(run for run in all_runs(out) if run["setting"] in MNIST)]}
    more["machines"] = sorted({*found["machines"], *on})
    return more


def summary(out: Path, glyphs: str) -> dict[str, Any]:
    """Everything, by the votes that `votes` left; what `resnets` left too, if it is there."""
    runs = all_runs(out)
    counts = np.load(out / "paper_glyph_votes.npz")["counts"].astype(np.int64)
    plan = task_of(glyphs).plan("public", np.arange(len(counts)))
    known = students(runs)
    table = table_of(known, costs(out, counts))
    apart = [known[taken(who, K), kind] | {"who": who} for who in TAKEN for kind in (SHORT, FEATURES)
             if (taken(who, K), kind) in known]  # fmt: skip
    stages = [known[taken(who, k), kind] | {"who": who, "k": k} for kind in (SHORT, FEATURES)
              for who in (LN, LOW, MODERATE, PLURALITY_ALL, EVEN) for k in STAGES
              if (taken(who, k), kind) in known]  # fmt: skip
    others = [row for row in known.values() if row["setting"] not in {taken(w, k) for w in TAKEN for k in STAGES}]
    return added(tidy({
        "delta": DELTA,
        "table": table,
        "apart": apart,
        "stages": stages,
        "others": [row for row in others if row["setting"] not in (*TABLE, *MNIST)],
        "mnist": [row for row in others if row["setting"] in MNIST],
        "ensembles": [{k: v for k, v in row.items() if k != "machine"} for row in read(out / TEACHERS)
                      if row["kind"] != RESNET],
        "split": split(out, counts, plan),
        "inputs": inputs(counts, plan),
        "machines": sorted({run["machine"] for run in runs}),
    }), out)  # fmt: skip
