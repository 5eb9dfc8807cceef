"""A recipe file becomes a RunConfig: read, extended, overridden, checked, saved resolved.

    name = "mine"
    extends = "course"              # a packaged recipe or a file beside this one

    [tasks.mood]                    # one table per task
    [encoder]                       # which encoder, and how its output is pooled
    [train]                         # settings of every stage
    [stage.warm-up]                 # settings of one stage, over those of [train]

Parts (heads, losses, schedules, ...) appear as a name or a table with a name; their own
settings live beside them and are checked by the registry when the run is built.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from copy import deepcopy
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, get_origin

import tomli_w
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from plait.errors import RecipeError, suggest
from plait.types import TaskSpec

if TYPE_CHECKING:
    from collections.abc import Iterable
    from importlib.resources.abc import Traversable

BadRows = Literal["error", "skip"]

PROFILES = "profiles"
"""Folder of the packaged profiles, among the recipes."""


def _as_table(value: object) -> object:
    return {"name": value} if isinstance(value, str) else value


def _as_tuple(value: object) -> object:
    return value if isinstance(value, tuple) else (value,)


Part = Annotated[dict[str, Any], BeforeValidator(_as_table)]
"""A part by its name, or a table of its name and settings."""


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
    """One data file. What is not set here is taken from its task."""

    path: str
    """Relative to the data root, or absolute."""
    text: Annotated[tuple[str, ...], BeforeValidator(_as_tuple)] | None = None
    """Text columns, where this file calls them otherwise."""
    label: str | None = None
    """Column of the label, where this file calls it otherwise."""
    id: str | None = None
    """Column of the row's name; an empty word says that this file has none."""
    label_map: dict[str, float] | None = None
    """As the task's, for this file alone."""
    count: int | None = Field(default=None, ge=1)
    """Take this many rows, drawn without replacement."""
    fraction: float | None = Field(default=None, gt=0, le=1)
    """Take this part of the rows, drawn without replacement."""
    separator: str | None = None
    """Column separator; tab where the header line has one, else comma."""
    quoting: bool = True
    """Whether double quotes enclose a field (RFC 4180)."""

    @model_validator(mode="before")
    @classmethod
    def _from_path(cls, value: object) -> object:
        return {"path": value} if isinstance(value, str) else value


Files = Annotated[tuple[FileConfig, ...], BeforeValidator(_as_tuple)]


class TaskConfig(Section, TaskSpec):
    """A task with its files, head, loss and weight."""

    about: str = ""
    """A sentence for readers."""
    label: str | None = None
    """Column of the label."""
    id: str | None = None
    """Column of the row's name, kept for submissions."""
    label_map: dict[str, float] = Field(default={})
    """Label as written in the file to class number or score."""
    train: Files = ()
    """Files to train on: one, or a list."""
    dev: Files = ()
    """Files to choose the best checkpoint by."""
    test: Files = ()
    """Files to answer in the end; labels are not needed for `plait submit`."""
    count: int | None = Field(default=None, ge=1)
    """Draw this many training rows out of all the task's files, without replacement."""
    fraction: float | None = Field(default=None, gt=0, le=1)
    """Draw this part of the training rows instead."""
    bad_rows: BadRows | None = None
    """What to do with rows that fail a check; [data].bad_rows unless set."""
    head: Part = Field(default={"name": "linear"})
    """What turns the encoder's vectors into the task's outputs."""
    loss: Part | None = None
    """Unless set: cross-entropy for classes, bce for binary, score-cross-entropy for a score."""
    adapter: Part | None = None
    """Parameters of the task's own inside the encoder's layers; none unless set."""
    touch_encoder: bool = True
    """Whether the task trains the shared encoder; if not, its head and adapter alone."""
    augment: Annotated[tuple[Part, ...], BeforeValidator(_as_tuple)] = ()
    """What adds changed copies of its training rows to them."""
    weight: float = Field(default=1.0, ge=0)
    """The task's loss is multiplied by this."""
    metric: str | None = None
    """The figure that stands for the task; accuracy, or pearson for a score, unless set."""
    batch_size: int | None = Field(default=None, ge=1)
    """Examples in a batch of this task; the stage's unless set."""
    submit_column: str | None = None
    """Header of the answer's column in a submission file."""
    submit_name: str | None = None
    """How a submission file's name begins; the task's own name unless set."""


