"""Sensitive: every way out but reveal() is shut or redacted. The secret's digits may appear nowhere."""

from __future__ import annotations

import array
import contextlib
import copy
import dataclasses
import io
import json
import logging
import marshal
import math
import operator
import pickle
import pprint
import reprlib
import sqlite3
import statistics
import string
import sys
import threading
import traceback
import warnings
from typing import Any

import numpy as np
import pyarrow
import pydantic
import pytest
from rich.console import Console

from terrine.errors import SecretError
from terrine.sensitive import Sensitive, unheard

SECRET = 987654321.125
DIGITS = "98765"
REDACTED = "<Sensitive float: depends on private data; .reveal() shows it>"


@pytest.fixture
def secret() -> Sensitive[float]:
    return Sensitive(SECRET)


@dataclasses.dataclass
class Holder:
    epsilon: Any


class Model(pydantic.BaseModel):
    epsilon: Any


def rich_print(value: object) -> str:
    console = Console(file=io.StringIO(), width=200)
    console.print(value, [value], Holder(value))
    console.log(value, log_locals=True)
    return console.file.getvalue()


def warn(value: object) -> str:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.warn(f"{value}", stacklevel=1)
        warnings.warn(UserWarning(value), stacklevel=1)
    return " ".join(warnings.formatwarning(w.message, w.category, "file", 1) for w in caught)


def object_array(value: object) -> str:
    array_of_objects = np.empty(1, dtype=object)
    array_of_objects[0] = value
    return f"{array_of_objects} {array_of_objects!r}"


PRINTED = {
    "repr": repr,
    "str": str,
    "ascii": ascii,
    "format": format,
    "f-string": lambda s: f"{s} {s!r} {s!s} {s!a}",
    "f-string with a spec": lambda s: f"{s:.3f} {s:>30} {s:e} {s:%}",
    "str.format": lambda s: "{} {:.6g}".format(s, s),  # noqa: UP032
    "percent": lambda s: "%s %r %a" % (s, s, s),  # noqa: UP031
    "template": lambda s: string.Template("$x").substitute(x=s),
    "in a list": lambda s: str([s]),
    "pprint": lambda s: pprint.pformat({"x": [s]}),
    "reprlib": lambda s: f"{REDACTED} {reprlib.repr(s)}",
    "dataclass": lambda s: str(Holder(s)),
    "json with default=str": lambda s: json.dumps({"x": s}, default=str),
    "pydantic repr": lambda s: f"{Model(epsilon=s)!r} {Model(epsilon=s).model_dump()}",
    "pydantic with a fallback": lambda s: Model(epsilon=s).model_dump_json(fallback=str),
    "rich": rich_print,
    "warnings": warn,
    "numpy object array": object_array,
    "exception": lambda s: "".join(traceback.format_exception(ValueError("epsilon is", s))),
}


@pytest.mark.parametrize("way", PRINTED)
def test_printing_is_redacted(secret, way):
    shown = PRINTED[way](secret)
    assert REDACTED in shown
    assert DIGITS not in shown


@pytest.mark.parametrize("value", [3, 2.5, "text", None, [SECRET], np.full(3, SECRET), {"epsilon": SECRET}])
def test_the_repr_says_the_type_alone(value):
    assert repr(Sensitive(value)) == f"<Sensitive {type(value).__name__}: depends on private data; .reveal() shows it>"


