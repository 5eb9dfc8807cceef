"""A task file and some runs become figures: trials, each a fine-tuning on a few rows and a score.

Each trial draws some training rows, puts a fresh head on a copy of an encoder, fine-tunes both
for a fixed time and scores dev, which nothing is trained on or chosen by. The encoder that the
run began with goes through the same trials: the same rows, the same start of the head.
"""

from __future__ import annotations

import math
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from plait.config.choose import complete, find_facts
from plait.config.reading import read_chain, resolve
from plait.data import Tokenizer
from plait.data.loading import load_data
from plait.data.storage import hash_file
from plait.errors import Interrupted, UsageError, counted
from plait.fewshot.journal import Journal, hash_encoder, name_plan
from plait.inference.build import (
    build_collator,
    build_model,
    build_tasks,
    choose_device,
    choose_precision,
)
from plait.inference.predictor import Predictor
from plait.inference.scoring import Scorer, score_baseline
from plait.model.encoder import load_encoder
from plait.model.sources import find_encoder
from plait.training.beginning import begin_heads, find_beginning
from plait.training.build import Parts, build_stage, drop_heads
from plait.training.loop import TrainState, run_stage, seed_everything, task_seed
from plait.training.plan import Plan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from plait.config import EncoderConfig, RunConfig
    from plait.data import Dataset
    from plait.fewshot.journal import Key
    from plait.inference.predictor import Progress
    from plait.inference.scoring import Task
    from plait.model.encoder import Encoder
    from plait.tasks import TaskSpec

RAW = "raw"
"""What the encoder is called that the run began with."""

_KEYS = {"name", "about", "seed", "plugins", "precision", "data", "tasks", "train"}


@dataclass(frozen=True, slots=True)
class Figures:
    """What one encoder came to with so many examples, draw by draw."""

    shots: int
    draws: tuple[float, ...]
    """The task's figure on dev; nan where there is none, as of a correlation with a constant."""

    @property
    def mean(self) -> float:
        """The mean over draws, a nan counting as 0."""
        return float(np.mean(np.nan_to_num(self.draws)))

    @property
    def spread(self) -> float:
        """Standard deviation over draws (n - 1); nan for one draw."""
        many = len(self.draws) > 1
        return float(np.std(np.nan_to_num(self.draws), ddof=1)) if many else math.nan

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        draws = [_finite(value) for value in self.draws]
        return {
            "shots": self.shots,
            "mean": self.mean,
            "spread": _finite(self.spread),
            "draws": draws,
        }


@dataclass(frozen=True, slots=True)
class FewShot:
    """How well encoders learn one task from few examples."""

    task: str
    metric: str
    baseline: float
    """The figure of the majority class, or the mean score, of all training rows."""
    num_train: int
    num_dev: int
    seed: int
    settings: dict[str, Any]
    """Of the fine-tuning."""
    encoders: dict[str, list[Figures]]
    """By 'raw' or the run's folder, a Figures for each number of shots."""

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "task": self.task,
            "metric": self.metric,
            "baseline": _finite(self.baseline),
            "train_rows": self.num_train,
            "dev_rows": self.num_dev,
            "seed": self.seed,
            "settings": self.settings,
            "encoders": {name: [f.to_json() for f in fs] for name, fs in self.encoders.items()},
        }


@dataclass(frozen=True, slots=True)
class _Contender:
    """An encoder with what it reads texts by."""

    name: str
    encoder: Encoder
    config: EncoderConfig
    tokenizer: Tokenizer

    def identify(self, split: Mapping[str, Dataset]) -> str:
        """Name it by its weights, its settings, and the rows as it reads them."""
        rows = [dataset.key for dataset in split.values()]
        return hash_encoder(self.encoder, self.config.model_dump_json(), *rows)


@dataclass(frozen=True, slots=True)
class _Entry:
    """An encoder, the task's rows as it reads them, and its trials that are done."""

    contender: _Contender
    rows: dict[str, Dataset]
    """Train and dev."""
    journal: Journal


