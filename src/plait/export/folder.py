"""What every exported folder has: it appears whole or not at all, with a page about itself."""

from __future__ import annotations

import json
import os
import shutil
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any

from plait import __version__
from plait.card import make_card
from plait.errors import UsageError
from plait.training.checkpoint import disk_full_told, write_text
from plait.training.folder import RunFolder, check_place

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from plait.predict import Predictor

FILE = "export.json"
PAGE = "README.md"


@contextmanager
def made_whole(path: Path) -> Iterator[Path]:
    """Give a folder to write into, which becomes `path` when all went well."""
    check_place(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    part.mkdir()
    try:
        with disk_full_told(path):
            yield part
            if path.exists():  # an empty folder, which check_place let through
                path.rmdir()
            part.replace(path)
    finally:
        shutil.rmtree(part, ignore_errors=True)


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
