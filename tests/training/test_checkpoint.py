"""Files are written whole or not at all, and what was saved comes back exactly."""

from __future__ import annotations

import errno
import json
import os
import stat
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from plait.config import StageConfig
from plait.data.storage import atomic_path, remove_leftovers, write_text
from plait.errors import DiskFullError, RunError, UsageError
from plait.methods.losses import LOSSES
from plait.model import weights
from plait.model.weights import load_weights, save_weights
from plait.training.checkpoint import load_checkpoint, load_state, save_checkpoint
from plait.training.loop import Cursor, TrainState
from plait.training.optimizer import build_optimizer, freeze, set_rate

RUST_FULL = "Error while serializing: I/O error: No space left on device (os error 28)"


# --- one file ----------------------------------------------------------------------------


def write_half(path: Path, error: BaseException) -> None:
    with atomic_path(path) as temporary:
        temporary.write_text("half")
        raise error


@pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt(), OSError(5, "I/O error")])
def test_a_failure_leaves_the_old_file_and_no_other(tmp_path, error):
    path = tmp_path / "a.txt"
    path.write_text("old")
    with pytest.raises(type(error)):
        write_half(path, error)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_the_data_is_on_disk_before_the_name_is(tmp_path, monkeypatch):
    calls = []
    sync, replace = os.fsync, Path.replace
    monkeypatch.setattr(os, "fsync", lambda fd: (calls.append(os.fstat(fd).st_mode), sync(fd))[1])
    monkeypatch.setattr(Path, "replace", lambda a, b: (calls.append("rename"), replace(a, b))[1])
    write_text(tmp_path / "a.txt", "text")
    kinds = [c if c == "rename" else "folder" if stat.S_ISDIR(c) else "file" for c in calls]
    assert kinds == ["file", "rename", "folder"]


# --- a full disk -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)),
        OSError(errno.EDQUOT, os.strerror(errno.EDQUOT)),
        SafetensorError(RUST_FULL),
        SafetensorError(f"I/O error: Disk quota exceeded (os error {errno.EDQUOT})"),
    ],
)
@pytest.mark.parametrize("existed", [True, False])
def test_a_full_disk_is_told_in_one_sentence(tmp_path, error, existed):
    path = tmp_path / "run" / "checkpoint.safetensors"
    path.parent.mkdir()
    if existed:
        path.write_text("old")
    with pytest.raises(DiskFullError) as caught:
        write_half(path, error)
    kept = "what was saved before is whole" if existed else "nothing was written"
    assert str(caught.value) == (
        f"the disk is full: {path} could not be written; {kept}. Free some room"
    )
    assert caught.value.exit_code == 1
    assert [p.read_text() for p in path.parent.iterdir()] == (["old"] if existed else [])


@pytest.mark.parametrize(
    "error",
    [
        SafetensorError("I/O error: Permission denied (os error 13)"),
        OSError(errno.EACCES, "no", ".a.123.tmp"),
        OSError(errno.EROFS, "no", ".a.123.tmp"),
    ],
)
def test_a_place_that_may_not_be_written_is_told_by_its_own_name(tmp_path, error):
    told = rf"{tmp_path}/a cannot be written \((permission denied|read-only file system)\)"
    with pytest.raises(UsageError, match=told):
        write_half(tmp_path / "a", error)


def fill_disk(monkeypatch, suffix: str, writes: int) -> None:
    """Let the first writes of a file succeed, and the disk be full after."""
    done = []

    def save(tensors, path, metadata):
        if suffix in str(path):
            done.append(path)
            if len(done) > writes:
                Path(path).write_bytes(b"half")
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        save_file(tensors, path, metadata=metadata)

    monkeypatch.setattr(weights, "save_file", save)


def test_a_run_goes_on_once_there_is_room(runs, monkeypatch):
    with monkeypatch.context() as patch:
        fill_disk(patch, "checkpoint", 3)
        with pytest.raises(DiskFullError, match="Free some room"):
            runs.train("a", "save_every=3")
    assert load_state(runs.folder / "a" / "checkpoint.safetensors").total_steps == 9
    runs.train("a", "save_every=3", resume=True)
    runs.check_whole("a")  # the files' names, too: nothing half-written is left


