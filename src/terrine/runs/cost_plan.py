"""A run that publishes what its answers cost, before it begins: room for the number in the plan, and what it adds."""

from __future__ import annotations

from collections.abc import Callable

from terrine.accounting.curves import round_up
from terrine.budgets import CostRelease, CountBudget
from terrine.errors import InputError
from terrine.mechanisms import Mechanism
from terrine.runs.config import PrivacyConfig, RunConfig

_TRIES, _NEAR = 6, 0.97  # of a plan: how often, and how much of epsilon is near enough


def cost_release_of(privacy: PrivacyConfig, mechanism: Mechanism) -> CostRelease | None:
    """What settings with all their numbers say of publishing the cost."""
    if not privacy.publish_cost or privacy.queries is None:
        return None
    return CostRelease.for_answers(
        mechanism,
        n_queries=privacy.queries,
        n_answers=privacy.answers,
        delta=privacy.delta,
        epsilon=privacy.cost_epsilon,
    )


def planned_within(
    config: RunConfig, plan: Callable[[RunConfig], PrivacyConfig], budget_of: Callable[[PrivacyConfig], CountBudget]
) -> PrivacyConfig:
    """A plan whose answers and published cost together keep to the epsilon of the settings."""
    whole = config.privacy.epsilon
    if whole is None:
        raise InputError("privacy.epsilon is missing: there is nothing to plan from.")
    kept = config.privacy.model_dump(include={"publish_cost", "cost_epsilon"})
    part, best = 0.8 * whole, None
    for _ in range(_TRIES):
        smaller = {"epsilon": part, "publish_cost": False, "cost_epsilon": None}
        plain = plan(config.model_copy(update={"privacy": config.privacy.model_copy(update=smaller)}))
        found = PrivacyConfig.model_validate({**plain.model_dump(), **kept})
        reached = budget_of(found).guarantee().epsilon / whole
        if reached <= 1:
            best = found
        if _NEAR <= reached <= 1:
            break
        part *= 0.99 / reached
    if best is None:
        raise InputError(
            f"No plan was found whose answers and published cost keep to epsilon = {whole:g}. Take a larger epsilon, a "
            "smaller cost_epsilon, or leave publish_cost out."
        )
    return best


def what_it_adds(budget: CountBudget) -> tuple[str, ...]:
    """Of a run that publishes its cost, before it begins: what that means, in words; else nothing."""
    if budget.cost_release is None:
        return ()
    plain = CountBudget(budget.mechanism, n_queries=budget.n_queries, n_answers=budget.n_answers, delta=budget.delta)
    both, alone = budget.guarantee().epsilon, plain.guarantee().epsilon
    return (
        f"One number, what these answers cost, will be published beside them. It adds {round_up(both - alone)} to ε: "
        f"{round_up(both)} for answers and number together, and it would be {round_up(alone)} without the number. It "
        "is paid for whether it is published or not.",
        "The number is an upper bound for the votes that were cast, a statement after the fact except with chance "
        f"{budget.cost_release.delta:g}. The guarantee is the ε of both together, whatever the number says.",
    )
