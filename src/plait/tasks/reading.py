"""Read labels as files have them: words, numbers, lists, votes."""

from __future__ import annotations

import math
from statistics import fmean
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

LIST_MARK = "\x1f"
"""Stands before every word of a list of labels: ASCII's unit separator."""


def plain_text(value: object) -> str | None:
    """Return a value of JSON or Parquet as a user would write it: 1.0 is '1', a boolean 'true'."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.decode("utf-8")
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


class LabelError(ValueError):
    """A label that cannot be used: the reason, and a sentence."""

    def __init__(self, reason: str, sentence: str):
        self.reason = reason
        super().__init__(sentence)


class LabelReader:
    """Reads one label into a class number.

    Looked up in this order: the task's `label_map`, the classes' names, `also`, numbers. Where
    the map or the names are numbers themselves, any other number is refused rather than taken
    for a class number.
    """

    shape: tuple[int, ...] = ()
    """Shape of one label's value."""
    votes: bool = False
    """Whether several columns are votes on one number: some may be missing, the mean counts."""

    def __init__(
        self,
        labels: Sequence[str],
        label_map: Mapping[str, float],
        also: Mapping[str, float] | None = None,
    ):
        self.labels = labels
        self.table = {key.strip(): float(value) for key, value in label_map.items()}
        words = {word.strip().casefold(): float(i) for i, word in enumerate(labels)}
        numbers = {word: i for word, i in words.items() if _is_number(word)}
        # a class called by its own number needs no word
        if any(map(_is_number, self.table)) or all(float(w) == i for w, i in numbers.items()):
            words = {word: i for word, i in words.items() if not _is_number(word)}
        self.words = {**(also or {}), **words}
        self.numbers_are_listed = any(_is_number(key) for key in [*self.table, *self.words])

    def read(self, written: str | None) -> float | npt.NDArray[np.float64]:
        """Return a label's value, or raise a LabelError; NaN for a missing vote."""
        if written is not None and written.startswith(LIST_MARK):
            sentence = "the label is a list, which is for kind = 'labels', or for votes on a score"
            raise LabelError("unknown label", sentence)
        return self.read_one(written)

    def join(self, columns: Sequence[npt.NDArray[np.float64]]) -> npt.NDArray[np.float64]:
        """Return the rows' labels from the values of several columns; NaN without any vote."""
        return np.stack(columns, axis=1)

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
        known = ", ".join(dict.fromkeys([*self.table, *self.labels][:12]))
        among = f"none of {known}" if known else "not a number"
        sentence = f"label {text[:40]!r} is {among}; {self._remedy(text)}"
        raise LabelError("unknown label", sentence)

    def _remedy(self, text: str) -> str:  # noqa: ARG002
        return "name it in label_map if it is meant"

    def _check(self, value: float, text: str) -> None:
        shown = repr(text[:40])
        if not value.is_integer():
            raise LabelError("label out of range", f"label {shown} is not a whole class number")
        if not 0 <= value < len(self.labels):
            allowed = "0 or 1" if len(self.labels) == 2 else f"0 to {len(self.labels) - 1}"
            sentence = f"label {shown} is not {allowed}"
            if value == len(self.labels):
                sentence += "; where labels begin at 1, say so in label_map: 1 = 0, 2 = 1, ..."
            raise LabelError("label out of range", sentence)


def _is_number(text: str) -> bool:
    try:
        return not math.isnan(float(text)) and "_" not in text
    except ValueError:
        return False


class ScoreReader(LabelReader):
    """Reads a number in a range, from a file's own `scale`, or as the mean of several votes.

    What `label_map` names is not scaled.
    """

    def __init__(
        self,
        range: tuple[float, float],
        label_map: Mapping[str, float],
        *,
        scale: tuple[float, float] | None,
        votes: bool,
    ):
        super().__init__((), label_map)
        self.range, self.scale, self.votes = range, scale, votes

    def read(self, written: str | None) -> float:
        """Return a number, or the mean of a list of votes; NaN for a missing vote."""
        if written is not None and written.startswith(LIST_MARK):
            words = [word for word in written.split(LIST_MARK) if word.strip()]
            return fmean(map(self.read_one, words or [""]))
        if self.votes and not (written or "").strip():
            return math.nan
        return self.read_one(written)

    def join(self, columns: Sequence[npt.NDArray[np.float64]]) -> npt.NDArray[np.float64]:
        """Return the mean of each row's votes; NaN without any."""
        values = super().join(columns)
        counts, means = (~np.isnan(values)).sum(axis=1), np.full(len(values), np.nan)
        np.divide(np.nansum(values, axis=1), counts, out=means, where=counts > 0)
        return means

    def _read_number(self, text: str) -> float:
        value = super()._read_number(text)
        if self.scale is None:
            return value
        (first, last), (low, high) = self.scale, self.range
        if not first <= value <= last:
            sentence = f"label {text[:40]!r} is outside the scale {first:g} to {last:g}"
            raise LabelError("label out of range", sentence)
        # Rounding must not carry it over the edge.
        return min(high, max(low, low + (value - first) / (last - first) * (high - low)))

    def _remedy(self, text: str) -> str:
        pointed = text.replace(",", ".", 1)
        if _is_number(pointed) and not _is_number(text):
            return f"write {pointed}, with a point"
        return super()._remedy(text)

    def _check(self, value: float, text: str) -> None:
        low, high = self.range
        if not low <= value <= high:
            sentence = f"label {text[:40]!r} is outside the range {low:g} to {high:g}"
            raise LabelError("label out of range", sentence)


class LabelSetReader(LabelReader):
    """Reads labels with a separator between them, or a list, into 0 or 1 for each label.

    Each of them is looked up as a class is. An empty text or list means that none holds.
    """

    def __init__(self, labels: Sequence[str], label_map: Mapping[str, float], separator: str):
        super().__init__(labels, label_map)
        self.separator, self.shape = separator, (len(labels),)

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
