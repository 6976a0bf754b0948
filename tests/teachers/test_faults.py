"""Kill a worker, or the whole program, in the middle of teaching: the same teachers and votes in the end."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest
from tests.soak import amount
from tests.teachers.rows import CLASSES, PATIENT, images, shares_of, task
from tests.teachers.tasks import TEACHERS

from terrine.executors import Processes
from terrine.teachers import TeacherEnsemble, fit_teachers

KILLS = amount(1, soak=10)
N_TEACHERS, CHUNKS = 36, 12
DATA = task()
X = images(50, seed=1)[0]
KINDS = ["patient", *(pytest.param(name, marks=pytest.mark.soak) for name in ("nets", "forest"))]
PROGRAM = """
    if __name__ == "__main__":  # workers have no need of these imports
        import sys
        sys.path.insert(0, {root!r})
        from tests.teachers.rows import CLASSES, PATIENT, shares_of, task
        from terrine.executors import Processes
        from terrine.teachers import fit_teachers

        data, two = task(), Processes(n_workers=2)
        teacher, store = PATIENT, {store!r}
        if {name!r} != "patient":
            from tests.teachers.tasks import TEACHERS
            teacher = TEACHERS[{name!r}]
        fit_teachers(data, shares_of(data, {n}), teacher, classes=CLASSES, seed=0, executor=two, store=store)
"""


def start(tmp_path: Path, name: str) -> subprocess.Popen[bytes]:
    root = str(Path(__file__).parents[2])
    script = tmp_path / "program.py"
    script.write_text(
        textwrap.dedent(PROGRAM.format(root=root, name=name, store=str(tmp_path / "store"), n=N_TEACHERS))
    )
    return subprocess.Popen([sys.executable, str(script)])


def chunks(folder: Path) -> int:
    return len(list(folder.glob("teachers-*.sha256")))


def finished(folder: Path) -> dict[str, tuple[int, int]]:
    """Which file each finished chunk is, and since when: one that is written again is another."""
    whole = [path.with_suffix("") for path in folder.glob("teachers-*.sha256")]
    return {path.name: (path.stat().st_ino, path.stat().st_mtime_ns) for path in whole}


@pytest.mark.parametrize("name", KINDS)
def test_the_whole_program_is_killed_at_random_moments(tmp_path, name, record_property):
    record_property("kills", KILLS)
    rng = random.Random(4)
    store = tmp_path / "store"
    caught: list[dict[str, tuple[int, int]]] = []
    for _ in range(KILLS):
        before = chunks(store)
        program = start(tmp_path, name)
        end = time.monotonic() + 120
        while chunks(store) == before and program.poll() is None and time.monotonic() < end:
            time.sleep(0.005)
        time.sleep(rng.random() * 0.1)
        workers = children(program.pid)
        program.kill()
        program.wait()
        while any(map(alive, workers)):  # they follow it
            time.sleep(0.005)
        caught.append(finished(store))
    assert 0 < len(caught[0]) < CHUNKS  # some were finished, and some were not
    program = start(tmp_path, name)
    assert program.wait(timeout=300) == 0
    assert chunks(store) == CHUNKS
    assert not list(store.glob(".*"))
    in_the_end = finished(store)
    assert all(then.items() <= in_the_end.items() for then in caught)  # nothing was taught twice
    teacher = {"patient": PATIENT, **TEACHERS}[name]
    undisturbed = fit_teachers(
        DATA, shares_of(DATA, N_TEACHERS), teacher, classes=CLASSES, seed=0, store=tmp_path / "quiet"
    )
    resumed = TeacherEnsemble.load(store, teacher)
    assert (resumed.vote(X).counts == undisturbed.vote(X).counts).all()
    if name != "forest":  # skops' names for arrays are not the same twice
        for path in (tmp_path / "quiet").iterdir():
            assert path.read_bytes() == (store / path.name).read_bytes()


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def children(of: int) -> list[int]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = (folder / "stat").read_text().rpartition(")")[2].split()[1]
            command = (folder / "cmdline").read_bytes()
        except (OSError, IndexError):
            continue
        if parent == str(of) and b"spawn_main" in command:
            found.append(int(folder.name))
    return found


@pytest.mark.parametrize("name", KINDS)
def test_a_worker_is_killed_in_the_middle(tmp_path, name):
    store, killed = tmp_path / "store", []
    teacher = {"patient": PATIENT, **TEACHERS}[name]

    def kill() -> None:
        end = time.monotonic() + 120
        while not chunks(store) and time.monotonic() < end:
            time.sleep(0.005)
        for pid in children(os.getpid())[:1]:
            os.kill(pid, signal.SIGKILL)
            killed.append(chunks(store))

    shares = shares_of(DATA, N_TEACHERS)
    killer = threading.Thread(target=kill)
    killer.start()
    two = Processes(n_workers=2)
    taught = fit_teachers(DATA, shares, teacher, classes=CLASSES, seed=0, executor=two, store=store)
    killer.join()
    assert killed
    assert killed[0] < CHUNKS
    undisturbed = fit_teachers(DATA, shares, teacher, classes=CLASSES, seed=0)
    assert (taught.vote(X).counts == undisturbed.vote(X).counts).all()
    assert not list(store.glob(".*")) or teach_again_sweeps(store, shares, teacher)


def teach_again_sweeps(store: Path, shares, teacher) -> bool:
    fit_teachers(DATA, shares, teacher, classes=CLASSES, seed=0, store=store)
    return not list(store.glob(".*"))