def measure_few_shot(
    run: Path | str,
    task_file: Path | str,
    shots: Sequence[int] = (16, 32, 64),
    *,
    draws: int = 5,
    against: Sequence[Path | str] = (),
    data: str | None = None,
    overrides: Sequence[str] = (),
    device: str = "auto",
    note: Callable[[str], None] | None = None,
    progress: Progress | None = None,
) -> FewShot:
    """Measure how well a run's encoder, the one it began with and others learn a new task.

    `task_file` is a recipe with one task; what it leaves out is chosen for the number of shots
    by plait.config.choose. `overrides` come last. The rows of a draw follow from the seed and draw
    alone: those of fewer shots are among those of more, and every encoder gets the same. Where it
    is stopped, trials that are done are kept, and the same call goes on with them. Another
    measurement that shares some of these trials may use them in between; it leaves them for this
    one.
    """
    config = read_task(task_file, overrides)
    (name,) = config.tasks
    place = choose_device(device)
    contenders = list(_find_contenders(run, against, config, note))
    split = _load(contenders[0], config, data, progress)
    tasks = build_tasks(config)
    _check_shots(shots, draws, tasks[name].spec, name, len(split["train"]))
    baseline = score_baseline(tasks, {name: split["train"]}, {name: split["dev"]})
    facts = {
        "recipe": config.model_dump(mode="json"),
        "plugins": [hash_file(Path(plugin)) for plugin in config.plugins],
        "device": [place.type, torch.get_num_threads()],
    }
    entries = []
    for contender in contenders:
        rows = _load(contender, config, data, progress)
        entries.append(_Entry(contender, rows, Journal(contender.identify(rows), facts)))
    keys = [(number, draw) for draw in range(draws) for number in shots]
    plan = name_plan([entry.journal for entry in entries], keys)

    def tell_kept() -> str:
        num_kept = sum(len(entry.journal.kept.intersection(keys)) for entry in entries)
        return counted(num_kept, "trial") if num_kept else ""

    if note is not None and (kept := tell_kept()):
        note(f"going on with {kept} of a measurement that was stopped")
    try:
        for trial, entry, key in _find_missing(entries, keys, config, tasks, place, progress):
            train = entry.rows["train"]
            chosen = train.select(_draw(config, train, *key).tolist())
            figure = trial.run(key[1], chosen, entry.rows["dev"])
            for each in entries:  # what others finish of them meanwhile is wanted, too
                each.journal.begin(plan)
            entry.journal.add(key, figure)
    except KeyboardInterrupt:
        if not (kept := tell_kept()):
            raise Interrupted("stopped before a trial was finished; nothing is kept") from None
        kept = f"stopped with {kept} of {len(entries) * len(keys)} finished and kept"
        raise Interrupted(f"{kept}; the same command goes on from there") from None
    found = {
        entry.contender.name: [
            Figures(number, tuple(entry.journal.figures[number, draw] for draw in range(draws)))
            for number in shots
        ]
        for entry in entries
    }
    for entry in entries:
        entry.journal.end(plan)
    return FewShot(
        task=name,
        metric=tasks[name].metric,
        baseline=baseline.primary[name],
        num_train=len(split["train"]),
        num_dev=len(split["dev"]),
        seed=config.seed,
        settings=config.train.model_dump(mode="json"),
        encoders=found,
    )


def read_task(path: Path | str, overrides: Sequence[str] = ()) -> RunConfig:
    """Read a file with one task into a recipe that fine-tunes it."""
    if not str(path).endswith(".toml"):
        raise UsageError(f"the task {str(path)!r} is no .toml file with a [tasks.NAME] in it")
    config = resolve({"name": "few-shot", **read_chain(str(path))}, overrides, str(path))
    if more := sorted(config.model_fields_set - _KEYS):
        raise UsageError(
            f"{path}: {more[0]} has no meaning for a few-shot task, whose encoder and stages are "
            "given; leave it out"
        )
    if len(config.tasks) != 1:
        raise UsageError(f"{path} has {len(config.tasks)} tasks; a few-shot task is one")
    (name,) = config.tasks
    for split in ("train", "dev"):
        if not getattr(config.tasks[name], split):
            raise UsageError(f"{path}: tasks.{name} names no {split} files")
    if config.train.kind["name"] != "finetune" or config.train.early_stopping is not None:
        raise UsageError(
            f"{path}: a few-shot task is fine-tuned for a fixed time; leave out train.kind and "
            "train.early_stopping"
        )
    Plan.build(config)
    return config


def draw_rows(
    spec: TaskSpec, labels: NDArray[Any], count: int, generator: np.random.Generator
) -> NDArray[np.int64]:
    """Draw rows without replacement: of classes or labels one each in turn, while they last.

    Rows of which no label holds have a turn as well. The first so many of them are what a smaller
    count would have drawn.
    """
    if spec.kind.form == "number":
        return generator.permutation(len(labels))[:count]
    if spec.kind.form == "independent":
        members = [*labels.T.astype(bool), ~labels.any(axis=1)]
    else:
        members = [labels == number for number in range(len(spec.labels))]
    queues = [generator.permutation(np.flatnonzero(rows)) for rows in members]
    drawn: dict[int, None] = {}  # a row with several labels stands in several queues
    for turn in range(max(map(len, queues))):
        for number in generator.permutation(len(queues)):
            drawn |= dict.fromkeys(queues[number][turn : turn + 1].tolist())
        if len(drawn) >= count:
            break
    return np.array(list(drawn)[:count], dtype=np.int64)


def _draw(config: RunConfig, train: Dataset, count: int, draw: int) -> NDArray[np.int64]:
    ((name, task),) = config.tasks.items()
    assert train.labels is not None
    generator = np.random.default_rng([config.seed, task_seed(name), draw])
    return draw_rows(task, train.labels.numpy(), count, generator)


def _check_shots(
    shots: Sequence[int], draws: int, spec: TaskSpec, name: str, num_rows: int
) -> None:
    if not shots or min(shots) < 1 or len(set(shots)) < len(shots):
        raise UsageError("the numbers of shots are different whole numbers above 0")
    if draws < 1:
        raise UsageError(f"{draws} draws give no figure; take 1 or more")
    if max(shots) > num_rows:
        raise UsageError(f"{max(shots)} shots are more than the {num_rows} training rows of {name}")
    if spec.kind.form != "independent" and min(shots) < len(spec.labels):
        raise UsageError(
            f"{min(shots)} shots are fewer than the {len(spec.labels)} classes of {name}"
        )


