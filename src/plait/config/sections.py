"""The tables of a recipe and what each of their settings means."""

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
"""A part by its name, or a table of its name and settings."""


def _as_values(value: object) -> tuple[object, ...]:
    values = value if isinstance(value, tuple) else (value,)
    if not values or not all(isinstance(one, str | int | float) for one in values):
        raise ValueError("should be a text, a number, true or false, or a list of some")
    return values


Values = Annotated[tuple[Any, ...], BeforeValidator(_as_values)]
"""One value of a column or a list of them, as they would be written in a file."""


class Section(BaseModel):
    """A table of the recipe: unknown keys are refused."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, validate_default=True, allow_inf_nan=False
    )

    @model_validator(mode="before")
    @classmethod
    def _name_parts(cls, values: object) -> object:
        """Let settings without a name be those of the part that is there by default."""
        if not isinstance(values, dict):
            return values
        named = {}
        for key, field in cls.model_fields.items():
            part, given = field.default, values.get(key)
            if isinstance(part, dict) and "name" in part and isinstance(given, dict):
                named[key] = given if "name" in given else {**part, **given}
        return {**values, **named}


class FileConfig(Section):
    """One data file, or several alike. What is not set here is taken from its task."""

    path: str
    """Relative to the data root, or absolute. A folder stands for the data files in it, a pattern
    ("reviews/*.parquet") for those that fit, in the order of their names."""
    text: Annotated[tuple[str, ...], BeforeValidator(_as_tuple)] | None = None
    """Text columns, where this file calls them otherwise."""
    label: str | tuple[str, ...] | None = None
    """Column of the label, or of each label or vote, where this file calls it otherwise."""
    id: str | None = None
    """Column of the row's name; an empty word says that this file has none."""
    label_map: dict[str, float] | None = None
    """As the task's, for this file alone."""
    count: int | None = Field(default=None, ge=1)
    """Take this many rows, drawn without replacement; of several files, out of all of them."""
    fraction: float | None = Field(default=None, gt=0, le=1)
    """Take this part of the rows, drawn without replacement."""
    separator: str | None = None
    """Column separator; tab where the header line has one, else comma."""
    quoting: bool = True
    """Whether double quotes enclose a field (RFC 4180)."""
    constant: float | str | None = None
    """The label of every row, as it would be written, where the file has no column for it."""
    scale: tuple[float, float] | None = None
    """Lowest and highest score of this file, where they are not the task's: its scores are
    stretched onto the task's range."""
    where: dict[str, Values] | None = None
    """Columns of the file and what they must hold, a value or a list of them, for a row to be
    taken."""
    group: str | None = None
    """As the task's, for this file alone; an empty word says that this file has none."""
    drop_overlap: DropRows | None = None
    """As the task's, for this file alone."""

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
            raise ValueError(f"{self.path}: scale runs from {low} to {high}: nothing between")
        return self


Files = Annotated[tuple[FileConfig, ...], BeforeValidator(_as_tuple)]


