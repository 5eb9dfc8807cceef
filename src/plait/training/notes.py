"""Notes about the data and the stages, shown before training starts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from plait.data import shared_examples, uncut_lengths
from plait.errors import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from plait.data import Dataset
    from plait.training.build import Parts
    from plait.training.loop import Stage

UNKNOWN_SHARE = 0.05
"""Share of a task's tokens that may be unknown before a note says so; English has under 1%."""

CUT_SHARE = 0.1
"""Share of a task's inputs that may be truncated before a note says so."""

PIECE = 1 << 22
"""Tokens that are compared at once."""

MOST_NAMES = 5
"""Maximum number of labels that a note lists."""


def note_data(
    parts: Parts,
    train: Mapping[str, Dataset],
    unlabelled: Mapping[str, Dataset],
    dev: Mapping[str, Dataset],
) -> Iterator[str]:
    """Yield one sentence for each finding about the data."""
    for datasets in (train, unlabelled, dev):
        for dataset in datasets.values():
            for report in dataset.report:
                if report.skipped or report.added or report.held_out or report.others:
                    yield str(report)
            for extension in dataset.extensions:
                yield f"{dataset.name}: {extension}"
    for name in dev:
        if name in train:
            yield from _note_overlap(name, train[name], dev[name])
    for name in unlabelled:
        if name in train:
            yield from _note_twice(name, train[name], unlabelled[name])
    for name in parts.tasks:
        if name in train:
            so_what = ("so the model cannot learn it", "so the model cannot learn them")
            yield from _note_missing(parts, name, train[name], "training", so_what)
        if name in dev:
            so_what = (
                "so it counts as 0 in macro averages",
                "so they count as 0 in macro averages",
            )
            yield from _note_missing(parts, name, dev[name], "dev", so_what)
    yield from _note_unknown(parts, {**dev, **train})
    for name, dataset in {**dev, **train}.items():
        yield from _note_cut(parts, name, dataset)
    if note := parts.encoder["notes"]:
        yield note


def note_held_out(
    idle: Sequence[str], missing: Sequence[str], held_out: Mapping[str, Mapping[str, int]]
) -> Iterator[str]:
    """Yield one sentence for each finding about the rows that are kept out of training.

    `idle` are the tables of [held_out] that have no effect, `missing` the dev and test files that
    do not exist, `held_out` the number of texts that pre-training skips, by split and name.
    """
    for name in idle:
        yield (
            f"[held_out.{name}] has no effect: this run does not remove rows from training that "
            "also occur in dev or test (set data.drop_overlap = true to remove them)"
        )
    for path in missing:
        yield f"{path} does not exist, so its rows cannot be kept out of training"
    for counts in held_out.values():
        for name, count in counts.items():
            texts, occur = ("text is", "it occurs") if count == 1 else ("texts are", "they occur")
            yield (
                f"{name}: {count:,} {texts} left out of pre-training, because {occur} in dev or "
                "test"
            )


def note_stage(stage: Stage) -> Iterator[str]:
    """Yield a note if the stage's aggregator has no effect: under two tasks train the encoder."""
    step = stage.step
    if not step.aggregator.per_task or len(step.tasks) < 2:
        return
    shared = step.model.shared_parameters().values()
    training = [task for task in step.tasks if step.model.touches_encoder(task)]
    if not any(parameter.requires_grad for parameter in shared):
        training = []
    if len(training) < 2:
        who = f"only task {training[0]} trains" if training else "no task trains"
        name = stage.config.aggregator["name"]
        yield f"aggregator {name!r} has no effect in stage {stage.name}: {who} the encoder"


def _note_overlap(name: str, train: Dataset, dev: Dataset) -> Iterator[str]:
    overlap = shared_examples(train, dev)
    if overlap.count:
        examples, first = counted(overlap.count, "example"), ", ".join(overlap.ids[:3])
        yield (
            f"{name}: train and dev share {examples} (first: {first}); "
            "dev scores are too optimistic (data.drop_overlap = true removes them from train)"
        )


def _note_twice(name: str, train: Dataset, unlabelled: Dataset) -> Iterator[str]:
    """Yield the number of examples that occur both with and without a label."""
    count = shared_examples(train, unlabelled).count
    if count:
        examples = "example occurs" if count == 1 else "examples occur"
        yield (
            f"{name}: {count:,} {examples} both with and without a label, and training uses both "
            "copies (plait check lists them)"
        )


def _note_missing(
    parts: Parts, name: str, dataset: Dataset, split: str, so_what: tuple[str, str]
) -> Iterator[str]:
    """Yield the classes or labels that no row has, and the consequence for one or for several."""
    spec, labels = parts.tasks[name].spec, dataset.labels
    counts = None if labels is None else spec.kind.count(labels.numpy())
    if counts is None:
        return
    missing = [name for name, count in zip(spec.labels, counts, strict=True) if not count]
    if missing:
        names = ", ".join(missing[:MOST_NAMES])
        more = f" and {len(missing) - MOST_NAMES} more" if len(missing) > MOST_NAMES else ""
        label, verbs = ("labels", so_what[1]) if len(missing) > 1 else ("label", so_what[0])
        yield f"{name}: no {split} row has the {label} {names}{more}, {verbs}"


def _note_unknown(parts: Parts, datasets: Mapping[str, Dataset]) -> Iterator[str]:
    """Yield one note with all tasks that have many tokens unknown to the tokenizer."""
    shares = {name: _unknown_share(parts, dataset) for name, dataset in datasets.items()}
    found = [f"{name}: {share:.0%}" for name, share in shares.items() if share > UNKNOWN_SHARE]
    if found:
        yield (
            f"{', '.join(found)} of {'its' if len(found) == 1 else 'their'} tokens are unknown to "
            "the encoder's tokenizer, which was built for another language or script; use a "
            "multilingual encoder "
            "(encoder.source = 'google-bert/bert-base-multilingual-cased')"
        )


def _unknown_share(parts: Parts, dataset: Dataset) -> float:
    unknown = parts.tokenizer.unknown_id
    total = sum(len(text.ids) for text in dataset.tokens)
    if unknown is None or not total:
        return 0.0
    pieces = (piece for text in dataset.tokens for piece in text.ids.split(PIECE))
    return sum(int((piece == unknown).sum()) for piece in pieces) / total


def _note_cut(parts: Parts, name: str, dataset: Dataset) -> Iterator[str]:
    """Yield the share of inputs that are truncated, if it is large."""
    collator = parts.collator
    lengths = uncut_lengths(dataset, parts.tasks[name].spec, collator.layout)
    share = float((lengths > collator.max_length).to(torch.float32).mean())
    if share > CUT_SHARE:
        part = "at the end" if collator.truncate == "head" else "in the middle"
        yield (
            f"{name}: {share:.0%} of its inputs are longer than {collator.max_length} tokens and "
            f"are truncated {part} (encoder.max_length, encoder.truncate)"
        )
