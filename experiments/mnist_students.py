"""MNIST students: how good a model comes out of noisy answers, by learner and by privacy parameters.

    python experiments/mnist_students.py learn MNIST.npz VOTES.npy RUNS.json [--seeds 5] [--only NAME ...] [--workers 4]
    python experiments/mnist_students.py show RUNS.json          # writes docs/results/mnist_students.{json,md}

MNIST.npz has X, y (60,000 training images) and Xt, yt (10,000 test images); VOTES.npy the paper's votes on the first
9,000 test images, which are the public data. `learn` wants a GPU; it goes on where it stopped. Each seed has its own
features of the public images, teachers, noise and student. Accuracy is over the last 1,000 test images, which nothing
was chosen by; settings were chosen by the labels of the 9,000 public ones.
The noise of the answers is seeded so that runs can be repeated: such answers are not private.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))
from terrine.accounting.costs import cost
from terrine.accounting.curves import ORDERS, guarantee
from terrine.accounting.release import publishable_guarantee
from terrine.executors import Processes
from terrine.features import FeatureRecipe, Features, fit_features, representative_rows
from terrine.mechanisms import ABSTAIN, ConfidentGNMax, GNMax, Outcome, answer
from terrine.noise import SeededNoise
from terrine.students import FeatureStudent, GANStudent, MatchStudent, VATStudent, fit_student
from terrine.teachers.centroids import CentroidTeacher
from terrine.votes import Votes

PUBLIC, DELTA, CLASSES = 9000, 1e-5, [str(digit) for digit in range(10)]
RESULTS = Path(__file__).parents[1] / "docs" / "results"
SURE = 0.9  # share of the public rows, the surest, whose labels by features a net then learns from
NETS = {"VAT": VATStudent(), "Match": MatchStudent(), "GAN": GANStudent(steps=3000)}
FEATURES, THEN = "Features", "Features, then a net"


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Which queries are asked, who votes, and how they are answered.

    Attributes:
        teachers: ours, that many on equal shares, on features; None for the paper's votes.
        queries: the first so many public rows, or as many that represent the others.
        answers: at most so many, for the worst case.
        chosen: how threshold, noise and numbers were.
    """

    name: str
    teachers: int | None
    mechanism: ConfidentGNMax | GNMax
    queries: int
    answers: int | None = None
    representative: bool = False
    chosen: str
    learners: tuple[str, ...] = (FEATURES, THEN)


def confident(threshold: float, sigma_check: float, sigma_vote: float) -> ConfidentGNMax:
    return ConfidentGNMax(threshold=threshold, sigma_check=sigma_check, sigma_vote=sigma_vote)


ON_VOTES, BY_PLAN = "on votes", "by `terrine plan`"
SETTINGS = (
    Setting(
        name="the paper's votes and parameters",
        teachers=None,
        mechanism=confident(200, 150, 40),
        queries=640,
        answers=300,
        chosen="on votes, by the paper",
        learners=("VAT", "Match", "GAN", FEATURES, THEN),
    ),
    Setting(
        name="the paper's votes, exact ε at most 1",
        teachers=None,
        mechanism=confident(120, 220, 40),
        queries=560,
        answers=360,
        chosen=ON_VOTES,
        learners=("VAT", "Match", "GAN", FEATURES, THEN),
    ),
    Setting(
        name="250 teachers, exact ε at most 0.3",
        teachers=250,
        mechanism=GNMax(sigma=20),
        queries=100,
        representative=True,
        chosen=ON_VOTES,
    ),
    Setting(
        name="2,000 teachers, 30 questions",
        teachers=2000,
        mechanism=GNMax(sigma=120),
        queries=30,
        representative=True,
        chosen=ON_VOTES,
    ),
    Setting(
        name="5,000 teachers, 30 questions",
        teachers=5000,
        mechanism=GNMax(sigma=150),
        queries=30,
        representative=True,
        chosen=ON_VOTES,
    ),
    Setting(
        name="1,000 teachers, planned for ε = 0.2",
        teachers=1000,
        mechanism=confident(1019, 652.6, 231.1),
        queries=277,
        answers=112,
        representative=True,
        chosen=BY_PLAN,
    ),
    Setting(
        name="2,000 teachers, planned for ε = 0.2",
        teachers=2000,
        mechanism=confident(1105, 659.2, 462.2),
        queries=500,
        answers=397,
        representative=True,
        chosen=BY_PLAN,
    ),
)


