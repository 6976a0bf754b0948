"""The battery's one page and one picture.

python experiments/battery_page.py OUT   # docs/results/battery.json from the cells in OUT, and the page
python experiments/battery_page.py       # page and picture from battery.json
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from provenance import record
from scipy import stats
from tables import RESULTS, markdown
from votesets import BLUE, GREEN, ORANGE, canvas, save

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
}
EPSILONS = (0.1, 0.3, 1.0, 2.0)
ADDED, REPLACED = "UNIT_ADDED", "UNIT_REPLACED"
COMMAND = "python experiments/battery.py --out OUT && python experiments/battery_page.py OUT"
PREFIXES = {"cell": "votes", "baseline": "baseline", "pluralities": "pluralities"}
DROPPED = ("guarantee", "parts", "seconds")
# Goals, set before the battery was run: task, relation, what, epsilon, share right
AIMS = (
    ("fashion", ADDED, "probe", 0.1, 0.84),
    ("fashion", ADDED, "probe", 0.3, 0.88),
    ("fashion", ADDED, "probe", 1.0, 0.905),
    ("fashion", REPLACED, "votes", 1.0, 0.83),
    ("mnist", ADDED, "student", 0.3, 0.992),
    ("mnist", REPLACED, "votes", 0.5, 0.985),
    ("heritage", ADDED, "probe", 0.3, 0.84),
    ("heritage", REPLACED, "votes", 1.0, 0.803),
    ("clinc150-minilm", ADDED, "probe", 1.0, 0.82),
    ("adult", ADDED, "probe", 1.0, 0.85),
    ("adult", REPLACED, "probe", 1.0, 0.845),
    ("imdb", REPLACED, "probe", 0.5, 0.80),
)


def gather(out: Path) -> dict[str, Any]:
    """Cells as they were kept, without what no table shows."""
    cells = []
    for path in sorted(out.glob("*.json")):
        if path.name == "noise.json":
            continue
        found = json.loads(path.read_text())
        found.setdefault("kind", PREFIXES.get(path.name.split("_")[0]))
        if path.name.startswith("baseline"):
            found["learner"], found["kind"] = found["kind"], "baseline"
        for one in [found, *found.get("students", [])]:
            for name in DROPPED:
                one.pop(name, None)
        for one in found.get("students", []):
            one.pop("compared", None)
        if found["kind"] != "tuned":
            found.pop("compared", None)
        cells.append(found)
    return {"cells": cells}


def scores(found: dict[str, Any], task: str, kind: str, epsilon: float, relation: str) -> dict[int, float]:
    """Accuracy by seed. A changed vote costs one epsilon by any relation: cells of votes stand for both."""
    one = [c for c in found["cells"] if c["task"] == task and c["kind"] == kind and c.get("epsilon") == epsilon]
    if kind == "votes":
        return {c["seed"]: c["student"] for c in one}
    of = [c for c in one if c["relation"] == relation]
    if kind == "secure":
        return dict(enumerate(c["accuracy"] for c in of))
    if kind == "student":
        return {s["seed"]: s["student"] for c in of for s in c["students"]}
    return {seed: right for c in of for seed, right in zip(c["seeds"], c["accuracy"], strict=True)}


def single(found: dict[str, Any], task: str, kind: str) -> dict[str, Any] | None:
    return next((c for c in found["cells"] if c["task"] == task and c["kind"] == kind), None)


def planned(found: dict[str, Any], task: str) -> dict[str, Any]:
    return next((c for c in found["cells"] if c["task"] == task and c["kind"] == "facts"), {})


def tasks(found: dict[str, Any]) -> list[str]:
    there = {c["task"] for c in found["cells"] if c["kind"] in ("votes", "probe", "linear")}
    return [name for name in NAMES if name in there]


def mean(values: dict[int, float]) -> str:
    if not values:
        return "–"
    of = list(values.values())
    if len(of) == 1:
        return f"{100 * of[0]:.1f} (1)"
    return f"{100 * float(np.mean(of)):.1f} ± {100 * float(np.std(of, ddof=1)):.1f} ({len(of)})"


def paired(one: dict[int, float], other: dict[int, float]) -> str:
    """Mean difference over seeds in points, with a 95% interval by Student's t."""
    both = [100 * (one[seed] - other[seed]) for seed in sorted(one.keys() & other.keys())]
    if not both:
        return "–"
    middle = float(np.mean(both))
    if len(both) < 2:
        return f"{middle:+.1f} (1 seed)"
    half = float(stats.t.ppf(0.975, len(both) - 1)) * float(np.std(both, ddof=1)) / len(both) ** 0.5
    return f"{middle:+.1f} ({middle - half:+.1f} to {middle + half:+.1f})"


