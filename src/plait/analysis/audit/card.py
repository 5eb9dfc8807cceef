"""Predict the probes of a run's tasks, and report the changes and a verdict for each probe.

A verdict describes the texts of a probe; it never says that a model is fair.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal
from zlib import crc32

import numpy as np
import torch

from plait import __version__
from plait.analysis.audit.probes import make_probes
from plait.errors import UsageError
from plait.inference.intervals import (
    LEVEL,
    Interval,
    bootstrap_means,
    percentile_interval,
    share_interval,
)
from plait.tasks.kind import SHIFT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from plait.analysis.audit.probes import Probe, ProbeFile, Should, Texts, Trial
    from plait.inference.predictor import Answerer
    from plait.tasks import Kind, TaskSpec
    from plait.tasks.kind import Bools, Floats

Level = Literal["effect", "no effect", "unclear", "not judged"]

FILE = "audit.json"
"""Name of the result's file in the run folder."""

LEAST = 10
"""Minimum number of sentences or rows for a verdict."""

TOLERATED = 0.05
"""Share of predictions that noise, or the order of a pair, may change without an effect."""

NUM_EXAMPLES = 5


@dataclass(frozen=True, slots=True)
class Example:
    """A trial with its predictions."""

    before: Texts
    after: Texts
    answer_before: str
    answer_after: str
    change: float


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one probe."""

    probe: str
    task: str
    should: Should
    count: int
    """Trials."""
    sources: int
    """Number of sentences or rows that the trials were made from."""
    changed: float
    """Share of the trials with another prediction."""
    changed_interval: Interval
    mean_change: float
    """Mean change of the predictions, from 0 to 1."""
    mean_change_interval: Interval
    neutral: dict[str, Any] | None
    """The same for the neutral swap, and the interval of the difference to the probe."""
    right_way: dict[str, Any] | None
    """Share of predictions that change in the right direction, if it is known."""
    level: Level
    verdict: str
    """The level in words, with the figures."""
    examples: list[Example]
    """The largest unwanted changes; if changes are expected, the smallest ones."""

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self) | {
            "changed": _plain(self.changed),
            "mean_change": _plain(self.mean_change),
            "changed_interval": self.changed_interval.to_json(),
            "mean_change_interval": self.mean_change_interval.to_json(),
        }

    def summarise(self) -> dict[str, Any]:
        """Return the probe's row of the table."""
        return {
            "probe": self.probe,
            "task": self.task,
            "count": self.count,
            "changed": _plain(self.changed),
            "mean_change": _plain(self.mean_change),
            "verdict": self.verdict,
        }


@dataclass(frozen=True, slots=True)
class Card:
    """The results of an audit."""

    settings: dict[str, Any]
    results: list[Result]

    def to_json(self) -> dict[str, Any]:
        """Return plain values, a table of all probes first."""
        return {
            "plait": __version__,
            "torch": torch.__version__,
            "settings": self.settings,
            "summary": [result.summarise() for result in self.results],
            "probes": [result.to_json() for result in self.results],
        }


def audit(
    answerer: Answerer,
    rows: Mapping[str, Sequence[Texts]],
    *,
    tasks: Sequence[str] | None = None,
    positive: str | None = None,
    most: int = 200,
    seed: int = 0,
    own: ProbeFile | None = None,
    english: bool = True,
) -> Card:
    """Audit a run's tasks on built-in sentences and on the tasks' rows, if given.

    Each probe uses at most `most` of a task's `rows`, a random sample. `positive` is the positive
    label, for the probe of 'not' in single texts. `own` are additional probes. Without `english`,
    the built-in sentences and words are left out.
    """
    names = list(tasks or answerer.tasks)
    specs = {name: answerer.task(name).spec for name in names}
    _check_positive(positive, specs)
    results: list[Result] = []
    for name, spec in specs.items():
        praise = find_praise(spec.kind, positive if positive in _choices(spec) else None)
        probes = make_probes(
            rows.get(name, ()),
            partial(_generator, seed, name),
            most,
            is_pair=spec.is_pair,
            own=own,
            english=english,
        )
        results += _Measurer(answerer, name, praise, seed).measure([*probes])
    if not results:
        raise UsageError(
            "nothing to audit: there are no rows, and no sentences for these tasks; give rows or "
            "sentences (--words)"
        )
    settings = {
        "seed": seed,
        "rows_per_probe": most,
        "rows": {name: len(rows.get(name, ())) for name in names},
        "positive": positive,
        "english": english,
        "own": sorted(own.probes) if own else [],
        "score_shift": SHIFT,
        "tolerated": TOLERATED,
        "level": LEVEL,
    }
    return Card(settings, results)


