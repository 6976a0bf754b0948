"""MNIST students: how good a model comes out of noisy answers, by learner and by privacy parameters.

    python experiments/mnist_students.py features FOLDER [--seeds 5]      # FOLDER/features_SEED.npz, wants a GPU
    python experiments/mnist_students.py learn RUNS.json --features 'FOLDER/features_{seed}.npz' [--seeds 5]
                                               [--only NAME ...] [--workers 4]
    python experiments/mnist_students.py show [RUNS.json]        # writes docs/results/mnist_students.{json,md}

Needs mnist/ and votes/ under $TERRINE_DATA; what was stopped goes on where it was, `show` without runs draws the page
again. Each seed has its own features of the public images, teachers, noise and student; a file's name without {seed},
as benchmarks/features_gpu.py writes one, has one set of features for all seeds. Accuracy is over the last 1,000 test
images, which nothing was chosen by; settings were chosen by the labels of the 9,000 public ones.
The noise of the answers is seeded so that runs can be repeated: such answers are not private.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.neighbors import KNeighborsClassifier

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))
from provenance import commit, machine, record
from tables import RESULTS, markdown, percent, publishable, spread, up, worst_case

from terrine.accounting.costs import cost
from terrine.accounting.curves import ORDERS, guarantee
from terrine.datasets import load
from terrine.executors import Processes
from terrine.features import FeatureRecipe, fit_features, representative_rows
from terrine.mechanisms import ABSTAIN, ConfidentGNMax, GNMax, LNMax, Outcome, answer
from terrine.noise import SeededNoise
from terrine.students import GANStudent, MatchStudent, SupervisedStudent, VATStudent, fit_student
from terrine.teachers.centroids import CentroidTeacher
from terrine.teachers.estimators import SklearnTeacher
from terrine.votes import Votes

PUBLIC, DELTA, CLASSES = 9000, 1e-5, [str(digit) for digit in range(10)]
DATA = Path(os.environ.get("TERRINE_DATA", "../shared/data"))
FEATURES_RUN = RESULTS.parents[1] / "benchmarks" / "results" / "features_gpu.json"
SURE = 0.9  # share of the public rows, the surest, whose labels by features a net then learns from
NETS = {"VAT": VATStudent(), "Match": MatchStudent(), "GAN": GANStudent(steps=3000, folds=2)}
FEATURES, THEN = "Features", "Features, then a net"
BASELINE = "a net on the 60,000 private images"  # no privacy
BASELINE_NET = VATStudent(steps=6000, fade=0.0, wrong=0.0)


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Which queries are asked, who votes, and how they are answered.

    Attributes:
        teachers: ours, that many on equal shares, on features; None for the paper's votes.
        nearest: each votes as the nearest row of its share, not by class means.
        queries: how many public rows are asked about, the first or those that represent the others.
        answers: the most that may be answered, for the worst case.
        chosen: how threshold, noise and numbers were.
    """

    name: str
    teachers: int | None
    nearest: bool = False
    mechanism: ConfidentGNMax | GNMax | LNMax
    queries: int
    answers: int | None = None
    representative: bool = False
    chosen: str
    learners: tuple[str, ...] = (FEATURES,)


def confident(threshold: float, sigma_check: float, sigma_vote: float) -> ConfidentGNMax:
    return ConfidentGNMax(threshold=threshold, sigma_check=sigma_check, sigma_vote=sigma_vote)


ON_VOTES, BY_PLAN = "on votes", "by `terrine plan --questions`, no votes seen"
PLANNED = ((1000, 0.2, 111.8), (2000, 0.2, 111.8), (5000, 0.1, 211.9), (10_000, 0.05, 400.5))  # teachers, ε, σ
SETTINGS = (
    *(
        Setting(
            name=f"the paper's votes, LNMax, {n:,} answers",
            teachers=None,
            mechanism=LNMax(scale=20),
            queries=n,
            chosen="on votes, by the paper",
        )
        for n in (100, 1000)
    ),
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
        name="250 teachers, 30 questions",
        teachers=250,
        nearest=True,
        mechanism=GNMax(sigma=40),
        queries=30,
        representative=True,
        chosen=ON_VOTES,
    ),
    *(
        Setting(
            name=f"{teachers:,} teachers, 30 questions, ε = {epsilon:g}",
            teachers=teachers,
            nearest=teachers <= 1000,
            mechanism=GNMax(sigma=sigma),
            queries=30,
            representative=True,
            chosen=BY_PLAN,
            learners=(FEATURES, THEN) if teachers == 2000 else (FEATURES,),
        )
        for teachers, epsilon, sigma in PLANNED
    ),
)