def accuracies(found: dict[str, Any], relation: str) -> str:
    kinds = ["votes", "probe", "student", "tuned", *(["opacus"] if relation == ADDED else [])]
    header = ["task", "ε", "student of votes", "probe", "student of the probe", "same descent, tuned"]
    header += ["Opacus, tuned"] if relation == ADDED else []
    body = []
    for task in tasks(found):
        for epsilon in EPSILONS:
            row = [mean(scores(found, task, kind, epsilon, relation)) for kind in kinds]
            if any(cell != "–" for cell in row):
                body.append([NAMES[task], f"{epsilon:g}", *row])
    return markdown(header, body)


def differences(found: dict[str, Any]) -> str:
    body = []
    for task in tasks(found):
        for relation in (ADDED, REPLACED):
            for epsilon in EPSILONS:
                of = {
                    kind: scores(found, task, kind, epsilon, relation) for kind in ("probe", "votes", "tuned", "opacus")
                }
                row = [paired(of["probe"], of[kind]) for kind in ("votes", "tuned", "opacus")]
                if any(cell != "–" for cell in row):
                    body.append([NAMES[task], relation_word(relation), f"{epsilon:g}", *row])
    header = ["task", "a unit is", "ε", "probe less student of votes", "less the tuned descent", "less Opacus"]
    return markdown(header, body)


def verdict(found: dict[str, Any]) -> str:
    """Where the probe by its rule is behind DP-SGD, or ahead, beyond the interval of the paired differences."""
    behind, ahead, n, worst = [], 0, 0, 0.0
    for task in tasks(found):
        for relation in (ADDED, REPLACED):
            for epsilon in EPSILONS:
                ours = scores(found, task, "probe", epsilon, relation)
                for kind, name in (("opacus", "Opacus"), ("tuned", "the tuned descent")):
                    theirs = scores(found, task, kind, epsilon, relation)
                    both = [100 * (ours[seed] - theirs[seed]) for seed in sorted(ours.keys() & theirs.keys())]
                    if len(both) < 2:
                        continue
                    n, middle = n + 1, float(np.mean(both))
                    half = float(stats.t.ppf(0.975, len(both) - 1)) * float(np.std(both, ddof=1)) / len(both) ** 0.5
                    worst = min(worst, middle)
                    ahead += middle - half > 0
                    if middle + half < 0:
                        of = f"{NAMES[task]}, a unit {relation_word(relation)}, ε = {epsilon:g}"
                        behind.append(f"{of}: {-middle:.1f} points behind {name}")
    listed = "".join(f"\n- {one}" for one in behind)
    said = f"DP-SGD wins, beyond the interval, in {len(behind)} of {n} comparisons{':' if behind else '.'}{listed}"
    return f"{said}\n\nThe probe wins in {ahead}; the largest mean loss is {-worst:.1f} points."


def relation_word(relation: str) -> str:
    return "added or removed" if relation == ADDED else "replaced"


def best_without(found: dict[str, Any], task: str) -> float | None:
    rights = [c["accuracy"] for c in found["cells"] if c["task"] == task and c["kind"] in ("linear", "baseline")]
    return max(rights) if rights else None


def without(found: dict[str, Any]) -> str:
    body = []
    for task in tasks(found):
        about, linear, base = planned(found, task), single(found, task, "linear"), single(found, task, "baseline")
        votes = [c for c in found["cells"] if c["task"] == task and c["kind"] == "votes"]
        plurality = {c["seed"]: c["plurality"] for c in votes if "plurality" in c}
        teachers = f"{about['n_teachers']:,}" if about else "–"
        body.append(
            [
                NAMES[task],
                f"{about['planned_units']:,}" if about else "–",
                teachers,
                mean(plurality),
                "–" if linear is None else full(linear),
                "–" if base is None else f"{full(base)}, {base['learner']}",
            ]
        )
    header = [
        "task",
        "units",
        "teachers",
        "plurality, no noise, public rows",
        "linear, no privacy",
        "other, no privacy",
    ]
    return markdown(header, body)


