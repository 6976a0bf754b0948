"""The battery's one page and one picture.

python experiments/battery_page.py OUT          # docs/results/battery.json from the cells in OUT, and the page
python experiments/battery_page.py OUT --more   # the cells in OUT beside those that battery.json has
python experiments/battery_page.py              # page and picture from battery.json
python experiments/battery_page.py --headline   # README's table
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from provenance import record
from scipy import stats
from tables import RESULTS, markdown
from votesets import BLUE, GREEN, GREY, ORANGE, RED, canvas, save, tidy

from terrine.features.auto import ENCODER
from terrine.relations import Relation
from terrine.which_route import choose_route

NAMES = {
    "mnist": "MNIST",
    "fashion": "Fashion-MNIST",
    "glyph": "Glyph, 150 symbols",
    "adult": "Adult",
    "census": "Census-Income",
    "heritage": "Heritage, a member is the unit",
    "imdb": "IMDB, built-in features",
    "imdb-minilm": "IMDB, MiniLM",
    "clinc150": "CLINC150, built-in features",
    "clinc150-minilm": "CLINC150, MiniLM",
    "cifar10": "CIFAR-10, built-in features",
    "cifar10-imagenet": "CIFAR-10, EfficientNet",
}
EPSILONS = (0.1, 0.3, 1.0, 2.0)  # of the tables; the aims have others too
ADDED, REPLACED = "UNIT_ADDED", "UNIT_REPLACED"
WORDS = {ADDED: "added or removed", REPLACED: "replaced"}
COMMAND = "python experiments/battery.py --out OUT && python experiments/battery_page.py OUT"

# What is kept of cells: what one row has in common, and by seed
SHARED = ("task", "kind", "epsilon", "relation", "teachers", "n_questions", "learner")
RANKS = ("accuracy", "balanced", "auc")
WAYS = {"by rule": (1.0, 0.2), "0.3 of the way": (0.3, 0.2), "3 times the way": (3.0, 0.2), "clip 1": (1.0, 1.0)}
BY_SEED = {
    "votes": (*RANKS, "plurality", "agree", "answers"),
    "probe": RANKS,
    "tuned": ("accuracy", *WAYS),
    "sgd": RANKS,
    "secure": ("accuracy", "measured", "interval"),
    "linear": RANKS,
    "baseline": (*RANKS, "on_public"),
    "pluralities": ("plurality", "on_public", "accuracy"),
}
PUBLIC = ("planned_units", "delta", "n_classes", "n_features", "n_public", "n_teachers")

# What is subtracted from what; "auto" is what the route that is chosen ends with
PAIRS = (("probe", "votes"), ("probe", "tuned"), ("probe", "sgd"), ("auto", "sgd"))
CALLED = {
    "votes": "student of votes",
    "votes-nets": "student of votes, nets among them",
    "probe": "probe",
    "student": "student of the probe",
    "student-nets": "student of the probe, nets among them",
    "tuned": "same descent, tuned",
    "sgd": "DP-SGD, tuned",
    "auto": "`auto`",
}
# Published figures: task, epsilon, share right, by whom
PUBLISHED = (
    ("fashion", 1.0, 0.884, "DPSUR"),
    ("fashion", 3.0, 0.897, "ScatterNet DP-SGD"),
    ("imdb", 1.0, 0.665, "DPSUR"),
    ("cifar10", 3.0, 0.69, "ScatterNet DP-SGD"),
)


@dataclass(frozen=True, kw_only=True)
class Aim:
    """Set before the battery was run."""

    task: str
    kind: str
    wanted: float
    relation: str | None = None
    epsilon: float | None = None
    teachers: int | None = None
    what: str = "accuracy"

    @property
    def words(self) -> str:
        if self.kind == "baseline":
            return f"model without privacy, {'public' if self.what == 'on_public' else 'test'} rows"
        if self.kind == "pluralities":
            said = f"plurality of {self.teachers:,} teachers, public rows"
            return f"student of 3,000 noiseless answers less {said}" if self.what == "gap" else said
        return CALLED[self.kind]

    def reached(self, found: dict[str, Any]) -> dict[int, float]:
        of = {"task": self.task, "kind": self.kind, "teachers": self.teachers}
        if self.what == "gap":
            student, plurality = (by_seed(found, what, **of) for what in ("on_public", "plurality"))
            return {seed: student[seed] - plurality[seed] for seed in student}
        if self.kind in ("baseline", "pluralities"):
            return by_seed(found, self.what, **of)
        assert self.epsilon is not None
        assert self.relation is not None
        return scores(found, self.task, self.kind, self.epsilon, self.relation)


def _aim(task: str, kind: str, relation: str, epsilon: float, wanted: float) -> Aim:
    return Aim(task=task, kind=kind, relation=relation, epsilon=epsilon, wanted=wanted)


AIMS = (
    _aim("fashion", "probe", ADDED, 0.1, 0.84),
    _aim("fashion", "probe", ADDED, 0.3, 0.88),
    _aim("fashion", "probe", ADDED, 1.0, 0.905),
    _aim("fashion", "student", ADDED, 0.3, 0.89),
    _aim("fashion", "student-nets", ADDED, 0.3, 0.89),
    *(_aim("fashion", kind, REPLACED, 1.0, 0.83) for kind in ("votes", "probe")),
    *(
        Aim(task="fashion", kind="pluralities", teachers=m, what=what, wanted=wanted)
        for m, least in ((250, 0.86), (1000, 0.845))
        for what, wanted in (("plurality", least), ("gap", -0.02))
    ),
    *(Aim(task="fashion", kind="baseline", what=what, wanted=0.94) for what in ("accuracy", "on_public")),
    _aim("mnist", "student", ADDED, 0.3, 0.992),
    _aim("mnist", "student-nets", ADDED, 0.3, 0.992),
    _aim("mnist", "votes", REPLACED, 0.5, 0.985),
    _aim("mnist", "probe", REPLACED, 0.3, 0.985),
    *(Aim(task="mnist", kind="baseline", what=what, wanted=0.996) for what in ("accuracy", "on_public")),
    _aim("heritage", "probe", ADDED, 0.3, 0.84),
    _aim("heritage", "votes", REPLACED, 1.0, 0.803),
    *(_aim("clinc150-minilm", kind, ADDED, 1.0, 0.82) for kind in ("probe", "student")),
    _aim("adult", "probe", ADDED, 1.0, 0.85),
    _aim("adult", "probe", REPLACED, 1.0, 0.845),
    _aim("imdb", "probe", REPLACED, 0.5, 0.80),
    _aim("imdb-minilm", "probe", REPLACED, 0.5, 0.80),
    _aim("imdb-minilm", "votes", REPLACED, 0.5, 0.80),
)


# From cells to battery.json


def gather(out: Path) -> dict[str, Any]:
    """What tables show of the cells in a folder: public numbers by task, and values by seed."""
    read = {path.name: json.loads(path.read_text()) for path in sorted(out.glob("*.json"))}
    cells = {name: cell for name, cell in read.items() if "kind" in cell}  # beside them are tables of noise
    refuse_mixed(cells)
    tasks: dict[str, Any] = {}
    rows: dict[str, list[dict[str, Any]]] = {}
    for cell in cells.values():
        about = tasks.setdefault(cell["task"], {"features": {}})
        if cell["kind"] == "facts":
            about |= {name: cell[name] for name in PUBLIC}
            continue
        if "parts" in cell:
            known = about["features"].setdefault(" + ".join(cell["parts"]), [])
            known += [] if cell["seed"] in known else [cell["seed"]]
        for one in _rows_of(cell):
            rows.setdefault(json.dumps({name: one[name] for name in SHARED if name in one}), []).append(one)
    return {"tasks": tasks, "cells": [{**json.loads(shared), **_columns(some)} for shared, some in rows.items()]}


def joined(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """What was gathered before, and further cells: the same row of other seeds is replaced, not added to."""
    for name, about in new["tasks"].items():
        before = old["tasks"].get(name, about)["features"]
        if about["features"] and about["features"].keys() != before.keys():
            raise SystemExit(f"{name} had features of {', '.join(before)}, and {', '.join(about['features'])} here.")

    def shared(row: dict[str, Any]) -> tuple[Any, ...]:
        return tuple(row.get(name) for name in SHARED)

    rows = {shared(row): row for row in (*old["cells"], *new["cells"])}
    return {"tasks": {**new["tasks"], **old["tasks"]}, "cells": list(rows.values())}


def _rows_of(cell: dict[str, Any]) -> Iterable[dict[str, Any]]:
    """A cell as rows of tables: one, but for the pluralities, which have one for each number of teachers."""
    if cell["kind"] == "pluralities":
        for teachers, one in cell.items():
            if teachers.isdigit():
                yield {
                    "task": cell["task"],
                    "kind": cell["kind"],
                    "seed": cell["seed"],
                    "teachers": int(teachers),
                } | one
        return
    if cell["kind"] == "tuned":
        tried = {(way, clip): right for way, clip, right in cell["compared"]}
        cell = cell | {name: tried.get(key) for name, key in WAYS.items()}
    yield cell


def _columns(some: list[dict[str, Any]]) -> dict[str, Any]:
    some = sorted(some, key=lambda one: one["seed"])
    names = BY_SEED.get(some[0]["kind"], ("accuracy",))
    if "auc" not in some[0]:  # more than two classes
        names = tuple(name for name in names if name != "balanced")
    kept = {name: [one.get(name) for one in some] for name in names}
    kept = {name: tidy(values) for name, values in kept.items() if any(value is not None for value in values)}
    return {"seeds": [one["seed"] for one in some], **kept}


def refuse_mixed(cells: dict[str, dict[str, Any]]) -> None:
    """Cells with features of a CPU and of a GPU are not shown together, nor nets of both; one seed has one fit.

    Only a GPU gives the encoder; without it seeds may differ in their sets of features, which public rows choose.
    """
    for task in NAMES:
        own = {name: cell for name, cell in cells.items() if cell["task"] == task}
        fits = {name: (tuple(cell["parts"]), cell.get("seed")) for name, cell in own.items() if "parts" in cell}
        first = {seed: parts for parts, seed in fits.values()}
        _refuse(task, "in the encoder, which only a GPU gives", {name: ENCODER in fit[0] for name, fit in fits.items()})
        for seed in first:
            of = {name: " + ".join(parts) for name, (parts, one) in fits.items() if one == seed}
            _refuse(task, f"in their features of seed {seed}", of)
        nets = {name: cell["learner"] for name, cell in own.items() if "learner" in cell}
        _refuse(task, "in the model without privacy", nets)


def _refuse(task: str, what: str, by_name: dict[str, Any]) -> None:
    found: dict[Any, list[str]] = {}
    for name, value in by_name.items():
        found.setdefault(value, []).append(name)
    if len(found) > 1:
        said = "; ".join(f"{value}: {', '.join(names[:4])}, {len(names)} in all" for value, names in found.items())
        raise SystemExit(
            f"Cells of {task} differ {what} ({said}). They are not shown in one table: leave one kind of them in the "
            "folder, or run the others again."
        )


# From battery.json to numbers


def by_seed(found: dict[str, Any], what: str = "accuracy", **of: Any) -> dict[int, float]:
    """Values of the rows that have these fields; a field that is None is any."""
    wanted = {name: value for name, value in of.items() if value is not None}
    rows = [row for row in found["cells"] if wanted.items() <= {name: row.get(name) for name in wanted}.items()]
    pairs = [pair for row in rows if what in row for pair in zip(row["seeds"], row[what], strict=True)]
    return {seed: value for seed, value in sorted(pairs) if value is not None}


def scores(
    found: dict[str, Any], task: str, kind: str, epsilon: float, relation: str, what: str = "accuracy"
) -> dict[int, float]:
    """By seed. A changed vote costs one epsilon by any relation: cells of votes stand for both."""
    if kind == "auto":
        return ends(found, task, picked(found, task, epsilon, relation), epsilon, relation)
    of = None if kind.startswith("votes") or kind == "secure" else relation
    return by_seed(found, what, task=task, kind=kind, epsilon=epsilon, relation=of)


def ends(found: dict[str, Any], task: str, route: str, epsilon: float, relation: str) -> dict[int, float]:
    """What a route ends with: of the probe's its student, where there is one for every seed, else the probe itself."""
    if route == "teachers":
        return scores(found, task, "votes", epsilon, relation)
    probe, student = (scores(found, task, kind, epsilon, relation) for kind in ("probe", "student"))
    return student if probe.keys() <= student.keys() else probe


