"""`plait predict` of many files, or on a Ray cluster: a folder of answers, part by part."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from plait.errors import counted

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from plait.scale import Engine


@dataclass(frozen=True, slots=True)
class FolderRequest:
    """What was typed."""

    run: Path
    pattern: Path | None
    output: Path | None
    engine: Engine
    texts: list[str] | None
    tasks: list[str] | None
    column: list[str] | None
    separator: str | None
    quoting: bool
    skip_empty: bool
    form: str | None
    probabilities: bool
    accuracy: float | None
    threshold: float | None
    review: Path | None
    data: str | None
    device: str
    precision: str
    resume: bool


def is_pattern(path: Path | None) -> bool:
    """Say whether a name stands for several files."""
    return path is not None and any(sign in str(path) for sign in "*?[") and not path.exists()


def predict_folder(request: FolderRequest) -> None:
    """Answer all files of a pattern into a folder."""
    from plait.cli.display import Display
    from plait.cli.evaluate import note_unfinished
    from plait.cli.predict import check_holding_back, choose_thresholds, note_empty

    pattern, out = _check(request)
    check_holding_back(request.accuracy, request.threshold, request.data)
    with Display() as display:
        display.begin(f"loading {request.run}")
        from plait.data import open_source
        from plait.inference.answers.folder import answer_folder
        from plait.inference.answers.parts import find_files, make_plan, refuse_own_answers
        from plait.inference.answers.stream import choose_tasks
        from plait.inference.ensemble import load

        files = find_files(str(pattern))
        refuse_own_answers(str(pattern), files, out, request.form, separator=request.separator)
        # Here it only says which tasks there are, where a cluster answers; a GPU is for others.
        device = "cpu" if request.engine.is_ray else request.device
        note_unfinished(request.run, display)
        model = load(request.run, device=device, precision=request.precision)
        num_texts = len(request.column) if request.column else None
        here: Sequence[str] = ()
        if not (request.tasks or request.column):  # the others have the same columns
            first = open_source(files[0], separator=request.separator, quoting=request.quoting)
            here = first.names()
        names = choose_tasks(model, request.tasks, num_texts, here)
        least = choose_thresholds(
            model, names, request.accuracy, request.threshold, request.data, display
        )
        plan = make_plan(
            model,
            files,
            out,
            tasks=names,
            text=request.column,
            form=request.form,
            probabilities=request.probabilities,
            threshold=least,
            separator=request.separator,
            quoting=request.quoting,
            skip_empty=request.skip_empty,
        )
        answer = None
        if request.engine.is_ray:
            from plait.scale.answering import Source, answer_on_ray

            display.begin("starting Ray" if request.engine.address is None else "joining Ray")
            source = Source(request.run, request.device, request.precision)
            answer = answer_on_ray(source, request.engine)
        done = answer_folder(
            model,
            plan,
            answer=answer,
            form={"precision": request.precision},
            resume=request.resume,
            command="the same command and --resume",
            progress=display.work,
        )
        for name, count in done.num_review.items():
            display.note(f"{name}: {count:,} of {done.num_rows:,} rows are for review")
        note_empty(display, done.num_empty, done.num_rows)
        num_answered = done.num_rows - done.num_empty
        are = "is" if num_answered == 1 else "are"
        display.note(
            f"{counted(num_answered, 'row')} of {counted(len(files), 'file')} {are} answered in "
            f"{out}, in {counted(done.num_parts, 'part')}"
        )


def _check(request: FolderRequest) -> tuple[Path, Path]:
    """Refuse what does not go together before anything slow begins."""
    from plait.errors import UsageError

    if request.texts:
        raise UsageError("give texts as arguments or files with --input, not both")
    if request.pattern is None:
        raise UsageError("--engine ray answers files: give a pattern with --input 'rows/*.csv'")
    if request.output is None:
        raise UsageError("answers to several files go into a folder: name one with --output DIR")
    if request.review is not None:
        raise UsageError(
            "--review is for one file; parts have a column, TASK_review, that says the same"
        )
    if request.output.is_file() or request.output.suffix in (".csv", ".tsv", ".jsonl", ".parquet"):
        raise UsageError(
            f"--output {request.output} should be a folder, which parts are written into"
        )
    return request.pattern, request.output
