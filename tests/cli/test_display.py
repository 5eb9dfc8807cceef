"""The live line and the plain lines, and how figures and tables are written."""

from __future__ import annotations

import io
import sys
from types import SimpleNamespace

import pytest
from rich.console import Console

from plait.cli import display as module
from plait.cli.display import Display, figure, make_console, print_table, shorten
from plait.inference.scoring import Scores


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (0.5119, ".512"),
        (-0.0071, "-.007"),
        (-0.0001, ".000"),
        (0.0, ".000"),
        (1.0, "1.000"),
        (-1.0, "-1.000"),
        (0.9996, "1.000"),
        (10.25, "10.250"),
        (20.5, "20.500"),
        (None, "none"),
        (float("nan"), "none"),
    ],
)
def test_figure(value, written):
    assert figure(value) == written


def make(width=80, *, terminal=True, **options):
    file = io.StringIO()
    console = Console(
        file=file,
        width=width,
        force_terminal=terminal,
        highlight=False,
        soft_wrap=True,
        markup=False,
        emoji=False,
        **options,
    )
    return Display(console), file


def record(step, *, epoch=1, num_steps=100, stage="finetune", before=0):
    total = before + step
    return SimpleNamespace(
        stage=stage, epoch=epoch, step=step, num_steps=num_steps, total_steps=total
    )


def scores(total, **primary):
    return Scores({}, primary, {"sum": total, "mean": total, "overall": total})


@pytest.fixture
def clock(monkeypatch):
    """A clock that the test moves."""
    now = SimpleNamespace(time=100.0)
    monkeypatch.setattr(module.time, "monotonic", lambda: now.time)
    return now


def train(display, clock, steps, seconds=2.0):
    for step in steps:
        clock.time += seconds
        display.step(record(step))


# --- on a terminal -----------------------------------------------------------------------


def test_the_line_tells_count_time_left_and_losses(clock):
    display, _ = make(100)
    with display:
        train(display, clock, range(1, 11))
        display.losses(record(10), {"mood": 0.5, "same": 0.25})
        line = display._line().plain
    assert "finetune, epoch 1" in line
    assert "10/100" in line
    assert "3:00 left" in line  # 90 updates of 2 s
    assert "mood 0.500  same 0.250" in line


@pytest.mark.parametrize("width", [20, 30, 40, 60, 80, 120, 200])
def test_the_line_fits_any_terminal(clock, width):
    display, _ = make(width)
    with display:
        train(display, clock, range(1, 11))
        display.losses(record(10), {f"a task with a long name {i}": 0.5 for i in range(3)})
        line = display._line().plain
        assert len(line) < width
        assert "10/100  3:00 left" in line or width == 20
        display.reading("a file with a very long name indeed, train", 1, 2)
        assert len(display._line().plain) < width
        assert "50%" in display._line().plain


def test_losses_that_do_not_fit_become_their_mean(clock):
    display, _ = make(80)
    with display:
        train(display, clock, range(1, 4))
        display.losses(record(3), {"sentiment": 1.0, "paraphrase": 0.5})
        display.losses(record(3), {"similarity": 0.0})  # the others' last losses still count
        assert "mean loss 0.500" in display._line().plain