def picked(found: dict[str, Any], task: str, epsilon: float, relation: str) -> str:
    """The route by the rule, from public numbers."""
    public = {name: found["tasks"][task][name] for name in PUBLIC}
    return choose_route(epsilon=epsilon, relation=Relation[relation], **public).route


def tasks(found: dict[str, Any]) -> list[str]:
    """Those with all public numbers."""
    return [name for name in NAMES if "n_teachers" in found["tasks"].get(name, {})]


def settings(found: dict[str, Any], relations: tuple[str, ...] = (ADDED, REPLACED)) -> list[tuple[str, str, float]]:
    return [(task, relation, epsilon) for task in tasks(found) for relation in relations for epsilon in EPSILONS]


@dataclass(frozen=True, kw_only=True)
class Difference:
    """In points, over seeds that both have; half of its 95% interval by Student's t, where there are two seeds."""

    mean: float
    half: float | None

    @classmethod
    def of(cls, one: dict[int, float], other: dict[int, float]) -> Difference | None:
        both = [100 * (one[seed] - other[seed]) for seed in sorted(one.keys() & other.keys())]
        if not both:
            return None
        half = None
        if len(both) > 1:
            half = float(stats.t.ppf(0.975, len(both) - 1)) * float(np.std(both, ddof=1)) / len(both) ** 0.5
        return cls(mean=float(np.mean(both)), half=half)

    def __str__(self) -> str:
        if self.half is None:
            return f"{self.mean:+.1f} (1 seed)"
        return f"{self.mean:+.1f} ({self.mean - self.half:+.1f} to {self.mean + self.half:+.1f})"