def _number_classes(table: Any, numbers: Mapping[str, int]) -> Any:
    """Put numbers for the words of classes in a `label_map`, of one table or of several."""
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
    """A task with its files, head, loss and weight."""

    about: str = ""
    """A sentence for readers."""
    label: str | tuple[str, ...] | None = None
    """Column of the label. For labels also a list of columns of 0 and 1, one for each label; for a
    score of columns of votes, of which the mean is taken."""
    label_separator: str = Field(default=";", min_length=1)
    """What stands between labels in one column. Only for labels."""
    id: str | None = None
    """Column of the row's name, kept for submissions."""
    label_map: dict[str, float] = Field(default={})
    """Label as written in the file to class (its number, or its word in `labels`) or score."""
    group: str | None = None
    """Column that says which training rows belong together, such as an author: with folds, rows of
    one group are in one fold. A row that names none goes by its own text, so that a group may also
    be called by the text of the row that others are parts of."""
    train: Files = ()
    """Files to train on: one, or a list."""
    dev: Files = ()
    """Files to choose the best checkpoint by."""
    dev_fraction: float | None = Field(default=None, gt=0, lt=1)
    """Share of the training rows that is held out as dev where there are no dev files. Which rows
    depends on their texts alone, not on the seed; equal texts, and rows of one `group`, stay
    together."""
    test: Files = ()
    """Files to answer in the end; labels are not needed for `plait predict --split test`."""
    unlabelled: Files = ()
    """Files without labels, which the teacher of a stage that distils answers. Rows that dev or
    test has are left out."""
    count: int | None = Field(default=None, ge=1)
    """Draw this many training rows out of all the task's files, without replacement."""
    fraction: float | None = Field(default=None, gt=0, le=1)
    """Draw this part of the training rows instead."""
    bad_rows: BadRows | None = None
    """What to do with rows that fail a check; [data].bad_rows unless set."""
    head: Part = Field(default={"name": "linear"})
    """What turns the encoder's vectors into the task's outputs."""
    loss: Part | None = None
    """Unless set: cross-entropy for classes, bce for binary, label-bce for labels,
    score-cross-entropy for a score."""
    adapter: Part | None = None
    """Parameters of the task's own inside the encoder's layers; none unless set."""
    touch_encoder: bool = True
    """Whether the task trains the shared encoder; if not, its head and adapter alone."""
    augment: Annotated[tuple[Part, ...], BeforeValidator(_as_tuple)] = ()
    """What adds rows made of its training rows to them: changed copies, pairs that follow."""
    drop_overlap: DropOverlap | None = None
    """Which training rows to leave out if dev or test has them; [data].drop_overlap unless set."""
    weight: float = Field(default=1.0, ge=0)
    """The task's loss is multiplied by this."""
    metric: str | None = None
    """The figure that stands for the task; unless set accuracy, micro_f1 for labels, pearson for a
    score."""
    batch_size: int | None = Field(default=None, ge=1)
    """Examples in a batch of this task; the stage's unless set."""
    submit_column: str | None = None
    """Header of the answer's column in a submission file."""
    submit_name: str | None = None
    """How a submission file's name begins; the task's own name unless set."""
    licence: str = ""
    """Licence of the task's files, for the model's card."""

    @model_validator(mode="before")
    @classmethod
    def _name_labels(cls, values: object) -> object:
        """Let columns that are labels name them, and a label_map say classes by their words."""
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
                raise ValueError("a list of label columns has two or more; one stands by itself")
            self.kind.check_columns(len(self.label))
        files = (*self.train, *self.dev, *self.test, *self.unlabelled)
        scaled = [file.path for file in files if file.scale]
        if scaled and not self.kind.takes_scale:
            raise ValueError(f"{scaled[0]} has a scale, which is for kind = 'score'")
        return self

    @property
    def dev_files(self) -> Files:
        """Files that dev rows are read from: those of dev, or of train with `dev_fraction`."""
        return self.dev if self.held_out_fraction is None else self.train

    @property
    def held_out_fraction(self) -> float | None:
        """Share of the training rows that is held out as dev; None where dev has files."""
        return None if self.dev or not self.train else self.dev_fraction

    def build_reader(
        self,
        columns: Sequence[str],
        label_map: Mapping[str, float],
        scale: tuple[float, float] | None = None,
    ) -> LabelReader:
        """Return what reads the labels of a file, out of its label columns."""
        return self.kind.reader(columns, label_map, separator=self.label_separator, scale=scale)


class DataConfig(Section):
    """Where files are, and what to do with bad rows."""

    root: str | None = None
    """Folder the files are relative to; `--data` and PLAIT_DATA come first. '@sample' is the
    sample inside the package."""
    hint: str = ""
    """What to download or point at; shown when a file is not there."""
    bad_rows: BadRows = "error"
    """Stop at a row that fails a check, naming its line, or skip it and say so."""
    drop_overlap: DropOverlap = False
    """Leave out training rows that a dev or test file of any task has: none of them, those of files
    beyond a task's first ("added"), or all (true); or also pairs of which one has a text
    ("texts")."""
    folds: int | None = Field(default=None, ge=2)
    """Deal the training rows into this many parts and let one stand for dev, whose own files are
    left unread; dev is dev unless set."""
    fold: int = Field(default=1, ge=1)
    """Which of them stands for dev, from 1."""
    leave_out: bool = False
    """Let dev be dev, and only leave that part out of training: for members of an ensemble that is
    to teach."""

    @model_validator(mode="after")
    def _check_fold(self) -> DataConfig:
        if self.fold > (self.folds or 1):
            raise ValueError(f"fold = {self.fold}, but folds = {self.folds or 'unset'}")
        if self.leave_out and self.folds is None:
            raise ValueError("leave_out leaves one of the folds out; set folds")
        return self

    def deal(self, split: str = "train") -> tuple[int, int] | None:
        """Return the fold and the number of folds, where a split's rows are dealt."""
        if self.folds is None or (self.leave_out and split == "dev"):
            return None
        return self.fold, self.folds


