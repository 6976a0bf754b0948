"""What the secure sampler costs: 12,000 x 150 votes answered in one call, against the insecure seeded one.

Run: python benchmarks/noise.py
"""

from __future__ import annotations

from rows import seconds, write

from terrine import GNMax, SecureNoise, SeededNoise, answer, synthetic_votes
from terrine.noise import _draw, _measurement


def main() -> None:
    votes = synthetic_votes(n_queries=12_000, n_classes=150, n_teachers=5_000)
    mechanism = GNMax(sigma=40)
    secure, _ = seconds(lambda: answer(mechanism, votes, rng=SecureNoise()), repeats=1)
    seeded, _ = seconds(lambda: answer(mechanism, votes, rng=SeededNoise(0)), repeats=1)
    vector, _ = seconds(lambda: _draw("gaussian", 40.0, (2_000,)))
    measurement = _measurement("gaussian", 40.0)
    single, _ = seconds(lambda: [measurement([0]) for _ in range(2_000)])
    write(
        "noise",
        [
            {
                "metric": "answer() 12,000 x 150, OpenDP discrete Gaussian on the 2^-40 lattice",
                "value": round(len(votes) * votes.n_classes / secure),
                "unit": "draws/s",
                "baseline": "the seeded numpy sampler (insecure)",
                "ratio": round(seeded / secure, 4),
            },
            {
                "metric": "one OpenDP call for a vector of draws",
                "value": round(2_000 / vector),
                "unit": "draws/s",
                "baseline": "one OpenDP call per draw",
                "ratio": round(single / vector, 2),
            },
        ],
    )


if __name__ == "__main__":
    main()