def full(one: dict[str, Any]) -> str:
    said = f"{100 * one['accuracy']:.1f}"
    more = [f"balanced {100 * one['balanced']:.1f}"] + ([f"AUC {one['auc']:.3f}"] if "auc" in one else [])
    return f"{said} ({', '.join(more)})" if "auc" in one else said


def ranks(found: dict[str, Any]) -> str:
    """AUC and balanced accuracy where one of two classes is rare."""
    body = []
    for task in ("adult", "heritage", "census"):
        for epsilon in EPSILONS:
            row = []
            for kind, relation in (("votes", REPLACED), ("probe", ADDED), ("probe", REPLACED)):
                rows = [c for c in found["cells"] if (c["task"], c["kind"], c.get("epsilon")) == (task, kind, epsilon)]
                rows = [c for c in rows if kind == "votes" or c["relation"] == relation]
                areas = _flat(c["auc"] for c in rows)
                even = _flat(c["balanced"] for c in rows)
                row.append("–" if not areas else f"{np.mean(areas):.3f}, {100 * np.mean(even):.1f}")
            if any(cell != "–" for cell in row):
                body.append([NAMES[task], f"{epsilon:g}", *row])
    return markdown(["task", "ε", "student of votes", "probe, added or removed", "probe, replaced"], body)


def _flat(values: Iterable[Any]) -> list[float]:
    return [x for value in values for x in (value if isinstance(value, list) else [value])]


def routes(found: dict[str, Any]) -> str:
    """What the rule picks, what is better, and what a wrong pick loses, over the epsilons that have both."""
    body = []
    for task in tasks(found):
        for relation in (ADDED, REPLACED):
            leads, picks = [], []
            for epsilon in EPSILONS:
                one, other = (scores(found, task, kind, epsilon, relation) for kind in ("votes", "probe"))
                if both := sorted(one.keys() & other.keys()):
                    leads.append(100 * float(np.mean([other[seed] - one[seed] for seed in both])))
                    picks.append(_picked(found, task, epsilon, relation))
            if leads:
                right = [(lead > 0) == (pick == "probe") for lead, pick in zip(leads, picks, strict=True)]
                lost = [0.0 if good else abs(lead) for good, lead in zip(right, leads, strict=True)]
                picked = f"probe {picks.count('probe')}, teachers {picks.count('teachers')}"
                better = f"probe {sum(x > 0 for x in leads)}, teachers {sum(x <= 0 for x in leads)}"
                cells = [relation_word(relation), picked, better, f"{sum(right)} of {len(right)}", f"{max(lost):.1f}"]
                body.append([NAMES[task], *cells])
    return markdown(["task", "a unit is", "picked", "better", "right", "points lost, at most"], body)


def _picked(found: dict[str, Any], task: str, epsilon: float, relation: str) -> str:
    about = planned(found, task)
    public = {name: about[name] for name in ("delta", "planned_units", "n_classes", "n_features", "n_public")}
    return choose_route(epsilon=epsilon, relation=Relation[relation], n_teachers=about["n_teachers"], **public).route


def aims(found: dict[str, Any]) -> str:
    body = []
    words = {"probe": "probe", "votes": "student of votes", "student": "student of the probe"}
    for task, relation, kind, epsilon, wanted in AIMS:
        got = list(scores(found, task, kind, epsilon, relation).values())
        reached = "–" if not got else f"{100 * float(np.mean(got)):.1f}"
        by = "–" if not got else f"{100 * (float(np.mean(got)) - wanted):+.1f}"
        body.append(
            [NAMES[task], words[kind], relation_word(relation), f"{epsilon:g}", f"{100 * wanted:g}", reached, by]
        )
    return markdown(["task", "what", "a unit is", "ε", "aim", "reached", "difference"], body)


def pluralities(found: dict[str, Any]) -> str:
    body = []
    for cell in found["cells"]:
        if cell["kind"] == "pluralities":
            for m, one in cell.items():
                if m.isdigit():
                    row = [one["plurality"], one["student_on_public"], one["student_noiseless_3000"]]
                    shown = ["–" if x is None else f"{100 * x:.1f}" for x in row]
                    body.append([NAMES[cell["task"]], f"{int(m):,}", *shown])
    header = [
        "task",
        "teachers",
        "plurality, public rows",
        "student of 3,000 noiseless answers, public rows",
        "test rows",
    ]
    return markdown(header, body)


