"""What one transaction adds to the ledger: chained entries, their answers, and requests tied to what they ask."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from terrine.budgets import Spending
from terrine.errors import RequestError
from terrine.ledger.derived import Derived
from terrine.ledger.entries import KEY, REVOKE, Ask, Entry, Kept, Part, answers_digest, row_digest

if TYPE_CHECKING:
    from terrine.ledger.transaction import Transaction


class Page:
    """New entries, under the ledger's write lock.

    Args:
        now: the transaction that writes them.
        start: the header's digest, which the first entry is chained to.
        accounts: those that will be charged.
        clock: False for entries whose time would tell how long work on private rows took: they get that of the last.
    """

    def __init__(self, now: Transaction, start: str, *, accounts: Collection[str], clock: bool = True) -> None:
        last = now.last()
        self._now = now
        self._derived = Derived.newest(now, last)
        self._seq, self._digest, self.total = (last.seq, last.digest, last.total) if last else (0, start, Spending())
        here = datetime.now(UTC).isoformat(timespec="milliseconds")
        self._time = (
            max(last.time, here if clock else "") if last else here
        )  # it stands still where the clock went back
        self._accounts = {last.account: last.account_total} if last else {}
        if last and (others := set(accounts) - {last.account}):
            self._accounts |= now.accounts(others)
        self._entries: list[Entry] = []
        self._kept: dict[int, Mapping[str, Kept]] = {}

    def spent_by(self, account: str) -> Spending:
        return self._accounts.get(account, Spending())

    def add(self, part: Part, *, change: Spending, kept: Mapping[str, Kept] | None = None, noise: str = "") -> None:
        """An entry on a part, with what it costs from here on; the totals move by ``change``; it settles ``kept``.

        ``noise`` is what the charge of a tested release pays for.
        """
        self._seq += 1
        self.total = self.total + change
        self._accounts[part.account] = self.spent_by(part.account) + change
        entry = Entry(
            **part._replace(time=self._time)._asdict(),
            seq=self._seq,
            answers_digest=noise if kept is None else answers_digest(kept.items()),
            total=self.total,
            account_total=self._accounts[part.account],
        )
        entry.seal(self._digest)
        self._digest = entry.digest
        self._entries.append(entry)
        if kept:
            self._kept[self._seq] = kept

    def add_key(self, row: Mapping[str, Any]) -> None:
        """A key of the label service, tied to its row: name, role, quota and the hash of its secret."""
        self._add_free(KEY, row)

    def add_revocation(self, row: Mapping[str, Any]) -> None:
        self._add_free(REVOKE, row)

    def _add_free(self, kind: str, row: Mapping[str, Any]) -> None:
        part = Part(row["id"], 0, kind, account=row["id"], mechanism="", secure=True, asked=row_digest(row))
        self.add(part, change=Spending())

    def write(self) -> None:
        """Entries, answers, and what follows from them."""
        if not self._entries:
            return
        now = self._now
        outcomes = ([kept.outcome for kept in self._kept.get(entry.seq, {}).values()] for entry in self._entries)
        nodes = self._derived.add(zip(self._entries, outcomes, strict=True))
        now.append(self._entries)
        now.keep(self._kept)
        self._derived.write(now, nodes)
        now.derived = self._derived


class Requests:
    """Which requests have reservations and are tied to what they ask: in the ledger, and in this transaction."""

    def __init__(self, parts: dict[str, int], digests: dict[str, str]) -> None:
        self._parts = parts
        self._digests = digests
        self.claims: dict[str, str] = {}

    def refusal(self, ask: Ask) -> RequestError | None:
        """Why an ask is refused, whatever the budget has left."""
        digest = self._digests.get(ask.request_id)
        if ask.digest and digest is not None:
            return None if digest == ask.digest else other_rows(ask.request_id)
        if digest is not None or ask.request_id in self._parts:
            return RequestError(
                f"Request {ask.request_id!r} was used before and has a reservation. Take a new request_id."
            )
        return None

    def next_part(self, ask: Ask) -> int:
        if ask.digest and ask.request_id not in self._digests:
            self._digests[ask.request_id] = self.claims[ask.request_id] = ask.digest
        self._parts[ask.request_id] = self._parts.get(ask.request_id, 0) + 1
        return self._parts[ask.request_id]


def other_rows(request_id: str) -> RequestError:
    return RequestError(
        f"Request {request_id!r} was used before, for other rows, teachers or classes. Take a "
        "new request_id, or send the same rows again."
    )
