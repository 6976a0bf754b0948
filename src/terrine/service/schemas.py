"""The service's JSON, for OpenAPI: public numbers only."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from terrine import measured
from terrine.accounting import curves
from terrine.mechanisms import Outcome
from terrine.schema.checking import Unread, What
from terrine.service.parsing import NPY

OutcomeName = Literal["answered", "withheld", "reinforced", "unasked"]
WhyUnasked = Literal["budget_exhausted", "quota_exhausted"]
OUTCOMES: dict[Outcome, OutcomeName] = {
    Outcome.TEACHERS: "answered",
    Outcome.REINFORCED: "reinforced",
    Outcome.ABSTAINED: "withheld",
    Outcome.UNASKED: "unasked",
}
TRAINING = (
    "steps",
    "steps_kept",
    "measures",
    "clip",
    "noise",
    "planned_units",
    "features",
)  # as `PublishedProbe` names them
REQUEST_ID_LENGTH = 180  # the ledger's, less the key's id in front

_HEAD = "17:4bf5122f344554c53bde2ebb8cd2b7e3d1600ad631c385a5d7cce23c7785459a"


class _Shown(BaseModel):
    model_config = ConfigDict(frozen=True)


class Problem(_Shown):
    code: str = Field(examples=["budget_exhausted"], description="Stable: for programs.")
    message: str = Field(description="One line, for people: what is wrong, and what to do.")
    requested: int | None = Field(
        None, description="With budget_exhausted and quota_exhausted: how many rows the request asked about."
    )
    left: dict[str, float] | None = Field(
        None,
        examples=[{"queries": 0, "answers": 3}],
        description="With budget_exhausted: what is left of the budget, as in /v1/budget; with quota_exhausted: how "
        "many queries are left of the key's quota.",
    )
    epsilon: float | None = Field(None, description="With test_failed: what is spent all the same; so is delta.")
    delta: float | None = None
    lost: bool | None = Field(
        None, description="With test_failed: the release was begun, and the noise kept for it is not on this server."
    )


class Failure(_Shown):
    """Every error looks like this."""

    error: Problem


class OddCells(_Shown):
    """Cells of one column that could not be used as they stand; their rows are answered all the same."""

    column: str
    what: What = Field(
        description="unreadable: no number, date or flag, so that they count as missing; unknown: words that the "
        'schema does not list, which count as "other", or as missing where words have an order; outside: most are '
        "beyond the schema's bounds, and set to the nearest."
    )
    cells: int = Field(ge=1, description="How many.")
    of: int = Field(ge=1, description="Of how many in this column that are not blank.")
    first_row: int = Field(ge=1, description="Of the request, from 1.")
    message: str = Field(description="One line, for people, which quotes the first of these cells.")

    @classmethod
    def of_unread(cls, found: Unread) -> Self:
        return cls(
            column=found.column,
            what=found.what,
            cells=found.n,
            of=found.known,
            first_row=found.first,
            message=str(found),
        )


class Labels(_Shown):
    """One label and one outcome per row, in order."""

    request_id: str = Field(examples=["batch-1"])
    labels: list[str | None] = Field(examples=[["7", None]], description="A class, or null where there is no label.")
    outcomes: list[OutcomeName] = Field(
        examples=[["answered", "withheld"]],
        description="answered: by the teachers, or by the probe; withheld: they agree too little; reinforced: the "
        "student's own label was confirmed; unasked: it was not put to the teachers, and why_unasked says why.",
    )
    why_unasked: WhyUnasked | None = Field(
        None,
        description="Where some outcome is unasked, what had no room for it: the service's budget, or the key's quota.",
    )
    secure: bool = Field(description="Whether all noise was drawn by the secure sampler.")
    odd_cells: list[OddCells] = Field(
        [],
        description="Of rows of a table, sent as objects: cells that could not be used as they stand, by column. Where "
        "most of a column is no number, date or flag, or all of it is beyond the bounds, the request is refused "
        "instead (bad_rows), and nothing charged.",
    )


class Guarantee(_Shown):
    """Of everything that this service will ever answer: fixed before its first answer."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)

    epsilon: float = Field(ge=0, examples=[2.208])
    delta: float = Field(ge=0, lt=1, examples=[1e-6])
    order: float | None = Field(description="Rényi order that it came from; null if from a privacy profile.")
    basis: str
    relation: str = Field(
        examples=["unit_any"],
        description="What two neighbors may differ in: unit_any, unit_added, unit_replaced, row_added, row_replaced or "
        "one_teacher; or the owner's own words, after `own: `.",
    )
    neighbors: str = Field("", description="The same, for people.")
    notes: list[str] = []

    def read(self) -> curves.Guarantee:
        return curves.Guarantee.from_json(self.model_dump())


