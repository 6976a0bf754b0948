"""What a ledger is made of, and the hashes that chain it. All of it is public."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, NamedTuple, Self

from terrine import _validate
from terrine.budgets import Spending, canonical
from terrine.errors import InputError

LEDGER_SCHEMA = "terrine.ledger/2"
ENTRY_SCHEMA = "terrine.entry/2"
RESERVE, SETTLE = "reserve", "settle"
KEY, REVOKE = "key", "revoke"  # of the label service: a key was made, or is refused from here on
COST, NUMBER = "cost", "number"  # what the answers cost is paid to be published, and the number that was
TRAIN, BEGUN, OUTPUT = "train", "begun", "output"  # a training is charged; a step of it is begun, and its sum is kept


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One line, written once and never changed.

    Attributes:
        seq: 1, 2, 3, ... without a gap.
        time: UTC.
        kind: "reserve": charged its worst case before noise is drawn; "settle": lowered to what public outcomes show;
            "key", "revoke": a key of the label service was made or revoked, at no charge; "cost", "number": the one
            number that the budget pays for beside its answers is charged, and kept; "train", "begun", "output": a
            training is charged whole, a step of it is begun, and what the step released is kept.
        request_id, part: whose; a request that is sliced, or tried again after a crash, has several parts. Of a key,
            its id and 0.
        account: on whose behalf.
        mechanism: as JSON.
        n_queries, n_answers: charged for this part from here on; so is ``charge``, at a filter's order in 2^-50 nats.
        secure: False where seeded noise was used.
        asked: of a reservation, the digest of what its request asks; "" where it came without one. Of a key or a
            revocation, the digest of its row. Of a tested release's settlement, its bit: "passed" or "failed". Of a
            published cost, the digest of the answers that it is about, and then the number. Of a training's charge,
            the digest of its settings.
        answers_digest: of a settlement, over the answers it kept. Of the charge of a tested release or a published
            cost, the name of the noise that it pays for. Of a training's output, the digest of its file.
        total: charged for the whole ledger from here on; ``account_total``: for the account.
        digest: sha256 over the digest before and all other fields.
    """

    seq: int
    time: str
    kind: str
    request_id: str
    part: int
    account: str
    mechanism: str
    n_queries: int
    n_answers: int
    charge: int
    secure: bool
    asked: str
    answers_digest: str
    total: Spending
    account_total: Spending
    schema: str = ENTRY_SCHEMA
    digest: str = ""

    @property
    def spending(self) -> Spending:
        return Spending(queries=self.n_queries, answers=self.n_answers, charge=self.charge)

    def flat(self) -> dict[str, Any]:
        """Its fields as a table's columns: total_queries, account_queries, and so on."""
        return dict(zip(_COLUMNS, _FIELDS(self), strict=True))

    def seal(self, before: str) -> None:
        """Give a new entry its digest, after the entry, or the header, of digest ``before``."""
        object.__setattr__(self, "digest", self.chained(before))

    def chained(self, before: str) -> str:
        """What its digest must be, after the entry, or the header, of digest ``before``."""
        fields = self.flat()
        del fields["digest"]
        return sha256(before + canonical(fields))

    @property
    def head(self) -> Head:
        return Head(self.seq, self.digest)


_SPENT = {"total": "total", "account": "account_total"}
_COLUMNS = {name: name for name in Entry.__dataclass_fields__ if name not in _SPENT.values()} | {
    f"{whose}_{name}": f"{field}.{name}" for whose, field in _SPENT.items() for name in ("queries", "answers", "charge")
}
_COLUMNS = dict(sorted(_COLUMNS.items()))  # where each column's value is; as canonical JSON has them


def fields_of(columns: Iterable[str]) -> attrgetter[tuple[Any, ...]]:
    """What gets an entry's values of these columns."""
    return attrgetter(*(_COLUMNS[column] for column in columns))


_FIELDS = fields_of(_COLUMNS)


