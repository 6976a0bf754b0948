"""What is wrong with a run's settings, in words: pydantic's errors with the keys as TOML names them."""

from __future__ import annotations

import difflib
import json
from typing import Any

from pydantic import BaseModel, ValidationError


def in_words(error: ValidationError, kind: type[BaseModel]) -> str:
    """The first problem, with the key's dotted name and, for a misspelt one, the nearest that there is."""
    first = min(error.errors(include_url=False), key=lambda one: one["type"] != "extra_forbidden")
    where, problem, given = first["loc"], first["type"], first["input"]
    key = _dotted(where)
    if problem == "extra_forbidden":
        known = _keys(where[:-1], kind)
        close = difflib.get_close_matches(str(where[-1]), known, n=1)
        hint = f"; did you mean {_dotted((*where[:-1], *close))}?" if close else f". Known: {', '.join(known)}."
        return f"There is no key {key}{hint}"
    if problem == "missing":
        return f"The table [{key}] is missing." if len(where) == 1 else f"{key} is missing."
    said = first["msg"].removeprefix("Value error, ")
    if problem == "value_error":
        return f"[{key}]: {said}." if key else f"{said}."
    return f"`{key}` must be {_wanted(problem, first.get('ctx', {}), given) or said.lower()}."


def _dotted(where: tuple[int | str, ...]) -> str:
    """A key as TOML names it, and a place in a list: data.classes[0]."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in where).removeprefix(".")


def _wanted(problem: str, limits: dict[str, Any], given: Any) -> str:
    """What a value of the wrong kind or size must be; empty where pydantic's own words have to do."""
    shown = f", got {str(given)[:60]!r}" if isinstance(given, str) else f", got {str(given)[:60]}"
    if problem == "string_type":
        return f'text, e.g. "{json.dumps(given)}"' if isinstance(given, (bool, int, float)) else "text"
    if problem in _KINDS:
        return f"{_KINDS[problem]}{shown}"
    for name, words in (("gt", "above"), ("ge", "at least"), ("lt", "below"), ("le", "at most")):
        if name in limits:
            return f"{words} {limits[name]:g}{shown}"
    match problem:
        case "too_short":
            return f"a list of at least {limits['min_length']}, got {limits['actual_length']}"
        case "literal_error":
            return f"{limits['expected']}{shown}"
        case "string_pattern_mismatch":
            return f"a URL that begins with http:// or https://{shown}"
    return ""


_KINDS = {
    "path_type": "a file name in quotes",
    "int_type": "a whole number, without quotes",
    "int_from_float": "a whole number",
    "float_type": "a number, without quotes",
    "bool_type": "true or false, without quotes",
    "list_type": 'a list, e.g. ["a", "b"]',
    "tuple_type": "a list, e.g. [28, 28]",
    "dict_type": "a table",
    "model_type": "a table",
}


def _keys(where: tuple[int | str, ...], kind: type[BaseModel]) -> list[str]:
    part: Any = kind
    for name in where:
        if isinstance(name, int):  # a place in a list: its items are of the part's kind
            continue
        kind = part.model_fields[name].annotation
        inside = [k for some in getattr(kind, "__args__", (kind,)) for k in (*getattr(some, "__args__", ()), some)]
        part = next((k for k in inside if hasattr(k, "model_fields")), kind)
    return [shown(name) for name in part.model_fields]


def shown(name: str) -> str:
    return "schema" if name == "schema_file" else name
