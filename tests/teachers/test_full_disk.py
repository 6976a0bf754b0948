"""A disk that is really full: a tiny file system where one may be mounted, and the kernel's limit on a file everywhere.

A program teaches with too little room, for every amount of it, is told so in one line, gets more and goes on.
"""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap

import pytest

PROGRAM = """
    import json, os, resource, shutil, subprocess, sys
    from pathlib import Path
    import numpy as np
    from terrine.datasets import PrivateData
    from terrine.errors import StoreError
    from terrine.executors import Processes, Serial
    from terrine.partitioning import partition, write_shares
    from terrine.teachers import CentroidTeacher, TeacherEnsemble, fit_teachers
    from terrine.teachers.store import Store

    PLENTY = 1 << 24
    CHUNKS = [(0, 1, 2), (3, 4, 5), (6,)]

    def room(size, *, inodes=1000):
        if way == "limited":
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
        else:
            options = f"remount,size={size},nr_inodes={inodes}"
            subprocess.run(["mount", "-o", options, str(place)], check=True)

    def teach(**more):
        return fit_teachers(data, shares, teacher, classes=("a", "b"), seed=0, store=folder, **more)

    def whole():
        # Chunks that the store takes for finished: they can be read
        found = {}
        for chunk in CHUNKS:
            if Store(folder).has(chunk, teacher.suffix):
                teacher.loads(Store(folder).load(chunk, teacher.suffix))
                path = Store(folder).path(chunk, teacher.suffix)
                found[path.name] = (path.stat().st_ino, path.stat().st_mtime_ns)
        return found

    def attempt(size, *, inodes=1000, executor=None, later=False):
        # Teach with too little room (later: from the first chunk on); then with enough
        told = {"error": None}
        if not later:
            room(size, inodes=inodes)
        try:
            teach(executor=executor or Serial(), progress=(lambda _: room(size)) if later else None)
        except StoreError as error:
            told["error"] = str(error)
            try:
                TeacherEnsemble.load(folder, teacher)
            except StoreError:
                told["refused"] = True
        before = whole()
        told |= {"finished": len(before), "left": [path.name for path in place.rglob("*.tmp")]}
        room(PLENTY)
        told["votes"] = bool((teach().vote(X).counts == votes).all())
        told["kept"] = before.items() <= whole().items()
        shutil.rmtree(folder)
        return told

    def shares_on_disk(size):
        room(size)
        told = {}
        try:
            write_shares(data, shares, place / "shares")
        except OSError as error:
            told["error"] = error.strerror
        told["left"] = [path.name for path in place.iterdir()]
        room(PLENTY)
        kept = write_shares(data, shares, place / "shares")
        told["same"] = all((kept.share(k)[0] == data.X[shares.rows(k)]).all() for k in range(7))
        shutil.rmtree(kept.folder)
        return told

    if __name__ == "__main__":
        way, place, answer = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
        folder = place / "store"
        rng = np.random.default_rng(0)
        y = rng.integers(2, size=700)
        data = PrivateData(rng.normal(size=(700, 400)) + y[:, None], y)
        X = rng.normal(size=(50, 400)) + 0.5
        shares = partition(data, n_teachers=7, key=bytes(32))
        teacher = CentroidTeacher(chunk=3)  # needs no library that takes seconds to start
        votes = fit_teachers(data, shares, teacher, classes=("a", "b"), seed=0).vote(X).counts
        page = os.sysconf("SC_PAGE_SIZE")
        found = {"shares": shares_on_disk(16 * page)}
        if way == "limited":
            rounds = [attempt(100), attempt(2000), attempt(2000, later=True)]
        else:
            rounds = [attempt(page)]
            while rounds[-1]["error"]:
                rounds.append(attempt((len(rounds) + 1) * page))
            rounds.extend(attempt(PLENTY, inodes=inodes) for inodes in range(1, 9))
        if sys.argv[4] == "workers":
            rounds.append(attempt(2000 if way == "limited" else 5 * page, executor=Processes(n_workers=1)))
        found["rounds"] = [told for told in rounds if told["error"]]
        answer.write_text(json.dumps(found))
"""
MOUNTED = ["sh", "-c", 'mount -t tmpfs -o size=16m tmpfs "$0" && exec "$@"']


def ways() -> dict[str, list[str]]:
    """How to start a program with a small file system of its own, where that is allowed; and without."""
    for flags in ("-m", "-rm"):
        try:
            probe = subprocess.run(["unshare", flags, *MOUNTED, "/mnt", "true"], capture_output=True, check=False)
        except OSError:
            break
        if probe.returncode == 0:
            return {"mounted": ["unshare", flags, *MOUNTED], "limited": []}
    return {"limited": []}


WAYS = ways()


@pytest.mark.parametrize("way", WAYS)
def test_a_full_disk(tmp_path, way, record_property):
    """One test, and one program, for each way."""
    script, place, answer = tmp_path / "program.py", tmp_path / "disk", tmp_path / "answer.json"
    script.write_text(textwrap.dedent(PROGRAM))
    place.mkdir()
    inside = [*WAYS[way], str(place)] if WAYS[way] else []
    workers = "workers" if way == next(iter(WAYS)) else "none"  # once
    command = [*inside, sys.executable, str(script), way, str(place), str(answer), workers]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(answer.read_text())
    reason = {"mounted": "No space left on device", "limited": "File too large"}[way]
    rounds = found["rounds"]
    record_property("full disks", len(rounds))
    check_it_is_said_in_one_line_what_happened_and_what_to_do(rounds, place / "store", reason)
    check_every_kind_of_file_was_once_too_much(rounds, way)
    check_no_half_written_chunk_is_taken_for_a_whole_one(rounds)
    check_with_more_room_the_same_call_goes_on_to_the_same_votes(rounds)
    assert found["shares"] == {"error": reason, "left": [], "same": True}  # whole or not at all


def check_it_is_said_in_one_line_what_happened_and_what_to_do(rounds, store, reason):
    for told in rounds:
        written, _, rest = told["error"].partition(f" to {store}: ")
        assert written.startswith("Cannot write ")
        assert rest == f"{reason}. What was finished is kept; the same call continues from there."
        assert "\n" not in told["error"]


def check_every_kind_of_file_was_once_too_much(rounds, way):
    failed = {told["error"].split()[2] for told in rounds}
    chunks = [f"teachers-{ends}.safetensors" for ends in ("000000-000002", "000003-000005", "000006-000006")]
    if way == "mounted":
        beside = [f"{chunk}{end}" for chunk in chunks for end in (".failed", ".sha256")]
        assert failed == {"teachers", "manifest.json", *chunks, *beside}
    else:
        assert failed == {"manifest.json", *chunks[:2]}


def check_no_half_written_chunk_is_taken_for_a_whole_one(rounds):
    for told in rounds:
        assert told["refused"]  # an unfinished store
        assert told["left"] == []
    assert {told["finished"] for told in rounds} >= {0, 1}


def check_with_more_room_the_same_call_goes_on_to_the_same_votes(rounds):
    for told in rounds:
        assert told["votes"]
        assert told["kept"]  # what was finished was not taught again
