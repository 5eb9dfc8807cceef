"""Batches for a GPU are shared out as those for a CPU are, wherever their rows lie."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
import torch

from plait.config import read_recipe
from plait.data.loading import load_data
from plait.training import build as building
from plait.training import delivery
from plait.training.build import build
from plait.training.team import Team

NUM_WORKERS = 2
CPU = torch.device("cpu")


def of_rank(rank):
    team = Team()
    team.rank, team.size = rank, NUM_WORKERS
    return team


@pytest.fixture
def parts(tiny_recipe):
    return build(read_recipe(tiny_recipe()))


@pytest.mark.parametrize("is_resident", [True, False])
@pytest.mark.parametrize("task", ["mood", "same", "near"])
def test_parcels_hold_a_workers_own_rows(parts, monkeypatch, task, is_resident):
    memory = 10**9 if is_resident else 0
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (memory, memory))
    train = load_data(parts.config, parts.tokenizer, "train")
    objective = building._find_objectives(parts, parts.plan.stages[0], train, {}, {}, {})[task]
    rows = torch.tensor([5, 2, 9, 0, 7])
    whole = objective.make(rows)
    shares = [slice(0, 3), slice(3, 5)]
    for rank, share in enumerate(shares):
        own = replace(parts, team=of_rank(rank))
        passes = parts.plan.stages[0].passes(task, objective.num_examples)
        shared = replace(objective, make=partial(delivery._make_share, own.team, objective))
        parcel = delivery._deliver(own, shared, passes.batch_size)(rows)
        batch = parcel.batch(CPU)
        assert parcel.num_examples == batch.whole == len(rows)
        assert torch.equal(batch.labels, whole.labels[share])
        blocks = len(whole.tokens.ids) // len(rows)
        expected = whole.tokens.ids.view(blocks, len(rows), -1)[:, share].flatten(0, 1)
        mask = whole.tokens.mask.view(blocks, len(rows), -1)[:, share].flatten(0, 1)
        found = batch.tokens.ids[batch.tokens.mask]
        assert found.tolist() == expected[mask].tolist()
        assert batch.tokens.total >= len(found)
