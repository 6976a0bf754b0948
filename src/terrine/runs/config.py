"""What a run is, as a TOML file: data, teachers, privacy, student. All of it is public."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, Strict, ValidationError, field_validator, model_validator

from terrine._toml import toml_fault, toml_key, toml_value
from terrine.errors import InputError
from terrine.runs.config_words import in_words, shown
from terrine.runs.cost_config import COST_KEYS, CostSettings
from terrine.runs.features_config import FeaturesConfig, placed, spelled_out
from terrine.runs.features_config import Part as _Part

Count = Field(ge=1)
Neighbors = Literal["unit_added"]  # one unit is added or removed, with all its rows
_File = Annotated[Path, Strict(False)]  # TOML has strings for these, and lists
_Shape = Annotated[tuple[Annotated[int, Strict()], ...], Strict(False)]


class DataConfig(_Part):
    """A built-in data set by name, or one's own files."""

    name: str | None = None  # mnist, svhn, adult, glyph, small-glyph, blobs
    options: dict[str, Any] = Field(default_factory=dict)
    private: _File | None = None
    public: _File | None = None
    test: _File | None = None  # labeled, for the report's accuracy alone
    schema_file: _File | None = Field(default=None, alias="schema")  # of tables; else drafted from the public rows
    classes: list[str] | None = Field(default=None, min_length=2)
    label: str | None = None
    unit: str | None = None
    columns: list[str] | None = None
    ignore: list[str] | None = None
    categories: dict[str, list[str]] | None = None
    image_shape: _Shape | None = None
    units_planned: int | None = Field(default=None, ge=1)  # a public guess of how many people there are

    @model_validator(mode="after")
    def _one_of_two(self) -> Self:
        own = (self.private, self.public)
        if (self.name is None) == (own == (None, None)):
            raise ValueError("give `name` for a built-in data set, or `private` and `public` for your own files")
        if self.name is None and None in own:
            missing = "private" if self.private is None else "public"
            raise ValueError(f"`{missing}` is missing: your own data need a file of private and one of public rows")
        if self.name is None and self.options:
            raise ValueError("`options` are those of a built-in data set: leave them out, or set `name`")
        _check_own(self)
        return self


def _check_own(data: DataConfig | PublicDataConfig) -> None:
    """Refuse what says how to read files beside a built-in data set, and a second description beside a schema."""
    drafted = {"columns", "ignore", "categories"}
    given = {name for name in type(data).model_fields if getattr(data, name) is not None}
    if data.name is not None and (own := given & {"test", "schema_file", "classes", "label", "unit", *drafted}):
        raise ValueError(f"`{shown(min(own))}` is for your own files: leave it out beside `name`")
    if data.schema_file is not None and (twice := given & drafted):
        raise ValueError(f"`{min(twice)}` is said by the schema: leave it out here, and change it there")


class TeachersConfig(_Part):
    number: int = Count
    kind: Literal["forest", "boosting", "logistic", "lda", "ridge", "conv", "centroid", "sklearn", "module"] = "forest"
    estimator: str | None = None  # kind = "sklearn": a dotted name, as sklearn.svm.SVC
    module: str | None = None  # kind = "module": a function that makes a PyTorch module, as terrine:resnet32
    options: dict[str, Any] = Field(default_factory=dict)  # of the estimator, a recipe, or the teacher
    module_options: dict[str, Any] = Field(default_factory=dict)  # keywords of that function
    partition: Literal["hashed", "balanced"] = "hashed"
    min_units: int | None = Field(default=None, ge=0)  # None: 1 where the number of units is public, else 0
    first_id: int = Field(default=0, ge=0)
    keep: bool = True  # false: votes only, which is enough for everything but a service
    executor: Literal["serial", "processes", "ray"] = "processes"
    workers: int | None = Field(default=None, ge=1)
    chunk: int | None = Field(default=None, ge=1)
    device: str = "auto"

    @model_validator(mode="after")
    def _estimator(self) -> Self:
        if (self.kind == "sklearn") != (self.estimator is not None):
            if self.estimator is None:
                raise ValueError('kind = "sklearn" needs `estimator`, e.g. "sklearn.svm.SVC"')
            raise ValueError('`estimator` needs kind = "sklearn"')
        if self.kind == "module" and self.module is None:
            raise ValueError('kind = "module" needs `module`, e.g. "terrine:resnet32"')
        if self.kind != "module" and (self.module is not None or self.module_options):
            raise ValueError('`module` and `module_options` need kind = "module"')
        return self


