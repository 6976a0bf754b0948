"""The ledger's tables, on SQLite and PostgreSQL. Rows are inserted and never changed: the database itself refuses."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

METADATA = sa.MetaData()
LEDGER = sa.Table(
    "terrine_ledger",
    METADATA,
    sa.Column("id", sa.Integer, sa.CheckConstraint("id = 1"), primary_key=True, autoincrement=False),  # one row
    sa.Column("schema", sa.String(40), nullable=False),
    sa.Column("ledger_id", sa.String(32), nullable=False),
    sa.Column("budget", sa.Text, nullable=False),
    sa.Column("digest", sa.String(64), nullable=False),
)
ENTRIES = sa.Table(
    "terrine_entries",
    METADATA,
    sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("schema", sa.String(40), nullable=False),
    sa.Column("time", sa.String(40), nullable=False),
    sa.Column("kind", sa.String(16), nullable=False),
    sa.Column("request_id", sa.String(200), nullable=False),
    sa.Column("part", sa.BigInteger, nullable=False),
    sa.Column("account", sa.String(64), nullable=False),
    sa.Column("mechanism", sa.Text, nullable=False),
    sa.Column("n_queries", sa.BigInteger, nullable=False),
    sa.Column("n_answers", sa.BigInteger, nullable=False),
    sa.Column("charge", sa.BigInteger, nullable=False),
    sa.Column("secure", sa.Boolean, nullable=False),
    sa.Column("asked", sa.String(64), nullable=False),
    sa.Column("answers_digest", sa.String(64), nullable=False),
    sa.Column("total_queries", sa.BigInteger, nullable=False),
    sa.Column("total_answers", sa.BigInteger, nullable=False),
    sa.Column("total_charge", sa.BigInteger, nullable=False),
    sa.Column("account_queries", sa.BigInteger, nullable=False),
    sa.Column("account_answers", sa.BigInteger, nullable=False),
    sa.Column("account_charge", sa.BigInteger, nullable=False),
    sa.Column("digest", sa.String(64), nullable=False),
    sa.UniqueConstraint("request_id", "part", "kind"),
    sa.Index("terrine_entries_by_account", "account", "seq"),
)
REQUESTS = sa.Table(
    "terrine_requests",
    METADATA,
    sa.Column("request_id", sa.String(200), primary_key=True),
    sa.Column("digest", sa.String(64), nullable=False),
)
ANSWERS = sa.Table(
    "terrine_answers",
    METADATA,
    sa.Column("query", sa.String(64), primary_key=True),  # one answer per query, for ever
    sa.Column("label", sa.BigInteger, nullable=False),
    sa.Column("outcome", sa.Integer, nullable=False),
    sa.Column("secure", sa.Boolean, nullable=False),
    sa.Column("entry", sa.BigInteger, nullable=False),  # that settled it; verify looks for it
)

_REFUSAL = "a ledger is only ever added to"


def guards(dialect: str) -> set[str]:
    """The triggers that refuse every change."""
    verbs = ("update", "delete") if dialect == "sqlite" else ("change",)
    return {f"{table}_no_{verb}" for table in METADATA.tables for verb in verbs}


def _guard_function(_: sa.MetaData, connection: sa.Connection, **__: Any) -> None:
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(
            "CREATE OR REPLACE FUNCTION terrine_only_added() RETURNS trigger LANGUAGE plpgsql AS "
            f"$$ BEGIN RAISE EXCEPTION '{_REFUSAL}'; END $$"
        )


def _guard(table: sa.Table, connection: sa.Connection, **_: Any) -> None:
    if connection.dialect.name == "sqlite":
        for verb in ("UPDATE", "DELETE"):
            connection.exec_driver_sql(
                f"CREATE TRIGGER {table.name}_no_{verb.lower()} BEFORE {verb} ON {table.name} "
                f"BEGIN SELECT RAISE(ABORT, '{_REFUSAL}'); END"
            )
    else:
        connection.exec_driver_sql(
            f"CREATE TRIGGER {table.name}_no_change BEFORE UPDATE OR DELETE OR TRUNCATE ON {table.name} "
            "FOR EACH STATEMENT EXECUTE FUNCTION terrine_only_added()"
        )


sa.event.listen(METADATA, "before_create", _guard_function)
for _table in METADATA.tables.values():
    sa.event.listen(_table, "after_create", _guard)
