"""Shares: the same anywhere, isolated, even, secret; files whole or refused; bounded memory."""

from __future__ import annotations

import copy
import json
import os
import pickle
import stat
import subprocess
import sys
import textwrap
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from terrine import partitioning as module
from terrine.datasets.data import PrivateData
from terrine.errors import InputError, SecretError
from terrine.partitioning import (
    Partition,
    Shares,
    new_key,
    partition,
    write_shares,
)
from terrine.relations import Relation
from terrine.sensitive import Sensitive

KEY = bytes(range(32))
TEXT = st.characters(codec="utf-8", exclude_categories=("Zs", "Zl", "Zp", "Cc"))
NAMES = ["ada", "grace", "édith", "李", "0", "1", "ada "]


def data(unit=None, n_rows=None, X=None) -> SimpleNamespace:
    n_rows = len(unit) if unit is not None else n_rows
    X = np.arange(n_rows * 3, dtype=np.float32).reshape(n_rows, 3) if X is None else X
    return SimpleNamespace(X=X, y=np.arange(n_rows) % 10, unit=None if unit is None else np.asarray(unit))


def teachers(unit, *, n_teachers=10, method="hashed", key=KEY, n_rows=None):
    given = data(unit, n_rows)
    return partition(given, n_teachers=n_teachers, method=method, key=key, min_units=0).assignment.tolist()


# The same anywhere and for ever: these were computed once; a change of them changes every stored run.
GOLDEN = {
    "numbers": (lambda: np.array([0, 1, 2, 3, -1, 2**40, 17, 1000]), [674, 772, 549, 754, 177, 400, 225, 698]),
    "text": (lambda: np.array(NAMES), [794, 154, 503, 901, 241, 926, 412]),
}


@pytest.mark.parametrize("kind", GOLDEN)
def test_teachers_of_a_fixed_key_never_change(kind):
    ids, expected = GOLDEN[kind]
    assert teachers(ids(), n_teachers=1000) == expected


def test_rows_without_ids_and_balanced_shares_never_change():
    assert teachers(None, n_rows=8, n_teachers=1000) == [52, 189, 462, 319, 667, 764, 64, 601]
    assert teachers(np.arange(12), n_teachers=5, method="balanced") == [2, 1, 0, 0, 3, 2, 1, 4, 1, 4, 0, 3]


