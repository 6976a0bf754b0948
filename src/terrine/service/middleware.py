"""What the host sees of the service: one log line per request, and metrics. They hold no query, answer or vote."""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import shutil
import tempfile
import time
from collections import Counter as Tally
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import prometheus_client as prometheus
from prometheus_client import multiprocess
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from terrine.service.budget_stats import PublicNumbers

LOG = logging.getLogger("terrine.service")
_SHARED = "PROMETHEUS_MULTIPROC_DIR"  # prometheus_client reads it
_METRICS, _LOCK = "terrine-metrics-", "in-use"
HEADERS = [
    (b"cache-control", b"no-store"),
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
        b"base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
]


class Metrics:
    """Counters of this process (of all, where there are several), and the ledger's public numbers."""

    def __init__(self, numbers: PublicNumbers) -> None:
        self._numbers = numbers
        self._registry = prometheus.CollectorRegistry()
        self._requests = prometheus.Counter(
            "terrine_requests", "Requests.", ["route", "status"], registry=self._registry
        )
        self._rows = prometheus.Counter("terrine_rows", "Rows answered.", ["outcome"], registry=self._registry)
        self._seconds = prometheus.Histogram(
            "terrine_request_seconds", "Time to answer.", ["route"], registry=self._registry
        )

        self._of: dict[tuple[str, int], tuple[prometheus.Counter, prometheus.Histogram]] = {}

    def request(self, route: str, status: int, seconds: float) -> None:
        found = self._of.get((route, status))
        if found is None:
            found = self._of[route, status] = (self._requests.labels(route, str(status)), self._seconds.labels(route))
        found[0].inc()
        found[1].observe(seconds)

    def answered(self, outcomes: Iterable[str]) -> None:
        for outcome, number in Tally(outcomes).items():
            self._rows.labels(outcome).inc(number)

    def page(self) -> tuple[bytes, str]:
        """In Prometheus' format, and its media type."""
        found = self._numbers.budget()
        ledger = prometheus.CollectorRegistry()
        shown = {
            "epsilon": ("The guarantee's epsilon, of all answers together.", found.guarantee.epsilon),
            "delta": ("The guarantee's delta.", found.guarantee.delta),
            "budget_share_spent": ("Share of the budget that is spent: progress, no guarantee.", found.share_spent),
            "queries_charged": ("Queries charged so far.", found.queries),
            "answers_charged": ("Answers charged so far.", found.answers),
            "queries_open": ("Queries charged and not settled.", found.open),
        }
        for name, (about, value) in shown.items():
            if value is None:
                continue
            prometheus.Gauge(f"terrine_{name}", about, registry=ledger).set(value)
        counters = self._registry
        if _SHARED in os.environ:
            counters = prometheus.CollectorRegistry()
            multiprocess.MultiProcessCollector(counters)  # type: ignore[no-untyped-call]
        text = prometheus.generate_latest(ledger) + prometheus.generate_latest(counters)
        return text, prometheus.CONTENT_TYPE_LATEST


@contextmanager
def metrics_folder() -> Iterator[None]:
    """Where server processes that share a port keep their counters; it is removed when they have ended.

    If they were killed, the next server removes it: nobody holds its lock any more.
    """
    for old in Path(tempfile.gettempdir()).glob(f"{_METRICS}*/{_LOCK}"):
        with contextlib.suppress(OSError), old.open("rb") as file:  # another user's, or gone meanwhile
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(old.parent, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=_METRICS))
    os.environ[_SHARED] = str(folder)
    try:
        with (folder / "new").open("wb") as file:
            fcntl.flock(file, fcntl.LOCK_SH)
            (folder / "new").rename(folder / _LOCK)  # with its lock: nobody sees it without
            yield
    finally:
        del os.environ[_SHARED]
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def hold_metrics_folder() -> Iterator[None]:
    """Keep the folder of counters, if there is one, for as long as this process uses it."""
    if _SHARED not in os.environ:
        yield
        return
    with Path(os.environ[_SHARED], _LOCK).open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        yield


class Watch:
    """Around the whole app: headers on every response, a log line for each, and failures that reveal nothing.

    Args:
        straight: what is asked most, by method and path, is handed to these functions and not to the app, whose
            routing, dependencies and validation take longer than all the rest.
    """

    def __init__(self, app: ASGIApp, *, metrics: Metrics, straight: Mapping[tuple[str, str], ASGIApp]) -> None:
        self._app, self._metrics, self._straight = app, metrics, straight

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started, status = time.monotonic(), 0
        state: dict[str, Any] = scope.setdefault("state", {})

        async def seen(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], *HEADERS]
            await send(message)

        straight = self._straight.get((scope["method"], scope["path"]))
        try:
            await (straight or self._app)(scope, receive, seen)
        except Exception as error:  # a fault of ours; its message may hold what nobody should see
            state["code"], state["fault"] = "internal", type(error).__name__
            if status == 0:
                body = json.dumps({"error": {"code": "internal", "message": "The service failed; its log says more."}})
                kind = (b"content-type", b"application/json")
                await seen({"type": "http.response.start", "status": 500, "headers": [kind]})
                await send({"type": "http.response.body", "body": body.encode()})
        finally:
            seconds = time.monotonic() - started
            route = scope["path"] if straight else getattr(scope.get("route"), "path", "other")
            self._metrics.request(route, status, seconds)
            if LOG.isEnabledFor(logging.INFO):
                about = {name: state[name] for name in ("key", "rows", "code", "fault") if name in state}
                method = scope["method"] if scope["method"] in ("GET", "POST", "HEAD", "OPTIONS") else "other"
                facts = {"method": method, "route": route, "status": status, "ms": round(seconds * 1000)}
                LOG.info("request", extra={"facts": facts | about})


class JsonLines(logging.Formatter):
    """One JSON object per line. A traceback is named, not printed: its frames are near private data."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": record.getMessage() if record.exc_info is None else "error",
            **getattr(record, "facts", {}),
        }
        if record.exc_info and record.exc_info[0] is not None:
            line["fault"] = record.exc_info[0].__name__
        return json.dumps(line)
