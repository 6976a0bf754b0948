"""The triggers that refuse every change, and whether they, and the tables, are still those of a ledger."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import sqlalchemy as sa

from terrine.ledger.tables import FIRST, METADATA, TREE

_REFUSAL = "a ledger is only ever added to"
_BODY = f" BEGIN RAISE EXCEPTION '{_REFUSAL}'; END "
_BEFORE_ANY_CHANGE = 2 | 8 | 16 | 32  # pg_trigger.tgtype: before; delete, update, truncate; for each statement


def _sqlite_triggers(table: str) -> dict[str, str]:
    return {
        f"{table}_no_{verb.lower()}": f"CREATE TRIGGER {table}_no_{verb.lower()} BEFORE {verb} ON {table} "
        f"BEGIN SELECT RAISE(ABORT, '{_REFUSAL}'); END"
        for verb in ("UPDATE", "DELETE")
    }


def guard(table: sa.Table, connection: sa.Connection, **_: Any) -> None:
    """Make a table's triggers."""
    if connection.dialect.name == "sqlite":
        for statement in _sqlite_triggers(table.name).values():
            connection.exec_driver_sql(statement)
    else:
        connection.exec_driver_sql(
            f"CREATE TRIGGER {table.name}_no_change BEFORE UPDATE OR DELETE OR TRUNCATE ON {table.name} "
            "FOR EACH STATEMENT EXECUTE FUNCTION terrine_only_added()"
        )


def _guard_function(_: sa.MetaData, connection: sa.Connection, **__: Any) -> None:
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(
            f"CREATE OR REPLACE FUNCTION terrine_only_added() RETURNS trigger LANGUAGE plpgsql AS $${_BODY}$$"
        )


sa.event.listen(METADATA, "before_create", _guard_function)
for _table in METADATA.tables.values():
    sa.event.listen(_table, "after_create", guard)


def unguarded(connection: sa.Connection, tables: Collection[sa.Table]) -> list[sa.Table]:
    """Those that have no trigger at all."""
    if connection.dialect.name == "sqlite":
        found = connection.exec_driver_sql("SELECT tbl_name FROM sqlite_master WHERE type = 'trigger'").scalars()
    else:
        found = connection.exec_driver_sql(
            "SELECT relname FROM pg_trigger JOIN pg_class c ON c.oid = tgrelid WHERE pg_table_is_visible(c.oid)"
        ).scalars()
    guarded = set(found)
    return [table for table in tables if table.name not in guarded]


def doubts(connection: sa.Connection) -> list[str]:
    """What would let someone change the ledger: a trigger, a column or a unique index that is not as it was made."""
    look = sa.inspect(connection)
    there = set(look.get_table_names())
    upgraded = TREE.name in there
    tables = list(METADATA.tables.values() if upgraded else FIRST)
    missing = [table for table in tables if table.name not in there]
    tables = [table for table in tables if table.name in there]
    sqlite = connection.dialect.name == "sqlite"
    return [
        *(f"the table {table.name} is gone" for table in missing),
        *(_sqlite_doubts if sqlite else _postgres_doubts)(connection, [table.name for table in tables]),
        *(line for table in tables for line in _columns(look, table)),
        *(line for table in tables for line in _unique(connection, table)),
    ]


def _sqlite_doubts(connection: sa.Connection, tables: list[str]) -> list[str]:
    rows = connection.exec_driver_sql("SELECT name, tbl_name, sql FROM sqlite_master WHERE type = 'trigger'")
    there = {name: sql for name, table, sql in rows if table in tables}
    expected = {name: sql for table in tables for name, sql in _sqlite_triggers(table).items()}
    return _compared(expected, {name: " ".join(sql.split()) for name, sql in there.items()})


