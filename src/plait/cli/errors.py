"""The errors of a run, and its differences to another run, on the screen."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

    from plait.analysis.comparison import Comparison
    from plait.analysis.mistakes import LabelledRow, Mistake, Mistakes
    from plait.analysis.slices import SliceScore

MOST_CHANGES = 2
"""Rows shown that the run corrected, and that it broke; --csv has all."""

MOST_LINES = 3
"""Lines shown of a text; --csv has the whole text."""

MOST_SLICES = 6
"""Kinds of text in the table; --json has all."""


def show_errors(found: Mistakes, against: Path | None, *, with_rows: bool) -> None:
    """Print a task's worst errors, the kinds of text they are in, and the comparison."""
    from plait.cli.display import make_console

    console = make_console()
    if with_rows:
        right = found.verdicts.right
        wrong = "" if right is None else f"{int((~right).sum()):,} of {found.num_rows:,} rows, "
        order = "largest error first" if right is None else "most confident first"
        any_wrong = found.verdicts.severity.any()
        about = f"{wrong}{order}" if any_wrong else "none"
        console.print(f"\nErrors of {found.task}: {about}", style="bold")
        for mistake in found.worst:
            _show_mistake(console, mistake)
        if any_wrong:
            _show_slices(console, found, MOST_SLICES)
    if found.comparison is not None:
        _show_comparison(console, found, found.comparison, str(against))


def _show_mistake(console: Console, mistake: Mistake) -> None:
    from plait.analysis.slices import share_words
    from plait.cli.display import shorten

    console.print(f"\n{_write_answer(mistake)}  [{mistake.id}, {_where(mistake)}]")
    shared = share_words(mistake.texts) if len(mistake.texts) == 2 else frozenset()
    for text in mistake.texts:
        _show_text(console, text, shared)
    for near in mistake.nearest[:1]:
        what = "same text" if near.is_copy else f"nearest text, similarity {near.similarity:.2f},"
        console.print(f"  {what} in training: {near.truth}  [{_where(near)}]", style="dim")
        shown = " | ".join(" ".join(text.split()) for text in near.texts)
        console.print(shorten(f"    {shown}", console.width), style="dim")


def _write_answer(mistake: Mistake) -> str:
    """Return the prediction and the label."""
    sure = "" if mistake.confidence is None else f" ({mistake.confidence:.0%})"
    return f"predicted {mistake.answer}{sure}, actual {mistake.truth}"


def _where(row: LabelledRow) -> str:
    return f"{row.place.path.name} {row.place.unit} {row.place.number}"


def _show_text(console: Console, text: str, shared: frozenset[str]) -> None:
    """Print a text in a few lines; words that both texts of a pair have are underlined."""
    import textwrap

    from rich.text import Text

    from plait.analysis.slices import WORD, split_words
    from plait.errors import show_controls

    lines = textwrap.wrap(
        " ".join(text.split()),
        max(console.width - 2, 20),
        max_lines=MOST_LINES,
        placeholder=" …",
        break_long_words=True,
    )
    for line in lines:
        marked = Text(show_controls(line))
        for match in WORD.finditer(line):
            if shared.issuperset(split_words(match[0])):
                marked.stylize("underline", *match.span())
        console.print(Text("  ").append_text(marked))


def _show_slices(console: Console, found: Mistakes, most: int) -> None:
    """Print the kinds of text with the clearest differences, then those with the lowest scores."""
    from plait.cli.display import print_table

    order = sorted(found.slices, key=lambda s: (not s.stands_out, s.interval is None))
    if not order:
        return
    rows = [["texts with", "rows", found.verdicts.metric, "difference", "95% interval", ""]]
    rows += [_slice_row(piece) for piece in order[:most]]
    console.print()
    print_table(console, rows)
    more = f"; --json has {len(order) - most} more" if len(order) > most else ""
    console.print(f"* significant at 5% over {len(order)} comparisons{more}")


def _slice_row(piece: SliceScore) -> list[str]:
    from plait.cli.display import figure, signed

    ends = "too few rows"
    if piece.interval is not None:
        ends = f"{signed(piece.interval.low)} to {signed(piece.interval.high)}"
    mark = "*" if piece.stands_out else ""
    return [
        piece.name,
        f"{piece.count:,}",
        figure(piece.score),
        signed(piece.difference),
        ends,
        mark,
    ]


def _show_comparison(
    console: Console, found: Mistakes, comparison: Comparison, against: str
) -> None:
    from plait.cli.display import figure, print_table, shorten, signed

    counts = (len(comparison.fixed), len(comparison.broken))
    words = "{:,} better, {:,} worse" if comparison.p is None else "{:,} corrected, {:,} broken"
    chance = ""
    if comparison.p is not None:
        verdict = "not significant" if comparison.p >= 0.05 else "significant"
        chance = f"; exact McNemar test p = {figure(comparison.p)}, {verdict}"
    console.print(
        f"\n{found.task} against {against}: {words.format(*counts)}{chance}", style="bold"
    )
    rows = [["metric", "this run", "other", "difference", "95% interval"]]
    for name, metric in comparison.metrics.items():
        ends = f"{signed(metric.interval.low)} to {signed(metric.interval.high)}"
        difference = signed(metric.value)
        rows.append([name, figure(metric.run), figure(metric.against), difference, ends])
    print_table(console, rows)
    verbs = ("better", "worse") if comparison.p is None else ("corrected", "broken")
    for verb, changed in zip(verbs, (found.fixed, found.broken), strict=True):
        for mistake in changed[:MOST_CHANGES]:
            said = f"{mistake.against} -> {mistake.answer}, actual {mistake.truth}"
            console.print(f"{verb}: {said}  [{mistake.id}, {_where(mistake)}]")
            console.print(shorten(f"  {' | '.join(mistake.texts)}", console.width))
