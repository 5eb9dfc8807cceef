"""Load a trained run as a Predictor, and predict texts with it."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Self, get_args

import numpy as np
import torch

from plait.data import ONE_TEXT, Collator, Dataset, SplitName, Tokenizer, find_implied
from plait.data.loading import load_data
from plait.data.storage import hash_file
from plait.errors import RunError, UsageError, suggest
from plait.inference.answers.stream import answer_file, refuse_abstaining
from plait.inference.answers.vectors import embed_file
from plait.inference.build import (
    build_collator,
    build_model,
    build_tasks,
    choose_device,
    choose_precision,
)
from plait.inference.calibration import Scaling, plain_scalings, read_scalings
from plait.inference.folders import RunFolder, hash_plugins
from plait.inference.scoring import Scorer, Scores, Task, choose_room, score_answers
from plait.inference.thresholds import choose_threshold
from plait.model.dense import keep_copies
from plait.model.encoder import build_encoder
from plait.model.inference import Form, pack, why_not
from plait.model.weights import load_weights
from plait.registry import load_plugins
from plait.types import Prediction

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from plait.config import RunConfig
    from plait.inference.answers.stream import FileAnswers
    from plait.inference.answers.vectors import FileVectors
    from plait.inference.thresholds import Threshold
    from plait.model.multitask import MultitaskModel
    from plait.tasks.kind import Floats

    Progress = Callable[[str, int, int], None]
    """Called with the name of the work, the amount done and the total."""

Text = str | tuple[str, ...]
"""One text, or the two texts of a pair."""


PRECISIONS = ("auto", "run", "fp32", "bf16", "int8")


@dataclass(frozen=True, slots=True)
class Answerer(ABC):
    """The interface of trained models: a single model or an ensemble."""

    folder: Path
    config: RunConfig
    tasks: dict[str, Task]
    scalings: dict[str, Scaling]
    """The calibration of each calibrated task."""

    @abstractmethod
    def identify(self) -> str:
        """Return the hash of the weights, to which a calibration belongs."""

    @abstractmethod
    def tokenise(self, texts: Sequence[tuple[str, ...]], *, blank: bool = False) -> Dataset:
        """Make a data set of texts given by hand, which may be `blank` only if that is said."""

    @abstractmethod
    def read(
        self,
        config: RunConfig,
        split: SplitName,
        *,
        data: str | None = None,
        tasks: Sequence[str] | None = None,
        labelled: bool = True,
        progress: Progress | None = None,
    ) -> dict[str, Dataset]:
        """Read a split of a recipe's files with the model's tokenizer."""

    def load_split(
        self,
        split: SplitName,
        *,
        data: str | None = None,
        tasks: Sequence[str] | None = None,
        labelled: bool = True,
        progress: Progress | None = None,
    ) -> dict[str, Dataset]:
        """Read a split of the recipe's files, or of files with the same names in `data`."""
        if split not in (known := get_args(SplitName)):
            raise UsageError(f"unknown split {split!r}{suggest(str(split), known)}")
        return self.read(
            self.config, split, data=data, tasks=tasks, labelled=labelled, progress=progress
        )

    def answer(self, task: str, dataset: Dataset, rows: torch.Tensor | None = None) -> Floats:
        """Return probabilities [examples, classes] or scores [examples], in order.

        `dataset` must have been read by this model. `rows` are the row numbers to predict, in
        increasing order; all by default. Probabilities are calibrated if the run is.
        """
        return self._calibrate(task, self.answer_uncalibrated(task, dataset, rows))

    def _calibrate(self, task: str, answers: Floats) -> Floats:
        scale = self.scalings.get(task)
        return answers if scale is None else scale(answers)

    def answer_together(self, tasks: Sequence[str], dataset: Dataset) -> dict[str, Floats]:
        """Return what `answer` returns, for several tasks on the same rows."""
        return {task: self.answer(task, dataset) for task in tasks}

    def share_passes(self, tasks: Sequence[str]) -> list[tuple[str, ...]]:
        """Group tasks that share one pass of the encoder."""
        return [(task,) for task in tasks]

    @abstractmethod
    def answer_uncalibrated(
        self, task: str, dataset: Dataset, rows: torch.Tensor | None = None
    ) -> Floats:
        """Return what `answer` returns, before calibration."""

    @abstractmethod
    def watched(self, progress: Progress) -> Self:
        """Return a copy that calls `progress` with the task, the rows done and the total."""

    @abstractmethod
    def fingerprint(self) -> str:
        """Return a hash that is equal for models whose predictions are bit-identical."""

    def task(self, name: str) -> Task:
        """Return a task by its name."""
        if name not in self.tasks:
            raise UsageError(f"{self.folder} has no task {name!r}{suggest(name, self.tasks)}")
        return self.tasks[name]

    def predict(self, task: str, texts: Sequence[Text]) -> list[Prediction]:
        """Return the prediction of one task for each text, or pair of texts, in order."""
        self.task(task)
        require_list(texts)
        rows = [self.take_texts(task, text) for text in texts]
        if not rows:
            return []
        return [self.describe(task, answer) for answer in self.answer(task, self.tokenise(rows))]

    def take_texts(self, task: str, text: Text) -> tuple[str, ...]:
        """Return an example's texts as a tuple; raise UsageError for a wrong number of texts."""
        row = tuple(text) if isinstance(text, tuple | list) else (text,)
        spec = self.task(task).spec
        if len(row) != len(spec.text):
            wanted = "two texts" if spec.is_pair else "one text"
            raise UsageError(f"task {task!r} takes {wanted} per example, got {len(row)}")
        return row

    def predict_file(
        self,
        path: str | Path,
        out: str | Path,
        *,
        tasks: Sequence[str] | None = None,
        text: Sequence[str] | None = None,
        probabilities: bool = False,
        threshold: float | Mapping[str, float] | None = None,
        review: str | Path | None = None,
        separator: str | None = None,
        quoting: bool = True,
        skip_empty: bool = False,
        resume: bool = False,
        progress: Progress | None = None,
    ) -> FileAnswers:
        """Predict every row of a file of any size into another: CSV, TSV, JSONL or Parquet.

        `tasks` are all suitable ones by default; `text` are the columns to read. Predictions with a
        confidence below `threshold` (one number, or one per task) are marked for review; `review`
        is a file for those rows. `separator` and `quoting` are as in a recipe's file. With
        `skip_empty`, rows without a text get empty predictions instead of an error. `resume`
        continues an interrupted call.
        """
        return answer_file(
            self,
            Path(path),
            Path(out),
            tasks=tasks,
            text=text,
            probabilities=probabilities,
            threshold=threshold,
            review=None if review is None else Path(review),
            separator=separator,
            quoting=quoting,
            skip_empty=skip_empty,
            resume=resume,
            progress=progress,
        )

    def choose_threshold(
        self, task: str, accuracy: float, split: SplitName = "dev", *, data: str | None = None
    ) -> Threshold:
        """Choose the threshold with which predictions reach an accuracy on a split."""
        refuse_abstaining(task, self.task(task).spec.kind)
        datasets = self.load_split(split, data=data, tasks=[task])
        if task not in datasets:
            raise UsageError(
                f"the recipe of {self.folder} has no {split} files for {task}, which are "
                "needed to choose a threshold; set the threshold yourself"
            )
        labels = datasets[task].labels
        assert labels is not None
        answers = [self.describe(task, row) for row in self.answer(task, datasets[task])]
        pairs = zip(answers, labels.tolist(), strict=True)
        right = [answer.value == label for answer, label in pairs]
        sure = [answer.confidence or 0.0 for answer in answers]
        return choose_threshold(sure, right, accuracy)

    def describe(self, task: str, answer: NDArray[np.float64]) -> Prediction:
        """Return the prediction for one row of outputs."""
        return self.tasks[task].spec.kind.predict(task, answer)

    def score(self, datasets: Mapping[str, Dataset]) -> Scores:
        """Score every task's data set."""
        return score_answers(self.tasks, datasets, self.answer)

    def find_rest(
        self,
        datasets: Mapping[str, Dataset],
        *,
        data: str | None = None,
        progress: Progress | None = None,
    ) -> dict[str, torch.Tensor]:
        """Return the rows that training pairs do not imply, for each binary task on pairs.

        A pair follows if its texts are linked by training pairs labelled 1, over any number of
        steps; so does a training pair itself.
        """
        specs = {name: self.tasks[name].spec for name in datasets}
        pairs = [name for name, s in specs.items() if s.is_pair and s.kind.is_yes_no]
        if not pairs:
            raise UsageError(f"{self.folder} has no binary task on pairs")
        train = self.load_split("train", data=data, tasks=pairs, progress=progress)
        rest = {}
        for name in train:
            rows = np.flatnonzero(~find_implied(train[name], datasets[name]))
            if not len(rows):
                raise UsageError(f"task {name!r}: every pair follows from training pairs")
            rest[name] = torch.from_numpy(rows)
        return rest

    def score_with_rest(
        self,
        datasets: Mapping[str, Dataset],
        rest: Mapping[str, torch.Tensor],
        answers: Mapping[str, Floats],
    ) -> tuple[Scores, Scores]:
        """Score every task's dataset twice: on all rows, and only on the rows in `rest`."""

        def answer(task: str, _: Dataset, rows: torch.Tensor | None) -> Floats:
            return answers[task] if rows is None else answers[task][rows.numpy()]

        whole = score_answers(self.tasks, datasets, answer)
        return whole, score_answers(self.tasks, datasets, answer, rest)

    def evaluate(
        self,
        split: SplitName = "dev",
        *,
        data: str | None = None,
        tasks: Sequence[str] | None = None,
    ) -> Scores:
        """Score the model on a split."""
        datasets = self.load_split(split, data=data, tasks=tasks)
        if not datasets:
            raise UsageError(f"no task of {self.folder} has files for the split {split!r}")
        return self.score(datasets)