class PrivacyConfig(_Part, CostSettings):
    """The mechanism and how often it may answer; or an epsilon, from which these are planned by public inputs.

    By the tested route all answers are published together, if a private test says that they cost no more than
    ``target``, and none otherwise. GNMax with an epsilon in place of sigma takes the least noise that meets it; with a
    consensus in place of queries it asks as many questions as leave most answers right.
    """

    delta: float = Field(gt=0, lt=1)
    accept_large_delta: bool = False  # go on where delta is not below one over the number of units
    epsilon: float | None = Field(default=None, gt=0)
    consensus: float | None = Field(default=None, gt=0, lt=1)  # share of teachers that agree: an assumption
    min_accuracy: float | None = Field(default=None, gt=0, lt=1)  # share of right answers (default: 0.95; GNMax: 0.85)
    mechanism: Literal["confident", "gnmax", "lnmax", "rounds"] | None = None  # "rounds": see [[rounds]]
    threshold: float | None = None
    sigma_check: float | None = Field(default=None, gt=0)
    sigma_vote: float | None = Field(default=None, gt=0)
    sigma: float | None = Field(default=None, gt=0)
    scale: float | None = Field(default=None, gt=0)
    queries: int | None = Field(default=None, ge=1)
    answers: int | None = Field(default=None, ge=1)
    ask: Literal["first", "random", "representative"] = "random"
    route: Literal["teachers", "probe", "tested", "auto"] | None = None  # None: teachers, by worst case
    neighbors: Neighbors | None = None  # None: as the partition has it
    measure: bool | None = None  # if the probe is taken; None: yes
    target: float | None = Field(default=None, gt=0)  # the tested route's epsilon
    order: float | None = Field(default=None, gt=1)  # of the test, as share is: terrine plan --route finds both
    share: float | None = Field(default=None, gt=0, lt=1)

    @property
    def wants_plan(self) -> bool:
        """Whether noise is still to be found, from epsilon."""
        return self.epsilon is not None

    @field_validator("route")
    @classmethod
    def _left_out(cls, route: str | None) -> str | None:
        if route == "probe":
            raise ValueError('route = "probe" learns without teachers: these settings are of teachers')
        return None if route == "teachers" else route  # one way to say one thing: older runs have none

    @model_validator(mode="after")
    def _either_route(self) -> Self:
        if self.route == "auto" and self.epsilon is None:
            raise ValueError('route = "auto" compares routes at one `epsilon`: give it, in place of the noise')
        if self.route == "auto" and self.mechanism == "rounds":
            raise ValueError('route = "auto" takes no [[rounds]]: leave them out, or set route = "teachers"')
        if self.route == "auto" and self.publish_cost:
            raise ValueError('route = "auto" takes no `publish_cost`: leave it out, or set route = "teachers"')
        return self

    @model_validator(mode="after")
    def _planned_or_given(self) -> Self:
        needed = {
            None: ("epsilon", "consensus"),
            "confident": ("threshold", "sigma_check", "sigma_vote", "queries"),
            "gnmax": ("sigma", "queries") if self.epsilon is None else ("epsilon",),
            "lnmax": ("scale", "queries"),
            "rounds": () if self.epsilon is None else ("epsilon", "consensus"),
        }[self.mechanism]
        about = "a plan (no `mechanism` is set)" if self.mechanism is None else f'mechanism = "{self.mechanism}"'
        if missing := next((name for name in needed if getattr(self, name) is None), None):
            raise ValueError(f"{about} needs `{missing}`")
        planned = {None: ("min_accuracy", "queries"), "confident": ("answers",)}.get(self.mechanism, ())
        if self.mechanism == "rounds" and self.epsilon is not None:
            planned = ("min_accuracy",)
        if self.mechanism == "gnmax" and self.epsilon is not None:
            planned = ("queries",) if self.queries is not None else ("min_accuracy",)
            if self.queries is None and self.consensus is None:
                raise ValueError(
                    'mechanism = "gnmax" with `epsilon` needs `queries`, how many questions to ask; or `consensus`, to '
                    "plan that"
                )
        allowed = {*needed, *planned, *self._of_route()}
        for name in PrivacyConfig.model_fields:
            always = {"delta", "accept_large_delta", "consensus", "mechanism", "ask", "route", "neighbors", *COST_KEYS}
            if name not in allowed | always and getattr(self, name) is not None:
                raise ValueError(f"{about} takes no `{name}`: leave it out")
        return self

    def _of_route(self) -> tuple[str, ...]:
        """What a route takes beside the mechanism's own numbers."""
        if self.route != "tested" or self.mechanism is None:
            return ("measure",) if self.route == "auto" else ()
        if self.mechanism in ("lnmax", "rounds") or self.epsilon is not None:
            raise ValueError(
                'route = "tested" takes mechanism = "confident" or "gnmax" with its numbers and `target`; or, with no '
                "mechanism, `epsilon` and `consensus`, from which it is planned; and no [[rounds]]"
            )
        if self.target is None:
            raise ValueError('route = "tested" with a mechanism needs `target`, the epsilon to claim')
        return ("target", "order", "share")


