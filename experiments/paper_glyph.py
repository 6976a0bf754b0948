"""Glyph at the paper's own parameters: 5,000 teachers, its mechanisms, its kinds of teachers and students; and why.

    python experiments/paper_glyph.py votes GLYPHS.npz OUT KEEP      # features, small nets' votes, a fixed set split
    python experiments/paper_glyph.py resnets GLYPHS.npz OUT --seconds 150 [--teachers 250] [--everywhere 30]
    python experiments/paper_glyph.py learn GLYPHS.npz OUT KEEP [--groups NAME ...] [--workers 4] [--seconds 300]
    python experiments/paper_glyph.py learn GLYPHS.npz OUT KEEP --resnets [--wait] ...   # by the votes of `resnets`
    python experiments/paper_glyph.py features GLYPHS.npz OUT KEEP --size cpu     # features without a GPU, 3 minutes
    python experiments/paper_glyph.py learn GLYPHS.npz OUT KEEP --size cpu --resnets --groups auto   # students on them
    python experiments/paper_glyph_page.py OUT GLYPHS.npz            # docs/results/paper_glyph.{json,md,png,svg}
    python experiments/paper_glyph_page.py OUT GLYPHS.npz --add      # by ResNet-32s and on MNIST: beside what is there

GLYPHS is a file as terrine.datasets.fonts.Glyphs.save writes it; `votes`, `resnets` and nets want a GPU. OUT gets votes
and runs as they come, and what is there is not done again; KEEP gets the features of the public and the test images.
Of size cpu there are 16,000 public images, those whose votes `resnets` keeps.
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
    AUTO,
    BASE,
    BASE_TRUE,
    BOTH,
    FEATURES,
    GROUPS,
    LEARNERS,
    MANY,
    MANY_NOISY,
    MANY_PLURALITY,
    MANY_RECORDED,
    MANY_TRUE,
    MNIST,
    SIZES,
    Job,
    Known,
    Size,
    by_teachers,
    labels_of,
    learner_of,
    mnist_labels,
    second_round,
    second_rows,
)
from provenance import machine
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from terrine.features import AutoRecipe, FeatureRecipe, fit_auto, fit_features
from terrine.mechanisms import ABSTAIN, Outcome, answer
from terrine.noise import SeededNoise
from terrine.students import SupervisedStudent
from terrine.students.api import _taught
from terrine.students.lessons import lessons
from terrine.votes import Votes

RECIPE = FeatureRecipe(
    dimensions=None, steps=3000, batch=1024, rotate=12.0, zoom=0.18, shear=0.2, shift=2.5, elastic=0.025, stroke=0.3,
    views=1,
)  # fmt: skip
DATA = Path(os.environ.get("TERRINE_DATA", "../shared/data"))
TEACHERS, RESNETS, RESNET = "paper_glyph_teachers.json", "paper_glyph_resnets.npz", "ResNet-32"
SOME, EVERYWHERE = "paper_glyph_resnets_some.npz", "paper_glyph_resnets_all.npz"  # so far; on all public images
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


def all_runs(out: Path, *, resnets: bool = False) -> list[dict[str, Any]]:
    """Students by the votes of one kind of teachers; those that no teacher of ours taught are with the small nets'."""
    start = "paper_glyph_resnet_runs_" if resnets else "paper_glyph_runs_"
    return [run for file in sorted(out.glob(f"{start}*.json")) for run in read(file)]


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


def features(path: str, keep: Path, size: Size) -> None:
    """Of the public and the test images, by scattering and small pieces: what `fit_auto` makes without a GPU."""
    from paper_glyph_device import drawn

    start, made = time.perf_counter(), None
    for split, n in (("public", size.public), ("test", size.test)):
        images = drawn(path, split, n)[0].cpu().numpy()
        if made is None:
            made = fit_auto(images[: size.auto], recipe=AutoRecipe(encoder="no"), seed=0, device="cpu")
        parts = [made.transform(images[at : at + 1000]) for at in range(0, n, 1000)]
        np.save(keep / f"auto_{split}.npy", np.concatenate(parts).astype(np.float32))
        print(json.dumps({split: n, "features": made.n_features, "at": time.perf_counter() - start}), flush=True)


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


