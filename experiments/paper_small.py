"""The paper's students at a size that one core can train, for figures and claims whose full size wants a GPU.

    python experiments/paper_small.py training [--seeds 5]   # MNIST: accuracy during training, by aggregator
    python experiments/paper_small.py glyph [--seeds 5]      # 50 symbols: VAT, GAN, supervised; mislabeled records
    python experiments/paper_small.py open [--seeds 5]       # MNIST: private answers beside open labels; wrong answers
    python experiments/paper_small.py show                   # docs/results/paper_small.{md,png,svg} from the JSON

Needs mnist/, votes/ and glyph/ under $TERRINE_DATA, and some ten minutes of one quiet core each. Runs are kept in
docs/results/paper_small.json as they come; what is there is not done again. The noise of the answers is seeded so that
runs can be repeated: such answers are not private. All votes are on public data.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import RandomForestClassifier

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))
from paper_small_page import draw, page
from provenance import commit, machine, record
from tables import RESULTS
from votesets import DATA, WIDE, epsilon

from terrine import ConfidentGNMax, GNMax, LNMax, Votes, answer
from terrine.accounting.costs import expected_cost
from terrine.datasets import load
from terrine.datasets.fonts import Glyphs
from terrine.datasets.glyph import Glyph, glyph_store
from terrine.features.edges import edges
from terrine.mechanisms import ABSTAIN
from terrine.noise import SeededNoise
from terrine.students import Distortion, GANStudent, MatchStudent, VATStudent, nets
from terrine.students.consistency import train_consistency
from terrine.students.gan import train_gan
from terrine.students.lessons import lessons
from terrine.students.neural import _scale, fit_net
from terrine.teachers import RidgeTeacher

Net = VATStudent | GANStudent | MatchStudent
Mechanism = LNMax | GNMax | ConfidentGNMax
FILE = RESULTS / "paper_small.json"
PAPER: dict[str, Mechanism] = {  # of 250 teachers, on MNIST
    "LNMax": LNMax(scale=20),
    "GNMax": GNMax(sigma=40),
    "Confident-GNMax": ConfidentGNMax(threshold=200, sigma_check=150, sigma_vote=40),
}
QUESTIONS, PUBLIC, DELTA = 640, 9000, 1e-5
NOTHING = Distortion(rotate=0, zoom=0, shear=0, shift=0, jitter=0)


@dataclass(frozen=True, kw_only=True)
class Size:
    """Of nets, and of the small Glyph."""

    steps: int = 500
    channels: tuple[int, ...] = (16, 32)
    batch: int = 32
    public_batch: int = 32
    symbols: int = 50  # every third of the 150
    teachers: int = 250
    each: int = 200
    public: int = 5000
    test: int = 2000
    questions: int = 1200


SIZES = {"training": Size(), "glyph": Size(steps=1000), "open": Size(steps=400)}
TOY = Size(steps=21, channels=(4,), batch=4, public_batch=4, teachers=12, each=30, public=60, test=40, questions=40)


# Students


def like(size: Size) -> dict[str, Any]:
    """What all nets on images have in common."""
    steps = {"steps": size.steps, "batch": size.batch, "public_batch": size.public_batch}
    return {**steps, "channels": size.channels, "learning_rate": 3e-3, "averaging": 0.98}


def learners(size: Size) -> dict[str, Net]:
    """Nets of one size with the losses of those who thought of them and no other; two of them see distorted images."""
    same = like(size)
    plain: dict[str, Any] = {"folds": 0, "consistency": 0.0, "entropy": 0.0, "balance": 0.0, "radius": 0.0, "fade": 0.0}
    plain |= {"wrong": 0.0, "strong": NOTHING}
    supervised = MatchStudent(**{**same, **plain, "public_batch": 2}, view=NOTHING)
    return {
        "VAT alone": VATStudent.paper(**same, depth=1, schedule="cosine"),
        "GAN alone": GANStudent.paper(**same, generator_channels=32),
        "supervised alone": supervised,
        "VAT, distorted": VATStudent.paper(**same, depth=1, schedule="cosine", view=Distortion()),
        "supervised, distorted": replace(supervised, view=Distortion()),
    }


def taught(net: Net, X: Any, labels: Any, *, n_classes: int, seed: int, look: Callable[..., Any] | None = None) -> Any:
    """A net, without fit_student's comparison with a linear one, which takes longer than these nets.

    ``look(net, share done)`` is called every 20 steps with the net as it is, which changes nothing.
    """
    given = lessons(X, labels, classes=[str(k) for k in range(n_classes)], min_per_class=0)
    train = train_gan if isinstance(net, GANStudent) else train_consistency

    def trained(*lesson: Any, fresh: Callable[[], Any], progress: Callable[[float], object] | None, **how: Any) -> Any:
        started: list[Any] = []

        def begun() -> Any:
            started.append(fresh())
            return started[0]

        def seen(done: float) -> None:
            if look is not None:
                started[0].eval()
                look(started[0], done)
                started[0].train()

        return train(*lesson, fresh=begun, progress=seen, **how)

    return fit_net(net, given, seed=seed, train=trained, progress=None)


def watched(net: Net, rows: tuple[Any, Any], labels: Any, y: Any, *, n_classes: int, seed: int) -> dict[str, Any]:
    """How often a net is right on test rows, every 20 steps and in the end; ``rows`` are public and test rows."""
    import torch

    public, test = rows
    x = nets.as_float(nets.as_tensor(test, None if test.dtype == np.uint8 else _scale(public), "cpu"))
    steps, accuracy = [], []

    def look(at: Any, done: float) -> None:
        with torch.no_grad():
            accuracy.append(float((at(x).argmax(1).numpy() == y).mean()))
        steps.append(round(done * net.steps) + 1)

    student = taught(net, public, labels, n_classes=n_classes, seed=seed, look=look)
    return {"steps": steps, "curve": accuracy, "accuracy": float((student.predict(test) == y).mean())}


# Answers


def asked(mechanism: Mechanism, counts: Any, *, seed: int) -> tuple[Any, float]:
    """Answers to the first rows, ABSTAIN where there is none, and what they cost by the paper's accountant."""
    votes = Votes(counts, n_teachers=int(counts[0].sum()))
    labels = answer(mechanism, votes, rng=SeededNoise(seed)).labels
    return labels, epsilon(expected_cost(mechanism, votes, orders=WIDE), delta=DELTA)


