"""What requests and answers look like; the OpenAPI page is made of it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

UNKNOWN_KEY = "unknown_key"

# The first mistake is told. A million of them, as fit into a body, would keep all others waiting.
Text = Annotated[str, Field(min_length=1)]
Pair = Annotated[list[Text], Field(min_length=2, max_length=2, fail_fast=True)]


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    run: str | None = Field(None, description="Which run; may be left out where one is served.")

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown(cls, values: Any) -> Any:
        """Refuse the first key that is not known; pydantic would describe every one."""
        for key in values if isinstance(values, dict) else ():
            if key not in cls.model_fields:
                # Half a surrogate pair is no text to pydantic, even in an error.
                told = key[:80].encode("utf-8", "replace").decode("utf-8")
                facts = {"key": told, "known": list(cls.model_fields)}
                raise PydanticCustomError(UNKNOWN_KEY, "a key is not known", facts)
        return values


class PredictRequest(_Request):
    """Texts to be answered."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        json_schema_extra={
            "example": {"inputs": ["A quiet little film."], "tasks": ["sentiment"]},
        },
    )

    inputs: Text | Annotated[list[Text | Pair], Field(min_length=1, fail_fast=True)] = Field(
        description="One text, or a list of inputs: each a text, or a list of two for a pair."
    )
    tasks: Annotated[list[str], Field(min_length=1, fail_fast=True)] | str | None = Field(
        None, description="One task or several; without it, all that take as many texts."
    )
    probabilities: bool = Field(True, description="Whether every label's is wanted.")


class EmbedRequest(_Request):
    """Texts to become vectors."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        json_schema_extra={"example": {"inputs": ["A quiet little film."]}},
    )

    inputs: Text | Annotated[list[Text], Field(min_length=1, fail_fast=True)] = Field(
        description="One text, or a list of them."
    )


class ExplainRequest(_Request):
    """A text whose answer is to be explained."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        json_schema_extra={"example": {"input": "A quiet little film.", "task": "sentiment"}},
    )

    input: Text | Pair = Field(description="One text, or a list of two for a pair.")
    task: str | None = Field(
        None, description="Which task; may be left out where one takes as many texts."
    )
    label: str | None = Field(
        None, description="Explain this one's probability; the answer's unless given."
    )


class Answer(BaseModel):
    """A task's answer to an input."""

    value: int | float | list[int] | None = Field(
        description="Number of the class, numbers of the labels that hold, or the score."
    )
    label: str = Field(description="The same in words; a score with two decimals.")
    confidence: float | None = Field(
        None,
        description="Probability that the whole answer is right: of labels, that these hold and no "
        "others. Not for scores.",
    )
    probabilities: dict[str, float | None] | None = Field(
        None,
        description="By label; where any number can hold, each has its own. Not for scores.",
    )
    labels: list[str] | None = Field(
        None, description="The labels that hold, where any number of them can."
    )
    label_probabilities: list[float | None] | None = Field(
        None, description="Each of those labels' own probability, in their order."
    )


class PredictResponse(BaseModel):
    """Answers, one entry for each input, in their order."""

    run: str
    answers: list[dict[str, Answer]] = Field(description="Answers of each input, by task.")


class WordEffect(BaseModel):
    """A word, or some that stand together, and what it adds."""

    place: int = Field(description="Which of the texts it is in, 0 or 1.")
    start: int = Field(description="Where it begins there, in characters.")
    end: int
    text: str
    effect: float = Field(description="What it adds to the probability, or to the score.")
    error: float = Field(description="Standard error of that; 0 where nothing was drawn.")


class ExplainResponse(BaseModel):
    """An answer, and what each word adds to it."""

    run: str
    task: str
    answer: str
    explained: str | None = Field(description="The label that is explained; null for a score.")
    value: float = Field(description="Its probability, or the score, with the whole text.")
    bare: float = Field(description="The same with no word left.")
    method: Literal["shapley", "occlusion"] = Field(
        description="Occlusion where so many words are too much for one request."
    )
    parts: list[WordEffect]


