"""A PyTorch module named in a run's settings, as ``module = "terrine:resnet32"`` or ``"my_nets:small_net"``.

The name is imported and called: it is code of the owner's own, trusted as the program itself is, and it sees one share
at a time. Settings from somebody else are to be read before they are run.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable
from functools import partial
from typing import Any

from terrine._optional import require_torch
from terrine.errors import InputError
from terrine.runs.config import TeachersConfig
from terrine.teachers import ModuleRecipe, ModuleTeacher

_OWN = "terrine"  # terrine:NAME is short for this module's function NAME:
_ARCHITECTURES = "terrine.teachers.architectures"


def module_teacher(settings: TeachersConfig, *, chunk: int) -> ModuleTeacher:
    """The teacher of ``kind = "module"``: ``options`` are its training, ``module_options`` the function's keywords."""
    require_torch()
    name = settings.module or ""
    function = _function(name)
    given = {key: _frozen(value) for key, value in settings.module_options.items()}
    try:
        inspect.signature(function).bind(2, (1,), **given)
    except TypeError as error:
        raise InputError(f"teachers.module_options do not fit {name}: {error}.") from None
    recipe = ModuleRecipe(**{key: _frozen(value) for key, value in settings.options.items()})
    module = partial(function, **given) if given else function
    return ModuleTeacher(module=module, recipe=recipe, device=settings.device, chunk=chunk)


def _function(name: str) -> Callable[..., Any]:
    """What the name stands for: a function of (n_classes, row_shape), or a module's class."""
    if not re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z]\w*", name):
        raise InputError(
            f'teachers.module must be "package.module:function", or one of terrine\'s own as "terrine:resnet32", '
            f"got {name!r}."
        )
    where, _, function = name.partition(":")
    own = where == _OWN
    where = _ARCHITECTURES if own else where
    try:
        found = getattr(importlib.import_module(where), function, None)
    except ImportError as error:
        raise InputError(
            f"teachers.module: {where} cannot be imported ({error}). Install it, or name its folder in PYTHONPATH, as "
            "in PYTHONPATH=. terrine run run.toml."
        ) from None
    if own and getattr(found, "__module__", None) != where:
        known = [one for one, _ in inspect.getmembers(importlib.import_module(where), inspect.isfunction)]
        names = ", ".join(f"terrine:{one}" for one in known if not one.startswith("_") and one != "require_torch")
        raise InputError(f"teachers.module: terrine has no module {function}. It has {names}.")
    if not callable(found):
        raise InputError(f"teachers.module: {where} has no function {function}.")
    kind: Callable[..., Any] = found
    return kind


def _frozen(value: Any) -> Any:
    """A list of TOML's as a tuple."""
    return tuple(_frozen(one) for one in value) if isinstance(value, list) else value