class Training(_Shown):
    """How a probe was trained: noisy sums of clipped gradients, paid for whole before the first."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)

    steps: int = Field(
        ge=1,
        description="Sums that were paid for: steps of the descent and, where `measures` is true, one more that "
        "measures. Messages for people count the two apart.",
    )
    steps_kept: int = Field(ge=0, description="Sums that were made; kills lost the others.")
    measures: bool = Field(False, description="Whether the last of the sums measures how right the probe is.")
    clip: float = Field(gt=0, description="The longest contribution of one unit to a sum.")
    noise: float = Field(gt=0, description="Standard deviation of the noise, on every number of a sum.")
    planned_units: int = Field(ge=1, description="What stood in for the number of units.")
    features: int = Field(ge=1, description="Numbers that the probe sees of a row.")


class Measured(_Shown):
    """How right a probe is on its own private rows: numbers of units, each with noise, which are in its guarantee."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)

    right: float = Field(description="Units that it is right about; as each of these numbers, with noise.")
    wrong: float
    right_by_class: list[float] = Field(
        description="By true class, in the order of `classes`. The noise may make a rare class's number negative: read "
        "it as 0."
    )
    wrong_by_class: list[float]
    noise: float = Field(gt=0, description="Standard deviation of the noise on each of these numbers.")
    words: str = Field(description="The same for people, with shares and intervals where the noise does not hide them.")

    def read(self) -> measured.Measured:
        by_class = {name: tuple(getattr(self, name)) for name in ("right_by_class", "wrong_by_class")}
        return measured.Measured(**{**self.model_dump(), **by_class})


class About(_Shown):
    """What the service takes and gives."""

    route: Literal["teachers", "probe"] = Field(
        "teachers",
        description="Who answers. Teachers vote, and a question is charged; a probe was trained once, and labels any "
        "number of rows at no cost.",
    )

    classes: list[str] = Field(min_length=1)
    row_shape: list[int]
    dtype: str = Field(examples=["float32"])
    n_teachers: int | None = Field(ge=1, description="null with a probe.")
    mechanism: dict[str, Any] | None = Field(
        examples=[{"kind": "gnmax", "sigma": 40.0}], description="What draws an answer; null with a probe."
    )
    probe: Training | None = Field(None, description="How the probe was trained; null with teachers.")
    measured: Measured | None = Field(
        None,
        description="How often the probe is right about the private rows that taught it, in all and by class, where "
        "its training measured that.",
    )
    rounds: list[dict[str, Any]] = Field(
        [],
        description="Where the service has several mechanisms, one for each round: `?round=2` asks the second. "
        "`mechanism` is the first.",
    )
    guarantee: Guarantee
    key: str = Field(description="Name of the key that asked.")
    role: str = Field(examples=["client"])
    rows_at_most: int = Field(ge=1, description="In one request.")
    bytes_at_most: int = Field(description="In one .npy body; JSON: at most 8 MiB.")
    one_release: int | None = Field(
        None,
        description="The service pays for one tested release of exactly this number of rows: send all of them in one "
        "request. They are all answered if a private test passes, and none if it fails (test_failed).",
    )
    encoder: str | None = Field(
        None,
        description="sha256 of the encoder that made numbers of the owner's table: GET /v1/encoder has it. Rows of a "
        "table are made numbers by it: by the caller, or by the service where they are sent as objects. By another one "
        "the teachers would be asked about other numbers than they learned from.",
    )
    version: str

    @model_validator(mode="after")
    def _of_one_kind(self) -> Self:
        of_teachers = (self.route == "teachers", self.n_teachers is not None, self.mechanism is not None)
        if set(of_teachers) != {self.probe is None}:
            raise ValueError("route teachers has n_teachers and mechanism, and route probe has probe")
        return self


class Encoder(_Shown):
    """The encoder of the owner's table. It is public: it was learned from public rows alone."""

    sha256: str = Field(description="As `encoder` of GET /v1/about.")
    files: dict[str, str] = Field(description="Contents by file name, in base64: schema.toml and encoder.npz.")


