"""Default settings of a recipe, chosen from its tasks.

`plait new`, the estimators and `plait train` call `choose`. Each choice has a reason;
docs/defaults.md has the measurements. A setting in the recipe is never changed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from plait.config import RunConfig, TaskConfig
    from plait.data import Dataset
    from plait.tasks.kind import Form

FEW = 64
"""Training rows per class below which a contrastive stage comes first."""
CONTRAST_STEPS = 50
"""Updates of the contrastive stage per task."""
JOINED: dict[Form, int] = {"distribution": 3_000, "independent": 3_000, "number": 10_000}
"""Minimum training rows to encode the two texts of a pair as one input."""
ONE_SCORE = 2_000
"""Maximum training rows of the largest task for scoring dev only at the start and the end."""
EPOCHS = ((500, 10), (1_000, 6), (10_000, 4), (20_000, 3))
"""(maximum training rows of the largest task, epochs); 2 epochs for more rows."""
NARROW = 512
"""Maximum encoder width for the higher learning rate, which was measured up to this width."""
IMBALANCED = 0.8
"""Share of the most frequent class from which macro F1 replaces accuracy."""
UNEQUAL = 4
"""Maximum ratio of largest to smallest task for the round-robin schedule."""
LENGTHS = (64, 128, 256)
"""Values of encoder.max_length that `plait new` chooses from, in tokens."""


RULES = {
    "start": "Each head is initialized with a linear model fitted on the untrained encoder's "
    "embeddings: C = 10 for classes and labels, 1 for pairs, 0.1 for scores.",
    "rate": "The encoder's learning rate is 1e-4 up to a width of 512, else 5e-5; the heads' "
    "rate is 1e-3.",
    "epochs": "10 epochs if the largest task is small, down to 2 if it is large; batches of 16.",
    "contrast": "With fewer than 64 rows per class, a contrastive stage comes first: 50 updates "
    "per task.",
    "names": "In that stage a class name that consists of words is one more text of its class.",
    "pairs": "The texts of a pair are encoded separately; as one input from 3,000 rows (scores: "
    "10,000).",
    "one-score": "Up to 2,000 rows, dev is scored only before and after training.",
    "schedule": "Round-robin; if one task is over four times another, by the square root of its "
    "size.",
}
"""One sentence per rule; docs/defaults.md groups its measurements by these ids."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of a task before anything is trained."""

    name: str
    form: Form
    """Of the task's answers."""
    rows: int
    """Training rows."""
    num_classes: int
    """Classes or labels; 0 for a score."""
    is_pair: bool = False
    largest: float = 0.0
    """Share of the training rows in the most frequent class; 0 if unknown."""
    trains_encoder: bool = True
    """False for a task with touch_encoder = false."""
    differs: bool = True
    """False where all training rows are known to have the same label."""
    tokens: int = 0
    """95th percentile of the inputs' length in tokens; 0 if unknown."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One setting, chosen."""

    key: str
    """As a recipe has it: 'train.lr', 'tasks.mood.head'."""
    value: Any
    why: str

    def __str__(self) -> str:
        return f"{self.key} = {_show(self.value)}: {self.why}"


def choose(tasks: Sequence[Facts], width: int = 0) -> list[Choice]:
    """Choose every setting that follows from the tasks and the encoder's width; 0 if unknown."""
    found = [choice for task in tasks for choice in choose_task(task)]
    return [*found, *choose_training(tasks, width)]


def choose_task(task: Facts) -> list[Choice]:
    """Choose a task's head, its metric, and whether the texts of a pair are one input."""
    place = f"tasks.{task.name}"
    found = [
        Choice(
            f"{place}.head",
            {"name": "regression", "dropout": 0.1},
            "initialized with a linear model fitted on the untrained encoder's embeddings",
        )
    ]
    if task.is_pair:
        least = JOINED[task.form]
        apart = task.rows < least
        why = f"fewer than {least:,} rows: comparing two embeddings needs less data"
        if not apart:
            why = f"{least:,} rows or more: enough for the encoder to learn the comparison"
            found = [
                Choice(f"{place}.head", {"name": "mlp", "dropout": 0.1}, "the input has both texts")
            ]
        found.append(Choice(f"{place}.inputs", "apart" if apart else "joined", why))
    if task.form == "distribution" and task.largest >= IMBALANCED:
        share = f"imbalanced classes, {task.largest:.0%} of the rows have one class"
        found.append(Choice(f"{place}.metric", "macro_f1", f"{share}"))
    return found


