"""Values and keys as TOML text."""

from __future__ import annotations

import json
import math
import re
from typing import Any

_COMMA = re.compile(r"=\s*[+-]?\d+,\d+\s*(#.*)?$")


def toml_fault(text: str, error: Exception) -> str:
    """What is wrong in a text that is not TOML, with the line itself."""
    said = str(error).rstrip(".")
    lines, place = text.splitlines(), re.search(r"at line (\d+)", said)
    if place is None or not 0 < int(place[1]) <= len(lines):
        return f"{said}."
    line = lines[int(place[1]) - 1].strip()
    point = " Numbers are written with a point: 1.0, not 1,0." if _COMMA.search(line) else ""
    return f"{said}: {line[:100]}{'' if line[-1:] == '.' else '.'}{point}"


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
