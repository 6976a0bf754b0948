"""The label service. Every answer is charged on disk before it is sent; nothing else about the votes is sent."""

# Annotations are read at once (no __future__ import): FastAPI looks up names of functions within functions.
import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from importlib.resources import files
from typing import Annotated, Any, TypeVar

from fastapi import Depends, FastAPI, Path, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import PlainTextResponse
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.exceptions import HTTPException

from terrine._validate import JsonObject
from terrine.budgets import TestedBudget, TrainingBudget, mechanism_to_json
from terrine.errors import InputError, TerrineError
from terrine.labeller import KeptVotes, Labeller, Voters
from terrine.ledger import Ledger
from terrine.mechanisms import ConfidentGNMax, GNMax, LNMax, Mechanism
from terrine.noise import Noise
from terrine.service import schemas
from terrine.service.batching import Answering, Desk
from terrine.service.budget_stats import PublicNumbers
from terrine.service.callers import Callers, Latest
from terrine.service.failures import failure, refusal
from terrine.service.keys import Key, Keys
from terrine.service.labels import Labels, Threads
from terrine.service.limits import Limits, Refused
from terrine.service.middleware import Metrics, Watch, hold_metrics_folder
from terrine.service.pacing import PacedVoters
from terrine.service.parsing import RowFormat
from terrine.service.probe_labels import ProbeLabels
from terrine.service.rounds import RoundLabellers
from terrine.service.wire import GATE, Gate

__all__ = ["Limits", "make_app", "make_probe_app"]

