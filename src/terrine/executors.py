"""An ordered map over this process, one process per core, or a Ray cluster. Knows nothing of privacy.

``executor.map(function, tasks, shared=..., retries=3, progress=None)`` yields ``function(task, shared)`` in the order
of ``tasks``. Tasks are taken from their iterator, and results kept for their turn, a bounded number ahead. A task whose
worker dies is done again, up to ``retries`` times; an exception inside ``function`` is raised at once, as it is, and
not tried again. Nothing starts before the first result is asked for, and no worker outlives the iterator: its end, its
``close()``, an error or Ctrl-C stop them all. ``progress(n)`` is called with the number of tasks done so far.
"""

from __future__ import annotations

import heapq
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Literal, Protocol, TypeVar

from terrine import _validate
from terrine._optional import require
from terrine.errors import InputError, WorkerError

T = TypeVar("T")
R = TypeVar("R")
Progress = Callable[[int], object]

_AHEAD = 4  # tasks per worker that may be handed out before the first of them has been yielded
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")


@dataclass(frozen=True)
class Serial:
    """In this process, one after the other."""

    def map(
        self,
        function: Callable[[T, Any], R],
        tasks: Iterable[T],
        *,
        shared: Any = None,
        retries: int = 3,
        progress: Progress | None = None,
    ) -> Generator[R]:
        _validate.integer("retries", retries, at_least=0)
        return self._run(function, tasks, shared, progress)

    @staticmethod
    def _run(
        function: Callable[[T, Any], R], tasks: Iterable[T], shared: Any, progress: Progress | None
    ) -> Generator[R]:
        for done, task in enumerate(tasks, start=1):
            result = function(task, shared)
            if progress is not None:
                progress(done)
            yield result


@dataclass(frozen=True)
class Processes:
    """One process per core and one thread in each, by spawning: a script needs ``if __name__ == "__main__":``.

    ``function`` is defined at the top level of a module; ``shared`` is sent once to each worker.

    Args:
        n_workers: None is one for each core that this process may use.
    """

    n_workers: int | None = None

    def __post_init__(self) -> None:
        if self.n_workers is not None:
            _validate.integer("n_workers", self.n_workers, at_least=1)

    def map(
        self,
        function: Callable[[T, Any], R],
        tasks: Iterable[T],
        *,
        shared: Any = None,
        retries: int = 3,
        progress: Progress | None = None,
    ) -> Generator[R]:
        try:
            pickle.dumps(function)
        except Exception:
            name = getattr(function, "__qualname__", type(function).__name__)
            raise InputError(
                f"{name} must be a function defined at the top level of a module, so that worker processes can import "
                "it."
            ) from None
        n_workers = self.n_workers or _cores()
        return _ordered(lambda: _ProcessPool(function, shared, n_workers), tasks, retries, progress)


@dataclass(frozen=True)
class Ray:
    """Tasks on a Ray cluster; ``shared`` goes to its object store once.

    A Ray that this process is connected to already is used and left running. Otherwise it connects for the time of the
    map: to ``address``, or as ``ray.init`` does (``$RAY_ADDRESS``, a cluster on this machine, else a new local one).

    Args:
        address: of the head node, "host:port", or "local" for a new one on this machine.
        num_cpus_per_task: what each task reserves; Ray gives it as many threads.
        num_gpus_per_task: may be a fraction, for several tasks on one GPU.
        look_ahead: tasks handed to Ray at once; None is twice what the cluster can run now.
    """

    address: str | None = None
    num_cpus_per_task: float = 1
    num_gpus_per_task: float = 0
    look_ahead: int | None = None

    def __post_init__(self) -> None:
        for name in ("num_cpus_per_task", "num_gpus_per_task"):
            if _validate.number(name, getattr(self, name)) < 0:
                raise InputError(f"{name} must be at least 0, got {getattr(self, name)}.")
        if self.look_ahead is not None:
            _validate.integer("look_ahead", self.look_ahead, at_least=1)

    def map(
        self,
        function: Callable[[T, Any], R],
        tasks: Iterable[T],
        *,
        shared: Any = None,
        retries: int = 3,
        progress: Progress | None = None,
    ) -> Generator[R]:
        _ray()
        return _ordered(lambda: _RayPool(self, function, shared), tasks, retries, progress)


Executor = Serial | Processes | Ray

# What happened to a task: its result, the exception it raised, or why its worker died.
_Outcome = tuple[Literal["done", "raised", "died"], Any]


class _Pool(Protocol):
    window: int  # tasks between the next to be yielded and the last handed out

    def has_room(self) -> bool: ...
    def submit(self, index: int, task: Any) -> None: ...
    def send(self) -> None: ...  # what was submitted is on its way after this
    def wait(self) -> list[tuple[int, _Outcome]]: ...
    def stop(self, *, in_peace: bool) -> None: ...


def _ordered(
    start: Callable[[], _Pool], tasks: Iterable[Any], retries: int, progress: Progress | None
) -> Generator[Any]:
    retries = _validate.integer("retries", retries, at_least=0)
    return _deliver(start, tasks, retries, progress)


