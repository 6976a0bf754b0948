"""The built-in data sets by name: load one, say what is public about it, fetch its files."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from terrine import _validate
from terrine.datasets import adult, files, fonts, glyph, mnist, svhn
from terrine.datasets.blobs import blobs
from terrine.datasets.data import Task
from terrine.errors import InputError

NAMES = ("mnist", "svhn", "adult", "glyph", "small-glyph", "blobs")
"""The built-in data sets, as `load` takes them."""

# What is public about each: the split's sizes, a row's shape, the classes, the terms as data/README.md has them.
_FACTS: dict[str, dict[str, Any]] = {
    "mnist": {
        "sizes": {"private": 60_000, "public": 9_000, "test": 1_000},
        "row": "(28, 28) uint8",
        "classes": mnist.CLASSES,
        "licence": "none stated",
    },
    "svhn": {
        "sizes": {"private": 604_388, "public": 10_000, "test": 16_032},
        "row": "(32, 32, 3) uint8",
        "classes": svhn.CLASSES,
        "licence": "its page: for non-commercial use only",
    },
    "adult": {
        "sizes": {"private": 32_561, "public": 8_140, "test": 8_141},
        "row": f"({len(adult.feature_names())},) float32",
        "classes": adult.CLASSES,
        "licence": "none stated",
    },
    "glyph": {
        "sizes": {"private": 100_000, "public": 100_000, "test": 400_000},
        "row": "(28, 28) uint8",
        "classes": tuple(fonts.SYMBOLS),
        "licence": "DFSG-free, per font package",
    },
    "small-glyph": {
        "sizes": {"private": 12_000, "public": 2_000, "test": 2_000},
        "row": "(28, 28) uint8",
        "classes": tuple(glyph.SMALL_SYMBOLS),
        "licence": "the fonts that matplotlib ships: DejaVu, STIX, Computer Modern",
    },
    "blobs": {
        "sizes": {"private": 2_000, "public": 500, "test": 500},
        "row": "(2,) float32",
        "classes": ("blob 0", "blob 1", "blob 2"),
        "licence": "made by terrine",
    },
}
_LOADERS: dict[str, Callable[..., Task]] = {
    "mnist": mnist.load_mnist,
    "svhn": svhn.load_svhn,
    "adult": adult.load_adult,
    "glyph": glyph.load_glyph,
    "small-glyph": glyph.small_glyph,
    "blobs": blobs,
}
_FILES = {"mnist": mnist.FILES, "svhn": svhn.FILES, "adult": adult.FILES, "glyph": (glyph.STORE,)}


def load(name: str, **options: Any) -> Task:
    """A built-in data set, with its fixed split; ``options`` are those of its loader (docs/datasets.md)."""
    _validate.choice("name", name, NAMES)
    allowed = set(inspect.signature(_LOADERS[name]).parameters)
    if unknown := sorted(set(options) - allowed):
        raise InputError(
            f"The data set {name} has no option {', '.join(unknown)}. It has: {', '.join(sorted(allowed))}."
        )
    return _LOADERS[name](**options)


def describe(name: str) -> dict[str, Any]:
    """Public facts: sizes, classes, and where its files are (path None: nowhere) with whether their sha256 is right."""
    _validate.choice("name", name, NAMES)
    found = []
    for file in _FILES.get(name, ()):
        path = files.find(file)
        intact = None if path is None else files.intact(path, file)
        found.append({"file": file.path, "path": None if path is None else str(path), "sha256_ok": intact})
    if name == "glyph" and found[0]["path"] is None and (path := files.cache() / glyph.RENDERED).is_file():
        found = [{"file": glyph.RENDERED, "path": str(path), "sha256_ok": None}]  # this machine's own: no fixed sha256
    facts = _FACTS[name]
    return {"name": name, **facts, "n_classes": len(facts["classes"]), "files": found, "looked_in": _looked_in()}


def prepare(name: str, *, progress: files.Progress | None = None) -> dict[str, Any]:
    """Fetch (or, for glyph, render) whatever is missing, check it, and `describe` it."""
    _validate.choice("name", name, NAMES)
    if name == "glyph":
        glyph.glyph_store(progress=progress)
    else:
        for file in _FILES.get(name, ()):
            files.get(file, progress=progress)
    return describe(name)


def _looked_in() -> list[str]:
    return [str(folder) for folder in files.folders()]
