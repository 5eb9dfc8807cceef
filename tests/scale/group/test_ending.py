"""Workers end together: with one sentence, and with a checkpoint that any number goes on from."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time

import pytest
from launching import HERE, STILL, TIMEOUT, environment, read_losses, torchrun, train_all

from plait.config import read_recipe
from plait.errors import Interrupted
from plait.training.checkpoint import load_state
from plait.training.listeners import Listener
from plait.training.runs import train

pytestmark = pytest.mark.slow
KEEP = [*STILL, "save_every=5"]


def words(overrides):
    return [word for override in overrides for word in ("-o", override)]


def sentences(done):
    """Return what plait said was wrong."""
    return [line for line in done.stderr.splitlines() if line.startswith("plait: ")]


def killing(mark, *, rank):
    table = f"[{{name='killer', rank={rank}, step=17, mark='{mark}'}}]"
    return [*KEEP, f"plugins=['{HERE / 'killer.py'}']", f"train.regularizers={table}"]


@pytest.mark.parametrize(
    ("rank", "then"), [(1, 1), pytest.param(0, 4, marks=pytest.mark.nightly)], ids=str
)
def test_a_killed_worker_leaves_a_checkpoint_that_others_go_on_from(
    launch, tiny_recipe, tmp_path, rank, then
):
    recipe, out = tiny_recipe(), tmp_path / "run"
    overrides = killing(tmp_path / "mark", rank=rank)
    done = launch(2, "train", recipe, "--out", out, *words(overrides))
    assert done.returncode == 1
    (said,) = sentences(done)
    assert said.startswith("plait: a worker process ended, so all stopped; ")
    assert "the last checkpoint is update 15" in said
    assert "torchrun --nproc-per-node 2 -m plait train" in said
    assert said.endswith("--resume")
    assert load_state(out / "checkpoint.safetensors").total_steps == 15

    whole = train(read_recipe(recipe, overrides), tmp_path / "whole").folder
    again = {"recipe": str(recipe), "overrides": overrides, "out": str(out), "resume": True}
    if then == 1:
        train(read_recipe(recipe, overrides), out, resume=True)
    else:
        train_all(then, tmp_path, [again])
    expected, found = read_losses(whole), read_losses(out)
    assert [line["step"] for line in found] == [line["step"] for line in expected]
    for line, other in zip(expected, found, strict=True):
        assert other["losses"] == pytest.approx(line["losses"], rel=2e-4, abs=2e-5)


class Stopper(Listener):
    """Asks for an end after update 4."""

    def step(self, record):
        if record.step == 4:
            os.kill(os.getpid(), signal.SIGTERM)


def test_a_run_of_one_goes_on_with_two(launch, tiny_recipe, tmp_path):
    recipe, out = tiny_recipe(), tmp_path / "run"
    overrides = [*KEEP, "train.aggregator='pcgrad'"]
    overrides += ["train.schedule={name='round-robin', together=true}", "train.epochs=4"]
    whole = train(read_recipe(recipe, overrides), tmp_path / "whole").folder
    with pytest.raises(Interrupted):
        train(read_recipe(recipe, overrides), out, listeners=[Stopper()])
    done = launch(2, "train", recipe, "--out", out, "--resume", *words(overrides))
    assert done.returncode == 0, done.stderr
    for line, other in zip(read_losses(whole), read_losses(out), strict=True):
        assert other["losses"] == pytest.approx(line["losses"], rel=2e-4, abs=2e-5)
    assert json.loads((out / "scores.json").read_text())["steps"] == len(read_losses(whole))


@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.nightly)], ids=str
)
def test_an_interrupted_team_saves_and_says_so_once(tiny_recipe, tmp_path, number):
    out = tmp_path / "run"
    command = torchrun(2, "-m", "plait", "train", tiny_recipe(), "--out", out)
    process = subprocess.Popen(
        [*command, "-o", "train.epochs=2000", "-o", "log_every=1"],
        env=environment(tmp_path / "cache"),
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + TIMEOUT
    while not (out / "checkpoint.safetensors").exists():
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.1)
    process.send_signal(number)
    _, told = process.communicate(timeout=TIMEOUT)
    (said,) = [line for line in told.splitlines() if line.startswith("plait: ")]
    assert "everything is saved" in said
    state = load_state(out / "checkpoint.safetensors")
    assert f"stopped after {state.total_steps:,} update" in said
    assert not state.finished


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (["-o", "train.lrr=1"], "train.lrr is not a setting"),
        (["--oops"], "no such option: --oops"),
        pytest.param(
            ["--each-alone"], "train several runs, but torchrun", marks=pytest.mark.nightly
        ),
        pytest.param(
            ["-o", "device=cuda:0"], "device = 'cuda:0' is one device", marks=pytest.mark.nightly
        ),
        pytest.param(["--resume"], "there is no run at", marks=pytest.mark.nightly),
    ],
    ids=lambda value: value[-1] if isinstance(value, list) else "",
)
def test_what_is_wrong_is_said_once(launch, tiny_recipe, tmp_path, more, told):
    done = launch(2, "train", tiny_recipe(), "--out", tmp_path / "run", *more)
    assert done.returncode != 0
    (said,) = sentences(done)
    assert told in said
    assert not (tmp_path / "run").exists()


def test_workers_on_different_data_are_refused(launch, tiny_recipe, tmp_path):
    """Each has a folder of its own, as on two hosts."""
    recipe = tiny_recipe()
    tiny_recipe("other", seed="other")
    plugin = tmp_path / "hosts.py"
    plugin.write_text(
        "import os\n"
        "if os.environ.get('RANK') == '1':\n"
        f"    os.environ['PLAIT_DATA'] = {str(tmp_path / 'other')!r}\n"
    )
    done = launch(2, "train", recipe, "--out", tmp_path / "run", "-o", f"plugins=['{plugin}']")
    (said,) = sentences(done)
    assert "worker 1 has another train data of" in said
