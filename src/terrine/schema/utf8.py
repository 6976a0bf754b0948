"""Bytes that are not UTF-8: found, told by line, and what to do."""

from __future__ import annotations

import codecs
import shlex
from pathlib import Path

from terrine.errors import DataError
from terrine.schema.tables import OPENED, is_table, readable, text_files


def not_utf8(path: str | Path, *, header: bool = False) -> int | None:
    """The first line of a .csv or .tsv file with bytes that are not UTF-8, from 1; None where there is none.

    Args:
        header: look at nothing but the names of columns.
    """
    path = Path(path)
    packed = path.suffix.lower() if path.suffix.lower() in OPENED else ""
    if not path.is_file() or not is_table(path) or (path.suffix.lower() == ".parquet"):
        return None
    opened = OPENED[packed] if packed else open
    with readable(), opened(path, "rb") as file:
        line: bytes
        for number, line in enumerate(file, start=1):
            if header:  # a line of old ends with a carriage return alone: what is behind it is not the header
                before = len(line) - len(line.lstrip())
                line = line[:before] + line[before:].partition(b"\r")[0]
            try:
                line.decode("utf-8")
            except UnicodeDecodeError as error:
                return number + line[: error.start].count(b"\r")
            if header and line.strip():
                return None
    return None


def is_marked(path: Path) -> bool:
    """Whether a .csv or .tsv file begins with UTF-8's byte-order mark."""
    with OPENED.get(path.suffix.lower(), open)(path, "rb") as file:
        return bool(file.read(3) == codecs.BOM_UTF8)


def refuse_not_utf8(path: str | Path, *, header: bool = False) -> None:
    """Refuse a table with bytes that are not UTF-8: as it stands, every word with an umlaut would be another word.

    Of a private file this may look at the header alone.
    """
    path = Path(path)
    try:
        line = not_utf8(path, header=header)
    except DataError as error:
        raise DataError(f"{path.name}: {error}") from None
    if line is not None:
        raise DataError(f"{path.name}, line {line}: {utf8_advice(path)}")


def texts_not_utf8(folder: Path) -> str | None:
    """Of a folder of texts that anyone may see: a sentence on those that are not UTF-8, if there are any."""
    odd = [file for file in text_files(folder) if not _is_utf8(file.read_bytes())]
    if not odd:
        return None
    return (
        f"{folder.name}: {len(odd):,} text{'s have' if len(odd) > 1 else ' has'} bytes that are not UTF-8, the first "
        f"{odd[0].relative_to(folder)}: letters such as ä or é cannot be read there. To convert a text: iconv -f "
        "cp1252 -t utf-8"
    )


def _is_utf8(content: bytes) -> bool:
    try:
        content.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def utf8_advice(path: Path) -> str:
    """What is wrong with bytes that are not UTF-8, and what to do."""
    with path.open("rb") as file:
        wide = file.read(2) in (b"\xff\xfe", b"\xfe\xff")
    packed = any(suffix.lower() in OPENED for suffix in path.suffixes)
    old, new = (shlex.quote(name) for name in (path.name, f"{path.stem}.utf8{path.suffix}"))
    how = f"iconv -f {'utf-16' if wide else 'cp1252'} -t utf-8 {old} > {new}"
    return (
        "there are bytes that are not UTF-8, so that letters such as ä or é cannot be read. "
        f'Save it as "CSV UTF-8", as Excel calls it, or convert it{" once it is unpacked" if packed else f": {how}"}'
    )
