"""Bridge to Google's dp-accounting: terrine's mechanisms as a DpEvent, and an accountant that composes it.

Only worst-case costs cross the bridge: an event is public, so it may hold nothing that depends on votes.
"""

from __future__ import annotations

from typing import Any

from terrine._optional import require
from terrine.accounting.costs import worst_case_cost
from terrine.mechanisms import Mechanism

attr, dp_accounting, rdp = (
    require(name, use="The export to dp-accounting", extra="dp-accounting")
    for name in ("attr", "dp_accounting", "dp_accounting.rdp")
)


@attr.s(frozen=True, slots=True, auto_attribs=True)
class PateDpEvent(dp_accounting.DpEvent):  # type: ignore[misc, name-defined]
    """At most ``n_queries`` checks and ``n_answered`` answers of one PATE mechanism, fixed beforehand.

    Its neighbors are two data sets that differ in one teacher's share. Which relation between records
    that is (add or remove one, replace one) depends on how the data was partitioned.
    """

    mechanism: Mechanism
    n_queries: int
    n_answered: int | None = None


class PateRdpAccountant(rdp.RdpAccountant):  # type: ignore[misc, name-defined]
    """dp-accounting's RdpAccountant that also understands PateDpEvent, alone or inside composed events.

    Examples:
        >>> from terrine import ConfidentGNMax
        >>> confident = ConfidentGNMax(threshold=200, sigma_check=150, sigma_vote=40)
        >>> accountant = PateRdpAccountant()
        >>> _ = accountant.compose(PateDpEvent(confident, n_queries=640, n_answered=283))
        >>> _ = accountant.compose(dp_accounting.GaussianDpEvent(noise_multiplier=10.0))
        >>> print(f"{accountant.get_epsilon(target_delta=1e-5):.2f}")
        2.19
    """

    def _maybe_compose(self, event: Any, count: int, do_compose: bool) -> Any:
        if not isinstance(event, PateDpEvent):
            return super()._maybe_compose(event, count, do_compose)
        if do_compose:
            curve = worst_case_cost(
                event.mechanism, n_queries=event.n_queries, n_answered=event.n_answered, orders=self._orders
            )
            self._rdp += (curve * count).epsilons
        return None
