"""Whom an estimator's guarantee is for, how many of them are planned with, and what its route leaves no meaning to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NoReturn

from terrine import _validate
from terrine.accounting.advice import Units
from terrine.datasets import PrivateData
from terrine.errors import InputError
from terrine.partitioning import public_units
from terrine.relations import Relation

ROUTES = ("teachers", "tested", "probe", "auto")
_OF_TEACHERS = ("mechanism", "rounds", "n_answers", "target")  # settings that fix how teachers are asked
_WHY = {
    "probe": 'route="probe" has no teachers: leave {name} out.',
    "auto": 'route="auto" compares teachers and a probe at one epsilon, and plans how teachers are asked: leave {name} '
    'out, or set route="teachers".',
}
_UNPLANNED = {
    "probe": "planned_units is missing: about how many people there are (or rows, where each is its own). A probe's "
    "steps and noise follow from it, and the true number is private. Give a round number that anyone may know, "
    "and that does not come from counting your rows, as len(X) does (an annual report may have one), as "
    "planned_units=2_000. Nothing was taught or spent.",
    "auto": "planned_units is missing: about how many people there are (or rows, where each is its own). Teachers and "
    "probe are compared by it, and the true number is private. Give a round number that anyone may know, and that "
    "does not come from counting your rows, as len(X) does (an annual report may have one), as "
    'planned_units=2_000, or set route="teachers". Nothing was taught or spent.',
}


@dataclass(frozen=True, kw_only=True)
class People:
    """Whom the guarantee is for. All of it is public.

    Attributes:
        relation: what neighbors differ in.
        units: how many there are, where the relation makes that public; else the planning number; or None.
    """

    relation: Relation
    units: Units | None


def check_route(model: Any, *, unit: Any) -> None:
    """Refuse settings that have no meaning by the route, before any private row is looked at.

    Args:
        unit: as it was given to `fit`, or None.
    """
    route = model.route
    if route is not None and route not in ROUTES:
        raise InputError(f"route must be one of {', '.join(ROUTES)}, or None, got {route!r}.")
    if model.neighbors not in (None, "unit_added"):
        raise InputError(f'neighbors must be "unit_added" or None, got {model.neighbors!r}.')
    if model.planned_units is not None:
        _validate.integer("planned_units", model.planned_units, at_least=1)
    by_probe = route in ("probe", "auto")
    if by_probe:
        for name in (*_OF_TEACHERS, *(("teacher", "n_queries") if route == "probe" else ())):
            if getattr(model, name) is not None:
                raise InputError(_WHY[route].format(name=name))
        if model.epsilon is None:
            raise InputError(f'epsilon is missing: route="{route}" finds the noise for it.')
        _validate.positive("epsilon", model.epsilon)
    if route != "probe" and model.neighbors == "unit_added" and model.method != "hashed":
        raise InputError(
            'neighbors="unit_added" does not hold for teachers with method="balanced", which deals units out in turn, '
            'so that one more moves others to other teachers. Use method="hashed", or leave neighbors out.'
        )
    private = model.neighbors == "unit_added" or (unit is not None and model.method == "hashed")
    if by_probe and private and model.planned_units is None:
        raise InputError(_UNPLANNED[route])


def refuse_row_added() -> NoReturn:
    """Teachers do not have these neighbors; a probe does, each row being a unit."""
    raise InputError(
        'neighbors="unit_added" needs to know whom each row belongs to where there are teachers: without that, a row '
        'that is added moves others to other teachers. Give unit, leave neighbors out, or set route="probe", where '
        "each row is a unit."
    )


def people_of(model: Any, data: PrivateData) -> People:
    """The relation that was asked for, or that of the shares; the true number only where that makes it public."""
    known: int | None = None
    if model.neighbors == "unit_added":
        relation = Relation.ROW_ADDED if data.unit is None else Relation.UNIT_ADDED
        if data.unit is None and model.route not in ("probe", "auto"):
            refuse_row_added()
    else:
        known = public_units(data, method=model.method)
        relation = Relation.UNIT_ANY if known is None else Relation.UNIT_REPLACED
        relation = Relation.ROW_REPLACED if data.unit is None else relation
    number = model.planned_units if known is None else known
    if number is None and model.route in _UNPLANNED:
        raise InputError(_UNPLANNED[model.route])
    return People(relation=relation, units=None if number is None else Units(number=number, public=known is not None))
