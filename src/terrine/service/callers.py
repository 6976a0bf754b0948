"""Who asks: keys from memory, at most a moment old, so that polling does not delay labels."""

from __future__ import annotations

import asyncio
import hashlib
import math
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from typing import Any, Generic, TypeVar

from terrine.service.keys import Key, Keys
from terrine.service.limits import Refused

T = TypeVar("T")
_AGAIN = 0.05  # seconds after which a key in use is looked up again, while it is still good
_GOOD = 0.25  # seconds that a key is good without that


class Callers:
    """The keys that were seen lately, and how often each may ask.

    Args:
        keys: where they are looked up, one at a time in a thread of ``pool``.
        rate: requests per second and key.
    """

    def __init__(self, keys: Keys, *, rate: float, pool: Executor) -> None:
        self._keys, self._rate, self._pool = keys, rate, pool
        self._seen: dict[bytes, tuple[float, Key]] = {}  # by a hash of what was sent: no secret is kept
        self._asked: dict[bytes, asyncio.Future[Key | None]] = {}
        self._tokens: dict[str, tuple[float, float]] = {}

    async def admit(self, authorization: str) -> Key:
        """Whose key was sent; too many requests with it are refused."""
        scheme, _, shown = authorization.partition(" ")
        key = await self._find(shown.strip()) if scheme.lower() == "bearer" else None
        if key is None:
            said = "Send a key that is in use, in the header Authorization: Bearer terrine_..."
            raise Refused(401, "unknown_key", said, headers={"WWW-Authenticate": "Bearer"})
        self._count(key)
        return key

    def _count(self, key: Key) -> None:
        now = asyncio.get_running_loop().time()
        most = 2 * self._rate
        tokens, then = self._tokens.get(key.id, (most, now))
        tokens = min(most, tokens + (now - then) * self._rate)
        if tokens < 1:
            wait = math.ceil((1 - tokens) / self._rate)
            said = f"This key may send {self._rate:g} requests a second; try again in {wait} s."
            raise Refused(429, "too_many_requests", said, headers={"Retry-After": str(wait)})
        self._tokens[key.id] = (tokens - 1, now)

    async def _find(self, shown: str) -> Key | None:
        if not shown.startswith("terrine_") or len(shown) > 100:
            return None
        digest = hashlib.sha256(shown.encode()).digest()
        when, key = self._seen.get(digest, (-math.inf, None))
        age = asyncio.get_running_loop().time() - when
        if age > _AGAIN and digest not in self._asked:
            self._look_up(digest, shown)
        return key if age <= _GOOD else await asyncio.shield(self._asked[digest])

    def _look_up(self, digest: bytes, shown: str) -> None:
        loop = asyncio.get_running_loop()

        def found(asked: asyncio.Future[Key | None]) -> None:
            del self._asked[digest]
            key = None if asked.cancelled() or asked.exception() else asked.result()
            if key is not None:
                self._seen[digest] = (loop.time(), key)
            elif not asked.cancelled() and not asked.exception():
                self._seen.pop(digest, None)

        self._asked[digest] = loop.run_in_executor(self._pool, self._keys.find, shown)
        self._asked[digest].add_done_callback(found)


class Latest(Generic[T]):
    """A value that is read after whoever gets it asked: one read at a time, for several of those who wait.

    After each the reader rests, longer the more it served, so that pollers in all get at most ``most`` answers a
    second, whoever and however many they are; one who asks now and then does not notice.

    Args:
        read: in a thread of ``pool``.
        at_once: how many share a read.
    """

    def __init__(self, read: Callable[[], T], pool: Executor, *, at_once: int = 8, most: float = 250.0) -> None:
        self._read, self._pool, self._at_once, self._rest = read, pool, at_once, 1 / most
        self._waiting: list[asyncio.Future[T]] = []
        self._reader: asyncio.Task[None] | None = None

    def __call__(self) -> Awaitable[T]:
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        if self._reader is None:
            self._reader = asyncio.get_running_loop().create_task(self._serve())
        return future

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting:
            some, self._waiting = self._waiting[: self._at_once], self._waiting[self._at_once :]
            try:
                value: Any = await loop.run_in_executor(self._pool, self._read)
                failure = None
            except Exception as error:
                failure = error
            for future in some:
                if future.done():
                    continue
                if failure is None:
                    future.set_result(value)
                else:
                    future.set_exception(failure)
            await asyncio.sleep(self._rest * len(some))
        self._reader = None