class EncoderConfig(Section):
    """Which encoder, and how its output becomes one vector."""

    source: str = "packaged"
    """'packaged', a folder in the Hub's layout, or a Hub id."""
    revision: str | None = None
    """Commit of a Hub id; run.json tells which one a run was made with."""
    sha256: str | None = None
    """Expected hash of the weights; of shards, one after the other."""
    architecture: str = "bert"
    """plait's own BERT ("bert"), whatever transformers' AutoModel makes of the folder ("auto"), or
    one that a plugin registers."""
    pooling: Literal["cls-pooler", "cls", "mean"] = "mean"
    """One vector per input: [CLS] through the pooler, [CLS] as it is, or the mean of all tokens."""
    dropout: float | None = Field(default=None, ge=0, lt=1)
    """Of embeddings, attention and layers; the encoder's own configuration unless set."""
    attention_dropout: float | None = Field(default=None, ge=0, lt=1)
    """Of the weights tokens give one another, where it is not `dropout`; plait's own BERT alone."""
    max_length: int = Field(default=128, ge=8)
    """Tokens of an input, special ones included; longer ones are cut."""
    truncate: Truncate = "head"
    """What is kept of a text that is cut: its beginning, or its beginning and its end."""
    segments: bool = True
    """Whether the second text of a pair gets segment id 1 (else all are 0)."""


class EarlyStopping(Section):
    """Stop when the dev score no longer improves."""

    patience: int = Field(ge=1)
    """Evaluations without a better score before stopping."""
    per_task: bool = False
    """Drop each task from the schedule by its own metric; the stage ends when none is left."""


class TextsConfig(Section):
    """Texts without labels, for stages that pre-train."""

    files: Files = Field(min_length=1)
    """The files: one, or a list."""
    text: Annotated[tuple[str, ...], BeforeValidator(_as_tuple)] = Field(min_length=1, max_length=3)
    """Text columns: one, a pair, or anchor, positive and hard negative."""
    licence: str = ""
    """Licence of the files, for the model's card."""


Beta = Annotated[float, Field(ge=0, lt=1)]


class StageConfig(Section):
    """One stage of a run: what is trained, in which order, how fast and how long."""

    kind: Part = {"name": "finetune"}
    """What the stage trains: its tasks, or the encoder on bare texts before them."""
    tasks: tuple[str, ...] | None = None
    """Tasks that take part; all unless set."""
    mode: Literal["full-model", "last-layer"] = "full-model"
    """Everything trains, or the heads alone."""
    freeze_layers: int = Field(default=0, ge=0)
    """Layers from the bottom that stay as they are; any at all also freezes the embeddings."""
    epochs: int = Field(default=3, ge=1)
    """How often the schedule runs; what an epoch is, is the schedule's to say."""
    max_steps: int | None = Field(default=None, ge=1)
    """Updates after which the stage ends, wherever it is."""
    schedule: Part = {"name": "round-robin"}
    """Which task's batch comes when."""
    aggregator: Part = {"name": "sum"}
    """How the tasks' gradients on the encoder become one."""
    weighting: Part = {"name": "fixed"}
    """How much each task's loss counts, besides its own weight."""
    regularizers: tuple[Part, ...] = ()
    """Terms added to every task's loss."""
    batch_size: int = Field(default=32, ge=1)
    """Examples in a batch."""
    accumulate: int = Field(default=1, ge=1)
    """Turns of the schedule that make one update."""
    lr: float = Field(default=5e-5, gt=0)
    """Highest learning rate of the stage."""
    head_lr: float | None = Field(default=None, gt=0)
    """Learning rate of the heads; `lr` unless set."""
    layer_decay: float = Field(default=1.0, gt=0, le=1)
    """Each encoder layer's rate is this times that of the layer above; the top one has `lr`."""
    warmup: float = Field(default=0.0, ge=0, lt=1)
    """Part of the stage over which the rate rises from 0."""
    decay: Literal["constant", "linear", "cosine"] = "constant"
    """How the rate goes on after the warm-up: it stays, or falls to 0 at the end."""
    betas: tuple[Beta, Beta] = (0.9, 0.999)
    """AdamW's memories of the gradient and of its square."""
    eps: float = Field(default=1e-6, gt=0)
    """AdamW's guard against dividing by 0."""
    weight_decay: float = Field(default=0.01, ge=0)
    """Decoupled; never on biases and LayerNorm."""
    clip: float = Field(default=1.0, ge=0)
    """Largest norm of the whole gradient; 0 leaves it as it is."""
    average: float | None = Field(default=None, gt=0, lt=1)
    """Score and keep a running mean of the weights, of which an update leaves this much: 0.999."""
    eval_every: Annotated[int, Field(ge=1)] | Literal["epoch", "end"] = "epoch"
    """Score dev after every epoch, after this many updates, or at the end of the stage alone."""
    eval_limit: int | None = Field(default=None, ge=1)
    """Dev rows a task is scored on while training; all at the end, whatever this says."""
    train_limit: int = Field(default=0, ge=0)
    """Training rows a task is scored on beside dev, drawn once; 0 for none."""
    early_stopping: EarlyStopping | None = None
    """When to end the stage before its time; never unless set."""