T = TypeVar("T")
VERSION = "1"
_NAMES = ("dashboard.js", "dashboard.chart.js", "dashboard.words.js", "dashboard.css", "dashboard.svg")
_ASSETS = {"/": "dashboard.html"} | {f"/{name}": name for name in _NAMES}
_TYPES = {"html": "text/html", "js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}
_WHAT = {
    400: "The body cannot be read.",
    401: "No key was sent, or one that is not in use.",
    402: "Not enough budget, or the key's quota is used up: budget_exhausted, quota_exhausted.",
    403: "The key's role does not allow it.",
    404: "Not found.",
    409: "The request id was used before, for other rows.",
    410: "The private test of the one tested release did not pass: nothing was published, nor will be (test_failed).",
    413: "The body is larger than the service takes.",
    415: "The body is neither JSON nor .npy.",
    422: "The rows do not fit the teachers (bad_rows) or are not those of the one tested release (tested_rows), or a "
    "parameter is not valid (bad_request).",
    429: "Too many requests in a second; Retry-After says when to try again.",
    503: "The service cannot answer now; the same request may be sent again.",
}


def make_app(
    voters: Voters,
    mechanism: Mechanism | Sequence[Mechanism],
    ledger: Ledger,
    keys: Keys,
    *,
    rows: RowFormat,
    limits: Limits | None = None,
    rng: Noise | None = None,
) -> FastAPI:
    """The app for teachers, a mechanism, and the ledger that pays.

    Args:
        mechanism: what answers; or one for each round, which requests name, on a ledger that pays for all of them.
        rows: what the teachers take, and the encoder of the owner's table, for those who ask; it is public.
        rng: None for secure noise; a seeded one for tests, which the ledger and every answer say.
    """
    limits = limits or Limits()
    check_release(ledger, limits)
    if limits.pace > 0 and not isinstance(voters, KeptVotes):  # votes that are kept are found in a time of their own
        voters = PacedVoters(voters, row_shape=rows.shape, dtype=rows.dtype)
    several = [mechanism] if isinstance(mechanism, LNMax | GNMax | ConfidentGNMax) else list(mechanism)
    labeller = RoundLabellers([Labeller(voters, one, ledger, rng=rng) for one in several])
    offer = _Offer(labeller, tuple(voters.classes), n_teachers=voters.n_teachers, mechanisms=tuple(several))
    return _app(_Service(offer, ledger, keys, rows, limits))


def make_probe_app(
    probe: ProbeLabels,
    ledger: Ledger,
    keys: Keys,
    *,
    limits: Limits | None = None,
) -> FastAPI:
    """The app for a trained probe, whose labels are charged to nobody.

    Args:
        ledger: the one that paid for the training. Only keys are written to it.
    """
    if not isinstance(ledger.budget, TrainingBudget):
        raise InputError("The ledger does not pay for the training of a probe: its labels would have no guarantee.")
    offer = _Offer(probe, probe.classes, probe=probe.facts, measured=probe.measured)
    return _app(_Service(offer, ledger, keys, probe.rows, limits or Limits()))


@dataclass(frozen=True)
class _Offer:
    """Who answers, and what may be said of them; either ``mechanisms`` and ``n_teachers`` are there, or ``probe``."""

    answering: Answering
    classes: tuple[str, ...]
    n_teachers: int | None = None
    mechanisms: tuple[Mechanism, ...] = ()
    probe: JsonObject | None = None
    measured: JsonObject | None = None


def _app(service: "_Service") -> FastAPI:
    offer, limits = service.offer, service.limits

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[dict[str, Any]]:
        desk = service.labels.desk = Desk(offer.answering, waiting=limits.waiting)
        try:
            with hold_metrics_folder():
                yield {GATE: Gate(limits)}
        finally:
            await asyncio.get_running_loop().run_in_executor(None, desk.close)  # those who wait are answered first
            service.close()
            service.keys.close()
            service.ledger.close()

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
    app.add_middleware(Watch, metrics=service.metrics, straight={("POST", "/v1/labels"): service.labels})
    return app


def check_release(ledger: Ledger, limits: Limits) -> None:
    """Refuse limits that a ledger's one tested release does not fit into."""
    if isinstance(ledger.budget, TestedBudget) and limits.rows < ledger.budget.n_queries:
        raise InputError(
            f"The ledger pays for one tested release of {ledger.budget.n_queries} rows in one request, and a request "
            f"may have {limits.rows}. Serve with --rows {ledger.budget.n_queries}."
        )


class _Service:
    """What the routes share. Each kind of work has its own threads, so that none of it keeps another waiting."""

    def __init__(self, offer: _Offer, ledger: Ledger, keys: Keys, rows: RowFormat, limits: Limits) -> None:
        self.offer, self.ledger, self.keys = offer, ledger, keys
        self.rows, self.limits = rows, limits
        self.one_release = ledger.budget.n_queries if isinstance(ledger.budget, TestedBudget) else None
        self.numbers = PublicNumbers(ledger, offer.mechanisms[0] if offer.mechanisms else None)
        self.metrics = Metrics(self.numbers)
        self._reads = ThreadPoolExecutor(2, "terrine-reads")
        self._look_ups, self._bodies = ThreadPoolExecutor(1, "terrine-keys"), ThreadPoolExecutor(1, "terrine-bodies")
        self.callers = Callers(keys, rate=limits.rate, pool=self._look_ups)
        self.labels = Labels(
            self.callers,
            ledger,
            classes=offer.classes,
            rows=rows,
            limits=limits,
            metrics=self.metrics,
            threads=Threads(bodies=self._bodies, reads=self._reads),
        )
        self.labels.n_rounds = max(len(offer.mechanisms), 1)
        self.budget = Latest(self.numbers.budget, self._reads)
        self.history = Latest(self.numbers.history, self._reads)
        self.head = Latest(ledger.head, self._reads)
        self.page = Latest(self.metrics.page, self._reads)

    async def read(self, function: Callable[..., T], *given: Any) -> T:
        """Of the ledger, for a caller whose rate is limited."""
        return await asyncio.get_running_loop().run_in_executor(self._reads, function, *given)

    async def caller(
        self,
        request: Request,
        _: Annotated[
            HTTPAuthorizationCredentials | None,
            Depends(HTTPBearer(auto_error=False, description="A key, as `terrine keys create` prints it.")),
        ],
    ) -> Key:
        key = await self.callers.admit(request.headers.get("authorization", ""))
        request.state.key = key.id
        return key

    def close(self) -> None:
        for pool in (self._reads, self._look_ups, self._bodies):
            pool.shutdown()


def _add_routes(app: FastAPI, service: _Service) -> None:
    def may(*statuses: int) -> dict[int | str, dict[str, Any]]:
        return {status: {"model": schemas.Failure, "description": _WHAT[status]} for status in statuses}

    Caller = Annotated[Key, Depends(service.caller)]
    keyed = may(401, 429, 503)
    offer, limits, numbers, encoder = service.offer, service.limits, service.numbers, service.rows.encoder
    mechanisms = [mechanism_to_json(one) for one in offer.mechanisms]

    @app.post(
        "/v1/labels",
        response_model=schemas.Labels,
        openapi_extra=schemas.LABELS,
        responses=may(400, 401, 402, 409, 410, 413, 415, 422, 429, 503),
        summary="Ask for labels",
    )
    async def labels(request: Request) -> Response:
        """The same request id with the same rows gives the same answers, and is charged once; a row that was ever
        answered has that answer for ever, free. A probe charges nothing and keeps no request: its label of a row is
        always the same."""
        return await service.labels.respond(request)

    async def request_state(key: Key, request_id: str) -> schemas.Request:
        found = await service.read(service.ledger.request, f"{key.id}/{request_id}")
        if found is None:
            kept = "This key sent no request of that id."
            free = "Labels by a probe cost nothing, and no request is kept. Send it again: the labels are the same."
            raise Refused(404, "unknown_request", kept if offer.probe is None else free)
        return schemas.Request(
            request_id=request_id, queries=found.queries, answers=found.answers, settled=found.settled
        )

    longest: dict[str, Any] = {"min_length": 1, "max_length": schemas.REQUEST_ID_LENGTH}

    @app.get("/v1/requests", responses=keyed | may(404, 422), summary="What happened to a request, whatever its id")
    async def request_by_query(key: Caller, request_id: Annotated[str, Query(**longest)]) -> schemas.Request:
        """Of this key's; send the request again for its answers."""
        return await request_state(key, request_id)

    @app.get("/v1/requests/{request_id:path}", responses=keyed | may(404, 422), summary="What happened to a request")
    async def request_by_path(key: Caller, request_id: Annotated[str, Path(**longest)]) -> schemas.Request:
        """Of this key's; send the request again for its answers. An id that is `.` or `..` or has two slashes together
        may be changed on the way: ask for it with `?request_id=`."""
        return await request_state(key, request_id)

    @app.get("/v1/about", responses=keyed, summary="What the service takes and gives")
    async def about(key: Caller) -> schemas.About:
        return schemas.About(
            route="teachers" if offer.probe is None else "probe",
            classes=list(offer.classes),
            row_shape=list(service.rows.shape),
            dtype=service.rows.dtype,
            n_teachers=offer.n_teachers,
            mechanism=mechanisms[0] if mechanisms else None,
            probe=None if offer.probe is None else schemas.Training(**offer.probe),
            measured=None if offer.measured is None else schemas.Measured(**offer.measured),
            rounds=mechanisms if len(mechanisms) > 1 else [],
            guarantee=schemas.Guarantee(**numbers.guarantee.to_json()),
            key=key.name,
            role=key.role,
            rows_at_most=limits.rows,
            bytes_at_most=limits.body,
            one_release=service.one_release,
            encoder=None if encoder is None else encoder.sha256,
            version=VERSION,
        )

    @app.get("/v1/encoder", responses=keyed | may(404), summary="What makes numbers of a table's rows")
    async def encoder_files(key: Caller) -> schemas.Encoder:
        """Where the owner's rows are a table."""
        if encoder is None:
            raise Refused(404, "no_encoder", "The rows of this service are no table: there is no encoder.")
        return schemas.Encoder(sha256=encoder.sha256, files=encoder.packed())

    @app.get("/v1/budget", responses=keyed, summary="What is spent and what is left")
    async def budget(key: Caller) -> schemas.Budget:
        return await service.budget()

    @app.get(
        "/v1/ledger/consistency",
        responses=keyed | may(422),
        summary="Proof that the ledger continues from a head you kept",
    )
    async def consistency(
        key: Caller,
        first: Annotated[int, Query(ge=0, lt=1 << 62, description="Number of the head that you kept.")],
        second: Annotated[int, Query(ge=0, lt=1 << 62, description="Number of the newest head; at least `first`.")],
    ) -> schemas.Consistency:
        try:
            return schemas.Consistency(**asdict(await service.read(service.ledger.proof, first, second)))
        except InputError as error:
            raise Refused(422, "bad_request", str(error)) from None

    @app.get("/v1/history", responses=keyed, summary="Spending over time")
    async def history(key: Caller) -> schemas.History:
        return schemas.History(points=[schemas.Point(**asdict(one)) for one in await service.history()])

    @app.get("/v1/usage", responses=keyed | may(403), summary="Every key's use, for admins")
    async def usage(key: Caller) -> schemas.Usage:
        if key.role != "admin":
            raise Refused(403, "not_an_admin", "This needs an admin's key: terrine keys create RUN --admin.")
        spent = await service.read(service.ledger.accounts)
        found = []
        for one in await service.read(service.keys.list):
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
        """Whether the ledger can be read and requests are being answered."""
        if not service.labels.desk.alive:
            raise Refused(503, "not_ready", "The service is closing.")
        await service.head()
        return schemas.Health(status="ok")

    @app.get("/metrics", response_class=PlainTextResponse, summary="Public numbers, for Prometheus")
    async def metrics() -> Response:
        text, kind = await service.page()
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
        return refusal(request, error)

    @app.exception_handler(HTTPException)
    async def http(request: Request, error: HTTPException) -> Response:
        codes = {404: "not_found", 405: "method_not_allowed"}
        code = codes.get(error.status_code, "bad_request")
        return failure(request, error.status_code, code, f"{error.detail}.", error.headers)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        where = ".".join(str(part) for part in error.errors()[0]["loc"])
        return failure(request, 422, "bad_request", f"{where}: {error.errors()[0]['msg'].lower()}.")
