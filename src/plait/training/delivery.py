"""Prepare batches: unchanged for a CPU, in few sizes for a GPU, one share per worker."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from plait.data import Buckets, Parcel
from plait.training.loop import Passes, Stream

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import Tensor

    from plait.data import LaidOut
    from plait.training.build import Parts
    from plait.training.stages import Objective
    from plait.training.team import Team
    from plait.types import Batch


RESIDENT_SHARE = 0.1
"""Maximum share of a GPU's memory for one task's tokens to be kept there."""


def fit_together(
    parts: Parts, objectives: Mapping[str, Objective], passes: Mapping[str, Passes]
) -> Buckets | None:
    """Choose sizes for joint batches of all tasks; None if they cannot be joined."""
    if parts.device.type != "cuda" or not all(map(parts.model.shares_a_pass, objectives)):
        return None
    tasks = [
        (objective.rows.lengths().numpy(), passes[task].batch_size)
        for task, objective in objectives.items()
        if objective.rows is not None
    ]
    if len(tasks) < len(objectives):
        return None
    return replace(Buckets.fit_together(tasks), most=parts.model.encoder.max_positions)


def make_stream(parts: Parts, passes: Passes, objective: Objective) -> Stream:
    """Return the stream of an objective's batches."""
    make: Callable[..., Batch | Parcel]
    if parts.team.size > 1:
        objective = replace(objective, make=partial(_make_share, parts.team, objective))
    if parts.device.type == "cuda":
        make = _deliver(parts, objective, passes.batch_size)
    else:
        make = partial(_count_tokens, objective)
    return Stream(
        passes.num_examples,
        passes.batch_size,
        passes.seed,
        make,
        objective.draws,
        per_turn=passes.per_turn,
    )


def _make_share(team: Team, objective: Objective, rows: Tensor, *drawn: Any) -> Batch:
    """Make this worker's share of a batch; rows of others only where what is drawn needs them."""
    if objective.rows is None:
        return team.take(objective.make(rows, *drawn))
    return replace(objective.make(rows[team.share(len(rows))]), whole=len(rows))


def _count_tokens(objective: Objective, *rows: Any) -> Batch:
    """Make a batch whose padding can be skipped."""
    batch = objective.make(*rows)
    total = int(batch.tokens.mask.sum())
    return replace(batch, tokens=replace(batch.tokens, total=total))


def _deliver(parts: Parts, objective: Objective, batch_size: int) -> Callable[..., Parcel]:
    """Make parcels for a GPU in few sizes, so that the steps of each can be captured."""
    rows, most, team = objective.rows, parts.model.encoder.max_positions, parts.team
    # Of the total memory, not the free memory: a resumed run must choose the same.
    if rows is None or rows.num_bytes > RESIDENT_SHARE * torch.cuda.mem_get_info(parts.device)[1]:
        pad_id = parts.collator.layout.pad_id
        return lambda *given: Parcel.filled(objective.make(*given), pad_id, most)
    lengths = rows.lengths().numpy()
    buckets = replace(Buckets.fit(lengths, team.counts(batch_size)[0]), most=most)
    there: list[LaidOut] = []  # laid out when the first batch is asked for

    def make(chosen: Tensor) -> Parcel:
        if not there:
            there.append(rows.lay_out(parts.device))
        num_examples, chosen = len(chosen), chosen[team.share(len(chosen))]
        own = lengths[:, chosen.numpy()]
        length, total = buckets.room(own)
        whole = num_examples if team.size > 1 else None
        unpack = partial(there[0], length=length, total=total, whole=whole)
        return Parcel((chosen,), unpack, (len(chosen), length, total), num_examples, own)

    return make
