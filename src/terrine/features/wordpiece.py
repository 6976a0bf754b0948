"""Texts to a BERT's tokens: the WordPiece of a model's folder, from its tokenizer.json or vocab.txt."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from terrine.errors import DataError

_LONGEST = 100  # characters of a word that is looked up
_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class WordPiece:
    """What a text's tokens are.

    Attributes:
        vocabulary: ids by token.
        lower, accents, chinese: lower case; accents left where they are; characters of Chinese as words.
    """

    vocabulary: Mapping[str, int]
    lower: bool
    accents: bool
    chinese: bool

    @classmethod
    def from_files(cls, files: Mapping[str, Any], *, who: str) -> WordPiece:
        """From parsed tokenizer.json, or vocab.txt (its text) with tokenizer_config.json."""
        if (found := files.get("tokenizer.json")) is not None:
            try:
                model, how = found["model"], found["normalizer"]
                wanted = (model.get("type", "WordPiece"), how["type"], found["pre_tokenizer"]["type"])
                fits = wanted == ("WordPiece", "BertNormalizer", "BertPreTokenizer")
                fits &= (model["continuing_subword_prefix"], model["unk_token"]) == ("##", "[UNK]")
                vocabulary = {str(token): int(k) for token, k in model["vocab"].items()}
                lower, accents, chinese = how["lowercase"], how["strip_accents"], how["handle_chinese_chars"]
            except (KeyError, TypeError, ValueError, AttributeError):
                fits = False
            if not fits:
                raise DataError(f"{who}: its tokenizer is no WordPiece as BERT has it, and no other is read here.")
        else:
            how = files.get("tokenizer_config.json") or {}
            vocabulary = {token: k for k, token in enumerate(str(files.get("vocab.txt", "")).split("\n")) if token}
            lower = how.get("do_lower_case", True)
            accents, chinese = how.get("strip_accents"), how.get("tokenize_chinese_chars", True)
        if missing := [token for token in _SPECIAL[:4] if token not in vocabulary]:
            raise DataError(f"{who}: its vocabulary has no {missing[0]}.")
        kept = not (lower if accents is None else accents)
        return cls(vocabulary=vocabulary, lower=bool(lower), accents=kept, chinese=bool(chinese))

    def tokens(self, text: str, *, most: int) -> list[int]:
        """Ids, [CLS] first and [SEP] last, at most ``most``."""
        found = [self.vocabulary["[CLS]"]]
        for piece in self._pieces(text):
            if len(found) == most - 1:
                break
            found.append(piece)
        return [*found, self.vocabulary["[SEP]"]]

    def _pieces(self, text: str) -> Iterator[int]:
        for part in re.split(_NAMED, text):
            if part in _SPECIAL:  # as the model's own library reads them
                if part in self.vocabulary:
                    yield self.vocabulary[part]
                continue
            for word in _words(self._normal(part)):
                yield from self._of_word(word)

    def _of_word(self, word: str) -> list[int]:
        found, start = [], 0
        while start < len(word) and len(word) <= _LONGEST:
            for end in range(len(word), start, -1):
                piece = ("##" if start else "") + word[start:end]
                if piece in self.vocabulary:
                    found.append(self.vocabulary[piece])
                    start = end
                    break
            else:
                return [self.vocabulary["[UNK]"]]
        return found if start == len(word) else [self.vocabulary["[UNK]"]]

    def _normal(self, text: str) -> str:
        kept = []
        for c in text:
            if c in "\t\n\r" or unicodedata.category(c) == "Zs":
                kept.append(" ")
            elif c in "\0\ufffd" or unicodedata.category(c) in ("Cc", "Cf", "Co", "Cs"):
                continue
            elif self.chinese and _is_chinese(ord(c)):
                kept.append(f" {c} ")
            else:
                kept.append(c)
        text = "".join(kept)
        if not self.accents:
            text = "".join(c for c in unicodedata.normalize("NFD", text) if unicodedata.category(c) != "Mn")
        return "".join(c.lower() for c in text) if self.lower else text


_NAMED = "(" + "|".join(re.escape(one) for one in _SPECIAL) + ")"
_IDEOGRAPHS = (
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B920, 0x2CEAF),  # as the Rust tokenizers have it
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
)


def _is_chinese(code: int) -> bool:
    return any(low <= code <= high for low, high in _IDEOGRAPHS)


def _words(text: str) -> Iterator[str]:
    """Between spaces, and every mark of punctuation by itself."""
    for run in text.split():
        word = ""
        for c in run:
            if _is_mark(c):
                if word:
                    yield word
                yield c
                word = ""
            else:
                word += c
        if word:
            yield word


def _is_mark(c: str) -> bool:
    code = ord(c)
    plain = 33 <= code <= 47 or 58 <= code <= 64 or 91 <= code <= 96 or 123 <= code <= 126
    return plain or unicodedata.category(c).startswith("P")
