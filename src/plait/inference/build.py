"""Build what training and inference share: tasks, model, collator, device, precision."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from plait.data import Collator, Tokenizer
from plait.errors import RecipeError, first_line, suggest
from plait.inference.scoring import Task
from plait.methods.losses import LOSSES, Loss
from plait.model.adapters import ADAPTERS
from plait.model.encoder import check_adapters, check_pooling
from plait.model.heads import HEADS
from plait.model.multitask import MultitaskModel
from plait.tasks.metrics import primary_metric

if TYPE_CHECKING:
    from collections.abc import Mapping

    from plait.config import RunConfig
    from plait.model.encoder import Encoder


def build_tasks(config: RunConfig) -> dict[str, Task]:
    """Build each task's loss, and check that its head and metric are compatible with it."""
    tasks = {}
    for name, task in config.tasks.items():
        where = f"tasks.{name}"
        loss = LOSSES.build(task.loss or task.kind.default_loss, f"{where}.loss", task)
        head, _ = HEADS.validate(task.head, f"{where}.head")
        if head.gives != loss.takes:
            raise RecipeError(
                f"{where}: the {task.head['name']} head returns {head.gives}, but its loss needs "
                f"{loss.takes}; set {where}.loss to one that fits the head"
            )
        if head.begins and type(loss).fit is Loss.fit:
            raise RecipeError(
                f"{where}: the {task.head['name']} head starts as a regression, which its loss "
                "does not support; choose another head, such as 'linear'"
            )
        tasks[name] = Task(task, loss, primary_metric(task.kind, task.metric))
    return tasks


def build_model(config: RunConfig, encoder: Encoder, tasks: Mapping[str, Task]) -> MultitaskModel:
    """Build the encoder with a head for each task, and the adapters of tasks that have one."""
    check_pooling(encoder, config.encoder.pooling)
    if config.encoder.max_length > encoder.max_positions:
        raise RecipeError(
            f"encoder.max_length = {config.encoder.max_length}, but this encoder reads at most "
            f"{encoder.max_positions} tokens"
        )
    heads = {
        name: HEADS.build(
            config.tasks[name].head,
            f"tasks.{name}.head",
            encoder.width,
            task.loss.num_outputs,
            task.spec.inputs == "apart",
        )
        for name, task in tasks.items()
    }
    adapters = {}
    for name in tasks:  # after all heads, which start alike with and without adapters
        if (table := config.tasks[name].adapter) is not None:
            check_adapters(encoder)
            shape = (encoder.width, encoder.num_layers, encoder.num_heads)
            adapters[name] = ADAPTERS.build(table, f"tasks.{name}.adapter", *shape)
    readers = [name for name in tasks if not config.tasks[name].touch_encoder]
    return MultitaskModel(encoder, heads, config.encoder.pooling, adapters, readers)


def build_collator(config: RunConfig, tokenizer: Tokenizer) -> Collator:
    """Build the collator, which makes batches of rows."""
    settings = config.encoder
    return Collator(
        tokenizer.layout,
        settings.max_length,
        segments=settings.segments,
        truncate=settings.truncate,
    )


def choose_device(name: str) -> torch.device:
    """Return the device for 'auto' or a device's name; raise RecipeError if it is unavailable."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    message = f"device = {name!r} cannot be used here"
    try:
        device = torch.device(name)
    except RuntimeError as error:  # its message lists devices that plait does not support
        raise RecipeError(f"{message}: unknown; choose auto, cpu, cuda or cuda:1") from error
    try:
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise RecipeError(f"{message}: {first_line(error)}; auto chooses a device") from error
    return device


def choose_precision(name: str, device: torch.device) -> torch.dtype | None:
    """Return the type for autocast; None for fp32."""
    if name not in ("auto", "fp32", "bf16"):
        raise RecipeError(f"precision = {name!r}{suggest(name, ('auto', 'fp32', 'bf16'))}")
    if name == "auto":
        # GPUs that only emulate bf16 are faster in fp32.
        there = device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
        name = "bf16" if there else "fp32"
    return torch.bfloat16 if name == "bf16" else None
