"""Bodies become arrays in memory that is in proportion to them, or are refused; both ways of reading agree."""

from __future__ import annotations

import io
import json
import time
import tracemalloc

import numpy as np
import pytest

from terrine.errors import InputError
from terrine.service import parsing as bodies
from terrine.service.parsing import RowFormat, read_json, read_npy

SIZE = 1 << 20
WIDE = RowFormat(shape=(1000,), dtype="float64")
PAIRS = RowFormat(shape=(2,), dtype="float64")


def around(rows, *, front=b"", back=b""):
    return b'{"request_id": "a", ' + front + b'"rows": ' + rows + back + b"}"


def filled(unit, *, open=b"[", close=b"]"):
    return around(open + unit * (SIZE // len(unit)) + unit.rstrip(b",") + close)


def npy(array):
    file = io.BytesIO()
    np.save(file, array, allow_pickle=True)
    return file.getvalue()


NASTY = {
    "short strings": filled(b'"",'),
    "rows of strings": filled(b'["x","y"],'),
    "a long string among short ones": around(b'[["' + b"x" * (SIZE // 2) + b'"' + b',"y"' * (SIZE // 8) + b"]]"),
    "empty lists": filled(b"[],"),
    "lists of empty lists": filled(b"[[],[]],"),
    "empty objects": filled(b"{},"),
    "deep lists": around(b"[" * (SIZE // 2) + b"]" * (SIZE // 2)),
    "open lists": around(b"[" * SIZE),
    "deep objects": filled(b'{"a":', open=b"", close=b"1"),
    "true and false": filled(b"[true,false],"),
    "nulls": filled(b"[null,null],"),
    "zeros": filled(b"[0,0],"),
    "short floats": filled(b"[1.5,2e1],"),
    "numbers without rows": filled(b"0,"),
    "one long row": around(b"[[" + b"0," * (SIZE // 2) + b"0]]"),
    "a long number": around(b"[[0," + b"1" * SIZE + b"]]"),
    "a long fraction": around(b"[[0,0." + b"1" * SIZE + b"]]"),
    "large whole numbers": filled(b"[123456789012345678901,1],"),
    "commas": around(b"[[" + b"," * SIZE + b"]]"),
    "space": around(b"[[0,1" + b" " * SIZE + b"]]"),
    "rows twice": around(b"[" + b"[0,0]," * SIZE + b"[0,0]]", back=b', "rows": [' + b"[0,0]," * SIZE + b"[0,0]]"),
    "many names": b'{"rows": [[0,1]]' + b"".join(b', "n%d": 0' % k for k in range(SIZE // 12)) + b"}",
    "a long name": b'{"' + b"x" * SIZE + b'": 1}',
    "a long id": b'{"request_id": "' + b"\\u00e4" * (SIZE // 6) + b'", "rows": [[0,1]]}',
    "an array as id": b'{"request_id": [' + b"[]," * (SIZE // 3) + b'[]], "rows": [[0,1]]}',
    "something after the end": around(b"[" + b"[0,0]," * (SIZE // 6) + b"[0,0]]") + b'"' * SIZE,
    "no JSON": b"\xff" * SIZE,
}  # fmt: skip


def peak(read):
    """Bytes that reading takes beyond the body, and what came of it."""
    tracemalloc.start()
    try:
        try:
            found = read()
        except InputError as error:
            found = error
        return tracemalloc.get_traced_memory()[1], found
    finally:
        tracemalloc.stop()


def bound(body):
    return 8 * len(body) + (1 << 20)


@pytest.mark.parametrize("format", [PAIRS, WIDE], ids=["pairs", "wide"])
@pytest.mark.parametrize("name", NASTY)
def test_json_takes_memory_in_proportion(name, format):
    took, _ = peak(lambda: read_json(NASTY[name], format, at_most=10**9, n_classes=4))
    assert took <= bound(NASTY[name])


def test_what_is_good_is_read_within_the_bound_too():
    for body, format, n_rows in (
        (NASTY["zeros"], PAIRS, SIZE // 6 + 1),
        (NASTY["short floats"], PAIRS, SIZE // 10 + 1),
        (NASTY["true and false"], PAIRS, SIZE // 13 + 1),
        (around(b"[" + b",".join([b"[" + b",".join([b"0"] * 1000) + b"]"] * 500) + b"]"), WIDE, 500),
    ):
        took, found = peak(lambda body=body, format=format: read_json(body, format, at_most=10**9, n_classes=4))
        assert found.X.shape == (n_rows, *format.shape)
        assert took <= bound(body)


@pytest.mark.parametrize("dtype", ["?", "u1", "i1", "f2", "f4", "f8", "i8", ">f8", "u8"])
@pytest.mark.parametrize("order", "CF")
def test_npy_takes_memory_in_proportion(dtype, order):
    body = npy(np.ones((SIZE // np.dtype(dtype).itemsize // 2, 2), dtype=dtype, order=order))
    for target in ("float64", "float32", "int64", "bool"):
        format = RowFormat(shape=(2,), dtype=target)
        took, found = peak(lambda format=format: read_npy(body, format, at_most=10**9, request_id="a"))
        assert found.X.dtype == target
        assert took <= bound(body)


def test_a_small_body_takes_little_whatever_is_in_it():
    """Six thousand strings as long as the longest would be 150 MB, in a body of 16 KiB."""
    body = around(b'[["' + b"x" * 6000 + b'"' + b',""' * 3200 + b"]]")
    assert len(body) <= bodies.SMALL
    took, found = peak(lambda: read_json(body, PAIRS, at_most=100, n_classes=4))
    assert isinstance(found, InputError)
    assert took <= bound(body)


SAME = {
    "whole": [[1, 2], [3, 4]],
    "floats": [[0.1, -2.5e-3], [1e22, 3.0]],
    "mixed": [[1, 2.5], [True, 0]],
    "large": [[2**53, -(2**53)], [2**63, 1]],
    "ragged": [[1, 2], [3]],
    "deep": [[[1, 2]]],
    "flat": [1, 2],
    "words": [["1", "2"]],
    "nothing": [[None, 1]],
    "empty": [],
    "empty row": [[]],
    "an object": {"0": 1},
    "one": 1,
    "huge": [[10**30, 1]],
}


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "uint8"])
@pytest.mark.parametrize("name", SAME)
def test_short_and_long_bodies_are_read_alike(name, dtype):
    """A long body is not made into Python objects at once; what is in it means the same."""
    format, results = RowFormat(shape=(2,), dtype=dtype), []
    for space in (0, bodies.SMALL):
        body = json.dumps({"rows": SAME[name], "request_id": "ä/1"}).encode()
        body = body.replace(b", ", b", " + b" " * space, 1) if name != "flat" else body[:-1] + b" " * space + b"}"
        try:
            found = read_json(body, format, at_most=100, n_classes=3)
            results.append((found.request_id, found.X.tolist(), found.X.dtype))
        except InputError as error:
            results.append(type(error))
    assert len(body) > bodies.SMALL
    assert results[0] == results[1]


BROKEN = [
    b"[[1,2]3,[4,5]]",
    b"[3[1,2],[4,5]]",
    b"[[1,2],[4,5]]5",
    b"[[1,2],[4,5]5]",
    b"[[1 2,2],[4,5]]",
    b"[[,2],[4,5]]",
    b"[[1,2],[4,5],]",
    b"[[1,2],[4,5]",
    b"[[1,2],[4,5]]]",
    b"[[01,2],[4,5]]",
    b"[[.5,2],[4,5]]",
    b"[[1.,2],[4,5]]",
    b"[[+1,2],[4,5]]",
    b"[[1e,2],[4,5]]",
    b"[[1-,2],[4,5]]",
    b"[[trues,2],[4,5]]",
    b"[[NaN,2],[4,5]]",
    b"[[1,2],[4,5]],",
    b"[[1,2]][[4,5]]",
]


@pytest.mark.parametrize("rows", BROKEN)
def test_long_bodies_are_read_as_strictly_as_short_ones(rows):
    for space in (b"", b" " * bodies.SMALL):
        with pytest.raises(InputError):
            read_json(b'{"request_id": "a",' + space + b'"rows":' + rows + b"}", PAIRS, at_most=100, n_classes=3)


def test_blocks_join_without_a_seam():
    """Several blocks, cut in the midst of rows, and scores of a student beside them."""
    rng = np.random.default_rng(1)
    X, proba = rng.normal(size=(5000, 7)), rng.uniform(size=(5000, 3))
    sent = json.dumps({"student_proba": proba.tolist(), "rows": X.tolist(), "request_id": "a"}).encode()
    found = read_json(sent, RowFormat(shape=(7,), dtype="float64"), at_most=5000, n_classes=3)
    np.testing.assert_array_equal(found.X, X)
    np.testing.assert_array_equal(found.student_proba, proba)
    images = read_json(
        json.dumps({"rows": X[:, :6].reshape(-1, 2, 3).tolist(), "request_id": "a", "student_proba": None}).encode(),
        RowFormat(shape=(2, 3), dtype="float64"),
        at_most=5000,
        n_classes=3,
    )
    np.testing.assert_array_equal(images.X, X[:, :6].reshape(-1, 2, 3))
    with pytest.raises(InputError, match="1 to 4999 rows"):
        read_json(sent, RowFormat(shape=(7,), dtype="float64"), at_most=4999, n_classes=3)


def header(shape, *, descr="'<f4'", size=24, version=b"\x01\x00", fortran="False"):
    text = f"{{'descr': {descr}, 'fortran_order': {fortran}, 'shape': ({shape}), }}".encode()
    text += b" " * (-len(text) % 64 + 53) + b"\n"
    width = 2 if version == b"\x01\x00" else 4
    return b"\x93NUMPY" + version + len(text).to_bytes(width, "little") + text + bytes(size)


HEADERS = {
    "true as a size": header("True, 6"),
    "false as a size": header("False, 2", size=0),
    "nothing of a huge size": header("0, 99999999999999999999", size=0),
    "nothing of two large sizes": header("0, 4611686018427387904, 8", size=0),
    "65 axes": header("1," * 65, size=4),
    "65 empty axes": header("0," * 65, size=0),
    "negative": header("-3, -2"),
    "a fraction": header("3.0, 2"),
    "no axis": header("", size=4),
    "a name": header("'3', 2"),
    "deep": header("(" * 200 + ")" * 200),
    "an expression": header("2 ** 40, 2"),
    "no dtype": header("3, 2", descr="''"),
    "an odd dtype": header("3, 2", descr="'f0'", size=0),
    "void": header("3, 2", descr="'V0'", size=0),
    "fields": header("3, 2", descr="[('a', '<f4')]"),
    "no fields": header("3, 2", descr="[]", size=0),
    "a field in a field": header("3", descr="[('a', [('b', '<f4', (2,))])]"),
    "an array as dtype": header("3", descr="('<f4', (2,))"),
    "a dtype that is no text": header("3, 2", descr="3"),
    "many dtypes": header("3, 2", descr="'f4,' * 1000"),
    "order as a number": header("3, 2", fortran="2"),
    "version 3": header("3, 2", version=b"\x03\x00"),
    "version 9": header("3, 2", version=b"\x09\x00"),
    "a long header": header("3, 2" + " " * 10_000, version=b"\x02\x00"),
    "a header longer than the body": b"\x93NUMPY\x02\x00\xff\xff\xff\xff{",
}


@pytest.mark.parametrize("name", HEADERS)
def test_npy_headers_are_refused_in_one_line(name):
    with pytest.raises(InputError, match=r"^[^\n]*\.$"):
        read_npy(HEADERS[name], RowFormat(shape=(2,), dtype="float32"), at_most=100, request_id="a")


def test_a_row_is_read_as_fast_as_its_json():
    """No slower than the parser and numpy alone, but for a little."""
    from pydantic_core import from_json

    format = RowFormat(shape=(64,), dtype="float32")
    body = json.dumps({"request_id": "a", "rows": [[0.5 + k for k in range(64)]]}).encode()

    def seconds(read):
        def once():
            start = time.process_time()
            for _ in range(200):
                read()
            return time.process_time() - start

        return min(once() for _ in range(9))

    def plain():
        found = np.array(from_json(body, allow_inf_nan=False)["rows"])
        if not np.isfinite(found).all():
            raise ValueError
        return found.astype(np.float32)

    assert seconds(lambda: read_json(body, format, at_most=100, n_classes=10)) < 2.5 * seconds(plain)


def test_shares_where_bytes_are_wanted_are_told_how_to_become_them():
    images = RowFormat(shape=(2, 2), dtype="uint8")
    with pytest.raises(InputError, match=r'one does not\. Pixels .* by \(x \* 255\)\.round\(\)\.astype\("uint8"\)'):
        images.rows(np.full((3, 2, 2), 0.5), at_most=10)
    with pytest.raises(InputError, match=r"one does not\.$"):
        images.rows(np.full((3, 2, 2), 300), at_most=10)
    assert images.rows(np.full((3, 2, 2), 255.0), at_most=10).dtype == np.uint8
