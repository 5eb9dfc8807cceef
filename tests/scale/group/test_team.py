"""Who takes which rows, and what a team of one does: nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from plait.config import read_recipe
from plait.errors import RecipeError, RunError, WorkerLostError
from plait.inference.folders import RunFolder
from plait.scale.launch import find_launch
from plait.training.build import build
from plait.training.checkpoint import load_state
from plait.training.starting import Start
from plait.training.team import ALONE, Team
from plait.training.workers import (
    check_device,
    compare_recipes,
    compare_workers,
    explain_lost_workers,
)
from plait.types import Batch, Tokens


def team(rank, size):
    made = Team()
    made.rank, made.size = rank, size
    return made


@given(st.integers(1, 300), st.integers(1, 9))
def test_every_row_has_one_worker(num_examples, size):
    counts = team(0, size).counts(num_examples)
    assert sum(counts) == num_examples
    assert max(counts) - min(counts) <= 1
    rows = []
    for rank, count in enumerate(counts):
        share = range(num_examples)[team(rank, size).share(num_examples)]
        assert len(share) == max(count, 1)  # one row too many is a guest
        rows += list(share) if count else []
    assert rows == list(range(num_examples))


@pytest.mark.parametrize("blocks", [1, 2, 3])
def test_a_share_has_all_rows_of_its_examples(blocks):
    """Of texts apart and of triplets, all first ones come before all second ones."""
    num_examples = 7
    ids = torch.arange(blocks * num_examples).unsqueeze(1).repeat(1, 4)
    batch = Batch(Tokens(ids, ids + 100, ids > 2), torch.arange(num_examples) * 10)
    taken = [team(rank, 3).take(batch) for rank in range(3)]
    assert [part.whole for part in taken] == [num_examples] * 3
    assert [part.num_examples for part in taken] == [num_examples] * 3
    assert torch.cat([part.labels for part in taken]).tolist() == batch.labels.tolist()
    for part in taken:
        assert part.tokens.ids.shape == (blocks * len(part.labels), 4)
        example = part.tokens.ids[:, 0].view(blocks, -1) % num_examples
        assert (example * 10 == part.labels).all()
        assert torch.equal(part.tokens.types, part.tokens.ids + 100)


TORCHRUN = {
    "RANK": "3",
    "WORLD_SIZE": "4",
    "MASTER_ADDR": "host-a",
    "MASTER_PORT": "29500",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "2",
    "GROUP_WORLD_SIZE": "2",
}


def test_torchruns_words_are_read():
    launch = find_launch(TORCHRUN)
    assert (launch.local_rank, launch.local_size) == (1, 2)
    words = "torchrun --nnodes 2 --nproc-per-node 2 -m plait"
    assert launch.words == words.split()


@pytest.mark.parametrize("without", ["RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"])
def test_a_process_that_nobody_launched_is_alone(without):
    assert find_launch({k: v for k, v in TORCHRUN.items() if k != without}) is None
    assert find_launch({**TORCHRUN, "WORLD_SIZE": "1"}) is None


def test_more_workers_than_gpus_are_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    two = team(0, 2)
    two.local_size = 2
    with pytest.raises(RecipeError, match="2 workers on a host with 1 GPU: start one"):
        check_device("auto", two)
    check_device("cpu", two)
    check_device("cuda:0", ALONE)


class Beside(Team):
    """Two workers, of whom the other says what this one does, but for some of it."""

    size = 2

    def __init__(self, **other):
        self.other = {name.replace("_", " "): value for name, value in other.items()}

    def each(self, value):
        self.said = value
        return [value, {**value, **self.other}]


def test_workers_with_other_settings_are_refused(tiny_recipe):
    config = read_recipe(tiny_recipe())
    same = Beside()
    compare_recipes(config, same)
    assert "setting train.lr" in same.said
    assert "setting data.root" not in same.said  # what is there is compared, not where
    with pytest.raises(RunError, match=r"worker 1 has another setting train\.lr than worker 0"):
        compare_recipes(config, Beside(**{"setting train.lr": 0.5}))
    with pytest.raises(RunError, match=r"another setting stage\.more\.epochs"):
        compare_recipes(config, Beside(**{"setting stage.more.epochs": 3}))


def test_workers_that_start_from_other_weights_or_plugins_are_refused(
    tiny_recipe, tiny_run, tmp_path
):
    plugin = tmp_path / "plugin.py"
    plugin.write_text("")
    config = read_recipe(tiny_recipe(), [f"start='{tiny_run}'", f"plugins=['{plugin}']"])
    parts = build(config, Start.find(config, RunFolder(tmp_path / "run")))
    compare_workers(replace(parts, team=Beside()), {})
    with pytest.raises(RunError, match="worker 1 has another run to start from than worker 0"):
        compare_workers(replace(parts, team=Beside(run_to_start_from="other")), {})
    with pytest.raises(RunError, match=r"another plugin .*plugin\.py"):
        compare_workers(replace(parts, team=Beside(**{f"plugin {plugin}": "other"})), {})


class Leaving(Team):
    """Any error means that another worker is gone."""

    def lost(self, error):
        return True


def tell_loss(team, run):
    with (
        pytest.raises(WorkerLostError) as told,
        explain_lost_workers(team, RunFolder(run), "plait train --resume"),
    ):
        raise RuntimeError("Connection closed by peer")
    return str(told.value)


def test_a_lost_worker_is_told_with_what_can_be_gone_on_with(tiny_run, tmp_path):
    steps = load_state(tiny_run / "checkpoint.safetensors").total_steps
    said = tell_loss(Leaving(), tiny_run)
    assert f"the last checkpoint is update {steps}" in said
    assert said.endswith("with: plait train --resume")
    nothing = tell_loss(Leaving(), tmp_path / "run")
    assert nothing.endswith("nothing was saved yet. Start them again")
    other = Leaving()
    other.rank = 1  # perhaps on a host that does not see the folder
    assert "the last checkpoint is kept" in tell_loss(other, tmp_path / "run")
