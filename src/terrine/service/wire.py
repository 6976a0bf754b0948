"""Connections: how many there may be, and how long each may keep the server waiting. uvicorn has no limits of these."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections import Counter
from typing import Any

from terrine.service.limits import Limits

_Protocol: Any
try:  # the faster parser, where it is installed
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol as _Protocol
except ImportError:
    from uvicorn.protocols.http.h11_impl import H11Protocol as _Protocol

GATE = "terrine.gate"  # where the app's lifespan leaves it for its connections
BACKLOG = 256  # asyncio accepts this many at once, before any of them can be counted
_SPARE = 128  # file descriptors for the ledger, logs and teachers
_SWEEP = 0.5  # seconds
_HEADER_BYTES = 64 << 10


def settings(**more: Any) -> dict[str, Any]:
    """Of uvicorn, for an app of `make_app`."""
    return {
        "http": Connection,
        "access_log": False,
        "server_header": False,
        "proxy_headers": False,  # nothing depends on who is said to have asked
        "backlog": BACKLOG,
        "timeout_graceful_shutdown": 30,
        "h11_max_incomplete_event_size": _HEADER_BYTES,
        **more,
    }


def room_for(connections: int) -> int:
    """How many of these connections have a file descriptor; the process's soft limit is raised for them."""
    try:
        import resource
    except ImportError:  # no such limit on this system
        return connections
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + BACKLOG + _SPARE
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        return max(min(connections, soft - BACKLOG - _SPARE), 1)
    return connections


class Gate:
    """Who is connected, and who keeps the server waiting for a whole header."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._most = room_for(limits.connections)
        self._open: set[Connection] = set()
        self._by_address: Counter[str] = Counter()
        self._waiting: dict[Connection, float] = {}  # until when, in the order in which they began to wait
        self._sweeping: asyncio.TimerHandle | None = None

    def enter(self, new: Connection) -> bool:
        """Whether there is room for it; someone who sends nothing makes room."""
        address = new.address
        crowded = self._by_address[address] >= self._limits.connections_per_address
        if crowded or len(self._open) >= self._most:
            slow = next((one for one in self._waiting if not crowded or one.address == address), None)
            if slow is None:
                return False
            self.leave(slow)
            slow.transport.abort()
        self._open.add(new)
        self._by_address[address] += 1
        self.waits(new, new.loop.time() + self._limits.header)
        if self._sweeping is None:
            self._sweeping = new.loop.call_later(_SWEEP, self._sweep, new.loop)
        return True

    def leave(self, one: Connection) -> None:
        self._waiting.pop(one, None)
        if one in self._open:
            self._open.discard(one)
            self._by_address[one.address] -= 1
            if not self._by_address[one.address]:
                del self._by_address[one.address]

    def waits(self, one: Connection, until: float | None = None) -> None:
        """The server waits for its header, or from the end of a response for the next."""
        if one in self._open:
            self._waiting.pop(one, None)
            self._waiting[one] = until or one.loop.time() + one.timeout_keep_alive + self._limits.header

    def hurries(self, one: Connection) -> None:
        """The first bytes of its next header came."""
        if one in self._waiting:
            self._waiting[one] = one.loop.time() + self._limits.header

    def works(self, one: Connection) -> None:
        """Its header is whole: the app says how long its body may take."""
        self._waiting.pop(one, None)

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time()
        for one, until in list(self._waiting.items()):
            grace = self._limits.seconds if one.transport.get_write_buffer_size() else 0.0  # it reads, if slowly
            if now > until + grace:
                self.leave(one)
                one.transport.abort()
        self._sweeping = loop.call_later(_SWEEP, self._sweep, loop) if self._open else None


class Connection(_Protocol):  # type: ignore[misc]
    """uvicorn's, behind the gate; without Nagle's delay, and with JSON for what is no HTTP."""

    def __init__(self, config: Any, server_state: Any, app_state: dict[str, Any], _loop: Any = None) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._gate: Gate = app_state[GATE]
        self._header = 0  # bytes of the one that is arriving
        self._drains = False
        self.address = ""

    def connection_made(self, transport: asyncio.Transport) -> None:
        with contextlib.suppress(OSError, AttributeError):  # AttributeError: no socket; OSError: not of TCP
            transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        super().connection_made(_Gathered(transport, self))
        self.address = self.client[0] if self.client else ""
        if not self._gate.enter(self):
            said = "The service has as many connections as it can; try again in a second."
            self.transport.write(_response(503, "Service Unavailable", "busy", said, more=b"retry-after: 1\r\n"))
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._gate.leave(self)
        super().connection_lost(exc)

    @property
    def _idle(self) -> bool:
        """Whether a header is what the client may send next."""
        return self.cycle is None or bool(self.cycle.response_complete)

    def data_received(self, data: bytes) -> None:
        if self._drains:
            return
        before = self.cycle
        if self._idle:
            if before is not None and not self._header:
                self._gate.hurries(self)
            self._header += len(data)
        super().data_received(data)
        if self.cycle is not before:
            self._header = 0
            if not self._idle:
                self._gate.works(self)
        elif self._header > _HEADER_BYTES:
            self.send_400_response("")

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self._idle:  # the next request was there already
            self._gate.works(self)
            return
        self._gate.waits(self)
        if self.cycle.more_body:
            self.transport.close()

    def drain(self) -> bool:
        """Whether it must read on, to no end but that a client in the midst of a body gets its response."""
        unread = self.cycle is not None and self.cycle.more_body
        if unread and not self._drains:
            self._drains = True
            self._gate.waits(self)
        return unread

    def send_400_response(self, msg: str) -> None:
        if self._idle or not self.cycle.response_started:
            self.transport.write(_response(400, "Bad Request", "bad_request", "This is no HTTP/1.1 request."))
        self._drains = True
        self.transport.close()


def _response(status: int, reason: str, code: str, message: str, *, more: bytes = b"") -> bytes:
    body = json.dumps({"error": {"code": code, "message": message}}).encode()
    head = f"HTTP/1.1 {status} {reason}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
    return head.encode() + more + b"connection: close\r\n\r\n" + body


class _Gathered:
    """A transport whose writes of one turn of the loop leave together: a response is one packet.

    Closed in the midst of a request's body, it ends what it sends and reads on for a while: bytes that arrive at a
    closed socket would reset the connection, and the response with it.
    """

    def __init__(self, transport: asyncio.Transport, connection: Connection) -> None:
        self._transport, self._connection = transport, connection
        self._pieces: list[bytes] = []
        self._ended = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        if data:
            if not self._pieces:
                self._connection.loop.call_soon(self._flush)
            self._pieces.append(bytes(data))

    def get_write_buffer_size(self) -> int:
        return self._transport.get_write_buffer_size() + sum(map(len, self._pieces))

    def is_closing(self) -> bool:
        return self._ended or self._transport.is_closing()

    def close(self) -> None:
        self._flush()
        if not self._ended and not self._transport.is_closing() and self._connection.drain():
            self._ended = True
            self._transport.write_eof()
            self._transport.resume_reading()
        elif not self._ended:
            self._transport.close()

    def abort(self) -> None:
        self._pieces.clear()
        self._transport.abort()

    def _flush(self) -> None:
        if self._pieces:
            pieces, self._pieces = self._pieces, []
            if not self.is_closing():
                self._transport.write(b"".join(pieces))
