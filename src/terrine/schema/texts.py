"""Text as numbers: hashed words and pieces of words, weighted and rotated by what public texts hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from terrine._blocks import blocks
from terrine.schema.kinds import Text

BUCKETS = 2**15  # that words and pairs of words are hashed to; pieces of words have as many of their own
LONGEST = 20_000  # characters of a text that are read
LEARNED_FROM = 20_000  # public texts, evenly spaced among all

_BLOCK = 256  # texts that are encoded at a time
_SEED = 0
_DAMPED = np.concatenate([[0], 1 + np.log(np.arange(1, LONGEST + 1))]).astype(np.float32)  # by count; tf's, sublinear

Weights = dict[str, NDArray[Any]]  # buckets (b,) int64, idf (b,) float32, components (b, dimensions) float32


def learn(texts: Sequence[str], kind: Text) -> Weights:
    """Weights from public texts: inverse document frequencies, and the directions in which tf-idf rows differ most.

    Buckets that no public text falls into have no weight. There are fewer directions than `kind.dimensions` where
    there are fewer public texts or buckets.
    """
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfTransformer

    # The hasher refuses an empty list: a blank text is hashed to nothing
    some = [texts[int(k)] for k in np.linspace(0, len(texts) - 1, min(len(texts), LEARNED_FROM))] or [""]
    counts = _counts(some, kind)
    buckets = np.flatnonzero(np.asarray((counts > 0).sum(axis=0)).ravel()).astype(np.int64)
    dimensions = min(kind.dimensions, len(some) - 1, len(buckets) - 1)
    if dimensions < 1:
        return {"buckets": buckets[:0], "idf": np.zeros(0, np.float32), "components": np.zeros((0, 0), np.float32)}
    weighting = TfidfTransformer(sublinear_tf=True)
    weighted = weighting.fit_transform(counts[:, buckets])
    svd = TruncatedSVD(dimensions, n_iter=4, random_state=_SEED).fit(weighted)
    components = np.ascontiguousarray(svd.components_.T, dtype=np.float32)
    return {"buckets": buckets, "idf": np.asarray(weighting.idf_, dtype=np.float32), "components": components}


def encode(texts: Sequence[str], kind: Text, weights: Weights) -> NDArray[np.float32]:
    """(n_texts, dimensions): each of length 1, or 0 where no word is known; a function of one text alone."""
    found = np.zeros((len(texts), weights["components"].shape[1]), dtype=np.float32)
    if not found.size:
        return found
    for start in range(0, len(texts), _BLOCK):
        part = texts[start : start + _BLOCK]
        counts = _counts(part, kind)[:, weights["buckets"]].tocsr()
        counts.sort_indices()
        often = np.minimum(counts.data, LONGEST).astype(np.int64)
        counts.data = _DAMPED[often] * weights["idf"][counts.indices]
        found[start : start + len(part)] = counts @ weights["components"]  # row after row
    for at, block in blocks(found, _BLOCK):
        length = np.sqrt(np.square(block).sum(axis=1, keepdims=True))
        found[at] = (block / np.where(length > 0, length, 1))[: at.stop - at.start]
    return found


def _counts(texts: Sequence[str], kind: Text) -> Any:
    """(n_texts, buckets) sparse counts of words and pairs of words; beside them of pieces of 3 to 5 characters."""
    from scipy.sparse import hstack
    from sklearn.feature_extraction.text import HashingVectorizer

    def hashed(**how: Any) -> Any:
        vectorizer = HashingVectorizer(n_features=BUCKETS, norm=None, alternate_sign=False, dtype=np.float64, **how)
        return vectorizer.transform([text[:LONGEST] for text in texts])

    words = hashed(ngram_range=(1, 2), token_pattern=r"(?u)\b\w+\b")
    if not kind.characters:
        return words.tocsr()
    return hstack([words, hashed(analyzer="char_wb", ngram_range=(3, 5))], format="csr")
