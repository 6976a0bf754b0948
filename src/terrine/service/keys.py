"""API keys: who may ask, how much of the budget they may use. Entries of the ledger; only hashes are stored."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import threading
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import sqlalchemy as sa

from terrine import _validate
from terrine.errors import InputError, LedgerError
from terrine.ledger.chain import Page
from terrine.ledger.entries import KEY, REVOKE, row_digest
from terrine.ledger.store import Store
from terrine.ledger.tables import KEYS, REVOKED

ROLES = ("client", "admin")
_SHOWN = re.compile(r"terrine_([0-9a-f]{12})_([A-Za-z0-9_-]{43})")
_FRESH = 1.0  # seconds: a revoked key may be good for so long
_MISSED = 0.1  # seconds: a new key may be unknown for so long
_QUOTA = 2**63 - 1  # the largest whole number that the database holds
_NOBODY = hashlib.sha256(b"nobody").hexdigest()


@dataclass(frozen=True, kw_only=True)
class Key:
    """One key, without its secret. The ledger's account of it is its id.

    Attributes:
        role: "client": asks, and sees the budget; "admin": also sees every key's use.
        quota: the most queries that may be charged to it; None: as many as the budget has.
        revoked: when, or None.
    """

    id: str
    name: str
    role: str
    quota: int | None
    created: str
    revoked: str | None


class Keys:
    """The keys of a ledger's database. One that is not in the ledger's chain, or not as it is there, is refused.

    Args:
        where: the ledger's file or URL; the ledger must be there.
    """

    def __init__(self, where: str | Path) -> None:
        self._store = Store(where)
        self._lock = threading.Lock()
        self._read = -_FRESH
        self._known: dict[str, tuple[Key, str]] = {}
        header = self._store.header()
        if header is None:
            raise LedgerError(
                f"There is no ledger at {self._store.name}. Run `terrine teach` first, or give the "
                "ledger's file or URL."
            )
        self._store.start = header.get("digest")
        with self._store.transaction(write=True):
            pass  # a ledger that an older version made gets its tables, and its keys their entries

    def create(self, name: str, *, role: str = "client", quota: int | None = None) -> str:
        """A new key, as its holder will send it. This is the only time it is shown."""
        if not isinstance(name, str) or not 1 <= len(name) <= 100 or not name.isprintable():
            raise InputError("A key's name must have 1 to 100 printable characters.")
        if role not in ROLES:
            raise InputError(f"role must be one of {', '.join(ROLES)}, got {role!r}.")
        if quota is not None:
            quota = _validate.integer("quota", quota, at_least=0)
            if quota > _QUOTA:
                raise InputError(f"quota must be at most {_QUOTA}, got {quota}.")
        key_id, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
        row = {"id": key_id, "name": name, "role": role, "quota": quota, "sha256": _sha256(secret), "created": _now()}
        with self._store.transaction(write=True) as now:
            taken = sa.select(KEYS.c.id).where(KEYS.c.name == name, KEYS.c.id.not_in(sa.select(REVOKED.c.id)))
            if now.connection.execute(taken).first() is not None:
                raise InputError(f"A key in use already has the name {name!r}. Take another name, or revoke that key.")
            page = Page(now, self._store.start or "", accounts=[key_id])
            page.add_key(row)
            page.write()
            now.connection.execute(sa.insert(KEYS), row)
        self._read = -_FRESH
        return f"terrine_{key_id}_{secret}"

    def revoke(self, name_or_id: str) -> Key:
        """From now on (a running service: within a second) it is refused; what it was charged stays charged."""
        found = [key for key in self.list() if name_or_id in (key.id, key.name) and key.revoked is None]
        if not found:
            raise InputError(f"No key in use has the name or id {name_or_id!r}. `terrine keys list` shows all keys.")
        row = {"id": found[0].id, "time": _now()}
        with self._store.transaction(write=True) as now:
            page = Page(now, self._store.start or "", accounts=[row["id"]])
            page.add_revocation(row)
            page.write()
            now.connection.execute(sa.insert(REVOKED), row)
        self._read = -_FRESH
        return next(key for key in self.list() if key.id == found[0].id)

    def list(self) -> list[Key]:
        """All keys there ever were, oldest first."""
        return sorted((key for key, _ in self._table().values()), key=lambda key: (key.created, key.id))

    def find(self, shown: str) -> Key | None:
        """The key that was sent, if it is in use."""
        match = _SHOWN.fullmatch(shown)
        key_id, secret = match.groups() if match else ("", "")
        with self._lock:
            old = time.monotonic() - self._read
            if old > _FRESH or (key_id not in self._known and old > _MISSED):
                self._known, self._read = self._table(), time.monotonic()
            key, expected = self._known.get(key_id, (None, _NOBODY))
        same = hmac.compare_digest(_sha256(secret), expected)
        return key if same and key is not None and key.revoked is None else None

    def close(self) -> None:
        self._store.close()

    def _table(self) -> dict[str, tuple[Key, str]]:
        """Keys as their rows and the chain agree on; a revocation counts if either has it."""
        with self._store.transaction(write=False) as now:
            rows, revoked = now.key_rows(), {row["id"]: row["time"] for row in now.revocation_rows()}
            entries = now.of_parts([(row["id"], 0) for row in rows])
        found = {}
        for row in rows:
            key_id, made, ended = row["id"], *(entries.get((row["id"], 0, kind)) for kind in (KEY, REVOKE))
            if made is not None and made.asked == row_digest(row):
                secret = row.pop("sha256")
                when = revoked.get(key_id) or (ended.time if ended else None)
                found[key_id] = (Key(**row, revoked=when), secret)
        return found


def _sha256(secret: str) -> str:
    """Of 256 random bits: nothing slower is needed."""
    return hashlib.sha256(secret.encode()).hexdigest()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
