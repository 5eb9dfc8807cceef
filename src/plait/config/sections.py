"""The tables of a recipe and their settings."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from plait.config.checking import validate
from plait.config.tables import merge
from plait.errors import suggest
from plait.tasks import TaskSpec
from plait.tasks.spec import names_labels
from plait.types import Truncate

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from plait.tasks.reading import LabelReader

BadRows = Literal["error", "skip"]
DropRows = bool | Literal["texts"]
DropOverlap = DropRows | Literal["added"]


def _as_table(value: object) -> object:
    return {"name": value} if isinstance(value, str) else value


def _as_tuple(value: object) -> object:
    return value if isinstance(value, tuple) else (value,)


Part = Annotated[dict[str, Any], BeforeValidator(_as_table)]
"""A part by its name, or a table with `name` and settings."""


def _as_values(value: object) -> tuple[object, ...]:
    values = value if isinstance(value, tuple) else (value,)
    if not values or not all(isinstance(one, str | int | float) for one in values):
        raise ValueError("should be a text, a number, true or false, or a list of these")
    return values


Values = Annotated[tuple[Any, ...], BeforeValidator(_as_values)]
"""One value of a column or a list of values, written as in the file."""


class Section(BaseModel):
    """A table of the recipe; unknown keys are errors."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, validate_default=True, allow_inf_nan=False
    )

    @model_validator(mode="before")
    @classmethod
    def _name_parts(cls, values: object) -> object:
        """Apply settings without a name to the default part."""
        if not isinstance(values, dict):
            return values
        named = {}
        for key, field in cls.model_fields.items():
            part, given = field.default, values.get(key)
            if isinstance(part, dict) and "name" in part and isinstance(given, dict):
                named[key] = given if "name" in given else {**part, **given}
        return {**values, **named}