def _choices(spec: TaskSpec) -> tuple[str, ...]:
    return spec.labels or ("high", "low")


def _check_positive(positive: str | None, specs: Mapping[str, TaskSpec]) -> None:
    known = {choice for spec in specs.values() if not spec.is_pair for choice in _choices(spec)}
    if positive is None or positive in known:
        return
    if not known:
        raise UsageError("--positive is for tasks on single texts, but no such task is audited")
    known_labels = ", ".join(repr(choice) for choice in sorted(known))
    raise UsageError(
        f"--positive {positive!r} is not a label of a task on single texts ({known_labels})"
    )


def _generator(seed: int, *names: str) -> np.random.Generator:
    return np.random.default_rng([seed, *(crc32(name.encode()) for name in names)])


@dataclass(frozen=True, slots=True)
class _Measurer:
    """Predicts the probes of one task and measures the changes."""

    answerer: Answerer
    task: str
    praise: Floats | None
    seed: int

    @property
    def spec(self) -> TaskSpec:
        return self.answerer.tasks[self.task].spec

    def _compare(self, before: Floats, after: Floats) -> tuple[Floats, Bools]:
        """Return how much each prediction changed, and whether its label changed."""
        kind = self.spec.kind
        return kind.distance(before, after), kind.differs(before, after)

    def measure(self, probes: Sequence[Probe]) -> Iterator[Result]:
        """Predict every text once, even if it is in several probes; measure each probe."""
        wanted: dict[Texts, int] = {}
        for probe in probes:
            for trial in probe.trials:
                for texts in (trial.before, trial.after, *(trial.neutral or ())):
                    wanted.setdefault(texts, len(wanted))
        if not wanted:
            return
        dataset = self.answerer.tokenise(list(wanted))
        answers = self.answerer.answer(self.task, dataset)
        for probe in probes:
            if probe.trials:
                yield self._measure(probe, wanted, answers)

    def _measure(self, probe: Probe, places: Mapping[Texts, int], answers: Floats) -> Result:
        def answer(texts: Callable[[Trial], Texts]) -> Floats:
            found: Floats = answers[[places[texts(trial)] for trial in probe.trials]]
            return found

        before, after = answer(lambda t: t.before), answer(lambda t: t.after)
        if probe.should == "agree":
            before = np.repeat(self.spec.kind.typical(after), len(after), axis=0)
        sizes, flipped = self._compare(before, after)
        sources = [trial.source for trial in probe.trials]
        generator = _generator(self.seed, self.task, probe.name, "bootstrap")
        neutral = right_way = None
        if all(trial.neutral for trial in probe.trials):
            first = answer(lambda t: t.neutral[0] if t.neutral else t.before)
            second = answer(lambda t: t.neutral[1] if t.neutral else t.before)
            plain, turned = self._compare(first, second)
            farther = percentile_interval(bootstrap_means(sizes - plain, generator, groups=sources))
            neutral = {
                "changed": float(turned.mean()),
                "mean_change": float(plain.mean()),
                "farther": float((sizes - plain).mean()),
                "farther_interval": farther.to_json(),
            }
        ways = np.array([trial.way for trial in probe.trials])
        if ways.all() and self.praise is not None:
            moved = measure_praise(self.praise, after) - measure_praise(self.praise, before)
            right = moved * ways > 0
            interval = share_interval(right, generator, groups=sources)
            right_way = {"share": float(right.mean()), "interval": interval.to_json()}
        changed_interval = share_interval(flipped, generator, groups=sources)
        return Result(
            probe.name,
            self.task,
            probe.should,
            len(probe.trials),
            len(set(sources)),
            float(flipped.mean()),
            changed_interval,
            float(sizes.mean()),
            percentile_interval(bootstrap_means(sizes, generator, groups=sources)),
            neutral,
            right_way,
            *judge(
                probe.should,
                len(set(sources)),
                float(flipped.mean()),
                changed_interval,
                neutral,
                right_way,
                is_directed=bool(ways.all()),
            ),
            self._choose_examples(probe, before, after, sizes),
        )

    def _choose_examples(
        self, probe: Probe, before: Floats, after: Floats, sizes: Floats
    ) -> list[Example]:
        order = np.argsort(sizes if probe.should == "move" else -sizes, kind="stable")

        def say(answer: Floats) -> str:
            given = self.answerer.describe(self.task, answer)
            if given.words:
                each = zip(given.words, given.word_probabilities, strict=True)
                return ", ".join(f"{word} ({chance:.0%})" for word, chance in each)
            sure = "" if given.confidence is None else f" ({given.confidence:.0%})"
            return f"{given.label}{sure}"

        examples: list[Example] = []
        seen: set[int] = set()
        for i in order.tolist():
            trial = probe.trials[i]
            if trial.source not in seen and len(examples) < NUM_EXAMPLES:
                seen.add(trial.source)
                words = say(before[i]), say(after[i])
                examples.append(Example(trial.before, trial.after, *words, float(sizes[i])))
        return examples