class RoundConfig(_Part):
    """One of several rounds: a mechanism with its numbers, or a share of the budget, from which they are planned."""

    mechanism: Literal["confident", "gnmax", "lnmax", "interactive"]
    share: float | None = Field(default=None, gt=0, le=1)  # of the budget, where rounds are planned (default: equal)
    threshold: float | None = None
    sigma_check: float | None = Field(default=None, gt=0)
    sigma_vote: float | None = Field(default=None, gt=0)
    sigma: float | None = Field(default=None, gt=0)
    scale: float | None = Field(default=None, gt=0)
    student_confidence: float | None = Field(default=None, ge=0, le=1)  # interactive (default: 0.9)
    queries: int | None = Field(default=None, ge=1)
    answers: int | None = Field(default=None, ge=1)

    def problem(self, *, planned: bool) -> str | None:
        """What is missing or too much in it, in words."""
        checked = ("threshold", "sigma_check", "sigma_vote")
        noise = {"confident": checked, "interactive": checked, "gnmax": ("sigma",), "lnmax": ("scale",)}[self.mechanism]
        about = f'mechanism = "{self.mechanism}"'
        if planned and noise != checked:
            return f'{about} is not planned from `epsilon`: use "confident" or "interactive", or give every noise'
        needed = () if planned else (*noise, "queries")
        allowed = {"mechanism", *needed, "share" if planned else "answers"}
        allowed |= {"queries"} if planned else set()
        allowed |= {"student_confidence"} if self.mechanism == "interactive" else set()
        for name in needed:
            if getattr(self, name) is None:
                return f"{about} needs `{name}`, or `epsilon` in [privacy] for a plan"
        for name in type(self).model_fields:
            if name not in allowed and getattr(self, name) is not None:
                return (
                    f"{about} takes no `{name}`{' beside an `epsilon` in [privacy]' if planned else ''}: leave it out"
                )
        return None


