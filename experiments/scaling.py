"""How time and memory grow: accounting, sensitivity, partition, teaching, voting by queries, classes, teachers, rows.

Run: nice -n 10 python experiments/scaling.py          (under ten minutes of CPU; one process)
     python experiments/scaling.py --draw              (page and picture again, from the JSON)
Writes docs/results/scaling.md, .json, .png and .svg. Time is CPU time of this process (threads add up), the best of two
runs where one takes under two seconds; memory is the peak that Python and numpy allocate, of another run (the largest
cases: of the same).
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import time
import tracemalloc
from collections.abc import Callable
from functools import lru_cache
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.ticker import NullFormatter
from provenance import record
from sklearn.naive_bayes import GaussianNB
from votesets import BLUE, GREEN, GREY, ORANGE, OUT, RED, canvas, markdown, save, tidy

from terrine import ConfidentGNMax, PrivateData, Votes, cost, guarantee, synthetic_votes, worst_case_cost
from terrine.datasets.blobs import blobs
from terrine.partitioning import partition
from terrine.release.smooth import smooth_sensitivity
from terrine.teachers import SklearnTeacher, TeacherEnsemble, fit_teachers

BENCHMARKS = Path(__file__).parents[1] / "benchmarks" / "results"
BASE = {"queries": 1_000, "classes": 10, "teachers": 1_000}
SIZES = {
    "queries": (300, 1_000, 3_000, 10_000),
    "classes": (3, 10, 100, 1_000),
    "teachers": (300, 1_000, 3_000, 10_000),
}
FULL = {"queries": 10_000, "classes": 1_000, "teachers": 10_000}
ROWS_EACH = 50  # of a teacher's share
FEATURES = 8
ROWS = (10_000, 100_000, 1_000_000)  # of a partition
_FRESH = count(1)


@lru_cache(maxsize=1)
def imagined(queries: int, classes: int, teachers: int) -> Votes:
    return synthetic_votes(n_queries=queries, n_classes=classes, n_teachers=teachers, consensus=0.9)


def mechanism(teachers: int) -> ConfidentGNMax:
    """T, σ₁, σ₂ as shares of the teachers; a noise never used before, so that no cached supremum helps."""
    fresh = 1 + 1e-6 * next(_FRESH)
    return ConfidentGNMax(
        threshold=0.7 * teachers, sigma_check=0.3 * teachers * fresh, sigma_vote=0.05 * teachers * fresh
    )


def worst_case(queries: int, classes: int, teachers: int) -> Callable[[], Any]:
    return lambda: guarantee(worst_case_cost(mechanism(teachers), n_queries=queries), delta=1e-6)


def exact(queries: int, classes: int, teachers: int) -> Callable[[], Any]:
    votes = imagined(queries, classes, teachers)
    return lambda: cost(mechanism(teachers), votes)


def sensitivity(queries: int, classes: int, teachers: int) -> Callable[[], Any]:
    votes = imagined(queries, classes, teachers)
    return lambda: smooth_sensitivity(mechanism(teachers), votes, order=10.0, beta=0.03)


def teach(queries: int, classes: int, teachers: int) -> Callable[[], Any]:
    task = blobs(n_private=ROWS_EACH * teachers, n_public=1, n_test=1, n_classes=classes, n_features=FEATURES)
    shares = partition(task.private, n_teachers=teachers, method="balanced", key=bytes(32))
    teacher = SklearnTeacher(estimator=GaussianNB())
    return lambda: fit_teachers(task.private, shares, teacher, classes=task.classes, seed=0)


@lru_cache(maxsize=1)
def taught(classes: int, teachers: int) -> TeacherEnsemble:
    return teach(1, classes, teachers)()


def vote(queries: int, classes: int, teachers: int) -> Callable[[], Any]:
    asked = blobs(n_private=1, n_public=queries, n_test=1, n_classes=classes, n_features=FEATURES).public.X
    ensemble = taught(classes, teachers)
    return lambda: ensemble.vote(asked)


def deal(rows: int) -> Callable[[], Any]:
    data = PrivateData(np.zeros((rows, 1), dtype=np.uint8), np.zeros(rows, dtype=np.int64), unit=np.arange(rows))
    return lambda: partition(data, n_teachers=5_000, key=bytes(32), min_units=0)


OPERATIONS = {
    "worst-case accounting": worst_case,
    "exact accounting": exact,
    "smooth sensitivity": sensitivity,
    "teaching": teach,
    "voting": vote,
}
SLOW_TO_TRACE = ("teaching", "voting")  # many small objects: memory of short runs only
COLOURS = dict(zip(OPERATIONS, (GREY, RED, ORANGE, BLUE, GREEN), strict=True))
AXES = {name: [axis for axis in SIZES if not (name == "teaching" and axis == "queries")] for name in OPERATIONS}


def measured(work: Callable[[], Any], *, once: bool = False, trace: bool = True) -> dict[str, float | None]:
    """CPU seconds and peak MiB: of separate runs, or of one."""
    spent = math.inf
    for _ in range(0 if once else 2):
        gc.collect()
        start = time.process_time()
        work()
        spent = min(spent, time.process_time() - start)
        if spent > 2:
            break
    if not once and not trace and spent > 2:
        return {"seconds": spent, "mib": None}
    gc.collect()
    tracemalloc.start()
    start = time.process_time()
    work()
    spent = min(spent, time.process_time() - start)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return {"seconds": spent, "mib": peak / 2**20}


def measure() -> dict[str, Any]:
    start = time.process_time()
    work = worst_case(**BASE)
    work()  # imports
    result: dict[str, Any] = {"points": [], "rows": []}
    for rows in ROWS:
        result["rows"].append({"rows": rows, **measured(deal(rows))})
    for name, operation in OPERATIONS.items():
        done: dict[tuple[int, ...], dict[str, float]] = {}
        for axis in AXES[name]:
            for size in SIZES[axis]:
                at = BASE | {axis: size}
                key = tuple(at.values())
                if key not in done:
                    done[key] = measured(operation(**at), trace=name not in SLOW_TO_TRACE)
                result["points"].append({"operation": name, "axis": axis, **at, **done[key]})
        print(f"{time.process_time() - start:5.0f} s  {name}", flush=True)
    for name in ("worst-case accounting", "exact accounting", "smooth sensitivity"):
        result["points"].append(
            {"operation": name, "axis": "full", **FULL, **measured(OPERATIONS[name](**FULL), once=True)}
        )
        print(f"{time.process_time() - start:5.0f} s  {name}, {FULL}: {result['points'][-1]}", flush=True)
    glyph = {"queries": 12_000, "classes": 150, "teachers": 5_000}
    result["glyph"] = {name: measured(OPERATIONS[name](**glyph), once=True) for name in list(OPERATIONS)[:3]}
    gpu, cpu = (json.loads((BENCHMARKS / f"{name}.json").read_text()) for name in ("teachers_gpu", "teachers"))
    result["gpu"] = {key: gpu[key] for key in ("machine", "stacked_samples_per_s")}
    result["two_processes"] = next(row["ratio"] for row in cpu if "taught and handed back" in row["metric"])
    result["cpu_seconds"] = time.process_time() - start
    return result


def slope(points: list[dict[str, float]], axis: str, key: str) -> float:
    """Of a straight line through the logarithms."""
    x, y = (np.log([point[name] for point in points]) for name in (axis, key))
    return float(np.polyfit(x, y, 1)[0])


def along(result: dict[str, Any], operation: str, axis: str) -> list[dict[str, float]]:
    return [p for p in result["points"] if p["operation"] == operation and p["axis"] == axis]


def having(points: list[dict[str, float]], key: str) -> list[dict[str, float]]:
    return [p for p in points if p[key] is not None]


def draw(result: dict[str, Any]) -> None:
    figure, axes = canvas(2, 3, size=(11, 6.8))
    for row, (key, label) in zip(axes, (("seconds", "CPU seconds"), ("mib", "peak memory (MiB)")), strict=True):
        for each, axis in zip(row, SIZES, strict=True):
            for name in OPERATIONS:
                points = having(along(result, name, axis), key)
                x, y = [p[axis] for p in points], [p[key] for p in points]
                each.plot(x, y, color=COLOURS[name], marker="o", ms=4, lw=1.8, label=name)
            each.set(xscale="log", yscale="log", xlabel=axis, ylabel=label)
            each.xaxis.set_major_formatter("{x:,.0f}")
            each.yaxis.set_major_formatter("{x:g}")
            each.yaxis.set_minor_formatter(NullFormatter())
            fixed = ", ".join(f"{size:,} {name}" for name, size in BASE.items() if name != axis)
            each.set_title(fixed, fontsize=10)
    handles = axes[0][1].get_legend_handles_labels()
    figure.legend(*handles, loc="outside lower center", ncols=5, frameon=False, fontsize=9)
    save(figure, "scaling")


PAGE = """# How it scales