def paired(one: dict[int, float], other: dict[int, float]) -> str:
    return str(Difference.of(one, other) or "–")


def mean(values: dict[int, float]) -> str:
    """In percent: mean ± deviation (number of seeds)."""
    if not values:
        return "–"
    of = [100 * value for value in values.values()]
    if len(of) == 1:
        return f"{of[0]:.1f} (1)"
    return f"{float(np.mean(of)):.1f} ± {float(np.std(of, ddof=1)):.1f} ({len(of)})"


def table(header: list[str], rows: Iterable[list[str]], *, names: int) -> str:
    """Rows that have a number, after so many columns of names."""
    kept = [row for row in rows if any(cell != "–" for cell in row[names:])]
    return markdown(header, kept) if kept else "Not run."


# The page's tables


def features(found: dict[str, Any]) -> str:
    body = []
    for task in tasks(found):
        about = found["tasks"][task]
        fits = [f"{parts} ({len(seeds)})" for parts, seeds in sorted(about["features"].items())]
        sizes = [f"{about[name]:,}" for name in ("planned_units", "n_public", "n_classes", "n_teachers", "n_features")]
        body.append([NAMES[task], *sizes, "; ".join(fits) or "–", f"{about['delta']:g}"])
    header = ["task", "units", "public rows", "classes", "teachers", "features", "what they are (fits)", "δ"]
    return markdown(header, body)