@dataclass(frozen=True, kw_only=True)
class Ask:
    """What someone wants reserved.

    Attributes:
        request_id: whose.
        digest: of what the request asks; as many queries are granted as fit. "": all or nothing, under a new id.
        n_queries: wanted.
        account, quota: on whose behalf, and how many queries may ever be charged to the account; None: any number.
    """

    request_id: str
    digest: str = ""
    n_queries: int
    account: str = ""
    quota: int | None = None

    def checked(self) -> Self:
        """The same, or InputError."""
        if not isinstance(self.account, str) or len(self.account) > 64 or not self.account.isprintable():
            raise InputError("account must be text of at most 64 printable characters.")
        if not isinstance(self.digest, str) or len(self.digest) > 64:
            raise InputError("digest must be text of at most 64 characters.")
        checked_request_id(self.request_id)
        n_queries = _validate.integer("n_queries", self.n_queries, at_least=1)
        quota = None if self.quota is None else _validate.integer("quota", self.quota, at_least=0)
        if n_queries is self.n_queries and quota is self.quota:
            return self
        return replace(self, n_queries=n_queries, quota=quota)


def checked_request_id(request_id: Any) -> str:
    """1 to 200 printable characters."""
    if not isinstance(request_id, str) or not 1 <= len(request_id) <= 200 or not request_id.isprintable():
        raise InputError("request_id must be text of 1 to 200 printable characters.")
    return request_id


@dataclass(frozen=True, kw_only=True)
class Reservation:
    """Room for n_queries and their answers: charged, and good for one draw of noise."""

    request_id: str
    part: int
    n_queries: int


class Kept(NamedTuple):
    """An answer that was given once, and is given again to everyone who asks the same."""

    label: int
    outcome: int
    secure: bool


class Part(NamedTuple):
    """An entry as those who look up a part need it."""

    request_id: str
    part: int
    kind: str
    time: str = ""
    account: str = ""
    mechanism: str = ""
    n_queries: int = 0
    n_answers: int = 0
    charge: int = 0
    secure: bool = True
    asked: str = ""

    def costing(self, price: Spending) -> Part:
        return self._replace(n_queries=price.queries, n_answers=price.answers, charge=price.charge)

    @property
    def spending(self) -> Spending:
        return Spending(queries=self.n_queries, answers=self.n_answers, charge=self.charge)


class Head(NamedTuple):
    """The newest entry's number and digest. Whoever keeps it can tell later if anything up to it was changed."""

    seq: int
    digest: str

    def __str__(self) -> str:
        return f"{self.seq}:{self.digest}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """From "17:ab12...", as it is printed."""
        seq, _, digest = str(text).strip().partition(":")
        if not (seq.isascii() and seq.isdigit() and len(seq) < 19 and is_digest(digest)):
            raise InputError("A ledger's head is a number, a colon and 64 hex digits, as in 17:ab12...")
        return cls(int(seq), digest)


_HEX = set("0123456789abcdef")


class TreeHead(NamedTuple):
    """A head, and the root of the Merkle tree over all digests up to it."""

    head: Head
    root: str


@dataclass(frozen=True, kw_only=True)
class Proof:
    """That the ledger of ``second`` entries continues that of ``first``; hashes as in RFC 6962.

    Attributes:
        path: the consistency path between the trees of both sizes; empty where ``first`` is 0.
        first_path, second_path: inclusion of entries ``first`` and ``second`` in the tree of the second size; of an
            entry 0, which there is not, empty.
        root: of that tree.
    """

    first: int
    second: int
    path: list[str]
    first_path: list[str]
    second_path: list[str]
    root: str


def is_digest(value: Any) -> bool:
    """64 hex digits."""
    return isinstance(value, str) and len(value) == 64 and set(value) <= _HEX


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def header_digest(header: Mapping[str, Any]) -> str:
    """Where the chain begins: over schema, ledger id and budget."""
    return sha256(canonical({name: header[name] for name in ("schema", "ledger_id", "budget")}))


_ROWS = json.JSONEncoder(separators=(",", ":"))


def answers_digest(answers: Iterable[tuple[str, Kept]]) -> str:
    """Over [query, label, outcome, secure] of each, sorted."""
    rows = sorted([query, *kept] for query, kept in answers)
    return sha256(_ROWS.encode(rows))


def row_digest(row: Mapping[str, Any]) -> str:
    """Of a key's or a revocation's row."""
    return sha256(canonical(dict(row)))
