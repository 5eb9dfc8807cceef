"""The words of a command line: help, refusals, removed names, exit codes."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from importlib.util import find_spec

import pytest
import typer

import plait.cli
from plait.cli.options import remember_command, resume_command
from plait.cli.removed import COMMANDS as REMOVED
from plait.cli.removed import OPTIONS
from plait.errors import (
    FREE_ROOM,
    DeviceMemoryError,
    Interrupted,
    RecipeError,
    ResourceError,
    UsageError,
)

COMMANDS = typer.main.get_command(plait.cli.app).commands


# --- help --------------------------------------------------------------------------------


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_an_example(plait, command):
    done = plait(command, "--help")
    assert (done.code, done.err) == (0, "")
    assert f"\n    plait {command}" in done.out.partition("Example")[2]


@pytest.mark.parametrize("args", [[], ["--help"]])
def test_plait_alone_lists_every_command(plait, args):
    done = plait(*args)
    assert done.code == 0
    for name, command in COMMANDS.items():
        about = command.help.partition("\n")[0].rstrip(".")
        assert f"\n    {name:11}{about}" in done.out


def test_version(plait):
    from plait import __version__

    assert plait("--version") == (0, f"plait {__version__}\n", "")


# --- refusals ----------------------------------------------------------------------------

REFUSALS = [
    # the words themselves
    ("trian", "no such command 'trian'"),
    ("train", "missing argument 'RECIPE'"),
    ("train course --nope", "no such option"),
    ("evaluate RUN --split nope", "'--split'"),
    ("predict RUN --format xml", "'--format'"),
    # recipes
    ("train corse", "no recipe 'corse'; did you mean 'course'?"),
    ("train nowhere.toml", "no recipe file nowhere.toml"),
    ("train course -o train.epohcs=2", "train.epohcs is not a setting; did you mean"),
    ("train course -o epochs", "is not key=value, nor a .toml file"),
    ("train demo --data nowhere", "no data folder nowhere (set by --data)"),
    ("train course --resume", "--resume needs --out"),
    ("train demo --resume --out nowhere", "no run at nowhere to resume"),
    ("train demo --out RUN", "exists already and is not overwritten"),
    ("train demo demo --out runs", "two recipes are named 'demo'"),
    ("train demo d/ensemble --out runs", "d/ensemble is an ensemble recipe"),
    ("train demo course --each-alone", "--each-alone takes one recipe"),
    ("train d/ensemble --each-alone", "is an ensemble recipe"),
    ("check dmeo", "there is no recipe 'dmeo'; did you mean 'demo'"),
    ("check demo --csv RECIPE", "exists already and is not overwritten"),
    ("plan demo --rows mood", "--rows names task 'mood'"),
    ("plan demo --rows sentiment=0", "should be TASK=N"),
    ("new mine", "name the data files after the folder"),
    ("new mine nowhere.csv", "nowhere.csv is not there"),
    ("new mine --task mood", "--task 'mood' is not of the form NAME=FILE"),
    ("new mine RECIPE --separator tab", "separator 'tab' is not one plain character"),
    ("search demo --resume", "--resume needs --out DIR"),
    ("augment demo --method pairs", "name the task with --task (paraphrase, similarity)"),
    ("augment demo --method words --task x", "demo has no task 'x'"),
    ("augment demo --method words --out RECIPE", "is not overwritten"),
    ("list head", "there is no list of 'head'; did you mean 'heads'?"),
    # jobs
    ("train demo --jobs 0", "--jobs 0 should be a number of processes, ray or ray:HOST:PORT"),
    ("train demo --jobs slurm", "should be a number of processes, ray or"),
    ("train demo --jobs 2", "--jobs N is for several runs"),
    ("train demo --jobs ray,gpu=1", "'gpu=1' should be runs=N, workers=N, cpus=N or gpus=N"),
    ("train demo --jobs ray,runs=1.5", "runs should be a whole number"),
    ("train demo --jobs ray,runs=2,workers=2", "one after the other"),
    ("train demo --jobs ray,gpus=1.5", "should be a part of one GPU"),
    ("train demo --jobs ray://head:10001", "the address of a Ray client"),
    ("predict RUN --jobs 2 a", "predict takes ray"),
    # runs
    ("evaluate nowhere", "there is no run at nowhere"),
    ("predict nowhere a", "there is no run at nowhere"),
    ("evaluate RUN --split test", "mood-test.csv has no column 'label', so task 'mood' cannot be"),
    ("evaluate RUN --split test --task same", "names no test files for same"),
    ("evaluate RUN --task mod", "has no task 'mod'; did you mean 'mood'?"),
    ("evaluate RUN --data nowhere", "no data folder nowhere"),
    ("evaluate RUN --device abacus", "device = 'abacus' cannot be used here"),
    ("evaluate RUN --without-implied --split train", "removes every training pair"),
    ("evaluate RUN --without-implied --task mood", "has no binary task on pairs"),
    ("evaluate RUN --against nowhere", "there is no run at nowhere"),
    ("evaluate RUN --csv nowhere/x.csv", "there is no folder nowhere for --csv nowhere/x.csv"),
    ("evaluate RUN --csv RECIPE", "exists already and is not overwritten"),
    ("explain RUN --task mood a b", "takes one text per example, got 2"),
    ("explain RUN --task mood a --label goof", "did you mean 'good'"),
    ("explain RUN a b", "name the task with --task (same, near)"),
    ("calibrate RUN --from nowhere --undo", "use --from or --undo, not both"),
    ("audit RUN --positive nice", "--positive 'nice' is not a label of a task on single texts"),
    ("audit RUN --data nowhere", "--rows 0 uses only sentences"),
    ("audit RUN --out nowhere/x.json", "there is no folder nowhere for --out nowhere/x.json"),
    ("audit RUN --words nowhere.toml", "there is no file nowhere.toml of words"),
    ("report RUN RUN --out card.md", "a model card describes one run"),
    ("report RUN --out page.pdf", "should end in .html (report) or .md (model card)"),
    ("report nowhere --out card.md", "there is no run at nowhere"),
    ("export RUN --format keras", "'keras' is not one of"),
    ("export RUN --format hf", "--format hf exports one task: name it with --task"),
    ("export RUN --format hf --task mood --precision int8", "int8 is only for --format onnx"),
    ("ensemble RUN", "missing option '--out'"),
    ("ensemble RUN nowhere --out new", "there is no run at"),
    ("ensemble RUN nowhere --out new --method weights", "there is no run at"),
    ("ensemble RUN --out RUN", "exists already"),
    ("ensemble RUN --out new --data x", "--data is for --method weights"),
    # texts and files
    ("predict RUN --task mood", "give texts as arguments, a file with --input, or lines"),
    (
        "predict RUN a b",
        "name the task with --task, because some tasks take one",
    ),
    ("predict RUN a --task same", "task 'same' needs pairs: give an even number of texts (got 1)"),
    ("predict RUN '' --task mood", "one of the texts is empty"),
    ("predict RUN a --input x.csv", "not both"),
    ("predict RUN a --column x", "--column describes a file: give the file with --input"),
    ("predict RUN a --separator ;", "--separator describes a file"),
    ("predict RUN --input nowhere.csv", "there is no file nowhere.csv"),
    ("predict RUN --input .", "is a folder: give a pattern, --input './*.csv'"),
    ("predict RUN a --out x.txt", "should end in .csv, .tsv, .jsonl or .parquet"),
    ("predict RUN a --out nowhere/x.csv", "there is no folder nowhere"),
    ("predict RUN a --out RECIPE --format csv", "exists already and is not overwritten"),
    ("predict RUN a --task mood --threshold 2", "a threshold must be a probability from 0 to 1"),
    ("predict RUN a --threshold .5 --accuracy .5", "not both"),
    ("predict RUN a --data x", "--data is for --split and --accuracy"),
    ("predict RUN a --review x.csv --threshold .5", "--review needs --input and --out"),
    ("predict RUN a --resume", "--resume needs the same --input and --out"),
    ("predict RUN a --format parquet", "format parquet cannot be printed: set --out"),
    ("predict RUN a b --task near --threshold .5", "task 'near' is of kind 'score'"),
    ("predict RUN --input *.csv", "--out must be a folder"),
    ("predict RUN --input *.csv --out a.csv", "--out must be a folder"),
    ("predict RUN --input *.csv --out a --review b.csv", "--review is for one file"),
    ("predict RUN --input *.nothing --out a", "no file matches"),
    ("predict RUN --split test", "--split needs --out DIR"),
    ("predict RUN a --split test --out a", "leave out the texts and --input"),
    ("predict RUN --split test --out a --accuracy .9", "gives every row a prediction"),
    ("predict RUN --split test --task same --out a", "names no test files"),
    ("embed RUN a --out x.npy", "--out needs --input"),
    ("embed RUN --input RECIPE", "--input needs --out"),
    ("embed RUN --input RECIPE --out x.csv", "should end in .npy"),
    ("embed RUN a --resume", "--resume needs the same --input and --out"),
    ("embed RUN --input no.csv --out x.npy", "there is no file no.csv"),
]


@pytest.mark.parametrize(("line", "sentence"), REFUSALS, ids=[line for line, _ in REFUSALS])
def test_refusals(plait, trained, tmp_path, monkeypatch, tiny_encoder, line, sentence):
    """One sentence, exit code 2, and nothing is written."""
    if "--jobs ray" in line and find_spec("ray") is None:
        pytest.skip("Ray is not installed (pip install 'plait[ray]')")
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    places = {"RUN": trained, "RECIPE": trained / "recipe.toml", "''": ""}
    words = [places.get(word, word) for word in line.split()]
    if words[0] == "train" and len(words) > 2:
        words += ["-o", f"encoder.source={tiny_encoder}", "-o", "encoder.max_length=32"]
    done = plait(*words, stdin=None)
    assert done.code == 2
    assert sentence in done.complaint()
    assert list((tmp_path / "work").iterdir()) == []


@pytest.mark.parametrize("line", ["search demo", "train demo meta", "predict RUN --input *.csv"])
def test_without_ray_it_says_what_to_install(plait, trained, tmp_path, monkeypatch, line):
    monkeypatch.setitem(sys.modules, "ray", None)
    words = [trained if word == "RUN" else word for word in line.split()]
    done = plait(*words, "--out", tmp_path / "x", "--jobs", "ray")
    assert done.complaint() == "--jobs ray needs Ray (pip install 'plait[ray]')"


@pytest.mark.parametrize(
    ("words", "stdin", "sentence"),
    [
        (["--task", "mood"], b"good\n\n", "<stdin>, line 2: the text is empty"),
        (["--task", "mood"], b"good\nb\0d\n", "<stdin>, line 2: the text contains a NUL"),
        (["--task", "mood"], b"caf\xe9\n", "<stdin>, line 1: the text is not UTF-8"),
        (["--task", "near"], b"a\tb\nc\n", "<stdin>, line 2: a pair is two texts"),
        (["--task", "mood", "caf\udce9"], b"", r"the text 'caf\udce9' is not UTF-8"),
    ],
)
def test_bad_texts_are_named(plait, trained, words, stdin, sentence):
    assert sentence in plait("predict", trained, *words, "--format", "words", stdin=stdin).err


# --- removed in 0.2 ----------------------------------------------------------------------


@pytest.mark.parametrize("command", REMOVED)
def test_a_removed_command_says_what_to_use(plait, command):
    done = plait(command, "x", "--out", "y")
    assert done.code == 2
    assert done.complaint() == f"`plait {command}` was removed in 0.2: {REMOVED[command]}"


def test_a_removed_option_says_what_to_use(plait):
    told = plait("train", "demo", "--engine", "ray").complaint()
    assert told.startswith("--engine was removed in 0.2: use --jobs ray")
    told = plait("embed", "run", "a", "--format", "npy").complaint()
    assert told == f"--format was removed in 0.2: {OPTIONS['embed --format']}"


def test_only_what_is_gone_is_called_removed():
    options = {
        f"{name} {option}"
        for name, command in COMMANDS.items()
        for param in command.params
        for option in (*param.opts, *param.secondary_opts)
    }
    assert options.isdisjoint(OPTIONS)
    assert COMMANDS.keys().isdisjoint(REMOVED)
    assert {key.split()[0] for key in OPTIONS if " " in key} <= COMMANDS.keys()


# --- exit codes --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "code", "sentence"),
    [
        (UsageError("this is wrong"), 2, "this is wrong"),
        (RecipeError("two\nlines"), 2, "two lines"),
        (OSError(errno.EROFS, "Read-only file system", "a/b"), 2, "a/b cannot be written"),
        (DeviceMemoryError("out of memory at batch size 8"), 1, "out of memory at batch size 8"),
        (Interrupted("saved"), 130, "saved"),
        (KeyboardInterrupt(), 130, "stopped"),
        (
            PermissionError(errno.EACCES, "Permission denied", "x.csv"),
            2,
            "x.csv: Permission denied",
        ),
        (OSError(errno.ENOSPC, "No space left on device", "x"), 1, "x: No space left"),
        (MemoryError(), 1, "out of memory; other programs"),
        (RuntimeError("CUDA out of memory"), 1, "out of memory"),
    ],
)
def test_an_error_becomes_a_sentence_and_an_exit_code(plait, monkeypatch, error, code, sentence):
    monkeypatch.setattr(sys.modules["plait.cli.doctor"], "_findings", lambda: raise_(error))
    done = plait("doctor")
    assert done.code == code
    assert sentence in done.complaint()


def raise_(error):
    raise error


def test_a_full_disk_names_the_command_that_continues(plait, monkeypatch):
    error = ResourceError(f"the disk is full. {FREE_ROOM}")
    monkeypatch.setattr(sys.modules["plait.cli.predict"], "_predict_file", lambda _: raise_(error))
    monkeypatch.setattr(sys.modules["plait.cli.doctor"], "_findings", lambda: raise_(error))
    assert (
        plait("predict", "run", "a b")
        .complaint()
        .endswith("then continue with: plait predict run 'a b' --resume")
    )
    assert plait("doctor").complaint().endswith("then continue with: plait doctor")


def test_notes_of_an_error_are_printed_before_it(plait, monkeypatch):
    error = UsageError("a worker failed")
    error.add_note("Traceback of a worker\n  in its file")
    monkeypatch.setattr(sys.modules["plait.cli.doctor"], "_findings", lambda: raise_(error))
    assert plait("doctor").err.splitlines() == [
        "Traceback of a worker",
        "  in its file",
        "plait: a worker failed",
    ]


def test_a_bug_of_ours_keeps_its_traceback(monkeypatch):
    error = RuntimeError("unexpected")
    monkeypatch.setattr(sys.modules["plait.cli.doctor"], "_findings", lambda: raise_(error))
    with pytest.raises(RuntimeError, match="unexpected"):
        plait_cli_main()


def plait_cli_main():
    plait.cli.main(["doctor"])


@pytest.mark.skipif(os.name != "posix", reason="pipes end differently on Windows")
def test_a_closed_pipe_is_no_traceback():
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "plait", "--help"], stdout=write, stderr=subprocess.PIPE, check=False
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (1, b"")


def test_the_command_to_resume_can_be_pasted():
    remember_command(["train", "my recipe.toml", "-o", "x=[1, 2]"])
    assert resume_command("--out", "a run") == (
        "plait train 'my recipe.toml' -o 'x=[1, 2]' --out 'a run' --resume"
    )
    remember_command(["train", "a.toml", "--resume"])
    assert resume_command() == "plait train a.toml --resume"
