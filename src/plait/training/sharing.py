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
        if SHARE not in os.environ:
            own[SHARE] = str(share_of(num_jobs))
        os.environ.update(own)
        try:
            yield True
        finally:
            for name in own:
                os.environ.pop(name, None)
            _control(own, [], "quit")


def share_of(num_jobs: int) -> int:
    """Say how many percent of the GPU each process may fill.

    Small kernels of one that are spread over the whole GPU stand in the way of the others';
    held to a part they run side by side. Twice an equal part, as none is busy all the time.
    """
    return min(100, 200 // num_jobs)


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
