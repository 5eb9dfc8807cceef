"""Several processes on one GPU at once, instead of in turns.

A GPU gives itself to one process at a time, so that several small runs take as long as one after
the other. NVIDIA's multi-process service (MPS) lets their kernels run side by side; each process
computes what it would compute alone.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

CONTROL = "nvidia-cuda-mps-control"
PIPES, LOGS = "CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY"
SHARE = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"


@contextmanager
def shared_gpu(num_jobs: int) -> Iterator[bool]:
    """Let processes started inside share the GPU; say whether a service of ours runs.

    Nothing happens for one job, without the service's program, or where the user runs one.
    """
    if num_jobs < 2 or PIPES in os.environ or shutil.which(CONTROL) is None:
        yield False
        return
    with tempfile.TemporaryDirectory(prefix="plait-mps-", ignore_cleanup_errors=True) as folder:
        own = {PIPES: folder, LOGS: folder}
        if not _control(own, ["-d"], ""):
            _control(own, [], "quit")  # it may be up all the same
            yield False
            return
        os.environ.update(own)
        try:
            yield True
        finally:
            for name in own:
                os.environ.pop(name, None)
            _control(own, [], "quit")


def note_share(device: torch.device) -> str | None:
    """Warn of a process that may fill a part of the GPU only, as the environment can say.

    Runs that share a GPU are faster so, but at some parts cuBLAS (CUDA 13.0, on an H200: 18, 34
    and 75 percent) works out wrong products, without a word.
    """
    share = os.environ.get(SHARE) or "100"
    if device.type != "cuda" or share.partition(".")[0] == "100":
        return None
    return (
        f"{SHARE} is {share}: at some shares of a GPU its products come out wrong, and nothing "
        "tells; unset it"
    )


def _control(own: dict[str, str], words: list[str], said: str) -> bool:
    """Start the service or speak to it; say whether that worked."""
    with suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(
            [CONTROL, *words],
            env={**os.environ, **own},
            input=said,
            text=True,
            stdout=subprocess.DEVNULL,  # a daemon would keep a pipe open
            stderr=subprocess.DEVNULL,
            timeout=20,
            check=False,
        )
        return done.returncode == 0
    return False
