"""What a run's folder holds becomes a page about its model: the card, in Markdown.

A card says what the model answers, how well, what it was made of and what it is not good for.
It is made of the folder's files alone, so it can be made again at any time. Files that other
commands leave there (`audit.json`, `calibration.json`) add sections of their own, and what
people wrote into a card is carried over to the next.
"""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from difflib import SequenceMatcher
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plait.config import read_resolved
from plait.errors import RunError, counted, show_controls
from plait.inference.baselines import best_in, list_shortfalls
from plait.inference.calibration import FILE as CALIBRATION
from plait.inference.calibration import take_scalings
from plait.inference.intervals import wilson_bound
from plait.tasks.metrics import primary_metric

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from plait.config import FileConfig, RunConfig, TaskConfig

AUDIT = "audit.json"

MOST_LABELS = 8
"""Classes that are named one by one."""


def make_card(
    folder: Path, using: Sequence[Sequence[str]] | None = None, *, like: str | None = None
) -> str:
    """Return the card of a run, of an average of runs, or of an ensemble.

    `using` are sections that tell how to use it, where its folder is not what is used. `like` is
    another card of it: files that other commands left are told of only where that one does.
    """
    left = [name for name in (CALIBRATION, AUDIT) if like is None or _told_in(name) in like]
    if (folder / "ensemble.toml").is_file():
        return _page(_ensemble_sections(folder, left))
    return _page(_run_sections(folder, left, using))


def carry_over(card: str, before: str, after: str) -> str:
    """Change a card as what is made of its folder changed, and leave other lines as they are.

    `before` and `after` are what is made, `card` what is there: the same as `before`, save for
    what people wrote, or an earlier version of plait.
    """
    # Not splitlines, which takes more for the end of a line than Markdown does.
    there, old, new = (text.removesuffix("\n").split("\n") for text in (card, before, after))
    place = _align(old, there)
    gone: set[int] = set()
    added: dict[int, list[str]] = {}  # line of `there` -> what comes before it
    for _, i, end, j, stop in _edits(old, new):
        left = [place[line] for line in range(i, end) if line in place]
        gone.update(left)
        behind = max((place[line] + 1 for line in range(i) if line in place), default=0)
        added.setdefault(left[0] if left else behind, []).extend(new[j:stop])
    lines: list[str] = []
    for number in range(len(there) + 1):
        lines += added.get(number, [])
        lines += there[number : number + 1] if number not in gone else []
    return "\n".join(lines) + "\n"


def _align(old: list[str], there: list[str]) -> dict[int, int]:
    """Return as many lines of `old` as have a place in `there`, in order, and where they stand.

    By the longest common subsequence: difflib's matches are longest stretches, and would take a
    line that stands there twice for one that somebody wrote.
    """
    lengths = [[0] * (len(there) + 1) for _ in range(len(old) + 1)]  # of what follows
    for i in reversed(range(len(old))):
        for j in reversed(range(len(there))):
            longer = max(lengths[i + 1][j], lengths[i][j + 1])
            lengths[i][j] = lengths[i + 1][j + 1] + 1 if old[i] == there[j] else longer
    place, i, j = {}, 0, 0
    while i < len(old) and j < len(there):
        if old[i] == there[j]:
            place[i] = j
            i, j = i + 1, j + 1
        elif lengths[i + 1][j] >= lengths[i][j + 1]:
            i += 1
        else:
            j += 1
    return place


def _edits(old: list[str], new: list[str]) -> Iterator[tuple[str, int, int, int, int]]:
    codes = SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    return (code for code in codes if code[0] != "equal")


def _page(sections: Iterable[Sequence[str]]) -> str:
    text = "\n\n".join("\n".join(lines) for lines in sections if lines)
    return f"{show_controls(text)}\n"


