"""What a command was given becomes the line that goes on with it, ready to be pasted."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


def write_command(
    words: Iterable[str],
    options: Mapping[str, object],
    overrides: Iterable[str] = (),
    more: Iterable[str] = (),
) -> str:
    """Write a command: its words, its options, its overrides and more words.

    An option that is True stands by itself; one that is None, False or empty is left out.
    """
    line = list(words)
    for name, value in options.items():
        if value:
            line += [name] if value is True else [name, str(value)]
    for override in overrides:
        line += ["-o", override]
    return shlex.join([*line, *more])
