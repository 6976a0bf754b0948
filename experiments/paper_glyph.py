"""Glyph at the paper's own parameters: 5,000 teachers, its mechanisms, its kinds of teachers and students; and why.

    python experiments/paper_glyph.py votes GLYPHS.npz OUT KEEP      # features, small nets' votes, a fixed set split
    python experiments/paper_glyph.py resnets GLYPHS.npz OUT --seconds 150 [--teachers 250]   # votes of ResNet-32s
    python experiments/paper_glyph.py learn GLYPHS.npz OUT KEEP [--groups NAME ...] [--workers 4] [--seconds 300]
    python experiments/paper_glyph_page.py OUT                       # docs/results/paper_glyph.{json,md,png,svg}

GLYPHS is a file as terrine.datasets.fonts.Glyphs.save writes it; `votes`, `resnets` and nets want a GPU. OUT gets votes
and runs as they come, and what is there is not done again; KEEP gets the features of the public and the test images.
Every student is scored twice on the same test images: on the symbols that were drawn, and on the labels that were
recorded, of which 12% are wrong. The noise of the answers is seeded: such answers are not private.
"""

from __future__ import annotations

import argparse
import gzip
import json
import multiprocessing
import os
import sys
import time
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))
from paper_glyph_settings import (
    BASE,
    BASE_TRUE,
    BOTH,
    FEATURES,
    GROUPS,
    LEARNERS,
    MANY,
    MANY_RECORDED,
    MANY_TRUE,
    MNIST,
    SIZES,
    Job,
    Known,
    Size,
    labels_of,
    learner_of,
    mnist_labels,
    second_round,
    second_rows,
)
from provenance import machine
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from terrine.features import FeatureRecipe, fit_features
from terrine.mechanisms import ABSTAIN, Outcome, answer
from terrine.noise import SeededNoise
from terrine.students import SupervisedStudent, fit_student
from terrine.votes import Votes

RECIPE = FeatureRecipe(
    dimensions=None, steps=3000, batch=1024, rotate=12.0, zoom=0.18, shear=0.2, shift=2.5, elastic=0.025, stroke=0.3,
    views=1,
)  # fmt: skip
DATA = Path(os.environ.get("TERRINE_DATA", "../shared/data"))
TEACHERS, RESNETS = "paper_glyph_teachers.json", "paper_glyph_resnets.npz"
_KNOWN: dict[str, Any] = {}
_NOTHING = Known(
    size=SIZES["full"], path="", out=Path(), public=None, true=None, label=None, test=None, test_true=None,
    test_label=None, votes={}, features=(),
)  # fmt: skip


def kept(file: Path, found: list[dict[str, Any]]) -> None:
    part = file.with_suffix(".part")
    part.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    part.rename(file)


def read(file: Path) -> list[dict[str, Any]]:
    return json.loads(file.read_text()) if file.is_file() else []


def all_runs(out: Path) -> list[dict[str, Any]]:
    return [run for file in sorted(out.glob("paper_glyph_runs_*.json")) for run in read(file)]


