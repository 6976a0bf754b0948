"""Commands: export."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from terrine.cli.common import Json, app, print_json


@app.command()
def export(
    student: Annotated[Path, typer.Argument(help="A student's folder, or a run directory that has one.")],
    out: Annotated[Path, typer.Argument(metavar="MODEL.ONNX", help="The file to write.")],
    as_json: Json = False,
) -> None:
    """Write a student as an ONNX file, to run without terrine."""
    from terrine.students import load_student

    inner = student / "student"
    found = load_student(inner if inner.is_dir() else student)
    found.export_onnx(out)
    shape = [None, *found.about.row_shape]
    if as_json:
        print_json({"file": str(out), "input": {"rows": shape}, "classes": list(found.classes)})
    else:
        sizes = ", ".join("n" if size is None else str(size) for size in shape)
        print(f"{out}: rows ({sizes}) of float32 in, label and probabilities of {len(found.classes)} classes out.")
