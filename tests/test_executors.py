"""The ordered map: order, laziness, dead workers, exceptions, Ctrl-C, one thread each, and nobody left behind."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

from terrine.errors import InputError, MissingDependencyError, WorkerError
from terrine.executors import Processes, Ray, Serial

EXECUTORS = [Serial(), Processes(n_workers=2)]


def children(pid: int | None = None) -> list[int]:
    """Live and zombie children of a process, but for multiprocessing's resource tracker and other tests' databases."""
    own = str(pid or os.getpid())
    found = []
    for folder in Path("/proc").iterdir():
        try:
            parent = (folder / "stat").read_text().rpartition(")")[2].split()[1]
            command = (folder / "cmdline").read_bytes()
        except (OSError, IndexError):
            continue
        if parent == own and b"resource_tracker" not in command and b"postgres" not in command:
            found.append(int(folder.name))
    return found


def exists(pid: int) -> bool:
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def gone(pids: list[int], *, within: float) -> bool:
    end = time.monotonic() + within
    while time.monotonic() < end:
        if not any(map(exists, pids)):
            return True
        time.sleep(0.02)
    return False


# What workers run: top-level functions of (task, shared).
def add(task, shared):
    return task + shared


def slow_first(task, shared):
    time.sleep(0.3 if task == 0 else 0)
    return task, os.getpid()


def pid_and_threads(task, shared):
    import numpy as np
    import threadpoolctl

    np.ones((64, 64)) @ np.ones((64, 64))
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    pools = [pool["num_threads"] for pool in threadpoolctl.threadpool_info()]
    return os.getpid(), [os.environ.get(name) for name in names], pools


def die_once(task, shared):
    marker = Path(shared) / str(task)
    if task in (1, 5) and not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return task * task


def die_always(task, shared):
    with (Path(shared) / "tries").open("a") as file:
        file.write(f"{task}\n")
    if task == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.05)
    return task


def fail(task, shared):
    with (Path(shared) / "tries").open("a") as file:
        file.write(f"{task}\n")
    if task == 1:
        raise KeyError("own message")
    time.sleep(60 if task == 0 else 0)
    return task


class Awkward(Exception):
    def __init__(self, one, two):
        super().__init__(f"{one} and {two}")


def fail_awkwardly(task, shared):
    raise Awkward("this", "that")


def unpicklable_result(task, shared):
    return lambda: None


def leave(task, shared):
    sys.exit(7)


def sleep_long(task, shared):
    (Path(shared) / f"pid{os.getpid()}").touch()
    time.sleep(60)


def die_while_answering(task, shared):
    marker = Path(shared) / "died"
    if task == 1 and not marker.exists():
        marker.touch()
        threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGKILL)).start()
    return bytes(3_000_000) if task == 1 else task


def die_in_silence(task, shared):
    os._exit(3)


@pytest.mark.parametrize("executor", EXECUTORS, ids=repr)
def test_results_come_in_order_and_progress_counts(executor):
    seen = []
    assert list(executor.map(add, range(50), shared=1000, progress=seen.append)) == list(range(1000, 1050))
    assert seen == list(range(1, 51))
    assert list(executor.map(add, [], shared=1)) == []
    assert children() == []


def test_a_slow_first_task_does_not_disturb_the_order():
    results = list(Processes(n_workers=2).map(slow_first, range(8)))
    assert [task for task, _ in results] == list(range(8))
    assert len({pid for _, pid in results}) == 2


@pytest.mark.parametrize("executor", EXECUTORS, ids=repr)
def test_tasks_are_taken_as_needed_and_closing_ends_everything(executor):
    taken = []

    def endless():
        for number in itertools.count():
            taken.append(number)
            yield number

    results = executor.map(add, endless(), shared=0)
    assert taken == []  # nothing before the first result is asked for
    assert children() == []
    assert [next(results) for _ in range(5)] == [0, 1, 2, 3, 4]
    assert len(taken) <= 5 + 8
    results.close()
    assert children() == []
    with pytest.raises(StopIteration):
        next(results)


@pytest.mark.parametrize("executor", EXECUTORS, ids=repr)
def test_an_error_in_the_tasks_themselves_ends_everything(executor):
    def broken():
        yield 1
        raise OSError("no more tasks")

    with pytest.raises(OSError, match="no more tasks"):
        list(executor.map(add, broken(), shared=0))
    assert children() == []


def test_a_killed_worker_is_replaced_and_its_task_done_again(tmp_path):
    results = Processes(n_workers=2).map(die_once, range(10), shared=str(tmp_path), retries=1)
    assert list(results) == [task * task for task in range(10)]
    assert {path.name for path in tmp_path.iterdir()} == {"1", "5"}
    assert children() == []


def test_a_worker_killed_in_the_middle_of_its_answer(tmp_path):
    results = Processes(n_workers=1).map(die_while_answering, range(3), shared=str(tmp_path))
    assert next(results) == 0
    marker = tmp_path / "died"
    end = time.monotonic() + 60
    while not marker.exists():
        assert time.monotonic() < end  # a worker works while nobody asks for the next result
        time.sleep(0.05)
    time.sleep(1)  # its answer fills the pipe meanwhile, and nobody reads
    assert list(results) == [bytes(3_000_000), 2]


def test_a_task_that_always_kills_its_worker_is_named_and_costs_no_other(tmp_path):
    with pytest.raises(
        WorkerError, match=r"Task 2 did not finish: 3 worker\(s\) died on it in a row \(killed by signal 9"
    ):
        list(Processes(n_workers=2).map(die_always, range(20), shared=str(tmp_path), retries=2))
    tries = (tmp_path / "tries").read_text().split()
    assert tries.count("2") == 3
    assert all(tries.count(task) == 1 for task in set(tries) - {"2"})
    assert children() == []


def test_an_exit_without_a_word_is_a_death_too():
    with pytest.raises(WorkerError, match=r"Task 0 .* 1 worker.* died .*exit code 3"):
        list(Processes(n_workers=1).map(die_in_silence, [0], retries=0))


def test_an_exception_is_raised_at_once_as_it_is_and_not_tried_again(tmp_path):
    start = time.monotonic()
    with pytest.raises(KeyError) as caught:
        list(Processes(n_workers=2).map(fail, range(20), shared=str(tmp_path)))
    assert time.monotonic() - start < 30  # task 0 sleeps for 60 s
    assert caught.value.args == ("own message",)
    assert "in fail" in "".join(caught.value.__notes__)
    assert sorted((tmp_path / "tries").read_text().split()) in (["1"], ["0", "1"])  # 0 may be waking up still
    assert children() == []


def test_serial_raises_the_exception_itself(tmp_path):
    with pytest.raises(KeyError, match="own message"):
        list(Serial().map(fail, [1], shared=str(tmp_path)))


def test_what_cannot_be_pickled_is_said():
    processes = Processes(n_workers=1)
    with pytest.raises(WorkerError, match="Awkward: this and that"):
        list(processes.map(fail_awkwardly, [0]))
    with pytest.raises(Exception, match=r"(?i)pickle"):
        list(processes.map(unpicklable_result, [0]))
    with pytest.raises(InputError, match=r"<lambda> must be a function defined at the top level of a module"):
        processes.map(lambda task, shared: task, [0])
    with pytest.raises(Exception, match=r"(?i)pickle"):
        list(processes.map(add, [lambda: 0]))
    with pytest.raises(SystemExit, match="7"):
        list(processes.map(leave, [0]))
    assert children() == []


def test_one_thread_in_each_worker_and_this_process_keeps_its_own(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    for pid, values, pools in Processes(n_workers=1).map(pid_and_threads, range(2)):
        assert pid != os.getpid()
        assert values == ["1", "1", "1"]
        assert pools
        assert set(pools) == {1}
    assert os.environ["OMP_NUM_THREADS"] == "3"
    assert "MKL_NUM_THREADS" not in os.environ


def test_torch_has_one_thread_where_a_worker_has_it(tmp_path, monkeypatch):
    """A stand-in for torch, imported by the function's module, is told."""
    (tmp_path / "torch.py").write_text("threads = []\nset_num_threads = threads.append\n")
    (tmp_path / "user_of_torch.py").write_text("import torch\n\ndef ask(task, shared):\n    return torch.threads\n")
    monkeypatch.syspath_prepend(tmp_path)
    before = sys.modules.pop("torch", None)
    try:
        from user_of_torch import ask

        assert list(Processes(n_workers=1).map(ask, [0])) == [[1]]
    finally:
        sys.modules.pop("torch", None)
        sys.modules.pop("user_of_torch", None)
        if before is not None:
            sys.modules["torch"] = before