def vote(path: str, out: Path, keep: Path, size: Size) -> None:
    """Features; votes of small nets on 15 million images; of ensembles that share these, or a tenth of them."""
    import torch
    from paper_glyph_device import NetRecipe, Shares, drawn, encoded, encoder, small_nets

    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.benchmark = True
    start = time.perf_counter()
    rows = [row for row in read(out / TEACHERS) if row["kind"] != "small nets"]

    def say(**facts: Any) -> None:
        print(json.dumps({**facts, "at": round(time.perf_counter() - start, 1)}), flush=True)

    images, true, _ = drawn(path, "public", size.all_public)
    test, _, _ = drawn(path, "test", size.test)
    say(drawn=len(images) + len(test))
    recipe = replace(RECIPE, steps=size.feature_steps, batch=min(RECIPE.batch, size.public // 2))
    features = fit_features(images[: size.public].cpu().numpy(), recipe=recipe, seed=0)
    say(features=features.n_features)
    encode = encoder(features)
    asked = encode(images)
    for name, some in (("public", asked[: size.public]), ("test", encode(test))):
        np.save(keep / f"{name}.npy", some.float().cpu().numpy().astype(np.float16))
    del images, test
    private = size.teachers * size.each
    X, y = encoded(path, "private", private, encode, width=features.n_features)
    say(encoded=private)
    fixed: dict[str, Any] = {}
    for total, teachers, steps in size.ensembles:
        questions = size.all_public if (total, teachers) == (private, size.teachers) else size.fixed_queries
        counts, right = small_nets(
            Shares(X=X[:total], y=y[:total], teachers=teachers, each=total // teachers),
            asked[:questions],
            true[: size.fixed_queries],
            recipe=NetRecipe(steps=steps, chunk=min(500, teachers)),
            seed=0,
        )
        if questions == size.all_public:
            rng = np.random.default_rng(0)
            noisy = counts + rng.normal(0, 100 * size.scale, counts.shape)  # as GNMax, on more rows than are kept
            np.savez_compressed(
                out / "paper_glyph_votes.npz",
                counts=counts[: size.queries].astype(np.int16),
                plurality=counts.argmax(axis=1).astype(np.int16),
                noisy=noisy.argmax(axis=1).astype(np.int16),
            )
        else:
            fixed[f"{total}_{teachers}"] = counts.astype(np.int16)
            np.savez_compressed(out / "paper_glyph_fixed.npz", **fixed)
        rows.append(about("small nets", counts, right, true, teachers=teachers, each=total // teachers, steps=steps))
        kept(out / TEACHERS, rows)
        say(**rows[-1])


def about(kind: str, counts: Any, right: float, true: Any, **facts: Any) -> dict[str, Any]:
    """Of an ensemble, by its votes on public images."""
    m = int(counts[0].sum())
    return {
        "kind": kind,
        **facts,
        "questions": len(counts),
        "teacher_right": right,
        "plurality_right": float((counts.argmax(axis=1) == true[: len(counts)]).mean()),
        "top_share": float(counts.max(axis=1).mean() / m),
        "machine": machine(),
    }


def resnets(path: str, out: Path, size: Size, *, seconds: float) -> None:
    """Teachers of the paper's kind, wave by wave; the schedule is the paper's, shrunk to what the time allows."""
    import torch
    from paper_glyph_device import PAPER_GLYPH, ResidualNets, drawn, drawn_blocks

    start = time.perf_counter()
    torch.backends.cudnn.benchmark = True
    asked, true, _ = drawn(path, "public", size.resnet_queries)
    nets = ResidualNets(lanes=size.lanes, each=size.resnet_each, batch=min(PAPER_GLYPH.batch, size.resnet_each))
    nets.train(size.timed)
    per_step = nets.train(size.timed) / size.timed
    waves = -(-size.resnets // size.lanes)
    left = seconds - (time.perf_counter() - start) - 2.0 * waves
    steps = int(np.clip(left / (waves * per_step) // 50 * 50, 1, size.resnet_steps))
    told = {"per_step_ms": 1e3 * per_step, "images_per_s": size.lanes * nets.batch / per_step, "steps": steps}
    print(json.dumps({**told, "at": time.perf_counter() - start}), flush=True)
    counts = np.zeros((len(asked), 150), dtype=np.int32)
    right, done = 0.0, 0
    rows = [row for row in read(out / TEACHERS) if row["kind"] != "ResNet-32"]
    block = size.lanes * size.resnet_each
    for wave in range(waves):
        images, labels = [], []
        for drawing, plan in drawn_blocks(path, "private", block, start=wave * block, planners=1):
            images.append(drawing)
            labels.append(torch.from_numpy(plan.label.astype(np.int64)))
        nets.begin(torch.cat(images), torch.cat(labels).to(nets.labels.device), seed=wave)
        took = nets.train(steps)
        votes = nets.votes(asked).cpu().numpy()
        for k in range(min(size.lanes, size.resnets - done)):
            counts[np.arange(len(asked)), votes[k]] += 1
            right += float((votes[k] == true).mean())
            done += 1
        np.savez_compressed(out / RESNETS, counts=counts.astype(np.int16))
        facts = {"teachers": done, "each": size.resnet_each, "steps": steps}
        row = about("ResNet-32", counts, right / done, true, **facts)
        kept(out / TEACHERS, [*rows, row])
        print(json.dumps({**row, "took": took, "at": time.perf_counter() - start}), flush=True)


def ready(path: str, out: Path, keep: Path, size: Size, nets: bool, images: bool) -> None:
    """What a worker knows: images where there are nets to train, votes and features where they are kept."""
    import torch
    from paper_glyph_device import drawn

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    if not images:
        _KNOWN["known"] = replace(_NOTHING, size=size, path=path, out=out)
        return
    public, true, label = drawn(path, "public", size.public)
    test, test_true, test_label = drawn(path, "test", size.test)
    file, seen = (
        out / (RESNETS if size.as_many else "paper_glyph_votes.npz"),
        [keep / f"{split}.npy" for split in ("public", "test")],
    )
    _KNOWN["known"] = Known(
        size=size,
        path=path,
        out=out,
        public=public.cpu().numpy(),
        true=true,
        label=label,
        test=test.cpu().numpy(),
        test_true=test_true,
        test_label=test_label,
        votes=dict(np.load(file)) if file.is_file() else {},
        features=() if nets else tuple(np.load(one).astype(np.float32) for one in seen),
    )
    del public, test
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def fitted(learner: str, labels: Any, known: Known, seed: int, rows: Any = None) -> tuple[Any, Any, Any]:
    """A student, and the public and test rows as it sees them."""
    names = [str(k) for k in range(150)]
    if learner == FEATURES:
        linear = SupervisedStudent(estimator=LinearDiscriminantAnalysis(solver="lsqr", shrinkage=0.05))
        return fit_student(linear, known.features[0], labels, classes=names, seed=seed), *known.features
    X = known.public if rows is None else rows
    return fit_student(learner_of(learner, known.size), X, labels, classes=names, seed=seed), X, known.test


def learned(job: Job) -> dict[str, Any]:
    """One student; for two rounds, the first one's opinion decides what the second one learns from."""
    known: Known = _KNOWN["known"]
    start = time.perf_counter()
    if job.setting in MNIST:
        return {**on_mnist(job, known), "seconds": time.perf_counter() - start}
    more: dict[str, Any] = {}
    rows, labels, true, recorded = None, None, known.true, known.label
    if job.setting in (BASE, BASE_TRUE, *MANY):
        from paper_glyph_device import drawn

        private = job.setting in (BASE, BASE_TRUE)
        n = known.size.baseline if private else known.size.all_public
        images, true, recorded = drawn(known.path, "private" if private else "public", n)
        rows = images.cpu().numpy()
        del images
        as_it_is = {BASE: recorded, MANY_RECORDED: recorded, BASE_TRUE: true, MANY_TRUE: true}
        labels = as_it_is.get(job.setting)
    if labels is None:
        labels, more = labels_of(job, known)
    student, public, test = fitted(job.learner, labels, known, job.seed, rows)
    if job.setting == BOTH:
        asked = second_rows(known.size)
        proba = student.predict_proba(public[asked])
        if job.seed == 0:
            kind = list(LEARNERS).index(job.learner) if job.learner in LEARNERS else "features"
            np.savez_compressed(known.out / f"paper_glyph_proba_{kind}.npz", proba=proba.astype(np.float16))
        votes = Votes(known.votes["counts"][asked].astype(np.int64), n_teachers=known.size.teachers)
        given = answer(second_round(known.size), votes, rng=SeededNoise(job.seed + 100), student_proba=proba)
        first = int((labels != ABSTAIN).sum())
        labels = labels.copy()
        labels[asked] = given.labels
        taught = int((given.outcomes == Outcome.TEACHERS).sum())
        more |= {"first_round": first, "teachers_answers": first + taught, "reinforced": int(len(asked) - taught)}
        more["reinforced"] = int((given.outcomes == Outcome.REINFORCED).sum())
        more["first_accuracy"] = float((student.predict(test) == known.test_true).mean())
        student, public, test = fitted(job.learner, labels, known, job.seed)
    told = np.flatnonzero(labels != ABSTAIN)
    found, rare = student.predict(test), known.rare(known.test_true)
    shares = np.bincount(labels[told], minlength=150)
    return {
        **vars(job),
        "answers": len(told),
        "answers_right": float((labels[told] == true[told]).mean()),
        "answers_recorded": float((labels[told] == recorded[told]).mean()),
        "answers_rare": float(known.rare(true[told]).mean()),
        "fewest_of_a_class": int(shares.min()),
        "accuracy": float((found == known.test_true).mean()),
        "accuracy_recorded": float((found == known.test_label).mean()),
        "accuracy_rare": float((found == known.test_true)[rare].mean()),
        **more,
        "seconds": time.perf_counter() - start,
        "machine": machine(),
    }


def on_mnist(job: Job, known: Known) -> dict[str, Any]:
    """A student of MNIST's 9,000 public images from the paper's votes, scored on the last 1,000 test images."""
    with gzip.open(DATA / "mnist" / "t10k-images-idx3-ubyte.gz") as file:
        X = np.frombuffer(file.read(), np.uint8, offset=16).reshape(-1, 28, 28)
    with gzip.open(DATA / "mnist" / "t10k-labels-idx1-ubyte.gz") as file:
        y = np.frombuffer(file.read(), np.uint8, offset=8).astype(np.int64)
    labels, public = mnist_labels(job, y[:9000], DATA / "votes"), X[:9000]
    learner = learner_of(job.learner, known.size)
    student = fit_student(learner, public, labels, classes=[str(k) for k in range(10)], seed=job.seed)
    told = labels != ABSTAIN
    return {
        **vars(job),
        "answers": int(told.sum()),
        "answers_right": float((labels == y[:9000])[told].mean()),
        "accuracy": float((student.predict(X[9000:]) == y[9000:]).mean()),
        "accuracy_public": float((student.predict(public) == y[:9000]).mean()),
        "machine": machine(),
    }


@dataclass(frozen=True, kw_only=True)
class Work:
    path: str
    out: Path
    keep: Path
    size: Size


def learn(work: Work, *, groups: list[str], workers: int, seconds: float) -> None:
    """Students of these groups, side by side, until the time is up."""
    end = time.monotonic() + seconds
    file = work.out / f"paper_glyph_runs_{groups[0]}.json"  # its own: two of these may run side by side
    done = {(run["setting"], run["learner"], run["seed"]) for run in all_runs(work.out)}
    every = [job for group in groups for job in GROUPS[group]]
    jobs = [job for job in dict.fromkeys(every) if (job.setting, job.learner, job.seed) not in done]
    nets = any(job.learner != FEATURES for job in jobs)
    images = any(job.setting not in MNIST for job in jobs)
    setup = (work.path, work.out, work.keep, work.size, nets, images)
    with multiprocessing.get_context("spawn").Pool(workers, initializer=ready, initargs=setup) as pool:
        results = pool.imap_unordered(attempted, jobs)
        for _ in jobs:
            try:
                run = results.next(timeout=max(1.0, end - time.monotonic()))
            except multiprocessing.TimeoutError:
                print(json.dumps({"out of time": groups}), flush=True)
                return
            print(json.dumps(run, ensure_ascii=False), flush=True)
            if "failed" not in run:
                kept(file, [*read(file), run])


def attempted(job: Job) -> dict[str, Any]:
    try:
        return learned(job)
    except Exception as error:  # the others go on
        return {**vars(job), "failed": f"{type(error).__name__}: {error}"[:500]}


def main() -> None:
    parser = argparse.ArgumentParser(description="Glyph at the paper's own parameters")
    verbs = parser.add_subparsers(dest="verb", required=True)
    for verb in ("votes", "resnets", "learn"):
        one = verbs.add_parser(verb)
        one.add_argument("glyphs")
        one.add_argument("out", type=Path)
        one.add_argument("--size", choices=list(SIZES), default="full", help="toy: to try the script without a GPU")
        if verb != "resnets":
            one.add_argument("keep", type=Path)
        if verb != "votes":
            one.add_argument("--seconds", type=float, default=300.0)
        if verb == "resnets":
            one.add_argument("--teachers", type=int, help="that many, in place of the size's 100")
        if verb == "learn":
            one.add_argument("--groups", nargs="*", default=list(GROUPS), choices=list(GROUPS))
            one.add_argument("--workers", type=int, default=4, help="students side by side")
            one.add_argument("--resnets", action="store_true", help="by the votes that `resnets` left in OUT")
    given = parser.parse_args()
    size = SIZES[given.size]
    match given.verb:
        case "votes":
            vote(given.glyphs, given.out, given.keep, size)
        case "resnets":
            size = replace(size, resnets=given.teachers or size.resnets)
            resnets(given.glyphs, given.out, size, seconds=given.seconds)
        case "learn":
            if given.resnets:  # the same questions; thresholds and noise as shares of the teachers
                teachers = int(np.load(given.out / RESNETS)["counts"][0].sum())
                size = replace(size, teachers=teachers, as_many=True)
            work = Work(path=given.glyphs, out=given.out, keep=given.keep, size=size)
            learn(work, groups=given.groups, workers=given.workers, seconds=given.seconds)


if __name__ == "__main__":
    main()
