"""What goes between the web's process and its workers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

Answer = dict[str, Any]
"""What a row is given: each task's answer, or under VECTOR its vector."""
VECTOR = ""


class Ask(NamedTuple):
    """Rows of one run that go through its encoder together."""

    run: str
    tasks: tuple[str, ...]
    """Those to answer, all of one pass; none for the rows' vectors."""
    rows: list[tuple[str, ...]]


class RunsToLoad(NamedTuple):
    """What a server, or a process of it, is to load."""

    folders: Mapping[str, Path]
    skip_bad: bool = False
    """Whether a folder that cannot be loaded is left out, rather than an error."""
    plugins: bool = True
    """Whether what runs name under `plugins`, which is code, is run."""
    device: str = "auto"
    precision: str = "auto"
    threads: int | None = None
    """Threads of the CPU for one batch; torch's own number unless given."""
