"""The section on settings: data, encoder, profile and versions behind all rows."""

from __future__ import annotations

import json
from pathlib import PurePath
from typing import TYPE_CHECKING

from plait.config import flatten, read_profile
from plait.results.markdown import items, paragraph, table
from plait.results.tables import read_outline

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from plait.results.records import Record, Records


def show_settings(profile: str, records: Records) -> list[str]:
    """Return the section's lines."""
    outline = read_outline()
    printed, here = outline["printed"], outline["profiles"].get(profile, {})
    lines = ["## Settings", ""]
    lines += paragraph(
        "What differs from the reports once for all rows; all else is the row's own, as its recipe "
        "has it (`plait list recipes`)."
    )
    told = []
    if here:
        told.append(
            f"Encoder: {here['encoder']}, {here['parameters']} million parameters; the reports' is "
            f"{printed['encoder']}, {printed['parameters']} million."
        )
    if laid_over := flatten(read_profile(profile)):
        changes = ", ".join(f"`{key}={json.dumps(value)}`" for key, value in laid_over.items())
        told.append(
            f"Profile `{profile}`, laid over every row: {changes}. A stage that trains the heads "
            "alone keeps its own rate."
        )
    if usual := sorted(records.common_overrides - records.places):
        told.append(f"Every run was made with {', '.join(f'`-o {word}`' for word in usual)}.")
    told += _distinct(records)
    return [*lines, *items(told), *_data(records, printed["rows"])]


def _distinct(records: Records) -> Iterator[str]:
    """Yield what the records say of encoder, versions and hardware, each kind once."""
    for title, read in (("Weights", _weights), ("Versions", _versions), ("Hardware", _hardware)):
        counts: dict[str, int] = {}
        for record in records:
            counts[read(record)] = counts.get(read(record), 0) + 1
        counts.pop("", None)
        several = len(counts) > 1
        told = [
            f"{text}{f' ({number:,} runs)' if several else ''}"
            for text, number in sorted(counts.items())
        ]
        if told:
            yield f"{title}: {'; '.join(told)}."


def _weights(record: Record) -> str:
    origin, digest = record.encoder.get("origin"), record.encoder.get("sha256")
    if not origin:
        return ""
    # Where it lay on somebody's disk tells nobody anything; its name does.
    name = PurePath(origin).name if PurePath(origin).is_absolute() else origin
    return f"{name}{f', sha256 {digest[:12]}' if digest else ''}"


def _versions(record: Record) -> str:
    return ", ".join(f"{name} {version}" for name, version in record.versions.items())


def _hardware(record: Record) -> str:
    return f"{record.hardware}{f' in {record.precision}' if record.precision else ''}"


def _data(records: Records, printed: Mapping[str, Mapping[str, tuple[int, int]]]) -> list[str]:
    """Compare the numbers of rows; a recipe that takes part of them is no reason to say less."""
    train, dev = records.most_rows("train"), records.most_rows("dev")
    rows = []
    for task, sizes in printed.items():
        theirs = [
            f"{a:,} / {b:,}{'' if who == 'all' else f' ({who})'}" for who, (a, b) in sizes.items()
        ]
        here = f"{train[task]:,} / {dev.get(task, 0):,}" if task in train else "not run yet"
        rows.append([f"`{task}`", "; ".join(theirs), here])
    return table(["training / dev rows", "published", "here"], rows)
