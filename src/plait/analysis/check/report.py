"""A recipe becomes a Report: a summary of every split, and what each check found."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from plait.analysis.check.balance import check_balance, count_labels
from plait.analysis.check.duplicates import check_duplicates, check_elsewhere, check_overlap
from plait.analysis.check.findings import Finding
from plait.analysis.check.lengths import (
    Lengths,
    check_lengths,
    check_short,
    check_unknown,
    count_tokens,
    find_unknown,
    measure,
)
from plait.analysis.check.personal import check_personal
from plait.analysis.check.rows import SplitRows, read_splits
from plait.data import Tokenizer
from plait.errors import EncoderError
from plait.model.sources import find_encoder

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from plait.analysis.check.rows import Progress
    from plait.config import RunConfig

LEVELS = ("stop", "warning", "note")


@dataclass(frozen=True, slots=True)
class SplitSummary:
    """One split of a task in numbers."""

    task: str
    split: str
    num_rows: int
    labels: dict[str, int]
    """Rows of each class; empty for a score."""
    scores: tuple[float, float, float] | None
    """Least, mean and greatest score."""
    lengths: Lengths | None
    """None where the encoder's tokenizer is not at hand."""
    unknown: dict[str, float]
    """Part of each file's tokens that the tokenizer has no word for; empty without one."""

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        told: dict[str, Any] = {"task": self.task, "split": self.split, "rows": self.num_rows}
        if self.labels:
            told["labels"] = self.labels
        if self.scores:
            told["scores"] = dict(zip(("least", "mean", "greatest"), self.scores, strict=True))
        if self.lengths:
            told |= {"tokens": self.lengths.to_json(), "unknown": self.unknown}
        return told


@dataclass(frozen=True, slots=True)
class Report:
    """What is to be known of a recipe's data."""

    splits: list[SplitSummary]
    findings: list[Finding]
    """The gravest first."""

    @property
    def stops(self) -> bool:
        """Whether training would stop."""
        return any(finding.level == "stop" for finding in self.findings)

    def to_json(self, *, show: bool = False) -> dict[str, Any]:
        """Return plain values; with `show`, words of the texts too."""
        return {
            "stops": self.stops,
            "splits": [split.to_json() for split in self.splits],
            "findings": [finding.to_json(show=show) for finding in self.findings],
        }


def check_recipe(
    config: RunConfig,
    *,
    data: str | None = None,
    mislabelled: bool = False,
    progress: Progress | None = None,
) -> Report:
    """Look through all files of a recipe; with `mislabelled`, encode them to find wrong labels."""
    found: list[Finding] = []
    tokenizer = most = None
    try:
        tokenizer, most = _find_tokenizer(config, found)
    except EncoderError as error:
        found.append(Finding("encoder", "stop", "", "", str(error), "lengths are not counted"))
    splits, summaries = [], []
    for read in read_splits(config, data, progress, grouped=mislabelled):
        if isinstance(read, Finding):
            found.append(read)
        else:
            splits.append(read)
            summary, own = _check_split(read, tokenizer, config.encoder.max_length, most)
            summaries.append(summary)
            found += own
    by_task: dict[str, dict[str, SplitRows]] = {}
    for rows in splits:
        by_task.setdefault(rows.task, {})[rows.split] = rows
    for task, own_splits in by_task.items():
        found += _check_overlaps(own_splits)
        for other, splits_there in by_task.items():
            if other != task:
                found += _check_elsewhere(splits_there, own_splits)
    if mislabelled and tokenizer is not None:
        found += _check_labels(config, [[*own.values()] for own in by_task.values()], progress)
    found.sort(key=lambda finding: LEVELS.index(finding.level))
    return Report(summaries, found)


def _find_tokenizer(config: RunConfig, found: list[Finding]) -> tuple[Tokenizer, int | None]:
    """Return the encoder's tokenizer, and how many tokens it reads where its files say so."""
    source, length = config.encoder, config.encoder.max_length
    files = find_encoder(source.source, revision=source.revision, sha256=source.sha256)
    settings = json.loads(files.config.read_text(encoding="utf-8"))
    most = settings.get("max_position_embeddings")
    most = most if isinstance(most, int) else None
    if most is not None and length > most:
        sentence = f"encoder.max_length = {length}, but this encoder reads at most {most} tokens"
        found.append(Finding("encoder", "stop", "", "", sentence, f"set it to {most} at most"))
    return Tokenizer.from_file(files.tokenizer), most


def _check_split(
    rows: SplitRows, tokenizer: Tokenizer | None, max_length: int, most: int | None
) -> tuple[SplitSummary, list[Finding]]:
    found = [*check_balance(rows), *check_duplicates(rows), *check_short(rows)]
    lengths, unknown = None, {}
    if tokenizer is not None:
        counted = count_tokens(rows, tokenizer)
        lengths = measure(counted.lengths, max_length)
        found += check_lengths(rows, counted.lengths, max_length, most)
        unknown = find_unknown(rows, counted)
        found += check_unknown(rows, unknown)
    found += check_personal(rows)
    scores = None
    if rows.config.kind.form == "number" and rows.labels is not None:
        scores = (float(rows.labels.min()), float(rows.labels.mean()), float(rows.labels.max()))
    labels = count_labels(rows)
    summary = SplitSummary(rows.task, rows.split, len(rows), labels, scores, lengths, unknown)
    return summary, found


def _check_overlaps(splits: dict[str, SplitRows]) -> Iterator[Finding]:
    pairs = (("train", "dev"), ("train", "test"), ("dev", "test"), ("train", "unlabelled"))
    for first, second in pairs:
        if first in splits and second in splits:
            yield from check_overlap(splits[first], splits[second])


def _check_elsewhere(theirs: dict[str, SplitRows], ours: dict[str, SplitRows]) -> Iterator[Finding]:
    for split in ("dev", "test"):
        if "train" in theirs and split in ours:
            yield from check_elsewhere(theirs["train"], ours[split])


def _check_labels(
    config: RunConfig, tasks: Sequence[list[SplitRows]], progress: Progress | None
) -> Iterator[Finding]:
    from plait.analysis.check.mislabelled import check_mislabelled
    from plait.inference.frozen import Embedder  # brings the encoder along

    embedder = Embedder(config)
    for splits in tasks:
        yield from check_mislabelled(splits, embedder, config.seed, progress)