@dataclass(frozen=True, slots=True)
class SingleModel(Answerer):
    """A single trained model with its tokenizer."""

    tokenizer: Tokenizer
    collator: Collator

    @abstractmethod
    def embed(self, texts: Iterable[str]) -> NDArray[np.float32]:
        """Return the encoder's pooled vector of each text, [texts, width]."""

    def embed_file(
        self,
        path: str | Path,
        out: str | Path,
        *,
        text: str | None = None,
        normalize: bool = False,
        separator: str | None = None,
        quoting: bool = True,
        skip_empty: bool = False,
        resume: bool = False,
        progress: Progress | None = None,
    ) -> FileVectors:
        """Embed one column of a file of any size into another: .npy, Parquet or JSONL.

        `text` is the column; it is needed if the file has several text columns. With `normalize`,
        vectors have length 1, so that dot products are cosines. `separator` and `quoting` are as in
        a recipe's file. With `skip_empty`, rows without a text have no vector (NaN in .npy) instead
        of an error. `resume` continues an interrupted call.
        """
        return embed_file(
            self,
            Path(path),
            Path(out),
            text=text,
            normalize=normalize,
            separator=separator,
            quoting=quoting,
            skip_empty=skip_empty,
            resume=resume,
            progress=progress,
        )

    def tokenise(self, texts: Sequence[tuple[str, ...]], *, blank: bool = False) -> Dataset:
        """Make a data set of texts given by hand, which may be `blank` only if that is said."""
        encoder = self.config.encoder
        return Dataset.from_texts(
            texts, self.tokenizer, encoder.max_length, encoder.truncate, blank=blank
        )

    def read(
        self,
        config: RunConfig,
        split: SplitName,
        *,
        data: str | None = None,
        tasks: Sequence[str] | None = None,
        labelled: bool = True,
        progress: Progress | None = None,
    ) -> dict[str, Dataset]:
        """Read a split of a recipe's files with the model's tokenizer."""
        wanted = None if tasks is None else {name: self.task(name) for name in tasks}
        return load_data(
            config.model_copy(update={"encoder": self.config.encoder}),
            self.tokenizer,
            split,
            data=data,
            tasks=wanted,
            labelled=labelled,
            progress=progress,
        )


