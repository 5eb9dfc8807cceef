"""A trained run becomes the beginning of another: its encoder, its tokenizer, its heads."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from plait.data import Tokenizer, find_files, find_root
from plait.data.storage import hash_file
from plait.errors import DataError, EncoderError, RecipeError, RunError
from plait.inference.folders import RunFolder
from plait.model.encoder import build_encoder
from plait.model.sources import find_encoder
from plait.model.weights import read_numbers

if TYPE_CHECKING:
    from plait.config import RunConfig, TaskConfig
    from plait.model.encoder import Encoder
    from plait.model.multitask import MultitaskModel

SAME_ENCODER = ("source", "architecture", "pooling", "segments")
"""Settings of the encoder that the run's weights go with; others may be set anew."""


@dataclass(frozen=True, slots=True)
class Start:
    """What a run starts from: another run, or, once it has a checkpoint, its own folder."""

    folder: RunFolder
    is_resumed: bool
    facts: dict[str, Any]
    """For run.json: `run`, the folder of the other, and `sha256` of its weights."""
    encoder_facts: dict[str, Any]
    """Where the run's own encoder came from, as in its run.json."""
    tasks: dict[str, TaskConfig] = field(default_factory=dict)
    """Those of the run; empty where it is resumed."""

    @classmethod
    def find(cls, config: RunConfig, own: RunFolder) -> Start | None:
        """Find what a recipe starts from, and refuse what it cannot; None for the plain encoder."""
        if config.start is None:
            return None
        if own.checkpoint.exists():
            info = own.read_json(own.info)
            return cls(own, True, info.get("start", {}), info["encoder"])
        folder = RunFolder(Path(config.start.run))
        if not folder.path.is_dir():
            raise RunError(f"there is no run at {folder.path} to start from")
        theirs = folder.read_config()
        folder.require_model()
        for key in SAME_ENCODER:
            ours, known = getattr(config.encoder, key), getattr(theirs.encoder, key)
            if ours != known:
                raise RecipeError(
                    f"encoder.{key} = {ours!r}, but {folder.path}, where this run starts, has "
                    f"{known!r}; remove the setting"
                )
        facts = {"run": str(folder.path.resolve()), "sha256": hash_file(folder.weights)}
        encoder_facts = folder.read_json(folder.info)["encoder"]
        return cls(folder, False, facts, encoder_facts, dict(theirs.tasks))

    def build_encoder(self, config: RunConfig) -> Encoder:
        """Make an encoder of the run's shape; its weights come with `fill`."""
        shape = self.folder.read_json(self.folder.encoder)
        encoder = build_encoder(shape, config.encoder.architecture)
        encoder.set_dropout(config.encoder.dropout, config.encoder.attention_dropout)
        return encoder

    def taken_over(self, config: RunConfig) -> list[str]:
        """Name the tasks whose heads and adapters are the run's."""
        return [
            name
            for name, task in config.tasks.items()
            if name in self.tasks and not changes(self.tasks[name], task)
        ]

    def fill(self, model: MultitaskModel, config: RunConfig) -> None:
        """Copy the run's weights into a new model: the encoder and the unchanged tasks."""
        if self.is_resumed:  # the checkpoint has them
            return
        weights = read_numbers(self.folder.weights, dict(model.named_parameters()))
        wanted = set(model.shared_parameters())
        for name in self.taken_over(config):
            wanted |= set(model.head_parameters(name))
        own = model.state_dict()
        # Buffers of the encoder, where it has any, belong to it as well.
        wanted |= {name for name in own if name.startswith("encoder.")}
        missing = [n for n in wanted if n not in weights or weights[n].shape != own[n].shape]
        if missing:
            raise RunError(
                f"{self.folder.weights} does not fit the model its recipe makes: {min(missing)}"
            )
        model.load_state_dict({**own, **{name: weights[name] for name in wanted}})

    def notes(self, config: RunConfig, out: Path) -> list[str]:
        """Return notes on what is not taken over: calibration, length, changed heads."""
        notes = []
        taken_over = [] if self.is_resumed else self.taken_over(config)
        if taken_over and config.encoder.max_length < (theirs := self._max_length()):
            notes.append(
                f"{', '.join(taken_over)}: inputs are now truncated at {config.encoder.max_length} "
                f"tokens (encoder.max_length); {self.folder.path} used {theirs}; keep it with "
                f"-o encoder.max_length={theirs}"
            )
        if taken_over and self.folder.calibration.is_file():
            notes.append(
                f"the calibration of {self.folder.path} is not taken over, because the model "
                f"changes; after training, run `plait calibrate {quote(str(out))}`"
            )
        for name, task in config.tasks.items():
            if name in self.tasks and (changed := changes(self.tasks[name], task)):
                notes.append(
                    f"{name}: its {', '.join(changed)} changed since {self.folder.path}; "
                    "its head is trained from scratch"
                )
        return notes

    def _max_length(self) -> int:
        """Return the run's encoder.max_length, in tokens."""
        return self.folder.read_config().encoder.max_length


def changes(old: TaskConfig, new: TaskConfig) -> list[str]:
    """Return the settings that differ so that the old head does not fit the new task."""
    found = [
        key
        for key in ("kind", "labels", "range", "inputs", "head", "adapter")
        if getattr(old, key) != getattr(new, key)
    ]
    found += ["text"] if len(old.text) != len(new.text) else []
    # Other settings of the same loss, such as weights, do not change the meaning of the outputs.
    names = [task.loss["name"] if task.loss else task.kind.default_loss for task in (old, new)]
    return found + (["loss"] if names[0] != names[1] else [])


def find_tokenizer(config: RunConfig) -> Tokenizer:
    """Return the tokenizer of the run that a recipe starts from, or of its encoder."""
    started = None if config.start is None else RunFolder(Path(config.start.run)).tokenizer
    if started is not None and started.is_file():  # the run may be gone by now
        return Tokenizer.from_file(started)
    source = config.encoder
    files = find_encoder(source.source, revision=source.revision, sha256=source.sha256)
    return Tokenizer.from_file(files.tokenizer)


def find_width(config: RunConfig) -> int:
    """Return the width of the encoder that a recipe starts from; 0 where its files do not say."""
    source = config.encoder
    started = None if config.start is None else RunFolder(Path(config.start.run)).encoder
    if started is not None and started.is_file():
        path = started
    else:
        try:
            files = find_encoder(source.source, revision=source.revision, sha256=source.sha256)
        except EncoderError:  # building the encoder reports the error
            return 0
        path = files.config
    shape = json.loads(path.read_text(encoding="utf-8"))
    return int(shape.get("hidden_size") or shape.get("dim") or shape.get("d_model") or 0)


def find_kept(config: RunConfig, data: str | None) -> tuple[list[str], list[str]]:
    """Return the untrained tasks that can be scored, and notes on those that cannot."""
    scored, notes = [], []
    trained = config.trained_tasks if config.start is not None else tuple(config.tasks)
    for name in (task for task in config.tasks if task not in trained):
        try:
            root = find_root(config.data, data)
            for file in config.tasks[name].dev_files:
                find_files(file.path, root)
        except DataError as error:
            notes.append(f"{name} is kept but not scored: {error}")
        else:
            scored.append(name)
    return scored, notes