def ways(found: dict[str, Any]) -> str:
    """The rule beside a third and three times its way, and a clip of 1: by the labels that tune."""
    body = []
    for task in tasks(found):
        for cell in found["cells"]:
            if cell["task"] == task and cell["kind"] == "tuned":
                right = {(way, clip): value for way, clip, value in cell["compared"]}
                row = [f"{100 * right[key]:.1f}" for key in ((1.0, 0.2), (0.3, 0.2), (3.0, 0.2), (1.0, 1.0))]
                body.append([NAMES[task], relation_word(cell["relation"]), f"{cell['epsilon']:g}", *row])
    header = ["task", "a unit is", "ε", "by rule", "0.3 of the way", "3 times the way", "clip 1"]
    return markdown(header, body)


def secured(found: dict[str, Any]) -> str:
    body = []
    for task in tasks(found):
        for cell in found["cells"]:
            if cell["task"] == task and cell["kind"] == "secure":
                twin = scores(found, task, "probe", cell["epsilon"], ADDED)
                low, high = cell.get("interval") or (0.0, 0.0)
                told = f"{100 * cell['measured']:.1f} ({100 * low:.1f} to {100 * high:.1f})" if high else "–"
                body.append([NAMES[task], f"{cell['epsilon']:g}", f"{100 * cell['accuracy']:.1f}", told, mean(twin)])
    head = ["task", "ε", "`fit_probe`, test rows", "as it measured itself, private rows", "in floats, seeded noise"]
    return markdown(head, body)


def draw(found: dict[str, Any]) -> None:
    names = tasks(found)
    figure, axes = canvas(2, (len(names) + 1) // 2, size=(14.0, 6.4))
    for axis, task in zip(axes.flat, names, strict=False):
        lines = (
            ("student of votes", "votes", ADDED, ORANGE, "o-"),
            ("probe", "probe", ADDED, BLUE, "o-"),
            ("probe, a unit replaced", "probe", REPLACED, BLUE, "o--"),
            ("Opacus, tuned", "opacus", ADDED, GREEN, "s:"),
        )
        for label, kind, relation, color, style in lines:
            points = [(e, scores(found, task, kind, e, relation)) for e in EPSILONS]
            shown = [(e, 100 * float(np.mean(list(of.values())))) for e, of in points if of]
            if shown:
                axis.plot(*zip(*shown, strict=True), style, color=color, label=label, markersize=4)
        if (best := best_without(found, task)) is not None:
            axis.axhline(100 * best, color="0.4", linewidth=1, label="best without privacy")
        axis.set(xscale="log", title=NAMES[task].split(", a ")[0])
        axis.set_xticks(EPSILONS, [f"{e:g}" for e in EPSILONS])
        axis.minorticks_off()
    for axis in list(axes.flat)[len(names) :]:
        axis.set_visible(False)
    handles: dict[str, Any] = {}
    for axis in axes.flat:
        handles |= dict(zip(*reversed(axis.get_legend_handles_labels()), strict=True))
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=5, frameon=False)
    figure.supylabel("right, in percent")
    for axis in axes[-1]:
        axis.set_xlabel("ε")
    save(figure, "battery")


HEADLINE = {
    "mnist": "MNIST: 10 digits",
    "fashion": "Fashion-MNIST: 10 kinds of clothes",
    "glyph": "Glyph: 150 symbols",
    "adult": "UCI Adult: income, two classes",
    "heritage": "Heritage Health: illness, two classes",
    "imdb": "IMDB: good or bad reviews",
    "clinc150-minilm": "CLINC150: 150 intents",
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


def page(found: dict[str, Any]) -> str:
    return PAGE.format(
        added=accuracies(found, ADDED),
        replaced=accuracies(found, REPLACED),
        differences=differences(found),
        verdict=verdict(found),
        without=without(found),
        ranks=ranks(found),
        routes=routes(found),
        aims=aims(found),
        pluralities=pluralities(found),
        secured=secured(found),
        ways=ways(found),
    )


PAGE = (Path(__file__).parent / "battery_page.txt").read_text(encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description="The battery's page and picture")
    parser.add_argument("out", type=Path, nargs="?", help="the folder that battery.py wrote cells to")
    given = parser.parse_args()
    file = RESULTS / "battery.json"
    if given.out is not None:
        file.write_text(
            json.dumps(gather(given.out), indent=None, separators=(",", ":")).replace("},{", "},\n{") + "\n"
        )
        record("battery", COMMAND)
    found = json.loads(file.read_text())
    draw(found)
    (RESULTS / "battery.md").write_text(page(found))


if __name__ == "__main__":
    main()
