"""`plait doctor`: check the installation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from collections.abc import Iterator

EXTRAS = {
    "transformers": "plait[auto]: encoders other than BERT",
    "tensorboard": "plait[tensorboard]: TensorBoard events",
    "optuna": "plait[search]: plait search",
    "matplotlib": "plait[report]: pictures",
    "datasets": "plait[datasets]: plait new hf:...",
    "torchjd": "plait[surgery]: cagrad, aligned-mtl, upgrad",
    "onnxruntime": "plait[export]: plait export, and predictions of exported runs",
    "fastapi": "plait[serve]: plait serve",
    "ray": "plait[ray]: several machines",
}


def doctor() -> None:
    """Check the installation: packages, devices, encoder, folders.

    The exit code is 1 if something that plait needs is broken.
    """
    broken = 0
    for kind, text in _findings():
        broken += kind == "broken"
        typer.echo(f"{kind:>7}  {text}")
    if broken:
        from plait.errors import counted

        typer.echo(f"plait: {counted(broken, 'problem')}; see above", err=True)
        raise typer.Exit(1)
    typer.echo("\nNo problems found.")


def _findings() -> Iterator[tuple[str, str]]:
    versions = list(_versions())
    yield from versions
    if any(kind == "broken" for kind, _ in versions):
        return  # the other checks need these packages
    for part in (_devices, _encoder, _places):
        try:
            yield from part()
        except (ImportError, OSError) as error:  # installed, but it cannot be imported
            yield (
                "broken",
                f"{type(error).__name__}: {(str(error) or 'no message').splitlines()[0]}",
            )


def _versions() -> Iterator[tuple[str, str]]:
    import platform
    import sys
    from importlib.metadata import PackageNotFoundError, requires, version

    from plait import __version__

    yield "ok", f"plait {__version__}, Python {platform.python_version()} at {sys.executable}"
    names = {"torch", "numpy", "pyarrow", "pydantic", "safetensors", "tokenizers", "tomli-w"}
    try:
        needed = [r for r in requires("plait") or () if "extra ==" not in r]
        names = {_bare(requirement) for requirement in needed}
    except PackageNotFoundError:
        yield "note", "plait is not installed; it runs from its sources"
    found, missing = [], []
    for name in sorted(names):
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            missing.append(name)
    yield "ok", ", ".join(found)
    for name in missing:
        yield "broken", f"{name} is not installed: run `pip install {name}`"
    for name, use in EXTRAS.items():
        try:
            yield "ok", f"{name} {version(name)} ({use})"
        except PackageNotFoundError:
            yield "note", f"{name} is not installed ({use})"


def _bare(requirement: str) -> str:
    import re

    return re.split(r"[^A-Za-z0-9_.-]", requirement, maxsplit=1)[0]


def _devices() -> Iterator[tuple[str, str]]:
    import os

    import torch

    from plait.model.inference import why_not
    from plait.model.kernels import usable

    yield "ok", f"cpu: {os.cpu_count()} cores, {torch.get_num_threads()} threads"
    if reason := why_not("bf16"):
        yield "note", f"cpu: no bf16: {reason}; `plait predict` uses fp32"
    else:
        yield "ok", "cpu: bf16, which `plait predict` uses; --precision fp32 is exact"
    if torch.cuda.is_available():
        for index in range(torch.cuda.device_count()):
            memory = torch.cuda.get_device_properties(index).total_memory >> 30
            bf16 = torch.cuda.is_bf16_supported(including_emulation=False)
            about = f"{torch.cuda.get_device_name(index)}, {memory} GiB"
            yield "ok", f"cuda:{index}: {about}, {'bf16' if bf16 else 'no bf16'}"
        if usable():
            yield "ok", "Triton: plait's own kernels are used for training"
        else:
            yield "note", "no Triton, or no C compiler for it: training is slower"
    else:
        reason = "torch was built without CUDA" if torch.version.cuda is None else "none visible"
        yield "note", f"no GPU ({reason}); training runs on the CPU"


def _encoder() -> Iterator[tuple[str, str]]:
    from importlib.util import find_spec

    from plait.errors import EncoderError
    from plait.model.sources import PACKAGE, find_encoder

    try:
        files = find_encoder("packaged")
    except EncoderError as error:
        installed = find_spec(PACKAGE) is not None  # installed, but damaged
        yield "broken" if installed else "note", str(error)
    else:
        yield "ok", f"packaged encoder in {files.folder}, weights verified"


def _places() -> Iterator[tuple[str, str]]:
    import os
    import shutil
    from pathlib import Path

    from plait.data import cache_root

    cache = cache_root()
    try:
        cache.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = error.strerror
        yield "broken", f"the cache folder {cache} cannot be created ({reason}): set PLAIT_CACHE"
    else:
        free = shutil.disk_usage(cache).free >> 20
        yield ("ok" if free > 1024 else "note"), f"cache in {cache}, {free:,} MiB free"
        if not os.access(cache, os.W_OK):
            yield "broken", f"{cache} is not writable: set PLAIT_CACHE to another folder"
    data = os.environ.get("PLAIT_DATA")
    if data:
        there = Path(data).expanduser().is_dir()
        wrong = (
            "" if there else ", which is not a folder: set it to the folder with your data files"
        )
        yield ("ok" if there else "broken"), f"PLAIT_DATA is {data}{wrong}"
    else:
        yield (
            "note",
            "PLAIT_DATA is not set; data files are looked for in --data or the current folder",
        )