PROGRAM = """
    import signal, sys
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where tests were started in the background
    sys.path.insert(0, {tests!r})
    from test_executors import sleep_long
    from terrine.executors import Processes
    if __name__ == "__main__":
        try:
            list(Processes(n_workers=2).map(sleep_long, range(6), shared={folder!r}))
        except KeyboardInterrupt:
            print("interrupted", flush=True)
            raise SystemExit(130)
"""


@pytest.fixture
def program(tmp_path):
    """A program whose two workers are in the middle of a long task, and their process ids."""
    script = tmp_path / "program.py"
    started = tmp_path / "started"
    started.mkdir()
    script.write_text(textwrap.dedent(PROGRAM.format(tests=str(Path(__file__).parent), folder=str(started))))
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen([sys.executable, str(script)], start_new_session=True, **pipes)
    try:
        end = time.monotonic() + 120
        while len(list(started.iterdir())) < 2 and time.monotonic() < end and process.poll() is None:
            time.sleep(0.05)
        yield process, [int(path.name.removeprefix("pid")) for path in started.iterdir()]
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def test_ctrl_c_stops_the_workers_promptly_and_quietly(program):
    process, workers = program
    assert sorted(workers) == sorted(children(process.pid))
    start = time.monotonic()
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to all of them
    out, err = process.communicate(timeout=60)
    assert time.monotonic() - start < 30  # they sleep for 60 s
    assert (process.returncode, out, err) == (130, "interrupted\n", "")
    assert gone(workers, within=30)


def test_workers_do_not_outlive_a_killed_program(program):
    process, workers = program
    assert len(workers) == 2
    process.kill()
    assert gone(workers, within=30)


def test_bad_settings_are_refused():
    with pytest.raises(InputError, match="n_workers must be a whole number of at least 1, got 0"):
        Processes(n_workers=0)
    with pytest.raises(InputError, match="retries must be a whole number of at least 0"):
        Processes().map(add, [1], retries=-1)
    with pytest.raises(InputError, match="retries must be a whole number of at least 0"):
        Serial().map(add, [1], retries=-1)
    with pytest.raises(InputError, match="num_gpus_per_task must be at least 0"):
        Ray(num_gpus_per_task=-1)


def test_without_ray_the_error_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingDependencyError, match=r"Install it with: pip install 'terrine\[ray\]'"):
        Ray().map(add, [1])