def _postgres_doubts(connection: sa.Connection, tables: list[str]) -> list[str]:
    rows = connection.exec_driver_sql(
        "SELECT t.tgname, c.relname, t.tgtype, t.tgenabled, t.tgqual IS NULL AND t.tgattr = ''::int2vector, p.prosrc, "
        "l.lanname, p.proconfig IS NULL FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid "
        "JOIN pg_proc p ON p.oid = t.tgfoid JOIN pg_language l ON l.oid = p.prolang "
        "WHERE NOT t.tgisinternal AND pg_table_is_visible(c.oid)"
    )
    found = {name: tuple(what) for name, table, *what in rows if table in tables}
    there = {name: what for name, what in found.items() if what[1] in ("O", "A")}  # disabled: as good as gone
    whole = [(_BEFORE_ANY_CHANGE, enabled, True, _BODY, "plpgsql", True) for enabled in ("O", "A")]
    same = {name: whole[0] if what in whole else what for name, what in there.items()}
    rules = connection.exec_driver_sql("SELECT tablename, rulename FROM pg_rules")
    return [
        *_compared({f"{table}_no_change": whole[0] for table in tables}, same),
        *(f"the rule {rule} on {table} is not the ledger's own" for table, rule in rules if table in tables),
    ]


def _compared(expected: dict[str, Any], there: dict[str, Any]) -> list[str]:
    return [
        *(f"the trigger {name} is gone: rows may have been changed" for name in sorted(expected.keys() - there.keys())),
        *(
            f"the trigger {name} is not as the ledger made it: rows may have been changed"
            for name in sorted(expected.keys() & there.keys())
            if expected[name] != there[name]
        ),
        *(
            f"the trigger {name} is not the ledger's own: rows may be lost"
            for name in sorted(there.keys() - expected.keys())
        ),
    ]


def _columns(look: sa.Inspector, table: sa.Table) -> list[str]:
    """By name, type and whether they may be empty."""
    dialect = look.dialect
    expected = {column.name: (column.type.compile(dialect), column.nullable) for column in table.columns}
    there = {
        column["name"]: (column["type"].compile(dialect), column["nullable"]) for column in look.get_columns(table.name)
    }
    differ = [name for name in expected.keys() | there.keys() if expected.get(name) != there.get(name)]
    return [f"the table {table.name} is not as the ledger made it: column {name}" for name in sorted(differ)]


def _unique(connection: sa.Connection, table: sa.Table) -> list[str]:
    """Unique indexes over whole tables: they refuse a second row of one number, request, query or key."""
    constraints = (sa.PrimaryKeyConstraint, sa.UniqueConstraint)
    expected = {tuple(c.columns.keys()) for c in table.constraints if isinstance(c, constraints)}
    if connection.dialect.name == "sqlite":
        rows = connection.exec_driver_sql(
            "SELECT l.name, i.name FROM pragma_index_list(?) l, pragma_index_info(l.name) i "
            'WHERE l."unique" AND NOT l.partial ORDER BY l.name, i.seqno',
            (table.name,),
        ).all()
        keys = connection.exec_driver_sql("SELECT name FROM pragma_table_info(?) WHERE pk", (table.name,))
        found = {tuple(keys.scalars())}  # of LEDGER.id, the row's own number, there is no index
    else:
        rows = connection.exec_driver_sql(
            "SELECT i.indexrelid::text, a.attname FROM pg_index i CROSS JOIN LATERAL unnest(i.indkey) WITH ORDINALITY "
            "AS k(attnum, place) JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum "
            "WHERE i.indrelid = %s::regclass AND i.indisunique AND i.indisvalid AND i.indimmediate "
            "AND i.indpred IS NULL AND i.indexprs IS NULL ORDER BY 1, k.place",
            (table.name,),
        ).all()
        found = set()
    indexes: dict[str, list[str]] = {}
    for name, column in rows:
        indexes.setdefault(name, []).append(column)
    found |= {tuple(columns) for columns in indexes.values()}
    return [
        f"the table {table.name} lacks its unique index over {', '.join(columns)}: it may hold a row twice"
        for columns in sorted(expected - found)
    ]