def choose_training(tasks: Sequence[Facts], width: int = 0) -> list[Choice]:
    """Choose stages, rates, batches, epochs and the schedule."""
    rows = max(task.rows for task in tasks)
    epochs = next((epochs for most, epochs in EPOCHS if rows <= most), 2)
    few = [task.name for task in tasks if _wants_contrast(task)]
    found = []
    if few:
        why = f"fewer than {FEW} rows per class: contrastive training comes first"
        stage = {
            "kind": {"name": "contrast"},
            "tasks": tuple(few),
            "batch_size": 16,
            "lr": 5e-5,
            "epochs": CONTRAST_STEPS,
            "max_steps": CONTRAST_STEPS * len(few),
        }
        found += [
            Choice("stages", ("contrast", "finetune"), why),
            Choice("stage.contrast", stage, f"{CONTRAST_STEPS} updates per task are enough"),
        ]
    found += [
        Choice("train.epochs", epochs, f"the largest task has {rows:,} rows"),
        Choice("train.batch_size", 16 if rows <= 20_000 else 32, "small batches give more updates"),
        choose_rate(width),
        Choice("train.head_lr", 1e-3, "heads need a higher learning rate than the encoder"),
        Choice("train.warmup", 0.1, "the learning rate rises during the first 10% of the updates"),
        Choice("train.decay", "linear", "the learning rate then falls linearly to 0"),
    ]
    if rows <= ONE_SCORE:
        why = "small dev set: choosing the best of many checkpoints would fit noise"
        found.append(Choice("train.eval_every", "end", why))
    if len(tasks) > 1:
        unequal = rows > UNEQUAL * min(task.rows for task in tasks)
        name = "square-root" if unequal else "round-robin"
        why = (
            "task sizes differ: tasks are drawn by the square root of their size"
            if unequal
            else "tasks have similar sizes"
        )
        found.append(Choice("train.schedule", {"name": name}, why))
    return found


def choose_rate(width: int) -> Choice:
    """Choose the encoder's learning rate."""
    if not width:
        return Choice("train.lr", 5e-5, "default for an encoder of unknown width")
    if width <= NARROW:
        return Choice("train.lr", 1e-4, f"best for small encoders (width {width})")
    return Choice("train.lr", 5e-5, f"default for an encoder of width {width}")


def _wants_contrast(task: Facts) -> bool:
    """Return whether a task has single texts, classes, and few rows per class."""
    if task.is_pair or not (task.trains_encoder and task.differs):
        return False
    return task.num_classes > 0 and task.rows < FEW * task.num_classes


def choose_length(tokens: int) -> int:
    """Choose encoder.max_length so that 95% of the inputs are not truncated."""
    return next((length for length in LENGTHS if tokens <= length), LENGTHS[-1])


# --- a recipe that leaves something out ---------------------------------------------------


def find_facts(
    config: RunConfig, rows: Mapping[str, int], train: Mapping[str, Dataset] | None = None
) -> dict[str, Facts]:
    """Gather what is known of a recipe's tasks; `train` are rows that were read."""
    found = {}
    for name in config.trained_tasks:
        if name not in rows:
            continue
        task, largest, differs = config.tasks[name], 0.0, True
        if train and name in train:
            labels = train[name].labels
            assert labels is not None
            differs = len(labels.unique(dim=0)) > 1
            if task.kind.form == "distribution" and len(labels):
                largest = int(labels.long().bincount().max()) / len(labels)
        found[name] = Facts(
            name,
            task.kind.form,
            rows[name],
            len(task.labels),
            is_pair=task.is_pair,
            largest=largest,
            trains_encoder=task.touch_encoder,
            differs=differs,
        )
    return found


def is_whole(config: RunConfig) -> bool:
    """Return whether a recipe leaves nothing to choose."""
    return not (_open_tasks(config) or _open_training(config))


