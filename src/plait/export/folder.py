"""Files that every exported folder has: export.json and README.md."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

from plait import __version__
from plait.data.storage import write_text
from plait.inference.card import make_card
from plait.inference.exported import FILE
from plait.inference.folders import RunFolder

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from plait.inference.predictor import Predictor

PAGE = "README.md"


def write_facts(folder: Path, run: Predictor, form: str, facts: Mapping[str, Any]) -> None:
    """Write export.json: the format, the run, and the version of plait."""
    source = {"name": run.config.name, "sha256": run.identify()}
    table = {"format": form, "plait": __version__, "run": source, **facts}
    write_text(folder / FILE, json.dumps(table, indent=1, allow_nan=False))


def write_page(
    folder: Path, run: Predictor, using: Sequence[Sequence[str]], front: Mapping[str, str]
) -> None:
    """Write README.md: the run's card, with the usage of this folder as the last section.

    `front` is the metadata block for the Hub.
    """
    top = "".join(f"{key}: {value}\n" for key, value in front.items())
    head = f"---\n{top}---\n\n" if top else ""
    text = "\n\n".join("\n".join(lines) for lines in using)
    write_text(folder / PAGE, head + make_card(run.folder, text))


def copy_reading(folder: Path, run: Predictor) -> None:
    """Copy the resolved recipe and the tokenizer."""
    files = RunFolder(run.folder)
    for file in (files.recipe, files.tokenizer):
        shutil.copyfile(file, folder / file.name)
