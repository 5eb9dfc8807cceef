"""Run all checks on a recipe's data."""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import permutations
from typing import TYPE_CHECKING, Any

from plait.analysis.check import checks
from plait.analysis.check.rows import Finding, SplitRows, read_splits
from plait.data import Tokenizer
from plait.errors import EncoderError
from plait.model.sources import find_encoder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from plait.config import RunConfig
    from plait.data.loading import Progress

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
    """Minimum, mean and maximum score."""
    lengths: checks.Lengths | None
    """None where the encoder's tokenizer is missing."""
    unknown: dict[str, float]
    """Each file's share of tokens that the tokenizer does not know; empty without one."""

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        values: dict[str, Any] = {"task": self.task, "split": self.split, "rows": self.num_rows}
        if self.labels:
            values["labels"] = self.labels
        if self.scores:
            values["scores"] = dict(zip(("least", "mean", "greatest"), self.scores, strict=True))
        if self.lengths:
            values |= {"tokens": self.lengths.to_json(), "unknown": self.unknown}
        return values


@dataclass(frozen=True, slots=True)
class Report:
    """What the checks found."""

    splits: list[SplitSummary]
    findings: list[Finding]
    """The most serious first."""

    @property
    def stops(self) -> bool:
        """Whether training would stop."""
        return any(finding.level == "stop" for finding in self.findings)

    def to_json(self, *, show: bool = False) -> dict[str, Any]:
        """Return plain values; with `show`, texts as well."""
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
    """Check all files of a recipe; with `mislabelled`, encode them to find wrong labels."""
    findings: list[Finding] = []
    tokenizer = most = None
    try:
        tokenizer, most = _find_tokenizer(config)
    except EncoderError as error:
        advice = "lengths are not counted"
        findings.append(Finding("encoder", "stop", "", "", str(error), advice))
    length = config.encoder.max_length
    if most is not None and length > most:
        sentence = f"encoder.max_length = {length}, but this encoder reads at most {most} tokens"
        findings.append(Finding("encoder", "stop", "", "", sentence, f"set it to {most} at most"))
    tasks: dict[str, dict[str, SplitRows]] = {}
    summaries = []
    for read in read_splits(config, data, progress, grouped=mislabelled):
        if isinstance(read, Finding):
            findings.append(read)
            continue
        tasks.setdefault(read.task, {})[read.split] = read
        summary, own = _check_split(read, tokenizer, length, most)
        summaries.append(summary)
        findings += own
    findings += _check_overlaps(tasks)
    if mislabelled and tokenizer is not None:
        from plait.analysis.check.mislabelled import check_mislabelled
        from plait.inference.frozen import Embedder  # imports torch

        embedder = Embedder(config)
        for splits in tasks.values():
            if "train" in splits:
                train, dev = splits["train"], splits.get("dev")
                findings += check_mislabelled(train, dev, embedder, config.seed, progress)
    findings.sort(key=lambda finding: LEVELS.index(finding.level))
    return Report(summaries, findings)


def _find_tokenizer(config: RunConfig) -> tuple[Tokenizer, int | None]:
    """Return the encoder's tokenizer, and how many tokens it reads where its files say so."""
    source = config.encoder
    files = find_encoder(source.source, revision=source.revision, sha256=source.sha256)
    settings = json.loads(files.config.read_text(encoding="utf-8"))
    most = settings.get("max_position_embeddings")
    return Tokenizer.from_file(files.tokenizer), most if isinstance(most, int) else None


def _check_split(
    rows: SplitRows, tokenizer: Tokenizer | None, max_length: int, most: int | None
) -> tuple[SplitSummary, list[Finding]]:
    found = [*checks.check_balance(rows), *checks.check_duplicates(rows), *checks.check_ids(rows)]
    found += checks.check_short(rows)
    lengths = None
    unknown: dict[str, float] = {}
    if tokenizer is not None:
        tokens, unknown = checks.count_tokens(rows, tokenizer)
        lengths = checks.measure(tokens, max_length)
        found += checks.check_lengths(rows, tokens, max_length, most)
        found += checks.check_unknown(rows, unknown)
    found += checks.check_personal(rows)
    scores, labels = None, checks.count_labels(rows)
    if rows.config.kind.form == "number" and rows.labels is not None:
        scores = (float(rows.labels.min()), float(rows.labels.mean()), float(rows.labels.max()))
    summary = SplitSummary(rows.task, rows.split, len(rows), labels, scores, lengths, unknown)
    return summary, found


def _check_overlaps(tasks: dict[str, dict[str, SplitRows]]) -> Iterator[Finding]:
    """Compare the splits of each task, and training rows with other tasks' dev and test rows."""
    pairs = (("train", "dev"), ("train", "test"), ("dev", "test"), ("train", "unlabelled"))
    for splits in tasks.values():
        for first, second in pairs:
            if first in splits and second in splits:
                yield from checks.check_overlap(splits[first], splits[second])
    for ours, theirs in permutations(tasks, 2):
        for split in ("dev", "test"):
            if "train" in tasks[theirs] and split in tasks[ours]:
                yield from checks.check_overlap(tasks[theirs]["train"], tasks[ours][split])