def test_another_process_with_another_hash_seed_agrees():
    program = f"""
        import json, numpy as np
        from types import SimpleNamespace
        from terrine.partitioning import partition
        unit = np.array({NAMES!r})
        data = SimpleNamespace(X=unit, y=unit, unit=unit)
        print(json.dumps(partition(data, n_teachers=1000, key=bytes(range(32)), min_units=0).assignment.tolist()))
    """
    environment = os.environ | {"PYTHONHASHSEED": "7"}
    command = [sys.executable, "-c", textwrap.dedent(program)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == GOLDEN["text"][1]


@pytest.mark.parametrize("method", ["hashed", "balanced"])
def test_how_ids_are_stored_does_not_matter(method):
    ids = [5, 3, 5, 100, 7, 3]
    expected = teachers(ids, method=method)
    for dtype in ("int8", "uint8", "int32", "uint64", ">i4", object):
        assert teachers(np.array(ids, dtype=dtype), method=method) == expected
    words = ["b", "aa", "b", "c"]
    expected = teachers(words, method=method)
    for dtype in ("U2", "U50", object, np.dtypes.StringDType()):
        assert teachers(np.array(words, dtype=dtype), method=method) == expected


def test_numbers_text_and_row_numbers_are_different_ids():
    ids = np.arange(200)
    three = [teachers(ids), teachers(ids.astype(str)), teachers(None, n_rows=200)]
    assert len({tuple(one) for one in three}) == 3
    assert teachers(ids, key=bytes(32)) != three[0]


@given(
    ids=st.lists(st.integers(-50, 50), min_size=2, max_size=60),
    n_teachers=st.integers(1, 12),
    place=st.integers(0, 59),
    new=st.integers(-80, 80),
)
def test_hashed_isolation_adding_removing_or_changing_a_unit_moves_no_other(ids, n_teachers, place, new):
    """The teacher of every other unit is the same, whatever happens to one."""

    def teacher_of(units):
        return dict(zip(units, teachers(units, n_teachers=n_teachers), strict=True)) if units else {}

    before = teacher_of(ids)
    victim = ids[place % len(ids)]
    removed = [unit for unit in ids if unit != victim]
    assert teacher_of(removed) == {unit: teacher for unit, teacher in before.items() if unit != victim}
    after = teacher_of([*ids[:place], new, *ids[place:], new])
    assert {unit: teacher for unit, teacher in after.items() if unit != new} == {
        unit: teacher for unit, teacher in before.items() if unit != new
    }
    assert teacher_of([*ids, victim]) == before


@given(
    ids=st.lists(st.text(TEXT, min_size=1, max_size=3), min_size=1, max_size=80),
    method=st.sampled_from(["hashed", "balanced"]),
)
def test_a_units_rows_all_go_to_one_teacher(ids, method):
    ids = np.array(ids, dtype=object)
    shares = partition(data(ids), n_teachers=4, method=method, key=KEY, min_units=0)
    assert len(set(zip(ids, shares.assignment.tolist(), strict=True))) == len(set(ids))
    shares.check(ids)


def test_balanced_isolation_a_replaced_row_stays_in_its_share_and_sizes_are_even():
    rows = partition(data(n_rows=103), n_teachers=10, method="balanced", key=KEY)
    assert sorted(rows.sizes.reveal()) == [10] * 7 + [11] * 3
    assert rows.relation == Relation.ROW_REPLACED
    units = partition(data(np.repeat(np.arange(53), 3)), n_teachers=10, method="balanced", key=KEY)
    assert sorted(units.sizes.reveal()) == [15] * 7 + [18] * 3


def test_balanced_with_an_id_that_is_replaced_is_as_likely_to_move_nobody():
    """Over keys: the joint law of the others' shares and the unit's is the same for either id."""
    ids, other = [1, 2, 3, 4], [9, 2, 3, 4]
    keys = [index.to_bytes(16, "little") for index in range(3000)]
    outcomes = sorted({tuple(teachers(ids, n_teachers=2, method="balanced", key=key)) for key in keys})
    assert len(outcomes) == 6
    for units in (ids, other):
        drawn = [outcomes.index(tuple(teachers(units, n_teachers=2, method="balanced", key=key))) for key in keys]
        assert stats.chisquare(np.bincount(drawn, minlength=6)).pvalue > 1e-6


@pytest.mark.parametrize("unit", [np.arange(100_000), np.arange(100_000).astype(str), None], ids=["int", "str", "rows"])
def test_hashed_shares_are_as_even_as_chance(unit):
    shares = partition(data(unit, n_rows=100_000), n_teachers=250, key=KEY)
    assert 1e-6 < stats.chisquare(shares.sizes.reveal()).pvalue < 1 - 1e-6


def test_each_says_its_relation():
    ids = np.arange(40)
    assert partition(data(ids), n_teachers=2, key=KEY).relation == Relation.UNIT_ANY
    assert partition(data(n_rows=40), n_teachers=2, key=KEY).relation == Relation.ROW_REPLACED
    assert partition(data(ids), n_teachers=2, method="balanced", key=KEY).relation == Relation.UNIT_REPLACED
    assert "number of rows is public" in Relation.ROW_REPLACED.sentence
    assert "number of units is public" in Relation.UNIT_REPLACED.sentence
    with pytest.raises(InputError, match="relation must be one that balanced shares have"):
        Partition([0, 1], n_teachers=2, method="balanced", relation=Relation.UNIT_ANY)


def test_rows_are_sorted_and_cover_everything():
    shares = partition(data(np.arange(1000) // 3), n_teachers=7, key=KEY)
    for teacher in range(7):
        np.testing.assert_array_equal(shares.rows(teacher), np.flatnonzero(shares.assignment == teacher))
    assert shares.assignment.dtype == np.int32
    assert sum(map(len, map(shares.rows, range(7)))) == len(shares) == 1000
    for teacher in (-1, 7):
        with pytest.raises(InputError, match="teacher must be from 0 to 6"):
            shares.rows(teacher)


def test_too_small_a_share_is_refused_without_saying_how_small():
    with pytest.raises(InputError) as caught:
        partition(data(np.arange(977)), n_teachers=500, key=KEY, min_units=3)
    message = str(caught.value)
    assert "fewer than min_units=3 unit(s)" in message
    assert "fewer teachers" in message
    assert "\n" not in message
    assert "977" not in message
    many_rows = np.repeat(np.arange(3), 100)  # rows do not count, units do
    with pytest.raises(InputError, match="min_units=1"):
        partition(data(many_rows), n_teachers=30, key=KEY, min_units=1)
    with pytest.raises(InputError, match="min_units=1"):  # by default too, where the number of units is public
        partition(data(many_rows), n_teachers=30, key=KEY, method="balanced")
    empty = partition(data(many_rows), n_teachers=30, key=KEY, min_units=0)
    assert min(empty.sizes.reveal()) == 0
    with pytest.raises(InputError, match="min_units=1"):
        partition(data(np.arange(0)), n_teachers=1, key=KEY, method="balanced")


def test_one_person_does_not_decide_whether_hashed_shares_are_refused():
    people = [*range(60)]
    dealt = [partition(data(np.array(people[:k])), n_teachers=40, key=KEY) for k in (60, 59, 2)]
    assert all(shares.relation == "unit_any" for shares in dealt)
    assert min(dealt[-1].sizes.reveal()) == 0


def test_secrets_stay_secret():
    shares = partition(data(np.arange(977)), n_teachers=5, key=KEY)
    said = f"5 teachers, hashed; neighbors: {Relation.UNIT_ANY.sentence}"
    assert repr(shares) == f"<Partition: {said}; shares are secret>"
    assert isinstance(shares.sizes, Sensitive)
    assert KEY not in b"".join(repr(value).encode() for value in vars(shares).values())
    for leak in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(SecretError, match=r"save and Partition\.load"):
            leak(shares)
    with pytest.raises(InputError, match="stays as it is"):
        shares.n_teachers = 3
    with pytest.raises(ValueError):
        shares.assignment[0] = 1
    with pytest.raises(ValueError):
        shares.rows(0)[0] = 1


def test_keys():
    assert len(new_key()) == 32
    assert new_key() != new_key()
    for key, found in ((b"short", "got 5"), (bytes(65), "got 65"), ("x" * 32, "got str"), (None, "got NoneType")):
        with pytest.raises(InputError, match=found):
            partition(data(np.arange(9)), n_teachers=2, key=key)


@pytest.mark.parametrize(
    ("unit", "message"),
    [
        (np.array([1.0, 2.0]), "whole numbers or text, got dtype float64"),
        (np.array([True, False]), "whole numbers or text, got dtype bool"),
        (np.array([b"a", b"b"]), "whole numbers or text, got dtype .S1"),
        (np.array(["a", None], dtype=object), "id in row 1 is missing, or neither .* Write all ids as text"),
        (np.array(["a", 1], dtype=object), "row 1 is a whole number, and the first one is text. Write"),
        (np.array([1, True], dtype=object), "id in row 1 is missing, or neither"),
        (np.array([1, 2**70], dtype=object), "2\\^63 or larger"),
        (np.array([1, 2, 3]), "one id for each row"),
        (np.array([[1], [2]]), "one id for each row"),
    ],
)
def test_bad_ids_are_refused_in_a_line(unit, message):
    bad = SimpleNamespace(X=np.zeros((2, 1)), y=np.zeros(2), unit=unit)
    with pytest.raises(InputError, match=message) as caught:
        partition(bad, n_teachers=1, key=KEY)
    assert "\n" not in str(caught.value)


def test_bad_arguments_are_refused():
    for settings in ({"n_teachers": 0}, {"n_teachers": 2**31}, {"min_units": -1}, {"method": "random"}):
        with pytest.raises(InputError, match=next(iter(settings))):
            partition(data(np.arange(9)), **({"n_teachers": 2, "key": KEY} | settings))
    for assignment in ([0, 2], [-1, 0], [[0, 1]], [0.0, 1.0]):
        with pytest.raises(InputError, match=r"must|there are"):
            Partition(assignment, n_teachers=2, method="hashed", relation=Relation.UNIT_ANY)


def test_save_and_load(tmp_path):
    path = tmp_path / "partition.npz"
    shares = partition(data(np.arange(500)), n_teachers=5, key=KEY)
    shares.save(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == ["partition.npz"]
    assert KEY not in path.read_bytes()
    again = Partition.load(path)
    np.testing.assert_array_equal(again.assignment, shares.assignment)
    assert repr(again) == repr(shares)
    again.check(np.arange(500))
    assert again.identify("text") == shares.identify("text") != shares.identify("another")
    with pytest.raises(InputError, match=r"ends in \.npz"):
        shares.save(tmp_path / "partition.txt")


def test_a_damaged_or_foreign_file_is_refused_in_a_line(tmp_path):
    path = tmp_path / "partition.npz"
    partition(data(np.arange(500)), n_teachers=5, key=KEY).save(path)
    good = path.read_bytes()
    with np.load(path) as file:
        arrays = dict(file)

    def refused(match):
        with pytest.raises(InputError, match=match) as caught:
            Partition.load(path)
        assert str(caught.value).startswith("partition.npz: ")
        assert "\n" not in str(caught.value)

    for damaged in (b"", b"hello", good[:-30], good[: len(good) // 2], good[:100] + b"\0\1\2\3" + good[104:]):
        path.write_bytes(damaged)
        refused("cannot read|schema")
    for change in (
        {"schema": "terrine.votes/1"},
        {"n_teachers": 4},
        {"method": "magic"},
        {"relation": "whatever"},
        {"assignment": arrays["assignment"].astype(float)},
        {"assignment": np.array([{}], dtype=object)},
        {"secret": np.zeros(31, dtype=np.uint8)},
    ):
        np.savez(path, **(arrays | change))
        refused("must|schema|cannot read")
    for name in arrays.keys() - {"secret"}:
        np.savez(path, **{other: value for other, value in arrays.items() if other != name})
        refused("damaged|schema")
    np.savez(path, **{name: value for name, value in arrays.items() if name != "secret"})
    assert Partition.load(path).identify("a file of before") == ""
    path.unlink()
    refused("no such file")


def test_a_unit_in_two_shares_is_found():
    """Two owners join their data; one person is with both."""
    first, second = np.array([1, 1, 2]), np.array([3, 2, 3])
    joined = Partition([0, 0, 1, 2, 3, 2], n_teachers=4, method="hashed", relation=Relation.UNIT_ANY)
    with pytest.raises(InputError, match="A unit has rows in two shares") as caught:
        joined.check(np.concatenate([first, second]))
    assert "2" not in str(caught.value)
    joined.check(np.array([1, 1, 2, 3, 4, 3]))
    with pytest.raises(InputError, match="one id for each row"):
        joined.check(first)


def test_two_million_units_fit_in_little_memory():
    program = """
        import numpy as np
        from types import SimpleNamespace
        from terrine.partitioning import partition
        unit = (np.arange(2_000_000) * 7919).astype("U11")
        data = SimpleNamespace(X=None, y=unit, unit=unit)
        shares = partition(data, n_teachers=1000, key=bytes(32))
        assert len(shares.rows(17)) == shares.sizes.reveal()[17]
        print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
    """  # VmHWM: ru_maxrss would begin with the size of the process that started this one
    command = [sys.executable, "-c", textwrap.dedent(program)]
    peak = 1024 * int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert peak < 600e6, peak


# Shares as mapped files


@pytest.fixture
def written(tmp_path):
    given = data(np.arange(1000) // 2)
    shares = partition(given, n_teachers=7, key=KEY)
    return given, shares, write_shares(given, shares, tmp_path / "shares")


@pytest.mark.parametrize("at_once", [1, 100, 1 << 26])
def test_every_share_is_its_rows(tmp_path, monkeypatch, at_once):
    monkeypatch.setattr(module, "_BYTES_AT_ONCE", at_once)
    given = data(np.arange(200) // 2, X=np.random.default_rng(0).integers(0, 256, (200, 4, 4), dtype=np.uint8))
    given.y = np.array(["no", "yes"])[given.y % 2]
    shares = partition(given, n_teachers=150, key=KEY, min_units=0)  # some are empty
    mapped = pickle.loads(pickle.dumps(write_shares(given, shares, tmp_path / "shares")))
    for teacher in range(150):
        X, y = mapped.share(teacher)
        np.testing.assert_array_equal(X, given.X[shares.rows(teacher)])
        np.testing.assert_array_equal(y, given.y[shares.rows(teacher)])
        assert isinstance(X, np.memmap) or not len(X)
        assert not X.flags.writeable
    with pytest.raises(InputError, match="teacher must be from 0 to 149"):
        mapped.share(150)


def test_private_data_from_a_mapped_file(tmp_path):
    np.save(tmp_path / "X.npy", np.arange(300).reshape(100, 3))
    private = PrivateData(
        np.load(tmp_path / "X.npy", mmap_mode="r"), np.arange(100) % 3, unit=np.arange(100).astype(str)
    )
    shares = partition(private, n_teachers=4, key=KEY)
    X, y = write_shares(private, shares, tmp_path / "shares").share(2)
    np.testing.assert_array_equal(X[:, 0] // 3, shares.rows(2))
    np.testing.assert_array_equal(y, shares.rows(2) % 3)


def test_shares_are_private_and_print_nothing_secret(written):
    _, _, mapped = written
    assert stat.S_IMODE(mapped.folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in mapped.folder.iterdir()} == {0o600}
    assert repr(mapped) == "<Shares: 7 teachers in shares; contents are secret>"
    assert os.listdir(mapped.folder.parent) == ["shares"]


def test_writing_again_keeps_what_is_there_and_refuses_what_differs(written):
    given, shares, mapped = written
    before = {path.name: path.stat().st_mtime_ns for path in mapped.folder.iterdir()}
    assert write_shares(given, shares, mapped.folder).fingerprint == mapped.fingerprint
    assert {path.name: path.stat().st_mtime_ns for path in mapped.folder.iterdir()} == before
    changed = data(given.unit, X=given.X.copy())
    changed.X[500, 1] += 1
    other = partition(given, n_teachers=7, key=bytes(32))
    reshaped = data(given.unit, X=given.X[:, None])
    for different in ((changed, shares), (reshaped, shares), (given, other)):
        with pytest.raises(InputError, match=r"of a different partition\. Remove the folder"):
            write_shares(*different, mapped.folder)
    with pytest.raises(InputError, match="one for each of the partition's rows"):
        write_shares(data(n_rows=999), shares, mapped.folder)


def test_a_killed_writer_leaves_no_folder_and_the_next_one_finishes(tmp_path):
    folder = tmp_path / "shares"
    program = f"""
        import os, signal, numpy as np
        from types import SimpleNamespace
        from terrine import partitioning as module
        unit = np.arange(1000)
        data = SimpleNamespace(X=np.zeros((1000, 3)), y=unit, unit=unit)
        shares = module.partition(data, n_teachers=7, key=bytes(32))
        module._let_go = lambda array: os.kill(os.getpid(), signal.SIGKILL)
        module.write_shares(data, shares, {str(folder)!r})
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, check=False)
    assert done.returncode == -9
    assert not folder.exists()
    assert len(os.listdir(tmp_path)) == 1
    given = data(np.arange(1000))
    shares = partition(given, n_teachers=7, key=KEY)
    write_shares(given, shares, folder)
    assert os.listdir(tmp_path) == ["shares"]


@pytest.mark.parametrize("stop", [KeyboardInterrupt(), OSError(28, "No space left on device")])
def test_an_error_while_writing_leaves_nothing(tmp_path, monkeypatch, stop):
    def fail(*_):
        raise stop

    monkeypatch.setattr(os, "posix_fallocate", fail)
    given = data(np.arange(100))
    with pytest.raises(type(stop)):
        write_shares(given, partition(given, n_teachers=2, key=KEY), tmp_path / "shares")
    assert os.listdir(tmp_path) == []


def test_damaged_shares_are_refused_by_name(written):
    _, _, mapped = written
    for name in ("X.npy", "y.npy", "offsets.npy"):
        path = mapped.folder / name
        good = path.read_bytes()
        for damaged in (good[:-8], good[:20], b""):
            path.write_bytes(damaged)
            with pytest.raises(InputError, match=r"shares: .*folder of shares"):
                Shares(mapped.folder).share(0)
        path.write_bytes(good)
    Shares(mapped.folder).share(0)
    about = mapped.folder / "shares.json"
    for text, match in (("{", "damaged"), ("[]", "damaged"), (about.read_text().replace("shares/1", "x/1"), "schema")):
        about.write_text(text)
        with pytest.raises(InputError, match=match):
            Shares(mapped.folder)
    with pytest.raises(InputError, match="nowhere: no such folder of shares"):
        Shares(mapped.folder.parent / "nowhere")


def test_objects_are_refused(tmp_path):
    given = data(np.arange(3), X=np.array([{}, {}, {}], dtype=object))
    with pytest.raises(InputError, match="X must hold plain values"):
        write_shares(given, partition(given, n_teachers=1, key=KEY), tmp_path / "shares")


def test_no_rows_at_all(tmp_path):
    given = data(np.arange(0), X=np.empty((0, 3)))
    shares = partition(given, n_teachers=2, key=KEY, min_units=0)
    X, y = write_shares(given, shares, tmp_path / "shares").share(1)
    assert (X.shape, y.shape) == ((0, 3), (0,))


def test_mapped_rows_are_sorted_in_bounded_memory(tmp_path):
    """300 MB from file to file; resident memory, mapped pages included, grows by far less."""
    n_rows = 400_000
    rows = np.lib.format.open_memmap(tmp_path / "rows.npy", mode="w+", dtype=np.uint8, shape=(n_rows, 784))
    rows[::1000, 0] = 1
    del rows
    program = f"""
        import json, resource, numpy as np
        from types import SimpleNamespace
        from terrine.partitioning import partition, write_shares
        X = np.load({str(tmp_path / "rows.npy")!r}, mmap_mode="r")
        unit = np.arange({n_rows})
        data = SimpleNamespace(X=np.asarray(X), y=unit % 10, unit=unit)
        shares = partition(data, n_teachers=1000, key=bytes(32))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        mapped = write_shares(data, shares, {str(tmp_path / "shares")!r})
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        ones = sum(int(mapped.share(teacher)[0][:, 0].sum()) for teacher in range(0, 1000, 100))
        right = sum(int((shares.rows(teacher) % 1000 == 0).sum()) for teacher in range(0, 1000, 100))
        print(json.dumps([before, after, ones, right]))
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=True)
    before, after, ones, right = json.loads(done.stdout)
    assert ones == right > 0
    assert (after - before) * 1024 < 160e6


def test_a_schema_is_shown_only_if_it_is_a_word(tmp_path):
    np.savez(tmp_path / "p.npz", assignment=[0, 1], schema=[511, 511])
    with pytest.raises(InputError, match=r"schema terrine\.partition/1 \(it has no readable schema\)\.$"):
        Partition.load(tmp_path / "p.npz")
