"""How ε falls with the number of teachers when the student stays as good: MNIST, 30 questions, features of public rows.

    python experiments/student_by_teachers.py FEATURES.npz   # writes docs/results/student_by_teachers.{json,md,png,svg}
    python experiments/student_by_teachers.py --draw         # page and picture from the JSON

FEATURES.npz has features of MNIST's private and public images, as benchmarks/features_gpu.py writes it; labels come
from mnist/ under $TERRINE_DATA. For every number of teachers the noise grows until the student's mean accuracy falls
below a target; what that noise costs by worst case is the ε. Teachers are class means, or nearest rows where shares are
large enough for them: the better of both. Accuracy is over the 9,000 public images. The noise is seeded to be repeated.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from mnist_students import polled
from provenance import record
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from tables import RESULTS, markdown, up, worst_case
from votesets import BLUE, DELTA, GREEN, ORANGE, canvas, save, tidy

from terrine import GNMax, Votes, answer
from terrine.datasets import load
from terrine.features import representative_rows
from terrine.noise import SeededNoise

QUESTIONS, DRAWS, SPLITS = 30, 20, 3
TEACHERS = (100, 250, 500, 1000, 2000, 5000, 10_000, 20_000)
NOISE = np.geomspace(0.01, 0.4, 14)  # of the teachers
NEAREST = 2000  # teachers, at most: shares of thirty images
KINDS = {False: "class means", True: "nearest row"}
TARGETS = (0.985, 0.98, 0.97)
COLOURS = dict(zip(TARGETS, (BLUE, GREEN, ORANGE), strict=True))


def student_accuracy(public: Any, truth: Any, rows: Any, labels: Any) -> float:
    if len(np.unique(labels)) < 2:
        return float((labels[0] == truth).mean())
    student = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=0.5).fit(public[rows], labels)
    return float((student.predict(public) == truth).mean())


def costs(sigmas: Any) -> list[float]:
    """Of all questions, by noise: worst cases."""
    numbers = {"n_queries": QUESTIONS, "n_answers": None, "delta": DELTA["MNIST"]}
    return [worst_case(GNMax(sigma=float(sigma)), **numbers)["publishable_epsilon"] for sigma in sigmas]


def measure(file: Path) -> dict[str, Any]:
    task = load("mnist")
    with np.load(file) as arrays:
        private, public = arrays["private"], arrays["public"]
    y, truth = np.asarray(task.private.y, dtype=np.int64), task.public_y
    rows = representative_rows(public, QUESTIONS, seed=0)
    curves = []
    for teachers, nearest in [(m, kind) for m in TEACHERS for kind in KINDS if not kind or m <= NEAREST]:
        accuracy = np.zeros(len(NOISE))
        for split in range(SPLITS):
            counts = polled(private, y, public[rows], teachers=teachers, nearest=nearest, seed=split)
            votes = Votes(counts, n_teachers=int(counts[0].sum()))
            for k, share in enumerate(NOISE):
                for seed in range(DRAWS):
                    labels = answer(GNMax(sigma=share * teachers), votes, rng=SeededNoise(seed)).labels
                    accuracy[k] += student_accuracy(public, truth, rows, labels) / (SPLITS * DRAWS)
        about = {"teachers": teachers, "kind": KINDS[nearest], "sigma": NOISE * teachers}
        curves.append({**about, "epsilon": costs(NOISE * teachers), "accuracy": accuracy})
        print(teachers, KINDS[nearest], accuracy.round(4).tolist(), flush=True)
    found = {"delta": DELTA["MNIST"], "questions": QUESTIONS, "draws": DRAWS, "splits": SPLITS, "curves": curves}
    return tidy(found)  # type: ignore[no-any-return]


def least_epsilon(found: dict[str, Any], teachers: int, target: float) -> tuple[float, str] | None:
    """By either kind of teacher: of the most noise with which, and with less, the student reaches the target."""
    best = None
    for curve in (curve for curve in found["curves"] if curve["teachers"] == teachers):
        good = np.cumprod([a >= target for a in curve["accuracy"]]).astype(bool)  # noise ascends
        fits = [(e, curve["kind"]) for e, fine in zip(curve["epsilon"], good, strict=True) if fine]
        best = min([*fits, *([best] if best else [])], default=None)
    return best


def draw(found: dict[str, Any]) -> None:
    figure, axes = canvas(1, 1, size=(7.0, 4.2))
    (axis,) = axes.flat
    for target in TARGETS:
        reached = [(m, least_epsilon(found, m, target)) for m in TEACHERS]
        points = [(m, best[0]) for m, best in reached if best is not None]
        axis.plot(*zip(*points, strict=True), "o-", color=COLOURS[target], label=f"student right on {target:.1%}")
    axis.set(xscale="log", yscale="log", xlabel="teachers", ylabel=f"worst-case ε (δ = {found['delta']:g})")
    axis.set_title(f"MNIST, {found['questions']} questions: the same student for less")
    axis.set_xticks(TEACHERS, [f"{m:,}" for m in TEACHERS])
    axis.minorticks_off()
    axis.legend(frameon=False)
    save(figure, "student_by_teachers")


def page(found: dict[str, Any]) -> str:
    body = []
    for m in TEACHERS:
        reached = [least_epsilon(found, m, target) for target in TARGETS]
        said = ["–" if best is None else f"{up(best[0])} ({best[1]})" for best in reached]
        most = max(curve["accuracy"][0] for curve in found["curves"] if curve["teachers"] == m)
        body.append([f"{m:,}", f"{60_000 // m:,}", *said, f"{most:.2%}"])
    header = [
        "teachers",
        "images each",
        *(f"ε for {target:.1%}" for target in TARGETS),
        "accuracy with the least noise",
    ]
    facts = {"questions": found["questions"], "n": found["draws"] * found["splits"], "scales": len(NOISE)}
    return PAGE.format(table=markdown(header, body), low=NOISE[0], high=NOISE[-1], step=NOISE[1] / NOISE[0], **facts)


PAGE = """# The same student, by more teachers