def _run_sections(
    folder: Path, left: Collection[str], using: Sequence[Sequence[str]] | None
) -> list[Sequence[str]]:
    config = read_resolved(folder / "recipe.toml")
    found = _read_found(folder, config, left)
    info, scores = _read(folder / "run.json"), _read(folder / "scores.json")
    made = "made by averaging the weights of runs" if "averaged" in info else "trained together"
    is_begun = bool(info) and not scores and (folder / "checkpoint.safetensors").exists()
    return [
        [f"# {config.name}"],
        [config.about] if config.about else [],
        [f"One text encoder with {counted(len(config.tasks), 'task')}, {made} by {_maker(info)}."],
        *_tasks(config),
        *_scores(config, scores, is_begun=is_begun),
        *_data(config, info),
        *_encoder(config, info),
        *_settings(config, info, scores),
        *_uses(config),
        *_limits(config, scores, found),
        *_extras(found),
        *(_loading(config, has_vectors=True) if using is None else using),
    ]


def _ensemble_sections(folder: Path, left: Collection[str]) -> list[Sequence[str]]:
    table = tomllib.loads((folder / "ensemble.toml").read_text(encoding="utf-8"))
    members = [folder / member for member in table["members"]]
    for member in members:
        if not (member / "recipe.toml").is_file():
            raise RunError(f"{folder / 'ensemble.toml'} names a member {member}, which is no run")
    config = read_resolved(members[0] / "recipe.toml")
    found = _read_found(folder, config, left)
    info, scores = _read(members[0] / "run.json"), _read(folder / "scores.json")
    name = scores.get("recipe", folder.resolve().name)
    rows = []
    for written, member in zip(table["members"], members, strict=True):
        facts = _read(member / "run.json").get("encoder", {})
        rows.append([f"[{member.name}]({written}/card.md)", str(facts.get("origin", ""))])
    how = {"mode": "by vote (scores by their median)", "mean": "by the mean of their answers"}
    count = counted(len(members), "run")
    return [
        [f"# {name}"],
        [f"An ensemble of {count} that answer as one, {how[table['how']]}."],
        ["## Members"],
        ["Each has a card of its own."],
        _table(["run", "encoder"], rows),
        *_tasks(config),
        *_scores(config, scores),
        *_data(config, info),
        *_uses(config),
        *_limits(config, scores, found),
        *_extras(found),
        *_loading(config, has_vectors=False),
    ]


# --- what it answers, and how well -------------------------------------------------------


def _tasks(config: RunConfig) -> list[Sequence[str]]:
    rows = [
        [name, task.kind.name, _reads(task), _answers(task)] for name, task in config.tasks.items()
    ]
    about = [f"- {name}: {task.about}" for name, task in config.tasks.items() if task.about]
    return [["## Tasks"], _table(["task", "kind", "reads", "answers"], rows), about]


def _reads(task: TaskConfig) -> str:
    pair = ", encoded apart" if task.inputs == "apart" else ""
    return " and ".join(f"`{name}`" for name in task.text) + pair


def _answers(task: TaskConfig) -> str:
    if not task.labels:
        return f"a score from {task.range[0]:g} to {task.range[1]:g}"
    named = ", ".join(map(_plain, task.labels[:MOST_LABELS]))
    more = len(task.labels) - MOST_LABELS
    told = f"{named} and {more} more" if more > 0 else named
    return f"any number of {told}" if task.kind.form == "independent" else told


def _scores(
    config: RunConfig, scores: Mapping[str, Any], *, is_begun: bool = False
) -> list[Sequence[str]]:
    dev = scores.get("dev")
    if not dev:
        told = "There are none: no dev set was scored. `plait evaluate` scores any labelled files."
        if is_begun:
            told = (
                "There are none yet: its training is not finished; `plait train --resume` goes on."
            )
        return [["## Scores"], [told]]
    rows = []
    for name, value in dev["primary"].items():
        metric = primary_metric(config.tasks[name].kind, config.tasks[name].metric)
        count = dev["tasks"][name]["num_examples"]
        least = ""
        if metric == "accuracy" and value is not None and count:
            least = _figure(float(wilson_bound(value * count, count)))
        best, beaten = best_in(scores, name, config.tasks[name].kind) or ("none", None)
        figures = [_figure(beaten), _figure(value), least]
        rows.append([name, metric, best, *figures, f"{count:,}"])
    summary = dev["summary"]
    heads = ["task", "figure", "best baseline", "its figure", "this model", "at least", "dev rows"]
    return [
        ["## Scores"],
        _table(heads, rows, right=3),
        [f"- {sentence}." for sentence in list_shortfalls(scores, config.tasks, _figure)],
        [
            "The best baseline is the best of several models that train no encoder: the majority "
            "class (or the mean score) and, where they were measured, linear models of frozen "
            "vectors and of TF-IDF.",
            "At least: the lower end of Wilson's interval, with a certainty of 95%. "
            f"Overall {_figure(summary['overall'])}, mean {_figure(summary['mean'])}.",
        ],
    ]


