"""`exact`, in PyTorch, for a GPU: the same operations on the same whole numbers, and so the same numbers.

Sums and products of whole numbers below 2^53 have one result in float64 on any device; divisions, roots and roundings
are those of IEEE 754 there too.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from terrine._optional import require
from terrine.probe import exact

_LOW = (1 << exact._LIMB) - 1


class OnDevice:
    """What computes on one device.

    Args:
        device: as PyTorch calls it: "cuda", "cuda:1", "cpu".
    """

    def __init__(self, device: str) -> None:
        self._torch = require("torch", use="A probe on a GPU", extra="torch")
        self._device = device

    def multiply(self, one: NDArray[np.float64], other: NDArray[np.float64]) -> NDArray[np.float64]:
        """As `products_are_exact` tries it."""
        found = self._torch.tensor(one, device=self._device) @ self._torch.tensor(other, device=self._device)
        result: NDArray[np.float64] = found.cpu().numpy()
        return result

    def partial_sum(
        self,
        rows: NDArray[Any],
        labels: NDArray[np.int64],
        *,
        n_rows: int,
        weights: NDArray[np.float64],
        scale: float,
        clip: int,
    ) -> NDArray[np.int64]:
        """Of units with ``n_rows`` rows each, one after the other."""
        torch = self._torch
        with torch.no_grad():
            known = torch.as_tensor(labels, device=self._device)
            found, usable = self.features(np.ascontiguousarray(rows), scale=scale)
            usable &= known >= 0
            found[~usable] = 0.0
            public = torch.as_tensor(weights, device=self._device)
            left = self.residuals(found, public, known, usable)
            by_unit = found.reshape(-1, n_rows, found.shape[1])
            kept = self.clipped(by_unit, left.reshape(-1, n_rows, left.shape[1]), clip=clip)
            result: NDArray[np.int64] = (found.T @ kept.reshape(left.shape)).long().cpu().numpy()
            return result

    def features(self, rows: NDArray[Any], *, scale: float) -> tuple[Any, Any]:
        torch = self._torch
        given = torch.tensor(rows, device=self._device).double() * scale
        usable = torch.isfinite(given).all(dim=1)
        given[~usable] = 0.0
        given = torch.round(given.clamp(-exact.LONGEST, exact.LONGEST) * (1 << exact.FEATURE_BITS))
        squares = (given * given).sum(dim=1)
        long = squares > exact._CAP
        shorter = torch.sqrt(exact._CAP / squares.clamp(min=1.0)) * (1 - 2.0**-40)
        given = torch.where(long[:, None], torch.trunc(given * shorter[:, None]), given)
        usable &= (given * given).sum(dim=1) <= exact._CAP
        constant = torch.full((len(given), 1), float(exact.BIAS), dtype=torch.float64, device=self._device)
        found = torch.cat([given, constant], dim=1)
        found[~usable] = 0.0
        return found, usable

    def residuals(self, rows: Any, weights: Any, labels: Any, usable: Any) -> Any:
        torch = self._torch
        logits = (rows @ weights).long()
        behind = logits.max(dim=1, keepdim=True).values - logits
        places = (behind + (1 << (exact._FINER - 1))) >> exact._FINER
        odds = _table(self._device)[places.clamp(max=exact._TABLE - 1)]
        found = torch.round((odds << exact.RESIDUAL_BITS).double() / odds.sum(dim=1, keepdim=True).double())
        found[torch.arange(len(found), device=self._device), torch.where(usable, labels, 0)] -= exact._ONE
        found[~usable] = 0.0
        return found

    def clipped(self, rows: Any, found: Any, *, clip: int) -> Any:
        torch = self._torch
        n_rows, n_classes = found.shape[1:]
        # A tensor: on a GPU, PyTorch divides by a number as it multiplies by its rounded reciprocal
        mean = torch.round(found / torch.tensor(float(n_rows), dtype=torch.float64, device=self._device))
        products = None if n_rows > exact._GRAM else (rows @ rows.transpose(1, 2)).long()
        high, low = self._squared_length(rows, mean, products)
        within = self._at_most(high, low, clip)
        length = torch.sqrt(high.clamp(min=1).double() * float(1 << exact._LIMB) + low.double())
        longest = torch.sqrt((rows * rows).sum(dim=2).max(dim=1).values)
        slack = 2.0 * float(np.sqrt(float(n_rows * n_classes))) * longest
        shorter = (clip - slack).clamp(min=0.0) / (length * n_rows)
        result = torch.where(within[:, None, None], mean, torch.round(found * shorter[:, None, None]))
        result[~self._at_most(*self._squared_length(rows, result, products), clip)] = 0.0
        return result

    def _squared_length(self, rows: Any, found: Any, products: Any) -> tuple[Any, Any]:
        if products is not None:
            others = (found @ found.transpose(1, 2)).long()
            high = ((products >> exact._LIMB) * others).sum(dim=(1, 2))
            low = ((products & _LOW) * others).sum(dim=(1, 2))
        else:
            whole = (rows.transpose(1, 2) @ found).long()
            top, bottom = whole >> 17, whole & ((1 << 17) - 1)
            low = ((top * bottom).sum(dim=(1, 2)) << 18) + (bottom * bottom).sum(dim=(1, 2))
            high = (top * top).sum(dim=(1, 2)) << (34 - exact._LIMB)
        return high + (low >> exact._LIMB), low & _LOW

    def _at_most(self, high: Any, low: Any, clip: int) -> Any:
        top, bottom = clip**2 >> exact._LIMB, clip**2 & _LOW
        return (high < top) | ((high == top) & (low <= bottom))


@lru_cache(maxsize=8)
def _table(device: str) -> Any:
    torch = require("torch", use="A probe on a GPU", extra="torch")
    return torch.tensor(exact.table(), device=device)