How far ε falls if the private images are split among more teachers and the student stays equally good.

```
python experiments/student_by_teachers.py FEATURES.npz
```

![worst-case epsilon by number of teachers](student_by_teachers.png)

{table}

MNIST, δ = 1e-5, neighbours: one image is replaced; ε is the worst case of {questions} GNMax answers, by
[privacy profiles](../math.md#the-profile-accountant), and rounds up.
Teachers use [features learned from the public images](../features.md). They vote by the nearest class mean, or by the
nearest row of their share, whichever is better. The student is a linear model on the same features; the {questions}
questions are rows that represent the public set. Accuracy is a mean over {n} draws of noise and splits, on the labels
of the 9,000 public images. "–": this accuracy was never reached. {scales} noise scales between {low:g} and {high:g} of
the number of teachers were tried, each {step:.2f} times the one before, so ε may be too large by up to that factor. The
noise was found by looking at the student; in a run it is fixed beforehand.

More teachers with fewer images each help long after the single teacher has become poor: with six images a teacher is
right on [about half](../features.md#measured) of the public images. From 10,000 teachers on, the changes are smaller
than a step between noise scales. What limits the noise is the few questions on which teachers disagree.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description="Worst-case epsilon by number of teachers, at equal accuracy")
    parser.add_argument("features", type=Path, nargs="?", help="FEATURES.npz")
    parser.add_argument("--draw", action="store_true", help="page and picture from the JSON")
    given = parser.parse_args()
    file = RESULTS / "student_by_teachers.json"
    if not given.draw:
        if given.features is None:
            parser.error("expected FEATURES.npz (or --draw), got neither")
        file.write_text(json.dumps(measure(given.features)) + "\n")
        record("student_by_teachers", "python experiments/student_by_teachers.py FEATURES.npz")
    found = json.loads(file.read_text())
    draw(found)
    (RESULTS / "student_by_teachers.md").write_text(page(found))
    print(page(found))


if __name__ == "__main__":
    main()