class DataConfig(Section):
    """Where files are, and what to do with bad rows."""

    root: str | None = None
    """Folder the files are relative to; `--data` and PLAIT_DATA come first. '@sample' is the
    sample inside the package."""
    hint: str = ""
    """What to download or point at; shown when a file is not there."""
    bad_rows: BadRows = "error"
    """Stop at a row that fails a check, naming its line, or skip it and say so."""


class EncoderConfig(Section):
    """Which encoder, and how its output becomes one vector."""

    source: str = "packaged"
    """'packaged', a folder in the Hub's layout, or a Hub id."""
    revision: str | None = None
    """Commit of a Hub id; run.json tells which one a run was made with."""
    sha256: str | None = None
    """Expected hash of the weights; of shards, one after the other."""
    architecture: Literal["bert", "auto"] = "bert"
    """plait's own BERT, or whatever transformers' AutoModel makes of the folder."""
    pooling: Literal["cls-pooler", "cls", "mean"] = "mean"
    """One vector per input: [CLS] through the pooler, [CLS] as it is, or the mean of all tokens."""
    dropout: float | None = Field(default=None, ge=0, lt=1)
    """Of embeddings, attention and layers; the encoder's own configuration unless set."""
    max_length: int = Field(default=128, ge=8)
    """Tokens of an input, special ones included; longer ones lose their end."""
    segments: bool = True
    """Whether the second text of a pair gets segment id 1 (else all are 0)."""


class EarlyStopping(Section):
    """Stop when dev no longer gets better."""

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
    eval_every: Annotated[int, Field(ge=1)] | Literal["epoch"] = "epoch"
    """Score dev after every epoch, or after this many updates."""
    eval_limit: int | None = Field(default=None, ge=1)
    """Dev rows a task is scored on while training; all at the end, whatever this says."""
    train_limit: int = Field(default=0, ge=0)
    """Training rows a task is scored on beside dev, drawn once; 0 for none."""
    early_stopping: EarlyStopping | None = None
    """When to end the stage before its time; never unless set."""


class PublishedConfig(Section):
    """The published run that a recipe rebuilds, and what it reached: to read, not to train by."""

    system: str
    """Which report it is from."""
    table: str = ""
    """The report's table; empty where it has but one."""
    row: str
    """The row, in the report's words."""
    figures: dict[str, float] = {}
    """Dev figures as printed, by task or summary; none where the report gives none."""
    note: str = ""
    """What else the report says of it."""
    alias: str | None = None
    """The packaged recipe of the same run, where the report prints it twice."""


class RunConfig(Section):
    """A whole run."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]*$")
    """What the run is called; its folder too, unless --out names one."""
    about: str = ""
    """A sentence for `plait list recipes`."""
    seed: int = Field(default=11711, ge=0)
    """Every random choice of the run follows from it."""
    plugins: tuple[str, ...] = ()
    """Python files of yours that register parts, relative to the recipe."""
    device: str = "auto"
    """'auto' is the first GPU, or the CPU where there is none; else 'cpu', 'cuda', 'cuda:1'."""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """bf16 on a GPU that has it, fp32 elsewhere, unless set."""
    select: Literal["sum", "overall", "mean"] = "sum"
    """The dev figure that decides which checkpoint is best."""
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
    texts: dict[Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]+$")], TextsConfig] = {}
    """Texts without labels that stages may name, under names of yours."""
    stages: tuple[str, ...] = ("finetune",)
    """The stages in order; each takes [train] and its own [stage.NAME]."""
    train: StageConfig = StageConfig()
    """Settings of every stage."""
    stage: dict[str, dict[str, Any]] = {}
    """Settings of single stages, over those of [train]."""
    published: PublishedConfig | None = None
    """The published row that the recipe rebuilds; none unless set."""

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

    def stage_config(self, name: str) -> StageConfig:
        """Return one stage's settings: [train], and [stage.NAME] over it."""
        base = self.train.model_dump()
        return _validate(StageConfig, _merge(base, self.stage.get(name, {})), f"stage.{name}")


# --- reading -----------------------------------------------------------------------------


def read_recipe(
    recipe: str | Path,
    overrides: Iterable[str] = (),
    extra: Mapping[str, Any] | None = None,
    profile: str | None = None,
) -> RunConfig:
    """Read a recipe by packaged name or path, with everything it extends and `key=value`s.

    A profile (another encoder, and the rate that suits it) is laid over the recipe, `extra`
    over both, and the overrides come last.
    """
    table = _read_chain(str(recipe), None, ())
    if profile is not None:
        table = _merge(table, _read_profile(profile))
    table = _merge(table, extra or {})
    for override in overrides:
        _override(table, override)
    return _validate(RunConfig, table, str(recipe))