def test_the_bar_can_be_read_without_colour(clock, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    display, file = make(80)
    with display:
        display.scoring("mood", 50, 100)
        assert "━" * 12 + "─" * 12 in display._line().plain
    assert "\x1b[32m" not in file.getvalue()


def test_scoring_does_not_count_as_training_time(clock):
    display, _ = make(100)
    with display:
        train(display, clock, [1, 2, 3])
        display.scoring("mood", 1, 2)
        clock.time += 1000
        display.scoring("mood", 2, 2)
        display.step(record(4))
        train(display, clock, [5])
        assert "3:10 left" in display._line().plain  # 95 updates of 2 s


def test_work_of_unknown_length_is_counted(clock):
    display, _ = make(80)
    with display:
        display.begin("loading")
        assert display._line().plain == "loading"
        display.work("answering", 1500, 0)
        assert display._line().plain == "answering  1,500"


def test_the_line_is_taken_away(clock):
    display, file = make(80)
    with display:
        display.begin("loading")
    assert file.getvalue().endswith("\x1b[1A\x1b[2K")


def test_standard_output_is_left_alone(clock, capsys):
    display, _ = make(80)
    with display:
        display.begin("loading")
        sys.stdout.write("id,answer\n")
    assert capsys.readouterr().out == "id,answer\n"


# --- elsewhere ---------------------------------------------------------------------------


def test_plain_lines_come_now_and_then(clock):
    display, file = make(terminal=False)
    with display:
        display.begin("loading")
        display.losses(record(1), {"mood": 0.5})
        train(display, clock, range(1, 13))
    lines = file.getvalue().splitlines()
    assert lines == [
        "finetune, epoch 1: 6/100, 3:08 left, mood 0.500",
        "finetune, epoch 1: 12/100, 2:56 left, mood 0.500",
    ]


def test_plain_side_work_is_told_only_where_it_takes_long(clock):
    display, file = make(terminal=False)
    with display:
        display.reading("mood train", 10, 100)
        display.scoring("mood", 10, 100)
        assert file.getvalue() == ""
        clock.time += 11
        display.scoring("mood", 50, 100)
    assert file.getvalue() == "scoring mood: 50/100, 0:14 left\n"


def test_plain_lines_are_not_wrapped_nor_read_as_markup():
    display, file = make(20, terminal=False)
    text = "a long sentence [bold] with :smile: and 12345 in it, wider than the terminal"
    with display:
        display.note(text)
    assert file.getvalue() == f"note: {text}\n"
    assert make_console().is_terminal is False


# --- scores ------------------------------------------------------------------------------


def test_scores_and_the_best_so_far(tmp_path):
    display, file = make(terminal=False)
    display.start(tmp_path, {"name": "tiny", "tasks": {"mood": {}}}, 0)
    display.best(0)
    display.scores(0, "dev", scores(0.9, mood=0.9))
    display.best(5)
    display.scores(5, "dev", scores(0.25, mood=0.25))
    display.scores(5, "train", scores(0.5, mood=0.5))
    display.scores(9, "dev", scores(0.125, mood=0.125))
    assert file.getvalue().splitlines() == [
        f"training tiny on mood in {tmp_path}",
        "  dev before training: mood .900  average .900",
        "  dev after 5 updates: mood .250  average .250  best so far",
        "train after 5 updates: mood .500  average .500",
        "  dev after 9 updates: mood .125  average .125",
    ]
    assert display.first_scores == {"mood": 0.9}


def test_signs_of_two_columns_keep_a_table_straight(capsys):
    rows = [["class", "rows"], ["\u8acb\u6c42", "12"], ["bill", "3"]]
    print_table(make_console(), rows)
    out = capsys.readouterr().out.splitlines()
    assert out == ["class  rows", "\u8acb\u6c42     12", "bill      3"]


@pytest.mark.parametrize(
    ("text", "width", "short"),
    [
        ("abcdef", 6, "abcdef"),
        ("abcdefg", 6, "abcde…"),
        ("\u8acb\u6c42", 4, "\u8acb\u6c42"),
        ("\u8acb\u6c42\u914d", 5, "\u8acb\u6c42…"),
        ("\u8acb\u6c42\u914d", 4, "\u8acb…"),
        ("abc", 1, "…"),
    ],
)
def test_texts_are_cut_to_columns(text, width, short):
    assert shorten(text, width) == short


def test_tables_are_as_wide_as_they_need(capsys):
    long = "a label that is wider than any terminal " * 3
    print_table(make_console(), [["class", "rows"], [long, "12"], ["[b]x[/b]", "3"]])
    out = capsys.readouterr().out.splitlines()
    assert out[1] == f"{long}    12"
    assert out[2].startswith("[b]x[/b] ")
    assert out[0].endswith("rows")


def test_what_a_terminal_would_obey_is_shown(capsys):
    """An id of the data may clear the screen, retitle the window or fill the clipboard."""
    Display().note("first: \x1b[2J0, \x1b]0;mine\x07, \x9b31m, a\rb")
    print_table(make_console(), [["task", "id"], ["\x1b[31mred", "1"], ["plain", "2"]])
    done = capsys.readouterr()
    assert done.err == "note: first: ␛[2J0, ␛]0;mine␇, \ufffd31m, a␍b\n"
    assert done.out == "task      id\n␛[31mred   1\nplain      2\n"


def test_a_consoles_own_styles_stay(monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.delenv("NO_COLOR", raising=False)
    make_console().print("\x1b[31mred", style="bold")
    assert capsys.readouterr().out == "\x1b[1m␛[31mred\x1b[0m\n"
