"""The checks of a split's rows: each yields what it finds."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from plait.analysis.check.personal import find_personal
from plait.errors import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from plait.analysis.check.rows import Finding, Level, SplitRows
    from plait.data import Tokenizer

    Ints = npt.NDArray[np.int64]

FEW = 5
"""Training rows of a class below which it is hardly learnt."""
IMBALANCED = 0.8
"""Share of the most frequent class from which accuracy tells little."""
MOST_NAMED = 8
"""Classes that a sentence names."""
SHORT = 3
"""Letters and digits below which a text hardly says anything."""
MANY = 0.05
"""Share of truncated rows, or of unknown tokens, from which there is a warning."""
BATCH = 8192
"""Rows that are tokenised together."""


# --- labels ------------------------------------------------------------------------------


def count_labels(rows: SplitRows) -> dict[str, int]:
    """Return the rows of each class, in the classes' order; nothing for numbers."""
    counts = None if rows.labels is None else rows.config.kind.count(rows.labels)
    if counts is None:
        return {}
    return {name: int(n) for name, n in zip(rows.config.labels, counts, strict=True)}


def check_balance(rows: SplitRows) -> Iterator[Finding]:
    """Find classes with few training rows or none, a class with most rows, a constant label."""
    if rows.labels is None or rows.split != "train":
        return

    def warn(sentence: str, advice: str) -> Finding:
        return rows.finding("balance", "warning", sentence, advice)

    if len(np.unique(rows.labels, axis=0)) == 1:
        sentence = f"every row has the label {rows.name_label(0)}: there is nothing to learn"
        yield warn(sentence, "add rows with another label")
        return
    counts = count_labels(rows)
    if not counts:
        yield from _check_range(rows)
        return
    if empty := [name for name, count in counts.items() if count == 0]:
        sentence = f"no row has the label {_list(empty)}, which cannot be learnt"
        yield warn(sentence, "add rows, or remove the label from the recipe")
    if rare := [f"{name} ({count})" for name, count in counts.items() if 0 < count < FEW]:
        sentence = f"fewer than {FEW} rows have the label {_list(rare)}"
        yield warn(sentence, "add rows, or merge such classes with others")
    largest = max(counts, key=lambda name: counts[name])
    share = counts[largest] / len(rows)
    is_scored = rows.config.kind.form == "distribution"
    if share >= IMBALANCED and is_scored and rows.config.metric in (None, "accuracy"):
        yield warn(
            f"{share:.0%} of the rows have the label {largest}, so a majority-class baseline "
            f"reaches {share:.0%} accuracy",
            'set metric = "macro_f1" for the task, so that the best checkpoint is chosen by it',
        )


def _check_range(rows: SplitRows) -> Iterator[Finding]:
    assert rows.labels is not None
    low, high = rows.config.range
    least, most = float(rows.labels.min()), float(rows.labels.max())
    if most - least < 0.5 * (high - low):
        yield rows.finding(
            "balance",
            "note",
            f"scores are from {least:g} to {most:g} in {counted(len(rows), 'row')}, but the range "
            f"is from {low:g} to {high:g}",
            "set range to what the scores can be",
        )


def _list(names: list[str]) -> str:
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more


# --- duplicates --------------------------------------------------------------------------


def check_duplicates(rows: SplitRows) -> Iterator[Finding]:
    """Find texts that occur more than once, by whether their labels contradict each other."""
    agreeing: list[int] = []
    contradicting: list[int] = []
    num_texts = 0
    for group in _equal_rows(rows.prints):
        if rows.labels is not None and rows.config.kind.contradict(rows.labels[group]):
            contradicting += group
            num_texts += 1
        else:
            agreeing += group[1:]
    if contradicting:
        have = "text has" if num_texts == 1 else "texts have"
        yield rows.finding(
            "contradictions",
            "warning",
            f"{num_texts:,} {have} different labels in {counted(len(contradicting), 'row')}",
            "choose one label for each, or remove them",
            contradicting,
            [f"label {rows.name_label(row)}" for row in contradicting],
        )
    if agreeing:
        yield rows.finding(
            "duplicates",
            "note",
            counted(len(agreeing), "duplicate row"),
            "remove them unless they should count more than once",
            sorted(agreeing),
        )


