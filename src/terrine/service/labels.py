"""POST /v1/labels, from the bytes that arrive to the bytes that are sent."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace

import numpy as np
from pydantic_core import to_json
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from terrine.errors import BudgetError, InputError, QuotaError, TerrineError
from terrine.labeller import Question
from terrine.ledger import Ledger
from terrine.mechanisms import ABSTAIN, Answers, Outcome
from terrine.schema.checking import Unread
from terrine.service.batching import Desk
from terrine.service.callers import Callers
from terrine.service.failures import refusal
from terrine.service.keys import Key
from terrine.service.limits import BytesInFlight, Limits, Refused
from terrine.service.middleware import Metrics
from terrine.service.parsing import NPY, SMALL, BodyError, RowFormat, TableQuestion, read_json, read_npy
from terrine.service.rounds import RoundQuestion, no_such_round
from terrine.service.schemas import OUTCOMES, REQUEST_ID_LENGTH, OddCells, WhyUnasked


@dataclass(frozen=True, kw_only=True)
class Threads:
    """``bodies``: one that parses long bodies, one after another; ``reads``: for the ledger's numbers in a refusal."""

    bodies: Executor
    reads: Executor


class Labels:
    """Answers the route; an ASGI app.

    Args:
        classes: what labels are called.
    """

    desk: Desk
    n_rounds = 1  # mechanisms that requests may name

    def __init__(
        self,
        callers: Callers,
        ledger: Ledger,
        *,
        classes: tuple[str, ...],
        rows: RowFormat,
        limits: Limits,
        metrics: Metrics,
        threads: Threads,
    ) -> None:
        self._callers, self._ledger, self._classes = callers, ledger, classes
        self._rows, self._limits, self._metrics = rows, limits, metrics
        self._threads = threads
        self._in_flight = BytesInFlight(limits.in_flight)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive, send)
        response = await self.respond(request)
        if not getattr(request.state, "is_read", False):  # the rest of its body is in the way of a next request
            response.headers["Connection"] = "close"
        await response(scope, receive, send)

    async def respond(self, request: Request) -> Response:
        n_rows, key = 0, None
        try:
            key = await self._callers.admit(request.headers.get("authorization", ""))
            request.state.key = key.id
            held = 0

            def hold(size: int) -> None:
                nonlocal held
                self._in_flight.add(key.id, size)
                held += size

            try:
                of_round = self._round(request)
                sent = await self._asked(request, hold)
                asked = RoundQuestion(sent.X, sent.request_id, sent.student_proba, round=of_round)
                n_rows = len(np.asarray(asked.X))
                answers = await self._paced(asked, key)
                told = sent.told if isinstance(sent, TableQuestion) else ()
                return await self._response(request, asked.request_id, answers, key, told)
            finally:
                self._in_flight.remove(key.id, held)
        except BudgetError as error:
            return refusal(request, error, requested=n_rows, left=await self._left(error))
        except TerrineError as error:
            return refusal(request, error)

    async def _response(
        self, request: Request, request_id: str, answers: Answers, key: Key, unread: Sequence[Unread]
    ) -> Response:
        outcomes = [OUTCOMES[Outcome(outcome)] for outcome in answers.outcomes.tolist()]
        request.state.rows = len(outcomes)
        self._metrics.answered(outcomes)
        classes = self._classes
        told = {
            "request_id": request_id,
            "labels": [None if label == ABSTAIN else classes[label] for label in answers.labels.tolist()],
            "outcomes": outcomes,
            "why_unasked": await self._why_unasked(key) if "unasked" in outcomes else None,
            "secure": answers.secure,
            "odd_cells": [OddCells.of_unread(one).model_dump() for one in unread],
        }
        return Response(to_json(told), media_type="application/json")

    async def _body(self, request: Request, hold: Callable[[int], None], *, at_most: int) -> bytes:
        """The body; refused as soon as it is too long, too slow, or more than memory holds."""
        too_long = Refused(413, "body_too_large", f"A body of this type may have {at_most} bytes; send fewer rows.")
        told = request.headers.get("content-length", "0")
        if not (told.isascii() and told.isdecimal()):
            raise BodyError("Content-Length must be a whole number.")
        if len(told) > 18 or int(told) > at_most:
            raise too_long
        limits, loop = self._limits, asyncio.get_running_loop()
        pieces: list[bytes] = []
        size, started = 0, loop.time()
        try:
            async with asyncio.timeout_at(started + min(limits.header, limits.seconds)) as patience:
                while True:
                    message = await request.receive()
                    if message["type"] == "http.disconnect":
                        raise BodyError("The body ended early.")
                    piece = message.get("body", b"")
                    size += len(piece)
                    if size > at_most:
                        raise too_long
                    hold(len(piece))
                    pieces.append(piece)
                    if not message.get("more_body", False):
                        request.state.is_read = True
                        return pieces[0] if len(pieces) == 1 else b"".join(pieces)
                    in_step = started + limits.header + size / limits.least
                    patience.reschedule(min(started + limits.seconds, loop.time() + limits.header, in_step))
        except TimeoutError:
            said = f"A body must arrive within {limits.seconds:g} s, at {limits.least} bytes a second or more."
            raise Refused(400, "body_too_slow", said) from None

    def _round(self, request: Request) -> int:
        """The round whose mechanism answers: in the address, whatever the body is."""
        if not request.scope["query_string"]:
            return 1
        told = request.query_params.get("round", "1")
        if not (told.isascii() and told.isdecimal() and len(told) < 5 and 1 <= int(told) <= self.n_rounds):
            raise Refused(422, "bad_request", str(no_such_round(told, self.n_rounds)))
        return int(told)

    async def _asked(self, request: Request, hold: Callable[[int], None]) -> Question:
        request_id = request.query_params.get("request_id") if request.scope["query_string"] else None
        if request_id is not None and not 1 <= len(request_id) <= REQUEST_ID_LENGTH:
            raise Refused(422, "bad_request", f"request_id must have 1 to {REQUEST_ID_LENGTH} characters.")
        kind = request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
        limits = self._limits
        if kind == NPY:
            body = await self._body(request, hold, at_most=limits.body)
            if request_id is None:
                raise Refused(422, "bad_request", "With an .npy body, add request_id to the address: ?request_id=...")
            return read_npy(body, self._rows, at_most=limits.rows, request_id=request_id)
        if kind != "application/json":
            raise Refused(415, "unknown_media_type", f"Content-Type must be application/json or {NPY}.")
        body = await self._body(request, hold, at_most=limits.json)
        if request_id is not None:
            raise Refused(400, "bad_request", "With JSON, request_id belongs in the body and not in the address.")

        def read() -> Question:
            return read_json(body, self._rows, at_most=limits.rows, n_classes=len(self._classes))

        if len(body) <= SMALL and not self._rows.table(body):
            return read()
        return await asyncio.get_running_loop().run_in_executor(self._threads.bodies, read)

    async def _paced(self, asked: Question, key: Key) -> Answers:
        """The answers, at the first whole multiple of the pace."""
        loop = asyncio.get_running_loop()
        started = loop.time()
        try:
            return await self._answers(asked, key)
        finally:
            if self._limits.pace > 0:
                took = (loop.time() - started) / self._limits.pace
                await asyncio.sleep((math.ceil(took) - took) * self._limits.pace)

    async def _answers(self, asked: Question, key: Key) -> Answers:
        request_id = asked.request_id
        if not isinstance(request_id, str) or not 1 <= len(request_id) <= REQUEST_ID_LENGTH:
            raise InputError(f"request_id must be text of 1 to {REQUEST_ID_LENGTH} characters.")
        question = replace(asked, request_id=f"{key.id}/{request_id}", account=key.id, quota=key.quota)
        turn = self.desk.ask(question, n_rows=len(np.asarray(asked.X)))
        patience = asyncio.get_running_loop().call_later(self._limits.seconds, self._give_up, turn)
        try:
            return await turn
        finally:
            patience.cancel()

    def _give_up(self, turn: asyncio.Future[Answers]) -> None:
        if not turn.done():
            said = f"No answer after {self._limits.seconds:g} s. Send the same request again."
            turn.set_exception(Refused(503, "timeout", said))

    async def _left(self, error: BudgetError) -> dict[str, float]:
        """Numbers to the words of the error."""
        if isinstance(error, QuotaError):
            return {"queries": 0}  # the ledger grants a part of a request where it can
        return await asyncio.get_running_loop().run_in_executor(self._threads.reads, self._ledger.remaining)

    async def _why_unasked(self, key: Key) -> WhyUnasked:
        """The quota, if it is used up: charged queries never become fewer."""
        if key.quota is not None:
            spent = await asyncio.get_running_loop().run_in_executor(self._threads.reads, self._ledger.accounts)
            if key.id in spent and spent[key.id].queries >= key.quota:
                return "quota_exhausted"
        return "budget_exhausted"
