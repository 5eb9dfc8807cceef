"""Who hears of a run: the log, TensorBoard, and listeners of the user's own."""

from __future__ import annotations

import json
import shutil
import sys
import warnings

import pytest

from plait.inference.predictor import Predictor
from plait.training.listeners import Listener, MetricsLog

PLUGIN = '''
import json
from plait.training.listeners import LISTENERS, Listener


@LISTENERS.register("diary")
class Diary(Listener):
    """Writes down the names of what it hears."""

    def __init__(self, *, name_of_file: str = "diary.jsonl"):
        self.name, self.heard = name_of_file, []

    def start(self, folder, config, step):
        self.folder = folder
        self.heard.append(["start", config["name"], step])

    def note(self, text):
        self.heard.append(["note"])

    def step(self, record):
        self.heard.append(["step", record.total_steps])

    def losses(self, record, losses):
        self.heard.append(["losses", record.total_steps, sorted(losses)])

    def scores(self, step, split, scores):
        self.heard.append(["scores", step, split, sorted(scores.primary)])

    def end(self, result):
        self.heard.append(["end", result["steps"]])

    def close(self):
        self.heard.append(["close"])
        lines = [json.dumps(event) for event in self.heard]
        (self.folder / self.name).write_text("\\\\n".join(lines))
'''.replace("\\\\", "\\")


@pytest.fixture
def diary(tmp_path):
    path = tmp_path / "diary.py"
    path.write_text(PLUGIN)
    return path


def test_a_listener_of_the_users_own(runs, diary):
    listeners = "listeners=[{name='diary', name_of_file='heard.jsonl'}]"
    folder = runs.train("a", f"plugins=[{str(diary)!r}]", listeners).folder
    heard = [json.loads(line) for line in (folder / "heard.jsonl").read_text().splitlines()]
    heard = [event for event in heard if event[0] != "note"]
    every = ["mood", "near", "same"]
    assert heard[0] == ["start", "tiny", 0]
    assert [event[1] for event in heard if event[0] == "step"] == list(range(1, 25))
    assert [event for event in heard if event[0] not in ("step", "start")] == [
        ["losses", 5, every],
        ["losses", 10, every],
        ["losses", 12, ["near", "same"]],
        ["scores", 12, "dev", every],
        ["losses", 15, every],
        ["losses", 20, every],
        ["losses", 24, every],
        ["scores", 24, "dev", every],
        ["end", 24],
        ["close"],
    ]
    assert heard.index(["step", 5]) + 1 == heard.index(["losses", 5, every])
    # Predicting needs no listener, but the recipe names its file.
    assert Predictor.load(folder).predict("mood", ["a fine film"])


def test_an_interrupted_run_is_closed_but_not_ended(runs):
    heard = []

    class Short(Listener):
        def start(self, folder, config, step):
            heard.append(("start", step))

        def end(self, result):
            heard.append(("end",))

        def close(self):
            heard.append(("close",))

    settings = ["save_every=1", "train.max_steps=6"]
    with pytest.raises(runs.Crash):
        runs.train("a", *settings, listeners=[Short(), runs.CrashAfter(4)])
    runs.train("a", *settings, resume=True, listeners=[Short()])
    assert heard == [("start", 0), ("close",), ("start", 3), ("end",), ("close",)]


def test_what_is_read_and_scored_is_told(runs):
    reading, scoring = {}, {}

    class Progress(Listener):
        def reading(self, what, done, total):
            assert 0 < done <= total
            reading[what] = (done, total)

        def scoring(self, task, done, total):
            assert 0 < done <= total
            scoring[task] = (done, total)

    runs.train("a", "train.max_steps=1", listeners=[Progress()])
    splits = [f"{task} {split}" for split in ("train", "dev") for task in ("mood", "same", "near")]
    assert list(reading) == splits
    assert all(done == total for done, total in reading.values())
    assert scoring == {"mood": (18, 18), "same": (16, 16), "near": (12, 12)}


# --- the log -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "lines", "kept"),
    [
        (None, 0, b""),
        (b"1\n2\n3\n", 2, b"1\n2\n"),
        (b"1\n2\n3\n", 3, b"1\n2\n3\n"),
        (b"1\n2\n3\n", 0, b""),
        (b"1\n2\n{half a li", 2, b"1\n2\n"),
        (b"1\n", 3, b"1\n"),  # someone took lines away
    ],
)
def test_the_log_is_cut_to_the_lines_that_count(tmp_path, text, lines, kept):
    path = tmp_path / "metrics.jsonl"
    if text is not None:
        path.write_bytes(text)
    log = MetricsLog()
    log.lines = lines
    log.start(tmp_path, {}, 0)
    assert path.read_bytes() == kept
    assert log.lines == kept.count(b"\n")
    log._write({"a": 1})
    log.flush()
    assert path.read_bytes() == kept + b'{"a": 1}\n'
    assert log.lines == kept.count(b"\n") + 1
    log.close()


# --- TensorBoard -------------------------------------------------------------------------


def read_events(folder):
    """Read what TensorBoard would show: scalars by tag."""
    # Files are read in the order of their names, which count in seconds: too coarse for here.
    copy = folder.with_name(f"{folder.name}-events")
    shutil.rmtree(copy, ignore_errors=True)
    copy.mkdir()
    files = sorted((folder / "tensorboard").iterdir(), key=lambda path: path.stat().st_mtime_ns)
    for i, path in enumerate(files):
        shutil.copy(path, copy / f"events.out.tfevents.{i:03}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its imports complain of their own
        accumulators = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
        found = accumulators.EventAccumulator(str(copy))
        found.Reload()
        return {tag: found.Scalars(tag) for tag in found.Tags()["scalars"]}


def test_tensorboard_shows_what_the_log_holds(runs):
    folder = runs.train("a", "listeners=['tensorboard']", "score_first=true").folder
    events = read_events(folder)
    log = runs.log("a")
    for task in ("mood", "same", "near"):
        told = [(x["step"], x["losses"][task]) for x in log if task in x.get("losses", ())]
        assert [(e.step, e.value) for e in events[f"loss/{task}"]] == [
            (step, pytest.approx(loss)) for step, loss in told
        ]
    assert [e.step for e in events["rate"]] == [5, 10, 12, 15, 20, 24]
    assert [e.step for e in events["dev/mood/accuracy"]] == [0, 12, 24]
    sums = [x["summary"]["sum"] for x in log if x["event"] == "scores"]
    assert [e.value for e in events["dev/sum"]] == pytest.approx(sums)


def test_tensorboard_shows_no_step_twice(runs):
    settings = [
        "listeners=['tensorboard']",
        "score_first=true",
        "log_every=1",
        "save_every=4",
    ]
    runs.train_broken("a", *settings, crashes=(3, 7, 14))
    events = read_events(runs.folder / "a")
    assert [e.step for e in events["rate"]] == list(range(1, 25))
    assert [e.step for e in events["dev/sum"]] == [0, 12, 24]


def test_without_tensorboard_the_run_goes_on(runs, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    folder = runs.train("a", "listeners=['tensorboard']", "train.max_steps=1").folder
    assert not (folder / "tensorboard").exists()
