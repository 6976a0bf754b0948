"""A map of public rows by the graph of their neighbors: rows that a chain of neighbors joins lie close together.

Edges are weighted by how many neighbors two rows share, not by distances: there is no scale to tune. The map is the
leading eigenvectors of the normalized graph, each scaled by how slowly it fades in diffusion. A new row takes the mean
of the places of its nearest public rows. Nothing of n x n is ever held but the sparse graph.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from terrine._blocks import RowProduct, blocks

Rows = NDArray[np.float32]

_BLOCK = {"cpu": 256, "cuda": 4096}  # rows searched at once
_WHITENED = 256  # rows multiplied at once
_PAIRED = 10  # neighbors whose differences are whitened
_PAIRED_ROWS = 20_000  # rows looked at for that
_SHRINK = 1e-3  # of the largest variance: what neighbors hardly differ in is not blown up without end
_DENSE = 1000  # rows: up to here all eigenvectors are computed
_SHARED_BLOCK = 1000


def nearest(rows: Rows, among: Rows, *, k: int, device: str, own: NDArray[np.int64] | None = None) -> NDArray[np.int64]:
    """(n_rows, k) indices of the nearest rows of ``among``, nearest first.

    Args:
        own: (n_rows,) each row's own index in ``among``, which is left out.
    """
    block = _BLOCK["cpu" if device == "cpu" else "cuda"]
    found = np.empty((len(rows), k), dtype=np.int64)
    pick = _pick_numpy(among) if device == "cpu" else _pick_torch(among, device)
    for at, filled in blocks(rows, block):
        found[at] = pick(filled, at.stop - at.start, k, None if own is None else own[at])
    return found


def _pick_numpy(among: Rows) -> Any:
    lengths, times = (among**2).sum(axis=1) / 2, RowProduct(among.T)

    def pick(rows: Rows, n: int, k: int, own: NDArray[np.int64] | None) -> NDArray[np.int64]:
        far = lengths - times(rows)  # half of the squared distance, less what is the row's own
        if own is not None:
            far[np.arange(n), own] = np.inf
        far = far[:n]
        first = np.sort(np.argpartition(far, k - 1, axis=1)[:, :k], axis=1) if k < far.shape[1] else None
        if first is None:
            return np.argsort(far, axis=1, kind="stable")[:, :k]
        order = np.argsort(np.take_along_axis(far, first, axis=1), axis=1, kind="stable")
        return np.take_along_axis(first, order, axis=1)

    return pick


def _pick_torch(among: Rows, device: str) -> Any:
    import torch

    times = RowProduct(among.T)
    columns, sizes = (torch.from_numpy(one).to(device) for one in (times.columns, times.size))
    lengths = torch.from_numpy((among**2).sum(axis=1) / 2).to(device)

    def pick(rows: Rows, n: int, k: int, own: NDArray[np.int64] | None) -> NDArray[np.int64]:
        found, size = (torch.from_numpy(one).to(device) for one in times.whole(rows))
        far = lengths - (found @ columns * (size * sizes)).float()
        if own is not None:
            far[torch.arange(n, device=device), torch.from_numpy(own).to(device)] = torch.inf
        picked: NDArray[np.int64] = far.topk(k, dim=1, largest=False, sorted=True).indices.cpu().numpy()
        return picked[:n]

    return pick


def whitening(rows: Rows, *, rounds: int, device: str) -> tuple[Rows, Rows]:
    """Centre and matrix after which neighbors differ alike in every direction, for `whitened`.

    What neighbors differ in is mostly not what tells classes apart. The first neighbors are those of the rows as
    they are, later ones those of the rows as whitened in the round before.
    """
    centre = rows.mean(axis=0, dtype=np.float64).astype(np.float32)
    matrix = np.eye(rows.shape[1], dtype=np.float32)
    looked_at = np.linspace(0, len(rows) - 1, min(len(rows), _PAIRED_ROWS)).astype(np.int64)
    k = min(_PAIRED, len(rows) - 1)
    for _ in range(rounds):
        now = whitened(rows, centre, matrix)
        pairs = nearest(now[looked_at], now, k=k, device=device, own=looked_at)
        scatter = np.zeros((rows.shape[1],) * 2)
        for near in pairs.T:
            differences = (rows[looked_at] - rows[near]).astype(np.float64)
            scatter += differences.T @ differences / (len(looked_at) * k)
        variances, directions = np.linalg.eigh(scatter)
        if variances[-1] <= 0:  # all rows are one
            break
        matrix = (directions * (np.maximum(variances, 0) + _SHRINK * variances[-1]) ** -0.5).astype(np.float32)
    return centre, matrix


def whitened(rows: Rows, centre: Rows, matrix: Rows) -> Rows:
    result, times = np.empty((len(rows), matrix.shape[1]), dtype=np.float32), RowProduct(matrix)
    for at, filled in blocks(rows, _WHITENED):
        result[at] = unit_rows(times(filled - centre))[: at.stop - at.start]
    return result


def unit_rows(rows: NDArray[Any]) -> Rows:
    """Rows of length 1; a row of zeros stays."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return (rows / np.where(lengths > 0, lengths, 1)).astype(np.float32)


