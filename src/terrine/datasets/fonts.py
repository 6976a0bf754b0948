"""Symbols rendered once from every font face that has them: the glyphs of which Glyph makes its records."""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from terrine._files import write_atomically
from terrine._optional import require
from terrine.datasets.files import Progress
from terrine.errors import DataError, MissingDependencyError

SIDE = 28
# 150 symbols: ASCII, and the accented letters and quotation marks that most Latin faces have.
SYMBOLS = (
    "!\"#$%&'()*+,-./0123456789:;<=>?@ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopqrstuvwxyz{|}~"
    "«»ÀÁÄÅÆÇÈÉÊËÌÍÎÏÐÑÒÓÔÖØÙÜÞßàáâäåæçèéêëìíîïñòóôöùúûüŒ‘’“”"
)
FONT_FOLDERS = tuple(
    Path(folder).expanduser()
    for folder in (
        *(
            "/usr/share/fonts",
            "/usr/local/share/fonts",
            "/usr/share/texmf/fonts",
            "/usr/share/texlive/texmf-dist/fonts",
        ),
        *("~/.fonts", "~/.local/share/fonts", "/System/Library/Fonts", "/Library/Fonts", "C:/Windows/Fonts"),
    )
)
_ENDINGS = {".ttf", ".otf", ".ttc", ".otc"}
_LETTERS = {ord(letter) for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"}
_CAP_HEIGHT = 15  # pixels, of the letter H; a symbol that would not fit is drawn smaller
_BASELINE = 21  # the row on which letters stand
_FIT = 26


@dataclass(frozen=True, eq=False)
class Glyphs:
    """Rendered symbols: one image per face and symbol that the face has."""

    X: NDArray[np.uint8]  # (n_glyphs, 28, 28), white on black
    y: NDArray[np.int64]  # (n_glyphs,) index of the symbol
    face: NDArray[np.int64]  # (n_glyphs,) index of the face
    symbols: str
    fonts: tuple[str, ...]  # (n_faces,) names, for credits

    def __post_init__(self) -> None:
        n = len(self.X)
        if self.X.shape != (n, SIDE, SIDE) or self.X.dtype != np.uint8 or self.y.shape != (n,) or n == 0:
            raise DataError(
                f"X must be glyphs of shape (n, {SIDE}, {SIDE}) and uint8, got {self.X.shape}, {self.X.dtype}."
            )
        if self.face.shape != (n,) or not 0 <= self.y.min() <= self.y.max() < len(self.symbols):
            raise DataError(f"y must hold a symbol from 0 to {len(self.symbols) - 1} for every glyph, and face a face.")

    def __repr__(self) -> str:
        return f"<Glyphs: {len(self.X)} of {len(self.symbols)} symbols from {self.n_faces} faces>"

    @property
    def n_faces(self) -> int:
        return int(np.unique(self.face).size)

    def save(self, path: Path) -> None:
        """Write an .npz file of the format that `load` reads, whole or not at all."""
        arrays: dict[str, Any] = {
            "X": self.X,
            "y": self.y.astype(np.uint8),
            "face": self.face.astype(np.int32),
            "symbols": np.array([ord(symbol) for symbol in self.symbols], dtype=np.int32),
            "fonts": np.array(self.fonts),
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, lambda file: np.savez_compressed(file, **arrays))

    @classmethod
    def load(cls, path: Path) -> Glyphs:
        try:
            with np.load(path, allow_pickle=False) as arrays:
                return cls(
                    X=arrays["X"],
                    y=arrays["y"].astype(np.int64),
                    face=arrays["face"].astype(np.int64),
                    symbols="".join(map(chr, arrays["symbols"])),
                    fonts=tuple(str(font) for font in arrays["fonts"]),
                )
        except OSError:
            raise
        except DataError as error:
            raise DataError(f"{path}: {error}") from None
        except Exception:  # numpy raises many types for files that are not what they say
            raise DataError(f"{path}: must be an .npz file with X, y, face, symbols and fonts, and is not.") from None


def matplotlib_fonts() -> Path:
    """The folder of the fonts that matplotlib ships; matplotlib itself is not imported."""
    found = importlib.util.find_spec("matplotlib")
    folder = Path(found.origin).parent / "mpl-data" / "fonts" / "ttf" if found is not None and found.origin else None
    if folder is None or not folder.is_dir():
        raise MissingDependencyError(
            "The built-in fonts need matplotlib, which is not installed; install it with: pip install 'terrine[report]'"
        )
    return folder


def render(
    folders: Iterable[str | Path] = FONT_FOLDERS,
    *,
    symbols: str = SYMBOLS,
    at_least: int = 100,
    progress: Progress | None = None,
) -> Glyphs:
    """Every face in the folders or files that has the letters and digits asked for, and ``at_least`` symbols or more.

    A symbol that a face lacks, or draws as nothing or as its box for missing ones, is left out; so is a face that
    draws most symbols alike, and of faces that draw the same images only the first is kept: a split by face is one
    by look.
    """
    ttlib = require("fontTools.ttLib", use="Rendering fonts", extra="data")
    ImageFont = require("PIL.ImageFont", use="Rendering fonts", extra="data")
    logging.getLogger("fontTools").setLevel(logging.ERROR)
    wanted = [ord(symbol) for symbol in symbols]
    paths = sorted({path for folder in folders for path in _font_files(Path(folder))})
    images: list[NDArray[np.uint8]] = []
    labels: list[int] = []
    faces: list[int] = []
    names: list[str] = []
    seen: set[bytes] = set()
    for done, path in enumerate(paths, start=1):
        for number, covered in _coverage(path, ttlib):
            if not (_LETTERS & set(wanted)) <= covered or len(covered & set(wanted)) < min(at_least, len(symbols)):
                continue
            at_size = partial(ImageFont.truetype, str(path), index=number, layout_engine=ImageFont.Layout.BASIC)
            drawn = _draw_face(
                at_size,
                [k for k, code in enumerate(wanted) if code in covered],
                symbols,
            )
            look = b"".join(image.tobytes() for image in drawn.values())
            alike = 2 * len({image.tobytes() for image in drawn.values()}) < len(drawn)
            if len(drawn) < min(at_least, len(symbols)) or alike or look in seen:
                continue
            seen.add(look)
            labels.extend(drawn)
            images.extend(drawn.values())
            faces.extend([len(names)] * len(drawn))
            names.append(path.name if number == 0 else f"{path.name}#{number}")
        if progress is not None:
            progress("font files", done, len(paths))
    if not names:
        raise DataError(
            f"There is no Latin font face in the {len(paths)} font files. Install more fonts "
            "(on Debian: apt install fonts-dejavu fonts-liberation2 fonts-urw-base35), or name their folders."
        )
    return Glyphs(np.stack(images), np.array(labels), np.array(faces), symbols, tuple(names))


def _font_files(folder: Path) -> Iterator[Path]:
    if folder.is_file():
        yield folder
    if folder.is_dir():
        yield from (path for path in folder.rglob("*") if path.suffix.lower() in _ENDINGS and path.is_file())


def _coverage(path: Path, ttlib: Any) -> Iterator[tuple[int, set[int]]]:
    """Faces of a file by number, each with the code points that it has; a broken file has no faces."""
    try:
        with path.open("rb") as file:
            several = path.suffix.lower() in {".ttc", ".otc"}
            faces = ttlib.TTCollection(file, lazy=True).fonts if several else [ttlib.TTFont(file, lazy=True)]
            found = [set(face.getBestCmap() or {}) for face in faces]
    except Exception:  # fontTools raises many types for broken fonts, and there are many broken fonts
        return
    yield from enumerate(found)


def _draw_face(font: Callable[[float], Any], wanted: list[int], symbols: str) -> dict[int, NDArray[np.uint8]]:
    """Images by index of the symbol; ``font`` gives the face at a size."""
    try:
        _, top, _, bottom = font(100).getbbox("H", anchor="ls")
        size = 100 * _CAP_HEIGHT / max(bottom - top, 1)
        if not 5 <= size <= 100:
            return {}
        face = font(size)
        box = _draw(face, "\U0010fffe", font, size)
        drawn = {k: _draw(face, symbols[k], font, size) for k in wanted}
    except (OSError, ValueError):
        return {}
    return {k: image for k, image in drawn.items() if image.max() >= 64 and not np.array_equal(image, box)}


def _draw(face: Any, symbol: str, font: Callable[[float], Any], size: float) -> NDArray[np.uint8]:
    """One symbol, centered from left to right and standing on the baseline, moved or made smaller where it must be."""
    from PIL import Image, ImageDraw

    left, top, right, bottom = face.getbbox(symbol, anchor="ls")
    largest = max(right - left, bottom - top)
    if largest > _FIT:
        face = font(size * _FIT / largest)
        left, top, right, bottom = face.getbbox(symbol, anchor="ls")
    margin = (SIDE - _FIT) // 2
    x = round((SIDE - (right - left)) / 2) - left
    y = min(max(_BASELINE, margin - top), SIDE - margin - bottom)
    image = Image.new("L", (SIDE, SIDE))
    ImageDraw.Draw(image).text((x, y), symbol, fill=255, font=face, anchor="ls")
    return np.asarray(image, dtype=np.uint8)
