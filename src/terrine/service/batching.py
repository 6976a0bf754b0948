"""Where requests wait. Those that arrive while a group is answered form the next, charged and stored together."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Protocol

from terrine.errors import TeachersError, TerrineError
from terrine.labeller import Question
from terrine.mechanisms import Answers

Result = Answers | TerrineError
Waiting = tuple[Question, int, "asyncio.Future[Answers]"]  # its number of rows, and who waits


class Answering(Protocol):
    """A Labeller, or several, or a probe."""

    def label_each(self, requests: Sequence[Question]) -> list[Result]: ...


class Busy(TerrineError):
    """Too many requests are waiting."""


class Desk:
    """One thread that asks a labeller, a group at a time: two commits for all of it.

    Args:
        labeller: what answers.
        waiting: the most requests that may wait.
        at_once: the most rows that are asked together; a larger request is asked alone.
    """

    def __init__(self, labeller: Answering, *, waiting: int = 1024, at_once: int = 4096) -> None:
        self._labeller = labeller
        self._waiting = waiting
        self._at_once = at_once
        self._queue: deque[Waiting] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="terrine-desk", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive() and not self._closed

    def ask(self, question: Question, *, n_rows: int) -> asyncio.Future[Answers]:
        """A future of its answers. A question that nobody waits for any more is answered all the same."""
        future: asyncio.Future[Answers] = asyncio.get_running_loop().create_future()
        with self._changed:
            if self._closed or len(self._queue) >= self._waiting:
                raise Busy("Too many requests are waiting. Send this one again in a second.")
            self._queue.append((question, n_rows, future))
            self._changed.notify()
        return future

    def close(self) -> None:
        """Answer those who wait, then stop."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _work(self) -> None:
        while group := self._next():
            results: list[Result]
            try:
                results = list(self._labeller.label_each([question for question, _, _ in group]))
            except TerrineError as error:
                results = [error] * len(group)
            except Exception as error:  # its message may hold what teachers saw
                results = [
                    TeachersError(f"The teachers failed to answer ({type(error).__name__}). Why is withheld.")
                ] * len(group)
            told = zip((future for _, _, future in group), results, strict=True)
            with contextlib.suppress(RuntimeError):  # the loop has ended: nobody waits any more
                group[0][2].get_loop().call_soon_threadsafe(_tell, list(told))  # once for all: it wakes the loop

    def _next(self) -> list[Waiting]:
        """The requests that wait, in order, up to ``at_once`` rows; empty when it is time to stop."""
        with self._changed:
            while not self._queue and not self._closed:
                self._changed.wait()
            group: list[Waiting] = []
            rows = 0
            while self._queue and (not group or rows + self._queue[0][1] <= self._at_once):
                group.append(self._queue.popleft())
                rows += group[-1][1]
            return group


def _tell(told: Iterable[tuple[asyncio.Future[Answers], Result]]) -> None:
    for future, result in told:
        if future.done():
            continue
        if isinstance(result, TerrineError):
            future.set_exception(result)
        else:
            future.set_result(result)