def shared_neighbours(near: NDArray[np.int64]) -> Any:
    """Sparse (n, n): of the neighbors of two rows, themselves included, the share that both have (Jaccard's)."""
    import scipy.sparse

    n, k = near.shape
    columns = np.concatenate((np.arange(n)[:, None], near), axis=1)
    starts = np.arange(0, n * (k + 1) + 1, k + 1)
    sets = scipy.sparse.csr_matrix((np.ones(columns.size, dtype=np.float32), columns.ravel(), starts), shape=(n, n))
    held_by = sets.T.tocsr()
    blocks = []
    for start in range(0, n, _SHARED_BLOCK):
        common = (sets[start : start + _SHARED_BLOCK] @ held_by).tocoo()
        other = common.row + start != common.col
        share = common.data[other] / (2 * (k + 1) - common.data[other])
        blocks.append(scipy.sparse.csr_matrix((share, (common.row[other], common.col[other])), shape=common.shape))
    return scipy.sparse.vstack(blocks, format="csr")


def spectral_map(graph: Any, *, dimensions: int, damping: float, seed: int) -> Rows:
    """(n, dimensions) places: eigenvectors of D^-1/2 W D^-1/2 over sqrt(1 - damping · eigenvalue), rows of length 1."""
    import scipy.linalg
    import scipy.sparse
    import scipy.sparse.linalg

    n = graph.shape[0]
    scale = np.asarray(graph.sum(axis=1, dtype=np.float64)).ravel() ** -0.5
    weights = graph.data.astype(np.float64)
    for start in range(0, n, _SHARED_BLOCK):  # in place: the graph is the largest thing here
        ends = graph.indptr[start : start + _SHARED_BLOCK + 1]
        part = slice(ends[0], ends[-1])
        weights[part] *= np.repeat(scale[start : start + _SHARED_BLOCK], np.diff(ends)) * scale[graph.indices[part]]
    normal = scipy.sparse.csr_matrix((weights, graph.indices, graph.indptr), shape=graph.shape)
    if n <= _DENSE:
        values, vectors = scipy.linalg.eigh(normal.toarray(), subset_by_index=(n - dimensions, n - 1))
    else:
        first = np.random.default_rng(seed).standard_normal(n)
        values, vectors = scipy.sparse.linalg.eigsh(normal, k=dimensions, which="LA", v0=first)
    order = np.argsort(-values, kind="stable")
    values, vectors = np.minimum(values[order], 1.0), vectors[:, order]
    largest = np.abs(vectors).argmax(axis=0)  # an eigenvector has no sign of its own
    vectors = vectors * np.sign(vectors[largest, np.arange(dimensions)])
    return unit_rows(vectors / np.sqrt(1 - damping * values))


def placed(places: Rows, near: NDArray[np.int64]) -> Rows:
    """Where rows with these nearest public rows lie: the mean of their places, scaled to length 1."""
    result = np.empty((len(near), places.shape[1]), dtype=np.float32)
    for at, filled in blocks(near, _WHITENED):
        result[at] = unit_rows(places[filled].mean(axis=1))[: at.stop - at.start]
    return result
