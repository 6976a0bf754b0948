"""What made each result: its command, the commit it ran from and the machine, kept in docs/results/runs.json.

    python experiments/provenance.py   # writes docs/results/README.md from it

Scripts of this folder call `record` when they have measured; drawing a page again from its JSON records nothing.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parents[1] / "docs" / "results"
RUNS = RESULTS / "runs.json"


def machine() -> str:
    """The processor, the cores this process may use, and the GPU that PyTorch would take."""
    found = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.is_file():
        names = [line.split(":")[1].strip() for line in info.read_text().splitlines() if line.startswith("model name")]
        found = names[0] if names else found
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    said = f"{found}, {cores} cores"
    try:
        import torch
    except ImportError:
        return said
    return f"{torch.cuda.get_device_name()}, {said}" if torch.cuda.is_available() else said


def commit() -> str:
    """The commit that is checked out, or "" outside of a repository; with a + where files of it were changed."""
    try:
        head = _git("rev-parse", "--short=10", "HEAD").strip()
        changed = _git("status", "--porcelain", "--untracked-files=no", "--", ":/src", ":/experiments", ":/benchmarks")
    except (OSError, subprocess.CalledProcessError):
        return ""
    return head + ("+" if changed.strip() else "")


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], capture_output=True, text=True, check=True, cwd=RESULTS).stdout


def record(name: str, command: str, *, ran_on: str | None = None, at: str | None = None) -> None:
    """Keep how docs/results/NAME came to be; ``command`` is as a reader would type it.

    Where it ran elsewhere or before: ``ran_on`` is `machine` there, ``at`` is `commit` then, if known.
    """
    runs: dict[str, Any] = json.loads(RUNS.read_text()) if RUNS.is_file() else {}
    runs[name] = {"command": command, "commit": at or commit(), "machine": ran_on or machine()}
    RUNS.write_text(json.dumps(dict(sorted(runs.items())), indent=1, ensure_ascii=False) + "\n")


def page(runs: dict[str, Any]) -> str:
    rows = []
    for name, run in runs.items():
        file = RESULTS / f"{name}.md"
        if file.is_file():
            title = file.read_text().splitlines()[0].removeprefix("# ")
            what = f"[{title}]({file.name})"
        else:
            what = f"[{name.replace('_', ' ')}]({name}.png)"
        rows.append(f"| {what} | `{run['command']}` | {run['commit']} | {run['machine']} |")
    return PAGE.format(rows="\n".join(rows))


PAGE = """# Results

Every table and figure, with the command that made it, the commit it ran from (+: with uncommitted changes) and the
machine. The numbers of each page are in a JSON file beside it; a test renders the pages from JSON again and compares.

```
make results                                  # all that a machine without a GPU can do, in about half an hour
make results VOTES=FOLDER FEATURES=FILE       # also what needs the files of GPU runs
```

| result | command | commit | machine |
|---|---|---|---|
{rows}

These GPU runs make the files: `python benchmarks/features_gpu.py MNIST.npz OUT` (features and votes of MNIST),
`python experiments/glyph_students.py vote GLYPHS.npz OUT KEEP` (votes of Glyph). `make bench` measures the time and
memory of the parts, under `benchmarks/results/`.
"""


def main() -> None:
    (RESULTS / "README.md").write_text(page(json.loads(RUNS.read_text())))


if __name__ == "__main__":
    main()