@dataclass(frozen=True, slots=True)
class Predictor(SingleModel):
    """A trained run that predicts."""

    model: MultitaskModel
    scorer: Scorer
    form: Form
    """The precision of the computation."""
    _hashes: dict[str, str] = field(default_factory=dict, repr=False, compare=False)
    """Of the files it was read from, once asked for, and of its plugins, as they were when it was
    loaded: the files may go while it is in use."""

    @classmethod
    def load(
        cls,
        run: str | Path,
        *,
        device: str = "auto",
        precision: str = "run",
        calibrated: bool = True,
    ) -> Predictor:
        """Load a run's best model, and its calibration if it has one.

        `precision` is run for the precision of the training, with the same scores as there; auto
        for the fastest one on the device; or fp32, bf16, int8 (CPUs only).
        """
        folder = RunFolder(Path(run))
        if folder.path.is_file():
            raise RunError(f"{folder.path} is a file; a run is a folder")
        if not folder.path.is_dir():
            raise RunError(f"there is no run at {folder.path}")
        config = folder.read_config()
        folder.require_model()
        load_plugins(config.plugins)
        hashes = hash_plugins(config)
        tasks = build_tasks(config)
        encoder = build_encoder(folder.read_json(folder.encoder), config.encoder.architecture)
        place = choose_device(device)
        model = build_model(config, encoder, tasks)
        load_weights(folder.weights, model)
        model.to(place).eval()
        as_trained = precision == "run"
        form = choose_form(config.precision if as_trained else precision, place, as_trained)
        autocast, batch_size = torch.bfloat16 if form == "bf16" else None, 64
        if place.type == "cpu" and not as_trained:  # otherwise the scores must not change
            if _pack_encoder(model, form):  # it has its own precision; the rest is fp32
                autocast = None
            # Small batches need less padding and fit into the CPU's cache.
            batch_size = 32
        tokenizer = Tokenizer.from_file(folder.tokenizer)
        collator = build_collator(config, tokenizer)
        if place.type == "cuda" and autocast is not None:
            keep_copies(model, autocast)
        scorer = Scorer(model, tasks, collator, batch_size, choose_room(place), autocast)
        scalings = {}
        if calibrated:
            whose = config.tasks, lambda: hash_file(folder.weights)
            scalings = read_scalings(folder.path, *whose)
        own = (folder.path, config, tasks, scalings, tokenizer, collator)
        return cls(*own, model, scorer, form, hashes)

    def identify(self) -> str:
        """Return the hash of the weights."""
        return self._hash(RunFolder(self.folder).weights)

    def answer_uncalibrated(
        self, task: str, dataset: Dataset, rows: torch.Tensor | None = None
    ) -> Floats:
        """Return probabilities [examples, classes] or scores [examples], in the data's order."""
        return self.scorer.answer(task, dataset, rows)

    def answer_together(self, tasks: Sequence[str], dataset: Dataset) -> dict[str, Floats]:
        """Return what `answer` returns, with one encoder pass per group of tasks."""
        found: dict[str, Floats] = {}
        for group in self.share_passes(tasks):
            found |= self.scorer.answer_together(group, dataset)
        return {task: self._calibrate(task, found[task]) for task in tasks}

    def share_passes(self, tasks: Sequence[str]) -> list[tuple[str, ...]]:
        """Group tasks that have the same inputs and encoder, and no adapters."""
        groups: dict[tuple[object, ...], list[str]] = {}
        for task in tasks:
            spec = self.task(task).spec
            own = task if self.model.has_adapter(task) else None
            key = (len(spec.text), spec.inputs, spec.both_orders, own)
            groups.setdefault(key, []).append(task)
        return [tuple(group) for group in groups.values()]

    def watched(self, progress: Progress) -> Self:
        """Return a copy that calls `progress` with the task, the rows done and the total."""
        return replace(self, scorer=replace(self.scorer, progress=progress))

    def fingerprint(self) -> str:
        """Return a hash that is equal for models whose predictions are bit-identical."""
        files = RunFolder(self.folder)
        facts = [self.identify(), *(self._hash(path) for path in (files.recipe, files.tokenizer))]
        facts += [self._hashes[plugin] for plugin in self.config.plugins]
        facts.append(json.dumps(plain_scalings(self.scalings), sort_keys=True))
        device = next(self.model.parameters()).device
        facts += [self.form, device.type, str(self.scorer.batch_size), str(self.scorer.room)]
        facts.append(torch.__version__)
        return hashlib.sha256(" ".join(facts).encode()).hexdigest()

    def _hash(self, path: Path) -> str:
        if path.name not in self._hashes:
            self._hashes[path.name] = hash_file(path)
        return self._hashes[path.name]

    def embed(self, texts: Iterable[str]) -> NDArray[np.float32]:
        """Return the encoder's pooled vector of each text, [texts, width]."""
        require_list(texts)
        rows = [(text,) for text in texts]
        dataset = self.tokenise(rows)
        device = next(self.model.parameters()).device
        vectors = np.zeros((len(rows), self.model.encoder.width), dtype=np.float32)
        kind = self.scorer.autocast
        size, room = self.scorer.batch_size, self.scorer.room
        with torch.inference_mode(), torch.autocast(device.type, kind, enabled=kind is not None):
            for place, batch in self.collator.iterate(dataset, ONE_TEXT, size, room=room):
                found = self.model.embed(batch.to(device).tokens)
                vectors[place.numpy()] = found.float().cpu().numpy()
        return vectors


