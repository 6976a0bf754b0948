"""The table [features] of a run's settings: what teachers see instead of rows."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator


class Part(BaseModel):
    """A table of settings."""

    # true and "7" are no numbers
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, validate_by_name=True, validate_by_alias=True)


class FeaturesConfig(Part):
    """What teachers see instead of rows: a public function of each."""

    # edges: fixed, of images; learned: from the public rows, without labels; auto: scattering, quantiles, an encoder
    kind: Literal["edges", "learned", "auto"] = "learned"
    options: dict[str, Any] = Field(default_factory=dict)  # of FeatureRecipe; of AutoRecipe

    @model_validator(mode="after")
    def _options(self) -> Self:
        if self.kind == "edges" and self.options:
            raise ValueError('kind = "edges" takes no `options`: leave them out')
        return self


def spelled_out(given: Any) -> Any:
    """`features = "auto"` and `student = "auto"` are short for tables with that kind."""
    if not isinstance(given, dict):
        return given
    short = {name: {"kind": given[name]} for name in ("features", "student") if isinstance(given.get(name), str)}
    return {**given, **short}
