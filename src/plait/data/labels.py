"""Labels as they are written in files become numbers."""

from __future__ import annotations

import math
from statistics import fmean
from typing import TYPE_CHECKING

import numpy as np

from plait.data.source import LIST_MARK, plain_text
from plait.types import TaskSpec

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from plait.config import TaskConfig

YES_OR_NO = TaskSpec(kind="binary", text=("text",))
"""What one of several columns of 0 and 1 says of its label."""


class LabelError(ValueError):
    """A label that cannot be used: the reason, and a sentence."""

    def __init__(self, reason: str, sentence: str):
        self.reason = reason
        super().__init__(sentence)


class LabelReader:
    """A label as written becomes a class number, 0 or 1, or a score.

    Looked up in this order: the task's `label_map`, the words for its classes, true and false
    for a binary task, numbers. Where the map or the words are numbers themselves, a number
    that is not among them is refused rather than taken for a class number.
    """

    shape: tuple[int, ...] = ()
    """Of what a label becomes: one number."""
    votes: bool = False
    """Whether several columns are votes on one score: some may be missing, and the mean counts."""

    def __init__(self, spec: TaskSpec, label_map: Mapping[str, float]):
        self.spec = spec
        self.table = {key.strip(): float(value) for key, value in label_map.items()}
        words = {word.strip().casefold(): float(i) for i, word in enumerate(spec.labels)}
        numbers = {word: i for word, i in words.items() if _is_number(word)}
        # a class called by its own number needs no word
        if any(map(_is_number, self.table)) or all(float(w) == i for w, i in numbers.items()):
            words = {word: i for word, i in words.items() if not _is_number(word)}
        if spec.kind == "binary":
            words = {"false": 0.0, "true": 1.0} | words
        self.words = words
        self.numbers_are_listed = any(_is_number(key) for key in [*self.table, *words])

    def read(self, written: str | None) -> float | npt.NDArray[np.float64]:
        """Return a label's value, or raise a LabelError; nan for a vote that is missing."""
        if written is not None and written.startswith(LIST_MARK):
            if self.spec.kind != "score":
                told = "the label is a list, which is for kind = 'labels', or for votes on a score"
                raise LabelError("unknown label", told)
            words = [word for word in written.split(LIST_MARK) if word.strip()]
            return fmean(map(self.read_one, words or [""]))
        if self.votes and not (written or "").strip():
            return math.nan
        return self.read_one(written)

    def join(self, columns: Sequence[npt.NDArray[np.float64]]) -> npt.NDArray[np.float64]:
        """Turn the values of several columns into those of the rows; nan without any vote."""
        values = np.stack(columns, axis=1)
        if not self.votes:
            return values
        counts, means = (~np.isnan(values)).sum(axis=1), np.full(len(values), np.nan)
        np.divide(np.nansum(values, axis=1), counts, out=means, where=counts > 0)
        return means

    def read_one(self, written: str | None) -> float:
        """Return the number that one word stands for."""
        text = (written or "").strip()
        if not text or text.casefold() == "nan":
            raise LabelError("missing label", "the label is missing")
        value = self._look_up(text)
        if value is None:
            value = self._read_number(text)
        self._check(value, text)
        return value

    def _look_up(self, text: str) -> float | None:
        value = self.table.get(text)
        return self.words.get(text.casefold()) if value is None else value

    def _read_number(self, text: str) -> float:
        if _is_number(text):
            value = float(text)
            listed = self._look_up(plain_text(value) or "")  # '1.0' where '1' is listed
            if listed is not None:
                return listed
            if not self.numbers_are_listed:
                return value
        known = ", ".join(dict.fromkeys([*self.table, *self.spec.labels][:12]))
        among = f"none of {known}" if known else "not a number"
        remedy = "name it in label_map if it is meant"
        pointed = text.replace(",", ".", 1)
        if self.spec.kind == "score" and _is_number(pointed) and not _is_number(text):
            remedy = f"write {pointed}, with a point"
        sentence = f"label {text[:40]!r} is {among}; {remedy}"
        raise LabelError("unknown label", sentence)

    def _check(self, value: float, text: str) -> None:
        spec = self.spec
        shown = repr(text[:40])
        if spec.kind == "score":
            low, high = spec.range
            if not low <= value <= high:
                sentence = f"label {shown} is outside the range {low:g} to {high:g}"
                raise LabelError("label out of range", sentence)
        elif not value.is_integer():
            raise LabelError("label out of range", f"label {shown} is not a whole class number")
        elif not 0 <= value < len(spec.labels):
            allowed = "0 or 1" if len(spec.labels) == 2 else f"0 to {len(spec.labels) - 1}"
            sentence = f"label {shown} is not {allowed}"
            if value == len(spec.labels):
                sentence += "; where labels begin at 1, say so in label_map: 1 = 0, 2 = 1, ..."
            raise LabelError("label out of range", sentence)


def _is_number(text: str) -> bool:
    try:
        return not math.isnan(float(text)) and "_" not in text
    except ValueError:
        return False


class ScaledReader(LabelReader):
    """A score on a scale of the file's own becomes one in the task's range.

    What `label_map` names is taken as it says.
    """

    def __init__(self, spec: TaskSpec, label_map: Mapping[str, float], scale: tuple[float, float]):
        super().__init__(spec, label_map)
        self.scale = scale

    def _read_number(self, text: str) -> float:
        value = super()._read_number(text)
        (first, last), (low, high) = self.scale, self.spec.range
        if not first <= value <= last:
            sentence = f"label {text[:40]!r} is outside the scale {first:g} to {last:g}"
            raise LabelError("label out of range", sentence)
        # Rounding must not carry it over the edge.
        return min(high, max(low, low + (value - first) / (last - first) * (high - low)))


class LabelSetReader(LabelReader):
    """Labels with a sign between them, or a list of them, become 0 or 1 for each label.

    Each of them is looked up as a class is. An empty text or list says that none holds.
    """

    def __init__(self, spec: TaskSpec, label_map: Mapping[str, float], separator: str):
        super().__init__(spec, label_map)
        self.separator, self.shape = separator, (len(spec.labels),)

    def read(self, written: str | None) -> npt.NDArray[np.float64]:
        """Return 0 or 1 for each label, or raise a LabelError."""
        if written is None:
            raise LabelError("missing label", "the label is missing; an empty text says none")
        if written.startswith(LIST_MARK):
            words = written.split(LIST_MARK)[1:]
        else:
            words = written.split(self.separator)
        values = np.zeros(self.shape)
        # Of 'a;b;' the last word is empty, and of '' the only one.
        for word in filter(None, map(str.strip, words)):
            values[int(self.read_one(word))] = 1.0
        return values


def build_reader(
    task: TaskConfig,
    columns: tuple[str, ...],
    label_map: Mapping[str, float],
    scale: tuple[float, float] | None = None,
) -> LabelReader:
    """Make what reads a task's labels out of one column, or of one for each label or vote."""
    if task.kind != "labels":
        reader = (
            LabelReader(task, label_map) if scale is None else ScaledReader(task, label_map, scale)
        )
        reader.votes = len(columns) > 1
        return reader
    if len(columns) > 1:
        return LabelReader(YES_OR_NO, label_map)
    return LabelSetReader(task, label_map, task.label_separator)
