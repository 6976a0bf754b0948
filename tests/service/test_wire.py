"""Connections: none makes the server wait for long, and none that waits keeps another out."""

from __future__ import annotations

import contextlib
import resource
import socket
import threading
import time

import httpx
import numpy as np
import pytest
from tests.service.tasks import Server, Service, bearer, client_of, label, rows_of, wait_until
from tests.service.test_fuzz import memory

from terrine import Ledger
from terrine.service import wire
from terrine.service.app import Limits
from terrine.service.limits import BytesInFlight, Refused

QUICK = {"pace": 0, "rate": 1e6}


@contextlib.contextmanager
def sockets(port, number, first=b""):
    """So many connections that have sent this much."""
    found = []
    try:
        for _ in range(number):
            found.append(socket.create_connection(("127.0.0.1", port), timeout=20))
            with contextlib.suppress(ConnectionError):
                found[-1].sendall(first)
        yield found
    finally:
        for one in found:
            one.close()


def port_of(url):
    return int(url.rpartition(":")[2])


def ended(connection):
    """Whether the other side has closed it, now or before this returns."""
    with contextlib.suppress(ConnectionError):
        while connection.recv(65536):
            pass
    return True


def test_a_kept_connection_is_not_delayed(tmp_path):
    """Without TCP_NODELAY the second of two packets waits 40 ms for the first's acknowledgement."""
    service = Service(tmp_path / "l.sqlite", limits=Limits(**QUICK))
    with service.client() as http:
        took = []
        for _ in range(30):
            start = time.perf_counter()
            assert http.get("/v1/about", headers=bearer(service.key)).status_code == 200
            took.append(time.perf_counter() - start)
    assert np.quantile(took[10:], 0.2) < 0.02  # a busy machine delays some; the acknowledgement would delay all


def test_a_response_is_one_packet(tmp_path):
    service = Service(tmp_path / "l.sqlite")
    with service.serving() as url, sockets(port_of(url), 1) as (connection,):
        for _ in range(5):
            connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
            assert connection.recv(65536).endswith(b'{"status":"ok"}')


HALF = b"POST /v1/labels HTTP/1.1\r\nHost: a\r\nX-Slow: "


def test_half_sent_headers_keep_nobody_out(tmp_path):
    """More of them than there may be connections."""
    limits = Limits(**QUICK, connections=40, connections_per_address=30)
    service = Service(tmp_path / "l.sqlite", limits=limits)
    with service.serving() as url, sockets(port_of(url), 120, HALF) as slow:
        with client_of(url) as http:
            assert label(http, rows_of(3), "a", key=service.key).status_code == 200
            assert http.get("/readyz").status_code == 200
        assert ended(slow[0])  # the oldest made room
        slow[-1].sendall(b"a\r\n\r\n")  # a young one is still there
        assert slow[-1].recv(100).startswith(b"HTTP/1.1 401")