# --- what it is made of ------------------------------------------------------------------


def _data(config: RunConfig, info: Mapping[str, Any]) -> list[Sequence[str]]:
    counts = info.get("data", {})
    rows = []
    for name, task in config.tasks.items():
        splits = {"train": task.train, "unlabelled": task.unlabelled, "dev": task.dev}
        for split, files in splits.items():
            found = counts.get(split, {}).get(name)
            if files or found:
                rows.append([name, split, *_files(files, found), task.licence or "not told"])
    for name, texts in config.texts.items():
        found = counts.get("texts", {}).get(name)
        licence = texts.licence or "not told"
        rows.append([name, "bare texts", *_files(texts.files, found), licence])
    lines = ["Dev rows are never trained on; they choose the model that is kept."]
    if config.data.folds:
        part = f"part {config.data.fold} of {config.data.folds} of the training rows"
        lines.append(
            f"What is {part} was not trained on."
            if config.data.leave_out
            else f"Here dev is {part}, and the dev files were left unread."
        )
    for found in (counts.get(split, {}) for split in ("train", "unlabelled", "texts")):
        for name, facts in found.items():
            if rows_out := facts.get("held_out_rows"):
                are = "is" if rows_out == 1 else "are"
                told = f"{counted(rows_out, 'training row')} that dev or test has {are} left out"
                lines.append(f"Of {name}, {told}.")
            if texts_out := facts.get("held_out_texts"):
                are = "is" if texts_out == 1 else "are"
                told = f"{counted(texts_out, 'text')} that dev or test has {are} left out"
                lines.append(f"Of {name}, {told} of pre-training.")
            lines += [f"To {name}: {made}." for made in facts.get("made", ())]
    return [["## Data"], _table(["of", "split", "files", "rows", "licence"], rows), lines]


def _files(files: Sequence[FileConfig], found: Mapping[str, Any] | None) -> list[str]:
    rows = f"{found['rows']:,}" if found else "not told"
    return [", ".join(map(_file, files)), rows]


def _file(file: FileConfig) -> str:
    chosen = [
        f"{column} is {' or '.join(map(str, values))}"
        for column, values in (file.where or {}).items()
    ]
    return f"`{Path(file.path).name}`" + (f" where {' and '.join(chosen)}" if chosen else "")


def _encoder(config: RunConfig, info: Mapping[str, Any]) -> list[Sequence[str]]:
    facts = info.get("encoder", {})
    lines = [f"- began as: `{facts.get('origin', config.encoder.source)}`"]
    if facts.get("revision"):
        lines.append(f"- revision: `{facts['revision']}`")
    if facts.get("sha256"):
        lines.append(f"- sha256 of its weights then: `{facts['sha256']}`")
    lines.append(f"- a text's vector: {config.encoder.pooling}")
    lines.append(f"- reads {config.encoder.max_length} tokens of an input at most")
    seen = facts.get("notes") or (
        "Nothing is known here of the texts it was trained on before; whoever made it can tell. "
        "Where they hold rows of the dev files, scores are flattered."
    )
    return [["## Encoder"], lines, [f"What it has seen: {seen}"]]


