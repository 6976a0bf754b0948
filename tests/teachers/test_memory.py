"""More private rows than memory should hold: the parent's peak stays far below them, from shares on disk to votes.

`make soak` takes 2,000,000 rows of 784 bytes and 1,000 teachers; `make test` a tenth of both.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import textwrap

from tests.conftest import need
from tests.soak import amount

N_ROWS, N_TEACHERS = amount((200_000, 100), soak=(2_000_000, 1_000))
PROGRAM = """
    import json, sys, time
    from pathlib import Path
    import numpy as np
    from sklearn.tree import DecisionTreeClassifier
    from terrine.datasets import PrivateData
    from terrine.executors import Processes
    from terrine.partitioning import partition, write_shares
    from terrine.teachers import SklearnTeacher, fit_teachers

    def peak():
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))

    if __name__ == "__main__":
        folder, n_teachers = Path(sys.argv[1]), int(sys.argv[2])
        clock, peaks, seconds = time.monotonic(), {}, {}

        def note(stage):
            peaks[stage], seconds[stage] = peak(), time.monotonic() - clock

        tree = SklearnTeacher(estimator=DecisionTreeClassifier(max_depth=6, max_features=60), chunk=5)
        tree.fit([(np.eye(4), np.arange(4))], ids=[0], n_classes=4, seed=0)  # all imports
        note("start")
        data = PrivateData(np.load(folder / "X.npy", mmap_mode="r"), np.load(folder / "y.npy", mmap_mode="r"))
        shares = partition(data, n_teachers=n_teachers, key=bytes(32))
        note("partition")
        kept = write_shares(data, shares, folder / "shares")
        note("write_shares")
        some = Processes(n_workers=int(sys.argv[3]))
        teachers = fit_teachers(kept, shares, tree, classes=range(10), seed=0, executor=some)
        note("fit_teachers")
        votes = teachers.vote(np.load(folder / "queries.npy"))
        note("vote")
        right = float((votes.counts.argmax(1) == np.load(folder / "answers.npy")).mean())
        print(json.dumps({"peaks": peaks, "seconds": seconds, "right": right, "teachers": votes.n_teachers}))
"""
# In another process: what it maps is not the program's
WRITER = """
    import sys
    import numpy as np
    folder, n_rows = sys.argv[1], int(sys.argv[2])
    rng = np.random.default_rng(0)
    middles = rng.integers(60, 190, size=(10, 784), dtype=np.uint8)

    def rows(n):
        y = rng.integers(10, size=n)
        return middles[y] ^ rng.integers(64, size=(n, 784), dtype=np.uint8), y

    X = np.lib.format.open_memmap(f"{folder}/X.npy", mode="w+", dtype=np.uint8, shape=(n_rows, 784))
    y = np.empty(n_rows, dtype=np.int64)
    block, labels = rows(10_000)
    for start in range(0, n_rows, 10_000):
        X[start : start + 10_000] = block ^ np.uint8(rng.integers(64))  # another noise for every block
        y[start : start + 10_000] = labels
    X.flush()
    np.save(f"{folder}/y.npy", y)
    queries, answers = rows(300)
    np.save(f"{folder}/queries.npy", queries)
    np.save(f"{folder}/answers.npy", answers)
"""


def run(tmp_path, program, *arguments):
    script = tmp_path / "program.py"
    script.write_text(textwrap.dedent(program))
    command = [sys.executable, str(script), str(tmp_path), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1200, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_the_parent_stays_small(tmp_path, record_property):
    size = N_ROWS * 784
    if shutil.disk_usage(tmp_path).free < 3 * size:
        need(f"{3 * size / 1e9:.1f} GB of disk")
    try:
        run(tmp_path, WRITER, N_ROWS)
        found = json.loads(run(tmp_path, PROGRAM, N_TEACHERS, amount(1, soak=2)))
    finally:
        for path in tmp_path.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    peaks = found["peaks"]
    for name, value in (("rows", N_ROWS), ("teachers", N_TEACHERS), ("peaks", peaks), ("seconds", found["seconds"])):
        record_property(name, value)
    assert found["teachers"] == N_TEACHERS
    assert found["right"] > 0.9  # they did learn
    assert peaks["vote"] < 1 << 30
    assert peaks["vote"] - peaks["start"] < size / 3
