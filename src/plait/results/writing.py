"""The page and its pictures are written to files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from plait.config import read_profile
from plait.results.gathering import gather
from plait.results.page import make_page

if TYPE_CHECKING:
    from collections.abc import Callable

    from plait.results.gathering import Results

RECORDS = Path("results/reproduce")
BEST = Path("results/best")
PAGE = Path("docs/results.md")
PICTURES = Path("docs/pictures/results")


def write_results(
    records: Path = RECORDS,
    *,
    profile: str = "small",
    out: Path = PAGE,
    pictures: Path | None = PICTURES,
    best: Path = BEST,
    progress: Callable[[str, int, int], None] | None = None,
) -> Results:
    """Write the page of a profile's records to `out`, and a picture a table into `pictures`.

    Without `pictures` the page has none, and matplotlib is not needed.
    """
    read_profile(profile)  # a misspelt one is told by its name, not by its folder
    results = gather(records, profile, best)
    if pictures is not None:
        from plait.results.plots import draw

        for number, name in enumerate(results.pictures):
            if progress is not None:
                progress(f"drawing {name}", number, len(results.pictures))
            draw(results, name, pictures / f"{name}.svg")
    place = None if pictures is None else _seen_from(out.parent, pictures)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(make_page(results, place), encoding="utf-8", newline="\n")
    return results


def _seen_from(folder: Path, target: Path) -> str:
    return Path(os.path.relpath(target.resolve(), folder.resolve())).as_posix()
