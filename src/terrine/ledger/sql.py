"""Every statement on the tables, built once for a kind of database: building them takes longer than running them.

Many values go in as one parameter, an array in JSON: a statement with thousands of parameters is slow to make and read.
None that a request or a poll runs reads more rows than it returns, however long the ledger is; those that do read
everything are streams, for an audit, an export or a ledger that an older version wrote.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import sqlite
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

from terrine.ledger.entries import RESERVE, SETTLE, Part
from terrine.ledger.tables import ANSWERS, COUNTS, ENTRIES, KEYS, REQUESTS, REVOKED, TREE


class Statements:
    """Their parameters: ``wanted``, an array of values; ``rows``, an array of rows, in the order of the columns;
    ``after`` and ``at_most``, an entry's number; ``account``. Rows are added by `add`."""

    def __init__(self, dialect: str) -> None:
        self._sqlite = dialect == "sqlite"
        seq, request_id, part = ENTRIES.c.seq, ENTRIES.c.request_id, ENTRIES.c.part
        after, at_most = sa.bindparam("after", type_=sa.BigInteger), sa.bindparam("at_most", type_=sa.BigInteger)

        self.last = sa.select(ENTRIES).order_by(seq.desc()).limit(1)
        self.entries = sa.select(ENTRIES).where(seq > after).order_by(seq)
        self.entries_of = sa.select(ENTRIES).where(self._among(seq)).order_by(seq)
        self.entries_of_request = sa.select(ENTRIES).where(self._among(request_id)).order_by(seq)
        name, number = self._fields([request_id, part])
        self.entries_of_parts = sa.select(*(ENTRIES.c[field] for field in Part._fields)).where(
            request_id == name, part == number
        )
        self.audited = self._audited(after)

        self.parts = (
            sa.select(request_id, sa.func.max(part))
            .where(self._among(request_id), ENTRIES.c.kind == RESERVE)
            .group_by(request_id)
        )  # (request, how many reservations)
        self.accounts_of = self._newest_of(self._values())
        self.accounts = self._newest_of(self._all_accounts())
        self.account_before = (
            sa.select(ENTRIES)
            .where(ENTRIES.c.account == sa.bindparam("account", type_=sa.Text), seq <= at_most)
            .order_by(seq.desc())
            .limit(1)
        )

        self.requests_of = sa.select(REQUESTS).where(self._among(REQUESTS.c.request_id))

        self.answers = sa.select(ANSWERS).where(ANSWERS.c.entry > after).order_by(ANSWERS.c.entry, ANSWERS.c.query)
        self.answers_of = sa.select(ANSWERS.c.query, ANSWERS.c.label, ANSWERS.c.outcome, ANSWERS.c.secure).where(
            self._among(ANSWERS.c.query)
        )

        self.nodes = sa.select(TREE.c.node, TREE.c.hash).where(TREE.c.node > after).order_by(TREE.c.node)
        self.nodes_of = sa.select(TREE.c.node, TREE.c.hash).where(self._among(TREE.c.node))
        self.counts = sa.select(COUNTS).where(COUNTS.c.seq > after).order_by(COUNTS.c.seq)
        self.counts_at = sa.select(COUNTS).where(COUNTS.c.seq <= at_most).order_by(COUNTS.c.seq.desc()).limit(1)

        self.keys = sa.select(KEYS).order_by(KEYS.c.created, KEYS.c.id)
        self.revoked = sa.select(REVOKED).order_by(REVOKED.c.time, REVOKED.c.id)

        added = (ENTRIES, REQUESTS, ANSWERS, TREE, COUNTS)
        self._inserts = {table: self._insert(table) for table in added}
        self._inserts_in_process = {table: str(sa.insert(table).compile(dialect=sqlite.dialect())) for table in added}

    def add(self, connection: sa.Connection, table: sa.Table, rows: Sequence[Sequence[Any]]) -> int:
        """Rows in the order of the columns; how many were stored.

        A server has them in one statement, as JSON. SQLite, which is in this process, is asked once for each: to take
        the JSON apart again would take longer.
        """
        keep = {"preserve_rowcount": True}
        if self._sqlite:
            ready = [tuple(row) for row in rows]
            return connection.exec_driver_sql(self._inserts_in_process[table], ready, execution_options=keep).rowcount
        return connection.execute(self._inserts[table], {"rows": as_json(rows)}, execution_options=keep).rowcount

    def _values(self) -> sa.FromClause:
        """The wanted values, as a table with the column ``value``."""
        text: sa.BindParameter[str] = sa.bindparam("wanted", type_=sa.Text)
        if self._sqlite:
            return sa.func.json_each(text).table_valued("value")
        return sa.func.jsonb_array_elements_text(sa.cast(text, JSONB)).table_valued("value")

    def _all_accounts(self) -> sa.FromClause:
        """Every account, from one to the next on the index: without a look at all their entries."""
        account = ENTRIES.c.account
        found = sa.select(sa.func.min(account).label("value")).cte("every", recursive=True)
        following = sa.select(sa.func.min(account)).where(account > found.c.value).scalar_subquery()
        return found.union_all(sa.select(following).where(found.c.value.is_not(None)))

    def _newest_of(self, accounts: sa.FromClause) -> sa.Select[Any]:
        """The newest entry of each account: one seek on the index over account and seq."""
        if self._sqlite:
            newest = (
                sa.select(sa.func.max(ENTRIES.c.seq)).where(ENTRIES.c.account == accounts.c.value).scalar_subquery()
            )
            other = ENTRIES.alias("newest")
            return sa.select(other).select_from(accounts.join(other, other.c.seq == newest.correlate(accounts)))
        one = sa.select(ENTRIES).where(ENTRIES.c.account == accounts.c.value).order_by(ENTRIES.c.seq.desc()).limit(1)
        newest_entry = one.lateral("newest")
        return sa.select(newest_entry).select_from(accounts.join(newest_entry, sa.true()))

    def _audited(self, after: sa.BindParameter[int]) -> sa.Select[Any]:
        """Entries in order, each with what an audit compares it to: of a settlement its reservation, of a reservation
        the part before it and the digest that its request is known by."""
        before, known = ENTRIES.alias("before"), REQUESTS.alias("known")
        is_settle = ENTRIES.c.kind == SETTLE
        same = sa.and_(
            before.c.request_id == ENTRIES.c.request_id,
            before.c.kind == RESERVE,
            before.c.part == ENTRIES.c.part - sa.case((is_settle, 0), else_=1),
        )
        tied = sa.and_(known.c.request_id == ENTRIES.c.request_id, ENTRIES.c.kind == RESERVE)
        return (
            sa.select(
                ENTRIES,
                *(before.c[name].label(f"before_{name}") for name in BEFORE),
                known.c.digest.label("known_digest"),
            )
            .select_from(ENTRIES.outerjoin(before, same).outerjoin(known, tied))
            .where(ENTRIES.c.seq > after)
            .order_by(ENTRIES.c.seq)
        )

    def _among(self, column: sa.Column[Any]) -> sa.ColumnElement[bool]:
        if self._sqlite:
            return column.in_(sa.select(self._values()))
        wanted = sa.select(sa.cast(self._values().c.value, column.type)).scalar_subquery()
        return column == sa.any_(sa.func.array(wanted, type_=ARRAY(column.type)))  # made once: the index is used

    def _insert(self, table: sa.Table) -> sa.Insert:
        return sa.insert(table).from_select(table.columns.keys(), sa.select(*self._fields(table.columns)))

    def _fields(self, columns: Iterable[sa.Column[Any]]) -> list[sa.ColumnElement[Any]]:
        """Of each of the given rows, as values of these columns."""
        text: sa.BindParameter[str] = sa.bindparam("rows", type_=sa.Text)
        if self._sqlite:
            each = sa.func.json_each(text).table_valued("value")
            return [sa.func.json_extract(each.c.value, f"$[{place}]") for place, _ in enumerate(columns)]
        each = sa.func.jsonb_array_elements(sa.cast(text, JSONB)).table_valued(sa.column("value", JSONB))
        return [sa.cast(each.c.value[place].astext, column.type) for place, column in enumerate(columns)]


BEFORE = ("seq", "account", "mechanism", "n_queries", "n_answers", "charge", "secure", "asked")


_ROWS = json.JSONEncoder(separators=(",", ":"))


def as_json(values: Sequence[Any]) -> str:
    return _ROWS.encode(values)


@lru_cache
def statements(dialect: str) -> Statements:
    return Statements(dialect)
