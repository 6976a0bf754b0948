"""Glyph, the paper's largest task made public: symbols in many faces, imbalanced, partly mislabeled, distorted."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from terrine import _validate
from terrine._files import write_atomically
from terrine.datasets import files
from terrine.datasets.data import PrivateData, PublicData, Task
from terrine.datasets.fonts import FONT_FOLDERS, SIDE, SYMBOLS, Glyphs, matplotlib_fonts, render
from terrine.errors import DataError

SPLITS = ("private", "public", "test")
IMBALANCE = 5.0  # the most frequent class against the rarest
MISLABELLED = 0.12  # of all records, in every split
CONFUSED = 0.5  # of the mislabeled records: labeled as the class's fixed look-alike; the rest as any other class

# Look-alikes, in pairs. A class whose look-alike is not in the task is taken for the class after it.
_PAIRS = (
    "0O 1I 2Z 3E 4A 5S 6G 7T 8B 9g Cc DÐ Ff HN J] Kk L[ Mm PR QØ VU Ww XY l| ji !? oe un rt yv xz qp bh da s$ "
    ",. '` \"^ #% &@ :; -~ =_ ({ )} /\\ <« >» +* ‘’ “” ÀÁ ÄÅ ÆŒ Çç ÈÉ ÊË ÌÍ ÎÏ Ññ ÒÓ ÔÖ ÙÜ Þß àá âä åæ èé êë ìí îï "
    "òó ôö ùú ûü"
)
PAIRS = tuple((pair[0], pair[1]) for pair in _PAIRS.split(" "))

STORE = files.DataFile(
    path="glyph/glyph_debian_1000faces.npz",
    sha256=("ce307f7d7cfb3ef64675d429db0afa76ad9e7965943d8cd9e0777691b8540419",),
)
RENDERED = "glyph/glyphs.npz"  # what this machine's fonts give, in the user's cache
SMALL_SYMBOLS = "ABCDEFGHKLMNPRTUWXY23479"
SMALL_FACES = (
    *(f"DejaVuSans{style}" for style in ("", "-Bold", "-Oblique", "-BoldOblique")),
    *(f"DejaVuSansMono{style}" for style in ("", "-Bold", "-Oblique", "-BoldOblique")),
    *(f"DejaVuSerif{style}" for style in ("", "-Bold", "-Italic", "-BoldItalic")),
    *(f"STIXGeneral{style}" for style in ("", "Bol", "Italic", "BolIta")),
    *("cmb10", "cmmi10", "cmr10", "cmss10", "cmti10", "cmtt10"),
)

_CHUNK = 1024  # records distorted at a time: their working arrays stay in the processor's cache
_CENTRE = (SIDE - 1) / 2
_ROOM = 25.5  # pixels that the ink may span
_DRAWS = 13  # random numbers of a record, pixels' noise apart
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True, eq=False, repr=False)
class Plan:
    """What some records are, before they are drawn: enough to draw them elsewhere, as on a GPU.

    A record is ``glyphs.X[base]`` through ``affine``, made bolder or thinner by ``stroke``, times ``contrast``, plus
    noise of standard deviation ``noise`` in grey levels; pixels' noise on the CPU is hashed from ``key``.
    """

    base: NDArray[np.int64]  # (n,) index of the stored glyph
    true: NDArray[np.int64]  # (n,) the symbol that is drawn
    label: NDArray[np.int64]  # (n,) the symbol that it is said to be
    affine: NDArray[np.float32]  # (n, 2, 3): offset (row, column, 1) from the center of the record -> of the glyph
    stroke: NDArray[np.float32]  # (n,) above 0: this far toward the maximum of 5 neighbors; below: minimum
    contrast: NDArray[np.float32]  # (n,)
    noise: NDArray[np.float32]  # (n,)
    key: NDArray[np.uint64]  # (n,)

    def __len__(self) -> int:
        return len(self.base)


class Glyph:
    """Seeded distortions of stored glyphs, made on the fly: any number of records, each a function of (seed, split, i).

    Faces are dealt to the splits by a permutation that the seed fixes; no face is in two splits.

    Args:
        glyphs: the stored glyphs.
        seed: a whole number; it fixes the split of the faces, the frequent classes, and every record.
        shares: of the faces, for private, public and test.
    """

    def __init__(self, glyphs: Glyphs, *, seed: int = 0, shares: tuple[float, float, float] = (0.8, 0.1, 0.1)) -> None:
        self.glyphs = glyphs
        self.seed = _validate.integer("seed", seed, at_least=0)
        self.classes = tuple(glyphs.symbols)
        faces = np.unique(glyphs.face)
        if len(faces) < 3:
            raise DataError(
                f"There must be at least 3 font faces, one for each split, got {len(faces)}. Install more fonts."
            )
        rng = np.random.default_rng([self.seed, 101])
        held = [max(1, round(share / sum(shares) * len(faces))) for share in shares[1:]]
        private, public, test = np.split(rng.permutation(faces), [len(faces) - sum(held), len(faces) - held[1]])
        self.faces: dict[str, NDArray[np.int64]] = {
            "private": np.sort(private),
            "public": np.sort(public),
            "test": np.sort(test),
        }
        n_classes = len(self.classes)
        weights = IMBALANCE ** (rng.permutation(n_classes) / (n_classes - 1))
        self.frequencies: NDArray[np.float64] = weights / weights.sum()  # (n_classes,) of the symbols drawn
        self.confused: NDArray[np.int64] = _look_alikes(self.classes)  # (n_classes,)
        self._order: dict[str, tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]] = {}
        for split in SPLITS:
            mine = np.flatnonzero(np.isin(glyphs.face, self.faces[split]))
            mine = mine[np.argsort(glyphs.y[mine], kind="stable")]
            counts = np.bincount(glyphs.y[mine], minlength=n_classes)
            if (counts == 0).any():
                symbol = self.classes[int(np.argmin(counts))]
                n_faces = len(self.faces[split])
                raise DataError(
                    f"None of the {n_faces} {split} faces has the symbol {symbol!r}. Install more fonts, or leave the "
                    "symbol out."
                )
            self._order[split] = mine, np.cumsum(counts) - counts, counts

    def __repr__(self) -> str:
        faces = ", ".join(f"{len(self.faces[split])} {split}" for split in SPLITS)
        return f"<Glyph: {len(self.classes)} classes, faces: {faces}, seed {self.seed}>"

    def plan(self, split: str, indices: ArrayLike) -> Plan:
        """What the records with these indices are."""
        _validate.choice("split", split, SPLITS)
        rows = np.asarray(indices)
        if rows.ndim != 1 or rows.dtype.kind not in "iu" or (rows.size and rows.min() < 0):
            raise DataError("indices must be a list of whole numbers of at least 0.")
        sequence = np.random.SeedSequence([self.seed, 1 + SPLITS.index(split)])
        with np.errstate(over="ignore"):
            key = _mix(sequence.generate_state(1, np.uint64) + (rows.astype(np.uint64) + np.uint64(1)) * _GOLDEN)
            steps = np.arange(1, _DRAWS + 1, dtype=np.uint64) * _GOLDEN
            words = _mix(key[:, None] ^ _mix(steps)) >> np.uint64(11)
        u = words.astype(np.float64) * 2.0**-53  # (n, draws) in [0, 1)
        order, starts, counts = self._order[split]
        n_classes = len(self.classes)
        true = np.minimum(np.searchsorted(np.cumsum(self.frequencies), u[:, 0], side="right"), n_classes - 1)
        base = order[starts[true] + (u[:, 1] * counts[true]).astype(np.int64)]
        other = (true + 1 + (u[:, 3] * (n_classes - 1)).astype(np.int64)) % n_classes
        label = np.where(
            u[:, 2] >= MISLABELLED, true, np.where(u[:, 2] < MISLABELLED * CONFUSED, self.confused[true], other)
        )
        return Plan(
            base=base,
            true=true,
            label=label,
            affine=self._affine(base, 2 * u[:, 4:10] - 1),
            stroke=(0.9 * u[:, 10] - 0.3).astype(np.float32),
            contrast=(0.6 + 0.4 * u[:, 11]).astype(np.float32),
            noise=(24 * u[:, 12] ** 2).astype(np.float32),
            key=key,
        )

    def records(
        self, split: str, indices: ArrayLike, *, progress: files.Progress | None = None
    ) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """Images (n, 28, 28) and the labels that they carry, right or wrong."""
        rows = np.asarray(indices)
        self.plan(split, rows[:0])  # refuses what is no list of indices, before memory is taken
        n = len(rows)
        X, y = np.empty((n, SIDE, SIDE), dtype=np.uint8), np.empty(n, dtype=np.int64)
        for start in range(0, n, _CHUNK):
            part = slice(start, start + _CHUNK)
            plan = self.plan(split, rows[part])
            X[part], y[part] = _draw(self.glyphs.X, plan), plan.label
            if progress is not None:
                progress(f"{split} records", min(start + _CHUNK, n), n)
        return X, y

    def write(self, split: str, n: int, folder: str | Path, *, progress: files.Progress | None = None) -> None:
        """Write records 0 to n as X.npy and y.npy in bounded memory, for `read_private` to map; whole or not at all."""
        n, folder = _validate.integer("n", n, at_least=1), Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        labels = np.empty(n, dtype=np.int64)
        step = 16 * _CHUNK

        def images(file: Any) -> None:
            header = {"descr": "|u1", "fortran_order": False, "shape": (n, SIDE, SIDE)}
            np.lib.format.write_array_header_1_0(file, header)
            for start in range(0, n, step):
                X, y = self.records(split, np.arange(start, min(start + step, n)))
                file.write(X.tobytes())
                labels[start : start + step] = y
                if progress is not None:
                    progress(f"{split} records", min(start + step, n), n)

        write_atomically(folder / "X.npy", images)
        write_atomically(folder / "y.npy", lambda file: np.save(file, labels))

    def data_set(
        self,
        *,
        n_private: int,
        n_public: int,
        n_test: int,
        true_labels: bool = False,
        name: str = "glyph",
        progress: files.Progress | None = None,
    ) -> Task:
        """The first records of each split, in memory.

        ``public_y`` and ``test_y`` are mislabeled like all else, as in the paper, or the truth with ``true_labels``.
        """
        sizes = {"private": n_private, "public": n_public, "test": n_test}
        rows = {s: np.arange(_validate.integer(f"n_{s}", n, at_least=1)) for s, n in sizes.items()}
        parts = {split: self.records(split, rows[split], progress=progress) for split in SPLITS}
        held_y = {s: self.plan(s, rows[s]).true if true_labels else parts[s][1] for s in ("public", "test")}
        return Task(
            name=name,
            private=PrivateData(*parts["private"]),
            public=PublicData(parts["public"][0]),
            public_y=held_y["public"],
            test_X=parts["test"][0],
            test_y=held_y["test"],
            classes=self.classes,
        )

    def _affine(self, base: NDArray[np.int64], u: NDArray[np.float64]) -> NDArray[np.float32]:
        """Turned by up to 9 degrees, slanted, scaled by up to a sixth, moved by up to 1.5 pixels; ink stays inside."""
        turn, slant, size, aspect = 0.15 * u[:, 0], 0.15 * u[:, 1], np.exp(0.12 * u[:, 2]), np.exp(0.08 * u[:, 3])
        cos, sin, tall, wide = np.cos(turn), np.sin(turn), size * aspect, size / aspect
        # glyph -> record, on offsets (row, column) from the centre: rotation x slant x scale
        forward = np.empty((len(base), 2, 2))
        forward[:, 0, 0], forward[:, 0, 1] = tall * (cos - sin * slant), -sin * wide
        forward[:, 1, 0], forward[:, 1, 1] = tall * (sin + cos * slant), cos * wide
        box = self._boxes[base]  # (n, 2, 2): axis, first and last
        corners = np.stack([box[:, 0][:, [0, 0, 1, 1]], box[:, 1][:, [0, 1, 0, 1]]], axis=1)  # (n, 2, 4)
        moved = forward @ corners
        fit = np.minimum(1, _ROOM / np.maximum(np.ptp(moved, axis=2).max(axis=1), 1))[:, None, None]
        forward, moved = forward * fit, moved * fit
        low, high = -_ROOM / 2 - moved.min(axis=2), _ROOM / 2 - moved.max(axis=2)  # shifts that keep the ink inside
        shift = np.clip(1.5 * u[:, 4:6], low, high)
        inverse = np.linalg.inv(forward)
        return np.concatenate([inverse, -inverse @ shift[:, :, None]], axis=2).astype(np.float32)

    @cached_property
    def _boxes(self) -> NDArray[np.float64]:
        """Where the ink of each stored glyph is: (n_glyphs, 2 axes, first and last) as offsets from the center."""
        ink: NDArray[np.bool_] = self.glyphs.X > 32
        spans: list[NDArray[np.bool_]] = [np.any(ink, axis=2), np.any(ink, axis=1)]
        first = np.stack([span.argmax(axis=1) for span in spans], axis=1)
        last = np.stack([SIDE - 1 - span[:, ::-1].argmax(axis=1) for span in spans], axis=1)
        return np.stack([first, last], axis=2) - _CENTRE


def glyph_store(*, progress: files.Progress | None = None) -> Path:
    """The stored glyphs: the 1,000 Debian faces where they are, else this machine's fonts, rendered once and cached."""
    if files.find(STORE) is not None:
        return files.get(STORE)
    path = files.cache() / RENDERED
    if not path.is_file():
        render(FONT_FOLDERS, symbols=SYMBOLS, progress=progress).save(path)
    return path