```
nice -n 10 python experiments/scaling.py
```

One run in one process. An exponent is the slope on log-log axes: with 1 the time grows in proportion, with 0 it does
not grow. "Last" is the slope between the two largest sizes, where fixed costs matter least.

![time and memory by queries, classes and teachers](scaling.png)

## Exponents of time

{seconds}

## Exponents of memory

{memory}

The sizes start from {base}. One of them changes at a time, up to
{most}. Exact accounting and smooth sensitivity run on made-up votes (nine in ten teachers agree; one question in ten is
hard), at 298 orders and at one order. Teachers are Gaussian naive Bayes on {rows_each} rows of {features} numbers each
(memory is that of runs under two CPU seconds).

With {full} at once, which is {cells} times the number of counts:

- Worst-case accounting reads no votes and takes {worst} times as long.
- Exact accounting takes {exact_full} times as long: equal histograms, and equal counts in a histogram, are computed
  once, and a clear winner takes no time.
- Smooth sensitivity takes {sensitivity_full} times as long.

Teachers share nothing, so the time to train them and to vote grows in proportion to their number. Partition of
{rows_range} rows by keyed hash: exponent {deal}.

## The paper's size, by extrapolation

65 million images, 5,000 teachers, 12,000 queries, 150 classes. What was measured, and what is assumed:

