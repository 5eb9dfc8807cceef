"""Run several processes on one GPU in parallel with NVIDIA's multi-process service (MPS).

Without MPS a GPU serves one process at a time, so that several small runs take as long as in
sequence. With MPS their kernels run in parallel. The results of a process are the same.
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
    """Start MPS for processes that are started in the block; yield whether it was started.

    Does nothing for one job, if MPS is not installed, or if the user already runs it.
    """
    if num_jobs < 2 or PIPES in os.environ or shutil.which(CONTROL) is None:
        yield False
        return
    with tempfile.TemporaryDirectory(prefix="plait-mps-", ignore_cleanup_errors=True) as folder:
        own = {PIPES: folder, LOGS: folder}
        if not _control(own, ["-d"], ""):
            _control(own, [], "quit")  # it may be running although the start failed
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
    """Return a warning if the environment limits the process to a percentage of the GPU.

    The limit makes runs that share a GPU faster, but at some percentages cuBLAS returns wrong
    products without an error (CUDA 13.0 on an H200: 18, 34 and 75 percent).
    """
    share = os.environ.get(SHARE) or "100"
    if device.type != "cuda" or share.partition(".")[0] == "100":
        return None
    return (
        f"{SHARE} is {share}: at some percentages the GPU silently returns wrong results; unset it"
    )


def _control(own: dict[str, str], words: list[str], said: str) -> bool:
    """Start the service or send it a command; return whether that succeeded."""
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
