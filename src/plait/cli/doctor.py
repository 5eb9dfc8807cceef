"""`plait doctor`: what this installation has, and what is wrong with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

EXTRAS = {
    "transformers": "plait[auto]: encoders other than BERT",
    "tensorboard": "plait[tensorboard]: TensorBoard events",
    "optuna": "plait[search]: plait search",
    "matplotlib": "plait[report]: pictures",
    "datasets": "plait[datasets]: plait new hf:...",
    "torchjd": "plait[surgery]: cagrad, aligned-mtl, upgrad",
    "onnxruntime": "plait[export]: plait export, and answers of what it wrote",
    "fastapi": "plait[serve]: plait serve",
    "ray": "plait[ray]: several machines",
}


def doctor() -> None:
    """Say what is installed here and what to mend.

    Each GPU multiplies a few matrices, which must come out right. Exit code 1 when something that
    plait needs is broken.
    """
    broken = 0
    for kind, text in _findings():
        broken += kind == "broken"
        typer.echo(f"{kind:>7}  {text}")
    if broken:
        what = "thing is" if broken == 1 else "things are"
        typer.echo(f"plait: {broken} {what} broken; see above", err=True)
        raise typer.Exit(1)
    typer.echo("\nEverything plait needs is there.")


def _findings() -> Iterator[tuple[str, str]]:
    versions = list(_versions())
    yield from versions
    if any(kind == "broken" for kind, _ in versions):
        return  # nothing below can be asked without them
    for part in (_devices, _encoder, _places):
        try:
            yield from part()
        except (ImportError, OSError) as error:  # installed, and yet it does not come up
            yield "broken", f"{type(error).__name__}: {(str(error) or 'no reason').splitlines()[0]}"


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
        yield "note", "plait itself is not installed; it runs from its sources"
    found, missing = [], []
    for name in sorted(names):
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            missing.append(name)
    yield "ok", ", ".join(found)
    for name in missing:
        yield "broken", f"{name} is missing: run `pip install {name}`"
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
        yield "note", f"cpu: no bf16: {reason}; `plait predict` answers in fp32 on it"
    else:
        yield "ok", "cpu: bf16, which `plait predict` answers in on it; --precision fp32 is exact"
    if torch.cuda.is_available():
        for index in range(torch.cuda.device_count()):
            memory = torch.cuda.get_device_properties(index).total_memory >> 30
            bf16 = torch.cuda.is_bf16_supported(including_emulation=False)
            about = f"{torch.cuda.get_device_name(index)}, {memory} GiB"
            yield "ok", f"cuda:{index}: {about}, {'bf16' if bf16 else 'no bf16'}"
            if bf16:
                yield _products(torch.device("cuda", index))
        if usable():
            yield "ok", "Triton: kernels of plait's own train faster on a GPU"
        else:
            yield (
                "note",
                "no Triton, or no C compiler for it: PyTorch's kernels train as well, slower",
            )
    else:
        reason = "torch was built without CUDA" if torch.version.cuda is None else "none visible"
        yield "note", f"no GPU ({reason}); training runs on the CPU"


def _products(device: torch.device) -> tuple[str, str]:
    """Say whether a GPU computes what it should."""
    import os

    from plait.model.products import BOUND, compare_products
    from plait.training.sharing import SHARE

    furthest = max(compare_products(device).values())
    if furthest <= BOUND:
        return "ok", f"{device}: products in bf16 come out right"
    share = os.environ.get(SHARE)
    advice = f"unset {SHARE}, which is {share}" if share else "try another driver or GPU"
    return "broken", f"{device}: products in bf16 come out wrong, by {furthest:.2g}: {advice}"


def _encoder() -> Iterator[tuple[str, str]]:
    from importlib.util import find_spec

    from plait.errors import EncoderError
    from plait.model.sources import PACKAGE, find_encoder

    try:
        files = find_encoder("packaged")
    except EncoderError as error:
        installed = find_spec(PACKAGE) is not None  # there, but not as it should be
        yield "broken" if installed else "note", str(error)
    else:
        yield "ok", f"packaged encoder in {files.folder}, weights as published"


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
        yield "broken", f"the cache folder {cache} cannot be made ({reason}): set PLAIT_CACHE"
    else:
        free = shutil.disk_usage(cache).free >> 20
        yield ("ok" if free > 1024 else "note"), f"cache in {cache}, {free:,} MiB free"
        if not os.access(cache, os.W_OK):
            yield "broken", f"{cache} cannot be written: set PLAIT_CACHE to a folder that can"
    data = os.environ.get("PLAIT_DATA")
    if data:
        there = Path(data).expanduser().is_dir()
        wrong = "" if there else ", which is no folder: set it to the one with your data files"
        yield ("ok" if there else "broken"), f"PLAIT_DATA is {data}{wrong}"
    else:
        yield "note", "PLAIT_DATA is not set; recipes look in the current folder, or in --data"