class Budget(_Shown):
    """What is spent and what is left. How much is spent is progress, never a guarantee."""

    words: str = Field(description="The same, for people.")
    ledger_id: str
    head: str = Field(
        examples=[_HEAD],
        description="Number and hash of the newest entry. Keep it: `terrine ledger verify --head` shows with it "
        "whether the ledger was changed, or an older one restored.",
    )
    root: str = Field(
        examples=[_HEAD[3:]],
        description="Of the Merkle tree over all entries up to the head. Keep it with the head: /v1/ledger/consistency "
        "proves that a later ledger continues it.",
    )
    guarantee: Guarantee
    queries: int = Field(description="Charged so far, answered or not.")
    answers: int = Field(description="Charged so far.")
    open: int = Field(description="Queries that are charged and not settled: being answered, or left by a crash.")
    left: dict[str, float] = Field(
        description="Of each thing that the budget limits, such as queries and answers; empty with a probe."
    )
    labels_free: bool = Field(
        False,
        description="Whether any number of rows is labeled at no cost: by a probe. Its training is paid for whole and "
        "nothing more will be charged, so that share_spent is null; left is empty, since nothing runs out.",
    )
    room: int | None = Field(
        description="How many new queries fit, if every one is answered; 0: only queries answered before; null: any "
        "number, since a probe's labels cost nothing."
    )
    secure: bool = Field(description="Whether all noise so far was drawn by the secure sampler.")
    share_spent: float | None = Field(
        ge=0, le=1, examples=[0.31], description="null with a probe, whose labels use nothing up."
    )
    answered: int = Field(description="Distinct queries that the teachers answered.")
    withheld: int
    reinforced: int
    test: Literal["unasked", "open", "passed", "failed"] | None = Field(
        None, description="Of a tested release: how its test ended; unasked before it is charged, open before its bit."
    )

    def __repr_args__(self) -> Any:
        """The words first: of all the numbers they say what matters."""
        found = dict(super().__repr_args__())
        return [("words", found.pop("words")), *found.items()]


class Consistency(_Shown):
    """A proof that the ledger of `second` entries continues that of `first`: hashes as in RFC 6962, in hex.

    Leaf k of the tree is the digest of entry k + 1, 32 bytes."""

    first: int
    second: int
    path: list[str] = Field(description="Consistency of both trees; empty where first is 0 or equal to second.")
    first_path: list[str] = Field(description="Inclusion of entry first in the second tree; empty where first is 0.")
    second_path: list[str] = Field(description="Inclusion of entry second in the second tree; empty where it is 0.")
    root: str = Field(examples=[_HEAD[3:]], description="Of the second tree.")


class Request(_Shown):
    """What happened to a request."""

    request_id: str
    queries: int = Field(description="Charged for it; a query that was answered before, to any key, costs nothing.")
    answers: int = Field(description="Charged for it.")
    settled: bool = Field(description="False while it is being answered, and where a crash broke it off.")


class Point(_Shown):
    time: str
    queries: int
    answers: int
    share_spent: float


class History(_Shown):
    """Spending over time."""

    points: list[Point]


class Use(_Shown):
    id: str
    name: str
    role: str
    quota: int | None
    created: str
    revoked: str | None
    queries: int
    answers: int


class Usage(_Shown):
    """Every key's use; for admins."""

    keys: list[Use]


class Health(_Shown):
    status: Literal["ok"]


LABELS: dict[str, Any] = {
    "security": [{"HTTPBearer": []}],
    "parameters": [
        {
            "name": "request_id",
            "in": "query",
            "required": False,
            "schema": {"type": "string", "minLength": 1, "maxLength": REQUEST_ID_LENGTH},
            "description": "With an .npy body only.",
        },
        {
            "name": "round",
            "in": "query",
            "required": False,
            "schema": {"type": "integer", "minimum": 1, "default": 1},
            "description": "Which of `rounds` of GET /v1/about answers.",
        },
    ],
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {
                    "type": "object",
                    "required": ["request_id", "rows"],
                    "additionalProperties": False,
                    "properties": {
                        "request_id": {"type": "string", "minLength": 1, "maxLength": REQUEST_ID_LENGTH},
                        "rows": {
                            "type": "array",
                            "minItems": 1,
                            "description": "Rows of the shape that GET /v1/about names; or, where it names an encoder, "
                            "rows of a table, each an object with a cell (text, number, true, false or null) for each "
                            "column, at most 1 MiB of them.",
                            "items": {"anyOf": [{"type": "number"}, {"type": "array"}, {"type": "object"}]},
                        },
                        "student_proba": {
                            "type": "array",
                            "description": "For an interactive mechanism: the student's probabilities, a row each.",
                            "items": {"type": "array", "items": {"type": "number", "minimum": 0, "maximum": 1}},
                        },
                    },
                },
                "example": {"request_id": "batch-1", "rows": [[0.1, 0.9], [0.4, 0.2]]},
            },
            NPY: {
                "schema": {"type": "string", "format": "binary"},
                "description": "The rows as numpy.save writes them; ?request_id= names the request.",
            },
        },
    },
}
