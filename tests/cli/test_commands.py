"""The line that goes on with a command says what the command was given."""

from pathlib import Path

from plait.cli.commands import write_command


def test_options_that_are_not_set_are_left_out():
    options = {
        "--out": Path("my runs"),
        "--jobs": 2,
        "--data": None,
        "--keep": False,
        "--space": "",
    }
    assert write_command(["plait", "x"], options) == "plait x --out 'my runs' --jobs 2"


def test_a_switch_stands_by_itself_and_the_rest_comes_last():
    line = write_command(["plait"], {"--keep": True}, ["a=[1, 2]", "b=3"], ["--resume"])
    assert line == "plait --keep -o 'a=[1, 2]' -o b=3 --resume"