def list_recipes() -> dict[str, dict[str, Any]]:
    """Return every packaged recipe's table by its name, as written (not extended).

    Those without `about` are there to be extended by others; profiles are not among them.
    """
    found: dict[str, dict[str, Any]] = {}

    def walk(folder: Traversable, prefix: str) -> None:
        for item in sorted(folder.iterdir(), key=lambda i: i.name):
            if f"{prefix}{item.name}" == PROFILES:
                continue
            if item.is_dir():
                walk(item, f"{prefix}{item.name}/")
            elif item.name.endswith(".toml"):
                name = prefix + item.name.removesuffix(".toml")
                found[name] = tomllib.loads(item.read_text(encoding="utf-8"))

    walk(resources.files("plait") / "recipes", "")
    return found


def _read_profile(name: str) -> dict[str, Any]:
    """Read what a packaged profile lays over a recipe."""
    folder = resources.files("plait") / "recipes" / PROFILES
    known = {item.name.removesuffix(".toml"): item for item in folder.iterdir()}
    if name not in known:
        raise RecipeError(f"there is no profile {name!r}{suggest(name, known)}")
    return tomllib.loads(known[name].read_text(encoding="utf-8"))


def _read_chain(recipe: str, beside: Path | None, seen: tuple[str, ...]) -> dict[str, Any]:
    """Read one recipe file and merge it over what it extends."""
    text, origin, folder = _find(recipe, beside)
    # One file has many spellings (a/../b.toml), so a circle is told by the resolved path.
    this = origin if folder is None else str(Path(origin).resolve())
    if this in seen:
        raise RecipeError(f"recipes extend one another in a circle: {' -> '.join([*seen, this])}")
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise RecipeError(f"{origin} is not valid TOML: {error}") from error
    if folder is not None and "plugins" in table:  # named beside the recipe that asks for them
        table["plugins"] = [str((folder / p).resolve()) for p in _words(table, "plugins", origin)]
    merged: dict[str, Any] = {}
    for parent in _words(table, "extends", origin):
        merged = _merge(merged, _read_chain(parent, folder, (*seen, this)))
    table.pop("extends", None)
    return _merge(merged, table)


def _words(table: Mapping[str, Any], key: str, origin: str) -> list[str]:
    """Return a key that holds a word or a list of words, as a list."""
    value = table.get(key, [])
    words = [value] if isinstance(value, str) else value
    if not (isinstance(words, list) and all(isinstance(word, str) for word in words)):
        raise RecipeError(f"{origin}: {key} = {value!r} should be a word or a list of words")
    return words


def _find(recipe: str, beside: Path | None) -> tuple[str, str, Path | None]:
    """Return a recipe's text, where it came from, and its folder if it is a file."""
    if recipe.endswith(".toml"):
        path = Path(recipe) if beside is None else beside / recipe
        try:
            # -sig: some editors begin a file with a byte order mark, which TOML does not know.
            return path.read_text(encoding="utf-8-sig"), str(path), path.parent
        except FileNotFoundError as error:
            raise RecipeError(f"there is no recipe file {path}") from error
        except (OSError, UnicodeDecodeError) as error:
            raise RecipeError(f"cannot read {path}: {error}") from error
    packaged = resources.files("plait") / "recipes" / f"{recipe}.toml"
    if not packaged.is_file():
        raise RecipeError(
            f"there is no recipe {recipe!r}{suggest(recipe, list_recipes())} "
            "(see `plait list recipes`; one of your own is named by its path, ending in .toml)"
        )
    return packaged.read_text(encoding="utf-8"), recipe, None


