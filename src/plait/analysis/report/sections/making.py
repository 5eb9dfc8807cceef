"""How they were made: settings, encoder, data, time, memory, versions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from plait.analysis.report.comparison import differing_settings
from plait.analysis.report.markup import Html, details, join, section, table, tag
from plait.analysis.report.sections.material import Material

if TYPE_CHECKING:
    from plait.analysis.report.subjects import Subject


def write(material: Material) -> Html:
    """Write the tables."""
    subjects = material.subjects
    names = [s.name for s in subjects]
    facts = [_facts(subject) for subject in subjects]
    keys = dict.fromkeys(key for found in facts for key in found)
    rows = [[key, *(found.get(key, "not told") for found in facts)] for key in keys]
    parts: list[Html] = []
    notes = dict.fromkeys(s.info.get("encoder", {}).get("notes", "") for s in subjects)
    parts += [
        tag("p", tag("strong", "The encoder: "), note, class_="note") for note in notes if note
    ]
    parts.append(table(["", *names], rows, "Training", num_words=len(names) + 1))
    counts = _counts(subjects)
    if counts:
        parts.append(table(["rows", *names], counts, "Rows that were read"))
    if len(subjects) > 1:
        differing = differing_settings([s.config for s in subjects])
        told = [[key, *values] for key, values in differing.items()]
        if told:
            caption = "Settings that are not the same in all"
            parts.append(table(["setting", *names], told, caption, num_words=len(names) + 1))
        else:
            parts.append(tag("p", "All settings are the same.", class_="note"))
    for subject in subjects:
        parts.append(_settings(subject))
    return section(
        "making",
        "How it was made" if material.is_single else "How they were made",
        "What a rerun would need to be the same, and what this one took.",
        join(parts),
    )


def _facts(subject: Subject) -> dict[str, str]:
    """Return what a run's files say of it, in words."""
    info, result, config = subject.info, subject.result, subject.config
    encoder: dict[str, Any] = info.get("encoder", {})
    found: dict[str, object] = {
        "folder": subject.folder,
        "members": ", ".join(member.name for member in subject.members),
        "recipe": config.name,
        "seed": config.seed,
        "encoder": encoder.get("origin"),
        "its revision": encoder.get("revision"),
        "its weights": (encoder.get("sha256") or "")[:12],
        "longest input": f"{config.encoder.max_length} tokens",
        "updates": result.get("steps"),
        "kept after": result.get("best_step"),
        "time": _clock(result["seconds"]) if "seconds" in result else None,
        "peak memory of the GPU": _memory(result.get("peak_memory_mib")),
        "hardware": info.get("device"),
        "threads": info.get("threads"),
        "precision": info.get("precision"),
        "average of": ", ".join(run["run"] for run in info.get("averaged", ())),
        "teachers": ", ".join(info.get("teachers", ())),
        "plait": info.get("plait"),
        "Python": info.get("python"),
        "torch": info.get("torch"),
    }
    return {key: str(value) for key, value in found.items() if value not in (None, "")}


def _counts(subjects: list[Subject]) -> list[list[str]]:
    found: dict[str, list[str]] = {}
    for place, subject in enumerate(subjects):
        for split, tasks in subject.info.get("data", {}).items():
            for task, entry in tasks.items():
                row = found.setdefault(f"{task}, {split}", ["none"] * len(subjects))
                row[place] = f"{entry['rows']:,}"
    return [[key, *row] for key, row in found.items()]


def _settings(subject: Subject) -> Html:
    from plait.config import to_toml

    title = f"Every setting of {subject.name}"
    text = tag("pre", to_toml(subject.config), tabindex="0", role="group", aria_label=title)
    return details(title, text)


def _memory(mib: int | None) -> str | None:
    return None if mib is None else f"{mib:,} MiB"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02} h" if hours else f"{minutes}:{rest:02} min"