def _find_contenders(
    run: Path | str,
    against: Sequence[Path | str],
    config: RunConfig,
    note: Callable[[str], None] | None,
) -> Iterator[_Contender]:
    """Yield the encoder the run began with, then the run's, then the others'."""
    first = Predictor.load(run, device="cpu")
    source = first.config.encoder
    files = find_encoder(source.source, revision=source.revision, sha256=source.sha256)
    raw = load_encoder(
        files,
        architecture=source.architecture,
        dropout=source.dropout,
        attention_dropout=source.attention_dropout,
    )
    yield _Contender(RAW, raw, source, Tokenizer.from_file(files.tokenizer))
    (task,) = config.tasks.values()
    paths = {file.path for file in (*task.train, *task.dev)}
    for folder in (run, *against):
        predictor = first if folder is run else Predictor.load(folder, device="cpu")
        known = predictor.config.tasks.values()
        shared = paths & {file.path for t in known for file in (*t.train, *t.unlabelled, *t.dev)}
        if shared and note is not None:
            note(f"the recipe of {folder} names {min(shared)} too: the task may not be new to it")
        encoder = predictor.model.encoder
        own = predictor.config.encoder
        encoder.set_dropout(own.dropout, own.attention_dropout)
        yield _Contender(str(folder), encoder, predictor.config.encoder, predictor.tokenizer)


def _find_missing(
    entries: Sequence[_Entry],
    keys: Sequence[Key],
    config: RunConfig,
    tasks: dict[str, Task],
    device: torch.device,
    progress: Progress | None,
) -> Iterator[tuple[_Trial, _Entry, Key]]:
    """Yield the trials that are not done, one encoder after the other."""
    every = [(entry, key) for entry in entries for key in keys]
    for number, (entry, key) in enumerate(every, 1):
        if key not in entry.journal.figures:
            place = f"({number}/{len(every)})"
            yield _Trial(entry.contender, config, tasks, device, place, progress), entry, key


def _load(
    contender: _Contender, config: RunConfig, data: str | None, progress: Progress | None
) -> dict[str, Dataset]:
    """Read the task's train and dev rows with an encoder's own tokenizer."""
    (name,) = config.tasks
    config = config.model_copy(update={"encoder": contender.config})
    given = (config, contender.tokenizer)
    return {
        "train": load_data(*given, "train", data=data, progress=progress)[name],
        "dev": load_data(*given, "dev", data=data, progress=progress)[name],
    }


@dataclass(frozen=True, slots=True)
class _Trial:
    """One fine-tuning of a copy of an encoder, and its score."""

    contender: _Contender
    config: RunConfig
    tasks: dict[str, Task]
    device: torch.device
    place: str
    """Which of all trials it is, in words."""
    progress: Progress | None

    def run(self, draw: int, train: Dataset, dev: Dataset) -> float:
        """Fine-tune on some rows and return the task's figure on dev."""
        (name,) = self.tasks
        mixed = np.random.SeedSequence((self.config.seed, task_seed(name), draw))
        config = self.config.model_copy(
            update={
                "encoder": self.contender.config,
                "seed": int(mixed.generate_state(1)[0]),
            }
        )
        facts = find_facts(config, {name: len(train)}, {name: train})
        config, _ = complete(config, facts, self.contender.encoder.width)
        tasks = build_tasks(config)
        seed_everything(config.seed)  # the head starts from the draw
        model = build_model(config, deepcopy(self.contender.encoder), tasks).to(self.device)
        parts = Parts(
            Plan.build(config),
            model,
            self.contender.tokenizer,
            build_collator(config, self.contender.tokenizer),
            self.device,
            choose_precision(config.precision, self.device),
            {},
        )
        for index in range(len(config.stages)):
            self._train(parts, index, {name: train})
        scorer = Scorer(
            model,
            tasks,
            parts.collator,
            autocast=parts.autocast,
            progress=lambda _, done, total: self._tell("scoring", done, total),
        )
        return scorer.score({name: dev}).primary[name]

    def _train(self, parts: Parts, index: int, train: Mapping[str, Dataset]) -> None:
        """Train one stage; heads that begin as a regression do so once only tasks train."""
        kind = parts.plan.stages[index].kind
        begin = (
            None if kind.pretrains else partial(begin_heads, parts, find_beginning(parts), train)
        )
        stage = build_stage(parts, index, train, restore=begin)
        parts.model.train()
        (rows,) = map(len, train.values())
        try:
            for record in run_stage(stage, TrainState()):
                self._tell(f"{rows} examples", record.step, record.num_steps)
        finally:
            stage.step.runner.close()
        drop_heads(parts)

    def _tell(self, what: str, done: int, total: int) -> None:
        if self.progress is not None:
            self.progress(f"{self.contender.name}, {what} {self.place}", done, total)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
