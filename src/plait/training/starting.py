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
                    f"{known!r}; leave it out"
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
        """Put the run's weights into a fresh model: the encoder's, and tasks' that are the same."""
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
        """Say what of the run is left behind: a calibration, tokens, heads of changed tasks."""
        told = []
        taken_over = [] if self.is_resumed else self.taken_over(config)
        if taken_over and config.encoder.max_length < (theirs := self._max_length()):
            told.append(
                f"{', '.join(taken_over)}: {self.folder.path} read {theirs} tokens of an input, "
                f"and this run reads {config.encoder.max_length} (encoder.max_length): longer "
                f"inputs lose more; -o encoder.max_length={theirs} reads as much as before"
            )
        if taken_over and self.folder.calibration.is_file():
            told.append(
                f"the calibration of {self.folder.path} belongs to its model, not to this one, and "
                f"is left behind; once trained, `plait calibrate {quote(str(out))}` fits one"
            )
        for name, task in config.tasks.items():
            if name in self.tasks and (changed := changes(self.tasks[name], task)):
                told.append(
                    f"{name}: its {', '.join(changed)} changed since {self.folder.path}; "
                    "its head begins anew"
                )
        return told

    def _max_length(self) -> int:
        """Return how many tokens of an input the run read."""
        return self.folder.read_config().encoder.max_length


def changes(old: TaskConfig, new: TaskConfig) -> list[str]:
    """Return what of a task's meaning differs, so that a head of the old is none of the new."""
    found = [
        key
        for key in ("kind", "labels", "range", "inputs", "head", "adapter")
        if getattr(old, key) != getattr(new, key)
    ]
    found += ["text"] if len(old.text) != len(new.text) else []
    # Outputs mean the same under other settings of the same loss, such as other weights.
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
        except EncoderError:  # whoever needs the encoder says what is wrong with it
            return 0
        path = files.config
    shape = json.loads(path.read_text(encoding="utf-8"))
    return int(shape.get("hidden_size") or shape.get("dim") or shape.get("d_model") or 0)


def find_kept(config: RunConfig, data: str | None) -> tuple[list[str], list[str]]:
    """Return the tasks that are kept but not trained and can be scored; and why others cannot."""
    scored, told = [], []
    trained = config.trained_tasks if config.start is not None else tuple(config.tasks)
    for name in (task for task in config.tasks if task not in trained):
        try:
            root = find_root(config.data, data)
            for file in config.tasks[name].dev_files:
                find_files(file.path, root)
        except DataError as error:
            told.append(f"{name} is kept, but not scored: {error}")
        else:
            scored.append(name)
    return scored, told
