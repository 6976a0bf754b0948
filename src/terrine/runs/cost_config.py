"""The settings of a run that publishes what its answers cost."""

from __future__ import annotations

from typing import Any, Self

from pydantic import BaseModel, Field, model_validator


class CostSettings(BaseModel):
    """Part of [privacy]: whether epsilon pays for publishing, once, what the answers cost on the votes at hand."""

    publish_cost: bool = False
    cost_epsilon: float | None = Field(default=None, gt=0)  # what one hopes they cost (default: half the worst case)

    @model_validator(mode="after")
    def _of_one_release_by_worst_case(self) -> Self:
        found: dict[str, Any] = dict(self)
        if not self.publish_cost:
            if self.cost_epsilon is not None:
                raise ValueError("`cost_epsilon` needs publish_cost = true")
            return self
        if found.get("mechanism") in ("lnmax", "rounds"):
            raise ValueError('publish_cost = true takes mechanism = "confident" or "gnmax", or a plan of one of them')
        if found.get("route") == "tested":
            raise ValueError('publish_cost = true does not go with route = "tested", whose target is the cost')
        return self


COST_KEYS = tuple(CostSettings.model_fields)
