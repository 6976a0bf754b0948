"""What a student's receiver may rely on: its card for programs and for people, and what a run says of its student."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Self

from terrine.accounting.curves import round_up
from terrine.errors import InputError
from terrine.measured import Measured
from terrine.relations import Relation
from terrine.students.lessons import SEEDED, About, public
from terrine.students.verdict import Verdict, is_probe, warnings_of

SCHEMA = "terrine.card/1"
SUMS = "noisy_sums"  # the mechanism of a probe
_MECHANISMS = {
    "lnmax": "LNMax",
    "gnmax": "GNMax",
    "confident": "Confident-GNMax",
    "interactive": "Interactive-GNMax",
    SUMS: "noisy sums of gradients",
}
_RELEASED = {SUMS: "noisy sums"}  # what a private mechanism gave; else labels
_IN_VOTES = {"threshold", "sigma", "sigma_check", "sigma_vote", "scale"}
_LONGEST = 100  # characters of a setting on the page


class _Json:
    """A frozen dataclass to plain JSON values and back, every field's type checked; unknown names are left alone."""

    def to_json(self) -> dict[str, Any]:
        plain: dict[str, Any] = json.loads(json.dumps(asdict(self), allow_nan=False))  # type: ignore[call-overload]
        return plain

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        from pydantic import TypeAdapter, ValidationError  # slow to import, and only files need it

        try:
            made: Self = TypeAdapter(cls).validate_json(json.dumps(value, allow_nan=False), strict=True)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"]) or "the whole"
            raise InputError(f"{cls.__name__}, {where}: {first['msg'].lower()}.") from None
        except (TypeError, ValueError):
            raise InputError(f"{cls.__name__}: a value that JSON has no form for, such as nan.") from None
        return made


