"""What every exported folder has: facts, and a page about itself."""

from __future__ import annotations

import json
import shutil
from importlib import import_module
from typing import TYPE_CHECKING, Any

from plait import __version__
from plait.card import make_card
from plait.errors import UsageError
from plait.training.checkpoint import write_text
from plait.training.folder import RunFolder

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from plait.predict import Predictor

FILE = "export.json"
PAGE = "README.md"


def write_facts(folder: Path, run: Predictor, form: str, facts: Mapping[str, Any]) -> None:
    """Write what was exported, of which run, by what."""
    source = {"name": run.config.name, "sha256": run.identify()}
    table = {"format": form, "plait": __version__, "run": source, **facts}
    write_text(folder / FILE, json.dumps(table, indent=1, allow_nan=False))


def write_page(
    folder: Path, run: Predictor, using: Sequence[Sequence[str]], front: Mapping[str, str]
) -> None:
    """Write the run's card, with how to use this folder for its last section.

    `front` is what the Hub reads off the top of the page.
    """
    top = "".join(f"{key}: {value}\n" for key, value in front.items())
    head = f"---\n{top}---\n\n" if top else ""
    write_text(folder / PAGE, head + make_card(run.folder, using))


def copy_reading(folder: Path, run: Predictor) -> None:
    """Copy what texts are read with: the resolved recipe and the tokenizer."""
    files = RunFolder(run.folder)
    for file in (files.recipe, files.tokenizer):
        shutil.copyfile(file, folder / file.name)


def need(name: str) -> Any:
    """Import a module that only an export to ONNX, or its use, wants."""
    try:
        return import_module(name)
    except ImportError as error:
        package = name.partition(".")[0]
        raise UsageError(
            f"ONNX needs the package {package}: pip install 'plait[export]'"
        ) from error
