"""A folder's card stays true: written anew after whatever changes the folder.

card.md             what the model is, for people
card-TIME.md        what was there before somebody asked for another
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from datetime import datetime
from typing import TYPE_CHECKING

from plait.data.storage import write_text
from plait.errors import PlaitError
from plait.inference.card import carry_over, make_card
from plait.inference.folders import RunFolder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def card_renewed(folder: Path) -> Iterator[None]:
    """Write a card anew once its folder has changed; what people wrote into it stays.

    A run that has no card and is not finished gets none: there is nothing to say of it yet.
    """
    path, before = RunFolder(folder).card, None
    there = _read_text(path)
    with suppress(PlaitError):  # a damaged file may be what is about to be mended
        before = make_card(folder, like=there)
    yield
    if not path.is_file() and not RunFolder(folder).scores.is_file():
        return
    with suppress(PlaitError):  # what was done is done, and the card as true as it was
        after, now = make_card(folder), _read_text(path)
        if now != there:  # another process was quicker
            before = make_card(folder, like=now)
        if now is None or before is None:
            write_card(folder, after)
        else:
            write_text(path, carry_over(now, before, after))


def _read_text(path: Path) -> str | None:
    """Read a card; None where there is none, or somebody saved it in another encoding."""
    try:
        return path.read_text(encoding="utf-8")
    except (FileNotFoundError, UnicodeDecodeError):
        return None


def write_card(folder: Path, text: str) -> Path | None:
    """Write a card whatever was there; return where that is now, if it was another text."""
    path, aside = RunFolder(folder).card, None
    if path.is_file() and (old := path.read_bytes()) != text.encode():
        aside = folder / f"card-{datetime.now():%Y%m%d-%H%M%S}.md"
        aside.write_bytes(old)  # copied, so that there is a card at any time
    write_text(path, text)
    return aside