def _settings(
    config: RunConfig, info: Mapping[str, Any], scores: Mapping[str, Any]
) -> list[Sequence[str]]:
    rows = []
    for name in config.stages:
        stage = config.stage_config(name)
        parts = [stage.schedule, stage.aggregator, stage.weighting, *stage.regularizers]
        names = ", ".join(part["name"] for part in parts)
        rows.append(
            [
                name,
                stage.kind["name"],
                ", ".join(stage.tasks or config.tasks),
                f"{stage.epochs}",
                f"{stage.batch_size}",
                f"{stage.lr:g}",
                names,
            ]
        )
    heads = ["stage", "trains by", "tasks", "epochs", "batch", "rate", "parts"]
    lines = [f"Seed {config.seed}. Every setting is in `recipe.toml`."]
    if scores.get("steps"):
        lines.append(
            f"The model kept is that after {scores['best_step']:,} of {scores['steps']:,} updates, "
            f"by the {config.select} of the tasks' dev figures."
        )
    if info.get("device"):
        lines.append(f"Trained on {info['device']} in {info['precision']}, torch {info['torch']}.")
    for teacher in info.get("teachers", {}):
        lines.append(f"Stage {teacher} learnt from a teacher; run.json names it.")
    return [["## Training"], _table(heads, rows), lines]


# --- what it is for ----------------------------------------------------------------------


def _uses(config: RunConfig) -> list[Sequence[str]]:
    names = ", ".join(config.tasks)
    return [
        ["## Intended use"],
        [
            f"Answering its own tasks ({names}) for texts of the kind, the language and the source "
            "that it was trained on.",
            "Figures above say how well that goes on rows like the dev rows, and nothing about "
            "other texts.",
        ],
    ]


def _limits(
    config: RunConfig, scores: Mapping[str, Any], found: Mapping[str, Any]
) -> list[Sequence[str]]:
    known = found[CALIBRATION].get("tasks", {})
    unchecked = [name for name, task in config.tasks.items() if task.labels and name not in known]
    lost = "what comes after" if config.encoder.truncate == "head" else "the middle"
    lines = [
        f"- Inputs are cut to {config.encoder.max_length} tokens; {lost} is not read.",
        "- Dev rows chose the model, so its dev figures are a little flattered. Rows nobody has "
        "looked at tell more.",
    ]
    tasks = scores.get("dev", {}).get("tasks", {})
    for name, task in tasks.items():
        if weak := [e for e in task["per_class"] if e["support"] and e["recall"] < 1]:
            worst = min(weak, key=lambda entry: entry["recall"])
            lines.append(
                f"- {name}: weakest on {_plain(worst['label'])}, {worst['recall']:.0%} of whose "
                f"dev rows ({worst['support']:,}) are found."
            )
    if unchecked:
        which = f" of {', '.join(unchecked)}" if known else ""
        lines.append(
            f"- Confidence is the probability the model gives its answer. Nobody has checked that "
            f"it matches how often the answer{which} is right."
        )
    if any(not task.labels for task in config.tasks.values()):
        lines.append("- Scores never leave the range they were trained on.")
    asked = found[AUDIT].get("settings", {})
    if not (found[AUDIT] and (asked.get("english", True) or asked.get("own"))):
        lines.append("- Who is served better or worse by its answers was not looked at.")
    if config.plugins:
        named = ", ".join(f"`{Path(plugin).name}`" for plugin in config.plugins)
        lines.append(f"- It loads only where its plugins are: {named}.")
    return [["## Limits"], lines]


def _loading(config: RunConfig, *, has_vectors: bool) -> list[Sequence[str]]:
    name, task = next(iter(config.tasks.items()))
    texts = '"One text.", "Another text."' if task.is_pair else '"One text."'
    example = f"({texts})" if task.is_pair else texts
    vectors = ['model.embed(["One text."])  # a vector for each text'] if has_vectors else []
    words = texts.replace(",", "")
    return [
        ["## Use it"],
        ["`RUN` is the folder this page is in."],
        [
            "```console",
            f"$ plait predict RUN --task {name} {words}",
            f"$ plait predict RUN --task {name} --input texts.csv --out answers.csv",
            "```",
        ],
        [
            "```python",
            "import plait",
            "",
            'model = plait.load("RUN")',
            f'model.predict("{name}", [{example}])',
            *vectors,
            "```",
        ],
    ]


# --- what other commands left ------------------------------------------------------------


