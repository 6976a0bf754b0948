"""Packages that not everybody needs: imported where they are used, or an error that says how to install them."""

from __future__ import annotations

import importlib
from typing import Any

from terrine.errors import MissingDependencyError

_PACKAGES = {"torch": "PyTorch", "PIL": "Pillow", "fontTools": "fonttools", "dp_accounting": "dp-accounting"}


def require(module: str, *, use: str, extra: str | None) -> Any:
    """The module. Where it is missing, one sentence says what needs it and how to install it.

    Args:
        module: its dotted name, as in an import statement.
        use: what needs it, as the sentence begins: "A report".
        extra: terrine's extra that brings it; None for a package that terrine always brings.
    """
    root = module.partition(".")[0]
    try:
        importlib.import_module(root)  # it may have gone, or been blocked, since its part was imported
        return importlib.import_module(module)
    except ImportError as error:
        package = _PACKAGES.get(root, root)
        install = f"pip install {package}" if extra is None else f"pip install 'terrine[{extra}]'"
        if isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] == root:
            why = "which is not installed. Install it with"
        else:
            why = f"which is installed but cannot be imported ({error}); repair it with"
        raise MissingDependencyError(f"{use} needs {package}, {why}: {install}") from None


def require_torch() -> Any:
    return require("torch", use="A neural net", extra="torch")