def polled(private: Any, labels: Any, public: Any, *, teachers: int, seed: int) -> Any:
    """(n_public, 10) votes of class means on equal shares of the features of the private images."""
    teacher, each = CentroidTeacher(), len(private) // teachers
    order = np.random.default_rng([seed, 2]).permutation(len(private))
    counts = np.zeros((len(public), 10), dtype=np.int64)
    for first in range(0, teachers, teacher.chunk):
        ids = range(first, min(first + teacher.chunk, teachers))
        rows = order[ids.start * each : ids.stop * each].reshape(len(ids), each)
        models = teacher.fit([(private[r], labels[r]) for r in rows], ids=ids, n_classes=10, seed=seed)
        votes = teacher.predict(models, public)
        counts += np.stack([(votes == c).sum(axis=0) for c in range(10)], axis=1)
    return counts


def answered(setting: Setting, counts: Any, rows: Any, *, seed: int) -> tuple[Any, dict[str, Any]]:
    """Labels of all public rows (ABSTAIN where there is none), stopped when the budget's answers are used up."""
    votes = Votes(counts[rows], n_teachers=int(counts[0].sum()))
    given = answer(setting.mechanism, votes, rng=SeededNoise(seed))
    late = np.cumsum(given.outcomes == Outcome.TEACHERS) > (setting.answers or setting.queries)
    labels = np.full(PUBLIC, ABSTAIN, dtype=np.int64)
    labels[rows] = np.where(late, ABSTAIN, given.labels)
    exact = guarantee(cost(setting.mechanism, votes, orders=ORDERS), delta=DELTA).reveal()  # of public data's votes
    return labels, {"exact_epsilon": exact.epsilon, "mean_top_vote": float(counts.max(axis=1).mean())}


def surest(student: Any, public: Any) -> Any:
    """Labels by a student on features of the public rows that it is surest of; ABSTAIN for the others."""
    proba = np.sort(student.predict_proba(public), axis=1)
    margin = np.log(proba[:, -1] + 1e-300) - np.log(proba[:, -2] + 1e-300)
    labels = student.predict(public)
    labels[margin < np.quantile(margin, 1 - SURE)] = ABSTAIN
    return labels


@dataclass(frozen=True, kw_only=True)
class Task:
    setting: Setting
    learner: str
    seed: int
    labels: Any
    facts: dict[str, Any]


def learned(task: Task, shared: dict[str, Any]) -> dict[str, Any]:
    """One student."""
    start, truth = time.perf_counter(), shared["y"]
    public, test = shared["X"][:PUBLIC], shared["X"][PUBLIC:]
    labels, given = task.labels, task.labels != ABSTAIN
    if task.learner in (FEATURES, THEN):
        first = FeatureStudent(features=shared["features"][task.seed])
        student: Any = fit_student(first, public, labels, classes=CLASSES, seed=task.seed)
        if task.learner == THEN:
            sure = surest(student, public)
            student = fit_student(VATStudent(), public, sure, classes=CLASSES, seed=task.seed)
    else:
        student = fit_student(NETS[task.learner], public, labels, classes=CLASSES, seed=task.seed)
    return {
        "setting": task.setting.name,
        "learner": task.learner,
        "seed": task.seed,
        "answers": int(given.sum()),
        "answers_right": float((labels == truth[:PUBLIC])[given].mean()),
        "accuracy": float((student.predict(test) == truth[PUBLIC:]).mean()),
        "accuracy_public": float((student.predict(public) == truth[:PUBLIC]).mean()),
        "seconds": time.perf_counter() - start,
        **task.facts,
    }


def learn(mnist: Path, votes: Path, out: Path, *, seeds: int, only: list[str], workers: int) -> None:
    data = np.load(mnist)
    X, y, counts = data["Xt"], data["yt"].astype(np.int64), np.load(votes)[:PUBLIC].astype(np.int64)
    rows: list[dict[str, Any]] = json.loads(out.read_text()) if out.is_file() else []
    done = {(row["setting"], row["learner"], row["seed"]) for row in rows}
    features: dict[int, Features] = {}
    tasks: list[Task] = []
    for seed in range(seeds):
        found = features[seed] = fit_features(X[:PUBLIC], recipe=FeatureRecipe(), seed=seed)
        private, public = found.transform(data["X"]), found.transform(X[:PUBLIC])
        cast = {None: counts}
        for setting in SETTINGS:
            wanted = [name for name in setting.learners if not only or name in only]
            wanted = [name for name in wanted if (setting.name, name, seed) not in done]
            if not wanted:
                continue
            if setting.teachers not in cast:
                labels = data["y"].astype(np.int64)
                cast[setting.teachers] = polled(private, labels, public, teachers=setting.teachers or 0, seed=seed)
            asked = np.arange(setting.queries)
            if setting.representative:
                asked = representative_rows(found, setting.queries, seed=seed)
            given, facts = answered(setting, cast[setting.teachers], asked, seed=seed)
            tasks += [Task(setting=setting, learner=name, seed=seed, labels=given, facts=facts) for name in wanted]
        print(f"seed {seed}: features, teachers and answers are there", flush=True)
    tasks.sort(key=lambda task: (task.learner != FEATURES, task.learner != THEN, task.learner))
    shared = {"X": X, "y": y, "features": features}
    for row in Processes(n_workers=workers).map(learned, tasks, shared=shared):
        rows.append(row)
        print(json.dumps(row), flush=True)
        out.write_text(json.dumps(rows, indent=1) + "\n")


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Mean, spread and 95% interval (Student's t) over seeds."""
    result: dict[str, Any] = {"setting": rows[0]["setting"], "learner": rows[0]["learner"], "seeds": len(rows)}
    for name in ("answers", "answers_right", "exact_epsilon", "mean_top_vote", "accuracy", "accuracy_public"):
        values = np.array([row[name] for row in rows], dtype=float)
        result[name] = float(values.mean())
        if name == "accuracy" and len(values) > 1:
            half = float(stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values)))
            result["spread"] = float(values.std(ddof=1))
            result["interval"] = [result[name] - half, result[name] + half]
    result["exact_epsilon"] = max(row["exact_epsilon"] for row in rows)
    return result