def load_glyph(
    *,
    n_private: int = 100_000,
    n_public: int = 100_000,
    n_test: int = 400_000,
    seed: int = 0,
    true_labels: bool = False,
    store: str | Path | None = None,
    progress: files.Progress | None = None,
) -> Task:
    """150 symbols in memory; ``store`` is a file that `Glyphs.save` wrote. More rows than fit: `Glyph.write`."""
    task = Glyph(_stored(Path(store) if store else glyph_store(progress=progress)), seed=seed)
    return task.data_set(
        n_private=n_private, n_public=n_public, n_test=n_test, true_labels=true_labels, progress=progress
    )


def small_glyph(
    *, n_private: int = 12_000, n_public: int = 2_000, n_test: int = 2_000, seed: int = 0, true_labels: bool = False
) -> Task:
    """24 symbols in the 22 Latin faces that matplotlib ships: a task that needs no download."""
    task = small_task(seed=seed)
    return task.data_set(
        n_private=n_private, n_public=n_public, n_test=n_test, true_labels=true_labels, name="small-glyph"
    )


def small_task(*, seed: int = 0) -> Glyph:
    """The `Glyph` of `small_glyph`."""
    return Glyph(_small_glyphs(), seed=seed, shares=(0.6, 0.2, 0.2))


@lru_cache(maxsize=1)
def _small_glyphs() -> Glyphs:
    folder = matplotlib_fonts()
    return render([folder / f"{face}.ttf" for face in SMALL_FACES], symbols=SMALL_SYMBOLS)


