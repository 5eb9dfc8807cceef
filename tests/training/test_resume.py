"""Interrupted runs end as uninterrupted ones, bit by bit."""

from __future__ import annotations

import hashlib
import json
import signal
import subprocess
import sys
import threading

import pytest
import torch

from plait.config import read_recipe
from plait.data.loading import load_data
from plait.errors import Interrupted
from plait.inference import interrupts
from plait.methods.aggregators import AGGREGATORS
from plait.methods.aggregators.gram import TorchJDAggregator
from plait.methods.regularizers import REGULARIZERS
from plait.methods.schedules import SCHEDULES
from plait.methods.weighting import WEIGHTINGS
from plait.model.adapters import ADAPTERS
from plait.model.heads import HEADS
from plait.training import run as run_module
from plait.training.build import build, build_stage
from plait.training.checkpoint import load_checkpoint, load_state, save_checkpoint
from plait.training.listeners import Listener
from plait.training.loop import TrainState, run_stage
from plait.training.stages.base import STAGE_KINDS

STEPS = 24  # of the tiny recipe


# --- every registered part ---------------------------------------------------------------

TOGETHER = "train.schedule={name='round-robin', together=true}"
REGRESSION = [
    "tasks.mood.head='regression'",
    "tasks.same.head='regression'",
    "tasks.near.head='regression'",
    "tasks.near.loss='score-cross-entropy'",
]
NEEDS = {
    "simultaneous": "{name='simultaneous', leader='mood', restart=['same']}",
    "temperature": "{name='temperature', temperature=3.0}",
    "simcse-pairs": "{name='simcse-pairs', threshold=0.5}",
    "reptile": "{name='reptile', inner_steps=2, inner_lr=0.001, inner_optimizer='adam'}",
    "fomaml": "{name='fomaml', inner_steps=2, inner_lr=0.05}",
}


def spell(name: str) -> str:
    return NEEDS.get(name, repr(name))


PARTS = {
    **{f"aggregator {name}": [TOGETHER, f"train.aggregator='{name}'"] for name in AGGREGATORS},
    **{  # an update an epoch: DWA looks back on two
        f"weighting {name}": [
            TOGETHER,
            f"train.weighting='{name}'",
            "train.batch_size=48",
            "train.epochs=4",
        ]
        for name in WEIGHTINGS
    },
    **{f"regularizer {name}": [f"train.regularizers=['{name}']"] for name in REGULARIZERS},
    **{f"schedule {name}": [f"train.schedule={spell(name)}"] for name in SCHEDULES},
    **{
        f"stage {name}": [f"train.kind={spell(name)}", "train.batch_size=6"]
        for name in STAGE_KINDS
        if name != "distill"  # needs a teacher: test_distilled_runs
    },
    **{f"adapter {name}": [f"tasks.mood.adapter='{name}'"] for name in ADAPTERS},
    **{f"head {name}": [f"tasks.mood.head='{name}'"] for name in HEADS if name != "cosine"},
    "accumulated, warm-up and decay": [
        "train.accumulate=2",
        "train.warmup=0.4",
        "train.decay='cosine'",
        "train.head_lr=0.01",
        "train.layer_decay=0.8",
        "train.average=0.9",
    ],
}


@pytest.fixture(scope="module")
def read(tiny_run):
    """Read the tiny recipe with some settings changed, and its training data."""
    data = {}

    def read(*overrides: str):
        config = read_recipe(tiny_run.parent / "tiny" / "recipe.toml", overrides)
        parts = build(config)
        if not data:
            data.update(load_data(config, parts.tokenizer, "train"))
        return parts, data

    return read


@pytest.mark.parametrize("name", PARTS)
def test_four_updates_equal_two_and_two_more(read, name, tmp_path):
    """Weights and moments of every part come back from a checkpoint."""
    settings = PARTS[name]
    chosen = name.split()[1]
    if name.startswith("aggregator") and issubclass(AGGREGATORS[chosen], TorchJDAggregator):
        pytest.importorskip("torchjd")

    def sit(path, *, resume: bool):
        """Make updates up to the fourth, or up to the second if there is a path to save them."""
        parts, data = read(*settings, "train.max_steps=4")
        state = load_state(path) if resume else TrainState()
        restore = (lambda: load_checkpoint(path, parts.model, None)) if resume else None
        stage = build_stage(parts, 0, data, restore=restore)
        if resume:
            stage.step.load_tensors(load_checkpoint(path, parts.model, stage.step.optimizer))
        parts.model.train()
        for record in run_stage(stage, state):
            if record.step == 2 and path is not None and not resume:
                kept = stage.step.tensors()
                save_checkpoint(path, parts.model, stage.step.optimizer, state, kept)
                return {}
        assert state.step == 4
        return dict(parts.model.state_dict()) | {
            f"step {name}": tensor for name, tensor in stage.step.tensors().items()
        }

    whole = sit(None, resume=False)
    path = tmp_path / "checkpoint.safetensors"
    sit(path, resume=False)
    resumed = sit(path, resume=True)
    assert whole.keys() == resumed.keys()
    for key, tensor in whole.items():
        assert torch.equal(tensor, resumed[key]), key


