"""The encoder of a table as a service hands it out, so that everybody asks about the numbers that its teachers took.

It was learned from public rows alone and lies in every student's folder: it is public.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from terrine.errors import InputError


@dataclass(frozen=True)
class EncoderFiles:
    """The files of a run's encoder, and what they are known by."""

    files: Mapping[str, bytes] = field(repr=False)

    @property
    def sha256(self) -> str:
        """Of names and contents."""
        whole = hashlib.sha256()
        for name in sorted(self.files):
            whole.update(f"{name} {hashlib.sha256(self.files[name]).hexdigest()}\n".encode())
        return whole.hexdigest()

    def packed(self) -> dict[str, str]:
        """As JSON takes them."""
        return {name: base64.b64encode(content).decode() for name, content in self.files.items()}

    @classmethod
    def unpacked(cls, files: Mapping[str, str], *, sha256: str) -> EncoderFiles:
        """From `packed`; refused where they are not the files with this hash."""
        try:
            found = cls({name: base64.b64decode(content, validate=True) for name, content in files.items()})
        except ValueError:
            found = cls({})
        if found.sha256 != sha256:
            raise InputError("the files of the encoder are not those that the service names")
        return found