{extrapolated}

Assumed:

- Teachers do not wait for each other, so the time is divided by the number of devices. Two processes were {two} times
  as fast as one (`benchmarks/results/teachers.json`); we have not measured more than two nodes, hence the 90%.
- A ResNet does {flops:.1f} times the arithmetic of our two-convolution net, at the same number of operations a second:
  32 layers, 16 to 64 channels, on 28 × 28 pixels are 52.5 million multiplications an image; our net has 4.24 million.
  The paper does not print its widths.
- 40,000 steps of 100 images for each teacher, as printed; images are read from local disk as fast as they are used.
- More devices do not speed up the noise and the ledger (one process), nor the accounting.
"""


def extrapolated(result: dict[str, Any]) -> tuple[str, float, float]:
    """The table, the ratio of arithmetic, and what two processes gave."""
    gpu, two = result["gpu"], result["two_processes"]
    flops = 52.5 / 4.24
    rate = gpu["stacked_samples_per_s"] / flops
    samples = 5_000 * 40_000 * 100
    hours = samples / rate / 3600
    votes = 5_000 * 12_000 / (3 * rate)
    largest = result["rows"][-1]
    bayes = along(result, "teaching", "teachers")[-1]
    each = bayes["seconds"] / bayes["teachers"]
    glyph = result["glyph"]
    body = [
        [
            "partition",
            f"{largest['rows']:,} rows in one process, here",
            f"{65e6 / largest['rows'] * largest['seconds'] / 60:.1f} CPU minutes, "
            f"{65e6 / largest['rows'] * largest['mib'] / 1024:.0f} GiB",
            "shares on disk (`write_shares`) where memory is short",
        ],
        [
            "teaching, ResNets",
            f"two-convolution nets on one {gpu['machine']}",
            f"{hours:,.0f} GPU hours",
            f"{hours / 64 / 0.9:.1f} hours on 64 GPUs at 90%",
        ],
        ["voting, ResNets", "the same; forward is a third", f"{votes / 60:,.0f} GPU minutes", "seconds on 64 GPUs"],
        [
            "teaching, naive Bayes",
            f"{bayes['teachers']:,} teachers × {ROWS_EACH} rows, here",
            f"{5_000 * each * 13_000 / ROWS_EACH / 3600:,.1f} CPU hours at most (13,000 rows each, time by rows)",
            "minutes on 64 cores",
        ],
        [
            "accounting",
            "12,000 × 150, 5,000 teachers (imagined votes), here",
            ", ".join(f"{name} {part['seconds']:.1f} CPU s, {part['mib']:,.0f} MiB" for name, part in glyph.items()),
            "one process",
        ],
    ]
    return markdown(["step", "measured", "one device", "a cluster"], body), flops, two


def page(result: dict[str, Any]) -> str:
    def table(key: str) -> str:
        body = []
        for name in OPERATIONS:
            cells = []
            for axis in SIZES:
                points = having(along(result, name, axis), key)
                both = (slope(points, axis, key), slope(points[-2:], axis, key)) if points else ()
                cells += [f"{round(value, 2) + 0.0:.2f}" for value in both] or ["–", "–"]  # + 0.0: no -0.00
            body.append([name, *cells])
        return markdown(["", *(f"{axis}{which}" for axis in SIZES for which in ("", ", last"))], body)

    def times(name: str) -> float:
        full = along(result, name, "full")[0]["seconds"]
        base = next(p for p in along(result, name, "queries") if all(p[k] == v for k, v in BASE.items()))
        return full / base["seconds"]

    def said(sizes: dict[str, int]) -> str:
        return ", ".join(f"{size:,} {name}" for name, size in sizes.items())

    extra, flops, two = extrapolated(result)
    return PAGE.format(
        seconds=table("seconds"),
        memory=table("mib"),
        base=said(BASE),
        full=said(FULL),
        most=said({axis: max(sizes) for axis, sizes in SIZES.items()}),
        rows_each=ROWS_EACH,
        features=FEATURES,
        worst=f"{times('worst-case accounting'):.1f}",
        exact_full=f"{times('exact accounting'):.0f}",
        sensitivity_full=f"{times('smooth sensitivity'):.0f}",
        cells=f"{math.prod(FULL.values()) // FULL['teachers'] // (BASE['queries'] * BASE['classes']):,}",
        rows_range=f"{ROWS[0]:,} to {ROWS[-1]:,}",
        deal=f"{slope(result['rows'], 'rows', 'seconds'):.2f}",
        extrapolated=extra,
        flops=flops,
        two=f"{two:.2f}",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Time and memory by size")
    parser.add_argument("--draw", action="store_true", help="no measurement: page and picture from the JSON")
    given = parser.parse_args()
    file = OUT / "scaling.json"
    if given.draw:
        result = json.loads(file.read_text())
    else:
        result = tidy(measure())
        file.write_text(json.dumps(result) + "\n")
        record("scaling", "python experiments/scaling.py")
    draw(result)
    (OUT / "scaling.md").write_text(page(result))
    print(page(result))


if __name__ == "__main__":
    main()