def accuracies(found: dict[str, Any], relation: str) -> str:
    kinds = ["votes", "probe", "student", "tuned", *(["sgd"] if relation == ADDED else [])]
    rows = (
        [NAMES[task], f"{epsilon:g}", *(mean(scores(found, task, kind, epsilon, relation)) for kind in kinds)]
        for task, _, epsilon in settings(found, (relation,))
    )
    return table(["task", "ε", *(CALLED[kind] for kind in kinds)], rows, names=2)


def nets(found: dict[str, Any]) -> str:
    """Students with nets among them, beside those without."""
    body = []
    for task, relation, epsilon in settings(found):
        row = []
        for kind in ("votes", "student"):
            without, one = (scores(found, task, name, epsilon, relation) for name in (kind, f"{kind}-nets"))
            row += [mean(one), paired(one, without)]
        body.append([NAMES[task], WORDS[relation], f"{epsilon:g}", *row])
    header = ["task", "a unit is", "ε"]
    header += [one for kind in ("votes", "student") for one in (f"{CALLED[kind]}, with nets", "less without")]
    return table(header, body, names=3)


def differences(found: dict[str, Any]) -> str:
    body = []
    for task, relation, epsilon in settings(found):
        of = {kind: scores(found, task, kind, epsilon, relation) for pair in PAIRS for kind in pair}
        row = [paired(of[one], of[other]) for one, other in PAIRS]
        body.append([NAMES[task], WORDS[relation], f"{epsilon:g}", *row])
    header = ["task", "a unit is", "ε", *(f"{CALLED[one]} less {CALLED[other]}" for one, other in PAIRS)]
    return table(header, body, names=3)


