"""The Triton kernels, where Triton is there: compiled, and against plain PyTorch.

They need no GPU for that, but a process of their own: Triton looks at the wish for its interpreter
when it is imported.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from plait.model import kernels
from plait.model.packing import _has_flash

CHECKS = Path(__file__).with_name("interpreted_kernels.py")
NAMES = [
    line.split("(")[0].removeprefix("def check_")
    for line in CHECKS.read_text(encoding="utf-8").splitlines()
    if line.startswith("def check_")
]


def interprets() -> bool:
    """Say whether there is a Triton whose interpreter goes with NumPy 2.4."""
    try:
        return tuple(map(int, version("triton").split(".")[:2])) >= (3, 9)
    except PackageNotFoundError:
        return False


def test_there_are_checks() -> None:
    assert len(NAMES) >= 4


@pytest.mark.skipif(not interprets(), reason="there is no Triton 3.9: pip install triton")
@pytest.mark.parametrize("name", NAMES)
def test_equals_pytorch(name: str) -> None:
    done = subprocess.run(
        [sys.executable, CHECKS, name],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(not interprets(), reason="there is no Triton 3.9: pip install triton")
@pytest.mark.parametrize("capability", [80, 86, 90])
def test_compiles_without_the_gpu_it_is_for(capability: int) -> None:
    done = subprocess.run(
        [sys.executable, CHECKS.with_name("compiled_kernels.py"), str(capability)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("capability", "there"), [((7, 5), False), ((8, 0), True), ((9, 0), True)])
def test_attention_over_packed_rows_needs_a_gpu_that_has_bf16(
    monkeypatch, capability: tuple[int, int], there: bool
) -> None:
    kernels.has_bf16.cache_clear()
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)
    monkeypatch.setattr(torch.backends.cuda, "is_flash_attention_available", lambda: True)
    monkeypatch.setattr(kernels, "usable", lambda: True)
    vectors = SimpleNamespace(
        is_cuda=True, dtype=torch.bfloat16, shape=(5, 3 * 64), device=torch.device("cuda:0")
    )
    assert kernels.can_attend(vectors, 2, 64) == there
    assert _has_flash(vectors) == there
    kernels.has_bf16.cache_clear()