def _pack_encoder(model: MultitaskModel, form: Form) -> bool:
    """Optimise the encoder for a CPU; return whether that is possible."""
    packed = pack(model.encoder, form, first_only=model.reads_first_only())
    if packed is not None:
        model.encoder = packed
    elif form == "int8":
        raise UsageError(
            "precision int8 needs plait's own BERT, but this run has another encoder; choose "
            "auto or fp32"
        )
    return packed is not None


def choose_form(name: str, device: torch.device, as_trained: bool) -> Form:
    """Return the precision to use on a device for a precision's name."""
    if name not in PRECISIONS:
        raise UsageError(f"unknown precision {name!r}{suggest(name, PRECISIONS)}")
    on_cpu = device.type == "cpu"
    if name == "int8":
        reason = why_not("int8") if on_cpu else "it is for CPUs"
        if reason:
            raise UsageError(f"precision int8 is not available: {reason}; choose auto or fp32")
        return "int8"
    if name == "auto" and on_cpu and not as_trained:
        return "fp32" if why_not("bf16") else "bf16"
    return "bf16" if choose_precision(name, device) == torch.bfloat16 else "fp32"


def require_list(texts: object) -> None:
    """Raise UsageError unless the texts are a list."""
    if isinstance(texts, str):  # it would be a list of letters
        raise UsageError("give a list of texts, not a single one: [text]")
    if isinstance(texts, dict) or hasattr(texts, "columns"):  # it would be a list of column names
        raise UsageError("give a list of texts, not a table of columns: list(table['text'])")
