"""Write docs/results.md and its pictures out of results/reproduce/ and results/best/.

    python scripts/make_results.py [FOLDER]

FOLDER stands for docs/. What is written follows from the records alone, so a test can compare.
"""

from __future__ import annotations

import sys
from pathlib import Path

from plait.results import write_results

ROOT = Path(__file__).parents[1]


def main() -> None:
    folder = Path(sys.argv[1]) if sys.argv[1:] else ROOT / "docs"
    write_results(
        ROOT / "results" / "reproduce",
        out=folder / "results.md",
        pictures=folder / "pictures" / "results",
        best=ROOT / "results" / "best",
    )
    print(folder / "results.md")


if __name__ == "__main__":
    main()
