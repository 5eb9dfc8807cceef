"""Data that was read becomes sentences: what of it a user should know before it is trained on."""

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
"""Part of a task's tokens that may be unknown without a word; English has under 1%."""

CUT_SHARE = 0.1
"""Part of a task's inputs that may be cut without a word."""

PIECE = 1 << 22
"""Tokens that are looked at together."""

MOST_NAMES = 5
"""Labels that a sentence names one by one."""


def note_data(
    parts: Parts,
    train: Mapping[str, Dataset],
    unlabelled: Mapping[str, Dataset],
    dev: Mapping[str, Dataset],
) -> Iterator[str]:
    """Yield a sentence for each thing worth knowing."""
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
            so_what = ("is never learnt", "are never learnt")
            yield from _note_missing(parts, name, train[name], "training", so_what)
        if name in dev:
            so_what = ("counts as 0 in macro averages", "count as 0 in macro averages")
            yield from _note_missing(parts, name, dev[name], "dev", so_what)
    yield from _note_unknown(parts, {**dev, **train})
    for name, dataset in {**dev, **train}.items():
        yield from _note_cut(parts, name, dataset)
    if note := parts.encoder["notes"]:
        yield note


def note_held_out(
    idle: Sequence[str], missing: Sequence[str], held_out: Mapping[str, Mapping[str, int]]
) -> Iterator[str]:
    """Yield a sentence for each thing worth knowing of what is kept out of training.

    `idle` are tables of [held_out] that nothing is kept out for, `missing` dev and test files that
    are not there, `held_out` the texts that pre-training passes over, by split and name.
    """
    for name in idle:
        yield (
            f"[held_out.{name}] has no effect: nothing of what dev or test has is kept out of this "
            "training (data.drop_overlap = true leaves such rows out)"
        )
    for path in missing:
        yield f"{path} is not there, so its rows cannot be kept out of training"
    for counts in held_out.values():
        for name, count in counts.items():
            texts = "text is" if count == 1 else "texts are"
            yield f"{name}: {count:,} {texts} left out of pre-training, which dev or test has"


def note_stage(stage: Stage) -> Iterator[str]:
    """Say of a stage's aggregator if there is nothing between tasks that it could weigh."""
    step = stage.step
    if not step.aggregator.per_task or len(step.tasks) < 2:
        return
    shared = step.model.shared_parameters().values()
    training = [task for task in step.tasks if step.model.touches_encoder(task)]
    if not any(parameter.requires_grad for parameter in shared):
        training = []
    if len(training) < 2:
        who = f"{training[0]} alone trains" if training else "no task trains"
        name = stage.config.aggregator["name"]
        yield f"aggregator {name!r} has nothing to weigh in stage {stage.name}: {who} the encoder"


def _note_overlap(name: str, train: Dataset, dev: Dataset) -> Iterator[str]:
    overlap = shared_examples(train, dev)
    if overlap.count:
        examples, first = counted(overlap.count, "example"), ", ".join(overlap.ids[:3])
        yield (
            f"{name}: train and dev share {examples} (first: {first}); "
            "dev scores are flattered (data.drop_overlap leaves them out of train)"
        )


def _note_twice(name: str, train: Dataset, unlabelled: Dataset) -> Iterator[str]:
    """Say how many examples have a label in one file and none in another."""
    count = shared_examples(train, unlabelled).count
    if count:
        examples = "example without a label is" if count == 1 else "examples without labels are"
        yield (
            f"{name}: {count:,} {examples} in the training files, too, and learnt from twice: with "
            "the label and without (plait check says which)"
        )


def _note_missing(
    parts: Parts, name: str, dataset: Dataset, split: str, so_what: tuple[str, str]
) -> Iterator[str]:
    """Name the classes or labels that no row has, and what becomes of one or of several."""
    spec, labels = parts.tasks[name].spec, dataset.labels
    counts = None if labels is None else spec.kind.count(labels.numpy())
    if counts is None:
        return
    missing = [name for name, count in zip(spec.labels, counts, strict=True) if not count]
    if missing:
        names = ", ".join(missing[:MOST_NAMES])
        more = f" and {len(missing) - MOST_NAMES} more" if len(missing) > MOST_NAMES else ""
        label, verbs = ("labels", so_what[1]) if len(missing) > 1 else ("label", so_what[0])
        yield f"{name}: no {split} row has the {label} {names}{more}, which {verbs}"


def _note_unknown(parts: Parts, datasets: Mapping[str, Dataset]) -> Iterator[str]:
    """Say of which tasks the tokenizer had no word for many tokens, in one note."""
    shares = {name: _unknown_share(parts, dataset) for name, dataset in datasets.items()}
    told = [f"{name}: {share:.0%}" for name, share in shares.items() if share > UNKNOWN_SHARE]
    if told:
        yield (
            f"{', '.join(told)} of {'its' if len(told) == 1 else 'their'} tokens are unknown to "
            "the encoder's tokenizer, which was made for another language or script; a "
            "multilingual encoder knows more "
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
    """Say how many inputs are longer than they may be, where those are many."""
    collator = parts.collator
    lengths = uncut_lengths(dataset, parts.tasks[name].spec, collator.layout)
    share = float((lengths > collator.max_length).to(torch.float32).mean())
    if share > CUT_SHARE:
        part = "end" if collator.truncate == "head" else "middle"
        yield (
            f"{name}: {share:.0%} of its inputs have more than {collator.max_length} tokens and "
            f"lose their {part} (encoder.max_length, encoder.truncate)"
        )