# --- whole runs --------------------------------------------------------------------------

SCENARIOS = {
    "scored often": ["train.eval_every=4", "train.eval_limit=6", "train.train_limit=5"],
    "early stopping by task": [
        "train.early_stopping={patience=2, per_task=true}",
        "train.eval_every=3",
        "save_every=1",
    ],
    "two stages, a running mean, conflicts watched": [
        "stages=['words', 'all']",
        "stage.words.kind='mlm'",
        "stage.all.aggregator={name='sum', watch=true}",
        TOGETHER,
        "train.average=0.8",
        "train.epochs=1",
        "score_first=true",
        "save_every=3",
        "log_every=4",
    ],
    "contrast, then the tasks": [
        *REGRESSION,
        "stages=['contrast', 'finetune']",
        "stage.contrast.kind='contrast'",
        "stage.contrast.max_steps=8",
        "train.epochs=1",
        "save_every=3",
    ],
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_broken_run_ends_as_an_unbroken_one(runs, name):
    settings = SCENARIOS[name]
    steps = json.loads((runs.whole(*settings) / "scores.json").read_text())["steps"]
    runs.train_broken("broken", *settings, crashes=(steps // 2,))
    runs.check_whole("broken", *settings)


@pytest.mark.slow
def test_a_crash_after_any_update(runs):
    settings = ["save_every=5", "train.batch_size=24", "train.epochs=2"]
    runs.train_broken("broken", *settings, crashes=tuple(range(1, 13)))
    runs.check_whole("broken", *settings)


def test_a_crash_between_the_model_and_the_checkpoint(runs, monkeypatch):
    save, calls = run_module.save_checkpoint, []

    def crash(*args):
        calls.append(1)
        if len(calls) == 1:
            raise runs.Crash
        save(*args)

    monkeypatch.setattr(run_module, "save_checkpoint", crash)
    with pytest.raises(runs.Crash):
        runs.train("broken")
    assert (runs.folder / "broken" / "model.safetensors").exists()
    assert not (runs.folder / "broken" / "checkpoint.safetensors").exists()
    runs.train("broken", resume=True)
    runs.check_whole("broken")


def test_a_crash_while_scoring(runs):
    class Scoring(Listener):
        def scoring(self, task, done, total):
            if task == "near":
                raise runs.Crash

    with pytest.raises(runs.Crash):
        runs.train("broken", "save_every=5", listeners=[Scoring()])
    runs.train("broken", "save_every=5", resume=True)
    runs.check_whole("broken")


def test_a_finished_run_without_its_checkpoint_is_not_trained_again(runs, copy_run):
    """The documentation says that it may be deleted."""
    folder = copy_run("run")
    (folder / "checkpoint.safetensors").unlink()
    files = {path: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    result = runs.train("run", resume=True).result
    assert result == json.loads((folder / "scores.json").read_text())
    assert {path: path.read_bytes() for path in folder.iterdir() if path.is_file()} == files


# --- stopping ----------------------------------------------------------------------------


class Signals(Listener):
    """Sends this process a signal after an update."""

    def __init__(self, number: int, step: int, times: int = 1):
        self.number, self.at, self.times = number, step, times

    def step(self, record):
        if record.total_steps == self.at:
            for _ in range(self.times):
                signal.raise_signal(self.number)


@pytest.mark.parametrize(("number", "step"), [(signal.SIGINT, 7), (signal.SIGTERM, STEPS)])
def test_a_signal_ends_the_run_after_the_update_at_hand(runs, number, step):
    before = signal.getsignal(number)
    spy = runs.Spy()
    with pytest.raises(Interrupted) as caught:
        runs.train("a", listeners=[Signals(number, step), spy], command="plait train x --resume")
    assert str(caught.value) == (
        f"stopped after {step} updates; everything is saved in {runs.folder / 'a'}. "
        "Go on with: plait train x --resume"
    )
    assert signal.getsignal(number) is before
    assert spy.steps[-1] == step
    assert any("stopping after this update and saving" in note for note in spy.notes)
    saved = load_state(runs.folder / "a" / "checkpoint.safetensors")
    assert saved.total_steps == step
    after = runs.train("a", resume=True).result["seconds"]
    assert after >= round(saved.seconds, 1) > 0  # of both sittings
    runs.check_whole("a")


def test_the_second_ctrl_c_stops_at_once(runs, monkeypatch):
    monkeypatch.setattr(interrupts, "AT_ONCE_S", 0.0)
    with pytest.raises(KeyboardInterrupt):
        runs.train("a", "save_every=5", listeners=[Signals(signal.SIGINT, 7, times=2)])
    assert load_state(runs.folder / "a" / "checkpoint.safetensors").total_steps == 5


def test_a_signal_that_cuts_into_a_print_still_saves(runs):
    class Printing(Listener):
        def note(self, text):
            if "stopping" in text:
                raise RuntimeError("reentrant call inside <_io.BufferedWriter name='<stderr>'>")

    with pytest.raises(Interrupted):
        runs.train("a", listeners=[Printing(), Signals(signal.SIGINT, 2)])


def test_a_run_outside_the_main_thread_leaves_signals_alone(runs):
    found = []

    def work():
        found.append(runs.train("a", "train.max_steps=2").result["steps"])

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [2]


SENDER = """
import os
import time
from pathlib import Path
from plait.training.listeners import LISTENERS, Listener

sent = Path(__file__).with_suffix(".sent")

@LISTENERS.register("sender")
class Sender(Listener):
    '''Sends signals to itself, in the first sitting alone.'''

    def __init__(self, *, number: int, step: int, times: int = 1, pause: float = 0.0):
        self.number, self.at, self.times, self.pause = number, step, times, pause

    def step(self, record):
        if record.total_steps == self.at and not sent.exists():
            sent.touch()
            for _ in range(self.times):
                os.kill(os.getpid(), self.number)
                time.sleep(self.pause)
"""


@pytest.mark.parametrize(
    ("number", "times", "pause"),
    [
        (signal.SIGINT, 2, 0.0),  # as `timeout` sends it
        pytest.param(signal.SIGINT, 1, 0.0, marks=pytest.mark.slow),
        pytest.param(signal.SIGTERM, 2, 0.0, marks=pytest.mark.slow),
        # as a person presses it
        pytest.param(signal.SIGINT, 2, 2 * interrupts.AT_ONCE_S, marks=pytest.mark.slow),
    ],
)
def test_stopping_the_command(runs, number, times, pause, tmp_path):
    (tmp_path / "sender.py").write_text(SENDER)
    settings = [
        f"plugins={[str(tmp_path / 'sender.py')]!r}",
        f"listeners=[{{name='sender', number={int(number)}, step=9, times={times}, "
        f"pause={pause}}}]",
        "save_every=2",
    ]
    words = [sys.executable, "-m", "plait", "train", str(runs.recipe), "--out"]
    words += [str(runs.folder / "a"), *(w for s in settings for w in ("-o", s))]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300)
    assert done.returncode == 130, done.stderr
    assert "Traceback" not in done.stderr
    last = done.stderr.strip().splitlines()[-1]
    place = load_state(runs.folder / "a" / "checkpoint.safetensors").total_steps
    if pause:
        assert last.startswith("plait: stopped;")
        assert place == 8
    else:
        assert last.startswith("plait: stopped after 9 updates; everything is saved in ")
        assert last.endswith("--resume")
        assert place == 9
    runs.train("a", *settings, resume=True)
    runs.check_whole("a")


def test_a_killed_command_goes_on(runs, tmp_path):
    (tmp_path / "sender.py").write_text(SENDER)
    settings = [
        f"plugins={[str(tmp_path / 'sender.py')]!r}",
        f"listeners=[{{name='sender', number={int(signal.SIGKILL)}, step=9}}]",
        "save_every=2",
    ]
    words = [sys.executable, "-m", "plait", "train", str(runs.recipe), "--out"]
    words += [str(runs.folder / "a"), *(w for s in settings for w in ("-o", s))]
    assert subprocess.run(words, capture_output=True, timeout=300).returncode == -signal.SIGKILL
    assert load_state(runs.folder / "a" / "checkpoint.safetensors").total_steps == 8
    runs.train("a", *settings, resume=True)
    runs.check_whole("a")


def test_a_plugin_that_changed_is_noted(runs, tmp_path):
    """It may be another method now; whoever mends a listener may go on all the same."""
    plugin = tmp_path / "mine.py"
    plugin.write_text("RATE = 1\n")
    settings = [f"plugins=[{str(plugin)!r}]", "save_every=2", "train.max_steps=6"]
    with pytest.raises(runs.Crash):
        runs.train("a", *settings, listeners=[runs.CrashAfter(3)])
    info = json.loads((runs.folder / "a" / "run.json").read_text())
    assert info["plugins"] == {str(plugin): hashlib.sha256(plugin.read_bytes()).hexdigest()}
    spy = runs.Spy()
    with pytest.raises(runs.Crash):
        runs.train("a", *settings, resume=True, listeners=[runs.CrashAfter(5), spy])
    assert not any("mine.py" in note for note in spy.notes)
    plugin.write_text("RATE = 2\n")
    runs.train("a", *settings, resume=True, listeners=[spy])
    assert len([note for note in spy.notes if "mine.py" in note]) == 1