def _check_rounds(rounds: list[RoundConfig], *, planned: bool) -> None:
    """Refuse rounds that could not be asked one after another."""
    if rounds[0].mechanism == "interactive":
        raise ValueError('the first of [[rounds]] is "interactive", which needs a student: begin with "confident"')
    for k, one in enumerate(rounds, start=1):
        if wrong := one.problem(planned=planned):
            raise ValueError(f"round {k} of [[rounds]]: {wrong}")
    if sum(one.share or 0.0 for one in rounds) > 1 + 1e-9:
        raise ValueError("the `share`s of [[rounds]] add up to more than 1: make them smaller")


class StudentConfig(_Part):
    kind: Literal["auto", "vat", "gan", "match", "supervised", "features", "probe"] = "supervised"
    estimator: str | None = None  # a dotted name (default: a random forest on rows, discriminants on features)
    preset: Literal["small", "paper"] | None = None  # vat: a size for two cores; vat, gan: as the 2018 paper has it
    options: dict[str, Any] = Field(default_factory=dict)
    self_training: bool = False  # of estimators: also learn from public rows without an answer
    balanced: bool = False  # a rare class counts as much as a common one

    @model_validator(mode="after")
    def _where_they_apply(self) -> Self:
        if self.estimator is not None and self.kind not in ("supervised", "features"):
            raise ValueError(f'kind = "{self.kind}" takes no `estimator`: leave it out, or use kind = "supervised"')
        if self.options and self.kind == "features" and self.estimator is None:
            raise ValueError("`options` are those of `estimator`, which is missing: name it, or leave them out")
        if self.self_training and self.kind not in ("supervised", "features"):
            raise ValueError(f'kind = "{self.kind}" takes no `self_training`: it learns from all public rows anyway')
        if self.kind == "probe" and (self.options or self.balanced):
            raise ValueError('kind = "probe" is the probe as it is: leave out `options` and `balanced`')
        if self.kind not in {None: (self.kind,), "small": ("vat",), "paper": ("vat", "gan")}[self.preset]:
            raise ValueError(f'kind = "{self.kind}" takes no preset = "{self.preset}": leave it out, or use "vat"')
        return self


class RunConfig(_Part):
    seed: int = Field(default=0, ge=0)  # of teachers and student; the noise and the partition's key have none
    data: DataConfig
    features: FeaturesConfig | None = None
    teachers: TeachersConfig
    privacy: PrivacyConfig
    rounds: list[RoundConfig] | None = Field(default=None, min_length=1)
    student: StudentConfig = StudentConfig()

    @model_validator(mode="before")
    @classmethod
    def _rounds_are_a_mechanism(cls, given: Any) -> Any:
        """[[rounds]] stand in the place of privacy.mechanism, and words in the place of tables."""
        given = spelled_out(given)
        if isinstance(given, dict) and given.get("rounds") and isinstance(privacy := given.get("privacy"), dict):
            return {**given, "privacy": {"mechanism": "rounds", **privacy}}
        return given

    @model_validator(mode="after")
    def _together(self) -> Self:
        if (self.privacy.mechanism == "rounds") != (self.rounds is not None):
            if self.rounds is None:
                raise ValueError('privacy.mechanism = "rounds" needs [[rounds]] tables: add them')
            raise ValueError("[[rounds]] stand in the place of privacy.mechanism: leave it out")
        if self.rounds is not None:
            _check_rounds(self.rounds, planned=self.privacy.epsilon is not None)
        if self.teachers.kind == "centroid" and self.features is None:
            raise ValueError('teachers.kind = "centroid" needs a [features] table: add one')
        if self.privacy.ask == "representative" and (self.features is None or self.features.kind == "edges"):
            raise ValueError('privacy.ask = "representative" needs a [features] table, of kind "learned" or "auto"')
        if self.student.kind == "features" and self.features is None:
            raise ValueError('student.kind = "features" needs a [features] table: add one')
        if self.student.kind == "probe":
            raise ValueError('student.kind = "probe" needs route = "probe" in [privacy]')
        return self


