"""Task kind "binary": yes or no."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from plait.tasks.classes import Classes
from plait.tasks.guess import Guess
from plait.tasks.kind import TASK_KINDS
from plait.tasks.reading import LabelReader, plain_text
from plait.tasks.regression import Linear, fit_yes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from plait.tasks.guess import LabelColumn
    from plait.tasks.kind import Bools, Floats

YES_NO = (
    ("no", "yes"),
    ("false", "true"),
    ("n", "y"),
    ("f", "t"),
    ("neg", "pos"),
    ("negative", "positive"),
)
"""Words for no and yes. Labels in the first two pairs need no names in a recipe."""


@TASK_KINDS.register("binary")
@dataclass(frozen=True, kw_only=True)
class Binary(Classes):
    """Yes or no; label 1 is yes. Of a pair, yes means that both texts mean the same."""

    name: ClassVar[str] = "binary"
    default_loss: ClassVar[str] = "bce"
    dtype: ClassVar[type] = np.float32
    is_yes_no: ClassVar[bool] = True

    labels: tuple[str, ...] = ("no", "yes")

    def __post_init__(self) -> None:
        """Check the number of labels."""
        if len(self.labels) != 2:
            raise ValueError(f"a binary task has 2 labels, not {len(self.labels)}")

    @classmethod
    def guess(cls, column: LabelColumn, *, chosen: bool = False) -> Guess | None:
        """Guess from 0 and 1, -1 and 1, or two words of which one means no."""
        values = sorted(set(column.numbers.values()))
        if values and set(values) <= {0, 1}:
            return Guess("0 and 1", strays=column.strays)
        if values == [-1, 1]:
            return Guess("-1 and 1", {"label_map": {"-1": 0.0, "1": 1.0}}, column.strays)
        words = column.spellings
        if not values and len(words) == 2 and (ordered := _order(words[0], words[1])):
            is_default = tuple(map(str.casefold, ordered)) in YES_NO[:2]
            settings = {} if is_default else {"labels": list(ordered)}
            return Guess(f"{ordered[0]} and {ordered[1]}", settings)
        if not chosen:
            return None
        if len(values or words) != 2:
            raise ValueError(f"has {len(values or words)} different values; binary has two")
        if values:
            named = {plain_text(value) or "": float(i) for i, value in enumerate(values)}
            return Guess("two numbers", {"label_map": named}, column.strays)
        return Guess("two words", {"labels": words})

    def reader(
        self,
        columns: Sequence[str],  # noqa: ARG002
        label_map: Mapping[str, float],
        *,
        separator: str,  # noqa: ARG002
        scale: tuple[float, float] | None,  # noqa: ARG002
    ) -> LabelReader:
        """Return a reader that also reads true and false."""
        return LabelReader(self.labels, label_map, also={"false": 0.0, "true": 1.0})

    def same_meaning(self, labels: NDArray[Any], threshold: float | None = None) -> Bools | None:  # noqa: ARG002
        """Return the pairs labelled yes."""
        return np.asarray(labels == 1)

    def fit(self, features: Floats, labels: NDArray[Any], strength: float) -> Linear:
        """Fit a logistic regression of the log-odds of a yes."""
        return fit_yes(features, labels.reshape(len(labels), -1), strength)

    def linear_answers(self, outputs: Floats) -> Floats:
        """Return the probabilities of no and yes."""
        from scipy.special import expit

        yes = expit(outputs)
        return np.concatenate([1 - yes, yes], axis=1)


def _order(first: str, second: str) -> tuple[str, str] | None:
    """Return two words as no and yes; None where it is not clear which is which."""
    for no, yes in ((first, second), (second, first)):
        pair = no.casefold(), yes.casefold()
        if pair in YES_NO or re.fullmatch(
            rf"(?:not?|non|un|in)[-_ ]?{re.escape(pair[1])}", pair[0]
        ):
            return no, yes
    return None
