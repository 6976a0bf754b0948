"""A ledger that an older version made gets the tables of this version when it is first written to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sqlalchemy as sa

from terrine.ledger import guards
from terrine.ledger.chain import Page
from terrine.ledger.tables import ANSWERS, KEYS, METADATA, REVOKED, TREE

if TYPE_CHECKING:
    from terrine.ledger.transaction import Transaction


def upgrade(now: Transaction, start: str) -> None:
    """Make what is missing, and take up the keys there are; under the ledger's lock, all of it or nothing.

    Triggers are made for tables that never had any. One that is gone from another table stays gone, for an audit to
    see.
    """
    connection = now.connection
    if sa.inspect(connection).has_table(TREE.name):  # someone else just did, while this one waited for the lock
        now.has_derived = True
        return
    METADATA.create_all(connection)
    for index in ANSWERS.indexes:
        index.create(connection, checkfirst=True)
    for table in guards.unguarded(connection, [KEYS, REVOKED]):
        guards.guard(table, connection)
    now.has_derived = True
    keys, revocations = now.key_rows(), now.revocation_rows()
    page = Page(now, start, accounts={row["id"] for row in keys})
    for row in keys:
        page.add_key(row)
    for row in revocations:
        page.add_revocation(row)
    page.write()