@lru_cache(maxsize=1)
def _stored(path: Path) -> Glyphs:
    return Glyphs.load(path)


def _look_alikes(classes: tuple[str, ...]) -> NDArray[np.int64]:
    partner = {a: b for pair in PAIRS for a, b in (pair, pair[::-1])}
    index = {symbol: k for k, symbol in enumerate(classes)}
    return np.array([index.get(partner.get(symbol, ""), (k + 1) % len(index)) for k, symbol in enumerate(classes)])


def _mix(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of SplitMix64: whole numbers to whole numbers that look random."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


def _draw(glyphs: NDArray[np.uint8], plan: Plan) -> NDArray[np.uint8]:
    """A plan's records: bilinear sampling, stroke, contrast, noise."""
    affine, width = plan.affine, SIDE + 2
    base = np.zeros((len(affine), width, width), dtype=np.float32)
    base[:, 1:-1, 1:-1] = glyphs[plan.base]
    offset = np.arange(SIDE, dtype=np.float32) - np.float32(_CENTRE)
    down, across = (
        np.clip(
            affine[:, axis, 0, None, None] * offset[:, None]
            + (affine[:, axis, 1, None, None] * offset + (affine[:, axis, 2, None, None] + np.float32(_CENTRE + 1))),
            0,
            np.float32(width - 1.001),
        )
        for axis in (0, 1)
    )
    row, column = down.astype(np.intp), across.astype(np.intp)
    down -= row
    across -= column
    row *= width
    row += column
    row += (np.arange(len(base)) * width**2)[:, None, None]
    flat = base.reshape(-1)
    four = [flat[step:].take(row, mode="clip") for step in (0, 1, width, width + 1)]  # inside by the clip above
    above, below = (left + across * (right - left) for left, right in (four[:2], four[2:]))
    image = above + down * (below - above)
    stroke = plan.stroke[:, None, None]
    for bolder, reduce in ((True, np.maximum), (False, np.minimum)):
        some = np.flatnonzero((plan.stroke > 0) == bolder)
        chosen = image[some]
        image[some] += np.abs(stroke[some]) * (_neighbours(chosen, reduce) - chosen)
    image *= plan.contrast[:, None, None]
    with np.errstate(over="ignore"):
        words = _mix(plan.key[:, None] + np.arange(1, SIDE**2 // 4 + 1, dtype=np.uint64) * _GOLDEN)
    octets = words.astype("<u8").view(np.uint8).reshape(len(base), SIDE, SIDE, 2)
    grain = (octets[..., 0].astype(np.float32) + octets[..., 1] - 255) * np.float32(1 / 104.5)  # of deviation 1
    image += plan.noise[:, None, None] * grain
    drawn: NDArray[np.uint8] = np.clip(image, 0, 255).astype(np.uint8)
    return drawn


def _neighbours(image: NDArray[np.float32], reduce: Any) -> NDArray[np.float32]:
    """The largest, or smallest, of a pixel and its four neighbors; beyond the edge is black."""
    padded = np.pad(image, ((0, 0), (1, 1), (1, 1)))
    result = image
    for other in (padded[:, :-2, 1:-1], padded[:, 2:, 1:-1], padded[:, 1:-1, :-2], padded[:, 1:-1, 2:]):
        result = reduce(result, other)
    return np.asarray(result, dtype=np.float32)