class Answers:
    """Votes of teachers that come a few at a time."""

    def __init__(self, true: Any, counts: Any = None, right: float = 0.0) -> None:
        self.true, self.right = true, right  # summed over teachers
        self.counts = np.zeros((len(true), 150), dtype=np.int32) if counts is None else counts.astype(np.int32)

    @property
    def teachers(self) -> int:
        return int(self.counts[0].sum())

    def add(self, votes: Any) -> None:
        for one in votes:
            self.counts[np.arange(len(one)), one] += 1
            self.right += float((one == self.true).mean())

    def row(self, **facts: Any) -> dict[str, Any]:
        m = self.teachers
        return about(RESNET, self.counts, self.right / m, self.true, teachers=m, **facts)


def resnets(path: str, out: Path, size: Size, *, seconds: float, everywhere: float = 0.0) -> None:
    """Teachers of the paper's kind, wave by wave; the schedule is the paper's, shrunk to what the time allows.

    Votes of the waves so far are kept, and a run that was ended goes on. In ``everywhere`` seconds the first waves vote
    on all public images too, for 200,000 labels.
    """
    import torch
    from paper_glyph_device import PAPER_GLYPH, ResidualNets, drawn, drawn_shares

    start = time.perf_counter()

    def now() -> float:
        return time.perf_counter() - start

    if (out / RESNETS).is_file():
        print(json.dumps({"there already": RESNETS}), flush=True)
        return
    torch.backends.cudnn.benchmark = True
    n, rows = size.resnet_queries, read(out / TEACHERS)
    shares_of = size.lanes * size.resnet_each
    some = [row for row in rows if row["kind"] == RESNET and row["questions"] == n and (out / SOME).is_file()]
    rows = [row for row in rows if row["kind"] != RESNET or (some and row not in some)]
    known = np.load(out / SOME)["counts"] if some else None
    done = int(known[0].sum()) if known is not None else 0
    waves, aside = range(done // size.lanes, -(-size.resnets // size.lanes)), 3.0
    shares = drawn_shares(path, "private", shares_of, waves)
    asked, true, _ = drawn(path, "public", size.all_public if everywhere else n)
    few = Answers(true[:n], known, some[0]["teacher_right"] * done if some else 0.0)
    by_wave: list[int] = list(some[0]["steps_by_wave"]) if some else []
    wide = Answers(true)
    nets = ResidualNets(lanes=size.lanes, each=size.resnet_each, batch=min(PAPER_GLYPH.batch, size.resnet_each))
    nets.train(size.timed)
    per_step = nets.train(size.timed) / size.timed
    told = {"per_step_ms": 1e3 * per_step, "images_per_s": size.lanes * nets.batch / per_step}
    print(json.dumps({**told, "at": now()}), flush=True)
    for wave in waves:
        began, left = now(), len(waves) - (wave - waves.start)
        fit = ((seconds - began) / left - aside - everywhere / left) / per_step
        steps = int(np.clip(fit // 10 * 10, size.least, size.resnet_steps))
        if fit < size.least and few.teachers:
            print(json.dumps({"out of time": RESNET, "at": began}), flush=True)
            break
        nets.begin(*next(shares), seed=wave)
        took = nets.train(steps)
        per_step, ended = took / steps, now()
        mine = min(size.lanes, size.resnets - few.teachers)
        votes = nets.votes(asked[:n]).cpu().numpy()[:mine]
        few.add(votes)
        each = (now() - ended) / n
        by_wave.append(steps)
        facts = {"each": size.resnet_each, "steps": min(by_wave), "steps_by_wave": list(by_wave)}
        row = few.row(**facts)
        np.savez_compressed(out / f"part_{SOME}", counts=few.counts.astype(np.int16))
        (out / f"part_{SOME}").rename(out / SOME)
        kept(out / TEACHERS, [*rows, row])
        print(json.dumps({**row, "took": took, "at": now()}), flush=True)
        aside = now() - began - took
        if everywhere and wide.teachers == few.teachers - mine:  # all so far were asked on everything
            extra = now()
            if each * (len(true) - n) < everywhere:
                rest = nets.votes(asked[n:]).cpu().numpy()[:mine]
                wide.add(np.concatenate([votes, rest], axis=1))
                rows = [*(one for one in rows if one["kind"] != RESNET), wide.row(**facts)]
                keep_answers(out, wide)
            everywhere = max(0.0, everywhere - (now() - extra)) if wide.teachers == few.teachers else 0.0
            print(json.dumps({"on all public images": wide.teachers, "took": now() - extra}), flush=True)
    kept(out / TEACHERS, [*rows, few.row(each=size.resnet_each, steps=min(by_wave), steps_by_wave=by_wave)])
    (out / SOME).rename(out / RESNETS)  # all that come: students may begin


def keep_answers(out: Path, given: Answers) -> None:
    """Of all public images; with noise as GNMax's in the same share of the teachers as 100 is of 5,000."""
    noise = np.random.default_rng(0).normal(0, 100 * given.teachers / 5000, given.counts.shape)
    answers = {"plurality": given.counts.argmax(axis=1), "noisy": (given.counts + noise).argmax(axis=1)}
    by_name = {name: some.astype(np.int16) for name, some in answers.items()}
    np.savez_compressed(out / f"part_{EVERYWHERE}", teachers=given.teachers, **by_name)
    (out / f"part_{EVERYWHERE}").rename(out / EVERYWHERE)


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
    file, kind = out / "paper_glyph_votes.npz", "auto_" if size.auto else ""
    seen = [keep / f"{kind}{split}.npy" for split in ("public", "test")]
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
        votes=dict(np.load(file)) if file.is_file() and not size.as_many else {},
        features=() if nets else tuple(np.load(one).astype(np.float32) for one in seen),
    )
    del public, test
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def asked_resnets(known: Known) -> Known:
    """With the residual nets' votes, as soon as they are all there."""
    if known.size.as_many and not known.votes and (known.out / RESNETS).is_file():
        counts = np.load(known.out / RESNETS)["counts"]
        votes = {"counts": counts, "teachers": int(counts[0].sum()), "many_teachers": 0}
        if (known.out / EVERYWHERE).is_file():
            many = dict(np.load(known.out / EVERYWHERE))
            votes |= {"plurality": many["plurality"], "noisy": many["noisy"], "many_teachers": int(many["teachers"])}
        _KNOWN["known"] = known = replace(known, votes=votes, size=replace(known.size, teachers=votes["teachers"]))
    return known


def taught(learner: Any, public: Any, labels: Any, *, classes: int, seed: int) -> Any:
    """As `fit_student`, without its look at a linear student, which takes minutes on features of 100,000 images."""
    given = lessons(public, labels, classes=[str(k) for k in range(classes)], min_per_class=learner.min_per_class)
    return _taught(learner, given, seed=seed)


def fitted(learner: str, labels: Any, known: Known, seed: int, rows: Any = None) -> tuple[Any, Any, Any]:
    """A student, and the public and test rows as it sees them."""
    if learner in (FEATURES, AUTO):
        linear = SupervisedStudent(estimator=LinearDiscriminantAnalysis(solver="lsqr", shrinkage=0.05))
        return taught(linear, known.features[0], labels, classes=150, seed=seed), *known.features
    X = known.public if rows is None else rows
    return taught(learner_of(learner, known.size), X, labels, classes=150, seed=seed), X, known.test


def opinion_of(learner: str, *, resnets: bool) -> str:
    """Of the file with what a student of the first round says to the second one's questions."""
    kind = {FEATURES: "features", AUTO: "auto"}.get(learner) or list(LEARNERS).index(learner)
    return f"paper_glyph_{'resnet_' * resnets}proba_{kind}.npz"


def learned(job: Job) -> dict[str, Any]:
    """One student; for two rounds, the first one's opinion decides what the second one learns from."""
    known: Known = asked_resnets(_KNOWN["known"])
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
            name = opinion_of(job.learner, resnets=known.size.as_many)
            np.savez_compressed(known.out / name, proba=proba.astype(np.float16))
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
    if known.size.as_many and by_teachers(job.setting):
        one = job.setting in (MANY_PLURALITY, MANY_NOISY)
        more |= {"teachers_kind": RESNET, "teachers": known.votes["many_teachers" if one else "teachers"]}
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
    student = taught(learner, public, labels, classes=10, seed=job.seed)
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


@dataclass(frozen=True, kw_only=True)
class Pace:
    """How many students at once, for how long, and in which order."""

    workers: int = 4
    seconds: float = 300.0
    wait: bool = False  # for the residual nets' votes, which another process makes
    beside: int = 2  # students at once while they are made
    by_seed: bool = False  # the first seed of all groups first


def ended(job: Job, work: Work) -> bool:
    """Whether the votes that a student learns from are all there."""
    if not work.size.as_many or not by_teachers(job.setting):
        return True
    many = job.setting in (MANY_PLURALITY, MANY_NOISY)
    return (work.out / RESNETS).is_file() and (not many or (work.out / EVERYWHERE).is_file())


def learn(work: Work, *, groups: list[str], pace: Pace) -> None:
    """Students of these groups, side by side, until the time is up."""
    end, resnets = time.monotonic() + pace.seconds, work.size.as_many
    files = {kind: work.out / f"paper_glyph_{'resnet_' * kind}runs_{groups[0]}.json" for kind in (False, True)}
    done = {(run["setting"], run["learner"], run["seed"], kind)
            for kind in (False, True) for run in all_runs(work.out, resnets=kind)}  # fmt: skip
    every = list(dict.fromkeys(job for group in groups for job in GROUPS[group]))
    jobs = [job for job in every
            if (job.setting, job.learner, job.seed, resnets and by_teachers(job.setting)) not in done]  # fmt: skip
    if pace.by_seed:
        jobs.sort(key=lambda job: job.seed)
    nets = any(job.learner not in (FEATURES, AUTO) for job in jobs)
    images = any(job.setting not in MNIST for job in jobs)
    setup = (work.path, work.out, work.keep, work.size, nets, images)
    running: list[Any] = []
    with multiprocessing.get_context("spawn").Pool(pace.workers, initializer=ready, initargs=setup) as pool:
        while jobs or running:
            if time.monotonic() > end:
                print(json.dumps({"out of time": groups, "not begun": len(jobs), "ended": len(running)}), flush=True)
                return
            for one in [one for one in running if one.ready()]:
                running.remove(one)
                run = one.get()
                print(json.dumps(run, ensure_ascii=False), flush=True)
                file = files["teachers_kind" in run]
                if "failed" not in run:
                    kept(file, [*read(file), run])
            come = not resnets or (work.out / RESNETS).is_file()
            able = [job for job in jobs if ended(job, work)]
            if not able and not running and (come or not pace.wait):
                print(json.dumps({"no votes for": len(jobs)}), flush=True)
                return
            for job in able[: max(0, (pace.workers if come else pace.beside) - len(running))]:
                jobs.remove(job)
                running.append(pool.apply_async(attempted, (job,)))
            time.sleep(0.1)


def attempted(job: Job) -> dict[str, Any]:
    try:
        return learned(job)
    except Exception as error:  # the others go on
        return {**vars(job), "failed": f"{type(error).__name__}: {error}"[:500]}


def main() -> None:
    parser = argparse.ArgumentParser(description="Glyph at the paper's own parameters")
    verbs = parser.add_subparsers(dest="verb", required=True)
    for verb in ("votes", "features", "resnets", "learn"):
        one = verbs.add_parser(verb)
        one.add_argument("glyphs")
        one.add_argument("out", type=Path)
        one.add_argument("--size", choices=list(SIZES), default="full", help="toy: to try the script without a GPU")
        if verb != "resnets":
            one.add_argument("keep", type=Path)
        if verb in ("resnets", "learn"):
            one.add_argument("--seconds", type=float, default=300.0)
        if verb == "resnets":
            one.add_argument("--teachers", type=int, help="that many, in place of the size's 100")
            one.add_argument("--everywhere", type=float, default=0.0, metavar="SECONDS",
                             help="for so long the first of them vote on all public images too")  # fmt: skip
        if verb == "learn":
            every = [group for group in GROUPS if group != "auto"]
            one.add_argument("--groups", nargs="*", default=every, choices=list(GROUPS))
            one.add_argument("--workers", type=int, default=4, help="students side by side")
            one.add_argument("--resnets", action="store_true", help="by the votes that `resnets` left in OUT")
            one.add_argument("--wait", action="store_true", help="where `resnets` is still at work")
            one.add_argument("--beside", type=int, default=2, help="students side by side while it is")
            one.add_argument("--by-seed", action="store_true", help="the first seed of all groups first")
    given = parser.parse_args()
    size = SIZES[given.size]
    if (given.verb == "features" or "auto" in getattr(given, "groups", ())) and not size.auto:
        parser.error("Features without a GPU are for --size cpu.")
    match given.verb:
        case "votes":
            vote(given.glyphs, given.out, given.keep, size)
        case "features":
            features(given.glyphs, given.keep, size)
        case "resnets":
            size = replace(size, resnets=given.teachers or size.resnets)
            resnets(given.glyphs, given.out, size, seconds=given.seconds, everywhere=given.everywhere)
        case "learn":
            if given.resnets:  # the same questions; thresholds and noise as shares of the teachers
                size = replace(size, as_many=True)
            work = Work(path=given.glyphs, out=given.out, keep=given.keep, size=size)
            names = ("workers", "seconds", "wait", "beside", "by_seed")
            learn(work, groups=given.groups, pace=Pace(**{name: getattr(given, name) for name in names}))


if __name__ == "__main__":
    main()
