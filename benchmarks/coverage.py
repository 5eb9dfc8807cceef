"""How often the intervals of findings hold the truth, in simulations.

    python benchmarks/coverage.py [--rows N] [--draws N]

Rows of two seeds each are drawn with a true mean of 0 and compared two by two. Their spreads are
all alike, drawn as the test supposes, or one in ten is twenty times as wide. In the second column
the two that are compared have one seed each.
"""

from __future__ import annotations

import argparse

import numpy as np

from plait.results.significance import LEVEL, compare_moderated, expect_spread, own_spread

FREEDOM = 1.4
"""Of the spreads' distribution, as the published rows have it."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=50)
    parser.add_argument("--draws", type=int, default=1000)
    args = parser.parse_args()
    for name in ("alike", "as supposed", "one in ten wild"):
        shares = [cover(name, args.rows, args.draws, seeds) for seeds in (2, 1)]
        print(f"{name:16} two seeds {shares[0]:.3f}  one seed {shares[1]:.3f}", flush=True)


def cover(name: str, num_rows: int, num_draws: int, num_seeds: int) -> float:
    generator = np.random.default_rng(0)
    inside = 0
    for _ in range(num_draws):
        deviations = draw_deviations(name, num_rows, generator)
        rows = (generator.normal(size=(num_rows, 2)) * deviations[:, None]).tolist()
        pair = [row[:num_seeds] for row in rows[:2]]
        spreads = [own_spread(row) for row in [*pair, *rows[2:]]]
        expected = expect_spread([spread for spread in spreads if spread])
        assert expected is not None
        sides = [[(row, spread)] for row, spread in zip(pair, spreads, strict=False)]
        inside += compare_moderated(*sides, expected).p_value() > 1 - LEVEL
    return inside / num_draws


def draw_deviations(name: str, num_rows: int, generator: np.random.Generator) -> np.ndarray:
    if name == "alike":
        return np.ones(num_rows)
    if name == "as supposed":
        return np.sqrt(FREEDOM / generator.chisquare(FREEDOM, size=num_rows))
    wild = np.where(generator.random(num_rows) < 0.1, 20.0, 1.0)
    return wild * np.exp(generator.normal(size=num_rows) * 0.5)


if __name__ == "__main__":
    main()
