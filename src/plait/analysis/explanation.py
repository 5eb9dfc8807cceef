"""An answer becomes what each word of its text adds to it.

Words are left out, and the answer is asked for again: nothing is looked at inside the model, so
that ensembles and encoders of any kind are explained alike. Shapley values share the whole way
from the answer to no words to the answer to all of them among the words: a word's part is what it
adds on average, over all orders in which words could come in (Shapley 1953; for answers of
models Strumbelj and Kononenko 2010). With few words all subsets are asked; with more, orders are
drawn, each with its reverse, which takes out what is linear in the place of a word.
"""

from __future__ import annotations

import math
import re
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from plait.errors import UsageError, suggest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from plait.inference.predictor import Answerer, Text
    from plait.tasks import TaskSpec
    from plait.tasks.kind import Floats
    from plait.types import Prediction

Method = Literal["shapley", "occlusion"]

_ALONE = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
"""Scripts without spaces, of which each sign is taken by itself: kana and Chinese characters."""
PART = re.compile(rf"[{_ALONE}]|[^\s{_ALONE}]+")
MOST_PARTS = 48
"""Parts beyond which neighbours are taken together."""
MOST_EXACT = 8
"""Parts up to which every subset is asked for."""


@dataclass(frozen=True, slots=True)
class Part:
    """A word, or some that stand together, and what it adds to the answer."""

    place: int
    """Which of the texts it is in, 0 or 1."""
    start: int
    """Where it begins there, in characters."""
    end: int
    text: str
    effect: float = 0.0
    """What it adds to the probability, or to the score."""
    error: float = 0.0
    """Standard error of the effect; 0 where nothing was drawn."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """An answer, and what each part of the text adds to it."""

    prediction: Prediction
    label: str | None
    """The class or label whose probability is explained; None for a score."""
    value: float
    """Its probability, or the score, with the whole text."""
    bare: float
    """The same with no word left."""
    parts: tuple[Part, ...]
    method: Method

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return {
            "task": self.prediction.task,
            "answer": self.prediction.label,
            "explained": self.label,
            "value": self.value,
            "bare": self.bare,
            "method": self.method,
            "parts": [asdict(part) for part in self.parts],
        }


def explain(
    model: Answerer,
    task: str,
    text: Text,
    *,
    label: str | None = None,
    method: Method = "shapley",
    draws: int = 16,
    seed: int = 0,
) -> Explanation:
    """Return the effect of each word of a text, or of a pair, on a model's prediction.

    Effects are differences in the probability of the prediction (or of `label`), or in the score.
    With `occlusion`, the effect of a word is the change when only this word is left out; this is
    fast, but misses words whose meaning is repeated. With `shapley`, the effects add up to the
    difference between all words and none; `draws` is the number of pairs of orders drawn.
    """
    spec = model.task(task).spec
    if method not in get_args(Method):
        raise UsageError(f"there is no method {method!r}{suggest(method, get_args(Method))}")
    if draws < 2:
        raise UsageError(f"draws must be 2 or more, not {draws}")
    texts = model.take_texts(task, text)
    if not all(one.strip() for one in texts):
        raise UsageError("the text is empty: there is nothing to explain")
    plan = Plan.make(texts, method, draws, seed)
    answers = model.answer(task, model.tokenise(plan.rows, blank=True))
    prediction = model.describe(task, answers[0])
    column = choose_column(spec, prediction, label)
    values = answers if column is None else answers[:, column]
    return Explanation(
        prediction,
        None if column is None else spec.labels[column],
        float(values[0]),
        float(values[1]),
        plan.share(values),
        method,
    )


def choose_column(spec: TaskSpec, prediction: Prediction, label: str | None) -> int | None:
    """Return the number of the output to explain; None for a number."""
    if label is None:
        return spec.kind.explained_output(prediction)
    if not spec.labels:
        raise UsageError(f"task {prediction.task!r} has scores and no labels: leave it out")
    if label not in spec.labels:
        raise UsageError(
            f"task {prediction.task!r} has no label {label!r}{suggest(label, spec.labels)}"
        )
    return spec.labels.index(label)


# --- texts and their parts ---------------------------------------------------------------


def split_parts(texts: Sequence[str], most: int = MOST_PARTS) -> list[Part]:
    """Split texts at spaces; neighbouring words are joined if there are too many parts."""
    found = [[(match.start(), match.end()) for match in PART.finditer(text)] for text in texts]
    size = max(1, math.ceil(sum(map(len, found)) / most))
    parts = []
    for place, (text, spans) in enumerate(zip(texts, found, strict=True)):
        for first in range(0, len(spans), size):
            start, end = spans[first][0], spans[min(first + size, len(spans)) - 1][1]
            parts.append(Part(place, start, end, text[start:end]))
    return parts


def leave(texts: Sequence[str], parts: Sequence[Part], subset: int) -> tuple[str, ...]:
    """Return the texts with some of their parts left, and the spaces that followed those."""
    kept = [""] * len(texts)
    for number, part in enumerate(parts):
        if subset >> number & 1:
            after = parts[number + 1] if number + 1 < len(parts) else None
            same = after is not None and after.place == part.place
            end = after.start if after is not None and same else part.end
            kept[part.place] += texts[part.place][part.start : end]
    return tuple(text.strip() for text in kept)


# --- effects -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Plan:
    """The texts to predict in order to compute the effect of each word."""

    texts: tuple[str, ...]
    parts: tuple[Part, ...]
    method: Method
    subsets: tuple[int, ...]
    """Subsets of the parts, as bits of a number: first all parts, then none, then others."""
    orders: tuple[tuple[int, ...], ...] = ()
    """Drawn orders of the parts, each followed by its reverse."""

    @classmethod
    def make(
        cls,
        texts: Sequence[str],
        method: Method = "shapley",
        draws: int = 16,
        seed: int = 0,
        *,
        most_parts: int = MOST_PARTS,
    ) -> Plan:
        """Choose what to leave out of texts."""
        parts = split_parts(texts, most_parts)
        num = len(parts)
        everything, orders = 2**num - 1, []
        if method == "occlusion":
            others = [everything ^ 1 << i for i in range(num)]
        elif num <= MOST_EXACT:
            others = list(range(2**num))
        else:
            draw = np.random.default_rng(seed)
            drawn = [tuple(draw.permutation(num).tolist()) for _ in range(draws)]
            orders = [order for one in drawn for order in (one, one[::-1])]
            others = [subset for order in orders for subset in _chain(order)]
        subsets = dict.fromkeys([everything, 0, *others])
        return cls(tuple(texts), tuple(parts), method, tuple(subsets), tuple(orders))

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """The texts of each subset."""
        return [leave(self.texts, self.parts, subset) for subset in self.subsets]

    def share(self, values: Sequence[float] | Floats) -> tuple[Part, ...]:
        """Return the parts with their effects, given the value of each row's prediction."""
        known = dict(zip(self.subsets, map(float, values), strict=True))
        num = len(self.parts)
        errors = np.zeros(num)
        if self.method == "occlusion":
            everything = self.subsets[0]
            lost = [known[everything] - known[everything ^ 1 << i] for i in range(num)]
            effects = np.array(lost)
        elif not self.orders:
            effects = _share_exactly(known, num)
        else:
            effects, errors = _share_by_orders(known, self.orders)
        estimates = zip(self.parts, effects.tolist(), errors.tolist(), strict=True)
        return tuple(replace(part, effect=effect, error=error) for part, effect, error in estimates)


def _share_exactly(values: Mapping[int, float], num: int) -> Floats:
    """Return exact Shapley values, computed over all subsets."""
    effects = np.zeros(num)
    for i in range(num):
        for subset in range(2**num):
            if not subset >> i & 1:
                weight = 1 / (num * math.comb(num - 1, subset.bit_count()))
                effects[i] += weight * (values[subset | 1 << i] - values[subset])
    return effects


def _share_by_orders(
    values: Mapping[int, float], orders: Sequence[Sequence[int]]
) -> tuple[Floats, Floats]:
    """Return Shapley values estimated over orders, and their standard errors."""
    gains = np.zeros((len(orders), len(orders[0])))
    for row, order in enumerate(orders):
        steps = np.diff([values[subset] for subset in _chain(order)])
        gains[row, list(order)] = steps
    pairs = gains.reshape(-1, 2, len(orders[0])).mean(1)
    return pairs.mean(0), pairs.std(0, ddof=1) / math.sqrt(len(pairs))


def _chain(order: Sequence[int]) -> list[int]:
    """Return the subsets on the way from nothing to everything."""
    chain = [0]
    for i in order:
        chain.append(chain[-1] | 1 << i)
    return chain