@pytest.mark.parametrize("first", [b"", HALF, b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\nGET /hea"])
def test_a_header_has_its_time(tmp_path, first):
    """Also the second one of a connection, and also if a byte of it comes now and then."""
    service = Service(tmp_path / "l.sqlite", limits=Limits(**QUICK, header=0.5))
    with service.serving() as url, sockets(port_of(url), 2, first) as (silent, drips):
        start, stop = time.monotonic(), threading.Event()

        def drip():
            with contextlib.suppress(OSError):
                while not stop.wait(0.1):
                    drips.sendall(b"a")

        dripping = threading.Thread(target=drip)
        dripping.start()
        assert ended(silent)
        if first:
            assert ended(drips)
        stop.set()
        dripping.join()
        assert 0.4 < time.monotonic() - start < 60  # a connection that was answered may rest for 5 s


def upload(key, size, body=b""):
    head = f"POST /v1/labels?request_id=a HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {key}\r\n"
    return f"{head}Content-Type: application/x-npy\r\nContent-Length: {size}\r\n\r\n".encode() + body


def test_a_body_that_stalls_or_drips_is_refused(tmp_path):
    service = Service(tmp_path / "l.sqlite", limits=Limits(**QUICK, header=0.4, least=1000, seconds=30))
    with service.serving() as url:
        port = port_of(url)
        with sockets(port, 1, upload(service.key, 10_000, b"x" * 5000)) as (stalls,):
            start = time.monotonic()
            assert b"body_too_slow" in stalls.recv(65536)
            assert time.monotonic() - start < 25  # and not the 30 s of a whole body
        with sockets(port, 1, upload(service.key, 10_000)) as (drips,):
            drips.settimeout(0.1)
            told = b""
            while not told and time.monotonic() - start < 50:
                with contextlib.suppress(TimeoutError):
                    drips.sendall(b"x")  # 10 bytes a second, of 1000
                    told = drips.recv(65536)
            assert b"body_too_slow" in told


def test_stalled_uploads_do_not_hold_memory(tmp_path):
    """Forty of 4 MiB and all of it sent but for the last byte; half of 16 MiB may be one key's."""
    size = 4 << 20
    where = tmp_path / "l.sqlite"
    service = Service(where)
    server = Server(where, limits={"in_flight": 4 * size, "seconds": 20})
    with server, contextlib.ExitStack() as stack:
        before = memory(server.process.pid)
        told = []
        for _ in range(40):
            (one,) = stack.enter_context(sockets(server.port, 1))
            with contextlib.suppress(ConnectionError):
                one.sendall(upload(service.key, size, bytes(size - 1)))
            told.append(one)
        refused = 0
        for one in told[2:]:
            one.settimeout(10)
            with contextlib.suppress(ConnectionError, TimeoutError):
                refused += b'"busy"' in one.recv(65536)
        assert memory(server.process.pid) - before < 16 * size
        assert refused > 30
        answer = httpx.get(f"{server.url}/v1/budget", headers=bearer(service.key))
        assert answer.status_code == 200
    assert Ledger(where).summary().queries == 0


def test_what_is_in_flight_is_counted_by_key():
    held = BytesInFlight(100)
    held.add("a", 50)
    with pytest.raises(Refused, match="this key"):
        held.add("a", 1)
    held.add("b", 50)
    with pytest.raises(Refused, match="as many request bodies as it can"):
        held.add("c", 1)
    held.remove("a", 50)
    held.add("c", 1)
    held.remove("b", 50)
    held.remove("c", 1)
    held.add("a", 50)


def test_connections_that_are_all_in_use_are_not_closed_for_another(tmp_path):
    class Slow:
        n_teachers, classes, row_shape = 100, ("cat", "dog", "cow", "emu"), (2,)
        go = threading.Event()

        def vote(self, X):
            self.go.wait(20)
            raise RuntimeError

    limits = Limits(**QUICK, connections=4, connections_per_address=3)
    service = Service(tmp_path / "l.sqlite", voters=Slow(), limits=limits)
    asked = f"GET /v1/about HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {service.key}\r\n\r\n".encode()
    with service.serving() as url:
        port = port_of(url)
        body = b'{"request_id": "a", "rows": [[0, 1]]}'
        head = (
            f"POST /v1/labels HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {service.key}\r\nContent-Length: {len(body)}"
        )
        with sockets(port, 3, head.encode() + b"\r\n\r\n" + body) as busy:
            wait_until(lambda: Ledger(service.where).summary().queries > 0)
            with sockets(port, 1, asked) as (another,):
                assert another.recv(65536).startswith(b"HTTP/1.1 503")
            Slow.go.set()
            for one in busy:
                assert b"teachers_failed" in one.recv(65536)
        wait_until(lambda: httpx.get(f"{url}/healthz").status_code == 200)  # there is room again


def test_a_client_in_the_midst_of_a_body_gets_its_refusal(tmp_path):
    service = Service(tmp_path / "l.sqlite", limits=Limits(**QUICK, body=1 << 20))
    with service.serving() as url:
        for _ in range(5):
            with httpx.Client(base_url=url, timeout=10) as http:
                pieces = (bytes(1 << 16) for _ in range(200))
                headers = {**bearer(service.key), "Content-Type": "application/x-npy"}
                assert http.post("/v1/labels", content=pieces, headers=headers).status_code == 413
                assert http.get("/healthz").status_code == 200


def test_connections_stay_below_the_limit_of_files():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (500, hard))
        assert wire.room_for(300) == 300
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] >= 300 + wire.BACKLOG
        assert wire.room_for(hard + 1) < hard
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