def polled(private: Any, labels: Any, public: Any, *, teachers: int, nearest: bool, seed: int) -> Any:
    """(n_public, 10) votes on equal shares of the features of the private images: class means, or nearest rows."""
    each = len(private) // teachers
    order = np.random.default_rng([seed, 2]).permutation(len(private))
    teacher: Any = SklearnTeacher(estimator=KNeighborsClassifier(1)) if nearest else CentroidTeacher()
    chunk = 50 if nearest else teacher.chunk
    counts = np.zeros((len(public), 10), dtype=np.int64)
    for first in range(0, teachers, chunk):
        ids = range(first, min(first + chunk, teachers))
        rows = order[ids.start * each : ids.stop * each].reshape(len(ids), each)
        models = teacher.fit([(private[r], labels[r]) for r in rows], ids=ids, n_classes=10, seed=seed)
        votes = teacher.predict(models, public)
        counts += np.stack([(votes == c).sum(axis=0) for c in range(10)], axis=1)
    return counts


def answered(setting: Setting, counts: Any, rows: Any, *, seed: int) -> tuple[Any, dict[str, Any]]:
    """Labels of all public rows (ABSTAIN where there is none), stopped when the budget's answers are used up.

    ``counts`` are the votes on ``rows``, which are of public data: their exact cost may be shown.
    """
    votes = Votes(counts, n_teachers=int(counts[0].sum()))
    given = answer(setting.mechanism, votes, rng=SeededNoise(seed))
    late = np.cumsum(given.outcomes == Outcome.TEACHERS) > (setting.answers or setting.queries)
    labels = np.full(PUBLIC, ABSTAIN, dtype=np.int64)
    labels[rows] = np.where(late, ABSTAIN, given.labels)
    exact = None
    if not isinstance(setting.mechanism, LNMax):  # which has no exact accountant
        exact = guarantee(cost(setting.mechanism, votes, orders=ORDERS), delta=DELTA).reveal().epsilon
    return labels, {"exact_epsilon": exact, "top_share": float(counts.max(axis=1).mean() / counts[0].sum())}


def surest(student: Any, rows: Any, *, share: float = SURE) -> Any:
    """Labels by a student on features of the public rows that it is surest of; ABSTAIN for the others."""
    proba = np.sort(student.predict_proba(rows), axis=1)
    margin = np.log(proba[:, -1] + 1e-300) - np.log(proba[:, -2] + 1e-300)
    labels = student.predict(rows)
    labels[margin < np.quantile(margin, 1 - share)] = ABSTAIN
    return labels


@dataclass(frozen=True, kw_only=True)
class Task:
    setting: str
    learner: str
    seed: int
    labels: Any
    facts: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Images:
    """MNIST, and what each seed knows of it: features of the public and of the test images."""

    private: Any
    private_y: Any
    X: Any
    y: Any
    features: dict[int, tuple[Any, Any]]


