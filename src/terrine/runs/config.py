"""What a run is, as a TOML file: data, teachers, privacy, student. All of it is public."""

from __future__ import annotations

import difflib
import json
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, Strict, ValidationError, model_validator

from terrine._toml import toml_key, toml_value
from terrine.errors import InputError

Count = Field(ge=1)
_File = Annotated[Path, Strict(False)]  # TOML has strings for these, and lists
_Shape = Annotated[tuple[Annotated[int, Strict()], ...], Strict(False)]


class _Part(BaseModel):
    # true and "7" are no numbers
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, validate_by_name=True, validate_by_alias=True)


class DataConfig(_Part):
    """A built-in data set by name, or one's own files."""

    name: str | None = None  # mnist, svhn, adult, glyph, small-glyph, blobs
    options: dict[str, Any] = Field(default_factory=dict)
    private: _File | None = None
    public: _File | None = None
    test: _File | None = None  # labelled, for the report's accuracy alone
    schema_file: _File | None = Field(default=None, alias="schema")  # of tables; else drafted from the public rows
    classes: list[str] | None = Field(default=None, min_length=2)
    label: str | None = None
    unit: str | None = None
    columns: list[str] | None = None
    ignore: list[str] | None = None
    categories: dict[str, list[str]] | None = None
    image_shape: _Shape | None = None
    units_planned: int | None = Field(default=None, ge=1)  # a public guess of how many people there are, for advice

    @model_validator(mode="after")
    def _one_of_two(self) -> Self:
        own = (self.private, self.public)
        if (self.name is None) == (own == (None, None)):
            raise ValueError("Expected either name (a built-in data set) or private, public and classes (your own)")
        if self.name is None and None in own:
            raise ValueError("Expected private and public together, got one of them missing")
        if self.name is None and self.options:
            raise ValueError("Expected options with name (a built-in data set) only")
        _check_own(self)
        return self


def _check_own(data: DataConfig | PublicDataConfig) -> None:
    """Refuse what says how to read files beside a built-in data set, and a second description beside a schema."""
    drafted = {"columns", "ignore", "categories"}
    given = {name for name in type(data).model_fields if getattr(data, name) is not None}
    if data.name is not None and (own := given & {"test", "schema_file", "classes", "label", "unit", *drafted}):
        raise ValueError(f"`{_shown(min(own))}` is for your own files: leave it out beside `name`")
    if data.schema_file is not None and (twice := given & drafted):
        raise ValueError(f"`{min(twice)}` is said by the schema: leave it out here, and change it there")


def _shown(name: str) -> str:
    return "schema" if name == "schema_file" else name


class FeaturesConfig(_Part):
    """What teachers see instead of rows: a public function of each."""

    kind: Literal["edges", "learned"] = "learned"  # fixed, of images; or learned from the public rows, without labels
    options: dict[str, Any] = Field(default_factory=dict)  # of FeatureRecipe

    @model_validator(mode="after")
    def _options(self) -> Self:
        if self.kind == "edges" and self.options:
            raise ValueError('Expected options with kind = "learned" only')
        return self


class TeachersConfig(_Part):
    number: int = Count
    kind: Literal["forest", "boosting", "logistic", "lda", "conv", "centroid", "sklearn"] = "forest"
    estimator: str | None = None  # kind = "sklearn": a dotted name, as sklearn.svm.SVC
    options: dict[str, Any] = Field(default_factory=dict)  # of the estimator, ConvRecipe or CentroidTeacher
    partition: Literal["hashed", "balanced"] = "hashed"
    min_units: int = Field(default=1, ge=0)
    first_id: int = Field(default=0, ge=0)
    keep: bool = True  # false: votes only, which is enough for everything but a service
    executor: Literal["serial", "processes", "ray"] = "processes"
    workers: int | None = Field(default=None, ge=1)
    chunk: int | None = Field(default=None, ge=1)
    device: str = "auto"

    @model_validator(mode="after")
    def _estimator(self) -> Self:
        if (self.kind == "sklearn") != (self.estimator is not None):
            raise ValueError('Expected estimator with kind = "sklearn" and with no other')
        return self


