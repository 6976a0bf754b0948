"""The table [features] of a run's settings: what teachers see instead of rows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, Strict, model_validator

OWN = ("onnx", "torch", "sentence-transformers", "sklearn", "callable")  # a user's own encoder
_BY_PATH = ("onnx", "torch", "sentence-transformers")
_File = Annotated[Path, Strict(False)]


class Part(BaseModel):
    """A table of settings."""

    # true and "7" are no numbers
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, validate_by_name=True, validate_by_alias=True)


class FeaturesConfig(Part):
    """What teachers see instead of rows: a public function of each."""

    # edges: fixed, of images; learned: from the public rows, without labels; auto: scattering, quantiles, an encoder;
    # the others are a user's own encoder
    kind: Literal["edges", "learned", "auto", "onnx", "torch", "sentence-transformers", "sklearn", "callable"] = (
        "learned"
    )
    path: _File | None = None  # of the encoder's file or folder
    name: str | None = None  # sklearn: a dotted name; callable: package.module:function
    components: int | None = Field(default=None, ge=0)  # of the encoder's numbers (default: 500; 0: the numbers)
    block: int | None = Field(default=None, ge=1)  # rows that the encoder is given at once
    texts: bool | None = None  # the encoder takes the text of the one column (default: sentence-transformers alone)
    encoders: list[str] | None = Field(default=None, min_length=1)  # auto: paths and names to choose among
    options: dict[str, Any] = Field(default_factory=dict)  # of FeatureRecipe; of AutoRecipe; of the transformer

    @model_validator(mode="after")
    def _options(self) -> Self:
        kind = f'kind = "{self.kind}"'
        if self.kind == "edges" and self.options:
            raise ValueError('kind = "edges" takes no `options`: leave them out')
        if self.kind in _BY_PATH and self.path is None:
            raise ValueError(f"{kind} needs `path`, that of the encoder's {_what(self.kind)}")
        if self.kind == "callable" and self.name is None:
            raise ValueError(f'{kind} needs `name`, e.g. "my_package.encoders:embed"')
        if self.kind == "sklearn" and (self.path is None) == (self.name is None):
            raise ValueError(
                f'{kind} needs `name`, e.g. "sklearn.decomposition.PCA", or `path`, a .skops file, and not both'
            )
        allowed = {
            "path": (*_BY_PATH, "sklearn"),
            "name": ("sklearn", "callable"),
            **dict.fromkeys(("components", "block", "texts"), (*OWN, *(("auto",) if self.encoders else ()))),
            "encoders": ("auto",),
        }
        for key, kinds in allowed.items():
            if getattr(self, key) is not None and self.kind not in kinds:
                raise ValueError(f"{kind} takes no `{key}`: leave it out")
        if self.options and (self.kind in (*_BY_PATH, "callable") or (self.kind == "sklearn" and self.path)):
            raise ValueError(f"{kind} takes no `options` here: leave them out")
        return self

    @property
    def takes_texts(self) -> bool:
        """Whether rows are to be texts, as they stand in the table's one column."""
        return self.kind == "sentence-transformers" if self.texts is None else self.texts

    @property
    def own(self) -> bool:
        """Whether it is a user's own encoder, or a choice among some."""
        return self.kind in OWN or self.encoders is not None


def takes_texts(features: FeaturesConfig | None) -> bool:
    """Whether the rows of a run are to be texts."""
    return features is not None and features.takes_texts


def _what(kind: str) -> str:
    return {"onnx": ".onnx file", "torch": "TorchScript file"}.get(kind, "folder")


def spelled_out(given: Any) -> Any:
    """`features = "auto"` and `student = "auto"` are short for tables with that kind."""
    if not isinstance(given, dict):
        return given
    short = {name: {"kind": given[name]} for name in ("features", "student") if isinstance(given.get(name), str)}
    return {**given, **short}


def placed(given: Any, folder: Path) -> Any:
    """The same table with its paths from the folder of the settings' file."""
    if not isinstance(given, dict):
        return given
    found = dict(given)
    if isinstance(path := found.get("path"), str) and "\0" not in path:
        found["path"] = str((folder / path).resolve())
    if isinstance(some := found.get("encoders"), list):
        found["encoders"] = [one if _is_no_path(one) else str((folder / one).resolve()) for one in some]
    return found


def _is_no_path(one: Any) -> bool:
    return not isinstance(one, str) or "\0" in one or one == "auto" or ":" in one