def verdict(found: dict[str, Any]) -> str:
    """Where DP-SGD is ahead beyond the interval of the paired differences, and where the mean loss is over a point."""
    said, large = [], []
    for ours, theirs in PAIRS[1:]:
        behind, ahead, n = [], 0, 0
        for task, relation, epsilon in settings(found):
            one, other = (scores(found, task, kind, epsilon, relation) for kind in (ours, theirs))
            if (gap := Difference.of(one, other)) is None:
                continue
            where = f"{NAMES[task]}, a unit {WORDS[relation]}, ε = {epsilon:g}: {gap} points"
            if gap.mean < -1:
                large.append(f"{where}, {CALLED[ours]} less {CALLED[theirs]}")
            if gap.half is not None:
                n, ahead = n + 1, ahead + (gap.mean - gap.half > 0)
                behind += [where] if gap.mean + gap.half < 0 else []
        if n:
            first, second = f"“{CALLED[ours]}”", f"“{CALLED[theirs]}”"
            said.append(f"**Settings that have both {first} and {second}: {n}.** {first} wins in {ahead}, {second} in ")
            said[-1] += _listed(behind)
    return "\n\n".join([*said, f"**Mean losses of more than one point**, whatever their interval: {_listed(large)}"])


def _listed(some: list[str]) -> str:
    return f"{len(some)}:\n" + "\n".join(f"- {one}" for one in some) if some else "none."


def opacus(found: dict[str, Any]) -> str:
    body = []
    for task, relation, epsilon in settings(found, (ADDED,)):
        ours, theirs = (scores(found, task, kind, epsilon, relation) for kind in ("sgd", "opacus"))
        if ours and theirs:
            body.append([NAMES[task], f"{epsilon:g}", mean(ours), mean(theirs), paired(ours, theirs)])
    return table(["task", "ε", "our loop", "Opacus", "our loop less Opacus"], body, names=2)


def bars(found: dict[str, Any], task: str) -> dict[str, dict[int, float]]:
    """Models without privacy: accuracy by seed."""
    return {kind: got for kind in ("linear", "baseline") if (got := by_seed(found, task=task, kind=kind))}


def best_without(found: dict[str, Any], task: str) -> float | None:
    return max((float(np.mean(list(got.values()))) for got in bars(found, task).values()), default=None)