def _deliver(
    start: Callable[[], _Pool], tasks: Iterable[Any], retries: int, progress: Progress | None
) -> Generator[Any]:
    """Hand tasks out, collect what comes, yield it in order."""
    numbered = enumerate(tasks)
    handed: dict[int, Any] = {}  # tasks without a result yet
    again: list[int] = []  # a heap of those that lost their worker
    results: dict[int, Any] = {}  # waiting for their turn
    deaths: Counter[int] = Counter()
    turn = done = taken = 0
    more = True
    pool = start()
    in_peace = False
    try:
        while True:
            while pool.has_room():  # before a result is yielded: workers work while the caller does
                if not again and more and taken < turn + pool.window:
                    following = next(numbered, None)
                    if following is None:
                        more = False
                    else:
                        handed[following[0]] = following[1]
                        heapq.heappush(again, following[0])
                        taken += 1
                if not again:
                    break
                index = heapq.heappop(again)
                pool.submit(index, handed[index])
            pool.send()
            if turn in results:
                turn += 1
                yield results.pop(turn - 1)
                continue
            if not handed:
                in_peace = True
                return
            for index, (fate, value) in pool.wait():
                if fate == "raised":
                    raise value
                if fate == "died":
                    deaths[index] += 1
                    if deaths[index] > retries:
                        raise WorkerError(
                            f"Task {index} did not finish: {deaths[index]} worker(s) died on it in a row ({value})."
                        )
                    heapq.heappush(again, index)
                else:
                    results[index] = value
                    del handed[index]
                    done += 1
                    if progress is not None:
                        progress(done)
    finally:
        pool.stop(in_peace=in_peace)


def _attempt(common: tuple[Callable[[Any, Any], Any], Any], task: Any) -> _Outcome:
    """Runs in a worker; ``common`` is the function and what is shared."""
    function, shared = common
    try:
        return "done", function(task, shared)
    except BaseException as error:
        return "raised", _portable(error)


def _portable(error: BaseException) -> BaseException:
    """The exception with its traceback as a note; if it cannot be pickled, a plain one with its message."""
    note = "In a worker:\n" + "".join(traceback.format_exception(error))
    try:
        error.add_note(note)
        pickle.loads(pickle.dumps(error))
        return error
    except Exception:
        stand_in = WorkerError(f"{type(error).__name__}: {error}")
        stand_in.add_note(note)
        return stand_in


# Processes


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Delay Ctrl-C. Processes started meanwhile ignore it, since the terminal sends it to all of them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    """For processes started meanwhile: libraries read these when they are loaded, before any of our code runs."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@dataclass(eq=False)
class _Worker:
    process: BaseProcess
    connection: Connection
    index: int | None = None  # of the task in hand
    unsent: list[Any] = field(default_factory=list)


class _ProcessPool:
    """Workers with one task each, so that a death is one task's and costs no other worker its work."""

    def __init__(self, function: Callable[[Any, Any], Any], shared: Any, n_workers: int) -> None:
        self._function, self._shared, self._n_workers = function, shared, n_workers
        self._workers: list[_Worker] = []
        self._context = multiprocessing.get_context("spawn")
        self.window = _AHEAD * n_workers

    def has_room(self) -> bool:
        return len(self._workers) < self._n_workers or any(worker.index is None for worker in self._workers)

    def submit(self, index: int, task: Any) -> None:
        worker = next((worker for worker in self._workers if worker.index is None), None) or self._start()
        worker.index = index
        worker.unsent.append(task)

    def _start(self) -> _Worker:
        ours, theirs = self._context.Pipe()
        process = self._context.Process(target=_serve, args=(theirs,), daemon=True)
        with _interrupts_held(), _environment(_ONE_THREAD):
            process.start()
            worker = _Worker(process, ours, unsent=[(self._function, self._shared)])
            self._workers.append(worker)
        theirs.close()
        return worker

    def send(self) -> None:
        for worker in self._workers:  # apart from starting them, so that they wake up side by side
            with suppress(ConnectionError):  # a dead worker: seen below
                while worker.unsent:
                    worker.connection.send_bytes(pickle.dumps(worker.unsent[0], protocol=pickle.HIGHEST_PROTOCOL))
                    worker.unsent.pop(0)

    def wait(self) -> list[tuple[int, _Outcome]]:
        outcomes: list[tuple[int, _Outcome]] = []
        busy = {worker.connection: (worker, worker.index) for worker in self._workers if worker.index is not None}
        for connection in wait(list(busy)):
            worker, index = busy[connection]  # type: ignore[index]
            try:
                message = worker.connection.recv_bytes()
            except (EOFError, OSError):
                self._workers.remove(worker)
                outcomes.append((index, ("died", self._bury(worker, patience=1))))
            else:
                outcomes.append((index, pickle.loads(message)))
                worker.index = None
        return outcomes

    @staticmethod
    def _bury(worker: _Worker, *, patience: float) -> str:
        worker.connection.close()
        worker.process.join(patience)
        if worker.process.exitcode is None:
            worker.process.kill()
            worker.process.join()
        code = worker.process.exitcode or 0
        worker.process.close()
        if code < 0:
            return f"killed by signal {-code}" + ("; is memory short?" if code == -signal.SIGKILL else "")
        return f"exit code {code}" + ("; does the script start under if __name__ == '__main__'?" if code == 1 else "")

    def stop(self, *, in_peace: bool) -> None:
        with _interrupts_held():
            for worker in self._workers:
                worker.connection.close()  # ends an idle worker
                if not in_peace:
                    worker.process.terminate()
            while self._workers:
                self._bury(self._workers.pop(), patience=5 if in_peace else 1)