def _merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Lay one table over another: tables merge, everything else is replaced.

    A part that names itself anew starts from its own defaults, not from the settings
    of the part it replaces.
    """
    merged = deepcopy(dict(base))
    for key, value in over.items():
        old = merged.get(key)
        if isinstance(value, dict) and isinstance(old, str):
            old = _make_room(key, old)
        if isinstance(value, dict) and isinstance(old, dict):
            # A task or a label may itself be called "name"; only a word names a part.
            renamed = isinstance(value.get("name"), str) and value["name"] != old.get("name")
            merged[key] = deepcopy(value) if renamed else _merge(old, value)
        else:
            merged[key] = deepcopy(value)
    return merged


def _make_room(key: str, word: str) -> dict[str, Any]:
    """Turn a part or a data file given by one word into a table, for settings beside it."""
    return {"path" if key in ("train", "dev", "test") else "name": word}


def _override(table: dict[str, Any], override: str) -> None:
    """Apply one `dotted.key=value`; the value is TOML, or a plain word."""
    key, equals, text = override.partition("=")
    if not equals or not key.strip():
        raise RecipeError(f"override {override!r} is not of the form key=value")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text.strip()
    *parents, last = [k.strip() for k in key.split(".")]
    for parent in parents:
        below = table.setdefault(parent, {})
        if isinstance(below, str):
            below = table[parent] = _make_room(parent, below)
        if not isinstance(below, dict):
            raise RecipeError(f"override {override!r}: {parent} is not a table")
        table = below
    table[last] = value


# --- checking ----------------------------------------------------------------------------

M = TypeVar("M", bound=BaseModel)


def _validate(model: type[M], table: Mapping[str, Any], origin: str) -> M:
    try:
        # Strict, so that "3" is no number and true is not 1.
        return model.model_validate(_with_tuples(table), strict=True)
    except ValidationError as error:
        raise RecipeError(_explain(error, model, origin)) from error


def _with_tuples(value: Any) -> Any:
    """Return a table with tuples for TOML's lists: what the sections hold, strictly."""
    if isinstance(value, Mapping):
        return {k: _with_tuples(v) for k, v in value.items()}
    return tuple(map(_with_tuples, value)) if isinstance(value, list | tuple) else value


# What pydantic puts among the keys for a validator or one side of a union.
_NOT_KEYS = ("function-", "literal[", "constrained-")

_IN_TOML = {
    "model_type": "should be a table",
    "dict_type": "should be a table",
    "tuple_type": "should be a list",
}


def _explain(error: ValidationError, model: type[BaseModel], origin: str) -> str:
    """Say the first thing wrong in one sentence, with the nearest known key."""
    details = error.errors()
    # An unknown key first: what else is wrong often follows from it.
    detail = next((d for d in details if d["type"] == "extra_forbidden"), details[0])
    loc = [str(part) for part in detail["loc"] if not str(part).startswith(_NOT_KEYS)]
    key = ".".join(loc)
    if detail["type"] == "extra_forbidden":
        return f"{origin}: {key} is not a setting{suggest(loc[-1], _keys_at(model, loc[:-1]))}"
    if detail["type"] == "missing":
        return f"{origin}: {key} must be set"
    message = _IN_TOML.get(detail["type"]) or detail["msg"].removeprefix("Value error, ")
    shown = "" if isinstance(detail["input"], dict | BaseModel) else f" = {detail['input']!r}"
    return f"{origin}: {key}{shown}: {message}" if key else f"{origin}: {message}"


def _keys_at(model: type[BaseModel], path: list[str]) -> list[str]:
    """Return the keys a table of the recipe may have."""
    here, steps = model, iter(path)
    for step in steps:
        field = here.model_fields.get(step)
        if field is None:  # a place in a list
            continue
        here = _model_in(field.annotation) or here
        if get_origin(field.annotation) is dict:
            next(steps, None)  # a name the user chose, such as a task's
    return list(here.model_fields)


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """Find the section type inside dict[str, X], tuple[X, ...] or X | None."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for inner in getattr(annotation, "__args__", ()):
        if found := _model_in(inner):
            return found
    return None


# --- saving ------------------------------------------------------------------------------


def to_toml(config: RunConfig) -> str:
    """Write the resolved recipe: every setting, defaults included."""
    return tomli_w.dumps(_without_none(config.model_dump(mode="json")))


def differences(old: RunConfig, new: RunConfig) -> list[str]:
    """List `key: old -> new` for every setting in which two recipes differ."""
    a = _flatten(_without_none(old.model_dump(mode="json")))
    b = _flatten(_without_none(new.model_dump(mode="json")))

    def show(flat: Mapping[str, Any], key: str) -> str:
        return repr(flat[key]) if key in flat else "unset"

    return [
        f"{key}: {show(a, key)} -> {show(b, key)}"
        for key in sorted(a.keys() | b.keys())
        if a.get(key) != b.get(key)
    ]


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _without_none(v) for k, v in value.items() if v is not None}
    if isinstance(value, list):
        return [_without_none(v) for v in value]
    return value


def _flatten(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, dict):
            flat |= _flatten(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = value
    return flat
