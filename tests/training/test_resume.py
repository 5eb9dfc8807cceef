"""Runs that were broken off end as unbroken ones, bit by bit."""

from __future__ import annotations

import hashlib
import json
import signal
import subprocess
import sys
import threading

import pytest

from plait.errors import Interrupted
from plait.inference import interrupts
from plait.training import run as run_module
from plait.training.checkpoint import load_state
from plait.training.listeners import Listener

STEPS = 24  # of the tiny recipe


# --- crashes -----------------------------------------------------------------------------

REGRESSION = [
    "tasks.mood.head='regression'",
    "tasks.same.head='regression'",
    "tasks.near.head='regression'",
    "tasks.near.loss='score-cross-entropy'",
]

SCENARIOS = {
    "as it is": [],
    "saved often": ["save_every=2"],
    "accumulated": ["train.accumulate=3", "train.epochs=4", "save_every=2", "log_every=3"],
    "scored often": ["train.eval_every=4", "train.eval_limit=6", "train.train_limit=5"],
    "warm-up and decay": ["train.warmup=0.4", "train.decay='cosine'", "save_every=3"],
    "linear, heads faster": ["train.decay='linear'", "train.head_lr=0.01", "save_every=4"],
    "drawn tasks": ["train.schedule='fixed'", "save_every=3", "log_every=7"],
    "pcgrad": [
        "train.aggregator='pcgrad'",
        "train.schedule={name='round-robin', together=true}",
        "train.epochs=5",
        "save_every=3",
    ],
    "score first": ["score_first=true", "save_every=3", "log_every=4"],
    "early stopping": [
        "train.early_stopping.patience=2",
        "train.eval_every=2",
        "train.lr=1e-6",  # gets no better
        "save_every=1",
    ],
    "early stopping by task": [
        "train.early_stopping={patience=2, per_task=true}",
        "train.eval_every=3",
        "train.epochs=4",
        "save_every=1",
    ],
    "two stages": [
        "stages=['heads', 'all']",
        "stage.heads.mode='last-layer'",
        "stage.heads.tasks=['mood', 'same']",
        "stage.heads.epochs=1",
        "stage.all.schedule='fixed'",
        "stage.all.warmup=0.5",
        "save_every=5",
    ],
    "a running mean": ["train.average=0.9", "train.eval_every=5", "save_every=2"],
    "a running mean over two stages, pcgrad": [
        "stages=['heads', 'all']",
        "stage.heads.mode='last-layer'",
        "stage.heads.tasks=['mood', 'same']",
        "stage.all.aggregator='pcgrad'",
        "stage.all.schedule={name='round-robin', together=true}",
        "train.average=0.8",
        "train.epochs=2",
        "save_every=3",
    ],
    "cut short": ["train.max_steps=17", "train.epochs=9", "save_every=3"],
    "overall": ["select='overall'", "train.eval_every=3"],
    "smart and bregman": [
        "train.regularizers=['smart', 'bregman']",
        "train.epochs=2",
        "save_every=2",
    ],
    "smart-unit, bregman in the second stage": [
        "stages=['first', 'second']",
        "stage.second.regularizers=['smart-unit', 'bregman']",
        "train.epochs=1",
        "save_every=3",
    ],
    "gradvac": [
        "train.aggregator='gradvac'",
        "train.schedule={name='round-robin', together=true}",
        "train.epochs=5",
        "save_every=3",
        "log_every=4",
    ],
    "uncertainty": ["train.weighting={name='uncertainty', lr=0.01}", "save_every=3"],
    "dwa": ["train.weighting='dwa'", "train.epochs=4", "save_every=3"],
    "famo": [
        "train.weighting='famo'",
        "train.schedule={name='round-robin', together=true}",
        "train.epochs=4",
        "save_every=3",
    ],
    "layer-wise decay, conflicts watched": [
        "train.layer_decay=0.8",
        "train.aggregator={name='sum', watch=true}",
        "train.schedule={name='round-robin', together=true}",
        "train.epochs=4",
        "save_every=3",
        "log_every=4",
    ],
    "simcse, then the tasks": [
        "stages=['before', 'finetune']",
        "stage.before.kind='simcse'",
        "train.epochs=1",
        "save_every=3",
        "log_every=4",
    ],
    "simcse on pairs": [
        "stages=['before', 'finetune']",
        "stage.before.kind={name='simcse-pairs', threshold=0.5}",
        "stage.before.epochs=3",
        "train.epochs=1",
        "save_every=2",
    ],
    "masked words, accumulated": [
        "stages=['before', 'finetune']",
        "stage.before.kind='mlm'",
        "stage.before.accumulate=2",
        "stage.before.epochs=3",
        "train.epochs=1",
        "save_every=3",
    ],
    "pre-training alone": [
        "stages=['words', 'sentences']",
        "stage.words.kind='mlm'",
        "stage.sentences.kind='simcse'",
        "train.epochs=1",
        "save_every=4",
    ],
    "reptile, then the tasks": [
        "stages=['meta', 'finetune']",
        "stage.meta.kind={name='reptile', inner_steps=2, inner_lr=0.05}",
        "stage.meta.epochs=3",
        "stage.meta.batch_size=6",
        "train.decay='linear'",
        "train.epochs=1",
        "save_every=2",
    ],
    "reptile to the end, tasks together, with Adam": [
        "train.kind={name='reptile', inner_steps=2, inner_lr=0.001, inner_optimizer='adam'}",
        "train.schedule={name='round-robin', together=true}",
        "train.aggregator='pcgrad'",
        "train.batch_size=6",
        "save_every=3",
        "log_every=2",
    ],
    "fomaml, accumulated, uncertainty": [
        "train.kind={name='fomaml', inner_steps=2, inner_lr=0.05}",
        "train.weighting={name='uncertainty', lr=0.01}",
        "train.accumulate=3",
        "train.batch_size=5",
        "train.epochs=3",
        "save_every=2",
    ],
    "simultaneous": [
        "train.schedule={name='simultaneous', leader='mood', restart=['same']}",
        "train.epochs=4",
        "save_every=3",
    ],
    "heads that begin as a regression": [
        *REGRESSION,
        "tasks.same.inputs='apart'",
        "train.eval_every=5",
        "save_every=3",
    ],
    "contrast, then the tasks": [
        *REGRESSION,
        "stages=['contrast', 'finetune']",
        "stage.contrast.kind='contrast'",
        "stage.contrast.epochs=3",
        "stage.contrast.max_steps=8",
        "train.epochs=1",
        "train.average=0.9",
        "save_every=3",
    ],
    "a score at the end alone": [*REGRESSION, "train.eval_every='end'", "save_every=3"],
    "by epoch, capped": [
        "train.schedule={name='by-epoch', order=['mood', 'same', 'near', 'mood'], cap=2}",
        "train.epochs=5",
        "save_every=3",
    ],
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_broken_run_ends_as_an_unbroken_one(runs, name):
    settings = SCENARIOS[name]
    steps = runs.train("whole", *settings).result["steps"]
    crashes = (1, steps // 3, steps // 2, steps - 1, steps)
    runs.train_broken("broken", *settings, crashes=crashes)
    runs.check_equal("whole", "broken")


def test_a_broken_run_with_a_teacher_ends_as_an_unbroken_one(runs):
    teacher = runs.train("teacher", "seed=3").folder
    settings = [
        "stages=['finetune', 'distill']",
        f"stage.distill.kind={{name='distill', teacher='{teacher}', temperature=3.0}}",
        "stage.distill.regularizers=['smart', 'bregman']",
        "train.epochs=1",
        "save_every=3",
    ]
    steps = runs.train("whole", *settings).result["steps"]
    runs.train_broken("broken", *settings, crashes=(1, steps // 2, steps // 2 + 1, steps - 1))
    runs.check_equal("whole", "broken")


@pytest.mark.parametrize("save_every", [1, 5])
def test_a_crash_after_any_update(runs, save_every):
    settings = [f"save_every={save_every}", "train.batch_size=24", "train.epochs=2"]
    steps = runs.train("whole", *settings).result["steps"]
    assert steps == 12
    runs.train_broken("broken", *settings, crashes=tuple(range(1, steps + 1)))
    runs.check_equal("whole", "broken")


def test_a_crash_between_the_model_and_the_checkpoint(runs, monkeypatch):
    runs.train("whole", "train.eval_every=4")
    save = run_module.save_checkpoint
    calls = []

    def crash(*args):
        calls.append(1)
        if len(calls) % 2:
            raise runs.Crash
        save(*args)

    monkeypatch.setattr(run_module, "save_checkpoint", crash)
    for sitting in range(20):
        try:
            runs.train("broken", "train.eval_every=4", resume=sitting > 0)
            break
        except runs.Crash:
            continue
    assert sitting == 7  # six evaluations and the end
    runs.check_equal("whole", "broken")


def test_a_crash_while_scoring(runs):
    class Scoring(Listener):
        left = 3

        def scoring(self, task, done, total):
            if task == "near" and self.left:
                self.left -= 1
                raise runs.Crash

    crash = Scoring()
    settings = ["score_first=true", "save_every=5"]
    runs.train("whole", *settings)
    for sitting in range(3):
        with pytest.raises(runs.Crash):
            runs.train("broken", *settings, resume=sitting > 0, listeners=[crash])
    runs.train("broken", *settings, resume=True, listeners=[crash])
    runs.check_equal("whole", "broken")


def test_a_crash_just_after_early_stopping(runs):
    class Stopped(Listener):
        crashed = False

        def note(self, text):
            if "stopped early" in text and not self.crashed:
                self.crashed = True
                raise runs.Crash

    settings = ["train.early_stopping.patience=2", "train.eval_every=2", "train.lr=1e-6"]
    assert runs.train("whole", *settings).result["steps"] < STEPS
    crash = Stopped()
    with pytest.raises(runs.Crash):
        runs.train("broken", *settings, listeners=[crash])
    runs.train("broken", *settings, resume=True, listeners=[crash])
    runs.check_equal("whole", "broken")


def test_a_run_killed_before_its_first_checkpoint_goes_on(runs):
    with pytest.raises(runs.Crash):
        runs.train("a", listeners=[runs.CrashAfter(3)])
    assert not (runs.folder / "a" / "checkpoint.safetensors").exists()
    runs.train("a", resume=True)
    runs.train("b")
    runs.check_equal("a", "b")


def test_a_finished_run_without_its_checkpoint_is_not_trained_again(runs):
    """Docs say that it may be deleted."""
    done = runs.train("run")
    (done.folder / "checkpoint.safetensors").unlink()
    files = {path: path.read_bytes() for path in done.folder.iterdir() if path.is_file()}
    assert runs.train("run", resume=True).result == done.result
    assert {path: path.read_bytes() for path in done.folder.iterdir() if path.is_file()} == files


def test_seconds_add_up_over_sittings(runs):
    with pytest.raises(runs.Crash):
        runs.train("a", "save_every=1", listeners=[runs.CrashAfter(10)])
    before = load_state(runs.folder / "a" / "checkpoint.safetensors").seconds
    after = runs.train("a", "save_every=1", resume=True).result["seconds"]
    assert after == pytest.approx(
        load_state(runs.folder / "a" / "checkpoint.safetensors").seconds, abs=0.06
    )
    assert after >= round(before, 1) > 0


# --- stopping ----------------------------------------------------------------------------


class Signals(Listener):
    """Sends this process a signal after an update."""

    def __init__(self, number: int, step: int, times: int = 1):
        self.number, self.at, self.times = number, step, times

    def step(self, record):
        if record.total_steps == self.at:
            for _ in range(self.times):
                signal.raise_signal(self.number)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_run_after_the_update_at_hand(runs, number):
    before = signal.getsignal(number)
    spy = runs.Spy()
    with pytest.raises(Interrupted) as caught:
        runs.train("a", listeners=[Signals(number, 7), spy], command="plait train x --resume")
    assert str(caught.value) == (
        f"stopped after 7 updates; everything is saved in {runs.folder / 'a'}. "
        "Go on with: plait train x --resume"
    )
    assert signal.getsignal(number) is before
    assert spy.steps[-1] == 7
    assert any("stopping after this update" in note for note in spy.notes)
    assert load_state(runs.folder / "a" / "checkpoint.safetensors").total_steps == 7
    runs.train("a", resume=True)
    runs.train("b")
    runs.check_equal("a", "b")


@pytest.fixture
def _ctrl_c():
    """Let SIGINT do what it does: a shell's background jobs ignore it, with all they start."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_ctrl_c")
def test_the_second_ctrl_c_stops_at_once(runs, monkeypatch):
    monkeypatch.setattr(interrupts, "AT_ONCE_S", 0.0)
    with pytest.raises(KeyboardInterrupt):
        runs.train("a", "save_every=5", listeners=[Signals(signal.SIGINT, 7, times=2)])
    assert load_state(runs.folder / "a" / "checkpoint.safetensors").total_steps == 5
    runs.train("a", "save_every=5", resume=True)
    runs.train("b", "save_every=5")
    runs.check_equal("a", "b")


def test_a_signal_that_cuts_into_a_print_still_saves(runs):
    class Printing(Listener):
        def note(self, text):
            if "stopping" in text:
                raise RuntimeError("reentrant call inside <_io.BufferedWriter name='<stderr>'>")

    with pytest.raises(Interrupted):
        runs.train("a", listeners=[Printing(), Signals(signal.SIGINT, 2)])


def test_a_signal_on_the_last_update(runs):
    with pytest.raises(Interrupted):
        runs.train("a", listeners=[Signals(signal.SIGINT, STEPS)])
    runs.train("a", resume=True)
    runs.train("b")
    runs.check_equal("a", "b")


def test_a_run_outside_the_main_thread_leaves_signals_alone(runs):
    found = []

    def work():
        found.append(runs.train("a").result["steps"])

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [STEPS]


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


@pytest.mark.usefixtures("_ctrl_c")
@pytest.mark.parametrize(
    ("number", "times", "pause"),
    [
        (signal.SIGINT, 1, 0.0),
        (signal.SIGTERM, 2, 0.0),
        (signal.SIGINT, 2, 0.0),  # as `timeout` sends it
        (signal.SIGINT, 2, 2 * interrupts.AT_ONCE_S),  # as a person presses it
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
    done = subprocess.run(words, capture_output=True, text=True, timeout=100)
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
    runs.train("b", "save_every=2")
    runs.check_equal("a", "b")


def test_a_plugin_that_changed_is_told_of(runs, tmp_path):
    """It may be another method now; whoever mends a listener may go on all the same."""
    plugin = tmp_path / "mine.py"
    plugin.write_text("RATE = 1\n")
    settings = [f"plugins=[{str(plugin)!r}]", "save_every=2"]
    with pytest.raises(runs.Crash):
        runs.train("a", *settings, listeners=[runs.CrashAfter(5)])
    info = json.loads((runs.folder / "a" / "run.json").read_text())
    assert info["plugins"] == {str(plugin): hashlib.sha256(plugin.read_bytes()).hexdigest()}
    spy = runs.Spy()
    with pytest.raises(runs.Crash):
        runs.train("a", *settings, resume=True, listeners=[runs.CrashAfter(9), spy])
    assert not any("mine.py" in note for note in spy.notes)
    plugin.write_text("RATE = 2\n")
    runs.train("a", *settings, resume=True, listeners=[spy])
    (told,) = [note for note in spy.notes if "mine.py" in note]
    assert told == (
        f"{plugin} is not what it was when the run began; from here on it trains with what it is"
    )
