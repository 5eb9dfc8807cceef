"""Effects of words: Shapley's axioms, his formula, and texts put together again."""

from __future__ import annotations

import math
from itertools import permutations
from types import SimpleNamespace

import numpy as np
import pytest

from plait.analysis.explanation import explain, split_parts
from plait.errors import UsageError
from plait.tasks import TaskSpec
from plait.types import Prediction

MOOD = TaskSpec(kind="classes", labels=("bad", "good"), text=("text",))


class Toy:
    """Answers by a rule of the texts' words."""

    def __init__(self, spec, rule):
        self.spec, self.rule, self.num_asked = spec, rule, 0

    def task(self, name):
        return SimpleNamespace(spec=self.spec)

    def tokenise(self, rows, *, blank):
        assert blank
        return rows

    def answer(self, task, rows):
        self.num_asked += len(rows)
        values = np.array([self.rule(*(row.split() for row in texts)) for texts in rows])
        return values if self.spec.kind.name == "score" else np.stack([1 - values, values], axis=1)

    def take_texts(self, task, text):
        return (text,) if isinstance(text, str) else text

    def describe(self, task, answer):
        if self.spec.kind.name == "score":
            return Prediction(task, float(answer), f"{answer:.2f}")
        if self.spec.kind.name == "labels":
            held = tuple(np.flatnonzero(answer >= 0.5).tolist())
            return Prediction(task, held, "some", tuple(answer.tolist()))
        best = int(np.argmax(answer))
        return Prediction(task, best, self.spec.labels[best], tuple(answer.tolist()))


def negated(words):
    """Good adds, unless it is negated."""
    good = 0.3 * ("good" in words) * (-1 if "not" in words else 1)
    return 0.5 + good + 0.1 * ("fine" in words)


def by_definition(rule, words):
    """Return what each word adds, as the mean over all orders of all words."""
    effects = dict.fromkeys(words, 0.0)
    for order in permutations(words):
        for i, word in enumerate(order):
            before = [w for w in words if w in order[:i]]
            after = [w for w in words if w in order[: i + 1]]
            effects[word] += (rule(after) - rule(before)) / math.factorial(len(words))
    return effects


def effects(found):
    return {part.text: part.effect for part in found.parts}


def test_few_words_by_the_definition():
    found = explain(Toy(MOOD, negated), "mood", "it was not good but fine")
    expected = by_definition(negated, ["it", "was", "not", "good", "but", "fine"])
    assert found.label == "bad"
    assert effects(found) == pytest.approx({word: -e for word, e in expected.items()})
    assert found.value - found.bare == pytest.approx(sum(effects(found).values()))
    assert all(part.error == 0 for part in found.parts)


def test_many_words_are_drawn_and_add_up():
    words = [f"w{i}" for i in range(12)]
    weights = {word: 0.01 * i for i, word in enumerate(words)}

    def rule(given):
        joint = 0.2 * ("w3" in given and "w7" in given)
        return 0.1 + sum(weights[word] for word in given) + joint

    toy = Toy(MOOD, rule)
    found = explain(toy, "mood", " ".join(words), draws=40, seed=3)
    expected = {w: e + 0.1 * (w in ("w3", "w7")) for w, e in weights.items()}
    for part in found.parts:
        assert abs(part.effect - expected[part.text]) <= 4 * part.error + 1e-12
    assert sum(effects(found).values()) == pytest.approx(found.value - found.bare)
    # A word with its reverse takes out a joint effect of two altogether.
    assert max(part.error for part in found.parts) < 1e-12
    again = explain(Toy(MOOD, rule), "mood", " ".join(words), draws=40, seed=3)
    assert again == found
    assert toy.num_asked <= 80 * 11 + 2


def test_occlusion_leaves_out_one_at_a_time():
    toy = Toy(MOOD, negated)
    found = explain(toy, "mood", "so fine and good", label="good", method="occlusion")
    assert effects(found) == pytest.approx({"so": 0, "fine": 0.1, "and": 0, "good": 0.3})
    assert toy.num_asked == 2 + 4

    def either(words):
        return 0.5 + 0.4 * ("great" in words or "superb" in words)

    lost = explain(Toy(MOOD, either), "mood", "great superb", method="occlusion")
    assert effects(lost) == pytest.approx({"great": 0, "superb": 0})  # each alone is enough
    shared = explain(Toy(MOOD, either), "mood", "great superb")
    assert effects(shared) == pytest.approx({"great": 0.2, "superb": 0.2})


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"label": "god"}, "did you mean 'good'"),
        ({"method": "shaply"}, "did you mean 'shapley'"),
        ({"draws": 1}, "draws must be 2 or more"),
    ],
)
def test_what_is_refused(options, told):
    with pytest.raises(UsageError, match=told):
        explain(Toy(MOOD, negated), "mood", "good", **options)


# --- parts -------------------------------------------------------------------------------


def test_texts_are_split_at_spaces_and_between_signs_without_them():
    found = [part.text for part in split_parts(["Don't  stop,\nnow!", "猫が好き OK"])]
    assert found == ["Don't", "stop,", "now!", "猫", "が", "好", "き", "OK"]
