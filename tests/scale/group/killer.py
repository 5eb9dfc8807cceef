"""A plugin: a regularizer that adds nothing and kills one worker after one update, once."""

import os
import signal
from pathlib import Path

import torch

from plait.methods.regularizers import REGULARIZERS, Regularizer


@REGULARIZERS.register("killer")
class Killer(Regularizer):
    """Kills the process of a rank."""

    def __init__(self, *, rank: int, step: int, mark: str):
        self.rank, self.step, self.mark = rank, step, Path(mark)

    def __call__(self, model, task, batch, outputs, loss):
        return torch.zeros((), device=outputs.device)

    def after_update(self, model, step):
        own = torch.distributed.get_rank() if torch.distributed.is_initialized() else 0
        if own == self.rank and step == self.step and not self.mark.exists():
            self.mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