def tabulated(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """What is shown: a row for each setting and learner, and what each setting costs by worst case."""
    table, settings = [], []
    for setting in SETTINGS:
        numbers = {"n_queries": setting.queries, "n_answers": setting.answers, "delta": DELTA}
        worst = publishable_guarantee(setting.mechanism, **{k: v for k, v in numbers.items() if v is not None})
        settings.append({**asdict(setting), "publishable_epsilon": worst.epsilon})
        for learner in setting.learners:
            some = [row for row in rows if (row["setting"], row["learner"]) == (setting.name, learner)]
            table += [{**summary(some), "publishable_epsilon": worst.epsilon, "chosen": setting.chosen}] if some else []
    return {"delta": DELTA, "settings": settings, "table": table, "runs": rows}


def page(found: dict[str, Any]) -> str:
    lines = [
        "| answers by | chosen | answers (right) | ε, exact (secret elsewhere) | ε, worst case (publishable) | "
        "learner | accuracy ± deviation (95% interval) | on the public rows |",
        "|---|---|---|---|---|---|---|---|",
    ]
    last = None
    for row in found["table"]:
        low, high = row.get("interval", (float("nan"), float("nan")))
        first = (
            f"| {row['setting']} | {row['chosen']} | {row['answers']:.0f} ({row['answers_right']:.1%}) | "
            f"{_up(row['exact_epsilon'])} | **{_up(row['publishable_epsilon'])}** "
            if row["setting"] != last
            else "| | | | | "
        )
        last = row["setting"]
        accuracy = f"{row['accuracy']:.2%} ± {row.get('spread', float('nan')):.2%} ({low:.2%} to {high:.2%})"
        lines.append(f"{first}| {row['learner']} | {accuracy} | {row['accuracy_public']:.2%} |")
    return "\n".join(lines)


def _up(epsilon: float) -> str:
    return f"{np.ceil(epsilon * 1000) / 1000:.3f}"


def show(path: Path) -> None:
    found = tabulated(json.loads(path.read_text()))
    (RESULTS / "mnist_students.json").write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    text = (RESULTS / "mnist_students.md").read_text() if (RESULTS / "mnist_students.md").is_file() else ""
    head, _, rest = text.partition("<!-- table -->")
    _, _, tail = rest.partition("<!-- end -->")
    text = f"{head or _HEAD}<!-- table -->\n{page(found)}\n<!-- end -->{tail or chr(10)}"
    (RESULTS / "mnist_students.md").write_text(text)
    print(page(found))


_HEAD = """# Students on MNIST

```
python experiments/mnist_students.py learn MNIST.npz VOTES.npy RUNS.json   # on a GPU
python experiments/mnist_students.py show RUNS.json
```

"""


def main() -> None:
    parser = argparse.ArgumentParser(description="MNIST students")
    verbs = parser.add_subparsers(dest="verb", required=True)
    first = verbs.add_parser("learn")
    for name in ("mnist", "votes", "out"):
        first.add_argument(name, type=Path)
    first.add_argument("--seeds", type=int, default=5)
    first.add_argument("--only", nargs="*", default=[])
    first.add_argument("--workers", type=int, default=4, help="side by side: one student does not fill a GPU")
    verbs.add_parser("show").add_argument("runs", type=Path)
    given = parser.parse_args()
    if given.verb == "show":
        show(given.runs)
    else:
        learn(given.mnist, given.votes, given.out, seeds=given.seeds, only=given.only, workers=given.workers)


if __name__ == "__main__":
    main()