class ProbePrivacyConfig(_Part):
    """What a probe is trained by: its noise follows from these and the planned number of units."""

    route: Literal["probe"]
    epsilon: float = Field(gt=0)
    delta: float = Field(gt=0, lt=1)
    accept_large_delta: bool = False
    neighbors: Neighbors | None = None  # None: one unit is changed; one row replaced, where a row is its own unit
    measure: bool | None = None  # one more sum tells how often the probe is right about the private rows; None: yes


class ProbeConfig(_Part):
    """A run that learns a private probe: nobody is taught, and nobody votes."""

    seed: int = Field(default=0, ge=0)  # of features and student; the noise has none
    data: DataConfig
    features: FeaturesConfig = FeaturesConfig(kind="auto")
    privacy: ProbePrivacyConfig
    student: StudentConfig = StudentConfig(kind="auto")

    @model_validator(mode="before")
    @classmethod
    def _nothing_of_teachers(cls, given: Any) -> Any:
        given = spelled_out(given)
        if not isinstance(given, dict):
            return given
        privacy = given.get("privacy")
        theirs = set(PrivacyConfig.model_fields) - set(ProbePrivacyConfig.model_fields)
        found = [f"[{name}]" for name in ("teachers", "rounds") if name in given]
        found += [f"privacy.{name}" for name in (privacy if isinstance(privacy, dict) else ()) if name in theirs]
        if found:
            raise ValueError(
                f'route = "probe" takes no settings of teachers: leave out {", ".join(found)}; or set route = "auto", '
                "and the run chooses"
            )
        return given

    @classmethod
    def of(cls, settings: RunConfig) -> ProbeConfig:
        """The probe of settings that leave the route open."""
        kept = settings.privacy.model_dump(include=set(ProbePrivacyConfig.model_fields) - {"route"})
        features = {} if settings.features is None else {"features": settings.features}
        return cls(
            seed=settings.seed,
            data=settings.data,
            privacy=ProbePrivacyConfig(route="probe", **kept),
            student=settings.student,
            **features,
        )


class PublicDataConfig(_Part):
    """The public side of a task: a built-in data set by name, or one's own files."""

    name: str | None = None
    options: dict[str, Any] = Field(default_factory=dict)
    public: _File | None = None
    test: _File | None = None  # labeled, for the report's accuracy alone
    schema_file: _File | None = Field(default=None, alias="schema")
    label: str | None = None  # in test; left out of public where it is there
    columns: list[str] | None = None
    ignore: list[str] | None = None
    categories: dict[str, list[str]] | None = None
    image_shape: _Shape | None = None

    @model_validator(mode="after")
    def _one_of_two(self) -> Self:
        if (self.name is None) == (self.public is None):
            raise ValueError("give `name` for a built-in data set, or `public` for your own rows, and not both")
        if self.name is None and self.options:
            raise ValueError("`options` are those of a built-in data set: leave them out, or set `name`")
        _check_own(self)
        return self


class LabelsConfig(_Part):
    """A label service, where the teachers are. Its key is in the environment's TERRINE_API_KEY, not here."""

    url: str = Field(pattern=r"^https?://")
    queries: int | None = Field(default=None, ge=1)  # in one round; else see [[rounds]]
    ask: Literal["first", "random"] = "random"
    batch: int = Field(default=1000, ge=1)


class RemoteRoundConfig(_Part):
    """A round of questions to a service, whose mechanism it is."""

    queries: int = Field(ge=1)
    answers: int | None = Field(default=None, ge=1)  # after which the round ends
    mechanism: Literal["confident", "gnmax", "lnmax", "interactive"] | None = (
        None  # refused if the service's is another
    )


