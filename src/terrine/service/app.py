"""The label service: every answer is charged on disk before it leaves, and nothing else of the votes does."""

# Annotations are read at once (no __future__ import): FastAPI looks up names of functions within functions.
import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from importlib.resources import files
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Path, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.exceptions import HTTPException

from terrine.budgets import mechanism_to_json
from terrine.errors import BudgetError, InputError, LedgerError, QuotaError, RequestError, TeachersError, TerrineError
from terrine.labeller import Labeller, Question, Voters
from terrine.ledger import Ledger
from terrine.mechanisms import ABSTAIN, Answers, Mechanism, Outcome
from terrine.noise import Noise
from terrine.service import schemas
from terrine.service.bodies import NPY, Asked, BodyError, RowFormat, read_json, read_npy
from terrine.service.desk import Busy, Desk
from terrine.service.keys import Key, Keys
from terrine.service.public import PublicNumbers
from terrine.service.watch import Metrics, Watch

VERSION = "1"
_PARSED_HERE = 1 << 14  # a body above this is parsed in a thread
_NAMES = ("dashboard.js", "dashboard.chart.js", "dashboard.words.js", "dashboard.css", "dashboard.svg")
_ASSETS = {"/": "dashboard.html"} | {f"/{name}": name for name in _NAMES}
_TYPES = {"html": "text/html", "js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}
_WHAT = {
    400: "The body cannot be read.",
    401: "No key, or one that is not in use.",
    402: "The budget, or the key's quota, has no room: budget_exhausted, quota_exhausted.",
    403: "The key's role does not allow it.",
    404: "There is no such thing.",
    409: "The request id was used before, for other rows.",
    413: "The body is larger than the service takes.",
    415: "The body is neither JSON nor .npy.",
    422: "The rows are not what the teachers take: bad_rows; or a parameter is not what it should be: bad_request.",
    429: "Too many requests in a second; Retry-After says when to try again.",
    503: "The service cannot answer now; the same request may be sent again.",
}


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What one caller may ask of the service.

    Attributes:
        body, json: bytes of a body; JSON takes much more memory than it is long.
        rows: in one request.
        rate: requests per second and key, in each server process; twice as many at once.
        seconds: for a body to arrive, and again for its answers.
        pace: seconds; answers leave at whole multiples of it after they were asked for, so that how long they took
            says nothing about the votes.
        waiting: requests that may wait.
    """

    body: int = 32 << 20
    json: int = 8 << 20
    rows: int = 10_000
    rate: float = 200.0
    seconds: float = 60.0
    pace: float = 0.02
    waiting: int = 1024


class Refused(TerrineError):
    """An error of the wire: its status and code."""

    def __init__(self, status: int, code: str, message: str, *, headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.code, self.headers = status, code, headers


def make_app(
    voters: Voters,
    mechanism: Mechanism,
    ledger: Ledger,
    keys: Keys,
    *,
    rows: RowFormat,
    limits: Limits | None = None,
    rng: Noise | None = None,
) -> FastAPI:
    """The app over teachers, a mechanism, and the ledger that pays.

    Args:
        rows: what the teachers take.
        rng: None for secure noise; a seeded one for tests, which the ledger and every answer say.
    """
    limits = limits or Limits()
    labeller = Labeller(voters, mechanism, ledger, rng=rng)
    numbers = PublicNumbers(ledger, mechanism)
    metrics = Metrics(numbers)
    service = _Service(labeller, voters, ledger, keys, rows, limits, numbers, metrics)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        service.desk = Desk(labeller, waiting=limits.waiting)
        try:
            yield
        finally:
            await run_in_threadpool(service.desk.close)  # those who wait are answered first
            keys.close()
            ledger.close()

    app = FastAPI(
        title="terrine",
        version=VERSION,
        summary="Differentially private labels, paid from a budget that cannot be overspent.",
        docs_url=None,  # they would load scripts from elsewhere
        redoc_url=None,
        lifespan=lifespan,
    )
    app.state.service = service
    _add_errors(app)
    _add_routes(app, service)
    _add_pages(app, service)
    app.add_middleware(Watch, metrics=metrics)
    return app


class _Service:
    """What the routes share."""

    desk: Desk

    def __init__(
        self,
        labeller: Labeller,
        voters: Voters,
        ledger: Ledger,
        keys: Keys,
        rows: RowFormat,
        limits: Limits,
        numbers: PublicNumbers,
        metrics: Metrics,
    ) -> None:
        self.labeller, self.voters, self.ledger, self.keys = labeller, voters, ledger, keys
        self.rows, self.limits, self.numbers, self.metrics = rows, limits, numbers, metrics
        self._tokens: dict[str, tuple[float, float]] = {}

    async def caller(
        self,
        request: Request,
        sent: Annotated[
            HTTPAuthorizationCredentials | None,
            Depends(HTTPBearer(auto_error=False, description="A key, as `terrine keys create` prints it.")),
        ],
    ) -> Key:
        """Whose key was sent; too many requests with it are refused."""
        key = None if sent is None else await run_in_threadpool(self.keys.find, sent.credentials)
        if key is None:
            said = "Expected a key in use in the header Authorization: Bearer ..., got none or another."
            raise Refused(401, "unknown_key", said, headers={"WWW-Authenticate": "Bearer"})
        request.state.key = key.id
        now = asyncio.get_running_loop().time()
        most = 2 * self.limits.rate
        tokens, then = self._tokens.get(key.id, (most, now))
        tokens = min(most, tokens + (now - then) * self.limits.rate)
        if tokens < 1:
            wait = math.ceil((1 - tokens) / self.limits.rate)
            said = f"Expected at most {self.limits.rate:g} requests a second, got more; try again in {wait} s."
            raise Refused(429, "too_many_requests", said, headers={"Retry-After": str(wait)})
        self._tokens[key.id] = (tokens - 1, now)
        return key

    async def admin(self, request: Request, key: Key) -> Key:
        if key.role != "admin":
            raise Refused(403, "not_an_admin", "Expected an admin's key, got a client's.")
        return key

    async def body(self, request: Request, *, at_most: int) -> bytes:
        """The body, given up as soon as it is too long or too slow."""
        too_long = Refused(413, "body_too_large", f"Expected a body of at most {at_most} bytes, got a larger one.")
        if int(request.headers.get("content-length", "0")) > at_most:
            raise too_long
        pieces, size = [], 0
        try:
            async with asyncio.timeout(self.limits.seconds):
                async for piece in request.stream():
                    size += len(piece)
                    if size > at_most:
                        raise too_long
                    pieces.append(piece)
        except TimeoutError:
            said = f"Expected the body within {self.limits.seconds:g} s, got no end of it."
            raise Refused(400, "body_too_slow", said) from None
        return b"".join(pieces)

    async def asked(self, request: Request, request_id: str | None) -> Asked:
        kind = request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
        if kind == NPY:
            body = await self.body(request, at_most=self.limits.body)
            return read_npy(body, request_id=request_id)
        if kind != "application/json":
            raise Refused(415, "unknown_media_type", f"Expected application/json or {NPY}, got another Content-Type.")
        body = await self.body(request, at_most=self.limits.json)
        found = read_json(body) if len(body) <= _PARSED_HERE else await run_in_threadpool(read_json, body)
        if request_id is not None:
            raise Refused(400, "bad_request", "Expected request_id in the JSON body, got it in the address.")
        return found

    async def label(self, asked: Asked, key: Key) -> Answers:
        request_id = asked.request_id
        if not isinstance(request_id, str) or not 1 <= len(request_id) <= schemas.REQUEST_ID_LENGTH:
            raise InputError(f"Expected request_id of 1 to {schemas.REQUEST_ID_LENGTH} characters, got something else.")
        rows = self.rows.rows(asked.rows, at_most=self.limits.rows)
        question = Question(
            X=rows,
            request_id=f"{key.id}/{request_id}",
            student_proba=asked.student_proba,
            account=key.id,
            quota=key.quota,
        )
        turn = asyncio.create_task(self.desk.ask(question, n_rows=len(rows)))
        turn.add_done_callback(lambda turn: turn.cancelled() or turn.exception())  # seen, also if nobody waits for it
        done, _ = await asyncio.wait([turn], timeout=self.limits.seconds)
        if not done:
            said = f"Expected an answer within {self.limits.seconds:g} s, got none yet; send the same request again."
            raise Refused(503, "timeout", said)
        return turn.result()

    async def paced(self, answer: Awaitable[Any]) -> Any:
        """Wait for it, and on until the next whole multiple of the pace."""
        loop = asyncio.get_running_loop()
        started = loop.time()
        try:
            return await answer
        finally:
            if self.limits.pace > 0:
                took = (loop.time() - started) / self.limits.pace
                await asyncio.sleep((math.ceil(took) - took) * self.limits.pace)


def _add_routes(app: FastAPI, service: _Service) -> None:
    def may(*statuses: int) -> dict[int | str, dict[str, Any]]:
        return {status: {"model": schemas.Failure, "description": _WHAT[status]} for status in statuses}

    Caller = Annotated[Key, Depends(service.caller)]
    keyed = may(401, 429, 503)
    voters, limits, numbers = service.voters, service.limits, service.numbers
    classes = list(voters.classes)

    @app.post(
        "/v1/labels",
        openapi_extra=schemas.LABELS_BODY,
        responses=may(400, 401, 402, 409, 413, 415, 422, 429, 503),
        summary="Ask for labels",
    )
    async def labels(
        request: Request,
        key: Caller,
        request_id: Annotated[
            str | None,
            Query(min_length=1, max_length=schemas.REQUEST_ID_LENGTH, description="With an .npy body only."),
        ] = None,
    ) -> schemas.Labels:
        """The same request id with the same rows gives the same answers, and is charged once; a row that was ever
        answered has that answer for ever, free."""
        asked = await service.asked(request, request_id)
        answers: Answers = await service.paced(service.label(asked, key))
        outcomes = [schemas.OUTCOMES[Outcome(outcome)] for outcome in answers.outcomes.tolist()]
        request.state.rows = len(outcomes)
        service.metrics.answered(outcomes)
        return schemas.Labels(
            request_id=asked.request_id,
            labels=[None if label == ABSTAIN else classes[label] for label in answers.labels.tolist()],
            outcomes=outcomes,
            secure=answers.secure,
        )

    @app.get("/v1/requests/{request_id}", responses=keyed | may(404, 422), summary="What became of a request")
    async def request_state(
        key: Caller,
        request_id: Annotated[str, Path(min_length=1, max_length=schemas.REQUEST_ID_LENGTH)],
    ) -> schemas.Request:
        """Of this key's; send the request again for its answers."""
        found = await run_in_threadpool(service.ledger.request, f"{key.id}/{request_id}")
        if found is None:
            raise Refused(404, "unknown_request", "Expected the id of a request that this key sent, got another.")
        shown = {name: found[name] for name in ("queries", "answers", "settled")}
        return schemas.Request(request_id=request_id, **shown)

    @app.get("/v1/about", responses=keyed, summary="What the service takes and gives")
    async def about(key: Caller) -> schemas.About:
        return schemas.About(
            classes=classes,
            row_shape=list(service.rows.shape),
            dtype=service.rows.dtype,
            n_teachers=voters.n_teachers,
            mechanism=mechanism_to_json(service.labeller.mechanism),
            guarantee=schemas.Guarantee(**asdict(numbers.guarantee)),
            key=key.name,
            role=key.role,
            rows_at_most=limits.rows,
            bytes_at_most=limits.body,
            version=VERSION,
        )

    @app.get("/v1/budget", responses=keyed, summary="What is spent and what is left")
    async def budget(key: Caller) -> schemas.Budget:
        return schemas.Budget(**await run_in_threadpool(numbers.budget))

    @app.get("/v1/ledger/consistency", responses=keyed | may(422), summary="That the ledger goes on from a kept head")
    async def consistency(
        key: Caller,
        first: Annotated[int, Query(ge=0, lt=1 << 62, description="Number of the head that was kept.")],
        second: Annotated[int, Query(ge=0, lt=1 << 62, description="Number of the head now; at least the first.")],
    ) -> schemas.Consistency:
        try:
            return schemas.Consistency(**asdict(await run_in_threadpool(service.ledger.proof, first, second)))
        except InputError as error:
            raise Refused(422, "bad_request", str(error)) from None

    @app.get("/v1/history", responses=keyed, summary="Spending over time")
    async def history(key: Caller) -> schemas.History:
        return schemas.History.model_validate({"points": await run_in_threadpool(numbers.history)})

    @app.get("/v1/usage", responses=keyed | may(403), summary="Every key's use, for admins")
    async def usage(request: Request, key: Caller) -> schemas.Usage:
        await service.admin(request, key)
        spent = await run_in_threadpool(service.ledger.accounts)
        found = []
        for one in await run_in_threadpool(service.keys.list):
            of_key = spent.get(one.id)
            queries, answers = (of_key.queries, of_key.answers) if of_key else (0, 0)
            found.append(schemas.Use(**asdict(one), queries=queries, answers=answers))
        return schemas.Usage(keys=found)


def _add_pages(app: FastAPI, service: _Service) -> None:
    @app.get("/healthz", summary="Whether the process runs")
    async def health() -> schemas.Health:
        return schemas.Health(status="ok")

    @app.get("/readyz", responses={503: {"model": schemas.Failure}}, summary="Whether it can answer")
    async def ready() -> schemas.Health:
        """Whether the ledger can be read and someone is at the desk."""
        if not service.desk.alive:
            raise Refused(503, "not_ready", "Expected to be ready, got a service that is closing.")
        await run_in_threadpool(service.ledger.head)
        return schemas.Health(status="ok")

    @app.get("/metrics", response_class=PlainTextResponse, summary="Public numbers, for Prometheus")
    async def metrics() -> Response:
        text, kind = await run_in_threadpool(service.metrics.page)
        return Response(text, media_type=kind)

    for path, name in _ASSETS.items():
        content = files("terrine.service").joinpath(name).read_bytes()
        app.get(path, include_in_schema=False)(_asset(content, _TYPES[name.rpartition(".")[2]]))


def _asset(content: bytes, kind: str) -> Callable[[], Awaitable[Response]]:
    async def page() -> Response:
        return Response(content, media_type=f"{kind}; charset=utf-8")

    return page


def _add_errors(app: FastAPI) -> None:
    @app.exception_handler(TerrineError)
    async def refused(request: Request, error: TerrineError) -> Response:
        status, code, headers = _kind(error)
        return failure(request, status, code, str(error), headers)

    @app.exception_handler(HTTPException)
    async def http(request: Request, error: HTTPException) -> Response:
        codes = {404: "not_found", 405: "method_not_allowed"}
        said = f"Expected another request, got: {error.detail}."
        headers = dict(error.headers) if error.headers else None
        return failure(request, error.status_code, codes.get(error.status_code, "bad_request"), said, headers)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        where = ".".join(str(part) for part in error.errors()[0]["loc"])
        return failure(request, 422, "bad_request", f"Expected another {where}: {error.errors()[0]['msg'].lower()}.")


def _kind(error: TerrineError) -> tuple[int, str, dict[str, str] | None]:
    match error:
        case Refused():
            return error.status, error.code, error.headers
        case QuotaError():
            return 402, "quota_exhausted", None
        case BudgetError():
            return 402, "budget_exhausted", None
        case Busy():
            return 503, "busy", {"Retry-After": "1"}
        case BodyError():
            return 400, "bad_body", None
        case RequestError():
            return 409, "request_conflict", None
        case LedgerError():
            return 503, "ledger_unavailable", {"Retry-After": "1"}
        case TeachersError():
            return 503, "teachers_failed", None
        case InputError():
            return 422, "bad_rows", None
        case _:
            return 503, "unavailable", None


def failure(
    request: Request, status: int, code: str, message: str, headers: dict[str, str] | None = None
) -> JSONResponse:
    request.state.code = code
    shown = schemas.Failure(error=schemas.Problem(code=code, message=message))
    return JSONResponse(shown.model_dump(), status_code=status, headers=headers)