def learned(task: Task, images: Images) -> dict[str, Any]:
    """One student."""
    start = time.perf_counter()
    public, test = images.X[:PUBLIC], images.X[PUBLIC:]
    labels, given = task.labels, task.labels != ABSTAIN
    result = {"setting": task.setting, "learner": task.learner, "seed": task.seed, **task.facts}
    if task.learner == BASELINE:
        student: Any = fit_student(BASELINE_NET, images.private, images.private_y, classes=CLASSES, seed=task.seed)
    elif task.learner in NETS:
        student = fit_student(NETS[task.learner], public, labels, classes=CLASSES, seed=task.seed)
    else:
        public, test = images.features[task.seed]
        linear = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=0.5)  # as FeatureStudent's
        student = fit_student(SupervisedStudent(estimator=linear), public, labels, classes=CLASSES, seed=task.seed)
    if task.learner == THEN:
        sure = surest(student, public)
        result["sure_right"] = float((sure == images.y[:PUBLIC])[sure != ABSTAIN].mean())
        public, test = images.X[:PUBLIC], images.X[PUBLIC:]
        student = fit_student(VATStudent(), public, sure, classes=CLASSES, seed=task.seed)
    return {
        **result,
        "answers": int(given.sum()),
        "answers_right": float((labels == images.y[:PUBLIC])[given].mean()) if given.any() else None,
        "accuracy": float((student.predict(test) == images.y[PUBLIC:]).mean()),
        "accuracy_public": float((student.predict(public) == images.y[:PUBLIC]).mean()),
        "seconds": time.perf_counter() - start,
        "machine": machine(),
        "commit": commit(),
    }


def featured(folder: Path, *, seeds: int) -> None:
    """Features of the private, the public and the test images, of each seed, in files of their own."""
    task = load("mnist")
    for seed in range(seeds):
        file = folder / f"features_{seed}.npz"
        if not file.is_file():
            found = fit_features(task.public, recipe=FeatureRecipe(), seed=seed)
            rows = {"private": found.transform(task.private.X), "public": found.public}
            np.savez(file.with_suffix(".part.npz"), **rows, test=found.transform(task.test_X))
            file.with_suffix(".part.npz").rename(file)
        print(file, flush=True)


def learn(given: argparse.Namespace) -> None:
    task, out = load("mnist"), given.out
    counts = np.load(DATA / "votes" / "mnist_250_teachers.npy").astype(np.int64)
    rows: list[dict[str, Any]] = json.loads(out.read_text()) if out.is_file() else []
    done = {(row["setting"], row["learner"], row["seed"]) for row in rows}
    kind = "own" if "{seed}" in (given.features or "") else "shared"
    if {row["features"] for row in rows if "features" in row} - {kind}:
        raise SystemExit(f"Expected runs with {kind} features in {out}, got others: name another file.")
    private_y = np.asarray(task.private.y, dtype=np.int64)
    images = Images(
        private=np.asarray(task.private.X),
        private_y=private_y,
        X=np.concatenate([task.public.X, task.test_X]),
        y=np.concatenate([task.public_y, task.test_y]),
        features={},
    )
    tasks = []
    for seed in range(given.seeds):
        pairs = [(BASELINE, BASELINE), *((setting.name, name) for setting in SETTINGS for name in setting.learners)]
        wanted = {pair for pair in pairs if (not given.only or pair[1] in given.only) and (*pair, seed) not in done}
        if (BASELINE, BASELINE) in wanted:
            tasks.append(Task(setting=BASELINE, learner=BASELINE, seed=seed, labels=np.full(PUBLIC, ABSTAIN), facts={}))
        if wanted and given.features is not None:
            with np.load(given.features.format(seed=seed)) as stored:
                private, public, test = (stored[name] for name in ("private", "public", "test"))
            images.features[seed] = public, test
        for setting in SETTINGS:
            learners = [name for name in setting.learners if (setting.name, name) in wanted]
            if not learners:
                continue
            on_features = setting.teachers is not None or not set(learners) <= set(NETS)
            if on_features and given.features is None:
                raise SystemExit("Expected --features for what learns or votes on them; without: --only VAT Match GAN.")
            asked = np.arange(setting.queries)
            if setting.representative:
                asked = representative_rows(public, setting.queries, seed=seed)
            cast = counts[asked]
            if setting.teachers is not None:
                who = {"teachers": setting.teachers, "nearest": setting.nearest}
                cast = polled(private, private_y, public[asked], **who, seed=seed)
            labels, facts = answered(setting, cast, asked, seed=seed)
            for name in learners:
                more = facts if name in NETS and setting.teachers is None else {**facts, "features": kind}
                tasks.append(Task(setting=setting.name, learner=name, seed=seed, labels=labels, facts=more))
        print(f"seed {seed}: the answers are there", flush=True)
    order = [FEATURES, BASELINE, *NETS, THEN]
    tasks.sort(key=lambda task: (order.index(task.learner), task.seed))
    for row in Processes(n_workers=given.workers).map(learned, tasks, shared=images):
        rows.append(row)
        print(json.dumps(row), flush=True)
        out.write_text(json.dumps(rows, indent=1) + "\n")


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """One setting and learner, over seeds."""

    def mean(name: str) -> float | None:
        values = [row[name] for row in rows if row.get(name) is not None]
        return float(np.mean(values)) if values else None

    exact = [row["exact_epsilon"] for row in rows if row.get("exact_epsilon") is not None]
    return {
        "setting": rows[0]["setting"],
        "learner": rows[0]["learner"],
        "student": spread([row["accuracy"] for row in rows]),
        "answered": mean("answers"),
        **{name: mean(name) for name in ("answers_right", "top_share", "sure_right", "accuracy_public")},
        "exact_epsilon": max(exact, default=None),
    }


