"""What requests and answers look like; the OpenAPI page is made of it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Text = Annotated[str, Field(min_length=1)]
Pair = Annotated[list[Text], Field(min_length=2, max_length=2)]


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    run: str | None = Field(None, description="Which run; may be left out where one is served.")


class PredictRequest(_Request):
    """Texts to be answered."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        json_schema_extra={
            "example": {"inputs": ["A quiet little film."], "tasks": ["sentiment"]},
        },
    )

    inputs: Text | Annotated[list[Text | Pair], Field(min_length=1)] = Field(
        description="One text, or a list of inputs: each a text, or a list of two for a pair."
    )
    tasks: Annotated[list[str], Field(min_length=1)] | str | None = Field(
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

    inputs: Text | Annotated[list[Text], Field(min_length=1)] = Field(
        description="One text, or a list of them."
    )


class Answer(BaseModel):
    """A task's answer to an input."""

    value: int | float | list[int] | None = Field(
        description="Number of the class, numbers of the labels that hold, or the score."
    )
    label: str = Field(description="The same in words; a score with two decimals.")
    confidence: float | None = Field(
        None, description="Probability of the answer given. Not for scores."
    )
    probabilities: dict[str, float | None] | None = Field(
        None, description="By label. Not for scores."
    )
    labels: list[str] | None = Field(
        None, description="The labels that hold, where any number of them can."
    )


class PredictResponse(BaseModel):
    """Answers, one entry for each input, in their order."""

    run: str
    answers: list[dict[str, Answer]] = Field(description="Answers of each input, by task.")


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


class RunList(BaseModel):
    """Every run that is served."""

    runs: list[Run]


class Task(BaseModel):
    """A task of a run."""

    run: str
    name: str
    kind: Literal["classes", "binary", "labels", "score"]
    labels: list[str] = Field(description="Words for the numbers from 0. None for a score.")
    range: list[float] | None = Field(description="Lowest and highest score. For a score alone.")
    num_texts: int = Field(description="1, or 2 where an input is a pair.")


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
