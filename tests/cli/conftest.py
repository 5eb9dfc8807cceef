"""The command line as its users meet it: words in; exit code, output and errors out."""

from __future__ import annotations

import io
import json
import random
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from safetensors.torch import load_file, save_file

from plait.cli import main


class Done(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str

    def complaint(self) -> str:
        """The one line of an error; fails if there is more, or anything on standard output."""
        lines = self.err.splitlines()
        assert len(lines) == 1, self.err
        assert lines[0].startswith("plait: ")
        assert self.out == ""
        return lines[0].removeprefix("plait: ")


Plait = Callable[..., Done]


class Terminal(io.StringIO):
    """Standard input that waits for somebody to type."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def plait(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Plait:
    """Run a command in this process, through the door that the script uses."""
    monkeypatch.delenv("PLAIT_DATA", raising=False)

    def run(*args: object, stdin: bytes | None = b"") -> Done:
        piped = None if stdin is None else io.TextIOWrapper(io.BytesIO(stdin), "utf-8")
        monkeypatch.setattr(sys, "stdin", piped or Terminal())
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main([str(arg) for arg in args])
        out, err = capsys.readouterr()
        return Done(int(ended.value.code or 0), out, err)

    return run


@pytest.fixture(scope="session")
def session_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cli")


@pytest.fixture
def trained(session_folder: Path, tiny_recipe: Callable[..., Path], plait: Plait) -> Path:
    """A run of the tiny recipe, trained once for all tests: read it, do not write to it.

    mood has a test file without labels, and its dev file one row without a label.
    """
    run = session_folder / "run"
    if not run.exists():
        recipe = tiny_recipe(session_folder / "data")
        data = recipe.parent
        lines = (data / "mood-dev.csv").read_text(encoding="utf-8").splitlines()
        (data / "mood-test.csv").write_text(
            "id,text\nt0,the film was great .\nt1,\nt2,the book was awful .\n", encoding="utf-8"
        )
        (data / "mood-dev.csv").write_text("\n".join([*lines, "m18,the end .,\n"]), "utf-8")
        done = plait(
            "train",
            recipe,
            "--out",
            run,
            *("-o", "tasks.mood.test=mood-test.csv"),
            *("-o", "tasks.mood.bad_rows=skip"),
            *("-o", "tasks.mood.submit_column=Predicted_Mood"),
            *("-o", "tasks.same.submit_name=para"),
        )
        assert done.code == 0, done.err
    return run


@pytest.fixture(scope="session")
def roomy_encoder(tiny_encoder: Path, session_folder: Path) -> Path:
    """The tiny encoder with positions for 64 tokens, which the demo's recipe asks for."""
    folder = session_folder / "roomy"
    shutil.copytree(tiny_encoder, folder)
    config = json.loads((folder / "config.json").read_text())
    weights = load_file(folder / "model.safetensors")
    for name, tensor in weights.items():
        if len(tensor) == config["max_position_embeddings"]:
            weights[name] = torch.cat([tensor, tensor])[:64].clone()
    (folder / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 64}))
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


# --- files as the course has them --------------------------------------------------------

MOODS = ("awful", "dull", "plain", "fine", "superb")
THINGS = ("film", "book", "song", "meal", "walk", "room", "game", "story", "train", "garden")


@pytest.fixture(scope="session")
def course(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the course's three tasks, small: tab-separated, an index column first."""
    folder = tmp_path_factory.mktemp("course")
    draw = random.Random(5)

    def say() -> tuple[str, int]:
        mood = draw.randrange(5)
        return f"the {draw.choice(THINGS)} was {MOODS[mood]} .", mood

    def write(name: str, header: str, rows: list[str]) -> None:
        text = "\n".join([f"\tid\t{header}", *rows]) + "\n"
        (folder / name).write_text(text, encoding="utf-8")

    for split, count in (("train", 24), ("dev", 12)):
        sst, quora, sts = [], [], []
        for i in range(count):
            (one, first), (two, second) = say(), say()
            sst.append(f"{i}\ts{i}\t{one}\t{first}")
            quora.append(f"{i}\tq{i}\t{one}\t{two}\t{float(first == second)}")
            sts.append(f"{i}\tt{i}\t{one}\t{two}\t{5.0 - abs(first - second)}")
        write(f"ids-sst-{split}.csv", "sentence\tsentiment", sst)
        write(f"quora-{split}.csv", "sentence1\tsentence2\tis_duplicate", quora)
        write(f"sts-{split}.csv", "sentence1\tsentence2\tsimilarity", sts)
    return folder
