"""One thread for torch: test processes beside each other would wait for one another at every step."""

from __future__ import annotations

import pytest
import torch


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nets without the linear student that `fit_student` compares them with, which takes ten times as long.

    `tests/runs/test_auto.py` has what is said of such a comparison.
    """
    monkeypatch.setattr("terrine.students.api.compared_with_linear", lambda made, *_, **__: made)
