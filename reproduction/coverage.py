"""Simulate how often the intervals of the claims contain the true difference.

    python -m reproduction.coverage [--rows N] [--draws N]

Rows with two seeds each are drawn with a true mean of 0 and compared in pairs. Their standard
deviations are all equal, drawn as the test assumes, or one in ten is twenty times as large. In the
second column the two rows that are compared have one seed each.
"""

from __future__ import annotations

import argparse

import numpy as np
from numpy.typing import NDArray

from reproduction.statistics import LEVEL, compare_moderated, expect_spread, own_spread

Floats = NDArray[np.float64]

FREEDOM = 1.4
"""Degrees of freedom of the variances' distribution, as fitted to the published rows."""


def main() -> None:
    """Print the coverage for each kind of standard deviations."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=50)
    parser.add_argument("--draws", type=int, default=1000)
    args = parser.parse_args()
    for name in ("equal", "as assumed", "one in ten wide"):
        shares = [cover(name, args.rows, args.draws, seeds) for seeds in (2, 1)]
        print(f"{name:16} two seeds {shares[0]:.3f}  one seed {shares[1]:.3f}", flush=True)


def cover(name: str, num_rows: int, num_draws: int, num_seeds: int) -> float:
    """Return the share of intervals that contain 0."""
    generator = np.random.default_rng(0)
    inside = 0
    for _ in range(num_draws):
        deviations = draw_deviations(name, num_rows, generator)
        rows = (generator.normal(size=(num_rows, 2)) * deviations[:, None]).tolist()
        pair = [row[:num_seeds] for row in rows[:2]]
        spreads = [own_spread(row) for row in [*pair, *rows[2:]]]
        expected = expect_spread([spread for spread in spreads if spread])
        assert expected is not None
        one, two = ([(row, spread)] for row, spread in zip(pair, spreads, strict=False))
        inside += compare_moderated(one, two, expected).p_value() > 1 - LEVEL
    return inside / num_draws


def draw_deviations(name: str, num_rows: int, generator: np.random.Generator) -> Floats:
    """Draw the standard deviation of each row."""
    if name == "equal":
        return np.ones(num_rows)
    if name == "as assumed":
        return np.sqrt(FREEDOM / generator.chisquare(FREEDOM, size=num_rows))
    wild = np.where(generator.random(num_rows) < 0.1, 20.0, 1.0)
    return wild * np.exp(generator.normal(size=num_rows) * 0.5)


if __name__ == "__main__":
    main()