def without(found: dict[str, Any]) -> str:
    body = []
    for task in tasks(found):
        learner = next((row["learner"] for row in found["cells"] if row["task"] == task and "learner" in row), None)
        plurality, agree = (by_seed(found, what, task=task, kind="votes") for what in ("plurality", "agree"))
        row = [mean(plurality), mean(agree), full(found, task, "linear"), full(found, task, "baseline")]
        row[-1] += f", {learner}" if learner else ""
        body.append([NAMES[task], *row, mean(by_seed(found, "on_public", task=task, kind="baseline"))])
    header = ["task", "plurality, public rows", "teachers behind the winner", "linear, no privacy"]
    return table([*header, "other model, no privacy", "the same, public rows"], body, names=1)


def full(found: dict[str, Any], task: str, kind: str) -> str:
    right, even, area = (by_seed(found, what, task=task, kind=kind) for what in RANKS)
    return f"{mean(right)}, {_ranks(even, area)}" if area else mean(right)


def _ranks(even: dict[int, float], area: dict[int, float]) -> str:
    if not area:
        return "–"
    return f"AUC {np.mean(list(area.values())):.3f}, balanced {100 * np.mean(list(even.values())):.1f}"


def ranks(found: dict[str, Any]) -> str:
    columns = (("votes", REPLACED), ("probe", ADDED), ("probe", REPLACED), ("sgd", ADDED))
    body = []
    for task in tasks(found):
        for epsilon in EPSILONS:
            of = [
                [scores(found, task, kind, epsilon, relation, what) for what in ("balanced", "auc")]
                for kind, relation in columns
            ]
            body.append([NAMES[task], f"{epsilon:g}", *(_ranks(*one) for one in of)])
    header = ["task", "ε", "student of votes", "probe, added or removed", "probe, replaced", "DP-SGD, added or removed"]
    return table(header, body, names=2)


def answers(found: dict[str, Any]) -> str:
    """How many questions votes answer, and how often the answers are right."""
    body = []
    for task in tasks(found):
        for epsilon in EPSILONS:
            of = {"task": task, "kind": "votes", "epsilon": epsilon}
            asked = {row["n_questions"] for row in found["cells"] if of.items() <= row.items()}
            row = [mean(by_seed(found, what, **of)) for what in ("answers", "plurality", "accuracy")]
            body.append([NAMES[task], f"{epsilon:g}", ", ".join(f"{n:,}" for n in sorted(asked)) or "–", *row])
    header = ["task", "ε", "questions", "answers that are right", "plurality, no noise", "student, test rows"]
    return table(header, body, names=2)


def pluralities(found: dict[str, Any]) -> str:
    body = []
    for task in NAMES:
        numbers = {row["teachers"] for row in found["cells"] if row["task"] == task and "teachers" in row}
        for m in sorted(numbers):
            of = {"task": task, "kind": "pluralities", "teachers": m}
            plurality, student, test = (by_seed(found, what, **of) for what in BY_SEED["pluralities"])
            gap = paired(student, plurality)
            body.append([NAMES[task], f"{m:,}", mean(plurality), mean(student), gap, mean(test)])
    header = ["task", "teachers", "plurality, public rows", "student, public rows", "student less plurality"]
    return table([*header, "student, test rows"], body, names=2)


def ways(found: dict[str, Any]) -> str:
    """The rule beside a third and three times its way, and a clip of 1: by the labels that tune."""
    rows = (
        [
            NAMES[task],
            WORDS[relation],
            f"{epsilon:g}",
            *(mean(scores(found, task, "tuned", *at, name)) for name in WAYS),
        ]
        for task, relation, epsilon in settings(found)
        for at in [(epsilon, relation)]
    )
    return table(["task", "a unit is", "ε", *WAYS], rows, names=3)


