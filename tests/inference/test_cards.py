"""Cards stay true: written anew after what changes a folder, with what people wrote in them."""

from __future__ import annotations

import json
import shutil

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from plait.inference.card import carry_over, make_card
from plait.inference.cards import card_renewed, write_card
from plait.inference.ensemble import make_ensemble
from plait.inference.fitting.calibrate import calibrate, undo

NOBODY = "- Confidence is the probability the model gives its answer."
MINE = "Ask Ruth before you use it for anything else."


@pytest.fixture
def run(tiny_run, tmp_path):
    return shutil.copytree(tiny_run, tmp_path / "run")


def read(run):
    return (run / "card.md").read_text(encoding="utf-8")


def write_in(run, before, text):
    """Put a line of one's own into a card, before another one."""
    card = read(run)
    assert before in card
    (run / "card.md").write_text(card.replace(before, f"{text}\n\n{before}"), encoding="utf-8")


# --- lines -------------------------------------------------------------------------------

LINES = st.lists(st.sampled_from(["", "a", "b", "c", "d", "e"]), min_size=1, max_size=8)


def join(lines):
    return "\n".join(lines) + "\n"


@given(LINES, LINES)
def test_a_card_nobody_touched_becomes_the_new_one(before, after):
    assert carry_over(join(before), join(before), join(after)) == join(after)


@given(LINES, LINES)
def test_where_nothing_changed_nothing_does(there, before):
    assert carry_over(join(there), join(before), join(before)) == join(there)


@given(LINES, LINES, st.integers(0, 8))
@example(["a", "a", "a"], ["a"], 1)  # whose longest stretch is behind one's own
def test_a_line_of_ones_own_is_never_lost(before, after, place):
    there = [*before[:place], "MINE", *before[place:]]
    lines = carry_over(join(there), join(before), join(after)).splitlines()
    assert lines.count("MINE") == 1
    assert [line for line in lines if line != "MINE"] == after


# --- folders -----------------------------------------------------------------------------


def test_a_calibration_comes_and_goes(run):
    plain = read(run)
    assert NOBODY in plain
    calibrate(run, device="cpu")
    assert read(run) == make_card(run)
    assert "## Calibration" in read(run)
    assert NOBODY not in read(run)
    undo(run)
    assert read(run) == plain


def test_what_people_wrote_stays(run):
    write_in(run, "## Limits", f"## House rules\n\n{MINE}")
    write_in(run, "- Inputs are cut", "- It knows no Welsh.")
    calibrate(run, device="cpu")
    card = read(run)
    assert "## Calibration" in card
    assert NOBODY not in card
    assert f"## House rules\n\n{MINE}\n" in card
    undo(run)
    own = ("## House rules", MINE, "- It knows no Welsh.")
    rest = [line for line in read(run).splitlines() if line and line not in own]
    assert rest == [line for line in make_card(run).splitlines() if line]


def test_an_ensemble_has_a_card_too(run, tiny_run, tmp_path):
    both = make_ensemble([run, tiny_run], tmp_path / "both", "mean")
    calibrate(both, device="cpu")
    assert "## Calibration" in read(both)
    assert read(both) == make_card(both)


def test_an_unfinished_run_gets_no_card(run):
    for name in ("card.md", "scores.json"):
        (run / name).unlink()
    calibrate(run, device="cpu")
    assert not (run / "card.md").exists()


def test_a_finished_one_without_gets_one(run):
    (run / "card.md").unlink()
    calibrate(run, device="cpu")
    assert read(run) == make_card(run)


def test_a_card_that_was_not_renewed_gets_the_whole_section(run):
    """As of a run that an earlier version calibrated, or where a kill came in between."""
    write_in(run, "## Limits", MINE)
    plain = read(run)
    calibrate(run, device="cpu")
    renewed = read(run)
    (run / "card.md").write_text(plain, encoding="utf-8")
    known = json.loads((run / "calibration.json").read_text())
    for task in known["tasks"].values():
        task["temperature"] += 1
    (run / "calibration.json").write_text(json.dumps(known))
    calibrate(run, device="cpu")
    assert read(run) == renewed
    (run / "card.md").write_text(plain, encoding="utf-8")
    with card_renewed(run):
        pass  # whatever is done next
    assert read(run) == renewed


def test_two_processes_at_once_add_a_section_each(run):
    values = {"settings": {"english": True}, "summary": [{"task": "topic", "probe": "names"}]}
    with card_renewed(run):
        calibrate(run, device="cpu")  # begun later, and done sooner
        (run / "audit.json").write_text(json.dumps(values))
    assert read(run) == make_card(run)
    assert read(run).count("## Calibration") == read(run).count("## Audit") == 1


def test_signs_that_other_programs_break_lines_at_stay(run):
    odd = "one\u2028two\x0cthree\x85four"
    write_in(run, "## Limits", odd)
    calibrate(run, device="cpu")
    assert f"\n{odd}\n" in read(run)


def test_a_damaged_file_is_no_hindrance(run):
    calibrate(run, device="cpu")
    (run / "calibration.json").write_text("{")
    write_in(run, "## Limits", MINE)
    undo(run)
    assert read(run) == make_card(run)
    (aside,) = run.glob("card-*.md")
    assert MINE in aside.read_text(encoding="utf-8")


def test_a_card_in_another_encoding_is_kept_beside_the_new_one(run):
    (run / "card.md").write_bytes("# Übung\n".encode("cp1252"))
    calibrate(run, device="cpu")
    assert read(run) == make_card(run)
    (aside,) = run.glob("card-*.md")
    assert aside.read_bytes() == "# Übung\n".encode("cp1252")


def test_what_the_card_cannot_be_made_of_leaves_it(run):
    old = read(run)
    with card_renewed(run):
        (run / "scores.json").write_text("{")
    assert read(run) == old


def test_a_card_is_set_aside_only_where_it_says_something_else(run):
    assert write_card(run, make_card(run)) is None
    (run / "card.md").write_text(MINE, encoding="utf-8")
    aside = write_card(run, make_card(run))
    assert aside.read_text(encoding="utf-8") == MINE
    assert read(run) == make_card(run)
