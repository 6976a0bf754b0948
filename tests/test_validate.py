"""One voice for bad arguments."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

from terrine import _validate
from terrine.errors import InputError, TerrineError
from terrine.sensitive import Sensitive


@pytest.mark.parametrize("value", [3, 3.0, np.float32(3), np.int8(3), np.array(3.0), Fraction(3), Decimal(3)])
def test_every_kind_of_number_becomes_a_float(value):
    result = _validate.number("sigma", value)
    assert type(result) is float
    assert result == 3.0


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (True, "sigma must be a number, got True."),
        (np.True_, "sigma must be a number, got np.True_."),
        ("40", "sigma must be a number, got '40'."),
        (b"40", "sigma must be a number, got b'40'."),
        (None, "sigma must be a number, got NoneType."),
        ([40], "sigma must be a number, got list."),
        (np.array([1.0, 2.0]), "sigma must be a number, got ndarray."),
        (1j, "sigma must be a number, got complex."),
        (Sensitive(40.0), "sigma must be a number, got Sensitive."),
        (math.nan, "sigma must be finite, got nan."),
        (-math.inf, "sigma must be finite, got -inf."),
        pytest.param(
            10**400,
            "sigma must be finite",
            id="10**400",
        ),
    ],
)
def test_what_is_no_number_is_refused(value, message):
    with pytest.raises(InputError) as caught:
        _validate.positive("sigma", value)
    assert str(caught.value).startswith(message)
    assert caught.value.__cause__ is None


def test_bounds_are_strict_and_the_message_is_one_line():
    assert _validate.positive("sigma", 5e-324) > 0
    for value in (0, -0.0, -1):
        with pytest.raises(InputError, match=f"^sigma must be above 0, got {float(value)}.$"):
            _validate.positive("sigma", value)
    assert _validate.between("delta", 0.5, 0.0, 1.0) == 0.5
    for value in (0, 1, -0.1, 1.5):
        with pytest.raises(InputError, match=f"^delta must be above 0 and below 1, got {float(value)}.$"):
            _validate.between("delta", value, 0.0, 1.0)


def test_whole_numbers():
    for value in (2, 2.0, np.uint8(2)):
        result = _validate.integer("n", value, at_least=2)
        assert type(result) is int
        assert result == 2
    for value in (1, 2.5, -2):
        with pytest.raises(InputError, match=f"^n must be a whole number of at least 2, got {value}.$"):
            _validate.integer("n", value, at_least=2)
    with pytest.raises(InputError, match="n must be a number, got '2'"):
        _validate.integer("n", "2", at_least=0)


def test_a_large_whole_number_keeps_its_last_digit():
    assert _validate.integer("n", 2**53 + 1, at_least=0) == 2**53 + 1


def test_orders():
    for values in (2, [2], np.array([2]), (2.0,)):
        result = _validate.orders(values)
        assert result.dtype == np.float64
        assert result.tolist() == [2.0]
    assert _validate.orders([1.0000001, 1e6]).size == 2
    for values, message in (
        ([2, 1], "Every order must be finite and above 1, got 1.0."),
        ([2, math.nan], "Every order must be finite and above 1, got nan."),
        ([math.inf], "Every order must be finite and above 1, got inf."),
        ([], "orders must be a list of at least one number, got shape (0,)."),
        ([[2, 3]], "orders must be a list of at least one number, got shape (1, 2)."),
        (["two"], "orders must be a list of numbers."),
        ([[2], [3, 4]], "orders must be a list of numbers."),
        (Sensitive(2.0), "orders must be a list of numbers."),
    ):
        with pytest.raises(InputError) as caught:
            _validate.orders(values)
        assert str(caught.value) == message


def test_choices():
    assert _validate.choice("bound", "argmax", ("argmax", "gaussian")) == "argmax"
    for value in ("ARGMAX", "", None, 3):
        with pytest.raises(InputError, match=r"^bound must be one of argmax, gaussian, got "):
            _validate.choice("bound", value, ("argmax", "gaussian"))
    assert issubclass(InputError, (TerrineError, ValueError))
