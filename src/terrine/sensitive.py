"""A value that depends on private votes and may not be shown by accident."""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, NoReturn, TypeVar

import numpy as np

from terrine.errors import SecretError

T = TypeVar("T")
U = TypeVar("U")


@contextmanager
def unheard() -> Iterator[None]:
    """For work on private rows: what it warns of, prints or logs depends on them, and is not shown.

    Nor is a warning turned into an error, whatever filters the program has set, `-W error` and `numpy.seterr`
    included. What this thread prints is dropped (a verbose model tells its loss on a share); other threads go on
    printing. Libraries that write to the terminal past Python are not covered.
    """
    with _mute(), warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        warnings.showwarning = lambda *_, **__: None  # code inside may set filters of its own
        yield


class _Muted:
    """A stream that drops what muted threads write, and passes on the rest."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        return len(text) if getattr(_threads, "muted", 0) else int(self._stream.write(text) or 0)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


_threads = threading.local()
_lock = threading.Lock()
_inside = 0  # blocks of `_mute` that run, in all threads
_real: tuple[Any, Any] = (None, None)


@contextmanager
def _mute() -> Iterator[None]:
    global _inside, _real
    with _lock:
        if _inside == 0:
            _real = (sys.stdout, sys.stderr)
            sys.stdout, sys.stderr = (None if one is None else _Muted(one) for one in _real)
        _inside += 1
    _threads.muted = getattr(_threads, "muted", 0) + 1
    try:
        yield
    finally:
        _threads.muted -= 1
        with _lock:
            _inside -= 1
            if _inside == 0:
                sys.stdout, sys.stderr = _real
                _real = (None, None)


def _refused(what: str) -> Callable[..., NoReturn]:
    def refuse(self: object, *_: object, **__: object) -> NoReturn:
        raise SecretError(
            f"Cannot {what} a secret value: it depends on private data. Use .map(f) to keep computing with it, "
            "or .reveal() to take responsibility for showing it."
        )

    return refuse


class Sensitive(Generic[T]):
    """Wraps a secret: prints redacted, refuses JSON, pickling, arithmetic, comparison and truth tests.

    Examples:
        >>> Sensitive(3.0)
        <Sensitive float: depends on private data; .reveal() shows it>
        >>> Sensitive(3.0).map(lambda x: x + 1).reveal()
        4.0
    """

    __slots__ = ("_value",)
    __array_ufunc__ = None  # numpy hands every operation to the refusals below

    def __init__(self, value: T) -> None:
        if isinstance(value, Sensitive):
            raise SecretError("This value is already wrapped as Sensitive.")
        self._value = value

    def reveal(self) -> T:
        """The secret itself: the only way out."""
        return self._value

    def map(self, function: Callable[..., U], *others: Sensitive[Any]) -> Sensitive[U]:
        """``function`` of this secret (and of other secrets), still wrapped.

        An exception inside is replaced by one that says only its type: its message may hold the secret. Warnings
        inside are not shown, for the same reason.
        """
        try:
            with unheard():
                return Sensitive(function(self._value, *(other._value for other in others)))
        except KeyboardInterrupt:
            kind = None
        except BaseException as error:
            kind = type(error).__name__
        if kind is None:
            raise KeyboardInterrupt
        raise SecretError(f"A function of a secret value failed with {kind}; its message is withheld.")

    def __repr__(self) -> str:
        return f"<Sensitive {type(self._value).__name__}: depends on private data; .reveal() shows it>"

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return repr(self)

    __reduce_ex__ = _refused("pickle or copy")
    __getstate__ = _refused("pickle or copy")
    __array__ = _refused("turn into an array")
    __bool__ = _refused("branch on")
    __float__ = __int__ = __complex__ = __index__ = _refused("turn into a number")
    __len__ = __iter__ = __getitem__ = __contains__ = _refused("look into")
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _refused("compare")
    __hash__ = _refused("hash")
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _refused("compute with")
    __truediv__ = __rtruediv__ = __floordiv__ = __rfloordiv__ = _refused("compute with")
    __mod__ = __rmod__ = __pow__ = __rpow__ = __matmul__ = __rmatmul__ = _refused("compute with")
    __neg__ = __pos__ = __abs__ = __round__ = _refused("compute with")
