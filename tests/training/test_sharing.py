"""Sharing a GPU: the service is started, spoken to and ended, and only where it is wanted."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from plait.training.sharing import CONTROL, PIPES, SHARE, note_share, shared_gpu


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A stand-in for NVIDIA's program that writes down how it was called."""
    said = tmp_path / "said"

    def install(code: int = 0) -> Path:
        folder = tmp_path / "bin"
        folder.mkdir()
        program = folder / CONTROL
        program.write_text(f'#!/bin/sh\necho "$* $(cat) ${PIPES}" >> {said}\nexit {code}\n')
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
        return said

    monkeypatch.delenv(PIPES, raising=False)
    return install


def test_it_runs_while_it_is_needed(service) -> None:
    said = service()
    with shared_gpu(2) as runs:
        assert runs
        place = os.environ[PIPES]
        assert Path(place).is_dir()
        assert said.read_text().split() == ["-d", place]
    assert PIPES not in os.environ
    assert said.read_text().split() == ["-d", place, "quit", place]
    assert not Path(place).exists()


@pytest.mark.parametrize(
    ("share", "device", "warned"),
    [
        (None, "cuda", False),
        ("", "cuda", False),
        ("100", "cuda", False),
        ("100.0", "cuda", False),
        ("34", "cuda", True),
        ("34", "cpu", False),
    ],
)
def test_a_part_of_a_gpu_is_warned_of(monkeypatch, share, device: str, warned: bool) -> None:
    monkeypatch.delenv(SHARE, raising=False)
    if share is not None:
        monkeypatch.setenv(SHARE, share)
    note = note_share(torch.device(device))
    assert (note is not None) == warned
    assert not warned or (note is not None and note.startswith(f"{SHARE} is 34: "))


def test_one_job_needs_none(service) -> None:
    said = service()
    with shared_gpu(1) as runs:
        assert not runs
    assert not said.exists()


def test_one_that_does_not_start_is_done_without(service) -> None:
    service(code=1)
    with shared_gpu(2) as runs:
        assert not runs
        assert PIPES not in os.environ