class RemoteConfig(_Part):
    """A run whose labels come from a service: there is nothing private in it."""

    seed: int = Field(default=0, ge=0)
    data: PublicDataConfig
    labels: LabelsConfig
    rounds: list[RemoteRoundConfig] | None = Field(default=None, min_length=1)
    student: StudentConfig = StudentConfig()

    _words = model_validator(mode="before")(spelled_out)

    @model_validator(mode="after")
    def _no_features(self) -> Self:
        if (self.labels.queries is None) == (self.rounds is None):
            raise ValueError("give `queries` in [labels], or [[rounds]] with `queries` each, and not both")
        if self.student.kind in ("features", "probe"):
            raise ValueError(
                f'student.kind = "{self.student.kind}" does not work with [labels]: choose "supervised", "vat" or '
                '"match"'
            )
        return self


Settings = RunConfig | RemoteConfig | ProbeConfig


def read_config(path: str | Path) -> RunConfig:
    """A run's settings from a TOML file; file names in it are relative to it."""
    found = read_settings(path)
    if isinstance(found, ProbeConfig):
        raise InputError(
            f'{Path(path).name}: by route = "probe" nobody is taught and nobody votes. This is for runs with teachers.'
        )
    if not isinstance(found, RunConfig):
        raise InputError(
            f"{Path(path).name}: these settings have a [labels] table: a service's teachers answer, and none are "
            "taught here."
        )
    return found


def read_settings(path: str | Path) -> Settings:
    """A run's settings; with a [labels] table it asks a label service, with route = "probe" it has no teachers."""
    path = Path(path)
    try:
        given = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(
            f"There is no {path}. Give the TOML file of a run's settings; terrine init writes one."
        ) from None
    except IsADirectoryError:
        raise InputError(f"{path} is a folder. Give the TOML file of a run's settings.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        text = path.read_text(encoding="utf-8", errors="replace")
        raise InputError(f"{path} is not TOML in UTF-8: {toml_fault(text, error)}") from None
    data = given.get("data")
    if isinstance(data, dict):
        for name in ("private", "public", "test", "schema"):
            if isinstance(data.get(name), str):
                if "\0" in data[name]:
                    raise InputError(f"{path.name}: data.{name} must be a file name, and has a null character.")
                data[name] = str((path.parent / data[name]).resolve())
    if "features" in given:
        given["features"] = placed(given["features"], path.parent)
    privacy = given.get("privacy")
    by_probe = isinstance(privacy, dict) and privacy.get("route") == "probe"
    kind: type[Settings] = RemoteConfig if "labels" in given else ProbeConfig if by_probe else RunConfig
    try:
        return kind.model_validate(given)
    except ValidationError as error:
        raise InputError(f"{path.name}: {in_words(error, kind)}") from None


def write_config(config: Settings) -> str:
    """The settings as TOML, with every default written out."""
    given = json.loads(config.model_dump_json(exclude_none=True, by_alias=True))
    lines: list[str] = []
    _table(given, "", lines)
    return "\n".join(lines).strip() + "\n"


def differences(one: Settings, other: Settings) -> list[str]:
    """The keys in which two runs' settings differ, dotted."""
    first, second = (_flat(c.model_dump(mode="json", by_alias=True)) for c in (one, other))
    return sorted(key for key in {*first, *second} if first.get(key) != second.get(key))


def _table(values: dict[str, Any], name: str, lines: list[str]) -> None:
    tables = {key: value for key, value in values.items() if isinstance(value, dict) and name.count(".") == 0}
    lists = {key: value for key, value in values.items() if key == "rounds" and not name}
    for key, value in values.items():
        if key not in tables and key not in lists:
            lines.append(f"{toml_key(key)} = {toml_value(value)}")
    for key, value in lists.items():
        for one in value:
            lines.extend(("", f"[[{key}]]"))
            _table(one, key, lines)
    for key, value in tables.items():
        if value:
            inner = f"{name}.{toml_key(key)}" if name else toml_key(key)
            lines.extend(("", f"[{inner}]"))
            _table(value, inner, lines)


def _flat(values: dict[str, Any], name: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in values.items():
        inner = f"{name}.{key}" if name else key
        found |= _flat(value, inner) if isinstance(value, dict) and value else {inner: value}
    return found