def test_room_may_end_before_training(runs, monkeypatch):
    write = Path.write_text

    def full(self, *args, **kwargs):
        if ".run.json." in self.name:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(self, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_text", full)
        with pytest.raises(DiskFullError, match=r"run\.json"):
            runs.train("a")
    for name in (".checkpoint.safetensors.1.tmp", ".tmpAb3xYz"):  # of a process that was killed
        (runs.folder / "a" / name).write_bytes(b"half")
    runs.train("a", resume=True)
    runs.check_whole("a")


# --- what a killed process leaves --------------------------------------------------------


def test_leftovers_are_removed_and_nothing_else(tmp_path):
    ours = [".model.safetensors.77.tmp", ".tmpAb3xYz"]
    others = ["model.safetensors", "notes.tmp", ".lock", "tmp", ".hidden"]
    for name in [*ours, *others]:
        (tmp_path / name).touch()
    remove_leftovers(tmp_path)
    assert {p.name for p in tmp_path.iterdir()} == set(others)


# --- weights and checkpoints -------------------------------------------------------------


def assert_same_model(one, other) -> None:
    a, b = one.state_dict(), other.state_dict()
    assert a.keys() == b.keys()
    assert all(torch.equal(a[name], b[name]) for name in a)


def test_weights_come_back(tmp_path, tiny_model):
    model, other = tiny_model(seed=1), tiny_model(seed=2)
    save_weights(tmp_path / "m.safetensors", model)
    load_weights(tmp_path / "m.safetensors", other)
    assert_same_model(model, other)


def test_masks_and_large_weights_are_not_taken_for_damage(tmp_path, tiny_model):
    """A mask has infinities, and numbers that are all finite may add up to one."""
    models = [tiny_model(seed=seed) for seed in (1, 2)]
    for model in models:
        model.encoder.register_buffer("mask", torch.full((4, 4), -torch.inf).triu(1))
        model.encoder.register_buffer("floor", torch.full((4, 4), torch.finfo(torch.float).min))
    parameter = next(models[0].parameters())
    parameter.data.fill_(1e38)
    save_weights(tmp_path / "m.safetensors", models[0])
    load_weights(tmp_path / "m.safetensors", models[1])
    assert_same_model(*models)


@pytest.mark.parametrize(("name", "value"), [("", torch.inf), ("", torch.nan), ("mask", torch.nan)])
def test_what_is_no_number_is_refused(tmp_path, tiny_model, name, value):
    model = tiny_model()
    model.encoder.register_buffer("mask", torch.zeros(4))
    wanted = f"encoder.{name}" if name else next(iter(dict(model.named_parameters())))
    model.state_dict()[wanted].view(-1)[-1] = value
    save_weights(tmp_path / "m.safetensors", model)
    with pytest.raises(RunError, match=f"is damaged: {wanted} has NaN or infinite values"):
        load_weights(tmp_path / "m.safetensors", model)


@pytest.mark.skipif(os.name != "posix", reason="permissions are POSIX's")
def test_a_model_can_be_read_by_those_who_may_read_the_rest(tmp_path, tiny_model):
    before = os.umask(0o027)
    try:
        save_weights(tmp_path / "m.safetensors", tiny_model())
        write_text(tmp_path / "a.txt", "text")
    finally:
        os.umask(before)
    modes = {stat.S_IMODE(p.stat().st_mode) for p in tmp_path.iterdir()}
    assert modes == {0o640}


STATE = TrainState(
    stage=1,
    epoch=2,
    turn=3,
    step=4,
    total_steps=50,
    cursors={"mood": Cursor(1, 2)},
    stopped=["near"],
    best=0.1 + 0.2,
    best_step=40,
    waits={"": 1, "mood": 0},
    peaks={"": 1 / 3, "mood": -0.25},
    seconds=12.5,
    losses={"mood": [0.1, 1e-9]},
    log_lines=17,
)


def make_optimizer(model, **settings):
    stage = StageConfig(**settings)
    freeze(model, stage)
    return build_optimizer(model, stage)


def update(model, optimizer, spec, batch, task: str = "mood") -> None:
    loss = LOSSES.build(spec.kind.default_loss, "loss", spec)
    optimizer.zero_grad(set_to_none=True)
    loss(model(task, batch.tokens), batch.labels).backward()
    optimizer.step()


@pytest.mark.parametrize("settings", [{}, {"freeze_layers": 1}, {"mode": "last-layer"}])
def test_a_checkpoint_comes_back_and_trains_on_alike(
    tmp_path, tiny_model, tiny_specs, tiny_batch, settings
):
    spec = tiny_specs["mood"]
    model = tiny_model(seed=1)
    optimizer = make_optimizer(model, lr=0.01, **settings)
    set_rate(optimizer, 1.0)
    for seed in range(3):
        update(model, optimizer, spec, tiny_batch(spec, seed=seed))
    path = tmp_path / "checkpoint.safetensors"
    save_checkpoint(path, model, optimizer, STATE)
    assert load_state(path) == STATE

    other = tiny_model(seed=2)
    others = make_optimizer(other, lr=0.01, **settings)
    set_rate(others, 1.0)
    load_checkpoint(path, other, others)
    assert_same_model(model, other)
    for (name, p), q in zip(model.named_parameters(), other.parameters(), strict=True):
        a, b = optimizer.state.get(p, {}), others.state.get(q, {})
        assert a.keys() == b.keys()
        # A head of another task, and what is frozen, never moved.
        moves = p.requires_grad and not name.startswith(("heads.task-same", "heads.task-near"))
        assert set(a) == ({"step", "exp_avg", "exp_avg_sq"} if moves else set())
        assert all(torch.equal(a[key], b[key]) for key in a)
    for m, o in ((model, optimizer), (other, others)):
        update(m, o, spec, tiny_batch(spec, seed=9))
    assert_same_model(model, other)


# --- damage ------------------------------------------------------------------------------


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def garble(path: Path) -> None:
    path.write_bytes(b"\xff" * 1000)


def rewrite_state(path: Path, state: object) -> None:
    save_file(load_file(path), path, metadata={"format": "pt", "state": json.dumps(state)})


@pytest.mark.parametrize(
    "damage",
    [
        cut,
        empty,
        garble,
        lambda p: save_file(load_file(p), p),
        lambda p: rewrite_state(p, [1]),
        lambda p: rewrite_state(p, {"cursors": []}),
        lambda p: rewrite_state(p, TrainState().to_json() | {"new": 1}),
    ],
)
def test_a_damaged_checkpoint(tiny_run, tmp_path, damage):
    path = tmp_path / "checkpoint.safetensors"
    path.write_bytes((tiny_run / path.name).read_bytes())
    damage(path)
    words = "is damaged: |is not a checkpoint this version can read"
    with pytest.raises(RunError, match=rf"checkpoint\.safetensors ({words})"):
        load_state(path)


def test_a_checkpoint_of_another_model(tmp_path, tiny_model):
    path = tmp_path / "checkpoint.safetensors"
    save_file({"model.x": torch.zeros(1)}, path)
    with pytest.raises(RunError, match="does not fit the model its recipe makes: "):
        load_checkpoint(path, tiny_model(), None)