def check_ids(rows: SplitRows) -> Iterator[Finding]:
    """Find rows whose id an earlier row has."""
    # Ids of unlabelled rows, and of training rows held out as dev, are not used.
    if rows.split == "unlabelled" or rows.split != rows.reading.source:
        return
    named = np.flatnonzero(rows.ids)
    _, first = np.unique(rows.ids[named], return_index=True)
    again = np.delete(named, first)
    if len(again):
        have = "row has a duplicate id" if len(again) == 1 else "rows have duplicate ids"
        advice = "give each row its own id: submissions and lists of mistakes name rows by it"
        yield rows.finding("ids", "note", f"{len(again):,} {have}", advice, again)


def check_overlap(first: SplitRows, second: SplitRows) -> Iterator[Finding]:
    """Find rows of the second split that the first has as well.

    They are splits of one task, or the training rows of a task and dev or test rows of another.
    """
    shared = np.flatnonzero(np.isin(second.prints, first.prints))
    if len(shared) == 0:
        return
    are = "is" if len(shared) == 1 else "are"
    share = f"{counted(len(shared), 'row')} ({len(shared) / len(second):.1%}) {are}"
    level: Level = "note"
    if first.task != second.task:
        sentence = f"{share} in train of {first.task}, so the encoder sees these texts in training"
        advice = "hold the same texts out of both, or set data.drop_overlap"
    elif second.split == "unlabelled":
        sentence = f"{share} also in train, and would be learnt with the label and without"
        advice = "remove them unless that is intended"
    else:
        level = "warning"
        sentence = f"{share} also in {first.split}, so {second.split} scores are too optimistic"
        advice = f"remove them from {first.split}"
        advice += ", or set data.drop_overlap" if first.split == "train" else ""
    known, where = np.unique(first.prints, return_index=True)
    twins = where[np.searchsorted(known, second.prints[shared])]
    details = [f"as {place.unit} {place.line} of {place.file}" for place in first.places(twins)]
    yield second.finding("overlap", level, sentence, advice, shared, details)


def _equal_rows(prints: npt.NDArray[np.uint64]) -> list[list[int]]:
    """Return the rows of every text that occurs more than once, in order."""
    order = np.argsort(prints, kind="stable")
    ends = np.flatnonzero(np.diff(prints[order])) + 1
    return sorted(group.tolist() for group in np.split(order, ends) if len(group) > 1)


# --- texts -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Lengths:
    """Tokens of a split's inputs, special ones included."""

    median: int
    most: int
    """95th percentile."""
    longest: int
    cut: int
    """Rows that are truncated."""

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)


def count_tokens(rows: SplitRows, tokenizer: Tokenizer) -> tuple[Ints, dict[str, float]]:
    """Return the tokens of each input before truncation, and each file's share of unknown ones.

    Of two inputs, the longer one counts.
    """
    layout, width = tokenizer.layout, len(rows.config.text)
    counts, unknown = np.zeros((2, width, len(rows)), np.int64)
    for start in range(0, len(rows), BATCH):
        some = slice(start, start + BATCH)
        for i, column in enumerate(zip(*rows.texts[some], strict=True)):
            flat, lengths = tokenizer.encode(column)
            sums = np.concatenate([[0], np.cumsum(flat == tokenizer.unknown_id)])
            ends = np.cumsum(lengths)
            counts[i, some] = lengths
            unknown[i, some] = sums[ends] - sums[ends - lengths]
    shares = {
        str(source.path): float(
            unknown[:, rows.files == i].sum() / max(counts[:, rows.files == i].sum(), 1)
        )
        for i, source in enumerate(rows.sources)
    }
    if width == 2 and rows.config.inputs == "joined":
        return counts.sum(axis=0) + layout.num_pair, shares
    return counts.max(axis=0) + layout.num_single, shares


