"""Export a trained run to a folder in one of the formats."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from plait.data.storage import write_text
from plait.errors import DataError, UsageError, suggest
from plait.export import hf, sentence_transformers
from plait.export.comparing import Comparison, compare
from plait.export.folder import write_page
from plait.export.onnx import Precision, need_onnx, write_onnx
from plait.inference.exported import FILE, ExportedModel, is_exported
from plait.inference.folders import check_place, made_whole
from plait.inference.predictor import Predictor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from plait.data import Dataset
    from plait.inference.predictor import Progress

Format = Literal["onnx", "sentence-transformers", "hf"]


@dataclass(frozen=True, slots=True)
class Export:
    """The result of an export."""

    folder: Path
    comparisons: dict[str, Comparison] = field(default_factory=dict)
    """For ONNX: the comparison of each task on dev rows."""
    note: str = ""
    """Why no task was compared."""


def default_place(run: Path, form: Format, precision: Precision = "fp32") -> Path:
    """Return the default folder of an export, next to its run."""
    return run.with_name("-".join([run.name, form, *(["int8"] if precision == "int8" else [])]))


def export(
    run: str | Path,
    out: str | Path | None = None,
    *,
    form: Format = "onnx",
    tasks: Sequence[str] | None = None,
    precision: Precision = "fp32",
    data: str | None = None,
    reading: Progress | None = None,
    answering: Progress | None = None,
) -> Export:
    """Export a run; an ONNX export is compared with the run if dev rows are available.

    `tasks` are all tasks by default; hf takes exactly one. sentence-transformers without a task
    exports the encoder for SentenceTransformer, with a task a CrossEncoder.
    """
    source = Path(run)
    place = default_place(source.resolve(), form, precision) if out is None else Path(out)
    _check_words(form, tasks, precision)
    check_place(place)
    if is_exported(source):
        raise UsageError(f"{source} is already an export; name the run it was made from")
    model = _load(source)
    names = [name for name in tasks or model.tasks if model.task(name)]
    if form != "onnx":
        _write_hub(place, model, form, names if tasks else [])
        return Export(place)
    need_onnx()
    datasets, note = _load_dev(model, names, data, reading)  # a wrong --data fails early
    with made_whole(place) as folder:
        write_onnx(folder, model, names, precision)
        found = _compare(folder, model, datasets, answering)
        write_page(folder, model, _explain_onnx(folder, found), {"library_name": "plait"})
    return Export(place, found, note)


def _load(source: Path) -> Predictor:
    """Load a run in fp32, with modules that can be traced."""
    model = Predictor.load(source, device="cpu", precision="run")
    return replace(model, scorer=replace(model.scorer, autocast=None), form="fp32")


def _check_words(form: Format, tasks: Sequence[str] | None, precision: Precision) -> None:
    if form not in get_args(Format):
        raise UsageError(f"format {form!r} is not known{suggest(form, get_args(Format))}")
    if precision not in get_args(Precision):
        raise UsageError(
            f"precision {precision!r} is not known{suggest(precision, get_args(Precision))}"
        )
    if precision == "int8" and form != "onnx":
        raise UsageError("int8 is only for --format onnx; the other formats have fp32 weights")
    if form == "hf" and len(tasks or ()) != 1:
        raise UsageError("--format hf exports one task: name it with --task")
    if form == "sentence-transformers" and len(tasks or ()) > 1:
        raise UsageError(
            "--format sentence-transformers exports one task (--task) or, without it, the encoder"
        )


def _write_hub(place: Path, model: Predictor, form: Format, names: Sequence[str]) -> None:
    tag = "text-classification" if names else "sentence-similarity"
    library = "transformers" if form == "hf" else "sentence-transformers"
    with made_whole(place) as folder:
        if form == "hf":
            hf.write_hf(folder, model, names[0])
            using = hf.explain(model, names[0])
        elif names:
            sentence_transformers.write_cross_encoder(folder, model, names[0])
            using = sentence_transformers.explain_cross_encoder(model, names[0])
        else:
            sentence_transformers.write_encoder(folder, model)
            using = sentence_transformers.explain_encoder()
        write_page(folder, model, using, {"library_name": library, "pipeline_tag": tag})


def _load_dev(
    model: Predictor, names: Sequence[str], data: str | None, reading: Progress | None
) -> tuple[dict[str, Dataset], str]:
    """Read the dev rows of some tasks; return them, or a note why they are not available."""
    try:
        datasets = model.load_split("dev", data=data, tasks=names, progress=reading)
    except DataError as error:
        if data is not None:
            raise
        return {}, f"the export was not compared with the run: {error}"
    return datasets, "" if datasets else "not compared with the run: the recipe has no dev files"


def _compare(
    folder: Path, model: Predictor, datasets: dict[str, Dataset], answering: Progress | None
) -> dict[str, Comparison]:
    """Compare run and export on dev rows, and add the result to export.json."""
    if not datasets:
        return {}
    found = compare(model, ExportedModel.load(folder, device="cpu"), datasets, answering)
    facts = json.loads((folder / FILE).read_text(encoding="utf-8"))
    tasks = {name: each.to_json() for name, each in found.items()}
    facts["measured"] = {"split": "dev", "tasks": tasks}
    write_text(folder / FILE, json.dumps(facts, indent=1, allow_nan=False))
    return found


def _explain_onnx(folder: Path, found: dict[str, Comparison]) -> list[Sequence[str]]:
    """Return the sections about the usage of the graphs, and the comparison with the run."""
    facts = json.loads((folder / FILE).read_text(encoding="utf-8"))
    first, task = next(iter(facts["tasks"].items()))
    texts = '("One text.", "Another text.")' if task["texts"] == 2 else '"One text."'
    words = '"One text." "Another text."' if task["texts"] == 2 else '"One text."'
    comparison: list[Sequence[str]] = []
    if found:
        lines = [
            f"| {name} | {c.metric} | {_figure(c.before)} | {_figure(c.after)} | {c.equal:.1%} | "
            f"{c.rows:,} |"
            for name, c in found.items()
        ]
        comparison = [
            ["## Against the run"],
            [
                f"| task | figure | run | {facts['precision']} graph | equal answers | dev rows |",
                "| --- | --- | --: | --: | --: | --: |",
                *lines,
            ],
            ["Two scores are equal if they differ by less than 1% of the range."],
        ]
    return [
        *comparison,
        ["## Use it"],
        [
            "This folder holds ONNX graphs; `FOLDER` is its path. `export.json` says which graph "
            "has the predictions of which task. They are probabilities, calibrated if the run is, "
            "or scores in the units of the task.",
        ],
        ["```console", f"$ plait predict FOLDER --task {first} {words}", "```"],
        [
            "```python",
            "import plait",
            "",
            'model = plait.load("FOLDER")',
            f'model.predict("{first}", [{texts}])',
            "```",
        ],
    ]


def _figure(value: float | None) -> str:
    return "none" if value is None else f"{value:.3f}"
