"""What a task is, apart from the files it is read from."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, PlainSerializer, model_validator

from plait.errors import RecipeError
from plait.tasks.kind import FLAT, TASK_KINDS, Kind

Inputs = Literal["joined", "apart"]


class TaskSpec(BaseModel):
    """A task's kind and texts: one or two texts in; a class, labels or a number out."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        validate_default=True,
        allow_inf_nan=False,
        arbitrary_types_allowed=True,
    )

    kind: Annotated[Kind, PlainSerializer(Kind.to_recipe)]
    """Name of the kind: classes, binary, labels or score; or a table with `name` and settings."""
    labels: tuple[str, ...] = ()
    """Names of the classes or labels, in the order of their numbers, or how many there are."""
    threshold: float = 0.5
    """Probability from which a label holds. Only for labels."""
    range: tuple[float, float] = (0.0, 1.0)
    """Lowest and highest score. Only for a score."""
    text: tuple[str, ...]
    """Names of the text columns: one, which may stand without a list, or two for a pair."""
    inputs: Inputs = "joined"
    """A pair in one input ([CLS] a [SEP] b [SEP]), or each text encoded apart."""
    both_orders: bool = False
    """Whether a pair is answered in both orders, and the mean is the answer. Twice the work."""

    @model_validator(mode="before")
    @classmethod
    def _fill(cls, values: object) -> object:
        if not isinstance(values, dict):
            return values
        values = dict(values)
        if isinstance(values.get("text"), str):
            values["text"] = (values["text"],)
        if isinstance(values.get("labels"), int):
            values["labels"] = tuple(str(i) for i in range(values["labels"]))
        if "kind" in values and not isinstance(values["kind"], Kind):
            values["kind"] = build_kind(values)
        if isinstance(values.get("kind"), Kind) and values["kind"].words:
            values["labels"] = values["kind"].words
        return values

    @model_validator(mode="after")
    def _check(self) -> TaskSpec:
        if not 1 <= len(self.text) <= 2:
            raise ValueError(f"text names {len(self.text)} columns; a task has one or two")
        if len(self.text) == 1 and self.inputs == "apart":
            raise ValueError("inputs = 'apart' needs two text columns")
        if len(self.text) == 1 and self.both_orders:
            raise ValueError("both_orders needs two text columns")
        if twice := [label for label in set(self.labels) if self.labels.count(label) > 1]:
            raise ValueError(f"labels has {min(twice)!r} twice")
        return self

    @property
    def is_pair(self) -> bool:
        """Whether an example has two texts."""
        return len(self.text) == 2


def names_labels(kind: object) -> bool:
    """Return whether label columns name the labels of a kind, given as in a recipe."""
    name = kind.get("name") if isinstance(kind, dict) else kind
    return str(name) in TASK_KINDS and TASK_KINDS[str(name)].columns_name_labels


def build_kind(values: dict[str, Any]) -> Kind:
    """Build a task's kind from its table: `kind`, and the flat settings that the kind has."""
    table = values["kind"]
    if not isinstance(table, str | dict):
        raise ValueError(f"kind is a name, or a table with a name, not {table!r}")
    table = {"name": table} if isinstance(table, str) else dict(table)
    name = table.get("name")
    try:
        known = {setting.name for setting in TASK_KINDS.settings(str(name))}
        for key in FLAT:
            given = values.get(key)
            if given is None or given == TaskSpec.model_fields[key].default:
                continue
            if key in known:
                table[key] = given
            elif key != "range":
                raise ValueError(f"a task of kind {name!r} has no {key}")
        part, settings = TASK_KINDS.validate(table, "kind")
    except RecipeError as error:
        raise ValueError(str(error)) from error
    return part(**settings)