def tabulated(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """What is shown: a row for each setting and learner, and what each setting costs by worst case."""
    table, settings = [], []
    for setting in SETTINGS:
        numbers = {"n_queries": setting.queries, "n_answers": setting.answers, "delta": DELTA}
        about = {**worst_case(setting.mechanism, **numbers), "chosen": setting.chosen}
        settings.append({**asdict(setting), **about, "kind": type(setting.mechanism).__name__})
        for learner in setting.learners:
            some = [row for row in rows if (row["setting"], row["learner"]) == (setting.name, learner)]
            table += [{**summary(some), **about}] if some else []
    baseline = [row["accuracy"] for row in rows if row["learner"] == BASELINE]
    return {
        "delta": DELTA,
        "features": sorted({row["features"] for row in rows if "features" in row}),
        "settings": settings,
        "table": table,
        "baseline": spread(baseline) if baseline else None,
        "runs": rows,
    }


def table(found: dict[str, Any]) -> str:
    header = ["answers by", "noise chosen", "answers (right)", "ε, exact (secret on private data)",
              "ε, worst case (bold: fixed beforehand)", "learner",
              "accuracy ± deviation over seeds (95% interval)", "on the public rows"]  # fmt: skip
    body, last = [], None
    for row in found["table"]:
        first = [""] * 5
        if row["setting"] != last:
            answers = f"{row['answered']:.0f} ({row['answers_right']:.1%})"
            costs = [up(row["exact_epsilon"]), publishable(row)]
            first = [row["setting"], row["chosen"], answers, *costs]
        last = row["setting"]
        body.append([*first, row["learner"], percent(row["student"]), f"{row['accuracy_public']:.2%}"])
    if found["baseline"]:
        body.append(["no privacy", "", "", "", "", BASELINE, percent(found["baseline"]), ""])
    return markdown(header, body)


def page(found: dict[str, Any]) -> str:
    shared = (
        "Each seed has its own teachers, noise and student, but all seeds share one fit of the features. So the\n"
        "spread does not show how fits differ, and a spread of 0 means that all seeds separate the same groups of\n"
        "images."
    )
    own = "Each seed has its own features, teachers, noise and student."
    words = {"features": shared if "shared" in found["features"] else own, "options": options(found)}
    return PAGE.format(table=table(found), first=f"{fit_of(found)}    # on a GPU", **words)


def fit_of(found: dict[str, Any]) -> str:
    """The command that learned the features."""
    if "shared" in found["features"]:
        return "python benchmarks/features_gpu.py MNIST.npz OUT"
    return "python experiments/mnist_students.py features OUT"


def options(found: dict[str, Any]) -> str:
    """Of `learn`, as it was run."""
    features = "OUT/features.npz" if "shared" in found["features"] else "'OUT/features_{seed}.npz'"
    only = "" if any(row["learner"] in NETS for row in found["table"]) else f" --only {FEATURES}"
    return f" --features {features}{only}"


def show(runs: Path | None) -> None:
    file = RESULTS / "mnist_students.json"
    if runs is not None:
        found = tabulated(json.loads(runs.read_text()))
        file.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
        command = f"{fit_of(found)} && python experiments/mnist_students.py learn RUNS.json{options(found)}"
        where = sorted({row["machine"] for row in found["runs"]})
        if "shared" in found["features"]:
            where.append(f"features: {json.loads(FEATURES_RUN.read_text())['machine']}")
        record("mnist_students", command, ran_on="; ".join(where), at=found["runs"][-1]["commit"])
    found = json.loads(file.read_text())
    (RESULTS / "mnist_students.md").write_text(page(found))
    print(page(found))


PAGE = """# Students on MNIST

```
{first}
python experiments/mnist_students.py learn RUNS.json{options}
python experiments/mnist_students.py show RUNS.json
terrine plan --questions 30 --epsilon 0.1 --delta 1e-5                      # σ of the planned settings
```

{table}

*No privacy* is a net on pixels. A linear model on the students' features and all private labels is right more often
([comparison](dpsgd.md)). Every row has five seeds.

Private: the 60,000 training images; neighbours: one image is replaced. Public: the first 9,000 test images. Accuracy:
on the last 1,000 test images, which no choice was made on; they are easier than the first 9,000. An accuracy of 99.3%
on 1,000 images has a standard error of 0.26 points, which is not part of the spread over seeds.
{features}
The noise is seeded so that the experiment can be repeated: these answers are not private. δ = 1e-5; ε rounds up.

*Exact* is what exactly these votes cost, the largest over the seeds. With private data it is secret, and it is not a
guarantee by itself ([what may be claimed](../math.md)); we print it because all votes are on public data. *Worst case*
holds for any votes, with the numbers of questions and answers fixed beforehand; it may be published if no votes were
looked at to choose the settings. *Chosen on votes*: threshold, noise and number of questions were chosen after looking
at votes, or at labels of public images; with private votes such a choice would give something away.
*By `terrine plan --questions`*: the noise follows from ε, δ and the 30 questions alone, by Rényi bounds (the ε of a
setting's name, and in parentheses). By [privacy profiles](../math.md#the-profile-accountant), as a budget is charged
today, the same noise costs less, and the command plans less noise. Features, teachers, the number
of questions and students were chosen with the labels of the 9,000 public images.

- **Features**: linear discriminants on [features learned from the public images](../features.md) without labels
  (`FeatureStudent`). The 30 questions are the rows that represent the public set best.
- **Features, then a net**: VAT, trained on the labels that **Features** gives to the 90% of the public images that it
  is surest of.
- **VAT**, **Match**, **GAN** see pixels alone: [students](../students.md). Match and GAN first drop an answer if a net
  that was trained without it finds it wrong; VAT does not. One of VAT's ten runs is far worse than the rest; we did not
  look into why. GAN's settings were compared at 4,000 steps; here it has 3,000.
- Our teachers are class means on the same features, with 30 to 6 images each. With up to 1,000 teachers, of at least 60
  images each, a teacher votes for the class of its nearest image instead.
- DP-SGD on the same features, at the same ε: [comparison](dpsgd.md). How ε falls with the number of
  teachers: [figure](student_by_teachers.md).
"""


def main() -> None:
    parser = argparse.ArgumentParser(description="MNIST students")
    verbs = parser.add_subparsers(dest="verb", required=True)
    fit = verbs.add_parser("features")
    fit.add_argument("folder", type=Path)
    first = verbs.add_parser("learn")
    first.add_argument("out", type=Path, help="RUNS.json")
    for one in (fit, first):
        one.add_argument("--seeds", type=int, default=5)
    first.add_argument("--only", nargs="*", default=[])
    first.add_argument("--features", help="file of features, {seed} in its name for each seed's own")
    first.add_argument("--workers", type=int, default=4, help="side by side: one student does not fill a GPU")
    verbs.add_parser("show").add_argument("runs", type=Path, nargs="?")
    given = parser.parse_args()
    match given.verb:
        case "features":
            featured(given.folder, seeds=given.seeds)
        case "learn":
            learn(given)
        case "show":
            show(given.runs)


if __name__ == "__main__":
    main()