class PrivacyConfig(_Part):
    """The mechanism and how often it may answer; or an epsilon, from which these are planned by public inputs.

    GNMax with an epsilon in place of sigma takes the least noise that meets it; with a consensus in place of queries it
    asks as many questions as leave most answers right.
    """

    delta: float = Field(gt=0, lt=1)
    accept_large_delta: bool = False  # go on where delta is not below one over the number of units
    epsilon: float | None = Field(default=None, gt=0)
    consensus: float | None = Field(default=None, gt=0, lt=1)  # share of teachers that agree: an assumption
    min_accuracy: float | None = Field(default=None, gt=0, lt=1)  # of answers: 0.95 unless given, 0.85 of GNMax
    mechanism: Literal["confident", "gnmax", "lnmax"] | None = None
    threshold: float | None = None
    sigma_check: float | None = Field(default=None, gt=0)
    sigma_vote: float | None = Field(default=None, gt=0)
    sigma: float | None = Field(default=None, gt=0)
    scale: float | None = Field(default=None, gt=0)
    queries: int | None = Field(default=None, ge=1)
    answers: int | None = Field(default=None, ge=1)
    ask: Literal["first", "random", "representative"] = "random"

    @property
    def wants_plan(self) -> bool:
        """Whether noise is still to be found, from epsilon."""
        return self.epsilon is not None

    @model_validator(mode="after")
    def _planned_or_given(self) -> Self:
        needed = {
            None: ("epsilon", "consensus"),
            "confident": ("threshold", "sigma_check", "sigma_vote", "queries"),
            "gnmax": ("sigma", "queries") if self.epsilon is None else ("epsilon",),
            "lnmax": ("scale", "queries"),
        }[self.mechanism]
        about = "a plan" if self.mechanism is None else f'mechanism = "{self.mechanism}"'
        for name in needed:
            if getattr(self, name) is None:
                raise ValueError(f"Expected {name} with {about}, got none")
        planned = {None: ("min_accuracy", "queries"), "confident": ("answers",)}.get(self.mechanism, ())
        if self.mechanism == "gnmax" and self.epsilon is not None:
            planned = ("queries",) if self.queries is not None else ("min_accuracy",)
            if self.queries is None and self.consensus is None:
                raise ValueError(
                    "GNMax with an epsilon needs `queries`, how many questions to ask; or `consensus`, to plan that"
                )
        allowed = {*needed, *planned}
        for name in PrivacyConfig.model_fields:
            always = {"delta", "accept_large_delta", "consensus", "mechanism", "ask"}
            if name not in allowed | always and getattr(self, name) is not None:
                raise ValueError(f"Expected no {name} with {about}")
        return self


class StudentConfig(_Part):
    kind: Literal["vat", "gan", "match", "supervised", "features"] = "supervised"
    estimator: str | None = None  # a dotted name; unless given, a random forest on rows, discriminants on features
    preset: Literal["small"] | None = None  # nets: a size for two cores
    options: dict[str, Any] = Field(default_factory=dict)
    self_training: bool = False  # of estimators: also learn from public rows without an answer
    balanced: bool = False  # a rare class counts as much as a common one

    @model_validator(mode="after")
    def _where_they_apply(self) -> Self:
        if self.estimator is not None and self.kind not in ("supervised", "features"):
            raise ValueError('Expected estimator with kind = "supervised" or "features" only')
        if self.options and self.kind == "features" and self.estimator is None:
            raise ValueError('Expected options of an estimator with kind = "features", got no estimator')
        if self.self_training and self.kind not in ("supervised", "features"):
            raise ValueError('Expected self_training with kind = "supervised" or "features" only')
        if self.preset is not None and self.kind != "vat":
            raise ValueError('Expected preset with kind = "vat" only')
        return self


class RunConfig(_Part):
    seed: int = Field(default=0, ge=0)  # of teachers and student; the noise and the partition's key have none
    data: DataConfig
    features: FeaturesConfig | None = None
    teachers: TeachersConfig
    privacy: PrivacyConfig
    student: StudentConfig = StudentConfig()

    @model_validator(mode="after")
    def _together(self) -> Self:
        if self.teachers.kind == "centroid" and self.features is None:
            raise ValueError('Expected a [features] table with teachers.kind = "centroid"')
        if self.privacy.ask == "representative" and (self.features is None or self.features.kind != "learned"):
            raise ValueError('Expected a [features] table of learned ones with privacy.ask = "representative"')
        if self.student.kind == "features" and self.features is None:
            raise ValueError('Expected a [features] table with student.kind = "features"')
        return self


