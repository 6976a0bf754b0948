"""Glyph in one look: some of its records with the labels they carry, the wrong ones marked.

python experiments/glyph_samples.py   # writes docs/results/glyph_samples.{png,svg}; needs glyph/ under $TERRINE_DATA
"""

from __future__ import annotations

import numpy as np
from matplotlib import font_manager
from provenance import record
from votesets import DATA, RED, canvas, save

from terrine.datasets.fonts import Glyphs
from terrine.datasets.glyph import Glyph

ROWS, COLUMNS = 6, 14


def main() -> None:
    task = Glyph(Glyphs.load(DATA / "glyph" / "glyph_debian_1000faces.npz"), seed=0)
    indices = np.arange(ROWS * COLUMNS)
    images, labels = task.records("public", indices)
    drawn = task.plan("public", indices).true
    symbols = task.glyphs.symbols
    figure, axes = canvas(ROWS, COLUMNS, size=(10.5, 5.4))
    plain = font_manager.FontProperties(family="DejaVu Sans", size=11)
    for axis, image, label, truth in zip(axes.flat, images, labels, drawn, strict=True):
        axis.imshow(image, cmap="gray_r", vmin=0, vmax=255)
        axis.set_axis_off()
        wrong = label != truth
        said = symbols[label].replace("$", r"\$") + ("  ✗" if wrong else "")
        axis.set_title(said, fontproperties=plain, color=RED if wrong else "black", pad=2)
    save(figure, "glyph_samples")
    record("glyph_samples", "python experiments/glyph_samples.py")
    print(f"{(labels != drawn).sum()} of {len(labels)} labels are wrong")


if __name__ == "__main__":
    main()