class EmbedResponse(BaseModel):
    """The encoder's vectors, one for each input, in their order."""

    run: str
    width: int
    vectors: list[list[float]]


class Run(BaseModel):
    """A run that is served."""

    name: str
    tasks: list[str]
    embeds: bool = Field(description="Whether /v1/embed can be asked of it.")


class LeftOut(BaseModel):
    """A folder that was looked into and is not served."""

    name: str
    reason: str


class RunList(BaseModel):
    """Every run that is served."""

    runs: list[Run]
    left_out: list[LeftOut] = Field(description="Folders beside them that cannot answer, and why.")
    shows_data: bool = Field(description="Whether reports and mistakes, which quote it, are.")


class Score(BaseModel):
    """How well a run does in one task, on dev."""

    task: str
    kind: str
    rows: int | None
    metric: str = Field(description="The figure that stands for the task.")
    value: float | None
    baseline: float | None = Field(description="What answering without reading would get.")
    metrics: dict[str, float | None]


class Record(BaseModel):
    """What a run's folder tells of itself."""

    name: str
    is_served: bool = Field(description="Whether it can be asked.")
    kind: Literal["run", "ensemble", "export"]
    recipe: str
    about: str
    is_finished: bool
    steps: int | None = Field(description="Updates that were made.")
    best_step: int | None = Field(description="After which the model was best.")
    seconds: float | None = Field(description="That training took.")
    encoder: str
    device: str | None
    plait: str | None = Field(description="The version that trained it.")
    members: list[str] = Field(description="Of an ensemble.")
    scores: list[Score]


Curve = list[tuple[int, float | None]]


class Curves(BaseModel):
    """What a run logged: pairs of updates made and a figure."""

    losses: dict[str, Curve] = Field(description="By task, or by a stage's own objective.")
    scores: dict[str, dict[str, Curve]] = Field(description="On dev, by task and figure.")


class Making(BaseModel):
    """Something that is being made; ask again in a second."""

    status: Literal["making"]
    step: str = Field(description="What is under way, in words.")


class WrongRow(BaseModel):
    """A dev row that a run gets wrong."""

    id: str
    where: str
    texts: list[str]
    truth: str
    answer: str
    confidence: float | None


class TaskMistakes(BaseModel):
    """What a run gets wrong in one task."""

    task: str
    kind: str
    rows: int
    mistakes: int | None = Field(description="How many rows are wrong. Not for scores.")
    metric: str
    value: float | None
    worst: list[WrongRow] = Field(description="The surest, or those farthest from the truth.")
    slices: list[dict[str, Any]] = Field(
        description="Kinds of text, as `plait evaluate --errors` has them."
    )


class MistakeList(BaseModel):
    """What a run gets wrong on dev, by task."""

    tasks: list[TaskMistakes]


class Task(BaseModel):
    """A task of a run."""

    run: str
    name: str
    kind: Literal["classes", "binary", "labels", "score"]
    labels: list[str] = Field(description="Words for the numbers from 0. None for a score.")
    range: list[float] | None = Field(description="Lowest and highest score. For a score alone.")
    num_texts: int = Field(description="1, or 2 where an input is a pair.")
    columns: list[str] = Field(description="What its texts are called in its own files.")
    about: str = Field(description="A sentence about it, where its recipe has one.")
    label_separator: str | None = Field(
        description="What stands between labels in a cell of its files. For several labels alone."
    )


class TaskList(BaseModel):
    """Every task that can be asked."""

    tasks: list[Task]


class Health(BaseModel):
    """Whether it lives, or can answer."""

    status: str


class Problem(BaseModel):
    """What went wrong."""

    code: str = Field(description="For programs; one word that stays the same.")
    message: str = Field(description="For people: what is wrong and what to do.")
    request_id: str = Field(description="As in X-Request-ID and in the server's log.")


class ProblemResponse(BaseModel):
    """The one shape of all errors."""

    error: Problem
