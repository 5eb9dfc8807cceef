"""`plait explain`: the effect of each word of a text on a prediction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from plait.cli.evaluate import load_watched
from plait.cli.options import JsonOption, RunArgument, TaskOption

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from plait.analysis.explanation import Explanation, Part

BAR = 24
"""Width of the longest bar, in columns."""
FAINT = 0.2
"""Fraction of the strongest effect below which a word is not coloured."""
MOST_WORDS = 10
"""Words shown; --json has all."""


def explain(
    run: RunArgument,
    texts: Annotated[
        list[str],
        typer.Argument(metavar="TEXT", help="The text, or the two texts of a pair."),
    ],
    task: TaskOption = None,
    label: Annotated[
        str | None,
        typer.Option(
            "--label", metavar="LABEL", help="The label to explain. Default: the prediction."
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show the words of a text that a prediction depends on.

    Words are removed and the model predicts again. The effect of a word is its Shapley value: what
    it adds to the probability of the label, or to the score, on average over orders of the words.
    The effects add up to the difference between the whole text and an empty one; plus-minus is
    the sampling error. Effects describe the model, not whether its reasons are right.
    """
    from plait.cli.display import Display, make_console
    from plait.errors import UsageError

    with Display() as display:
        model = load_watched(run, "auto", display, "predicting")
        from plait.analysis.explanation import explain as explain_answer
        from plait.inference.answers.stream import choose_tasks

        names = choose_tasks(model, [task] if task else None, len(texts))
        if len(names) > 1:
            raise UsageError(f"name the task with --task ({', '.join(names)})")
        text = texts[0] if len(texts) == 1 else tuple(texts)
        found = explain_answer(model, names[0], text, label=label)
    if as_json:
        import json

        typer.echo(json.dumps(found.to_json(), indent=1, ensure_ascii=False))
        return
    _show(make_console(), found, texts)


def _show(console: Console, found: Explanation, texts: list[str]) -> None:
    """Print the prediction, the texts with coloured words, and the strongest words."""
    from plait.cli.display import figure

    answer = found.prediction
    sure = "" if answer.confidence is None else f" ({answer.confidence:.0%})"
    console.print(f"{answer.task}: {answer.label}{sure}")
    for place, text in enumerate(texts):
        parts = [part for part in found.parts if part.place == place]
        console.print("  ", _coloured(text, parts, _strongest(found)), sep="")
    what = "the score" if found.label is None else f"the probability of {found.label!r}"
    form = ".2f" if found.label is None else ".0%"
    console.print(
        f"\n{what[:1].upper()}{what[1:]} is {found.value:{form}} with all words and "
        f"{found.bare:{form}} without any. Effects of the words:\n"
    )
    ranked = sorted(found.parts, key=lambda part: -abs(part.effect))
    drawn = any(part.error for part in found.parts)
    width = max(len(_word(part, len(texts))) for part in ranked[:MOST_WORDS])
    for part in ranked[:MOST_WORDS]:
        error = f" ± {figure(part.error)}" if drawn else ""
        sign = "+" if part.effect >= 0 else "-"
        bar = "#" * round(BAR * abs(part.effect) / (_strongest(found) or 1))
        word = _word(part, len(texts)).ljust(width)
        console.print(f"  {sign}{figure(abs(part.effect))}{error}  {word}  {bar}".rstrip())
    if rest := ranked[MOST_WORDS:]:
        total = sum(part.effect for part in rest)
        sign = "+" if total >= 0 else "-"
        console.print(f"  {sign}{figure(abs(total))}  {len(rest)} more together")


def _strongest(found: Explanation) -> float:
    return max((abs(part.effect) for part in found.parts), default=0.0)


def _word(part: Part, num_texts: int) -> str:
    where = f" (text {part.place + 1})" if num_texts > 1 else ""
    return f"{' '.join(part.text.split())}{where}"


def _coloured(text: str, parts: list[Part], strongest: float) -> Text:
    """Return the text with words for the label in green and words against it in red."""
    from rich.text import Text

    from plait.errors import show_controls

    shown = Text(show_controls(text))
    for part in parts:
        if abs(part.effect) > FAINT * strongest:
            shown.stylize("bold green" if part.effect > 0 else "bold red", part.start, part.end)
    return shown
