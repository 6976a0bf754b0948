"""MNIST students: how good a model comes out of noisy answers, by learner and by privacy parameters.

Run: python experiments/mnist_students.py MNIST.npz VOTES.npy [--out FILE.json] [--seeds 5] [--workers 4] [--only NAME]
MNIST.npz has X, y (60,000 training images) and Xt, yt (10,000 test images); VOTES.npy or .npz has the histograms of
the first 9,000 test images, which are the public data. Accuracy is over the last 1,000 test images, which nothing was
tuned on, and over the 9,000 public ones, which students learn from and settings were chosen by.
The noise of the answers is seeded so that runs can be repeated: such answers are not private.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from terrine.executors import Processes
from terrine.mechanisms import ABSTAIN, ConfidentGNMax, answer
from terrine.noise import SeededNoise
from terrine.students import GANStudent, MatchStudent, Student, VATStudent, fit_student
from terrine.votes import Votes

PUBLIC = 9000
STUDENTS: dict[str, Student] = {"VAT": VATStudent(), "Match": MatchStudent(), "GAN": GANStudent(steps=3000)}


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Which queries are asked, and how they are answered."""

    name: str
    queries: int
    threshold: float
    sigma_check: float
    sigma_vote: float


SETTINGS = (
    Setting(name="paper", queries=640, threshold=200, sigma_check=150, sigma_vote=40),
    Setting(name="more queries", queries=1000, threshold=200, sigma_check=150, sigma_vote=40),
)


@dataclass(frozen=True, kw_only=True)
class Task:
    setting: Setting
    name: str
    student: Student
    seed: int


def learn(task: Task, shared: dict[str, Any]) -> dict[str, Any]:
    """One student: its own noise, its own seed."""
    start, setting = time.perf_counter(), task.setting
    mechanism = ConfidentGNMax(
        threshold=setting.threshold, sigma_check=setting.sigma_check, sigma_vote=setting.sigma_vote
    )
    votes = Votes(shared["counts"][: setting.queries], n_teachers=shared["n_teachers"])
    answers = answer(mechanism, votes, rng=SeededNoise(task.seed))
    public, test = shared["X"][:PUBLIC], shared["X"][PUBLIC:]
    student = fit_student(task.student, public, answers, classes=[str(digit) for digit in range(10)], seed=task.seed)
    truth, answered = shared["y"], answers.labels != ABSTAIN
    right = answers.labels[answered] == truth[: setting.queries][answered]
    return {
        "setting": setting.name,
        "student": task.name,
        "seed": task.seed,
        "answers": int(answered.sum()),
        "answers_right": float(right.mean()),
        "answers_learned_from": student.about.n_learned,
        "accuracy": float((student.predict(test) == truth[PUBLIC:]).mean()),
        "accuracy_public": float((student.predict(public) == truth[:PUBLIC]).mean()),
        "seconds": time.perf_counter() - start,
    }


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Mean, spread and 95% interval (Student's t) over seeds."""
    result: dict[str, Any] = {"setting": rows[0]["setting"], "student": rows[0]["student"], "seeds": len(rows)}
    for name in ("answers", "answers_right", "answers_learned_from", "accuracy", "accuracy_public", "seconds"):
        values = np.array([row[name] for row in rows], dtype=float)
        result[name] = float(values.mean())
        if name.startswith("accuracy") and len(values) > 1:
            half = float(stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values)))
            result[f"{name}_spread"] = float(values.std(ddof=1))
            result[f"{name}_interval"] = [result[name] - half, result[name] + half]
    return result


def counts_of(path: Path) -> np.ndarray:
    loaded = np.load(path)
    counts = loaded if isinstance(loaded, np.ndarray) else loaded["counts"]
    return counts[:PUBLIC].astype(np.int64)


def main() -> None:
    parser = argparse.ArgumentParser(description="MNIST students from vote files")
    parser.add_argument("mnist", type=Path)
    parser.add_argument("votes", type=Path)
    parser.add_argument("--out", type=Path, default=Path("mnist_students.json"))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument(
        "--workers", type=int, default=4, help="processes side by side: one student does not fill a GPU"
    )
    parser.add_argument("--only", choices=list(STUDENTS), help="one learner instead of all")
    given = parser.parse_args()
    data, counts = np.load(given.mnist), counts_of(given.votes)
    shared = {
        "X": data["Xt"],
        "y": data["yt"].astype(np.int64),
        "counts": counts,
        "n_teachers": int(counts[0].sum()),
    }
    names = [given.only] if given.only else list(STUDENTS)
    tasks = [
        Task(setting=setting, name=name, student=STUDENTS[name], seed=seed)
        for setting in SETTINGS
        for name in names
        for seed in range(given.seeds)
    ]
    rows: list[dict[str, Any]] = []
    for row in Processes(n_workers=given.workers).map(learn, tasks, shared=shared):
        rows.append(row)
        print(json.dumps(row), flush=True)
        groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
        for done in rows:
            groups.setdefault((done["setting"], done["student"]), []).append(done)
        result = {"votes": given.votes.name, "table": [summary(group) for group in groups.values()], "runs": rows}
        given.out.write_text(json.dumps(result, indent=1) + "\n")
    print(table(result["table"]))


def table(rows: list[dict[str, Any]]) -> str:
    lines = [
        "| answers by | learner | answers (right) | accuracy | 95% interval | on the public rows |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        low, high = row.get("accuracy_interval", (float("nan"), float("nan")))
        lines.append(
            f"| {row['setting']} | {row['student']} | {row['answers']:.0f} ({row['answers_right']:.1%}) | "
            f"{row['accuracy']:.2%} | {low:.2%} to {high:.2%} | {row['accuracy_public']:.2%} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