def measure(tokens: Ints, max_length: int) -> Lengths:
    """Summarise the lengths of a split's inputs."""
    median, most = np.quantile(tokens, [0.5, 0.95])
    cut = int((tokens > max_length).sum())
    return Lengths(round(median), round(most), int(tokens.max()), cut)


def check_lengths(
    rows: SplitRows, tokens: Ints, max_length: int, most: int | None = None
) -> Iterator[Finding]:
    """Find rows that are truncated, the longest first.

    `most` is how many tokens the encoder reads, where that is known.
    """
    cut = np.flatnonzero(tokens > max_length)
    if len(cut) == 0:
        return
    cut = cut[np.argsort(-tokens[cut], kind="stable")]
    share = len(cut) / len(rows)
    enough = int(np.quantile(tokens, 0.99))
    if enough <= max_length:
        advice = "few enough to ignore"
    elif most is None or enough <= most:
        advice = f"{enough} would hold 99% of the rows, but costs time and memory"
    elif max_length < most:
        advice = f"this encoder reads {most} at most, which costs time and memory"
    else:
        advice = "this encoder reads no more; shorten the texts, or choose one that does"
    yield rows.finding(
        "lengths",
        "warning" if share >= MANY else "note",
        f"{len(cut):,} of {counted(len(rows), 'row')} ({share:.1%}) truncated at {max_length} "
        "tokens (encoder.max_length)",
        advice,
        cut,
        [f"{tokens[row]} tokens" for row in cut],
    )


def check_unknown(rows: SplitRows, shares: dict[str, float]) -> Iterator[Finding]:
    """Find files with many unknown tokens."""
    for path, share in shares.items():
        if share > MANY:
            yield rows.finding(
                "unknown words",
                "warning",
                f"{share:.0%} of the tokens of {path} are unknown to the encoder's tokenizer",
                "check that the file is what it should be, or choose an encoder for its language",
            )


def check_short(rows: SplitRows) -> Iterator[Finding]:
    """Find texts that hardly say anything."""

    def weigh(text: str) -> int:
        # A character of Chinese, Japanese or Korean says as much as three letters.
        return sum((3 if c >= "\u2e80" else 1) for c in text if c.isalnum())

    short = [i for i, row in enumerate(rows.texts) if min(map(weigh, row)) < SHORT]
    if short:
        have = "has" if len(short) == 1 else "have"
        sentence = f"{counted(len(short), 'row')} {have} a text of fewer than {SHORT} letters"
        yield rows.finding("short texts", "note", sentence, "check that nothing is missing", short)


def check_personal(rows: SplitRows) -> Iterator[Finding]:
    """Find rows with personal data. The words found are in the places' texts."""
    found: dict[int, list[tuple[str, str]]] = {}
    for number, row in enumerate(rows.texts):
        if hits := [hit for text in row for hit in find_personal(text)]:
            found[number] = hits
    if not found:
        return
    kinds = Counter(kind for hits in found.values() for kind in dict(hits))
    counts = ", ".join(f"{kind} in {count:,}" for kind, count in kinds.most_common())
    finding = rows.finding(
        "personal data",
        "warning",
        f"{counted(len(found), 'row')} with what looks like personal data ({counts})",
        "remove it, or put a placeholder in its place: a model may repeat what it has read",
        list(found),
        [", ".join(dict(hits)) for hits in found.values()],
    )
    words = [", ".join(word for _, word in hits) for hits in found.values()]
    places = (replace(place, text=own) for place, own in zip(finding.places, words, strict=True))
    yield replace(finding, places=tuple(places))