REFUSED = {
    "json": lambda s: json.dumps({"x": s}),
    "json key": lambda s: json.dumps({s: 1}),
    "json default vars": lambda s: json.dumps(s, default=vars),
    "json default float": lambda s: json.dumps(s, default=float),
    "pydantic json": lambda s: Model(epsilon=s).model_dump_json(),
    "pydantic deep copy": lambda s: Model(epsilon=s).model_copy(deep=True),
    "pydantic number": lambda s: pydantic.TypeAdapter(float).validate_python(s),
    **{f"pickle {p}": lambda s, p=p: pickle.dumps(s, p) for p in range(pickle.HIGHEST_PROTOCOL + 1)},
    "pickle inside": lambda s: pickle.dumps([Holder(s)]),
    "marshal": marshal.dumps,
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "asdict": lambda s: dataclasses.asdict(Holder(s)),
    "astuple": lambda s: dataclasses.astuple(Holder(s)),
    "dataclass equality": lambda s: Holder(s) == Holder(SECRET),
    "__getstate__": lambda s: s.__getstate__(),
    "vars": vars,
    "__dict__": lambda s: s.__dict__,
    "bool": bool,
    "not": operator.not_,
    "hash": hash,
    "iterate": list,
    "unpack": lambda s: print(*s),
    "length": len,
    "index": lambda s: s[0],
    "contains": lambda s: 1 in s,
    "member of a list": lambda s: 3 in [s],
    **{kind.__name__: kind for kind in (float, int, complex, bytes, range, round, abs, tuple, set)},
    "math": math.sqrt,
    "isclose": lambda s: math.isclose(s, 1.0),
    "sum": lambda s: sum([s]),
    "max": lambda s: max(s, s),
    "mean": lambda s: statistics.fmean([s]),
    "negate": operator.neg,
    "percent d": lambda s: "%d" % s,  # noqa: UP031
    "percent f": lambda s: "%.3f" % s,  # noqa: UP031
    "percent key": lambda s: "%(x)s" % s,  # noqa: UP031
    "array": lambda s: array.array("d", [s]),
    "asarray": np.asarray,
    "asarray as float": lambda s: np.asarray(s, dtype=float),
    "asarray as object": lambda s: np.asarray([s], dtype=object),
    "np.save": lambda s: np.save(io.BytesIO(), s),
    "np.float64": np.float64,
    "ufunc": np.sqrt,
    "ufunc of two": lambda s: np.add(1.0, s),
    "set an element": lambda s: np.zeros(1).__setitem__(0, s),
    "assert_allclose": lambda s: np.testing.assert_allclose(s, 1.0),
    "arrow": lambda s: pyarrow.array([s], type=pyarrow.float64()),
    "sqlite": lambda s: sqlite3.connect(":memory:").execute("select ?", (s,)),
    "wrap twice": Sensitive,
}


@pytest.mark.parametrize("way", REFUSED)
@pytest.mark.filterwarnings("ignore:unclosed database:ResourceWarning")
def test_every_other_use_is_refused_without_saying_the_value(secret, way):
    with pytest.raises(Exception) as caught:
        REFUSED[way](secret)
    assert DIGITS not in "".join(traceback.format_exception(caught.value))
    for public in (SECRET, 1, [SECRET], {"x": 1}, Holder(1)):
        with contextlib.suppress(Exception):
            REFUSED[way](public)
            return
    pytest.fail(f"{way} works for no public value either, so its refusal proves nothing")


OPERATORS = "add sub mul truediv floordiv mod pow matmul eq ne lt le gt ge"
OTHERS = [2, 2.0, np.float64(2), np.int64(2), np.bool_(True), np.array(2.0), np.array([1.0, 2.0]), Sensitive(2.0)]


@pytest.mark.parametrize("name", OPERATORS.split())
@pytest.mark.parametrize("other", OTHERS, ids=lambda other: f"{type(other).__name__}")
def test_arithmetic_and_comparison_are_refused_from_both_sides(secret, name, other):
    operate = getattr(operator, name)
    for left, right in ((secret, other), (other, secret)):
        with pytest.raises(SecretError) as caught:
            operate(left, right)
        assert DIGITS not in str(caught.value)
        assert ".reveal()" in str(caught.value)


@pytest.mark.parametrize("name", ["divmod", "lshift", "rshift", "and_", "or_", "xor"])
def test_rarer_operators_do_not_exist(secret, name):
    operate = divmod if name == "divmod" else getattr(operator, name)
    for left, right in ((secret, 2), (2, secret), (np.int64(2), secret)):
        with pytest.raises(TypeError):
            operate(left, right)


