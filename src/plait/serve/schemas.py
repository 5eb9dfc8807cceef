"""JSON of requests and answers, as the endpoints take and send it and /docs describes it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

if TYPE_CHECKING:
    from collections.abc import Sequence

    from plait.config import TaskConfig
    from plait.types import Prediction

MAX_INPUTS = 256
MAX_CHARS = 20_000
"""Characters of one text: all of it is tokenised, even if the encoder reads less."""

# fail_fast: otherwise a body of a million wrong inputs has a million errors.
Text = Annotated[str, Field(max_length=MAX_CHARS, pattern=r"^[^\x00]*[^\x00\s][^\x00]*$")]
Pair = Annotated[list[Text], Field(min_length=2, max_length=2, fail_fast=True)]
Count = Field(min_length=1, max_length=MAX_INPUTS, fail_fast=True)


class RequestBody(BaseModel):
    """Keys that every request has."""

    model_config = ConfigDict(extra="forbid", strict=True)

    run: str | None = Field(None, description="Name of the run; needed if several are served.")


class PredictRequest(RequestBody):
    """Texts to answer."""

    inputs: Text | Annotated[list[Text | Pair], Count] = Field(
        examples=[["A quiet little film."]],
        description="One text, or a list of inputs: each a text, or a list of two for a pair.",
    )
    tasks: Annotated[list[str], Count] | str | None = Field(
        None, description="One task or several; by default all that take as many texts."
    )
    probabilities: bool = Field(True, description="Include the probability of every label.")


class ExplainRequest(RequestBody):
    """A text whose answer is to be explained."""

    input: Text | Pair = Field(description="One text, or a list of two for a pair.")
    task: str | None = Field(None, description="Needed if several tasks take as many texts.")
    label: str | None = Field(
        None, description="The label whose probability is explained; by default the answer."
    )


class EmbedRequest(RequestBody):
    """Texts to embed."""

    inputs: Text | Annotated[list[Text], Count] = Field(
        examples=[["A quiet little film."]], description="One text, or a list of texts."
    )


BODIES: dict[str, type[RequestBody]] = {
    "/v1/predict": PredictRequest,
    "/v1/explain": ExplainRequest,
    "/v1/embed": EmbedRequest,
}
"""The request body of each endpoint that takes one."""


class Answer(BaseModel):
    """A task's answer to an input."""

    value: int | float | list[int] | None = Field(
        description="Number of the class, numbers of the labels that hold, or the score."
    )
    label: str = Field(description="The answer in words; a score with two decimals.")
    confidence: float | None = Field(
        None, description="Probability that the answer is right (all labels). Not for scores."
    )
    probabilities: dict[str, float | None] | None = Field(
        None, description="Probability of each label. Not for scores."
    )
    labels: list[str] | None = Field(
        None, description="The labels that hold. For multi-label tasks."
    )
    label_probabilities: list[float | None] | None = Field(
        None, description="Probability of each label that holds. For multi-label tasks."
    )


class PredictResponse(BaseModel):
    """Answers by task, one entry for each input, in their order."""

    run: str
    answers: list[dict[str, Answer]]


class WordEffect(BaseModel):
    """A word, or several neighbours, and its effect on the answer."""

    place: int = Field(description="Index of its text, 0 or 1.")
    start: int = Field(description="Its first character in that text.")
    end: int = Field(description="The character after its last.")
    text: str
    effect: float = Field(description="What it adds to the probability, or to the score.")
    error: float = Field(description="Standard error of the effect.")


class ExplainResponse(BaseModel):
    """An answer, and the effect of each word on it."""

    run: str
    task: str
    answer: str
    explained: str | None = Field(description="The label that is explained; null for a score.")
    value: float = Field(description="Its probability, or the score, for the whole text.")
    bare: float = Field(description="The same without any word.")
    method: Literal["shapley"]
    parts: list[WordEffect]


class EmbedResponse(BaseModel):
    """One vector for each input, in their order."""

    run: str
    width: int
    vectors: list[list[float]]


class Run(BaseModel):
    """A run that is served."""

    name: str
    tasks: list[str]
    embeds: bool = Field(description="Whether /v1/embed accepts it.")


class RunList(BaseModel):
    """All runs that are served."""

    runs: list[Run]


class Task(BaseModel):
    """A task of a run."""

    run: str
    name: str
    kind: str = Field(description="classes, binary, labels, score, or a kind of the user's.")
    labels: list[str] = Field(description="In the order of their numbers. Empty for a score.")
    range: list[float] | None = Field(description="Lowest and highest score. Only for a score.")
    num_texts: int = Field(description="1, or 2 for pairs.")
    columns: list[str] = Field(description="Names of the text columns in its data files.")
    about: str = Field(description="Its description in the recipe.")
    label_separator: str | None = Field(
        description="What separates labels in a cell of its data files. Only for multi-label tasks."
    )


class TaskList(BaseModel):
    """All tasks that can be asked."""

    tasks: list[Task]


class ErrorContent(BaseModel):
    """What went wrong."""

    code: str = Field(description="A fixed word, for programs.")
    message: str = Field(description="What is wrong and what to do, for people.")
    request_id: str = Field(description="As in the header X-Request-ID and in the server's log.")


class ErrorResponse(BaseModel):
    """The shape of every error."""

    error: ErrorContent


# --- objects to JSON ---------------------------------------------------------------------


def describe_answer(answer: Prediction, labels: Sequence[str], *, full: bool) -> dict[str, Any]:
    """Return an answer as JSON; `full` includes every label's probability. NaN becomes null."""
    several = isinstance(answer.value, tuple)
    value = list(answer.value) if isinstance(answer.value, tuple) else _finite(answer.value)
    found: dict[str, Any] = {"value": value, "label": answer.label}
    if answer.probabilities:
        found["confidence"] = _finite(answer.confidence)
        if full:
            shares = map(_finite, answer.probabilities)
            found["probabilities"] = dict(zip(labels, shares, strict=True))
    if several:
        found["labels"] = list(answer.words)
        found["label_probabilities"] = [_finite(share) for share in answer.word_probabilities]
    return found


def _finite(number: float | None) -> float | None:
    return number if number is not None and math.isfinite(number) else None


def describe_task(run: str, name: str, task: TaskConfig) -> dict[str, Any]:
    """Return what a client needs to know of a task, as JSON."""
    return {
        "run": run,
        "name": name,
        "kind": task.kind.name,
        "labels": list(task.labels),
        "range": list(task.range) if task.kind.form == "number" else None,
        "num_texts": len(task.text),
        "columns": list(task.text),
        "about": task.about,
        "label_separator": task.label_separator if task.kind.form == "independent" else None,
    }