@dataclass(frozen=True, kw_only=True)
class StudentResult(_Json):
    """What a run says of its student, all of it public.

    Attributes:
        kind: as in the run's settings.
        settings: how the student learned.
        accuracy: share of right predictions on labeled test rows; None without such rows, as the next three.
        n_test: how many test rows.
        interval: 95% interval of the accuracy.
        per_class: accuracy on the rows of each class; None for a class without rows.
        never_predicted: classes that the student names for none of the public rows.
        verdicts: the student beside always naming the commonest class: by the answers, and on the test rows.
        seldom_predicted: classes that it names for less than a tenth of their share of the answers: their share of its
            predictions on public rows, and of the answers.
        warnings: what is wrong with the student, in sentences.
        test_rows: whose rows the test rows are, in a sentence or two; empty without such rows.
    """

    kind: str
    settings: dict[str, Any]
    accuracy: float | None
    n_test: int | None
    interval: tuple[float, float] | None
    per_class: dict[str, float | None] | None
    never_predicted: tuple[str, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    seldom_predicted: dict[str, tuple[float, float]] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    test_rows: str = ""

    def __post_init__(self) -> None:
        by_probe = is_probe(self.settings)
        said = warnings_of(self.verdicts, seldom=self.seldom_predicted, never=self.never_predicted, by_probe=by_probe)
        object.__setattr__(self, "warnings", said)

    def for_card(self) -> dict[str, Any]:
        """What the student's card says of it."""
        names = ("accuracy", "n_test", "interval", "verdicts", "warnings", "test_rows")
        return {name: value for name, value in self.to_json().items() if name in names}


@dataclass(frozen=True, kw_only=True)
class LedgerHead:
    """Up to which entry a ledger had paid: whoever keeps it can tell a ledger that was changed or rolled back."""

    id: str
    seq: int
    hash: str


@dataclass(frozen=True, kw_only=True)
class Card(_Json):
    """A student's card for programs: what a release officer or a registry reads, all of it public.

    None stands for what was not said when the student was saved.

    Attributes:
        epsilon, delta, basis: the guarantee, and what it rests on.
        relation: what two neighboring data sets differ in; ``unit``: whose contribution that is (row, unit, teacher).
        unit_column: the column of the private table that says whose row it is.
        private: whether the guarantee holds: False if a seeded sampler drew the noise of the answers.
        mechanism, parameters: what drew the answers: its kind, and its numbers by name.
        rounds: where several mechanisms answered, one after another: what each might do, and what came of it.
        n_queries, n_answers: the budget: at most this number of questions and of answers.
        n_answered: answers that the student had to learn from.
        ledger: where the ledger stood that paid for the answers.
        accuracy, n_test, interval: on labeled public test rows, with the 95% interval.
        verdicts, warnings, test_rows: as of a `StudentResult`; of a probe the warnings are of what it measured, too.
        measured: of a probe, how often it is right about the private rows that taught it.
        date: on which the student was first saved, in UTC.
    """

    epsilon: float | None
    delta: float | None
    basis: str | None
    relation: str | None
    unit: str | None
    private: bool | None
    mechanism: str | None
    parameters: dict[str, float]
    n_teachers: int | None
    n_queries: int | None
    n_answers: int | None
    n_answered: int
    ledger: LedgerHead | None
    classes: tuple[str, ...]
    accuracy: float | None
    n_test: int | None
    interval: tuple[float, float] | None
    terrine: str
    date: str | None
    notes: tuple[str, ...] = ()
    rounds: tuple[dict[str, Any], ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    warnings: tuple[str, ...] = ()
    unit_column: str | None = None
    measured: Measured | None = None
    test_rows: str = ""

    @classmethod
    def of(cls, about: About, facts: Mapping[str, Any], *, terrine: str, date: str | None) -> Card:
        """From what is known of the student and what `save` was given: names as in a run's guarantee.json."""
        facts = public(facts)
        relation = facts.get("relation")
        mechanism = dict(facts.get("mechanism") or {})
        ledger = facts.get("ledger")
        if isinstance(ledger, dict) and "head" in ledger:  # "17:ab12...", as ledgers print it
            seq, _, digest = str(ledger["head"]).partition(":")
            ledger = {"id": ledger.get("id"), "seq": int(seq) if seq.isdecimal() else seq, "hash": digest}
        given = {one.name: facts.get(one.name) for one in fields(cls)} | {"test_rows": facts.get("test_rows") or ""}
        judged = [] if about.verdict is None else [about.verdict]
        made = cls.from_json(
            {
                **given,
                "unit": next((word for word in ("row", "unit", "teacher") if word in str(relation)), None),
                "private": False if about.noise == SEEDED else facts.get("secure_noise"),
                "mechanism": mechanism.pop("kind", None),
                "parameters": mechanism,
                "n_queries": facts.get("n_queries", facts.get("queries_at_most")),
                "n_answers": facts.get("n_answers", facts.get("answers_at_most")),
                "n_answered": about.n_answered,
                "ledger": ledger,
                "classes": list(about.classes),
                "terrine": terrine,
                "date": date,
                "notes": facts.get("notes") or [],
                "rounds": facts.get("rounds") or [],
                "verdicts": facts.get("verdicts", [asdict(one) for one in judged]),
                "warnings": facts.get("warnings", warnings_of(judged, seldom={}, never=())),
            }
        )
        measured = () if made.measured is None else made.measured.warnings(about.classes)
        return replace(made, warnings=tuple(dict.fromkeys((*made.warnings, *measured))))


def page(card: Card, about: About, *, columns: Sequence[str] = ()) -> str:
    """The card for people, in Markdown; ``columns`` are the schema's, where the student has one."""
    made = f" on {card.date}" if card.date else ""
    return "\n".join(
        [
            "# Model card",
            "",
            f"A classifier of {len(card.classes)} classes, made with terrine {card.terrine}{made}. `card.json` says "
            "the same to programs.",
            "",
            "## Privacy",
            "",
            *_privacy(card),
            "",
            f"The model was made from public rows and from {_RELEASED.get(card.mechanism or '', 'labels')} that a "
            "private mechanism released, and from nothing else: using, copying or changing it costs no further "
            "privacy.",
            "",
            "## Accuracy",
            "",
            _accuracy(card),
            *(f"\n{one.in_words}" for one in card.verdicts),
            *(f"\n**Warning:** {one}" for one in card.warnings if one != str(card.measured)),
            "",
            "## Model",
            "",
            *_table(_model(card, about, columns)),
            "",
            "## Settings",
            "",
            *_table([(name, _plain(value)) for name, value in about.settings.items() if name != "student"]),
            "",
        ]
    )


def _privacy(card: Card) -> list[str]:
    lines = []
    if card.private is False:
        lines += [
            "**NOT PRIVATE: a seeded sampler drew the noise of the labels. The guarantee below does not hold.**",
            "",
        ]
    if card.epsilon is None:
        return [*lines, "No guarantee was given."]
    at_most = f"{card.n_queries:,} questions" if card.n_queries is not None else ""
    if card.n_answers is not None:
        at_most += f"{' and ' if at_most else ''}{card.n_answers:,} answers"
    head = card.ledger
    rows = [
        ("ε (epsilon), rounded up", round_up(card.epsilon)),
        ("δ (delta)", None if card.delta is None else f"{card.delta:g}"),
        ("protects", _protected(card)),
        ("two data sets are neighbors if", None if card.relation is None else Relation(card.relation).sentence),
        ("rests on", card.basis),
        ("mechanism", _mechanism(card.mechanism, card.parameters, measured=card.measured is not None)),
        *((f"round {k}", _round(one)) for k, one in enumerate(card.rounds, start=1)),
        ("teachers", None if card.n_teachers is None else f"{card.n_teachers:,}"),
        ("budget, fixed beforehand", f"at most {at_most}" if at_most else None),
        ("ledger that was charged", None if head is None else f"`{head.id}`, entry {head.seq:,}, hash `{head.hash}`"),
        *(("note", note) for note in card.notes),
    ]
    return [*lines, *_table([(name, value) for name, value in rows if value is not None])]


def _protected(card: Card) -> str | None:
    if card.unit == "unit" and card.unit_column is not None:
        return f"each `{card.unit_column}` of the private data: all rows that share it"
    return None if card.unit is None else f"each {card.unit} of the private data"


def _mechanism(kind: str | None, parameters: Mapping[str, float], *, measured: bool = False) -> str | None:
    """Kind and numbers; of a probe the sum that measured it, which its file counts as a step, is told apart."""
    if kind is None:
        return None
    if kind == SUMS and measured:
        others = {name: value for name, value in parameters.items() if name != "steps"}
        sums = f"{parameters['steps'] - 1:,.0f} {_MECHANISMS[SUMS]} and one that measured it"
        return ", ".join([sums, *(f"{name} {value:g}" for name, value in others.items())])
    numbers = [f"{name} {value:g}" + (" votes" if name in _IN_VOTES else "") for name, value in parameters.items()]
    return _MECHANISMS.get(kind, kind) + (f": {', '.join(numbers)}" if numbers else "")


def _round(one: Mapping[str, Any]) -> str:
    numbers = dict(one["mechanism"])
    own = f", {one['reinforced']:,} kept the student's own label" if numbers["kind"] == "interactive" else ""
    return (
        f"{_mechanism(numbers.pop('kind'), numbers)}; at most {one['queries_at_most']:,} questions and "
        f"{one['answers_at_most']:,} answers; {one['answered']:,} answered{own}, {one['withheld']:,} withheld"
    )


def _accuracy(card: Card) -> str:
    more = "" if card.measured is None else f" {card.measured}"
    if card.accuracy is None:
        return f"Not measured on test rows: none with labels were given.{more}"
    rows = f" of {card.n_test:,} labeled test rows" if card.n_test is not None else ""
    between = "" if card.interval is None else " (95% interval: {:.1%} to {:.1%})".format(*card.interval)
    kind = f" {card.test_rows}" if card.test_rows else ""
    return f"Right on {card.accuracy:.1%}{rows}{between}.{kind}{more}"


def _model(card: Card, about: About, columns: Sequence[str]) -> list[tuple[str, str]]:
    return [
        ("student", str(about.settings.get("student", "not stated"))),
        ("classes", _names(card.classes)),
        ("input", _input(about, columns)),
        ("public rows", f"{about.n_public:,}, of them {about.n_answered:,} with a released label"),
        ("labels left out as probably wrong", f"{about.n_answered - about.n_learned:,}"),
        ("noise of the sums" if card.mechanism == SUMS else "noise of the labels", about.noise),
        ("seed", str(about.seed)),
    ]


def _names(names: Sequence[str]) -> str:
    return ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")


def _input(about: About, columns: Sequence[str]) -> str:
    if columns:
        return f"tables with the columns {_names(columns)}, in any order; `schema.toml` says what each of them holds"
    if about.kind is not None and about.kind.columns:
        return f"tables with the columns {_names([one.name for one in about.kind.columns])}, in any order"
    if about.kind is not None:
        return str(about.kind)
    shape = " x ".join(f"{size:,}" for size in about.row_shape)
    return f"images of {shape} pixels, uint8" if about.images else f"rows of {shape} numbers"


def _plain(value: Any) -> str:
    """A setting as people write it: no quotes, brackets or braces, and six digits at most."""
    match value:
        case Mapping():
            return ", ".join(f"{name} {_plain(inner)}" for name, inner in value.items())
        case list() | tuple():
            return ", ".join(_plain(inner) for inner in value)
        case None | bool():
            return {None: "none", True: "yes", False: "no"}[value]
        case float():
            return f"{value:g}"
    text = " ".join(str(value).split())
    if text in ("None", "True", "False"):
        return {"None": "none", "True": "yes", "False": "no"}[text]
    if re.fullmatch(r"-?\d+\.\d+(e-?\d+)?", text):
        return f"{float(text):g}"
    text = text.strip("'\"") if text[:1] == text[-1:] else text
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "..."


def _table(rows: Sequence[tuple[str, str]]) -> list[str]:
    cells = [(name, " ".join(value.split()).replace("|", "\\|")) for name, value in rows]
    return ["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in cells)]