@pytest.mark.parametrize("template", ["epsilon %s", "epsilon %r", "epsilon %f", "epsilon %d", "epsilon %.3g"])
def test_logging_never_writes_the_value(secret, template, monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)  # where logging reports a template that it could not fill
    logger = logging.Logger("terrine.test")
    logger.addHandler(logging.StreamHandler(stream))
    logger.warning(template, secret, extra={"epsilon": secret})
    assert REDACTED in stream.getvalue()
    assert DIGITS not in stream.getvalue()


def test_reveal_and_map_are_the_two_doors(secret):
    assert secret.reveal() == SECRET
    doubled = secret.map(lambda x: 2 * x)
    assert isinstance(doubled, Sensitive)
    assert repr(doubled) == REDACTED
    assert doubled.reveal() == 2 * SECRET
    assert secret.map(lambda a, b, c: (a, b, c), Sensitive("b"), Sensitive(3)).reveal() == (SECRET, "b", 3)
    assert Sensitive[float](SECRET).reveal() == SECRET


def _say_it(value: float) -> None:
    raise ValueError(f"bad value {value}")


def _say_it_from_another(value: float) -> None:
    try:
        _say_it(value)
    except ValueError as error:
        raise KeyError(value) from error


def _say_it_in_a_group(value: float) -> None:
    raise ExceptionGroup(f"of {value}", [ValueError(value)])


@pytest.mark.parametrize("fails", [_say_it, _say_it_from_another, _say_it_in_a_group])
def test_an_exception_inside_map_does_not_carry_the_value(secret, fails):
    def inside_another_failure() -> None:
        try:
            raise RuntimeError("public")
        except RuntimeError:
            secret.map(fails)

    second = lambda: Sensitive(1).map(lambda _, x: fails(x), secret)  # noqa: E731
    for attempt in (lambda: secret.map(fails), second, inside_another_failure):
        with pytest.raises(SecretError, match=r"failed with \w+; its message is withheld\.$") as caught:
            attempt()
        error = caught.value
        assert error.__cause__ is None
        assert error.__context__ is None or str(error.__context__) == "public"
        assert DIGITS not in f"{error} {error.args} {error!r}"
        told = traceback.TracebackException.from_exception(error, capture_locals=True)
        assert DIGITS not in "".join(told.format())


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt])
def test_leaving_from_inside_map_does_not_carry_the_value(secret, kind):
    def leave(value: float) -> None:
        raise kind(f"bad value {value}")

    with pytest.raises(BaseException) as caught:
        secret.map(leave)
    assert DIGITS not in "".join(traceback.format_exception(caught.value))


def test_a_warning_inside_map_does_not_carry_the_value(secret):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        secret.map(lambda value: warnings.warn(f"large: {value}", stacklevel=1))
    assert not [w for w in caught if DIGITS in str(w.message)]


def test_what_work_on_private_rows_prints_is_not_shown_and_other_threads_go_on(capsys):
    inside, printed = threading.Event(), threading.Event()

    def other() -> None:
        inside.wait(10)
        print("from another thread")
        printed.set()

    thread = threading.Thread(target=other)
    thread.start()
    stdout, stderr = sys.stdout, sys.stderr
    with unheard():
        with unheard():
            print("the loss on a share")
        print("the loss on a share", file=sys.stderr)
        inside.set()
        assert printed.wait(10)
    thread.join()
    assert (sys.stdout, sys.stderr) == (stdout, stderr)
    print("after")
    assert capsys.readouterr() == ("from another thread\nafter\n", "")


def test_a_verbose_teacher_says_nothing(capfd):
    from sklearn.ensemble import GradientBoostingClassifier

    from terrine import PrivateData, SklearnTeacher, new_key, partition, poll_teachers
    from terrine.executors import Processes, Serial

    X = np.random.default_rng(0).normal(size=(60, 2))
    data = PrivateData(X, np.arange(60) % 2)
    teacher = SklearnTeacher(estimator=GradientBoostingClassifier(n_estimators=2, verbose=1))
    shares = partition(data, n_teachers=2, method="balanced", key=new_key())
    for executor in (Serial(), Processes(n_workers=1)):
        poll_teachers(data, shares, teacher, X[:3], classes=["a", "b"], seed=0, executor=executor)
    assert capfd.readouterr() == ("", "")
