"""`plait explain`: what each word of a text adds to a run's answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from plait.cli.evaluate import DeviceOption, JsonOption, PrecisionOption, RunArgument, load_watched

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from plait.analysis.explanation import Explanation, Part

BAR = 24
"""Columns of the longest bar."""
FAINT = 0.2
"""Part of the strongest effect below which a word is not coloured."""


def explain(
    run: RunArgument,
    texts: Annotated[
        list[str],
        typer.Argument(metavar="TEXT", help="The text; the two of a pair, for a task on pairs."),
    ],
    task: Annotated[
        str | None,
        typer.Option("--task", metavar="TASK", help="Task to explain; needed if several fit."),
    ] = None,
    label: Annotated[
        str | None,
        typer.Option("--label", metavar="LABEL", help="Explain this one; the answer unless set."),
    ] = None,
    method: Annotated[
        Literal["shapley", "occlusion"],
        typer.Option(
            "--method", help="shapley shares the answer out; occlusion leaves out one word a time."
        ),
    ] = "shapley",
    draws: Annotated[
        int,
        typer.Option(
            "--draws", metavar="N", min=2, help="Pairs of orders drawn; more are more exact."
        ),
    ] = 16,
    top: Annotated[
        int, typer.Option("--top", metavar="N", min=1, help="Words to show, the strongest.")
    ] = 10,
    as_json: JsonOption = False,
    device: DeviceOption = "auto",
    precision: PrecisionOption = "run",
) -> None:
    """Show which words of a text an answer rests on.

    Words are left out and the answer is asked for again. A word's effect is what it adds to the
    probability of the answer, or to a score; all effects add up to the difference between the
    whole text and no text. ± is the error of drawing. What is told is about the model, not about
    the world: a word it rests on may be a wrong reason.
    """
    from plait.cli.display import Display, make_console
    from plait.errors import UsageError

    with Display() as display:
        model = load_watched(run, device, display, "answering", precision=precision)
        from plait.analysis.explanation import explain as explain_answer
        from plait.inference.answers.stream import choose_tasks

        names = choose_tasks(model, [task] if task else None, len(texts))
        if len(names) > 1:
            raise UsageError(f"say which task with --task: {', '.join(names)}")
        text = texts[0] if len(texts) == 1 else tuple(texts)
        found = explain_answer(model, names[0], text, label=label, method=method, draws=draws)
    if as_json:
        import json

        typer.echo(json.dumps(found.to_json(), indent=1, ensure_ascii=False))
        return
    _show(make_console(), found, texts, top)


def _show(console: Console, found: Explanation, texts: list[str], top: int) -> None:
    """Print the answer, the texts with their words coloured, and the strongest words."""
    from plait.cli.display import figure

    answer = found.prediction
    sure = "" if answer.confidence is None else f" ({answer.confidence:.0%} sure)"
    console.print(f"{answer.task}: {answer.label}{sure}")
    for place, text in enumerate(texts):
        parts = [part for part in found.parts if part.place == place]
        console.print("  ", _coloured(text, parts, _strongest(found)), sep="")
    what = "the score" if found.label is None else f"the probability of {found.label!r}"
    form = ".2f" if found.label is None else ".0%"
    console.print(
        f"\n{what[:1].upper()}{what[1:]} is {found.value:{form}} with all words and "
        f"{found.bare:{form}} with none. The words add:\n"
    )
    ranked = sorted(found.parts, key=lambda part: -abs(part.effect))
    drawn = any(part.error for part in found.parts)
    width = max(len(_word(part, len(texts))) for part in ranked[:top])
    for part in ranked[:top]:
        error = f" ± {figure(part.error)}" if drawn else ""
        sign = "+" if part.effect >= 0 else "-"
        bar = "#" * round(BAR * abs(part.effect) / (_strongest(found) or 1))
        word = _word(part, len(texts)).ljust(width)
        console.print(f"  {sign}{figure(abs(part.effect))}{error}  {word}  {bar}".rstrip())
    if rest := ranked[top:]:
        total = sum(part.effect for part in rest)
        sign = "+" if total >= 0 else "-"
        console.print(f"  {sign}{figure(abs(total))}  {len(rest)} more together")


def _strongest(found: Explanation) -> float:
    return max((abs(part.effect) for part in found.parts), default=0.0)


def _word(part: Part, num_texts: int) -> str:
    where = f" (text {part.place + 1})" if num_texts > 1 else ""
    return f"{' '.join(part.text.split())}{where}"


def _coloured(text: str, parts: list[Part], strongest: float) -> Text:
    """Colour what speaks for the answer green and what speaks against it red."""
    from rich.text import Text

    from plait.errors import show_controls

    shown = Text(show_controls(text))
    for part in parts:
        if abs(part.effect) > FAINT * strongest:
            shown.stylize("bold green" if part.effect > 0 else "bold red", part.start, part.end)
    return shown
