"""Keys: shown once, stored hashed, refused when revoked."""

from __future__ import annotations

import sqlite3

import pytest
from tests.service.tasks import budget_for

from terrine import Ledger
from terrine.errors import InputError
from terrine.service.keys import Keys


@pytest.fixture
def where(tmp_path):
    Ledger(tmp_path / "l.sqlite", budget=budget_for(10)).close()
    return tmp_path / "l.sqlite"


def test_a_key_is_found_and_its_secret_is_not_stored(where):
    keys = Keys(where)
    shown = keys.create("team", quota=5)
    found = keys.find(shown)
    assert (found.name, found.role, found.quota, found.revoked) == ("team", "client", 5, None)
    secret = shown.split("_", 2)[2]
    assert len(secret) == 43
    keys.close()
    with sqlite3.connect(where) as database:
        dump = "\n".join(database.iterdump())
    assert secret not in dump
    assert found.id in dump


def test_what_is_no_key(where):
    keys = Keys(where)
    shown = keys.create("team")
    prefix, key_id, secret = shown.split("_", 2)
    wrong = [
        "",
        shown[:-1],
        shown + "A",
        shown.upper(),
        f"{prefix}_{key_id}_{secret[:-1]}{'A' if secret[-1] != 'A' else 'B'}",
        f"{prefix}_{'0' * 12}_{secret}",
        secret,
    ]
    assert [keys.find(text) for text in wrong] == [None] * len(wrong)


def test_a_revoked_key(where):
    keys, other = Keys(where), Keys(where)
    shown = keys.create("team")
    assert other.find(shown) is not None
    assert keys.revoke("team").revoked is not None
    assert keys.find(shown) is None
    other._read = -1e9  # a second later
    assert other.find(shown) is None
    with pytest.raises(InputError, match="key in use"):
        keys.revoke("team")
    again = keys.create("team")  # the name is free again
    assert keys.find(again) is not None
    assert [key.name for key in keys.list()] == ["team", "team"]


@pytest.mark.parametrize(
    "bad",
    [
        {"name": ""},
        {"name": "a\n"},
        {"name": "a" * 101},
        {"role": "king"},
        {"quota": -1},
        {"quota": 1.5},
        {"quota": 2**63},
    ],
)
def test_bad_keys(where, bad):
    given = {"name": "a", **bad}
    with pytest.raises(InputError, match="must"):
        Keys(where).create(given.pop("name"), **given)


def test_the_largest_quota(where):
    keys = Keys(where)
    assert keys.find(keys.create("a", quota=2**63 - 1)).quota == 2**63 - 1


def test_two_keys_in_use_do_not_share_a_name(where):
    keys = Keys(where)
    keys.create("a")
    with pytest.raises(InputError, match="A key in use already has"):
        keys.create("a")