def _serve(connection: Connection) -> None:
    """A worker's life: the function and what is shared, then tasks until the parent hangs up."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    threading.Thread(target=_follow_parent, daemon=True).start()
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what a model prints past Python tells of its share
    with suppress(EOFError, OSError):  # the parent hung up
        common = _receive(connection)
        if "torch" in sys.modules:
            sys.modules["torch"].set_num_threads(1)
        while True:
            task = _receive(connection)
            bad = [message for message in (common, task) if message[0] == "raised"]
            outcome = bad[0] if bad else _attempt(common[1], task[1])
            try:
                message = pickle.dumps(outcome, protocol=pickle.HIGHEST_PROTOCOL)
            except Exception as error:  # a result that cannot be pickled
                message = pickle.dumps(("raised", _portable(error)))
            connection.send_bytes(message)


def _receive(connection: Connection) -> _Outcome:
    message = connection.recv_bytes()
    try:
        return "done", pickle.loads(message)
    except Exception as error:  # it cannot be unpickled here
        return "raised", _portable(error)


def _follow_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


# Ray


def _ray() -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    ray = require("ray", use="The Ray executor", extra="ray")
    require("ray.exceptions", use="The Ray executor", extra="ray")
    return ray


class _RayPool:
    """Ray finds the place for a task; deaths are counted here, so that ``retries`` means the same everywhere."""

    def __init__(self, settings: Ray, function: Callable[[Any, Any], Any], shared: Any) -> None:
        self._ray = ray = _ray()
        self._connected_here = not ray.is_initialized()
        self._running: dict[Any, int] = {}
        if self._connected_here:
            ray.init(address=settings.address, log_to_driver=False, logging_level="ERROR")
        try:
            slots = _slots(ray.nodes(), settings)
            self.window = settings.look_ahead or 2 * slots
            options = {"num_cpus": settings.num_cpus_per_task, "max_retries": 0}
            if settings.num_gpus_per_task:
                options["num_gpus"] = settings.num_gpus_per_task
            self._call = ray.remote(**options)(_attempt)
            self._common = ray.put((function, shared))
        except BaseException:
            self.stop(in_peace=False)
            raise

    def has_room(self) -> bool:
        return len(self._running) < self.window

    def submit(self, index: int, task: Any) -> None:
        self._running[self._call.remote(self._common, task)] = index

    def send(self) -> None:
        """Ray has them already."""

    def wait(self) -> list[tuple[int, _Outcome]]:
        ready, _ = self._ray.wait(list(self._running), num_returns=1)
        outcomes: list[tuple[int, _Outcome]] = []
        for reference in ready:
            index = self._running.pop(reference)
            try:
                outcomes.append((index, self._ray.get(reference)))
            except self._ray.exceptions.RayTaskError as error:  # before or after the function: unpickling, pickling
                outcomes.append((index, ("raised", error.cause or error)))
            except self._ray.exceptions.RayError as error:
                outcomes.append((index, ("died", type(error).__name__)))
        return outcomes

    def stop(self, *, in_peace: bool) -> None:
        with _interrupts_held():
            if self._running:
                for reference in self._running:
                    with suppress(Exception):  # a cluster that is gone
                        self._ray.cancel(reference, force=True)
                with suppress(Exception):
                    self._ray.wait(list(self._running), num_returns=len(self._running), timeout=5)
            if self._connected_here:
                self._ray.shutdown()


def _slots(nodes: list[dict[str, Any]], settings: Ray) -> int:
    """How many tasks the cluster can run at once; none is an error, for Ray would wait for ever."""
    wanted = {"CPU": settings.num_cpus_per_task, "GPU": settings.num_gpus_per_task}
    wanted = {name: amount for name, amount in wanted.items() if amount > 0}
    live = [node["Resources"] for node in nodes if node["Alive"]]
    fits = [min((int(node.get(name, 0) / amount) for name, amount in wanted.items()), default=1) for node in live]
    if not sum(fits):
        needed = " and ".join(f"{amount:g} {name}" for name, amount in wanted.items())
        raise InputError(
            f"No node of the Ray cluster has {needed}, which each task needs (nodes: {len(live)}). Add such a "
            "node, or lower num_cpus_per_task and num_gpus_per_task."
        )
    return sum(fits)