def secured(found: dict[str, Any]) -> str:
    body = []
    for row in found["cells"]:
        if row["kind"] == "secure":
            twin = scores(found, row["task"], "probe", row["epsilon"], ADDED)
            none = [None] * len(row["seeds"])
            each = zip(row["accuracy"], row.get("measured", none), row.get("interval", none), strict=True)
            for right, measured, interval in each:
                told = f"{100 * measured:.1f}" if measured is not None else "–"
                told += f" ({100 * interval[0]:.1f} to {100 * interval[1]:.1f})" if interval else ""
                body.append([NAMES[row["task"]], f"{row['epsilon']:g}", f"{100 * right:.1f}", told, mean(twin)])
    header = ["task", "ε", "`fit_probe`, test rows", "as it measured itself, private rows", "in floats, seeded noise"]
    return table(header, sorted(body, key=lambda one: list(NAMES.values()).index(one[0])), names=2)


def routes(found: dict[str, Any]) -> str:
    """What the rule picks at each epsilon, and what it loses where the other route is better."""
    body, lost = [], []
    for task in tasks(found):
        for relation in (ADDED, REPLACED):
            row = []
            for epsilon in EPSILONS:
                pick = picked(found, task, epsilon, relation)
                other = "teachers" if pick == "probe" else "probe"
                of = (ends(found, task, route, epsilon, relation) for route in (pick, other))
                if (gap := Difference.of(*of)) is None:
                    row.append("–")
                    continue
                lost.append(max(-gap.mean, 0.0))
                row.append(pick if gap.mean >= 0 else f"{pick}, loses {-gap.mean:.1f}")
            body.append([NAMES[task], WORDS[relation], *row])
    wrong = [one for one in lost if one > 0]
    said = f"The rule picks the better route in {len(lost) - len(wrong)} of {len(lost)} settings."
    if wrong:
        said += f" Where it does not, it loses {np.mean(wrong):.1f} points on average and {max(wrong):.1f} at most."
    shown = table(["task", "a unit is", *(f"ε = {epsilon:g}" for epsilon in EPSILONS)], body, names=2)
    return f"{said}\n\n{shown}"


def published(found: dict[str, Any]) -> str:
    body = []
    for task, epsilon, right, by in PUBLISHED:
        near = max((one for one in EPSILONS if one <= epsilon), default=epsilon)
        ours = [mean(scores(found, task, kind, near, ADDED)) for kind in ("votes", "probe", "student")]
        body.append([NAMES[task].split(",")[0], f"{100 * right:.1f}, {by}", f"{epsilon:g}", f"{near:g}", *ours])
    header = ["task", "published", "at ε", "ours at ε", *(CALLED[kind] for kind in ("votes", "probe", "student"))]
    return markdown(header, body)


def aims(found: dict[str, Any]) -> str:
    body = []
    for aim in AIMS:
        got = aim.reached(found)
        by = f"{100 * (float(np.mean(list(got.values()))) - aim.wanted):+.1f}" if got else "–"
        at = [WORDS[aim.relation] if aim.relation else "", f"{aim.epsilon:g}" if aim.epsilon else ""]
        body.append([NAMES[aim.task], aim.words, *at, f"{100 * aim.wanted:g}", mean(got), by])
    return markdown(["task", "what", "a unit is", "ε", "aim", "reached", "difference"], body)


# Picture, README's table, page