def on_rows(labels: Any, rows: Any, n: int) -> Any:
    """(n,) labels of these rows; no others."""
    found = np.full(n, ABSTAIN, dtype=np.int64)
    found[rows] = labels
    return found


def flipped(labels: Any, share: float, *, n_classes: int, seed: int) -> Any:
    """A share of the labels, drawn at random, is another class, drawn evenly."""
    rng = np.random.default_rng([seed, 41])
    rows = rng.permutation(len(labels))[: round(share * len(labels))]
    found = labels.copy()
    found[rows] = (found[rows] + rng.integers(1, n_classes, len(rows))) % n_classes
    return found


def about(labels: Any, true: Any) -> dict[str, Any]:
    told = labels != ABSTAIN
    return {"answers": int(told.sum()), "answers_right": float((labels == true)[told].mean())}


def halved(images: Any) -> Any:
    """A pixel for each 2 x 2."""
    n, height, width = images.shape
    return images.reshape(n, height // 2, 2, width // 2, 2).mean(axis=(2, 4)).astype(np.uint8)


# MNIST, from the paper's votes


@dataclass(frozen=True, kw_only=True)
class Mnist:
    images: tuple[Any, Any]  # public and test, a quarter of the pixels
    edges: tuple[Any, Any]
    y: Any
    test_y: Any
    counts: Any


@cache
def mnist() -> Mnist:
    task = load("mnist")
    counts = np.load(DATA / "votes" / "mnist_250_teachers.npy").astype(np.int64)
    rows = task.public.X, task.test_X
    small, drawn = (tuple(how(some) for some in rows) for how in (halved, edges))
    return Mnist(images=small, edges=drawn, y=task.public_y, test_y=task.test_y, counts=counts)


Run = tuple[str, str, int, Callable[[], dict[str, Any]]]  # setting, learner, seed, and what to do


def training(seeds: int, size: Size) -> Iterator[Run]:
    """A student's accuracy as it is trained, by who answered: the paper's rows, and as many answers of each."""
    known = mnist()
    dense = VATStudent(steps=size.steps, batch=size.batch, public_batch=size.public_batch, averaging=0.98)
    for seed in range(seeds):
        confident, cost = asked(PAPER["Confident-GNMax"], known.counts[:QUESTIONS], seed=seed)
        k = int((confident != ABSTAIN).sum())
        answers = {"Confident-GNMax": (confident, cost)}
        for name, n in (("LNMax", k), ("GNMax", k), ("LNMax", 100), ("LNMax", 1000)):
            said = name if n == k else f"{name}, {n:,} answers"
            answers[said] = asked(PAPER[name], known.counts[:n], seed=seed)
        gan = GANStudent(**like(size), generator_channels=32)
        for learner, net, rows in (("VAT on edges", dense, known.edges), ("GAN", gan, known.images)):
            for setting, (labels, spent) in answers.items():
                if learner == "GAN" and "answers" in setting:
                    continue
                told = on_rows(labels, np.arange(len(labels)), PUBLIC)

                def job(net: Any = net, rows: Any = rows, told: Any = told, spent: float = spent, s: int = seed) -> Any:
                    found = watched(net, rows, told, known.test_y, n_classes=10, seed=s)
                    return {**about(told, known.y), "epsilon": spent, **found}

                yield setting, learner, seed, job


FLIPS = (0.0, 0.05, 0.1, 0.2, 0.4)


def open_labels(seeds: int, size: Size) -> Iterator[Run]:
    """Answers beside what a look at the votes, or at the labels, would have given: there, and on the first rows."""
    known = mnist()
    plurality, n = known.counts.argmax(axis=1), PUBLIC
    dense = VATStudent(steps=size.steps, batch=size.batch, public_batch=size.public_batch, averaging=0.98)
    kinds: dict[str, Any] = {
        "linear": LinearDiscriminantAnalysis(solver="lsqr", shrinkage=0.5),
        "forest": RandomForestClassifier(),
        "VAT": dense,
    }
    for seed in range(seeds):
        cases: dict[str, Any] = {}
        for name, questions in (("Confident-GNMax", QUESTIONS), ("LNMax", 1000), ("LNMax", 100)):
            given, _ = asked(PAPER[name], known.counts[:questions], seed=seed)
            rows = np.flatnonzero(given != ABSTAIN)
            who = name if name != "LNMax" else f"LNMax, {questions:,} answers"
            cases[f"{who}: answers"] = on_rows(given[rows], rows, n)
            cases[f"{who}: plurality, same rows"] = on_rows(plurality[rows], rows, n)
            cases[f"{who}: truth, same rows"] = on_rows(known.y[rows], rows, n)
            if name == "Confident-GNMax":
                first = np.arange(len(rows))
                cases[f"{who}: plurality, first rows"] = on_rows(plurality[first], first, n)
                cases[f"{who}: truth, first rows"] = on_rows(known.y[first], first, n)
                for share in FLIPS[1:]:
                    wrong = flipped(known.y[rows], share, n_classes=10, seed=seed)
                    cases[f"{who}: truth, {share:.0%} wrong"] = on_rows(wrong, rows, n)
        for learner, kind in kinds.items():
            for setting, labels in cases.items():

                def job(kind: Any = kind, labels: Any = labels, s: int = seed) -> dict[str, Any]:
                    return {**about(labels, known.y), "accuracy": right(kind, labels, known, seed=s)}

                yield setting, learner, seed, job


def right(kind: Any, labels: Any, known: Mnist, *, seed: int) -> float:
    """How often a student on edges is right on the test images."""
    X, test = known.edges
    if isinstance(kind, VATStudent):
        said = taught(kind, X, labels, n_classes=10, seed=seed).predict(test)
    else:
        told = labels != ABSTAIN
        if isinstance(kind, RandomForestClassifier):
            kind = RandomForestClassifier(random_state=seed)
        said = kind.fit(X[told], labels[told]).predict(test)
    return float((said == known.test_y).mean())


# A small Glyph


@dataclass(frozen=True, kw_only=True)
class SmallGlyph:
    """Images of 14 x 14 pixels, the symbols drawn and the labels recorded, votes by what share of records is wrong."""

    public: Any
    true: Any
    test: Any
    test_true: Any
    test_label: Any
    votes: dict[str, Any]
    one_right: dict[str, float]  # a teacher


WRONG = {"12% of private records wrong, as recorded": None, "no private record wrong": 0.0,
         "30% of private records wrong": 0.3}  # fmt: skip
RECORDED = next(iter(WRONG))


def small_glyph(glyphs: Glyphs, *, seed: int, size: Size) -> SmallGlyph:
    """Symbols of which each seed has its own faces, records and teachers; teachers are linear, on edges."""
    step = len(glyphs.symbols) // size.symbols
    some = (glyphs.y % step == 0) & (glyphs.y // step < size.symbols)
    names = glyphs.symbols[::step][: size.symbols]
    few = replace(glyphs, X=glyphs.X[some], y=glyphs.y[some] // step, face=glyphs.face[some], symbols=names)
    task, c = Glyph(few, seed=seed), size.symbols
    private = np.arange(size.teachers * size.each)
    X, recorded = task.records("private", private)
    public, _ = task.records("public", np.arange(size.public))
    test, test_label = task.records("test", np.arange(size.test))
    drawn, seen = task.plan("private", private).true, edges(public[: size.questions])
    shares = edges(X).reshape(size.teachers, size.each, -1)
    true = task.plan("public", np.arange(size.public)).true
    teacher, votes, one = RidgeTeacher(), {}, {}
    for name, share in WRONG.items():
        y = recorded if share is None else flipped(drawn, share, n_classes=c, seed=seed)
        rows = list(zip(shares, y.reshape(size.teachers, size.each), strict=True))
        said = teacher.predict(teacher.fit(rows, ids=range(size.teachers), n_classes=c, seed=seed), seen)
        votes[name] = np.stack([(said == k).sum(axis=0) for k in range(c)], axis=1).astype(np.int64)
        one[name] = float((said == true[: size.questions]).mean())
    test_true = task.plan("test", np.arange(size.test)).true
    return SmallGlyph(public=halved(public), true=true, test=halved(test), test_true=test_true,
                      test_label=test_label, votes=votes, one_right=one)  # fmt: skip


def shared(n_teachers: int) -> ConfidentGNMax:
    """The paper's Table 1 for Glyph, as shares of its 5,000 teachers."""
    m = n_teachers
    return ConfidentGNMax(threshold=0.2 * m, sigma_check=0.1 * m, sigma_vote=0.02 * m)


def glyph(seeds: int, size: Size, glyphs: Glyphs | None = None) -> Iterator[Run]:
    """Learners on the same answers; and the same answers of teachers whose records are wrong less, or more, often."""
    glyphs = glyphs or Glyphs.load(glyph_store())
    how, nets_of = shared(size.teachers), learners(size)
    for name in ("VAT alone", "supervised alone"):
        nets_of[f"{name}, twice as long"] = replace(nets_of[name], steps=2 * size.steps)
    known_of = cache(lambda seed: small_glyph(glyphs, seed=seed, size=size))
    for seed in range(seeds):
        for wrong in WRONG:
            for learner in nets_of if wrong == RECORDED else ("supervised alone",):

                def job(wrong: str = wrong, learner: str = learner, s: int = seed) -> dict[str, Any]:
                    known = known_of(s)
                    counts = known.votes[wrong]
                    labels, spent = asked(how, counts, seed=s)
                    told = on_rows(labels, np.arange(len(labels)), len(known.public))
                    net = taught(nets_of[learner], known.public, told, n_classes=size.symbols, seed=s)
                    said = net.predict(known.test)
                    true = known.true[: len(counts)]
                    return {
                        **about(told, known.true),
                        "epsilon": spent,
                        "one_right": known.one_right[wrong],
                        "plurality_right": float((counts.argmax(axis=1) == true).mean()),
                        "top_share": float(counts.max(axis=1).mean() / size.teachers),
                        "accuracy": float((said == known.test_true).mean()),
                        "accuracy_recorded": float((said == known.test_label).mean()),
                    }

                yield wrong, learner, seed, job


PARTS: dict[str, Callable[[int, Size], Iterator[Run]]] = {"training": training, "glyph": glyph, "open": open_labels}


def main() -> None:
    parser = argparse.ArgumentParser(description="The paper's students at a size that one core can train")
    parser.add_argument("part", choices=["training", "glyph", "open", "show"])
    parser.add_argument("--seeds", type=int, default=5)
    given = parser.parse_args()
    found: list[dict[str, Any]] = json.loads(FILE.read_text())["runs"] if FILE.is_file() else []
    if given.part != "show":
        warnings.simplefilter("ignore")
        done = {(run["part"], run["setting"], run["learner"], run["seed"]) for run in found}
        for setting, learner, seed, job in PARTS[given.part](given.seeds, SIZES[given.part]):
            if (given.part, setting, learner, seed) in done:
                continue
            start = time.process_time()
            run = {"part": given.part, "setting": setting, "learner": learner, "seed": seed, **job()}
            print(f"{setting}, {learner}, seed {seed}: {run['accuracy']:.2%}, "
                  f"{time.process_time() - start:.0f} s of CPU", flush=True)  # fmt: skip
            found = [*json.loads(FILE.read_text())["runs"], run] if FILE.is_file() else [run]
            FILE.write_text(json.dumps({"machine": machine(), "commit": commit(), "runs": found}, indent=1) + "\n")
        command = "python experiments/paper_small.py training && … glyph && … open && … show"
        record("paper_small", command)
    draw(found)
    FILE.with_suffix(".md").write_text(page({"runs": found}))


if __name__ == "__main__":
    main()
