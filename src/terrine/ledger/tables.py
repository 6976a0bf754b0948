"""The ledger's tables, on SQLite and PostgreSQL. Rows are inserted and never changed: the database itself refuses."""

from __future__ import annotations

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
    sa.Index("terrine_answers_by_entry", "entry", "query"),
)
KEYS = sa.Table(
    "terrine_keys",
    METADATA,
    sa.Column("id", sa.String(12), primary_key=True),
    sa.Column("name", sa.String(100), nullable=False),
    sa.Column("role", sa.String(10), nullable=False),
    sa.Column("quota", sa.BigInteger),
    sa.Column("sha256", sa.String(64), nullable=False),
    sa.Column("created", sa.String(40), nullable=False),
)
REVOKED = sa.Table(
    "terrine_keys_revoked",
    METADATA,
    sa.Column("id", sa.String(12), primary_key=True),
    sa.Column("time", sa.String(40), nullable=False),
)

# Derived from entries and answers, so that nothing that is asked often has to read them all.
TREE = sa.Table(
    "terrine_tree",
    METADATA,
    sa.Column("node", sa.BigInteger, primary_key=True, autoincrement=False),  # merkle.Node.number
    sa.Column("hash", sa.String(64), nullable=False),
)
COUNTS = sa.Table(
    "terrine_counts",
    METADATA,
    sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),  # a transaction's last entry
    sa.Column("open", sa.BigInteger, nullable=False),
    sa.Column("answered", sa.BigInteger, nullable=False),
    sa.Column("withheld", sa.BigInteger, nullable=False),
    sa.Column("reinforced", sa.BigInteger, nullable=False),
    sa.Column("secure", sa.Boolean, nullable=False),
    sa.Column("sums", sa.Text, nullable=False),  # queries and answers by mechanism, as JSON
    sa.Column("root", sa.String(64), nullable=False),  # of the tree
)
FIRST = (LEDGER, ENTRIES, REQUESTS, ANSWERS)  # what a ledger of the first version with this schema has