class FileConfig(Section):
    """One data file, or several with the same columns. Unset keys are taken from the task."""

    path: str
    """Relative to the data root, or absolute. A folder means all data files in it, a pattern
    ("reviews/*.parquet") all files that match, sorted by name."""
    text: Annotated[tuple[str, ...], BeforeValidator(_as_tuple)] | None = None
    """Text columns, if their names differ in this file."""
    label: str | tuple[str, ...] | None = None
    """Column of the label, or of each label or vote, if its name differs in this file."""
    id: str | None = None
    """Column of the row ids; "" if this file has no ids."""
    label_map: dict[str, float] | None = None
    """Overrides the task's setting for this file."""
    count: int | None = Field(default=None, ge=1)
    """Sample this many rows without replacement; with several files, from all of them."""
    fraction: float | None = Field(default=None, gt=0, le=1)
    """Sample this fraction of the rows without replacement."""
    separator: str | None = None
    """Column separator; tab if the header line has one, else comma."""
    quoting: bool = True
    """Whether double quotes enclose a field (RFC 4180)."""
    constant: float | str | None = None
    """The label of every row, written as in a file, if the file has no label column."""
    scale: tuple[float, float] | None = None
    """Lowest and highest score of this file, if they differ from the task's range: its scores are
    rescaled to the task's range."""
    where: dict[str, Values] | None = None
    """Row filter: columns and the value, or list of values, that a row must have."""
    group: str | None = None
    """Overrides the task's setting for this file; "" if this file has no groups."""
    drop_overlap: DropRows | None = None
    """Overrides the task's setting for this file."""

    @model_validator(mode="before")
    @classmethod
    def _from_path(cls, value: object) -> object:
        return {"path": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _check_labels(self) -> FileConfig:
        if self.constant is not None and (self.label is not None or self.scale is not None):
            other = "label" if self.label is not None else "scale"
            raise ValueError(f"{self.path}: give constant or {other}, not both")
        if self.scale is not None and self.scale[0] >= self.scale[1]:
            low, high = self.scale
            raise ValueError(
                f"{self.path}: scale is [{low}, {high}]: the first number must be below the second"
            )
        return self


Files = Annotated[tuple[FileConfig, ...], BeforeValidator(_as_tuple)]


def _number_classes(table: Any, numbers: Mapping[str, int]) -> Any:
    """Replace class names by numbers in a `label_map`, of one table or of several."""
    if isinstance(table, tuple):
        return tuple(_number_classes(one, numbers) for one in table)
    found = table.get("label_map") if isinstance(table, dict) else None
    if not isinstance(found, dict):
        return table
    named = dict(found)
    for key, word in found.items():
        if isinstance(word, str):
            number = numbers.get(word.strip().casefold())
            if number is None:
                known = suggest(word, numbers)
                raise ValueError(f"label_map.{key} names no label: {word!r}{known}")
            named[key] = number
    return {**table, "label_map": named}


class TaskConfig(Section, TaskSpec):
    """A task: its files, columns, head, loss and weight."""

    about: str = ""
    """A description."""
    label: str | tuple[str, ...] | None = None
    """Column of the label. For `kind = "labels"` also a list of columns with 0 and 1, one per
    label; for a score also a list of columns with votes, which are averaged."""
    label_separator: str = Field(default=";", min_length=1)
    """Separator between labels in one column. Only for `kind = "labels"`."""
    id: str | None = None
    """Column of the row ids, which predictions and submissions contain."""
    label_map: dict[str, float] = Field(default={})
    """Maps a label in the file to a class (its number, or its name in `labels`) or a score."""
    group: str | None = None
    """Column with the group of a training row, such as its author: all rows of a group are in the
    same fold. A row without a group is grouped by its text, so a group can also be named by the
    text of the row that the others are parts of."""
    train: Files = ()
    """Files to train on: one, or a list."""
    dev: Files = ()
    """Files that select the best checkpoint."""
    dev_fraction: float | None = Field(default=None, gt=0, lt=1)
    """Fraction of the training rows that is held out as dev if there are no dev files. The choice
    depends only on the texts, not on the seed; equal texts, and rows of one `group`, stay
    together."""
    test: Files = ()
    """Files of the test set; `plait predict --split test` does not need their labels."""
    unlabelled: Files = ()
    """Files without labels, for the teacher of a distillation stage to predict. Rows that also
    occur in dev or test are removed."""
    count: int | None = Field(default=None, ge=1)
    """Sample this many training rows from all files of the task, without replacement."""
    fraction: float | None = Field(default=None, gt=0, le=1)
    """Sample this fraction of the training rows instead."""
    bad_rows: BadRows | None = None
    """How to treat rows that fail a check; [data].bad_rows unless set."""
    head: Part = Field(default={"name": "linear"})
    """The module that computes the task's outputs from the encoder's embeddings."""
    loss: Part | None = None
    """The loss function. Unless set: cross-entropy for classes, bce for binary, label-bce for
    labels, score-cross-entropy for a score."""
    adapter: Part | None = None
    """Task-specific parameters inside the encoder's layers; no adapter unless set."""
    touch_encoder: bool = True
    """Whether the task trains the shared encoder; if false, only its head and adapter."""
    augment: Annotated[tuple[Part, ...], BeforeValidator(_as_tuple)] = ()
    """Augmentations: they add changed copies of training rows, or pairs that follow from them."""
    drop_overlap: DropOverlap | None = None
    """Which training rows to remove if dev or test has them; [data].drop_overlap unless set."""
    weight: float = Field(default=1.0, ge=0)
    """Factor of the task's loss."""
    metric: str | None = None
    """The primary metric. Unless set: accuracy for classes and binary, micro_f1 for labels, pearson
    for a score."""
    batch_size: int | None = Field(default=None, ge=1)
    """Batch size of this task; the stage's unless set."""
    submit_column: str | None = None
    """Header of the prediction column in a submission file."""
    submit_name: str | None = None
    """Prefix of a submission file's name; the name of the task unless set."""
    licence: str = ""
    """Licence of the task's files, for the model's card."""

    @model_validator(mode="before")
    @classmethod
    def _name_labels(cls, values: object) -> object:
        """Take label names from label columns; replace class names in `label_map` by numbers."""
        if not isinstance(values, dict):
            return values
        columns, labels = values.get("label"), values.get("labels")
        if isinstance(columns, list | tuple) and not labels and names_labels(values.get("kind")):
            labels = tuple(columns)
            values = {**values, "labels": labels}
        if not isinstance(labels, list | tuple) or not all(isinstance(w, str) for w in labels):
            return values
        numbers = {word.strip().casefold(): i for i, word in enumerate(labels)}
        return {
            key: _number_classes(value, numbers) if key in ("train", "dev", "test") else value
            for key, value in _number_classes(values, numbers).items()
        }

    @model_validator(mode="after")
    def _check_columns(self) -> TaskConfig:
        if isinstance(self.label, tuple):
            if len(self.label) < 2:
                raise ValueError(
                    "a list of label columns needs two or more; write a single column as a string"
                )
            self.kind.check_columns(len(self.label))
        files = (*self.train, *self.dev, *self.test, *self.unlabelled)
        scaled = [file.path for file in files if file.scale]
        if scaled and not self.kind.takes_scale:
            raise ValueError(f"{scaled[0]} has a scale, which is for kind = 'score'")
        return self

    @property
    def dev_files(self) -> Files:
        """Files with the dev rows: `dev`, or `train` with `dev_fraction`."""
        return self.dev if self.held_out_fraction is None else self.train

    @property
    def held_out_fraction(self) -> float | None:
        """Fraction of the training rows held out as dev; None if there are dev files."""
        return None if self.dev or not self.train else self.dev_fraction

    def build_reader(
        self,
        columns: Sequence[str],
        label_map: Mapping[str, float],
        scale: tuple[float, float] | None = None,
    ) -> LabelReader:
        """Return the reader of a file's labels."""
        return self.kind.reader(columns, label_map, separator=self.label_separator, scale=scale)


class DataConfig(Section):
    """Where files are, and what to do with bad rows."""

    root: str | None = None
    """Folder that file paths are relative to; `--data` and PLAIT_DATA override it. '@sample' is the
    sample data in the package."""
    hint: str = ""
    """Where to get the files; shown when a file is missing."""
    bad_rows: BadRows = "error"
    """Stop at a row that fails a check, with its line number, or skip it with a note."""
    drop_overlap: DropOverlap = False
    """Remove training rows that also occur in a dev or test file of any task: false (no rows),
    "added" (only rows of a task's second and later files), true (all), or "texts" (also pairs that
    share one text with dev or test)."""
    folds: int | None = Field(default=None, ge=2)
    """Split the training rows into this many folds and use one as dev instead of the dev files; the
    dev files are used unless set."""
    fold: int = Field(default=1, ge=1)
    """The fold that is dev, from 1."""
    leave_out: bool = False
    """Use the dev files as dev and only leave the fold out of training: for the members of a
    teacher ensemble."""

    @model_validator(mode="after")
    def _check_fold(self) -> DataConfig:
        if self.fold > (self.folds or 1):
            raise ValueError(f"fold = {self.fold}, but folds = {self.folds or 'unset'}")
        if self.leave_out and self.folds is None:
            raise ValueError("leave_out needs folds: set folds")
        return self

    def deal(self, split: str = "train") -> tuple[int, int] | None:
        """Return (fold, number of folds); None if the split has no folds."""
        if self.folds is None or (self.leave_out and split == "dev"):
            return None
        return self.fold, self.folds


class EncoderConfig(Section):
    """The encoder and its pooling."""

    source: str = "packaged"
    """'packaged', a folder in the Hub's layout, or a Hub id."""
    revision: str | None = None
    """Commit of a Hub id; run.json records the commit that a run used."""
    sha256: str | None = None
    """Expected sha256 of the weights; of shards, the hash of their concatenation."""
    architecture: str = "bert"
    """plait's BERT ("bert"), transformers' AutoModel ("auto"), or an architecture that a plugin
    registers."""
    pooling: Literal["cls-pooler", "cls", "mean"] = "mean"
    """One embedding per input: [CLS] with the pooler, [CLS], or the mean of all tokens."""
    dropout: float | None = Field(default=None, ge=0, lt=1)
    """Dropout of embeddings, attention and layers; from the encoder's config.json unless set."""
    attention_dropout: float | None = Field(default=None, ge=0, lt=1)
    """Dropout of the attention weights, if it differs from `dropout`; only for plait's BERT."""
    max_length: int = Field(default=128, ge=8)
    """Maximum tokens of an input, including special tokens; longer inputs are truncated."""
    truncate: Truncate = "head"
    """What is kept of a truncated text: its beginning, or its beginning and its end."""
    segments: bool = True
    """Whether the second text of a pair has segment id 1 (else 0)."""


class EarlyStopping(Section):
    """Stop when the dev score no longer improves."""

    patience: int = Field(ge=1)
    """Evaluations without improvement before stopping."""
    per_task: bool = False
    """Stop each task separately by its metric; the stage ends when all tasks are stopped."""


class TextsConfig(Section):
    """Texts without labels, for pre-training stages."""

    files: Files = Field(min_length=1)
    """The files: one, or a list."""
    text: Annotated[tuple[str, ...], BeforeValidator(_as_tuple)] = Field(min_length=1, max_length=3)
    """Text columns: one, a pair, or anchor, positive and hard negative."""
    licence: str = ""
    """Licence of the files, for the model's card."""


Beta = Annotated[float, Field(ge=0, lt=1)]


class StageConfig(Section):
    """One stage of a run: tasks, schedule, optimizer and length."""

    kind: Part = {"name": "finetune"}
    """The kind of training: fine-tuning on tasks, or pre-training the encoder on texts."""
    tasks: tuple[str, ...] | None = None
    """Tasks that take part; all unless set."""
    mode: Literal["full-model", "last-layer"] = "full-model"
    """Train the whole model, or only the heads."""
    freeze_layers: int = Field(default=0, ge=0)
    """Number of frozen layers, from the bottom; 1 or more also freezes the embeddings."""
    epochs: int = Field(default=3, ge=1)
    """Number of epochs; the schedule defines the length of an epoch."""
    max_steps: int | None = Field(default=None, ge=1)
    """Maximum number of updates of the stage."""
    schedule: Part = {"name": "round-robin"}
    """The order of the tasks' batches."""
    aggregator: Part = {"name": "sum"}
    """How the tasks' gradients of the encoder are combined."""
    weighting: Part = {"name": "fixed"}
    """How the tasks' losses are weighted, in addition to `tasks.NAME.weight`."""
    regularizers: tuple[Part, ...] = ()
    """Terms that are added to every task's loss."""
    batch_size: int = Field(default=32, ge=1)
    """Batch size."""
    accumulate: int = Field(default=1, ge=1)
    """Turns of the schedule per update (gradient accumulation)."""
    lr: float = Field(default=5e-5, gt=0)
    """Peak learning rate of the stage."""
    head_lr: float | None = Field(default=None, gt=0)
    """Learning rate of the heads; `lr` unless set."""
    layer_decay: float = Field(default=1.0, gt=0, le=1)
    """Ratio of an encoder layer's learning rate to that of the layer above; the top has `lr`."""
    warmup: float = Field(default=0.0, ge=0, lt=1)
    """Fraction of the stage's updates in which the learning rate rises from 0."""
    decay: Literal["constant", "linear", "cosine"] = "constant"
    """Learning rate after the warm-up: constant, or falling to 0 at the end."""
    betas: tuple[Beta, Beta] = (0.9, 0.999)
    """AdamW's decay rates of the averages of the gradient and its square."""
    eps: float = Field(default=1e-6, gt=0)
    """AdamW's epsilon, which is added to the denominator."""
    weight_decay: float = Field(default=0.01, ge=0)
    """Decoupled weight decay; not applied to biases and LayerNorm."""
    clip: float = Field(default=1.0, ge=0)
    """Maximum norm of the whole gradient; 0 disables clipping."""
    average: float | None = Field(default=None, gt=0, lt=1)
    """Decay per update, such as 0.999, of an exponential moving average of the weights, which is
    scored and saved instead of the weights; off unless set."""
    eval_every: Annotated[int, Field(ge=1)] | Literal["epoch", "end"] = "epoch"
    """Score dev after every epoch, after this many updates, or only at the end of the stage."""
    eval_limit: int | None = Field(default=None, ge=1)
    """Maximum dev rows per task while training; the final scores use all rows."""
    train_limit: int = Field(default=0, ge=0)
    """Training rows per task that are scored in addition to dev, sampled once; 0 for none."""
    early_stopping: EarlyStopping | None = None
    """Early stopping; off unless set."""


class RangeConfig(Section):
    """The values that a search tries for a key: `values`, or numbers from `low` to `high`."""

    low: int | float | None = None
    """Minimum. If both ends are integers, only integers are tried."""
    high: int | float | None = None
    """Maximum."""
    log: bool = False
    """Whether to sample on a logarithmic scale; for learning rates."""
    step: int | float | None = Field(default=None, gt=0)
    """Step between values; continuous unless set, 1 for integers."""
    values: tuple[Any, ...] | None = Field(default=None, min_length=1)
    """The list of values to try: numbers, strings, parts by name or as tables."""

    @model_validator(mode="after")
    def _check_ends(self) -> RangeConfig:
        low, high = self.low, self.high
        if self.values is not None:
            if low is not None or high is not None or self.log or self.step is not None:
                raise ValueError("give values, or low and high, not both")
            try:
                json.dumps(self.values, allow_nan=False)
            except (TypeError, ValueError) as error:
                raise ValueError("values should be numbers, words, lists or tables") from error
            return self
        if low is None or high is None:
            raise ValueError("needs values, or low and high")
        if low >= high:
            raise ValueError(f"low = {low} should be below high = {high}")
        if self.log and (low <= 0 or self.step is not None):
            raise ValueError("log = true needs low above 0, and no step")
        if self.is_whole and not isinstance(self.step or 1, int):
            raise ValueError(f"step = {self.step} should be whole, as low and high are")
        return self

    @property
    def is_whole(self) -> bool:
        """Whether this is a range of integers."""
        return isinstance(self.low, int) and isinstance(self.high, int)


class SearchConfig(Section):
    """The search space of `plait search`; training ignores it."""

    prune: bool = True
    """Whether trials below the median of the other trials are stopped early."""
    space: dict[str, RangeConfig] = {}
    """A range for each key; write dotted keys in quotes: "train.lr"."""

    @model_validator(mode="before")
    @classmethod
    def _check_quotes(cls, values: Any) -> Any:
        space = values.get("space", {}) if isinstance(values, dict) else {}
        for key, value in space.items() if isinstance(space, dict) else ():
            for inner, below in value.items() if isinstance(value, dict) else ():
                if isinstance(below, dict):
                    dotted = f"{key}.{inner}"
                    raise ValueError(f'write a dotted key of the space in quotes: "{dotted}" = ...')
        return values


class StartConfig(Section):
    """The run to start from."""

    run: str
    """Its folder, relative to the working directory."""
    keep: bool = True
    """Whether to keep tasks that only that run has: they are predicted and scored, not trained."""

    @model_validator(mode="before")
    @classmethod
    def _from_folder(cls, value: object) -> object:
        return {"run": value} if isinstance(value, str) else value


RecipeName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]*$")]