def judge(
    should: Should,
    num_sources: int,
    changed: float,
    interval: Interval,
    neutral: Mapping[str, Any] | None = None,
    right_way: Mapping[str, Any] | None = None,
    *,
    is_directed: bool = False,
) -> tuple[Level, str]:
    """Return the level of a probe, and a sentence with its figures.

    `is_directed` says whether the right direction follows from the positive label.
    """
    ends = f"{interval.low:.0%} to {interval.high:.0%}"
    if num_sources < LEAST:
        return "not judged", f"too few texts ({num_sources})"
    if neutral is not None:
        low, high = neutral["farther_interval"]
        if low > 0:
            return "effect", "changes predictions more than a neutral swap"
        if high < 0:
            return "no effect", "changes predictions less than a neutral swap"
        return "no effect", "no significant effect beyond a neutral swap"
    if right_way is not None:
        low, high = right_way["interval"]
        level: Level = "effect" if low > 0.5 else "no effect"
        return level, f"moves the right way in {right_way['share']:.0%} ({low:.0%} to {high:.0%})"
    if should == "move" and is_directed:
        return "not judged", "not judged: name the positive label with --positive"
    if should == "move":
        ends = f"{1 - interval.high:.0%} to {1 - interval.low:.0%}"
        level = "effect" if interval.low > 0.5 else "no effect"
        return level, f"the model ignored the change in {1 - changed:.0%} of pairs ({ends})"
    if should == "agree":
        level = "effect" if interval.low > TOLERATED else "no effect"
        return level, f"{changed:.0%} of equal pairs get another prediction than most ({ends})"
    if should == "either":
        return "not judged", "not judged: the right answer depends on the text"
    if interval.low > TOLERATED:
        return "effect", f"changes more than {TOLERATED:.0%} of predictions"
    if interval.high <= TOLERATED:
        return "no effect", f"changes at most {TOLERATED:.0%} of predictions"
    return "unclear", f"changes {ends} of predictions"


def _plain(value: float) -> float | None:
    return value if np.isfinite(value) else None


# --- how positive an answer is -----------------------------------------------------------

_PRAISE = {"positive", "good", "great", "happy", "favourable", "favorable", "satisfied"}
_BLAME = {"negative", "bad", "awful", "unhappy", "unfavourable", "unfavorable", "dissatisfied"}
_DEGREES = {"very": 2.0, "extremely": 2.0, "highly": 2.0, "somewhat": 0.5, "slightly": 0.5}


def find_praise(kind: Kind, positive: str | None) -> Floats | None:
    """Return how positive each output is, [outputs]; None if unknown.

    `positive` is the positive label or, for scores, high or low. By default it is guessed from the
    label names, which must include both positive and negative words.
    """
    if positive is not None:
        return kind.polarity(positive)
    weights = [_weigh(label) for label in kind.words]
    return np.array(weights) if weights and min(weights) < 0 < max(weights) else None


def measure_praise(praise: Floats, answers: Floats) -> Floats:
    """Return how positive each prediction is."""
    found: Floats = answers.reshape(len(answers), -1) @ praise
    return found


def _weigh(label: str) -> float:
    words = set(re.findall(r"[a-z]+", label.lower()))
    sign = float(bool(words & _PRAISE)) - float(bool(words & _BLAME))
    return sign * next((degree for word, degree in _DEGREES.items() if word in words), 1.0)