class PublicDataConfig(_Part):
    """The public side of a task: a built-in data set by name, or one's own files."""

    name: str | None = None
    options: dict[str, Any] = Field(default_factory=dict)
    public: _File | None = None
    test: _File | None = None  # labelled, for the report's accuracy alone
    schema_file: _File | None = Field(default=None, alias="schema")
    label: str | None = None  # in test; left out of public where it is there
    columns: list[str] | None = None
    ignore: list[str] | None = None
    categories: dict[str, list[str]] | None = None
    image_shape: _Shape | None = None

    @model_validator(mode="after")
    def _one_of_two(self) -> Self:
        if (self.name is None) == (self.public is None):
            raise ValueError("Expected either name (a built-in data set) or public (your own rows)")
        if self.name is None and self.options:
            raise ValueError("Expected options with name (a built-in data set) only")
        _check_own(self)
        return self


class LabelsConfig(_Part):
    """A label service, where the teachers are. Its key is in the environment's TERRINE_API_KEY, not here."""

    url: str = Field(pattern=r"^https?://")
    queries: int = Field(ge=1)
    ask: Literal["first", "random"] = "random"
    batch: int = Field(default=1000, ge=1)


class RemoteConfig(_Part):
    """A run whose labels come from a service: there is nothing private in it."""

    seed: int = Field(default=0, ge=0)
    data: PublicDataConfig
    labels: LabelsConfig
    student: StudentConfig = StudentConfig()

    @model_validator(mode="after")
    def _no_features(self) -> Self:
        if self.student.kind == "features":
            raise ValueError('Expected another student.kind than "features" with labels from a service')
        return self


Settings = RunConfig | RemoteConfig


def read_config(path: str | Path) -> RunConfig:
    """A run's settings from a TOML file; file names in it are relative to it."""
    found = read_settings(path)
    if not isinstance(found, RunConfig):
        raise InputError(f"{Path(path).name}: Expected a run of your own teachers, got one with labels.url.")
    return found


def read_settings(path: str | Path) -> Settings:
    """A run's settings; those with a [labels] table ask a label service."""
    path = Path(path)
    try:
        given = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{path}: Expected a run's settings in TOML, got no such file.") from None
    except IsADirectoryError:
        raise InputError(f"{path}: Expected a file of a run's settings, got a folder.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: Expected TOML, got: {error}.") from None
    data = given.get("data")
    if isinstance(data, dict):
        for name in ("private", "public", "test", "schema"):
            if isinstance(data.get(name), str):
                if "\0" in data[name]:
                    raise InputError(f"{path.name}: Expected a file name in data.{name}, got a null character.")
                data[name] = str((path.parent / data[name]).resolve())
    kind: type[Settings] = RemoteConfig if "labels" in given else RunConfig
    try:
        return kind.model_validate(given)
    except ValidationError as error:
        raise InputError(f"{path.name}: {_in_words(error, kind)}") from None


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


def _in_words(error: ValidationError, kind: type[Settings]) -> str:
    """The first problem, with the key's dotted name and, for a misspelt one, the nearest that there is."""
    first = min(error.errors(include_url=False), key=lambda one: one["type"] != "extra_forbidden")
    key = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        known = _keys(first["loc"][:-1], kind)
        close = difflib.get_close_matches(str(first["loc"][-1]), known, n=1)
        hint = f"; did you mean {close[0]}?" if close else f"; known: {', '.join(known)}."
        return f"Expected no key {key}, got one{hint}"
    if first["type"] == "missing":
        return f"Expected {key}, got none."
    said = first["msg"].removeprefix("Value error, ")
    where = f" in [{key}]" if key and first["type"] == "value_error" else ""
    if first["type"] == "value_error":
        return f"{said}{where}."
    return f"Expected another {key}: {said.lower()}, got {str(first['input'])[:60]!r}."


def _keys(where: tuple[int | str, ...], kind: type[Settings]) -> list[str]:
    part: Any = kind
    for name in where:
        kind = part.model_fields[str(name)].annotation
        part = next((k for k in getattr(kind, "__args__", (kind,)) if hasattr(k, "model_fields")), kind)
    return [_shown(name) for name in part.model_fields]


def _table(values: dict[str, Any], name: str, lines: list[str]) -> None:
    tables = {key: value for key, value in values.items() if isinstance(value, dict) and name.count(".") == 0}
    for key, value in values.items():
        if key not in tables:
            lines.append(f"{toml_key(key)} = {toml_value(value)}")
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