class RunConfig(Section):
    """A whole run."""

    name: RecipeName
    """Name of the run, and of its folder unless --out is set."""
    about: str = ""
    """A description for `plait list recipes`."""
    seed: int = Field(default=11711, ge=0)
    """Seed of all random choices of the run."""
    plugins: tuple[str, ...] = ()
    """Your Python files that register parts, relative to the recipe."""
    device: str = "auto"
    """'auto' is the first GPU, or the CPU without a GPU; or set 'cpu', 'cuda', 'cuda:1'."""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """'auto' is bf16 on a GPU that supports it, else fp32."""
    graphs: bool = True
    """Whether steps on a GPU are captured as CUDA graphs and replayed, which is faster."""
    select: Literal["sum", "overall", "mean"] = "sum"
    """The dev score that selects the best checkpoint of a stage; the last stage's is kept."""
    save_every: int = Field(default=500, ge=1)
    """Updates between checkpoints; each evaluation also saves one."""
    log_every: int = Field(default=20, ge=1)
    """Updates between two lines of losses in metrics.jsonl."""
    score_first: bool = False
    """Whether to score dev before training."""
    listeners: tuple[Part, ...] = ({"name": "tensorboard"},)
    """Receivers of losses and scores, in addition to metrics.jsonl."""
    data: DataConfig = DataConfig()
    """Location and treatment of data files."""
    encoder: EncoderConfig = EncoderConfig()
    """The encoder that all tasks share."""
    tasks: dict[Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]+$")], TaskConfig] = Field(
        min_length=1
    )
    """One table per task; you choose its name."""
    held_out: dict[Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]+$")], TaskConfig] = {}
    """Tasks that are not part of the run; rows and texts in their dev and test files are kept out
    of training like those of [tasks]."""
    texts: dict[Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]+$")], TextsConfig] = {}
    """Texts without labels for pre-training stages; you choose the names."""
    start: StartConfig | None = None
    """A run to start from: its encoder and the heads of unchanged tasks are taken over. Training
    starts from [encoder] unless set."""
    stages: tuple[str, ...] = ("finetune",)
    """The stages in order; each uses [train] and [stage.NAME]."""
    train: StageConfig = StageConfig()
    """Settings of every stage."""
    stage: dict[str, dict[str, Any]] = {}
    """Settings of single stages, which override [train]."""
    search: SearchConfig = SearchConfig()
    """Search space of `plait search`."""

    @model_validator(mode="after")
    def _check(self) -> RunConfig:
        for name in self.stage:
            if name not in self.stages:
                raise ValueError(f"[stage.{name}] is not among stages = {list(self.stages)}")
        for name in self.stages:
            for task in self.stage_config(name).tasks or ():
                if task not in self.tasks:
                    raise ValueError(
                        f"stage {name!r} names task {task!r}{suggest(task, self.tasks)}"
                    )
        return self

    @property
    def trained_tasks(self) -> tuple[str, ...]:
        """The tasks of all stages."""
        named = {t for name in self.stages for t in self.stage_config(name).tasks or self.tasks}
        return tuple(task for task in self.tasks if task in named)

    def stage_config(self, name: str) -> StageConfig:
        """Return the settings of a stage: [train], overridden by [stage.NAME]."""
        base = self.train.model_dump()
        return validate(StageConfig, merge(base, self.stage.get(name, {})), f"stage.{name}")
