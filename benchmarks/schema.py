"""What a table of 300,000 x 40 costs: reading, drafting and encoding it, against Python's csv module alone.

Run: python benchmarks/schema.py
"""

from __future__ import annotations

import csv
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from rows import write

from terrine.schema import Encoder, draft, read_table

N_ROWS = 300_000


def make(path: Path, n_rows: int) -> None:
    """15 real numbers, 10 whole ones, 9 categories, 2 dates, 2 flags, an id and a text of 20,000 different values."""
    rng = np.random.default_rng(0)
    days = np.datetime64("2015-01-01") + rng.integers(0, 3000, size=(n_rows, 2))
    words = np.array([f"{a} {b}" for a in ("red", "green", "blue", "long", "short") for b in range(4000)])
    columns = {f"real{k}": rng.normal(size=n_rows) for k in range(15)}
    columns |= {f"whole{k}": rng.integers(0, 10 ** (1 + k % 5), size=n_rows) for k in range(10)}
    columns |= {f"category{k}": rng.choice([f"value {j}" for j in range(5 + 4 * k)], size=n_rows) for k in range(9)}
    columns |= {f"date{k}": days[:, k].astype(str) for k in range(2)}
    columns |= {f"flag{k}": rng.choice(["yes", "no", ""], size=n_rows) for k in range(2)}
    columns |= {"id": np.arange(n_rows), "text": rng.choice(words, size=n_rows)}
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*(column.tolist() for column in columns.values()), strict=True))


def read_plainly(path: Path) -> int:
    with path.open(newline="") as file:
        return sum(len(row) for row in csv.reader(file))


def seconds(function: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds of one core: other programs on the machine do not count."""
    start = time.process_time()
    result = function()
    return time.process_time() - start, result


def main() -> None:
    n_rows = int(sys.argv[1]) if len(sys.argv) > 1 else N_ROWS
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.csv"
        make(path, n_rows)
        plain, _ = seconds(lambda: read_plainly(path))
        table = read_table(path)
        read, _ = seconds(lambda: len(table))  # cells are read when they are first wanted
        drafted, schema = seconds(lambda: draft(table))
        public = table.take(np.arange(0, n_rows, 10))
        fitted, encoder = seconds(lambda: Encoder.fit(schema, public))
        encoded, X = seconds(lambda: encoder.transform(table))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    steps = {
        "reading": read,
        "drafting a schema from all rows": drafted,
        "fitting the encoder to a tenth of the rows": fitted,
        f"encoding to {X.shape[1]} numbers a row": encoded,
        "all of these": read + drafted + fitted + encoded,
    }
    write(
        "schema",
        [
            {
                "metric": f"CSV of {n_rows:,} x 40: {name}",
                "value": round(taken, 2),
                "unit": "s of one core",
                "baseline": "csv.reader alone, once over the file",
                "ratio": round(taken / plain, 2),
                "peak_gib": round(peak, 2),
            }
            for name, taken in steps.items()
        ],
    )


if __name__ == "__main__":
    main()