def complete(
    config: RunConfig, facts: Mapping[str, Facts], width: int = 0
) -> tuple[RunConfig, list[Choice]]:
    """Return a recipe with all settings, and the choices made, for an encoder of this width.

    A task with a `head` keeps what it says and the plain defaults. `head_lr` is chosen with `lr`:
    if the recipe sets `lr`, heads use that rate too. `eval_every` is chosen with `epochs`, unless
    the recipe uses early stopping.
    """
    known = [facts[name] for name in config.trained_tasks if name in facts]
    open_tasks, open_keys = set(_open_tasks(config)), set(_open_training(config))
    made = []
    for choice in choose(known, width) if known else ():
        section, _, key = choice.key.rpartition(".")
        if section.startswith("tasks."):
            name = section.removeprefix("tasks.")
            task = config.tasks[name]
            if name not in open_tasks or key in task.model_fields_set:
                continue
            config = _with_task(config, name, key, choice.value)
        elif choice.key in open_keys:
            config = _with(config, section, key, choice.value)
        else:
            continue
        made.append(choice)
    return config, made


def complete_as(config: RunConfig, known: RunConfig) -> RunConfig:
    """Return a recipe with the missing settings taken from another one, such as its run's."""
    for name in _open_tasks(config):
        for key in TASK:
            if name in known.tasks and key not in config.tasks[name].model_fields_set:
                config = _with_task(config, name, key, getattr(known.tasks[name], key))
    for place in _open_training(config):
        section, _, key = place.rpartition(".")
        if section == "stage":
            if key in known.stage:
                config = _with(config, section, key, known.stage[key])
        else:
            config = _with(config, section, key, getattr(known.train if section else known, key))
    return config


def _open_tasks(config: RunConfig) -> list[str]:
    """Return the trained tasks without a head whose loss allows a fitted linear head."""
    return [
        name
        for name in config.trained_tasks
        if "head" not in config.tasks[name].model_fields_set and _can_begin(config, name)
    ]


def _can_begin(config: RunConfig, name: str) -> bool:
    loss = config.tasks[name].loss
    return loss is None or loss["name"] in FITTED


FITTED = ("cross-entropy", "bce", "label-bce", "score-cross-entropy", "mse")
"""Losses with a linear model for initializing a head; other losses keep the default head."""
TASK = ("head", "inputs", "metric")
TRAINING = ["epochs", "batch_size", "lr", "head_lr", "warmup", "decay", "schedule", "eval_every"]


def _open_training(config: RunConfig) -> list[str]:
    """Return the keys of [train] and the stages that the recipe does not set."""
    if config.stages != ("finetune",) or config.train.kind["name"] != "finetune":
        return []  # a recipe that sets stages keeps the plain defaults
    given = config.train.model_fields_set
    keys = [key for key in TRAINING if key not in given]
    if "lr" in given and "head_lr" in keys:
        keys.remove("head_lr")
    is_watched = "epochs" in given or config.train.early_stopping is not None
    if is_watched and "eval_every" in keys:
        keys.remove("eval_every")
    found = [f"train.{key}" for key in keys]
    by_itself = "stages" not in config.model_fields_set and config.start is None
    by_itself = by_itself and config.train.mode == "full-model" and not config.train.freeze_layers
    if by_itself and {"lr", "epochs"} & set(keys):
        found += ["stages", "stage.contrast"]
    return found


def _with_task(config: RunConfig, name: str, key: str, value: Any) -> RunConfig:
    task: TaskConfig = config.tasks[name].model_copy(update={key: value})
    return config.model_copy(update={"tasks": {**config.tasks, name: task}})


def _with(config: RunConfig, section: str, key: str, value: Any) -> RunConfig:
    if section == "train":
        train = config.train.model_copy(update={key: value})
        return config.model_copy(update={"train": train})
    if section == "stage":
        return config.model_copy(update={"stage": {**config.stage, key: value}})
    return config.model_copy(update={key: value})


def _show(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_show(one)}" for key, one in value.items()) + " }"
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(_show, value))}]"
    return f'"{value}"' if isinstance(value, str) else f"{value:g}"