class RangeConfig(Section):
    """What a search may set a key to: one of `values`, or what lies between `low` and `high`."""

    low: int | float | None = None
    """Least value. Where both ends are whole numbers, so is what lies between."""
    high: int | float | None = None
    """Greatest value."""
    log: bool = False
    """Whether 1 to 10 is as long a way as 10 to 100; for learning rates."""
    step: int | float | None = Field(default=None, gt=0)
    """Distance between the values tried; any unless set, 1 for whole numbers."""
    values: tuple[Any, ...] | None = Field(default=None, min_length=1)
    """Everything there is to try: numbers, words, parts by name or as tables."""

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
        """Whether it is a range of whole numbers."""
        return isinstance(self.low, int) and isinstance(self.high, int)


class SearchConfig(Section):
    """What `plait search` may change; training itself does not look at it."""

    prune: bool = True
    """Whether trials below the median of the others are stopped early."""
    space: dict[str, RangeConfig] = {}
    """A range for each key, dotted and in quotes, that the search sets: "train.lr"."""

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
    """The run that a run starts from."""

    run: str
    """Its folder, as seen from where the command is run."""
    keep: bool = True
    """Whether tasks that it alone has are kept: answered, scored on dev, but not trained."""

    @model_validator(mode="before")
    @classmethod
    def _from_folder(cls, value: object) -> object:
        return {"run": value} if isinstance(value, str) else value


RecipeName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]*$")]


class RunConfig(Section):
    """A whole run."""

    name: RecipeName
    """What the run is called; its folder too, unless --out names one."""
    about: str = ""
    """A sentence for `plait list recipes`."""
    seed: int = Field(default=11711, ge=0)
    """Every random choice of the run follows from it."""
    plugins: tuple[str, ...] = ()
    """Python files of yours that register parts, relative to the recipe."""
    device: str = "auto"
    """'auto' is the first GPU, or the CPU without a GPU; or set 'cpu', 'cuda', 'cuda:1'."""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """bf16 on a GPU that has it, fp32 elsewhere, unless set."""
    graphs: bool = True
    """Whether a GPU's steps are captured once and replayed, which is faster."""
    select: Literal["sum", "overall", "mean"] = "sum"
    """The dev figure that decides which checkpoint of a stage is best; the last stage's is kept."""
    save_every: int = Field(default=500, ge=1)
    """Updates between checkpoints; each evaluation makes one as well."""
    log_every: int = Field(default=20, ge=1)
    """Updates between two lines of losses in the log."""
    score_first: bool = False
    """Score dev before any training, too."""
    listeners: tuple[Part, ...] = ({"name": "tensorboard"},)
    """Who hears of losses and scores besides metrics.jsonl."""
    data: DataConfig = DataConfig()
    """Where the files are."""
    encoder: EncoderConfig = EncoderConfig()
    """What the tasks share."""
    tasks: dict[Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]+$")], TaskConfig] = Field(
        min_length=1
    )
    """One table per task, under a name of yours."""
    held_out: dict[Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]+$")], TaskConfig] = {}
    """Tasks that have no part in the run, but whose dev and test files count where rows or texts
    are kept out of training, as those of [tasks] do."""
    texts: dict[Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]+$")], TextsConfig] = {}
    """Texts without labels that stages may name, under names of yours."""
    start: StartConfig | None = None
    """The folder of a run to start from, its encoder and the heads of tasks that mean the same;
    the plain encoder unless set."""
    stages: tuple[str, ...] = ("finetune",)
    """The stages in order; each takes [train] and its own [stage.NAME]."""
    train: StageConfig = StageConfig()
    """Settings of every stage."""
    stage: dict[str, dict[str, Any]] = {}
    """Settings of single stages, over those of [train]."""
    search: SearchConfig = SearchConfig()
    """What `plait search` tries."""

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
        """The tasks that take part in some stage."""
        named = {t for name in self.stages for t in self.stage_config(name).tasks or self.tasks}
        return tuple(task for task in self.tasks if task in named)

    def stage_config(self, name: str) -> StageConfig:
        """Return one stage's settings: [train], and [stage.NAME] over it."""
        base = self.train.model_dump()
        return validate(StageConfig, merge(base, self.stage.get(name, {})), f"stage.{name}")
