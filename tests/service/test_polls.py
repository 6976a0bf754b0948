"""Whoever polls the service's numbers, with a key or without, does not keep labels waiting."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from tests.service.tasks import Service, bearer, label, rows_of

from terrine import Ledger
from terrine.service import callers as callers_module
from terrine.service.app import Limits
from terrine.service.callers import Callers, Latest
from terrine.service.keys import Keys
from terrine.service.limits import Refused


class Slow(Ledger):
    """A ledger whose numbers take long to read, as a large one's would: until they may."""

    asked, may = threading.Event(), threading.Event()

    def summary(self):
        self.asked.set()
        assert self.may.wait(60)
        return super().summary()

    def head(self):
        self.asked.set()
        assert self.may.wait(60)
        return super().head()


def many(url):
    """A client of sixty connections: it takes long to make one each."""
    return httpx.Client(base_url=str(url), timeout=120, verify=False, limits=httpx.Limits(max_connections=60))


@pytest.mark.parametrize("path", ["/metrics", "/v1/budget", "/readyz", "/v1/history"])
def test_labels_do_not_wait_for_numbers(tmp_path, monkeypatch, path):
    """Sixty pollers on a ledger whose numbers do not come; a pool that both used would be theirs."""
    service = Service(tmp_path / "l.sqlite", limits=Limits(pace=0, rate=1e6))
    monkeypatch.setattr("tests.service.tasks.Ledger", Slow)
    Slow.may.set()  # to start with
    with service.client() as http, many(http.base_url) as pollers, ThreadPoolExecutor(60) as pool:
        done = threading.Event()

        def poll():
            while not done.is_set():
                assert pollers.get(path, headers=bearer(service.admin)).status_code == 200

        Slow.may.clear()
        Slow.asked.clear()
        polling = [pool.submit(poll) for _ in range(60)]
        try:
            if path in ("/metrics", "/v1/budget"):
                assert Slow.asked.wait(60)
            for k in range(10):
                assert label(http, rows_of(1, seed=k), f"{k}", key=service.key).status_code == 200
            assert not Slow.may.is_set()
        finally:
            done.set()
            Slow.may.set()
        for one in polling:
            one.result(60)


def test_one_read_answers_many_and_each_read_is_newer_than_who_gets_it():
    reads = []

    def read():
        reads.append(time.monotonic())
        time.sleep(0.02)
        return len(reads), reads[-1]

    async def main():
        with ThreadPoolExecutor(1) as pool:
            latest = Latest(read, pool, at_once=8, most=1000)

            async def poll(n):
                for _ in range(n):
                    asked = time.monotonic()
                    _, when = await latest()
                    assert when >= asked

            await asyncio.gather(*(poll(4) for _ in range(16)))

    asyncio.run(main())
    assert 8 <= len(reads) <= 20  # of 64 calls


def test_pollers_in_all_are_answered_so_often_and_no_more():
    async def main():
        with ThreadPoolExecutor(1) as pool:
            latest, loop = Latest(lambda: 1, pool, most=100), asyncio.get_running_loop()
            end, told = loop.time() + 0.5, 0

            async def poll():
                nonlocal told
                while loop.time() < end:
                    told += await latest()

            await asyncio.gather(*(poll() for _ in range(40)))
            return told

    assert asyncio.run(main()) < 150


def test_a_read_that_fails_fails_for_those_who_asked_and_not_for_ever():
    async def main():
        answers = iter([RuntimeError, None])

        def read():
            failure = next(answers)
            if failure:
                raise failure
            return 1

        with ThreadPoolExecutor(1) as pool:
            latest = Latest(read, pool)
            with pytest.raises(RuntimeError):
                await latest()
            assert await latest() == 1

    asyncio.run(main())


class Counted:
    """Keys that count how often they are looked up."""

    def __init__(self, keys):
        self.keys, self.asked, self.go = keys, 0, threading.Event()
        self.go.set()

    def find(self, shown):
        self.asked += 1
        assert self.go.wait(60)
        return self.keys.find(shown)


def test_keys_in_use_are_answered_from_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(callers_module, "_GOOD", 60.0)  # however busy the machine is
    service = Service(tmp_path / "l.sqlite")
    counted = Counted(Keys(service.where))

    async def main():
        with ThreadPoolExecutor(1) as pool:
            callers = Callers(counted, rate=1e6, pool=pool)
            assert (await callers.admit(f"Bearer {service.key}")).name == "someone"
            counted.go.clear()  # a look-up takes as long as it likes: nobody who is known waits for it
            end = time.monotonic() + 0.15
            while time.monotonic() < end:
                assert (await asyncio.wait_for(callers.admit(f"Bearer {service.key}"), 30)).name == "someone"
                await asyncio.sleep(0.001)
            counted.go.set()
            for wrong in ("", "Bearer", "Bearer x", "Basic a", f"Bearer {service.key[:-1]}", f"Bearer {service.key}é"):
                with pytest.raises(Refused):
                    await callers.admit(wrong)
            service.keys.revoke("someone")
            end = time.monotonic() + 60
            while time.monotonic() < end:
                try:
                    await callers.admit(f"Bearer {service.key}")
                except Refused:
                    return
                await asyncio.sleep(0.01)
            pytest.fail("a revoked key stays in use")

    asyncio.run(main())
    assert counted.asked < 60