def _extras(found: Mapping[str, Any]) -> list[Sequence[str]]:
    sections: list[Sequence[str]] = []
    for name, title, rows in (
        (CALIBRATION, "Calibration", found[CALIBRATION].get("tasks")),
        (AUDIT, "Audit", found[AUDIT].get("summary")),
    ):
        if table := _any_table(rows):
            sections += [
                [f"## {title}"],
                table,
                [*_told(found[name]), _told_in(name)],
            ]
    return sections


def _told_in(name: str) -> str:
    """Name the file that a section is made of."""
    return f"All of it is in `{name}`."


def _told(found: Mapping[str, Any]) -> Iterator[str]:
    """Say of an audit what its columns mean and which language it speaks; which rows were taken."""
    settings = found.get("settings")
    if found.get("split") == "left-out":
        whose = f"`{source}`" if (source := found.get("source")) else "the run"
        yield f"Fitted on training rows that {whose} had left out."
    if "summary" in found:
        yield (
            "Changed: the part of the texts whose answer becomes another one. Moved: how far "
            "answers move on average, from 0 to 1."
        )
    if isinstance(settings, dict) and settings.get("english"):
        yield "plait's own sentences, and the words it looks for in rows, are English."


def _read_found(
    folder: Path, config: RunConfig, left: Collection[str]
) -> dict[str, dict[str, Any]]:
    """Read what commands found, save what they found of a model which was there before."""
    found = {name: _read(folder / name) if name in left else {} for name in (CALIBRATION, AUDIT)}
    weights = folder / "model.safetensors"
    if any("model" in values for values in found.values()) and weights.is_file():
        with weights.open("rb") as file:
            now = hashlib.file_digest(file, "sha256").hexdigest()
        found = {name: v if v.get("model", now) == now else {} for name, v in found.items()}
    if found[CALIBRATION]:  # what loading would refuse is not shown as if it were used
        take_scalings(folder / CALIBRATION, found[CALIBRATION], config.tasks)
    return found


_AS_PRINTED = {"count": "texts", "mean_change": "moved", "verdict": "measured"}
"""What `plait audit` calls its columns on the screen."""


def _any_table(rows: Any) -> list[str]:
    """Lay out what may be a list of tables, or tables by name; other things are left out."""
    if isinstance(rows, dict):
        inner = {name: row for name, row in rows.items() if isinstance(row, dict)}
        rows = [{"task": name, **row} for name, row in inner.items()]
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        return []
    plain = [_flatten(row) for row in rows]
    names = list(dict.fromkeys(key for row in plain for key in row))
    heads = [_AS_PRINTED.get(name, name.replace("_", " ")) for name in names]
    return _table(heads, [[_value(row.get(n)) for n in names] for row in plain]) if names else []


def _flatten(row: Mapping[str, Any]) -> dict[str, Any]:
    """Put the figures of inner tables beside the row's own, as "after ece"."""
    found: dict[str, Any] = {}
    for key, value in row.items():
        inner = {f"{key} {name}": v for name, v in value.items()} if isinstance(value, dict) else {}
        found |= inner or {key: value}
    return {key: value for key, value in found.items() if not isinstance(value, dict | list)}


def _value(value: Any) -> str:
    return _figure(value) if isinstance(value, float) else "" if value is None else str(value)


# --- Markdown ----------------------------------------------------------------------------


def _table(
    heads: Sequence[str], rows: Iterable[Sequence[str]], right: int | None = None
) -> list[str]:
    """Write a table; columns from `right` on, of figures, stand right."""
    marks = ["--:" if right is not None and i >= right else "---" for i in range(len(heads))]
    lines = [heads, marks, *rows]
    return ["| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines]


def _plain(text: str) -> str:
    """Write a word of the data so that a reader of Markdown shows it, and nothing else."""
    return re.sub(r"[<`\[]", r"\\\g<0>", " ".join(text.split()))


def _figure(value: float | None) -> str:
    return "none" if value is None else f"{value:.3f}"


def _maker(info: Mapping[str, Any]) -> str:
    return f"plait {info['plait']}" if "plait" in info else "plait"


def _read(path: Path) -> dict[str, Any]:
    """Read a JSON file of the folder; one that is not there says nothing."""
    if not path.is_file():
        return {}
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise RunError(f"{path} is damaged: {error}") from error
    return values if isinstance(values, dict) else {}