def draw(found: dict[str, Any], into: Path) -> None:
    names = tasks(found)
    figure, axes = canvas(2, max((len(names) + 1) // 2, 1), size=(17.0, 6.8))
    lines = (
        ("votes", ADDED, ORANGE, "o-"),
        ("probe", ADDED, BLUE, "o-"),
        ("probe", REPLACED, BLUE, "o--"),
        ("student", ADDED, RED, "^:"),
        ("sgd", ADDED, GREEN, "s:"),
    )
    for axis, task in zip(axes.flat, names, strict=False):
        for kind, relation, color, style in lines:
            points = [(epsilon, scores(found, task, kind, epsilon, relation)) for epsilon in EPSILONS]
            shown = [(epsilon, 100 * float(np.mean(list(got.values())))) for epsilon, got in points if got]
            if shown:
                label = CALLED[kind] + (", a unit replaced" if relation == REPLACED else "")
                axis.plot(*zip(*shown, strict=True), style, color=color, label=label, markersize=4)
        if (best := best_without(found, task)) is not None:
            axis.axhline(100 * best, color=GREY, linewidth=1.5, label="best without privacy")
        axis.set(xscale="log", title=NAMES[task].split(", a ")[0], xlim=(EPSILONS[0] / 1.2, EPSILONS[-1] * 1.2))
        axis.set_xticks(EPSILONS, [f"{epsilon:g}" for epsilon in EPSILONS])
        axis.minorticks_off()
    for axis in list(axes.flat)[len(names) :]:
        axis.set_visible(False)
    handles: dict[str, Any] = {}
    for axis in axes.flat:
        handles |= dict(zip(*reversed(axis.get_legend_handles_labels()), strict=True))
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=6, frameon=False)
    figure.supylabel("right, in percent")
    for axis in axes[-1]:
        axis.set_xlabel("ε")
    save(figure, "battery" if into == RESULTS else str((into / "battery").resolve()))


HEADLINE = {
    "mnist": "MNIST: 10 digits",
    "fashion": "Fashion-MNIST: 10 kinds of clothes",
    "glyph": "Glyph: 150 symbols",
    "adult": "UCI Adult: income, two classes",
    "heritage": "Heritage Health: illness, two classes",
    "imdb": "IMDB: good or bad reviews",
    "clinc150-minilm": "CLINC150: 150 intents",
    "cifar10-imagenet": "CIFAR-10: photos of 10 kinds, seen by a public encoder",
}


def headline(found: dict[str, Any]) -> str:
    """README's table: the probe, which the rule of routes takes on all of these, at two epsilons."""
    body = []
    for task, name in HEADLINE.items():
        rights = [scores(found, task, "probe", epsilon, ADDED) for epsilon in (0.3, 1.0)]
        if not all(rights):
            continue
        bar = best_without(found, task)
        shown = [f"{100 * float(np.mean(list(one.values()))):.1f}%" for one in rights]
        body.append([name, *shown, "–" if bar is None else f"{100 * bar:.1f}%"])
    return markdown(["right on test rows", "ε = 0.3", "ε = 1", "without privacy"], body)


PAGE = (Path(__file__).parent / "battery_page.txt").read_text(encoding="utf-8")


def page(found: dict[str, Any]) -> str:
    made = (features, nets, differences, verdict, opacus, without, ranks, answers, pluralities)
    made += (ways, secured, routes, published, aims)
    tables = {make.__name__: make(found) for make in made}
    return PAGE.format(added=accuracies(found, ADDED), replaced=accuracies(found, REPLACED), **tables)


def written(found: dict[str, Any]) -> str:
    """As JSON with a row of a table in a line."""
    rows = ",\n".join(json.dumps(row, separators=(",", ":")) for row in found["cells"])
    return f'{{"tasks":{json.dumps(found["tasks"])},\n"cells":[\n{rows}]}}\n'


def main() -> None:
    parser = argparse.ArgumentParser(description="The battery's page and picture")
    parser.add_argument("out", type=Path, nargs="?", help="the folder that battery.py wrote cells to")
    parser.add_argument("--into", type=Path, default=RESULTS, help="a folder for JSON, page and picture, to try it")
    parser.add_argument("--more", action="store_true", help="add the cells in OUT to those of battery.json")
    parser.add_argument("--ran-on", help="the machine that made the cells, where it was another")
    parser.add_argument("--headline", action="store_true", help="print README's table, and write nothing")
    given = parser.parse_args()
    file = given.into / "battery.json"
    if given.headline:
        print(headline(json.loads(file.read_text())))
        return
    if given.out is not None:
        found = gather(given.out)
        file.write_text(written(joined(json.loads(file.read_text()), found) if given.more else found))
        if given.into == RESULTS:
            record("battery", COMMAND, ran_on=given.ran_on)
    found = json.loads(file.read_text())
    draw(found, given.into)
    (given.into / "battery.md").write_text(page(found))


if __name__ == "__main__":
    main()
