"""Every statement on the tables, built once for a kind of database: building them takes longer than running them.

Many values go in as one parameter, an array in JSON: a statement with thousands of parameters is slow to make and read.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

from terrine.ledger.entries import RESERVE, SETTLE
from terrine.ledger.tables import ANSWERS, ENTRIES, REQUESTS


class Statements:
    """Their parameters: ``wanted``, an array of values; ``rows``, an array of rows, in the order of the columns."""

    def __init__(self, dialect: str) -> None:
        self._sqlite = dialect == "sqlite"
        seq, kind, n_queries, n_answers = ENTRIES.c.seq, ENTRIES.c.kind, ENTRIES.c.n_queries, ENTRIES.c.n_answers
        mechanism, request_id, part = ENTRIES.c.mechanism, ENTRIES.c.request_id, ENTRIES.c.part
        settled = kind == SETTLE

        self.last = sa.select(ENTRIES).order_by(seq.desc()).limit(1)
        self.entries = sa.select(ENTRIES).order_by(seq)
        self.entries_of = sa.select(ENTRIES).where(self._among(seq)).order_by(seq)
        self.entries_of_request = sa.select(ENTRIES).where(self._among(request_id)).order_by(seq)
        self.entries_of_parts = sa.select(ENTRIES).where(
            sa.tuple_(request_id, part).in_(sa.bindparam("pairs", expanding=True))
        )
        self.add_entries = self._insert(ENTRIES)

        self.parts = (
            sa.select(request_id, sa.func.max(part)).where(self._among(request_id)).group_by(request_id)
        )  # (request, how many reservations)
        newest = sa.select(sa.func.max(seq)).group_by(ENTRIES.c.account)
        self.accounts = sa.select(ENTRIES).where(seq.in_(newest))
        self.accounts_of = sa.select(ENTRIES).where(seq.in_(newest.where(self._among(ENTRIES.c.account))))
        lowered = n_answers - n_queries  # a settled part's answers, less those reserved
        self.sums = sa.select(
            mechanism,
            sa.func.sum(sa.case((settled, 0), else_=n_queries)),
            sa.func.sum(sa.case((settled, lowered), else_=n_answers)),
        ).group_by(mechanism)
        self.unsettled = sa.select(sa.func.sum(sa.case((kind == RESERVE, n_queries), else_=-n_queries)))
        self.insecure = sa.select(seq).where(ENTRIES.c.secure.is_(False)).limit(1)

        self.requests = sa.select(REQUESTS)
        self.requests_of = sa.select(REQUESTS).where(self._among(REQUESTS.c.request_id))
        self.add_requests = self._insert(REQUESTS)

        self.answers = sa.select(ANSWERS).order_by(ANSWERS.c.entry, ANSWERS.c.query)
        self.answers_of = sa.select(ANSWERS.c.query, ANSWERS.c.label, ANSWERS.c.outcome, ANSWERS.c.secure).where(
            self._among(ANSWERS.c.query)
        )
        self.outcomes = sa.select(ANSWERS.c.outcome, sa.func.count()).group_by(ANSWERS.c.outcome)
        self.add_answers = self._insert(ANSWERS)

    def _among(self, column: sa.Column[Any]) -> sa.ColumnElement[bool]:
        text: sa.BindParameter[str] = sa.bindparam("wanted", type_=sa.Text)
        if self._sqlite:
            return column.in_(sa.select(sa.func.json_each(text).table_valued("value")))
        each = sa.func.jsonb_array_elements_text(sa.cast(text, JSONB)).table_valued("value")
        wanted = sa.select(sa.cast(each.c.value, column.type)).scalar_subquery()
        return column == sa.any_(sa.func.array(wanted, type_=ARRAY(column.type)))  # made once: the index is used

    def _insert(self, table: sa.Table) -> sa.Insert:
        text: sa.BindParameter[str] = sa.bindparam("rows", type_=sa.Text)
        values: list[sa.ColumnElement[Any]]
        if self._sqlite:
            each = sa.func.json_each(text).table_valued("value")
            values = [sa.func.json_extract(each.c.value, f"$[{place}]") for place in range(len(table.columns))]
        else:
            each = sa.func.jsonb_array_elements(sa.cast(text, JSONB)).table_valued(sa.column("value", JSONB))
            values = [sa.cast(each.c.value[place].astext, column.type) for place, column in enumerate(table.columns)]
        return sa.insert(table).from_select(table.columns.keys(), sa.select(*values))


@lru_cache
def statements(dialect: str) -> Statements:
    return Statements(dialect)
