"""An estimator for tests of teachers in processes: a process that has only this starts without PyTorch."""

from __future__ import annotations

import os

from sklearn.svm import SVC


class Broken(SVC):
    """Fails to learn in any process but the first, as for want of memory."""

    def fit(self, X, y):
        if os.getpid() != int(os.environ["FIRST"]):
            raise MemoryError
        return super().fit(X, y)
