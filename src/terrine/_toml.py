"""Values and keys as TOML text."""

from __future__ import annotations

import json
import math
from typing import Any


def toml_key(name: str) -> str:
    return name if name.replace("_", "").replace("-", "").isalnum() and name.isascii() else toml_value(name)


def toml_value(value: Any) -> str:
    """A value on one line; tables are inline, and what is None in them is left out."""
    match value:
        case dict():
            inside = ", ".join(f"{toml_key(k)} = {toml_value(v)}" for k, v in value.items() if v is not None)
            return "{" + inside + "}"
        case list() | tuple():
            return "[" + ", ".join(toml_value(item) for item in value) + "]"
        case float() if not math.isfinite(value):
            return str(value)  # TOML has inf and nan
        case _:
            return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")  # JSON allows it raw, TOML does not
